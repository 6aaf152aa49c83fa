// SPDX-License-Identifier: Apache-2.0
//! The strangers seen on the network: what is known of them, forgetting them, enrolling them.

use conductor::{EnrolError, Enrolment};
use http::Method;
use ironic_wire::{WireError, is_logical_name, parse_object};
use node_model::{Mac, Sighted};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, UNVERSIONED};

/// The most strangers in one answer: all there can be.
const STRANGERS: u32 = 10_000;

/// The longest name of a node, resource class and so on that every database keeps.
const MAX_NAME_CHARS: usize = 255;

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        "/v1/ferrite/sightings",
        "List machines seen on the network that nobody enrolled",
        handler!(list),
    )
    .since(UNVERSIONED)
    .query(&["enrolled"]),
    Route::new(
        Method::DELETE,
        "/v1/ferrite/sightings/{mac}",
        "Forget a machine seen on the network",
        handler!(forget),
    )
    .since(UNVERSIONED),
    Route::new(
        Method::POST,
        "/v1/ferrite/sightings/{mac}/enrol",
        "Enrol a machine seen on the network, with what its ramdisk told",
        handler!(enrol),
    )
    .since(UNVERSIONED),
];

/// What an operator says about a machine to enrol.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    driver: String,
    #[serde(default)]
    driver_info: Map<String, Value>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    resource_class: Option<String>,
    #[serde(default)]
    conductor_group: Option<String>,
}

async fn list(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &["enrolled"])?;
    let enrolled = match call.query_value("enrolled") {
        None => false,
        Some(text) if text.eq_ignore_ascii_case("true") => true,
        Some(text) if text.eq_ignore_ascii_case("false") => false,
        Some(_) => {
            return Err(WireError::invalid_field("enrolled", "it must be true or false").into());
        }
    };
    let scan = call.app.store.scan(move |reader| {
        if enrolled { reader.sightings(STRANGERS) } else { reader.strangers(STRANGERS) }
    });
    let found = scan.await?;
    let rows: Vec<Value> = found.iter().map(shown).collect();
    Ok(Reply::ok(json!({"sightings": rows}).to_string().into_bytes()))
}

fn shown(known: &Sighted) -> Value {
    let seen = &known.seen;
    json!({
        "mac": seen.address.as_str(),
        "first_seen_at": seen.first_seen_at.to_string(),
        "last_seen_at": seen.last_seen_at.to_string(),
        "times": seen.times,
        "ip_address": seen.ip_address,
        "interface": Some(seen.interface.as_str()).filter(|name| !name.is_empty()),
        "architecture": seen.architecture,
        "last": seen.last,
        "node_uuid": known.node_id,
        "reported_at": known.reported_at.map(|at| at.to_string()),
        "report": known.reported_at.map(|_| &known.summary),
    })
}

async fn forget(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let mac = mac(&call)?;
    let card = mac.clone();
    let forgotten = call.app.store.write(move |tx| tx.forget_stranger(&card)).await?;
    forget_here(&call, &mac);
    if forgotten {
        Ok(Reply::no_content())
    } else {
        let text = call.param("mac");
        Err(WireError::new(404, format!("No machine with the card {text} was seen.")).into())
    }
}

async fn enrol(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let mac = mac(&call)?;
    let body = Value::Object(parse_object(&call.body, "enrol")?);
    let wanted: Wanted =
        serde_json::from_value(body).map_err(|error| WireError::invalid(error.to_string()))?;
    let enrolment = checked(&call, wanted)?;
    let (conductor, actor, card) = (call.app.conductor.clone(), call.actor(), mac.clone());
    let enrolled = conductor.enrol_stranger(card, enrolment, actor).await.map_err(refusal)?;
    forget_here(&call, &mac);
    let body = json!({"uuid": enrolled}).to_string().into_bytes();
    Ok(Reply::created(body, &call.link(&format!("nodes/{enrolled}"))))
}

fn checked(call: &Call, wanted: Wanted) -> Result<Enrolment, WireError> {
    let Wanted { driver, driver_info, name, resource_class, conductor_group } = wanted;
    if let Some(name) = &name
        && !is_logical_name(name)
    {
        return Err(WireError::invalid_field("name", "it is no host name"));
    }
    let texts = [
        ("driver", Some(&driver)),
        ("name", name.as_ref()),
        ("resource_class", resource_class.as_ref()),
        ("conductor_group", conductor_group.as_ref()),
    ];
    for (field, text) in texts {
        if text.is_some_and(|text| text.chars().count() > MAX_NAME_CHARS) {
            let problem = format!("it is longer than {MAX_NAME_CHARS} characters");
            return Err(WireError::invalid_field(field, &problem));
        }
    }
    let config = &call.app.config;
    Ok(Enrolment {
        driver,
        driver_info,
        name,
        conductor_group: conductor_group
            .unwrap_or_else(|| config.default_conductor_group.clone())
            .to_lowercase(),
        resource_class: resource_class.or_else(|| config.default_resource_class.clone()),
    })
}

fn refusal(error: EnrolError) -> Refusal {
    let message = error.to_string();
    match error {
        EnrolError::Unknown(_) => WireError::new(404, message).into(),
        EnrolError::Enrolled { .. } | EnrolError::Name(_) => WireError::conflict(message).into(),
        EnrolError::Driver(_) => WireError::invalid_field("driver", &message).into(),
        EnrolError::Failed(error) => error.into(),
    }
}

/// The card the path names.
fn mac(call: &Call) -> Result<Mac, WireError> {
    call.param("mac").parse().map_err(|_| WireError::invalid_field("mac", "it is no MAC address"))
}

/// What this process remembers of a stranger on its own.
fn forget_here(call: &Call, mac: &Mac) {
    if let Some(boot) = &call.app.boot {
        boot.forget_stranger(mac);
    }
}
