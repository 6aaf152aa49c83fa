// SPDX-License-Identifier: Apache-2.0
//! Warm-up: a machine without a job is booted into the agent, so that the next job finds it running.

use node_model::{JournalEvent, Node, PowerState, Timestamp};

use crate::{LifecycleSettings, PendingEntries};

/// The key of `driver_internal_info` of a node that was warmed up and whose agent has not sent a
/// heartbeat yet.
pub const WARM_UP_KEY: &str = "warming";

/// The status of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUpStatus {
    /// No warm-up is in progress.
    None,
    /// The heartbeat is expected.
    Pending,
    /// The heartbeat arrived, or the machine was powered off or booted for another reason.
    Finished,
    /// No heartbeat arrived in time.
    Overdue,
}

/// The status of the node's warm-up. Evaluated at every power poll, so the text is searched before
/// it is parsed.
#[must_use]
pub fn warm_up_status(node: &Node, settings: &LifecycleSettings, now: Timestamp) -> WarmUpStatus {
    if !node.driver_internal_info.as_str().contains("\"warming\"")
        || node.driver_internal_info.get(WARM_UP_KEY).is_none()
    {
        return WarmUpStatus::None;
    }
    let Some(booted) = node.agent.replaced_at else { return WarmUpStatus::Finished };
    if node.power_state == Some(PowerState::Off) {
        return WarmUpStatus::Finished;
    }
    if node.agent.last_heartbeat.is_some_and(|heartbeat| heartbeat > booted) {
        return WarmUpStatus::Finished;
    }
    match settings.boot_timeout() {
        Some(timeout) if now.since(booted) >= timeout => WarmUpStatus::Overdue,
        Some(_) | None => WarmUpStatus::Pending,
    }
}

/// Records the end of a warm-up on the node.
pub fn record_warm_up(
    node: &mut Node,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) {
    match warm_up_status(node, settings, now) {
        WarmUpStatus::None | WarmUpStatus::Pending => return,
        WarmUpStatus::Finished => {}
        WarmUpStatus::Overdue => {
            let error = format!(
                "warm-up failed: no heartbeat from the agent within {} s after the machine was \
                 booted; check its console and its timeline to find out how far it booted, or warm \
                 it up again",
                settings.boot_retry_timeout
            );
            entries.error("warming", &error);
            let booted = node.agent.replaced_at.unwrap_or(now);
            let took_ms = u64::try_from(now.since(booted).as_millis()).unwrap_or(u64::MAX);
            entries.events.push(JournalEvent::ActionFailed {
                action: "wait for the agent of a warm machine".to_owned(),
                took_ms,
                error: error.clone(),
            });
            node.last_error = Some(error);
        }
    }
    node.driver_internal_info.remove(WARM_UP_KEY);
}
