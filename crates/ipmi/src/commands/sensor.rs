// SPDX-License-Identifier: Apache-2.0
//! Reads sensor records and sensor values.

use super::TypedIpmiCommand;
use crate::MalformedIpmiMessage;
use crate::message::netfn;

/// Get SDR Repository Info.
#[derive(Clone, Copy, Debug)]
pub struct GetRepositoryInfo;

/// The number of sensor records and the time of their last change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RepositoryInfo {
    /// The number of records.
    pub records: u16,
    /// The time of the last addition, by the clock of the BMC.
    pub last_addition: u32,
    /// The time of the last erase, by the clock of the BMC.
    pub last_erase: u32,
}

/// Reserve SDR Repository: gets the reservation for reading records in chunks.
#[derive(Clone, Copy, Debug)]
pub struct ReserveRepository;

/// Get SDR: reads a chunk of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetRecord {
    /// From [`ReserveRepository`].
    pub reservation: u16,
    /// The record id; zero for the first.
    pub record: u16,
    /// The offset in bytes.
    pub offset: u8,
    /// The number of bytes.
    pub count: u8,
}

/// A chunk of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordChunk {
    /// The id of the next record; 0xffff after the last.
    pub next: u16,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Get Sensor Reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetSensorReading {
    /// The sensor number.
    pub sensor: u8,
    /// The LUN of the sensor.
    pub lun: u8,
}

/// The value of a sensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpmiSensorReading {
    /// The raw value; `None` if it is not available.
    pub raw: Option<u8>,
    /// The crossed thresholds.
    pub crossed: u8,
}

impl RepositoryInfo {
    /// Encodes the response, for simulated BMCs.
    pub fn emit(&self, out: &mut Vec<u8>) {
        const VERSION_1_5: u8 = 0x51;
        const RESERVATIONS: u8 = 0x02;
        out.push(VERSION_1_5);
        out.extend_from_slice(&self.records.to_le_bytes());
        // Free space: unspecified.
        out.extend_from_slice(&[0xff, 0xff]);
        out.extend_from_slice(&self.last_addition.to_le_bytes());
        out.extend_from_slice(&self.last_erase.to_le_bytes());
        out.push(RESERVATIONS);
    }
}

impl TypedIpmiCommand for GetRepositoryInfo {
    const NAME: &'static str = "Get SDR Repository Info";
    const NETFN: u8 = netfn::STORAGE;
    const COMMAND: u8 = 0x20;
    type Response = RepositoryInfo;

    fn emit(&self, _out: &mut Vec<u8>) {}

    fn parse(data: &[u8]) -> Result<RepositoryInfo, MalformedIpmiMessage> {
        let [_, r0, r1, _, _, a0, a1, a2, a3, e0, e1, e2, e3, ..] = data else {
            return Err(MalformedIpmiMessage("Get SDR Repository Info response: too short"));
        };
        Ok(RepositoryInfo {
            records: u16::from_le_bytes([*r0, *r1]),
            last_addition: u32::from_le_bytes([*a0, *a1, *a2, *a3]),
            last_erase: u32::from_le_bytes([*e0, *e1, *e2, *e3]),
        })
    }
}

impl TypedIpmiCommand for ReserveRepository {
    const NAME: &'static str = "Reserve SDR Repository";
    const NETFN: u8 = netfn::STORAGE;
    const COMMAND: u8 = 0x22;
    type Response = u16;

    fn emit(&self, _out: &mut Vec<u8>) {}

    fn parse(data: &[u8]) -> Result<u16, MalformedIpmiMessage> {
        match data {
            [low, high, ..] => Ok(u16::from_le_bytes([*low, *high])),
            _ => Err(MalformedIpmiMessage("Reserve SDR Repository response: too short")),
        }
    }
}

impl TypedIpmiCommand for GetRecord {
    const NAME: &'static str = "Get SDR";
    const NETFN: u8 = netfn::STORAGE;
    const COMMAND: u8 = 0x23;
    type Response = RecordChunk;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.reservation.to_le_bytes());
        out.extend_from_slice(&self.record.to_le_bytes());
        out.extend_from_slice(&[self.offset, self.count]);
    }

    fn parse(data: &[u8]) -> Result<RecordChunk, MalformedIpmiMessage> {
        match data {
            [low, high, bytes @ ..] => {
                Ok(RecordChunk { next: u16::from_le_bytes([*low, *high]), bytes: bytes.to_vec() })
            }
            _ => Err(MalformedIpmiMessage("Get SDR response: too short")),
        }
    }
}

impl GetRecord {
    /// Parses the request, for simulated BMCs.
    pub fn parse_request(data: &[u8]) -> Result<Self, MalformedIpmiMessage> {
        let [v0, v1, r0, r1, offset, count] = data else {
            return Err(MalformedIpmiMessage("Get SDR request: length"));
        };
        Ok(Self {
            reservation: u16::from_le_bytes([*v0, *v1]),
            record: u16::from_le_bytes([*r0, *r1]),
            offset: *offset,
            count: *count,
        })
    }
}

impl IpmiSensorReading {
    /// Lower thresholds: non-critical, critical, non-recoverable.
    pub const LOWER: [u8; 3] = [1 << 0, 1 << 1, 1 << 2];
    /// Upper thresholds: non-critical, critical, non-recoverable.
    pub const UPPER: [u8; 3] = [1 << 3, 1 << 4, 1 << 5];

    /// Returns whether a critical or non-recoverable threshold is crossed.
    #[must_use]
    pub const fn is_critical(&self) -> bool {
        let critical = Self::LOWER[1] | Self::LOWER[2] | Self::UPPER[1] | Self::UPPER[2];
        self.crossed & critical != 0
    }

    /// Returns whether any threshold is crossed.
    #[must_use]
    pub const fn is_unusual(&self) -> bool {
        self.crossed != 0
    }

    /// Encodes the response, for simulated BMCs.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let state = SCANNING | if self.raw.is_none() { UNAVAILABLE } else { 0 };
        // The two upper bits are reserved and read as ones.
        out.extend_from_slice(&[self.raw.unwrap_or(0), state, 0xc0 | self.crossed]);
    }
}

impl TypedIpmiCommand for GetSensorReading {
    const NAME: &'static str = "Get Sensor Reading";
    const NETFN: u8 = netfn::SENSOR;
    const COMMAND: u8 = 0x2d;
    type Response = IpmiSensorReading;

    fn lun(&self) -> u8 {
        self.lun
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.sensor);
    }

    fn parse(data: &[u8]) -> Result<IpmiSensorReading, MalformedIpmiMessage> {
        let [raw, state, rest @ ..] = data else {
            return Err(MalformedIpmiMessage("Get Sensor Reading response: too short"));
        };
        let there = state & SCANNING != 0 && state & UNAVAILABLE == 0;
        let crossed = rest.first().map_or(0, |thresholds| thresholds & 0x3f);
        Ok(IpmiSensorReading {
            raw: there.then_some(*raw),
            crossed: if there { crossed } else { 0 },
        })
    }
}

const SCANNING: u8 = 0x40;
const UNAVAILABLE: u8 = 0x20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_readings() {
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
        let reading = IpmiSensorReading { raw: Some(7), crossed: IpmiSensorReading::UPPER[1] };
        let mut bytes = Vec::new();
        reading.emit(&mut bytes);
        assert_eq!(GetSensorReading::parse(&bytes), Ok(reading));
    }

    #[test]
    fn encoded_requests_and_info_parse_to_the_same_values() {
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
