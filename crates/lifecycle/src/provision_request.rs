// SPDX-License-Identifier: Apache-2.0
//! Provision requests: the checks, in Ironic's order, and the jobs that they start.

use node_model::{
    Actor, Deadline, Event, InterfaceKind, JournalEvent, Node, ProvisionState, Runbook, Stage,
    Step, StepFlow, Timestamp, Verb, Wait, WaitReason, Work, WorkKind,
};
use serde_json::Value;
use uuid::Uuid;

use crate::deployment::{DEPLOYED_BY_KEY, deployed_by};
use crate::enter::enter;
use crate::job_queue::update_place;
use crate::pending_entries::PendingEntries;
use crate::record::{clear_agent, fail, fast_track};
use crate::steps::{
    AvailableSteps, Ramdisk, ReservedStep, StepError, check_requested, merge_deploy_steps,
};
use crate::transitions::{StateClass, next_state, state_class};
use crate::{ActionFailure, LifecycleSettings};

/// A provision verb with its arguments.
#[derive(Clone, PartialEq, Debug)]
pub struct ProvisionRequest {
    /// The verb.
    pub verb: Verb,
    /// Clean, deploy or service steps.
    pub steps: Vec<Step>,
    /// A runbook whose steps are used instead of `steps`.
    pub runbook: Option<Runbook>,
    /// Whether the job runs without booting the ramdisk.
    pub disable_ramdisk: bool,
    /// The config drive. Stored with the instance, as a secret.
    pub configdrive: Option<Value>,
    /// The password of the rescue system. Stored with the instance, as a secret.
    pub rescue_password: Option<String>,
    /// Who makes the request.
    pub actor: Actor,
}

impl ProvisionRequest {
    /// A verb without arguments.
    #[must_use]
    pub const fn plain(verb: Verb, actor: Actor) -> Self {
        Self {
            verb,
            steps: Vec::new(),
            runbook: None,
            disable_ramdisk: false,
            configdrive: None,
            rescue_password: None,
            actor,
        }
    }

    /// The requested steps, or those of the runbook in their order.
    #[must_use]
    pub fn all_steps(&self) -> Vec<Step> {
        let Some(runbook) = &self.runbook else { return self.steps.clone() };
        let mut steps = runbook.steps.clone();
        steps.sort_by_key(|step| step.order);
        let steps = steps.into_iter();
        steps
            .map(|step| Step { args: step.args, ..Step::new(&step.interface, &step.step, 0) })
            .collect()
    }

    /// Whether the job runs without the ramdisk: because the user or the runbook disables it, or
    /// because every requested clean or service step is run by the BMC. `driver_steps` are the steps
    /// that the driver offers for the verb.
    #[must_use]
    pub fn runs_without_ramdisk(&self, driver_steps: &AvailableSteps) -> bool {
        let is_disabled = self.disable_ramdisk
            || self.runbook.as_ref().is_some_and(|runbook| runbook.disable_ramdisk);
        is_disabled || self.needs_no_ramdisk(driver_steps)
    }

    fn needs_no_ramdisk(&self, driver_steps: &AvailableSteps) -> bool {
        let runs_on_bmc = |step: &Step| {
            let is_power =
                ReservedStep::from_step(step).and_then(ReservedStep::power_target).is_some();
            is_power || driver_steps.find(step).is_some_and(|known| !known.step.requires_ramdisk)
        };
        let steps = self.all_steps();
        matches!(self.verb, Verb::Clean | Verb::Service)
            && !steps.is_empty()
            && steps.iter().all(runs_on_bmc)
    }
}

/// What a request needs from the database and the driver to become a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobContext {
    /// Deploy steps of the templates whose traits the instance requests.
    pub template_steps: Vec<Step>,
    /// The steps that the driver offers for the verb; see [`requested_flow`].
    pub driver_steps: AvailableSteps,
    /// The id of the job, if one is started.
    pub work_id: Uuid,
}

/// Why a provision request is rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProvisionRequestError {
    /// The node is in maintenance.
    #[error("node {node} is in maintenance ({reason}); clear it first, then request {verb} again")]
    Maintenance {
        /// The node.
        node: String,
        /// The reason for maintenance.
        reason: String,
        /// The verb.
        verb: Verb,
    },
    /// Another process holds the node's lease.
    #[error(
        "Node {node} is locked by host {holder}, please retry after the current operation is completed."
    )]
    Locked {
        /// The node.
        node: String,
        /// The process.
        holder: String,
    },
    /// The verb is not possible in the node's state.
    #[error(
        "The requested action \"{verb}\" can not be performed on node \"{node}\" while it is in state \"{state}\".{hint}"
    )]
    NotInThisState {
        /// The node.
        node: String,
        /// The verb.
        verb: Verb,
        /// The state.
        state: ProvisionState,
        /// The possible verbs.
        hint: String,
    },
    /// The node is protected.
    #[error("node {node} is protected{reason}; unset `protected` to allow {verb}")]
    Protected {
        /// The node.
        node: String,
        /// The reason.
        reason: String,
        /// The verb.
        verb: Verb,
    },
    /// The node is retired.
    #[error("node {node} is retired and cannot be provided; unset `retired` first")]
    Retired {
        /// The node.
        node: String,
    },
    /// The steps are not acceptable.
    #[error(transparent)]
    Steps(#[from] StepError),
}

/// The event of a verb. `active` and `deploy`, `deleted` and `undeploy` are synonyms.
#[must_use]
pub const fn verb_event(verb: Verb) -> Event {
    match verb {
        Verb::Active | Verb::Deploy => Event::Deploy,
        Verb::Rebuild => Event::Rebuild,
        Verb::Deleted | Verb::Undeploy => Event::Delete,
        Verb::Manage => Event::Manage,
        Verb::Provide => Event::Provide,
        Verb::Inspect => Event::Inspect,
        Verb::Abort => Event::Abort,
        Verb::Clean => Event::Clean,
        Verb::Adopt => Event::Adopt,
        Verb::Rescue => Event::Rescue,
        Verb::Unrescue => Event::Unrescue,
        Verb::Unhold => Event::Unhold,
        Verb::Service => Event::Service,
    }
}

/// Whether the verb deploys an instance.
#[must_use]
pub const fn is_deployment(verb: Verb) -> bool {
    matches!(verb, Verb::Active | Verb::Deploy | Verb::Rebuild)
}

/// The flow of the steps that a request with this verb may contain.
#[must_use]
pub const fn requested_flow(verb: Verb) -> Option<StepFlow> {
    match verb {
        Verb::Clean => Some(StepFlow::Clean),
        Verb::Service => Some(StepFlow::Service),
        Verb::Active | Verb::Deploy | Verb::Rebuild => Some(StepFlow::Deploy),
        Verb::Deleted
        | Verb::Undeploy
        | Verb::Manage
        | Verb::Provide
        | Verb::Inspect
        | Verb::Abort
        | Verb::Adopt
        | Verb::Rescue
        | Verb::Unrescue
        | Verb::Unhold => None,
    }
}

/// The interfaces that are validated before a verb is accepted.
#[must_use]
pub const fn validated_interfaces(verb: Verb, state: ProvisionState) -> &'static [InterfaceKind] {
    use InterfaceKind::{Deploy, Inspect, Power, Rescue};
    match verb {
        Verb::Active | Verb::Deploy | Verb::Rebuild => &[Power, Deploy],
        Verb::Inspect => &[Power, Inspect],
        Verb::Rescue | Verb::Unrescue => &[Power, Rescue],
        Verb::Clean | Verb::Provide | Verb::Service => &[Power],
        Verb::Abort if matches!(state, ProvisionState::InspectWait) => &[Inspect],
        Verb::Abort
        | Verb::Deleted
        | Verb::Undeploy
        | Verb::Manage
        | Verb::Adopt
        | Verb::Unhold => &[],
    }
}

/// The traits that the instance requests.
#[must_use]
pub fn requested_traits(node: &Node) -> Vec<String> {
    match node.instance_info.get("traits") {
        Some(Value::Array(traits)) => {
            traits.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    }
}

/// The traits that the instance requests and the node does not have.
#[must_use]
pub fn missing_traits(node: &Node) -> Vec<String> {
    let requested = requested_traits(node).into_iter();
    requested.filter(|name| !node.traits.contains(name)).collect()
}

/// First check: deployments are rejected on nodes in maintenance, whatever their state.
pub fn check_maintenance(node: &Node, verb: Verb) -> Result<(), ProvisionRequestError> {
    if is_deployment(verb) && node.maintenance {
        Err(maintenance_error(node, verb))
    } else {
        Ok(())
    }
}

/// Second check: the verb must be possible in the node's state, and no process may be working on the
/// node.
pub fn check_verb(node: &Node, verb: Verb) -> Result<(), ProvisionRequestError> {
    let is_possible = next_state(node.provision_state, verb_event(verb)).is_some();
    if let Some(holder) = lock_holder(node) {
        return Err(ProvisionRequestError::Locked { node: node.label(), holder });
    }
    if is_possible {
        return Ok(());
    }
    Err(ProvisionRequestError::NotInThisState {
        node: node.label(),
        verb,
        state: node.provision_state,
        hint: possible_verbs(node.provision_state),
    })
}

/// The process that works on the node. A job that only waits for the agent or for an operator does
/// not count, so that it can be aborted.
fn lock_holder(node: &Node) -> Option<String> {
    if let Some(holder) = &node.reservation {
        return Some(holder.clone());
    }
    let is_working = node.work.as_ref().is_some_and(|work| !work.awaiting);
    let is_interruptible =
        matches!(state_class(node.provision_state), StateClass::Waiting | StateClass::Held);
    (is_working && !is_interruptible).then(|| "(not assigned yet)".to_owned())
}

fn possible_verbs(state: ProvisionState) -> String {
    let possible: Vec<&str> = Verb::ALL
        .iter()
        .filter(|verb| next_state(state, verb_event(**verb)).is_some())
        // Synonyms.
        .filter(|verb| !matches!(verb, Verb::Deploy | Verb::Undeploy))
        .map(|verb| verb.as_str())
        .collect();
    if possible.is_empty() {
        String::new()
    } else {
        format!(" Possible now: {}.", possible.join(", "))
    }
}

fn maintenance_error(node: &Node, verb: Verb) -> ProvisionRequestError {
    let reason = node.maintenance_reason.clone().unwrap_or_else(|| "no reason given".to_owned());
    ProvisionRequestError::Maintenance { node: node.label(), reason, verb }
}

/// The reason of transitions that a user requested.
const REQUESTED: &str = "requested";

/// Applies a provision request: runs all checks that depend on the node alone, then enters the first
/// state of the job. Changes nothing if the request is rejected.
pub fn request_provision(
    node: &mut Node,
    request: &ProvisionRequest,
    context: &JobContext,
    settings: &LifecycleSettings,
    now: Timestamp,
) -> Result<PendingEntries, ProvisionRequestError> {
    let verb = request.verb;
    check_maintenance(node, verb)?;
    check_verb(node, verb)?;
    check_policy(node, verb, settings)?;
    check_blocked_steps(request, &context.template_steps, settings)?;

    let mut entries = PendingEntries::default();
    entries.events.push(JournalEvent::Requested { target: verb.as_str().to_owned() });
    match verb {
        Verb::Abort => abort(node, now, settings, &mut entries),
        Verb::Unhold => unhold(node, now, &mut entries),
        Verb::Manage if node.provision_state != ProvisionState::Enroll => {
            enter(node, Event::Manage, REQUESTED, now, &mut entries);
            node.work = None;
        }
        Verb::Active
        | Verb::Deploy
        | Verb::Rebuild
        | Verb::Deleted
        | Verb::Undeploy
        | Verb::Manage
        | Verb::Provide
        | Verb::Inspect
        | Verb::Clean
        | Verb::Adopt
        | Verb::Rescue
        | Verb::Unrescue
        | Verb::Service => start_job(node, request, context, settings, now, &mut entries),
    }
    if is_deployment(verb) {
        match deployed_by(&request.actor) {
            Some(user) => node.driver_internal_info.set(DEPLOYED_BY_KEY, user),
            None => node.driver_internal_info.remove(DEPLOYED_BY_KEY),
        }
    }
    update_place(node);
    node.due_at = node.work.is_some().then_some(now);
    Ok(entries)
}

/// Third check: what the operator has forbidden for this node.
pub fn check_policy(
    node: &Node,
    verb: Verb,
    settings: &LifecycleSettings,
) -> Result<(), ProvisionRequestError> {
    let removes_instance = matches!(verb, Verb::Rebuild | Verb::Deleted | Verb::Undeploy);
    if removes_instance && node.protected {
        let reason =
            node.protected_reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        return Err(ProvisionRequestError::Protected { node: node.label(), reason, verb });
    }
    if verb == Verb::Provide && node.retired {
        return Err(ProvisionRequestError::Retired { node: node.label() });
    }
    let uses_machine = matches!(verb, Verb::Clean | Verb::Rescue | Verb::Unrescue | Verb::Service)
        || (verb == Verb::Provide && !settings.allow_provisioning_in_maintenance);
    let aborts_failed_service =
        verb == Verb::Abort && node.provision_state == ProvisionState::ServiceFail;
    if node.maintenance && (uses_machine || aborts_failed_service) {
        return Err(maintenance_error(node, verb));
    }
    Ok(())
}

/// Fails if the configuration blocks a step, or if a reserved step has bad arguments.
fn check_blocked_steps(
    request: &ProvisionRequest,
    template_steps: &[Step],
    settings: &LifecycleSettings,
) -> Result<(), StepError> {
    if let Some(flow) = verb_job(request.verb).and_then(WorkKind::flow) {
        check_requested(flow, &request.all_steps(), None, Ramdisk::Unknown, settings)?;
        check_requested(flow, template_steps, None, Ramdisk::Unknown, settings)?;
    }
    Ok(())
}

/// Checks the requested steps against those that the driver offers for the verb.
pub fn check_offered_steps(
    request: &ProvisionRequest,
    driver_steps: &AvailableSteps,
    settings: &LifecycleSettings,
) -> Result<(), ProvisionRequestError> {
    let Some(flow) = requested_flow(request.verb) else { return Ok(()) };
    let ramdisk = if request.runs_without_ramdisk(driver_steps) {
        Ramdisk::Disabled
    } else {
        Ramdisk::Booted
    };
    check_requested(flow, &request.all_steps(), Some(driver_steps), ramdisk, settings)?;
    Ok(())
}

/// The job that a verb starts.
const fn verb_job(verb: Verb) -> Option<WorkKind> {
    match verb {
        Verb::Active | Verb::Deploy => Some(WorkKind::Deploy),
        Verb::Rebuild => Some(WorkKind::Rebuild),
        Verb::Deleted | Verb::Undeploy => Some(WorkKind::TearDown),
        Verb::Manage => Some(WorkKind::Verify),
        Verb::Provide => Some(WorkKind::Clean),
        Verb::Inspect => Some(WorkKind::Inspect),
        Verb::Clean => Some(WorkKind::ManualClean),
        Verb::Adopt => Some(WorkKind::Adopt),
        Verb::Rescue => Some(WorkKind::Rescue),
        Verb::Unrescue => Some(WorkKind::Unrescue),
        Verb::Service => Some(WorkKind::Service),
        Verb::Abort | Verb::Unhold => None,
    }
}

fn start_job(
    node: &mut Node,
    request: &ProvisionRequest,
    context: &JobContext,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) {
    let Some(kind) = verb_job(request.verb) else { return };
    let steps = request.all_steps();
    let requested_steps = match kind.flow() {
        Some(StepFlow::Deploy) => merge_deploy_steps(&[&steps, &context.template_steps]),
        _ => steps,
    };
    node.work = Some(Work {
        requested_steps,
        disable_ramdisk: request.runs_without_ramdisk(&context.driver_steps),
        ..Work::new(context.work_id, kind, request.actor.clone(), now)
    });
    node.last_error = None;
    if let Some(flow) = kind.flow() {
        entries.info(flow_started(flow), format!("{kind} started"), None);
    }
    enter(node, verb_event(request.verb), REQUESTED, now, entries);
    // An agent of an earlier job is not trusted unless it may be reused. Without a recent heartbeat
    // it is not reused: the machine is booted again and may get another address.
    let is_reused = fast_track(node, settings)
        && node.agent.is_running(now, settings.agent_heartbeat_timeout());
    if kind == WorkKind::TearDown || !is_reused {
        clear_agent(node, entries);
    }
}

/// Ironic's history event type.
const fn flow_started(flow: StepFlow) -> &'static str {
    match flow {
        StepFlow::Clean => "cleaning_start",
        StepFlow::Deploy => "deploying_start",
        StepFlow::Service => "servicing_start",
        StepFlow::Verify => "verify_start",
    }
}

/// Stops the job; if the current step is not abortable, at the end of the step.
fn abort(
    node: &mut Node,
    now: Timestamp,
    settings: &LifecycleSettings,
    entries: &mut PendingEntries,
) {
    if node.provision_state == ProvisionState::ServiceFail {
        enter(node, Event::Abort, REQUESTED, now, entries);
        node.work = None;
        return;
    }
    if let Some(work) = &mut node.work {
        let cursor = work.cursor;
        let step = if work.stage == Stage::Run { work.steps.get_mut(cursor) } else { None };
        if let Some(step) = step
            && !step.abortable
            && work.awaiting
        {
            step.abort_after = true;
            return;
        }
    }
    let job = node.work.as_ref().map_or("job", |work| work.kind.as_str());
    let message = if node.provision_state == ProvisionState::InspectWait {
        "Inspection was aborted by request.".to_owned()
    } else {
        format!("By request, the {job} operation was aborted.")
    };
    fail(node, Event::Abort, &ActionFailure::new(message), settings, now, entries);
}

/// Ends a hold: the job continues after the step that held it.
fn unhold(node: &mut Node, now: Timestamp, entries: &mut PendingEntries) {
    let has_agent = node.agent.url.is_some();
    if !enter(node, Event::Unhold, REQUESTED, now, entries) {
        return;
    }
    let state = node.provision_state;
    let Some(work) = &mut node.work else { return };
    // With an agent on the machine the job continues at its next heartbeat, which proves that it
    // still runs; without one there is nothing to wait for.
    work.heartbeat_received = !has_agent || state == ProvisionState::ServiceWait;
    let reason = WaitReason::AgentHeartbeat;
    let deadline = Deadline::Never;
    node.wait = Some(Wait { reason, deadline, next_action_at: None, state });
}
