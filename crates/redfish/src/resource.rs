// SPDX-License-Identifier: Apache-2.0
//! A resource as the BMC gave it, and tolerant ways to read it.
//!
//! No field is owed to us: every accessor answers `None` (or nothing) for a field that is missing,
//! null or of another type than the standard says. Fields are named by JSON pointer
//! (`/Boot/BootSourceOverrideTarget`); a name without a slash is one of the top-level fields.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// One resource of a Redfish service.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// Where it was read from.
    pub path: String,
    /// Its version, as the header or the body says, for `If-Match`.
    pub etag: Option<String>,
    /// What it says; always an object.
    pub body: Value,
}

/// Something a resource can be told to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Where to post to.
    pub target: String,
    /// The values each parameter may have, for the parameters that say so.
    pub allowable: BTreeMap<String, Vec<String>>,
    /// The resource that tells about the parameters, if they are told about elsewhere.
    pub info: Option<String>,
}

impl Resource {
    /// A text, without the blanks BMCs pad theirs with.
    #[must_use]
    pub fn text(&self, pointer: &str) -> Option<&str> {
        Some(self.at(pointer)?.as_str()?.trim())
    }

    /// A number, also when it is written as a text.
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

    /// A whole number, also when it is written as a text or as `16.0`.
    #[must_use]
    pub fn whole(&self, pointer: &str) -> Option<i64> {
        match self.at(pointer)? {
            Value::Number(number) => number.as_i64().or_else(|| whole_of(number.as_f64()?)),
            Value::String(text) => text.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// A yes or no, also when it is written as a text.
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

    /// The items of a list; none if there is no list.
    #[must_use]
    pub fn list(&self, pointer: &str) -> &[Value] {
        self.at(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The texts in a list; items that are none are left out.
    #[must_use]
    pub fn texts(&self, pointer: &str) -> Vec<&str> {
        self.list(pointer).iter().filter_map(Value::as_str).map(str::trim).collect()
    }

    /// Where a link leads: the link is an object with `@odata.id`, or the path itself.
    #[must_use]
    pub fn link(&self, pointer: &str) -> Option<&str> {
        link_in(self.at(pointer)?)
    }

    /// Where the links of a list lead. A single link that is not in a list counts as one.
    #[must_use]
    pub fn links(&self, pointer: &str) -> Vec<&str> {
        match self.at(pointer) {
            Some(Value::Array(items)) => items.iter().filter_map(link_in).collect(),
            Some(other) => link_in(other).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// The action called `name`, such as `ComputerSystem.Reset`, also if only the vendor's own
    /// actions have it.
    #[must_use]
    pub fn action(&self, name: &str) -> Option<Action> {
        let actions = self.body.get("Actions")?.as_object()?;
        if let Some(action) = action_in(actions, name) {
            return Some(action);
        }
        let oem = actions.get("Oem")?.as_object()?;
        action_in(oem, name).or_else(|| {
            oem.values().filter_map(Value::as_object).find_map(|vendor| action_in(vendor, name))
        })
    }

    /// The object or value itself; `None` also for null.
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

impl Action {
    /// Whether the parameter may have this value. Where the BMC does not say, any may be tried.
    #[must_use]
    pub fn allows(&self, parameter: &str, value: &str) -> bool {
        self.allowable.get(parameter).is_none_or(|values| values.iter().any(|known| known == value))
    }
}

/// Where a link leads, if the value is one.
pub(crate) fn link_in(value: &Value) -> Option<&str> {
    match value {
        // Some services spell the key as before OData 4 (`href`) or without its at sign.
        Value::Object(members) => {
            ["@odata.id", "odata.id", "href"].iter().find_map(|key| members.get(*key)?.as_str())
        }
        Value::String(path) => Some(path.as_str()).filter(|path| path.contains('/')),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

fn action_in(actions: &Map<String, Value>, name: &str) -> Option<Action> {
    let (_, found) =
        actions.iter().find(|(key, _)| key.strip_prefix('#').unwrap_or(key.as_str()) == name)?;
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
    Some(Action { target: target.to_owned(), allowable, info })
}

/// The whole number this is, if it is one and not too large to be told exactly.
fn whole_of(number: f64) -> Option<i64> {
    let exact = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "just seen to be whole and small enough")]
    exact.then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(body: Value) -> Resource {
        Resource { path: "/redfish/v1/Systems/1".to_owned(), etag: None, body }
    }

    #[test]
    fn odd_fields_are_no_fields() {
        let odd = resource(json!({
            "Padded": " Dell Inc.  ", "Null": null, "Text": "16", "Float": 16.0, "Half": 0.5,
            "Yes": true, "Said": "True", "Inf": "inf", "Deep": {"a/b": [1, "x", null, "y"]},
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
        assert_eq!(odd.flag("/Said"), Some(true));
        assert_eq!(odd.flag("/Text"), None);
        assert_eq!(odd.texts("/Deep/a~1b"), ["x", "y"]);
        assert!(odd.list("/Padded").is_empty());
    }

    #[test]
    fn links_of_all_sorts() {
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
    fn actions() {
        let able = resource(json!({"Actions": {
            "#ComputerSystem.Reset": {
                "target": "/reset",
                "ResetType@Redfish.AllowableValues": ["On", 7, "ForceOff"],
                "@Redfish.ActionInfo": "/redfish/v1/Systems/1/ResetActionInfo",
            },
            "#Broken": {"title": "no target"},
            "Oem": {
                "#Vendor.Direct": {"target": "/direct"},
                "Contoso": {"#Contoso.Blink": {"target": "/blink"}},
            },
        }}));
        let reset = able.action("ComputerSystem.Reset").unwrap();
        assert_eq!(reset.target, "/reset");
        assert_eq!(reset.allowable["ResetType"], ["On", "ForceOff"]);
        assert_eq!(reset.info.as_deref(), Some("/redfish/v1/Systems/1/ResetActionInfo"));
        assert!(reset.allows("ResetType", "On") && !reset.allows("ResetType", "Nmi"));
        assert!(reset.allows("Unheard", "of"));
        assert_eq!(able.action("Vendor.Direct").unwrap().target, "/direct");
        assert_eq!(able.action("Contoso.Blink").unwrap().target, "/blink");
        assert_eq!(able.action("Broken"), None);
        assert_eq!(resource(json!({"Actions": []})).action("ComputerSystem.Reset"), None);
    }
}
