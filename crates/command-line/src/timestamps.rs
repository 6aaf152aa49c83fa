// SPDX-License-Identifier: Apache-2.0
//! Timestamps in text output. Servers send UTC with microseconds, which machine-readable output keeps.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use time::{Date, Month, OffsetDateTime};

use crate::table::TableCell;

/// A timestamp to the second: `2026-11-16 18:35:15`. Other texts are kept.
pub(crate) fn timestamp_cell(value: &Value) -> TableCell {
    let text = value.as_str().unwrap_or_default();
    match parse_utc(text) {
        Some(_) => text[..19].replace('T', " ").into(),
        None => text.to_owned().into(),
    }
}

/// A timestamp relative to another: the time of day, with the date if the days differ.
pub(crate) fn relative_to(text: &str, other: &str) -> String {
    match (parse_utc(text), parse_utc(other)) {
        (Some(this), Some(other)) if this.date() == other.date() => text[11..19].to_owned(),
        (Some(_), _) => text[..19].replace('T', " "),
        (None, _) => text.to_owned(),
    }
}

/// A future timestamp with the time left: `18:35:15 (4 min left)`.
pub(crate) fn with_time_left(text: &str, now: SystemTime) -> String {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let Some(then) = parse_utc(text) else { return text.to_owned() };
    let today = OffsetDateTime::from_unix_timestamp(now).map(OffsetDateTime::date);
    let is_today = today == Ok(then.date());
    let time = if is_today { text[11..19].to_owned() } else { text[..19].replace('T', " ") };
    let left = match then.unix_timestamp() - now {
        left if left < 0 => return format!("{time} (overdue)"),
        left if left < 60 => format!("{left} s"),
        left if left < 3_600 => format!("{} min", left / 60),
        left if left < 2 * DAY => format!("{} h", left / 3_600),
        left => format!("{} days", left / DAY),
    };
    format!("{time} ({left} left)")
}

const DAY: i64 = 86_400;

/// Parses a UTC timestamp such as `2026-11-16T18:35:15.781383+00:00`, to the second.
fn parse_utc(text: &str) -> Option<OffsetDateTime> {
    const SHAPE: &[u8; 19] = b"0000-00-00T00:00:00";
    let start = text.as_bytes().first_chunk::<19>()?;
    let is_shaped = start.iter().zip(SHAPE).all(|(byte, shape)| match shape {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b' '),
        separator => byte == separator,
    });
    if !is_shaped {
        return None;
    }
    let zone = text[19..].trim_start_matches(|sign: char| sign == '.' || sign.is_ascii_digit());
    if !matches!(zone, "" | "Z" | "+00:00") {
        return None;
    }
    let number = |from: usize| text[from..from + 2].parse::<u8>().ok();
    let month = Month::try_from(number(5)?).ok()?;
    let date = Date::from_calendar_date(text[..4].parse().ok()?, month, number(8)?).ok()?;
    let time = date.with_hms(number(11)?, number(14)?, number(17)?).ok()?;
    Some(time.assume_utc())
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
            ("2026-11-31T18:35:15Z", None),
            ("2026-11-16T24:35:15Z", None),
            ("2026-11-16T18:60:15Z", None),
            ("-026-11-16T18:35:15Z", None),
            ("ü026-11-16T18:35:15Z", None),
            ("", None),
        ] {
            assert_eq!(parse_utc(text).map(OffsetDateTime::unix_timestamp), expected, "{text}");
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
