// SPDX-License-Identifier: Apache-2.0
//! The folder of a cluster. A small process removes it, and the network, after the test program has
//! ended, however it ended.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::process;

/// Waits until the test program closes its end of the pipe. Processes in the folder may still be
/// ending then.
const CLEAN_UP: &str = r#"
trap "" HUP INT TERM
cat
ip link delete "$2"
for attempt in 1 2 3 4 5; do rm -rf "$1" && exit; sleep 1; done
"#;
/// The size needed in memory, in bytes.
const ROOM: u64 = 2 << 30;

/// A folder in memory, or on a disk if there is not enough memory.
pub(crate) struct ClusterFolder {
    path: PathBuf,
    cleaner: Child,
}

impl ClusterFolder {
    /// Creates the folder. It is removed together with the network interface `bridge`.
    pub(crate) fn create(bridge: &str) -> Result<Self> {
        let path = folder()?;
        let mut cleaner = Command::new("sh");
        cleaner.args(["-c", CLEAN_UP, "sh"]).arg(&path).arg(bridge);
        cleaner.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let cleaner = process::spawn(cleaner).context("cannot run sh")?;
        Ok(Self { path, cleaner })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ClusterFolder {
    fn drop(&mut self) {
        drop(self.cleaner.stdin.take());
        let _already_waited_for = self.cleaner.wait();
    }
}

fn folder() -> Result<PathBuf> {
    let in_memory = Path::new("/dev/shm");
    let has_room = rustix::fs::statvfs(in_memory)
        .is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) > ROOM);
    let place = if has_room { in_memory.to_owned() } else { std::env::temp_dir() };
    let folder = tempfile::Builder::new().prefix("ferrite-cluster-").tempdir_in(place)?;
    Ok(folder.keep())
}
