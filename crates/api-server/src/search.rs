// SPDX-License-Identifier: Apache-2.0
//! Finding a node by what is written on the machine.

use ironic_wire::WireError;
use node_model::Node;
use serde_json::{Value, json};
use store::Trace;

use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, UNVERSIONED};

/// How many are told of each kind.
const MOST: u32 = 10;
/// Shorter texts are in everything, longer ones in nothing.
const SHORTEST: usize = 3;
const LONGEST: usize = 100;

pub(crate) const ROUTES: &[Route] = &[Route::get(
    "/v1/ferrite/search",
    "Find nodes by the address of a card or by their serial number",
    handler!(search),
)
.since(UNVERSIONED)
.query(&["text"])];

async fn search(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &["text"])?;
    let Some(text) = call.query_value("text").map(|text| text.trim().to_lowercase()) else {
        return Err(WireError::missing("text").into());
    };
    if !(SHORTEST..=LONGEST).contains(&text.chars().count()) {
        let problem = format!("it must have {SHORTEST} to {LONGEST} characters");
        return Err(WireError::invalid_field("text", &problem).into());
    }
    let found = call
        .app
        .store
        .scan(move |reader| {
            let mut rows = Vec::new();
            for (id, trace) in reader.nodes_by_trace(&text, MOST)? {
                let node: Option<Node> = reader.get(id)?;
                let (what, value) = match trace {
                    Trace::Mac(mac) => ("MAC address", mac.to_string()),
                    Trace::Serial(serial) => ("serial number", serial),
                };
                rows.push(json!({
                    "node_uuid": id.to_string(),
                    "node_name": node.and_then(|node| node.name),
                    "what": what,
                    "value": value,
                }));
            }
            Ok::<_, Refusal>(rows)
        })
        .await?;
    Ok(Reply::ok(json!({"found": Value::from(found)}).to_string().into_bytes()))
}
