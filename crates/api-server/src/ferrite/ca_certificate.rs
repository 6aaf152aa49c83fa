// SPDX-License-Identifier: Apache-2.0
//! The CA certificates that verify the certificate of this server, for download by clients.

use http::{HeaderValue, StatusCode};
use ironic_wire::WireError;

use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, RouteAccess, UNVERSIONED};

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/ferrite/ca.pem",
    "Download the CA certificates that verify this server",
    handler!(show),
)
.since(UNVERSIONED)
.access(RouteAccess::Public)];

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let Some(certificates) = &request.app.config.ca_certificates else {
        let message = "This server has no CA of its own: it does not use TLS, or its certificate was \
                       issued by another CA.";
        return Err(WireError::new(404, message).into());
    };
    let pem = HeaderValue::from_static("application/x-pem-file");
    Ok(ApiResponse::with_type(StatusCode::OK, pem, certificates.as_bytes().to_vec()))
}
