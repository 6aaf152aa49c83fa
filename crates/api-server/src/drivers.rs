// SPDX-License-Identifier: Apache-2.0
//! Drivers: the hardware types that nodes can have, and what each offers.

use ironic_wire::{
    Context, DriverInterface, DriverView, JsonWriter, ListQuery, Param, ParamKind, Params,
    WireError, params, write_list,
};
use node_model::InterfaceKind;

use crate::app::App;
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, TooOld};

const ONE: Params = &[Param::new("fields", 77, ParamKind::Fields)];

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/drivers", "List drivers", handler!(list)).query(&["type", "detail", "fields"]),
    Route::get("/v1/drivers/{driver}", "Show a driver", handler!(show)).query(&["fields"]),
    Route::get(
        "/v1/drivers/{driver}/properties",
        "List what driver_info of a driver's nodes may hold",
        handler!(properties),
    ),
    Route::get(
        "/v1/drivers/{driver}/raid/logical_disk_properties",
        "List what may be said about the logical disks of a driver's nodes",
        handler!(logical_disk_properties),
    )
    .since(12)
    .too_old(TooOld::NotAcceptable),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    let (version, query) = (call.version, &call.query);
    let query = ListQuery::<DriverView>::parse(params::DRIVERS, query, version, 1, false)?;
    let drivers = match query.text("type") {
        None | Some("dynamic") => views(&call).await?,
        // There have been no others for years; the word is still accepted.
        Some("classic") => Vec::new(),
        Some(_) => {
            let problem = "'type' must be 'dynamic' or 'classic'.";
            return Err(WireError::invalid(problem).into());
        }
    };
    let context = Context::new(version, &call.base_url);
    let body = write_list::<DriverView, Refusal>(
        &query.selection,
        &context,
        |each| {
            drivers.iter().for_each(each);
            Ok(())
        },
        || None,
    )?;
    Ok(Reply::ok(body))
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    let query = ListQuery::<DriverView>::parse(ONE, &call.query, call.version, 1, true)?;
    let wanted = call.param("driver");
    let found = views(&call).await?.into_iter().find(|driver| driver.name == wanted);
    let driver = found.ok_or_else(|| unknown(wanted))?;
    let context = Context::new(call.version, &call.base_url);
    Ok(Reply::ok(query.selection.body(&driver, &context)))
}

async fn properties(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let driver = call.param("driver");
    let properties = call.app.conductor.registry().properties(driver);
    Ok(described(&properties.map_err(|_| unknown(driver))?))
}

async fn logical_disk_properties(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let name = call.param("driver");
    let driver = call.app.conductor.registry().default_driver(name).map_err(|_| unknown(name))?;
    let properties = driver.raid().logical_disk_properties().ok_or_else(|| {
        WireError::new(404, format!("The RAID interface of driver {name} has no logical disks."))
    })?;
    Ok(described(properties))
}

/// The drivers that living conductors have enabled, by name.
async fn views(call: &Call) -> Result<Vec<DriverView>, Refusal> {
    let (app, now) = (call.app.clone(), call.now());
    let caretakers = call.app.store.read(move |reader| app.caretakers.get(reader, now)).await?;
    let mut drivers: Vec<DriverView> = Vec::new();
    for conductor in caretakers.all() {
        for name in &conductor.drivers {
            match drivers.iter_mut().find(|driver| driver.name == *name) {
                Some(driver) => driver.hosts.push(conductor.hostname.clone()),
                None => drivers.push(DriverView {
                    name: name.clone(),
                    hosts: vec![conductor.hostname.clone()],
                    interfaces: interfaces(&call.app, name),
                }),
            }
        }
    }
    drivers.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(drivers)
}

/// What a driver offers. One that only other processes have enabled is shown without.
fn interfaces(app: &App, driver: &str) -> Vec<DriverInterface> {
    let registry = app.conductor.registry();
    let offer = |kind: &InterfaceKind| {
        let enabled = registry.enabled_interfaces(driver, *kind).ok()?;
        Some(DriverInterface {
            kind: *kind,
            default: registry.default_interface(driver, *kind).ok().map(str::to_owned),
            enabled: enabled.into_iter().map(str::to_owned).collect(),
        })
    };
    InterfaceKind::ALL.iter().filter_map(offer).collect()
}

/// `{"name": "what it means", …}`.
fn described(properties: &[(&str, &str)]) -> Reply {
    let mut writer = JsonWriter::with_capacity(1024);
    writer.begin_object();
    for (name, meaning) in properties {
        writer.any_key(name);
        writer.string(meaning);
    }
    writer.end_object();
    Reply::ok(writer.into_bytes())
}

fn unknown(driver: &str) -> WireError {
    let shown: String = driver.chars().take(120).collect();
    WireError::new(404, format!("There is no driver {shown}; GET /v1/drivers lists those enabled."))
}
