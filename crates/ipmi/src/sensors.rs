// SPDX-License-Identifier: Apache-2.0
//! All sensors of a machine, with what their values mean.
//!
//! The records that describe the sensors are read once and kept until the BMC says that they have
//! changed: reading them takes several requests a sensor, reading the values one.

use std::sync::Arc;

use crate::client::Client;
use crate::commands::{
    GetRecord, GetRepositoryInfo, GetSensorReading, RepositoryInfo, ReserveRepository,
    SensorReading, SensorRecord,
};
use crate::completion;
use crate::error::{Error, Malformed};
use crate::message::BMC_ADDRESS;

/// The sensors of a machine that have a value.
pub type SensorRecords = Arc<[SensorRecord]>;

/// A sensor's value.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// The number, in the unit of the record; none if the sensor has none right now.
    pub value: Option<f64>,
    /// Which thresholds are crossed; none if the sensor is not there or cannot be asked.
    pub state: Option<SensorReading>,
}

/// The records as last read.
#[derive(Debug, Default)]
pub(crate) struct SensorCache {
    known: Option<(RepositoryInfo, SensorRecords)>,
}

impl Client {
    /// The records of all sensors that have a value.
    pub async fn sensor_records(&self) -> Result<SensorRecords, Error> {
        let mut cache = self.sensors.lock().await;
        let info = self.ask(&GetRepositoryInfo).await?;
        if let Some((known, records)) = &cache.known
            && *known == info
        {
            return Ok(Arc::clone(records));
        }
        let records: SensorRecords = self.read_records().await?.into();
        cache.known = Some((info, Arc::clone(&records)));
        Ok(records)
    }

    /// Asks a sensor. One that the BMC does not find is absent, not an error.
    pub async fn read_sensor(&self, record: &SensorRecord) -> Result<Reading, Error> {
        let ask = GetSensorReading { sensor: record.sensor, lun: record.lun };
        match self.ask(&ask).await {
            Ok(state) => {
                let value = state.raw.and_then(|raw| record.conversion.apply(raw));
                Ok(Reading { value, state: Some(state) })
            }
            Err(Error::Completion { .. }) => Ok(Reading { value: None, state: None }),
            Err(error) => Err(error),
        }
    }

    async fn read_records(&self) -> Result<Vec<SensorRecord>, Error> {
        let owner = self.endpoint().bridging.map_or(BMC_ADDRESS, |way| way.target.address);
        let mut records = Vec::new();
        let mut reader = Reader { client: self, reservation: 0, chunk: LARGEST_CHUNK };
        reader.reserve().await?;
        let mut next = FIRST;
        // A BMC whose records go round in a circle must not keep us for ever.
        for _ in 0..MOST_RECORDS {
            let (bytes, after) = reader.read(next).await?;
            match SensorRecord::parse(&bytes) {
                Ok(Some(record)) if record.owner == owner => records.push(record),
                Ok(_) => {}
                Err(error) => tracing::debug!(record = next, %error, "sensor record passed over"),
            }
            if after == LAST || after == next {
                return Ok(records);
            }
            next = after;
        }
        Err(Malformed("sensor records: they do not end").into())
    }
}

/// Reads records in parts that the BMC can send.
struct Reader<'a> {
    client: &'a Client,
    reservation: u16,
    chunk: u8,
}

impl Reader<'_> {
    async fn reserve(&mut self) -> Result<(), Error> {
        self.reservation = self.client.ask(&ReserveRepository).await?;
        Ok(())
    }

    /// A whole record, and the number of the one after it.
    async fn read(&mut self, record: u16) -> Result<(Vec<u8>, u16), Error> {
        let header = SensorRecord::HEADER_LENGTH;
        let (mut bytes, next) = self.part(record, 0, header).await?;
        let length = SensorRecord::length(&bytes).ok_or(Malformed("sensor record: header"))?;
        while bytes.len() < length {
            let (part, _) = self.part(record, bytes.len(), length - bytes.len()).await?;
            if part.is_empty() {
                return Err(Malformed("sensor record: it is cut short").into());
            }
            bytes.extend_from_slice(&part);
        }
        bytes.truncate(length);
        Ok((bytes, next))
    }

    /// Up to `wanted` bytes of a record from `offset` on.
    async fn part(
        &mut self,
        record: u16,
        offset: usize,
        wanted: usize,
    ) -> Result<(Vec<u8>, u16), Error> {
        let offset = u8::try_from(offset).map_err(|_| Malformed("sensor record: too long"))?;
        for _ in 0..MOST_ATTEMPTS {
            let count = u8::try_from(wanted).unwrap_or(u8::MAX).min(self.chunk);
            let reservation = self.reservation;
            match self.client.ask(&GetRecord { reservation, record, offset, count }).await {
                Ok(chunk) => return Ok((chunk.bytes, chunk.next)),
                Err(Error::Completion { code, .. }) if code == completion::RESERVATION_CANCELED => {
                    self.reserve().await?;
                }
                // Too much at once for it.
                Err(Error::Completion {
                    code: completion::TOO_LONG | completion::UNSPECIFIED,
                    ..
                }) if self.chunk > SMALLEST_CHUNK => {
                    self.chunk = (self.chunk / 2).max(SMALLEST_CHUNK);
                }
                Err(error) => return Err(error),
            }
        }
        Err(Malformed("sensor record: the reservation does not last").into())
    }
}

const FIRST: u16 = 0x0000;
const LAST: u16 = 0xffff;
const MOST_RECORDS: usize = 4096;
const MOST_ATTEMPTS: usize = 8;
/// As much as fits an IPMB message, which is what many BMCs send at most.
const LARGEST_CHUNK: u8 = 22;
const SMALLEST_CHUNK: u8 = 5;
