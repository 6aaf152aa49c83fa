// SPDX-License-Identifier: Apache-2.0
//! State of the Redfish service: sessions and event subscriptions.

use std::time::Duration;

use node_model::Timestamp;

use crate::machine::MachineModel;

/// Sessions and event subscriptions of one BMC.
#[derive(Debug, Default)]
pub(crate) struct RedfishServiceState {
    sessions: Vec<RedfishSession>,
    last_session: u32,
    pub(super) subscriptions: Vec<EventSubscription>,
    pub(super) last_subscription: u32,
}

/// A login session.
#[derive(Debug)]
pub(super) struct RedfishSession {
    pub(super) id: u32,
    pub(super) token: Box<str>,
    last_used: Timestamp,
    /// The BMC's restart count when it was opened; a restart ends all sessions.
    restarts: u32,
}

/// An event subscription.
#[derive(Clone, Debug)]
pub(super) struct EventSubscription {
    pub(super) id: u32,
    pub(super) destination: String,
    pub(super) context: Option<String>,
    pub(super) protocol: String,
    pub(super) event_types: Vec<String>,
}

impl RedfishServiceState {
    /// Opens a session. Returns `None` if the session limit is reached.
    pub(super) fn open_session(
        &mut self,
        machine: &MachineModel,
        now: Timestamp,
    ) -> Option<&RedfishSession> {
        self.expire_sessions(machine, now);
        if self.sessions.len() >= machine.personality().sessions.limit {
            return None;
        }
        self.last_session = self.last_session.wrapping_add(1);
        self.sessions.push(RedfishSession {
            id: self.last_session,
            token: machine.identity().session_token(self.last_session).into(),
            last_used: now,
            restarts: machine.bmc_restarts(),
        });
        self.sessions.last()
    }

    /// Whether the token belongs to a session. Restarts the session's idle timeout.
    pub(super) fn accepts_token(
        &mut self,
        token: &str,
        machine: &MachineModel,
        now: Timestamp,
    ) -> bool {
        self.expire_sessions(machine, now);
        match self.sessions.iter_mut().find(|session| *session.token == *token) {
            Some(session) => {
                session.last_used = now;
                true
            }
            None => false,
        }
    }

    /// Closes a session. Returns whether it existed.
    pub(super) fn close_session(&mut self, id: u32) -> bool {
        let before = self.sessions.len();
        self.sessions.retain(|session| session.id != id);
        self.sessions.len() < before
    }

    /// Returns the open sessions.
    pub(super) fn sessions(&self) -> &[RedfishSession] {
        &self.sessions
    }

    fn expire_sessions(&mut self, machine: &MachineModel, now: Timestamp) {
        let timeout = Duration::from_secs(machine.personality().sessions.timeout);
        self.sessions.retain(|session| {
            session.restarts == machine.bmc_restarts() && now.since(session.last_used) < timeout
        });
    }
}
