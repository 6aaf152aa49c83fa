// SPDX-License-Identifier: Apache-2.0
//! The clock of a BMC. A wrong clock makes certificates invalid and log timestamps useless.

use drivers::{DriverError, DriverTarget, NodeChanges};
use node_model::Timestamp;
use redfish::RedfishResource;
use serde_json::{Map, Value, json};

use super::bmc::RedfishBmc;

/// Accepted deviation in seconds: the request takes time, and BMCs report whole seconds.
const TOLERANCE: u64 = 2;
/// Maximum seconds the clock may have advanced between setting and reading it.
const LAG: u64 = 60;

/// Sets the clock to `wanted`, or to the current time.
pub(super) async fn set(
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    wanted: Option<&str>,
    offset: Option<&str>,
) -> Result<NodeChanges, DriverError> {
    let time = match wanted {
        None => target.now,
        Some(text) => parse(text).ok_or_else(|| {
            let why = format!("'{text}' is not a timestamp such as 2026-11-15T19:24:09+00:00");
            DriverError::invalid("target_datetime", why)
        })?,
    };
    if let Some(text) = offset
        && parse_offset(text).is_none()
    {
        let why = format!("'{text}' is not an offset such as +02:00");
        return Err(DriverError::invalid("datetime_local_offset", why));
    }
    let manager = manager(bmc).await?;
    patch_clock(bmc, &manager, time, offset).await?;
    let after = bmc.get(&manager.path).await?;
    // The clock advances from the time it was set to.
    let reported = reported_time(&after);
    if reported.is_some_and(|reported| {
        reported >= whole_seconds(time) && reported.since(time).as_secs() <= LAG
    }) {
        return Ok(NodeChanges::none());
    }
    Err(bmc.failed(format!(
        "the BMC accepted the time and reports {} instead; it may use a time server: check the NTP \
         settings of the BMC",
        after.text("/DateTime").unwrap_or("none")
    )))
}

/// Sets the clock to the current time if it deviates.
pub(super) async fn correct(
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
) -> Result<NodeChanges, DriverError> {
    let manager = manager(bmc).await?;
    let Some(reported) = reported_time(&manager) else {
        return Err(bmc.failed("the BMC reports no time; remove this step"));
    };
    let off = reported.since(target.now).max(target.now.since(reported));
    if off.as_secs() <= TOLERANCE {
        return Ok(NodeChanges::none());
    }
    let utc = manager.text("/DateTimeLocalOffset").is_some_and(|offset| offset != "+00:00");
    set(bmc, target, None, utc.then_some("+00:00")).await
}

/// Reads the manager that has the clock.
async fn manager(bmc: &RedfishBmc) -> Result<RedfishResource, DriverError> {
    let system = bmc.system().await?;
    let managers = bmc.client().managers(&system).await.map_err(|error| bmc.explain(error))?;
    managers
        .into_iter()
        .next()
        .ok_or_else(|| bmc.failed("the BMC has no manager resource and so no clock to set"))
}

async fn patch_clock(
    bmc: &RedfishBmc,
    manager: &RedfishResource,
    time: Timestamp,
    offset: Option<&str>,
) -> Result<(), DriverError> {
    let mut body = Map::new();
    // A BMC that reports whole seconds rejects fractions.
    let has_fraction = manager.text("/DateTime").is_some_and(|text| text.contains('.'));
    let time = if has_fraction { time } else { whole_seconds(time) };
    body.insert("DateTime".to_owned(), json!(time.to_string()));
    if let Some(offset) = offset {
        body.insert("DateTimeLocalOffset".to_owned(), json!(offset));
    }
    bmc.patch(manager, &Value::Object(body)).await.map(drop)
}

fn reported_time(manager: &RedfishResource) -> Option<Timestamp> {
    parse(manager.text("/DateTime")?)
}

const fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_secs(time.0.div_euclid(1_000_000))
}

/// Parses `2026-11-15T19:24:09.5+01:00`; without an offset it is UTC.
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
    if hour >= 24 || minute >= 60 || second > 60 {
        return None;
    }
    let midnight = Timestamp::from_date(year, month, day)?;
    let seconds = hour * 3600 + minute * 60 + second - parse_offset(zone)? * 60;
    Some(Timestamp(midnight.0 + seconds * 1_000_000 + micros(fraction)?))
}

/// Returns the minutes of `+02:00`, `-0530`, `Z` or an empty text.
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

/// Parses a number of exactly `digits` digits.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_timestamps() {
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
    fn rejects_invalid_timestamps() {
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
        fn formatted_timestamps_parse_back(micros in 0i64..4_000_000_000_000_000) {
            prop_assert_eq!(parse(&Timestamp(micros).to_string()), Some(Timestamp(micros)));
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,40}") {
            let _ = parse(&text);
            let _ = parse_offset(&text);
        }
    }
}
