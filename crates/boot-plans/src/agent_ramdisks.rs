// SPDX-License-Identifier: Apache-2.0
//! The configured ramdisks of the agent, by architecture: they are fetched before machines need them, fetched
//! again when they change, and their checksums are reported.

use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use error_chain::error_chain;
use images::{ImageKind, ImageSource};
use node_model::{BootImage, Timestamp};

use crate::plan_files::PlanFileError;
use crate::services::BootServices;
use crate::settings::BootServiceSettings;

/// Interval between checks of local files.
const FILE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between checks of images on other servers.
const REMOTE_INTERVAL: Duration = Duration::from_secs(600);
/// Delay before a retry after a failed fetch.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// A configured ramdisk of the agent, with its kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredRamdisk {
    /// The `cpu_arch` of nodes that boot it; `None` for all other nodes.
    pub architecture: Option<String>,
    /// What built the ramdisk and the version of its kernel, if it was built with `ferrite ramdisk build`.
    pub version: Option<String>,
    /// The kernel.
    pub kernel: AgentImage,
    /// The ramdisk.
    pub ramdisk: AgentImage,
    /// When the images were last fetched or found to be unchanged.
    pub checked_at: Option<Timestamp>,
    /// When this content was first seen by this process.
    pub changed_at: Option<Timestamp>,
    /// Why the images cannot be fetched. The checksums are those of the last successful fetch.
    pub error: Option<String>,
}

/// A kernel or a ramdisk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentImage {
    /// The configured URL.
    pub source: String,
    /// The content, once it was fetched.
    pub content: Option<AgentImageContent>,
}

/// Checksum and size of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentImageContent {
    /// SHA-256, in hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
}

/// The result of a fetch.
struct FetchedRamdisk {
    kernel: AgentImageContent,
    image: AgentImageContent,
    version: Option<String>,
}

impl BootServices {
    /// Returns the configured ramdisks: the default one first.
    #[must_use]
    pub fn agent_ramdisks(&self) -> Vec<ConfiguredRamdisk> {
        self.0.ramdisks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches the configured ramdisks and checks them for changes. Runs until it is dropped.
    pub async fn maintain_ramdisks(self) {
        let count = self.agent_ramdisks().len();
        let mut due: Vec<Instant> = vec![Instant::now(); count];
        loop {
            for (index, due) in due.iter_mut().enumerate() {
                if *due <= Instant::now() {
                    *due = Instant::now() + self.check_ramdisk(index).await;
                }
            }
            tokio::time::sleep(FILE_INTERVAL).await;
        }
    }

    /// Checks one ramdisk for changes. Returns the time until the next check.
    pub(crate) async fn check_ramdisk(&self, index: usize) -> Duration {
        let Some(configured) = self.agent_ramdisks().into_iter().nth(index) else {
            return REMOTE_INTERVAL;
        };
        let fetched = self.fetch_ramdisk(&configured).await;
        let (delay, has_changed) = self.record_check(index, fetched);
        if has_changed && configured.architecture.is_none() {
            // A failure is logged by the task that repeats it.
            let _ = self.refresh_discovery().await;
        }
        delay
    }

    /// Records the result of a check. Returns the time until the next one, and whether the images have changed.
    fn record_check(
        &self,
        index: usize,
        fetched: Result<FetchedRamdisk, PlanFileError>,
    ) -> (Duration, bool) {
        let now = self.0.now();
        let mut ramdisks = self.0.ramdisks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ramdisk) = ramdisks.get_mut(index) else { return (REMOTE_INTERVAL, false) };
        let architecture = ramdisk.architecture.as_deref().unwrap_or("default");
        match fetched {
            Ok(FetchedRamdisk { kernel, image, version }) => {
                let has_changed = ramdisk.kernel.content.as_ref() != Some(&kernel)
                    || ramdisk.ramdisk.content.as_ref() != Some(&image);
                if has_changed {
                    tracing::info!(
                        architecture,
                        version = version.as_deref().unwrap_or("unknown"),
                        kernel = kernel.sha256,
                        ramdisk = image.sha256,
                        "agent ramdisk fetched"
                    );
                    ramdisk.kernel.content = Some(kernel);
                    ramdisk.ramdisk.content = Some(image);
                    ramdisk.changed_at = Some(now);
                }
                ramdisk.version = version;
                ramdisk.checked_at = Some(now);
                ramdisk.error = None;
                (check_interval(ramdisk), has_changed)
            }
            Err(error) => {
                let error = error_chain(&error);
                if ramdisk.error.as_ref() != Some(&error) {
                    tracing::warn!(
                        architecture,
                        error,
                        retry_in = ?RETRY_INTERVAL,
                        "agent ramdisk could not be fetched"
                    );
                }
                ramdisk.error = Some(error);
                (RETRY_INTERVAL, false)
            }
        }
    }

    async fn fetch_ramdisk(
        &self,
        ramdisk: &ConfiguredRamdisk,
    ) -> Result<FetchedRamdisk, PlanFileError> {
        let fetch = async |image: &AgentImage, kind: ImageKind| {
            let source = image.source.clone();
            let image = BootImage { source, checksum: None, pull_secret: None };
            let cached = self.0.plan_files.fetch(&image, kind).await?;
            let sha256 = hex::encode(cached.sha256);
            Ok::<_, PlanFileError>(AgentImageContent { sha256, size: cached.size })
        };
        let kernel = fetch(&ramdisk.kernel, ImageKind::Kernel).await?;
        let image = fetch(&ramdisk.ramdisk, ImageKind::Ramdisk).await?;
        let (source, sha256) = (ramdisk.ramdisk.source.clone(), image.sha256.clone());
        let version = tokio::task::spawn_blocking(move || built_version(&source, &sha256))
            .await
            .ok()
            .flatten();
        Ok(FetchedRamdisk { kernel, image, version })
    }
}

/// The ramdisks in the settings, not fetched yet.
pub(crate) fn configured_ramdisks(settings: &BootServiceSettings) -> Vec<ConfiguredRamdisk> {
    let ramdisk = |architecture: Option<&String>, kernel: &str, ramdisk: &str| ConfiguredRamdisk {
        architecture: architecture.cloned(),
        version: None,
        kernel: AgentImage { source: kernel.to_owned(), content: None },
        ramdisk: AgentImage { source: ramdisk.to_owned(), content: None },
        checked_at: None,
        changed_at: None,
        error: None,
    };
    let mut found = Vec::new();
    let default = settings.deploy_kernel.as_ref().zip(settings.deploy_ramdisk.as_ref());
    if let Some((kernel, image)) = default {
        found.push(ramdisk(None, kernel, image));
    }
    // As in a boot plan, the default replaces a missing kernel or ramdisk.
    let kernels = &settings.deploy_kernel_by_arch;
    let images = &settings.deploy_ramdisk_by_arch;
    let mut architectures: Vec<&String> = kernels.keys().chain(images.keys()).collect();
    architectures.sort();
    architectures.dedup();
    for architecture in architectures {
        let kernel = kernels.get(architecture).or(settings.deploy_kernel.as_ref());
        let image = images.get(architecture).or(settings.deploy_ramdisk.as_ref());
        if let Some((kernel, image)) = kernel.zip(image) {
            found.push(ramdisk(Some(architecture), kernel, image));
        }
    }
    found
}

fn check_interval(ramdisk: &ConfiguredRamdisk) -> Duration {
    let is_file =
        |image: &AgentImage| matches!(ImageSource::parse(&image.source), Ok(ImageSource::File(_)));
    if is_file(&ramdisk.kernel) && is_file(&ramdisk.ramdisk) {
        FILE_INTERVAL
    } else {
        REMOTE_INTERVAL
    }
}

/// The version in the manifest beside a local ramdisk, if it is the manifest of this content.
fn built_version(source: &str, sha256: &str) -> Option<String> {
    let Ok(ImageSource::File(path)) = ImageSource::parse(source) else { return None };
    let manifest = ramdisk::find(path.parent().unwrap_or(Path::new("/")))?.manifest?;
    (manifest.ramdisk.sha256 == sha256)
        .then(|| format!("{}, kernel {}", manifest.made_by, manifest.kernel_version))
}
