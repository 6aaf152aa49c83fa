// SPDX-License-Identifier: Apache-2.0
//! Root device hints: which of a machine's disks an operator means.
//!
//! A hint is a value, or an operator and values: `{"size": ">= 100", "vendor": "<in> intel"}`. All
//! must hold. Text is compared without regard to case; sizes are in GiB.

use serde_json::{Map, Value};

use crate::Disk;

/// Checked hints.
#[derive(Clone, PartialEq, Debug)]
pub struct Hints(Vec<(&'static str, Test)>);

/// The hints cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HintError {
    /// There is no such hint.
    #[error("there is no hint {name:?}; the hints are {known}", known = names())]
    Unknown {
        /// What was written.
        name: String,
    },
    /// The value makes no sense for this hint.
    #[error("the hint {name} must be {expected}")]
    Malformed {
        /// Which.
        name: &'static str,
        /// What it must be.
        expected: &'static str,
    },
}

/// No disk to put a system on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRootDevice {
    /// The hints cannot be used.
    #[error("the root device hints cannot be used")]
    Hints(#[from] HintError),
    /// The hints match nothing.
    #[error("no disk matches the root device hints {hints}; the machine has {disks}")]
    NoMatch {
        /// The hints.
        hints: String,
        /// The disks.
        disks: String,
    },
    /// All disks are too small.
    #[error("no disk of at least 4 GiB was found; the machine has {disks}")]
    TooSmall {
        /// The disks.
        disks: String,
    },
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Gibibytes,
    Flag,
}

#[derive(Clone, PartialEq, Debug)]
enum Test {
    Flag(bool),
    Number(Operator, f64),
    Text(Operator, String),
    /// Equal to one of these.
    Or(Vec<String>),
    /// Contains all of these.
    Contains(Vec<String>),
    Range {
        low: f64,
        low_included: bool,
        high: f64,
        high_included: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

const HINTS: &[(&str, Kind)] = &[
    ("size", Kind::Gibibytes),
    ("model", Kind::Text),
    ("wwn", Kind::Text),
    ("serial", Kind::Text),
    ("vendor", Kind::Text),
    ("wwn_with_extension", Kind::Text),
    ("wwn_vendor_extension", Kind::Text),
    ("name", Kind::Text),
    ("rotational", Kind::Flag),
    ("hctl", Kind::Text),
    ("by_path", Kind::Text),
    ("tran", Kind::Text),
];

/// Longer ones first, where one begins like another. A lone `=` means "at least", as it always has.
const NUMBER_OPERATORS: &[(&str, Operator)] = &[
    ("==", Operator::Equal),
    ("=", Operator::GreaterOrEqual),
    ("!=", Operator::NotEqual),
    (">=", Operator::GreaterOrEqual),
    ("<=", Operator::LessOrEqual),
    (">", Operator::Greater),
    ("<", Operator::Less),
];
const TEXT_OPERATORS: &[(&str, Operator)] = &[
    ("s==", Operator::Equal),
    ("s!=", Operator::NotEqual),
    ("s<=", Operator::LessOrEqual),
    ("s<", Operator::Less),
    ("s>=", Operator::GreaterOrEqual),
    ("s>", Operator::Greater),
];

impl Hints {
    /// Checks `root_device` or one entry of `skip_block_devices`.
    ///
    /// # Errors
    /// If a hint is unknown or its value makes no sense.
    pub fn parse(hints: &Map<String, Value>) -> Result<Self, HintError> {
        let mut tests = Vec::with_capacity(hints.len());
        for (name, value) in hints {
            let known = HINTS.iter().find(|(known, _)| known == name);
            let (name, kind) = known
                .ok_or_else(|| HintError::Unknown { name: name.chars().take(80).collect() })?;
            tests.push((*name, parse_hint(name, *kind, value)?));
        }
        Ok(Self(tests))
    }

    /// Whether a disk of the inventory satisfies all of them.
    #[must_use]
    pub fn matches(&self, disk: &Map<String, Value>) -> bool {
        self.0
            .iter()
            .all(|(name, test)| disk.get(*name).is_some_and(|value| test.holds(name, value)))
    }
}

impl Test {
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
            Self::Flag(wanted) => flag(value) == Some(*wanted),
            Self::Number(operator, wanted) => {
                number().is_some_and(|number| operator.holds(&number, wanted))
            }
            Self::Text(operator, wanted) => operator.holds(&text(), wanted),
            Self::Or(wanted) if name == "size" => wanted.iter().any(|wanted| {
                number().zip(wanted.parse().ok()).is_some_and(|(a, b): (f64, f64)| a == b)
            }),
            Self::Or(wanted) => wanted.contains(&text()),
            Self::Contains(wanted) => wanted.iter().all(|wanted| text().contains(wanted.as_str())),
            Self::Range { low, low_included, high, high_included } => {
                number().is_some_and(|number| {
                    (number > *low || *low_included && number == *low)
                        && (number < *high || *high_included && number == *high)
                })
            }
        }
    }
}

impl Operator {
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

/// The disk a system goes on: the first that matches the hints; without hints the smallest that is
/// large enough, the first by name of equally small ones.
///
/// # Errors
/// If the hints make no sense, or there is no such disk.
pub fn choose_root_device<'a>(
    disks: &'a [Disk],
    hints: Option<&Map<String, Value>>,
) -> Result<&'a Disk, NoRootDevice> {
    const LEAST: u64 = 4 << 30;
    match hints.filter(|hints| !hints.is_empty()) {
        Some(hints) => {
            let checked = Hints::parse(hints)?;
            disks.iter().find(|disk| checked.matches(&fields(disk))).ok_or_else(|| {
                let hints = Value::Object(hints.clone()).to_string();
                NoRootDevice::NoMatch { hints, disks: in_words(disks) }
            })
        }
        None => disks
            .iter()
            .filter(|disk| disk.size >= LEAST)
            .min_by(|one, other| (one.size, &one.name).cmp(&(other.size, &other.name)))
            .ok_or_else(|| NoRootDevice::TooSmall { disks: in_words(disks) }),
    }
}

/// The disk as hints see it.
fn fields(disk: &Disk) -> Map<String, Value> {
    match serde_json::to_value(disk) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    }
}

/// Disks for a message: names, sizes and what else tells them apart.
fn in_words(disks: &[Disk]) -> String {
    if disks.is_empty() {
        return "no disk at all".to_owned();
    }
    let one = |disk: &Disk| {
        let model = disk.model.as_deref().unwrap_or("unknown model");
        let serial = disk.serial.as_deref().unwrap_or("none");
        format!("{} ({} GiB, {model}, serial {serial})", disk.name, disk.size >> 30)
    };
    disks.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// True or false, in any of the ways people write them.
#[must_use]
pub fn flag(value: &Value) -> Option<bool> {
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

fn parse_hint(name: &'static str, kind: Kind, value: &Value) -> Result<Test, HintError> {
    let malformed = |expected| HintError::Malformed { name, expected };
    if kind == Kind::Flag {
        return flag(value).map(Test::Flag).ok_or_else(|| malformed("true or false"));
    }
    let expression = match value {
        Value::String(text) => text.trim().to_lowercase(),
        Value::Number(number) if kind == Kind::Gibibytes => number.to_string(),
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            return Err(malformed(match kind {
                Kind::Gibibytes => "a number of GiB, or an operator and numbers",
                Kind::Text | Kind::Flag => "text",
            }));
        }
    };
    if expression.is_empty() {
        return Err(malformed("something"));
    }
    let test = parse_expression(&expression, kind)
        .ok_or_else(|| malformed("a value, or an operator and values it can compare with"))?;
    if kind == Kind::Gibibytes && !test.has_positive_integers() {
        return Err(malformed("a positive whole number of GiB"));
    }
    Ok(test)
}

fn parse_expression(expression: &str, kind: Kind) -> Option<Test> {
    let words = |rest: &str, separator: &str| -> Vec<String> {
        rest.split(separator)
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let some = |words: Vec<String>| Some(words).filter(|words| !words.is_empty());
    if let Some(rest) = expression.strip_prefix("<or>") {
        return some(words(rest, "<or>")).map(Test::Or);
    }
    if let Some(rest) = expression.strip_prefix("<in>") {
        return some(words(rest, "<in>")).map(Test::Contains);
    }
    if let Some(rest) = expression.strip_prefix("<all-in>") {
        return some(words(rest, " ")).map(Test::Contains);
    }
    if let Some(rest) = expression.strip_prefix("<range-in>") {
        return parse_range(rest);
    }
    // Text operators first: they are number operators behind an `s`.
    for (sign, operator) in TEXT_OPERATORS {
        if let Some(rest) = expression.strip_prefix(sign) {
            return Some(Test::Text(*operator, rest.trim().to_owned()))
                .filter(|_| !rest.trim().is_empty());
        }
    }
    for (sign, operator) in NUMBER_OPERATORS {
        if let Some(rest) = expression.strip_prefix(sign) {
            return rest.trim().parse().ok().map(|number| Test::Number(*operator, number));
        }
    }
    match kind {
        Kind::Gibibytes => {
            expression.parse().ok().map(|number| Test::Number(Operator::Equal, number))
        }
        Kind::Text | Kind::Flag => Some(Test::Text(Operator::Equal, expression.to_owned())),
    }
}

/// `[ 10 20 ]`, with a round bracket where the bound itself does not count.
fn parse_range(text: &str) -> Option<Test> {
    let mut words = text.split_whitespace();
    let (opening, low, high, closing) =
        (words.next()?, words.next()?, words.next()?, words.next()?);
    let (low, high) = (low.parse::<f64>().ok()?, high.parse::<f64>().ok()?);
    let low_included = matches!(opening, "[");
    let high_included = matches!(closing, "]");
    let well_formed = matches!(opening, "[" | "(") && matches!(closing, "]" | ")") && low <= high;
    (well_formed && words.next().is_none()).then_some(Test::Range {
        low,
        low_included,
        high,
        high_included,
    })
}

impl Test {
    /// What sizes must be; ranges may have fractions.
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

fn names() -> String {
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
    fn every_operator() {
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
                Hints::parse(&object(hints.clone())).unwrap().matches(&disk),
                matches,
                "{hints}"
            );
        }
    }

    #[test]
    fn the_root_device() {
        let disk = |name: &str, gib: u64, serial: &str| Disk {
            name: name.to_owned(),
            size: gib << 30,
            serial: Some(serial.to_owned()),
            ..Disk::default()
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
            (json!({"size": "x"}), Err("the root device hints cannot be used")),
        ] {
            let found = choose_root_device(&disks, Some(&object(hints.clone())));
            match (found, chosen) {
                (Ok(disk), Ok(name)) => assert_eq!(disk.name, name, "{hints}"),
                (Err(error), Err(words)) => {
                    assert!(error.to_string().starts_with(words), "{error}");
                }
                (found, chosen) => panic!("{hints}: {found:?} instead of {chosen:?}"),
            }
        }
        let none = choose_root_device(&disks[3..], None).unwrap_err().to_string();
        assert!(none.contains("/dev/sdd (3 GiB"), "{none}");
    }

    #[test]
    fn refusals() {
        for (hints, message) in [
            (json!({"size": 0}), "the hint size must be a positive whole number of GiB"),
            (
                json!({"size": "big"}),
                "the hint size must be a value, or an operator and values it can compare with",
            ),
            (
                json!({"size": true}),
                "the hint size must be a number of GiB, or an operator and numbers",
            ),
            (json!({"rotational": "maybe"}), "the hint rotational must be true or false"),
            (json!({"vendor": 5}), "the hint vendor must be text"),
            (json!({"vendor": " "}), "the hint vendor must be something"),
            (
                json!({"size": "<range-in> [ 20 10 ]"}),
                "the hint size must be a value, or an operator and values it can compare with",
            ),
        ] {
            assert_eq!(Hints::parse(&object(hints)).unwrap_err().to_string(), message);
        }
        let unknown = Hints::parse(&object(json!({"colour": "red"}))).unwrap_err().to_string();
        assert!(
            unknown.starts_with("there is no hint \"colour\"; the hints are size, model"),
            "{unknown}"
        );
    }
}
