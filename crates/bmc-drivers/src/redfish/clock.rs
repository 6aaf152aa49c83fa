// SPDX-License-Identifier: Apache-2.0
//! The clock of a BMC. One that is wrong makes certificates look expired and logs lie.

use node_model::Timestamp;
use redfish::Resource;
use serde_json::{Map, Value, json};

use super::bmc::Bmc;
use crate::{Error, NodeChanges, Target};

/// How far a clock may be off, in seconds. Asking takes a moment, and BMCs tell whole seconds.
const TOLERANCE: u64 = 2;
/// How far a clock may have gone on between being set and being looked at, in seconds.
const LAG: u64 = 60;

/// Sets the clock to `wanted`, or to now.
pub(super) async fn set(
    bmc: &Bmc,
    target: &Target<'_>,
    wanted: Option<&str>,
    offset: Option<&str>,
) -> Result<NodeChanges, Error> {
    let moment = match wanted {
        None => target.now,
        Some(text) => parse(text).ok_or_else(|| {
            let why = format!("'{text}' is not a moment such as 2026-11-15T19:24:09+00:00");
            Error::invalid("target_datetime", why)
        })?,
    };
    if let Some(text) = offset
        && parse_offset(text).is_none()
    {
        let why = format!("'{text}' is not an offset such as +02:00");
        return Err(Error::invalid("datetime_local_offset", why));
    }
    let manager = manager(bmc).await?;
    change(bmc, &manager, moment, offset).await?;
    let after = bmc.get(&manager.path).await?;
    // It goes on ticking from where it was set.
    let shown = told(&after);
    if shown.is_some_and(|shown| shown >= whole(moment) && shown.since(moment).as_secs() <= LAG) {
        return Ok(NodeChanges::none());
    }
    Err(bmc.failed(format!(
        "the BMC took the time and shows {} instead; it may follow a time server: look for NTP in \
         its settings",
        after.text("/DateTime").unwrap_or("none")
    )))
}

/// Sets the clock to now if it is off.
pub(super) async fn correct(bmc: &Bmc, target: &Target<'_>) -> Result<NodeChanges, Error> {
    let manager = manager(bmc).await?;
    let Some(shown) = told(&manager) else {
        return Err(bmc.failed("the BMC does not tell its time; leave this step out"));
    };
    let off = shown.since(target.now).max(target.now.since(shown));
    if off.as_secs() <= TOLERANCE {
        return Ok(NodeChanges::none());
    }
    let utc = manager.text("/DateTimeLocalOffset").is_some_and(|offset| offset != "+00:00");
    set(bmc, target, None, utc.then_some("+00:00")).await
}

/// The manager whose clock it is.
async fn manager(bmc: &Bmc) -> Result<Resource, Error> {
    let system = bmc.system().await?;
    let managers = bmc.client().managers(&system).await.map_err(|error| bmc.explain(error))?;
    managers
        .into_iter()
        .next()
        .ok_or_else(|| bmc.failed("the BMC describes no manager, so it has no clock to set"))
}

async fn change(
    bmc: &Bmc,
    manager: &Resource,
    moment: Timestamp,
    offset: Option<&str>,
) -> Result<(), Error> {
    let mut body = Map::new();
    // A BMC that tells whole seconds takes no others.
    let has_fraction = manager.text("/DateTime").is_some_and(|text| text.contains('.'));
    let moment = if has_fraction { moment } else { whole(moment) };
    body.insert("DateTime".to_owned(), json!(moment.to_string()));
    if let Some(offset) = offset {
        body.insert("DateTimeLocalOffset".to_owned(), json!(offset));
    }
    bmc.patch(manager, &Value::Object(body)).await.map(drop)
}

fn told(manager: &Resource) -> Option<Timestamp> {
    parse(manager.text("/DateTime")?)
}

const fn whole(moment: Timestamp) -> Timestamp {
    Timestamp::from_secs(moment.0.div_euclid(1_000_000))
}

/// Reads `2026-11-15T19:24:09.5+01:00`; without an offset it is UTC.
fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.trim().split_once(['T', 't', ' '])?;
    let mut date = date.splitn(3, '-');
    let (year, month, day) =
        (number(date.next()?, 4)?, number(date.next()?, 2)?, number(date.next()?, 2)?);
    let zone = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (time, zone) = time.split_at(zone);
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut time = time.splitn(3, ':');
    let (hour, minute) = (number(time.next()?, 2)?, number(time.next()?, 2)?);
    let second = time.next().map_or(Some(0), |second| number(second, 2))?;
    let in_range = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !in_range {
        return None;
    }
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Timestamp((seconds - parse_offset(zone)? * 60) * 1_000_000 + micros(fraction)?))
}

/// The minutes of `+02:00`, `-0530`, `Z` or nothing.
fn parse_offset(text: &str) -> Option<i64> {
    let sign = match text.chars().next() {
        None | Some('Z' | 'z') => return (text.len() <= 1).then_some(0),
        Some('+') => 1,
        Some('-') => -1,
        Some(_) => return None,
    };
    let digits = &text[1..];
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None => digits.split_at_checked(2)?,
    };
    let minutes = if minutes.is_empty() { 0 } else { number(minutes, 2)? };
    let hours = number(hours, 2)?;
    (hours <= 14 && minutes < 60).then_some(sign * (hours * 60 + minutes))
}

/// A number of exactly that many digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

fn micros(fraction: &str) -> Option<i64> {
    const DIGITS: usize = 6;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000".chars()).take(DIGITS).collect();
    digits.parse().ok()
}

/// The number of a day, from 1970-01-01, in the proleptic Gregorian calendar. The year is taken to
/// start in March, so that the leap day is the last one of its year.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    const DAYS_PER_ERA: i64 = 146_097; // 400 years
    const DAYS_FROM_MARCH_0000_TO_EPOCH: i64 = 719_468;
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - DAYS_FROM_MARCH_0000_TO_EPOCH
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:00", 0),
            ("2000-02-29T00:00:00+00:00", 951_782_400_000_000),
            ("2026-11-18T12:24:09.123456+01:00", 1_795_001_049_123_456),
            ("2026-11-18T06:54:09.1-0430", 1_795_001_049_100_000),
            ("1969-12-31T23:59:59.999999Z", -1),
        ] {
            assert_eq!(parse(text), Some(Timestamp(micros)), "{text}");
        }
    }

    #[test]
    fn not_moments() {
        for text in [
            "",
            "now",
            "2026-11-18",
            "2026-13-01T00:00:00Z",
            "2026-11-18T24:00:00Z",
            "2026-11-18T00:00:00X",
            "2026-11-18T00:00:00+2",
            "2026-11-18T00:00:00.xZ",
            "26-11-18T00:00:00Z",
            "2026-11-18T00:00:00Zé",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(micros in 0i64..4_000_000_000_000_000) {
            prop_assert_eq!(parse(&Timestamp(micros).to_string()), Some(Timestamp(micros)));
        }

        #[test]
        fn reading_never_panics(text in "\\PC{0,40}") {
            let _ = parse(&text);
            let _ = parse_offset(&text);
        }
    }
}
