// SPDX-License-Identifier: Apache-2.0
//! What machines boot: the boot-configuration API that boot loaders ask, and what a node should boot
//! now.

use http::{HeaderValue, StatusCode};
use ironic_wire::WireError;
use node_model::{BootImage, BootPlan, BootSystem, Mac};
use serde_json::{Value, json};

use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::nodes::reach::node_id;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Access, Route, UNVERSIONED};

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        "/v1/boot/{mac}/{name}",
        "Give a boot loader the script or configuration of the machine with this card",
        handler!(boot_config),
    )
    .since(UNVERSIONED)
    .access(Access::Public),
    Route::get(
        "/v1/ferrite/nodes/{node}/boot",
        "Say what a node should boot now, and by which way",
        handler!(plan),
    )
    .since(UNVERSIONED),
];

/// Anybody can ask, so every refusal is the same: a card that nobody knows, one with nothing to boot
/// now and a name that means nothing look alike.
async fn boot_config(call: Call) -> Result<Reply, Refusal> {
    let nothing = || WireError::new(404, "There is nothing to boot under this name.");
    let mac: Mac = call.param("mac").parse().map_err(|_| nothing())?;
    let Some(boot) = &call.app.boot else { return Err(nothing().into()) };
    let page = boot.boot_config(&mac, call.param("name")).await?.ok_or_else(nothing)?;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok(Reply::with_type(StatusCode::OK, plain, page.text.into_bytes()))
}

async fn plan(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let now = call.now();
    let found = call.app.store.read(move |reader| reader.boot_plan(id)).await?;
    let body = match found.filter(|plan| plan.is_valid(now)) {
        Some(plan) => shown(&plan),
        None => json!({"boots": "disk"}),
    };
    Ok(Reply::ok(body.to_string().into_bytes()))
}

/// A plan without what opens doors: its key, and its parameters, which may hold a token.
fn shown(plan: &BootPlan) -> Value {
    let image = |image: &BootImage| json!({"source": without_login(&image.source), "checksum": image.checksum});
    let mut body = json!({
        "boots": plan.purpose.as_str(),
        "way": plan.way.as_str(),
        "since": plan.made_at.to_string(),
        "until": plan.expires_at.map(|moment| moment.to_string()),
        "config_drive": plan.config_drive.is_some(),
    });
    match &plan.system {
        BootSystem::Kernel { kernel, ramdisk, parameters, network_data } => {
            body["kernel"] = image(kernel);
            body["ramdisk"] = image(ramdisk);
            body["kernel_parameters"] = parameters
                .iter()
                .map(|word| masked(&word.replace(&plan.key, node_model::MASK)))
                .collect();
            body["network_data"] = Value::Bool(!network_data.is_empty());
        }
        BootSystem::Iso { image: cd } => body["iso"] = image(cd),
    }
    body
}

/// A kernel parameter with its value masked if its name says that it is a secret, and without the
/// password of a URL.
fn masked(parameter: &str) -> Value {
    match parameter.split_once('=') {
        Some((name, _)) if node_model::is_secret_key(&name.replace('-', "_")) => {
            format!("{name}={}", node_model::MASK).into()
        }
        _ => node_model::mask_urls(parameter).into(),
    }
}

/// A URL without user, password and query.
fn without_login(source: &str) -> String {
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
