// SPDX-License-Identifier: Apache-2.0
//! What a client remembers of being let in: its ticket, that it was turned away, and what its user
//! may not do.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use http::header::HeaderValue;
use tokio::time::Instant;

/// How many things a user may not do are remembered. With more of them, all are learnt anew.
const MOST_FORBIDDEN: usize = 256;

/// What is shown with each request.
pub(crate) enum Ticket {
    /// A session.
    Session {
        token: HeaderValue,
        /// Where to log out.
        location: Option<String>,
    },
    /// User name and password.
    Basic {
        header: HeaderValue,
        /// Whether asking for a session again is pointless.
        settled: bool,
    },
}

/// What a client and all its clones remember.
#[derive(Default)]
pub(crate) struct Login {
    ticket: RwLock<Option<Arc<Ticket>>>,
    /// Held while logging in or out, so that it is done once.
    pub(crate) door: tokio::sync::Mutex<()>,
    /// When the BMC rejected our credentials, if that was the last it said about them. BMCs lock
    /// an account after a few wrong passwords.
    rejected: Mutex<Option<Instant>>,
    /// What was refused with 403 although the session was new. Some BMCs say 403 to a session that
    /// has ended as well.
    forbidden: Mutex<HashSet<String>>,
}

impl Login {
    pub(crate) fn current(&self) -> Option<Arc<Ticket>> {
        self.ticket.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, ticket: Option<Arc<Ticket>>) -> Option<Arc<Ticket>> {
        let mut current = self.ticket.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut current, ticket)
    }

    /// Remembers that the BMC does not take our user name and password.
    pub(crate) fn reject(&self) {
        *self.rejected() = Some(Instant::now());
        let mut current = self.ticket.write().unwrap_or_else(PoisonError::into_inner);
        if current.as_deref().is_some_and(|ticket| matches!(ticket, Ticket::Basic { .. })) {
            *current = None;
        }
    }

    /// Whether our user name and password were rejected less than `pause` ago.
    pub(crate) fn is_rejected(&self, pause: Duration) -> bool {
        self.rejected().is_some_and(|at| at.elapsed() < pause)
    }

    /// Forgets that our user name and password were rejected.
    pub(crate) fn forget_rejection(&self) {
        *self.rejected() = None;
    }

    /// Remembers that `what` is not for our user.
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
