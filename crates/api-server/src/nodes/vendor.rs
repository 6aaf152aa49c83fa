// SPDX-License-Identifier: Apache-2.0
//! What only the machines of one vendor can do: methods called by their name, in the query or at
//! the end of the path.

use conductor::{HttpMethod, PassthruReply, VendorMethod};
use http::Method;
use ironic_wire::{JsonWriter, WireError, parse_object};
use serde_json::{Map, Value};

use super::reach::{node_id, to_the_end};
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

const BY_QUERY: &str = "/v1/nodes/{node}/vendor_passthru";
const BY_PATH: &str = "/v1/nodes/{node}/vendor_passthru/{method}";
const SUMMARY: &str = "Call a vendor method of a node";

const fn by_query(method: Method, handler: crate::routes::Handler) -> Route {
    Route::new(method, BY_QUERY, SUMMARY, handler).query(&["method"])
}

const fn by_path(method: Method, handler: crate::routes::Handler) -> Route {
    Route::new(method, BY_PATH, SUMMARY, handler)
}

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        "/v1/nodes/{node}/vendor_passthru/methods",
        "List the vendor methods of a node",
        handler!(methods),
    ),
    by_query(Method::GET, handler!(call_with_get)),
    by_query(Method::POST, handler!(call_with_post)),
    by_query(Method::PUT, handler!(call_with_put)),
    by_query(Method::PATCH, handler!(call_with_patch)),
    by_query(Method::DELETE, handler!(call_with_delete)),
    by_path(Method::GET, handler!(call_with_get)),
    by_path(Method::POST, handler!(call_with_post)),
    by_path(Method::PUT, handler!(call_with_put)),
    by_path(Method::PATCH, handler!(call_with_patch)),
    by_path(Method::DELETE, handler!(call_with_delete)),
];

/// What is asked: the method, and the members of the body.
pub(crate) fn arguments(call: &Call) -> Result<(String, Map<String, Value>), WireError> {
    kept::only_query(call, &["method"])?;
    let named = [call.param("method"), call.query_value("method").unwrap_or_default()];
    let Some(name) = named.into_iter().find(|name| !name.is_empty()) else {
        return Err(WireError::missing("method"));
    };
    let arguments = match call.body.is_empty() {
        true => Map::new(),
        false => parse_object(&call.body, "vendor method")?,
    };
    Ok((name.to_owned(), arguments))
}

/// What the caller is told.
pub(crate) fn answer(reply: PassthruReply) -> Reply {
    match reply {
        PassthruReply::Accepted => Reply::accepted(),
        PassthruReply::Done(value) => Reply::ok(value.to_string().into_bytes()),
    }
}

/// A list of vendor methods, as clients see it.
pub(crate) fn methods_body(methods: &[VendorMethod]) -> Vec<u8> {
    let mut body = JsonWriter::with_capacity(16 + 256 * methods.len());
    body.begin_object();
    for method in methods {
        body.key(method.name);
        body.begin_object();
        body.key("http_methods");
        body.strings(method.http_methods.iter().map(|method| method.as_str()));
        body.key("async");
        body.boolean(method.is_async);
        body.key("description");
        body.string(method.description);
        body.key("attach");
        body.boolean(method.attach);
        body.key("require_exclusive_lock");
        body.boolean(method.require_exclusive_lock);
        body.end_object();
    }
    body.end_object();
    body.into_bytes()
}

async fn methods(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    Ok(Reply::ok(methods_body(call.app.conductor.vendor_methods(id).await?)))
}

async fn call_with_get(call: Call) -> Result<Reply, Refusal> {
    passthru(call, HttpMethod::Get).await
}

async fn call_with_post(call: Call) -> Result<Reply, Refusal> {
    passthru(call, HttpMethod::Post).await
}

async fn call_with_put(call: Call) -> Result<Reply, Refusal> {
    passthru(call, HttpMethod::Put).await
}

async fn call_with_patch(call: Call) -> Result<Reply, Refusal> {
    passthru(call, HttpMethod::Patch).await
}

async fn call_with_delete(call: Call) -> Result<Reply, Refusal> {
    passthru(call, HttpMethod::Delete).await
}

async fn passthru(call: Call, http_method: HttpMethod) -> Result<Reply, Refusal> {
    let (name, arguments) = arguments(&call)?;
    let id = node_id(&call).await?;
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    let reply = to_the_end(async move {
        conductor.vendor_passthru(id, &name, http_method, arguments, actor).await
    })
    .await?;
    Ok(answer(reply))
}
