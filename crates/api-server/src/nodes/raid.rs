// SPDX-License-Identifier: Apache-2.0
//! The logical disks a node should have.

use conductor::{DriverError, Error};
use http::Method;
use ironic_wire::{WireError, parse_raid_config};

use super::reach::free_node;
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, TooOld};

pub(crate) const ROUTES: &[Route] = &[Route::new(
    Method::PUT,
    "/v1/nodes/{node}/states/raid",
    "Set the logical disks a node should have",
    handler!(set_target),
)
.since(12)
.too_old(TooOld::NotAcceptable)];

async fn set_target(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let config = parse_raid_config(&call.body)?;
    let node = free_node(&call).await?;
    let set = call.app.conductor.set_target_raid(node.id, config.parse(), call.actor()).await;
    match set {
        Ok(()) => Ok(Reply::no_content()),
        // To clients, a node that cannot have RAID has no such resource.
        Err(error @ Error::Driver { source: DriverError::Unsupported { .. }, .. }) => {
            Err(WireError::new(404, error.to_string()).into())
        }
        Err(error) => Err(error.into()),
    }
}
