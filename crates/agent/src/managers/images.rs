// SPDX-License-Identifier: Apache-2.0
//! Deploys the operating system: images, config drives, files and boot entries.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_protocol::{ExecuteStepRequest, ImageInfo, PartitionUuids};
use disk_steps::bootloader::{self, BootloaderOptions};
use disk_steps::image::{self, ImageWriteOptions, ImageWriteReport};
use disk_steps::partitions::{self, PartitionOptions};
use disk_steps::{DiskProgress, DownloadSettings, config_drive, efi, inject, kexec};
use serde_json::{Map, Value, json};

use super::ManagerStepError;
use super::burn_in::available_memory;
use super::disks::{root_device, run_blocking, step_error, written_device};
use crate::agent::RamdiskAgent;
use error_chain::error_chain;

/// The interval of progress messages in the log.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Writes an image and, if given, a config drive. Returns the result text of ironic-python-agent.
///
/// # Errors
/// If the image or the config drive was not written.
pub async fn write_image(
    agent: &RamdiskAgent,
    node: &Map<String, Value>,
    arguments: &Map<String, Value>,
) -> Result<Value, ManagerStepError> {
    let info = arguments.get("image_info").cloned().unwrap_or_default();
    let mut image: ImageInfo = serde_json::from_value(info).map_err(|error| {
        step_error("InvalidCommandParamsError", &format!("invalid image_info: {error}"))
    })?;
    let drive = arguments.get("configdrive").cloned().or_else(|| image.rest.remove("configdrive"));
    let drive = drive.as_ref().and_then(Value::as_str).filter(|text| !text.is_empty());
    let disk =
        root_device(agent, node).await.map_err(|error| step_error("DeviceNotFound", &error))?;
    let device = PathBuf::from(&disk.name);
    let options = write_options(agent);
    // Fetched first, so that a missing config drive fails before the disk is overwritten.
    let drive = match drive {
        Some(text) => Some(config_drive::fetch(text, &options.http).await.map_err(|error| {
            step_error(
                "ImageWriteError",
                &format!("cannot fetch the config drive: {}", error_chain(&error)),
            )
        })?),
        None => None,
    };
    tracing::info!(image = image.id, device = disk.name, "image write started");
    let uuids = if image.image_type.as_deref() == Some("partition") {
        agent.load_file_systems();
        write_partition_image(image.clone(), device, drive, options).await?
    } else {
        write_whole_disk(&image, &device, drive, &options).await?
    };
    let root = uuids.root.clone().unwrap_or_else(|| "None".to_owned());
    agent.set_partitions(uuids);
    let result = format!(
        "prepare_image: image ({}) written to device {} root_uuid={root}",
        image.id, disk.name
    );
    agent.set_written_disk(disk);
    Ok(json!({ "result": result }))
}

/// Logs the progress of an operation at intervals.
pub(super) fn log_progress(last: &Mutex<Instant>, progress: DiskProgress) {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if last.elapsed() >= PROGRESS_INTERVAL {
        *last = Instant::now();
        let mebibytes = progress.done >> 20;
        match progress.total {
            Some(total) => {
                tracing::info!(done = mebibytes, of = total >> 20, "{} (MiB)", progress.step)
            }
            None => tracing::info!(done = mebibytes, "{} (MiB)", progress.step),
        }
    }
}

/// Returns the download settings for images.
pub(super) fn download_settings(agent: &RamdiskAgent) -> DownloadSettings {
    let settings = &agent.options;
    DownloadSettings {
        tls: agent.http.tls.clone(),
        resolver: Some(Arc::clone(&agent.http.resolver) as Arc<dyn reqwest::dns::Resolve>),
        connect_timeout: settings.image_timeout,
        read_timeout: settings.image_timeout,
        retries: settings.image_retries,
        retry_interval: settings.image_retry_interval,
        total_timeout: (!settings.image_max_duration.is_zero())
            .then_some(settings.image_max_duration),
    }
}

fn write_options(agent: &RamdiskAgent) -> ImageWriteOptions {
    let server = agent.server_config();
    ImageWriteOptions {
        http: download_settings(agent),
        md5_allowed: server.as_ref().is_some_and(|server| server.agent_md5_checksum_enable),
        permitted_formats: server.as_ref().map_or_else(
            || ["raw", "gpt", "qcow2", "iso"].map(str::to_owned).to_vec(),
            |server| server.permitted_image_formats.clone(),
        ),
        inspect: !server.is_some_and(|server| server.disable_deep_image_inspection),
        memory_limit: available_memory().unwrap_or_default() / 2,
    }
}

async fn write_whole_disk(
    image: &ImageInfo,
    device: &Path,
    drive: Option<Vec<u8>>,
    options: &ImageWriteOptions,
) -> Result<PartitionUuids, ManagerStepError> {
    let last = Mutex::new(Instant::now());
    let written =
        image::write(image, device, options, &|progress| log_progress(&last, progress)).await;
    let written = written.map_err(|error| step_error(error_type(&error), &error_chain(&error)))?;
    log_report(&written, device);
    let device_path = device.to_owned();
    run_blocking(move || {
        if let Some(drive) = drive {
            config_drive::write(&device_path, &drive).map_err(|error| {
                step_error(
                    "ImageWriteError",
                    &format!("cannot write the config drive: {}", error_chain(&error)),
                )
            })?;
        }
        partitions::disk_identifier(&device_path)
            .map_err(|error| step_error("ImageWriteError", &error_chain(&error)))
    })
    .await?
}

fn log_report(written: &ImageWriteReport, device: &Path) {
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
        "image written"
    );
}

/// Returns the error type of ironic-python-agent for an error.
fn error_type(error: &image::ImageWriteError) -> &'static str {
    use image::ImageWriteError as E;
    match error {
        E::NoUrl | E::Download(_) | E::Changed { .. } => "ImageDownloadError",
        E::NoChecksum | E::Checksum(_) | E::Mismatch { .. } => "ImageChecksumError",
        E::Format { .. } => "InvalidImage",
        E::Qcow2 { .. }
        | E::Unpack { .. }
        | E::TooLarge { .. }
        | E::NoMemory { .. }
        | E::Device(_)
        | E::Aborted => "ImageWriteError",
    }
}

async fn write_partition_image(
    image: ImageInfo,
    device: PathBuf,
    drive: Option<Vec<u8>>,
    options: ImageWriteOptions,
) -> Result<PartitionUuids, ManagerStepError> {
    // Creating file systems blocks, so it must not run on the thread that serves commands.
    let handle = tokio::runtime::Handle::current();
    let work = move || {
        let efi = Path::new("/sys/firmware/efi").exists();
        let layout = PartitionOptions {
            uefi: image.deploy_boot_mode.as_deref().map_or(efi, |mode| mode == "uefi"),
            gpt: image.disk_label.as_deref().map(|label| label == "gpt"),
            config_drive: drive.as_deref(),
        };
        let last = Mutex::new(Instant::now());
        let on_progress = |progress| log_progress(&last, progress);
        handle.block_on(partitions::write_partition_image(
            &image,
            &device,
            &layout,
            &options,
            &on_progress,
        ))
    };
    run_blocking(work).await?.map_err(|error| step_error("ImageWriteError", &error_chain(&error)))
}

/// Writes files into the deployed system.
pub(super) async fn inject_files(
    agent: &RamdiskAgent,
    request: &ExecuteStepRequest,
    arguments: &Map<String, Value>,
) -> Result<Value, ManagerStepError> {
    let listed =
        request.node.get("properties").and_then(|properties| properties.get("inject_files"));
    let inject_error =
        |error: inject::InjectError| step_error("CommandExecutionError", &error_chain(&error));
    let files = inject::parse(listed, arguments.get("files")).map_err(inject_error)?;
    if files.is_empty() {
        return Ok(Value::Null);
    }
    let disk = written_device(agent, &request.node)
        .await
        .map_err(|error| step_error("DeviceNotFound", &error))?;
    agent.load_file_systems();
    let mut http = download_settings(agent);
    if arguments.get("verify_ca").and_then(agent_protocol::parse_bool) == Some(false) {
        http.tls = server_trust::unverified_client_config();
    }
    let context = json!({"node": request.node, "ports": request.ports});
    let handle = tokio::runtime::Handle::current();
    let work =
        move || handle.block_on(inject::inject(Path::new(&disk.name), &files, &context, &http));
    run_blocking(work).await?.map_err(inject_error)?;
    Ok(Value::Null)
}

/// Deletes UEFI boot entries that match patterns.
pub(super) async fn clean_nvram(arguments: &Map<String, Value>) -> Result<Value, ManagerStepError> {
    let patterns: Option<Vec<String>> = match arguments.get("match_patterns") {
        None | Some(Value::Null) => None,
        Some(given) => Some(serde_json::from_value(given.clone()).map_err(|_| {
            step_error("InvalidCommandParamsError", "match_patterns must be a list of strings")
        })?),
    };
    let removed =
        run_blocking(move || efi::clean_nvram(Path::new(efi::VARIABLES), patterns.as_deref()))
            .await?;
    match removed {
        Ok(removed) => {
            tracing::info!(entries = removed.len(), "boot entries deleted");
            Ok(Value::Null)
        }
        Err(error @ efi::EfiError::NoVariables { .. }) => {
            tracing::warn!(%error, "no boot entries to delete");
            Ok(Value::Null)
        }
        Err(error) => Err(step_error("CommandExecutionError", &error_chain(&error))),
    }
}

/// Makes the machine boot from its disk: `image.install_bootloader`.
///
/// # Errors
/// If the boot loader cannot be installed.
pub async fn install_bootloader(
    agent: &RamdiskAgent,
    params: &Map<String, Value>,
) -> Result<(), ManagerStepError> {
    let text =
        |name: &str| params.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let root = text("root_uuid").filter(|uuid| *uuid != "0x00000000");
    let ignore = params
        .get("ignore_bootloader_failure")
        .and_then(agent_protocol::parse_bool)
        .unwrap_or(agent.options.ignore_bootloader_failure);
    let node = agent.node();
    let disk =
        written_device(agent, &node).await.map_err(|error| step_error("DeviceNotFound", &error))?;
    agent.load_file_systems();
    let uefi = Path::new(efi::VARIABLES).exists();
    if !uefi && root.is_none() {
        tracing::info!("BIOS boot: using the boot loader of the image");
        return Ok(());
    }
    let (root, esp) = (root.map(str::to_owned), text("efi_system_part_uuid").map(str::to_owned));
    // Not allowed unless the server permits it explicitly.
    let allow_image_programs = agent.server_config().is_some_and(|server| {
        let allowed = server.rest.get("enable_bios_bootloader_install");
        allowed.and_then(agent_protocol::parse_bool) == Some(true)
    });
    let installed = run_blocking(move || {
        let options = BootloaderOptions {
            uefi,
            root_uuid: root.as_deref(),
            efi_system_partition_uuid: esp.as_deref(),
            allow_image_programs,
            variables: Path::new(efi::VARIABLES),
            sys: Path::new("/sys"),
        };
        bootloader::install(Path::new(&disk.name), &options)
    });
    let (kind, failure) = match installed.await? {
        Ok(installed) => {
            tracing::info!(?installed, "boot from disk configured");
            return Ok(());
        }
        Err(error @ bootloader::BootloaderError::Forbidden) => {
            ("InvalidImage", error_chain(&error))
        }
        Err(error) => ("CommandExecutionError", error_chain(&error)),
    };
    if ignore {
        tracing::warn!(error = failure, "boot loader installation failed, ignored as configured");
        return Ok(());
    }
    Err(step_error(kind, &failure))
}

/// Loads the kernel of the deployed system, for [`start_loaded_kernel`]. Returns its origin.
///
/// # Errors
/// If there is no kernel, or the running kernel rejects it.
pub async fn load_for_kexec(agent: &RamdiskAgent) -> Result<String, ManagerStepError> {
    let node = agent.node();
    let disk =
        written_device(agent, &node).await.map_err(|error| step_error("DeviceNotFound", &error))?;
    agent.load_file_systems();
    let loaded = run_blocking(move || {
        let plan = kexec::plan(Path::new(&disk.name))?;
        tracing::info!(origin = plan.origin, command_line = plan.command_line, "kernel found");
        kexec::load(&plan)?;
        Ok::<_, kexec::KexecError>(plan.origin)
    });
    loaded.await?.map_err(|error| step_error("CommandExecutionError", &error_chain(&error)))
}

/// Starts the loaded kernel. Returns only if that fails.
pub fn start_loaded_kernel() {
    let Err(error) = kexec::boot();
    tracing::error!(error = error_chain(&error), "failed to start the loaded kernel");
}
