// SPDX-License-Identifier: Apache-2.0
//! Steps an agent offers and carries out: the results of `get_<flow>_steps` and the parameters of
//! `execute_<flow>_step`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Which work a step belongs to. In commands and their results it is part of the names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Cleaning.
    Clean,
    /// Deployment.
    Deploy,
    /// Service of a machine in use.
    Service,
}

impl Flow {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Deploy => "deploy",
            Self::Service => "service",
        }
    }

    /// The command that lists its steps, with the extension.
    #[must_use]
    pub fn list_command(self) -> String {
        format!("{0}.get_{0}_steps", self.as_str())
    }

    /// The command that carries out one of its steps, with the extension.
    #[must_use]
    pub fn execute_command(self) -> String {
        format!("{0}.execute_{0}_step", self.as_str())
    }
}

/// A step an agent can carry out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StepDescription {
    /// Its name.
    pub step: String,
    /// When it is carried out unasked: higher comes first, and zero is never.
    #[serde(default)]
    pub priority: i64,
    /// Which interface of the node it belongs to: `deploy` or `raid`.
    #[serde(default)]
    pub interface: String,
    /// Whether the machine has to be rebooted after it.
    #[serde(default)]
    pub reboot_requested: bool,
    /// Whether the work may be aborted while it runs.
    #[serde(default)]
    pub abortable: bool,
    /// The arguments it takes, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argsinfo: Option<BTreeMap<String, Argument>>,
}

/// An argument of a step.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Argument {
    /// What it means.
    #[serde(default)]
    pub description: String,
    /// Whether the step cannot do without it.
    #[serde(default)]
    pub required: bool,
}

/// Many times what hardware managers offer, in all: steps, arguments, bytes of a name, characters of
/// a description, and bytes of the managers' names and versions.
const MAX_STEPS: usize = 1000;
const MAX_ARGUMENTS: usize = 4000;
const MAX_NAME: usize = 255;
const MAX_DESCRIPTION: usize = 1000;
const MAX_VERSIONS: usize = 16 << 10;

fn is_name(text: &str) -> Result<(), &'static str> {
    if text.len() > MAX_NAME { Err("it has names that are too long") } else { Ok(()) }
}

/// The steps of a flow, by the hardware manager that offers them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StepList {
    /// The steps. Where two managers offer the same, the agent has already chosen one.
    pub steps: BTreeMap<String, Vec<StepDescription>>,
    /// The managers and their versions. They come back with each step, so that the agent notices
    /// if others are loaded now.
    pub versions: Map<String, Value>,
}

impl StepList {
    /// Reads the result of `get_<flow>_steps`. It is kept with the node, so what nobody reads of
    /// it is cut off.
    ///
    /// # Errors
    /// If it is not what an agent answers, or more than any agent has to offer.
    pub fn from_result(flow: Flow, mut result: Value) -> Result<Self, serde_json::Error> {
        let mut take = |name: &str| result.get_mut(name).map(Value::take);
        let steps = take(&format!("{}_steps", flow.as_str())).unwrap_or_default();
        let versions =
            take("hardware_manager_version").unwrap_or_else(|| Value::Object(Map::new()));
        let mut list = Self {
            steps: serde_json::from_value(steps)?,
            versions: serde_json::from_value(versions)?,
        };
        list.keep_within_bounds().map_err(serde_json::Error::custom)?;
        Ok(list)
    }

    fn keep_within_bounds(&mut self) -> Result<(), &'static str> {
        let mut arguments = 0;
        let mut count = 0;
        for step in self.steps.values_mut().flatten() {
            count += 1;
            is_name(&step.step)?;
            is_name(&step.interface)?;
            for (name, argument) in step.argsinfo.iter_mut().flatten() {
                arguments += 1;
                is_name(name)?;
                if let Some((end, _)) = argument.description.char_indices().nth(MAX_DESCRIPTION) {
                    argument.description.truncate(end);
                }
            }
        }
        if count > MAX_STEPS || arguments > MAX_ARGUMENTS {
            return Err("it has more steps or arguments than any agent");
        }
        // They are shown to the agent again as they are, so none is cut.
        let versions = self.versions.iter();
        let length = versions.map(|(name, version)| name.len() + version.to_string().len());
        if length.sum::<usize>() > MAX_VERSIONS {
            return Err("it has more hardware managers than any agent");
        }
        Ok(())
    }

    /// Writes the result of `get_<flow>_steps`.
    #[must_use]
    pub fn into_result(self, flow: Flow) -> Value {
        let steps = serde_json::to_value(self.steps).expect("names, numbers and flags are JSON");
        let mut result = Map::new();
        result.insert(format!("{}_steps", flow.as_str()), steps);
        result.insert("hardware_manager_version".to_owned(), Value::Object(self.versions));
        Value::Object(result)
    }
}

/// The parameters of `execute_<flow>_step`.
#[derive(Clone, PartialEq)]
pub struct StepOrder {
    /// The step: as the agent described it, with its arguments in `args`.
    pub step: Map<String, Value>,
    /// The node, with secrets masked.
    pub node: Map<String, Value>,
    /// Its ports.
    pub ports: Vec<Value>,
    /// The managers that offered the step; none if that does not matter.
    pub versions: Option<Map<String, Value>>,
}

/// Without arguments: some are secret.
impl fmt::Debug for StepOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepOrder").field("step", &self.step.get("step")).finish_non_exhaustive()
    }
}

impl StepOrder {
    /// Writes the parameters.
    #[must_use]
    pub fn into_params(self, flow: Flow) -> Map<String, Value> {
        let mut params = Map::new();
        params.insert("step".to_owned(), Value::Object(self.step));
        params.insert("node".to_owned(), Value::Object(self.node));
        params.insert("ports".to_owned(), Value::Array(self.ports));
        let versions = self.versions.map_or(Value::Null, Value::Object);
        params.insert(format!("{}_version", flow.as_str()), versions);
        params
    }

    /// Reads the parameters; what is missing or malformed is named.
    ///
    /// # Errors
    /// If a parameter is missing or not of its type.
    pub fn from_params(flow: Flow, mut params: Map<String, Value>) -> Result<Self, String> {
        let mut object = |name: &str| match params.remove(name) {
            Some(Value::Object(object)) => Ok(object),
            Some(_) => Err(format!("{name} must be an object")),
            None => Err(format!("{name} is missing")),
        };
        let step = object("step")?;
        let node = object("node")?;
        let versions = object(&format!("{}_version", flow.as_str())).ok();
        let ports = match params.remove("ports") {
            Some(Value::Array(ports)) => ports,
            Some(_) => return Err("ports must be a list".to_owned()),
            None => Vec::new(),
        };
        Ok(Self { step, node, ports, versions })
    }

    /// The step's name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.step.get("step").and_then(Value::as_str)
    }

    /// The step's arguments.
    #[must_use]
    pub fn arguments(&self) -> Option<&Map<String, Value>> {
        self.step.get("args").and_then(Value::as_object)
    }
}

/// The result of `execute_<flow>_step`.
#[derive(Clone, PartialEq, Debug)]
pub struct StepResult {
    /// What the step gave.
    pub result: Value,
    /// The step as it was asked for.
    pub step: Map<String, Value>,
}

impl StepResult {
    /// Writes the result.
    #[must_use]
    pub fn into_result(self, flow: Flow) -> Value {
        let mut result = Map::new();
        result.insert(format!("{}_result", flow.as_str()), self.result);
        result.insert(format!("{}_step", flow.as_str()), Value::Object(self.step));
        Value::Object(result)
    }

    /// Reads the result; none if it is of something else.
    #[must_use]
    pub fn from_result(flow: Flow, result: &Value) -> Option<Self> {
        let step = result.get(format!("{}_step", flow.as_str()))?.as_object()?.clone();
        let result = result.get(format!("{}_result", flow.as_str())).cloned();
        Some(Self { result: result.unwrap_or(Value::Null), step })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_comes_back_as_it_went() {
        let wire = json!({
            "clean_steps": {"GenericHardwareManager": [{
                "step": "erase_devices", "priority": 10, "interface": "deploy",
                "reboot_requested": false, "abortable": true,
            }]},
            "hardware_manager_version": {"generic_hardware_manager": "1.2"},
        });
        let list = StepList::from_result(Flow::Clean, wire.clone()).expect("an agent's answer");
        assert_eq!(list.steps["GenericHardwareManager"][0].priority, 10);
        assert_eq!(list.into_result(Flow::Clean), wire);
    }

    #[test]
    fn a_list_has_bounds() {
        let step = |name: &str, description: &str| {
            let argsinfo = json!({"level": {"description": description, "required": true}});
            json!({"step": name, "interface": "deploy", "argsinfo": argsinfo})
        };
        let wire = |steps: Vec<Value>, version: &str| json!({"clean_steps": {"m": steps}, "hardware_manager_version": {"m": version}});
        let read = |wire: Value| StepList::from_result(Flow::Clean, wire);
        let long = "ä".repeat(5000);
        let list = read(wire(vec![step("a", &long)], "1")).expect("a description may be cut");
        let arguments = list.steps["m"][0].argsinfo.as_ref().expect("it has one");
        assert_eq!(arguments["level"].description.chars().count(), MAX_DESCRIPTION);
        for (wire, why) in [
            (wire(vec![step("a", ""); MAX_STEPS + 1], "1"), "more steps"),
            (wire(vec![step(&long, "")], "1"), "names"),
            (wire(Vec::new(), &"1".repeat(MAX_VERSIONS)), "managers"),
        ] {
            let refused = read(wire).expect_err("it is too much");
            assert!(refused.to_string().contains(why), "{refused}");
        }
    }

    #[test]
    fn orders_say_what_is_missing() {
        let refused = StepOrder::from_params(Flow::Deploy, Map::new()).expect_err("nothing there");
        assert_eq!(refused, "step is missing");
        let order = StepOrder {
            step: Map::from_iter([("step".to_owned(), json!("write_image"))]),
            node: Map::new(),
            ports: Vec::new(),
            versions: None,
        };
        let params = order.clone().into_params(Flow::Deploy);
        assert_eq!(params["deploy_version"], Value::Null);
        assert_eq!(StepOrder::from_params(Flow::Deploy, params), Ok(order));
    }
}
