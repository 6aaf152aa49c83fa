// SPDX-License-Identifier: Apache-2.0
//! What differs from run to run, hidden: moments, random UUIDs, and the name of this computer.

/// The text with `TIME`, `UUID` and `HOST` in place of those. UUIDs that tests chose are all zeros but the last.
pub(super) fn masked(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        if let Some(uuid) = rest.get(..36).filter(|word| is_uuid(word)) {
            shown.push_str(if uuid.starts_with("00000000-") { uuid } else { "UUID" });
            rest = &rest[36..];
        } else if is_moment(rest) {
            let end = rest
                .find(|it: char| !(it.is_ascii_digit() || "-T:.+Z".contains(it)))
                .unwrap_or(rest.len());
            shown.push_str("TIME");
            rest = &rest[end..];
        } else {
            shown.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let lines = shown.lines().map(|line| {
        let is_host = |word: &str| !host.is_empty() && word.trim() == host;
        let words = line.split("  ").map(|word| match is_host(word) {
            true => word.replace(host, "HOST"),
            false => word.to_owned(),
        });
        format!("{}\n", words.collect::<Vec<_>>().join("  ").trim_end())
    });
    lines.collect()
}

fn is_uuid(word: &str) -> bool {
    word.bytes().enumerate().all(|(place, byte)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// `2026-01-01T00:00…`
fn is_moment(text: &str) -> bool {
    let shape = b"dddd-dd-ddTdd:dd";
    text.len() >= shape.len()
        && text.bytes().zip(shape).all(|(byte, expected)| match expected {
            b'd' => byte.is_ascii_digit(),
            other => byte == *other,
        })
}
