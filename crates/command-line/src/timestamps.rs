// SPDX-License-Identifier: Apache-2.0
//! Timestamps in text output. Servers send UTC with microseconds, which machine-readable output keeps.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use time::{Date, Month};

use crate::table::TableCell;

/// A timestamp to the second: `2026-11-16 18:35:15`. Other texts are kept.
pub(crate) fn timestamp_cell(value: &Value) -> TableCell {
    let text = value.as_str().unwrap_or_default();
    match unix_seconds(text) {
        Some(_) => text[..19].replace('T', " ").into(),
        None => text.to_owned().into(),
    }
}

/// A timestamp relative to another: the time of day, with the date if the days differ.
pub(crate) fn relative_to(text: &str, other: &str) -> String {
    match (unix_seconds(text), unix_seconds(other)) {
        (Some(_), Some(_)) if text[..10] == other[..10] => text[11..19].to_owned(),
        (Some(_), _) => text[..19].replace('T', " "),
        (None, _) => text.to_owned(),
    }
}

/// A future timestamp with the time left: `18:35:15 (4 min left)`.
pub(crate) fn with_time_left(text: &str, now: SystemTime) -> String {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let Some(then) = unix_seconds(text) else { return text.to_owned() };
    let is_today = then.div_euclid(DAY) == now.div_euclid(DAY);
    let time = if is_today { text[11..19].to_owned() } else { text[..19].replace('T', " ") };
    let left = match then - now {
        left if left < 0 => return format!("{time} (overdue)"),
        left if left < 60 => format!("{left} s"),
        left if left < 3_600 => format!("{} min", left / 60),
        left if left < 2 * DAY => format!("{} h", left / 3_600),
        left => format!("{} days", left / DAY),
    };
    format!("{time} ({left} left)")
}

const DAY: i64 = 86_400;
const UNIX_EPOCH_JULIAN_DAY: i64 = 2_440_588;

/// Seconds since 1970 of a UTC timestamp such as `2026-11-16T18:35:15.781383+00:00`.
fn unix_seconds(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let is_shaped = text.is_ascii()
        && bytes.len() >= 19
        && [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')]
            .iter()
            .all(|(at, sign)| bytes[*at] == *sign)
        && matches!(bytes[10], b'T' | b' ');
    if !is_shaped {
        return None;
    }
    let zone = text[19..].trim_start_matches(|sign: char| sign == '.' || sign.is_ascii_digit());
    if !matches!(zone, "" | "Z" | "+00:00") {
        return None;
    }
    let number = |from: usize, to: usize| text[from..to].parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let seconds_of_day = number(11, 13)? * 3_600 + number(14, 16)? * 60 + number(17, 19)?;
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(i32::try_from(year).ok()?, month, u8::try_from(day).ok()?);
    let days = i64::from(date.ok()?.to_julian_day()) - UNIX_EPOCH_JULIAN_DAY;
    Some(days * DAY + seconds_of_day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn parses_utc_timestamps() {
        for (text, expected) in [
            ("1970-01-01T00:00:00+00:00", Some(0)),
            ("2000-02-29T12:00:00Z", Some(951_825_600)),
            ("2026-11-16T18:35:15.781383+00:00", Some(1_794_854_115)),
            ("2026-11-16 18:35:15", Some(1_794_854_115)),
            ("2026-11-16T18:35:15+01:00", None),
            ("2026-11-16", None),
            ("2026-13-16T18:35:15Z", None),
            ("ü026-11-16T18:35:15Z", None),
            ("", None),
        ] {
            assert_eq!(unix_seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn formats_timestamps() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let until = "2026-11-16T18:35:15.781383+00:00";
        for (now, expected) in [
            (1_794_854_115 - 42, "18:35:15 (42 s left)"),
            (1_794_854_115 - 299, "18:35:15 (4 min left)"),
            (1_794_854_115 - 7_300, "18:35:15 (2 h left)"),
            (1_794_854_115 - 86_400, "2026-11-16 18:35:15 (24 h left)"),
            (1_794_854_115 - 300_000, "2026-11-16 18:35:15 (3 days left)"),
            (1_794_854_115 + 5, "18:35:15 (overdue)"),
        ] {
            assert_eq!(with_time_left(until, at(now)), expected);
        }
        assert_eq!(with_time_left("soon", at(0)), "soon");
        assert_eq!(relative_to(until, "2026-11-16T18:00:00Z"), "18:35:15");
        assert_eq!(relative_to(until, "2026-11-15T18:00:00Z"), "2026-11-16 18:35:15");
        assert_eq!(relative_to("soon", until), "soon");
        assert_eq!(timestamp_cell(&json!(until)).text, "2026-11-16 18:35:15");
        assert_eq!(timestamp_cell(&json!("soon")).text, "soon");
        assert_eq!(timestamp_cell(&Value::Null).text, "");
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC*", other in "[0-9T:Z+. -]{0,30}") {
            for text in [&text, &other] {
                with_time_left(text, UNIX_EPOCH);
                relative_to(text, "2026-11-16T18:35:15Z");
                timestamp_cell(&json!(text));
            }
        }
    }
}
