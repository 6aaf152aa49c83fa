// SPDX-License-Identifier: Apache-2.0
//! Temperatures, fans and power supplies, as the deprecated resources (Thermal, Power) and as the
//! current ones (Sensors, ThermalSubsystem, PowerSubsystem).

use serde_json::{Value, json};

use super::document::{ResourceDocument, collection, link, status};
use super::error_response::RedfishErrorResponse;
use super::request_context::RequestContext;
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use super::systems::parse_numbered_id;
use crate::machine::{Health, SENSORS, SensorKind, SimulatedSensorReading};

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::Thermal, "/redfish/v1/Chassis/{chassis}/Thermal")
        .get(thermal)
        .volatile(),
    RedfishRoute::at(ResourceKind::Power, "/redfish/v1/Chassis/{chassis}/Power")
        .get(power)
        .volatile(),
    RedfishRoute::at(ResourceKind::Sensors, "/redfish/v1/Chassis/{chassis}/Sensors").get(list),
    RedfishRoute::at(ResourceKind::Sensor, "/redfish/v1/Chassis/{chassis}/Sensors/{sensor}")
        .get(show)
        .volatile(),
    RedfishRoute::at(
        ResourceKind::ThermalSubsystem,
        "/redfish/v1/Chassis/{chassis}/ThermalSubsystem",
    )
    .get(thermal_subsystem),
    RedfishRoute::at(ResourceKind::Fans, "/redfish/v1/Chassis/{chassis}/ThermalSubsystem/Fans")
        .get(fans),
    RedfishRoute::at(
        ResourceKind::Fan,
        "/redfish/v1/Chassis/{chassis}/ThermalSubsystem/Fans/{fan}",
    )
    .get(fan)
    .volatile(),
    RedfishRoute::at(
        ResourceKind::ThermalSubsystem,
        "/redfish/v1/Chassis/{chassis}/ThermalSubsystem/ThermalMetrics",
    )
    .get(thermal_metrics)
    .volatile(),
    RedfishRoute::at(ResourceKind::PowerSubsystem, "/redfish/v1/Chassis/{chassis}/PowerSubsystem")
        .get(power_subsystem),
    RedfishRoute::at(
        ResourceKind::PowerSupplies,
        "/redfish/v1/Chassis/{chassis}/PowerSubsystem/PowerSupplies",
    )
    .get(power_supplies),
    RedfishRoute::at(
        ResourceKind::PowerSupply,
        "/redfish/v1/Chassis/{chassis}/PowerSubsystem/PowerSupplies/{supply}",
    )
    .get(power_supply)
    .volatile(),
];

/// Capacity of each power supply.
const SUPPLY_WATTS: u32 = 800;

fn thermal(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let mut document =
        ResourceDocument::new(context.path, "#Thermal.v1_7_1.Thermal", "Thermal", "Thermal");
    let temperatures =
        readings_array(context, SensorKind::Temperature, "Temperatures", |reading| {
            json!({
                "ReadingCelsius": reading.value,
                "UpperThresholdNonCritical": reading.sensor.upper_caution,
                "UpperThresholdCritical": reading.sensor.upper_critical,
            })
        });
    let fans = readings_array(
        context,
        SensorKind::Fan,
        "Fans",
        |reading| json!({"Reading": reading.value, "ReadingUnits": "RPM"}),
    );
    document.set("Temperatures", temperatures).set("Fans", fans);
    Ok(document.into_value())
}

fn power(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let mut document = ResourceDocument::new(context.path, "#Power.v1_7_1.Power", "Power", "Power");
    let supplies = readings_array(context, SensorKind::Power, "PowerSupplies", |reading| {
        json!({
            "PowerCapacityWatts": SUPPLY_WATTS,
            "LastPowerOutputWatts": reading.value,
            "LineInputVoltage": 230,
            "LineInputVoltageType": "AC240V",
            "PowerSupplyType": "AC",
            "SerialNumber": context.machine.identity().part_serial(200),
        })
    });
    let voltages = readings_array(
        context,
        SensorKind::Voltage,
        "Voltages",
        |reading| json!({"ReadingVolts": reading.value, "UpperThresholdCritical": reading.sensor.upper_critical}),
    );
    document.set("PowerSupplies", supplies).set("Voltages", voltages);
    document.set(
        "PowerControl",
        json!([{
            "@odata.id": format!("{}#/PowerControl/0", context.path),
            "MemberId": "0",
            "Name": "System Power Control",
            "PowerConsumedWatts": consumed_watts(context),
            "PowerCapacityWatts": SUPPLY_WATTS * 2,
        }]),
    );
    Ok(document.into_value())
}

/// Returns the members of an array in Thermal or Power. `fields` returns the kind's own properties.
fn readings_array(
    context: &RequestContext<'_>,
    kind: SensorKind,
    array: &str,
    fields: impl Fn(&SimulatedSensorReading) -> Value,
) -> Vec<Value> {
    let readings =
        context.machine.readings(context.now).filter(|reading| reading.sensor.kind == kind);
    readings
        .enumerate()
        .map(|(index, reading)| {
            let mut member = fields(&reading);
            if let Some(member) = member.as_object_mut() {
                let mut put = |name: &str, value: Value| member.insert(name.to_owned(), value);
                put("@odata.id", format!("{}#/{array}/{index}", context.path).into());
                put("MemberId", index.to_string().into());
                put("Name", reading.sensor.name.into());
                put("PhysicalContext", reading.sensor.context.into());
                put("Status", status(Health::Ok));
            }
            member
        })
        .collect()
}

fn list(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let members = SENSORS.iter().map(|sensor| format!("{}/{}", context.path, sensor.id));
    Ok(collection(context.path, "#SensorCollection.SensorCollection", "Sensors", members))
}

fn show(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let id = context.param("sensor");
    let index = SENSORS.iter().position(|sensor| sensor.id == id);
    let reading = index.and_then(|index| context.machine.reading(index, context.now));
    let reading = reading.ok_or_else(|| context.not_found())?;
    let sensor = reading.sensor;
    let reading_type = match sensor.kind {
        SensorKind::Temperature => "Temperature",
        SensorKind::Fan => "Rotational",
        SensorKind::Power => "Power",
        SensorKind::Voltage => "Voltage",
    };
    let mut document =
        ResourceDocument::new(context.path, "#Sensor.v1_7_0.Sensor", id, sensor.name);
    document.extend(json!({
        "Reading": reading.value,
        "ReadingType": reading_type,
        "ReadingUnits": sensor.kind.unit(),
        "PhysicalContext": sensor.context,
        "Status": status(Health::Ok),
        "Thresholds": {
            "UpperCaution": {"Reading": sensor.upper_caution},
            "UpperCritical": {"Reading": sensor.upper_critical},
        },
    }));
    Ok(document.into_value())
}

fn thermal_subsystem(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#ThermalSubsystem.v1_3_0.ThermalSubsystem";
    let mut document =
        ResourceDocument::new(context.path, schema, "ThermalSubsystem", "Thermal Subsystem");
    document
        .link("Fans", format!("{}/Fans", context.path))
        .link("ThermalMetrics", format!("{}/ThermalMetrics", context.path))
        .set("Status", status(Health::Ok));
    Ok(document.into_value())
}

fn thermal_metrics(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let readings = context.machine.readings(context.now);
    let readings = readings.filter(|reading| reading.sensor.kind == SensorKind::Temperature);
    let summary: Vec<Value> = readings.map(|reading| excerpt(context, &reading)).collect();
    let schema = "#ThermalMetrics.v1_3_0.ThermalMetrics";
    let mut document =
        ResourceDocument::new(context.path, schema, "ThermalMetrics", "Thermal Metrics");
    document.set("TemperatureReadingsCelsius", summary);
    Ok(document.into_value())
}

fn fans(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let members =
        sensors_of_kind(SensorKind::Fan).map(|(_, sensor)| format!("{}/{}", context.path, sensor));
    Ok(collection(context.path, "#FanCollection.FanCollection", "Fans", members))
}

fn fan(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let id = context.param("fan");
    let (index, _) = sensors_of_kind(SensorKind::Fan)
        .find(|(_, sensor)| *sensor == id)
        .ok_or_else(|| context.not_found())?;
    let reading = context.machine.reading(index, context.now).ok_or_else(|| context.not_found())?;
    let mut document =
        ResourceDocument::new(context.path, "#Fan.v1_5_0.Fan", id, reading.sensor.name);
    document.extend(json!({
        "SpeedPercent": {
            "DataSourceUri": sensor_path(context, reading.sensor.id),
            "Reading": (reading.value / 120.0).round(),
            "SpeedRPM": reading.value,
        },
        "PhysicalContext": reading.sensor.context,
        "Status": status(Health::Ok),
    }));
    Ok(document.into_value())
}

fn power_subsystem(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#PowerSubsystem.v1_1_0.PowerSubsystem";
    let mut document =
        ResourceDocument::new(context.path, schema, "PowerSubsystem", "Power Subsystem");
    document
        .set("CapacityWatts", SUPPLY_WATTS * 2)
        .link("PowerSupplies", format!("{}/PowerSupplies", context.path))
        .set("Status", status(Health::Ok));
    Ok(document.into_value())
}

fn power_supplies(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#PowerSupplyCollection.PowerSupplyCollection";
    let count = sensors_of_kind(SensorKind::Power).count();
    let members = (1..=count).map(|number| format!("{}/PSU{number}", context.path));
    Ok(collection(context.path, schema, "Power Supplies", members))
}

fn power_supply(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let id = context.param("supply");
    let number = parse_numbered_id(id, "PSU", 2).ok_or_else(|| context.not_found())?;
    let index = sensors_of_kind(SensorKind::Power)
        .nth(usize::try_from(number).unwrap_or(1).saturating_sub(1))
        .map(|(index, _)| index);
    let reading = index.and_then(|index| context.machine.reading(index, context.now));
    let reading = reading.ok_or_else(|| context.not_found())?;
    let schema = "#PowerSupply.v1_5_1.PowerSupply";
    let mut document =
        ResourceDocument::new(context.path, schema, id, &format!("Power Supply {number}"));
    document.extend(json!({
        "PowerCapacityWatts": SUPPLY_WATTS,
        "PowerSupplyType": "AC",
        "SerialNumber": context.machine.identity().part_serial(200 + number),
        "InputRanges": [{"CapacityWatts": SUPPLY_WATTS, "NominalVoltageType": "AC240V"}],
        "Status": status(Health::Ok),
        "Metrics": link(sensor_path(context, reading.sensor.id)),
    }));
    Ok(document.into_value())
}

/// Returns the indexes and ids of the sensors of one kind.
fn sensors_of_kind(kind: SensorKind) -> impl Iterator<Item = (usize, &'static str)> {
    let all = SENSORS.iter().enumerate();
    all.filter(move |(_, sensor)| sensor.kind == kind).map(|(index, sensor)| (index, sensor.id))
}

fn excerpt(context: &RequestContext<'_>, reading: &SimulatedSensorReading) -> Value {
    json!({
        "DataSourceUri": sensor_path(context, reading.sensor.id),
        "DeviceName": reading.sensor.name,
        "PhysicalContext": reading.sensor.context,
        "Reading": reading.value,
    })
}

fn consumed_watts(context: &RequestContext<'_>) -> f64 {
    let readings = context.machine.readings(context.now);
    readings
        .filter(|reading| reading.sensor.kind == SensorKind::Power)
        .map(|reading| reading.value)
        .sum()
}

fn sensor_path(context: &RequestContext<'_>, id: &str) -> String {
    format!("{}/Sensors/{id}", context.chassis_path())
}
