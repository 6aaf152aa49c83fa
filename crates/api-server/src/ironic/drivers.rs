// SPDX-License-Identifier: Apache-2.0
//! Drivers: the enabled hardware types with their interfaces and properties.

use ironic_wire::{
    DriverInterface, DriverView, JsonWriter, ListQuery, ParamKind, QueryParam, QueryParams,
    RenderContext, WireError, params, write_list,
};

use crate::app::App;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, TooOld};

const ONE: QueryParams = &[QueryParam::new("fields", 77, ParamKind::Fields)];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/drivers", "List drivers", handler!(list))
        .rule("baremetal:driver:get")
        .query(&["type", "detail", "fields"]),
    ApiRoute::get("/v1/drivers/{driver}", "Show a driver", handler!(show))
        .rule("baremetal:driver:get")
        .query(&["fields"]),
    ApiRoute::get(
        "/v1/drivers/{driver}/properties",
        "List the driver_info properties of a driver",
        handler!(properties),
    )
    .rule("baremetal:driver:get_properties"),
    ApiRoute::get(
        "/v1/drivers/{driver}/raid/logical_disk_properties",
        "List the logical disk properties of a driver",
        handler!(logical_disk_properties),
    )
    .rule("baremetal:driver:get_raid_logical_disk_properties")
    .since(12)
    .too_old(TooOld::NotAcceptable),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (version, query) = (request.version, &request.query);
    let query = ListQuery::<DriverView>::parse(params::DRIVERS, query, version, 1, false)?;
    let drivers = match query.text("type") {
        None | Some("dynamic") => views(&request).await?,
        // Classic drivers were removed from Ironic; the value is still accepted.
        Some("classic") => Vec::new(),
        Some(_) => {
            let problem = "'type' must be 'dynamic' or 'classic'.";
            return Err(WireError::invalid(problem).into());
        }
    };
    let context = RenderContext::new(version, &request.base_url);
    let body = write_list::<DriverView, ApiError>(
        &query.selection,
        &context,
        |each| {
            drivers.iter().for_each(each);
            Ok(())
        },
        || None,
    )?;
    Ok(ApiResponse::ok(body))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let query = ListQuery::<DriverView>::parse(ONE, &request.query, request.version, 1, true)?;
    let name = request.param("driver");
    let found = views(&request).await?.into_iter().find(|driver| driver.name == name);
    let driver = found.ok_or_else(|| unknown_driver(name))?;
    let context = RenderContext::new(request.version, &request.base_url);
    Ok(ApiResponse::ok(query.selection.body(&driver, &context)))
}

async fn properties(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let driver = request.param("driver");
    let properties = request.app.conductor.driver_properties(driver);
    Ok(properties_response(&properties.map_err(|_| unknown_driver(driver))?))
}

async fn logical_disk_properties(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let name = request.param("driver");
    let properties = request.app.conductor.logical_disk_properties(name);
    let properties = properties.map_err(|_| unknown_driver(name))?.ok_or_else(|| {
        WireError::new(404, format!("The RAID interface of driver {name} has no logical disks."))
    })?;
    Ok(properties_response(properties))
}

/// The drivers enabled on live conductors, sorted by name.
async fn views(request: &ApiRequest) -> Result<Vec<DriverView>, ApiError> {
    let (app, now) = (request.app.clone(), request.now());
    let conductors =
        request.app.store.read(move |reader| app.conductor_cache.get(reader, now)).await?;
    let mut drivers: Vec<DriverView> = Vec::new();
    for conductor in conductors.all() {
        for name in &conductor.drivers {
            match drivers.iter_mut().find(|driver| driver.name == *name) {
                Some(driver) => driver.hosts.push(conductor.hostname.clone()),
                None => drivers.push(DriverView {
                    name: name.clone(),
                    hosts: vec![conductor.hostname.clone()],
                    interfaces: interfaces(&request.app, name),
                }),
            }
        }
    }
    drivers.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(drivers)
}

/// The interfaces of a driver; empty if it is only enabled in other processes.
fn interfaces(app: &App, driver: &str) -> Vec<DriverInterface> {
    let choices = app.conductor.driver_interfaces(driver).into_iter();
    choices
        .map(|choice| DriverInterface {
            kind: choice.kind,
            default: Some(choice.default.to_owned()),
            enabled: choice.enabled.into_iter().map(str::to_owned).collect(),
        })
        .collect()
}

/// `{"name": "description", …}`.
fn properties_response(properties: &[(&str, &str)]) -> ApiResponse {
    let mut writer = JsonWriter::with_capacity(1024);
    writer.begin_object();
    for (name, description) in properties {
        writer.dynamic_key(name);
        writer.string(description);
    }
    writer.end_object();
    ApiResponse::ok(writer.into_bytes())
}

fn unknown_driver(driver: &str) -> WireError {
    let excerpt: String = driver.chars().take(120).collect();
    WireError::new(
        404,
        format!("There is no driver {excerpt}; GET /v1/drivers lists those enabled."),
    )
}
