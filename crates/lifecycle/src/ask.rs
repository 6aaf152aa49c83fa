// SPDX-License-Identifier: Apache-2.0
//! What may be asked of a node, in the order in which Ironic checks it, and what asking does.

use node_model::{
    Actor, Event, Happening, JsonObject, Node, ProvisionState, Stage, Step, StepFlow, Timestamp,
    Verb, Wait, WaitReason, Work, WorkKind,
};
use uuid::Uuid;

use crate::enter::{Ledger, enter};
use crate::record::{fail, fast_track, forget_agent};
use crate::steps::{Ramdisk, StepError, check_requested, merge_deploy_steps};
use crate::transitions::{Rest, next_state, rest};
use crate::{Failure, Settings};

/// A provision verb with everything that came with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The verb.
    pub verb: Verb,
    /// Clean, deploy or service steps the user gave, as the verb has it.
    pub steps: Vec<Step>,
    /// Deploy steps that templates add, because the instance asks for their traits.
    pub template_steps: Vec<Step>,
    /// Do without the ramdisk.
    pub disable_ramdisk: bool,
    /// Who asks.
    pub actor: Actor,
    /// Identity of the job, should one begin.
    pub work_id: Uuid,
}

/// Why a verb is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The machine is in maintenance.
    #[error("node {node} is in maintenance ({reason}); clear it first, then ask for {verb} again")]
    Maintenance {
        /// Which machine.
        node: String,
        /// Why it is.
        reason: String,
        /// What was asked.
        verb: Verb,
    },
    /// Another process is working on it.
    #[error(
        "Node {node} is locked by host {holder}, please retry after the current operation is completed."
    )]
    Locked {
        /// Which machine.
        node: String,
        /// Who works on it.
        holder: String,
    },
    /// The verb makes no sense in its state.
    #[error(
        "The requested action \"{verb}\" can not be performed on node \"{node}\" while it is in state \"{state}\".{hint}"
    )]
    NotInThisState {
        /// Which machine.
        node: String,
        /// What was asked.
        verb: Verb,
        /// Where it stands.
        state: ProvisionState,
        /// What could be asked instead.
        hint: String,
    },
    /// It is protected.
    #[error("node {node} is protected{reason}; unset `protected` to allow {verb}")]
    Protected {
        /// Which machine.
        node: String,
        /// Why.
        reason: String,
        /// What was asked.
        verb: Verb,
    },
    /// It is retired.
    #[error("node {node} is retired and cannot be provided; unset `retired` first")]
    Retired {
        /// Which machine.
        node: String,
    },
    /// Its steps are not acceptable.
    #[error(transparent)]
    Steps(#[from] StepError),
}

/// The event a verb is. `active` and `deploy`, `deleted` and `undeploy` are the same thing.
#[must_use]
pub const fn event_of(verb: Verb) -> Event {
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

/// First check: deployments are refused on machines in maintenance, whatever their state.
pub fn check_maintenance(node: &Node, verb: Verb) -> Result<(), Refusal> {
    let deploys = matches!(verb, Verb::Active | Verb::Deploy | Verb::Rebuild);
    if deploys && node.maintenance { Err(maintenance(node, verb)) } else { Ok(()) }
}

/// Second check: the state must know the verb, and nobody may be working on the machine.
pub fn check_verb(node: &Node, verb: Verb) -> Result<(), Refusal> {
    let actionable = next_state(node.provision_state, event_of(verb)).is_some();
    if let Some(holder) = busy(node) {
        return Err(Refusal::Locked { node: node.label(), holder });
    }
    if actionable {
        return Ok(());
    }
    Err(Refusal::NotInThisState {
        node: node.label(),
        verb,
        state: node.provision_state,
        hint: hint(node.provision_state),
    })
}

/// Who is working on the node, if anybody is. A job that only waits for the agent or for an
/// operator does not count: that is when it may be aborted.
fn busy(node: &Node) -> Option<String> {
    if let Some(holder) = &node.reservation {
        return Some(holder.clone());
    }
    let working = node.work.as_ref().is_some_and(|work| !work.awaiting);
    let interruptible = matches!(rest(node.provision_state), Rest::Waiting | Rest::Held);
    (working && !interruptible).then(|| "the conductor that takes it next".to_owned())
}

fn hint(state: ProvisionState) -> String {
    let possible: Vec<&str> = Verb::ALL
        .iter()
        .filter(|verb| next_state(state, event_of(**verb)).is_some())
        // Those that are the same as another.
        .filter(|verb| !matches!(verb, Verb::Deploy | Verb::Undeploy))
        .map(|verb| verb.as_str())
        .collect();
    if possible.is_empty() {
        String::new()
    } else {
        format!(" Possible now: {}.", possible.join(", "))
    }
}

fn maintenance(node: &Node, verb: Verb) -> Refusal {
    let reason = node.maintenance_reason.clone().unwrap_or_else(|| "no reason given".to_owned());
    Refusal::Maintenance { node: node.label(), reason, verb }
}

/// Asks `node` for a verb: checks everything that can be decided from the node alone, then enters
/// the first state of the job. Nothing is changed if it is refused.
pub fn ask(
    node: &mut Node,
    request: &Ask,
    settings: &Settings,
    now: Timestamp,
) -> Result<Ledger, Refusal> {
    let verb = request.verb;
    check_maintenance(node, verb)?;
    check_verb(node, verb)?;
    check_policy(node, verb, settings)?;
    check_steps(request, settings)?;

    let mut ledger = Ledger::default();
    ledger.happened.push(Happening::Asked { target: verb.as_str().to_owned() });
    match verb {
        Verb::Abort => abort(node, now, settings, &mut ledger),
        Verb::Unhold => unhold(node, now, &mut ledger),
        Verb::Manage if node.provision_state != ProvisionState::Enroll => {
            enter(node, Event::Manage, "asked for", now, &mut ledger);
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
        | Verb::Service => begin(node, request, settings, now, &mut ledger),
    }
    node.due_at = node.work.is_some().then_some(now);
    Ok(ledger)
}

/// Third check: what the operator has forbidden for this machine.
pub fn check_policy(node: &Node, verb: Verb, settings: &Settings) -> Result<(), Refusal> {
    let takes_away = matches!(verb, Verb::Rebuild | Verb::Deleted | Verb::Undeploy);
    if takes_away && node.protected {
        let reason =
            node.protected_reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        return Err(Refusal::Protected { node: node.label(), reason, verb });
    }
    if verb == Verb::Provide && node.retired {
        return Err(Refusal::Retired { node: node.label() });
    }
    let wants_upkeep = verb == Verb::Clean
        || (verb == Verb::Provide && !settings.allow_provisioning_in_maintenance);
    let leaves_failure = verb == Verb::Abort && node.provision_state == ProvisionState::ServiceFail;
    if node.maintenance && (wants_upkeep || leaves_failure) {
        return Err(maintenance(node, verb));
    }
    Ok(())
}

fn check_steps(request: &Ask, settings: &Settings) -> Result<(), Refusal> {
    if let Some(flow) = kind_of(request.verb).and_then(WorkKind::flow) {
        check_requested(flow, &request.steps, None, Ramdisk::Unknown, settings)?;
        check_requested(flow, &request.template_steps, None, Ramdisk::Unknown, settings)?;
    }
    Ok(())
}

/// The job a verb begins.
const fn kind_of(verb: Verb) -> Option<WorkKind> {
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

fn begin(node: &mut Node, request: &Ask, settings: &Settings, now: Timestamp, ledger: &mut Ledger) {
    let Some(kind) = kind_of(request.verb) else { return };
    let requested = match kind.flow() {
        Some(StepFlow::Deploy) => merge_deploy_steps(&[&request.steps, &request.template_steps]),
        _ => request.steps.clone(),
    };
    node.work = Some(new_work(kind, requested, request, now));
    node.last_error = None;
    if let Some(flow) = kind.flow() {
        ledger.info(flow_started(flow), format!("{kind} started"), None);
    }
    enter(node, event_of(request.verb), "asked for", now, ledger);
    // An agent left over from an earlier job is not believed, unless it may be reused. One that was
    // not heard lately is not: the machine is booted anew, and may have another address then.
    let is_reused =
        fast_track(node, settings) && node.agent.is_fresh(now, settings.agent_is_fresh());
    if kind == WorkKind::TearDown || !is_reused {
        forget_agent(node, ledger);
    }
}

const fn flow_started(flow: StepFlow) -> &'static str {
    match flow {
        StepFlow::Clean => "cleaning_start",
        StepFlow::Deploy => "deploying_start",
        StepFlow::Service => "servicing_start",
        StepFlow::Verify => "verify_start",
    }
}

fn new_work(kind: WorkKind, requested_steps: Vec<Step>, request: &Ask, now: Timestamp) -> Work {
    Work {
        id: request.work_id,
        kind,
        stage: Stage::Prepare,
        steps: Vec::new(),
        cursor: 0,
        awaiting: false,
        heard: false,
        requested_steps,
        disable_ramdisk: request.disable_ramdisk,
        started_at: now,
        since: now,
        asked_by: request.actor.clone(),
        notes: JsonObject::empty(),
        retry: None,
    }
}

/// Stops what is going on; or, when the current step must not be interrupted, right after it.
fn abort(node: &mut Node, now: Timestamp, settings: &Settings, ledger: &mut Ledger) {
    if node.provision_state == ProvisionState::ServiceFail {
        enter(node, Event::Abort, "asked for", now, ledger);
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
    fail(node, Event::Abort, &Failure::new(message), settings, now, ledger);
}

/// Ends a hold: the job goes on where it was held.
fn unhold(node: &mut Node, now: Timestamp, ledger: &mut Ledger) {
    let agent_listens = node.agent.url.is_some();
    if !enter(node, Event::Unhold, "asked for", now, ledger) {
        return;
    }
    let state = node.provision_state;
    let Some(work) = &mut node.work else { return };
    // The held step is over. With an agent on the machine the job goes on at its next call, when
    // it is known to be still there; without one there is nothing to wait for.
    work.heard = !agent_listens || state == ProvisionState::ServiceWait;
    node.wait =
        Some(Wait { why: WaitReason::AgentHeartbeat, until: node_model::Deadline::Never, state });
}
