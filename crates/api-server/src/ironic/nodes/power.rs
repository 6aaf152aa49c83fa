// SPDX-License-Identifier: Apache-2.0
//! `PUT …/states/power`: power on, power off, reboot.

use http::Method;
use ironic_wire::{PowerChange, WireError};

use super::path_node::find_node;
use super::states::states_url;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::new(
    Method::PUT,
    "/v1/nodes/{node}/states/power",
    "Request a change of the power state",
    handler!(set_power),
)
.resource("baremetal:node:set_power_state")];

async fn set_power(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let change = PowerChange::parse(&request.body, request.version)?;
    let node = find_node(&request).await?;
    let Some(target) = change.target else {
        let state = node.power_state.map_or("None", |state| state.as_str());
        let ident = request.param("node");
        return Err(WireError::invalid_state(&change.requested, ident, state).into());
    };
    request.app.conductor.power(node.id, target, change.timeout, request.actor()).await?;
    Ok(ApiResponse::accepted().with_location(&states_url(&request)))
}
