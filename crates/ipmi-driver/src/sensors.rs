// SPDX-License-Identifier: Apache-2.0
//! Sensor readings over IPMI: fans, temperatures and power.

use std::collections::HashMap;

use drivers::{DriverError, Sensor, SensorKind, SensorStatus};
use ipmi::{ConvertedReading, SensorRecord, SensorUnit};
use node_model::Health;

use super::bmc::IpmiBmc;

/// Reads all sensors of a machine.
pub(super) async fn read_sensors(bmc: &IpmiBmc) -> Result<Vec<Sensor>, DriverError> {
    let records = bmc.client().sensor_records().await.map_err(|error| bmc.explain(error))?;
    let mut sensors = Vec::new();
    let mut names = HashMap::new();
    for record in records.iter() {
        let Some(quantity) = MeasuredQuantity::from_record(record) else { continue };
        let reading = bmc.client().read_sensor(record).await.map_err(|error| bmc.explain(error))?;
        let mut sensor = quantity.sensor(record, &reading);
        // Sensors with the identity name get a number.
        let count = names.entry((sensor.kind, sensor.name.clone())).or_insert(0u32);
        *count += 1;
        if *count > 1 {
            sensor.name = format!("{} ({})", sensor.name, count);
        }
        sensors.push(sensor);
    }
    Ok(sensors)
}

/// The quantity that a sensor measures, and the conversion of its unit.
#[derive(Clone, Copy)]
struct MeasuredQuantity {
    kind: SensorKind,
    unit: &'static str,
    convert: fn(f64) -> f64,
}

impl MeasuredQuantity {
    /// Returns `None` for quantities without a metric.
    fn from_record(record: &SensorRecord) -> Option<Self> {
        const TEMPERATURE: u8 = 1;
        const FAN: u8 = 4;
        let identity: fn(f64) -> f64 = |value| value;
        let quantity = |kind, unit, convert| Some(Self { kind, unit, convert });
        match (record.sensor_type, record.unit) {
            (_, SensorUnit::CELSIUS) => quantity(SensorKind::Temperature, "Celsius", identity),
            (_, SensorUnit::FAHRENHEIT) => {
                quantity(SensorKind::Temperature, "Celsius", |value| (value - 32.0) / 1.8)
            }
            (_, SensorUnit::KELVIN) => {
                quantity(SensorKind::Temperature, "Celsius", |value| value - 273.15)
            }
            (_, SensorUnit::RPM) => quantity(SensorKind::Fan, "RPM", identity),
            (FAN, SensorUnit::Percent) => quantity(SensorKind::Fan, "Percent", identity),
            (_, SensorUnit::WATTS) => quantity(SensorKind::Power, "Watts", identity),
            (_, SensorUnit::VOLTS) => quantity(SensorKind::Power, "Volts", identity),
            (_, SensorUnit::AMPERES) => quantity(SensorKind::Power, "Amperes", identity),
            // Some BMCs report the margin to throttling as a temperature without a unit.
            (TEMPERATURE, _)
            | (_, SensorUnit::Percent | SensorUnit::Base(_) | SensorUnit::Compound) => None,
        }
    }

    fn sensor(self, record: &SensorRecord, reading: &ConvertedReading) -> Sensor {
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
        // Raw values are bytes; more than three decimal places are rounding artefacts.
        let reading = value.map(|value| (value * 1000.0).round() / 1000.0);
        Sensor { name, kind: self.kind, reading, unit: self.unit, status }
    }
}

#[cfg(test)]
mod tests {
    use ipmi::{IpmiSensorReading, SensorConversion};

    use super::*;

    fn record(sensor_type: u8, unit: SensorUnit) -> SensorRecord {
        SensorRecord {
            record: 1,
            owner: 0x20,
            lun: 0,
            sensor: 7,
            sensor_type,
            entity: 3,
            unit,
            conversion: SensorConversion::IDENTITY,
            thresholds: [None; 6],
            name: String::new(),
        }
    }

    #[test]
    fn units_become_quantities() {
        for (sensor_type, unit, expected) in [
            (1, SensorUnit::CELSIUS, Some((SensorKind::Temperature, "Celsius", 212.0))),
            (1, SensorUnit::FAHRENHEIT, Some((SensorKind::Temperature, "Celsius", 100.0))),
            (4, SensorUnit::RPM, Some((SensorKind::Fan, "RPM", 212.0))),
            (4, SensorUnit::Percent, Some((SensorKind::Fan, "Percent", 212.0))),
            (8, SensorUnit::WATTS, Some((SensorKind::Power, "Watts", 212.0))),
            (2, SensorUnit::VOLTS, Some((SensorKind::Power, "Volts", 212.0))),
            (0x0b, SensorUnit::Percent, None),
            (1, SensorUnit::Base(0), None),
        ] {
            let quantity = MeasuredQuantity::from_record(&record(sensor_type, unit));
            let got =
                quantity.map(|quantity| (quantity.kind, quantity.unit, (quantity.convert)(212.0)));
            assert_eq!(got, expected, "{sensor_type} {unit:?}");
        }
    }

    #[test]
    fn crossed_thresholds_become_health() {
        let record = record(1, SensorUnit::CELSIUS);
        let quantity = MeasuredQuantity::from_record(&record).unwrap();
        let sensor = |value, state| quantity.sensor(&record, &ConvertedReading { value, state });
        let state = |crossed| Some(IpmiSensorReading { raw: Some(1), crossed });
        for (value, state, status) in [
            (Some(40.0), state(0), SensorStatus::Enabled(Health::Ok)),
            (
                Some(80.0),
                state(IpmiSensorReading::UPPER[0]),
                SensorStatus::Enabled(Health::Warning),
            ),
            (
                Some(99.0),
                state(IpmiSensorReading::UPPER[1]),
                SensorStatus::Enabled(Health::Critical),
            ),
            (None, state(0), SensorStatus::Absent),
            (None, None, SensorStatus::Absent),
        ] {
            assert_eq!(sensor(value, state).status, status);
        }
        assert_eq!(sensor(Some(0.1 + 0.2), state(0)).reading, Some(0.3));
        assert_eq!(sensor(None, None).name, "Sensor 7");
    }
}
