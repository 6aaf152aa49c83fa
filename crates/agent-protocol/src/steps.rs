// SPDX-License-Identifier: Apache-2.0
//! Steps an agent offers and executes: the results of `get_<flow>_steps` and the parameters of
//! `execute_<flow>_step`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The kind of job a step belongs to. Names of commands and of their parameters contain it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepFlow {
    /// Cleaning.
    Clean,
    /// Deployment.
    Deploy,
    /// Service of an active machine.
    Service,
}

impl StepFlow {
    /// Returns the name used in commands.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Deploy => "deploy",
            Self::Service => "service",
        }
    }

    /// Returns the command, with its extension, that lists the steps of this flow.
    #[must_use]
    pub fn list_command(self) -> String {
        format!("{0}.get_{0}_steps", self.as_str())
    }

    /// Returns the command, with its extension, that executes a step of this flow.
    #[must_use]
    pub fn execute_command(self) -> String {
        format!("{0}.execute_{0}_step", self.as_str())
    }
}

/// A step offered by an agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgentStep {
    /// The name of the step.
    pub step: String,
    /// The order in automatic cleaning or deployment: higher runs first, 0 only on request.
    #[serde(default)]
    pub priority: i64,
    /// The interface of the node that the step belongs to: `deploy` or `raid`.
    #[serde(default)]
    pub interface: String,
    /// Whether the machine has to be rebooted after the step.
    #[serde(default)]
    pub reboot_requested: bool,
    /// Whether the job may be aborted during the step.
    #[serde(default)]
    pub abortable: bool,
    /// The arguments, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argsinfo: Option<BTreeMap<String, AgentStepArgument>>,
}

/// An argument of a step.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AgentStepArgument {
    /// The description for users.
    #[serde(default)]
    pub description: String,
    /// Whether the argument is mandatory.
    #[serde(default)]
    pub required: bool,
}

/// Limits of a step list, far above what real hardware managers offer: total steps, total arguments,
/// bytes of a name, characters of a description, bytes of all manager names and versions.
const MAX_STEPS: usize = 1000;
const MAX_ARGUMENTS: usize = 4000;
const MAX_NAME: usize = 255;
const MAX_DESCRIPTION: usize = 1000;
const MAX_VERSIONS: usize = 16 << 10;

fn check_name_length(name: &str) -> Result<(), &'static str> {
    if name.len() > MAX_NAME { Err("names of steps or arguments are too long") } else { Ok(()) }
}

/// The steps of a flow, by hardware manager.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AgentStepList {
    /// The steps by manager. If two managers offer the same step, the agent has already chosen one.
    pub steps: BTreeMap<String, Vec<AgentStep>>,
    /// The managers and their versions. The server sends them back with each step, so that the agent
    /// detects changed managers.
    pub versions: Map<String, Value>,
}

impl AgentStepList {
    /// Parses the result of `get_<flow>_steps`. The list is stored with the node, so long descriptions
    /// are truncated and unknown fields dropped.
    ///
    /// # Errors
    /// If the result is malformed or exceeds the limits.
    pub fn from_result(flow: StepFlow, mut result: Value) -> Result<Self, serde_json::Error> {
        let mut take = |name: &str| result.get_mut(name).map(Value::take);
        let steps = take(&format!("{}_steps", flow.as_str())).unwrap_or_default();
        let versions =
            take("hardware_manager_version").unwrap_or_else(|| Value::Object(Map::new()));
        let mut list = Self {
            steps: serde_json::from_value(steps)?,
            versions: serde_json::from_value(versions)?,
        };
        list.enforce_limits().map_err(serde_json::Error::custom)?;
        Ok(list)
    }

    fn enforce_limits(&mut self) -> Result<(), &'static str> {
        let mut arguments = 0;
        let mut count = 0;
        for step in self.steps.values_mut().flatten() {
            count += 1;
            check_name_length(&step.step)?;
            check_name_length(&step.interface)?;
            for (name, argument) in step.argsinfo.iter_mut().flatten() {
                arguments += 1;
                check_name_length(name)?;
                if let Some((end, _)) = argument.description.char_indices().nth(MAX_DESCRIPTION) {
                    argument.description.truncate(end);
                }
            }
        }
        if count > MAX_STEPS || arguments > MAX_ARGUMENTS {
            return Err("too many steps or arguments");
        }
        // The versions are sent back to the agent unchanged, so they cannot be truncated.
        let versions = self.versions.iter();
        let length = versions.map(|(name, version)| name.len() + version.to_string().len());
        if length.sum::<usize>() > MAX_VERSIONS {
            return Err("too many hardware managers");
        }
        Ok(())
    }

    /// Formats the result of `get_<flow>_steps`.
    #[must_use]
    pub fn into_result(self, flow: StepFlow) -> Value {
        let steps = serde_json::to_value(self.steps).expect("names, numbers and flags are JSON");
        let mut result = Map::new();
        result.insert(format!("{}_steps", flow.as_str()), steps);
        result.insert("hardware_manager_version".to_owned(), Value::Object(self.versions));
        Value::Object(result)
    }
}

/// The parameters of `execute_<flow>_step`.
#[derive(Clone, PartialEq)]
pub struct ExecuteStepRequest {
    /// The step as the agent listed it, with its arguments in `args`.
    pub step: Map<String, Value>,
    /// The node, with secrets masked.
    pub node: Map<String, Value>,
    /// The node's ports.
    pub ports: Vec<Value>,
    /// The managers that offered the step; `None` to skip the version check.
    pub versions: Option<Map<String, Value>>,
}

/// Omits the arguments, some of which are secret.
impl fmt::Debug for ExecuteStepRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecuteStepRequest")
            .field("step", &self.step.get("step"))
            .finish_non_exhaustive()
    }
}

impl ExecuteStepRequest {
    /// Formats the parameters.
    #[must_use]
    pub fn into_params(self, flow: StepFlow) -> Map<String, Value> {
        let mut params = Map::new();
        params.insert("step".to_owned(), Value::Object(self.step));
        params.insert("node".to_owned(), Value::Object(self.node));
        params.insert("ports".to_owned(), Value::Array(self.ports));
        let versions = self.versions.map_or(Value::Null, Value::Object);
        params.insert(format!("{}_version", flow.as_str()), versions);
        params
    }

    /// Parses the parameters.
    ///
    /// # Errors
    /// If a parameter is missing or has the wrong type. The error names it.
    pub fn from_params(flow: StepFlow, mut params: Map<String, Value>) -> Result<Self, String> {
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

    /// Returns the name of the step.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.step.get("step").and_then(Value::as_str)
    }

    /// Returns the arguments of the step.
    #[must_use]
    pub fn arguments(&self) -> Option<&Map<String, Value>> {
        self.step.get("args").and_then(Value::as_object)
    }
}

/// The result of `execute_<flow>_step`.
#[derive(Clone, PartialEq, Debug)]
pub struct ExecuteStepResult {
    /// The return value of the step.
    pub result: Value,
    /// The step as requested.
    pub step: Map<String, Value>,
}

impl ExecuteStepResult {
    /// Formats the result.
    #[must_use]
    pub fn into_result(self, flow: StepFlow) -> Value {
        let mut result = Map::new();
        result.insert(format!("{}_result", flow.as_str()), self.result);
        result.insert(format!("{}_step", flow.as_str()), Value::Object(self.step));
        Value::Object(result)
    }

    /// Parses the result. Returns `None` if it is the result of another command.
    #[must_use]
    pub fn from_result(flow: StepFlow, result: &Value) -> Option<Self> {
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
    fn step_list_round_trips() {
        let wire = json!({
            "clean_steps": {"GenericHardwareManager": [{
                "step": "erase_devices", "priority": 10, "interface": "deploy",
                "reboot_requested": false, "abortable": true,
            }]},
            "hardware_manager_version": {"generic_hardware_manager": "1.2"},
        });
        let list =
            AgentStepList::from_result(StepFlow::Clean, wire.clone()).expect("valid step list");
        assert_eq!(list.steps["GenericHardwareManager"][0].priority, 10);
        assert_eq!(list.into_result(StepFlow::Clean), wire);
    }

    #[test]
    fn limits_step_list_size() {
        let step = |name: &str, description: &str| {
            let argsinfo = json!({"level": {"description": description, "required": true}});
            json!({"step": name, "interface": "deploy", "argsinfo": argsinfo})
        };
        let wire = |steps: Vec<Value>, version: &str| json!({"clean_steps": {"m": steps}, "hardware_manager_version": {"m": version}});
        let parse = |wire: Value| AgentStepList::from_result(StepFlow::Clean, wire);
        let long = "ä".repeat(5000);
        let list =
            parse(wire(vec![step("a", &long)], "1")).expect("long descriptions are truncated");
        let arguments = list.steps["m"][0].argsinfo.as_ref().expect("argsinfo");
        assert_eq!(arguments["level"].description.chars().count(), MAX_DESCRIPTION);
        for (wire, reason) in [
            (wire(vec![step("a", ""); MAX_STEPS + 1], "1"), "too many steps"),
            (wire(vec![step(&long, "")], "1"), "names"),
            (wire(Vec::new(), &"1".repeat(MAX_VERSIONS)), "managers"),
        ] {
            let error = parse(wire).expect_err("limit exceeded");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn execute_request_names_missing_parameter() {
        let error = ExecuteStepRequest::from_params(StepFlow::Deploy, Map::new())
            .expect_err("no parameters");
        assert_eq!(error, "step is missing");
        let request = ExecuteStepRequest {
            step: Map::from_iter([("step".to_owned(), json!("write_image"))]),
            node: Map::new(),
            ports: Vec::new(),
            versions: None,
        };
        let params = request.clone().into_params(StepFlow::Deploy);
        assert_eq!(params["deploy_version"], Value::Null);
        assert_eq!(ExecuteStepRequest::from_params(StepFlow::Deploy, params), Ok(request));
    }
}
