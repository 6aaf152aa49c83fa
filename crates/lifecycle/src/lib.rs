// SPDX-License-Identifier: Apache-2.0
//! Decisions about nodes.
//!
//! All functions are synchronous and pure: the node, the settings and the time are parameters. This
//! crate uses no sockets, SQL or clocks, so the same code decides in production, in table tests, and
//! in [`explain()`], which simulates a job.
//!
//! The life of a job:
//! - a user makes a request: [`request_provision`] checks it and puts [`Work`](node_model::Work) on
//!   the node;
//! - the conductor calls [`settle`], which applies every decision that needs no action and returns
//!   the next [`Action`], or the reason of a wait;
//! - the conductor reports the outcome of the action to [`record`];
//! - the conductor calls [`settle`] again, until it returns [`SettleResult::Wait`] or
//!   [`SettleResult::Idle`].

mod action;
mod boot_attempts;
mod decide;
mod deployment;
mod diagram;
mod enter;
mod explain;
mod job_queue;
mod maintenance;
mod pending_entries;
mod power;
mod provision_request;
mod record;
mod retry;
mod settings;
mod steps;
mod transitions;
mod warm_up;

pub use action::{Action, ActionFailure, ActionOutcome, Decision, Prerequisite, SettleResult};
pub use boot_attempts::{JobRamdisk, awaits_boot_confirmation, confirm_boot, job_ramdisk};
pub use decide::settle;
pub use deployment::{
    DEPLOYED_BY_KEY, DeploymentStep, deployment_config_drive, next_deployment_step,
};
pub use diagram::diagram;
pub use explain::{Explanation, PlannedAction, StepForecast, explain};
pub use job_queue::{job_limit, queue_job, start_queued_job, update_place};
pub use maintenance::{is_held, set_maintenance};
pub use pending_entries::{FollowUpChange, PendingEntries, PendingHistoryEntry};
pub use power::{
    PowerPollResult, PowerRequestError, PowerSyncDecision, RelatedNodes, apply_power_sync,
    decide_power_sync, is_power_monitored, needs_related_change, related_power_change,
    request_power,
};
pub use provision_request::{
    JobContext, ProvisionRequest, ProvisionRequestError, check_maintenance, check_offered_steps,
    check_policy, check_verb, is_deployment, missing_traits, request_provision, requested_flow,
    requested_traits, validated_interfaces, verb_event,
};
pub use record::{
    agent_stopped, clear_agent, fast_track, heartbeat_received, inspection_data_received,
    is_still_running, job_accepts_heartbeats, record,
};
pub use retry::retry_delay;
pub use settings::LifecycleSettings;
pub use steps::{
    AvailableSteps, Ramdisk, ReservedStep, StepError, agent_steps_are_needed, check_requested,
    job_hints, merge_deploy_steps, order_steps,
};
pub use transitions::{
    StateClass, TRANSITIONS, default_target, delete_allowed, is_unstable, lookup_allowed,
    next_state, power_sync_excluded, reconfigure_allowed, state_class, update_allowed,
};
pub use warm_up::{WARM_UP_KEY, WarmUpStatus, record_warm_up, warm_up_status};
