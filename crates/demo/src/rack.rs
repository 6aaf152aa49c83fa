// SPDX-License-Identifier: Apache-2.0
//! The machines of the demonstration as nodes: requests each next provision state and follows them.

use std::time::Duration;

use anyhow::Context as _;
use fleet_sim::Enrolment;
use ironic_client::{Api, Method, QueryString, create_node_with_ports};
use serde_json::{Value, json};

const FIELDS: &str = "name,provision_state,target_provision_state,last_error,inspection_finished_at,\
                      clean_step,deploy_step";

/// The verbs that are requested for every machine, in order.
const STAGE_VERBS: &[&str] = &["manage", "inspect", "provide", "active"];

/// All machines.
pub(super) struct DemoRack {
    api: Api,
    machines: Vec<RackMachine>,
}

/// One machine.
struct RackMachine {
    name: String,
    model: String,
    completed_stages: usize,
    /// Whether the verb of the next stage was requested.
    is_requested: bool,
    state: String,
    step: String,
    failure: Option<String>,
}

/// A line of the display.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RackRow {
    pub(super) name: String,
    pub(super) model: String,
    pub(super) completed_stages: usize,
    pub(super) total_stages: usize,
    pub(super) state: String,
    /// The running step, or the error of a failed machine.
    pub(super) detail: String,
}

impl DemoRack {
    /// Creates a node with the additional `fields` for each machine and enables its console.
    pub(super) async fn enrol(
        api: Api,
        enrolments: Vec<Enrolment>,
        fields: &Value,
    ) -> anyhow::Result<Self> {
        let mut machines = Vec::new();
        for (enrolment, index) in enrolments.into_iter().zip(0..) {
            let name = node_name(index);
            let mut node = json!({
                "name": name,
                "driver": enrolment.driver,
                "driver_info": enrolment.driver_info,
                "properties": enrolment.properties,
                "resource_class": enrolment.resource_class,
            });
            if let (Some(node), Some(fields)) = (node.as_object_mut(), fields.as_object()) {
                node.extend(fields.clone());
            }
            let macs = enrolment.ports.iter().map(|port| port.address.as_str());
            create_node_with_ports(&api, &node, macs)
                .await
                .with_context(|| format!("cannot enrol {name}"))?;
            // Console output is recorded in the timeline and shown in the web UI from now on.
            let console = format!("/v1/nodes/{name}/states/console");
            api.send(Method::PUT, &console, Some(&json!({ "enabled": true })))
                .await
                .with_context(|| format!("cannot enable the console of {name}"))?;
            machines.push(RackMachine {
                name,
                model: enrolment.properties["vendor"].as_str().unwrap_or_default().to_owned(),
                completed_stages: 0,
                is_requested: false,
                state: "enroll".to_owned(),
                step: String::new(),
                failure: None,
            });
        }
        Ok(Self { api, machines })
    }

    /// Whether every machine has completed all stages or failed.
    pub(super) fn is_finished(&self) -> bool {
        self.machines.iter().all(|machine| machine.failure.is_some() || machine.is_deployed())
    }

    /// Polls all machines and requests the next verb for those that completed a stage.
    pub(super) async fn advance(&mut self) -> anyhow::Result<()> {
        let query = QueryString::new().with("fields", FIELDS);
        let nodes = self.api.list("/v1/nodes", "nodes", &query).await?;
        for machine in &mut self.machines {
            let Some(node) = nodes.iter().find(|node| node["name"] == machine.name.as_str()) else {
                continue;
            };
            machine.update(node);
            if let Some(verb) = machine.next_verb() {
                machine.request(&self.api, verb).await?;
            }
        }
        Ok(())
    }

    pub(super) fn rows(&self) -> Vec<RackRow> {
        let row = |machine: &RackMachine| RackRow {
            name: machine.name.clone(),
            model: machine.model.clone(),
            completed_stages: machine.completed_stages,
            total_stages: STAGE_VERBS.len(),
            state: machine.state.clone(),
            detail: machine.failure.clone().unwrap_or_else(|| machine.step.clone()),
        };
        self.machines.iter().map(row).collect()
    }

    /// Returns one line per failed machine.
    pub(super) fn failures(&self) -> Vec<String> {
        let failed = self.machines.iter().filter_map(|machine| {
            Some(format!("{} is {}: {}", machine.name, machine.state, machine.failure.as_ref()?))
        });
        failed.collect()
    }

    /// Returns a one-line summary.
    pub(super) fn summary(&self, elapsed: Duration) -> String {
        let deployed = self.machines.iter().filter(|machine| machine.is_deployed()).count();
        format!(
            "{deployed} of {} machines were enrolled, inspected, cleaned and deployed in {:.1} s",
            self.machines.len(),
            elapsed.as_secs_f64()
        )
    }
}

impl RackMachine {
    fn is_deployed(&self) -> bool {
        self.completed_stages == STAGE_VERBS.len()
    }

    /// Updates the machine from its node.
    fn update(&mut self, node: &Value) {
        let text = |field: &str| node[field].as_str().unwrap_or_default().to_owned();
        self.state = text("provision_state");
        let step =
            ["deploy_step", "clean_step"].iter().find_map(|step| node[step]["step"].as_str());
        self.step = step.unwrap_or_default().to_owned();
        if node["target_provision_state"].is_null() || self.state.ends_with("failed") {
            let error = text("last_error");
            if !error.is_empty() && self.is_requested {
                self.failure = Some(error);
                return;
            }
        }
        if let Some(stages) = completed_stages(node) {
            if stages > self.completed_stages {
                self.is_requested = false;
            }
            self.completed_stages = self.completed_stages.max(stages);
        }
    }

    /// Returns the verb to request now; `None` while a request is running or after a failure.
    fn next_verb(&self) -> Option<&'static str> {
        if self.is_requested || self.failure.is_some() {
            return None;
        }
        STAGE_VERBS.get(self.completed_stages).copied()
    }

    async fn request(&mut self, api: &Api, verb: &str) -> anyhow::Result<()> {
        let path = format!("/v1/nodes/{}/states/provision", self.name);
        let body = json!({ "target": verb });
        match api.send(Method::PUT, &path, Some(&body)).await {
            Ok(_) => self.is_requested = true,
            // The node is locked; the next poll requests the verb again.
            Err(error) if error.status() == Some(409) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Name of the node at a position of the rack.
pub(super) fn node_name(index: usize) -> String {
    format!("rack1-u{:02}", index + 1)
}

/// Number of stages that a node in a stable state has completed; `None` in other states.
fn completed_stages(node: &Value) -> Option<usize> {
    match node["provision_state"].as_str()? {
        "enroll" => Some(0),
        "manageable" if node["inspection_finished_at"].is_null() => Some(1),
        "manageable" => Some(2),
        "available" => Some(3),
        "active" => Some(4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> RackMachine {
        RackMachine {
            name: "rack1-u01".to_owned(),
            model: String::new(),
            completed_stages: 0,
            is_requested: false,
            state: String::new(),
            step: String::new(),
            failure: None,
        }
    }

    #[test]
    fn requests_each_verb_once() {
        let mut machine = machine();
        let mut requested = Vec::new();
        for (state, inspected, target) in [
            ("enroll", false, Value::Null),
            ("enroll", false, json!("manageable")),
            ("verifying", false, json!("manageable")),
            ("manageable", false, Value::Null),
            ("inspect wait", false, json!("manageable")),
            ("manageable", true, Value::Null),
            ("clean wait", true, json!("available")),
            ("available", true, Value::Null),
            ("available", true, Value::Null),
            ("wait call-back", true, json!("active")),
            ("active", true, Value::Null),
        ] {
            let finished = if inspected { json!("2026-01-01T00:00:00") } else { Value::Null };
            machine.update(&json!({
                "provision_state": state,
                "target_provision_state": target,
                "inspection_finished_at": finished,
            }));
            if let Some(verb) = machine.next_verb() {
                requested.push(verb);
                machine.is_requested = true;
            }
        }
        assert_eq!(requested, STAGE_VERBS);
        assert!(machine.is_deployed());
    }

    #[test]
    fn requests_nothing_after_a_failure() {
        let mut machine = machine();
        machine.is_requested = true;
        machine.update(&json!({
            "provision_state": "enroll",
            "target_provision_state": null,
            "last_error": "the BMC refuses the password",
        }));
        assert_eq!(machine.failure.as_deref(), Some("the BMC refuses the password"));
        assert_eq!(machine.next_verb(), None);
    }
}
