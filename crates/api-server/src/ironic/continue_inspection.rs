// SPDX-License-Identifier: Apache-2.0
//! Receives inspection data from a ramdisk. No user is authenticated: data are accepted only for a node
//! that waits for them, from the ramdisk that was booted on its machine.

use ::inspection::HardwareReport;
use ::inspection::lookup::{bmc_addresses, candidate_macs};
use http::Method;
use ironic_wire::{
    InspectionData, LookupResponse, WireError, as_uuid, inspected_body, parse_object,
};
use node_model::{Node, NodeId, Secret};
use serde_json::Value;

use super::agent::agent_caller;
use crate::app::App;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, BodyLimit, RouteAccess};

/// First version with `node_uuid` and with the response of a lookup.
const LOOKUP_RESPONSE_SINCE: u16 = 84;

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::new(
    Method::POST,
    "/v1/continue_inspection",
    "Receive inspection data from a ramdisk",
    handler!(continue_inspection),
)
.access(RouteAccess::Public)
.rate_limited()
.body_limit(BodyLimit::Inspection)
.query(&["boot_secret", "node_uuid"])];

async fn continue_inspection(mut request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["boot_secret", "node_uuid"])?;
    let node_uuid = named_node(request.query_value("node_uuid"))?;
    let body = std::mem::take(&mut request.body);
    let report = request.app.limits.parse(body.len(), move || parse_report(&body)).await?;
    // Ramdisks send no version header, which means 1.1.
    let has_lookup_response = request.version.has(LOOKUP_RESPONSE_SINCE);
    if !InspectionData::accepted_at(request.version)
        || (node_uuid.is_some() && !has_lookup_response)
    {
        let problem = format!(
            "Sending inspection data needs API version 1.{LOOKUP_RESPONSE_SINCE} or newer."
        );
        return Err(WireError::new(404, problem).into());
    }
    if node_uuid.is_none()
        && candidate_macs(&report).is_empty()
        && bmc_addresses(&report).is_empty()
    {
        let problem = "The inspection data have no MAC or BMC address to find a node by";
        return Err(WireError::invalid(problem).into());
    }
    let conductor = &request.app.conductor;
    let mut caller = agent_caller(&request);
    // Our boot plans have it in the URL that they pass to the ramdisk.
    if let Some(secret) = request.query_value("boot_secret") {
        caller.secret = Some(Secret::new(secret.to_owned()));
    }
    let accepted = conductor.continue_inspection(report, node_uuid, caller).await?;
    let Some(accepted) = accepted else {
        return Err(no_node_waits().into());
    };
    let json = if has_lookup_response {
        lookup_response(&request, accepted.node).await?
    } else {
        inspected_body(accepted.node)
    };
    Ok(ApiResponse::json(http::StatusCode::ACCEPTED, json))
}

fn named_node(text: Option<&str>) -> Result<Option<NodeId>, WireError> {
    let expected_uuid = || WireError::invalid_field("node_uuid", "expected a UUID");
    match text.filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => Ok(Some(NodeId(as_uuid(text).ok_or_else(expected_uuid)?))),
    }
}

fn parse_report(body: &[u8]) -> Result<HardwareReport, WireError> {
    let body = Value::Object(parse_object(body, "inspection data")?);
    HardwareReport::from_value(body).map_err(|error| WireError::invalid(error.to_string()))
}

/// Whether a node waits for inspection data with this query. Checked before a large body is received.
pub(crate) async fn is_expected(app: &App, query: &[(String, String)]) -> bool {
    let text = query.iter().find(|(name, _)| name == "node_uuid").map(|(_, value)| value.as_str());
    let Ok(node) = named_node(text) else { return false };
    match app.conductor.expects_inspection_data(node).await {
        Ok(is_expected) => is_expected,
        Err(error) => {
            tracing::warn!(%error, "query for nodes that wait for inspection data failed");
            false
        }
    }
}

pub(crate) fn no_node_waits() -> WireError {
    WireError::new(404, "No node waits for these inspection data.")
}

/// The response of a lookup, without a new token. A ramdisk that keeps running does its own lookup; for
/// one that does not, the next agent would be rejected because of the issued token.
async fn lookup_response(request: &ApiRequest, id: NodeId) -> Result<Vec<u8>, ApiError> {
    let node: Option<Node> =
        request.app.store.read(move |reader| Ok::<_, ApiError>(reader.get(id)?)).await?;
    let Some(node) = node else {
        return Err(WireError::not_found("Node", &id.to_string()).into());
    };
    let heartbeat_timeout = request.app.conductor.settings().ramdisk_heartbeat_timeout;
    let response = LookupResponse {
        node: &node,
        issued_token: None,
        heartbeat_timeout,
        skip_bmc_detect: false,
    };
    Ok(response.body(request.version, &request.base_url)?)
}
