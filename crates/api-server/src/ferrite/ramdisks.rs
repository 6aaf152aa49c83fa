// SPDX-License-Identifier: Apache-2.0
//! The configured ramdisks of the agent, with their checksums.

use boot_plans::{AgentImage, ConfiguredRamdisk};
use serde_json::{Value, json};

use super::images::without_secrets;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, UNVERSIONED};

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/ferrite/ramdisks",
    "List the configured agent ramdisks by architecture, with their checksums",
    handler!(ramdisks),
)
.rule("ferrite:image:get")
.since(UNVERSIONED)];

async fn ramdisks(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let found = request.app.boot.as_ref().map(|boot| boot.agent_ramdisks()).unwrap_or_default();
    let rows: Vec<Value> = found.iter().map(ramdisk_json).collect();
    Ok(ApiResponse::ok_value(&json!({"ramdisks": rows})))
}

fn ramdisk_json(ramdisk: &ConfiguredRamdisk) -> Value {
    json!({
        "architecture": ramdisk.architecture,
        "version": ramdisk.version,
        "kernel": image_json(&ramdisk.kernel),
        "ramdisk": image_json(&ramdisk.ramdisk),
        "checked_at": ramdisk.checked_at.map(|at| at.to_string()),
        "changed_at": ramdisk.changed_at.map(|at| at.to_string()),
        "error": ramdisk.error,
    })
}

fn image_json(image: &AgentImage) -> Value {
    json!({
        "source": without_secrets(&image.source).0,
        "sha256": image.content.as_ref().map(|content| &content.sha256),
        "size": image.content.as_ref().map(|content| content.size),
    })
}
