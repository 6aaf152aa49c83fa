// SPDX-License-Identifier: Apache-2.0
//! `PUT …/states/provision`: asks a node for a verb.
//!
//! What is checked, and in which order, is Ironic's, because clients can see it: the shape of the
//! body, the node, the version of the verb, maintenance, the state, and only then what came with
//! the verb. All of that is one read of the database; the conductor checks again when it writes.

use conductor::ProvisionRequest;
use http::Method;
use ironic_wire::{
    ApiVersion, ConfigDrive, ProvisionContent, ProvisionRequest as Asked, WireError,
    check_abort_version, check_verb_version, gate_of,
};
use node_model::{Actor, Node, NodeId, Runbook, Verb};
use serde_json::Value;
use store::Reader;

use super::states::location;
use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{BodyLimit, Route};

/// From this version on a runbook has traits of its own; before, its name was its trait.
const RUNBOOK_TRAITS_SINCE: u16 = 112;

pub(crate) const ROUTES: &[Route] = &[Route::new(
    Method::PUT,
    "/v1/nodes/{node}/states/provision",
    "Ask for a change of provision state",
    handler!(provision),
)
.body_limit(BodyLimit::Provision)];

async fn provision(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let asked = Asked::parse(&call.body)?;
    let question = Question {
        node: Ident::of_path(&call, "node"),
        runbook: asked.runbook().map(|name| Ident::of_text(&call, name)),
        version: call.version,
        actor: call.actor(),
    };
    let (id, request) = call.app.store.read(move |reader| question.judge(reader, asked)).await?;
    call.app.conductor.provision(id, request).await?;
    Ok(Reply::accepted().with_location(&location(&call)))
}

/// Who asks what of which node, apart from the verb and what goes with it.
struct Question {
    node: Ident,
    runbook: Option<Ident>,
    version: ApiVersion,
    actor: Actor,
}

impl Question {
    /// Checks everything that can be said without the node's driver.
    fn judge(
        self,
        reader: &mut Reader<'_>,
        asked: Asked,
    ) -> Result<(NodeId, ProvisionRequest), Refusal> {
        let node: Node = self.node.find(reader)?;
        let Some(verb) = asked.verb else { return Err(not_a_verb(&node, &asked.target).into()) };
        let state_first = gate_of(verb).state_first;
        if !state_first {
            check_verb_version(verb, self.version)?;
        }
        lifecycle::check_maintenance(&node, verb).map_err(conductor::Error::from)?;
        lifecycle::check_verb(&node, verb).map_err(conductor::Error::from)?;
        if state_first {
            check_verb_version(verb, self.version)?;
        }
        if verb == Verb::Abort {
            check_abort_version(node.provision_state, self.version)?;
        }
        let content = asked.content(verb, self.version)?;
        let runbook = match &self.runbook {
            None => None,
            Some(ident) => Some(approved_runbook(reader, ident, &node, self.version)?),
        };
        Ok((node.id, request(verb, content, runbook, self.actor)))
    }
}

/// A word nobody knows is answered like a verb that does not fit the state.
fn not_a_verb(node: &Node, target: &str) -> WireError {
    let id = node.id.to_string();
    match &node.reservation {
        Some(holder) => WireError::node_locked(&id, holder),
        None => WireError::invalid_state(target, &id, node.provision_state.as_str()),
    }
}

/// The runbook, if it may be run on the node.
pub(crate) fn approved_runbook(
    reader: &mut Reader<'_>,
    ident: &Ident,
    node: &Node,
    version: ApiVersion,
) -> Result<Runbook, Refusal> {
    let runbook: Runbook = ident.find(reader)?;
    if !version.has(RUNBOOK_TRAITS_SINCE) {
        if node.traits.contains(&runbook.name) {
            return Ok(runbook);
        }
        return Err(WireError::invalid(format!(
            "Runbook {} may not be run on node {}: the node does not have the trait of that name; \
             ask an administrator to add it.",
            runbook.name, node.id
        ))
        .into());
    }
    if runbook.traits.is_empty() {
        return Err(WireError::invalid(format!(
            "Runbook {} may not be run on any node, because it has no traits; ask an administrator \
             to add some.",
            runbook.id
        ))
        .into());
    }
    if runbook.traits.iter().any(|name| node.traits.contains(name)) {
        return Ok(runbook);
    }
    Err(WireError::invalid(format!(
        "Runbook {} may not be run on node {}: the node has none of the runbook's traits {}; ask an \
         administrator to add one.",
        runbook.id,
        node.id,
        runbook.traits.join(", ")
    ))
    .into())
}

/// The request as the conductor takes it.
pub(crate) fn request(
    verb: Verb,
    content: ProvisionContent,
    runbook: Option<Runbook>,
    actor: Actor,
) -> ProvisionRequest {
    ProvisionRequest {
        verb,
        steps: content.steps,
        runbook,
        disable_ramdisk: content.disable_ramdisk,
        configdrive: content.configdrive.map(|drive| match drive {
            ConfigDrive::Text(text) => Value::String(text.reveal().clone()),
            ConfigDrive::Parts(parts) => Value::Object(parts.reveal().clone()),
        }),
        rescue_password: content.rescue_password.map(|password| password.reveal().clone()),
        actor,
    }
}
