// SPDX-License-Identifier: Apache-2.0
//! What a BMC measures, in our words: fans, temperatures and power.

use std::collections::HashMap;

use ipmi::{Reading, SensorRecord, Unit};
use node_model::Health;

use super::bmc::Bmc;
use crate::{Error, Sensor, SensorKind, SensorStatus};

/// All measurements of a machine.
pub(super) async fn read(bmc: &Bmc) -> Result<Vec<Sensor>, Error> {
    let records = bmc.client().sensor_records().await.map_err(|error| bmc.explain(error))?;
    let mut sensors = Vec::new();
    let mut names = HashMap::new();
    for record in records.iter() {
        let Some(measure) = Measure::of(record) else { continue };
        let reading = bmc.client().read_sensor(record).await.map_err(|error| bmc.explain(error))?;
        let mut sensor = measure.sensor(record, &reading);
        // A second sensor of the same name is told apart by its number.
        let others = names.entry((sensor.kind, sensor.name.clone())).or_insert(0u32);
        *others += 1;
        if *others > 1 {
            sensor.name = format!("{} ({})", sensor.name, others);
        }
        sensors.push(sensor);
    }
    Ok(sensors)
}

/// What a sensor measures, and how its unit becomes ours.
#[derive(Clone, Copy)]
struct Measure {
    kind: SensorKind,
    unit: &'static str,
    convert: fn(f64) -> f64,
}

impl Measure {
    /// None for what metrics have no place for.
    fn of(record: &SensorRecord) -> Option<Self> {
        const TEMPERATURE: u8 = 1;
        const FAN: u8 = 4;
        let same: fn(f64) -> f64 = |value| value;
        let measure = |kind, unit, convert| Some(Self { kind, unit, convert });
        match (record.sensor_type, record.unit) {
            (_, Unit::CELSIUS) => measure(SensorKind::Temperature, "Celsius", same),
            (_, Unit::FAHRENHEIT) => {
                measure(SensorKind::Temperature, "Celsius", |value| (value - 32.0) / 1.8)
            }
            (_, Unit::KELVIN) => {
                measure(SensorKind::Temperature, "Celsius", |value| value - 273.15)
            }
            (_, Unit::RPM) => measure(SensorKind::Fan, "RPM", same),
            (FAN, Unit::Percent) => measure(SensorKind::Fan, "Percent", same),
            (_, Unit::WATTS) => measure(SensorKind::Power, "Watts", same),
            (_, Unit::VOLTS) => measure(SensorKind::Power, "Volts", same),
            (_, Unit::AMPERES) => measure(SensorKind::Power, "Amperes", same),
            // Some call a distance to the throttling point a temperature without a unit.
            (TEMPERATURE, _) | (_, Unit::Percent | Unit::Base(_) | Unit::Compound) => None,
        }
    }

    fn sensor(self, record: &SensorRecord, reading: &Reading) -> Sensor {
        let name = if record.name.is_empty() {
            format!("Sensor {}", record.sensor)
        } else {
            record.name.clone()
        };
        let value = reading.value.map(self.convert);
        let status = match reading.state {
            Some(state) if value.is_some() => SensorStatus::Enabled(if state.is_critical() {
                Health::Critical
            } else if state.is_unusual() {
                Health::Warning
            } else {
                Health::Ok
            }),
            Some(_) | None => SensorStatus::Absent,
        };
        // A raw value is a byte: more than three digits after the point are an artefact.
        let reading = value.map(|value| (value * 1000.0).round() / 1000.0);
        Sensor { name, kind: self.kind, reading, unit: self.unit, status }
    }
}

#[cfg(test)]
mod tests {
    use ipmi::{Conversion, SensorReading};

    use super::*;

    fn record(sensor_type: u8, unit: Unit) -> SensorRecord {
        SensorRecord {
            record: 1,
            owner: 0x20,
            lun: 0,
            sensor: 7,
            sensor_type,
            entity: 3,
            unit,
            conversion: Conversion::IDENTITY,
            thresholds: [None; 6],
            name: String::new(),
        }
    }

    #[test]
    fn what_is_measured() {
        for (sensor_type, unit, wanted) in [
            (1, Unit::CELSIUS, Some((SensorKind::Temperature, "Celsius", 212.0))),
            (1, Unit::FAHRENHEIT, Some((SensorKind::Temperature, "Celsius", 100.0))),
            (4, Unit::RPM, Some((SensorKind::Fan, "RPM", 212.0))),
            (4, Unit::Percent, Some((SensorKind::Fan, "Percent", 212.0))),
            (8, Unit::WATTS, Some((SensorKind::Power, "Watts", 212.0))),
            (2, Unit::VOLTS, Some((SensorKind::Power, "Volts", 212.0))),
            (0x0b, Unit::Percent, None),
            (1, Unit::Base(0), None),
        ] {
            let measure = Measure::of(&record(sensor_type, unit));
            let got = measure.map(|measure| (measure.kind, measure.unit, (measure.convert)(212.0)));
            assert_eq!(got, wanted, "{sensor_type} {unit:?}");
        }
    }

    #[test]
    fn how_it_feels() {
        let record = record(1, Unit::CELSIUS);
        let measure = Measure::of(&record).unwrap();
        let sensor = |value, state| measure.sensor(&record, &Reading { value, state });
        let state = |crossed| Some(SensorReading { raw: Some(1), crossed });
        for (value, state, status) in [
            (Some(40.0), state(0), SensorStatus::Enabled(Health::Ok)),
            (Some(80.0), state(SensorReading::UPPER[0]), SensorStatus::Enabled(Health::Warning)),
            (Some(99.0), state(SensorReading::UPPER[1]), SensorStatus::Enabled(Health::Critical)),
            (None, state(0), SensorStatus::Absent),
            (None, None, SensorStatus::Absent),
        ] {
            assert_eq!(sensor(value, state).status, status);
        }
        assert_eq!(sensor(Some(0.1 + 0.2), state(0)).reading, Some(0.3));
        assert_eq!(sensor(None, None).name, "Sensor 7");
    }
}
