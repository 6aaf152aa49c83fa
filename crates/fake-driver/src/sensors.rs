// SPDX-License-Identifier: Apache-2.0
//! Sensors of fake hardware. The readings differ between machines and vary over time.

use drivers::{DriverTarget, Sensor, SensorKind, SensorStatus};
use node_model::{Health, PowerState};

/// Name, kind, unit, idle value, and amplitude.
const SENSORS: &[(&str, SensorKind, &str, f64, f64)] = &[
    ("Inlet Temp", SensorKind::Temperature, "Celsius", 23.0, 2.0),
    ("CPU1 Temp", SensorKind::Temperature, "Celsius", 48.0, 8.0),
    ("CPU2 Temp", SensorKind::Temperature, "Celsius", 46.0, 8.0),
    ("Fan1", SensorKind::Fan, "RPM", 6_000.0, 600.0),
    ("Fan2", SensorKind::Fan, "RPM", 6_000.0, 600.0),
    ("PSU1 Input Power", SensorKind::Power, "Watts", 180.0, 40.0),
    ("PSU2 Input Power", SensorKind::Power, "Watts", 175.0, 40.0),
    ("Disk0 Life Left", SensorKind::Drive, "Percent", 97.0, 0.5),
];

/// The readings, which depend only on the node and the time.
pub(super) fn read_sensors(target: &DriverTarget<'_>, health: Health) -> Vec<Sensor> {
    // A machine that is off is_measured only the inlet temperature, through its BMC.
    let is_measured =
        |name: &str| target.node.power_state == Some(PowerState::On) || name == "Inlet Temp";
    let sensors = SENSORS.iter().enumerate();
    sensors
        .map(|(index, (name, kind, unit, idle, amplitude))| {
            let on = is_measured(name);
            let value = idle + amplitude * wave(target, index);
            Sensor {
                name: (*name).to_owned(),
                kind: *kind,
                reading: on.then_some((value * 10.0).round() / 10.0),
                unit,
                status: if on { SensorStatus::Enabled(health) } else { SensorStatus::Absent },
            }
        })
        .collect()
}

/// A sine wave between -1 and 1 with a period of ten minutes, whose phase depends on machine and sensor.
fn wave(target: &DriverTarget<'_>, index: usize) -> f64 {
    const PERIOD_SECONDS: f64 = 600.0;
    let phase = f64::from(target.node.id.0.as_bytes()[index]) / 256.0;
    let seconds = (target.now.0 / 1_000_000 % 86_400) as f64;
    ((seconds / PERIOD_SECONDS + phase) * std::f64::consts::TAU).sin()
}
