// SPDX-License-Identifier: Apache-2.0
//! Where the bytes come from: a folder, or anything else that answers to names.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};

/// Gives files to clients. The client is named so that each machine can get a file of its own.
pub trait Files: Send + Sync {
    /// The file of that name for that client.
    ///
    /// # Errors
    /// If there is none, or the client may not have it.
    fn open(&self, name: &str, client: SocketAddr) -> Result<Arc<dyn Content>, OpenError>;
}

/// Something that can be read at any place. Its size does not change while it is sent.
pub trait Content: Send + Sync {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Fills the buffer from this place on.
    ///
    /// # Errors
    /// If the buffer cannot be filled.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// Why a file is not given.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is none.
    #[error("no such file")]
    NotFound,
    /// The name leads out of the folder, or the file may not be read.
    #[error("this file may not be read")]
    Forbidden,
}

/// The files under one folder. Links are followed as long as they stay inside; the kernel sees to it
/// (`openat2` with `RESOLVE_BENEATH`), so that nothing can be changed between a check and its use.
#[derive(Debug)]
pub struct Folder {
    root: OwnedFd,
}

impl Folder {
    /// The files under `path`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path.as_ref(), flags, Mode::empty())?;
        Ok(Self { root })
    }
}

struct OpenFile {
    file: File,
    size: u64,
}

impl Files for Folder {
    fn open(&self, name: &str, _client: SocketAddr) -> Result<Arc<dyn Content>, OpenError> {
        // Firmware writes the separator of its maker's choice, and often one in front.
        let name = name.replace('\\', "/");
        let name = name.trim_start_matches('/');
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(&self.root, name, flags, Mode::empty(), beneath);
        let file = File::from(opened.map_err(refusal)?);
        let about = file.metadata().map_err(|_| OpenError::Forbidden)?;
        // Folders, pipes and devices are not files to send.
        if !about.is_file() {
            return Err(OpenError::NotFound);
        }
        Ok(Arc::new(OpenFile { file, size: about.len() }))
    }
}

impl Content for OpenFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

impl Content for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.get(start..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// The most bytes that are translated to netascii, which is for small texts and is done in memory.
const LARGEST_TEXT: u64 = 1 << 20;

/// The content with line ends as netascii writes them; none if it is too large to be a text.
pub(super) fn netascii(content: &dyn Content) -> Option<Vec<u8>> {
    let size = content.size();
    if size > LARGEST_TEXT {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    content.read_at(0, &mut bytes).ok()?;
    let mut text = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    for byte in bytes {
        match byte {
            b'\n' => text.extend(*b"\r\n"),
            b'\r' => text.extend(*b"\r\0"),
            other => text.push(other),
        }
    }
    Some(text)
}

fn refusal(error: rustix::io::Errno) -> OpenError {
    use rustix::io::Errno;
    match error {
        Errno::XDEV | Errno::ACCESS | Errno::PERM | Errno::LOOP => OpenError::Forbidden,
        _ => OpenError::NotFound,
    }
}
