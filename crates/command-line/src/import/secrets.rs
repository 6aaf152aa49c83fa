// SPDX-License-Identifier: Apache-2.0
//! The file of secrets that APIs do not give away: machine → key of `driver_info` → text.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::copy::MASK;
use crate::failure::Failure;
use crate::selection::alike;

/// The machine that stands for all.
const ALL: &str = "*";

/// Checks that everything in the file is somebody's secret: what is only nearly right would be found
/// missing later, one machine after another. `known` are the names of all machines over there, `nodes` those
/// that are taken over: `are_all` if no other is left behind, of which nothing is known.
pub(super) fn check(
    secrets: &Value,
    nodes: &[Value],
    known: &BTreeSet<String>,
    are_all: bool,
) -> Result<(), Failure> {
    let wrong = |problem: String| Failure::Usage(format!("--secrets: {problem}"));
    let Value::Object(machines) = secrets else {
        return Err(wrong("the file is no mapping of machines".to_owned()));
    };
    for (machine, keys) in machines {
        if machine != ALL && !known.contains(machine) {
            let hint = alike(machine, known.iter().map(String::as_str))
                .map(|meant| format!("; did you mean {meant:?}?"))
                .unwrap_or_default();
            return Err(wrong(format!("there is no machine {machine:?} over there{hint}")));
        }
        let Value::Object(keys) = keys else {
            return Err(wrong(format!("what {machine:?} has is no mapping of keys to texts")));
        };
        for (key, secret) in keys {
            if !secret.is_string() {
                return Err(wrong(format!(
                    "{key} of {machine:?} is no text: put it in quotes, so that no digit of it is lost"
                )));
            }
            let mut own = nodes.iter().filter(|node| {
                machine == ALL
                    || node["name"] == machine.as_str()
                    || node["uuid"] == machine.as_str()
            });
            let is_here = machine != ALL && own.clone().next().is_some();
            if (is_here || are_all && machine == ALL) && !own.any(|node| is_masked(node, key)) {
                return Err(wrong(format!(
                    "{key} of {machine:?} is nobody's secret{}",
                    those_there_are(nodes)
                )));
            }
        }
    }
    Ok(())
}

fn masked(node: &Value) -> impl Iterator<Item = &String> {
    let info = node["driver_info"].as_object();
    info.into_iter().flat_map(Map::iter).filter(|(_, value)| *value == MASK).map(|(key, _)| key)
}

fn is_masked(node: &Value, key: &str) -> bool {
    masked(node).any(|it| it == key)
}

fn those_there_are(nodes: &[Value]) -> String {
    let keys: BTreeSet<&str> = nodes.iter().flat_map(masked).map(String::as_str).collect();
    if keys.is_empty() {
        return ": no machine has any".to_owned();
    }
    format!("; there are {}", keys.into_iter().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_nobodys_secret_is_refused() {
        let nodes = [
            json!({"uuid": "u1", "name": "n1", "driver_info": {"redfish_password": MASK, "a": "b"}}),
            json!({"uuid": "u2", "name": null, "driver_info": {"snmp_key": MASK}}),
        ];
        let known = ["u1", "n1", "u2"].map(str::to_owned).into();
        let check =
            |secrets: Value| check(&secrets, &nodes, &known, true).map_err(|it| it.to_string());
        for good in [
            json!({}),
            json!({"*": {"redfish_password": "p"}, "n1": {"redfish_password": "q"}}),
            json!({"u2": {"snmp_key": "k"}}),
        ] {
            check(good).unwrap();
        }
        // A file for many machines is good for some of them.
        let for_others = json!({"*": {"ipmi_password": "p"}});
        super::check(&for_others, &nodes, &known, false).unwrap();
        for (bad, told) in [
            (json!([]), "--secrets: the file is no mapping of machines"),
            (json!({"n2": {}}), "--secrets: there is no machine \"n2\" over there"),
            (json!({"n1": "p"}), "--secrets: what \"n1\" has is no mapping of keys to texts"),
            (
                json!({"n1": {"redfish_password": 123}}),
                "--secrets: redfish_password of \"n1\" is no text: put it in quotes, so that no digit of it \
                 is lost",
            ),
            (
                json!({"*": {"redfish_pasword": "p"}}),
                "--secrets: redfish_pasword of \"*\" is nobody's secret; there are redfish_password, snmp_key",
            ),
            (
                json!({"n1": {"a": "p"}}),
                "--secrets: a of \"n1\" is nobody's secret; there are redfish_password, snmp_key",
            ),
        ] {
            let error = check(bad).unwrap_err();
            assert!(error.starts_with(told), "{error}");
        }
    }
}
