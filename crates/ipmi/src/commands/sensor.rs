// SPDX-License-Identifier: Apache-2.0
//! Reading the records that describe sensors, and the sensors.

use super::Ask;
use crate::Malformed;
use crate::message::netfn;

/// Asks how many records there are and when they last changed.
#[derive(Clone, Copy, Debug)]
pub struct GetRepositoryInfo;

/// How many records there are and when they last changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RepositoryInfo {
    /// How many records.
    pub records: u16,
    /// When one was last added, by the BMC's clock.
    pub last_addition: u32,
    /// When they were last erased, by the BMC's clock.
    pub last_erase: u32,
}

/// Asks for a number without which records cannot be read in parts.
#[derive(Clone, Copy, Debug)]
pub struct ReserveRepository;

/// Asks for a part of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetRecord {
    /// From [`ReserveRepository`].
    pub reservation: u16,
    /// Which; zero for the first.
    pub record: u16,
    /// From which byte on.
    pub offset: u8,
    /// How many bytes.
    pub count: u8,
}

/// A part of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordChunk {
    /// The record after this one; 0xffff after the last.
    pub next: u16,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Asks a sensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetSensorReading {
    /// Its number.
    pub sensor: u8,
    /// The unit of the BMC it belongs to.
    pub lun: u8,
}

/// What a sensor says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SensorReading {
    /// The raw value; none if the sensor has none right now.
    pub raw: Option<u8>,
    /// Which thresholds are crossed.
    pub crossed: u8,
}

impl RepositoryInfo {
    /// Writes it as a BMC does.
    pub fn emit(&self, out: &mut Vec<u8>) {
        const VERSION_1_5: u8 = 0x51;
        const RESERVATIONS: u8 = 0x02;
        out.push(VERSION_1_5);
        out.extend_from_slice(&self.records.to_le_bytes());
        // Room that is left: not told.
        out.extend_from_slice(&[0xff, 0xff]);
        out.extend_from_slice(&self.last_addition.to_le_bytes());
        out.extend_from_slice(&self.last_erase.to_le_bytes());
        out.push(RESERVATIONS);
    }
}

impl Ask for GetRepositoryInfo {
    const NAME: &'static str = "Get SDR Repository Info";
    const NETFN: u8 = netfn::STORAGE;
    const COMMAND: u8 = 0x20;
    type Answer = RepositoryInfo;

    fn emit(&self, _out: &mut Vec<u8>) {}

    fn parse(data: &[u8]) -> Result<RepositoryInfo, Malformed> {
        let [_, r0, r1, _, _, a0, a1, a2, a3, e0, e1, e2, e3, ..] = data else {
            return Err(Malformed("Get SDR Repository Info answer: too short"));
        };
        Ok(RepositoryInfo {
            records: u16::from_le_bytes([*r0, *r1]),
            last_addition: u32::from_le_bytes([*a0, *a1, *a2, *a3]),
            last_erase: u32::from_le_bytes([*e0, *e1, *e2, *e3]),
        })
    }
}

impl Ask for ReserveRepository {
    const NAME: &'static str = "Reserve SDR Repository";
    const NETFN: u8 = netfn::STORAGE;
    const COMMAND: u8 = 0x22;
    type Answer = u16;

    fn emit(&self, _out: &mut Vec<u8>) {}

    fn parse(data: &[u8]) -> Result<u16, Malformed> {
        match data {
            [low, high, ..] => Ok(u16::from_le_bytes([*low, *high])),
            _ => Err(Malformed("Reserve SDR Repository answer: too short")),
        }
    }
}

impl Ask for GetRecord {
    const NAME: &'static str = "Get SDR";
    const NETFN: u8 = netfn::STORAGE;
    const COMMAND: u8 = 0x23;
    type Answer = RecordChunk;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.reservation.to_le_bytes());
        out.extend_from_slice(&self.record.to_le_bytes());
        out.extend_from_slice(&[self.offset, self.count]);
    }

    fn parse(data: &[u8]) -> Result<RecordChunk, Malformed> {
        match data {
            [low, high, bytes @ ..] => {
                Ok(RecordChunk { next: u16::from_le_bytes([*low, *high]), bytes: bytes.to_vec() })
            }
            _ => Err(Malformed("Get SDR answer: too short")),
        }
    }
}

impl GetRecord {
    /// Reads the request, as a BMC does.
    pub fn parse_request(data: &[u8]) -> Result<Self, Malformed> {
        let [v0, v1, r0, r1, offset, count] = data else {
            return Err(Malformed("Get SDR request: length"));
        };
        Ok(Self {
            reservation: u16::from_le_bytes([*v0, *v1]),
            record: u16::from_le_bytes([*r0, *r1]),
            offset: *offset,
            count: *count,
        })
    }
}

impl SensorReading {
    /// Lower thresholds: non-critical, critical, non-recoverable.
    pub const LOWER: [u8; 3] = [1 << 0, 1 << 1, 1 << 2];
    /// Upper thresholds: non-critical, critical, non-recoverable.
    pub const UPPER: [u8; 3] = [1 << 3, 1 << 4, 1 << 5];

    /// Whether the value is outside of what is safe.
    #[must_use]
    pub const fn is_critical(&self) -> bool {
        let critical = Self::LOWER[1] | Self::LOWER[2] | Self::UPPER[1] | Self::UPPER[2];
        self.crossed & critical != 0
    }

    /// Whether the value is outside of what is usual.
    #[must_use]
    pub const fn is_unusual(&self) -> bool {
        self.crossed != 0
    }

    /// Writes it as a BMC does.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let state = SCANNING | if self.raw.is_none() { UNAVAILABLE } else { 0 };
        // The two upper bits are reserved and read as ones.
        out.extend_from_slice(&[self.raw.unwrap_or(0), state, 0xc0 | self.crossed]);
    }
}

impl Ask for GetSensorReading {
    const NAME: &'static str = "Get Sensor Reading";
    const NETFN: u8 = netfn::SENSOR;
    const COMMAND: u8 = 0x2d;
    type Answer = SensorReading;

    fn lun(&self) -> u8 {
        self.lun
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.sensor);
    }

    fn parse(data: &[u8]) -> Result<SensorReading, Malformed> {
        let [raw, state, rest @ ..] = data else {
            return Err(Malformed("Get Sensor Reading answer: too short"));
        };
        let there = state & SCANNING != 0 && state & UNAVAILABLE == 0;
        let crossed = rest.first().map_or(0, |thresholds| thresholds & 0x3f);
        Ok(SensorReading { raw: there.then_some(*raw), crossed: if there { crossed } else { 0 } })
    }
}

const SCANNING: u8 = 0x40;
const UNAVAILABLE: u8 = 0x20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings() {
        for (bytes, raw, critical, unusual) in [
            (&[42, 0xc0, 0xc0][..], Some(42), false, false),
            (&[42, 0x40], Some(42), false, false),
            (&[99, 0xc0, 0xc0 | 1 << 3], Some(99), false, true),
            (&[99, 0xc0, 0xc0 | 3 << 3], Some(99), true, true),
            (&[0, 0xe0, 0xc0 | 1], None, false, false),
            (&[0, 0x80, 0xc0], None, false, false),
        ] {
            let reading = GetSensorReading::parse(bytes).unwrap();
            assert_eq!(
                (reading.raw, reading.is_critical(), reading.is_unusual()),
                (raw, critical, unusual),
                "{bytes:?}"
            );
        }
        let reading = SensorReading { raw: Some(7), crossed: SensorReading::UPPER[1] };
        let mut bytes = Vec::new();
        reading.emit(&mut bytes);
        assert_eq!(GetSensorReading::parse(&bytes), Ok(reading));
    }

    #[test]
    fn requests_and_information_are_read_as_written() {
        let request = GetRecord { reservation: 7, record: 0x102, offset: 5, count: 16 };
        let mut bytes = Vec::new();
        request.emit(&mut bytes);
        assert_eq!(GetRecord::parse_request(&bytes), Ok(request));
        let info = RepositoryInfo { records: 3, last_addition: 9, last_erase: 8 };
        let mut bytes = Vec::new();
        info.emit(&mut bytes);
        assert_eq!(GetRepositoryInfo::parse(&bytes), Ok(info));
    }
}
