// SPDX-License-Identifier: Apache-2.0
//! What machines boot that nobody enrolled: the configured agent, kept at hand so that a room full
//! of strangers does not wait for, or wear out, the server it comes from.

use std::sync::PoisonError;
use std::time::Duration;

use images::Kind;
use node_model::BootImage;

use crate::layouts::{Laid, LayoutError, Layouts, Piece};
use crate::parameters;
use crate::scripts;
use crate::services::BootServices;

/// How often it is looked whether the agent is another one by now.
const REFRESHED: Duration = Duration::from_secs(600);
/// How soon it is tried again if it could not be had.
const TRIED_AGAIN: Duration = Duration::from_secs(30);

/// The agent's kernel and ramdisk.
#[derive(Clone)]
pub(crate) struct Discovery {
    kernel: Laid,
    ramdisk: Laid,
}

impl BootServices {
    /// Keeps the agent for strangers at hand, and lets go of files that nobody reads any more. Runs
    /// until it is dropped.
    pub async fn keep_at_hand(self) {
        loop {
            self.0.layouts.forget_idle();
            let pause = match self.refresh_discovery().await {
                Ok(()) => REFRESHED,
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(error, "the agent for unknown machines cannot be had");
                    TRIED_AGAIN
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// A file for strangers; none if there is no such file, or it is not at hand yet.
    pub(crate) fn discovery_file(&self, piece: Piece) -> Option<Laid> {
        let known = self.0.discovery.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        match piece {
            Piece::Kernel => Some(known.kernel),
            Piece::Ramdisk => Some(known.ramdisk),
            Piece::UnifiedImage
            | Piece::Cd
            | Piece::ConfigDrive
            | Piece::Kickstart
            | Piece::SecondStage
            | Piece::InstalledImage
            | Piece::InstanceImage => None,
        }
    }

    /// What a stranger runs: the agent, which reports what it is. `files` is where it finds us.
    pub(crate) fn discovery_script(&self, files: &str) -> Option<String> {
        let settings = &self.0.settings;
        settings.deploy_kernel.as_ref().and(settings.deploy_ramdisk.as_ref())?;
        let places = self.0.places();
        if !places.discovers {
            return None;
        }
        let api = places.api;
        let mut parameters = parameters::of_ramdisk(&settings.kernel_append_params, None).ok()?;
        parameters.push(format!("ipa-api-url={api}"));
        parameters.push(format!("ipa-inspection-callback-url={api}/v1/continue_inspection"));
        parameters.extend(parameters::split(&settings.inspection_kernel_params).ok()?);
        let line = parameters::line(&parameters).ok()?;
        let title = "echo Nobody enrolled this machine; booting the agent to have a look\n";
        let files = format!("{files}/discovery");
        Some(scripts::kernel_script(title, &files, &line, scripts::GO_ON))
    }

    async fn refresh_discovery(&self) -> Result<(), LayoutError> {
        let settings = &self.0.settings;
        let (Some(kernel), Some(ramdisk), true) =
            (&settings.deploy_kernel, &settings.deploy_ramdisk, self.0.places().discovers)
        else {
            return Ok(());
        };
        let layouts = &self.0.layouts;
        let kernel = configured(layouts, kernel, Kind::Kernel).await?;
        let ramdisk = configured(layouts, ramdisk, Kind::Ramdisk).await?;
        let mut known = self.0.discovery.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(Discovery { kernel, ramdisk });
        Ok(())
    }
}

async fn configured(layouts: &Layouts, source: &str, kind: Kind) -> Result<Laid, LayoutError> {
    let image = BootImage { source: source.to_owned(), checksum: None, pull_secret: None };
    layouts.image(&image, kind).await
}

/// An error with its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
