// SPDX-License-Identifier: Apache-2.0
//! Which node is plugged into which port of which switch, as its cards heard it, next to what the
//! ports say.

use std::collections::BTreeMap;

use node_model::{CableEnd, Neighbour};
use serde_json::{Map, Value, json};
use store::CableFilter;

use crate::call::Call;
use crate::fleet::Packed;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, UNVERSIONED};

pub(crate) const ROUTES: &[Route] = &[Route::get(
    "/v1/ferrite/topology",
    "Show which nodes are plugged into which ports of which switches",
    handler!(topology),
)
.since(UNVERSIONED)
.query(&["node", "switch"])];

/// How what was heard relates to what the port says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It was heard, and the port says the same or nothing.
    Heard,
    /// It was heard, and the port says something else.
    Moved,
    /// The node listened and heard nothing where the port says there is something.
    Missing,
    /// The port says so; the node has not listened yet.
    Configured,
}

/// A switch as the answer shows it.
#[derive(Default)]
struct Switch {
    name: Option<String>,
    description: Option<String>,
    management_addresses: Vec<String>,
    ports: Vec<Value>,
}

async fn topology(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &["node", "switch"])?;
    let switch = call.query_value("switch").map(str::to_owned);
    let named = call.query_value("node").map(|text| Ident::of_text(&call, text));
    let compresses = call.page.accepts_gzip;
    let packed = call
        .app
        .store
        .scan(move |reader| {
            let node = match &named {
                None => None,
                Some(ident) => Some(ident.find::<node_model::Node>(reader)?.id),
            };
            let mut switches: BTreeMap<String, Switch> = BTreeMap::new();
            let filter = CableFilter { switch: switch.clone(), node };
            for end in reader.cables_heard(&filter)? {
                add_heard(&mut switches, &end);
            }
            for end in reader.cables_not_heard(node)? {
                add_silent(&mut switches, &end, switch.as_deref());
            }
            Ok::<_, Refusal>(Packed::new(written(switches), compresses))
        })
        .await?;
    Ok(packed.reply())
}

fn add_heard(switches: &mut BTreeMap<String, Switch>, end: &CableEnd) {
    let Some(heard) = &end.heard else { return };
    let configured = end.configured.parse();
    let state = if agrees(&configured, heard) { State::Heard } else { State::Moved };
    if !switches.contains_key(&heard.switch_id) {
        switches.insert(heard.switch_id.clone(), Switch::default());
    }
    let Some(switch) = switches.get_mut(&heard.switch_id) else { return };
    // Of what different ports say about their switch, the first counts.
    switch.name = switch.name.take().or_else(|| heard.switch_name.clone());
    switch.description = switch.description.take().or_else(|| heard.switch_description.clone());
    if switch.management_addresses.is_empty() {
        switch.management_addresses.clone_from(&heard.management_addresses);
    }
    let mut port = shown(end, &heard.port_id, state, configured);
    port.insert("description".to_owned(), heard.port_description.clone().into());
    port.insert("interface".to_owned(), heard.interface.clone().into());
    port.extend(heard.detail.parse());
    switch.ports.push(Value::Object(port));
}

fn add_silent(switches: &mut BTreeMap<String, Switch>, end: &CableEnd, wanted: Option<&str>) {
    let configured = end.configured.parse();
    let text = |key: &str| configured.get(key).and_then(Value::as_str).map(str::to_owned);
    let Some(id) = text("switch_id") else { return };
    let name = text("switch_info");
    if wanted.is_some_and(|wanted| wanted != id && Some(wanted) != name.as_deref()) {
        return;
    }
    let state = if end.listened_at.is_some() { State::Missing } else { State::Configured };
    let port = shown(end, &text("port_id").unwrap_or_default(), state, configured);
    let switch = switches.entry(id).or_default();
    switch.name = switch.name.take().or(name);
    switch.ports.push(Value::Object(port));
}

/// Whether the port says nothing else than what was heard.
fn agrees(configured: &Map<String, Value>, heard: &Neighbour) -> bool {
    let says = |key: &str, accepted: &[Option<&str>]| match configured.get(key) {
        Some(Value::String(text)) if !text.is_empty() => {
            accepted.iter().flatten().any(|known| known.eq_ignore_ascii_case(text))
        }
        Some(_) | None => true,
    };
    says("switch_id", &[Some(&heard.switch_id), heard.switch_name.as_deref()])
        && says("port_id", &[Some(&heard.port_id)])
}

fn shown(
    end: &CableEnd,
    port_id: &str,
    state: State,
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
        "listened_at": end.listened_at.map(|at| at.to_string()),
    });
    match value {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

fn written(switches: BTreeMap<String, Switch>) -> Vec<u8> {
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

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Heard => "heard",
            Self::Moved => "moved",
            Self::Missing => "missing",
            Self::Configured => "configured",
        }
    }
}
