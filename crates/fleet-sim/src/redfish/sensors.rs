// SPDX-License-Identifier: Apache-2.0
//! Temperatures, fans and power supplies, in the old resources (Thermal, Power) and in the new ones
//! (Sensors, ThermalSubsystem, PowerSubsystem).

use serde_json::{Value, json};

use super::document::{Document, collection, link, status};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::systems::numbered;
use super::visit::Visit;
use crate::machine::{Health, Reading, SENSORS, SensorKind};

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::Thermal, "/redfish/v1/Chassis/{chassis}/Thermal").get(thermal).volatile(),
    Route::at(Kind::Power, "/redfish/v1/Chassis/{chassis}/Power").get(power).volatile(),
    Route::at(Kind::Sensors, "/redfish/v1/Chassis/{chassis}/Sensors").get(list),
    Route::at(Kind::Sensor, "/redfish/v1/Chassis/{chassis}/Sensors/{sensor}").get(show).volatile(),
    Route::at(Kind::ThermalSubsystem, "/redfish/v1/Chassis/{chassis}/ThermalSubsystem")
        .get(thermal_subsystem),
    Route::at(Kind::Fans, "/redfish/v1/Chassis/{chassis}/ThermalSubsystem/Fans").get(fans),
    Route::at(Kind::Fan, "/redfish/v1/Chassis/{chassis}/ThermalSubsystem/Fans/{fan}")
        .get(fan)
        .volatile(),
    Route::at(
        Kind::ThermalSubsystem,
        "/redfish/v1/Chassis/{chassis}/ThermalSubsystem/ThermalMetrics",
    )
    .get(thermal_metrics)
    .volatile(),
    Route::at(Kind::PowerSubsystem, "/redfish/v1/Chassis/{chassis}/PowerSubsystem")
        .get(power_subsystem),
    Route::at(Kind::PowerSupplies, "/redfish/v1/Chassis/{chassis}/PowerSubsystem/PowerSupplies")
        .get(supplies),
    Route::at(
        Kind::PowerSupply,
        "/redfish/v1/Chassis/{chassis}/PowerSubsystem/PowerSupplies/{supply}",
    )
    .get(supply)
    .volatile(),
];

/// What each power supply can give.
const SUPPLY_WATTS: u32 = 800;

fn thermal(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let mut document = Document::new(visit.path, "#Thermal.v1_7_1.Thermal", "Thermal", "Thermal");
    let temperatures = old_style(visit, SensorKind::Temperature, "Temperatures", |reading| {
        json!({
            "ReadingCelsius": reading.value,
            "UpperThresholdNonCritical": reading.sensor.upper_caution,
            "UpperThresholdCritical": reading.sensor.upper_critical,
        })
    });
    let fans = old_style(
        visit,
        SensorKind::Fan,
        "Fans",
        |reading| json!({"Reading": reading.value, "ReadingUnits": "RPM"}),
    );
    document.put("Temperatures", temperatures).put("Fans", fans);
    Ok(document.done())
}

fn power(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let mut document = Document::new(visit.path, "#Power.v1_7_1.Power", "Power", "Power");
    let supplies = old_style(visit, SensorKind::Power, "PowerSupplies", |reading| {
        json!({
            "PowerCapacityWatts": SUPPLY_WATTS,
            "LastPowerOutputWatts": reading.value,
            "LineInputVoltage": 230,
            "LineInputVoltageType": "AC240V",
            "PowerSupplyType": "AC",
            "SerialNumber": visit.machine.identity().part_serial(200),
        })
    });
    let voltages = old_style(
        visit,
        SensorKind::Voltage,
        "Voltages",
        |reading| json!({"ReadingVolts": reading.value, "UpperThresholdCritical": reading.sensor.upper_critical}),
    );
    document.put("PowerSupplies", supplies).put("Voltages", voltages);
    document.put(
        "PowerControl",
        json!([{
            "@odata.id": format!("{}#/PowerControl/0", visit.path),
            "MemberId": "0",
            "Name": "System Power Control",
            "PowerConsumedWatts": consumed(visit),
            "PowerCapacityWatts": SUPPLY_WATTS * 2,
        }]),
    );
    Ok(document.done())
}

/// The members of an array of readings, each with the fields of its kind.
fn old_style(
    visit: &Visit<'_>,
    kind: SensorKind,
    array: &str,
    fields: impl Fn(&Reading) -> Value,
) -> Vec<Value> {
    let readings = visit.machine.readings(visit.now).filter(|reading| reading.sensor.kind == kind);
    readings
        .enumerate()
        .map(|(place, reading)| {
            let mut member = fields(&reading);
            if let Some(member) = member.as_object_mut() {
                let mut put = |name: &str, value: Value| member.insert(name.to_owned(), value);
                put("@odata.id", format!("{}#/{array}/{place}", visit.path).into());
                put("MemberId", place.to_string().into());
                put("Name", reading.sensor.name.into());
                put("PhysicalContext", reading.sensor.context.into());
                put("Status", status(Health::Ok));
            }
            member
        })
        .collect()
}

fn list(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let members = SENSORS.iter().map(|sensor| format!("{}/{}", visit.path, sensor.id));
    Ok(collection(visit.path, "#SensorCollection.SensorCollection", "Sensors", members))
}

fn show(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let id = visit.param("sensor");
    let place = SENSORS.iter().position(|sensor| sensor.id == id);
    let reading = place.and_then(|place| visit.machine.reading(place, visit.now));
    let reading = reading.ok_or_else(|| visit.not_found())?;
    let sensor = reading.sensor;
    let reading_type = match sensor.kind {
        SensorKind::Temperature => "Temperature",
        SensorKind::Fan => "Rotational",
        SensorKind::Power => "Power",
        SensorKind::Voltage => "Voltage",
    };
    let mut document = Document::new(visit.path, "#Sensor.v1_7_0.Sensor", id, sensor.name);
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
    Ok(document.done())
}

fn thermal_subsystem(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#ThermalSubsystem.v1_3_0.ThermalSubsystem";
    let mut document = Document::new(visit.path, schema, "ThermalSubsystem", "Thermal Subsystem");
    document
        .link("Fans", format!("{}/Fans", visit.path))
        .link("ThermalMetrics", format!("{}/ThermalMetrics", visit.path))
        .put("Status", status(Health::Ok));
    Ok(document.done())
}

fn thermal_metrics(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let readings = visit.machine.readings(visit.now);
    let readings = readings.filter(|reading| reading.sensor.kind == SensorKind::Temperature);
    let summary: Vec<Value> = readings.map(|reading| excerpt(visit, &reading)).collect();
    let schema = "#ThermalMetrics.v1_3_0.ThermalMetrics";
    let mut document = Document::new(visit.path, schema, "ThermalMetrics", "Thermal Metrics");
    document.put("TemperatureReadingsCelsius", summary);
    Ok(document.done())
}

fn fans(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let members = of_kind(SensorKind::Fan).map(|(_, sensor)| format!("{}/{}", visit.path, sensor));
    Ok(collection(visit.path, "#FanCollection.FanCollection", "Fans", members))
}

fn fan(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let id = visit.param("fan");
    let (place, _) = of_kind(SensorKind::Fan)
        .find(|(_, sensor)| *sensor == id)
        .ok_or_else(|| visit.not_found())?;
    let reading = visit.machine.reading(place, visit.now).ok_or_else(|| visit.not_found())?;
    let mut document = Document::new(visit.path, "#Fan.v1_5_0.Fan", id, reading.sensor.name);
    document.extend(json!({
        "SpeedPercent": {
            "DataSourceUri": sensor_path(visit, reading.sensor.id),
            "Reading": (reading.value / 120.0).round(),
            "SpeedRPM": reading.value,
        },
        "PhysicalContext": reading.sensor.context,
        "Status": status(Health::Ok),
    }));
    Ok(document.done())
}

fn power_subsystem(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#PowerSubsystem.v1_1_0.PowerSubsystem";
    let mut document = Document::new(visit.path, schema, "PowerSubsystem", "Power Subsystem");
    document
        .put("CapacityWatts", SUPPLY_WATTS * 2)
        .link("PowerSupplies", format!("{}/PowerSupplies", visit.path))
        .put("Status", status(Health::Ok));
    Ok(document.done())
}

fn supplies(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#PowerSupplyCollection.PowerSupplyCollection";
    let count = of_kind(SensorKind::Power).count();
    let members = (1..=count).map(|number| format!("{}/PSU{number}", visit.path));
    Ok(collection(visit.path, schema, "Power Supplies", members))
}

fn supply(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let id = visit.param("supply");
    let number = numbered(id, "PSU", 2).ok_or_else(|| visit.not_found())?;
    let place = of_kind(SensorKind::Power)
        .nth(usize::try_from(number).unwrap_or(1).saturating_sub(1))
        .map(|(place, _)| place);
    let reading = place.and_then(|place| visit.machine.reading(place, visit.now));
    let reading = reading.ok_or_else(|| visit.not_found())?;
    let schema = "#PowerSupply.v1_5_1.PowerSupply";
    let mut document = Document::new(visit.path, schema, id, &format!("Power Supply {number}"));
    document.extend(json!({
        "PowerCapacityWatts": SUPPLY_WATTS,
        "PowerSupplyType": "AC",
        "SerialNumber": visit.machine.identity().part_serial(200 + number),
        "InputRanges": [{"CapacityWatts": SUPPLY_WATTS, "NominalVoltageType": "AC240V"}],
        "Status": status(Health::Ok),
        "Metrics": link(sensor_path(visit, reading.sensor.id)),
    }));
    Ok(document.done())
}

/// The sensors of one kind: their places in the table and their ids.
fn of_kind(kind: SensorKind) -> impl Iterator<Item = (usize, &'static str)> {
    let all = SENSORS.iter().enumerate();
    all.filter(move |(_, sensor)| sensor.kind == kind).map(|(place, sensor)| (place, sensor.id))
}

fn excerpt(visit: &Visit<'_>, reading: &Reading) -> Value {
    json!({
        "DataSourceUri": sensor_path(visit, reading.sensor.id),
        "DeviceName": reading.sensor.name,
        "PhysicalContext": reading.sensor.context,
        "Reading": reading.value,
    })
}

fn consumed(visit: &Visit<'_>) -> f64 {
    let readings = visit.machine.readings(visit.now);
    readings
        .filter(|reading| reading.sensor.kind == SensorKind::Power)
        .map(|reading| reading.value)
        .sum()
}

fn sensor_path(visit: &Visit<'_>, id: &str) -> String {
    format!("{}/Sensors/{id}", visit.chassis())
}
