// SPDX-License-Identifier: Apache-2.0
//! What a machine says on its serial console, from a certain moment on.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest a machine in software emulation may take to boot, on a busy computer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What stands before everything the ramdisk says.
const RAMDISK: &str = "FERRITE-RAMDISK-";

/// The console of a machine that is about to be switched on: the file is added to at each start.
pub(crate) struct Console {
    path: PathBuf,
    from: u64,
}

impl Console {
    /// From now on.
    pub(crate) fn watch(path: &str) -> Self {
        let path = PathBuf::from(path);
        let from = std::fs::metadata(&path).unwrap().len();
        Self { path, from }
    }

    /// From the beginning.
    pub(crate) fn all(path: &str) -> Self {
        Self { path: PathBuf::from(path), from: 0 }
    }

    /// All that was said since.
    pub(crate) fn said(&self) -> String {
        let mut bytes = Vec::new();
        let mut file = File::open(&self.path).unwrap();
        file.seek(SeekFrom::Start(self.from)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the machine has said `words`. `log` is for the message if it never does.
    pub(crate) fn until(&self, words: &str, log: impl Fn() -> String) {
        let deadline = Instant::now() + PATIENCE;
        while !self.said().contains(words) {
            assert!(
                Instant::now() < deadline,
                "the machine did not say {words:?}; its console:\n{}\nthe server's log:\n{}",
                self.last(40),
                log()
            );
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// What the ramdisk said under a name, such as `ADDRESS`. None if it did not, or nothing.
    pub(crate) fn ramdisk_said(&self, name: &str) -> Option<String> {
        let opening = format!("{RAMDISK}{name} ");
        let said = self.said();
        let line = said.lines().find_map(|line| line.trim().strip_prefix(&opening))?;
        Some(line.trim().to_owned()).filter(|words| !words.is_empty())
    }

    /// The last lines that can be read.
    pub(crate) fn last(&self, count: usize) -> String {
        let said = self.said();
        let readable = |line: &&str| line.chars().any(char::is_alphanumeric);
        let lines: Vec<&str> = said.lines().filter(readable).collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }
}
