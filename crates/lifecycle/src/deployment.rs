// SPDX-License-Identifier: Apache-2.0
//! What a deployment needs next: a machine, its deployment, the end of its lease, its removal.

use std::time::Duration;

use node_model::{
    Actor, Allocation, AllocationState, Deployment, DeploymentState, Event, LeaseEndAction, Node,
    ProvisionState, Timestamp,
};
use serde_json::{Map, Value, json};

use crate::transitions::{StateClass, next_state, state_class};

/// The key of `driver_internal_info` with the user and project that requested the instance.
pub const DEPLOYED_BY_KEY: &str = "deployed_by";

/// The time after which a removal that is not possible now is tried again.
const BLOCKED_RETRY: Duration = Duration::from_secs(60);

/// What a deployment needs next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeploymentStep {
    /// Nothing until this time, or until its machine or a request changes something.
    Wait {
        /// When to look again; `None` if only a request can change it.
        until: Option<Timestamp>,
    },
    /// Find a machine for its allocation.
    Allocate,
    /// Write the instance to the reserved machine.
    PrepareNode,
    /// Request the deployment of the machine.
    RequestDeploy,
    /// Its machine has got further: record the new state.
    Enter(DeploymentState),
    /// Record the failure; a machine that was not touched is released.
    Fail(String),
    /// Warn that the lease ends soon.
    WarnOfLeaseEnd,
    /// The lease has ended.
    EndLease(LeaseEndAction),
    /// Request the removal of the instance.
    RequestUndeploy,
    /// Release a machine without an instance.
    ReleaseNode,
    /// The removal is not possible now, for this reason.
    Blocked {
        /// The reason.
        why: String,
        /// When to try again.
        until: Timestamp,
    },
    /// Delete the record: nothing is left of it.
    Remove,
}

/// Decides what a deployment needs next. `allocation` is the one with its id, `node` the machine of the
/// allocation, or the machine of the deployment if the allocation is gone.
#[must_use]
pub fn next_deployment_step(
    deployment: &Deployment,
    allocation: Option<&Allocation>,
    node: Option<&Node>,
    now: Timestamp,
) -> DeploymentStep {
    let node = node.filter(|node| deployment.runs_on(node));
    if deployment.state == DeploymentState::Deleting {
        return removal(node, now);
    }
    if let Some(step) = lease_step(deployment, now) {
        return step;
    }
    match (deployment.state, node) {
        (DeploymentState::Allocating, _) => match allocation {
            None => DeploymentStep::Fail("its allocation was deleted".to_owned()),
            Some(allocation) => match (allocation.state, node) {
                (AllocationState::Allocating, _) => DeploymentStep::Allocate,
                (AllocationState::Error, _) => DeploymentStep::Fail(
                    allocation.last_error.clone().unwrap_or_else(|| "no machine found".to_owned()),
                ),
                (AllocationState::Active, Some(_)) => DeploymentStep::PrepareNode,
                (AllocationState::Active, None) => lost_node(),
            },
        },
        (DeploymentState::Failed, None) => wait_for_lease(deployment),
        (DeploymentState::Failed, Some(node)) if !is_running(node.provision_state) => {
            wait_for_lease(deployment)
        }
        (_, None) => lost_node(),
        (_, Some(node)) => follow_node(deployment, node, now),
    }
}

/// The user and project that requested an instance, for `driver_internal_info`.
pub(crate) fn deployed_by(actor: &Actor) -> Option<Value> {
    match actor {
        Actor::User { name: None, project: None, .. }
        | Actor::Agent { .. }
        | Actor::Machine { .. }
        | Actor::Conductor { .. } => None,
        Actor::User { name, project, request_id } => {
            Some(json!({"user": name, "project": project, "request_id": request_id}))
        }
    }
}

/// The config drive of a deployment, from `instance` with its secrets; `None` if it would be empty.
#[must_use]
pub fn deployment_config_drive(
    deployment: &Deployment,
    instance: &Map<String, Value>,
    node: &Node,
) -> Option<Value> {
    let keys = instance.get("ssh_keys").and_then(Value::as_array);
    let user_data = instance.get("user_data");
    let network_data = instance.get("network_data");
    if keys.is_none() && user_data.is_none() && network_data.is_none() && deployment.name.is_none()
    {
        return None;
    }
    let label = node.label();
    let hostname = deployment.name.as_deref().unwrap_or(&label);
    let keys: Map<String, Value> = keys
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(number, key)| (number.to_string(), key.clone()))
        .collect();
    let mut drive = json!({
        "meta_data": {
            "uuid": node.id.to_string(),
            "name": label,
            "hostname": hostname,
            "public_keys": keys,
            "launch_index": 0,
            "availability_zone": "",
            "files": [],
            "meta": {},
        }
    });
    if let Some(user_data) = user_data {
        drive["user_data"] = user_data.clone();
    }
    if let Some(network_data) = network_data {
        drive["network_data"] = network_data.clone();
    }
    Some(drive)
}

fn lost_node() -> DeploymentStep {
    DeploymentStep::Fail("the machine was released or its instance was removed".to_owned())
}

fn lease_step(deployment: &Deployment, now: Timestamp) -> Option<DeploymentStep> {
    if deployment.expired_at.is_none() && deployment.expires_at.is_some_and(|end| end <= now) {
        return Some(DeploymentStep::EndLease(deployment.expiry_action));
    }
    let is_warning_due = deployment.warn_at().is_some_and(|at| at <= now);
    (is_warning_due && deployment.warned_at.is_none() && deployment.expired_at.is_none())
        .then_some(DeploymentStep::WarnOfLeaseEnd)
}

/// Waits for the next event of the lease.
fn wait_for_lease(deployment: &Deployment) -> DeploymentStep {
    if deployment.expired_at.is_some() {
        return DeploymentStep::Wait { until: None };
    }
    let warning = deployment.warn_at().filter(|_| deployment.warned_at.is_none());
    DeploymentStep::Wait { until: warning.or(deployment.expires_at) }
}

/// Whether a machine in this state runs its instance, or returns to it.
const fn is_running(state: ProvisionState) -> bool {
    use ProvisionState::{
        Active, AdoptFail, Adopting, Rescue, RescueFail, RescueWait, Rescuing, ServiceFail,
        ServiceHold, ServiceWait, Servicing, UnrescueFail, Unrescuing,
    };
    matches!(
        state,
        Active
            | Adopting
            | AdoptFail
            | Rescue
            | Rescuing
            | RescueWait
            | RescueFail
            | Unrescuing
            | UnrescueFail
            | Servicing
            | ServiceWait
            | ServiceFail
            | ServiceHold
    )
}

/// The step for the state of the machine.
fn follow_node(deployment: &Deployment, node: &Node, now: Timestamp) -> DeploymentStep {
    use ProvisionState::{Available, DeployFail, DeployHold, DeployWait, Deploying, Error};
    let enter = |state: DeploymentState, otherwise: DeploymentStep| {
        if deployment.state == state { otherwise } else { DeploymentStep::Enter(state) }
    };
    let state = node.provision_state;
    if is_running(state) {
        return enter(DeploymentState::Active, wait_for_lease(deployment));
    }
    if matches!(state, Deploying | DeployWait | DeployHold) {
        return enter(DeploymentState::Deploying, DeploymentStep::Wait { until: Some(now) });
    }
    if matches!(state, DeployFail | Error) {
        let error = node.last_error.clone();
        return DeploymentStep::Fail(error.unwrap_or_else(|| "the deployment failed".to_owned()));
    }
    let can_deploy = state == Available && deployment.state == DeploymentState::Reserved;
    if can_deploy && node.reservation.is_none() {
        return DeploymentStep::RequestDeploy;
    }
    // Locked, being removed by a request on the node, or changed by hand.
    DeploymentStep::Wait { until: Some(now) }
}

/// The next step of a removal.
fn removal(node: Option<&Node>, now: Timestamp) -> DeploymentStep {
    let Some(node) = node else { return DeploymentStep::Remove };
    let state = node.provision_state;
    if node.reservation.is_some() {
        return DeploymentStep::Wait { until: Some(now) };
    }
    if next_state(state, Event::Delete).is_some() {
        return DeploymentStep::RequestUndeploy;
    }
    match state_class(state) {
        StateClass::Working | StateClass::Waiting => DeploymentStep::Wait { until: Some(now) },
        StateClass::Stable => DeploymentStep::ReleaseNode,
        StateClass::Failed | StateClass::Held => DeploymentStep::Blocked {
            why: format!(
                "the machine {} is in state {state}, from which its instance cannot be removed",
                node.label()
            ),
            until: now.plus(BLOCKED_RETRY),
        },
    }
}

#[cfg(test)]
mod tests {
    use node_model::{DeploymentId, JsonObject, NodeId};
    use uuid::Uuid;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000_000);
    const ID: Uuid = Uuid::from_u128(7);

    fn deployment(state: DeploymentState) -> Deployment {
        Deployment {
            name: Some("web".to_owned()),
            state,
            project: Some("shop".to_owned()),
            user: Some("ann".to_owned()),
            request_id: "req-1".to_owned(),
            resource_class: Some("big".to_owned()),
            due_at: None,
            ..Deployment::new(DeploymentId(ID), NOW)
        }
    }

    fn allocation(state: AllocationState) -> Allocation {
        Allocation {
            id: node_model::AllocationId(ID),
            created_at: NOW,
            updated_at: None,
            name: None,
            state,
            node_id: None,
            resource_class: None,
            traits: Vec::new(),
            candidate_nodes: Vec::new(),
            last_error: Some("none free".to_owned()),
            owner: None,
            extra: JsonObject::empty(),
        }
    }

    fn node(state: ProvisionState) -> Node {
        let mut node = Node::new(NodeId(Uuid::from_u128(1)), "fake-hardware", NOW);
        node.name = Some("n1".to_owned());
        node.provision_state = state;
        node.instance_uuid = Some(ID);
        node.last_error = Some("disk on fire".to_owned());
        node
    }

    const NOW_AGAIN: DeploymentStep = DeploymentStep::Wait { until: Some(NOW) };
    const IDLE: DeploymentStep = DeploymentStep::Wait { until: None };

    #[test]
    fn searches_a_machine() {
        let pending = deployment(DeploymentState::Allocating);
        let free = Node { instance_uuid: None, ..node(ProvisionState::Available) };
        let held = node(ProvisionState::Available);
        let lost = lost_node();
        let gone = DeploymentStep::Fail("its allocation was deleted".to_owned());
        let none = DeploymentStep::Fail("none free".to_owned());
        for (state, node, expected) in [
            (None, None, gone),
            (Some(AllocationState::Allocating), None, DeploymentStep::Allocate),
            (Some(AllocationState::Error), None, none),
            (Some(AllocationState::Active), Some(&held), DeploymentStep::PrepareNode),
            (Some(AllocationState::Active), Some(&free), lost),
        ] {
            let allocation = state.map(allocation);
            let step = next_deployment_step(&pending, allocation.as_ref(), node, NOW);
            assert_eq!(step, expected, "{state:?}");
        }
    }

    #[test]
    fn follows_its_machine() {
        use DeploymentState::{Active, Deploying, Failed, Reserved};
        use ProvisionState as State;
        let on_fire = || DeploymentStep::Fail("disk on fire".to_owned());
        for (state, node_state, expected) in [
            (Reserved, State::Available, DeploymentStep::RequestDeploy),
            (Reserved, State::Deploying, DeploymentStep::Enter(Deploying)),
            (Reserved, State::Active, DeploymentStep::Enter(Active)),
            (Reserved, State::DeployFail, on_fire()),
            (Deploying, State::DeployWait, NOW_AGAIN),
            (Deploying, State::DeployFail, on_fire()),
            (Deploying, State::Active, DeploymentStep::Enter(Active)),
            (Active, State::Active, IDLE),
            (Active, State::Rescue, IDLE),
            (Active, State::Deploying, DeploymentStep::Enter(Deploying)),
            (Active, State::Deleting, NOW_AGAIN),
            (Failed, State::DeployFail, IDLE),
            (Failed, State::Active, DeploymentStep::Enter(Active)),
        ] {
            let step = next_deployment_step(&deployment(state), None, Some(&node(node_state)), NOW);
            assert_eq!(step, expected, "{state} {node_state}");
        }
        for state in [Reserved, Deploying, Active] {
            let other = Node { instance_uuid: None, ..node(State::Available) };
            let step = next_deployment_step(&deployment(state), None, Some(&other), NOW);
            assert_eq!(step, lost_node(), "{state}");
        }
        let failed = next_deployment_step(&deployment(Failed), None, None, NOW);
        assert_eq!(failed, IDLE);
    }

    #[test]
    fn removes_the_instance_and_then_the_record() {
        use ProvisionState as State;
        let deleting = deployment(DeploymentState::Deleting);
        for (node_state, expected) in [
            (State::Active, DeploymentStep::RequestUndeploy),
            (State::DeployFail, DeploymentStep::RequestUndeploy),
            (State::Deploying, NOW_AGAIN),
            (State::Deleting, NOW_AGAIN),
            (State::Available, DeploymentStep::ReleaseNode),
            (State::Manageable, DeploymentStep::ReleaseNode),
        ] {
            let step = next_deployment_step(&deleting, None, Some(&node(node_state)), NOW);
            assert_eq!(step, expected, "{node_state}");
        }
        let leased = Node { reservation: Some("here".to_owned()), ..node(State::Active) };
        assert_eq!(next_deployment_step(&deleting, None, Some(&leased), NOW), NOW_AGAIN);
        let cleaned = Node { instance_uuid: None, ..node(State::Cleaning) };
        let step = next_deployment_step(&deleting, None, Some(&cleaned), NOW);
        assert_eq!(step, DeploymentStep::Remove);
    }

    #[test]
    fn handles_leases() {
        let hour = Duration::from_secs(3600);
        let running = node(ProvisionState::Active);
        let leased = |expires_in: i64, warn_seconds: i64| Deployment {
            expires_at: Some(Timestamp(NOW.0 + expires_in * 1_000_000)),
            warn_seconds,
            ..deployment(DeploymentState::Active)
        };
        let step =
            |deployment: &Deployment| next_deployment_step(deployment, None, Some(&running), NOW);
        let until = |at| DeploymentStep::Wait { until: Some(at) };
        assert_eq!(step(&leased(7200, 3600)), until(NOW.plus(hour)));
        assert_eq!(step(&leased(3600, 3600)), DeploymentStep::WarnOfLeaseEnd);
        let warned = Deployment { warned_at: Some(NOW), ..leased(3600, 3600) };
        assert_eq!(step(&warned), until(NOW.plus(hour)));
        assert_eq!(step(&leased(3600, 0)), until(NOW.plus(hour)));
        assert_eq!(step(&leased(0, 60)), DeploymentStep::EndLease(LeaseEndAction::Undeploy));
        let notified = Deployment { expired_at: Some(NOW), ..leased(-5, 60) };
        assert_eq!(step(&notified), IDLE);
        // A lease also ends while no machine was found.
        let pending = Deployment { state: DeploymentState::Allocating, ..leased(0, 0) };
        let searching = allocation(AllocationState::Allocating);
        assert_eq!(
            next_deployment_step(&pending, Some(&searching), None, NOW),
            DeploymentStep::EndLease(LeaseEndAction::Undeploy)
        );
    }

    #[test]
    fn builds_the_config_drive() {
        let instance = json!({"ssh_keys": ["ssh-ed25519 AAAA"], "user_data": "#cloud-config"});
        let instance = instance.as_object().unwrap();
        let named = deployment(DeploymentState::Reserved);
        let machine = node(ProvisionState::Available);
        let drive = deployment_config_drive(&named, instance, &machine).unwrap();
        assert_eq!(drive["meta_data"]["hostname"], "web");
        assert_eq!(drive["meta_data"]["public_keys"], json!({"0": "ssh-ed25519 AAAA"}));
        assert_eq!(drive["user_data"], "#cloud-config");
        let unnamed = Deployment { name: None, ..named };
        assert_eq!(deployment_config_drive(&unnamed, &Map::new(), &machine), None);
    }
}
