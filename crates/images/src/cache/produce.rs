// SPDX-License-Identifier: Apache-2.0
//! Produces the image of a request: resolve, fetch, verify, convert and store it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::Url;
use tokio::task::spawn_blocking;

use super::ImageCacheState;
use super::blob_store::{CachedImage, SpaceReservation};
use super::convert::{ImageConversion, WrittenFile};
use super::request::{CacheRequest, ImageKind, RequestKey, TargetFormat};
use crate::checksum::{self, Checksum, ChecksumAlgorithm, ChecksumError, ExpectedChecksum};
use crate::credentials::ImageCredentials;
use crate::decompress::DecompressError;
use crate::download::{ContentVersion, DownloadMessage, DownloadOutcome};
use crate::fetch::{DownloadRequest, DownloadStopped, FetchError};
use crate::format::{FormatError, ImageFormat};
use crate::oci::{self, ContainerSignature, OciError, OciReference};
use crate::qcow2::Qcow2Error;
use crate::signature::{self, SignatureError, SignaturePolicy};
use crate::sink::{ImageSink, SinkError, SinkOutput};
use crate::source::{ImageSource, ImageSourceError, redacted_url};
use crate::writer::{SinkWriter, WriterClosed};

/// Size limits of checksum files and signatures.
const MAX_CHECKSUM_FILE_BYTES: usize = 4 << 20;
const MAX_SIGNATURE_BYTES: usize = 64 << 10;

/// Buffer size for reading files.
const READ_BUFFER_BYTES: usize = 256 * 1024;

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("image {image} cannot be used")]
pub struct ImageError {
    /// The source, without secrets.
    pub image: String,
    /// The problem.
    #[source]
    pub problem: Box<ImageProblem>,
}

/// A problem with an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageProblem {
    /// The source is invalid or not allowed.
    #[error(transparent)]
    Source(#[from] ImageSourceError),
    /// The checksum is invalid or missing.
    #[error(transparent)]
    Checksum(#[from] ChecksumError),
    /// The checksum differs.
    #[error(
        "its checksum is not {expected}: it was changed or damaged, or the checksum belongs to another version"
    )]
    WrongChecksum {
        /// The expected checksum. The actual one is logged and not shown: it would identify the content of
        /// files that the user cannot read.
        expected: Checksum,
    },
    /// The download failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The registry request failed.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// It is too large, or the disk failed.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The format is not accepted.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The qcow2 image is invalid.
    #[error(transparent)]
    Qcow2(#[from] Qcow2Error),
    /// Decompression failed.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// The signature is missing or invalid.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// It is a container inside a container.
    #[error(
        "there is {inner} in the {outer} image, and nested formats are rejected: remove one layer"
    )]
    Nested {
        /// The outer format.
        outer: ImageFormat,
        /// The inner format.
        inner: ImageFormat,
    },
    /// The format cannot be converted.
    #[error("{format} cannot be converted to raw: convert it with `qemu-img convert -O qcow2`")]
    CannotConvert {
        /// The format.
        format: ImageFormat,
    },
    /// The cache directory failed.
    #[error("the image cache directory is not usable: check that its disk works and is not full")]
    CacheFolder(#[source] io::Error),
}

/// The location of the bytes, and their expected checksums.
struct ResolvedImage {
    location: FetchLocation,
    checksums: Vec<Checksum>,
}

enum FetchLocation {
    Http { url: Url, authorization: Option<HeaderValue>, size: Option<u64> },
    File(PathBuf),
}

/// The result of a fetch.
enum FetchOutcome {
    Complete(WrittenFile, ContentVersion),
    Unmodified,
}

impl ImageCacheState {
    /// Returns a cached image if no request to a server is necessary.
    pub(super) fn lookup_without_server(&self, request: &CacheRequest) -> Option<CachedImage> {
        match (&request.checksum, &request.source) {
            (
                Some(ExpectedChecksum::Value(checksum)),
                ImageSource::Http(_) | ImageSource::File(_),
            ) => {
                let checksum = checksum.clone().check_allowed(self.settings.allow_md5).ok()?;
                let key = self.record_key(request, request.target_format, &[checksum]);
                self.blobs.lookup(&key).map(|(entry, _)| entry)
            }
            (Some(ExpectedChecksum::File(_)) | None, _) | (_, ImageSource::Oci(_)) => None,
        }
    }

    pub(super) async fn produce(
        self: Arc<Self>,
        request: &CacheRequest,
    ) -> Result<CachedImage, ImageProblem> {
        let resolved = self.resolve(request).await?;
        let certain = !resolved.checksums.is_empty();
        let key = self.record_key(request, request.target_format, &resolved.checksums);
        let have = match self.blobs.lookup(&key) {
            Some((entry, _)) if certain => return Ok(entry),
            have => have,
        };
        if request.target_format == TargetFormat::Raw && certain {
            let as_is = self.record_key(request, TargetFormat::AsIs, &resolved.checksums);
            if let Some((as_is, _)) = self.blobs.lookup(&as_is) {
                return self.convert_cached(request, key, as_is).await;
            }
        }
        let fetched = self.fetch(&resolved, have.as_ref().map(|(_, version)| version)).await?;
        match (fetched, have) {
            (FetchOutcome::Complete(made, version), _) => {
                verify_checksums(&resolved.checksums, &made.image)?;
                let entry = self.check_and_store(request, key, made, version).await?;
                if !certain && request.target_format == TargetFormat::AsIs {
                    self.store_under_checksum(request, &entry).await?;
                }
                Ok(entry)
            }
            (FetchOutcome::Unmodified, Some((entry, _))) => Ok(entry),
            (FetchOutcome::Unmodified, None) => unreachable!("nothing was there to have changed"),
        }
    }

    /// Verifies the signature of a fetched image, converts it if requested, and stores it.
    async fn check_and_store(
        &self,
        request: &CacheRequest,
        key: RequestKey,
        made: WrittenFile,
        version: ContentVersion,
    ) -> Result<CachedImage, ImageProblem> {
        let signature = self.fetch_signature(request).await?;
        let keys = self.settings.signatures.keys.clone();
        let (blobs, task) = (Arc::clone(&self.blobs), self.conversion(request));
        let _place = self.conversions.acquire().await.expect("it is never closed");
        blocking(move || {
            if let Some(signature) = signature {
                signature::verify(&keys, &signature, &made.image.file, &made.image.sha256)?;
            }
            let (format, converted) = task.run(&blobs, &made.image.file)?;
            let made = converted.unwrap_or(made);
            blobs
                .insert(key, made.temporary, made.image, format, version)
                .map_err(ImageProblem::CacheFolder)
        })
        .await
    }

    /// Records the image under its checksum, so that a later request for the same source with this
    /// checksum is served from the cache, even if the source has changed.
    async fn store_under_checksum(
        &self,
        request: &CacheRequest,
        entry: &CachedImage,
    ) -> Result<(), ImageProblem> {
        let digits = hex::encode(entry.sha256);
        let checksum = Checksum::with_algorithm(ChecksumAlgorithm::Sha256, &digits)?;
        let key = self.record_key(request, TargetFormat::AsIs, &[checksum]);
        let (blobs, entry) = (Arc::clone(&self.blobs), entry.clone());
        blocking(move || blobs.insert_alias(key, &entry).map_err(ImageProblem::CacheFolder)).await
    }

    /// Converts a cached image to raw.
    async fn convert_cached(
        &self,
        request: &CacheRequest,
        key: RequestKey,
        as_is: CachedImage,
    ) -> Result<CachedImage, ImageProblem> {
        let (blobs, task) = (Arc::clone(&self.blobs), self.conversion(request));
        let _place = self.conversions.acquire().await.expect("it is never closed");
        blocking(move || {
            let file = File::open(&as_is.path).map_err(ImageProblem::CacheFolder)?;
            let kept = match task.run(&blobs, &file)? {
                (format, Some(made)) => {
                    blobs.insert(key, made.temporary, made.image, format, ContentVersion::default())
                }
                (_, None) => blobs.insert_alias(key, &as_is).map(|()| as_is),
            };
            kept.map_err(ImageProblem::CacheFolder)
        })
        .await
    }

    fn record_key(
        &self,
        request: &CacheRequest,
        target_format: TargetFormat,
        checksums: &[Checksum],
    ) -> RequestKey {
        request.record_key(&self.blobs.salt, &self.settings, target_format, checksums)
    }

    /// Resolves the location and the checksums of an image, from its server if necessary.
    async fn resolve(&self, request: &CacheRequest) -> Result<ResolvedImage, ImageProblem> {
        let mut checksums = Vec::new();
        match &request.checksum {
            Some(ExpectedChecksum::Value(checksum)) => checksums.push(checksum.clone()),
            Some(ExpectedChecksum::File(url)) => {
                checksums.push(self.listed_checksum(request, url).await?)
            }
            None => {}
        }
        for checksum in &checksums {
            checksum.clone().check_allowed(self.settings.allow_md5)?;
        }
        let place = match &request.source {
            ImageSource::Http(url) => {
                let authorization = authorization(request.credentials.as_ref(), url)?;
                FetchLocation::Http { url: url.clone(), authorization, size: None }
            }
            ImageSource::File(path) => FetchLocation::File(path.clone()),
            ImageSource::Oci(reference) => {
                let credentials = request.credentials.as_ref();
                let policy = self.registry_signature_policy(request);
                let verified = self.verified_reference(reference, credentials, policy).await?;
                let architecture = request.architecture.as_deref();
                let wish = self.oci_request(&verified, architecture, credentials);
                let blob = oci::resolve(&self.fetcher, wish).await?;
                if !checksums.contains(&blob.digest) {
                    checksums.push(blob.digest);
                }
                let size = Some(blob.size).filter(|size| *size > 0);
                FetchLocation::Http { url: blob.url, authorization: blob.authorization, size }
            }
        };
        Ok(ResolvedImage { location: place, checksums })
    }

    /// Verifies the signature of an image or container in a registry, and returns its reference by digest, so
    /// that only the verified content can be fetched. Without a policy the reference is returned as it is.
    pub(super) async fn verified_reference(
        &self,
        reference: &OciReference,
        credentials: Option<&ImageCredentials>,
        policy: SignaturePolicy,
    ) -> Result<OciReference, ImageProblem> {
        if policy == SignaturePolicy::Off {
            return Ok(reference.clone());
        }
        let wish = self.oci_request(reference, None, credentials);
        let keys = &self.settings.signatures.keys;
        let (pinned, signature) = oci::verify_container(&self.fetcher, wish, keys).await?;
        match (signature, policy) {
            (ContainerSignature::Valid, _) => Ok(pinned),
            (
                ContainerSignature::Missing(_),
                SignaturePolicy::WhenPresent | SignaturePolicy::Off,
            ) => Ok(pinned),
            (ContainerSignature::Missing(tag), SignaturePolicy::Required) => {
                let place = format!("the tag {tag} of its repository, as `cosign sign` does");
                Err(SignatureError::Missing { place }.into())
            }
            (ContainerSignature::Wrong, _) => {
                Err(SignatureError::Wrong { keys: keys.len() }.into())
            }
        }
    }

    /// The policy for the signature of an image in its registry. A detached signature that the request names
    /// replaces it.
    fn registry_signature_policy(&self, request: &CacheRequest) -> SignaturePolicy {
        match request.signature {
            None => self.settings.signatures.policy(request.kind),
            Some(_) => SignaturePolicy::Off,
        }
    }

    fn oci_request<'a>(
        &'a self,
        reference: &'a OciReference,
        architecture: Option<&'a str>,
        credentials: Option<&'a ImageCredentials>,
    ) -> oci::OciRequest<'a> {
        oci::OciRequest {
            reference,
            architecture,
            credentials,
            config: &self.settings.registries,
            plain_http: &self.settings.plain_http_registries,
        }
    }

    /// Returns the image's checksum from a checksum file.
    async fn listed_checksum(
        &self,
        request: &CacheRequest,
        url: &Url,
    ) -> Result<Checksum, ImageProblem> {
        let headers = companion_headers(request, url)?;
        let response = self.fetcher.get_small(url, &headers, MAX_CHECKSUM_FILE_BYTES).await?;
        if response.status != StatusCode::OK {
            let url = redacted_url(url);
            return Err(FetchError::Refused { url, status: response.status }.into());
        }
        let name = request.source.file_name();
        let found =
            checksum::find_in_checksum_file(&String::from_utf8_lossy(&response.body), &name);
        let missing = || ChecksumError::NotInFile { url: redacted_url(url), name: name.clone() };
        Ok(found.ok_or_else(missing)?)
    }

    async fn fetch(
        &self,
        resolved: &ResolvedImage,
        have: Option<&ContentVersion>,
    ) -> Result<FetchOutcome, ImageProblem> {
        let _place = self.downloads.acquire().await.expect("it is never closed");
        let (temporary, file) = self.blobs.create_temporary().map_err(ImageProblem::CacheFolder)?;
        let algorithms: Vec<ChecksumAlgorithm> =
            resolved.checksums.iter().map(Checksum::algorithm).collect();
        let reservation = SpaceReservation::new(&self.blobs);
        let sink = ImageSink::new(file, reservation, self.settings.limits.download, &algorithms);
        match &resolved.location {
            FetchLocation::Http { url, authorization, size } => {
                let writer = SinkWriter::spawn(sink);
                if let Some(size) = size {
                    // On failure the writer is closed, which ends the download below.
                    let _ = writer.messages().send(DownloadMessage::Length(Some(*size))).await;
                }
                let download = DownloadRequest {
                    url,
                    authorization: authorization.clone(),
                    cached_version: have,
                };
                match self.fetcher.download(download, &writer).await {
                    Ok(DownloadOutcome::Unmodified) => Ok(FetchOutcome::Unmodified),
                    Ok(DownloadOutcome::Complete(version)) => {
                        let taken = writer.finish().await?;
                        Ok(FetchOutcome::Complete(WrittenFile { temporary, image: taken }, version))
                    }
                    Err(DownloadStopped::Fetch(error)) => Err(error.into()),
                    Err(DownloadStopped::Writer(WriterClosed)) => {
                        let why = writer.finish().await.err();
                        let gone = || SinkError::Write(io::ErrorKind::BrokenPipe.into());
                        Err(why.unwrap_or_else(gone).into())
                    }
                }
            }
            FetchLocation::File(path) => {
                let (path, have) = (path.clone(), have.cloned());
                let policy = self.settings.files.clone();
                blocking(move || {
                    let file = policy.open(&path)?;
                    let failed = |source| ImageSourceError::Open { path: path.clone(), source };
                    let version = file_version(&file).map_err(failed)?;
                    if have.as_ref() == Some(&version) {
                        return Ok(FetchOutcome::Unmodified);
                    }
                    let taken = copy_file(&file, sink, failed)?;
                    Ok(FetchOutcome::Complete(WrittenFile { temporary, image: taken }, version))
                })
                .await
            }
        }
    }

    /// Fetches the detached signature of the image if the policy requires it. The signature of an image in a
    /// registry was verified when its reference was resolved.
    async fn fetch_signature(
        &self,
        request: &CacheRequest,
    ) -> Result<Option<Vec<u8>>, ImageProblem> {
        let policy = self.settings.signatures.policy(request.kind);
        if policy == SignaturePolicy::Off {
            return Ok(None);
        }
        let given = request.signature.clone();
        let named = given.is_some();
        let Some(place) = given.or_else(|| request.source.with_suffix(".sig")) else {
            return Ok(None);
        };
        let found = self.fetch_small_file(request, &place).await?;
        match (found, policy) {
            (Some(signature), _) => Ok(Some(signature)),
            // A signature that the request names must exist.
            (None, SignaturePolicy::WhenPresent | SignaturePolicy::Off) if !named => Ok(None),
            (
                None,
                SignaturePolicy::Required | SignaturePolicy::WhenPresent | SignaturePolicy::Off,
            ) => Err(SignatureError::Missing { place: place.to_string() }.into()),
        }
    }

    /// Fetches a small file; `None` if it does not exist.
    async fn fetch_small_file(
        &self,
        request: &CacheRequest,
        place: &ImageSource,
    ) -> Result<Option<Vec<u8>>, ImageProblem> {
        match place {
            ImageSource::Http(url) => {
                let headers = companion_headers(request, url)?;
                let response = self.fetcher.get_small(url, &headers, MAX_SIGNATURE_BYTES).await?;
                match response.status {
                    StatusCode::OK => Ok(Some(response.body)),
                    StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
                    status => Err(FetchError::Refused { url: redacted_url(url), status }.into()),
                }
            }
            ImageSource::File(path) => {
                let (policy, path) = (self.settings.files.clone(), path.clone());
                blocking(move || {
                    let file = match policy.open(&path) {
                        Ok(file) => file,
                        Err(ImageSourceError::Open { source, .. })
                            if source.kind() == io::ErrorKind::NotFound =>
                        {
                            return Ok(None);
                        }
                        Err(error) => return Err(error.into()),
                    };
                    let mut signature = Vec::new();
                    file.take(MAX_SIGNATURE_BYTES as u64)
                        .read_to_end(&mut signature)
                        .map_err(|source| ImageSourceError::Open { path, source })?;
                    Ok(Some(signature))
                })
                .await
            }
            ImageSource::Oci(_) => Ok(None),
        }
    }

    fn conversion(&self, request: &CacheRequest) -> ImageConversion {
        let permitted = match request.kind {
            ImageKind::Kernel | ImageKind::Ramdisk => None,
            ImageKind::DiskImage => Some(self.settings.permitted_formats.clone()),
            ImageKind::Iso => Some(vec![ImageFormat::Iso]),
        };
        let (declared, wanted) = (request.declared_format, request.target_format);
        ImageConversion {
            permitted_formats: permitted,
            declared_format: declared,
            target_format: wanted,
            limits: self.settings.limits,
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageProblem> + Send + 'static,
) -> Result<T, ImageProblem> {
    // Tasks that have not started are cancelled at shutdown.
    let ended = spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(ImageProblem::CacheFolder(io::Error::other(error))))
}

fn verify_checksums(expected: &[Checksum], taken: &SinkOutput) -> Result<(), ImageProblem> {
    for expected in expected {
        let actual = taken.checksum(expected.algorithm());
        let actual = actual.expect("every algorithm of these was given to the sink");
        if actual != *expected {
            tracing::warn!(%expected, %actual, "checksum of an image differs");
            return Err(ImageProblem::WrongChecksum { expected: expected.clone() });
        }
    }
    Ok(())
}

/// Returns the headers for a file that belongs to an image. Credentials are sent only to the server of
/// the image.
fn companion_headers(request: &CacheRequest, url: &Url) -> Result<HeaderMap, FetchError> {
    let mut headers = HeaderMap::new();
    if let ImageSource::Http(image) = &request.source
        && image.origin() == url.origin()
        && let Some(authorization) = authorization(request.credentials.as_ref(), url)?
    {
        headers.insert(AUTHORIZATION, authorization);
    }
    Ok(headers)
}

fn authorization(
    credentials: Option<&ImageCredentials>,
    url: &Url,
) -> Result<Option<HeaderValue>, FetchError> {
    match credentials {
        Some(credentials) => match credentials.header() {
            Some(header) => Ok(Some(header)),
            None => Err(FetchError::BadCredentials { url: redacted_url(url) }),
        },
        None => Ok(None),
    }
}

/// Returns the version of a local file, from its metadata.
fn file_version(file: &File) -> io::Result<ContentVersion> {
    let data = file.metadata()?;
    let parts = (data.ino(), data.size(), data.mtime(), data.mtime_nsec(), data.ctime_nsec());
    Ok(ContentVersion { etag: Some(format!("{parts:?}")), modified: None })
}

/// Copies a file into a sink.
fn copy_file(
    file: &File,
    mut sink: ImageSink,
    failed: impl Fn(io::Error) -> ImageSourceError,
) -> Result<SinkOutput, ImageProblem> {
    let mut piece = vec![0; READ_BUFFER_BYTES];
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
