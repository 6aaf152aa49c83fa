// SPDX-License-Identifier: Apache-2.0
//! Writing an image: fetching it and comparing its checksum, if the fleet is told to, and noting
//! what is on the disk now.

use std::fmt::Write as _;
use std::sync::Arc;

use agent_protocol::{CommandError, ImageInfo, StepOrder};
use serde_json::Value;
use sha2::{Digest as _, Sha256, Sha512};

use super::Site;
use super::calls::CallError;
use crate::bmc::Bmc;
use crate::machine::WrittenImage;

/// The longest list of checksums that is read.
const LONGEST_LIST: usize = 1 << 20;

/// Writes the image of a step, and tells so.
pub(super) async fn write(
    bmc: &Arc<Bmc>,
    site: &Site,
    order: &StepOrder,
) -> Result<String, CommandError> {
    let argument = |name: &str| order.arguments().and_then(|arguments| arguments.get(name));
    let info = match argument("image_info") {
        Some(info) => serde_json::from_value(info.clone())
            .map_err(|error| error_of("InvalidCommandParamsError", &error.to_string()))?,
        // A container has an address and nothing else.
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
        return Err(error_of("InvalidCommandParamsError", "there is no URL of an image"));
    };
    let mut checksum = info.os_hash_value.clone().or_else(|| info.checksum.clone());
    if site.config.downloads && source.starts_with("http") {
        checksum = Some(fetch(site, source, &info).await?);
    }
    let config_drive = argument("configdrive")
        .is_some_and(|drive| drive.as_str().is_some_and(|drive| !drive.is_empty()));
    bmc.with(|machine, now| {
        machine.set_disk(Some(WrittenImage {
            source: source.as_str().into(),
            checksum: checksum.map(String::into_boxed_str),
            config_drive,
            at: now,
        }));
        let root = machine.identity().uuid();
        Ok(format!("image ({}) written to device /dev/sda root_uuid={root}", info.id))
    })
}

/// Fetches an image and gives its checksum, if it is the announced one.
async fn fetch(site: &Site, url: &str, info: &ImageInfo) -> Result<String, CommandError> {
    let announced = announced(site, url, info).await?;
    let mut short = Sha256::new();
    let mut long = Sha512::new();
    let is_long = announced.as_ref().is_some_and(|checksum| checksum.len() == 128);
    let fetched =
        site.fetch(url, |piece| if is_long { long.update(piece) } else { short.update(piece) });
    fetched.await.map_err(|error| download_error(url, &error))?;
    let found =
        if is_long { hexadecimal(&long.finalize()) } else { hexadecimal(&short.finalize()) };
    match announced {
        // MD5 is not computed here.
        Some(announced) if announced.len() != 32 && announced != found => {
            Err(checksum_error(url, &announced, &found))
        }
        Some(_) | None => Ok(found),
    }
}

/// The checksum an image came with: given, or in a file.
async fn announced(
    site: &Site,
    url: &str,
    info: &ImageInfo,
) -> Result<Option<String>, CommandError> {
    let Some(given) = info.os_hash_value.as_ref().or(info.checksum.as_ref()) else {
        return Ok(None);
    };
    if !given.contains("://") {
        return Ok(Some(given.to_ascii_lowercase()));
    }
    let mut list = Vec::new();
    let fetched = site.fetch(given, |piece| {
        if list.len() < LONGEST_LIST {
            list.extend_from_slice(piece);
        }
    });
    fetched.await.map_err(|error| download_error(given, &error))?;
    let list = String::from_utf8_lossy(&list).into_owned();
    let name = url.rsplit('/').next().unwrap_or(url);
    let line = list.lines().find(|line| line.contains(name)).or_else(|| list.lines().next());
    let is_digest = |word: &&str| word.len() >= 32 && word.bytes().all(|it| it.is_ascii_hexdigit());
    let digest = line.and_then(|line| line.split_whitespace().find(is_digest));
    Ok(digest.map(str::to_ascii_lowercase))
}

pub(super) fn checksum_error(image: &str, announced: &str, found: &str) -> CommandError {
    let why = format!("{image} has the checksum {found}, and {announced} was announced");
    error_of("ImageChecksumError", &why)
}

fn download_error(url: &str, error: &CallError) -> CommandError {
    error_of("ImageDownloadError", &format!("{url} cannot be fetched: {error}"))
}

fn error_of(kind: &str, why: &str) -> CommandError {
    CommandError {
        kind: kind.to_owned(),
        code: Some(500),
        message: Some("Deploy step failed".to_owned()),
        details: Some(format!("Deploy step failed: {why}")),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}
