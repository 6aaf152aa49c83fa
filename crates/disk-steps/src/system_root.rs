// SPDX-License-Identifier: Apache-2.0
//! Access to the files of a deployed system as that system sees them: a symbolic link to `/etc` in an
//! image resolves to the image's `/etc`, never to the ramdisk's. Only regular files are opened, because
//! reading a FIFO or a device in an image could block forever.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, open, openat2};
use rustix::io::Errno;

/// Opens a path below `root` as if `root` were the root directory.
pub(crate) fn resolve(
    root: &Path,
    path: impl AsRef<Path>,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let root = open(root, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let path = path.as_ref();
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let creates = flags.contains(OFlags::CREATE);
    let mode = if creates { Mode::from_raw_mode(0o644) } else { Mode::empty() };
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(root.as_fd(), path, flags | OFlags::CLOEXEC, mode, how)
}

/// Opens a regular file below `root`; fails on anything else.
pub(crate) fn open_file(root: &Path, path: impl AsRef<Path>, flags: OFlags) -> Result<File, Errno> {
    let file = resolve(root, path, flags | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    if is_file(&file) { Ok(File::from(file)) } else { Err(Errno::INVAL) }
}

/// Returns the real path of a regular file below `root`; `None` if there is none.
pub(crate) fn resolve_file(root: &Path, path: impl AsRef<Path>) -> Option<PathBuf> {
    let file = resolve(root, path, OFlags::PATH).ok()?;
    is_file(&file).then(|| real_path(&file).ok())?
}

/// Reads a regular file below `root`; fails if it has more than `max` bytes.
pub(crate) fn read_file(root: &Path, path: impl AsRef<Path>, max: u64) -> io::Result<Vec<u8>> {
    let file = open_file(root, path, OFlags::RDONLY)?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Returns the names in a directory below `root`, sorted; empty if there is no such directory.
pub(crate) fn list_directory(root: &Path, directory: impl AsRef<Path>) -> Vec<String> {
    let opened = resolve(root, directory, OFlags::RDONLY | OFlags::DIRECTORY);
    let path = opened.ok().and_then(|directory| real_path(&directory).ok());
    let entries = path.and_then(|path| fs::read_dir(path).ok()).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the real path of a directory below `root`; creates it if it is missing.
pub(crate) fn ensure_directory(root: &Path, path: &str) -> io::Result<PathBuf> {
    let path = Path::new(path.trim_start_matches('/'));
    create_directories(root, path, None)?;
    real_path(&resolve(root, path, OFlags::PATH | OFlags::DIRECTORY)?)
}

/// Creates the missing components of a directory below `root`. The last one gets `mode` if it is new.
pub(crate) fn create_directories(
    root: &Path,
    directory: &Path,
    mode: Option<u32>,
) -> Result<(), Errno> {
    let mut path = PathBuf::new();
    let mut is_new = false;
    for component in directory.components() {
        let parent = resolve(root, &path, OFlags::DIRECTORY)?;
        path.push(component);
        is_new = matches!(resolve(root, &path, OFlags::DIRECTORY), Err(Errno::NOENT));
        if is_new {
            mkdirat(&parent, component.as_os_str(), Mode::from_raw_mode(0o755))?;
        }
    }
    if let Some(mode) = mode.filter(|_| is_new) {
        fchmod(resolve(root, directory, OFlags::DIRECTORY)?, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

fn is_file(file: &OwnedFd) -> bool {
    fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

fn real_path(opened: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn resolves_links_inside_root_and_reads_only_regular_files() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let canonical = fs::canonicalize(root.path()).unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/file"), "inside").unwrap();
        fs::write(outside.path().join("file"), "outside").unwrap();
        let link = |to: &Path, name: &str| symlink(to, root.path().join(name)).unwrap();
        link(Path::new("/etc/file"), "absolute");
        link(&outside.path().join("file"), "out");
        link(outside.path(), "folder");
        link(Path::new("/proc/self/root/dev/zero"), "zero");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.path().join("pipe"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert_eq!(read_file(root.path(), "/absolute", 10).unwrap(), b"inside");
        assert_eq!(resolve_file(root.path(), "absolute"), Some(canonical.join("etc/file")));
        for name in ["out", "folder/file", "zero", "pipe", "etc", "missing"] {
            assert!(read_file(root.path(), name, 10).is_err(), "{name}");
            assert_eq!(resolve_file(root.path(), name), None, "{name}");
        }
        assert!(read_file(root.path(), "absolute", 5).is_err(), "too long");
        assert_eq!(list_directory(root.path(), "etc"), ["file"]);
        assert!(list_directory(root.path(), "folder").is_empty());
        // A link to a directory resolves inside the root.
        link(Path::new("/etc"), "run");
        assert_eq!(ensure_directory(root.path(), "run").unwrap(), canonical.join("etc"));
        assert_eq!(ensure_directory(root.path(), "/boot/efi").unwrap(), canonical.join("boot/efi"));
        assert!(canonical.join("boot/efi").is_dir());
    }
}
