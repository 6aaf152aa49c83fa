// SPDX-License-Identifier: Apache-2.0
//! Who is calling.
//!
//! Checking a bcrypt password takes a tenth of a second of CPU on purpose. It is paid once per
//! password and version of the user file: after that a keyed hash of the credentials is looked up
//! instead. The checks that are paid run on blocking threads, few at a time, so that somebody who
//! guesses passwords can slow down neither the API nor those who are already known.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use node_model::Secret;
use tokio::sync::Semaphore;

use crate::config::AuthStrategy;
use crate::htpasswd::{self, FirstPassword, HtpasswdError, Stamp, Users};
use crate::reply::Reply;

/// How often the user file is looked at for changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many known credentials are kept. Past this all are forgotten and checked again.
const MOST_KNOWN: usize = 1024;
/// How many passwords are checked at the same time, and how many checks may wait.
const CHECKS_AT_ONCE: usize = 2;
const CHECKS_WAITING: usize = 64;
/// Checked against when the user does not exist, so that it takes as long as when it does.
const NOBODY: &str = "$2b$12$DbmIZ/a5LByoJHgFItyZCeIEHz6koX4IsVr8yh9T6dM9bqyNpNVjS";

/// Who calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Nobody said, or nobody had to.
    Anonymous,
    /// A user of the file.
    User(Arc<str>),
}

impl Identity {
    /// The name they signed in with, if any.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Anonymous => None,
            Self::User(name) => Some(name),
        }
    }
}

/// Finds out who calls.
#[derive(Debug)]
pub struct Authenticator(Strategy);

#[derive(Debug)]
enum Strategy {
    None,
    Basic(Arc<Basic>),
}

/// The caller is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("Authorization required")]
    Missing,
    #[error("Incorrect username or password")]
    Wrong,
    #[error("Only HTTP basic authorization is understood here")]
    OtherScheme,
    #[error("The Authorization header cannot be decoded")]
    Malformed,
    #[error("Too many sign-ins are being checked; try again soon")]
    Busy,
}

#[derive(Debug)]
struct Basic {
    file: PathBuf,
    state: Mutex<State>,
    keys: (RandomState, RandomState),
    gate: Semaphore,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct State {
    users: Arc<Users>,
    stamp: Option<Stamp>,
    looked_at: Instant,
    /// Credentials that were right for this version of the file, by keyed hash.
    known: HashMap<u128, Arc<str>>,
}

impl Authenticator {
    /// Prepares the strategy: for basic authentication the user file is read, or made if it does
    /// not exist, in which case the second result says where the password is.
    ///
    /// # Errors
    /// When the user file cannot be read, made or understood.
    pub fn new(strategy: &AuthStrategy) -> Result<(Self, Option<FirstPassword>), HtpasswdError> {
        match strategy {
            AuthStrategy::None => Ok((Self(Strategy::None), None)),
            AuthStrategy::Basic { file } => {
                let made = htpasswd::ensure(file)?;
                Ok((Self(Strategy::Basic(Arc::new(Basic::open(file)?))), made))
            }
        }
    }

    /// Whether callers have to say who they are.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        match &self.0 {
            Strategy::None => false,
            Strategy::Basic(_) => true,
        }
    }

    /// Checks a password; gives the hash it fits, by which a later change is noticed.
    pub(crate) async fn check_password(
        &self,
        user: String,
        password: Secret<String>,
    ) -> Result<String, AuthError> {
        match &self.0 {
            Strategy::None => Err(AuthError::Wrong),
            Strategy::Basic(basic) => {
                // Checking takes its time: a password that was changed meanwhile was not checked.
                let before = self.hash_of(&user);
                basic.identify(user.clone(), password).await?;
                self.hash_of(&user)
                    .filter(|now| before.as_ref() == Some(now))
                    .ok_or(AuthError::Wrong)
            }
        }
    }

    /// The hash of a user's password, if there is such a user now.
    pub(crate) fn hash_of(&self, user: &str) -> Option<String> {
        match &self.0 {
            Strategy::None => None,
            Strategy::Basic(basic) => {
                let mut state = basic.state.lock().unwrap_or_else(PoisonError::into_inner);
                basic.look_for_changes(&mut state);
                state.users.get(user).cloned()
            }
        }
    }

    /// Who the `Authorization` header says is calling.
    pub(crate) async fn identify(
        &self,
        authorization: Option<&HeaderValue>,
    ) -> Result<Identity, AuthError> {
        match &self.0 {
            Strategy::None => Ok(Identity::Anonymous),
            Strategy::Basic(basic) => {
                let (user, password) = parse(authorization.ok_or(AuthError::Missing)?)?;
                basic.identify(user, password).await
            }
        }
    }
}

impl AuthError {
    /// The response, in the form Ironic's basic authentication gives it.
    pub(crate) fn into_reply(self) -> Reply {
        let (status, extra) = match self {
            Self::Missing | Self::Wrong => (
                StatusCode::UNAUTHORIZED,
                Some((
                    WWW_AUTHENTICATE,
                    HeaderValue::from_static(r#"Basic realm="Baremetal API""#),
                )),
            ),
            Self::OtherScheme | Self::Malformed => (StatusCode::BAD_REQUEST, None),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                Some((RETRY_AFTER, HeaderValue::from_static("1"))),
            ),
        };
        let body = serde_json::json!({
            "error": {"message": self.to_string(), "code": status.as_u16()}
        });
        let mut reply = Reply::json(status, body.to_string().into_bytes());
        reply.headers.extend(extra);
        reply
    }
}

impl Basic {
    fn open(file: &Path) -> Result<Self, HtpasswdError> {
        let stamp = htpasswd::stamp(file).ok();
        let users = Arc::new(htpasswd::read(file)?);
        let looked_at = Instant::now();
        Ok(Self {
            file: file.to_owned(),
            state: Mutex::new(State { users, stamp, looked_at, known: HashMap::new() }),
            keys: (RandomState::new(), RandomState::new()),
            gate: Semaphore::new(CHECKS_AT_ONCE),
            waiting: AtomicUsize::new(0),
        })
    }

    async fn identify(
        self: &Arc<Self>,
        user: String,
        password: Secret<String>,
    ) -> Result<Identity, AuthError> {
        let pair = (user.as_str(), password.reveal().as_str());
        let digest =
            u128::from(self.keys.0.hash_one(pair)) << 64 | u128::from(self.keys.1.hash_one(pair));
        let users = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            self.look_for_changes(&mut state);
            if let Some(name) = state.known.get(&digest) {
                return Ok(Identity::User(Arc::clone(name)));
            }
            Arc::clone(&state.users)
        };
        let hash = users.get(&user).map_or(NOBODY, String::as_str).to_owned();
        let right = self.check(password, hash).await? && users.contains_key(&user);
        if !right {
            return Err(AuthError::Wrong);
        }
        let name: Arc<str> = Arc::from(user);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The file may have changed while the password was checked.
        if Arc::ptr_eq(&state.users, &users) {
            if state.known.len() >= MOST_KNOWN {
                state.known.clear();
            }
            state.known.insert(digest, Arc::clone(&name));
        }
        Ok(Identity::User(name))
    }

    /// Reads the file again if it changed. A file that cannot be read leaves things as they are:
    /// an editor may be half-way through writing it.
    fn look_for_changes(&self, state: &mut State) {
        if state.looked_at.elapsed() < LOOK_EVERY {
            return;
        }
        state.looked_at = Instant::now();
        let stamp = htpasswd::stamp(&self.file).ok();
        if stamp == state.stamp {
            return;
        }
        match htpasswd::read(&self.file) {
            Ok(users) => {
                state.users = Arc::new(users);
                state.stamp = stamp;
                state.known.clear();
                tracing::info!(file = %self.file.display(), "user file read again");
            }
            Err(error) => {
                tracing::warn!(%error, "user file changed but cannot be used; the old one counts");
            }
        }
    }

    /// Whether the password fits the hash.
    async fn check(&self, password: Secret<String>, hash: String) -> Result<bool, AuthError> {
        let _place = Place::take(&self.waiting).ok_or(AuthError::Busy)?;
        let _permit = self.gate.acquire().await.map_err(|_| AuthError::Busy)?;
        let checked =
            tokio::task::spawn_blocking(move || bcrypt::verify(password.reveal(), &hash)).await;
        Ok(matches!(checked, Ok(Ok(true))))
    }
}

/// A place in the queue of checks, given back when dropped.
struct Place<'w>(&'w AtomicUsize);

impl<'w> Place<'w> {
    fn take(waiting: &'w AtomicUsize) -> Option<Self> {
        let place = Self(waiting);
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        (before < CHECKS_WAITING + CHECKS_AT_ONCE).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// User and password of a `Basic` header.
fn parse(header: &HeaderValue) -> Result<(String, Secret<String>), AuthError> {
    let text = header.to_str().map_err(|_| AuthError::Malformed)?;
    let (scheme, token) = text.trim().split_once(' ').ok_or(AuthError::Malformed)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(AuthError::OtherScheme);
    }
    let decoded = STANDARD.decode(token.trim()).map_err(|_| AuthError::Malformed)?;
    let decoded = String::from_utf8(decoded).map_err(|_| AuthError::Malformed)?;
    let (user, password) = decoded.split_once(':').ok_or(AuthError::Malformed)?;
    Ok((user.to_owned(), Secret::new(password.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cheapest hash there is.
    const CHEAP: u32 = 4;

    fn write(file: &Path, password: &str) {
        let hash = bcrypt::hash(password, CHEAP).unwrap();
        std::fs::write(file, format!("me:{hash}\n")).unwrap();
    }

    async fn try_password(basic: &Arc<Basic>, password: &str) -> bool {
        basic.identify("me".to_owned(), Secret::new(password.to_owned())).await.is_ok()
    }

    /// Lets the second pass after which the file is looked at again.
    fn let_time_pass(basic: &Basic) {
        let mut state = basic.state.lock().unwrap();
        state.looked_at = state.looked_at.checked_sub(LOOK_EVERY).unwrap();
    }

    #[tokio::test]
    async fn a_changed_file_counts_and_a_broken_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("htpasswd");
        write(&file, "old");
        let basic = Arc::new(Basic::open(&file).unwrap());
        assert!(try_password(&basic, "old").await);
        assert_eq!(basic.state.lock().unwrap().known.len(), 1);

        write(&file, "new and longer");
        let_time_pass(&basic);
        assert!(!try_password(&basic, "old").await, "what was known is forgotten");
        assert!(try_password(&basic, "new and longer").await);

        std::fs::write(&file, "half a li").unwrap();
        let_time_pass(&basic);
        assert!(try_password(&basic, "new and longer").await);
    }

    #[tokio::test]
    async fn too_many_checks_at_once_are_turned_away() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("htpasswd");
        write(&file, "right");
        let basic = Arc::new(Basic::open(&file).unwrap());
        assert!(try_password(&basic, "right").await);
        basic.waiting.store(CHECKS_WAITING + CHECKS_AT_ONCE, Ordering::Relaxed);
        let guess = basic.identify("me".to_owned(), Secret::new("guess".to_owned())).await;
        assert_eq!(guess, Err(AuthError::Busy));
        assert!(try_password(&basic, "right").await, "those who are known do not wait");
    }
}
