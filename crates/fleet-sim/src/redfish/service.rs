// SPDX-License-Identifier: Apache-2.0
//! What the Redfish service itself remembers: sessions and event subscriptions.

use std::time::Duration;

use node_model::Timestamp;

use crate::machine::Machine;

/// The memory of one BMC's service.
#[derive(Debug, Default)]
pub(crate) struct Service {
    sessions: Vec<Session>,
    last_session: u32,
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) last_subscription: u32,
}

/// Somebody who signed in.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u32,
    pub(super) token: Box<str>,
    last_used: Timestamp,
    /// How often the BMC had restarted: sessions do not survive that.
    restarts: u32,
}

/// Somebody who wants to be told of events.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    pub(super) id: u32,
    pub(super) destination: String,
    pub(super) context: Option<String>,
    pub(super) protocol: String,
    pub(super) event_types: Vec<String>,
}

impl Service {
    /// Opens a session, unless there are too many.
    pub(super) fn open(&mut self, machine: &Machine, now: Timestamp) -> Option<&Session> {
        self.forget_old(machine, now);
        if self.sessions.len() >= machine.personality().sessions.limit {
            return None;
        }
        self.last_session = self.last_session.wrapping_add(1);
        self.sessions.push(Session {
            id: self.last_session,
            token: machine.identity().token(self.last_session).into(),
            last_used: now,
            restarts: machine.bmc_restarts(),
        });
        self.sessions.last()
    }

    /// Whether a token opens the door; using it keeps it alive.
    pub(super) fn knows(&mut self, token: &str, machine: &Machine, now: Timestamp) -> bool {
        self.forget_old(machine, now);
        match self.sessions.iter_mut().find(|session| *session.token == *token) {
            Some(session) => {
                session.last_used = now;
                true
            }
            None => false,
        }
    }

    /// Ends a session.
    pub(super) fn close(&mut self, id: u32) -> bool {
        let before = self.sessions.len();
        self.sessions.retain(|session| session.id != id);
        self.sessions.len() < before
    }

    /// Those who are signed in.
    pub(super) fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    fn forget_old(&mut self, machine: &Machine, now: Timestamp) {
        let timeout = Duration::from_secs(machine.personality().sessions.timeout);
        self.sessions.retain(|session| {
            session.restarts == machine.bmc_restarts() && now.since(session.last_used) < timeout
        });
    }
}
