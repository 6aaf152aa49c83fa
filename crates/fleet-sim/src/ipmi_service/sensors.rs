// SPDX-License-Identifier: Apache-2.0
//! IPMI sensors: a sensor data record for each, and one-byte readings.

use ipmi::{
    GetRecord, IpmiSensorReading, NumberFormat, RepositoryInfo, SensorConversion, SensorRecord,
    SensorUnit, completion,
};
use node_model::Timestamp;

use crate::machine::{MachineModel, SENSORS, SensorKind, SensorRule};

/// Get SDR Repository Info.
pub(super) fn repository() -> Vec<u8> {
    let records = u16::try_from(SENSORS.len()).unwrap_or(u16::MAX);
    let info = RepositoryInfo { records, last_addition: 1, last_erase: 1 };
    let mut out = Vec::new();
    info.emit(&mut out);
    out
}

/// Reserve SDR Repository.
pub(super) fn reservation() -> Vec<u8> {
    RESERVATION.to_le_bytes().to_vec()
}

/// Get SDR.
pub(super) fn record(data: &[u8]) -> Result<Vec<u8>, u8> {
    const ALL: u8 = 0xff;
    let request = GetRecord::parse_request(data).map_err(|_| completion::INVALID_LENGTH)?;
    if request.offset != 0 && request.reservation != RESERVATION {
        return Err(completion::RESERVATION_CANCELED);
    }
    let index = usize::from(request.record);
    let rule = SENSORS.get(index).ok_or(completion::NOT_PRESENT)?;
    let next = if index + 1 < SENSORS.len() { request.record + 1 } else { LAST_RECORD };
    let bytes = sensor_record(index, rule).emit();
    let rest = bytes.get(usize::from(request.offset)..).ok_or(completion::INVALID_FIELD)?;
    let count = if request.count == ALL { rest.len() } else { usize::from(request.count) };
    let mut out = next.to_le_bytes().to_vec();
    out.extend(rest.iter().take(count));
    Ok(out)
}

/// Get Sensor Reading.
pub(super) fn reading(
    machine: &mut MachineModel,
    now: Timestamp,
    data: &[u8],
) -> Result<Vec<u8>, u8> {
    let (index, rule) = find_sensor(data)?;
    let reading = machine.reading(index, now).ok_or(completion::NOT_PRESENT)?;
    let raw = raw_value(rule.kind, reading.value);
    let [_, critical, caution, ..] = sensor_record(index, rule).thresholds;
    let above = |limit: Option<u8>| limit.is_some_and(|limit| raw >= limit);
    let mut crossed = 0;
    for (limit, bit) in [caution, critical].into_iter().zip(IpmiSensorReading::UPPER) {
        crossed |= if above(limit) { bit } else { 0 };
    }
    let mut out = Vec::new();
    IpmiSensorReading { raw: Some(raw), crossed }.emit(&mut out);
    Ok(out)
}

/// Get Sensor Thresholds: a bit mask of the existing ones, then three lower and three upper ones.
pub(super) fn thresholds(data: &[u8]) -> Result<Vec<u8>, u8> {
    let (index, rule) = find_sensor(data)?;
    let [.., critical, caution] = {
        let [unr, critical, caution, ..] = sensor_record(index, rule).thresholds;
        [unr, critical, caution]
    };
    let mut readable = 0;
    for (limit, bit) in [caution, critical].into_iter().zip(IpmiSensorReading::UPPER) {
        readable |= if limit.is_some() { bit } else { 0 };
    }
    Ok(vec![readable, 0, 0, 0, caution.unwrap_or(0), critical.unwrap_or(0), 0])
}

const RESERVATION: u16 = 1;
const LAST_RECORD: u16 = 0xffff;

fn find_sensor(data: &[u8]) -> Result<(usize, &'static SensorRule), u8> {
    let [sensor] = data else { return Err(completion::INVALID_LENGTH) };
    // Sensors are numbered from 1.
    let index = usize::from(*sensor).checked_sub(1).ok_or(completion::NOT_PRESENT)?;
    let rule = SENSORS.get(index).ok_or(completion::NOT_PRESENT)?;
    Ok((index, rule))
}

fn sensor_record(index: usize, rule: &SensorRule) -> SensorRecord {
    let number = u8::try_from(index).unwrap_or(u8::MAX);
    let (sensor_type, entity, unit) = match rule.kind {
        SensorKind::Temperature => (1, 0x03, SensorUnit::CELSIUS),
        SensorKind::Fan => (4, 0x1d, SensorUnit::RPM),
        SensorKind::Power => (8, 0x0a, SensorUnit::WATTS),
        SensorKind::Voltage => (2, 0x07, SensorUnit::VOLTS),
    };
    let limit = |value: Option<f64>| value.map(|value| raw_value(rule.kind, value));
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

/// Conversion factors that map a sensor's range to one byte: steps of 60 RPM, 4 W and 0.06 V.
const fn conversion(kind: SensorKind) -> SensorConversion {
    let (m, result_exponent) = match kind {
        SensorKind::Temperature => (1, 0),
        SensorKind::Fan => (60, 0),
        SensorKind::Power => (4, 0),
        SensorKind::Voltage => (6, -2),
    };
    SensorConversion {
        format: NumberFormat::Unsigned,
        linearization: 0,
        m,
        b: 0,
        b_exponent: 0,
        result_exponent,
    }
}

/// Returns the byte that is nearest to `value`.
fn raw_value(kind: SensorKind, value: f64) -> u8 {
    let step = conversion(kind).apply(1).unwrap_or(1.0);
    // The cast saturates, as intended.
    (value / step).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_represent_their_sensors() {
        for (index, rule) in SENSORS.iter().enumerate() {
            let record = sensor_record(index, rule);
            let parsed = SensorRecord::parse(&record.emit()).unwrap();
            assert_eq!(parsed.as_ref(), Some(&record), "{}", rule.name);
            for value in [rule.off, rule.idle, rule.busy] {
                let shown = record.conversion.apply(raw_value(rule.kind, value)).unwrap();
                assert!((shown - value).abs() <= value * 0.03 + 0.5, "{}: {shown}", rule.name);
            }
        }
    }

    #[test]
    fn records_can_be_read_in_parts() {
        let mut next = 0u16;
        let mut count = 0;
        while next != LAST_RECORD {
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
