// SPDX-License-Identifier: Apache-2.0
//! Writes an image to a disk or a partition while it is downloaded, and makes sure that it is the
//! one that was meant.
//!
//! One thread takes the bytes as they come, digests them, unpacks them and finds out what they are;
//! another writes. Nothing is kept: not in memory (but for qcow2 images from servers that give no
//! ranges) and not on the disk. The beginning of the disk is written only when all of the image came
//! and turned out to be the one it should be, and is wiped otherwise: a machine must not boot what
//! nobody vouches for, also after a power cut.

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
use images::qcow2::{Header, Qcow2Error};
use images::{
    Algorithm, Checksum, ChecksumError, DecompressError, Expected, Format, FormatError,
    decompressed, find_in_file,
};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::device::{Device, DeviceError};
use crate::http::{Http, HttpError, Remote};
use crate::{Progress, Tell, partitions};
use digest::Digester;
use qcow2::{Map, Stop};
use stream::{Stream, read_full};
use writer::Writer;

/// As much of an image's beginning as tells what it is.
const SNIFFED: usize = 64 * 1024;
/// Where a disk image of old Hyper-V has its footer.
const TAIL: usize = 512;
/// How much of the beginning and the end is wiped after a failure.
const WIPED: u64 = 1 << 20;

/// How many bytes go by before somebody is told.
const TOLD_EVERY: u64 = 4 << 20;

/// How an image is written.
#[derive(Clone)]
pub struct WriteOptions {
    /// How it is fetched.
    pub http: Http,
    /// Whether MD5 checksums are good enough.
    pub md5_allowed: bool,
    /// The formats it may have.
    pub permitted_formats: Vec<String>,
    /// Whether it must be what it was declared to be. Without, the declaration is believed.
    pub inspect: bool,
    /// The most memory a qcow2 image may take that comes without ranges.
    pub memory: u64,
}

/// What was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// Where it came from.
    pub url: String,
    /// Its checksum, after the algorithm's name and a colon.
    pub checksum: String,
    /// Bytes that were downloaded.
    pub downloaded: u64,
    /// Bytes of the disk that are the image's now.
    pub written: u64,
    /// What it was.
    pub format: String,
    /// How long it took.
    pub seconds: f64,
}

/// Why an image is not on the disk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is nowhere.
    #[error("the image has no address: give image_source")]
    NoUrl,
    /// Nobody could tell whether it is the right one.
    #[error("the image has no checksum: give image_checksum, or image_os_hash_algo and _value")]
    NoChecksum,
    /// The checksum cannot be used.
    #[error("the image's checksum cannot be used")]
    Checksum(#[from] ChecksumError),
    /// It did not come.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// It is another.
    #[error(
        "the image from {url} is not the one that was meant: its {algorithm} checksum is {got} and should be {expected}; the disk was wiped; correct the checksum or the image"
    )]
    Mismatch {
        /// Where it came from.
        url: String,
        /// How it was computed.
        algorithm: Algorithm,
        /// What was told.
        expected: String,
        /// What it is.
        got: String,
    },
    /// It is not what it may be.
    #[error("the image from {url} is refused")]
    Format {
        /// Where it came from.
        url: String,
        /// Why.
        #[source]
        source: FormatError,
    },
    /// It is a qcow2 image that cannot be written.
    #[error("the image from {url} cannot be read")]
    Qcow2 {
        /// Where it came from.
        url: String,
        /// Why.
        #[source]
        source: Qcow2Error,
    },
    /// It changed between two looks at it.
    #[error("the image from {url} was changed on its server while it was downloaded: try again")]
    Changed {
        /// Where it came from.
        url: String,
    },
    /// It cannot be unpacked.
    #[error("the image from {url} cannot be unpacked")]
    Unpack {
        /// Where it came from.
        url: String,
        /// Why.
        #[source]
        source: DecompressError,
    },
    /// It is larger than the disk.
    #[error(
        "the image has {image} bytes and {device} has {disk}: choose a larger disk (root_device hints), or a smaller image"
    )]
    TooLarge {
        /// Its bytes.
        image: u64,
        /// The disk.
        device: String,
        /// The disk's bytes.
        disk: u64,
    },
    /// It must be in memory, and there is not enough.
    #[error(
        "the server of {url} gives no ranges of files, and the qcow2 image is too large for this machine's memory: use a raw image, or a server that gives ranges"
    )]
    NoMemory {
        /// Where it is.
        url: String,
    },
    /// The disk failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The work ended without saying why.
    #[error("writing the image ended unexpectedly: look at the agent's log")]
    Lost,
}

impl Error {
    /// Whether another address may do better.
    fn is_of_the_server(&self) -> bool {
        match self {
            Self::Http(_)
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
            | Self::Lost => false,
        }
    }
}

/// Writes an image to `device`, a disk or a partition: from the first of its addresses that works.
///
/// # Errors
/// If it cannot be had, is not what it should be, does not fit, or the disk fails.
pub async fn write(
    image: &ImageInfo,
    device: &Path,
    options: &WriteOptions,
    tell: Tell<'_>,
) -> Result<Written, Error> {
    let mut last = Error::NoUrl;
    for url in &image.urls {
        match write_from(url, image, device, options, tell).await {
            Ok(written) => return Ok(written),
            Err(error) if error.is_of_the_server() => {
                tracing::warn!(%error, "this address of the image does not do");
                last = error;
            }
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// What is known about an image before it comes.
struct Order {
    remote: Remote,
    expected: Checksum,
    declared: Option<Format>,
    permitted: Vec<Format>,
    inspect: bool,
    memory: u64,
}

async fn write_from(
    url: &str,
    image: &ImageInfo,
    path: &Path,
    options: &WriteOptions,
    tell: Tell<'_>,
) -> Result<Written, Error> {
    let started = Instant::now();
    let remote = options.http.remote(url, Some(image))?;
    let refused = |source| Error::Format { url: remote.address(), source };
    let declared = image.disk_format.as_deref().map(Format::named).transpose().map_err(refused)?;
    let order = Order {
        expected: expected(image, options, &remote).await?,
        declared,
        permitted: options.permitted_formats.iter().filter_map(|n| Format::named(n).ok()).collect(),
        inspect: options.inspect,
        memory: options.memory,
        remote: remote.clone(),
    };
    let device = Device::exclusive(path)?;
    let (sender, receiver) = mpsc::channel(64);
    let (answer, answered) = oneshot::channel();
    let runtime = Handle::current();
    std::thread::spawn(move || {
        // Whoever asked may have gone.
        let _ = answer.send(receive(&order, device, receiver, &runtime));
    });
    // Pieces are small and many; nobody wants to hear of each.
    let told_last = AtomicU64::new(0);
    let told = |done: u64, total| {
        if done >= told_last.load(Ordering::Relaxed) + TOLD_EVERY || Some(done) == total {
            told_last.store(done, Ordering::Relaxed);
            tell(Progress { what: "write_image", done, total });
        }
    };
    let (downloaded, received) = tokio::join!(remote.download(sender, &told), answered);
    let mut written = match (downloaded, received) {
        (_, Err(_)) => return Err(Error::Lost),
        (_, Ok(Ok(written))) => written,
        // The one that failed first says why; the other only noticed.
        (Err(HttpError::Stopped { .. }) | Ok(()), Ok(Err(error))) => return Err(error),
        (Err(error), Ok(Err(_))) => return Err(error.into()),
    };
    written.seconds = started.elapsed().as_secs_f64();
    Ok(written)
}

/// The checksum an image must have; of two, the one with a named algorithm.
async fn expected(
    image: &ImageInfo,
    options: &WriteOptions,
    remote: &Remote,
) -> Result<Checksum, Error> {
    let named = image.os_hash_algo.as_deref().zip(image.os_hash_value.as_deref());
    let (algorithm, text) = match (named, image.checksum.as_deref()) {
        (Some((name, value)), _) => (Some(Algorithm::named(name)?), value),
        (None, Some(checksum)) => (None, checksum),
        (None, None) => return Err(Error::NoChecksum),
    };
    let checksum = match Expected::parse(text) {
        Ok(Expected::In(url)) => {
            let list = options.http.remote(url.as_str(), Some(image))?;
            let found = find_in_file(&list.text().await?, remote.file_name());
            found.ok_or_else(|| ChecksumError::NotInFile {
                url: list.address(),
                name: remote.file_name().to_owned(),
            })?
        }
        Ok(Expected::Is(checksum)) => match algorithm {
            Some(algorithm) => Checksum::with_algorithm(algorithm, text)?,
            None => checksum,
        },
        Err(error) => return Err(error.into()),
    };
    Ok(checksum.allowed(options.md5_allowed)?)
}

/// Takes an image as it comes and writes it: the whole work of the thread.
fn receive(
    order: &Order,
    device: Device,
    pieces: mpsc::Receiver<crate::http::Piece>,
    runtime: &Handle,
) -> Result<Written, Error> {
    let path = device.path().to_owned();
    let mut touched = false;
    let result = receive_onto(order, device, pieces, runtime, &mut touched);
    if result.is_err() && touched {
        // The first error counts, whatever else goes wrong now.
        let _ = wipe(&path);
    }
    result
}

fn receive_onto(
    order: &Order,
    device: Device,
    pieces: mpsc::Receiver<crate::http::Piece>,
    runtime: &Handle,
    touched: &mut bool,
) -> Result<Written, Error> {
    let mut stream = Stream::new(pieces, Digester::new(order.expected.algorithm()));
    let aborted = |_: io::Error| Error::Lost;
    let length = stream.start().map_err(aborted)?;
    let mut head = vec![0; SNIFFED];
    let read = read_full(&mut stream, &mut head).map_err(aborted)?;
    head.truncate(read);
    let mut work = Work { order, runtime, touched, device_size: device.size(), written: 0 };
    let device_name = device.path().display().to_string();
    let mut writer = Writer::start(device);
    let poured = match work.format(&head)? {
        Format::Compressed(compression) => {
            let input = BufReader::with_capacity(SNIFFED, Cursor::new(head).chain(&mut stream));
            decompressed(input, compression)
                .map_err(|source| Error::Unpack { url: order.remote.address(), source })
                .and_then(|mut unpacked| work.unpacked(&mut *unpacked, &mut writer))
        }
        Format::Qcow2 => work.qcow2(&head, Some(()), &mut stream, &mut writer),
        format @ (Format::Raw
        | Format::Gpt
        | Format::Mbr
        | Format::Iso
        | Format::Qed
        | Format::Vmdk
        | Format::Vdi
        | Format::Vhd
        | Format::Vhdx
        | Format::Luks
        | Format::Squashfs) => {
            if let Some(image) = length.filter(|length| *length > work.device_size) {
                return Err(Error::TooLarge { image, device: device_name, disk: work.device_size });
            }
            work.raw(format, &head, &mut stream, &mut writer)
        }
    };
    let written = work.written;
    // What the disk says comes before what its writer only noticed.
    let device = match (writer.finish(), poured) {
        (Err(error), _) => return Err(error.into()),
        (Ok(_), Err(Error::TooLarge { image, disk, .. })) => {
            return Err(Error::TooLarge { image, device: device_name, disk });
        }
        (Ok(_), Err(error)) => return Err(error),
        (Ok(device), Ok(format)) => (device, format),
    };
    let (all_but_first, format) = device;
    let (downloaded, digits) = stream.finish().map_err(aborted)?;
    if !digest::is(&digits, &order.expected) {
        return Err(Error::Mismatch {
            url: order.remote.address(),
            algorithm: order.expected.algorithm(),
            expected: order.expected.digits(),
            got: digits,
        });
    }
    let device = all_but_first.complete()?;
    clear_end(&device, written)?;
    partitions::mend(&device)?;
    Ok(Written {
        url: order.remote.address(),
        checksum: order.expected.to_string(),
        downloaded,
        written,
        format: format.name().to_owned(),
        seconds: 0.0,
    })
}

/// What goes on between the download and the disk.
struct Work<'a> {
    order: &'a Order,
    runtime: &'a Handle,
    touched: &'a mut bool,
    device_size: u64,
    written: u64,
}

impl Work<'_> {
    fn url(&self) -> String {
        self.order.remote.address()
    }

    /// What the image is, if it may be that.
    fn format(&self, head: &[u8]) -> Result<Format, Error> {
        let refused = |source| Error::Format { url: self.url(), source };
        let order = self.order;
        let detected = Format::detect(head, &[]).map_err(refused)?;
        match (detected, order.declared) {
            (Format::Compressed(_), _) => Ok(detected),
            (_, Some(declared)) if !order.inspect => Ok(declared),
            (_, declared) => {
                detected.check(declared, &order.permitted).map_err(refused)?;
                match detected {
                    Format::Raw | Format::Gpt | Format::Mbr | Format::Iso | Format::Qcow2 => {
                        Ok(detected)
                    }
                    // Permitted or not, these are no disks that can be written.
                    Format::Qed
                    | Format::Vmdk
                    | Format::Vdi
                    | Format::Vhd
                    | Format::Vhdx
                    | Format::Luks
                    | Format::Squashfs
                    | Format::Compressed(_) => Err(refused(FormatError::NotPermitted { detected })),
                }
            }
        }
    }

    /// Writes what was compressed.
    fn unpacked(&mut self, from: &mut dyn Read, to: &mut Writer) -> Result<Format, Error> {
        let mut head = vec![0; SNIFFED];
        let read = read_full(from, &mut head).map_err(|error| self.damaged(error))?;
        head.truncate(read);
        match self.format(&head)? {
            // Once is enough.
            detected @ Format::Compressed(_) => Err(Error::Format {
                url: self.url(),
                source: FormatError::NotPermitted { detected },
            }),
            Format::Qcow2 => self.qcow2(&head, None, from, to),
            format @ (Format::Raw
            | Format::Gpt
            | Format::Mbr
            | Format::Iso
            | Format::Qed
            | Format::Vmdk
            | Format::Vdi
            | Format::Vhd
            | Format::Vhdx
            | Format::Luks
            | Format::Squashfs) => self.raw(format, &head, from, to),
        }
    }

    fn damaged(&self, source: io::Error) -> Error {
        if source.kind() == io::ErrorKind::ConnectionAborted {
            return Error::Lost;
        }
        let source = DecompressError::Damaged { name: "what it looks like", source };
        Error::Unpack { url: self.url(), source }
    }

    /// Writes bytes as they are.
    fn raw(
        &mut self,
        format: Format,
        head: &[u8],
        from: &mut dyn Read,
        to: &mut Writer,
    ) -> Result<Format, Error> {
        let mut from = head.chain(from);
        let mut at = 0;
        let mut tail = Vec::new();
        loop {
            let mut fill = |block: &mut [u8]| {
                let count = read_full(&mut from, block)?;
                remember(&mut tail, &block[..count]);
                Ok(count)
            };
            let left = self.device_size - at;
            // One byte more than fits tells that there is too much.
            let count = match to.write_filled(at, |block| {
                let room = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
                fill(&mut block[..room])
            }) {
                Ok(filled) => filled.map_err(|error| self.damaged(error))?,
                Err(writer::Failed) => return Err(Error::Lost),
            };
            *self.touched = true;
            at += count as u64;
            self.written = at;
            if count == 0 || at == self.device_size {
                break;
            }
        }
        let beyond = io::copy(&mut from, &mut io::sink()).map_err(|error| self.damaged(error))?;
        if beyond > 0 {
            let (image, disk) = (at + beyond, self.device_size);
            return Err(Error::TooLarge { image, device: String::new(), disk });
        }
        let refused = |source| Error::Format { url: self.order.remote.address(), source };
        if self.order.inspect && Format::detect(head, &tail).map_err(refused)? == Format::Vhd {
            return Err(refused(FormatError::NotPermitted { detected: Format::Vhd }));
        }
        Ok(format)
    }

    /// Writes a qcow2 image: its tables by ranges, unless it has to be in memory.
    fn qcow2(
        &mut self,
        head: &[u8],
        ranges: Option<()>,
        from: &mut dyn Read,
        to: &mut Writer,
    ) -> Result<Format, Error> {
        let bad = |source| Error::Qcow2 { url: self.order.remote.address(), source };
        let header = Header::parse(&head[..head.len().min(qcow2::HEAD)], u64::MAX).map_err(bad)?;
        let size = header.virtual_size;
        if size > self.device_size {
            let disk = self.device_size;
            return Err(Error::TooLarge { image: size, device: String::new(), disk });
        }
        let by_ranges = match ranges {
            Some(()) => self.map_by_ranges(header.clone())?,
            None => None,
        };
        *self.touched = true;
        let poured = match by_ranges {
            Some(map) => map.pour(&mut head.chain(from), to),
            None => {
                let whole = self.whole(head, from)?;
                let map = map_in_memory(header, &whole).map_err(bad)?;
                map.pour(&mut whole.as_slice(), to)
            }
        };
        self.written = size;
        match poured {
            Ok(()) => Ok(Format::Qcow2),
            Err(Stop::Image(source)) => Err(bad(source)),
            Err(Stop::Download(error)) => Err(self.damaged(error)),
            Err(Stop::Disk) => Err(Error::Lost),
            Err(Stop::Changed) => Err(Error::Changed { url: self.url() }),
        }
    }

    /// Fetches the tables; none if the server gives no ranges.
    fn map_by_ranges(&self, header: Header) -> Result<Option<Map>, Error> {
        enum Not {
            Given,
            Good(Error),
        }
        impl From<Qcow2Error> for Not {
            fn from(source: Qcow2Error) -> Self {
                Self::Good(Error::Qcow2 { url: String::new(), source })
            }
        }
        let remote = &self.order.remote;
        let mut fetch = |offset, length| match self.runtime.block_on(remote.range(offset, length)) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(Not::Given),
            Err(error) => Err(Not::Good(error.into())),
        };
        match Map::read(header, &mut fetch) {
            Ok(map) => Ok(Some(map)),
            Err(Not::Given) => Ok(None),
            Err(Not::Good(Error::Qcow2 { source, .. })) => {
                Err(Error::Qcow2 { url: self.url(), source })
            }
            Err(Not::Good(error)) => Err(error),
        }
    }

    /// The whole file, in memory.
    fn whole(&self, head: &[u8], from: &mut dyn Read) -> Result<Vec<u8>, Error> {
        let limit = self.order.memory;
        let mut whole = head.to_vec();
        let rest = limit.saturating_sub(head.len() as u64) + 1;
        from.take(rest).read_to_end(&mut whole).map_err(|error| self.damaged(error))?;
        if whole.len() as u64 > limit {
            return Err(Error::NoMemory { url: self.url() });
        }
        Ok(whole)
    }
}

fn map_in_memory(header: Header, whole: &[u8]) -> Result<Map, Qcow2Error> {
    let mut fetch = |offset: u64, length: u64| {
        let start = usize::try_from(offset).ok();
        let range = start.zip(usize::try_from(length).ok());
        let bytes = range.and_then(|(start, length)| whole.get(start..)?.get(..length));
        bytes.map(<[u8]>::to_vec).ok_or(Qcow2Error::Damaged { what: "a table lies beyond its end" })
    };
    Map::read(header, &mut fetch)
}

/// Keeps the last bytes of what went by.
fn remember(tail: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() >= TAIL {
        tail.clear();
        tail.extend_from_slice(&bytes[bytes.len() - TAIL..]);
    } else {
        tail.extend_from_slice(bytes);
        tail.drain(..tail.len().saturating_sub(TAIL));
    }
}

/// Clears the end of a disk beyond the image: what is left there of a partition table or of RAID
/// metadata must not be taken for the image's.
fn clear_end(device: &Device, image: u64) -> Result<(), DeviceError> {
    let end = device.size().saturating_sub(WIPED).max(image.next_multiple_of(device.sector()));
    device.zero(end, device.size().saturating_sub(end))?;
    device.sync()
}

/// Makes sure that nothing boots from a disk that has only part of an image, or the wrong one.
fn wipe(path: &Path) -> Result<(), DeviceError> {
    let device = Device::writable(path)?;
    device.zero(0, WIPED)?;
    device.zero(device.size().saturating_sub(WIPED), WIPED)?;
    device.sync()?;
    device.reread_partitions()
}
