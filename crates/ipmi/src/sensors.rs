// SPDX-License-Identifier: Apache-2.0
//! All sensors of a machine with converted values.
//!
//! Sensor records are cached until the BMC reports a change: reading them takes several requests per
//! sensor, reading a value takes one.

use std::sync::Arc;

use crate::client::IpmiClient;
use crate::commands::{
    GetRecord, GetRepositoryInfo, GetSensorReading, IpmiSensorReading, RepositoryInfo,
    ReserveRepository, SensorRecord,
};
use crate::completion;
use crate::error::{IpmiError, MalformedIpmiMessage};
use crate::message::BMC_ADDRESS;

/// The sensors of a machine that have values.
pub type SensorRecords = Arc<[SensorRecord]>;

/// The value of a sensor.
#[derive(Clone, PartialEq, Debug)]
pub struct ConvertedReading {
    /// The value in the unit of the record; `None` if it is not available.
    pub value: Option<f64>,
    /// The crossed thresholds; `None` if the sensor is absent or disabled.
    pub state: Option<IpmiSensorReading>,
}

/// The cached records.
#[derive(Debug, Default)]
pub(crate) struct SensorCache {
    known: Option<(RepositoryInfo, SensorRecords)>,
}

impl IpmiClient {
    /// Returns the records of all sensors that have values.
    pub async fn sensor_records(&self) -> Result<SensorRecords, IpmiError> {
        let mut cache = self.sensors.lock().await;
        let info = self.execute(&GetRepositoryInfo).await?;
        if let Some((known, records)) = &cache.known
            && *known == info
        {
            return Ok(Arc::clone(records));
        }
        let records: SensorRecords = self.read_records().await?.into();
        cache.known = Some((info, Arc::clone(&records)));
        Ok(records)
    }

    /// Reads a sensor. A sensor that the BMC does not find is absent, not an error.
    pub async fn read_sensor(&self, record: &SensorRecord) -> Result<ConvertedReading, IpmiError> {
        let command = GetSensorReading { sensor: record.sensor, lun: record.lun };
        match self.execute(&command).await {
            Ok(state) => {
                let value = state.raw.and_then(|raw| record.conversion.apply(raw));
                Ok(ConvertedReading { value, state: Some(state) })
            }
            Err(IpmiError::Completion { .. }) => Ok(ConvertedReading { value: None, state: None }),
            Err(error) => Err(error),
        }
    }

    async fn read_records(&self) -> Result<Vec<SensorRecord>, IpmiError> {
        let owner = self.endpoint().bridging.map_or(BMC_ADDRESS, |way| way.target.address);
        let mut records = Vec::new();
        let mut reader = SensorRecordReader { client: self, reservation: 0, chunk: LARGEST_CHUNK };
        reader.reserve().await?;
        let mut next = FIRST;
        // Ends even if the records of the BMC form a loop.
        for _ in 0..MOST_RECORDS {
            let (bytes, after) = reader.read(next).await?;
            match SensorRecord::parse(&bytes) {
                Ok(Some(record)) if record.owner == owner => records.push(record),
                Ok(_) => {}
                Err(error) => tracing::debug!(record = next, %error, "sensor record ignored"),
            }
            if after == LAST || after == next {
                return Ok(records);
            }
            next = after;
        }
        Err(MalformedIpmiMessage("sensor records: they do not end").into())
    }
}

/// Reads records in chunks that the BMC can send.
struct SensorRecordReader<'a> {
    client: &'a IpmiClient,
    reservation: u16,
    chunk: u8,
}

impl SensorRecordReader<'_> {
    async fn reserve(&mut self) -> Result<(), IpmiError> {
        self.reservation = self.client.execute(&ReserveRepository).await?;
        Ok(())
    }

    /// Reads a record; returns it and the number of the next one.
    async fn read(&mut self, record: u16) -> Result<(Vec<u8>, u16), IpmiError> {
        let header = SensorRecord::HEADER_LENGTH;
        let (mut bytes, next) = self.part(record, 0, header).await?;
        let length =
            SensorRecord::length(&bytes).ok_or(MalformedIpmiMessage("sensor record: header"))?;
        while bytes.len() < length {
            let (part, _) = self.part(record, bytes.len(), length - bytes.len()).await?;
            if part.is_empty() {
                return Err(MalformedIpmiMessage("sensor record: it is cut short").into());
            }
            bytes.extend_from_slice(&part);
        }
        bytes.truncate(length);
        Ok((bytes, next))
    }

    /// Reads up to `wanted` bytes of a record from `offset`.
    async fn part(
        &mut self,
        record: u16,
        offset: usize,
        wanted: usize,
    ) -> Result<(Vec<u8>, u16), IpmiError> {
        let offset =
            u8::try_from(offset).map_err(|_| MalformedIpmiMessage("sensor record: too long"))?;
        for _ in 0..MOST_ATTEMPTS {
            let count = u8::try_from(wanted).unwrap_or(u8::MAX).min(self.chunk);
            let reservation = self.reservation;
            match self.client.execute(&GetRecord { reservation, record, offset, count }).await {
                Ok(chunk) => return Ok((chunk.bytes, chunk.next)),
                Err(IpmiError::Completion { code, .. })
                    if code == completion::RESERVATION_CANCELED =>
                {
                    self.reserve().await?;
                }
                // Too large a chunk for this BMC.
                Err(IpmiError::Completion {
                    code: completion::TOO_LONG | completion::UNSPECIFIED,
                    ..
                }) if self.chunk > SMALLEST_CHUNK => {
                    self.chunk = (self.chunk / 2).max(SMALLEST_CHUNK);
                }
                Err(error) => return Err(error),
            }
        }
        Err(MalformedIpmiMessage("sensor record: the reservation does not last").into())
    }
}

const FIRST: u16 = 0x0000;
const LAST: u16 = 0xffff;
const MOST_RECORDS: usize = 4096;
const MOST_ATTEMPTS: usize = 8;
/// Fits into an IPMB message, which is the limit of many BMCs.
const LARGEST_CHUNK: u8 = 22;
const SMALLEST_CHUNK: u8 = 5;
