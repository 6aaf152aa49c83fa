// SPDX-License-Identifier: Apache-2.0
//! The BIOS attribute registry of a BMC: types, allowable values and read-only flags of settings.
//! Registries are optional and often incomplete; what is missing is derived from the current value.

use std::collections::HashMap;

use node_model::JsonObject;
use redfish::{RedfishResource, last_segment};
use serde_json::{Map, Number, Value};

use crate::bmc::RedfishBmc;

/// Maximum number of registries that are read to find the right one by its content.
const MAX_REGISTRIES_READ: usize = 24;
/// Maximum number of allowable values that a message lists.
const MAX_CHOICES_LISTED: usize = 24;

/// Redfish's property names and Ironic's names for them.
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

/// Attributes by name.
#[derive(Debug, Default)]
pub(super) struct BiosAttributeRegistry(HashMap<String, BiosAttribute>);

/// The properties of one attribute, under Ironic's names.
#[derive(Debug, Default)]
pub(super) struct BiosAttribute(Map<String, Value>);

/// The JSON type of an attribute's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BiosValueType {
    Number,
    Flag,
    Text,
}

impl BiosAttributeRegistry {
    /// Reads the registry of these settings. Returns an empty registry if there is none or it cannot
    /// be read, which is common.
    pub(super) async fn read(bmc: &RedfishBmc, bios: &RedfishResource) -> Self {
        let Some(id) = bios.text("/AttributeRegistry").filter(|id| !id.is_empty()) else {
            return Self::default();
        };
        match find(bmc, id).await {
            Ok(Some(registry)) => Self::parse(&registry),
            Ok(None) => Self::default(),
            Err(error) => {
                tracing::debug!(registry = id, %error, "BIOS attribute registry could not be read");
                Self::default()
            }
        }
    }

    /// Parses a registry document.
    pub(super) fn parse(registry: &RedfishResource) -> Self {
        let entries = registry.list("/RegistryEntries/Attributes").iter().filter_map(|entry| {
            let name = entry.get("AttributeName")?.as_str()?;
            Some((name.to_owned(), BiosAttribute::parse(entry)))
        });
        Self(entries.collect())
    }

    /// Returns the attribute `name`.
    pub(super) fn get(&self, name: &str) -> Option<&BiosAttribute> {
        self.0.get(name)
    }

    /// Whether a change of any of these settings needs a reset. Unknown settings do.
    pub(super) fn reset_required<'a>(&self, mut names: impl Iterator<Item = &'a String>) -> bool {
        names.any(|name| {
            self.get(name).and_then(|entry| entry.flag("reset_required")) != Some(false)
        })
    }

    /// Returns the name of an attribute that differs from `name` only in case.
    pub(super) fn similar(&self, name: &str) -> Option<&str> {
        self.0.keys().find(|known| known.eq_ignore_ascii_case(name)).map(String::as_str)
    }
}

impl BiosAttribute {
    fn parse(entry: &Value) -> Self {
        let known = FIELDS.iter().filter_map(|(redfish_name, ironic_name)| {
            let value = entry.get(redfish_name).filter(|value| !value.is_null())?;
            Some(((*ironic_name).to_owned(), value.clone()))
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

    /// The properties as the API returns them.
    pub(super) fn properties(&self) -> JsonObject {
        JsonObject::from(self.0.clone())
    }

    /// Whether the value is a password, which can be set and is never returned.
    pub(super) fn is_secret(&self) -> bool {
        self.text("attribute_type") == Some("Password")
    }

    /// Returns the value to send for the requested one, or the reason why it is invalid. `now` is the
    /// current value.
    pub(super) fn check(&self, requested: &Value, now: Option<&Value>) -> Result<Value, String> {
        if self.flag("read_only") == Some(true) {
            return Err("it is read-only".to_owned());
        }
        match self.kind(requested, now) {
            BiosValueType::Number => self.check_number(requested),
            BiosValueType::Flag => {
                parse_bool(requested).map(Value::Bool).ok_or("use true or false".to_owned())
            }
            BiosValueType::Text => self.check_text(requested),
        }
    }

    fn kind(&self, requested: &Value, now: Option<&Value>) -> BiosValueType {
        match self.text("attribute_type") {
            Some("Integer") => BiosValueType::Number,
            Some("Boolean") => BiosValueType::Flag,
            Some("Enumeration" | "String" | "Password") => BiosValueType::Text,
            Some(_) | None => match now.filter(|now| !now.is_null()).unwrap_or(requested) {
                Value::Number(_) => BiosValueType::Number,
                Value::Bool(_) => BiosValueType::Flag,
                Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                    BiosValueType::Text
                }
            },
        }
    }

    fn check_number(&self, requested: &Value) -> Result<Value, String> {
        let number = match requested {
            Value::Number(number) => Some(number.clone()),
            Value::String(text) => parse_number(text.trim()),
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

    fn check_text(&self, requested: &Value) -> Result<Value, String> {
        let Some(text) =
            format_value(requested).filter(|_| !requested.is_array() && !requested.is_object())
        else {
            return Err("use a string, a number or a boolean".to_owned());
        };
        let choices: Vec<&str> = match self.0.get(CHOICES).and_then(Value::as_array) {
            Some(choices) => choices.iter().filter_map(Value::as_str).collect(),
            None => Vec::new(),
        };
        if !choices.is_empty() && !choices.contains(&text.as_str()) {
            let more = if choices.len() > MAX_CHOICES_LISTED { ", …" } else { "" };
            let listed = choices[..choices.len().min(MAX_CHOICES_LISTED)].join(", ");
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
        parse_bool(self.0.get(key)?)
    }

    fn number(&self, key: &str) -> Option<f64> {
        let value = self.0.get(key)?;
        value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
    }
}

/// Formats a value as Ironic does: always a string, with booleans as in Python.
pub(super) fn format_value(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Array(_) | Value::Object(_) => Some(value.to_string()),
    }
}

/// Finds and reads the registry with this id.
async fn find(
    bmc: &RedfishBmc,
    id: &str,
) -> Result<Option<RedfishResource>, redfish::RedfishError> {
    let client = bmc.client();
    let root = client.root().await?;
    let Some(registries) = root.link("/Registries") else { return Ok(None) };
    let mut files = client.members(registries).await?;
    // The path usually contains the id of the registry, with or without version.
    files.sort_by_key(|path| match_rank(path, id));
    let mut others = Vec::new();
    for path in files.iter().take(MAX_REGISTRIES_READ) {
        let file = client.get(path).await?;
        let Some(location) = location(&file) else { continue };
        if has_registry_id(&file, id) {
            return client.get(location).await.map(Some);
        }
        if path.to_ascii_lowercase().contains("attribute") {
            others.push(location.to_owned());
        }
    }
    // Some BMCs list a registry under another id than the document has.
    for location in others {
        let registry = client.get(&location).await?;
        if has_registry_id(&registry, id) {
            return Ok(Some(registry));
        }
    }
    Ok(None)
}

/// Rank of a path for the search of a registry; lower is more likely.
fn match_rank(path: &str, id: &str) -> u8 {
    let last = last_segment(path);
    if last.eq_ignore_ascii_case(id) {
        0
    } else if stem(last).eq_ignore_ascii_case(stem(id)) {
        1
    } else {
        2 + u8::from(!last.to_ascii_lowercase().contains("attribute"))
    }
}

/// The id of a registry without version: `BiosAttributeRegistry` of `BiosAttributeRegistry.v1_0_3`.
fn stem(id: &str) -> &str {
    id.split('.').next().unwrap_or(id)
}

fn has_registry_id(file: &RedfishResource, id: &str) -> bool {
    ["/Registry", "/Id"].iter().any(|key| {
        file.text(key).is_some_and(|name| {
            name.eq_ignore_ascii_case(id) || stem(name).eq_ignore_ascii_case(stem(id))
        })
    })
}

/// The location of the registry document: English, else the default language, else the first.
fn location(file: &RedfishResource) -> Option<&str> {
    let locations = file.list("/Location");
    let language = |location: &Value| {
        location.get("Language").and_then(Value::as_str).unwrap_or("default").to_ascii_lowercase()
    };
    let english = locations.iter().find(|location| language(location).starts_with("en"));
    let chosen =
        english.or_else(|| locations.iter().find(|location| language(location) == "default"));
    chosen.or_else(|| locations.first())?.get("Uri")?.as_str()
}

fn parse_number(text: &str) -> Option<Number> {
    let whole = text.parse::<i64>().ok().map(Number::from);
    whole.or_else(|| Number::from_f64(text.parse().ok()?))
}

fn parse_bool(value: &Value) -> Option<bool> {
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

    fn registry(entries: Value) -> BiosAttributeRegistry {
        let body = json!({"RegistryEntries": {"Attributes": entries}});
        BiosAttributeRegistry::parse(&RedfishResource { path: String::new(), etag: None, body })
    }

    #[test]
    fn validates_and_converts_values() {
        let known = registry(json!([
            {"AttributeName": "Mode", "Type": "Enumeration", "ReadOnly": false,
             "Value": [{"ValueName": "Uefi"}, {"ValueDisplayName": "Bios"}, {}, 7]},
            {"AttributeName": "Delay", "Type": "Integer", "LowerBound": 0, "UpperBound": 60},
            {"AttributeName": "Quiet", "Type": "Boolean"},
            {"AttributeName": "Tag", "Type": "String", "MinLength": 1, "MaxLength": 4},
            {"AttributeName": "Version", "Type": "String", "ReadOnly": true},
            {"AttributeName": "Odd", "Type": null, "Value": "x", "LowerBound": "1"},
        ]));
        for (name, requested, now, expected) in [
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
            ("Version", json!("2"), json!("1"), Err("read-only")),
            ("Odd", json!("5"), json!(4), Ok(json!(5))),
            ("Odd", json!("0"), json!(4), Err("from 1 to any")),
            ("Odd", json!("x"), json!("y"), Ok(json!("x"))),
        ] {
            let checked = known.get(name).unwrap().check(&requested, Some(&now));
            match (&checked, &expected) {
                (Ok(value), Ok(wanted)) => assert_eq!(value, wanted, "{name} {requested}"),
                (Err(why), Err(text)) => assert!(why.contains(text), "{name} {requested}: {why}"),
                _ => panic!("{name} {requested}: {checked:?}, expected {expected:?}"),
            }
        }
        assert_eq!(known.similar("mode"), Some("Mode"));
    }

    #[test]
    fn uses_property_names_of_ironic() {
        let known = registry(json!([
            {"AttributeName": "Mode", "Type": "Enumeration", "ReadOnly": false, "LowerBound": null,
             "ResetRequired": true, "IsSystemUniqueProperty": false, "DisplayName": "left out",
             "Value": [{"ValueName": "Uefi"}]},
            {"no": "name"}, 7,
        ]));
        assert_eq!(
            known.get("Mode").unwrap().properties().parse(),
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
    fn ranks_registries_by_path() {
        let mut files = [
            "/redfish/v1/Registries/Base.1.8.0",
            "/redfish/v1/Registries/NetworkAttributeRegistry",
            "/redfish/v1/Registries/BiosAttributeRegistry/",
            "/redfish/v1/Registries/BiosAttributeRegistry.v1_0_3",
        ];
        files.sort_by_key(|path| match_rank(path, "BiosAttributeRegistry.v1_0_3"));
        assert_eq!(
            files
                .iter()
                .map(|path| match_rank(path, "BiosAttributeRegistry.v1_0_3"))
                .collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        assert!(files[0].ends_with("v1_0_3"));
    }

    #[test]
    fn prefers_english_registry() {
        let file = |locations: Value| RedfishResource {
            path: String::new(),
            etag: None,
            body: json!({ "Location": locations }),
        };
        for (locations, expected) in [
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
            assert_eq!(location(&file(locations.clone())), expected, "{locations}");
        }
    }
}
