// SPDX-License-Identifier: Apache-2.0
//! Sensor readings: plausible values that follow the machine's load with some noise.

use node_model::Timestamp;

use super::{MachineModel, PowerPhase};

/// Interval at which the noise changes.
const NOISE_INTERVAL_SECONDS: i64 = 10;

/// The quantity that a sensor measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SensorKind {
    /// Temperature in degrees Celsius.
    Temperature,
    /// Fan speed in revolutions per minute.
    Fan,
    /// Input power of a power supply in watts.
    Power,
    /// Voltage in volts.
    Voltage,
}

/// A sensor that every simulated machine has.
#[derive(Debug)]
pub struct SensorRule {
    /// Its display name.
    pub name: &'static str,
    /// Its id in Redfish paths.
    pub id: &'static str,
    /// The quantity it measures.
    pub kind: SensorKind,
    /// Redfish's `PhysicalContext`.
    pub context: &'static str,
    /// Reading while the machine is off.
    pub off: f64,
    /// Reading without load.
    pub idle: f64,
    /// Reading at full load.
    pub busy: f64,
    /// Redfish's upper caution threshold.
    pub upper_caution: Option<f64>,
    /// Redfish's upper critical threshold.
    pub upper_critical: Option<f64>,
}

/// A sensor with its current value.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedSensorReading {
    /// The sensor.
    pub sensor: &'static SensorRule,
    /// The value, rounded to the sensor's resolution.
    pub value: f64,
}

impl SensorKind {
    /// Returns Redfish's name of the unit.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Temperature => "Cel",
            Self::Fan => "RPM",
            Self::Power => "W",
            Self::Voltage => "V",
        }
    }

    fn round(self, value: f64) -> f64 {
        match self {
            Self::Temperature | Self::Power => value.round(),
            Self::Fan => (value / 60.0).round() * 60.0,
            Self::Voltage => (value * 100.0).round() / 100.0,
        }
    }
}

/// Defines a temperature sensor. The values are those off, idle and busy, then the thresholds.
const fn temperature(
    id: &'static str,
    name: &'static str,
    context: &'static str,
    [off, idle, busy, caution, critical]: [f64; 5],
) -> SensorRule {
    SensorRule {
        name,
        id,
        kind: SensorKind::Temperature,
        context,
        off,
        idle,
        busy,
        upper_caution: Some(caution),
        upper_critical: Some(critical),
    }
}

const fn fan(id: &'static str, name: &'static str) -> SensorRule {
    SensorRule {
        name,
        id,
        kind: SensorKind::Fan,
        context: "SystemBoard",
        off: 0.0,
        idle: 4_200.0,
        busy: 11_400.0,
        upper_caution: None,
        upper_critical: None,
    }
}

const fn power_supply(id: &'static str, name: &'static str) -> SensorRule {
    SensorRule {
        name,
        id,
        kind: SensorKind::Power,
        context: "PowerSupply",
        off: 8.0,
        idle: 95.0,
        busy: 390.0,
        upper_caution: Some(720.0),
        upper_critical: Some(800.0),
    }
}

/// The sensors of every machine.
pub const SENSORS: &[SensorRule] = &[
    temperature("InletTemp", "Inlet Temp", "Intake", [21.0, 22.0, 25.0, 42.0, 47.0]),
    temperature("ExhaustTemp", "Exhaust Temp", "Exhaust", [21.0, 29.0, 44.0, 70.0, 75.0]),
    temperature("CPU1Temp", "CPU1 Temp", "CPU", [22.0, 36.0, 76.0, 90.0, 95.0]),
    temperature("CPU2Temp", "CPU2 Temp", "CPU", [22.0, 35.0, 75.0, 90.0, 95.0]),
    fan("Fan1", "Fan 1"),
    fan("Fan2", "Fan 2"),
    fan("Fan3", "Fan 3"),
    fan("Fan4", "Fan 4"),
    power_supply("PSU1Power", "PSU1 Input Power"),
    power_supply("PSU2Power", "PSU2 Input Power"),
    SensorRule {
        name: "12V Rail",
        id: "Rail12V",
        kind: SensorKind::Voltage,
        context: "VoltageRegulator",
        off: 0.0,
        idle: 12.12,
        busy: 11.96,
        upper_caution: Some(12.8),
        upper_critical: Some(13.2),
    },
];

impl MachineModel {
    /// Returns the readings of all sensors.
    pub fn readings(&self, now: Timestamp) -> impl Iterator<Item = SimulatedSensorReading> {
        (0..SENSORS.len()).filter_map(move |index| self.reading(index, now))
    }

    /// Returns the reading of the sensor with this index in [`SENSORS`].
    #[must_use]
    pub fn reading(&self, index: usize, now: Timestamp) -> Option<SimulatedSensorReading> {
        let sensor = SENSORS.get(index)?;
        let number = u32::try_from(index).unwrap_or_default();
        let step = u64::try_from(now.0.div_euclid(1_000_000 * NOISE_INTERVAL_SECONDS)).unwrap_or(0);
        let noise = self.identity.noise(number, step) - 0.5;
        let value = match self.load(step) {
            None => sensor.off,
            Some(load) => {
                let span = sensor.busy - sensor.idle;
                sensor.idle + span * load + span * 0.04 * noise
            }
        };
        Some(SimulatedSensorReading { sensor, value: sensor.kind.round(value) })
    }

    /// Returns the load from 0 to 1, or `None` if the machine is off.
    fn load(&self, step: u64) -> Option<f64> {
        match self.power {
            PowerPhase::Off => None,
            PowerPhase::TurningOn { .. } | PowerPhase::TurningOff { .. } => Some(0.0),
            // There is no power management during POST.
            PowerPhase::Post { .. } => Some(0.6),
            // The load changes every five minutes.
            PowerPhase::Running | PowerPhase::ShuttingDown { .. } => {
                Some(0.1 + 0.5 * self.identity.noise(1_000, step / 30))
            }
        }
    }
}
