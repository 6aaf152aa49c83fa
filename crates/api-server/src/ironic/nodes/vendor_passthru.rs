// SPDX-License-Identifier: Apache-2.0
//! Vendor methods of a node, named in the query or at the end of the path.

use conductor::PassthruReply;
use http::Method;
use ironic_wire::{JsonWriter, WireError, parse_object};
use node_model::{HttpMethod, VendorMethod};
use serde_json::{Map, Value};

use super::path_node::find_node_id;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, run_to_completion};

const SUMMARY: &str = "Call a vendor method of a node";

const fn by_query(method: Method) -> ApiRoute {
    ApiRoute::new(method, "/v1/nodes/{node}/vendor_passthru", SUMMARY, handler!(passthru))
        .resource("baremetal:node:vendor_passthru")
        .query(&["method"])
}

const fn by_path(method: Method) -> ApiRoute {
    ApiRoute::new(method, "/v1/nodes/{node}/vendor_passthru/{method}", SUMMARY, handler!(passthru))
        .resource("baremetal:node:vendor_passthru")
}

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        "/v1/nodes/{node}/vendor_passthru/methods",
        "List the vendor methods of a node",
        handler!(methods),
    )
    .resource("baremetal:node:vendor_passthru"),
    by_query(Method::GET),
    by_query(Method::POST),
    by_query(Method::PUT),
    by_query(Method::PATCH),
    by_query(Method::DELETE),
    by_path(Method::GET),
    by_path(Method::POST),
    by_path(Method::PUT),
    by_path(Method::PATCH),
    by_path(Method::DELETE),
];

/// A call of a vendor method.
pub(crate) struct VendorMethodCall {
    pub(crate) method: String,
    pub(crate) http_method: HttpMethod,
    pub(crate) arguments: Map<String, Value>,
}

impl VendorMethodCall {
    /// Reads the method from path or query, and the arguments from the body.
    pub(crate) fn parse(request: &ApiRequest) -> Result<Self, WireError> {
        request.check_query(&["method"])?;
        let names = [request.param("method"), request.query_value("method").unwrap_or_default()];
        let Some(method) = names.into_iter().find(|name| !name.is_empty()) else {
            return Err(WireError::missing("method"));
        };
        let arguments = match request.body.is_empty() {
            true => Map::new(),
            false => parse_object(&request.body, "vendor method")?,
        };
        let http_method =
            request.method.as_str().parse().map_err(|()| WireError::method_not_allowed())?;
        Ok(Self { method: method.to_owned(), http_method, arguments })
    }
}

/// 202 for an asynchronous method, else 200 with its result.
pub(crate) fn passthru_response(reply: PassthruReply) -> ApiResponse {
    match reply {
        PassthruReply::Accepted => ApiResponse::accepted(),
        PassthruReply::Done(value) => ApiResponse::ok_value(&value),
    }
}

/// The body of a list of vendor methods.
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

async fn methods(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    Ok(ApiResponse::ok(methods_body(request.app.conductor.vendor_methods(id).await?)))
}

async fn passthru(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let VendorMethodCall { method, http_method, arguments } = VendorMethodCall::parse(&request)?;
    let id = find_node_id(&request).await?;
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    let reply = run_to_completion(async move {
        conductor.vendor_passthru(id, &method, http_method, arguments, actor).await
    })
    .await?;
    Ok(passthru_response(reply))
}
