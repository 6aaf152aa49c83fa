// SPDX-License-Identifier: Apache-2.0
//! A machine that was booted into the agent for whoever needs it next: has the agent called?

use node_model::{Happening, Node, PowerState, Timestamp};

use crate::{Ledger, Settings};

/// The key of `driver_internal_info` of a machine whose agent was booted for later, and has not
/// been seen yet.
pub const WARMING: &str = "warming";

/// What has become of an agent that was booted for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warming {
    /// Nobody waits for one.
    Nobody,
    /// It may call yet.
    Awaited,
    /// It called, or a job uses the machine otherwise.
    Over,
    /// It should have called by now.
    Overdue,
}

/// What has become of it. Asked of every machine at every look, so the text is searched before it
/// is parsed.
#[must_use]
pub fn warming(node: &Node, settings: &Settings, now: Timestamp) -> Warming {
    if !node.driver_internal_info.as_str().contains("\"warming\"")
        || node.driver_internal_info.get(WARMING).is_none()
    {
        return Warming::Nobody;
    }
    let Some(booted) = node.agent.replaced_at else { return Warming::Over };
    // Whoever switched it off does not expect a call.
    if node.power_state == Some(PowerState::Off) {
        return Warming::Over;
    }
    if node.agent.last_heartbeat.is_some_and(|moment| moment > booted) {
        return Warming::Over;
    }
    match settings.boot_patience() {
        Some(patience) if now.since(booted) >= patience => Warming::Overdue,
        Some(_) | None => Warming::Awaited,
    }
}

/// Writes down what has become of it.
pub fn judge_warming(node: &mut Node, settings: &Settings, now: Timestamp, ledger: &mut Ledger) {
    match warming(node, settings, now) {
        Warming::Nobody | Warming::Awaited => return,
        Warming::Over => {}
        Warming::Overdue => {
            let error = format!(
                "the machine was booted into the agent to be warm, and no agent called within {} s; \
                 look at its console and at the timeline, which says how far it booted, or warm it \
                 again",
                settings.boot_retry_timeout
            );
            ledger.error("warming", &error);
            let booted = node.agent.replaced_at.unwrap_or(now);
            let took_ms = u64::try_from(now.since(booted).as_millis()).unwrap_or(u64::MAX);
            ledger.happened.push(Happening::Failed {
                action: "wait for the agent of a warm machine".to_owned(),
                took_ms,
                error: error.clone(),
            });
            node.last_error = Some(error);
        }
    }
    node.driver_internal_info.remove(WARMING);
}
