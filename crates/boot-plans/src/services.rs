// SPDX-License-Identifier: Apache-2.0
//! The boot services as a whole: what their parts share, and where they are found.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use images::signature::PublicKey;
use images::{Cache, CacheSettings, DockerConfig, FilePolicy, Limits, Signatures, Trust};
use node_model::{Mac, NodeId, Timestamp};
use store::{Clock, Store};

use crate::answers::Lookup;
use crate::discovery::Discovery;
use crate::layouts::Layouts;
use crate::loaders::Loaders;
use crate::networks::Networks;
use crate::parameters;
use crate::settings::{ImageSettings, Settings};

const GIB: u64 = 1 << 30;

/// The boot services. Clones are the same services.
#[derive(Clone)]
pub struct BootServices(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) settings: Settings,
    pub(crate) layouts: Layouts,
    pub(crate) clock: Clock,
    pub(crate) hostname: String,
    /// Whether CDs must be signed.
    pub(crate) iso_signatures: images::signature::Policy,
    /// What machines boot that nobody enrolled, once it is at hand.
    pub(crate) discovery: Mutex<Option<Discovery>>,
    /// What was looked up for packets that are about to be answered, by card.
    pub(crate) lookups: Mutex<HashMap<boot_server::HardwareAddress, Lookup>>,
    /// Whose past sightings no longer count: machines whose plan is new, and strangers that somebody
    /// forgot. What is seen of them now is told anew.
    pub(crate) fresh: Mutex<Vec<Fresh>>,
    places: OnceLock<Places>,
    pub(crate) networks: OnceLock<Networks>,
}

/// Somebody of whom everything seen from now on is new.
pub(crate) enum Fresh {
    Node(NodeId),
    Card(Mac),
}

/// Where we are found.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The file service, as machines reach it.
    pub(crate) files: String,
    /// The API, as the agent reaches it.
    pub(crate) api: String,
    /// Whether machines that nobody enrolled boot the agent on some network.
    pub(crate) discovers: bool,
}

/// Why the boot services cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The cache of images cannot be opened.
    #[error(transparent)]
    Cache(#[from] images::OpenError),
    /// A file of the configuration cannot be read.
    #[error("{key}: {} cannot be read", path.display())]
    Read {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file of the configuration does not hold what it should.
    #[error("{key}: {} cannot be used: {why}", path.display())]
    Content {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A setting cannot be used.
    #[error("{key} cannot be used: {why}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Signatures are required, and nobody can make one.
    #[error("images must be signed, and images.signing_keys names no key to check signatures with")]
    NoKeys,
}

impl BootServices {
    /// The boot services of the process called `hostname`, with their images in `data_dir`. Reads files: not for an asynchronous
    /// thread.
    pub fn open(
        store: Store,
        settings: Settings,
        image_settings: &ImageSettings,
        data_dir: &Path,
        hostname: String,
        clock: Clock,
    ) -> Result<Self, StartError> {
        check(&settings)?;
        let cache = Cache::open(cache_settings(image_settings, data_dir)?)?;
        let layouts = Layouts::new(cache, Loaders::new(&settings));
        Ok(Self(Arc::new(Inner {
            store,
            settings,
            layouts,
            clock,
            hostname,
            iso_signatures: image_settings.iso_signatures,
            discovery: Mutex::default(),
            lookups: Mutex::default(),
            fresh: Mutex::default(),
            places: OnceLock::new(),
            networks: OnceLock::new(),
        })))
    }

    /// Says where the file service and the API are reached, where the settings do not. To be said
    /// once, before any machine boots: it is known only when both listen.
    /// `discovers` says whether machines that nobody enrolled boot the agent on some network.
    pub fn found_at(&self, files: &str, api: &str, discovers: bool) {
        let place = |configured: &Option<String>, found: &str| {
            configured.as_deref().unwrap_or(found).trim_end_matches('/').to_owned()
        };
        let settings = &self.0.settings;
        let places = Places {
            files: place(&settings.http_url, files),
            api: place(&settings.api_url, api),
            discovers,
        };
        // Said twice, the first stays.
        let _ = self.0.places.set(places);
    }
}

impl BootServices {
    /// The images that are kept here. Looks at files: not for an asynchronous thread.
    #[must_use]
    pub fn images_kept(&self) -> images::Kept {
        self.0.layouts.cache().kept()
    }

    /// Forgets what was seen of a stranger and not told yet.
    pub fn forget_stranger(&self, card: &Mac) {
        self.0.fresh.lock().unwrap_or_else(PoisonError::into_inner).push(Fresh::Card(card.clone()));
    }
}

impl std::fmt::Debug for BootServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BootServices").field("places", &self.0.places.get()).finish_non_exhaustive()
    }
}

impl Inner {
    /// Where we are found; empty for as long as we are not.
    pub(crate) fn places(&self) -> Places {
        let unknown = || Places { files: String::new(), api: String::new(), discovers: false };
        self.places.get().cloned().unwrap_or_else(unknown)
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

/// Finds mistakes before a machine does.
fn check(settings: &Settings) -> Result<(), StartError> {
    let wrong =
        |key, why: &dyn std::fmt::Display| Err(StartError::Setting { key, why: why.to_string() });
    for (key, url) in [
        ("boot.http_url", &settings.http_url),
        ("boot.external_http_url", &settings.external_http_url),
        ("boot.api_url", &settings.api_url),
        ("boot.external_callback_url", &settings.external_callback_url),
    ] {
        let Some(url) = url else { continue };
        let is_url = ["http://", "https://"].iter().any(|scheme| {
            url.strip_prefix(scheme).is_some_and(|rest| {
                !rest.is_empty() && rest.bytes().all(|letter| letter.is_ascii_graphic())
            })
        });
        if !is_url {
            return wrong(key, &format!("{url:?} is no URL such as http://10.0.0.1:6180"));
        }
    }
    let by_arch =
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
        by_arch.map(|source| ("boot.deploy_kernel_by_arch or boot.deploy_ramdisk_by_arch", source)),
    ) {
        if let Err(error) = images::Source::parse(source) {
            return wrong(key, &error);
        }
    }
    for (key, line) in [
        ("boot.kernel_append_params", &settings.kernel_append_params),
        ("boot.inspection_kernel_params", &settings.inspection_kernel_params),
    ] {
        if let Err(error) = parameters::split(line) {
            return wrong(key, &error);
        }
    }
    if settings.url_lifetime == 0 {
        return wrong("boot.url_lifetime", &"files that expire at once are never read");
    }
    Ok(())
}

fn cache_settings(settings: &ImageSettings, data_dir: &Path) -> Result<CacheSettings, StartError> {
    let folder = settings.cache_dir.clone().unwrap_or_else(|| data_dir.join("images"));
    let mut cache = CacheSettings::new(folder);
    cache.max_bytes = settings.cache_size.saturating_mul(GIB);
    cache.limits = Limits {
        download: settings.largest_download.saturating_mul(GIB),
        unpacked: settings.largest_disk.saturating_mul(GIB),
    };
    cache.files = FilePolicy { allowed: settings.file_url_allowed_paths.clone() };
    cache.allow_md5 = settings.allow_md5;
    cache.plain_http_registries = settings.plain_http_registries.clone();
    if let Some(path) = &settings.ca_file {
        cache.fetch.trust = Trust::File(path.clone());
    }
    if let Some(path) = &settings.registry_credentials {
        let key = "images.registry_credentials";
        cache.registries = DockerConfig::parse(&read(key, path)?).map_err(|error| {
            StartError::Content { key, path: path.clone(), why: error.to_string() }
        })?;
    }
    cache.signatures = Signatures {
        keys: signing_keys(&settings.signing_keys)?,
        kernel: settings.kernel_signatures,
        ramdisk: settings.ramdisk_signatures,
        disk_image: settings.disk_image_signatures,
        iso: settings.iso_signatures,
    };
    let signatures = &cache.signatures;
    let required = [signatures.kernel, signatures.ramdisk, signatures.disk_image, signatures.iso]
        .contains(&images::signature::Policy::Required);
    if required && signatures.keys.is_empty() {
        return Err(StartError::NoKeys);
    }
    Ok(cache)
}

fn signing_keys(paths: &[PathBuf]) -> Result<Vec<PublicKey>, StartError> {
    let key = "images.signing_keys";
    let mut keys = Vec::new();
    for path in paths {
        let found = PublicKey::parse_pem(&read(key, path)?).map_err(|error| {
            StartError::Content { key, path: path.clone(), why: error.to_string() }
        })?;
        keys.extend(found);
    }
    Ok(keys)
}

fn read(key: &'static str, path: &Path) -> Result<String, StartError> {
    std::fs::read_to_string(path).map_err(|source| StartError::Read {
        key,
        path: path.to_owned(),
        source,
    })
}
