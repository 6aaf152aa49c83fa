// SPDX-License-Identifier: Apache-2.0
//! The files under one folder, for TFTP and HTTP alike.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The files under one folder. Links are followed as long as they stay inside; the kernel sees to it
/// (`openat2` with `RESOLVE_BENEATH`), so that nothing can be changed between a check and its use.
#[derive(Debug, Clone)]
pub struct Folder {
    root: Arc<OwnedFd>,
}

/// Why a file is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// There is none.
    NotFound,
    /// The name leads out of the folder, or the file may not be read.
    Forbidden,
}

impl Folder {
    /// The files under `path`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path.as_ref(), flags, Mode::empty())?;
        Ok(Self { root: Arc::new(root) })
    }

    /// The regular file of that name, relative to the folder, and what the system knows of it.
    pub(crate) fn file(&self, name: &str) -> Result<(File, Metadata), Denied> {
        self.resolve(name, ResolveFlags::empty()).map_err(denial).and_then(regular)
    }

    /// The same if the system can say without waiting for a disk; `None` if it cannot.
    pub(crate) fn file_without_waiting(
        &self,
        name: &str,
    ) -> Option<Result<(File, Metadata), Denied>> {
        match self.resolve(name, ResolveFlags::CACHED) {
            // Not in memory, or a kernel before 5.12.
            Err(Errno::AGAIN | Errno::INVAL) => None,
            Err(error) => Some(Err(denial(error))),
            Ok(file) => Some(regular(file)),
        }
    }

    fn resolve(&self, name: &str, how: ResolveFlags) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.root, name, flags, Mode::empty(), beneath | how)
    }
}

/// Folders, pipes and devices are not files to send.
fn regular(file: OwnedFd) -> Result<(File, Metadata), Denied> {
    let file = File::from(file);
    let about = file.metadata().map_err(|_| Denied::Forbidden)?;
    if about.is_file() { Ok((file, about)) } else { Err(Denied::NotFound) }
}

fn denial(error: Errno) -> Denied {
    match error {
        Errno::XDEV | Errno::ACCESS | Errno::PERM | Errno::LOOP => Denied::Forbidden,
        _ => Denied::NotFound,
    }
}
