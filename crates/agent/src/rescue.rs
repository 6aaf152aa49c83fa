// SPDX-License-Identifier: Apache-2.0
//! Rescue: lets the machine's owner in with a password.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Who logs in. The same as the administrator, who stays locked.
const USER: &str = "rescue";
const DROPBEAR: &str = "/usr/sbin/dropbear";
/// Where other ramdisks look for the password.
const PASSWORD_FOLDER: &str = "etc/ipa-rescue-config";

/// Why nobody was let in.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// There is no password, or it is not one that was hashed.
    #[error("the rescue password must come hashed by crypt, as every Ironic since 2020 sends it")]
    NotHashed,
    /// It could not be written down.
    #[error("the rescue password could not be written to {file}")]
    Write {
        /// Where.
        file: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Lets the user in with this password, and starts what is there to log in with.
///
/// # Errors
/// If the password cannot be used or written down.
pub fn finalize(password: &str, hashed: bool) -> Result<(), RescueError> {
    write(Path::new("/"), password, hashed)?;
    start_ssh();
    Ok(())
}

fn write(root: &Path, password: &str, hashed: bool) -> Result<(), RescueError> {
    // A colon or a line break would change more than the password.
    let clean = password.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    if !hashed || !password.starts_with('$') || !clean {
        return Err(RescueError::NotHashed);
    }
    let failed = |file: &'static str| move |source| RescueError::Write { file, source };
    let folder = root.join(PASSWORD_FOLDER);
    fs::create_dir_all(&folder).map_err(failed("/etc"))?;
    private(&folder.join("ipa-rescue-password"), password)
        .map_err(failed("/etc/ipa-rescue-config"))?;
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap_or_default();
    let others = without(&users, USER);
    let home = format!("{others}{USER}:x:0:0:rescue:/root:/bin/sh\n");
    fs::write(root.join("etc/passwd"), home).map_err(failed("/etc/passwd"))?;
    let shadow = fs::read_to_string(root.join("etc/shadow")).unwrap_or_default();
    let others = without(&without(&shadow, USER), "root");
    let lines =
        format!("{others}root:*:19000:0:99999:7:::\n{USER}:{password}:19000:0:99999:7:::\n");
    private(&root.join("etc/shadow"), &lines).map_err(failed("/etc/shadow"))?;
    let _ = fs::create_dir_all(root.join("root"));
    let _ = fs::write(root.join("etc/.rescued"), "");
    Ok(())
}

/// The lines of a user file without those of a user.
fn without(text: &str, user: &str) -> String {
    let prefix = format!("{user}:");
    text.lines().filter(|line| !line.starts_with(&prefix)).map(|line| format!("{line}\n")).collect()
}

fn private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}

fn start_ssh() {
    if !Path::new(DROPBEAR).exists() {
        tracing::warn!("this ramdisk has no SSH server: only its console can be used for rescue");
        return;
    }
    let _ = fs::create_dir_all("/etc/dropbear");
    if !Path::new("/etc/shells").exists() {
        let _ = fs::write("/etc/shells", "/bin/sh\n");
    }
    // Host keys are made when the first client comes.
    let started = Command::new(DROPBEAR)
        .args(["-R", "-E", "-F"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    match started {
        Ok(child) => tracing::info!(pid = child.id(), "an SSH server was started for rescue"),
        Err(error) => tracing::error!(%error, "the SSH server could not be started"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_rescue_user_gets_in() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nrescue:old\n")
            .unwrap();
        fs::write(root.path().join("etc/shadow"), "root:$6$x$y:1::::::\n").unwrap();
        write(root.path(), "$5$salt$hash", true).unwrap();
        let read = |name: &str| fs::read_to_string(root.path().join(name)).unwrap();
        assert_eq!(
            read("etc/passwd"),
            "root:x:0:0::/root:/bin/sh\nrescue:x:0:0:rescue:/root:/bin/sh\n"
        );
        assert!(read("etc/shadow").starts_with("root:*:"));
        assert!(read("etc/shadow").contains("\nrescue:$5$salt$hash:"));
        assert_eq!(read("etc/ipa-rescue-config/ipa-rescue-password"), "$5$salt$hash");
        for (password, hashed) in
            [("plain", false), ("$5$a:b", true), ("$5$a\nroot::", true), ("", true)]
        {
            assert!(write(root.path(), password, hashed).is_err(), "{password:?}");
        }
    }
}
