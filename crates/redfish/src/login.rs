// SPDX-License-Identifier: Apache-2.0
//! The authentication state of a client: its credentials, their rejection, and requests that are
//! forbidden for its user.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use http::header::HeaderValue;
use tokio::time::Instant;

/// The limit of recorded forbidden requests. Beyond it, all are discarded.
const MOST_FORBIDDEN: usize = 256;

/// The credentials of a request.
pub(crate) enum RequestCredentials {
    /// A session.
    Session {
        token: HeaderValue,
        /// The path of the session, for logging out.
        location: Option<String>,
    },
    /// User name and password.
    Basic {
        header: HeaderValue,
        /// Whether opening a session will fail again.
        settled: bool,
    },
}

/// The state that a client and all its clones share.
#[derive(Default)]
pub(crate) struct LoginState {
    ticket: RwLock<Option<Arc<RequestCredentials>>>,
    /// Held during login and logout, so that they happen once.
    pub(crate) login_lock: tokio::sync::Mutex<()>,
    /// When the BMC last rejected the credentials, if it did not accept them since. BMCs lock an
    /// account after a few wrong passwords.
    rejected: Mutex<Option<Instant>>,
    /// Requests that got 403 with a new session. Some BMCs return 403 for an ended session too.
    forbidden: Mutex<HashSet<String>>,
}

impl LoginState {
    pub(crate) fn current(&self) -> Option<Arc<RequestCredentials>> {
        self.ticket.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(
        &self,
        ticket: Option<Arc<RequestCredentials>>,
    ) -> Option<Arc<RequestCredentials>> {
        let mut current = self.ticket.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut current, ticket)
    }

    /// Records that the BMC rejects the credentials.
    pub(crate) fn reject(&self) {
        *self.rejected() = Some(Instant::now());
        let mut current = self.ticket.write().unwrap_or_else(PoisonError::into_inner);
        if current
            .as_deref()
            .is_some_and(|ticket| matches!(ticket, RequestCredentials::Basic { .. }))
        {
            *current = None;
        }
    }

    /// Returns whether the credentials were rejected less than `pause` ago.
    pub(crate) fn is_rejected(&self, pause: Duration) -> bool {
        self.rejected().is_some_and(|at| at.elapsed() < pause)
    }

    /// Clears the rejection.
    pub(crate) fn forget_rejection(&self) {
        *self.rejected() = None;
    }

    /// Records that `what` is forbidden for the user.
    pub(crate) fn forbid(&self, what: String) {
        let mut forbidden = self.forbidden();
        if forbidden.len() >= MOST_FORBIDDEN {
            forbidden.clear();
        }
        forbidden.insert(what);
    }

    pub(crate) fn is_forbidden(&self, what: &str) -> bool {
        self.forbidden().contains(what)
    }

    fn rejected(&self) -> MutexGuard<'_, Option<Instant>> {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forbidden(&self) -> MutexGuard<'_, HashSet<String>> {
        self.forbidden.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
