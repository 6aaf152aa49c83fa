// SPDX-License-Identifier: Apache-2.0
//! The output of a machine on its serial console.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Timeout for booting an emulated machine on a busy host.
pub(crate) const BOOT_TIMEOUT: Duration = Duration::from_secs(240);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Prefix of the lines that the test ramdisk prints.
const RAMDISK_PREFIX: &str = "FERRITE-RAMDISK-";

/// The console file of a machine. Each start of the machine appends to it.
pub(crate) struct SerialConsole {
    path: PathBuf,
    from: u64,
}

impl SerialConsole {
    /// Only output from now on.
    pub(crate) fn from_now(path: &str) -> Self {
        let path = PathBuf::from(path);
        let from = std::fs::metadata(&path).unwrap().len();
        Self { path, from }
    }

    /// All output.
    pub(crate) fn from_start(path: &str) -> Self {
        Self { path: PathBuf::from(path), from: 0 }
    }

    /// The output so far.
    pub(crate) fn output(&self) -> String {
        let mut bytes = Vec::new();
        let mut file = File::open(&self.path).unwrap();
        file.seek(SeekFrom::Start(self.from)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the output contains `text`. `log` is printed after a timeout.
    pub(crate) fn wait_for(&self, text: &str, log: impl Fn() -> String) {
        let deadline = Instant::now() + BOOT_TIMEOUT;
        while !self.output().contains(text) {
            assert!(
                Instant::now() < deadline,
                "{text:?} is not in the console output:\n{}\nthe server's log:\n{}",
                self.last_lines(40),
                log()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// A value that the ramdisk printed, such as `ADDRESS`; `None` if it is missing or empty.
    pub(crate) fn ramdisk_value(&self, name: &str) -> Option<String> {
        let opening = format!("{RAMDISK_PREFIX}{name} ");
        let output = self.output();
        let line = output.lines().find_map(|line| line.trim().strip_prefix(&opening))?;
        Some(line.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The last lines with readable characters.
    pub(crate) fn last_lines(&self, count: usize) -> String {
        let output = self.output();
        let readable = |line: &&str| line.chars().any(char::is_alphanumeric);
        let lines: Vec<&str> = output.lines().filter(readable).collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }
}
