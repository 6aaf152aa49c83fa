// SPDX-License-Identifier: Apache-2.0
//! The agent images that unknown machines boot. They are kept in memory, so that many unknown machines
//! neither wait for the server the images come from nor overload it.

use std::sync::PoisonError;
use std::time::Duration;

use error_chain::error_chain;
use images::ImageKind;
use node_model::BootImage;

use crate::agent_trust::with_trust;
use crate::boot_system::clock_parameter;
use crate::kernel_parameters;
use crate::plan_files::{PlanFile, PlanFileError, PlanFiles, ServedFile};
use crate::scripts;
use crate::services::BootServices;

/// Interval between checks for a new version of the agent images.
const REFRESH_INTERVAL: Duration = Duration::from_secs(600);
/// Delay before a retry after a failed fetch.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Kernel and ramdisk of the agent.
#[derive(Clone)]
pub(crate) struct DiscoveryImages {
    kernel: ServedFile,
    ramdisk: ServedFile,
}

impl BootServices {
    /// Refreshes the agent images for unknown machines and evicts idle plan files. Runs until it is
    /// dropped.
    pub async fn maintain_caches(self) {
        loop {
            self.0.plan_files.evict_idle();
            let delay = match self.refresh_discovery().await {
                Ok(()) => REFRESH_INTERVAL,
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(
                        error,
                        retry_in = ?RETRY_INTERVAL,
                        "agent images for unknown machines could not be fetched"
                    );
                    RETRY_INTERVAL
                }
            };
            tokio::time::sleep(delay).await;
        }
    }

    /// Returns a file for unknown machines; `None` if there is no such file or it is not fetched yet.
    pub(crate) fn discovery_file(&self, file: PlanFile) -> Option<ServedFile> {
        let images = self.0.discovery.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        match file {
            PlanFile::Kernel => Some(images.kernel),
            PlanFile::Ramdisk => Some(images.ramdisk),
            PlanFile::UnifiedImage
            | PlanFile::BootIso
            | PlanFile::ConfigDrive
            | PlanFile::Kickstart
            | PlanFile::SecondStage
            | PlanFile::InstalledImage
            | PlanFile::InstanceImage => None,
        }
    }

    /// Returns the iPXE script that boots the agent on an unknown machine to inspect it. `files` is the
    /// URL of the file service.
    pub(crate) fn discovery_script(&self, files: &str) -> Option<String> {
        let settings = &self.0.settings;
        settings.deploy_kernel.as_ref().and(settings.deploy_ramdisk.as_ref())?;
        let urls = self.0.service_urls();
        if !urls.discovery_enabled {
            return None;
        }
        let api = urls.api;
        let mut parameters =
            kernel_parameters::ramdisk_parameters(&settings.kernel_append_params, None).ok()?;
        parameters.push(format!("ipa-api-url={api}"));
        parameters.extend(clock_parameter(&api, self.0.now()));
        parameters.push(format!("ipa-inspection-callback-url={api}/v1/continue_inspection"));
        parameters.extend(kernel_parameters::split(&settings.inspection_kernel_params).ok()?);
        let command_line = kernel_parameters::command_line(&parameters).ok()?;
        let title = "echo This machine is not enrolled; booting the agent for inspection\n";
        let files = format!("{files}/discovery");
        Some(scripts::kernel_script(title, &files, &command_line, scripts::IPXE_EXIT))
    }

    pub(crate) async fn refresh_discovery(&self) -> Result<(), PlanFileError> {
        let settings = &self.0.settings;
        let (Some(kernel), Some(ramdisk), true) = (
            &settings.deploy_kernel,
            &settings.deploy_ramdisk,
            self.0.service_urls().discovery_enabled,
        ) else {
            return Ok(());
        };
        let plan_files = &self.0.plan_files;
        let kernel = fetch_configured_image(plan_files, kernel, ImageKind::Kernel).await?;
        let ramdisk = fetch_configured_image(plan_files, ramdisk, ImageKind::Ramdisk).await?;
        let ramdisk = with_trust(ramdisk, plan_files.agent_trust().get());
        let mut images = self.0.discovery.lock().unwrap_or_else(PoisonError::into_inner);
        *images = Some(DiscoveryImages { kernel, ramdisk });
        Ok(())
    }
}

async fn fetch_configured_image(
    plan_files: &PlanFiles,
    source: &str,
    kind: ImageKind,
) -> Result<ServedFile, PlanFileError> {
    let image = BootImage { source: source.to_owned(), checksum: None, pull_secret: None };
    plan_files.open_image(&image, kind).await
}
