// SPDX-License-Identifier: Apache-2.0
//! Authentication of callers.
//!
//! Verifying a bcrypt password takes about 100 ms of CPU by design. It happens once per password and
//! version of the user file; after that, a keyed hash of the credentials is looked up instead.
//! Verifications run on blocking threads, few at a time, so that password guessing slows down
//! neither the API nor callers whose credentials are cached.

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

use super::htpasswd::{self, FileStamp, FirstPassword, HtpasswdError, Users};
use super::response::ApiResponse;
use crate::config::AuthStrategy;

/// Interval of checks whether the user file changed.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Size of the cache of verified credentials. A full cache is cleared.
const MAX_CACHED: usize = 1024;
/// Number of concurrent password verifications, and of those that may wait.
const MAX_VERIFICATIONS: usize = 2;
const MAX_WAITING: usize = 64;
/// Verified if the user does not exist, so that the response takes as long as for a user who does.
const DUMMY_HASH: &str = "$2b$12$DbmIZ/a5LByoJHgFItyZCeIEHz6koX4IsVr8yh9T6dM9bqyNpNVjS";

/// The caller of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallerIdentity {
    /// Not authenticated, or authentication is disabled.
    Anonymous,
    /// A user of the htpasswd file.
    User(Arc<str>),
}

impl CallerIdentity {
    /// The user name; `None` if anonymous.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Anonymous => None,
            Self::User(name) => Some(name),
        }
    }
}

/// Authenticates callers.
#[derive(Debug)]
pub struct Authenticator(Backend);

#[derive(Debug)]
enum Backend {
    None,
    Htpasswd(Arc<HtpasswdBackend>),
}

/// Why a caller is not authenticated. The messages of 401 are Ironic's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("Authorization required")]
    Missing,
    #[error("Incorrect username or password")]
    WrongCredentials,
    #[error("Only HTTP basic authorization is understood here")]
    UnsupportedScheme,
    #[error("The Authorization header cannot be decoded")]
    Malformed,
    #[error("Too many sign-ins are being checked; try again soon")]
    Busy,
}

#[derive(Debug)]
struct HtpasswdBackend {
    file: PathBuf,
    state: Mutex<UserState>,
    hash_keys: (RandomState, RandomState),
    verifications: Semaphore,
    /// Verifications running or waiting.
    queued: AtomicUsize,
}

#[derive(Debug)]
struct UserState {
    users: Arc<Users>,
    stamp: Option<FileStamp>,
    checked_at: Instant,
    /// Credentials verified against this version of the file: keyed hash to user name.
    verified: HashMap<u128, Arc<str>>,
}

impl Authenticator {
    /// Prepares the strategy. For basic authentication the user file is read, or created if it does
    /// not exist; then the second result is the location of the generated password.
    ///
    /// # Errors
    /// Fails if the user file cannot be read, created or parsed.
    pub fn new(strategy: &AuthStrategy) -> Result<(Self, Option<FirstPassword>), HtpasswdError> {
        match strategy {
            AuthStrategy::None => Ok((Self(Backend::None), None)),
            AuthStrategy::Basic { file } => {
                let first_password = htpasswd::ensure(file)?;
                let backend = HtpasswdBackend::open(file)?;
                Ok((Self(Backend::Htpasswd(Arc::new(backend))), first_password))
            }
        }
    }

    /// Whether callers have to authenticate.
    #[must_use]
    pub fn is_required(&self) -> bool {
        match &self.0 {
            Backend::None => false,
            Backend::Htpasswd(_) => true,
        }
    }

    /// Verifies a password. Returns the hash it matches, so that a later change can be detected.
    pub(crate) async fn check_password(
        &self,
        user: String,
        password: Secret<String>,
    ) -> Result<String, AuthError> {
        match &self.0 {
            Backend::None => Err(AuthError::WrongCredentials),
            Backend::Htpasswd(backend) => {
                // The password may be changed while it is verified.
                let before = self.password_hash(&user);
                backend.identify(user.clone(), password).await?;
                self.password_hash(&user)
                    .filter(|now| before.as_ref() == Some(now))
                    .ok_or(AuthError::WrongCredentials)
            }
        }
    }

    /// The current password hash of a user; `None` if the user does not exist.
    pub(crate) fn password_hash(&self, user: &str) -> Option<String> {
        match &self.0 {
            Backend::None => None,
            Backend::Htpasswd(backend) => {
                let mut state = backend.state.lock().unwrap_or_else(PoisonError::into_inner);
                backend.reload_if_changed(&mut state);
                state.users.get(user).cloned()
            }
        }
    }

    /// The caller by the `Authorization` header.
    pub(crate) async fn identify(
        &self,
        authorization: Option<&HeaderValue>,
    ) -> Result<CallerIdentity, AuthError> {
        match &self.0 {
            Backend::None => Ok(CallerIdentity::Anonymous),
            Backend::Htpasswd(backend) => {
                let (user, password) = parse_basic(authorization.ok_or(AuthError::Missing)?)?;
                backend.identify(user, password).await
            }
        }
    }
}

impl AuthError {
    /// The response, in the format of Ironic's basic authentication.
    pub(crate) fn into_response(self) -> ApiResponse {
        let (status, extra) = match self {
            Self::Missing | Self::WrongCredentials => (
                StatusCode::UNAUTHORIZED,
                Some((
                    WWW_AUTHENTICATE,
                    HeaderValue::from_static(r#"Basic realm="Baremetal API""#),
                )),
            ),
            Self::UnsupportedScheme | Self::Malformed => (StatusCode::BAD_REQUEST, None),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                Some((RETRY_AFTER, HeaderValue::from_static("1"))),
            ),
        };
        let body = serde_json::json!({
            "error": {"message": self.to_string(), "code": status.as_u16()}
        });
        let mut response = ApiResponse::json(status, body.to_string().into_bytes());
        response.headers.extend(extra);
        response
    }
}

impl HtpasswdBackend {
    fn open(file: &Path) -> Result<Self, HtpasswdError> {
        let stamp = htpasswd::stamp(file).ok();
        let users = Arc::new(htpasswd::read(file)?);
        let checked_at = Instant::now();
        let state = UserState { users, stamp, checked_at, verified: HashMap::new() };
        Ok(Self {
            file: file.to_owned(),
            state: Mutex::new(state),
            hash_keys: (RandomState::new(), RandomState::new()),
            verifications: Semaphore::new(MAX_VERIFICATIONS),
            queued: AtomicUsize::new(0),
        })
    }

    async fn identify(
        self: &Arc<Self>,
        user: String,
        password: Secret<String>,
    ) -> Result<CallerIdentity, AuthError> {
        let pair = (user.as_str(), password.reveal().as_str());
        let digest = u128::from(self.hash_keys.0.hash_one(pair)) << 64
            | u128::from(self.hash_keys.1.hash_one(pair));
        let users = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            self.reload_if_changed(&mut state);
            if let Some(name) = state.verified.get(&digest) {
                return Ok(CallerIdentity::User(Arc::clone(name)));
            }
            Arc::clone(&state.users)
        };
        let hash = users.get(&user).map_or(DUMMY_HASH, String::as_str).to_owned();
        let is_correct = self.verify(password, hash).await? && users.contains_key(&user);
        if !is_correct {
            return Err(AuthError::WrongCredentials);
        }
        let name: Arc<str> = Arc::from(user);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The file may have changed during the verification.
        if Arc::ptr_eq(&state.users, &users) {
            if state.verified.len() >= MAX_CACHED {
                state.verified.clear();
            }
            state.verified.insert(digest, Arc::clone(&name));
        }
        Ok(CallerIdentity::User(name))
    }

    /// Reads the file again if it changed. If it cannot be read, the previous users stay valid: an
    /// editor may be in the middle of writing it.
    fn reload_if_changed(&self, state: &mut UserState) {
        if state.checked_at.elapsed() < FILE_CHECK_INTERVAL {
            return;
        }
        state.checked_at = Instant::now();
        let stamp = htpasswd::stamp(&self.file).ok();
        if stamp == state.stamp {
            return;
        }
        match htpasswd::read(&self.file) {
            Ok(users) => {
                state.users = Arc::new(users);
                state.stamp = stamp;
                state.verified.clear();
                tracing::info!(path = %self.file.display(), "user file reloaded");
            }
            Err(error) => {
                tracing::warn!(%error, "reloading the changed user file failed, keeping the old users");
            }
        }
    }

    /// Whether the password matches the hash.
    async fn verify(&self, password: Secret<String>, hash: String) -> Result<bool, AuthError> {
        let _queue_slot = QueueSlot::acquire(&self.queued).ok_or(AuthError::Busy)?;
        let _permit = self.verifications.acquire().await.map_err(|_| AuthError::Busy)?;
        let verified =
            tokio::task::spawn_blocking(move || bcrypt::verify(password.reveal(), &hash)).await;
        Ok(matches!(verified, Ok(Ok(true))))
    }
}

/// A slot in the queue of verifications, released on drop.
struct QueueSlot<'w>(&'w AtomicUsize);

impl<'w> QueueSlot<'w> {
    fn acquire(queued: &'w AtomicUsize) -> Option<Self> {
        let slot = Self(queued);
        let before = queued.fetch_add(1, Ordering::Relaxed);
        (before < MAX_WAITING + MAX_VERIFICATIONS).then_some(slot)
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// User and password of a `Basic` authorization header.
fn parse_basic(header: &HeaderValue) -> Result<(String, Secret<String>), AuthError> {
    let text = header.to_str().map_err(|_| AuthError::Malformed)?;
    let (scheme, token) = text.trim().split_once(' ').ok_or(AuthError::Malformed)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(AuthError::UnsupportedScheme);
    }
    let decoded = STANDARD.decode(token.trim()).map_err(|_| AuthError::Malformed)?;
    let decoded = String::from_utf8(decoded).map_err(|_| AuthError::Malformed)?;
    let (user, password) = decoded.split_once(':').ok_or(AuthError::Malformed)?;
    Ok((user.to_owned(), Secret::new(password.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lowest bcrypt cost, to keep the tests fast.
    const LOWEST_COST: u32 = 4;

    fn write_user_file(file: &Path, password: &str) {
        let hash = bcrypt::hash(password, LOWEST_COST).unwrap();
        std::fs::write(file, format!("me:{hash}\n")).unwrap();
    }

    async fn accepts(backend: &Arc<HtpasswdBackend>, password: &str) -> bool {
        backend.identify("me".to_owned(), Secret::new(password.to_owned())).await.is_ok()
    }

    /// Makes the next request check the file.
    fn expire_file_check(backend: &HtpasswdBackend) {
        let mut state = backend.state.lock().unwrap();
        state.checked_at = state.checked_at.checked_sub(FILE_CHECK_INTERVAL).unwrap();
    }

    #[tokio::test]
    async fn reloads_a_changed_file_and_ignores_a_broken_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("htpasswd");
        write_user_file(&file, "old");
        let backend = Arc::new(HtpasswdBackend::open(&file).unwrap());
        assert!(accepts(&backend, "old").await);
        assert_eq!(backend.state.lock().unwrap().verified.len(), 1);

        write_user_file(&file, "new and longer");
        expire_file_check(&backend);
        assert!(!accepts(&backend, "old").await, "the cache is cleared");
        assert!(accepts(&backend, "new and longer").await);

        std::fs::write(&file, "half a li").unwrap();
        expire_file_check(&backend);
        assert!(accepts(&backend, "new and longer").await);
    }

    #[tokio::test]
    async fn rejects_verifications_over_the_queue_limit() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("htpasswd");
        write_user_file(&file, "right");
        let backend = Arc::new(HtpasswdBackend::open(&file).unwrap());
        assert!(accepts(&backend, "right").await);
        backend.queued.store(MAX_WAITING + MAX_VERIFICATIONS, Ordering::Relaxed);
        let guess = backend.identify("me".to_owned(), Secret::new("guess".to_owned())).await;
        assert_eq!(guess, Err(AuthError::Busy));
        assert!(accepts(&backend, "right").await, "cached credentials need no verification");
    }
}
