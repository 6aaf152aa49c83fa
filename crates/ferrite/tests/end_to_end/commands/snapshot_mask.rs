// SPDX-License-Identifier: Apache-2.0
//! Masks what differs between runs: timestamps, random UUIDs and the host name.

/// Replaces them by `TIME`, `UUID` and `HOST`. UUIDs chosen by tests begin with zeros and are kept.
pub(super) fn mask(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        if let Some(uuid) = rest.get(..36).filter(|word| is_uuid(word)) {
            shown.push_str(if uuid.starts_with("00000000-") { uuid } else { "UUID" });
            rest = &rest[36..];
        } else if is_timestamp(rest) {
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
    word.bytes().enumerate().all(|(index, byte)| match index {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// `2026-01-01T00:00…`
fn is_timestamp(text: &str) -> bool {
    let shape = b"dddd-dd-ddTdd:dd";
    text.len() >= shape.len()
        && text.bytes().zip(shape).all(|(byte, expected)| match expected {
            b'd' => byte.is_ascii_digit(),
            other => byte == *other,
        })
}
