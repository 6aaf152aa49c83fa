// SPDX-License-Identifier: Apache-2.0
//! Which NIC is connected to which switch port: LLDP neighbours compared with the configuration of the
//! ports (`local_link_connection`).

use std::collections::BTreeMap;

use node_model::{CableEnd, Neighbour};
use serde_json::{Map, Value, json};
use store::CableFilter;

use crate::handler;
use crate::ironic::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, MaybeCompressed, UNVERSIONED};

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/ferrite/topology",
    "Show which nodes are connected to which switch ports",
    handler!(topology),
)
.rule("ferrite:topology:get")
.since(UNVERSIONED)
.query(&["node", "switch"])];

/// How the detected neighbour relates to the configured one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkState {
    /// Detected, and the configuration is the same or empty.
    Detected,
    /// Detected, and the configuration is different.
    Moved,
    /// Configured, but inspection detected no neighbour.
    Missing,
    /// Configured; the node was not inspected yet.
    Configured,
}

/// A switch in the response.
#[derive(Default)]
struct TopologySwitch {
    name: Option<String>,
    description: Option<String>,
    management_addresses: Vec<String>,
    ports: Vec<Value>,
}

async fn topology(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["node", "switch"])?;
    let switch = request.query_value("switch").map(str::to_owned);
    let node_ident =
        request.query_value("node").map(|text| ResourceIdent::from_text(&request, text));
    let accepts_gzip = request.browser.accepts_gzip;
    let body = request
        .app
        .store
        .scan(move |reader| {
            let node = match &node_ident {
                None => None,
                Some(ident) => Some(ident.find::<node_model::Node>(reader)?.id),
            };
            let mut switches: BTreeMap<String, TopologySwitch> = BTreeMap::new();
            let filter = CableFilter { switch: switch.clone(), node };
            for end in reader.detected_cables(&filter)? {
                add_detected(&mut switches, &end);
            }
            for end in reader.undetected_cables(node)? {
                add_undetected(&mut switches, &end, switch.as_deref());
            }
            Ok::<_, ApiError>(MaybeCompressed::new(topology_body(switches), accepts_gzip))
        })
        .await?;
    Ok(body.into_response())
}

fn add_detected(switches: &mut BTreeMap<String, TopologySwitch>, end: &CableEnd) {
    let Some(neighbour) = &end.observed else { return };
    let configured = end.configured.parse();
    let state =
        if is_consistent(&configured, neighbour) { LinkState::Detected } else { LinkState::Moved };
    if !switches.contains_key(&neighbour.switch_id) {
        switches.insert(neighbour.switch_id.clone(), TopologySwitch::default());
    }
    let Some(switch) = switches.get_mut(&neighbour.switch_id) else { return };
    // Ports may report different switch data: the first one is used.
    switch.name = switch.name.take().or_else(|| neighbour.switch_name.clone());
    switch.description = switch.description.take().or_else(|| neighbour.switch_description.clone());
    if switch.management_addresses.is_empty() {
        switch.management_addresses.clone_from(&neighbour.management_addresses);
    }
    let mut port = port_json(end, &neighbour.port_id, state, configured);
    port.insert("description".to_owned(), neighbour.port_description.clone().into());
    port.insert("interface".to_owned(), neighbour.interface.clone().into());
    port.extend(neighbour.detail.parse());
    switch.ports.push(Value::Object(port));
}

fn add_undetected(
    switches: &mut BTreeMap<String, TopologySwitch>,
    end: &CableEnd,
    switch_filter: Option<&str>,
) {
    let configured = end.configured.parse();
    let text = |key: &str| configured.get(key).and_then(Value::as_str).map(str::to_owned);
    let Some(id) = text("switch_id") else { return };
    let name = text("switch_info");
    if switch_filter.is_some_and(|filter| filter != id && Some(filter) != name.as_deref()) {
        return;
    }
    let state = if end.observed_at.is_some() { LinkState::Missing } else { LinkState::Configured };
    let port = port_json(end, &text("port_id").unwrap_or_default(), state, configured);
    let switch = switches.entry(id).or_default();
    switch.name = switch.name.take().or(name);
    switch.ports.push(Value::Object(port));
}

/// Whether the configuration is empty or matches the neighbour.
fn is_consistent(configured: &Map<String, Value>, neighbour: &Neighbour) -> bool {
    let matches = |key: &str, accepted: &[Option<&str>]| match configured.get(key) {
        Some(Value::String(text)) if !text.is_empty() => {
            accepted.iter().flatten().any(|value| value.eq_ignore_ascii_case(text))
        }
        Some(_) | None => true,
    };
    matches("switch_id", &[Some(&neighbour.switch_id), neighbour.switch_name.as_deref()])
        && matches("port_id", &[Some(&neighbour.port_id)])
}

fn port_json(
    end: &CableEnd,
    port_id: &str,
    state: LinkState,
    configured: Map<String, Value>,
) -> Map<String, Value> {
    let value = json!({
        "id": port_id,
        "state": state.as_str(),
        "node_uuid": end.node_id,
        "node_name": end.node_name,
        "port_uuid": end.port_id,
        "mac": end.address.as_str(),
        "local_link_connection": configured,
        "observed_at": end.observed_at.map(|at| at.to_string()),
    });
    match value {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

fn topology_body(switches: BTreeMap<String, TopologySwitch>) -> Vec<u8> {
    let rows: Vec<Value> = switches
        .into_iter()
        .map(|(id, switch)| {
            json!({
                "id": id,
                "name": switch.name,
                "description": switch.description,
                "management_addresses": switch.management_addresses,
                "ports": switch.ports,
            })
        })
        .collect();
    json!({"switches": rows}).to_string().into_bytes()
}

impl LinkState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Detected => "detected",
            Self::Moved => "moved",
            Self::Missing => "missing",
            Self::Configured => "configured",
        }
    }
}
