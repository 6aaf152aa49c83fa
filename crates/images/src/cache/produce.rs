// SPDX-License-Identifier: Apache-2.0
//! From a request to an image on the shelf: find, fetch, verify, convert, keep.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::Url;
use tokio::task::spawn_blocking;

use super::Inner;
use super::convert::{Conversion, Made};
use super::request::{Key, Kind, Request, Wanted};
use super::shelf::{Entry, Reservation};
use crate::checksum::{self, Algorithm, Checksum, ChecksumError, Expected};
use crate::credentials::Credentials;
use crate::decompress::DecompressError;
use crate::fetch::{Download, Downloaded, FetchError, Stopped, Version};
use crate::format::{Format, FormatError};
use crate::hex;
use crate::oci::{self, OciError};
use crate::qcow2::Qcow2Error;
use crate::signature::{self, Policy, SignatureError};
use crate::sink::{Sink, SinkError, Taken};
use crate::source::{Source, SourceError, displayed};
use crate::writer::{Closed, Piece, Writer};

/// The longest checksum file and the longest signature that are read.
const CHECKSUM_FILE: usize = 4 << 20;
const SIGNATURE: usize = 64 << 10;

/// How much of a file is read at a time.
const PIECE: usize = 256 * 1024;

/// Why there is no such image here.
#[derive(Debug, thiserror::Error)]
#[error("image {image} cannot be used")]
pub struct Error {
    /// Where it should have come from, without secrets.
    pub image: String,
    /// What is the matter.
    #[source]
    pub problem: Box<Problem>,
}

/// What can be the matter with an image.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Its address, or the file.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Its checksum cannot be known.
    #[error(transparent)]
    Checksum(#[from] ChecksumError),
    /// Its checksum is another.
    #[error(
        "its checksum is {actual} and should be {expected}: it was changed or damaged, or the checksum is of another version of it"
    )]
    WrongChecksum {
        /// What was said.
        expected: Checksum,
        /// What it is.
        actual: Checksum,
    },
    /// The download.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The registry.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// Its size, or the disk here.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// What it is.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The qcow2 image.
    #[error(transparent)]
    Qcow2(#[from] Qcow2Error),
    /// The compression.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// The signature.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// It is one container in another.
    #[error(
        "there is {inner} in the {outer} of it, and one in another is refused: take one layer away"
    )]
    Nested {
        /// What was unpacked.
        outer: Format,
        /// What came out.
        inner: Format,
    },
    /// It cannot be made raw.
    #[error(
        "it cannot be made raw, as {format} is not read here: convert it with `qemu-img convert -O qcow2`"
    )]
    CannotConvert {
        /// What it is.
        format: Format,
    },
    /// The folder of the cache.
    #[error("the image cache's folder does not work: see that its disk is whole and not full")]
    Folder(#[source] io::Error),
}

/// Where the bytes are, and what they must be.
struct Resolved {
    place: Place,
    checksums: Vec<Checksum>,
}

enum Place {
    Http { url: Url, authorization: Option<HeaderValue>, size: Option<u64> },
    File(PathBuf),
}

/// How fetching ended.
enum Fetched {
    Whole(Made, Version),
    NotChanged,
}

impl Inner {
    /// An image that is here and that needs nobody to be asked.
    pub(super) fn at_once(&self, request: &Request) -> Option<Entry> {
        match (&request.checksum, &request.source) {
            (Some(Expected::Is(checksum)), Source::Http(_) | Source::File(_)) => {
                let checksum = checksum.clone().allowed(self.settings.allow_md5).ok()?;
                let key = self.record_key(request, request.wanted, &[checksum]);
                self.shelf.find(&key).map(|(entry, _)| entry)
            }
            (Some(Expected::In(_)) | None, _) | (_, Source::Oci(_)) => None,
        }
    }

    pub(super) async fn produce(self: Arc<Self>, request: &Request) -> Result<Entry, Problem> {
        let resolved = self.resolve(request).await?;
        let certain = !resolved.checksums.is_empty();
        let key = self.record_key(request, request.wanted, &resolved.checksums);
        let have = match self.shelf.find(&key) {
            Some((entry, _)) if certain => return Ok(entry),
            have => have,
        };
        if request.wanted == Wanted::Raw && certain {
            let as_is = self.record_key(request, Wanted::AsIs, &resolved.checksums);
            if let Some((as_is, _)) = self.shelf.find(&as_is) {
                return self.convert_kept(request, key, as_is).await;
            }
        }
        let fetched = self.fetch(&resolved, have.as_ref().map(|(_, version)| version)).await?;
        match (fetched, have) {
            (Fetched::Whole(made, version), _) => {
                verify_checksums(&resolved.checksums, &made.taken)?;
                let entry = self.convert_fetched(request, key, made, version).await?;
                if !certain && request.wanted == Wanted::AsIs {
                    self.keep_under_checksum(request, &entry).await?;
                }
                Ok(entry)
            }
            (Fetched::NotChanged, Some((entry, _))) => Ok(entry),
            (Fetched::NotChanged, None) => unreachable!("nothing was there to have changed"),
        }
    }

    /// Lets in what was fetched.
    async fn convert_fetched(
        &self,
        request: &Request,
        key: Key,
        made: Made,
        version: Version,
    ) -> Result<Entry, Problem> {
        let signature = self.signature(request).await?;
        let keys = self.settings.signatures.keys.clone();
        let (shelf, task) = (Arc::clone(&self.shelf), self.conversion(request));
        let _place = self.conversions.acquire().await.expect("it is never closed");
        blocking(move || {
            if let Some(signature) = signature {
                signature::verify(&keys, &signature, &made.taken.file, &made.taken.sha256)?;
            }
            let (format, converted) = task.run(&shelf, &made.taken.file)?;
            let made = converted.unwrap_or(made);
            shelf.keep(key, made.temporary, made.taken, format, version).map_err(Problem::Folder)
        })
        .await
    }

    /// Keeps in mind which bytes these were: whoever asks for the same source and names them is
    /// answered at once, whatever its server has by then.
    async fn keep_under_checksum(&self, request: &Request, entry: &Entry) -> Result<(), Problem> {
        let digits = hex::encode(&entry.sha256);
        let checksum = Checksum::with_algorithm(Algorithm::Sha256, &digits)?;
        let key = self.record_key(request, Wanted::AsIs, &[checksum]);
        let (shelf, entry) = (Arc::clone(&self.shelf), entry.clone());
        blocking(move || shelf.keep_also(key, &entry).map_err(Problem::Folder)).await
    }

    /// Makes raw what was let in as it was.
    async fn convert_kept(
        &self,
        request: &Request,
        key: Key,
        as_is: Entry,
    ) -> Result<Entry, Problem> {
        let (shelf, task) = (Arc::clone(&self.shelf), self.conversion(request));
        let _place = self.conversions.acquire().await.expect("it is never closed");
        blocking(move || {
            let file = File::open(&as_is.path).map_err(Problem::Folder)?;
            let kept = match task.run(&shelf, &file)? {
                (format, Some(made)) => {
                    shelf.keep(key, made.temporary, made.taken, format, Version::default())
                }
                (_, None) => shelf.keep_also(key, &as_is).map(|()| as_is),
            };
            kept.map_err(Problem::Folder)
        })
        .await
    }

    fn record_key(&self, request: &Request, wanted: Wanted, checksums: &[Checksum]) -> Key {
        request.record_key(&self.shelf.salt, &self.settings, wanted, checksums)
    }

    /// Asks whom must be asked where the bytes are and what their checksum is.
    async fn resolve(&self, request: &Request) -> Result<Resolved, Problem> {
        let mut checksums = Vec::new();
        match &request.checksum {
            Some(Expected::Is(checksum)) => checksums.push(checksum.clone()),
            Some(Expected::In(url)) => checksums.push(self.listed_checksum(request, url).await?),
            None => {}
        }
        for checksum in &checksums {
            checksum.clone().allowed(self.settings.allow_md5)?;
        }
        let place = match &request.source {
            Source::Http(url) => {
                let authorization = authorization(request.credentials.as_ref(), url)?;
                Place::Http { url: url.clone(), authorization, size: None }
            }
            Source::File(path) => Place::File(path.clone()),
            Source::Oci(reference) => {
                let wish = oci::Wish {
                    reference,
                    architecture: request.architecture.as_deref(),
                    credentials: request.credentials.as_ref(),
                    config: &self.settings.registries,
                    plain_http: &self.settings.plain_http_registries,
                };
                let blob = oci::resolve(&self.fetcher, wish).await?;
                if !checksums.contains(&blob.digest) {
                    checksums.push(blob.digest);
                }
                let size = Some(blob.size).filter(|size| *size > 0);
                Place::Http { url: blob.url, authorization: blob.authorization, size }
            }
        };
        Ok(Resolved { place, checksums })
    }

    /// The image's checksum in a checksum file.
    async fn listed_checksum(&self, request: &Request, url: &Url) -> Result<Checksum, Problem> {
        let headers = headers_beside(request, url)?;
        let answer = self.fetcher.small(url, &headers, CHECKSUM_FILE).await?;
        if answer.status != StatusCode::OK {
            let url = displayed(url);
            return Err(FetchError::Refused { url, status: answer.status }.into());
        }
        let name = request.source.file_name();
        let found = checksum::find_in_file(&String::from_utf8_lossy(&answer.body), &name);
        let missing = || ChecksumError::NotInFile { url: displayed(url), name: name.clone() };
        Ok(found.ok_or_else(missing)?)
    }

    async fn fetch(&self, resolved: &Resolved, have: Option<&Version>) -> Result<Fetched, Problem> {
        let _place = self.downloads.acquire().await.expect("it is never closed");
        let (temporary, file) = self.shelf.temporary().map_err(Problem::Folder)?;
        let algorithms: Vec<Algorithm> =
            resolved.checksums.iter().map(Checksum::algorithm).collect();
        let room = Reservation::new(&self.shelf);
        let sink = Sink::new(file, room, self.settings.limits.download, &algorithms);
        match &resolved.place {
            Place::Http { url, authorization, size } => {
                let writer = Writer::spawn(sink);
                if let Some(size) = size {
                    // A refusal is told by the download, which finds nobody to write.
                    let _ = writer.send(Piece::Length(*size)).await;
                }
                let wanted = Download { url, authorization: authorization.clone(), have };
                match self.fetcher.download(wanted, &writer).await {
                    Ok(Downloaded::NotChanged) => Ok(Fetched::NotChanged),
                    Ok(Downloaded::Whole(version)) => {
                        let taken = writer.finish().await?;
                        Ok(Fetched::Whole(Made { temporary, taken }, version))
                    }
                    Err(Stopped::Fetch(error)) => Err(error.into()),
                    Err(Stopped::Writer(Closed)) => {
                        let why = writer.finish().await.err();
                        let gone = || SinkError::Write(io::ErrorKind::BrokenPipe.into());
                        Err(why.unwrap_or_else(gone).into())
                    }
                }
            }
            Place::File(path) => {
                let (path, have) = (path.clone(), have.cloned());
                let policy = self.settings.files.clone();
                blocking(move || {
                    let file = policy.open(&path)?;
                    let failed = |source| SourceError::Open { path: path.clone(), source };
                    let version = file_version(&file).map_err(failed)?;
                    if have.as_ref() == Some(&version) {
                        return Ok(Fetched::NotChanged);
                    }
                    let taken = pour(&file, sink, failed)?;
                    Ok(Fetched::Whole(Made { temporary, taken }, version))
                })
                .await
            }
        }
    }

    /// The signature that the image must be checked against, if any.
    async fn signature(&self, request: &Request) -> Result<Option<Vec<u8>>, Problem> {
        let policy = self.settings.signatures.policy(request.kind);
        if policy == Policy::Off {
            return Ok(None);
        }
        let given = request.signature.clone();
        let named = given.is_some();
        let place = given.or_else(|| request.source.beside(".sig"));
        let found = match &place {
            Some(place) => self.small_file(request, place).await?,
            None => None,
        };
        match (found, policy) {
            (Some(signature), _) => Ok(Some(signature)),
            // One that was promised is not merely absent.
            (None, Policy::WhenPresent | Policy::Off) if !named => Ok(None),
            (None, Policy::Required | Policy::WhenPresent | Policy::Off) => {
                let place = place.map_or_else(
                    || "an address of its own (registries have no place for one)".to_owned(),
                    |place| place.to_string(),
                );
                Err(SignatureError::Missing { place }.into())
            }
        }
    }

    /// A small file from anywhere; `None` when it is not there.
    async fn small_file(
        &self,
        request: &Request,
        place: &Source,
    ) -> Result<Option<Vec<u8>>, Problem> {
        match place {
            Source::Http(url) => {
                let headers = headers_beside(request, url)?;
                let answer = self.fetcher.small(url, &headers, SIGNATURE).await?;
                match answer.status {
                    StatusCode::OK => Ok(Some(answer.body)),
                    StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
                    status => Err(FetchError::Refused { url: displayed(url), status }.into()),
                }
            }
            Source::File(path) => {
                let (policy, path) = (self.settings.files.clone(), path.clone());
                blocking(move || {
                    let file = match policy.open(&path) {
                        Ok(file) => file,
                        Err(SourceError::Open { source, .. })
                            if source.kind() == io::ErrorKind::NotFound =>
                        {
                            return Ok(None);
                        }
                        Err(error) => return Err(error.into()),
                    };
                    let mut signature = Vec::new();
                    file.take(SIGNATURE as u64)
                        .read_to_end(&mut signature)
                        .map_err(|source| SourceError::Open { path, source })?;
                    Ok(Some(signature))
                })
                .await
            }
            Source::Oci(_) => Ok(None),
        }
    }

    fn conversion(&self, request: &Request) -> Conversion {
        let permitted = match request.kind {
            Kind::Kernel | Kind::Ramdisk => None,
            Kind::DiskImage => Some(self.settings.permitted.clone()),
            Kind::Iso => Some(vec![Format::Iso]),
        };
        let (declared, wanted) = (request.declared, request.wanted);
        Conversion { permitted, declared, wanted, limits: self.settings.limits }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    // What is not begun when the process stops is cancelled.
    let ended = spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(Problem::Folder(io::Error::other(error))))
}

fn verify_checksums(expected: &[Checksum], taken: &Taken) -> Result<(), Problem> {
    for expected in expected {
        let actual = taken.checksum(expected.algorithm());
        let actual = actual.expect("every algorithm of these was given to the sink");
        if actual != *expected {
            return Err(Problem::WrongChecksum { expected: expected.clone(), actual });
        }
    }
    Ok(())
}

/// What to show for a file that belongs to an image: credentials for the image are only for the
/// server that has the image.
fn headers_beside(request: &Request, url: &Url) -> Result<HeaderMap, FetchError> {
    let mut headers = HeaderMap::new();
    if let Source::Http(image) = &request.source
        && image.origin() == url.origin()
        && let Some(authorization) = authorization(request.credentials.as_ref(), url)?
    {
        headers.insert(AUTHORIZATION, authorization);
    }
    Ok(headers)
}

fn authorization(
    credentials: Option<&Credentials>,
    url: &Url,
) -> Result<Option<HeaderValue>, FetchError> {
    match credentials {
        Some(credentials) => match credentials.header() {
            Some(header) => Ok(Some(header)),
            None => Err(FetchError::BadCredentials { url: displayed(url) }),
        },
        None => Ok(None),
    }
}

/// A file changes its version with any of these.
fn file_version(file: &File) -> io::Result<Version> {
    let data = file.metadata()?;
    let parts = (data.ino(), data.size(), data.mtime(), data.mtime_nsec(), data.ctime_nsec());
    Ok(Version { etag: Some(format!("{parts:?}")), modified: None })
}

/// All of a file into a sink.
fn pour(
    file: &File,
    mut sink: Sink,
    failed: impl Fn(io::Error) -> SourceError,
) -> Result<Taken, Problem> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let count = match file.read_at(&mut piece, at) {
            Ok(0) => return Ok(sink.finish()?),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error).into()),
        };
        sink.write(&piece[..count])?;
        at += count as u64;
    }
}
