// SPDX-License-Identifier: Apache-2.0
//! A resource of a BMC, with tolerant accessors.
//!
//! Every accessor returns `None` (or an empty list) for a field that is missing, null or of another
//! type than the standard requires. Fields are named by JSON pointer
//! (`/Boot/BootSourceOverrideTarget`); a name without a slash is a top-level field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// One resource of a Redfish service.
#[derive(Debug, Clone, PartialEq)]
pub struct RedfishResource {
    /// The path it was read from.
    pub path: String,
    /// The etag of the header or the body, for `If-Match`.
    pub etag: Option<String>,
    /// The content; always an object.
    pub body: Value,
}

/// An action of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedfishAction {
    /// The path to POST to.
    pub target: String,
    /// The allowable values of each parameter, if stated.
    pub allowable: BTreeMap<String, Vec<String>>,
    /// The ActionInfo resource, if there is one.
    pub info: Option<String>,
}

impl RedfishResource {
    /// A string without padding.
    #[must_use]
    pub fn text(&self, pointer: &str) -> Option<&str> {
        Some(self.at(pointer)?.as_str()?.trim())
    }

    /// A number, also if it is written as a string.
    #[must_use]
    pub fn number(&self, pointer: &str) -> Option<f64> {
        match self.at(pointer)? {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => {
                text.trim().parse().ok().filter(|number: &f64| number.is_finite())
            }
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// An integer, also if it is written as a string or as `16.0`.
    #[must_use]
    pub fn whole(&self, pointer: &str) -> Option<i64> {
        match self.at(pointer)? {
            Value::Number(number) => number.as_i64().or_else(|| whole_of(number.as_f64()?)),
            Value::String(text) => text.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// A boolean, also if it is written as a string.
    #[must_use]
    pub fn flag(&self, pointer: &str) -> Option<bool> {
        match self.at(pointer)? {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
            Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
            Value::Null
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => None,
        }
    }

    /// The items of a list.
    #[must_use]
    pub fn list(&self, pointer: &str) -> &[Value] {
        self.at(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The strings of a list; other items are ignored.
    #[must_use]
    pub fn texts(&self, pointer: &str) -> Vec<&str> {
        self.list(pointer).iter().filter_map(Value::as_str).map(str::trim).collect()
    }

    /// The target of a link: an object with `@odata.id`, or the path itself.
    #[must_use]
    pub fn link(&self, pointer: &str) -> Option<&str> {
        link_in(self.at(pointer)?)
    }

    /// The targets of a list of links. A single link counts as a list of one.
    #[must_use]
    pub fn links(&self, pointer: &str) -> Vec<&str> {
        match self.at(pointer) {
            Some(Value::Array(items)) => items.iter().filter_map(link_in).collect(),
            Some(other) => link_in(other).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// The action `name`, such as `ComputerSystem.Reset`; OEM actions are searched last.
    #[must_use]
    pub fn action(&self, name: &str) -> Option<RedfishAction> {
        let actions = self.body.get("Actions")?.as_object()?;
        if let Some(action) = action_in(actions, name) {
            return Some(action);
        }
        let oem = actions.get("Oem")?.as_object()?;
        action_in(oem, name).or_else(|| {
            oem.values().filter_map(Value::as_object).find_map(|vendor| action_in(vendor, name))
        })
    }

    /// The value of a field; `None` also for null.
    #[must_use]
    pub fn at(&self, pointer: &str) -> Option<&Value> {
        let found = if pointer.starts_with('/') {
            self.body.pointer(pointer)
        } else {
            self.body.get(pointer)
        };
        found.filter(|value| !value.is_null())
    }
}

impl RedfishAction {
    /// Returns whether the parameter may have this value. Without allowable values, any is accepted.
    #[must_use]
    pub fn allows(&self, parameter: &str, value: &str) -> bool {
        self.allowable.get(parameter).is_none_or(|values| values.iter().any(|known| known == value))
    }
}

/// The target of a link, if the value is one.
pub(crate) fn link_in(value: &Value) -> Option<&str> {
    match value {
        // Some services use the key of OData before version 4 (`href`), or omit the at sign.
        Value::Object(members) => {
            ["@odata.id", "odata.id", "href"].iter().find_map(|key| members.get(*key)?.as_str())
        }
        Value::String(path) => Some(path.as_str()).filter(|path| path.contains('/')),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

fn action_in(actions: &Map<String, Value>, name: &str) -> Option<RedfishAction> {
    // Dell prefixes some OEM actions with the version: `OemManager.v1_0_0#OemManager.Import…`.
    let (_, found) = actions.iter().find(|(key, _)| key.rsplit('#').next() == Some(name))?;
    let found = found.as_object()?;
    let target = found.get("target").or_else(|| found.get("Target"))?.as_str()?;
    let allowable = found
        .iter()
        .filter_map(|(key, values)| {
            let parameter = key.strip_suffix("@Redfish.AllowableValues")?;
            let values = values.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned);
            Some((parameter.to_owned(), values.collect()))
        })
        .collect();
    let info = found.get("@Redfish.ActionInfo").and_then(link_in).map(str::to_owned);
    Some(RedfishAction { target: target.to_owned(), allowable, info })
}

/// The integer value of a float, if it is exact.
fn whole_of(number: f64) -> Option<i64> {
    let exact = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "just seen to be whole and small enough")]
    exact.then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(body: Value) -> RedfishResource {
        RedfishResource { path: "/redfish/v1/Systems/1".to_owned(), etag: None, body }
    }

    #[test]
    fn ignores_fields_of_unexpected_types() {
        let odd = resource(json!({
            "Padded": " Dell Inc.  ", "Null": null, "Text": "16", "Float": 16.0, "Half": 0.5,
            "Yes": true, "Text2": "True", "Inf": "inf", "Deep": {"a/b": [1, "x", null, "y"]},
        }));
        assert_eq!(odd.text("Padded"), Some("Dell Inc."));
        assert_eq!(odd.text("/Null"), None);
        assert_eq!(odd.text("/Yes"), None);
        assert_eq!(odd.text("Missing"), None);
        assert_eq!(odd.whole("/Text"), Some(16));
        assert_eq!(odd.whole("/Float"), Some(16));
        assert_eq!(odd.whole("/Half"), None);
        assert_eq!(odd.whole("/Padded"), None);
        assert_eq!(odd.number("/Half"), Some(0.5));
        assert_eq!(odd.number("/Text"), Some(16.0));
        assert_eq!(odd.number("/Inf"), None);
        assert_eq!(odd.flag("/Yes"), Some(true));
        assert_eq!(odd.flag("/Text2"), Some(true));
        assert_eq!(odd.flag("/Text"), None);
        assert_eq!(odd.texts("/Deep/a~1b"), ["x", "y"]);
        assert!(odd.list("/Padded").is_empty());
    }

    #[test]
    fn resolves_all_forms_of_links() {
        let linked = resource(json!({
            "Bios": {"@odata.id": "/redfish/v1/Systems/1/Bios"},
            "Plain": "/redfish/v1/x",
            "Word": "Enabled",
            "Links": {"Chassis": [{"@odata.id": "/c/1"}, {}, null, "/c/2"], "One": {"href": "/m/1"}},
        }));
        assert_eq!(linked.link("Bios"), Some("/redfish/v1/Systems/1/Bios"));
        assert_eq!(linked.link("/Plain"), Some("/redfish/v1/x"));
        assert_eq!(linked.link("/Word"), None);
        assert_eq!(linked.links("/Links/Chassis"), ["/c/1", "/c/2"]);
        assert_eq!(linked.links("/Links/One"), ["/m/1"]);
        assert!(linked.links("/Links/ManagedBy").is_empty());
    }

    #[test]
    fn finds_standard_and_oem_actions() {
        let able = resource(json!({"Actions": {
            "#ComputerSystem.Reset": {
                "target": "/reset",
                "ResetType@Redfish.AllowableValues": ["On", 7, "ForceOff"],
                "@Redfish.ActionInfo": "/redfish/v1/Systems/1/ResetActionInfo",
            },
            "#Broken": {"title": "no target"},
            "Oem": {
                "#Vendor.Direct": {"target": "/direct"},
                "OemManager.v1_4_0#OemManager.Import": {"target": "/import"},
                "Contoso": {"#Contoso.Blink": {"target": "/blink"}},
            },
        }}));
        let reset = able.action("ComputerSystem.Reset").unwrap();
        assert_eq!(reset.target, "/reset");
        assert_eq!(reset.allowable["ResetType"], ["On", "ForceOff"]);
        assert_eq!(reset.info.as_deref(), Some("/redfish/v1/Systems/1/ResetActionInfo"));
        assert!(reset.allows("ResetType", "On") && !reset.allows("ResetType", "Nmi"));
        assert!(reset.allows("Unknown", "value"));
        assert_eq!(able.action("Vendor.Direct").unwrap().target, "/direct");
        assert_eq!(able.action("Contoso.Blink").unwrap().target, "/blink");
        assert_eq!(able.action("OemManager.Import").unwrap().target, "/import");
        assert_eq!(able.action("Broken"), None);
        assert_eq!(resource(json!({"Actions": []})).action("ComputerSystem.Reset"), None);
    }
}
