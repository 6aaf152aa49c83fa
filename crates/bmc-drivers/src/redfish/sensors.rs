// SPDX-License-Identifier: Apache-2.0
//! What a BMC measures: fans, temperatures, power and disks.
//!
//! Older BMCs tell it in two documents of a chassis, `Thermal` and `Power`; newer ones in
//! `ThermalSubsystem` and `PowerSubsystem` with a resource for each part, or only as a list of
//! sensors. Turning a document into measurements is pure; asking is bounded, because this is read
//! again and again.

use node_model::Health;
use redfish::Resource;
use serde_json::Value;

use super::bmc::Bmc;
use super::names::id;
use super::patience::forgive;
use super::survey::Survey;
use crate::{Error, Sensor, SensorKind, SensorStatus};

/// How many chassis are asked.
const MOST_CHASSIS: usize = 4;
/// How many requests a reading may take, besides those for the machine and its chassis.
const MOST_REQUESTS: usize = 80;

/// All measurements of a machine. What the BMC does not want to tell is left out.
pub(super) async fn read(bmc: &Bmc, system: &Resource) -> Result<Vec<Sensor>, Error> {
    let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
    let chassis = bmc.client().chassis(system).await.map_err(|error| bmc.explain(error));
    let survey = Survey::new(bmc, &root, MOST_REQUESTS);
    let mut reader = Reader { survey, sensors: Vec::new() };
    for chassis in forgive(chassis)?.iter().take(MOST_CHASSIS) {
        reader.chassis(chassis).await?;
    }
    reader.drives(system).await?;
    Ok(with_unique_names(reader.sensors))
}

/// Asks, and keeps what was found.
struct Reader<'a> {
    survey: Survey<'a>,
    sensors: Vec<Sensor>,
}

impl Reader<'_> {
    async fn chassis(&mut self, chassis: &Resource) -> Result<(), Error> {
        let place = id(chassis);
        let before = self.sensors.len();
        if let Some(thermal) = self.survey.follow(chassis, "/Thermal").await? {
            self.keep(thermal.list("/Fans"), FAN, place);
            self.keep(thermal.list("/Temperatures"), TEMPERATURE, place);
        } else if let Some(thermal) = self.survey.follow(chassis, "/ThermalSubsystem").await? {
            for fan in self.survey.members(&thermal, "/Fans").await? {
                self.sensors.extend(sensor(&fan.body, FAN, place));
            }
            if let Some(metrics) = self.survey.follow(&thermal, "/ThermalMetrics").await? {
                self.keep(metrics.list("/TemperatureReadingsCelsius"), TEMPERATURE, place);
            }
        }
        if let Some(power) = self.survey.follow(chassis, "/Power").await? {
            self.keep(power.list("/PowerSupplies"), SUPPLY, place);
            self.keep(power.list("/PowerControl"), CONSUMPTION, place);
            self.keep(power.list("/Voltages"), VOLTAGE, place);
        } else if let Some(power) = self.survey.follow(chassis, "/PowerSubsystem").await? {
            for supply in self.survey.members(&power, "/PowerSupplies").await? {
                self.supply(&supply, place).await?;
            }
        }
        if self.sensors.len() == before {
            for single in self.survey.members(chassis, "/Sensors").await? {
                let found = kind_of(&single).and_then(|row| sensor(&single.body, row, place));
                self.sensors.extend(found);
            }
        }
        Ok(())
    }

    /// A power supply of the newer kind, whose measurements are a resource of their own.
    async fn supply(&mut self, supply: &Resource, place: &str) -> Result<(), Error> {
        let Some(mut found) = sensor(&supply.body, SUPPLY, place) else { return Ok(()) };
        if found.reading.is_none()
            && found.status != SensorStatus::Absent
            && let Some(metrics) = self.survey.follow(supply, "/Metrics").await?
        {
            found.reading = metrics
                .number("/InputPowerWatts/Reading")
                .or_else(|| metrics.number("/OutputPowerWatts/Reading"));
        }
        self.sensors.push(found);
        Ok(())
    }

    /// Disks: in one document where the BMC has that, else each by itself.
    async fn drives(&mut self, system: &Resource) -> Result<(), Error> {
        let simple = self.survey.members(system, "/SimpleStorage").await?;
        for storage in &simple {
            let devices = storage.list("/Devices").iter();
            // A backplane is listed among the disks and holds nothing.
            let disks = devices.filter(|device| device["CapacityBytes"].as_f64() > Some(0.0));
            self.sensors.extend(disks.filter_map(|disk| sensor(disk, DRIVE, id(storage))));
        }
        if !simple.is_empty() {
            return Ok(());
        }
        for storage in self.survey.members(system, "/Storage").await? {
            for drive in self.survey.linked(&storage, "/Drives").await? {
                self.sensors.extend(sensor(&drive.body, DRIVE, id(&storage)));
            }
        }
        Ok(())
    }

    fn keep(&mut self, entries: &[Value], row: Row, place: &str) {
        self.sensors.extend(entries.iter().filter_map(|entry| sensor(entry, row, place)));
    }
}

/// What a kind of entry measures and where its reading is, the likeliest place first.
#[derive(Clone, Copy)]
struct Row {
    kind: SensorKind,
    unit: &'static str,
    readings: &'static [&'static str],
}

const FAN: Row = Row {
    kind: SensorKind::Fan,
    unit: "RPM",
    readings: &["/Reading", "/ReadingRPM", "/SpeedPercent/SpeedRPM", "/SpeedPercent/Reading"],
};
const TEMPERATURE: Row = Row {
    kind: SensorKind::Temperature,
    unit: "Celsius",
    readings: &["/ReadingCelsius", "/Reading"],
};
const SUPPLY: Row = Row {
    kind: SensorKind::Power,
    unit: "Watts",
    readings: &["/PowerInputWatts", "/LastPowerOutputWatts", "/PowerOutputWatts"],
};
const CONSUMPTION: Row =
    Row { kind: SensorKind::Power, unit: "Watts", readings: &["/PowerConsumedWatts"] };
const VOLTAGE: Row =
    Row { kind: SensorKind::Power, unit: "Volts", readings: &["/ReadingVolts", "/Reading"] };
const WATTS: Row = Row { kind: SensorKind::Power, unit: "Watts", readings: &["/Reading"] };
const DRIVE: Row =
    Row { kind: SensorKind::Drive, unit: "Percent", readings: &["/PredictedMediaLifeLeftPercent"] };

/// What one of the newer sensors measures; none for what nobody asked for.
fn kind_of(sensor: &Resource) -> Option<Row> {
    match sensor.text("/ReadingType")? {
        "Temperature" => Some(TEMPERATURE),
        "Rotational" => Some(FAN),
        "Power" => Some(WATTS),
        "Voltage" => Some(VOLTAGE),
        _ => None,
    }
}

/// The measurement in an entry; none if it has no name.
fn sensor(entry: &Value, row: Row, place: &str) -> Option<Sensor> {
    let names = ["Name", "FanName", "DeviceName", "MemberId", "Id"];
    let name = names
        .iter()
        .find_map(|key| entry.get(*key)?.as_str().map(str::trim))
        .filter(|name| !name.is_empty())?;
    let reading = row.readings.iter().find_map(|pointer| number(entry.pointer(pointer)?));
    let has_percent = entry
        .get("ReadingUnits")
        .and_then(Value::as_str)
        .is_some_and(|unit| unit == "Percent" || unit == "%")
        || entry.pointer("/SpeedPercent").is_some()
            && entry.pointer("/SpeedPercent/SpeedRPM").is_none();
    let unit = if row.kind == SensorKind::Fan && has_percent { "Percent" } else { row.unit };
    Some(Sensor {
        name: if place.is_empty() { name.to_owned() } else { format!("{name}@{place}") },
        kind: row.kind,
        reading,
        unit,
        status: status(entry),
    })
}

/// How the part feels. One that tells neither state nor health and has a place in the list is
/// there and well.
fn status(entry: &Value) -> SensorStatus {
    let text = |pointer| entry.pointer(pointer).and_then(Value::as_str);
    match text("/Status/State") {
        Some("Absent" | "Disabled" | "UnavailableOffline" | "StandbyOffline" | "Deferring") => {
            SensorStatus::Absent
        }
        Some(_) | None => {
            let told = text("/Status/Health").or_else(|| text("/Status/HealthRollup"));
            SensorStatus::Enabled(told.and_then(health).unwrap_or(Health::Ok))
        }
    }
}

/// What Redfish calls a condition.
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

/// Numbers the second and later of those that have the same kind and name.
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

    fn line(entry: Value, row: Row) -> String {
        match sensor(&entry, row, "1U") {
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
    fn entries_of_all_kinds() {
        for (row, entry, said) in [
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
            assert_eq!(line(entry.clone(), row), said, "{entry}");
        }
    }

    #[test]
    fn names_are_unique_within_a_kind() {
        let entry = json!({"Name": "Fan"});
        let sensors = [FAN, FAN, TEMPERATURE, FAN].map(|row| sensor(&entry, row, "").unwrap());
        let names: Vec<_> =
            with_unique_names(sensors.into()).into_iter().map(|sensor| sensor.name).collect();
        assert_eq!(names, ["Fan", "Fan #2", "Fan", "Fan #3"]);
    }

    proptest! {
        #[test]
        fn odd_entries_are_no_trouble(name in "\\PC{0,8}", reading in any::<f64>(), state in "\\PC{0,8}") {
            let entry = json!({"Name": name, "Reading": reading, "Status": state});
            let _ = sensor(&entry, FAN, "x");
        }
    }
}
