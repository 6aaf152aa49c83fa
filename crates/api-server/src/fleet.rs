// SPDX-License-Identifier: Apache-2.0
//! All nodes in one answer, with the few fields that tell how a fleet stands, and what changed since.
//!
//! Ten thousand nodes are rows of values under one list of names: a quarter of what objects would be,
//! and compressed where the client takes it. The answer says up to which entry of the journal it is
//! true, so a client that follows the journal from there, and asks for the changes since, has every
//! node as it is without asking for each.

use std::collections::BTreeSet;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING};
use lifecycle::{event_of, next_state};
use node_model::{Node, NodeId, ProvisionState, Timestamp, Verb};
use serde::Serialize;
use serde_json::{Map, Value};
use store::{Columns, NodeColumn, NodeFilter, Query, Reader};

use crate::call::Call;
use crate::event_stream::sequence;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, UNVERSIONED};

/// Past so many entries, or nodes, everything is told instead of what changed.
const MOST_ENTRIES: u32 = 20_000;
const MOST_CHANGED: usize = 1_000;
/// How much of an error is told; the node has the rest.
const LONGEST_ERROR: usize = 240;
/// Smaller answers are not worth compressing.
const WORTH_COMPRESSING: usize = 8 * 1024;

const QUERY: &[&str] = &["after", "node"];

pub(crate) const ROUTES: &[Route] = &[Route::get(
    "/v1/ferrite/fleet",
    "Show how all nodes stand, or those that changed",
    handler!(fleet),
)
.since(UNVERSIONED)
.query(QUERY)];

/// The names of a row's values, in their order.
const FIELDS: &[&str] = &[
    "uuid",
    "name",
    "provision_state",
    "target_provision_state",
    "power_state",
    "target_power_state",
    "maintenance",
    "fault",
    "owner",
    "resource_class",
    "conductor_group",
    "driver",
    "rack",
    "why",
    "until",
    "error",
    "since",
];

/// A node, as the values of [`FIELDS`].
#[derive(Serialize)]
struct Row<'n>(
    NodeId,
    Option<&'n str>,
    &'static str,
    Option<&'static str>,
    Option<&'static str>,
    Option<&'static str>,
    bool,
    Option<&'static str>,
    Option<&'n str>,
    Option<&'n str>,
    &'n str,
    &'n str,
    Option<String>,
    Option<&'static str>,
    Option<String>,
    Option<&'n str>,
    Option<String>,
);

/// Which nodes are asked for.
enum Asked {
    All,
    After(i64),
    One(Ident),
}

/// Which nodes are told of.
enum Told {
    /// All there are.
    All,
    /// These, as far as they still exist.
    These(Vec<NodeId>),
}

async fn fleet(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, QUERY)?;
    let asked = match (call.query_value("node"), call.query_value("after")) {
        (Some(node), _) => Asked::One(Ident::of_text(&call, node)),
        (None, Some(after)) => Asked::After(sequence("after", after)?),
        (None, None) => Asked::All,
    };
    let compresses = call.page.accepts_gzip;
    let scan = call.app.store.scan(move |reader| {
        let body = written(reader, &asked)?;
        Ok::<_, Refusal>(Packed::new(body, compresses))
    });
    Ok(scan.await?.reply())
}

/// A large answer, compressed if the client takes that and it is worth it. To be made where the
/// answer is read, as it takes a while.
pub(crate) struct Packed {
    body: Vec<u8>,
    is_compressed: bool,
}

impl Packed {
    pub(crate) fn new(body: Vec<u8>, compresses: bool) -> Self {
        match compresses.then(|| compressed(&body)).flatten() {
            Some(smaller) => Self { body: smaller, is_compressed: true },
            None => Self { body, is_compressed: false },
        }
    }

    pub(crate) fn reply(self) -> Reply {
        let reply =
            Reply::ok(self.body).with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.is_compressed {
            reply.with_header(CONTENT_ENCODING, HeaderValue::from_static("gzip"))
        } else {
            reply
        }
    }
}

fn written(reader: &mut Reader<'_>, asked: &Asked) -> Result<Vec<u8>, Refusal> {
    // First where the journal ends: what happens while nodes are read is told again with the next
    // changes, and nothing is missed.
    let end = reader.journal_end()?;
    let told = match asked {
        Asked::All => Told::All,
        Asked::One(ident) => Told::These(vec![ident.find::<Node>(reader)?.id]),
        Asked::After(after) => match reader.journal_nodes(*after, end, MOST_ENTRIES)? {
            Some(changed) if changed.len() <= MOST_CHANGED => Told::These(changed),
            Some(_) | None => Told::All,
        },
    };
    let (ids, mut gone) = match &told {
        Told::All => (None, BTreeSet::new()),
        Told::These(ids) => (Some(ids.clone()), ids.iter().copied().collect()),
    };
    let mut body = Vec::with_capacity(64 * 1024);
    let fields = serde_json::json!(FIELDS);
    let whole = matches!(told, Told::All);
    body.extend_from_slice(
        format!(r#"{{"seq":{end},"whole":{whole},"fields":{fields},"nodes":["#).as_bytes(),
    );
    if ids.as_ref().is_none_or(|ids| !ids.is_empty()) {
        let filter = NodeFilter { ids, ..NodeFilter::default() };
        let query = Query { filter, page: store::Page::default(), select: columns() };
        let mut is_first = true;
        reader.list(&query, |node| {
            gone.remove(&node.id);
            if !std::mem::take(&mut is_first) {
                body.push(b',');
            }
            serde_json::to_writer(&mut body, &row(node)).expect("memory takes everything");
        })?;
    }
    let gone = serde_json::json!(gone.iter().map(ToString::to_string).collect::<Vec<_>>());
    body.extend_from_slice(format!(r#"],"gone":{gone}"#).as_bytes());
    if !matches!(asked, Asked::After(_)) {
        body.extend_from_slice(format!(r#","verbs":{}"#, Value::Object(verbs())).as_bytes());
    }
    body.push(b'}');
    Ok(body)
}

fn columns() -> Columns<Node> {
    Columns::of(&[
        NodeColumn::Uuid,
        NodeColumn::Name,
        NodeColumn::ProvisionState,
        NodeColumn::TargetProvisionState,
        NodeColumn::PowerState,
        NodeColumn::TargetPowerState,
        NodeColumn::Maintenance,
        NodeColumn::Fault,
        NodeColumn::Owner,
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

fn row(node: &Node) -> Row<'_> {
    let moment = |moment: Timestamp| moment.to_string();
    Row(
        node.id,
        node.name.as_deref(),
        node.provision_state.as_str(),
        node.target_provision_state.map(|state| state.as_str()),
        node.power_state.map(|state| state.as_str()),
        node.target_power_state.map(|state| state.as_str()),
        node.maintenance,
        node.fault.map(|fault| fault.as_str()),
        node.owner.as_deref(),
        node.resource_class.as_deref(),
        &node.conductor_group,
        &node.driver,
        rack(node),
        node.wait.map(|wait| wait.why.as_str()),
        node.wait.and_then(|wait| wait.until.moment()).map(moment),
        node.last_error.as_deref().map(|error| cut(error, LONGEST_ERROR)),
        node.provision_updated_at.map(moment),
    )
}

/// Where the machine stands, if somebody wrote it down. Few do, so few objects are parsed.
fn rack(node: &Node) -> Option<String> {
    [&node.properties, &node.extra].into_iter().find_map(|object| {
        if !object.as_str().contains("\"rack\"") {
            return None;
        }
        match object.parse().get("rack")? {
            Value::String(rack) if !rack.is_empty() => Some(cut(rack, 255).to_owned()),
            Value::Number(rack) => Some(rack.to_string()),
            Value::String(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Array(_)
            | Value::Object(_) => None,
        }
    })
}

fn cut(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

/// Which verbs each state allows.
fn verbs() -> Map<String, Value> {
    let of = |state: ProvisionState| {
        let possible =
            Verb::ALL.iter().filter(|verb| next_state(state, event_of(**verb)).is_some());
        Value::from(possible.map(|verb| verb.as_str()).collect::<Vec<_>>())
    };
    ProvisionState::ALL.iter().map(|state| (state.as_str().to_owned(), of(*state))).collect()
}

fn compressed(body: &[u8]) -> Option<Vec<u8>> {
    if body.len() < WORTH_COMPRESSING {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).and_then(|()| encoder.finish()).ok()
}
