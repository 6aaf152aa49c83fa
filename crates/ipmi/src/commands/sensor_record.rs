// SPDX-License-Identifier: Apache-2.0
//! The full sensor record: the quantity of a sensor and the conversion of its raw values.
//!
//! A raw value is one byte. The record defines a linear conversion, and for some sensors a function to
//! apply afterwards.

use crate::MalformedIpmiMessage;

/// A full sensor record.
#[derive(Clone, PartialEq, Debug)]
pub struct SensorRecord {
    /// The record id.
    pub record: u16,
    /// The address of the owning controller.
    pub owner: u8,
    /// The LUN of the owning controller.
    pub lun: u8,
    /// The sensor number.
    pub sensor: u8,
    /// The sensor type: 1 temperature, 2 voltage, 3 current, 4 fan, 8 power supply, …
    pub sensor_type: u8,
    /// The entity id: 3 processor, 10 power supply, …
    pub entity: u8,
    /// The unit.
    pub unit: SensorUnit,
    /// The conversion of raw values.
    pub conversion: SensorConversion,
    /// Raw thresholds: upper non-recoverable, critical, non-critical, then the lower three; `None` if
    /// the sensor has none.
    pub thresholds: [Option<u8>; 6],
    /// The name.
    pub name: String,
}

/// The unit of a sensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SensorUnit {
    /// Percent.
    Percent,
    /// A base unit by its number.
    Base(u8),
    /// A rate or a compound unit.
    Compound,
}

/// The conversion of raw values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SensorConversion {
    /// The format of the raw byte.
    pub format: NumberFormat,
    /// The function after the linear conversion; zero for none.
    pub linearization: u8,
    /// The factor M, signed, ten bits.
    pub m: i16,
    /// The offset B, signed, ten bits.
    pub b: i16,
    /// The exponent of the offset.
    pub b_exponent: i8,
    /// The exponent of the result.
    pub result_exponent: i8,
}

/// The format of a raw byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NumberFormat {
    /// Unsigned.
    Unsigned,
    /// One's complement.
    OnesComplement,
    /// Two's complement.
    TwosComplement,
    /// Not numeric.
    NotAnalog,
}

impl SensorUnit {
    /// Degrees Celsius.
    pub const CELSIUS: Self = Self::Base(1);
    /// Degrees Fahrenheit.
    pub const FAHRENHEIT: Self = Self::Base(2);
    /// Kelvin.
    pub const KELVIN: Self = Self::Base(3);
    /// Volts.
    pub const VOLTS: Self = Self::Base(4);
    /// Amperes.
    pub const AMPERES: Self = Self::Base(5);
    /// Watts.
    pub const WATTS: Self = Self::Base(6);
    /// Revolutions per minute.
    pub const RPM: Self = Self::Base(18);
}

impl SensorConversion {
    /// The identity conversion.
    pub const IDENTITY: Self = Self {
        format: NumberFormat::Unsigned,
        linearization: 0,
        m: 1,
        b: 0,
        b_exponent: 0,
        result_exponent: 0,
    };

    /// Converts a raw value; `None` if it is not numeric.
    #[must_use]
    pub fn apply(&self, raw: u8) -> Option<f64> {
        let value = match self.format {
            NumberFormat::Unsigned => f64::from(raw),
            NumberFormat::OnesComplement if raw >= 0x80 => -f64::from(!raw),
            NumberFormat::OnesComplement => f64::from(raw),
            NumberFormat::TwosComplement => f64::from(i8::from_le_bytes([raw])),
            NumberFormat::NotAnalog => return None,
        };
        let offset = f64::from(self.b) * power_of_ten(self.b_exponent);
        let line = (f64::from(self.m) * value + offset) * power_of_ten(self.result_exponent);
        let number = match self.linearization {
            0 => line,
            1 => line.ln(),
            2 => line.log10(),
            3 => line.log2(),
            4 => line.exp(),
            5 => 10f64.powf(line),
            6 => line.exp2(),
            7 => line.recip(),
            8 => line.powi(2),
            9 => line.powi(3),
            10 => line.sqrt(),
            11 => line.cbrt(),
            // An undocumented function of the vendor.
            _ => return None,
        };
        number.is_finite().then_some(number)
    }
}

impl SensorRecord {
    /// The length of the record header: id, version, type and length.
    pub const HEADER_LENGTH: usize = 5;

    /// The total length of the record with this header.
    #[must_use]
    pub fn length(header: &[u8]) -> Option<usize> {
        header.get(4).map(|length| usize::from(*length) + Self::HEADER_LENGTH)
    }

    /// Parses a record. Returns `None` unless it is a full sensor record; other types do not define a
    /// conversion.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, MalformedIpmiMessage> {
        if bytes.len() < Self::HEADER_LENGTH {
            return Err(MalformedIpmiMessage("sensor record: too short"));
        }
        if bytes[3] != FULL {
            return Ok(None);
        }
        let Some((fixed, name)) = bytes.split_first_chunk::<NAME_AT>() else {
            return Err(MalformedIpmiMessage("sensor record: too short"));
        };
        let units = fixed[20];
        let ten_bits = |low: u8, high: u8| sign(u16::from(low) | u16::from(high & 0xc0) << 2, 10);
        let exponent = |nibble: u8| i8::try_from(sign(u16::from(nibble & 0x0f), 4)).unwrap_or(0);
        let unit = match (units & 0x01 != 0, units & 0x3e) {
            (true, _) => SensorUnit::Percent,
            (false, 0) => SensorUnit::Base(fixed[21]),
            (false, _) => SensorUnit::Compound,
        };
        Ok(Some(Self {
            record: u16::from_le_bytes([fixed[0], fixed[1]]),
            owner: fixed[5],
            lun: fixed[6] & 3,
            sensor: fixed[7],
            sensor_type: fixed[12],
            entity: fixed[8],
            unit,
            conversion: SensorConversion {
                format: match units >> 6 {
                    0 => NumberFormat::Unsigned,
                    1 => NumberFormat::OnesComplement,
                    2 => NumberFormat::TwosComplement,
                    _ => NumberFormat::NotAnalog,
                },
                linearization: fixed[23] & 0x7f,
                m: ten_bits(fixed[24], fixed[25]),
                b: ten_bits(fixed[26], fixed[27]),
                b_exponent: exponent(fixed[29]),
                result_exponent: exponent(fixed[29] >> 4),
            },
            thresholds: read_thresholds(fixed),
            name: read_name(fixed[47], name),
        }))
    }

    /// Encodes the record, for simulated BMCs.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let name = &self.name.as_bytes()[..self.name.len().min(16)];
        let mut out = vec![0; NAME_AT];
        out[0..2].copy_from_slice(&self.record.to_le_bytes());
        out[2] = 0x51;
        out[3] = FULL;
        out[4] = (NAME_AT - Self::HEADER_LENGTH + name.len()) as u8;
        out[5..9].copy_from_slice(&[self.owner, self.lun, self.sensor, self.entity]);
        // One instance; scanning enabled, with readable thresholds.
        out[9..12].copy_from_slice(&[1, 0x7f, 0x68]);
        out[12..14].copy_from_slice(&[self.sensor_type, THRESHOLD_SENSOR]);
        for (index, limit) in self.thresholds.iter().enumerate() {
            if limit.is_some() {
                out[18] |= THRESHOLD_BITS[index];
            }
            out[36 + index] = limit.unwrap_or(0);
        }
        let format = match self.conversion.format {
            NumberFormat::Unsigned => 0,
            NumberFormat::OnesComplement => 1,
            NumberFormat::TwosComplement => 2,
            NumberFormat::NotAnalog => 3,
        };
        let (percent, base) = match self.unit {
            SensorUnit::Percent => (1, 0),
            SensorUnit::Base(base) => (0, base),
            SensorUnit::Compound => (2, 0),
        };
        out[20..22].copy_from_slice(&[format << 6 | percent, base]);
        out[23] = self.conversion.linearization;
        for (at, number) in [(24, self.conversion.m), (26, self.conversion.b)] {
            let [low, high] = number.to_le_bytes();
            out[at..at + 2].copy_from_slice(&[low, high << 6]);
        }
        let (result, offset) = (self.conversion.result_exponent, self.conversion.b_exponent);
        out[29] = (result as u8) << 4 | offset as u8 & 0x0f;
        out[34..36].copy_from_slice(&[0xff, 0]);
        out[47] = 0xc0 | name.len() as u8;
        out.extend_from_slice(name);
        out
    }
}

const FULL: u8 = 0x01;
const THRESHOLD_SENSOR: u8 = 0x01;
/// The offset of the name.
const NAME_AT: usize = 48;
/// The bits of the mask for readable thresholds, in the order of the record.
const THRESHOLD_BITS: [u8; 6] = [1 << 5, 1 << 4, 1 << 3, 1 << 2, 1 << 1, 1 << 0];

fn read_thresholds(fixed: &[u8; NAME_AT]) -> [Option<u8>; 6] {
    let mut thresholds = [None; 6];
    if fixed[13] == THRESHOLD_SENSOR {
        for (index, slot) in thresholds.iter_mut().enumerate() {
            *slot = (fixed[18] & THRESHOLD_BITS[index] != 0).then_some(fixed[36 + index]);
        }
    }
    thresholds
}

/// Decodes the name in one of the four encodings. Undecodable characters are ignored.
fn read_name(kind: u8, bytes: &[u8]) -> String {
    const BCD: &[u8; 16] = b"0123456789 -.:,_";
    let length = usize::from(kind & 0x1f).min(bytes.len());
    let bytes = &bytes[..length];
    let name: String = match kind >> 6 {
        1 => bytes
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 0x0f])
            .map(|nibble| char::from(BCD[usize::from(nibble)]))
            .collect(),
        2 => {
            let bits = |index: usize| {
                let at = index * 6;
                let low = u16::from(bytes[at / 8]);
                let high = bytes.get(at / 8 + 1).map_or(0, |byte| u16::from(*byte));
                char::from(((low | high << 8) >> (at % 8) & 0x3f) as u8 + 0x20)
            };
            (0..length * 8 / 6).map(bits).collect()
        }
        3 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    name.chars().filter(|char| !char.is_control()).collect::<String>().trim().to_owned()
}

/// `value` as a signed number with this many bits.
fn sign(value: u16, bits: u32) -> i16 {
    let shift = 16 - bits;
    i16::from_le_bytes((value << shift).to_le_bytes()) >> shift
}

fn power_of_ten(exponent: i8) -> f64 {
    10f64.powi(i32::from(exponent))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn inlet() -> SensorRecord {
        SensorRecord {
            record: 3,
            owner: 0x20,
            lun: 0,
            sensor: 7,
            sensor_type: 1,
            entity: 0x37,
            unit: SensorUnit::CELSIUS,
            conversion: SensorConversion {
                format: NumberFormat::TwosComplement,
                linearization: 0,
                m: 5,
                b: -100,
                b_exponent: 1,
                result_exponent: -1,
            },
            thresholds: [None, Some(47), Some(42), None, Some(0xf9), None],
            name: "Inlet Temp".to_owned(),
        }
    }

    #[test]
    fn encoded_record_parses_to_the_same_value() {
        let record = inlet();
        let bytes = record.emit();
        assert_eq!(SensorRecord::length(&bytes), Some(bytes.len()));
        assert_eq!(SensorRecord::parse(&bytes), Ok(Some(record)));
    }

    #[test]
    fn ignores_other_record_types() {
        assert_eq!(SensorRecord::parse(&[1, 0, 0x51, 0x12, 0]), Ok(None));
    }

    #[test]
    fn converts_raw_values() {
        let line = |m, b, b_exponent, result_exponent| SensorConversion {
            m,
            b,
            b_exponent,
            result_exponent,
            ..SensorConversion::IDENTITY
        };
        let signed =
            |format, raw| SensorConversion { format, ..SensorConversion::IDENTITY }.apply(raw);
        let curve = |linearization, raw| {
            SensorConversion { linearization, ..SensorConversion::IDENTITY }.apply(raw)
        };
        for (got, wanted) in [
            (SensorConversion::IDENTITY.apply(42), Some(42.0)),
            (line(75, 0, 0, 0).apply(80), Some(6000.0)),
            (line(2, 0, 0, -2).apply(165), Some(3.3)),
            (line(1, -128, 0, 0).apply(100), Some(-28.0)),
            (line(5, -100, 1, -1).apply(20), Some(-90.0)),
            (signed(NumberFormat::TwosComplement, 0xff), Some(-1.0)),
            (signed(NumberFormat::OnesComplement, 0xfe), Some(-1.0)),
            (signed(NumberFormat::NotAnalog, 1), None),
            (curve(7, 4), Some(0.25)),
            (curve(7, 0), None),
            (curve(8, 9), Some(81.0)),
            (curve(0x70, 9), None),
        ] {
            let close = match (got, wanted) {
                (Some(got), Some(wanted)) => (got - wanted).abs() < 1e-9,
                (got, wanted) => got == wanted,
            };
            assert!(close, "{got:?} should be {wanted:?}");
        }
    }

    #[test]
    fn decodes_names_in_four_encodings() {
        for (kind, bytes, name) in [
            (0xc4, &b"Fan1"[..], "Fan1"),
            (0xc4, b"F\0n ", "Fn"),
            (0x42, &[0x12, 0x3c], "123."),
            // "IPMI" in packed six-bit ASCII.
            (0x83, &[0x29, 0xdc, 0xa6], "IPMI"),
            (0xdf, b"short", "short"),
        ] {
            assert_eq!(read_name(kind, bytes), name, "{kind:02x}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = SensorRecord::parse(&bytes);
            let mut full = bytes;
            if full.len() > 4 {
                full[3] = FULL;
                if let Ok(Some(record)) = SensorRecord::parse(&full) {
                    (0..=255).for_each(|raw| { let _ = record.conversion.apply(raw); });
                }
            }
        }
    }
}
