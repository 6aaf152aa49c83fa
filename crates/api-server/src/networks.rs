// SPDX-License-Identifier: Apache-2.0
//! The networks on which this process answers DHCP, and who has which address there.

use std::collections::BTreeMap;

use boot_plans::{Client, LeaseKept};
use node_model::{NodeId, Port};
use serde_json::{Value, json};
use store::{Columns, PortColumn, PortFilter, Query, Reader};

use crate::audit::names;
use crate::call::Call;
use crate::fleet::Packed;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, UNVERSIONED};

/// The most leases in one answer, the latest.
const MOST: usize = 10_000;

pub(crate) const ROUTES: &[Route] = &[Route::get(
    "/v1/ferrite/dhcp",
    "List the networks that DHCP is answered on, and who has which address",
    handler!(dhcp),
)
.since(UNVERSIONED)];

async fn dhcp(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let Some(boot) = call.app.boot.clone() else {
        let body = json!({"enabled": false, "networks": [], "leases": []});
        return Ok(Reply::ok(body.to_string().into_bytes()));
    };
    let served = boot.clone();
    // It reads files.
    let read = tokio::task::spawn_blocking(move || served.leases()).await;
    let (mut leases, problem) = match read {
        Ok(Ok(leases)) => (leases, None),
        Ok(Err(error)) => (Vec::new(), Some(error.to_string())),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    leases.sort_by(|a, b| b.until.cmp(&a.until).then_with(|| a.address.cmp(&b.address)));
    let count = leases.len();
    leases.truncate(MOST);
    let (now, compresses) = (call.now(), call.page.accepts_gzip);
    let packed = call
        .app
        .store
        .scan(move |reader| {
            let owners = owners(reader, &leases)?;
            let rows: Vec<Value> = leases
                .iter()
                .map(|lease| {
                    let mac = lease.client.mac();
                    let owner = mac.as_ref().and_then(|mac| owners.get(mac));
                    let state = match (&lease.client, lease.until > now) {
                        (Client::Nobody, true) => "taken",
                        (_, true) => "leased",
                        (_, false) => "ended",
                    };
                    json!({
                        "address": lease.address,
                        "mac": mac,
                        "client": lease.client.to_string(),
                        "state": state,
                        "until": lease.until.to_string(),
                        "node_uuid": owner.map(|(id, _)| id.to_string()),
                        "node_name": owner.and_then(|(_, name)| name.as_ref()),
                    })
                })
                .collect();
            let body = json!({
                "enabled": true,
                "networks": boot.networks(),
                "leases": rows,
                "count": count,
                "problem": problem,
            });
            Ok::<_, Refusal>(Packed::new(body.to_string().into_bytes(), compresses))
        })
        .await?;
    Ok(packed.reply())
}

/// Which nodes the cards belong to that have a lease.
fn owners(
    reader: &mut Reader<'_>,
    leases: &[LeaseKept],
) -> Result<BTreeMap<String, (NodeId, Option<String>)>, Refusal> {
    let mut ids: BTreeMap<String, Option<NodeId>> =
        leases.iter().filter_map(|lease| Some((lease.client.mac()?, None))).collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let select = Columns::of(&[PortColumn::Address, PortColumn::NodeUuid]);
    let query: Query<Port> =
        Query { filter: PortFilter::default(), page: store::Page::default(), select };
    reader.list(&query, |port| {
        if let Some(id) = ids.get_mut(port.address.as_str()) {
            *id = Some(port.node_id);
        }
    })?;
    let known = names(reader, ids.values().flatten().copied().collect())?;
    let named = |id: NodeId| (id, known.get(&id).cloned());
    Ok(ids.into_iter().filter_map(|(mac, id)| Some((mac, named(id?)))).collect())
}
