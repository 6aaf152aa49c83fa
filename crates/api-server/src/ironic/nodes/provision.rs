// SPDX-License-Identifier: Apache-2.0
//! `PUT …/states/provision`: requests a verb.
//!
//! The order of checks is Ironic's, because clients can observe it: form of the body, node, version of
//! the verb, maintenance, state, arguments of the verb. All checks use one database read; the conductor
//! checks again when it writes.

use access_policy::PolicyTarget;
use http::Method;
use ironic_wire::{
    ApiVersion, ConfigDriveInput, ProvisionArguments, ProvisionBody, WireError,
    check_abort_version, check_verb_version, verb_gate,
};
use lifecycle::ProvisionRequest;
use node_model::{Actor, Node, NodeId, Runbook, Step, Verb};
use serde_json::Value;
use store::{NodeFilter, ResourceQuery, StoreReader};

use super::states::states_url;
use crate::handler;
use crate::ironic::resource::ResourceIdent;
use crate::server::access::CallerAccess;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, BodyLimit};

/// First version in which runbooks have traits; before, the runbook's name was its trait.
const RUNBOOK_TRAITS_SINCE: u16 = 112;

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::new(
    Method::PUT,
    "/v1/nodes/{node}/states/provision",
    "Request a change of the provision state",
    handler!(provision),
)
.resource("baremetal:node:set_provision_state")
.body_limit(BodyLimit::Provision)];

async fn provision(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let body = ProvisionBody::parse(&request.body)?;
    let check = ProvisionCheck {
        node: ResourceIdent::from_path(&request, "node"),
        runbook: body.runbook().map(|name| runbook_ident(&request, name)),
        version: request.version,
        actor: request.actor(),
        access: request.access.clone(),
    };
    let (id, provision_request) =
        request.app.store.read(move |reader| check.run(reader, body)).await?;
    request.app.conductor.provision(id, provision_request).await?;
    Ok(ApiResponse::accepted().with_location(&states_url(&request)))
}

/// The parts of a provision request that are not in its body.
struct ProvisionCheck {
    node: ResourceIdent,
    runbook: Option<ResourceIdent>,
    version: ApiVersion,
    actor: Actor,
    access: CallerAccess,
}

/// A runbook that the caller requests.
pub(crate) fn runbook_ident(request: &ApiRequest, name: &str) -> ResourceIdent {
    ResourceIdent::from_text(request, name).with_rule("baremetal:runbook:use")
}

impl ProvisionCheck {
    /// Makes all checks that do not need the node's driver.
    fn run(
        self,
        reader: &mut StoreReader<'_>,
        body: ProvisionBody,
    ) -> Result<(NodeId, ProvisionRequest), ApiError> {
        let node: Node = self.node.find(reader)?;
        let Some(verb) = body.verb else { return Err(unknown_verb(&node, &body.target).into()) };
        let state_first = verb_gate(verb).state_first;
        if !state_first {
            check_verb_version(verb, self.version)?;
        }
        lifecycle::check_maintenance(&node, verb).map_err(conductor::ConductorError::from)?;
        lifecycle::check_verb(&node, verb).map_err(conductor::ConductorError::from)?;
        if state_first {
            check_verb_version(verb, self.version)?;
        }
        if verb == Verb::Abort {
            check_abort_version(node.provision_state, self.version)?;
        }
        let content = body.arguments(verb, self.version)?;
        if self.access.is_restricted() {
            check_steps(reader, &node, verb, &content.steps, &self.access)?;
        }
        let runbook = match &self.runbook {
            None => None,
            Some(ident) => Some(approved_runbook(reader, ident, &node, self.version)?),
        };
        Ok((node.id, provision_request(verb, content, runbook, self.actor)))
    }
}

/// Fails with 403 if the caller may not request the steps, or not for all child nodes on which they
/// run.
fn check_steps(
    reader: &mut StoreReader<'_>,
    node: &Node,
    verb: Verb,
    steps: &[Step],
    access: &CallerAccess,
) -> Result<(), ApiError> {
    let target = PolicyTarget::node(node.owner.as_deref(), node.lessee.as_deref());
    if verb == Verb::Clean && !steps.is_empty() {
        access.require("baremetal:node:set_provision_state:clean_steps", &target)?;
    }
    if verb == Verb::Service && !steps.is_empty() {
        access.require("baremetal:node:set_provision_state:service_steps", &target)?;
    }
    for step in steps {
        access.require_step(&step.interface, &step.step, &target)?;
    }
    if steps.iter().any(|step| step.execute_on_child_nodes) {
        let filter = NodeFilter { parent_node: Some(node.id), ..NodeFilter::default() };
        for child in reader.collect(&ResourceQuery::<Node>::filtered(filter))? {
            let id = child.id.to_string();
            let is_affected = steps.iter().any(|step| {
                let only = &step.limit_child_node_execution;
                step.execute_on_child_nodes && (only.is_empty() || only.contains(&id))
            });
            if is_affected {
                let target = PolicyTarget::node(child.owner.as_deref(), child.lessee.as_deref());
                access.require("baremetal:node:set_provision_state", &target)?;
            }
        }
    }
    Ok(())
}

/// As in Ironic, an unknown verb fails like one that is not allowed in the state.
fn unknown_verb(node: &Node, target: &str) -> WireError {
    let id = node.id.to_string();
    match &node.reservation {
        Some(holder) => WireError::node_locked(&id, holder),
        None => WireError::invalid_state(target, &id, node.provision_state.as_str()),
    }
}

/// The runbook. Fails if its traits do not allow the node.
pub(crate) fn approved_runbook(
    reader: &mut StoreReader<'_>,
    ident: &ResourceIdent,
    node: &Node,
    version: ApiVersion,
) -> Result<Runbook, ApiError> {
    let runbook: Runbook = ident.find(reader)?;
    if !version.has(RUNBOOK_TRAITS_SINCE) {
        if node.traits.contains(&runbook.name) {
            return Ok(runbook);
        }
        return Err(WireError::invalid(format!(
            "Runbook {} may not be run on node {}: the node does not have the trait of that name; \
             an administrator can add it.",
            runbook.name, node.id
        ))
        .into());
    }
    if runbook.traits.is_empty() {
        return Err(WireError::invalid(format!(
            "Runbook {} may not be run on any node, because it has no traits; an administrator \
             can add some.",
            runbook.id
        ))
        .into());
    }
    if runbook.traits.iter().any(|name| node.traits.contains(name)) {
        return Ok(runbook);
    }
    Err(WireError::invalid(format!(
        "Runbook {} may not be run on node {}: the node has none of the runbook's traits {}; an \
         administrator can add one.",
        runbook.id,
        node.id,
        runbook.traits.join(", ")
    ))
    .into())
}

/// The request for the conductor.
pub(crate) fn provision_request(
    verb: Verb,
    content: ProvisionArguments,
    runbook: Option<Runbook>,
    actor: Actor,
) -> ProvisionRequest {
    ProvisionRequest {
        verb,
        steps: content.steps,
        runbook,
        disable_ramdisk: content.disable_ramdisk,
        configdrive: content.configdrive.map(|drive| match drive {
            ConfigDriveInput::Text(text) => Value::String(text.reveal().clone()),
            ConfigDriveInput::Parts(parts) => Value::Object(parts.reveal().clone()),
        }),
        rescue_password: content.rescue_password.map(|password| password.reveal().clone()),
        actor,
    }
}
