// SPDX-License-Identifier: Apache-2.0
//! Finds and runs the programs, and writes contents to files for them.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use boot_media::{Content, ContentSegment};

/// The path of the stub of systemd.
pub(crate) const STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";

/// Returns whether all files exist; if not, prints why the test is skipped, or fails if they are required.
pub(crate) fn require_files(test: &str, package: &str, files: &[&str]) -> bool {
    let missing = files.iter().find(|file| !Path::new(file).exists());
    let Some(missing) = missing else { return true };
    skip_or_fail(test, &format!("{missing} is missing; install {package}"));
    false
}

/// Prints why a test is skipped, or fails if the programs are required.
pub(crate) fn skip_or_fail(test: &str, why: &str) {
    let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
    assert!(!required, "{test}: {why}, and FERRITE_TEST_SERVERS=required");
    println!("{test}: skipped, {why}");
}

/// Runs a program, which must succeed, and returns its output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).env("MTOOLS_SKIP_CHECK", "0").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {printed}\n{complaints}");
    printed
}

/// Writes a content as a sparse file.
pub(crate) fn write_sparse(folder: &Path, name: &str, content: &Content) -> PathBuf {
    let path = folder.join(name);
    let mut file = File::create(&path).unwrap();
    let mut position = 0;
    for segment in content.segments() {
        let length = segment.length();
        if !matches!(segment, ContentSegment::Zeros(_)) {
            let mut bytes = Vec::new();
            content.slice(position..position + length).write_to(&mut bytes).unwrap();
            file.write_all_at(&bytes, position).unwrap();
        }
        position += length;
    }
    file.set_len(position).unwrap();
    file.flush().unwrap();
    path
}
