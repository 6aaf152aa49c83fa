// SPDX-License-Identifier: Apache-2.0
//! Replacement texts for identifying values: consistent, and recognisably made up.

use std::collections::{BTreeMap, HashMap};

use super::sensitive_keys::SensitiveKind;

/// The replacements of one recording.
#[derive(Default)]
pub(super) struct Replacements {
    /// By the normalised original.
    given: HashMap<String, String>,
    /// The number of replacements of each kind.
    counts: BTreeMap<SensitiveKind, u32>,
}

impl Replacements {
    /// The replacement of `text`.
    pub(super) fn of(&mut self, kind: SensitiveKind, text: &str) -> String {
        let shared = shared_form(kind, text);
        if let Some(given) = self.given.get(&shared) {
            return spelt_like(kind, text, given);
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let made = numbered_text(kind, *count);
        self.given.insert(shared, made.clone());
        spelt_like(kind, text, &made)
    }
}

/// Other spellings of the same value.
pub(super) fn spellings(kind: SensitiveKind, text: &str) -> Vec<String> {
    let mut all = vec![text.to_owned()];
    match kind {
        SensitiveKind::Mac | SensitiveKind::Wwn => {
            let digits = without_separators(text);
            let pairs = || digits.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair));
            for separator in [":", "-", "%3A"] {
                all.push(pairs().collect::<Vec<_>>().join(separator));
            }
            all.push(digits);
        }
        SensitiveKind::Uuid => all.push(without_separators(text)),
        SensitiveKind::Credential
        | SensitiveKind::Serial
        | SensitiveKind::Ip4
        | SensitiveKind::Ip6
        | SensitiveKind::Host
        | SensitiveKind::Url
        | SensitiveKind::User
        | SensitiveKind::Place => {
            let encoded = text.replace(' ', "%20");
            if encoded != text {
                all.push(encoded);
            }
        }
    }
    all.dedup();
    all
}

fn shared_form(kind: SensitiveKind, text: &str) -> String {
    match kind {
        SensitiveKind::Mac | SensitiveKind::Wwn | SensitiveKind::Uuid => {
            without_separators(text).to_ascii_lowercase()
        }
        SensitiveKind::Credential
        | SensitiveKind::Serial
        | SensitiveKind::Ip4
        | SensitiveKind::Ip6
        | SensitiveKind::Host
        | SensitiveKind::Url
        | SensitiveKind::User
        | SensitiveKind::Place => text.trim().to_ascii_lowercase(),
    }
}

/// The `count`th text of its kind. All are valid in a path.
fn numbered_text(kind: SensitiveKind, count: u32) -> String {
    let [_, high, middle, low] = count.to_be_bytes();
    match kind {
        SensitiveKind::Credential => "removed".to_owned(),
        SensitiveKind::Serial => format!("SERIAL{count:04}"),
        SensitiveKind::Uuid => format!("00000000-0000-4000-8000-{count:012x}"),
        SensitiveKind::Mac => format!("02:00:00:{high:02X}:{middle:02X}:{low:02X}"),
        SensitiveKind::Wwn => format!("50:00:00:00:00:{high:02X}:{middle:02X}:{low:02X}"),
        SensitiveKind::Ip4 => ip4(count),
        SensitiveKind::Ip6 => format!("2001:db8::{count:x}"),
        SensitiveKind::Host => format!("host-{count}.example"),
        SensitiveKind::Url => format!("https://host.example/url-{count}"),
        SensitiveKind::User => format!("user-{count}"),
        SensitiveKind::Place => format!("place-{count}"),
    }
}

/// Documentation addresses first, then benchmark addresses.
fn ip4(count: u32) -> String {
    let within = (count - 1) % 254 + 1;
    match (count - 1) / 254 {
        0 => format!("192.0.2.{within}"),
        1 => format!("198.51.100.{within}"),
        2 => format!("203.0.113.{within}"),
        more => format!("198.18.{}.{within}", more % 256),
    }
}

/// The replacement with the separators and the case of the original.
fn spelt_like(kind: SensitiveKind, text: &str, made: &str) -> String {
    let spelt = match kind {
        SensitiveKind::Mac | SensitiveKind::Wwn if text.contains("%3A") => made.replace(':', "%3A"),
        SensitiveKind::Mac | SensitiveKind::Wwn if text.contains('-') => made.replace(':', "-"),
        SensitiveKind::Mac | SensitiveKind::Wwn | SensitiveKind::Uuid
            if !text.contains([':', '-']) =>
        {
            without_separators(made)
        }
        SensitiveKind::Mac
        | SensitiveKind::Wwn
        | SensitiveKind::Uuid
        | SensitiveKind::Credential
        | SensitiveKind::Serial
        | SensitiveKind::Ip4
        | SensitiveKind::Ip6
        | SensitiveKind::Host
        | SensitiveKind::Url
        | SensitiveKind::User
        | SensitiveKind::Place => made.to_owned(),
    };
    let lower = text.chars().any(|char| char.is_ascii_lowercase()) && !text.contains("%3A");
    if lower && matches!(kind, SensitiveKind::Mac | SensitiveKind::Wwn) {
        spelt.to_ascii_lowercase()
    } else {
        spelt
    }
}

fn without_separators(text: &str) -> String {
    text.replace("%3A", "").chars().filter(|char| !matches!(char, ':' | '-')).collect()
}
