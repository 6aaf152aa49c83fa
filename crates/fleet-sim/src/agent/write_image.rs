// SPDX-License-Identifier: Apache-2.0
//! The step `write_image`: downloads and verifies the image if configured, and records it as the
//! content of the disk.

use std::sync::Arc;

use agent_protocol::{
    AgentCommandError, ExecuteStepRequest, ImageInfo, RootDeviceError, choose_root_device,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256, Sha512};

use super::api_client::AgentCallError;
use super::{AgentContext, inventory, to_hex};
use crate::machine::WrittenImage;
use crate::simulated_bmc::SimulatedBmc;

/// Limit for checksum files.
const MAX_CHECKSUM_FILE_BYTES: usize = 1 << 20;

/// Writes the image of a step. Returns the result text of ironic-python-agent.
pub(super) async fn write_image(
    bmc: &Arc<SimulatedBmc>,
    context: &AgentContext,
    request: &ExecuteStepRequest,
) -> Result<String, AgentCommandError> {
    let argument = |name: &str| request.arguments().and_then(|arguments| arguments.get(name));
    let info = match argument("image_info") {
        Some(info) => serde_json::from_value(info.clone())
            .map_err(|error| command_error("InvalidCommandParamsError", &error.to_string()))?,
        // `execute_bootc_install` has only the URL of a container image.
        None => ImageInfo {
            urls: argument("image_source")
                .and_then(Value::as_str)
                .map(str::to_owned)
                .into_iter()
                .collect(),
            ..ImageInfo::default()
        },
    };
    let Some(source) = info.urls.first() else {
        return Err(command_error("InvalidCommandParamsError", "no image URL"));
    };
    let device = root_device(bmc, request)?;
    let mut checksum = info.os_hash_value.clone().or_else(|| info.checksum.clone());
    if context.config.downloads_images && source.starts_with("http") {
        checksum = Some(download_and_verify(context, source, &info).await?);
    }
    let config_drive = argument("configdrive")
        .is_some_and(|drive| drive.as_str().is_some_and(|drive| !drive.is_empty()));
    bmc.with_model(|machine, now| {
        machine.set_disk_image(Some(WrittenImage {
            source: source.as_str().into(),
            device: device.as_str().into(),
            checksum: checksum.map(String::into_boxed_str),
            config_drive,
            at: now,
        }));
        let root = machine.identity().uuid();
        Ok(format!("image ({}) written to device {device} root_uuid={root}", info.id))
    })
}

/// Returns the disk that the root device hints of the node select; those of the instance precede those in
/// `properties`, as in ironic-python-agent.
fn root_device(
    bmc: &SimulatedBmc,
    request: &ExecuteStepRequest,
) -> Result<String, AgentCommandError> {
    let hints = ["instance_info", "properties"]
        .iter()
        .filter_map(|field| request.node.get(*field)?.get("root_device")?.as_object())
        .find(|hints| !hints.is_empty());
    let disks = bmc.with_model(|machine, _| inventory::disks(machine));
    match choose_root_device(&disks, hints) {
        Ok(disk) => Ok(disk.name.clone()),
        Err(RootDeviceError::Hints(error)) => {
            let reason = format!("invalid root device hints: {error}");
            Err(command_error("DeviceNotFound", &reason))
        }
        Err(error) => Err(command_error("DeviceNotFound", &error.to_string())),
    }
}

/// Downloads an image and returns its checksum. Fails if it differs from the expected one.
async fn download_and_verify(
    context: &AgentContext,
    url: &str,
    info: &ImageInfo,
) -> Result<String, AgentCommandError> {
    let expected = expected_checksum(context, url, info).await?;
    let mut sha256 = Sha256::new();
    let mut sha512 = Sha512::new();
    let is_sha512 = expected.as_ref().is_some_and(|checksum| checksum.len() == 128);
    let download = context
        .download(url, |chunk| if is_sha512 { sha512.update(chunk) } else { sha256.update(chunk) });
    download.await.map_err(|error| download_error(url, &error))?;
    let actual = if is_sha512 { to_hex(&sha512.finalize()) } else { to_hex(&sha256.finalize()) };
    match expected {
        // MD5 is not verified.
        Some(expected) if expected.len() != 32 && expected != actual => {
            let reason = format!("{url} has the checksum {actual}, expected {expected}");
            Err(command_error("ImageChecksumError", &reason))
        }
        Some(_) | None => Ok(actual),
    }
}

/// Returns the expected checksum of an image, from the image info or from a checksum file.
async fn expected_checksum(
    context: &AgentContext,
    url: &str,
    info: &ImageInfo,
) -> Result<Option<String>, AgentCommandError> {
    let Some(checksum) = info.os_hash_value.as_ref().or(info.checksum.as_ref()) else {
        return Ok(None);
    };
    if !checksum.contains("://") {
        return Ok(Some(checksum.to_ascii_lowercase()));
    }
    let mut file = Vec::new();
    let download = context.download(checksum, |chunk| {
        if file.len() < MAX_CHECKSUM_FILE_BYTES {
            file.extend_from_slice(chunk);
        }
    });
    download.await.map_err(|error| download_error(checksum, &error))?;
    let file = String::from_utf8_lossy(&file).into_owned();
    let name = url.rsplit('/').next().unwrap_or(url);
    let line = file.lines().find(|line| line.contains(name)).or_else(|| file.lines().next());
    let is_digest = |word: &&str| word.len() >= 32 && word.bytes().all(|it| it.is_ascii_hexdigit());
    match line.and_then(|line| line.split_whitespace().find(is_digest)) {
        Some(digest) => Ok(Some(digest.to_ascii_lowercase())),
        None => {
            let reason = format!("{checksum} has no checksum of {name}");
            Err(command_error("ImageChecksumError", &reason))
        }
    }
}

fn download_error(url: &str, error: &AgentCallError) -> AgentCommandError {
    command_error("ImageDownloadError", &format!("cannot download {url}: {error}"))
}

pub(super) fn command_error(kind: &str, reason: &str) -> AgentCommandError {
    AgentCommandError {
        kind: kind.to_owned(),
        code: Some(500),
        message: Some("Deploy step failed".to_owned()),
        details: Some(format!("Deploy step failed: {reason}")),
    }
}
