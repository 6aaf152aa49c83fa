// SPDX-License-Identifier: Apache-2.0
//! The secrets file of an import: node → `driver_info` key → value.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::plan::MASK;
use crate::cli_error::CliError;
use crate::selection::closest_match;

/// Stands for all nodes.
const ALL_NODES: &str = "*";

/// Checks that every entry matches a masked secret, so that typing errors are found before the import.
/// `known` are the names of all nodes of the source, `nodes` those to import; `are_all` if these are all
/// nodes of the source.
pub(super) fn check(
    secrets: &Value,
    nodes: &[Value],
    known: &BTreeSet<String>,
    are_all: bool,
) -> Result<(), CliError> {
    let invalid = |problem: String| CliError::Usage(format!("--secrets: {problem}"));
    let Value::Object(machines) = secrets else {
        return Err(invalid("the file is not a mapping of machines".to_owned()));
    };
    for (machine, keys) in machines {
        if machine != ALL_NODES && !known.contains(machine) {
            let hint = closest_match(machine, known.iter().map(String::as_str))
                .map(|meant| format!("; did you mean {meant:?}?"))
                .unwrap_or_default();
            return Err(invalid(format!("the source has no machine {machine:?}{hint}")));
        }
        let Value::Object(keys) = keys else {
            return Err(invalid(format!(
                "the value of {machine:?} is not a mapping of keys to strings"
            )));
        };
        for (key, secret) in keys {
            if !secret.is_string() {
                return Err(invalid(format!(
                    "{key} of {machine:?} is not a string; put it in quotes, so that no digit is lost"
                )));
            }
            let mut matching = nodes.iter().filter(|node| {
                machine == ALL_NODES
                    || node["name"] == machine.as_str()
                    || node["uuid"] == machine.as_str()
            });
            let is_imported = machine != ALL_NODES && matching.clone().next().is_some();
            let is_checked = is_imported || are_all && machine == ALL_NODES;
            if is_checked && !matching.any(|node| is_masked(node, key)) {
                return Err(invalid(format!(
                    "{key} of {machine:?} is not a masked secret{}",
                    list_masked_keys(nodes)
                )));
            }
        }
    }
    Ok(())
}

fn masked_keys(node: &Value) -> impl Iterator<Item = &String> {
    let info = node["driver_info"].as_object();
    info.into_iter().flat_map(Map::iter).filter(|(_, value)| *value == MASK).map(|(key, _)| key)
}

fn is_masked(node: &Value, key: &str) -> bool {
    masked_keys(node).any(|it| it == key)
}

fn list_masked_keys(nodes: &[Value]) -> String {
    let keys: BTreeSet<&str> = nodes.iter().flat_map(masked_keys).map(String::as_str).collect();
    if keys.is_empty() {
        return ": no machine has masked secrets".to_owned();
    }
    format!("; masked: {}", keys.into_iter().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rejects_entries_that_match_no_secret() {
        let nodes = [
            json!({"uuid": "u1", "name": "n1", "driver_info": {"redfish_password": MASK, "a": "b"}}),
            json!({"uuid": "u2", "name": null, "driver_info": {"snmp_key": MASK}}),
        ];
        let known = ["u1", "n1", "u2"].map(str::to_owned).into();
        let check =
            |secrets: Value| check(&secrets, &nodes, &known, true).map_err(|it| it.to_string());
        for valid in [
            json!({}),
            json!({"*": {"redfish_password": "p"}, "n1": {"redfish_password": "q"}}),
            json!({"u2": {"snmp_key": "k"}}),
        ] {
            check(valid).unwrap();
        }
        // A file for more nodes is accepted when only some are imported.
        let for_others = json!({"*": {"ipmi_password": "p"}});
        super::check(&for_others, &nodes, &known, false).unwrap();
        for (invalid, message) in [
            (json!([]), "--secrets: the file is not a mapping of machines"),
            (json!({"n2": {}}), "--secrets: the source has no machine \"n2\""),
            (
                json!({"n1": "p"}),
                "--secrets: the value of \"n1\" is not a mapping of keys to strings",
            ),
            (
                json!({"n1": {"redfish_password": 123}}),
                "--secrets: redfish_password of \"n1\" is not a string; put it in quotes, so that no digit is \
                 lost",
            ),
            (
                json!({"*": {"redfish_pasword": "p"}}),
                "--secrets: redfish_pasword of \"*\" is not a masked secret; masked: redfish_password, snmp_key",
            ),
            (
                json!({"n1": {"a": "p"}}),
                "--secrets: a of \"n1\" is not a masked secret; masked: redfish_password, snmp_key",
            ),
        ] {
            let error = check(invalid).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
