// SPDX-License-Identifier: Apache-2.0
//! Sensors of a simulated machine: every machine a little different, and none ever quite still.

use node_model::{Health, PowerState};

use crate::{Sensor, SensorKind, SensorStatus, Target};

/// Name, kind, unit, value when idle, and by how much it moves up and down.
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

/// The sensors of the machine at its time, depending on nothing but these.
pub(super) fn read(target: &Target<'_>, health: Health) -> Vec<Sensor> {
    // A machine that is off measures only what its BMC can: the air that comes in.
    let measures =
        |name: &str| target.node.power_state == Some(PowerState::On) || name == "Inlet Temp";
    let sensors = SENSORS.iter().enumerate();
    sensors
        .map(|(index, (name, kind, unit, idle, swing))| {
            let on = measures(name);
            let value = idle + swing * wave(target, index);
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

/// Between -1 and 1: a wave of ten minutes, beginning at a place that differs from machine to
/// machine and from sensor to sensor.
fn wave(target: &Target<'_>, index: usize) -> f64 {
    const PERIOD_SECONDS: f64 = 600.0;
    let place = f64::from(target.node.id.0.as_bytes()[index]) / 256.0;
    let seconds = (target.now.0 / 1_000_000 % 86_400) as f64;
    ((seconds / PERIOD_SECONDS + place) * std::f64::consts::TAU).sin()
}
