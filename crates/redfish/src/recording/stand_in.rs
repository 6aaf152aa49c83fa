// SPDX-License-Identifier: Apache-2.0
//! Texts that stand in for identifying ones: the same for the same, and plainly made up.

use std::collections::{BTreeMap, HashMap};

use super::kinds::Kind;

/// The stand-ins of one recording.
#[derive(Default)]
pub(super) struct StandIns {
    /// By what they stand in for, in the form that all its spellings share.
    given: HashMap<String, String>,
    /// How many of each kind there are.
    counts: BTreeMap<Kind, u32>,
}

impl StandIns {
    /// What stands in for `text`.
    pub(super) fn of(&mut self, kind: Kind, text: &str) -> String {
        let shared = shared_form(kind, text);
        if let Some(given) = self.given.get(&shared) {
            return spelt_like(kind, text, given);
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let made = made_up(kind, *count);
        self.given.insert(shared, made.clone());
        spelt_like(kind, text, &made)
    }
}

/// The other spellings under which the same thing may stand elsewhere.
pub(super) fn spellings(kind: Kind, text: &str) -> Vec<String> {
    let mut all = vec![text.to_owned()];
    match kind {
        Kind::Mac | Kind::Wwn => {
            let digits = without_separators(text);
            let pairs = || digits.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair));
            for separator in [":", "-", "%3A"] {
                all.push(pairs().collect::<Vec<_>>().join(separator));
            }
            all.push(digits);
        }
        Kind::Uuid => all.push(without_separators(text)),
        Kind::Credential
        | Kind::Serial
        | Kind::Ip4
        | Kind::Ip6
        | Kind::Host
        | Kind::Url
        | Kind::User
        | Kind::Place => {
            let encoded = text.replace(' ', "%20");
            if encoded != text {
                all.push(encoded);
            }
        }
    }
    all.dedup();
    all
}

fn shared_form(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Mac | Kind::Wwn | Kind::Uuid => without_separators(text).to_ascii_lowercase(),
        Kind::Credential
        | Kind::Serial
        | Kind::Ip4
        | Kind::Ip6
        | Kind::Host
        | Kind::Url
        | Kind::User
        | Kind::Place => text.trim().to_ascii_lowercase(),
    }
}

/// The `count`th text of its kind. All of them can stand in a path.
fn made_up(kind: Kind, count: u32) -> String {
    let [_, high, middle, low] = count.to_be_bytes();
    match kind {
        Kind::Credential => "removed".to_owned(),
        Kind::Serial => format!("SERIAL{count:04}"),
        Kind::Uuid => format!("00000000-0000-4000-8000-{count:012x}"),
        Kind::Mac => format!("02:00:00:{high:02X}:{middle:02X}:{low:02X}"),
        Kind::Wwn => format!("50:00:00:00:00:{high:02X}:{middle:02X}:{low:02X}"),
        Kind::Ip4 => ip4(count),
        Kind::Ip6 => format!("2001:db8::{count:x}"),
        Kind::Host => format!("host-{count}.example"),
        Kind::Url => format!("https://host.example/url-{count}"),
        Kind::User => format!("user-{count}"),
        Kind::Place => format!("place-{count}"),
    }
}

/// Addresses for examples first, then those for benchmarks.
fn ip4(count: u32) -> String {
    let within = (count - 1) % 254 + 1;
    match (count - 1) / 254 {
        0 => format!("192.0.2.{within}"),
        1 => format!("198.51.100.{within}"),
        2 => format!("203.0.113.{within}"),
        more => format!("198.18.{}.{within}", more % 256),
    }
}

/// The stand-in with the separators and the case of what it stands in for.
fn spelt_like(kind: Kind, text: &str, made: &str) -> String {
    let spelt = match kind {
        Kind::Mac | Kind::Wwn if text.contains("%3A") => made.replace(':', "%3A"),
        Kind::Mac | Kind::Wwn if text.contains('-') => made.replace(':', "-"),
        Kind::Mac | Kind::Wwn | Kind::Uuid if !text.contains([':', '-']) => {
            without_separators(made)
        }
        Kind::Mac
        | Kind::Wwn
        | Kind::Uuid
        | Kind::Credential
        | Kind::Serial
        | Kind::Ip4
        | Kind::Ip6
        | Kind::Host
        | Kind::Url
        | Kind::User
        | Kind::Place => made.to_owned(),
    };
    let lower = text.chars().any(|char| char.is_ascii_lowercase()) && !text.contains("%3A");
    if lower && matches!(kind, Kind::Mac | Kind::Wwn) { spelt.to_ascii_lowercase() } else { spelt }
}

fn without_separators(text: &str) -> String {
    text.replace("%3A", "").chars().filter(|char| !matches!(char, ':' | '-')).collect()
}
