// SPDX-License-Identifier: Apache-2.0
//! What a BMC's attribute registry says about its BIOS settings: their types, what they may be, and
//! whether they can be changed. Registries are optional and patchy; what they do not say is taken
//! from the value a setting has.

use std::collections::HashMap;

use node_model::JsonObject;
use redfish::{Resource, last_segment};
use serde_json::{Map, Number, Value};

use crate::redfish::bmc::Bmc;

/// How many registries are opened to find the one that is asked for, if its path does not tell.
const MOST_OPENED: usize = 24;
/// How many of a setting's choices a message lists.
const MOST_LISTED: usize = 24;

/// What Redfish calls what Ironic shows of an entry.
const FIELDS: &[(&str, &str)] = &[
    ("Type", "attribute_type"),
    ("LowerBound", "lower_bound"),
    ("UpperBound", "upper_bound"),
    ("MinLength", "min_length"),
    ("MaxLength", "max_length"),
    ("ReadOnly", "read_only"),
    ("ResetRequired", "reset_required"),
    ("IsSystemUniqueProperty", "unique"),
];
const CHOICES: &str = "allowable_values";

/// What is known about the settings, by name.
#[derive(Debug, Default)]
pub(super) struct Registry(HashMap<String, Entry>);

/// What is known about one setting, under Ironic's names.
#[derive(Debug, Default)]
pub(super) struct Entry(Map<String, Value>);

/// What kind of value a setting has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Flag,
    Text,
}

impl Registry {
    /// Reads the registry of these settings. Without one, or if it cannot be read, nothing is
    /// known; that is common and no error.
    pub(super) async fn read(bmc: &Bmc, bios: &Resource) -> Self {
        let Some(id) = bios.text("/AttributeRegistry").filter(|id| !id.is_empty()) else {
            return Self::default();
        };
        match find(bmc, id).await {
            Ok(Some(registry)) => Self::of(&registry),
            Ok(None) => Self::default(),
            Err(error) => {
                tracing::debug!(registry = id, %error, "no attribute registry");
                Self::default()
            }
        }
    }

    /// The entries of a registry document.
    pub(super) fn of(registry: &Resource) -> Self {
        let entries = registry.list("/RegistryEntries/Attributes").iter().filter_map(|entry| {
            let name = entry.get("AttributeName")?.as_str()?;
            Some((name.to_owned(), Entry::of(entry)))
        });
        Self(entries.collect())
    }

    /// What is known about a setting.
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.0.get(name)
    }

    /// Whether a change of any of these settings needs a reset. Where nobody says, it does.
    pub(super) fn reset_required<'a>(&self, mut names: impl Iterator<Item = &'a String>) -> bool {
        names.any(|name| {
            self.get(name).and_then(|entry| entry.flag("reset_required")) != Some(false)
        })
    }

    /// The name of a known setting that differs from `name` only in case.
    pub(super) fn similar(&self, name: &str) -> Option<&str> {
        self.0.keys().find(|known| known.eq_ignore_ascii_case(name)).map(String::as_str)
    }
}

impl Entry {
    fn of(entry: &Value) -> Self {
        let known = FIELDS.iter().filter_map(|(theirs, ours)| {
            let value = entry.get(theirs).filter(|value| !value.is_null())?;
            Some(((*ours).to_owned(), value.clone()))
        });
        let mut known: Map<String, Value> = known.collect();
        if let Some(choices) = entry.get("Value").and_then(Value::as_array) {
            let name = |choice: &Value| {
                let name = ["ValueName", "ValueDisplayName"].iter().find_map(|key| {
                    choice.get(key).and_then(Value::as_str).filter(|name| !name.is_empty())
                });
                name.map(Value::from)
            };
            known.insert(CHOICES.to_owned(), choices.iter().filter_map(name).collect());
        }
        Self(known)
    }

    /// As the API shows it.
    pub(super) fn shown(&self) -> JsonObject {
        JsonObject::from(self.0.clone())
    }

    /// Whether its value is a password: it can be set and is never shown.
    pub(super) fn is_secret(&self) -> bool {
        self.text("attribute_type") == Some("Password")
    }

    /// The value to send for what the operator asked, or what is wrong with it. `now` is the value
    /// the setting has.
    pub(super) fn check(&self, asked: &Value, now: Option<&Value>) -> Result<Value, String> {
        if self.flag("read_only") == Some(true) {
            return Err("it cannot be changed".to_owned());
        }
        match self.kind(asked, now) {
            Kind::Number => self.check_number(asked),
            Kind::Flag => flag_of(asked).map(Value::Bool).ok_or("use true or false".to_owned()),
            Kind::Text => self.check_text(asked),
        }
    }

    fn kind(&self, asked: &Value, now: Option<&Value>) -> Kind {
        match self.text("attribute_type") {
            Some("Integer") => Kind::Number,
            Some("Boolean") => Kind::Flag,
            Some("Enumeration" | "String" | "Password") => Kind::Text,
            Some(_) | None => match now.filter(|now| !now.is_null()).unwrap_or(asked) {
                Value::Number(_) => Kind::Number,
                Value::Bool(_) => Kind::Flag,
                Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => Kind::Text,
            },
        }
    }

    fn check_number(&self, asked: &Value) -> Result<Value, String> {
        let number = match asked {
            Value::Number(number) => Some(number.clone()),
            Value::String(text) => number_of(text.trim()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let Some(number) = number else { return Err("use a number".to_owned()) };
        let value = number.as_f64().unwrap_or(f64::NAN);
        let (low, high) = (self.number("lower_bound"), self.number("upper_bound"));
        if low.is_some_and(|low| value < low) || high.is_some_and(|high| value > high) {
            let bound = |bound: Option<f64>| bound.map_or("any".to_owned(), |b| b.to_string());
            return Err(format!("use a number from {} to {}", bound(low), bound(high)));
        }
        Ok(Value::Number(number))
    }

    fn check_text(&self, asked: &Value) -> Result<Value, String> {
        let Some(text) = shown(asked).filter(|_| !asked.is_array() && !asked.is_object()) else {
            return Err("use a string, a number or a boolean".to_owned());
        };
        let choices: Vec<&str> = match self.0.get(CHOICES).and_then(Value::as_array) {
            Some(choices) => choices.iter().filter_map(Value::as_str).collect(),
            None => Vec::new(),
        };
        if !choices.is_empty() && !choices.contains(&text.as_str()) {
            let more = if choices.len() > MOST_LISTED { ", …" } else { "" };
            let listed = choices[..choices.len().min(MOST_LISTED)].join(", ");
            return Err(format!("use one of {listed}{more}"));
        }
        #[expect(clippy::cast_precision_loss, reason = "texts are far shorter than that")]
        let length = text.chars().count() as f64;
        if self.number("min_length").is_some_and(|least| length < least) {
            return Err("it is too short".to_owned());
        }
        if self.number("max_length").is_some_and(|most| length > most) {
            return Err("it is too long".to_owned());
        }
        Ok(Value::String(text))
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    fn flag(&self, key: &str) -> Option<bool> {
        flag_of(self.0.get(key)?)
    }

    fn number(&self, key: &str) -> Option<f64> {
        let value = self.0.get(key)?;
        value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
    }
}

/// A value as Ironic shows it: always a text, with booleans as Python writes them.
pub(super) fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Array(_) | Value::Object(_) => Some(value.to_string()),
    }
}

/// Finds and reads the registry called `id`.
async fn find(bmc: &Bmc, id: &str) -> Result<Option<Resource>, redfish::Error> {
    let client = bmc.client();
    let root = client.root().await?;
    let Some(registries) = root.link("/Registries") else { return Ok(None) };
    let mut files = client.members(registries).await?;
    // The path mostly has the name of the registry in it, with or without its version.
    files.sort_by_key(|path| likeness(path, id));
    let mut others = Vec::new();
    for path in files.iter().take(MOST_OPENED) {
        let file = client.get(path).await?;
        let Some(location) = location(&file) else { continue };
        if is_called(&file, id) {
            return client.get(location).await.map(Some);
        }
        if path.to_ascii_lowercase().contains("attribute") {
            others.push(location.to_owned());
        }
    }
    // Some list a registry under another name than it has itself.
    for location in others {
        let registry = client.get(&location).await?;
        if is_called(&registry, id) {
            return Ok(Some(registry));
        }
    }
    Ok(None)
}

/// How unlike a path is to the name of a registry; the likeliest first.
fn likeness(path: &str, id: &str) -> u8 {
    let last = last_segment(path);
    if last.eq_ignore_ascii_case(id) {
        0
    } else if stem(last).eq_ignore_ascii_case(stem(id)) {
        1
    } else {
        2 + u8::from(!last.to_ascii_lowercase().contains("attribute"))
    }
}

/// The name of a registry without its version: `BiosAttributeRegistry` of
/// `BiosAttributeRegistry.v1_0_3`.
fn stem(id: &str) -> &str {
    id.split('.').next().unwrap_or(id)
}

fn is_called(file: &Resource, id: &str) -> bool {
    ["/Registry", "/Id"].iter().any(|key| {
        file.text(key).is_some_and(|name| {
            name.eq_ignore_ascii_case(id) || stem(name).eq_ignore_ascii_case(stem(id))
        })
    })
}

/// Where the registry itself is: in English, or in the language the BMC takes for the default.
fn location(file: &Resource) -> Option<&str> {
    let places = file.list("/Location");
    let language = |place: &Value| {
        place.get("Language").and_then(Value::as_str).unwrap_or("default").to_ascii_lowercase()
    };
    let english = places.iter().find(|place| language(place).starts_with("en"));
    let place = english.or_else(|| places.iter().find(|place| language(place) == "default"));
    place.or_else(|| places.first())?.get("Uri")?.as_str()
}

fn number_of(text: &str) -> Option<Number> {
    let whole = text.parse::<i64>().ok().map(Number::from);
    whole.or_else(|| Number::from_f64(text.parse().ok()?))
}

fn flag_of(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn registry(entries: Value) -> Registry {
        let body = json!({"RegistryEntries": {"Attributes": entries}});
        Registry::of(&Resource { path: String::new(), etag: None, body })
    }

    #[test]
    fn values_are_checked_and_get_their_types() {
        let known = registry(json!([
            {"AttributeName": "Mode", "Type": "Enumeration", "ReadOnly": false,
             "Value": [{"ValueName": "Uefi"}, {"ValueDisplayName": "Bios"}, {}, 7]},
            {"AttributeName": "Delay", "Type": "Integer", "LowerBound": 0, "UpperBound": 60},
            {"AttributeName": "Quiet", "Type": "Boolean"},
            {"AttributeName": "Tag", "Type": "String", "MinLength": 1, "MaxLength": 4},
            {"AttributeName": "Version", "Type": "String", "ReadOnly": true},
            {"AttributeName": "Odd", "Type": null, "Value": "x", "LowerBound": "1"},
        ]));
        for (name, asked, now, expected) in [
            ("Mode", json!("Uefi"), json!("Bios"), Ok(json!("Uefi"))),
            ("Mode", json!("uefi"), json!("Bios"), Err("one of Uefi, Bios")),
            ("Delay", json!("30"), json!(5), Ok(json!(30))),
            ("Delay", json!(30), json!(5), Ok(json!(30))),
            ("Delay", json!("61"), json!(5), Err("from 0 to 60")),
            ("Delay", json!("soon"), json!(5), Err("number")),
            ("Delay", json!(true), json!(5), Err("number")),
            ("Quiet", json!("True"), json!(false), Ok(json!(true))),
            ("Quiet", json!("yes"), json!(false), Err("true or false")),
            ("Tag", json!("abcd"), Value::Null, Ok(json!("abcd"))),
            ("Tag", json!(12), Value::Null, Ok(json!("12"))),
            ("Tag", json!("abcde"), Value::Null, Err("too long")),
            ("Tag", json!(""), Value::Null, Err("too short")),
            ("Tag", json!(["a"]), Value::Null, Err("string")),
            ("Version", json!("2"), json!("1"), Err("cannot be changed")),
            ("Odd", json!("5"), json!(4), Ok(json!(5))),
            ("Odd", json!("0"), json!(4), Err("from 1 to any")),
            ("Odd", json!("x"), json!("y"), Ok(json!("x"))),
        ] {
            let checked = known.get(name).unwrap().check(&asked, Some(&now));
            match (&checked, &expected) {
                (Ok(value), Ok(wanted)) => assert_eq!(value, wanted, "{name} {asked}"),
                (Err(why), Err(words)) => assert!(why.contains(words), "{name} {asked}: {why}"),
                _ => panic!("{name} {asked}: {checked:?}, expected {expected:?}"),
            }
        }
        assert_eq!(known.similar("mode"), Some("Mode"));
    }

    #[test]
    fn entries_are_shown_under_ironics_names() {
        let known = registry(json!([
            {"AttributeName": "Mode", "Type": "Enumeration", "ReadOnly": false, "LowerBound": null,
             "ResetRequired": true, "IsSystemUniqueProperty": false, "DisplayName": "left out",
             "Value": [{"ValueName": "Uefi"}]},
            {"no": "name"}, 7,
        ]));
        assert_eq!(
            known.get("Mode").unwrap().shown().parse(),
            *json!({"attribute_type": "Enumeration", "allowable_values": ["Uefi"],
                    "read_only": false, "reset_required": true, "unique": false})
            .as_object()
            .unwrap()
        );
        let mode = "Mode".to_owned();
        let other = "Other".to_owned();
        assert!(known.reset_required([&mode].into_iter()));
        assert!(known.reset_required([&other].into_iter()));
        let quick = registry(json!([{"AttributeName": "Mode", "ResetRequired": false}]));
        assert!(!quick.reset_required([&mode].into_iter()));
    }

    #[test]
    fn the_likeliest_registry_is_opened_first() {
        let mut files = [
            "/redfish/v1/Registries/Base.1.8.0",
            "/redfish/v1/Registries/NetworkAttributeRegistry",
            "/redfish/v1/Registries/BiosAttributeRegistry/",
            "/redfish/v1/Registries/BiosAttributeRegistry.v1_0_3",
        ];
        files.sort_by_key(|path| likeness(path, "BiosAttributeRegistry.v1_0_3"));
        assert_eq!(
            files
                .iter()
                .map(|path| likeness(path, "BiosAttributeRegistry.v1_0_3"))
                .collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        assert!(files[0].ends_with("v1_0_3"));
    }

    #[test]
    fn the_english_text_is_preferred() {
        let file = |places: Value| Resource {
            path: String::new(),
            etag: None,
            body: json!({ "Location": places }),
        };
        for (places, expected) in [
            (
                json!([{"Language": "zh", "Uri": "/zh"}, {"Language": "en-US", "Uri": "/en"}]),
                Some("/en"),
            ),
            (
                json!([{"Language": "zh", "Uri": "/zh"}, {"Language": "default", "Uri": "/d"}]),
                Some("/d"),
            ),
            (json!([{"Uri": "/only"}]), Some("/only")),
            (json!([{"Language": "en", "ArchiveUri": "/zip"}]), None),
            (json!([]), None),
        ] {
            assert_eq!(location(&file(places.clone())), expected, "{places}");
        }
    }
}
