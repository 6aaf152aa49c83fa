// SPDX-License-Identifier: Apache-2.0
//! File systems that are mounted temporarily and unmounted when dropped.

use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use crate::system_root;

/// File systems of deployed systems, in the order they are tried. The ramdisk's kernel may lack some.
const FILESYSTEM_TYPES: &[&str] = &["ext4", "xfs", "btrfs", "vfat", "iso9660", "squashfs"];

/// A mount or unmount failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Mounting failed.
    #[error(
        "{device} cannot be mounted as {fs_type}: check that the ramdisk has the module for it, and check the file system with fsck"
    )]
    Mount {
        /// Device, or directory of a bind mount.
        device: String,
        /// File system type.
        fs_type: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Unmounting failed.
    #[error("{device} cannot be unmounted")]
    Unmount {
        /// Device or mount point.
        device: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
}

/// A mounted file system; unmounted when dropped, lazily if it is busy.
#[derive(Debug)]
pub(crate) struct MountedFilesystem {
    device: PathBuf,
    directory: PathBuf,
    /// Mount points below `directory`, in mount order.
    submounts: Vec<PathBuf>,
    unmounted: bool,
}

impl MountedFilesystem {
    /// Mounts a device read-only; without a type, tries all of [`FILESYSTEM_TYPES`].
    pub(crate) fn read_only(device: &Path, fs_type: Option<&str>) -> Result<Self, MountError> {
        let flags =
            MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
        match fs_type {
            Some(fs_type) => Self::new(device, fs_type, flags),
            None => Self::any(device, flags),
        }
    }

    /// Mounts a device read-write, with device nodes disabled.
    pub(crate) fn read_write(device: &Path, fs_type: &str) -> Result<Self, MountError> {
        Self::new(device, fs_type, MountFlags::NODEV)
    }

    fn any(device: &Path, flags: MountFlags) -> Result<Self, MountError> {
        let mut last = None;
        for fs_type in FILESYSTEM_TYPES {
            match Self::new(device, fs_type, flags) {
                Ok(mounted) => return Ok(mounted),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("the list is not empty"))
    }

    fn new(device: &Path, fs_type: &str, flags: MountFlags) -> Result<Self, MountError> {
        let failed = |source: io::Error| MountError::Mount {
            device: device.display().to_string(),
            fs_type: fs_type.to_owned(),
            source,
        };
        let name = format!("mount-{}", uuid::Uuid::new_v4().simple());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).map_err(failed)?;
        // Do not replay a dirty journal, because the disk must not be modified.
        let options = match (flags.contains(MountFlags::RDONLY), fs_type) {
            (true, "ext4") => Some(c"noload"),
            (true, "xfs") => Some(c"norecovery"),
            (_, _) => None,
        };
        let mounted = mount(device, &directory, fs_type, flags, options)
            .or_else(|_| mount(device, &directory, fs_type, flags, None::<&std::ffi::CStr>));
        match mounted {
            Ok(()) => Ok(Self {
                device: device.to_owned(),
                directory,
                submounts: Vec::new(),
                unmounted: false,
            }),
            Err(error) => {
                let _ = std::fs::remove_dir(&directory);
                Err(failed(error.into()))
            }
        }
    }

    /// Returns the mount point.
    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    /// Bind-mounts a directory of the ramdisk below the mount point. Links in the image cannot redirect it.
    pub(crate) fn bind(&mut self, from: &Path, to: &str) -> Result<(), MountError> {
        let failed = |source: io::Error| MountError::Mount {
            device: from.display().to_string(),
            fs_type: "a bind mount".to_owned(),
            source,
        };
        let target = system_root::ensure_directory(&self.directory, to).map_err(failed)?;
        mount_bind(from, &target).map_err(|error| failed(error.into()))?;
        self.submounts.push(target);
        Ok(())
    }

    /// Mounts a device below the mount point.
    pub(crate) fn mount_inside(
        &mut self,
        device: &Path,
        fs_type: &str,
        to: &str,
    ) -> Result<(), MountError> {
        let failed = |source: io::Error| MountError::Mount {
            device: device.display().to_string(),
            fs_type: fs_type.to_owned(),
            source,
        };
        let target = system_root::ensure_directory(&self.directory, to).map_err(failed)?;
        mount(device, &target, fs_type, MountFlags::empty(), None::<&std::ffi::CStr>)
            .map_err(|error| failed(error.into()))?;
        self.submounts.push(target);
        Ok(())
    }

    /// Unmounts everything; fails if something is busy.
    pub(crate) fn unmount(mut self) -> Result<(), MountError> {
        self.unmounted = true;
        let failed = |device: &Path, error: rustix::io::Errno| MountError::Unmount {
            device: device.display().to_string(),
            source: error.into(),
        };
        while let Some(target) = self.submounts.pop() {
            unmount(&target, UnmountFlags::empty()).map_err(|error| failed(&target, error))?;
        }
        unmount(&self.directory, UnmountFlags::empty())
            .map_err(|error| failed(&self.device, error))?;
        let _ = std::fs::remove_dir(&self.directory);
        Ok(())
    }
}

impl Drop for MountedFilesystem {
    fn drop(&mut self) {
        if self.unmounted {
            return;
        }
        for target in self.submounts.iter().rev().chain([&self.directory]) {
            if unmount(target, UnmountFlags::empty()).is_err() {
                let _ = unmount(target, UnmountFlags::DETACH);
            }
        }
        let _ = std::fs::remove_dir(&self.directory);
    }
}
