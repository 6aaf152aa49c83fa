// SPDX-License-Identifier: Apache-2.0
//! The folder a lab lives in, and what removes it however we end.
//!
//! libvirtd detaches the machines it starts, so neither its end nor ours stops them. A shell that
//! waits for its standard input to close (which the kernel does even when we are killed) ends every
//! machine whose process id libvirtd noted in the folder, and then removes the folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::shell;
use crate::test::process::give_away;

/// Ctrl-C in a terminal reaches the shell as well, and it must outlive that. libvirtd, which would
/// write into the folder, has ended by then or is about to: the kernel tells it when we die.
const CLEAN_UP: &str = r#"
trap "" INT TERM HUP
cat >/dev/null
for note in "$0"/run/libvirt/qemu/run/*.pid; do
    case $note in */driver.pid | *\**) continue ;; esac
    kill -KILL "$(cat "$note")"
done
rm -rf "$0" || { sleep 1; rm -rf "$0"; }
"#;
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A folder that libvirtd's user owns; gone when dropped, with all that runs in it.
pub(super) struct Folder {
    path: PathBuf,
    cleaner: Child,
}

impl Folder {
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
        give_away(&folder.path)?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a folder inside that belongs to libvirtd's user as well.
    pub(super) fn make_inside(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        give_away(&path)?;
        Ok(path)
    }

    /// Writes a file that libvirtd's user and root can read.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        give_away(&path)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.cleaner.stdin.take());
        // If it takes longer it goes on by itself, and nobody is left to tell.
        let _or_later = shell::ends_within(&mut self.cleaner, PATIENCE);
    }
}
