// SPDX-License-Identifier: Apache-2.0
//! File systems mounted for a while, and unmounted when they go out of use.

use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use crate::inside;

/// The file systems that a deployed system may have; which of them the kernel knows is up to the
/// ramdisk.
const KINDS: &[&str] = &["ext4", "xfs", "btrfs", "vfat", "iso9660", "squashfs"];

/// Why something is not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// It is not mounted.
    #[error(
        "{what} cannot be mounted as {kind}: check that the ramdisk has the module for it, and the file system with fsck"
    )]
    Mount {
        /// What.
        what: String,
        /// As what.
        kind: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It stays mounted.
    #[error("{what} cannot be unmounted")]
    Unmount {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A mounted file system. It is unmounted when dropped, as well as that goes.
#[derive(Debug)]
pub(crate) struct Mounted {
    what: PathBuf,
    folder: PathBuf,
    /// What is mounted inside, in the order it was.
    inside: Vec<PathBuf>,
    done: bool,
}

impl Mounted {
    /// Mounts what is on `device` for reading, as whatever it is.
    pub(crate) fn read_only(device: &Path, kind: Option<&str>) -> Result<Self, MountError> {
        let flags =
            MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
        match kind {
            Some(kind) => Self::new(device, kind, flags),
            None => Self::any(device, flags),
        }
    }

    /// Mounts what is on `device` for writing. Its device files are none here.
    pub(crate) fn read_write(device: &Path, kind: &str) -> Result<Self, MountError> {
        Self::new(device, kind, MountFlags::NODEV)
    }

    fn any(device: &Path, flags: MountFlags) -> Result<Self, MountError> {
        let mut last = None;
        for kind in KINDS {
            match Self::new(device, kind, flags) {
                Ok(mounted) => return Ok(mounted),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("there are kinds to try"))
    }

    fn new(device: &Path, kind: &str, flags: MountFlags) -> Result<Self, MountError> {
        let failed = |source: io::Error| MountError::Mount {
            what: device.display().to_string(),
            kind: kind.to_owned(),
            source,
        };
        let name = format!("mount-{}", uuid::Uuid::new_v4().simple());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        // A journal that was not closed is left alone: the disk is to stay as it is.
        let options = match (flags.contains(MountFlags::RDONLY), kind) {
            (true, "ext4") => Some(c"noload"),
            (true, "xfs") => Some(c"norecovery"),
            (_, _) => None,
        };
        let mounted = mount(device, &folder, kind, flags, options)
            .or_else(|_| mount(device, &folder, kind, flags, None::<&std::ffi::CStr>));
        match mounted {
            Ok(()) => Ok(Self { what: device.to_owned(), folder, inside: Vec::new(), done: false }),
            Err(error) => {
                let _ = std::fs::remove_dir(&folder);
                Err(failed(error.into()))
            }
        }
    }

    /// Where its files are.
    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    /// Shows a folder of this system inside it too. No link in it leads the mount elsewhere.
    pub(crate) fn bind(&mut self, from: &Path, to: &str) -> Result<(), MountError> {
        let failed = |source: io::Error| MountError::Mount {
            what: from.display().to_string(),
            kind: "a second view".to_owned(),
            source,
        };
        let place = inside::folder(&self.folder, to).map_err(failed)?;
        mount_bind(from, &place).map_err(|error| failed(error.into()))?;
        self.inside.push(place);
        Ok(())
    }

    /// Mounts a device inside it.
    pub(crate) fn mount_inside(
        &mut self,
        device: &Path,
        kind: &str,
        to: &str,
    ) -> Result<(), MountError> {
        let failed = |source: io::Error| MountError::Mount {
            what: device.display().to_string(),
            kind: kind.to_owned(),
            source,
        };
        let place = inside::folder(&self.folder, to).map_err(failed)?;
        mount(device, &place, kind, MountFlags::empty(), None::<&std::ffi::CStr>)
            .map_err(|error| failed(error.into()))?;
        self.inside.push(place);
        Ok(())
    }

    /// Unmounts it, and says if that fails.
    pub(crate) fn unmount(mut self) -> Result<(), MountError> {
        self.done = true;
        let failed = |what: &Path, error: rustix::io::Errno| MountError::Unmount {
            what: what.display().to_string(),
            source: error.into(),
        };
        while let Some(place) = self.inside.pop() {
            unmount(&place, UnmountFlags::empty()).map_err(|error| failed(&place, error))?;
        }
        unmount(&self.folder, UnmountFlags::empty()).map_err(|error| failed(&self.what, error))?;
        let _ = std::fs::remove_dir(&self.folder);
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        for place in self.inside.iter().rev().chain([&self.folder]) {
            if unmount(place, UnmountFlags::empty()).is_err() {
                let _ = unmount(place, UnmountFlags::DETACH);
            }
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}
