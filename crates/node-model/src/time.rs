// SPDX-License-Identifier: Apache-2.0
//! Timestamps in UTC with microseconds, in Ironic's text format.
//!
//! Nothing here reads the clock: the current time is always a parameter.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::{Date, Month};

const UNIX_EPOCH_JULIAN_DAY: i64 = 2_440_588;

/// Microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// The text is not a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a UTC timestamp such as 2026-11-15T19:24:09Z, 2026-11-15 or seconds since 1970")]
pub struct ParseTimestampError;

impl Timestamp {
    /// Midnight of a date in UTC. Returns `None` if there is no such date.
    #[must_use]
    pub fn from_date(year: i64, month: i64, day: i64) -> Option<Self> {
        let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
        let (year, day) = (i32::try_from(year).ok()?, u8::try_from(day).ok()?);
        let julian_day = Date::from_calendar_date(year, month, day).ok()?.to_julian_day();
        Some(Self::from_secs((i64::from(julian_day) - UNIX_EPOCH_JULIAN_DAY) * 86_400))
    }

    /// `seconds` after the epoch.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds * 1_000_000)
    }

    /// This time plus `duration`, clamped to the representable range.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The duration since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    /// `2026-11-15T19:24:09.123456+00:00`; the fraction is omitted for whole seconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(1_000_000);
        let micros = self.0.rem_euclid(1_000_000);
        let date = date_from_days(seconds.div_euclid(86_400));
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        let of_day = seconds.rem_euclid(86_400);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if micros != 0 {
            write!(f, ".{micros:06}")?;
        }
        f.write_str("+00:00")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = ParseTimestampError;

    /// Parses the format of `Display`, also with `Z`, without seconds, or only the date; or seconds
    /// since the epoch. Time zones other than UTC are rejected.
    fn from_str(text: &str) -> Result<Self, ParseTimestampError> {
        if let Ok(seconds) = text.parse::<i64>() {
            return seconds.checked_mul(1_000_000).map(Self).ok_or(ParseTimestampError);
        }
        let utc = ["Z", "z", "+00:00"].iter().find_map(|zone| text.strip_suffix(zone));
        let text = utc.unwrap_or(text);
        let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
        let [year, month, day] = numbers(date, '-')?[..] else { return Err(ParseTimestampError) };
        let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
        let (hour, minute, second) = match numbers(time, ':')?[..] {
            [hour, minute] => (hour, minute, 0),
            [hour, minute, second] => (hour, minute, second),
            _ => return Err(ParseTimestampError),
        };
        let midnight = Self::from_date(year, month, day).ok_or(ParseTimestampError)?;
        if year > 9999 || hour >= 24 || minute >= 60 || second >= 60 || fraction.len() > 9 {
            return Err(ParseTimestampError);
        }
        let fraction = fraction.get(..6).unwrap_or(fraction);
        let micros = if fraction.is_empty() { 0 } else { number(&format!("{fraction:0<6}"))? };
        let seconds = hour * 3600 + minute * 60 + second;
        Ok(Self(midnight.0 + seconds * 1_000_000 + micros))
    }
}

/// Parses numbers between separators.
fn numbers(text: &str, separator: char) -> Result<Vec<i64>, ParseTimestampError> {
    text.split(separator).map(number).collect()
}

fn number(text: &str) -> Result<i64, ParseTimestampError> {
    // Only seconds since the epoch may have a sign.
    let is_number = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { text.parse().map_err(|_| ParseTimestampError) } else { Err(ParseTimestampError) }
}

/// The date with this day number. Dates outside of the years -9999 to 9999 are clamped.
fn date_from_days(days: i64) -> Date {
    let julian_day = days.saturating_add(UNIX_EPOCH_JULIAN_DAY);
    let limit = if days < 0 { Date::MIN } else { Date::MAX };
    i32::try_from(julian_day).ok().and_then(|day| Date::from_julian_day(day).ok()).unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_its_own_format_and_shorter_ones() {
        for micros in [0, 1, 951_782_399_999_999, 1_795_000_000_123_456, 1_800_000_000_000_000] {
            let timestamp = Timestamp(micros);
            assert_eq!(timestamp.to_string().parse(), Ok(timestamp), "{timestamp}");
        }
        for (text, seconds) in [
            ("2000-02-29", 951_782_400),
            ("2000-03-01T00:00Z", 951_868_800),
            ("1970-01-01T00:00:01.000000Z", 1),
            ("1969-12-31 23:59:59+00:00", -1),
            ("1795000000", 1_795_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Timestamp::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "x",
            "2001-02-29",
            "2001-13-01",
            "2001-00-10",
            "2001-01-32",
            "2001-01-00",
            "2001-01-01T24:00",
            "2001-01-01T00:00:00+01:00",
            "2001-01-01T00:00:00.",
            "99999-01-01",
            "-2001-01-01",
            "2001-01-01T+1:00",
            "9223372036854775807",
        ] {
            // A point without a fraction is accepted.
            let is_valid = text.ends_with('.');
            assert_eq!(text.parse::<Timestamp>().is_ok(), is_valid, "{text}");
        }
    }

    #[test]
    fn formats_known_timestamps() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00+00:00"),
            (951_782_400_000_000, "2000-02-29T00:00:00+00:00"),
            (1_795_001_049_123_456, "2026-11-18T11:24:09.123456+00:00"),
            (-1, "1969-12-31T23:59:59.999999+00:00"),
            (4_107_542_399_000_000, "2100-02-28T23:59:59+00:00"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00+00:00"),
        ] {
            assert_eq!(Timestamp(micros).to_string(), text);
        }
    }

    #[test]
    fn formats_extreme_timestamps() {
        assert!(Timestamp(i64::MAX).to_string().starts_with("9999-12-31T"));
        assert!(Timestamp(i64::MIN).to_string().starts_with("-9999-01-01T"));
    }

    #[test]
    fn differences_are_never_negative() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
        assert_eq!(Timestamp(9).since(Timestamp(5)), Duration::from_micros(4));
    }
}
