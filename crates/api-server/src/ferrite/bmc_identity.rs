// SPDX-License-Identifier: Apache-2.0
//! Identifies the machine behind a BMC address, before a node is given that address.

use conductor::MachineIdentityError;
use http::Method;
use ironic_wire::{WireError, parse_fields, parse_object};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, UNVERSIONED, run_to_completion};

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::new(
    Method::POST,
    "/v1/ferrite/bmc-identity",
    "Identify the machine behind a BMC address",
    handler!(identify),
)
.rule("ferrite:bmc:identify")
.since(UNVERSIONED)];

/// The body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityBody {
    driver: String,
    driver_info: Map<String, Value>,
}

async fn identify(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let body = Value::Object(parse_object(&request.body, "BMC identity")?);
    let IdentityBody { driver, driver_info } = parse_fields(body)?;
    let conductor = request.app.conductor.clone();
    let identity = run_to_completion(async move {
        conductor.identify_machine(&driver, &driver_info).await.map_err(identity_error)
    })
    .await?;
    let mac_addresses: Vec<&str> = identity.mac_addresses.iter().map(|mac| mac.as_str()).collect();
    Ok(ApiResponse::ok_value(&json!({
        "system_uuid": identity.system_uuid,
        "serial_number": identity.serial_number,
        "manufacturer": identity.manufacturer,
        "model": identity.model,
        "mac_addresses": mac_addresses,
    })))
}

/// 404 would mean that there is no such route, and 500 an error of Ferrite.
fn identity_error(error: MachineIdentityError) -> ApiError {
    let status = match &error {
        MachineIdentityError::UnknownDriver { .. } => 400,
        MachineIdentityError::Failed { source, .. } if source.is_transient() => 502,
        MachineIdentityError::Failed { .. } => 400,
        MachineIdentityError::NoResponse { .. } => 504,
    };
    WireError::new(status, error.to_string()).into()
}
