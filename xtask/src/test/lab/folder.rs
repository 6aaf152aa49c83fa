// SPDX-License-Identifier: Apache-2.0
//! The folder of a lab, which is removed even if xtask is killed.
//!
//! libvirtd detaches the machines it starts, so they survive both libvirtd and xtask. A shell waits
//! for its standard input to close (the kernel does that even if xtask is killed), kills every machine
//! whose process id libvirtd recorded in the folder, and removes the folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::shell;
use crate::test::process::chown_to_unprivileged;

/// The shell must survive Ctrl-C in a terminal. libvirtd, which writes into the folder, gets a signal
/// from the kernel when xtask exits.
const CLEAN_UP: &str = r#"
trap "" INT TERM HUP
cat >/dev/null
for pid_file in "$0"/run/libvirt/qemu/run/*.pid; do
    case $pid_file in */driver.pid | *\**) continue ;; esac
    kill -KILL "$(cat "$pid_file")"
done
rm -rf "$0" || { sleep 1; rm -rf "$0"; }
"#;
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// A folder owned by libvirtd's user. Dropping it stops the machines and removes the folder.
pub(super) struct LabFolder {
    path: PathBuf,
    cleaner: Child,
}

impl LabFolder {
    pub(super) fn make() -> Result<Self> {
        let path = tempfile::Builder::new().prefix("ferrite-lab-").tempdir()?.keep();
        let cleaner = Command::new("sh")
            .args(["-c", CLEAN_UP])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run sh")?;
        let folder = Self { path, cleaner };
        fs::set_permissions(&folder.path, fs::Permissions::from_mode(0o700))?;
        chown_to_unprivileged(&folder.path)?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a subfolder owned by libvirtd's user.
    pub(super) fn create_subfolder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        chown_to_unprivileged(&path)?;
        Ok(path)
    }

    /// Writes a file that only libvirtd's user and root can read.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        chown_to_unprivileged(&path)?;
        Ok(path)
    }
}

impl Drop for LabFolder {
    fn drop(&mut self) {
        drop(self.cleaner.stdin.take());
        // After the timeout the shell continues on its own.
        let _continues = shell::exits_within(&mut self.cleaner, CLEAN_UP_TIMEOUT);
    }
}
