// SPDX-License-Identifier: Apache-2.0
//! The htpasswd file: parsing, change detection, creation of the first one.
//!
//! Each line is `user:bcrypt`, or `user:bcrypt:roles` with roles such as
//! `member@storage,reader@system`. A user without roles may do everything, as in Ironic.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use access_policy::AuthMethod;
use node_model::{ParseRoleError, RoleAssignment, Secret};

use crate::password::{bcrypt_cost, is_bcrypt};
use crate::roles::{DefaultCaller, Principal, RightsLimit, UserRights};
use crate::token_format::{RandomError, push_random_digits};

/// Interval of checks whether the file changed.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Bcrypt cost of the generated password. It is random and long, so a higher cost would only take
/// time.
const FIRST_PASSWORD_COST: u32 = 10;
/// Length of the generated password.
const FIRST_PASSWORD_CHARS: usize = 32;
/// The user of the generated password.
pub(crate) const FIRST_USER: &str = "admin";

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
    /// A line is malformed.
    #[error("{path} line {line}: {problem}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from one.
        line: usize,
        /// What is wrong with it.
        problem: HtpasswdLineError,
    },
    /// The password cannot be generated.
    #[error("cannot generate a password")]
    Random(#[from] RandomError),
    /// The password cannot be hashed.
    #[error("cannot hash the generated password")]
    Hash(#[source] bcrypt::BcryptError),
}

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HtpasswdLineError {
    /// It is not `user:bcrypt`.
    #[error("not user:password with a bcrypt password; use htpasswd -B")]
    Password,
    /// The third field is not a list of roles. It is not ignored: a user without roles may do
    /// everything.
    #[error(transparent)]
    Role(#[from] ParseRoleError),
}

/// Identifies a version of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HtpasswdStamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// The users of one version of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HtpasswdUsers {
    entries: HashMap<String, HtpasswdEntry>,
    /// The bcrypt costs of all entries.
    pub(crate) costs: Vec<u32>,
}

/// A user of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HtpasswdEntry {
    pub(crate) hash: String,
    roles: Option<Vec<RoleAssignment>>,
}

/// The htpasswd file of a running server.
#[derive(Debug)]
pub(crate) struct HtpasswdFile {
    path: PathBuf,
    state: Mutex<LoadedFile>,
}

#[derive(Debug)]
struct LoadedFile {
    users: Arc<HtpasswdUsers>,
    stamp: Option<HtpasswdStamp>,
    checked_at: Instant,
}

impl HtpasswdFile {
    /// Reads the file.
    pub(crate) fn open(path: &Path) -> Result<Self, HtpasswdError> {
        let stamp = stamp(path).ok();
        let users = Arc::new(read(path)?);
        let state = LoadedFile { users, stamp, checked_at: Instant::now() };
        Ok(Self { path: path.to_owned(), state: Mutex::new(state) })
    }

    /// Whether the file has users.
    pub(crate) fn has_users(&self) -> bool {
        !self.users().entries.is_empty()
    }

    /// The current users. If a changed file cannot be read, the previous users stay valid: an editor
    /// may be in the middle of writing it.
    pub(crate) fn users(&self) -> Arc<HtpasswdUsers> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked_at.elapsed() >= FILE_CHECK_INTERVAL {
            state.checked_at = Instant::now();
            self.reload_if_changed(&mut state);
        }
        Arc::clone(&state.users)
    }

    fn reload_if_changed(&self, state: &mut LoadedFile) {
        let stamp = stamp(&self.path).ok();
        if stamp == state.stamp {
            return;
        }
        match read(&self.path) {
            Ok(users) => {
                state.users = Arc::new(users);
                state.stamp = stamp;
                tracing::info!(path = %self.path.display(), "user file reloaded");
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(
                    %error,
                    cause,
                    "reloading the changed user file failed, keeping the old users"
                );
            }
        }
    }
}

impl HtpasswdUsers {
    pub(crate) fn get(&self, user: &str) -> Option<&HtpasswdEntry> {
        self.entries.get(user)
    }
}

impl HtpasswdEntry {
    /// The user as an authenticated principal.
    pub(crate) fn principal(&self, user: &str, method: AuthMethod) -> Principal {
        let name: Arc<str> = Arc::from(user);
        let rights = match &self.roles {
            None => UserRights::Unrestricted,
            Some(roles) => UserRights::Roles { assignments: roles.clone(), default_project: None },
        };
        Principal {
            user_id: Arc::clone(&name),
            user_name: name,
            method,
            rights,
            limit: RightsLimit::default(),
            preferred_scope: None,
            default_caller: DefaultCaller::default(),
        }
    }
}

fn stamp(path: &Path) -> io::Result<HtpasswdStamp> {
    let metadata = fs::metadata(path)?;
    Ok(HtpasswdStamp {
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    })
}

fn read(path: &Path) -> Result<HtpasswdUsers, HtpasswdError> {
    let text = fs::read_to_string(path)
        .map_err(|source| HtpasswdError::Read { path: path.to_owned(), source })?;
    parse(&text).map_err(|(line, problem)| {
        let path = path.to_owned();
        HtpasswdError::Line { path, line, problem }
    })
}

/// Creates the file if it does not exist, with a random password for `admin` unless there is another first
/// user. The password in clear text is written to a file in the same directory; with
/// `has_other_users`, the existing file may have the password of a user in the store.
pub(crate) fn ensure(
    path: &Path,
    with_first_user: bool,
    has_other_users: bool,
) -> Result<Option<FirstPassword>, HtpasswdError> {
    if path.exists() {
        return Ok(None);
    }
    if !with_first_user {
        let empty = "# user:hash[:role@scope,...], see htpasswd(1)\n";
        write_private(path, empty)
            .map_err(|source| HtpasswdError::Create { path: path.to_owned(), source })?;
        return Ok(None);
    }
    let password = generate_password()?;
    let hash = bcrypt::hash(password.reveal(), FIRST_PASSWORD_COST).map_err(HtpasswdError::Hash)?;
    let clear = path.with_file_name("admin-password");
    let clear = first_password_file(&clear, "htpasswd", has_other_users);
    // Password first: after a crash in between, the next start generates both again.
    for (path, text) in
        [(&*clear, format!("{}\n", password.reveal())), (path, format!("{FIRST_USER}:{hash}\n"))]
    {
        write_private(path, &text)
            .map_err(|source| HtpasswdError::Create { path: path.to_owned(), source })?;
    }
    Ok(Some(FirstPassword { user: FIRST_USER, path: clear }))
}

/// The file for the first password of one kind of users. An existing file is kept if there are users of
/// another kind, whose password it may have.
pub(crate) fn first_password_file(path: &Path, kind: &str, has_other_users: bool) -> PathBuf {
    if !has_other_users || !path.exists() {
        return path.to_owned();
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    path.with_file_name(format!("{kind}-{name}"))
}

/// A random password of letters and digits.
pub(crate) fn generate_password() -> Result<Secret<String>, RandomError> {
    let mut password = String::new();
    push_random_digits(&mut password, FIRST_PASSWORD_CHARS)?;
    Ok(Secret::new(password))
}

/// Writes a file that only its owner can read. It is never seen incomplete.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    let _ = fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

/// Parses the users; fails with the number of the first malformed line.
fn parse(text: &str) -> Result<HtpasswdUsers, (usize, HtpasswdLineError)> {
    let mut users = HtpasswdUsers::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (user, entry) = parse_line(line).map_err(|problem| (index + 1, problem))?;
        // Of duplicate users the first entry applies, as in Apache.
        users.entries.entry(user.to_owned()).or_insert(entry);
    }
    users.costs = users.entries.values().filter_map(|entry| bcrypt_cost(&entry.hash)).collect();
    users.costs.sort_unstable();
    Ok(users)
}

fn parse_line(line: &str) -> Result<(&str, HtpasswdEntry), HtpasswdLineError> {
    let (user, rest) = line.split_once(':').ok_or(HtpasswdLineError::Password)?;
    let (hash, roles) = rest.split_once(':').unwrap_or((rest, ""));
    if user.is_empty() || !is_bcrypt(hash) || bcrypt_cost(hash).is_none() {
        return Err(HtpasswdLineError::Password);
    }
    let roles = match roles.trim() {
        "" => None,
        roles => Some(
            roles
                .split(',')
                .map(str::trim)
                .filter(|role| !role.is_empty())
                .map(str::parse)
                .collect::<Result<Vec<RoleAssignment>, _>>()?,
        ),
    };
    Ok((user, HtpasswdEntry { hash: hash.to_owned(), roles }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn parses_users_and_roles_and_rejects_malformed_lines() {
        let hash = bcrypt::hash("pw", 4).unwrap();
        let text =
            format!("# users\n\nme:{hash}\n you:{hash}:\nalice:{hash}:member@a, reader@system\n");
        let users = parse(&text).unwrap();
        assert_eq!(users.costs, [4, 4, 4]);
        for (user, rights) in [
            ("me", UserRights::Unrestricted),
            ("you", UserRights::Unrestricted),
            (
                "alice",
                UserRights::Roles {
                    assignments: vec![
                        "member@a".parse().unwrap(),
                        "reader@system".parse().unwrap(),
                    ],
                    default_project: None,
                },
            ),
        ] {
            let principal = users.get(user).unwrap().principal(user, AuthMethod::Htpasswd);
            assert_eq!(principal.rights, rights, "{user}");
        }
        for (text, line) in [("me", 1), ("\nme:plain", 2), ("me:$apr1$x", 1), (":$2y$", 1)] {
            assert_eq!(parse(text), Err((line, HtpasswdLineError::Password)), "{text}");
        }
        // A misspelt role must not give access to everything.
        for roles in ["member", "member@", "member@a;reader@b", "member@a,oops"] {
            let (line, problem) = parse(&format!("\nme:{hash}:{roles}")).unwrap_err();
            assert!(line == 2 && matches!(problem, HtpasswdLineError::Role(_)), "{roles}");
        }
    }

    #[test]
    fn generates_a_password_only_if_the_file_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("htpasswd");
        let made = ensure(&file, true, false).unwrap().expect("the file was missing");
        assert_eq!(ensure(&file, true, false).unwrap(), None);
        let password = fs::read_to_string(&made.path).unwrap();
        let users = read(&file).unwrap();
        assert!(bcrypt::verify(password.trim(), &users.get("admin").unwrap().hash).unwrap());
        // The password of another kind of user is kept.
        fs::remove_file(&file).unwrap();
        let again = ensure(&file, true, true).unwrap().expect("the file was missing");
        assert_ne!(again.path, made.path);
        assert_eq!(fs::read_to_string(&made.path).unwrap(), password);
        // A file of an interrupted start is replaced.
        fs::remove_file(&file).unwrap();
        assert_eq!(ensure(&file, true, false).unwrap().unwrap().path, made.path);
        assert_ne!(fs::read_to_string(&made.path).unwrap(), password);
        for path in [&file, &made.path, &again.path] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn reloads_a_changed_file_and_ignores_a_broken_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("htpasswd");
        let hash = bcrypt::hash("pw", 4).unwrap();
        fs::write(&path, format!("old:{hash}\n")).unwrap();
        let file = HtpasswdFile::open(&path).unwrap();
        let reload = || {
            let mut state = file.state.lock().unwrap();
            state.checked_at = state.checked_at.checked_sub(FILE_CHECK_INTERVAL).unwrap();
        };
        for text in [format!("new and longer:{hash}\n"), "half a li".to_owned()] {
            fs::write(&path, text).unwrap();
            reload();
            let users = file.users();
            assert!(users.get("new and longer").is_some() && users.get("old").is_none());
        }
    }
}
