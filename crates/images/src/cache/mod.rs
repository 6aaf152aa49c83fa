// SPDX-License-Identifier: Apache-2.0
//! The images on this machine: each kept once, under the digest of its bytes, until room is needed
//! and nobody uses it.
//!
//! What a folder of the cache has:
//!
//! * `blobs/<sha256>`: images, whole and durable from the moment they have this name;
//! * `records/<key>`: which image a request led to, and what version of it the server had. The key
//!   is made from the request with a secret (`salt`), as passwords are part of it;
//! * `temporary/`: what is being made. It is emptied when the cache is opened, so that a crash
//!   leaves nothing behind;
//! * `lock`: held by the one process that has the cache open.

mod convert;
mod produce;
mod request;
mod shelf;

pub use produce::{Error, Problem};
pub use request::{Kind, Request, Signatures, Wanted};
pub(crate) use shelf::Reservation;
pub use shelf::{Entry, Kept, KeptImage, OpenError};

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::sync::Semaphore;

use crate::credentials::{Credentials, DockerConfig};
use crate::fetch::{FetchSettings, Fetcher};
use crate::format::Format;
use crate::oci::Reference;
use crate::source::FilePolicy;
use request::Key;
use shelf::Shelf;

/// How the cache is kept and what is let into it.
#[derive(Debug, Clone)]
pub struct CacheSettings {
    /// Where it is. Made if it is not there; nobody else may write in it.
    pub folder: PathBuf,
    /// How many bytes of disk it may take, what is being made included.
    pub max_bytes: u64,
    /// How large images may be.
    pub limits: Limits,
    /// Which files of this machine may be images.
    pub files: FilePolicy,
    /// Whether MD5 checksums are taken.
    pub allow_md5: bool,
    /// Which formats disk images may have.
    pub permitted: Vec<Format>,
    /// Whose signatures are needed for what.
    pub signatures: Signatures,
    /// Who we are at container registries.
    pub registries: DockerConfig,
    /// Container registries without TLS, as `host:port`.
    pub plain_http_registries: Vec<String>,
    /// How many images are fetched at a time; the others wait. Slow servers take places for long,
    /// and cost little else.
    pub downloads: usize,
    /// How many images are inspected and converted at a time: each takes a processor.
    pub conversions: usize,
    /// How images are downloaded.
    pub fetch: FetchSettings,
}

/// How large images may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that are downloaded.
    pub download: u64,
    /// Bytes that come out of a compressed image, or of the disk in a qcow2 image.
    pub unpacked: u64,
}

/// The images on this machine. Clones are the same cache.
#[derive(Clone)]
pub struct Cache {
    inner: Arc<Inner>,
}

/// What requests in flight share.
struct Inner {
    settings: CacheSettings,
    shelf: Arc<Shelf>,
    fetcher: Fetcher,
    downloads: Semaphore,
    conversions: Semaphore,
    /// Requests being answered: whoever asks the same meanwhile waits for the same answer. Weak,
    /// so that a download nobody waits for any more ends.
    flights: Mutex<HashMap<Key, WeakShared<BoxFuture<'static, Outcome>>>>,
}

type Outcome = Result<Entry, Arc<Error>>;

impl CacheSettings {
    /// A cache in this folder with usual settings: 20 GiB, images of up to 1 TiB unpacked.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            max_bytes: 20 << 30,
            limits: Limits::default(),
            files: FilePolicy::default(),
            allow_md5: false,
            permitted: vec![Format::Raw, Format::Gpt, Format::Qcow2, Format::Iso],
            signatures: Signatures::default(),
            registries: DockerConfig::default(),
            plain_http_registries: Vec::new(),
            downloads: 32,
            conversions: 2,
            fetch: FetchSettings::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { download: 64 << 30, unpacked: 1 << 40 }
    }
}

impl Cache {
    /// Opens the cache, and removes what a crash left unfinished. Reads a folder: not for an
    /// asynchronous thread.
    pub fn open(settings: CacheSettings) -> Result<Self, OpenError> {
        let fetcher = Fetcher::new(&settings.fetch).map_err(OpenError::Trust)?;
        let shelf = Shelf::open(&settings.folder, settings.max_bytes)?;
        let inner = Inner {
            downloads: Semaphore::new(settings.downloads.max(1)),
            conversions: Semaphore::new(settings.conversions.max(1)),
            flights: Mutex::default(),
            shelf: Arc::new(shelf),
            settings,
            fetcher,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The image that is asked for, as a file on this machine.
    ///
    /// An image with a checksum that is here is answered at once. One without is asked about at
    /// its server each time, and fetched again when it has changed. The same image asked for many
    /// times at once is fetched once.
    pub async fn get(&self, request: &Request) -> Result<Entry, Arc<Error>> {
        if let Some(entry) = self.inner.at_once(request) {
            return Ok(entry);
        }
        let flight = self.join(request);
        let outcome = flight.await;
        // Whoever was part of a flight takes away those that have ended.
        self.flights().retain(|_, flight| flight.upgrade().is_some_and(|it| it.peek().is_none()));
        outcome
    }

    /// Who the settings say we are at the registry of an image: `user:password`. For others who
    /// fetch it themselves.
    pub fn registry_login(&self, place: &Reference) -> Option<String> {
        match self.inner.settings.registries.user(&place.registry, &place.repository)? {
            Credentials::Basic { user, password } => Some(format!("{user}:{password}")),
            Credentials::Header(_) => None,
        }
    }

    /// How many bytes of disk it takes now.
    pub fn used(&self) -> u64 {
        self.inner.shelf.used()
    }

    /// What is in it now. Looks at the files: not for an asynchronous thread.
    pub fn kept(&self) -> Kept {
        self.inner.shelf.kept()
    }

    fn join(&self, request: &Request) -> Shared<BoxFuture<'static, Outcome>> {
        let key = request.key(&self.inner.shelf.salt, &self.inner.settings);
        let mut flights = self.flights();
        if let Some(flight) = flights.get(&key).and_then(WeakShared::upgrade) {
            return flight;
        }
        let (inner, request) = (Arc::clone(&self.inner), request.clone());
        let work = async move {
            let problem = |problem| {
                Arc::new(Error { image: request.source.to_string(), problem: Box::new(problem) })
            };
            inner.produce(&request).await.map_err(problem)
        };
        let flight = work.boxed().shared();
        flights.insert(key, flight.downgrade().expect("a flight that has not begun"));
        flight
    }

    fn flights(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<Key, WeakShared<BoxFuture<'static, Outcome>>>> {
        // The map is whole at every instant: a panic elsewhere cannot have left it half changed.
        self.inner.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("folder", &self.inner.settings.folder).finish_non_exhaustive()
    }
}
