// SPDX-License-Identifier: Apache-2.0
//! A node's console: whether it is on, and how to reach it.

use http::Method;
use ironic_wire::{ConsoleInfo, console_body, parse_console};

use super::reach::{node_id, to_the_end};
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

const CONSOLE: &str = "/v1/nodes/{node}/states/console";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(CONSOLE, "Show how to reach a node's console", handler!(show)),
    Route::new(Method::PUT, CONSOLE, "Switch a node's console", handler!(set)),
];

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let console = call.app.conductor.console(id).await?;
    let info = console.info.map(|info| ConsoleInfo { kind: info.kind.to_owned(), url: info.url });
    Ok(Reply::ok(console_body(console.enabled, info.as_ref())))
}

async fn set(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let on = parse_console(&call.body)?;
    let id = node_id(&call).await?;
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    to_the_end(async move { conductor.set_console(id, on, &actor).await }).await?;
    let location = call.link(&format!("nodes/{}/states/console", call.param("node")));
    Ok(Reply::accepted().with_location(&location))
}
