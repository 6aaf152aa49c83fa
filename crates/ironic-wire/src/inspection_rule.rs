// SPDX-License-Identifier: Apache-2.0
//! The wire format of inspection rules, and checks of their conditions and actions.

use node_model::{InspectionRule, JsonArray, RuleId, Sensitive, Timestamp};
use serde_json::{Map, Value};

use crate::body::WritableResource;
use crate::error::{WireError, excerpt};
use crate::field::{FieldShape, ResourceField, ResourceIdentity, WireResource};
use crate::rows::{created_at_row, links_row, text_row, updated_at_row, uuid_row};
use crate::value::{
    SHORT_TEXT, ValueError, array, check_one_of, flag, integer, text, unexpected_type,
};
use crate::version::ApiVersion;

/// The phases in which rules run.
const PHASES: [&str; 1] = ["main"];
/// Maximum priority of user rules; built-in rules have higher ones.
const MAX_PRIORITY: i64 = 9_999;
/// How the results of a loop are combined.
const MULTIPLE: [&str; 4] = ["any", "all", "first", "last"];

/// An operator or action with its required and optional arguments, in the order of the positional
/// form.
struct RuleOperation {
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

const fn op(
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
) -> RuleOperation {
    RuleOperation { name, required, optional }
}

const OPERATORS: [RuleOperation; 14] = [
    op("eq", &["values"], &["force_strings"]),
    op("ne", &["values"], &["force_strings"]),
    op("lt", &["values"], &["force_strings"]),
    op("gt", &["values"], &["force_strings"]),
    op("le", &["values"], &["force_strings"]),
    op("ge", &["values"], &["force_strings"]),
    op("is-empty", &["value"], &[]),
    op("in-net", &["address", "subnet"], &[]),
    op("matches", &["value", "regex"], &[]),
    op("contains", &["value", "regex"], &[]),
    op("one-of", &["value"], &["values"]),
    op("is-none", &["value"], &[]),
    op("is-true", &["value"], &[]),
    op("is-false", &["value"], &[]),
];

const ACTIONS: [RuleOperation; 16] = [
    op("fail", &["msg"], &[]),
    op("log", &["msg"], &["level"]),
    op("set-attribute", &["path", "value"], &[]),
    op("extend-attribute", &["path", "value"], &["unique"]),
    op("del-attribute", &["path"], &[]),
    op("set-capability", &["name", "value"], &[]),
    op("unset-capability", &["name"], &[]),
    op("add-trait", &["name"], &[]),
    op("remove-trait", &["name"], &[]),
    op("set-plugin-data", &["path", "value"], &[]),
    op("extend-plugin-data", &["path", "value"], &["unique"]),
    op("unset-plugin-data", &["path"], &[]),
    op("set-port-attribute", &["port_id", "path", "value"], &[]),
    op("extend-port-attribute", &["port_id", "path", "value"], &["unique"]),
    op("del-port-attribute", &["port_id", "path"], &[]),
    op("api-call", &["url"], &["headers", "proxies", "timeout", "retries", "backoff_factor"]),
];

impl WireResource for InspectionRule {
    const KIND: &'static str = "inspection rule";
    const COLLECTION: &'static str = "inspection_rules";
    const PATH: &'static str = "inspection_rules";
    type Draft = Self;

    fn fields() -> &'static [ResourceField<Self>] {
        FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Uuid(self.id.0)
    }

    fn complete(
        draft: &mut Self,
        _changed: &[&'static str],
        _version: ApiVersion,
    ) -> Result<(), WireError> {
        if draft.actions.is_empty() {
            return Err(WireError::missing("actions"));
        }
        Ok(())
    }
}

impl WritableResource for InspectionRule {
    fn blank(now: Timestamp, _version: ApiVersion) -> Self {
        Self {
            id: RuleId::random(),
            created_at: now,
            updated_at: None,
            description: None,
            priority: 0,
            phase: Some(PHASES[0].to_owned()),
            sensitive: Sensitive::No,
            conditions: JsonArray::empty(),
            actions: JsonArray::empty(),
        }
    }

    fn resource(draft: &Self) -> &Self {
        draft
    }

    fn revealed_value(draft: &Self, field: &'static str) -> Option<Value> {
        match field {
            "conditions" => Some(Value::Array(draft.conditions.parse())),
            "actions" => Some(Value::Array(draft.actions.parse())),
            _ => None,
        }
    }
}

macro_rules! content_row {
    ($name:literal, $member:ident) => {
        ResourceField::<InspectionRule>::new($name, 96, FieldShape::ObjectList, |w, rule, _| {
            match rule.sensitive {
                Sensitive::No => w.array(&rule.$member),
                Sensitive::Yes => w.null(),
            }
        })
        .nullable()
        .columns(&[$name, "sensitive"])
    };
}

static FIELDS: &[ResourceField<InspectionRule>] = &[
    uuid_row!(InspectionRule, 96, |draft| draft.id.0),
    text_row!(InspectionRule, "description", 96, description).listed().writable(
        |draft, value, _| {
            draft.description = text(value, SHORT_TEXT)?;
            Ok(())
        },
    ),
    ResourceField::<InspectionRule>::new("priority", 96, FieldShape::Integer, |w, rule, _| {
        w.integer(rule.priority);
    })
    .columns(&["priority"])
    .sortable()
    .listed()
    .writable(|draft, value, _| {
        draft.priority = priority(&value)?;
        Ok(())
    }),
    text_row!(InspectionRule, "phase", 96, phase).listed().writable(|draft, value, _| {
        let phase = text(value, SHORT_TEXT)?.unwrap_or_else(|| PHASES[0].to_owned());
        check_one_of(&phase, &PHASES)?;
        draft.phase = Some(phase);
        Ok(())
    }),
    links_row!(InspectionRule, 96),
    created_at_row!(InspectionRule, 96),
    updated_at_row!(InspectionRule, 96),
    ResourceField::<InspectionRule>::new("sensitive", 96, FieldShape::Boolean, |w, rule, _| {
        w.boolean(rule.sensitive == Sensitive::Yes);
    })
    .columns(&["sensitive"])
    .sortable()
    .writable(|draft, value, _| {
        match (draft.sensitive, flag(&value)?.unwrap_or(false)) {
            (Sensitive::Yes, false) => return Err("a sensitive rule cannot be made visible".into()),
            (Sensitive::Yes | Sensitive::No, true) => draft.sensitive = Sensitive::Yes,
            (Sensitive::No, false) => {}
        }
        Ok(())
    }),
    content_row!("conditions", conditions).writable(|draft, value, _| {
        draft.conditions = check_entries(value, "condition", &OPERATORS, true)?.into();
        Ok(())
    }),
    content_row!("actions", actions)
        .writable(|draft, value, _| {
            let actions = check_entries(value, "action", &ACTIONS, false)?;
            if actions.is_empty() {
                return Err("at least one action is needed".into());
            }
            draft.actions = actions.into();
            Ok(())
        })
        .required(),
];

fn priority(value: &Value) -> Result<i64, ValueError> {
    if value.is_null() {
        return Ok(0);
    }
    let number = integer(value)?;
    if (0..=MAX_PRIORITY).contains(&number) {
        Ok(number)
    } else {
        Err(format!("it must be from 0 to {MAX_PRIORITY}").into())
    }
}

/// Checks and normalises a list of conditions or actions.
fn check_entries(
    value: Value,
    what: &str,
    known: &[RuleOperation],
    is_condition: bool,
) -> Result<Vec<Value>, ValueError> {
    array(value)?
        .into_iter()
        .enumerate()
        .map(|(index, item)| {
            check_entry(item, known, is_condition)
                .map_err(|error| error.at(format_args!("{what} {index}")))
        })
        .collect()
}

fn check_entry(
    item: Value,
    known: &[RuleOperation],
    is_condition: bool,
) -> Result<Value, ValueError> {
    let Value::Object(mut members) = item else {
        return Err(unexpected_type("an object", &item));
    };
    let Some(Value::String(name)) = members.remove("op") else {
        return Err("op is missing".into());
    };
    let plain = if is_condition { name.strip_prefix('!').unwrap_or(&name) } else { &name };
    let Some(operation) = known.iter().find(|operation| operation.name == plain) else {
        let names: Vec<&str> = known.iter().map(|operation| operation.name).collect();
        return Err(format!("op '{}' is not one of {}", excerpt(&name), names.join(", ")).into());
    };
    let args = members.remove("args").ok_or("args is missing")?;
    check_arguments(&args, operation)?;

    let mut normalised = Map::new();
    normalised.insert("op".to_owned(), name.into());
    normalised.insert("args".to_owned(), args);
    match members.remove("loop") {
        None | Some(Value::Null) => {}
        Some(list @ (Value::Array(_) | Value::Object(_))) => {
            normalised.insert("loop".to_owned(), list);
        }
        Some(other) => return Err(unexpected_type("loop to be an array or object", &other)),
    }
    if is_condition && let Some(multiple) = members.remove("multiple") {
        let word = text(multiple, SHORT_TEXT)?.unwrap_or_else(|| MULTIPLE[0].to_owned());
        check_one_of(&word, &MULTIPLE)?;
        normalised.insert("multiple".to_owned(), word.into());
    }
    match members.keys().next() {
        Some(unknown) => Err(format!("'{}' was not expected", excerpt(unknown)).into()),
        None => Ok(Value::Object(normalised)),
    }
}

/// Checks arguments, which may be given by name or by position and are stored as given.
fn check_arguments(given: &Value, operation: &RuleOperation) -> Result<(), ValueError> {
    let names = || operation.required.iter().chain(operation.optional);
    let missing = match given {
        Value::Array(values) if values.len() > names().count() => {
            return Err(format!("{}: too many args", operation.name).into());
        }
        Value::Array(values) => operation.required.get(values.len()),
        Value::Object(args) => {
            if let Some(unknown) = args.keys().find(|key| !names().any(|name| name == key)) {
                let unknown = excerpt(unknown);
                return Err(format!("{} takes no argument '{unknown}'", operation.name).into());
            }
            operation.required.iter().find(|name| !args.contains_key(**name))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(unexpected_type("args to be an object", given));
        }
    };
    match missing {
        Some(missing) => Err(format!("{} needs the argument {missing}", operation.name).into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_stored_as_given() {
        let actions = check_entries(
            json!([{"op": "set-attribute", "args": ["/a", 1]}]),
            "action",
            &ACTIONS,
            false,
        );
        assert_eq!(actions, Ok(vec![json!({"op": "set-attribute", "args": ["/a", 1]})]));
    }

    #[test]
    fn rejects_invalid_conditions() {
        for (bad, expected) in [
            (json!([{"op": "bogus", "args": {}}]), "not one of"),
            (json!([{"args": {}}]), "op is missing"),
            (json!([{"op": "eq"}]), "args is missing"),
            (json!([{"op": "eq", "args": {}}]), "needs the argument values"),
            (json!([{"op": "eq", "args": {"values": [], "x": 1}}]), "no argument 'x'"),
            (json!([{"op": "!!eq", "args": {"values": []}}]), "not one of"),
            (json!([{"op": "eq", "args": {"values": []}, "multiple": "x"}]), "not one of"),
            (json!([5]), "condition 0"),
        ] {
            match check_entries(bad.clone(), "condition", &OPERATORS, true) {
                Err(ValueError::Invalid(message)) => {
                    assert!(message.contains(expected), "{bad}: {message}");
                }
                other => panic!("{bad}: {other:?}"),
            }
        }
        let inverted = json!([{"op": "!eq", "args": {"values": [1, 2]}, "multiple": "all"}]);
        assert!(check_entries(inverted, "condition", &OPERATORS, true).is_ok());
    }
}
