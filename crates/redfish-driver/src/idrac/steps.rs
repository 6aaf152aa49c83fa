// SPDX-License-Identifier: Apache-2.0
//! The management steps of iDRACs: clearing the job queue and restarting the iDRAC.

use std::time::Duration;

use drivers::{DriverError, DriverTarget, NodeChanges, StepOutcome};
use node_model::{ProvisionState, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{DELETE_JOB_QUEUE, IdracFunction, RESET, is_ready, managers, required_action};
use crate::bmc::RedfishBmc;
use crate::connections::RedfishConnections;
use crate::tasks;

/// Deletes all jobs.
pub(crate) const CLEAR_JOB_QUEUE: &str = "clear_job_queue";
/// Restarts the iDRAC.
pub(crate) const RESET_IDRAC: &str = "reset_idrac";
/// Restarts the iDRAC and deletes all jobs.
pub(crate) const KNOWN_GOOD_STATE: &str = "known_good_state";

/// The driver state key of a restart.
const DRIVER_STATE_KEY: &str = "idrac_reset";
/// Timeout for the iDRAC to stop responding after the request.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(240);
/// Timeout for the iDRAC to be ready after the request.
const READY_TIMEOUT: Duration = Duration::from_secs(1440);

/// Progress of a restart; stored between calls.
#[derive(Debug, Serialize, Deserialize)]
struct IdracRestart {
    /// The time of the request.
    since: Timestamp,
    /// `LastResetTime` of the manager before the request.
    reset_before: Option<String>,
    /// Whether the iDRAC has restarted: it did not respond, or reports another time.
    restarted: bool,
}

/// Runs a step. When a node is verified, it is managed also if the step fails, as in Ironic.
pub(crate) async fn run_step(
    connections: &RedfishConnections,
    target: &DriverTarget<'_>,
    step: &str,
) -> Result<StepOutcome, DriverError> {
    let outcome = match step {
        CLEAR_JOB_QUEUE => clear_job_queue(connections, target).await,
        _ => reset(connections, target, step == KNOWN_GOOD_STATE).await,
    };
    match outcome {
        Err(error) if target.node.provision_state == ProvisionState::Verifying => {
            tracing::warn!(node = %target.node.id, step, %error, "verify step of the iDRAC failed");
            Ok(StepOutcome::done(NodeChanges::none()))
        }
        outcome => outcome,
    }
}

async fn clear_job_queue(
    connections: &RedfishConnections,
    target: &DriverTarget<'_>,
) -> Result<StepOutcome, DriverError> {
    let bmc = connections.bmc(target, "clear the job queue of the iDRAC")?;
    let action = required_action(&bmc, &DELETE_JOB_QUEUE).await?;
    bmc.post(&action.target, &json!({"JobID": "JID_CLEARALL"})).await?;
    Ok(StepOutcome::done(NodeChanges::none()))
}

/// Requests the restart, or polls it; clears the job queue afterwards if requested.
async fn reset(
    connections: &RedfishConnections,
    target: &DriverTarget<'_>,
    clears_jobs: bool,
) -> Result<StepOutcome, DriverError> {
    let bmc = connections.bmc(target, "restart the iDRAC")?;
    let poll = |progress: &IdracRestart| {
        let outcome = tasks::poll_later(target, &connections.settings, DRIVER_STATE_KEY, progress);
        Ok(tasks::with_progress_text(outcome, "waiting until the iDRAC has restarted"))
    };
    let Some(mut progress) = tasks::load_state::<IdracRestart>(target, DRIVER_STATE_KEY) else {
        let action = required_action(&bmc, &RESET).await?;
        let reset_before = last_reset(&bmc).await?;
        bmc.post(&action.target, &json!({"Force": "Graceful"})).await?;
        return poll(&IdracRestart { since: target.now, reset_before, restarted: false });
    };
    let elapsed = target.now.since(progress.since);
    let status = restart_status(&bmc, &progress).await;
    match status {
        Ok(RestartStatus { restarted, ready }) => {
            progress.restarted |= restarted;
            if progress.restarted && ready {
                return match clears_jobs {
                    true => clear_job_queue(connections, target).await,
                    false => Ok(StepOutcome::done(NodeChanges::none())),
                };
            }
        }
        Err(DriverError::BmcUnreachable { .. }) => progress.restarted = true,
        // It responds while it starts or stops.
        Err(DriverError::Failed { .. }) => {}
        Err(error) => return Err(error),
    }
    if !progress.restarted && elapsed >= SHUTDOWN_TIMEOUT {
        return Err(bmc.failed(format!(
            "the iDRAC accepted the request and did not restart within {} s",
            SHUTDOWN_TIMEOUT.as_secs()
        )));
    }
    if elapsed >= READY_TIMEOUT {
        return Err(bmc.failed(format!(
            "the iDRAC restarted and is not ready after {} s",
            READY_TIMEOUT.as_secs()
        )));
    }
    poll(&progress)
}

/// The state of an iDRAC that responds.
struct RestartStatus {
    restarted: bool,
    ready: bool,
}

async fn restart_status(
    bmc: &RedfishBmc,
    progress: &IdracRestart,
) -> Result<RestartStatus, DriverError> {
    let now = last_reset(bmc).await?;
    let restarted = now.is_some() && now != progress.reset_before;
    let ready = is_ready(bmc, IdracFunction::LifecycleController).await?.unwrap_or(true);
    Ok(RestartStatus { restarted, ready })
}

async fn last_reset(bmc: &RedfishBmc) -> Result<Option<String>, DriverError> {
    let managers = managers(bmc).await?;
    Ok(managers.iter().find_map(|manager| manager.text("/LastResetTime").map(str::to_owned)))
}
