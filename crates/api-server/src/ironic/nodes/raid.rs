// SPDX-License-Identifier: Apache-2.0
//! Target RAID configuration.

use http::Method;
use ironic_wire::{WireError, parse_raid_config};

use super::path_node::find_unlocked_node;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, TooOld};

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::new(
    Method::PUT,
    "/v1/nodes/{node}/states/raid",
    "Set the target RAID configuration of a node",
    handler!(set_target),
)
.resource("baremetal:node:set_raid_state")
.since(12)
.too_old(TooOld::NotAcceptable)];

async fn set_target(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let node = find_unlocked_node(&request).await?;
    let config = parse_raid_config(&request.body)?;
    let result =
        request.app.conductor.set_target_raid(node.id, config.parse(), request.actor()).await;
    match result {
        Ok(()) => Ok(ApiResponse::no_content()),
        // As in Ironic, 404 for a node without RAID support.
        Err(error) if error.is_unsupported() => Err(WireError::new(404, error.to_string()).into()),
        Err(error) => Err(error.into()),
    }
}
