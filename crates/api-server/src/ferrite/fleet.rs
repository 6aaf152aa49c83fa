// SPDX-License-Identifier: Apache-2.0
//! All nodes in one response with the most important fields, and the nodes that changed since.
//!
//! Nodes are arrays of values under one list of field names, which takes a quarter of the space of
//! objects. The response contains the journal position it reflects: a client that follows the journal
//! from there and requests the changes is always up to date.

use std::collections::BTreeSet;

use lifecycle::{next_state, verb_event};
use node_model::{JsonObject, Node, NodeId, ProvisionState, Timestamp, Verb};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use store::{Columns, NodeColumn, NodeFilter, ResourceQuery, StoreReader};

use super::events::parse_sequence;
use crate::handler;
use crate::ironic::redaction::HiddenFields;
use crate::ironic::resource::ResourceIdent;
use crate::server::access::CallerAccess;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, MaybeCompressed, UNVERSIONED};

/// With more journal entries or changed nodes, the response contains all nodes instead of the changes.
const MAX_ENTRIES: u32 = 20_000;
const MAX_CHANGED: usize = 1_000;
/// Maximum length of an error in characters; the node has the complete text.
const MAX_ERROR_CHARS: usize = 240;
/// Maximum length of a rack in characters.
const MAX_RACK_CHARS: usize = 255;

const QUERY: &[&str] = &["after", "node"];

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/ferrite/fleet",
    "Show the state of all nodes, or of those that changed",
    handler!(fleet),
)
.list("baremetal:node:list_all", "baremetal:node:list")
.since(UNVERSIONED)
.query(QUERY)];

/// Defines a row type that is serialised as an array of its values. `FIELDS` has their names, in the
/// same order.
macro_rules! fleet_row {
    ($(#[$doc:meta])* struct $name:ident<$lifetime:lifetime> { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        struct $name<$lifetime> {
            $($field: $type,)*
        }

        impl $name<'_> {
            const FIELDS: &'static [&'static str] = &[$(stringify!($field)),*];
        }

        impl Serialize for $name<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut values = serializer.serialize_seq(Some(Self::FIELDS.len()))?;
                $(values.serialize_element(&self.$field)?;)*
                values.end()
            }
        }
    };
}

fleet_row! {
    /// A node in the response.
    struct FleetRow<'n> {
        uuid: NodeId,
        name: Option<&'n str>,
        provision_state: &'static str,
        target_provision_state: Option<&'static str>,
        power_state: Option<&'static str>,
        target_power_state: Option<&'static str>,
        maintenance: bool,
        fault: Option<&'static str>,
        owner: Option<&'n str>,
        resource_class: Option<&'n str>,
        conductor_group: &'n str,
        driver: &'n str,
        rack: Option<String>,
        wait_reason: Option<&'static str>,
        wait_until: Option<String>,
        next_action_at: Option<String>,
        error: Option<&'n str>,
        since: Option<String>,
    }
}

/// Which nodes a request selects.
enum FleetSelection {
    All,
    ChangedAfter(i64),
    One(ResourceIdent),
}

async fn fleet(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(QUERY)?;
    let project = request.access.list_project(None)?;
    let selection = match (request.query_value("node"), request.query_value("after")) {
        (Some(node), _) => FleetSelection::One(ResourceIdent::from_text(&request, node)),
        (None, Some(after)) => {
            let after = parse_sequence("after", after)?;
            // The list of deleted nodes would contain the ids of other projects' nodes.
            if project.is_some() {
                FleetSelection::All
            } else {
                FleetSelection::ChangedAfter(after)
            }
        }
        (None, None) => FleetSelection::All,
    };
    let accepts_gzip = request.browser.accepts_gzip;
    let access = request.access.clone();
    let scan = request.app.store.scan(move |reader| {
        let body = fleet_body(reader, &selection, project.as_deref(), &access)?;
        Ok::<_, ApiError>(MaybeCompressed::new(body, accepts_gzip))
    });
    Ok(scan.await?.into_response())
}

fn fleet_body(
    reader: &mut StoreReader<'_>,
    selection: &FleetSelection,
    project: Option<&str>,
    access: &CallerAccess,
) -> Result<Vec<u8>, ApiError> {
    // Read the journal position first: changes during the read are then part of the next response.
    let end = reader.journal_end()?;
    // `None` selects all nodes.
    let ids = match selection {
        FleetSelection::All => None,
        FleetSelection::One(ident) => Some(vec![ident.find::<Node>(reader)?.id]),
        FleetSelection::ChangedAfter(after) => {
            let changed = reader.journal_nodes(*after, end, MAX_ENTRIES)?;
            changed.filter(|changed| changed.len() <= MAX_CHANGED)
        }
    };
    let is_complete = ids.is_none();
    let mut deleted: BTreeSet<NodeId> = ids.iter().flatten().copied().collect();
    let mut body = Vec::with_capacity(64 * 1024);
    let fields = serde_json::json!(FleetRow::FIELDS);
    body.extend_from_slice(
        format!(r#"{{"seq":{end},"complete":{is_complete},"fields":{fields},"nodes":["#).as_bytes(),
    );
    if ids.as_ref().is_none_or(|ids| !ids.is_empty()) {
        let project = project.map(str::to_owned);
        let filter = NodeFilter { ids, project, ..NodeFilter::default() };
        let page = store::ResourcePage::default();
        let query = ResourceQuery { filter, page, select: fleet_columns() };
        let mut is_first = true;
        reader.list(&query, |node| {
            deleted.remove(&node.id);
            if !std::mem::take(&mut is_first) {
                body.push(b',');
            }
            serde_json::to_writer(&mut body, &FleetRow::new(node, access))
                .expect("writing to a Vec");
        })?;
    }
    let deleted = serde_json::json!(deleted.iter().map(ToString::to_string).collect::<Vec<_>>());
    body.extend_from_slice(format!(r#"],"deleted":{deleted}"#).as_bytes());
    if !matches!(selection, FleetSelection::ChangedAfter(_)) {
        let verbs = Value::Object(verbs_by_state());
        body.extend_from_slice(format!(r#","verbs":{verbs}"#).as_bytes());
    }
    body.push(b'}');
    Ok(body)
}

/// The columns that [`FleetRow::new`] reads.
fn fleet_columns() -> Columns<Node> {
    Columns::only(&[
        NodeColumn::Uuid,
        NodeColumn::Name,
        NodeColumn::ProvisionState,
        NodeColumn::TargetProvisionState,
        NodeColumn::PowerState,
        NodeColumn::TargetPowerState,
        NodeColumn::Maintenance,
        NodeColumn::Fault,
        NodeColumn::Owner,
        NodeColumn::Lessee,
        NodeColumn::ResourceClass,
        NodeColumn::ConductorGroup,
        NodeColumn::Driver,
        NodeColumn::Extra,
        NodeColumn::Properties,
        NodeColumn::Wait,
        NodeColumn::LastError,
        NodeColumn::ProvisionUpdatedAt,
    ])
}

impl<'n> FleetRow<'n> {
    fn new(node: &'n Node, access: &CallerAccess) -> Self {
        let text = |at: Timestamp| at.to_string();
        Self {
            uuid: node.id,
            name: node.name.as_deref(),
            provision_state: node.provision_state.as_str(),
            target_provision_state: node.target_provision_state.map(|state| state.as_str()),
            power_state: node.power_state.map(|state| state.as_str()),
            target_power_state: node.target_power_state.map(|state| state.as_str()),
            maintenance: node.maintenance,
            fault: node.fault.map(|fault| fault.as_str()),
            owner: node.owner.as_deref(),
            resource_class: node.resource_class.as_deref(),
            conductor_group: &node.conductor_group,
            driver: &node.driver,
            rack: rack(node),
            wait_reason: node.wait.map(|wait| wait.reason.as_str()),
            wait_until: node.wait.and_then(|wait| wait.deadline.timestamp()).map(text),
            next_action_at: node.wait.and_then(|wait| wait.next_action_at).map(text),
            error: visible_error(node, access).map(|error| truncate(error, MAX_ERROR_CHARS)),
            since: node.provision_updated_at.map(text),
        }
    }
}

/// The error of a node, if the caller may see it.
fn visible_error<'n>(node: &'n Node, access: &CallerAccess) -> Option<&'n str> {
    let error = node.last_error.as_deref()?;
    (!HiddenFields::of(node, access).last_error).then_some(error)
}

/// The rack of a machine: `rack` in `properties` or `extra`, else the node's name up to its last
/// hyphen (`r01-u07` is in `r01`).
fn rack(node: &Node) -> Option<String> {
    recorded_rack(&node.properties)
        .or_else(|| recorded_rack(&node.extra))
        .or_else(|| rack_of_name(node.name.as_deref()?).map(str::to_owned))
}

fn recorded_rack(object: &JsonObject) -> Option<String> {
    #[derive(Deserialize)]
    struct RackField {
        #[serde(default)]
        rack: Value,
    }
    match serde_json::from_str(object.as_str()).ok()? {
        RackField { rack: Value::String(rack) } if !rack.is_empty() => {
            Some(truncate(&rack, MAX_RACK_CHARS).to_owned())
        }
        RackField { rack: Value::Number(rack) } => Some(rack.to_string()),
        RackField { .. } => None,
    }
}

fn rack_of_name(name: &str) -> Option<&str> {
    name.rsplit_once('-').map(|(rack, _)| rack).filter(|rack| !rack.is_empty())
}

/// The first `max` characters.
fn truncate(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

/// The verbs that each provision state allows.
fn verbs_by_state() -> Map<String, Value> {
    let verbs = |state: ProvisionState| {
        let allowed =
            Verb::ALL.iter().filter(|verb| next_state(state, verb_event(**verb)).is_some());
        Value::from(allowed.map(|verb| verb.as_str()).collect::<Vec<_>>())
    };
    ProvisionState::ALL.iter().map(|state| (state.as_str().to_owned(), verbs(*state))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_rack_in_json_or_in_the_name() {
        let rack_of = |text: &str| recorded_rack(&JsonObject::from_stored(text));
        for (object, expected) in [
            (r#"{"rack":"r1","other":1}"#, Some("r1")),
            (r#"{"rack":7}"#, Some("7")),
            (r#"{"rack":""}"#, None),
            (r#"{"rack":null}"#, None),
            (r#"{"rack":["r1"]}"#, None),
            (r#"{"location":{"rack":"r1"}}"#, None),
            ("{}", None),
        ] {
            assert_eq!(rack_of(object).as_deref(), expected, "{object}");
        }
        for (name, expected) in
            [("r01-u07", Some("r01")), ("dc1-r2-u3", Some("dc1-r2")), ("plain", None), ("-x", None)]
        {
            assert_eq!(rack_of_name(name), expected, "{name}");
        }
    }
}
