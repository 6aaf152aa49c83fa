// SPDX-License-Identifier: Apache-2.0
//! Puts a system on the disk: images, config drives, files, boot entries.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_protocol::{ImageInfo, PartitionUuids, StepOrder};
use disk_steps::bootloader::{self, BootloaderOptions};
use disk_steps::image::{self, WriteOptions, Written};
use disk_steps::partitions::{self, PartitionOptions};
use disk_steps::{Http, Progress, config_drive, efi, inject, kexec};
use serde_json::{Map, Value, json};

use super::StepError;
use super::burn_in::available_memory;
use super::disks::{blocking, fail, root_device, written_device};
use crate::agent::Agent;
use crate::logs::causes;

/// How often progress is logged.
const PERIOD: Duration = Duration::from_secs(10);

/// Writes an image and perhaps a config drive. The result says what was written where, as
/// ironic-python-agent says it.
///
/// # Errors
/// If the image is not on the disk.
pub async fn write(
    agent: &Agent,
    node: &Map<String, Value>,
    arguments: &Map<String, Value>,
) -> Result<Value, StepError> {
    let info = arguments.get("image_info").cloned().unwrap_or_default();
    let mut image: ImageInfo = serde_json::from_value(info).map_err(|error| {
        fail("InvalidCommandParamsError", &format!("image_info cannot be used: {error}"))
    })?;
    let drive = arguments.get("configdrive").cloned().or_else(|| image.rest.remove("configdrive"));
    let drive = drive.as_ref().and_then(Value::as_str).filter(|text| !text.is_empty());
    let disk = root_device(agent, node).await.map_err(|error| fail("DeviceNotFound", &error))?;
    let device = PathBuf::from(&disk.name);
    let options = options(agent);
    // A config drive that cannot be had is no reason to write an image first.
    let drive = match drive {
        Some(text) => Some(config_drive::fetch(text, &options.http).await.map_err(|error| {
            fail("ImageWriteError", &format!("the config drive cannot be had: {}", causes(&error)))
        })?),
        None => None,
    };
    tracing::info!(image = image.id, device = disk.name, "an image is written");
    let uuids = if image.image_type.as_deref() == Some("partition") {
        agent.load_file_systems();
        write_partition_image(image.clone(), device, drive, options).await?
    } else {
        write_whole_disk(&image, &device, drive, &options).await?
    };
    let root = uuids.root.clone().unwrap_or_else(|| "None".to_owned());
    agent.remember_partitions(uuids);
    let result = format!(
        "prepare_image: image ({}) written to device {} root_uuid={root}",
        image.id, disk.name
    );
    agent.remember_written(disk);
    Ok(json!({ "result": result }))
}

/// Tells how far something is, now and then.
pub(super) fn report(last: &Mutex<Instant>, progress: Progress) {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if last.elapsed() >= PERIOD {
        *last = Instant::now();
        let mebibytes = progress.done >> 20;
        match progress.total {
            Some(total) => {
                tracing::info!(done = mebibytes, of = total >> 20, "{} (MiB)", progress.what)
            }
            None => tracing::info!(done = mebibytes, "{} (MiB)", progress.what),
        }
    }
}

/// How images are fetched.
pub(super) fn http(agent: &Agent) -> Http {
    let settings = &agent.settings;
    Http {
        tls: agent.reach.tls.clone(),
        resolver: Some(Arc::clone(&agent.reach.resolver) as Arc<dyn reqwest::dns::Resolve>),
        connect_timeout: settings.image_timeout,
        silence: settings.image_timeout,
        retries: settings.image_retries,
        pause: settings.image_retry_interval,
        longest: (!settings.image_longest.is_zero()).then_some(settings.image_longest),
    }
}

fn options(agent: &Agent) -> WriteOptions {
    let server = agent.server_settings();
    WriteOptions {
        http: http(agent),
        md5_allowed: server.as_ref().is_some_and(|server| server.agent_md5_checksum_enable),
        permitted_formats: server.as_ref().map_or_else(
            || ["raw", "gpt", "qcow2", "iso"].map(str::to_owned).to_vec(),
            |server| server.permitted_image_formats.clone(),
        ),
        inspect: !server.is_some_and(|server| server.disable_deep_image_inspection),
        memory: available_memory().unwrap_or_default() / 2,
    }
}

async fn write_whole_disk(
    image: &ImageInfo,
    device: &Path,
    drive: Option<Vec<u8>>,
    options: &WriteOptions,
) -> Result<PartitionUuids, StepError> {
    let last = Mutex::new(Instant::now());
    let written = image::write(image, device, options, &|progress| report(&last, progress)).await;
    let written = written.map_err(|error| fail(kind_of(&error), &causes(&error)))?;
    say(&written, device);
    let place = device.to_owned();
    blocking(move || {
        if let Some(drive) = drive {
            config_drive::write(&place, &drive).map_err(|error| {
                fail(
                    "ImageWriteError",
                    &format!("the config drive could not be written: {}", causes(&error)),
                )
            })?;
        }
        partitions::uuids(&place).map_err(|error| fail("ImageWriteError", &causes(&error)))
    })
    .await?
}

fn say(written: &Written, device: &Path) {
    let rate = written.written as f64 / (1 << 20) as f64 / written.seconds.max(0.001);
    tracing::info!(
        device = %device.display(),
        url = written.url,
        format = written.format,
        downloaded = written.downloaded,
        written = written.written,
        seconds = format!("{:.1}", written.seconds),
        mib_per_second = format!("{rate:.1}"),
        checksum = written.checksum,
        "the image is on the disk"
    );
}

/// The name ironic-python-agent has for what went wrong.
fn kind_of(error: &image::Error) -> &'static str {
    use image::Error as E;
    match error {
        E::NoUrl | E::Http(_) | E::Changed { .. } => "ImageDownloadError",
        E::NoChecksum | E::Checksum(_) | E::Mismatch { .. } => "ImageChecksumError",
        E::Format { .. } => "InvalidImage",
        E::Qcow2 { .. }
        | E::Unpack { .. }
        | E::TooLarge { .. }
        | E::NoMemory { .. }
        | E::Device(_)
        | E::Lost => "ImageWriteError",
    }
}

async fn write_partition_image(
    image: ImageInfo,
    device: PathBuf,
    drive: Option<Vec<u8>>,
    options: WriteOptions,
) -> Result<PartitionUuids, StepError> {
    // Making file systems takes its time; so this is not done where commands are answered.
    let handle = tokio::runtime::Handle::current();
    let work = move || {
        let efi = Path::new("/sys/firmware/efi").exists();
        let layout = PartitionOptions {
            uefi: image.deploy_boot_mode.as_deref().map_or(efi, |mode| mode == "uefi"),
            gpt: image.disk_label.as_deref().map(|label| label == "gpt"),
            config_drive: drive.as_deref(),
        };
        let last = Mutex::new(Instant::now());
        let tell = |progress| report(&last, progress);
        handle
            .block_on(partitions::write_partition_image(&image, &device, &layout, &options, &tell))
    };
    blocking(work).await?.map_err(|error| fail("ImageWriteError", &causes(&error)))
}

/// Puts files into the system on the disk.
pub(super) async fn inject(
    agent: &Agent,
    order: &StepOrder,
    arguments: &Map<String, Value>,
) -> Result<Value, StepError> {
    let listed = order.node.get("properties").and_then(|properties| properties.get("inject_files"));
    let wrong = |error: inject::Error| fail("CommandExecutionError", &causes(&error));
    let files = inject::parse(listed, arguments.get("files")).map_err(wrong)?;
    if files.is_empty() {
        return Ok(Value::Null);
    }
    let disk =
        written_device(agent, &order.node).await.map_err(|error| fail("DeviceNotFound", &error))?;
    agent.load_file_systems();
    let mut http = http(agent);
    if arguments.get("verify_ca").and_then(agent_protocol::flag) == Some(false) {
        http.tls = server_trust::trusting_anybody();
    }
    let facts = json!({"node": order.node, "ports": order.ports});
    let handle = tokio::runtime::Handle::current();
    let work =
        move || handle.block_on(inject::inject(Path::new(&disk.name), &files, &facts, &http));
    blocking(work).await?.map_err(wrong)?;
    Ok(Value::Null)
}

/// Deletes boot entries that match patterns.
pub(super) async fn clean_nvram(arguments: &Map<String, Value>) -> Result<Value, StepError> {
    let patterns: Option<Vec<String>> = match arguments.get("match_patterns") {
        None | Some(Value::Null) => None,
        Some(given) => Some(serde_json::from_value(given.clone()).map_err(|_| {
            fail("InvalidCommandParamsError", "match_patterns must be a list of texts")
        })?),
    };
    let removed =
        blocking(move || efi::clean_nvram(Path::new(efi::VARIABLES), patterns.as_deref())).await?;
    match removed {
        Ok(removed) => {
            tracing::info!(entries = removed.len(), "boot entries were deleted");
            Ok(Value::Null)
        }
        Err(error @ efi::Error::NoVariables { .. }) => {
            tracing::warn!(%error, "there are no boot entries to delete");
            Ok(Value::Null)
        }
        Err(error) => Err(fail("CommandExecutionError", &causes(&error))),
    }
}

/// Makes the machine boot from its disk: `image.install_bootloader`.
///
/// # Errors
/// If it would not.
pub async fn install_bootloader(
    agent: &Agent,
    params: &Map<String, Value>,
) -> Result<(), StepError> {
    let text =
        |name: &str| params.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let root = text("root_uuid").filter(|uuid| *uuid != "0x00000000");
    let ignore = params
        .get("ignore_bootloader_failure")
        .and_then(agent_protocol::flag)
        .unwrap_or(agent.settings.ignore_bootloader_failure);
    let node = agent.node();
    let disk =
        written_device(agent, &node).await.map_err(|error| fail("DeviceNotFound", &error))?;
    agent.load_file_systems();
    let uefi = Path::new(efi::VARIABLES).exists();
    if !uefi && root.is_none() {
        tracing::info!("the machine boots by BIOS, and the image brings its own boot loader");
        return Ok(());
    }
    let (root, esp) = (root.map(str::to_owned), text("efi_system_part_uuid").map(str::to_owned));
    // Whoever does not say so does not allow it.
    let may_run_its_programs = agent.server_settings().is_some_and(|server| {
        let allowed = server.rest.get("enable_bios_bootloader_install");
        allowed.and_then(agent_protocol::flag) == Some(true)
    });
    let installed = blocking(move || {
        let options = BootloaderOptions {
            uefi,
            root_uuid: root.as_deref(),
            efi_system_partition_uuid: esp.as_deref(),
            may_run_its_programs,
            variables: Path::new(efi::VARIABLES),
            sys: Path::new("/sys"),
        };
        bootloader::install(Path::new(&disk.name), &options)
    });
    let (kind, failure) = match installed.await? {
        Ok(installed) => {
            tracing::info!(?installed, "the machine boots from its disk now");
            return Ok(());
        }
        Err(error @ bootloader::Error::Forbidden) => ("InvalidImage", causes(&error)),
        Err(error) => ("CommandExecutionError", causes(&error)),
    };
    if ignore {
        tracing::warn!(failure, "the failure is ignored, as was asked");
        return Ok(());
    }
    Err(fail(kind, &failure))
}

/// Loads the kernel of the system on the disk. The next call starts it.
///
/// # Errors
/// If it is not found, or the kernel does not take it.
pub async fn load_for_kexec(agent: &Agent) -> Result<String, StepError> {
    let node = agent.node();
    let disk =
        written_device(agent, &node).await.map_err(|error| fail("DeviceNotFound", &error))?;
    agent.load_file_systems();
    let loaded = blocking(move || {
        let plan = kexec::plan(Path::new(&disk.name))?;
        tracing::info!(from = plan.from, command_line = plan.command_line, "a kernel was found");
        kexec::load(&plan)?;
        Ok::<_, kexec::Error>(plan.from)
    });
    loaded.await?.map_err(|error| fail("CommandExecutionError", &causes(&error)))
}

/// Starts the kernel that was loaded. Returns only if that fails.
pub fn start_by_kexec() {
    let Err(error) = kexec::boot();
    tracing::error!(error = causes(&error), "the loaded kernel did not start");
}
