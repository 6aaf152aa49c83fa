// SPDX-License-Identifier: Apache-2.0
//! Writes initramfs archives: cpio in the "newc" format.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use cpio::newc;

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// A cpio archive. All entries belong to root and have the time 0, so that the same content gives
/// the same bytes.
pub(crate) struct CpioWriter<W: Write>(W);

impl<W: Write> CpioWriter<W> {
    pub(crate) fn new(output: W) -> Self {
        Self(output)
    }

    pub(crate) fn folder(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, FOLDER | 0o755, &[])
    }

    pub(crate) fn program(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.entry(name, FILE | 0o755, content)
    }

    pub(crate) fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.entry(name, FILE | 0o644, content)
    }

    /// Adds all files, folders and symbolic links below `root`. Devices and sockets are ignored.
    pub(crate) fn tree(&mut self, root: &Path) -> Result<()> {
        for path in paths_below(root)? {
            let name = path.strip_prefix(root).unwrap_or(&path).to_str();
            let name =
                name.with_context(|| format!("the name of {} is not UTF-8", path.display()))?;
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

    pub(crate) fn finish(self) -> io::Result<W> {
        let mut output = newc::trailer(self.0)?;
        output.flush()?;
        Ok(output)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let size = u32::try_from(content.len()).map_err(io::Error::other)?;
        let mut writer = newc::Builder::new(name).mode(mode).write(&mut self.0, size);
        writer.write_all(content)?;
        writer.finish()?;
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
fn writes_files_folders_and_links() {
    use std::io::Read as _;

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "12345").unwrap();
    std::os::unix::fs::symlink("file", folder.path().join("link")).unwrap();
    let mut archive = CpioWriter::new(Vec::new());
    archive.folder("bin").unwrap();
    archive.program("bin/sh", b"#!").unwrap();
    archive.tree(folder.path()).unwrap();
    let bytes = archive.finish().unwrap();

    let mut rest = bytes.as_slice();
    let mut entries = Vec::new();
    loop {
        let mut reader = newc::Reader::new(rest).unwrap();
        let entry = reader.entry();
        if entry.is_trailer() {
            break;
        }
        let header = format!("{:o} {}", entry.mode(), entry.name());
        let mut content = String::new();
        reader.read_to_string(&mut content).unwrap();
        entries.push(format!("{header} {content}"));
        rest = reader.finish().unwrap();
    }
    let mode = fs::metadata(folder.path().join("file")).unwrap().permissions().mode();
    let file = format!("{mode:o} file 12345");
    let expected = ["40755 bin ", "100755 bin/sh #!", &file, "120777 link file"];
    assert_eq!(entries, expected);
}
