// SPDX-License-Identifier: Apache-2.0
//! Vendor methods of a hardware type.

use conductor::DriverMethodError;
use http::Method;
use ironic_wire::WireError;

use super::nodes::vendor_passthru::{VendorMethodCall, methods_body, passthru_response};
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, run_to_completion};

const fn passthru_route(method: Method) -> ApiRoute {
    ApiRoute::new(
        method,
        "/v1/drivers/{driver}/vendor_passthru",
        "Call a vendor method of a hardware type",
        handler!(passthru),
    )
    .rule("baremetal:driver:vendor_passthru")
    .query(&["method"])
}

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        "/v1/drivers/{driver}/vendor_passthru/methods",
        "List the vendor methods of a hardware type",
        handler!(methods),
    )
    .rule("baremetal:driver:vendor_passthru"),
    passthru_route(Method::GET),
    passthru_route(Method::POST),
    passthru_route(Method::PUT),
    passthru_route(Method::PATCH),
    passthru_route(Method::DELETE),
];

async fn methods(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let methods = request.app.conductor.driver_vendor_methods(request.param("driver"))?;
    Ok(ApiResponse::ok(methods_body(methods)))
}

async fn passthru(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let VendorMethodCall { method, http_method, arguments } = VendorMethodCall::parse(&request)?;
    let (conductor, driver) = (request.app.conductor.clone(), request.param("driver").to_owned());
    let reply = run_to_completion(async move {
        conductor.driver_vendor_passthru(&driver, &method, http_method, arguments).await
    })
    .await?;
    Ok(passthru_response(reply))
}

impl From<DriverMethodError> for ApiError {
    fn from(error: DriverMethodError) -> Self {
        match error {
            // Ironic's message: its client recognises an unknown driver by it.
            DriverMethodError::UnknownDriver(driver) => {
                WireError::new(404, format!("The driver '{driver}' is unknown.")).into()
            }
            DriverMethodError::UnknownMethod { .. } | DriverMethodError::WrongHttpMethod { .. } => {
                WireError::invalid(error.to_string()).into()
            }
            DriverMethodError::Failed { driver, source } => {
                let status = if source.is_caller_error() { 400 } else { 500 };
                WireError::new(status, format!("{driver}: {source}")).into()
            }
        }
    }
}
