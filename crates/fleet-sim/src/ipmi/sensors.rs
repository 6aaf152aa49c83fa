// SPDX-License-Identifier: Apache-2.0
//! The machine's sensors as IPMI has them: a record for each, and values of one byte.

use ipmi::{
    Conversion, GetRecord, NumberFormat, RepositoryInfo, SensorReading, SensorRecord, Unit,
    completion,
};
use node_model::Timestamp;

use crate::machine::{Machine, SENSORS, SensorKind, SensorRule};

/// The answer to Get SDR Repository Info.
pub(super) fn repository() -> Vec<u8> {
    let records = u16::try_from(SENSORS.len()).unwrap_or(u16::MAX);
    let info = RepositoryInfo { records, last_addition: 1, last_erase: 1 };
    let mut out = Vec::new();
    info.emit(&mut out);
    out
}

/// The answer to Reserve SDR Repository.
pub(super) fn reservation() -> Vec<u8> {
    RESERVATION.to_le_bytes().to_vec()
}

/// The answer to Get SDR.
pub(super) fn record(data: &[u8]) -> Result<Vec<u8>, u8> {
    const ALL: u8 = 0xff;
    let asked = GetRecord::parse_request(data).map_err(|_| completion::INVALID_LENGTH)?;
    if asked.offset != 0 && asked.reservation != RESERVATION {
        return Err(completion::RESERVATION_CANCELED);
    }
    let place = usize::from(asked.record);
    let rule = SENSORS.get(place).ok_or(completion::NOT_PRESENT)?;
    let next = if place + 1 < SENSORS.len() { asked.record + 1 } else { LAST };
    let bytes = record_of(place, rule).emit();
    let rest = bytes.get(usize::from(asked.offset)..).ok_or(completion::INVALID_FIELD)?;
    let count = if asked.count == ALL { rest.len() } else { usize::from(asked.count) };
    let mut out = next.to_le_bytes().to_vec();
    out.extend(rest.iter().take(count));
    Ok(out)
}

/// Get Sensor Reading.
pub(super) fn reading(machine: &mut Machine, now: Timestamp, data: &[u8]) -> Result<Vec<u8>, u8> {
    let (place, rule) = find(data)?;
    let reading = machine.reading(place, now).ok_or(completion::NOT_PRESENT)?;
    let raw = raw(rule.kind, reading.value);
    let [_, critical, caution, ..] = record_of(place, rule).thresholds;
    let above = |limit: Option<u8>| limit.is_some_and(|limit| raw >= limit);
    let mut crossed = 0;
    for (limit, bit) in [caution, critical].into_iter().zip(SensorReading::UPPER) {
        crossed |= if above(limit) { bit } else { 0 };
    }
    let mut out = Vec::new();
    SensorReading { raw: Some(raw), crossed }.emit(&mut out);
    Ok(out)
}

/// The answer to Get Sensor Thresholds: which there are, then the lower three and the upper three.
pub(super) fn thresholds(data: &[u8]) -> Result<Vec<u8>, u8> {
    let (place, rule) = find(data)?;
    let [.., critical, caution] = {
        let [unr, critical, caution, ..] = record_of(place, rule).thresholds;
        [unr, critical, caution]
    };
    let mut readable = 0;
    for (limit, bit) in [caution, critical].into_iter().zip(SensorReading::UPPER) {
        readable |= if limit.is_some() { bit } else { 0 };
    }
    Ok(vec![readable, 0, 0, 0, caution.unwrap_or(0), critical.unwrap_or(0), 0])
}

const RESERVATION: u16 = 1;
const LAST: u16 = 0xffff;

fn find(data: &[u8]) -> Result<(usize, &'static SensorRule), u8> {
    let [sensor] = data else { return Err(completion::INVALID_LENGTH) };
    // Sensors are numbered from one.
    let place = usize::from(*sensor).checked_sub(1).ok_or(completion::NOT_PRESENT)?;
    let rule = SENSORS.get(place).ok_or(completion::NOT_PRESENT)?;
    Ok((place, rule))
}

fn record_of(place: usize, rule: &SensorRule) -> SensorRecord {
    let number = u8::try_from(place).unwrap_or(u8::MAX);
    let (sensor_type, entity, unit) = match rule.kind {
        SensorKind::Temperature => (1, 0x03, Unit::CELSIUS),
        SensorKind::Fan => (4, 0x1d, Unit::RPM),
        SensorKind::Power => (8, 0x0a, Unit::WATTS),
        SensorKind::Voltage => (2, 0x07, Unit::VOLTS),
    };
    let limit = |value: Option<f64>| value.map(|value| raw(rule.kind, value));
    SensorRecord {
        record: u16::from(number),
        owner: ipmi::message::BMC_ADDRESS,
        lun: 0,
        sensor: number.saturating_add(1),
        sensor_type,
        entity,
        unit,
        conversion: conversion(rule.kind),
        thresholds: [None, limit(rule.upper_critical), limit(rule.upper_caution), None, None, None],
        name: rule.name.to_owned(),
    }
}

/// A byte must reach as far as the sensor does: fans count in sixties, supplies in four watts, the
/// rail in six hundredths of a volt.
const fn conversion(kind: SensorKind) -> Conversion {
    let (m, result_exponent) = match kind {
        SensorKind::Temperature => (1, 0),
        SensorKind::Fan => (60, 0),
        SensorKind::Power => (4, 0),
        SensorKind::Voltage => (6, -2),
    };
    Conversion {
        format: NumberFormat::Unsigned,
        linearization: 0,
        m,
        b: 0,
        b_exponent: 0,
        result_exponent,
    }
}

/// The byte whose meaning is nearest to `value`.
fn raw(kind: SensorKind, value: f64) -> u8 {
    let step = conversion(kind).apply(1).unwrap_or(1.0);
    // A float becomes the nearest byte there is: saturating, which is what is wanted.
    (value / step).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_fit_their_sensors() {
        for (place, rule) in SENSORS.iter().enumerate() {
            let record = record_of(place, rule);
            let read = SensorRecord::parse(&record.emit()).unwrap();
            assert_eq!(read.as_ref(), Some(&record), "{}", rule.name);
            for value in [rule.off, rule.idle, rule.busy] {
                let shown = record.conversion.apply(raw(rule.kind, value)).unwrap();
                assert!((shown - value).abs() <= value * 0.03 + 0.5, "{}: {shown}", rule.name);
            }
        }
    }

    #[test]
    fn records_are_read_in_parts_and_end() {
        let mut next = 0u16;
        let mut count = 0;
        while next != LAST {
            let part = |offset: u8, length: u8| {
                let [low, high] = next.to_le_bytes();
                record(&[1, 0, low, high, offset, length]).unwrap()
            };
            let whole = part(0, 0xff);
            assert_eq!([&part(0, 5)[2..], &part(5, 200)[2..]].concat(), whole[2..]);
            next = u16::from_le_bytes([whole[0], whole[1]]);
            count += 1;
        }
        assert_eq!(count, SENSORS.len());
        assert_eq!(record(&[9, 0, 0, 0, 5, 5]), Err(completion::RESERVATION_CANCELED));
        assert_eq!(record(&[1, 0, 0xf0, 0, 0, 5]), Err(completion::NOT_PRESENT));
    }
}
