// SPDX-License-Identifier: Apache-2.0
//! Vendor methods that concern no node but a hardware type as a whole.

use conductor::{HttpMethod, PassthruReply, VendorMethod};
use http::Method;
use ironic_wire::WireError;

use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::nodes::reach::finished;
use crate::nodes::vendor::{answer, arguments, methods_body};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Handler, Route};

const fn passthru_route(method: Method, handler: Handler) -> Route {
    Route::new(
        method,
        "/v1/drivers/{driver}/vendor_passthru",
        "Call a vendor method of a hardware type",
        handler,
    )
    .query(&["method"])
}

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        "/v1/drivers/{driver}/vendor_passthru/methods",
        "List the vendor methods of a hardware type",
        handler!(methods),
    ),
    passthru_route(Method::GET, handler!(call_with_get)),
    passthru_route(Method::POST, handler!(call_with_post)),
    passthru_route(Method::PUT, handler!(call_with_put)),
    passthru_route(Method::PATCH, handler!(call_with_patch)),
    passthru_route(Method::DELETE, handler!(call_with_delete)),
];

async fn methods(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let name = call.param("driver");
    let driver = call.app.conductor.registry().default_driver(name).map_err(|_| unknown(name))?;
    Ok(Reply::ok(methods_body(driver.vendor().driver_methods())))
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
    let (method, arguments) = arguments(&call)?;
    let name = call.param("driver");
    let driver = call.app.conductor.registry().default_driver(name).map_err(|_| unknown(name))?;
    let is_async = find(name, driver.vendor().driver_methods(), &method, http_method)?.is_async;
    let driver_name = name.to_owned();
    let work = tokio::spawn(async move {
        let called = driver.vendor().call_driver(&method, http_method, &arguments).await;
        called.map_err(|error| {
            tracing::warn!(driver = driver_name, method, %error, "vendor method failed");
            let status = if error.is_callers_fault() { 400 } else { 500 };
            WireError::new(status, format!("{driver_name}: {error}")).into()
        })
    });
    if is_async {
        return Ok(answer(PassthruReply::Accepted));
    }
    Ok(answer(PassthruReply::Done(finished(work).await?)))
}

fn unknown(driver: &str) -> WireError {
    // Ironic's words: its client recognises the missing driver by them.
    WireError::new(404, format!("The driver '{driver}' is unknown."))
}

fn find(
    driver: &str,
    methods: &'static [VendorMethod],
    name: &str,
    http_method: HttpMethod,
) -> Result<&'static VendorMethod, WireError> {
    let Some(method) = methods.iter().find(|method| method.name == name) else {
        let shown: String = name.chars().take(120).collect();
        let problem = format!("Hardware type {driver} has no vendor method '{shown}'");
        return Err(WireError::invalid(problem));
    };
    if method.http_methods.contains(&http_method) {
        return Ok(method);
    }
    let allowed: Vec<&str> = method.http_methods.iter().map(|method| method.as_str()).collect();
    Err(WireError::invalid(format!(
        "Vendor method '{name}' is called with {}, not {http_method}",
        allowed.join(" or ")
    )))
}
