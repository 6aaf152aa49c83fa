// SPDX-License-Identifier: Apache-2.0
//! Switching a node on, off, and on again.

use http::Method;
use ironic_wire::{PowerChange, WireError};

use super::reach::node;
use super::states::location;
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

pub(crate) const ROUTES: &[Route] = &[Route::new(
    Method::PUT,
    "/v1/nodes/{node}/states/power",
    "Ask for a change of power",
    handler!(set_power),
)];

async fn set_power(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let change = PowerChange::parse(&call.body, call.version)?;
    let node = node(&call).await?;
    let Some(target) = change.target else {
        let state = node.power_state.map_or("None", |state| state.as_str());
        let ident = call.param("node");
        return Err(WireError::invalid_state(&change.asked, ident, state).into());
    };
    call.app.conductor.power(node.id, target, change.timeout, call.actor()).await?;
    Ok(Reply::accepted().with_location(&location(&call)))
}
