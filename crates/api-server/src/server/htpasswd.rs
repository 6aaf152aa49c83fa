// SPDX-License-Identifier: Apache-2.0
//! The htpasswd file: parsing, change detection, creation of the first one.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use node_model::Secret;
use uuid::Uuid;

/// Bcrypt cost of the generated password. It is random and long, so a higher cost would only take
/// time.
const FIRST_PASSWORD_COST: u32 = 10;

/// Location of the password generated on first start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirstPassword {
    /// The user name.
    pub user: &'static str,
    /// The file that holds it, readable by its owner only.
    pub path: PathBuf,
}

/// The htpasswd file is unusable.
#[derive(Debug, thiserror::Error)]
pub enum HtpasswdError {
    /// It cannot be read.
    #[error("cannot read the user file {path}; check that it exists and its mode")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file cannot be created.
    #[error("cannot create {path}; check that its directory exists and is writable")]
    Create {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A line is not `user:bcrypt`.
    #[error("{path} line {line} is not user:password with a bcrypt password; use htpasswd -B")]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from one.
        line: usize,
    },
    /// The password cannot be hashed.
    #[error("cannot hash the generated password")]
    Hash(#[source] bcrypt::BcryptError),
}

/// Identifies a version of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileStamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// User names and their bcrypt hashes.
pub(crate) type Users = HashMap<String, String>;

/// The stamp of the file's current version.
pub(crate) fn stamp(path: &Path) -> io::Result<FileStamp> {
    let metadata = fs::metadata(path)?;
    Ok(FileStamp {
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    })
}

/// Reads and parses the file.
pub(crate) fn read(path: &Path) -> Result<Users, HtpasswdError> {
    let text = fs::read_to_string(path)
        .map_err(|source| HtpasswdError::Read { path: path.to_owned(), source })?;
    parse(&text).map_err(|line| HtpasswdError::Line { path: path.to_owned(), line })
}

/// Creates the file with a random password for `admin` if it does not exist. The password in clear
/// text is written to `admin-password` in the same directory.
pub(crate) fn ensure(path: &Path) -> Result<Option<FirstPassword>, HtpasswdError> {
    const USER: &str = "admin";
    if path.exists() {
        return Ok(None);
    }
    let password = Secret::new(Uuid::new_v4().simple().to_string());
    let hash = bcrypt::hash(password.reveal(), FIRST_PASSWORD_COST).map_err(HtpasswdError::Hash)?;
    let clear = path.with_file_name("admin-password");
    // Password first: after a crash in between, the next start generates both again.
    write_private(&clear, &format!("{}\n", password.reveal()))?;
    write_private(path, &format!("{USER}:{hash}\n"))?;
    Ok(Some(FirstPassword { user: USER, path: clear }))
}

fn write_private(path: &Path, text: &str) -> Result<(), HtpasswdError> {
    let create = || {
        // Written to a temporary file and renamed, so that the file is never read incomplete.
        let draft = path.with_extension("new");
        let _ = fs::remove_file(&draft);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    create().map_err(|source| HtpasswdError::Create { path: path.to_owned(), source })
}

/// Parses the users; fails with the number of the first malformed line.
fn parse(text: &str) -> Result<Users, usize> {
    let mut users = Users::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (user, hash) = line.split_once(':').ok_or(index + 1)?;
        let hash = hash.split(':').next().unwrap_or_default();
        let bcrypt = ["$2y$", "$2a$", "$2b$"].iter().any(|prefix| hash.starts_with(prefix));
        if user.is_empty() || !bcrypt || hash.len() != 60 {
            return Err(index + 1);
        }
        // Of duplicate users the first entry applies, as in Apache.
        users.entry(user.to_owned()).or_insert_with(|| hash.to_owned());
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn parses_users_and_rejects_malformed_lines() {
        let hash = bcrypt::hash("pw", 4).unwrap();
        let users = parse(&format!("# users\n\nme:{hash}\n you:{hash}:extra\n")).unwrap();
        assert_eq!(users.len(), 2);
        for (text, line) in [("me", 1), ("\nme:plain", 2), ("me:$apr1$x", 1), (":$2y$", 1)] {
            assert_eq!(parse(text), Err(line), "{text}");
        }
    }

    #[test]
    fn generates_a_password_only_if_the_file_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("htpasswd");
        let made = ensure(&file).unwrap().expect("the file was missing");
        assert_eq!(ensure(&file).unwrap(), None);
        let password = fs::read_to_string(&made.path).unwrap();
        let users = read(&file).unwrap();
        assert!(bcrypt::verify(password.trim(), &users["admin"]).unwrap());
        for path in [&file, &made.path] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
