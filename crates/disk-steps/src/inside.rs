// SPDX-License-Identifier: Apache-2.0
//! Files of a deployed system, looked up as that system would see them: a link in an image to `/etc`
//! leads to the image's `/etc`, never to the ramdisk's. What is no plain file is not read: a pipe or a
//! device in an image could keep whoever reads it for ever.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, open, openat2};
use rustix::io::Errno;

/// Opens something below `root` as if that were the root of everything.
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

/// Opens a plain file below `root`. Anything else is an error at once.
pub(crate) fn open_file(root: &Path, path: impl AsRef<Path>, flags: OFlags) -> Result<File, Errno> {
    let file = resolve(root, path, flags | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    if is_file(&file) { Ok(File::from(file)) } else { Err(Errno::INVAL) }
}

/// Where a plain file below `root` really is; none if there is none.
pub(crate) fn file(root: &Path, path: impl AsRef<Path>) -> Option<PathBuf> {
    let file = resolve(root, path, OFlags::PATH).ok()?;
    is_file(&file).then(|| real_path(&file).ok())?
}

/// The bytes of a plain file below `root`, if there are not more than `most`.
pub(crate) fn read(root: &Path, path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let file = open_file(root, path, OFlags::RDONLY)?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// The names in a folder below `root`, in order.
pub(crate) fn names(root: &Path, folder: impl AsRef<Path>) -> Vec<String> {
    let opened = resolve(root, folder, OFlags::RDONLY | OFlags::DIRECTORY);
    let place = opened.ok().and_then(|folder| real_path(&folder).ok());
    let entries = place.and_then(|place| fs::read_dir(place).ok()).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Where a folder below `root` really is. What is missing of it is made.
pub(crate) fn folder(root: &Path, path: &str) -> io::Result<PathBuf> {
    let path = Path::new(path.trim_start_matches('/'));
    make_folders(root, path, None)?;
    real_path(&resolve(root, path, OFlags::PATH | OFlags::DIRECTORY)?)
}

/// Makes what is missing of a folder below `root`; the last of it gets `mode`.
pub(crate) fn make_folders(root: &Path, folder: &Path, mode: Option<u32>) -> Result<(), Errno> {
    let mut so_far = PathBuf::new();
    let mut made = false;
    for part in folder.components() {
        let above = resolve(root, &so_far, OFlags::DIRECTORY)?;
        so_far.push(part);
        if matches!(resolve(root, &so_far, OFlags::DIRECTORY), Err(Errno::NOENT)) {
            mkdirat(&above, part.as_os_str(), Mode::from_raw_mode(0o755))?;
            made = true;
        } else {
            made = false;
        }
    }
    if let Some(mode) = mode.filter(|_| made) {
        fchmod(resolve(root, folder, OFlags::DIRECTORY)?, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

fn is_file(file: &OwnedFd) -> bool {
    fstat(file).is_ok_and(|facts| FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile)
}

fn real_path(opened: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_stay_inside_and_only_files_are_read() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = fs::canonicalize(root.path()).unwrap();
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
        assert_eq!(read(root.path(), "/absolute", 10).unwrap(), b"inside");
        assert_eq!(file(root.path(), "absolute"), Some(place.join("etc/file")));
        for name in ["out", "folder/file", "zero", "pipe", "etc", "missing"] {
            assert!(read(root.path(), name, 10).is_err(), "{name}");
            assert_eq!(file(root.path(), name), None, "{name}");
        }
        assert!(read(root.path(), "absolute", 5).is_err(), "too long");
        assert_eq!(names(root.path(), "etc"), ["file"]);
        assert!(names(root.path(), "folder").is_empty());
        // A mount would go to the image's own folder.
        link(Path::new("/etc"), "run");
        assert_eq!(folder(root.path(), "run").unwrap(), place.join("etc"));
        assert_eq!(folder(root.path(), "/boot/efi").unwrap(), place.join("boot/efi"));
        assert!(place.join("boot/efi").is_dir());
    }
}
