// SPDX-License-Identifier: Apache-2.0
//! Boot configuration for boot loaders, and the boot plan of a node.

use http::{HeaderValue, StatusCode};
use ironic_wire::WireError;
use node_model::{BootImage, BootPlan, BootSystem, Mac};
use serde_json::{Value, json};

use crate::handler;
use crate::ironic::nodes::path_node::find_node_id;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, RouteAccess, UNVERSIONED};

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        "/v1/boot/{mac}/{name}",
        "Return the boot loader script or configuration for a MAC address",
        handler!(boot_config),
    )
    .since(UNVERSIONED)
    .access(RouteAccess::Public)
    .rate_limited(),
    ApiRoute::get(
        "/v1/ferrite/nodes/{node}/boot",
        "Show the boot plan of a node",
        handler!(show_plan),
    )
    .resource("ferrite:node:boot")
    .since(UNVERSIONED),
];

/// Not authenticated, so all errors are the same: unknown MAC address, no boot plan, unknown name.
async fn boot_config(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let not_found = || WireError::new(404, "There is nothing to boot under this name.");
    let mac: Mac = request.param("mac").parse().map_err(|_| not_found())?;
    let Some(boot) = &request.app.boot else { return Err(not_found().into()) };
    let page = boot.boot_config(&mac, request.param("name")).await?.ok_or_else(not_found)?;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok(ApiResponse::with_type(StatusCode::OK, plain, page.text.into_bytes()))
}

async fn show_plan(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let now = request.now();
    let found = request.app.store.read(move |reader| reader.boot_plan(id)).await?;
    let body = match found.filter(|plan| plan.is_valid(now)) {
        Some(plan) => plan_json(&plan),
        None => json!({"boots": "disk"}),
    };
    Ok(ApiResponse::ok_value(&body))
}

/// A boot plan without secrets: its key is left out, parameters are masked, URLs have no credentials.
fn plan_json(plan: &BootPlan) -> Value {
    let image = |image: &BootImage| json!({"source": without_credentials(&image.source), "checksum": image.checksum});
    let mut body = json!({
        "boots": plan.purpose.as_str(),
        "method": plan.method.as_str(),
        "created_at": plan.created_at.to_string(),
        "expires_at": plan.expires_at.map(|at| at.to_string()),
        "config_drive": plan.config_drive.is_some(),
    });
    match &plan.system {
        BootSystem::Kernel { kernel, ramdisk, parameters, network_data } => {
            body["kernel"] = image(kernel);
            body["ramdisk"] = image(ramdisk);
            body["kernel_parameters"] = parameters
                .iter()
                .map(|parameter| mask_parameter(&parameter.replace(&plan.key, node_model::MASK)))
                .collect();
            body["network_data"] = Value::Bool(!network_data.is_empty());
        }
        BootSystem::Iso { image: cd } => body["iso"] = image(cd),
    }
    body
}

/// Masks the value of a kernel parameter with the name of a secret, and passwords in URLs.
fn mask_parameter(parameter: &str) -> Value {
    match parameter.split_once('=') {
        Some((name, _)) if node_model::is_secret_key(&name.replace('-', "_")) => {
            format!("{name}={}", node_model::MASK).into()
        }
        _ => node_model::mask_urls(parameter).into(),
    }
}

/// A URL without user, password and query.
fn without_credentials(source: &str) -> String {
    let plain = source.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}/{path}")
        }
        None => plain.to_owned(),
    }
}
