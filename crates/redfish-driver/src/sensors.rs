// SPDX-License-Identifier: Apache-2.0
//! Sensors: fans, temperatures, power and disks.
//!
//! Older BMCs report them in `Thermal` and `Power` of a chassis; newer ones in `ThermalSubsystem` and
//! `PowerSubsystem` with a resource per part, or only as `Sensors`. The number of requests is limited
//! because sensors are read periodically.

use drivers::{DriverError, Sensor, SensorKind, SensorStatus};
use node_model::Health;
use redfish::RedfishResource;
use serde_json::Value;

use super::bmc::RedfishBmc;
use super::resource_id::id;
use super::resource_reader::ResourceReader;
use super::retries::ignore_failure;

/// Maximum number of chassis.
const MAX_CHASSIS: usize = 4;
/// Maximum number of requests, besides those for the System and its chassis.
const MAX_REQUESTS: usize = 80;

/// Reads all sensors of a machine. Resources that the BMC does not return are skipped.
pub(super) async fn read(
    bmc: &RedfishBmc,
    system: &RedfishResource,
) -> Result<Vec<Sensor>, DriverError> {
    let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
    let chassis = bmc.client().chassis(system).await.map_err(|error| bmc.explain(error));
    let reader = ResourceReader::new(bmc, &root, MAX_REQUESTS);
    let mut reader = SensorReader { reader, sensors: Vec::new() };
    for chassis in ignore_failure(chassis)?.iter().take(MAX_CHASSIS) {
        reader.chassis(chassis).await?;
    }
    reader.drives(system).await?;
    Ok(with_unique_names(reader.sensors))
}

/// Reads resources and collects their sensors.
struct SensorReader<'a> {
    reader: ResourceReader<'a>,
    sensors: Vec<Sensor>,
}

impl SensorReader<'_> {
    async fn chassis(&mut self, chassis: &RedfishResource) -> Result<(), DriverError> {
        let location = id(chassis);
        let before = self.sensors.len();
        if let Some(thermal) = self.reader.follow(chassis, "/Thermal").await? {
            self.add_entries(thermal.list("/Fans"), FAN, location);
            self.add_entries(thermal.list("/Temperatures"), TEMPERATURE, location);
        } else if let Some(thermal) = self.reader.follow(chassis, "/ThermalSubsystem").await? {
            for fan in self.reader.members(&thermal, "/Fans").await? {
                self.sensors.extend(sensor(&fan.body, FAN, location));
            }
            if let Some(metrics) = self.reader.follow(&thermal, "/ThermalMetrics").await? {
                self.add_entries(
                    metrics.list("/TemperatureReadingsCelsius"),
                    TEMPERATURE,
                    location,
                );
            }
        }
        if let Some(power) = self.reader.follow(chassis, "/Power").await? {
            self.add_entries(power.list("/PowerSupplies"), SUPPLY, location);
            self.add_entries(power.list("/PowerControl"), CONSUMPTION, location);
            self.add_entries(power.list("/Voltages"), VOLTAGE, location);
        } else if let Some(power) = self.reader.follow(chassis, "/PowerSubsystem").await? {
            for supply in self.reader.members(&power, "/PowerSupplies").await? {
                self.supply(&supply, location).await?;
            }
        }
        if self.sensors.len() == before {
            for single in self.reader.members(chassis, "/Sensors").await? {
                let found =
                    layout_of(&single).and_then(|layout| sensor(&single.body, layout, location));
                self.sensors.extend(found);
            }
        }
        Ok(())
    }

    /// Adds a power supply of a `PowerSubsystem`, whose readings are in a `Metrics` resource.
    async fn supply(
        &mut self,
        supply: &RedfishResource,
        location: &str,
    ) -> Result<(), DriverError> {
        let Some(mut found) = sensor(&supply.body, SUPPLY, location) else { return Ok(()) };
        if found.reading.is_none()
            && found.status != SensorStatus::Absent
            && let Some(metrics) = self.reader.follow(supply, "/Metrics").await?
        {
            found.reading = metrics
                .number("/InputPowerWatts/Reading")
                .or_else(|| metrics.number("/OutputPowerWatts/Reading"));
        }
        self.sensors.push(found);
        Ok(())
    }

    /// Adds disks: from `SimpleStorage` where it exists, else one request per drive.
    async fn drives(&mut self, system: &RedfishResource) -> Result<(), DriverError> {
        let simple = self.reader.members(system, "/SimpleStorage").await?;
        for storage in &simple {
            let devices = storage.list("/Devices").iter();
            // Backplanes are listed among the disks with a capacity of zero.
            let disks = devices.filter(|device| device["CapacityBytes"].as_f64() > Some(0.0));
            self.sensors.extend(disks.filter_map(|disk| sensor(disk, DRIVE, id(storage))));
        }
        if !simple.is_empty() {
            return Ok(());
        }
        for storage in self.reader.members(system, "/Storage").await? {
            for drive in self.reader.linked(&storage, "/Drives").await? {
                self.sensors.extend(sensor(&drive.body, DRIVE, id(&storage)));
            }
        }
        Ok(())
    }

    fn add_entries(&mut self, entries: &[Value], layout: SensorLayout, location: &str) {
        self.sensors.extend(entries.iter().filter_map(|entry| sensor(entry, layout, location)));
    }
}

/// What an entry measures and the pointers to its reading, best first.
#[derive(Clone, Copy)]
struct SensorLayout {
    kind: SensorKind,
    unit: &'static str,
    readings: &'static [&'static str],
}

const FAN: SensorLayout = SensorLayout {
    kind: SensorKind::Fan,
    unit: "RPM",
    readings: &["/Reading", "/ReadingRPM", "/SpeedPercent/SpeedRPM", "/SpeedPercent/Reading"],
};
const TEMPERATURE: SensorLayout = SensorLayout {
    kind: SensorKind::Temperature,
    unit: "Celsius",
    readings: &["/ReadingCelsius", "/Reading"],
};
const SUPPLY: SensorLayout = SensorLayout {
    kind: SensorKind::Power,
    unit: "Watts",
    readings: &["/PowerInputWatts", "/LastPowerOutputWatts", "/PowerOutputWatts"],
};
const CONSUMPTION: SensorLayout =
    SensorLayout { kind: SensorKind::Power, unit: "Watts", readings: &["/PowerConsumedWatts"] };
const VOLTAGE: SensorLayout = SensorLayout {
    kind: SensorKind::Power,
    unit: "Volts",
    readings: &["/ReadingVolts", "/Reading"],
};
const WATTS: SensorLayout =
    SensorLayout { kind: SensorKind::Power, unit: "Watts", readings: &["/Reading"] };
const DRIVE: SensorLayout = SensorLayout {
    kind: SensorKind::Drive,
    unit: "Percent",
    readings: &["/PredictedMediaLifeLeftPercent"],
};

/// The layout of a `Sensor` resource; `None` for reading types that are not reported.
fn layout_of(sensor: &RedfishResource) -> Option<SensorLayout> {
    match sensor.text("/ReadingType")? {
        "Temperature" => Some(TEMPERATURE),
        "Rotational" => Some(FAN),
        "Power" => Some(WATTS),
        "Voltage" => Some(VOLTAGE),
        _ => None,
    }
}

/// Parses the sensor in an entry; `None` if it has no name.
fn sensor(entry: &Value, layout: SensorLayout, location: &str) -> Option<Sensor> {
    let names = ["Name", "FanName", "DeviceName", "MemberId", "Id"];
    let name = names
        .iter()
        .find_map(|key| entry.get(*key)?.as_str().map(str::trim))
        .filter(|name| !name.is_empty())?;
    let reading = layout.readings.iter().find_map(|pointer| number(entry.pointer(pointer)?));
    let has_percent = entry
        .get("ReadingUnits")
        .and_then(Value::as_str)
        .is_some_and(|unit| unit == "Percent" || unit == "%")
        || entry.pointer("/SpeedPercent").is_some()
            && entry.pointer("/SpeedPercent/SpeedRPM").is_none();
    let unit = if layout.kind == SensorKind::Fan && has_percent { "Percent" } else { layout.unit };
    Some(Sensor {
        name: if location.is_empty() { name.to_owned() } else { format!("{name}@{location}") },
        kind: layout.kind,
        reading,
        unit,
        status: status(entry),
    })
}

/// The status of a part. One with neither state nor health counts as enabled and OK.
fn status(entry: &Value) -> SensorStatus {
    let text = |pointer| entry.pointer(pointer).and_then(Value::as_str);
    match text("/Status/State") {
        Some("Absent" | "Disabled" | "UnavailableOffline" | "StandbyOffline" | "Deferring") => {
            SensorStatus::Absent
        }
        Some(_) | None => {
            let reported = text("/Status/Health").or_else(|| text("/Status/HealthRollup"));
            SensorStatus::Enabled(reported.and_then(health).unwrap_or(Health::Ok))
        }
    }
}

/// Parses a Redfish health value.
pub(super) fn health(name: &str) -> Option<Health> {
    match name {
        "OK" => Some(Health::Ok),
        "Warning" => Some(Health::Warning),
        "Critical" => Some(Health::Critical),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Numbers duplicates of the same kind and name from the second on.
fn with_unique_names(mut sensors: Vec<Sensor>) -> Vec<Sensor> {
    let mut seen = std::collections::HashMap::new();
    for sensor in &mut sensors {
        let times = seen.entry((sensor.kind, sensor.name.clone())).or_insert(0u32);
        *times += 1;
        if *times > 1 {
            sensor.name = format!("{} #{times}", sensor.name);
        }
    }
    sensors
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn sensor_text(entry: Value, layout: SensorLayout) -> String {
        match sensor(&entry, layout, "1U") {
            None => "none".to_owned(),
            Some(Sensor { name, kind, reading, unit, status }) => {
                let reading = reading.map_or("-".to_owned(), |reading| reading.to_string());
                let status = match status {
                    SensorStatus::Enabled(health) => health.as_str(),
                    SensorStatus::Absent => "absent",
                };
                format!("{kind} {name} {reading} {unit} {status}")
            }
        }
    }

    #[test]
    fn parses_entries_of_all_kinds() {
        for (layout, entry, expected) in [
            (
                FAN,
                json!({"Name": "Fan 1", "Reading": 5400, "ReadingUnits": "RPM", "Status": {"State": "Enabled", "Health": "OK"}}),
                "Fan Fan 1@1U 5400 RPM OK",
            ),
            (
                FAN,
                json!({"FanName": "Fan 2", "Reading": 31, "ReadingUnits": "Percent"}),
                "Fan Fan 2@1U 31 Percent OK",
            ),
            (
                FAN,
                json!({"Name": "Fan 3", "SpeedPercent": {"Reading": 45, "SpeedRPM": 2200}}),
                "Fan Fan 3@1U 2200 RPM OK",
            ),
            (
                FAN,
                json!({"Name": "Fan 4", "SpeedPercent": {"Reading": 45}}),
                "Fan Fan 4@1U 45 Percent OK",
            ),
            (
                TEMPERATURE,
                json!({"Name": "CPU1 Temp", "ReadingCelsius": 41.5, "Status": {"Health": "Warning"}}),
                "Temperature CPU1 Temp@1U 41.5 Celsius WARNING",
            ),
            (
                TEMPERATURE,
                json!({"Name": "DIMM", "ReadingCelsius": null, "Status": {"State": "Absent"}}),
                "Temperature DIMM@1U - Celsius absent",
            ),
            (
                TEMPERATURE,
                json!({"DeviceName": "Intake", "Reading": "21"}),
                "Temperature Intake@1U 21 Celsius OK",
            ),
            (
                SUPPLY,
                json!({"MemberId": "0", "LastPowerOutputWatts": 112, "Status": {"State": "Enabled", "Health": "Critical"}}),
                "Power 0@1U 112 Watts CRITICAL",
            ),
            (VOLTAGE, json!({"Name": "12V", "ReadingVolts": 12.1}), "Power 12V@1U 12.1 Volts OK"),
            (
                DRIVE,
                json!({"Name": "SSD 0", "PredictedMediaLifeLeftPercent": 97, "Status": {"Health": "OK"}}),
                "Drive SSD 0@1U 97 Percent OK",
            ),
            (FAN, json!({"Reading": 1}), "none"),
            (FAN, json!({"Name": "  "}), "none"),
            (FAN, json!(5), "none"),
        ] {
            assert_eq!(sensor_text(entry.clone(), layout), expected, "{entry}");
        }
    }

    #[test]
    fn names_are_unique_within_a_kind() {
        let entry = json!({"Name": "Fan"});
        let sensors =
            [FAN, FAN, TEMPERATURE, FAN].map(|layout| sensor(&entry, layout, "").unwrap());
        let names: Vec<_> =
            with_unique_names(sensors.into()).into_iter().map(|sensor| sensor.name).collect();
        assert_eq!(names, ["Fan", "Fan #2", "Fan", "Fan #3"]);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(name in "\\PC{0,8}", reading in any::<f64>(), state in "\\PC{0,8}") {
            let entry = json!({"Name": name, "Reading": reading, "Status": state});
            let _ = sensor(&entry, FAN, "x");
        }
    }
}
