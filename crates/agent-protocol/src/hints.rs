// SPDX-License-Identifier: Apache-2.0
//! Root device hints: conditions that select the disk for the operating system.
//!
//! A hint is a value, or an operator and values: `{"size": ">= 100", "vendor": "<in> intel"}`. All
//! hints must match. Text comparison is case-insensitive; sizes are in GiB.

use serde_json::{Map, Value};

use crate::InventoryDisk;

/// Validated root device hints.
#[derive(Clone, PartialEq, Debug)]
pub struct RootDeviceHints(Vec<(&'static str, HintCondition)>);

/// The hints are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootDeviceHintError {
    /// Unknown hint name.
    #[error("unknown root device hint {name:?}; known hints are {known}", known = hint_names())]
    Unknown {
        /// The unknown name, cut to 80 characters.
        name: String,
    },
    /// Invalid value.
    #[error("the root device hint {name} must be {expected}")]
    Malformed {
        /// The name of the hint.
        name: &'static str,
        /// A description of valid values.
        expected: &'static str,
    },
}

/// No root device could be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootDeviceError {
    /// The hints are invalid.
    #[error("invalid root device hints")]
    Hints(#[from] RootDeviceHintError),
    /// No disk matches the hints.
    #[error("no disk matches the root device hints {hints}; the machine has {disks}")]
    NoMatch {
        /// The hints, as JSON.
        hints: String,
        /// A description of all disks.
        disks: String,
    },
    /// Every disk is smaller than 4 GiB.
    #[error("no disk of at least 4 GiB was found; the machine has {disks}")]
    TooSmall {
        /// A description of all disks.
        disks: String,
    },
}

#[derive(Clone, Copy, PartialEq)]
enum HintType {
    Text,
    Gibibytes,
    Flag,
}

#[derive(Clone, PartialEq, Debug)]
enum HintCondition {
    Flag(bool),
    Number(HintOperator, f64),
    Text(HintOperator, String),
    /// Equal to one of the values.
    Or(Vec<String>),
    /// Contains all values.
    Contains(Vec<String>),
    Range {
        low: f64,
        low_included: bool,
        high: f64,
        high_included: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum HintOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

const HINTS: &[(&str, HintType)] = &[
    ("size", HintType::Gibibytes),
    ("model", HintType::Text),
    ("wwn", HintType::Text),
    ("serial", HintType::Text),
    ("vendor", HintType::Text),
    ("wwn_with_extension", HintType::Text),
    ("wwn_vendor_extension", HintType::Text),
    ("name", HintType::Text),
    ("rotational", HintType::Flag),
    ("hctl", HintType::Text),
    ("by_path", HintType::Text),
    ("tran", HintType::Text),
];

/// An operator precedes those it is a prefix of. A single `=` means "at least", as in Ironic.
const NUMBER_OPERATORS: &[(&str, HintOperator)] = &[
    ("==", HintOperator::Equal),
    ("=", HintOperator::GreaterOrEqual),
    ("!=", HintOperator::NotEqual),
    (">=", HintOperator::GreaterOrEqual),
    ("<=", HintOperator::LessOrEqual),
    (">", HintOperator::Greater),
    ("<", HintOperator::Less),
];
const TEXT_OPERATORS: &[(&str, HintOperator)] = &[
    ("s==", HintOperator::Equal),
    ("s!=", HintOperator::NotEqual),
    ("s<=", HintOperator::LessOrEqual),
    ("s<", HintOperator::Less),
    ("s>=", HintOperator::GreaterOrEqual),
    ("s>", HintOperator::Greater),
];

impl RootDeviceHints {
    /// Parses `root_device` or one entry of `skip_block_devices`.
    ///
    /// # Errors
    /// If a hint is unknown or its value is invalid.
    pub fn parse(hints: &Map<String, Value>) -> Result<Self, RootDeviceHintError> {
        let mut tests = Vec::with_capacity(hints.len());
        for (name, value) in hints {
            let known = HINTS.iter().find(|(known, _)| known == name);
            let (name, kind) = known.ok_or_else(|| RootDeviceHintError::Unknown {
                name: name.chars().take(80).collect(),
            })?;
            tests.push((*name, parse_hint(name, *kind, value)?));
        }
        Ok(Self(tests))
    }

    /// Returns whether a disk of the inventory matches all hints.
    #[must_use]
    pub fn matches(&self, disk: &Map<String, Value>) -> bool {
        self.0
            .iter()
            .all(|(name, test)| disk.get(*name).is_some_and(|value| test.holds(name, value)))
    }
}

impl HintCondition {
    fn holds(&self, name: &str, value: &Value) -> bool {
        if let Value::Array(values) = value {
            return values.iter().any(|value| self.holds(name, value));
        }
        let number = || match name {
            "size" => value.as_f64().map(|bytes| bytes / f64::from(1 << 30)),
            _ => value.as_f64().or_else(|| value.as_str()?.trim().parse().ok()),
        };
        let text = || {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.trim().to_lowercase()
        };
        if value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty()) {
            return false;
        }
        match self {
            Self::Flag(expected) => parse_bool(value) == Some(*expected),
            Self::Number(operator, expected) => {
                number().is_some_and(|number| operator.holds(&number, expected))
            }
            Self::Text(operator, expected) => operator.holds(&text(), expected),
            Self::Or(expected) if name == "size" => expected.iter().any(|expected| {
                number().zip(expected.parse().ok()).is_some_and(|(a, b): (f64, f64)| a == b)
            }),
            Self::Or(expected) => expected.contains(&text()),
            Self::Contains(expected) => {
                expected.iter().all(|expected| text().contains(expected.as_str()))
            }
            Self::Range { low, low_included, high, high_included } => {
                number().is_some_and(|number| {
                    (number > *low || *low_included && number == *low)
                        && (number < *high || *high_included && number == *high)
                })
            }
        }
    }
}

impl HintOperator {
    fn holds<T: PartialOrd>(self, left: &T, right: &T) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

/// Chooses the disk for the operating system: the first that matches the hints or, without hints, the
/// smallest of at least 4 GiB (ties are broken by name).
///
/// # Errors
/// If the hints are invalid or no disk qualifies.
pub fn choose_root_device<'a>(
    disks: &'a [InventoryDisk],
    hints: Option<&Map<String, Value>>,
) -> Result<&'a InventoryDisk, RootDeviceError> {
    const MIN_SIZE: u64 = 4 << 30;
    match hints.filter(|hints| !hints.is_empty()) {
        Some(hints) => {
            let checked = RootDeviceHints::parse(hints)?;
            disks.iter().find(|disk| checked.matches(&disk_fields(disk))).ok_or_else(|| {
                let hints = Value::Object(hints.clone()).to_string();
                RootDeviceError::NoMatch { hints, disks: describe_disks(disks) }
            })
        }
        None => disks
            .iter()
            .filter(|disk| disk.size >= MIN_SIZE)
            .min_by(|one, other| (one.size, &one.name).cmp(&(other.size, &other.name)))
            .ok_or_else(|| RootDeviceError::TooSmall { disks: describe_disks(disks) }),
    }
}

/// Returns the disk's inventory fields, which are the names of the hints.
fn disk_fields(disk: &InventoryDisk) -> Map<String, Value> {
    match serde_json::to_value(disk) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    }
}

/// Formats names, sizes, models and serial numbers of disks for an error message.
fn describe_disks(disks: &[InventoryDisk]) -> String {
    if disks.is_empty() {
        return "no disks".to_owned();
    }
    let describe = |disk: &InventoryDisk| {
        let model = disk.model.as_deref().unwrap_or("unknown model");
        let serial = disk.serial.as_deref().unwrap_or("none");
        format!("{} ({} GiB, {model}, serial {serial})", disk.name, disk.size >> 30)
    };
    disks.iter().map(describe).collect::<Vec<_>>().join(", ")
}

/// Parses a boolean, also from numbers and the strings accepted by `oslo.utils`.
#[must_use]
pub fn parse_bool(value: &Value) -> Option<bool> {
    if let Some(flag) = value.as_bool() {
        return Some(flag);
    }
    let text = value
        .as_str()
        .map(str::to_ascii_lowercase)
        .or_else(|| Some(value.as_i64()?.to_string()))?;
    match text.trim() {
        "1" | "t" | "true" | "on" | "y" | "yes" => Some(true),
        "0" | "f" | "false" | "off" | "n" | "no" => Some(false),
        _ => None,
    }
}

fn parse_hint(
    name: &'static str,
    kind: HintType,
    value: &Value,
) -> Result<HintCondition, RootDeviceHintError> {
    let malformed = |expected| RootDeviceHintError::Malformed { name, expected };
    if kind == HintType::Flag {
        return parse_bool(value)
            .map(HintCondition::Flag)
            .ok_or_else(|| malformed("true or false"));
    }
    let expression = match value {
        Value::String(text) => text.trim().to_lowercase(),
        Value::Number(number) if kind == HintType::Gibibytes => number.to_string(),
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            return Err(malformed(match kind {
                HintType::Gibibytes => "a number of GiB, or an operator and numbers",
                HintType::Text | HintType::Flag => "text",
            }));
        }
    };
    if expression.is_empty() {
        return Err(malformed("non-empty text"));
    }
    let test = parse_expression(&expression, kind)
        .ok_or_else(|| malformed("a value, or an operator and values of its type"))?;
    if kind == HintType::Gibibytes && !test.has_positive_integers() {
        return Err(malformed("a positive whole number of GiB"));
    }
    Ok(test)
}

fn parse_expression(expression: &str, kind: HintType) -> Option<HintCondition> {
    let words = |rest: &str, separator: &str| -> Vec<String> {
        rest.split(separator)
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let some = |words: Vec<String>| Some(words).filter(|words| !words.is_empty());
    if let Some(rest) = expression.strip_prefix("<or>") {
        return some(words(rest, "<or>")).map(HintCondition::Or);
    }
    if let Some(rest) = expression.strip_prefix("<in>") {
        return some(words(rest, "<in>")).map(HintCondition::Contains);
    }
    if let Some(rest) = expression.strip_prefix("<all-in>") {
        return some(words(rest, " ")).map(HintCondition::Contains);
    }
    if let Some(rest) = expression.strip_prefix("<range-in>") {
        return parse_range(rest);
    }
    // Text operators first: they are number operators with the prefix `s`.
    for (sign, operator) in TEXT_OPERATORS {
        if let Some(rest) = expression.strip_prefix(sign) {
            return Some(HintCondition::Text(*operator, rest.trim().to_owned()))
                .filter(|_| !rest.trim().is_empty());
        }
    }
    for (sign, operator) in NUMBER_OPERATORS {
        if let Some(rest) = expression.strip_prefix(sign) {
            return rest.trim().parse().ok().map(|number| HintCondition::Number(*operator, number));
        }
    }
    match kind {
        HintType::Gibibytes => {
            expression.parse().ok().map(|number| HintCondition::Number(HintOperator::Equal, number))
        }
        HintType::Text | HintType::Flag => {
            Some(HintCondition::Text(HintOperator::Equal, expression.to_owned()))
        }
    }
}

/// Parses `[ 10 20 ]`; a round bracket excludes its bound.
fn parse_range(text: &str) -> Option<HintCondition> {
    let mut words = text.split_whitespace();
    let (opening, low, high, closing) =
        (words.next()?, words.next()?, words.next()?, words.next()?);
    let (low, high) = (low.parse::<f64>().ok()?, high.parse::<f64>().ok()?);
    let low_included = matches!(opening, "[");
    let high_included = matches!(closing, "]");
    let well_formed = matches!(opening, "[" | "(") && matches!(closing, "]" | ")") && low <= high;
    (well_formed && words.next().is_none()).then_some(HintCondition::Range {
        low,
        low_included,
        high,
        high_included,
    })
}

impl HintCondition {
    /// Sizes must be positive integers; ranges may have fractions.
    fn has_positive_integers(&self) -> bool {
        let good = |number: f64| number > 0.0 && number.fract() == 0.0;
        match self {
            Self::Number(_, number) => good(*number),
            Self::Or(words) => words.iter().all(|word| word.parse().is_ok_and(good)),
            Self::Range { .. } => true,
            Self::Flag(_) | Self::Text(..) | Self::Contains(_) => false,
        }
    }
}

fn hint_names() -> String {
    HINTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn matches_disks_with_every_operator() {
        let disk = object(json!({
            "name": "/dev/sda", "size": 107_374_182_400_u64, "model": "SSDSC2KB48 X", "vendor": "ATA",
            "rotational": false, "serial": "PHYF", "hctl": null, "wwn": "12",
        }));
        for (hints, matches) in [
            (json!({"name": "/dev/sda"}), true),
            (json!({"name": "s== /dev/SDA"}), true),
            (json!({"name": "s!= /dev/sda"}), false),
            (json!({"serial": "s> pa"}), true),
            (json!({"serial": "s>= phyf"}), true),
            (json!({"serial": "s< pa"}), false),
            (json!({"serial": "s<= phyf"}), true),
            (json!({"model": "ssdsc2kb48 x"}), true),
            (json!({"model": "<in> kb48 x"}), true),
            (json!({"model": "<in> nvme"}), false),
            (json!({"model": "<all-in> ssd x"}), true),
            (json!({"vendor": "<or> intel <or> ata"}), true),
            (json!({"vendor": "<or> intel <or> samsung"}), false),
            (json!({"size": 100}), true),
            (json!({"size": "100"}), true),
            (json!({"size": "== 100"}), true),
            (json!({"size": "= 60"}), true),
            (json!({"size": ">= 100"}), true),
            (json!({"size": "> 100"}), false),
            (json!({"size": "< 101"}), true),
            (json!({"size": "<= 99"}), false),
            (json!({"size": "!= 99"}), true),
            (json!({"size": "<or> 50 <or> 100"}), true),
            (json!({"size": "<range-in> [ 10 100 ]"}), true),
            (json!({"size": "<range-in> [ 10 100 )"}), false),
            (json!({"size": "<range-in> ( 99.5 200 )"}), true),
            (json!({"wwn": "> 11"}), true),
            (json!({"rotational": false}), true),
            (json!({"rotational": "no"}), true),
            (json!({"rotational": true}), false),
            (json!({"hctl": "0:0:0:0"}), false),
            (json!({"by_path": "x"}), false),
            (json!({"size": 100, "vendor": "intel"}), false),
        ] {
            assert_eq!(
                RootDeviceHints::parse(&object(hints.clone())).unwrap().matches(&disk),
                matches,
                "{hints}"
            );
        }
    }

    #[test]
    fn chooses_first_match_or_smallest_disk() {
        let disk = |name: &str, gib: u64, serial: &str| InventoryDisk {
            name: name.to_owned(),
            size: gib << 30,
            serial: Some(serial.to_owned()),
            ..InventoryDisk::default()
        };
        let disks = [
            disk("/dev/sdc", 100, "C"),
            disk("/dev/sdb", 20, "B"),
            disk("/dev/sda", 20, "A"),
            disk("/dev/sdd", 3, "D"),
        ];
        for (hints, chosen) in [
            (json!({}), Ok("/dev/sda")),
            (json!({"serial": "c"}), Ok("/dev/sdc")),
            (json!({"size": ">= 20", "serial": "<or> a <or> b"}), Ok("/dev/sdb")),
            (
                json!({"serial": "E"}),
                Err("no disk matches the root device hints {\"serial\":\"E\"}"),
            ),
            (json!({"size": "x"}), Err("invalid root device hints")),
        ] {
            let found = choose_root_device(&disks, Some(&object(hints.clone())));
            match (found, chosen) {
                (Ok(disk), Ok(name)) => assert_eq!(disk.name, name, "{hints}"),
                (Err(error), Err(message)) => {
                    assert!(error.to_string().starts_with(message), "{error}");
                }
                (found, chosen) => panic!("{hints}: {found:?} instead of {chosen:?}"),
            }
        }
        let error = choose_root_device(&disks[3..], None).unwrap_err().to_string();
        assert!(error.contains("/dev/sdd (3 GiB"), "{error}");
    }

    #[test]
    fn rejects_malformed_hints() {
        for (hints, message) in [
            (
                json!({"size": 0}),
                "the root device hint size must be a positive whole number of GiB",
            ),
            (
                json!({"size": "big"}),
                "the root device hint size must be a value, or an operator and values of its type",
            ),
            (
                json!({"size": true}),
                "the root device hint size must be a number of GiB, or an operator and numbers",
            ),
            (
                json!({"rotational": "maybe"}),
                "the root device hint rotational must be true or false",
            ),
            (json!({"vendor": 5}), "the root device hint vendor must be text"),
            (json!({"vendor": " "}), "the root device hint vendor must be non-empty text"),
            (
                json!({"size": "<range-in> [ 20 10 ]"}),
                "the root device hint size must be a value, or an operator and values of its type",
            ),
        ] {
            assert_eq!(RootDeviceHints::parse(&object(hints)).unwrap_err().to_string(), message);
        }
        let unknown =
            RootDeviceHints::parse(&object(json!({"colour": "red"}))).unwrap_err().to_string();
        assert!(
            unknown.starts_with("unknown root device hint \"colour\"; known hints are size, model"),
            "{unknown}"
        );
    }
}
