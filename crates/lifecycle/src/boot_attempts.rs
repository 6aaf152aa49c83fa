// SPDX-License-Identifier: Apache-2.0
//! Boot attempts: how often a machine was booted for the agent that a job waits for, with which
//! boot methods, and what follows when the agent makes a request or does not.
//!
//! The record is part of the job and is cleared when the stage or step ends, so it concerns one wait
//! and survives a process restart.

use node_model::{
    BOOT_METHOD_KEY, BOOT_METHODS_TRIED_KEY, BootAttempts, BootMethod, Event, InterfaceKind,
    JournalEvent, Node, Stage, Timestamp, Work, WorkKind,
};
use serde_json::Value;

use crate::pending_entries::{FollowUpChange, PendingEntries};
use crate::record::fail;
use crate::transitions::{StateClass, state_class};
use crate::{Action, ActionFailure, ActionOutcome, LifecycleSettings};

/// The ramdisk that a job boots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobRamdisk {
    /// The agent.
    Agent,
    /// The one that the deploy interface uses: the agent, or an installer.
    DeployInterface,
    /// The agent in inspection mode.
    Inspection,
    /// The rescue system.
    Rescue,
}

/// The ramdisk that a job boots.
#[must_use]
pub const fn job_ramdisk(kind: WorkKind) -> JobRamdisk {
    match kind {
        WorkKind::Inspect => JobRamdisk::Inspection,
        WorkKind::Rescue => JobRamdisk::Rescue,
        WorkKind::Deploy | WorkKind::Rebuild => JobRamdisk::DeployInterface,
        WorkKind::Verify
        | WorkKind::Clean
        | WorkKind::ManualClean
        | WorkKind::TearDown
        | WorkKind::Unrescue
        | WorkKind::Adopt
        | WorkKind::Service => JobRamdisk::Agent,
    }
}

/// The boot attempts of the current wait, if the agent made no request since the last boot.
pub(crate) fn unconfirmed_boot(work: &Work) -> Option<BootAttempts> {
    work.boot.filter(|boot| !boot.responded)
}

/// Records that `action` booted the machine, if it did.
///
/// A deployment boots the agent in a step, and steps that reboot the machine occur in any job: they
/// booted it if the agent is not known. Otherwise the wait is for the next heartbeat of a running
/// agent.
pub(crate) fn record_boot(node: &mut Node, action: &Action, now: Timestamp) {
    let method = automatic_method(node);
    let agent_is_unknown = node.agent.url.is_none();
    let Some(work) = &mut node.work else { return };
    let step_booted = action.step().is_some() && agent_is_unknown && work.boot.is_none();
    if action.boots_ramdisk() || step_booted {
        work.boot = Some(BootAttempts {
            started_at: now,
            count: 1,
            method,
            method_since: now,
            responded: false,
            failure_recorded: false,
        });
    }
}

/// The program that the job waits for, for messages.
pub(crate) const fn awaited_program(work: &Work) -> &'static str {
    if work.awaits_installer { "installer" } else { "agent" }
}

/// Whether a request of the agent would be the first since the machine was booted, so that
/// [`confirm_boot`] changes the node.
#[must_use]
pub fn awaits_boot_confirmation(node: &Node) -> bool {
    node.work.as_ref().is_some_and(|work| work.awaiting && unconfirmed_boot(work).is_some())
}

/// Records that the agent made a request: a lookup, a heartbeat, or inspection data. Returns whether
/// it is the first since the machine was booted; the node must be saved then.
pub fn confirm_boot(node: &mut Node, entries: &mut PendingEntries) -> bool {
    let Some(work) = node.work.as_mut().filter(|work| work.awaiting) else { return false };
    let Some(boot) = unconfirmed_boot(work) else { return false };
    work.boot = Some(BootAttempts { responded: true, ..boot });
    if work.retry.take().is_some() {
        // The retry was for a BMC that did not respond to another boot, which is not needed now.
        node.last_error = None;
    }
    entries.follow_ups.push(FollowUpChange::RecordBootResult { method: boot.method, worked: true });
    true
}

/// Whether the job still waits for the agent, as it did when another boot was decided.
pub(crate) fn is_agent_awaited(node: &Node) -> bool {
    let waits = |work: &Work| work.awaiting && work.stage != Stage::CleanUp;
    state_class(node.provision_state) == StateClass::Waiting
        && node.work.as_ref().is_some_and(waits)
}

/// Records the outcome of [`Action::BootAgain`].
pub(crate) fn record_boot_again(
    node: &mut Node,
    outcome: &ActionOutcome,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) {
    let method = automatic_method(node);
    let Some(work) = &node.work else { return };
    let Some(before) = work.boot else { return };
    record_boot_failure(before, entries);
    let program = awaited_program(work);
    let timeout = format!("no request from the {program} within {} s", settings.boot_retry_timeout);
    match outcome {
        ActionOutcome::Failed(failure) | ActionOutcome::Unreachable(_, failure) => {
            let message = format!(
                "{timeout}{}, and booting the machine again failed: {}",
                boot_summary(node, work),
                failure.message
            );
            fail(node, Event::Fail, &ActionFailure::new(message), settings, now, entries);
            return;
        }
        ActionOutcome::Progress(_) | ActionOutcome::StepsListed(_) => {}
    }
    let text = format!(
        "{timeout} after booting by {}; booting again by {}",
        method_name(node, before.method),
        method_name(node, method)
    );
    entries.events.push(JournalEvent::Note { by: "boot".to_owned(), text });
    let Some(work) = &mut node.work else { return };
    work.heartbeat_received = false;
    let is_same_method = method == before.method;
    work.boot = Some(BootAttempts {
        started_at: now,
        count: before.count.saturating_add(1),
        method,
        method_since: if is_same_method { before.method_since } else { now },
        responded: false,
        failure_recorded: is_same_method,
    });
}

/// Records the failure of the boot method if the job fails while it waits for the agent's first
/// request.
pub(crate) fn record_abandoned_boot(node: &Node, entries: &mut PendingEntries) {
    if is_agent_awaited(node)
        && let Some(boot) = node.work.as_ref().and_then(|work| work.boot)
    {
        record_boot_failure(boot, entries);
    }
}

fn record_boot_failure(boot: BootAttempts, entries: &mut PendingEntries) {
    if !boot.responded && !boot.failure_recorded {
        entries
            .follow_ups
            .push(FollowUpChange::RecordBootResult { method: boot.method, worked: false });
    }
}

/// How often and by which methods the machine was booted in vain, as the end of a message; empty for
/// a single boot.
pub(crate) fn boot_summary(node: &Node, work: &Work) -> String {
    let Some(boot) = work.boot else { return String::new() };
    let methods: Vec<String> = match node.driver_internal_info.get(BOOT_METHODS_TRIED_KEY) {
        Some(Value::Array(methods)) => {
            methods.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(_) | None => vec![method_name(node, boot.method).to_owned()],
    };
    match (boot.count, methods.len()) {
        (1, 1) => String::new(),
        (1, _) => format!(" after the machine was booted; tried: {}", methods.join(", ")),
        (count, _) => {
            format!(" after the machine was booted {count} times; tried: {}", methods.join(", "))
        }
    }
}

/// The boot method that the boot interface `automatic` chose.
fn automatic_method(node: &Node) -> Option<BootMethod> {
    node.driver_internal_info.get_str(BOOT_METHOD_KEY)?.parse().ok()
}

/// The name of an automatically chosen boot method, or of the boot interface.
fn method_name(node: &Node, method: Option<BootMethod>) -> &str {
    match method {
        Some(method) => method.as_str(),
        None => node.interfaces.get(InterfaceKind::Boot).unwrap_or("its boot interface"),
    }
}
