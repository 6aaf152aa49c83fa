// SPDX-License-Identifier: Apache-2.0
//! The values of BIOS settings: as they are shown, as they are asked for, and what is left to do to
//! have the one become the other. Nothing here talks to a BMC.

use node_model::{BiosSetting, JsonObject, Timestamp};
use redfish::Resource;
use serde_json::{Map, Value};

use super::registry::{Entry, Registry, shown};
use crate::Error;

/// The settings with their values; what begins with an at sign is about them and none itself.
pub(super) fn attributes(resource: &Resource) -> Option<&Map<String, Value>> {
    resource.at("/Attributes")?.as_object()
}

/// The settings as a node shows them.
pub(super) fn settings(bios: &Resource, registry: &Registry, now: Timestamp) -> Vec<BiosSetting> {
    let known = attributes(bios).into_iter().flatten().filter(|(name, _)| !name.contains('@'));
    let setting = |(name, value): (&String, &Value)| {
        let entry = registry.get(name);
        let is_secret = entry.is_some_and(Entry::is_secret);
        BiosSetting {
            name: name.clone(),
            value: shown(value).filter(|_| !is_secret),
            created_at: now,
            updated_at: None,
            registry: entry.map(Entry::shown).unwrap_or_default(),
        }
    };
    known.map(setting).collect()
}

/// The settings that the step is asked for.
pub(super) fn asked_settings(arguments: &JsonObject) -> Result<Vec<(String, Value)>, Error> {
    let Some(Value::Array(list)) = arguments.get("settings") else {
        return Err(Error::missing("settings", "give a list of objects with 'name' and 'value'"));
    };
    let asked = list.into_iter().map(|mut setting| {
        let value = setting.get_mut("value").map(Value::take);
        match (setting.get("name").and_then(Value::as_str), value) {
            (Some(name), Some(value)) => Ok((name.to_owned(), value)),
            _ => Err(Error::invalid("settings", "every setting needs a 'name' and a 'value'")),
        }
    });
    asked.collect()
}

/// The values to send for what was asked; all that is wrong with it is told at once.
pub(super) fn checked(
    asked: &[(String, Value)],
    bios: &Resource,
    registry: &Registry,
) -> Result<Map<String, Value>, Error> {
    let none = Map::new();
    let now = attributes(bios).unwrap_or(&none);
    let mut wanted = Map::new();
    let mut problems = Vec::new();
    let nothing_known = Entry::default();
    for (name, value) in asked {
        let entry = registry.get(name);
        if entry.is_none() && !now.contains_key(name) {
            let near = registry.similar(name).or_else(|| {
                now.keys().find(|known| known.eq_ignore_ascii_case(name)).map(String::as_str)
            });
            problems.push(match near {
                Some(near) => format!("there is no setting '{name}'; use '{near}'"),
                None => format!(
                    "there is no setting '{name}'; the node's list of BIOS settings has those \
                     there are"
                ),
            });
            continue;
        }
        match entry.unwrap_or(&nothing_known).check(value, now.get(name)) {
            Ok(value) => {
                wanted.insert(name.clone(), value);
            }
            Err(why) => problems.push(format!("'{name}': {why}")),
        }
    }
    if problems.is_empty() {
        Ok(wanted)
    } else {
        Err(Error::invalid("settings", problems.join("; ")))
    }
}

/// Whether there is nothing to do: all values are as wanted and nothing else is pending.
pub(super) fn is_applied(
    wanted: &Map<String, Value>,
    now: Option<&Map<String, Value>>,
    pending: Option<&Map<String, Value>>,
) -> bool {
    wanted.iter().all(|(name, value)| {
        let is = |values: Option<&Map<String, Value>>| {
            values.and_then(|values| values.get(name)).map(|held| same(held, value))
        };
        is(now) == Some(true) && is(pending) != Some(false)
    })
}

/// The settings that do not have the value wanted yet. Where the BMC keeps only changed values as
/// pending, a value that is still there is not in effect, whatever it shows.
pub(super) fn unapplied(
    wanted: &Map<String, Value>,
    now: Option<&Map<String, Value>>,
    pending: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    let all = now.map_or(usize::MAX, Map::len);
    let pending = pending.filter(|held| held.len() <= wanted.len() && held.len() < all);
    let left = wanted.iter().filter(|(name, value)| {
        let held = now.and_then(|now| now.get(*name));
        !held.is_some_and(|held| same(held, value))
            || pending.is_some_and(|pending| pending.contains_key(*name))
    });
    left.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What is otherwise than wanted, in words.
pub(super) fn differences(left: &Map<String, Value>, bios: &Resource) -> String {
    let none = Map::new();
    let now = attributes(bios).unwrap_or(&none);
    let word = |value: Option<&Value>| {
        value.and_then(shown).map_or_else(|| "unset".to_owned(), |text| format!("'{text}'"))
    };
    let told = left.iter().map(|(name, value)| {
        let (is, should) = (word(now.get(name)), word(Some(value)));
        if is == should {
            format!("{name} is still to become {should}")
        } else {
            format!("{name} is {is} instead of {should}")
        }
    });
    told.collect::<Vec<_>>().join(", ")
}

/// Whether two values are the same. BMCs write numbers as texts in one place and not in another.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    one == other || (shown(one).is_some() && shown(one) == shown(other))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(body: Value) -> Resource {
        Resource { path: "/redfish/v1/Systems/1/Bios".to_owned(), etag: None, body }
    }

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn what_is_left_to_do() {
        let wanted = map(json!({"A": "x", "B": 5}));
        for (now, pending, applied, left) in [
            (json!({"A": "x", "B": 5}), None, true, ""),
            (json!({"A": "x", "B": "5"}), None, true, ""),
            (json!({"A": "x", "B": 4}), None, false, "B"),
            (json!({"A": "x"}), None, false, "B"),
            // Somebody else's pending change would undo ours.
            (json!({"A": "x", "B": 5}), Some(json!({"A": "y", "B": 5, "C": 1})), false, ""),
            // All values are always pending there.
            (json!({"A": "x", "B": 5}), Some(json!({"A": "x", "B": 5, "C": 1})), true, ""),
            (json!({"A": "x", "B": 5}), Some(json!({"A": "x", "B": 5})), true, ""),
            // Only changes are pending there, so this one has not been applied.
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
    fn all_mistakes_are_told_at_once() {
        let registry = Registry::of(&resource(json!({"RegistryEntries": {"Attributes": [
            {"AttributeName": "Mode", "Type": "Enumeration", "Value": [{"ValueName": "Uefi"}]},
            {"AttributeName": "Delay", "Type": "Integer"},
        ]}})));
        let bios = resource(json!({"Attributes": {"Mode": "Bios", "Delay": 5, "Free": true}}));
        let asked = |list: Value| {
            let arguments = JsonObject::from(map(json!({ "settings": list })));
            checked(&asked_settings(&arguments)?, &bios, &registry)
        };
        let good = asked(json!([
            {"name": "Mode", "value": "Uefi"}, {"name": "Delay", "value": "7"},
            {"name": "Free", "value": "false"},
        ]));
        assert_eq!(good.unwrap(), map(json!({"Mode": "Uefi", "Delay": 7, "Free": false})));
        let bad = asked(json!([
            {"name": "Mode", "value": "Efi"}, {"name": "delay", "value": 1}, {"name": "Nix", "value": 1},
        ]));
        let message = bad.unwrap_err().to_string();
        for words in ["'Mode': use one of Uefi", "'delay'; use 'Delay'", "no setting 'Nix'"] {
            assert!(message.contains(words), "{message}");
        }
        assert!(asked(json!([{"name": "Mode"}])).unwrap_err().to_string().contains("'value'"));
        assert!(asked_settings(&JsonObject::empty()).is_err());
    }

    #[test]
    fn settings_as_ironic_shows_them() {
        let bios = resource(json!({"Attributes": {
            "@odata.type": "#x", "On": true, "Number": 5, "Text": "t", "Secret": null,
        }}));
        let shown = settings(&bios, &Registry::default(), Timestamp(0));
        let shown: Vec<_> =
            shown.iter().map(|s| (s.name.as_str(), s.value.as_deref().unwrap_or("-"))).collect();
        assert_eq!(shown, [("Number", "5"), ("On", "True"), ("Secret", "-"), ("Text", "t")]);
        assert!(
            settings(&resource(json!({"Attributes": 7})), &Registry::default(), Timestamp(0))
                .is_empty()
        );
    }
}
