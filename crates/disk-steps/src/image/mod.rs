// SPDX-License-Identifier: Apache-2.0
//! Writes an image to a disk or a partition while it is downloaded, and verifies its checksum.
//!
//! One thread receives the bytes, computes the checksum, decompresses them and detects the format;
//! another writes them. The image is stored neither in memory (except qcow2 images from servers without
//! range support) nor in a file. The beginning of the disk is written only after the whole image was
//! received and its checksum is correct, and is wiped otherwise: a machine must not boot an unverified
//! image, not even after a power failure.

mod digest;
mod qcow2;
mod stream;
#[cfg(test)]
mod tests;
mod writer;

use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use agent_protocol::ImageInfo;
use images::qcow2::{Qcow2Error, Qcow2Header};
use images::{
    Checksum, ChecksumAlgorithm, ChecksumError, DecompressError, ExpectedChecksum, FormatError,
    ImageFormat, decompressing_reader, find_in_checksum_file,
};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::device::{Device, DeviceError};
use crate::http::{DownloadError, DownloadSettings, RemoteFile};
use crate::{DiskProgress, ReportProgress, partitions};
use digest::StreamDigest;
use qcow2::{Qcow2Map, Qcow2WriteError};
use stream::{DownloadReader, read_full};
use writer::DiskWriter;

/// Bytes of the beginning of an image that are needed to detect its format.
const HEAD_LENGTH: usize = 64 * 1024;
/// Length of the footer by which an old VHD image is detected.
const TAIL_LENGTH: usize = 512;
/// Bytes wiped at the beginning and the end of the disk after a failure.
const WIPED_LENGTH: u64 = 1 << 20;

/// Progress is reported after this many bytes.
const REPORT_INTERVAL_BYTES: u64 = 4 << 20;

/// Options of [`write`].
#[derive(Clone)]
pub struct ImageWriteOptions {
    /// Download settings.
    pub http: DownloadSettings,
    /// Whether MD5 checksums are accepted.
    pub md5_allowed: bool,
    /// Accepted disk formats.
    pub permitted_formats: Vec<String>,
    /// Whether the detected format must be the declared one; otherwise the declared one is trusted.
    pub inspect: bool,
    /// Memory limit in bytes for a qcow2 image from a server without range support.
    pub memory_limit: u64,
}

/// Result of [`write`].
#[derive(Debug, Clone, PartialEq)]
pub struct ImageWriteReport {
    /// URL of the image.
    pub url: String,
    /// Checksum as `algorithm:digits`.
    pub checksum: String,
    /// Downloaded bytes.
    pub downloaded: u64,
    /// Size of the image on the disk in bytes.
    pub written: u64,
    /// Detected format.
    pub format: String,
    /// Duration.
    pub seconds: f64,
}

/// The image was not written.
#[derive(Debug, thiserror::Error)]
pub enum ImageWriteError {
    /// No URL is given.
    #[error("the image has no URL: set image_source")]
    NoUrl,
    /// No checksum is given.
    #[error(
        "the image has no checksum: set image_checksum, or image_os_hash_algo and image_os_hash_value"
    )]
    NoChecksum,
    /// The checksum is invalid or not allowed.
    #[error("the checksum of the image cannot be used")]
    Checksum(#[from] ChecksumError),
    /// The download failed.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// The checksum does not match.
    #[error(
        "checksum mismatch of the image from {url}: its {algorithm} is {actual}, expected {expected}; the disk was wiped; correct the checksum or the image"
    )]
    Mismatch {
        /// URL of the image.
        url: String,
        /// Checksum algorithm.
        algorithm: ChecksumAlgorithm,
        /// Expected digits.
        expected: String,
        /// Computed digits.
        actual: String,
    },
    /// The format is not permitted, or not the declared one.
    #[error("the image from {url} is rejected")]
    Format {
        /// URL of the image.
        url: String,
        /// Cause.
        #[source]
        source: FormatError,
    },
    /// The qcow2 image is damaged or unsupported.
    #[error("the image from {url} cannot be read")]
    Qcow2 {
        /// URL of the image.
        url: String,
        /// Cause.
        #[source]
        source: Qcow2Error,
    },
    /// The image changed between the fetch of its tables and its download.
    #[error("the image from {url} was changed on its server while it was downloaded: try again")]
    Changed {
        /// URL of the image.
        url: String,
    },
    /// Decompression failed.
    #[error("the image from {url} cannot be decompressed")]
    Unpack {
        /// URL of the image.
        url: String,
        /// Cause.
        #[source]
        source: DecompressError,
    },
    /// The image is larger than the disk.
    #[error(
        "the image has {image} bytes and {device} has {disk}: choose a larger disk (root_device hints), or a smaller image"
    )]
    TooLarge {
        /// Size of the image in bytes.
        image: u64,
        /// Path of the disk.
        device: String,
        /// Size of the disk in bytes.
        disk: u64,
    },
    /// The qcow2 image exceeds the memory limit.
    #[error(
        "the server of {url} does not support ranges, and the qcow2 image does not fit this machine's memory: use a raw image, or a server with range support"
    )]
    NoMemory {
        /// URL of the image.
        url: String,
    },
    /// A disk operation failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The thread ended without a result.
    #[error("writing the image ended unexpectedly: check the agent's log")]
    Aborted,
}

impl ImageWriteError {
    /// Whether another URL may succeed.
    fn may_succeed_elsewhere(&self) -> bool {
        match self {
            Self::Download(_)
            | Self::Mismatch { .. }
            | Self::Changed { .. }
            | Self::NoMemory { .. } => true,
            Self::NoUrl
            | Self::NoChecksum
            | Self::Checksum(_)
            | Self::Format { .. }
            | Self::Qcow2 { .. }
            | Self::Unpack { .. }
            | Self::TooLarge { .. }
            | Self::Device(_)
            | Self::Aborted => false,
        }
    }
}

/// Writes an image to `device`, a disk or a partition, from the first of its URLs that works.
///
/// # Errors
/// Fails if the image cannot be downloaded, is not the expected one or does not fit, or if the disk fails.
pub async fn write(
    image: &ImageInfo,
    device: &Path,
    options: &ImageWriteOptions,
    report: ReportProgress<'_>,
) -> Result<ImageWriteReport, ImageWriteError> {
    let mut last = ImageWriteError::NoUrl;
    for url in &image.urls {
        match write_from(url, image, device, options, report).await {
            Ok(written) => return Ok(written),
            Err(error) if error.may_succeed_elsewhere() => {
                tracing::warn!(url, %error, "writing the image from this URL failed, trying the next one");
                last = error;
            }
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// What is known about an image before its download.
struct ImageRequest {
    remote: RemoteFile,
    expected_checksum: Checksum,
    declared: Option<ImageFormat>,
    permitted: Vec<ImageFormat>,
    inspect: bool,
    memory_limit: u64,
}

async fn write_from(
    url: &str,
    image: &ImageInfo,
    path: &Path,
    options: &ImageWriteOptions,
    report: ReportProgress<'_>,
) -> Result<ImageWriteReport, ImageWriteError> {
    let started = Instant::now();
    let remote = options.http.remote_file(url, Some(image))?;
    let format_error = |source| ImageWriteError::Format { url: remote.display_url(), source };
    let declared = image
        .disk_format
        .as_deref()
        .map(ImageFormat::from_name)
        .transpose()
        .map_err(format_error)?;
    let request = ImageRequest {
        expected_checksum: expected_checksum(image, options, &remote).await?,
        declared,
        permitted: options
            .permitted_formats
            .iter()
            .filter_map(|n| ImageFormat::from_name(n).ok())
            .collect(),
        inspect: options.inspect,
        memory_limit: options.memory_limit,
        remote: remote.clone(),
    };
    let device = Device::exclusive(path)?;
    let (sender, receiver) = mpsc::channel(64);
    let (result_sender, result_receiver) = oneshot::channel();
    let runtime = Handle::current();
    std::thread::spawn(move || {
        // The receiver is gone if the caller was cancelled.
        let _ = result_sender.send(write_received(&request, device, receiver, &runtime));
    });
    // Chunks are small, so not each one is reported.
    let last_report = AtomicU64::new(0);
    let report_download = |done: u64, total| {
        if done >= last_report.load(Ordering::Relaxed) + REPORT_INTERVAL_BYTES
            || Some(done) == total
        {
            last_report.store(done, Ordering::Relaxed);
            report(DiskProgress { step: "write_image", done, total });
        }
    };
    let (downloaded, received) =
        tokio::join!(remote.download(sender, &report_download), result_receiver);
    let mut written = match (downloaded, received) {
        (_, Err(_)) => return Err(ImageWriteError::Aborted),
        (_, Ok(Ok(written))) => written,
        // Report the cause: the other side only noticed the abort.
        (Err(DownloadError::Cancelled { .. }) | Ok(()), Ok(Err(error))) => return Err(error),
        (Err(error), Ok(Err(_))) => return Err(error.into()),
    };
    written.seconds = started.elapsed().as_secs_f64();
    Ok(written)
}

/// Returns the checksum the image must have; one with a named algorithm takes precedence.
async fn expected_checksum(
    image: &ImageInfo,
    options: &ImageWriteOptions,
    remote: &RemoteFile,
) -> Result<Checksum, ImageWriteError> {
    let named = image.os_hash_algo.as_deref().zip(image.os_hash_value.as_deref());
    let (algorithm, text) = match (named, image.checksum.as_deref()) {
        (Some((name, value)), _) => (Some(ChecksumAlgorithm::from_name(name)?), value),
        (None, Some(checksum)) => (None, checksum),
        (None, None) => return Err(ImageWriteError::NoChecksum),
    };
    let checksum = match ExpectedChecksum::parse(text) {
        Ok(ExpectedChecksum::File(url)) => {
            let list = options.http.remote_file(url.as_str(), Some(image))?;
            let found = find_in_checksum_file(&list.text().await?, remote.file_name());
            found.ok_or_else(|| ChecksumError::NotInFile {
                url: list.display_url(),
                name: remote.file_name().to_owned(),
            })?
        }
        Ok(ExpectedChecksum::Value(checksum)) => match algorithm {
            Some(algorithm) => Checksum::with_algorithm(algorithm, text)?,
            None => checksum,
        },
        Err(error) => return Err(error.into()),
    };
    Ok(checksum.check_allowed(options.md5_allowed)?)
}

/// Writes the image as it is received, and wipes the disk after a failure. Runs on its own thread.
fn write_received(
    request: &ImageRequest,
    device: Device,
    chunks: mpsc::Receiver<images::DownloadMessage>,
    runtime: &Handle,
) -> Result<ImageWriteReport, ImageWriteError> {
    let path = device.path().to_owned();
    let mut is_modified = false;
    let result = write_to_device(request, device, chunks, runtime, &mut is_modified);
    if result.is_err() && is_modified {
        // The first error is reported, even if wiping fails.
        let _ = wipe(&path);
    }
    result
}

fn write_to_device(
    request: &ImageRequest,
    device: Device,
    chunks: mpsc::Receiver<images::DownloadMessage>,
    runtime: &Handle,
    is_modified: &mut bool,
) -> Result<ImageWriteReport, ImageWriteError> {
    let mut download =
        DownloadReader::new(chunks, StreamDigest::new(request.expected_checksum.algorithm()));
    let aborted = |_: io::Error| ImageWriteError::Aborted;
    let length = download.start().map_err(aborted)?;
    let mut head = vec![0; HEAD_LENGTH];
    let read = read_full(&mut download, &mut head).map_err(aborted)?;
    head.truncate(read);
    let mut image_writer =
        ImageWriter { request, runtime, is_modified, device_size: device.size(), written: 0 };
    let device_name = device.path().display().to_string();
    let mut disk_writer = DiskWriter::start(device);
    let written_format = match image_writer.format(&head)? {
        ImageFormat::Compressed(compression) => {
            let input =
                BufReader::with_capacity(HEAD_LENGTH, Cursor::new(head).chain(&mut download));
            decompressing_reader(input, compression)
                .map_err(|source| ImageWriteError::Unpack {
                    url: request.remote.display_url(),
                    source,
                })
                .and_then(|mut decompressed| {
                    image_writer.write_decompressed(&mut *decompressed, &mut disk_writer)
                })
        }
        ImageFormat::Qcow2 => {
            image_writer.write_qcow2(&head, true, &mut download, &mut disk_writer)
        }
        format @ (ImageFormat::Raw
        | ImageFormat::Gpt
        | ImageFormat::Mbr
        | ImageFormat::Iso
        | ImageFormat::Qed
        | ImageFormat::Vmdk
        | ImageFormat::Vdi
        | ImageFormat::Vhd
        | ImageFormat::Vhdx
        | ImageFormat::Luks
        | ImageFormat::Squashfs) => {
            if let Some(image) = length.filter(|length| *length > image_writer.device_size) {
                return Err(ImageWriteError::TooLarge {
                    image,
                    device: device_name,
                    disk: image_writer.device_size,
                });
            }
            image_writer.write_raw(format, &head, &mut download, &mut disk_writer)
        }
    };
    let written = image_writer.written;
    // A disk error takes precedence, because the other side only noticed the abort.
    let device = match (disk_writer.finish(), written_format) {
        (Err(error), _) => return Err(error.into()),
        (Ok(_), Err(ImageWriteError::TooLarge { image, disk, .. })) => {
            return Err(ImageWriteError::TooLarge { image, device: device_name, disk });
        }
        (Ok(_), Err(error)) => return Err(error),
        (Ok(device), Ok(format)) => (device, format),
    };
    let (uncommitted, format) = device;
    let (downloaded, digits) = download.finish().map_err(aborted)?;
    if !digest::matches_checksum(&digits, &request.expected_checksum) {
        return Err(ImageWriteError::Mismatch {
            url: request.remote.display_url(),
            algorithm: request.expected_checksum.algorithm(),
            expected: request.expected_checksum.to_hex(),
            actual: digits,
        });
    }
    let device = uncommitted.commit()?;
    clear_end(&device, written)?;
    partitions::repair_table(&device)?;
    Ok(ImageWriteReport {
        url: request.remote.display_url(),
        checksum: request.expected_checksum.to_string(),
        downloaded,
        written,
        format: format.name().to_owned(),
        seconds: 0.0,
    })
}

/// State between download and disk.
struct ImageWriter<'a> {
    request: &'a ImageRequest,
    runtime: &'a Handle,
    is_modified: &'a mut bool,
    device_size: u64,
    written: u64,
}

impl ImageWriter<'_> {
    fn url(&self) -> String {
        self.request.remote.display_url()
    }

    /// Returns the format of the image; fails if it is not permitted.
    fn format(&self, head: &[u8]) -> Result<ImageFormat, ImageWriteError> {
        let format_error = |source| ImageWriteError::Format { url: self.url(), source };
        let request = self.request;
        let detected = ImageFormat::detect(head, &[]).map_err(format_error)?;
        match (detected, request.declared) {
            (ImageFormat::Compressed(_), _) => Ok(detected),
            (_, Some(declared)) if !request.inspect => Ok(declared),
            (_, declared) => {
                detected.check(declared, &request.permitted).map_err(format_error)?;
                match detected {
                    ImageFormat::Raw
                    | ImageFormat::Gpt
                    | ImageFormat::Mbr
                    | ImageFormat::Iso
                    | ImageFormat::Qcow2 => Ok(detected),
                    // These cannot be written as disks, even if permitted.
                    ImageFormat::Qed
                    | ImageFormat::Vmdk
                    | ImageFormat::Vdi
                    | ImageFormat::Vhd
                    | ImageFormat::Vhdx
                    | ImageFormat::Luks
                    | ImageFormat::Squashfs
                    | ImageFormat::Compressed(_) => {
                        Err(format_error(FormatError::NotPermitted { detected }))
                    }
                }
            }
        }
    }

    /// Writes a decompressed image.
    fn write_decompressed(
        &mut self,
        source: &mut dyn Read,
        disk: &mut DiskWriter,
    ) -> Result<ImageFormat, ImageWriteError> {
        let mut head = vec![0; HEAD_LENGTH];
        let read = read_full(source, &mut head).map_err(|error| self.decompress_error(error))?;
        head.truncate(read);
        match self.format(&head)? {
            // Nested compression is rejected.
            detected @ ImageFormat::Compressed(_) => Err(ImageWriteError::Format {
                url: self.url(),
                source: FormatError::NotPermitted { detected },
            }),
            ImageFormat::Qcow2 => self.write_qcow2(&head, false, source, disk),
            format @ (ImageFormat::Raw
            | ImageFormat::Gpt
            | ImageFormat::Mbr
            | ImageFormat::Iso
            | ImageFormat::Qed
            | ImageFormat::Vmdk
            | ImageFormat::Vdi
            | ImageFormat::Vhd
            | ImageFormat::Vhdx
            | ImageFormat::Luks
            | ImageFormat::Squashfs) => self.write_raw(format, &head, source, disk),
        }
    }

    fn decompress_error(&self, source: io::Error) -> ImageWriteError {
        if source.kind() == io::ErrorKind::ConnectionAborted {
            return ImageWriteError::Aborted;
        }
        let source = DecompressError::Damaged { name: "what it looks like", source };
        ImageWriteError::Unpack { url: self.url(), source }
    }

    /// Writes a raw image.
    fn write_raw(
        &mut self,
        format: ImageFormat,
        head: &[u8],
        source: &mut dyn Read,
        disk: &mut DiskWriter,
    ) -> Result<ImageFormat, ImageWriteError> {
        let mut source = head.chain(source);
        let mut offset = 0;
        let mut tail = Vec::new();
        loop {
            let mut fill = |block: &mut [u8]| {
                let length = read_full(&mut source, block)?;
                keep_tail(&mut tail, &block[..length]);
                Ok(length)
            };
            let remaining = self.device_size - offset;
            // The excess is counted below.
            let length = match disk.write_filled(offset, |block| {
                let length = usize::try_from(remaining)
                    .map_or(block.len(), |remaining| remaining.min(block.len()));
                fill(&mut block[..length])
            }) {
                Ok(filled) => filled.map_err(|error| self.decompress_error(error))?,
                Err(writer::WriterFailed) => return Err(ImageWriteError::Aborted),
            };
            *self.is_modified = true;
            offset += length as u64;
            self.written = offset;
            if length == 0 || offset == self.device_size {
                break;
            }
        }
        let excess =
            io::copy(&mut source, &mut io::sink()).map_err(|error| self.decompress_error(error))?;
        if excess > 0 {
            let (image, disk) = (offset + excess, self.device_size);
            return Err(ImageWriteError::TooLarge { image, device: String::new(), disk });
        }
        let format_error =
            |source| ImageWriteError::Format { url: self.request.remote.display_url(), source };
        if self.request.inspect
            && ImageFormat::detect(head, &tail).map_err(format_error)? == ImageFormat::Vhd
        {
            return Err(format_error(FormatError::NotPermitted { detected: ImageFormat::Vhd }));
        }
        Ok(format)
    }

    /// Writes a qcow2 image, from its tables fetched by ranges, or else from memory.
    fn write_qcow2(
        &mut self,
        head: &[u8],
        can_use_ranges: bool,
        source: &mut dyn Read,
        disk: &mut DiskWriter,
    ) -> Result<ImageFormat, ImageWriteError> {
        let qcow2_error =
            |source| ImageWriteError::Qcow2 { url: self.request.remote.display_url(), source };
        let header =
            Qcow2Header::parse(&head[..head.len().min(qcow2::HEADER_LENGTH_LIMIT)], u64::MAX)
                .map_err(qcow2_error)?;
        let size = header.virtual_size;
        if size > self.device_size {
            let disk = self.device_size;
            return Err(ImageWriteError::TooLarge { image: size, device: String::new(), disk });
        }
        let map = if can_use_ranges { self.map_by_ranges(header.clone())? } else { None };
        *self.is_modified = true;
        let result = match map {
            Some(map) => map.write_to_disk(&mut head.chain(source), disk),
            None => {
                let whole = self.read_whole(head, source)?;
                let map = map_in_memory(header, &whole).map_err(qcow2_error)?;
                map.write_to_disk(&mut whole.as_slice(), disk)
            }
        };
        self.written = size;
        match result {
            Ok(()) => Ok(ImageFormat::Qcow2),
            Err(Qcow2WriteError::Image(source)) => Err(qcow2_error(source)),
            Err(Qcow2WriteError::Download(error)) => Err(self.decompress_error(error)),
            Err(Qcow2WriteError::Disk) => Err(ImageWriteError::Aborted),
            Err(Qcow2WriteError::Changed) => Err(ImageWriteError::Changed { url: self.url() }),
        }
    }

    /// Fetches the tables; `None` if the server does not support ranges.
    fn map_by_ranges(&self, header: Qcow2Header) -> Result<Option<Qcow2Map>, ImageWriteError> {
        enum RangeError {
            Unsupported,
            Failed(ImageWriteError),
        }
        impl From<Qcow2Error> for RangeError {
            fn from(source: Qcow2Error) -> Self {
                Self::Failed(ImageWriteError::Qcow2 { url: String::new(), source })
            }
        }
        let remote = &self.request.remote;
        let mut fetch = |offset, length| match self.runtime.block_on(remote.range(offset, length)) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(RangeError::Unsupported),
            Err(error) => Err(RangeError::Failed(error.into())),
        };
        match Qcow2Map::read(header, &mut fetch) {
            Ok(map) => Ok(Some(map)),
            Err(RangeError::Unsupported) => Ok(None),
            Err(RangeError::Failed(ImageWriteError::Qcow2 { source, .. })) => {
                Err(ImageWriteError::Qcow2 { url: self.url(), source })
            }
            Err(RangeError::Failed(error)) => Err(error),
        }
    }

    /// Reads the whole file into memory.
    fn read_whole(&self, head: &[u8], source: &mut dyn Read) -> Result<Vec<u8>, ImageWriteError> {
        let limit = self.request.memory_limit;
        let mut whole = head.to_vec();
        let rest = limit.saturating_sub(head.len() as u64) + 1;
        source.take(rest).read_to_end(&mut whole).map_err(|error| self.decompress_error(error))?;
        if whole.len() as u64 > limit {
            return Err(ImageWriteError::NoMemory { url: self.url() });
        }
        Ok(whole)
    }
}

fn map_in_memory(header: Qcow2Header, whole: &[u8]) -> Result<Qcow2Map, Qcow2Error> {
    let mut fetch = |offset: u64, length: u64| {
        let start = usize::try_from(offset).ok();
        let range = start.zip(usize::try_from(length).ok());
        let bytes = range.and_then(|(start, length)| whole.get(start..)?.get(..length));
        bytes.map(<[u8]>::to_vec).ok_or(Qcow2Error::Damaged { what: "a table lies beyond its end" })
    };
    Qcow2Map::read(header, &mut fetch)
}

/// Keeps the last bytes of a stream.
fn keep_tail(tail: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() >= TAIL_LENGTH {
        tail.clear();
        tail.extend_from_slice(&bytes[bytes.len() - TAIL_LENGTH..]);
    } else {
        tail.extend_from_slice(bytes);
        tail.drain(..tail.len().saturating_sub(TAIL_LENGTH));
    }
}

/// Zeroes the end of the disk after the image, so that a stale partition table or RAID superblock is not
/// taken for the image's.
fn clear_end(device: &Device, image: u64) -> Result<(), DeviceError> {
    let end =
        device.size().saturating_sub(WIPED_LENGTH).max(image.next_multiple_of(device.sector()));
    device.zero(end, device.size().saturating_sub(end))?;
    device.sync()
}

/// Wipes both ends of the disk, so that a partial or wrong image does not boot.
fn wipe(path: &Path) -> Result<(), DeviceError> {
    let device = Device::writable(path)?;
    device.zero(0, WIPED_LENGTH)?;
    device.zero(device.size().saturating_sub(WIPED_LENGTH), WIPED_LENGTH)?;
    device.sync()?;
    device.reread_partitions()
}
