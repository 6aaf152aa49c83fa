// SPDX-License-Identifier: Apache-2.0
//! Lists of steps in request bodies: for cleaning, service, deployment, deploy templates and
//! runbooks.

use node_model::{JsonObject, RunbookStep, SEALED_ARGUMENTS, Step, TemplateStep};
use serde_json::{Map, Value};

use crate::error::excerpt;
use crate::value::{
    SHORT_TEXT, ValueError, array, check_one_of, flag, mandatory_text, texts, unexpected_type,
};

/// The interfaces whose steps users may request.
const INTERFACES: [&str; 7] =
    ["vendor", "power", "management", "firmware", "deploy", "bios", "raid"];

/// Clean or service steps of `PUT …/states/provision`, sorted by `order`.
pub(crate) fn requested_steps(value: Value) -> Result<Vec<Step>, ValueError> {
    let mut steps: Vec<(i64, Step)> = parse_steps(value, 0, |members| {
        let mut step = Step::new(&interface(members)?, &name(members)?, 0);
        step.args = args(members, false)?;
        let order = match members.remove("order") {
            Some(order) => non_negative("order", &order)?,
            None => 0,
        };
        if let Some(value) = members.remove("execute_on_child_nodes") {
            step.execute_on_child_nodes = flag(&value)?.unwrap_or(false);
        }
        if let Some(value) = members.remove("limit_child_node_execution") {
            step.limit_child_node_execution = texts(value)?;
        }
        Ok((order, step))
    })?;
    steps.sort_by_key(|(order, _)| *order);
    Ok(steps.into_iter().map(|(_, step)| step).collect())
}

/// Deploy steps of `PUT …/states/provision`.
pub(crate) fn deploy_steps(value: Value) -> Result<Vec<Step>, ValueError> {
    parse_steps(value, 0, |members| {
        let mut step = Step::new(&interface(members)?, &name(members)?, 0);
        step.args = args(members, true)?;
        step.priority = number(members, "priority")?;
        Ok(step)
    })
}

/// The steps of a deploy template.
pub(crate) fn template_steps(value: Value) -> Result<Vec<TemplateStep>, ValueError> {
    let steps = parse_steps(value, 1, |members| {
        Ok(TemplateStep {
            interface: interface(members)?,
            step: name(members)?,
            args: args(members, true)?,
            priority: number(members, "priority")?,
        })
    })?;
    no_duplicates(steps.iter().map(|step| (step.interface.as_str(), step.step.as_str())))?;
    Ok(steps)
}

/// The steps of a runbook.
pub(crate) fn runbook_steps(value: Value) -> Result<Vec<RunbookStep>, ValueError> {
    parse_steps(value, 1, |members| {
        Ok(RunbookStep {
            interface: interface(members)?,
            step: name(members)?,
            args: args(members, false)?,
            order: number(members, "order")?,
        })
    })
}

/// Parses each step with `read`, which removes the members it knows; remaining ones are rejected.
fn parse_steps<T>(
    value: Value,
    at_least: usize,
    mut read: impl FnMut(&mut Map<String, Value>) -> Result<T, ValueError>,
) -> Result<Vec<T>, ValueError> {
    let items = array(value)?;
    if items.len() < at_least {
        return Err("[] is too short; at least one step is needed".into());
    }
    let mut steps = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let at = |error: ValueError| error.at(format_args!("step {index}"));
        let Value::Object(mut members) = item else {
            return Err(at(unexpected_type("an object", &item)));
        };
        steps.push(read(&mut members).map_err(at)?);
        if let Some(unknown) = members.keys().next() {
            return Err(at(format!("'{}' was not expected", excerpt(unknown)).into()));
        }
    }
    Ok(steps)
}

fn interface(members: &mut Map<String, Value>) -> Result<String, ValueError> {
    let interface = mandatory(members, "interface")?;
    let interface = mandatory_text(interface, SHORT_TEXT)?;
    check_one_of(&interface, &INTERFACES)?;
    Ok(interface)
}

fn name(members: &mut Map<String, Value>) -> Result<String, ValueError> {
    mandatory_text(mandatory(members, "step")?, SHORT_TEXT)
}

fn args(members: &mut Map<String, Value>, required: bool) -> Result<JsonObject, ValueError> {
    match members.remove("args") {
        Some(Value::Object(args)) if args.contains_key(SEALED_ARGUMENTS) => {
            let message = format!("'{SEALED_ARGUMENTS}' is reserved; no step has such an argument");
            Err(ValueError::from(message).at("args"))
        }
        Some(Value::Object(args)) => Ok(args.into()),
        Some(other) => Err(unexpected_type("an object", &other).at("args")),
        None if required => Err("args is missing".into()),
        None => Ok(JsonObject::empty()),
    }
}

fn number(members: &mut Map<String, Value>, key: &'static str) -> Result<i64, ValueError> {
    non_negative(key, &mandatory(members, key)?)
}

fn non_negative(key: &str, value: &Value) -> Result<i64, ValueError> {
    crate::value::integer(value)
        .ok()
        .filter(|number| *number >= 0)
        .ok_or_else(|| format!("{key} must be a whole number that is not negative").into())
}

fn mandatory(members: &mut Map<String, Value>, key: &str) -> Result<Value, ValueError> {
    members.remove(key).ok_or_else(|| format!("{key} is missing").into())
}

fn no_duplicates<'a>(steps: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(), ValueError> {
    let mut seen: Vec<(&str, &str)> = steps.collect();
    seen.sort_unstable();
    match seen.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("duplicate step {}.{}", pair[0].0, excerpt(pair[0].1)).into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_run_in_the_order_given() {
        let steps = requested_steps(json!([
            {"interface": "raid", "step": "b", "order": 2},
            {"interface": "raid", "step": "a", "order": "1", "args": {"x": 1}},
        ]))
        .unwrap();
        assert_eq!(steps.iter().map(|s| s.step.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(steps[0].args.as_str(), r#"{"x":1}"#);
    }

    #[test]
    fn rejects_invalid_steps() {
        for (bad, expected) in [
            (json!([{"interface": "raid"}]), "step 0: step is missing"),
            (json!([{"step": "x"}]), "step 0: interface is missing"),
            (json!([{"interface": "x", "step": "x"}]), "not one of"),
            (json!([{"interface": "raid", "step": "x", "args": []}]), "args"),
            (json!([{"interface": "raid", "step": "x", "bogus": 1}]), "'bogus' was not expected"),
            (json!([{"interface": "raid", "step": "x", "order": -1}]), "order"),
            (json!([5]), "step 0"),
            (json!("x"), "an array"),
        ] {
            match requested_steps(bad.clone()) {
                Err(ValueError::Invalid(message)) => {
                    assert!(message.contains(expected), "{bad}: {message}")
                }
                other => panic!("{bad}: {other:?}"),
            }
        }
        let reserved = json!([{"interface": "raid", "step": "x", "priority": 1, "order": 1,
            "args": {"ferrite:sealed": 1}}]);
        let without = |key: &str| {
            let mut steps = reserved.clone();
            steps[0].as_object_mut().unwrap().remove(key);
            steps
        };
        for error in [
            requested_steps(without("priority")).unwrap_err(),
            deploy_steps(without("order")).unwrap_err(),
            template_steps(without("order")).unwrap_err(),
            runbook_steps(without("priority")).unwrap_err(),
        ] {
            let ValueError::Invalid(message) = error else { panic!("{error:?}") };
            assert!(message.contains("'ferrite:sealed' is reserved"), "{message}");
        }
        let step = json!({"interface": "raid", "step": "x", "args": {}, "priority": 10});
        assert!(template_steps(json!([step])).is_ok());
        assert!(template_steps(json!([step, step])).is_err());
        assert!(template_steps(json!([])).is_err());
        assert!(deploy_steps(json!([{"interface": "raid", "step": "x", "priority": 1}])).is_err());
        assert!(runbook_steps(json!([{"interface": "raid", "step": "x"}])).is_err());
    }
}
