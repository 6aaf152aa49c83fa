// SPDX-License-Identifier: Apache-2.0
//! Rescue mode: lets a user log in with a password.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The rescue user, with the rights of root, whose password stays locked.
const RESCUE_USER: &str = "rescue";
const DROPBEAR: &str = "/usr/sbin/dropbear";
/// Where the scripts of other ramdisks read the password.
const PASSWORD_DIR: &str = "etc/ipa-rescue-config";

/// Rescue mode cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// The password is missing or not hashed.
    #[error("the rescue password must be hashed by crypt, as Ironic sends it since 2020")]
    NotHashed,
    /// A file cannot be written.
    #[error("cannot write the rescue password to {file}")]
    Write {
        /// The path.
        file: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Sets the password of the rescue user and starts the SSH server.
///
/// # Errors
/// If the password is not hashed or cannot be stored.
pub fn finalize(password: &str, hashed: bool) -> Result<(), RescueError> {
    write_credentials(Path::new("/"), password, hashed)?;
    start_ssh();
    Ok(())
}

fn write_credentials(root: &Path, password: &str, hashed: bool) -> Result<(), RescueError> {
    // A colon or a line break would change other fields of the file.
    let clean = password.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    if !hashed || !password.starts_with('$') || !clean {
        return Err(RescueError::NotHashed);
    }
    let failed = |file: &'static str| move |source| RescueError::Write { file, source };
    let folder = root.join(PASSWORD_DIR);
    fs::create_dir_all(&folder).map_err(failed("/etc"))?;
    write_private(&folder.join("ipa-rescue-password"), password)
        .map_err(failed("/etc/ipa-rescue-config"))?;
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap_or_default();
    let others = remove_user(&users, RESCUE_USER);
    let home = format!("{others}{RESCUE_USER}:x:0:0:rescue:/root:/bin/sh\n");
    fs::write(root.join("etc/passwd"), home).map_err(failed("/etc/passwd"))?;
    let shadow = fs::read_to_string(root.join("etc/shadow")).unwrap_or_default();
    let others = remove_user(&remove_user(&shadow, RESCUE_USER), "root");
    let lines =
        format!("{others}root:*:19000:0:99999:7:::\n{RESCUE_USER}:{password}:19000:0:99999:7:::\n");
    write_private(&root.join("etc/shadow"), &lines).map_err(failed("/etc/shadow"))?;
    let _ = fs::create_dir_all(root.join("root"));
    let _ = fs::write(root.join("etc/.rescued"), "");
    Ok(())
}

/// Returns the lines of a user file without those of a user.
fn remove_user(text: &str, user: &str) -> String {
    let prefix = format!("{user}:");
    text.lines().filter(|line| !line.starts_with(&prefix)).map(|line| format!("{line}\n")).collect()
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}

fn start_ssh() {
    if !Path::new(DROPBEAR).exists() {
        tracing::warn!("no SSH server in this ramdisk, rescue is possible on the console only");
        return;
    }
    let _ = fs::create_dir_all("/etc/dropbear");
    if !Path::new("/etc/shells").exists() {
        let _ = fs::write("/etc/shells", "/bin/sh\n");
    }
    // -R generates host keys on the first connection.
    let started = Command::new(DROPBEAR)
        .args(["-R", "-E", "-F"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    match started {
        Ok(child) => tracing::info!(pid = child.id(), "SSH server started for rescue"),
        Err(error) => tracing::error!(%error, "failed to start the SSH server"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rescue_user_can_log_in() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nrescue:old\n")
            .unwrap();
        fs::write(root.path().join("etc/shadow"), "root:$6$x$y:1::::::\n").unwrap();
        write_credentials(root.path(), "$5$salt$hash", true).unwrap();
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
            assert!(write_credentials(root.path(), password, hashed).is_err(), "{password:?}");
        }
    }
}
