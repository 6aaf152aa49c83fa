// SPDX-License-Identifier: Apache-2.0
//! The archives that Linux unpacks as its first file system: cpio of the kind called "newc".

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An archive that is being written. Everything in it is root's and from 1970, so that the same
/// content gives the same bytes.
pub(crate) struct Archive<W: Write> {
    output: W,
    written: usize,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(output: W) -> Self {
        Self { output, written: 0 }
    }

    pub(crate) fn folder(&mut self, name: &str) -> io::Result<()> {
        self.entry(name.as_bytes(), FOLDER | 0o755, &[])
    }

    pub(crate) fn program(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.entry(name.as_bytes(), FILE | 0o755, content)
    }

    pub(crate) fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.entry(name.as_bytes(), FILE | 0o644, content)
    }

    /// Everything in a folder, under the names it has there. Devices and the like are left out.
    pub(crate) fn tree(&mut self, root: &Path) -> Result<()> {
        for path in paths_below(root)? {
            let name = path.strip_prefix(root).unwrap_or(&path).as_os_str().as_bytes();
            let metadata = fs::symlink_metadata(&path)?;
            let mode = metadata.permissions().mode() & 0o7777;
            if metadata.is_dir() {
                self.entry(name, FOLDER | mode, &[])?;
            } else if metadata.is_symlink() {
                self.entry(name, LINK | 0o777, fs::read_link(&path)?.as_os_str().as_bytes())?;
            } else if metadata.is_file() {
                let content =
                    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                self.entry(name, FILE | mode, &content)?;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry(b"TRAILER!!!", 0, &[])?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn entry(&mut self, name: &[u8], mode: u32, content: &[u8]) -> io::Result<()> {
        let numbers = [0, mode as usize, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, name.len() + 1, 0];
        let mut header = b"070701".to_vec();
        for number in numbers {
            header.extend(format!("{number:08x}").bytes());
        }
        header.extend(name);
        header.push(0);
        self.write_padded(&header)?;
        self.write_padded(content)
    }

    fn write_padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)?;
        self.written += bytes.len();
        let padding = self.written.next_multiple_of(4) - self.written;
        self.output.write_all(&[0; 3][..padding])?;
        self.written += padding;
        Ok(())
    }
}

/// A program that compresses what it is given into a file.
pub(crate) struct Compressor {
    child: Child,
    path: PathBuf,
}

impl Compressor {
    /// Starts `command`, for instance `gzip -n -c`, with its output going to the file `path`.
    pub(crate) fn start(command: &[&str], path: &Path) -> Result<Self> {
        let (program, arguments) = command.split_first().context("no command given")?;
        let file =
            fs::File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(file)
            .spawn()
            .with_context(|| format!("cannot run {program}"))?;
        Ok(Self { child, path: path.to_owned() })
    }

    /// Where it takes what it compresses.
    pub(crate) fn input(&mut self) -> Result<impl Write> {
        let input = self.child.stdin.take().context("the input was taken already")?;
        Ok(io::BufWriter::with_capacity(1 << 16, input))
    }

    /// Waits for its end, once its input is dropped.
    pub(crate) fn finish(mut self) -> Result<()> {
        if !self.child.wait()?.success() {
            bail!("{} could not be written", self.path.display());
        }
        Ok(())
    }
}

/// All paths below a folder, folders before what is in them, in the order of their names.
fn paths_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

#[test]
fn entries_begin_at_multiples_of_four() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "12345").unwrap();
    std::os::unix::fs::symlink("file", folder.path().join("link")).unwrap();
    let mut archive = Archive::new(Vec::new());
    archive.folder("bin").unwrap();
    archive.program("bin/sh", b"#!").unwrap();
    archive.tree(folder.path()).unwrap();
    let bytes = archive.finish().unwrap();

    let mut rest = bytes.as_slice();
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let number = |at: usize| {
            let digits = std::str::from_utf8(&rest[6 + at * 8..14 + at * 8]).unwrap();
            usize::from_str_radix(digits, 16).unwrap()
        };
        assert_eq!(&rest[..6], b"070701");
        let (mode, size, name_size) = (number(1), number(6), number(11));
        let name = String::from_utf8_lossy(&rest[110..110 + name_size - 1]).into_owned();
        let content = (110 + name_size).next_multiple_of(4);
        let text = String::from_utf8_lossy(&rest[content..content + size]).into_owned();
        entries.push(format!("{mode:o} {name} {text}"));
        rest = &rest[(content + size).next_multiple_of(4)..];
    }
    let mode = fs::metadata(folder.path().join("file")).unwrap().permissions().mode();
    let file = format!("{mode:o} file 12345");
    let expected = ["40755 bin ", "100755 bin/sh #!", &file, "120777 link file", "0 TRAILER!!! "];
    assert_eq!(entries, expected);
}
