// SPDX-License-Identifier: Apache-2.0
//! The image cache: each image is stored once, under the SHA-256 of its bytes, until it is evicted.
//!
//! The cache directory contains:
//!
//! * `blobs/<sha256>`: images; a file with this name is complete and durable;
//! * `records/<key>`: the image that a request resolved to, and its version on the server. The key is an
//!   HMAC of the request with a secret (`salt`), since passwords are part of it;
//! * `temporary/`: files being written. It is emptied when the cache is opened, so that a crash leaves
//!   nothing behind;
//! * `lock`: held by the process that has the cache open.

mod blob_store;
mod convert;
mod produce;
mod request;

pub(crate) use blob_store::SpaceReservation;
pub use blob_store::{CacheContents, CacheOpenError, CachedImage, CachedImageInfo};
pub use produce::{ImageError, ImageProblem};
pub use request::{CacheRequest, ImageKind, SignatureSettings, TargetFormat};

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::sync::Semaphore;

use crate::credentials::{DockerConfig, ImageCredentials};
use crate::fetch::{FetchSettings, Fetcher};
use crate::format::ImageFormat;
use crate::oci::OciReference;
use crate::source::{FilePolicy, ImageSource, ImageSourceError};
use blob_store::BlobStore;
use request::RequestKey;

/// Settings of the cache.
#[derive(Debug, Clone)]
pub struct CacheSettings {
    /// The cache directory, created if missing. Only this process may write to it.
    pub folder: PathBuf,
    /// Maximum disk usage, including files being written.
    pub max_bytes: u64,
    /// Size limits of images.
    pub limits: ImageLimits,
    /// Which local files may be used as images.
    pub files: FilePolicy,
    /// Whether MD5 checksums are accepted.
    pub allow_md5: bool,
    /// Permitted formats of disk images.
    pub permitted_formats: Vec<ImageFormat>,
    /// Signature policies and keys.
    pub signatures: SignatureSettings,
    /// Credentials for container registries.
    pub registries: DockerConfig,
    /// Container registries without TLS, as `host:port`.
    pub plain_http_registries: Vec<String>,
    /// Maximum number of concurrent downloads. A slow server occupies one for long, but costs little
    /// else.
    pub downloads: usize,
    /// Maximum number of concurrent conversions; each uses one CPU.
    pub conversions: usize,
    /// Settings of downloads.
    pub fetch: FetchSettings,
}

/// Size limits of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
    /// Bytes of a download.
    pub download: u64,
    /// Bytes of a decompressed image, or of the disk in a qcow2 image.
    pub unpacked: u64,
    /// How many times larger than its file an unpacked image may be, if it is larger than 32 GiB. Every
    /// unpacked byte is digested, so a small file of a large empty disk would occupy a CPU for minutes.
    pub expansion: u64,
}

/// Unpacked images of up to this size are accepted whatever the size of their file.
const MAX_EMPTY_BYTES: u64 = 32 << 30;

/// The image cache. Clones share their state.
#[derive(Clone)]
pub struct ImageCache {
    inner: Arc<ImageCacheState>,
}

/// The shared state of the cache.
struct ImageCacheState {
    settings: CacheSettings,
    blobs: Arc<BlobStore>,
    fetcher: Fetcher,
    downloads: Semaphore,
    conversions: Semaphore,
    /// Requests in progress: the same request joins and gets the same result. Weak, so that a download
    /// ends when its last waiter is dropped.
    flights: Mutex<HashMap<RequestKey, WeakShared<BoxFuture<'static, CacheResult>>>>,
}

type CacheResult = Result<CachedImage, Arc<ImageError>>;

impl CacheSettings {
    /// Default settings: 20 GiB, images of up to 1 TiB unpacked.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            max_bytes: 20 << 30,
            limits: ImageLimits::default(),
            files: FilePolicy::default(),
            allow_md5: false,
            permitted_formats: vec![
                ImageFormat::Raw,
                ImageFormat::Gpt,
                ImageFormat::Qcow2,
                ImageFormat::Iso,
            ],
            signatures: SignatureSettings::default(),
            registries: DockerConfig::default(),
            plain_http_registries: Vec::new(),
            downloads: 32,
            conversions: 2,
            fetch: FetchSettings::default(),
        }
    }
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self { download: 64 << 30, unpacked: 1 << 40, expansion: 256 }
    }
}

impl ImageLimits {
    /// Returns the size limit of the image that is unpacked from a file of this length.
    fn unpacked_from(&self, file_length: u64) -> u64 {
        self.unpacked.min(file_length.saturating_mul(self.expansion).max(MAX_EMPTY_BYTES))
    }
}

impl ImageCache {
    /// Opens the cache and removes unfinished files. Blocks on file IO.
    pub fn open(settings: CacheSettings) -> Result<Self, CacheOpenError> {
        let fetcher = Fetcher::new(&settings.fetch).map_err(CacheOpenError::Trust)?;
        let blobs = BlobStore::open(&settings.folder, settings.max_bytes)?;
        let inner = ImageCacheState {
            downloads: Semaphore::new(settings.downloads.max(1)),
            conversions: Semaphore::new(settings.conversions.max(1)),
            flights: Mutex::default(),
            blobs: Arc::new(blobs),
            settings,
            fetcher,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the requested image as a local file.
    ///
    /// A cached image with a given checksum is returned without a request to its server. Without a
    /// checksum each call sends a request to the server, and a changed image is fetched again. Concurrent
    /// requests for the same image share one download.
    pub async fn get(&self, request: &CacheRequest) -> Result<CachedImage, Arc<ImageError>> {
        if let Some(entry) = self.inner.lookup_without_server(request) {
            return Ok(entry);
        }
        let flight = self.join_or_start(request);
        let outcome = flight.await;
        // Removes finished requests.
        self.in_flight().retain(|_, flight| flight.upgrade().is_some_and(|it| it.peek().is_none()));
        outcome
    }

    /// Returns the configured credentials for the registry of an image, as `user:password`, for clients
    /// that fetch it themselves.
    pub fn registry_login(&self, place: &OciReference) -> Option<String> {
        match self.inner.settings.registries.credentials_for(&place.registry, &place.repository)? {
            ImageCredentials::Basic { user, password } => Some(format!("{user}:{password}")),
            ImageCredentials::Header(_) => None,
        }
    }

    /// Verifies the signature of a container according to the policy for disk images, and returns its
    /// reference by digest, so that only the verified container can be pulled. Without a policy the
    /// reference is returned as it is.
    pub async fn verify_container(
        &self,
        reference: &OciReference,
        credentials: Option<&ImageCredentials>,
    ) -> Result<OciReference, ImageError> {
        let policy = self.inner.settings.signatures.disk_image;
        let verified = self.inner.verified_reference(reference, credentials, policy).await;
        verified.map_err(|problem| ImageError {
            image: reference.to_string(),
            problem: Box::new(problem),
        })
    }

    /// Checks a file source against [`CacheSettings::files`]; other sources are checked when they are
    /// fetched.
    pub fn check_source(&self, source: &ImageSource) -> Result<(), ImageSourceError> {
        match source {
            ImageSource::File(path) => self.inner.settings.files.check(path),
            ImageSource::Http(_) | ImageSource::Oci(_) => Ok(()),
        }
    }

    /// Returns the disk usage in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.inner.blobs.used_bytes()
    }

    /// Returns the cached images. Blocks on file IO.
    pub fn contents(&self) -> CacheContents {
        self.inner.blobs.contents()
    }

    fn join_or_start(&self, request: &CacheRequest) -> Shared<BoxFuture<'static, CacheResult>> {
        let key = request.key(&self.inner.blobs.salt, &self.inner.settings);
        let mut flights = self.in_flight();
        if let Some(flight) = flights.get(&key).and_then(WeakShared::upgrade) {
            return flight;
        }
        let (inner, request) = (Arc::clone(&self.inner), request.clone());
        let work = async move {
            let problem = |problem| {
                Arc::new(ImageError {
                    image: request.source.to_string(),
                    problem: Box::new(problem),
                })
            };
            inner.produce(&request).await.map_err(problem)
        };
        let flight = work.boxed().shared();
        flights.insert(key, flight.downgrade().expect("a flight that has not begun"));
        flight
    }

    fn in_flight(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<RequestKey, WeakShared<BoxFuture<'static, CacheResult>>>>
    {
        // Every change of the map is atomic, so it is consistent after a panic elsewhere.
        self.inner.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ImageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("folder", &self.inner.settings.folder).finish_non_exhaustive()
    }
}
