// SPDX-License-Identifier: Apache-2.0
//! The files below one directory, for TFTP and HTTP.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The files below one directory. Symbolic links are followed if they stay inside; the kernel enforces it
/// (`openat2` with `RESOLVE_BENEATH`), so there is no race between check and use.
#[derive(Debug, Clone)]
pub struct ServedDirectory {
    root: Arc<OwnedFd>,
}

/// Why a file cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileAccessError {
    /// It does not exist, or is not a regular file.
    NotFound,
    /// The name leads out of the directory, or the file may not be read.
    Forbidden,
}

impl ServedDirectory {
    /// Opens a directory.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path.as_ref(), flags, Mode::empty())?;
        Ok(Self { root: Arc::new(root) })
    }

    /// Opens a regular file by its name relative to the directory.
    pub(crate) fn open_file(&self, name: &str) -> Result<(File, Metadata), FileAccessError> {
        self.resolve(name, ResolveFlags::empty()).map_err(access_error).and_then(regular_file)
    }

    /// Like [`open_file`](Self::open_file), but returns `None` if the kernel would have to read a disk.
    pub(crate) fn open_file_cached(
        &self,
        name: &str,
    ) -> Option<Result<(File, Metadata), FileAccessError>> {
        match self.resolve(name, ResolveFlags::CACHED) {
            // Not cached, or a kernel before 5.12.
            Err(Errno::AGAIN | Errno::INVAL) => None,
            Err(error) => Some(Err(access_error(error))),
            Ok(file) => Some(regular_file(file)),
        }
    }

    fn resolve(&self, name: &str, how: ResolveFlags) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.root, name, flags, Mode::empty(), beneath | how)
    }
}

fn regular_file(file: OwnedFd) -> Result<(File, Metadata), FileAccessError> {
    let file = File::from(file);
    let metadata = file.metadata().map_err(|_| FileAccessError::Forbidden)?;
    if metadata.is_file() { Ok((file, metadata)) } else { Err(FileAccessError::NotFound) }
}

fn access_error(error: Errno) -> FileAccessError {
    match error {
        Errno::XDEV | Errno::ACCESS | Errno::PERM | Errno::LOOP => FileAccessError::Forbidden,
        _ => FileAccessError::NotFound,
    }
}
