// SPDX-License-Identifier: Apache-2.0
//! What the sensors of a machine read: plausible numbers that follow its load and wander a little.

use node_model::Timestamp;

use super::{Machine, Power};

/// How often readings wander.
const SECONDS_PER_STEP: i64 = 10;

/// What a sensor measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SensorKind {
    /// Degrees Celsius.
    Temperature,
    /// Turns per minute.
    Fan,
    /// Watts that a power supply takes in.
    Power,
    /// Volts.
    Voltage,
}

/// A sensor every simulated machine has.
#[derive(Debug)]
pub struct SensorRule {
    /// What it is called.
    pub name: &'static str,
    /// Its place in paths.
    pub id: &'static str,
    /// What it measures.
    pub kind: SensorKind,
    /// Where it is, with Redfish's names.
    pub context: &'static str,
    /// What it reads with the machine off.
    pub off: f64,
    /// With nothing to do.
    pub idle: f64,
    /// With all there is to do.
    pub busy: f64,
    /// Above this somebody should look.
    pub upper_caution: Option<f64>,
    /// Above this things break.
    pub upper_critical: Option<f64>,
}

/// What a sensor reads.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The sensor.
    pub sensor: &'static SensorRule,
    /// Its value, rounded as real sensors are.
    pub value: f64,
}

impl SensorKind {
    /// The unit, with Redfish's names.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Temperature => "Cel",
            Self::Fan => "RPM",
            Self::Power => "W",
            Self::Voltage => "V",
        }
    }

    fn rounded(self, value: f64) -> f64 {
        match self {
            Self::Temperature | Self::Power => value.round(),
            Self::Fan => (value / 60.0).round() * 60.0,
            Self::Voltage => (value * 100.0).round() / 100.0,
        }
    }
}

/// Temperature sensors.
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

const fn supply(id: &'static str, name: &'static str) -> SensorRule {
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
    supply("PSU1Power", "PSU1 Input Power"),
    supply("PSU2Power", "PSU2 Input Power"),
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

impl Machine {
    /// What all sensors read now.
    pub fn readings(&self, now: Timestamp) -> impl Iterator<Item = Reading> {
        (0..SENSORS.len()).filter_map(move |place| self.reading(place, now))
    }

    /// What the sensor at this place in [`SENSORS`] reads now.
    #[must_use]
    pub fn reading(&self, place: usize, now: Timestamp) -> Option<Reading> {
        let sensor = SENSORS.get(place)?;
        let number = u32::try_from(place).unwrap_or_default();
        let step = u64::try_from(now.0.div_euclid(1_000_000 * SECONDS_PER_STEP)).unwrap_or(0);
        let wander = self.identity.noise(number, step) - 0.5;
        let value = match self.load(step) {
            None => sensor.off,
            Some(load) => {
                let span = sensor.busy - sensor.idle;
                sensor.idle + span * load + span * 0.04 * wander
            }
        };
        Some(Reading { sensor, value: sensor.kind.rounded(value) })
    }

    /// How busy the machine is, from 0 to 1; nothing when it is off.
    fn load(&self, step: u64) -> Option<f64> {
        match self.power {
            Power::Off => None,
            Power::TurningOn { .. } | Power::TurningOff { .. } => Some(0.0),
            // Firmware does not save energy.
            Power::Post { .. } => Some(0.6),
            // What runs changes its mind every few minutes.
            Power::Running | Power::ShuttingDown { .. } => {
                Some(0.1 + 0.5 * self.identity.noise(1_000, step / 30))
            }
        }
    }
}
