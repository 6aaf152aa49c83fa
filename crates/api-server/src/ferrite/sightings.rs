// SPDX-License-Identifier: Apache-2.0
//! Unknown machines seen on the network: list, delete, enrol.

use conductor::{EnrolError, NewNodeSettings};
use http::Method;
use ironic_wire::{WireError, is_logical_name, parse_fields, parse_object};
use node_model::{Mac, UnknownMachine};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, UNVERSIONED};

/// Maximum number of sightings in a response: the store keeps no more.
const MAX_SIGHTINGS: u32 = 10_000;

/// Maximum length of names that every database can store.
const MAX_NAME_CHARS: usize = 255;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        "/v1/ferrite/sightings",
        "List unknown machines seen on the network",
        handler!(list),
    )
    .rule("ferrite:sighting:get")
    .since(UNVERSIONED)
    .query(&["enrolled"]),
    ApiRoute::new(
        Method::DELETE,
        "/v1/ferrite/sightings/{mac}",
        "Delete the sighting of a machine",
        handler!(delete),
    )
    .rule("ferrite:sighting:delete")
    .since(UNVERSIONED),
    ApiRoute::new(
        Method::POST,
        "/v1/ferrite/sightings/{mac}/enrol",
        "Enrol an unknown machine with the data reported by its ramdisk",
        handler!(enrol),
    )
    .rule("ferrite:sighting:enrol")
    .since(UNVERSIONED),
];

/// The body of an enrol request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnrolBody {
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

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["enrolled"])?;
    let enrolled = match request.query_value("enrolled") {
        None => false,
        Some(text) if text.eq_ignore_ascii_case("true") => true,
        Some(text) if text.eq_ignore_ascii_case("false") => false,
        Some(_) => {
            return Err(WireError::invalid_field("enrolled", "it must be true or false").into());
        }
    };
    let scan = request.app.store.scan(move |reader| {
        if enrolled {
            reader.sightings(MAX_SIGHTINGS)
        } else {
            reader.unknown_machines(MAX_SIGHTINGS)
        }
    });
    let machines = scan.await?;
    let rows: Vec<Value> = machines.iter().map(sighting_json).collect();
    Ok(ApiResponse::ok_value(&json!({"sightings": rows})))
}

fn sighting_json(machine: &UnknownMachine) -> Value {
    let sighting = &machine.sighting;
    json!({
        "mac": sighting.mac.as_str(),
        "first_seen_at": sighting.first_seen_at.to_string(),
        "last_seen_at": sighting.last_seen_at.to_string(),
        "times": sighting.times,
        "ip_address": sighting.ip_address,
        "interface": Some(sighting.interface.as_str()).filter(|name| !name.is_empty()),
        "architecture": sighting.architecture,
        "last_activity": sighting.last_activity,
        "node_uuid": machine.node_id,
        "reported_at": machine.reported_at.map(|at| at.to_string()),
        "report": machine.reported_at.map(|_| &machine.summary),
    })
}

async fn delete(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let mac = parse_mac(&request)?;
    let address = mac.clone();
    let deleted = request.app.store.write(move |tx| tx.delete_sighting(&address)).await?;
    forget_in_boot_services(&request, &mac);
    if deleted {
        Ok(ApiResponse::no_content())
    } else {
        let text = request.param("mac");
        Err(WireError::new(404, format!("No machine with MAC address {text} was seen.")).into())
    }
}

async fn enrol(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let mac = parse_mac(&request)?;
    let body = Value::Object(parse_object(&request.body, "enrol")?);
    let body: EnrolBody = parse_fields(body)?;
    let enrolment = parse_enrolment(&request, body)?;
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    let enrolled = conductor.enrol_unknown_machine(mac.clone(), enrolment, actor).await;
    let enrolled = enrolled.map_err(enrol_error)?;
    forget_in_boot_services(&request, &mac);
    let body = json!({"uuid": enrolled}).to_string().into_bytes();
    Ok(ApiResponse::created(body, &request.link(&format!("nodes/{enrolled}"))))
}

fn parse_enrolment(request: &ApiRequest, body: EnrolBody) -> Result<NewNodeSettings, WireError> {
    let EnrolBody { driver, driver_info, name, resource_class, conductor_group } = body;
    if let Some(name) = &name
        && !is_logical_name(name)
    {
        return Err(WireError::invalid_field("name", "it must be a host name"));
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
    let config = &request.app.config;
    Ok(NewNodeSettings {
        driver,
        driver_info,
        name,
        conductor_group: conductor_group
            .unwrap_or_else(|| config.default_conductor_group.clone())
            .to_lowercase(),
        resource_class: resource_class.or_else(|| config.default_resource_class.clone()),
    })
}

fn enrol_error(error: EnrolError) -> ApiError {
    let message = error.to_string();
    match error {
        EnrolError::Unknown(_) => WireError::new(404, message).into(),
        EnrolError::Enrolled { .. } | EnrolError::Name(_) => WireError::conflict(message).into(),
        EnrolError::Driver(_) => WireError::invalid_field("driver", &message).into(),
        EnrolError::Failed(error) => error.into(),
    }
}

/// The MAC address in the path.
fn parse_mac(request: &ApiRequest) -> Result<Mac, WireError> {
    request
        .param("mac")
        .parse()
        .map_err(|_| WireError::invalid_field("mac", "it must be a MAC address"))
}

/// Removes the machine from the boot services' in-memory cache of unknown machines.
fn forget_in_boot_services(request: &ApiRequest, mac: &Mac) {
    if let Some(boot) = &request.app.boot {
        boot.forget_unknown_machine(mac);
    }
}
