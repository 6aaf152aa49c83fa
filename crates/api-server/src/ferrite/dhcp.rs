// SPDX-License-Identifier: Apache-2.0
//! DHCP networks served by this process, and their leases.

use std::collections::BTreeMap;

use boot_plans::{ClientLease, DhcpClient};
use node_model::{NodeId, Port};
use serde_json::{Value, json};
use store::{Columns, PortColumn, PortFilter, ResourceQuery, StoreReader};

use super::journal_search::node_names;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, MaybeCompressed, UNVERSIONED};

/// Maximum number of leases in a response; the latest are shown.
const MAX_LEASES: usize = 10_000;

pub(crate) const ROUTES: &[ApiRoute] =
    &[ApiRoute::get("/v1/ferrite/dhcp", "List DHCP networks and leases", handler!(dhcp))
        .rule("ferrite:dhcp:get")
        .since(UNVERSIONED)];

async fn dhcp(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let Some(boot) = request.app.boot.clone() else {
        let body = json!({"enabled": false, "networks": [], "leases": []});
        return Ok(ApiResponse::ok_value(&body));
    };
    let (mut leases, problem) = match boot.dhcp_leases().await {
        Ok(leases) => (leases, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    leases.sort_by(|a, b| b.expires_at.cmp(&a.expires_at).then_with(|| a.address.cmp(&b.address)));
    let count = leases.len();
    leases.truncate(MAX_LEASES);
    let (now, accepts_gzip) = (request.now(), request.browser.accepts_gzip);
    let body = request
        .app
        .store
        .scan(move |reader| {
            let nodes = lease_nodes(reader, &leases)?;
            let rows: Vec<Value> = leases
                .iter()
                .map(|lease| {
                    let mac = lease.client.mac();
                    let node = mac.as_ref().and_then(|mac| nodes.get(mac));
                    let state = match (&lease.client, lease.expires_at > now) {
                        (DhcpClient::Conflict, true) => "conflict",
                        (_, true) => "leased",
                        (_, false) => "expired",
                    };
                    json!({
                        "address": lease.address,
                        "mac": mac,
                        "client": lease.client.to_string(),
                        "state": state,
                        "expires_at": lease.expires_at.to_string(),
                        "node_uuid": node.map(|(id, _)| id.to_string()),
                        "node_name": node.and_then(|(_, name)| name.as_ref()),
                    })
                })
                .collect();
            let body = json!({
                "enabled": true,
                "networks": boot.dhcp_networks(),
                "leases": rows,
                "count": count,
                "error": problem,
            });
            Ok::<_, ApiError>(MaybeCompressed::new(body.to_string().into_bytes(), accepts_gzip))
        })
        .await?;
    Ok(body.into_response())
}

/// The nodes of leases, by MAC address.
fn lease_nodes(
    reader: &mut StoreReader<'_>,
    leases: &[ClientLease],
) -> Result<BTreeMap<String, (NodeId, Option<String>)>, ApiError> {
    let mut ids: BTreeMap<String, Option<NodeId>> =
        leases.iter().filter_map(|lease| Some((lease.client.mac()?, None))).collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let select = Columns::only(&[PortColumn::Address, PortColumn::NodeUuid]);
    let query: ResourceQuery<Port> = ResourceQuery {
        filter: PortFilter::default(),
        page: store::ResourcePage::default(),
        select,
    };
    reader.list(&query, |port| {
        if let Some(id) = ids.get_mut(port.address.as_str()) {
            *id = Some(port.node_id);
        }
    })?;
    let names = node_names(reader, ids.values().flatten().copied().collect())?;
    let with_name = |id: NodeId| (id, names.get(&id).cloned());
    Ok(ids.into_iter().filter_map(|(mac, id)| Some((mac, with_name(id?)))).collect())
}
