// SPDX-License-Identifier: Apache-2.0
//! The boot services: shared state, service URLs and checks of the settings.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use images::signature::PublicKey;
use images::{
    CacheSettings, DockerConfig, FilePolicy, ImageCache, ImageLimits, ImageServerTrust,
    SignatureSettings,
};
use node_model::{BootProof, Mac, Timestamp};
use store::{Store, StoreClock};

use crate::agent_ramdisks::{ConfiguredRamdisk, configured_ramdisks};
use crate::boot_events::EventSubject;
use crate::dhcp_directory::CachedBootPort;
use crate::dhcp_networks::{DhcpLeaseLocation, DhcpNetworks};
use crate::discovery::DiscoveryImages;
use crate::kernel_parameters;
use crate::loaders::BootLoaders;
use crate::plan_files::PlanFiles;
use crate::settings::{BootServiceSettings, ImageSettings};

const GIB: u64 = 1 << 30;

/// The boot services. Clones share their state.
#[derive(Clone)]
pub struct BootServices(pub(crate) Arc<BootServicesState>);

pub(crate) struct BootServicesState {
    pub(crate) store: Store,
    pub(crate) settings: BootServiceSettings,
    pub(crate) plan_files: PlanFiles,
    pub(crate) clock: StoreClock,
    pub(crate) hostname: String,
    /// Whether ISO images must be signed.
    pub(crate) iso_signature_policy: images::signature::SignaturePolicy,
    /// Whether disk images and containers must be signed.
    pub(crate) disk_image_signature_policy: images::signature::SignaturePolicy,
    /// The agent images for unknown machines, once they are fetched.
    pub(crate) discovery: Mutex<Option<DiscoveryImages>>,
    /// The configured ramdisks of the agent.
    pub(crate) ramdisks: Mutex<Vec<ConfiguredRamdisk>>,
    /// Cached port lookups of DHCP requests, by hardware address.
    pub(crate) cached_ports: Mutex<HashMap<boot_server::HardwareAddress, CachedBootPort>>,
    /// Subjects whose repetition counters are reset: nodes with a new plan, and unknown machines whose
    /// sightings a user deleted. Their next event is recorded again.
    pub(crate) repeat_resets: Mutex<Vec<EventSubject>>,
    urls: OnceLock<ServiceUrls>,
    /// The file service with TLS.
    agent_files_url: OnceLock<String>,
    pub(crate) networks: OnceLock<DhcpNetworks>,
    /// Where the leases of the DHCP servers are; unset if there are none.
    pub(crate) leases: OnceLock<DhcpLeaseLocation>,
    /// The weakest boot proof that agents may have.
    pub(crate) required_proof: BootProof,
}

/// The URLs under which machines and agents reach Ferrite.
#[derive(Debug, Clone)]
pub(crate) struct ServiceUrls {
    /// The file service, as machines reach it.
    pub(crate) files: String,
    /// The API, as the agent reaches it.
    pub(crate) api: String,
    /// Whether unknown machines boot the agent on at least one network.
    pub(crate) discovery_enabled: bool,
}

/// Why the boot services cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BootServicesError {
    /// The image cache cannot be opened.
    #[error(transparent)]
    Cache(#[from] images::CacheOpenError),
    /// A configuration file cannot be read.
    #[error("{key}: {} cannot be read", path.display())]
    Read {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The IO error.
        #[source]
        source: std::io::Error,
    },
    /// A configuration file has invalid content.
    #[error("{key}: {} cannot be used: {why}", path.display())]
    Content {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// A setting is invalid.
    #[error("{key} cannot be used: {why}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// The problem.
        why: String,
    },
    /// Signatures are required, but no key is configured.
    #[error(
        "images must be signed, but images.signing_keys names no key to verify signatures with"
    )]
    NoSigningKeys,
}

impl BootServices {
    /// Opens the boot services of the process called `hostname`, with their images in `data_dir`.
    /// `required_proof` is the weakest boot proof that agents may have. Blocks on file IO.
    pub fn open(
        store: Store,
        settings: BootServiceSettings,
        image_settings: &ImageSettings,
        data_dir: &Path,
        hostname: String,
        clock: StoreClock,
        required_proof: BootProof,
    ) -> Result<Self, BootServicesError> {
        check_settings(&settings)?;
        let cache = ImageCache::open(cache_settings(image_settings, data_dir)?)?;
        let plan_files = PlanFiles::new(cache, BootLoaders::new(&settings));
        let ramdisks = Mutex::new(configured_ramdisks(&settings));
        Ok(Self(Arc::new(BootServicesState {
            store,
            settings,
            plan_files,
            clock,
            hostname,
            iso_signature_policy: image_settings.iso_signatures,
            disk_image_signature_policy: image_settings.disk_image_signatures,
            discovery: Mutex::default(),
            ramdisks,
            cached_ports: Mutex::default(),
            repeat_resets: Mutex::default(),
            urls: OnceLock::new(),
            agent_files_url: OnceLock::new(),
            networks: OnceLock::new(),
            leases: OnceLock::new(),
            required_proof,
        })))
    }

    /// Sets the URLs of the file service and of the API where the settings do not. Must be called once,
    /// before any machine boots; the URLs are known only when both servers listen.
    /// `discovery_enabled` is whether unknown machines boot the agent on at least one network.
    pub fn set_service_urls(&self, files: &str, api: &str, discovery_enabled: bool) {
        let base_url = |configured: &Option<String>, default: &str| {
            configured.as_deref().unwrap_or(default).trim_end_matches('/').to_owned()
        };
        let settings = &self.0.settings;
        let urls = ServiceUrls {
            files: base_url(&settings.http_url, files),
            api: base_url(&settings.api_url, api),
            discovery_enabled,
        };
        // A second call has no effect.
        let _ = self.0.urls.set(urls);
    }

    /// Sets the URL of the file service with TLS, from which agents fetch images. Without it they use the
    /// URL for machines.
    pub fn set_agent_files_url(&self, url: &str) {
        // A second call has no effect.
        let _ = self.0.agent_files_url.set(url.trim_end_matches('/').to_owned());
    }
}

impl BootServices {
    /// Returns the images in the cache. Blocks on file IO.
    #[must_use]
    pub fn cached_images(&self) -> images::CacheContents {
        self.0.plan_files.cache().contents()
    }

    /// Drops events of an unknown machine that were counted but not yet recorded.
    pub fn forget_unknown_machine(&self, mac: &Mac) {
        let mut resets = self.0.repeat_resets.lock().unwrap_or_else(PoisonError::into_inner);
        resets.push(EventSubject::Mac(mac.clone()));
    }
}

impl std::fmt::Debug for BootServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BootServices").field("urls", &self.0.urls.get()).finish_non_exhaustive()
    }
}

impl BootServicesState {
    /// Returns the service URLs; they are empty until [`BootServices::set_service_urls`] is called.
    pub(crate) fn service_urls(&self) -> ServiceUrls {
        let unknown =
            || ServiceUrls { files: String::new(), api: String::new(), discovery_enabled: false };
        self.urls.get().cloned().unwrap_or_else(unknown)
    }

    /// Returns the URL of the file service for agents.
    pub(crate) fn agent_files_url(&self) -> String {
        self.agent_files_url.get().cloned().unwrap_or_else(|| self.service_urls().files)
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

/// Rejects invalid settings at start, before a machine boots with them.
fn check_settings(settings: &BootServiceSettings) -> Result<(), BootServicesError> {
    let invalid = |key, why: &dyn std::fmt::Display| {
        Err(BootServicesError::Setting { key, why: why.to_string() })
    };
    for (key, url) in [
        ("boot.http_url", &settings.http_url),
        ("boot.https_url", &settings.https_url),
        ("boot.external_http_url", &settings.external_http_url),
        ("boot.api_url", &settings.api_url),
        ("boot.external_callback_url", &settings.external_callback_url),
    ] {
        let Some(url) = url else { continue };
        let is_url = ["http://", "https://"].iter().any(|scheme| {
            url.strip_prefix(scheme).is_some_and(|rest| {
                !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic())
            })
        });
        if !is_url {
            return invalid(key, &format!("{url:?} is not a URL such as http://10.0.0.1:6180"));
        }
    }
    if let Some(url) = settings.https_url.as_ref().filter(|url| !url.starts_with("https://")) {
        return invalid("boot.https_url", &format!("{url:?} does not start with https://"));
    }
    if let Some(prefix) = &settings.path_prefix {
        check_path_prefix(prefix).or_else(|why| invalid("boot.path_prefix", &why))?;
    }
    let images_by_arch =
        settings.deploy_kernel_by_arch.values().chain(settings.deploy_ramdisk_by_arch.values());
    for (key, source) in [
        ("boot.deploy_kernel", &settings.deploy_kernel),
        ("boot.deploy_ramdisk", &settings.deploy_ramdisk),
        ("boot.rescue_kernel", &settings.rescue_kernel),
        ("boot.rescue_ramdisk", &settings.rescue_ramdisk),
        ("boot.default_ks_template", &settings.default_ks_template),
    ]
    .into_iter()
    .filter_map(|(key, source)| Some((key, source.as_ref()?)))
    .chain(
        images_by_arch
            .map(|source| ("boot.deploy_kernel_by_arch or boot.deploy_ramdisk_by_arch", source)),
    ) {
        if let Err(error) = images::ImageSource::parse(source) {
            return invalid(key, &error);
        }
    }
    for (key, line) in [
        ("boot.kernel_append_params", &settings.kernel_append_params),
        ("boot.inspection_kernel_params", &settings.inspection_kernel_params),
    ] {
        if let Err(error) = kernel_parameters::split(line) {
            return invalid(key, &error);
        }
    }
    if settings.url_lifetime == 0 {
        return invalid("boot.url_lifetime", &"it must be at least 1 second");
    }
    Ok(())
}

/// Rejects a prefix that is not a path, or hides files of the service.
fn check_path_prefix(prefix: &str) -> Result<(), String> {
    const OWN: [&str; 4] = ["pxelinux.cfg", "discovery", "image", "vmedia"];
    let is_segment = |segment: &str| {
        !segment.is_empty()
            && segment != "."
            && segment != ".."
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
    };
    let Some(path) = prefix.strip_prefix('/') else {
        return Err(format!("{prefix:?} does not start with a slash"));
    };
    if !path.split('/').all(is_segment) {
        return Err(format!("{prefix:?} is not a path such as /images"));
    }
    if path.split('/').next().is_some_and(|first| OWN.contains(&first)) {
        return Err(format!("{prefix:?} is a path of the file service itself"));
    }
    Ok(())
}

fn cache_settings(
    settings: &ImageSettings,
    data_dir: &Path,
) -> Result<CacheSettings, BootServicesError> {
    let folder = settings.cache_dir.clone().unwrap_or_else(|| data_dir.join("images"));
    let mut cache = CacheSettings::new(folder);
    cache.max_bytes = settings.cache_size.saturating_mul(GIB);
    cache.limits = ImageLimits {
        download: settings.largest_download.saturating_mul(GIB),
        unpacked: settings.largest_disk.saturating_mul(GIB),
        expansion: settings.largest_expansion,
    };
    cache.fetch.network.allow_local = settings.allow_local_urls;
    cache.files = FilePolicy { allowed: settings.file_url_allowed_paths.clone() };
    cache.allow_md5 = settings.allow_md5;
    cache.plain_http_registries = settings.plain_http_registries.clone();
    if let Some(path) = &settings.ca_file {
        cache.fetch.trust = ImageServerTrust::File(path.clone());
    }
    if let Some(path) = &settings.registry_credentials {
        let key = "images.registry_credentials";
        cache.registries = DockerConfig::parse(&read_config_file(key, path)?).map_err(|error| {
            BootServicesError::Content { key, path: path.clone(), why: error.to_string() }
        })?;
    }
    cache.signatures = SignatureSettings {
        keys: signing_keys(&settings.signing_keys)?,
        kernel: settings.kernel_signatures,
        ramdisk: settings.ramdisk_signatures,
        disk_image: settings.disk_image_signatures,
        iso: settings.iso_signatures,
    };
    let signatures = &cache.signatures;
    let required = [signatures.kernel, signatures.ramdisk, signatures.disk_image, signatures.iso]
        .contains(&images::signature::SignaturePolicy::Required);
    if required && signatures.keys.is_empty() {
        return Err(BootServicesError::NoSigningKeys);
    }
    Ok(cache)
}

fn signing_keys(paths: &[PathBuf]) -> Result<Vec<PublicKey>, BootServicesError> {
    let key = "images.signing_keys";
    let mut keys = Vec::new();
    for path in paths {
        let parsed = PublicKey::parse_pem(&read_config_file(key, path)?).map_err(|error| {
            BootServicesError::Content { key, path: path.clone(), why: error.to_string() }
        })?;
        keys.extend(parsed);
    }
    Ok(keys)
}

fn read_config_file(key: &'static str, path: &Path) -> Result<String, BootServicesError> {
    std::fs::read_to_string(path).map_err(|source| BootServicesError::Read {
        key,
        path: path.to_owned(),
        source,
    })
}
