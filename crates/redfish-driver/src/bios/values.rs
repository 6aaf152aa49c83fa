// SPDX-License-Identifier: Apache-2.0
//! Values of BIOS settings: parsing requests, comparing current, pending and requested values. Pure
//! functions without I/O.

use drivers::DriverError;
use node_model::{BiosSetting, JsonObject, Timestamp};
use redfish::RedfishResource;
use serde_json::{Map, Value};

use super::registry::{BiosAttribute, BiosAttributeRegistry, format_value};

/// The settings with their values. Keys with an at sign are annotations.
pub(super) fn attributes(resource: &RedfishResource) -> Option<&Map<String, Value>> {
    resource.at("/Attributes")?.as_object()
}

/// The settings as the node shows them.
pub(super) fn settings(
    bios: &RedfishResource,
    registry: &BiosAttributeRegistry,
    now: Timestamp,
) -> Vec<BiosSetting> {
    let known = attributes(bios).into_iter().flatten().filter(|(name, _)| !name.contains('@'));
    let setting = |(name, value): (&String, &Value)| {
        let entry = registry.get(name);
        let is_secret = entry.is_some_and(BiosAttribute::is_secret);
        BiosSetting {
            name: name.clone(),
            value: format_value(value).filter(|_| !is_secret),
            created_at: now,
            updated_at: None,
            registry: entry.map(BiosAttribute::properties).unwrap_or_default(),
        }
    };
    known.map(setting).collect()
}

/// Parses the `settings` argument of the step.
pub(super) fn requested_settings(
    arguments: &JsonObject,
) -> Result<Vec<(String, Value)>, DriverError> {
    let Some(Value::Array(list)) = arguments.get("settings") else {
        return Err(DriverError::missing(
            "settings",
            "give a list of objects with 'name' and 'value'",
        ));
    };
    let requested = list.into_iter().map(|mut setting| {
        let value = setting.get_mut("value").map(Value::take);
        match (setting.get("name").and_then(Value::as_str), value) {
            (Some(name), Some(value)) => Ok((name.to_owned(), value)),
            _ => {
                Err(DriverError::invalid("settings", "every setting needs a 'name' and a 'value'"))
            }
        }
    });
    requested.collect()
}

/// Returns the values to send; the error lists all invalid settings.
pub(super) fn validate(
    requested: &[(String, Value)],
    bios: &RedfishResource,
    registry: &BiosAttributeRegistry,
) -> Result<Map<String, Value>, DriverError> {
    let none = Map::new();
    let now = attributes(bios).unwrap_or(&none);
    let mut wanted = Map::new();
    let mut problems = Vec::new();
    let no_attribute = BiosAttribute::default();
    for (name, value) in requested {
        let entry = registry.get(name);
        if entry.is_none() && !now.contains_key(name) {
            let similar = registry.similar(name).or_else(|| {
                now.keys().find(|known| known.eq_ignore_ascii_case(name)).map(String::as_str)
            });
            problems.push(match similar {
                Some(similar) => format!("there is no setting '{name}'; use '{similar}'"),
                None => {
                    format!("there is no setting '{name}'; see the node's list of BIOS settings")
                }
            });
            continue;
        }
        match entry.unwrap_or(&no_attribute).check(value, now.get(name)) {
            Ok(value) => {
                wanted.insert(name.clone(), value);
            }
            Err(why) => problems.push(format!("'{name}': {why}")),
        }
    }
    if problems.is_empty() {
        Ok(wanted)
    } else {
        Err(DriverError::invalid("settings", problems.join("; ")))
    }
}

/// Whether all values are current and no other value is pending.
pub(super) fn is_applied(
    wanted: &Map<String, Value>,
    now: Option<&Map<String, Value>>,
    pending: Option<&Map<String, Value>>,
) -> bool {
    wanted.iter().all(|(name, value)| {
        let is = |values: Option<&Map<String, Value>>| {
            values
                .and_then(|values| values.get(name))
                .map(|current_value| same_value(current_value, value))
        };
        is(now) == Some(true) && is(pending) != Some(false)
    })
}

/// Returns the settings that do not have the requested value yet. On BMCs that list only changed
/// values as pending, a value that is still pending is not in effect, whatever the current value.
pub(super) fn unapplied(
    wanted: &Map<String, Value>,
    now: Option<&Map<String, Value>>,
    pending: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    let all = now.map_or(usize::MAX, Map::len);
    let pending = pending
        .filter(|current_value| current_value.len() <= wanted.len() && current_value.len() < all);
    let left = wanted.iter().filter(|(name, value)| {
        let current_value = now.and_then(|now| now.get(*name));
        !current_value.is_some_and(|current_value| same_value(current_value, value))
            || pending.is_some_and(|pending| pending.contains_key(*name))
    });
    left.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Describes the settings that differ from the requested values.
pub(super) fn differences(left: &Map<String, Value>, bios: &RedfishResource) -> String {
    let none = Map::new();
    let now = attributes(bios).unwrap_or(&none);
    let quoted = |value: Option<&Value>| {
        value.and_then(format_value).map_or_else(|| "unset".to_owned(), |text| format!("'{text}'"))
    };
    let texts = left.iter().map(|(name, value)| {
        let (is, should) = (quoted(now.get(name)), quoted(Some(value)));
        if is == should {
            format!("{name} is not yet {should}")
        } else {
            format!("{name} is {is} instead of {should}")
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Whether two values are equal. BMCs write numbers as strings in some places.
pub(super) fn same_value(one: &Value, other: &Value) -> bool {
    one == other || (format_value(one).is_some() && format_value(one) == format_value(other))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(body: Value) -> RedfishResource {
        RedfishResource { path: "/redfish/v1/Systems/1/Bios".to_owned(), etag: None, body }
    }

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn finds_unapplied_settings() {
        let wanted = map(json!({"A": "x", "B": 5}));
        for (now, pending, applied, left) in [
            (json!({"A": "x", "B": 5}), None, true, ""),
            (json!({"A": "x", "B": "5"}), None, true, ""),
            (json!({"A": "x", "B": 4}), None, false, "B"),
            (json!({"A": "x"}), None, false, "B"),
            // A pending change of another client would undo ours.
            (json!({"A": "x", "B": 5}), Some(json!({"A": "y", "B": 5, "C": 1})), false, ""),
            // A BMC that lists all values as pending.
            (json!({"A": "x", "B": 5}), Some(json!({"A": "x", "B": 5, "C": 1})), true, ""),
            (json!({"A": "x", "B": 5}), Some(json!({"A": "x", "B": 5})), true, ""),
            // A BMC that lists only changes as pending: this one has not been applied.
            (json!({"A": "x", "B": 5}), Some(json!({"A": "x"})), true, "A"),
            (json!({"A": "x", "B": 5, "C": 1}), Some(json!({"A": "x"})), true, "A"),
            (json!({}), Some(json!({})), false, "A,B"),
        ] {
            let (now, pending) = (map(now), pending.map(map));
            assert_eq!(is_applied(&wanted, Some(&now), pending.as_ref()), applied, "{now:?}");
            let found = unapplied(&wanted, Some(&now), pending.as_ref());
            let found: Vec<_> = found.keys().map(String::as_str).collect();
            assert_eq!(found.join(","), left, "{now:?} {pending:?}");
        }
        assert_eq!(unapplied(&wanted, None, None).len(), 2);
    }

    #[test]
    fn error_lists_all_invalid_settings() {
        let registry =
            BiosAttributeRegistry::parse(&resource(json!({"RegistryEntries": {"Attributes": [
                {"AttributeName": "Mode", "Type": "Enumeration", "Value": [{"ValueName": "Uefi"}]},
                {"AttributeName": "Delay", "Type": "Integer"},
            ]}})));
        let bios = resource(json!({"Attributes": {"Mode": "Bios", "Delay": 5, "Free": true}}));
        let requested = |list: Value| {
            let arguments = JsonObject::from(map(json!({ "settings": list })));
            validate(&requested_settings(&arguments)?, &bios, &registry)
        };
        let good = requested(json!([
            {"name": "Mode", "value": "Uefi"}, {"name": "Delay", "value": "7"},
            {"name": "Free", "value": "false"},
        ]));
        assert_eq!(good.unwrap(), map(json!({"Mode": "Uefi", "Delay": 7, "Free": false})));
        let bad = requested(json!([
            {"name": "Mode", "value": "Efi"}, {"name": "delay", "value": 1}, {"name": "Nix", "value": 1},
        ]));
        let message = bad.unwrap_err().to_string();
        for text in ["'Mode': use one of Uefi", "'delay'; use 'Delay'", "no setting 'Nix'"] {
            assert!(message.contains(text), "{message}");
        }
        assert!(requested(json!([{"name": "Mode"}])).unwrap_err().to_string().contains("'value'"));
        assert!(requested_settings(&JsonObject::empty()).is_err());
    }

    #[test]
    fn formats_settings_like_ironic() {
        let bios = resource(json!({"Attributes": {
            "@odata.type": "#x", "On": true, "Number": 5, "Text": "t", "Secret": null,
        }}));
        let shown = settings(&bios, &BiosAttributeRegistry::default(), Timestamp(0));
        let shown: Vec<_> =
            shown.iter().map(|s| (s.name.as_str(), s.value.as_deref().unwrap_or("-"))).collect();
        assert_eq!(shown, [("Number", "5"), ("On", "True"), ("Secret", "-"), ("Text", "t")]);
        assert!(
            settings(
                &resource(json!({"Attributes": 7})),
                &BiosAttributeRegistry::default(),
                Timestamp(0)
            )
            .is_empty()
        );
    }
}
