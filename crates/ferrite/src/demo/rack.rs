// SPDX-License-Identifier: Apache-2.0
//! The machines of the demonstration, and what each is asked for next.

use std::time::Duration;

use anyhow::Context as _;
use fleet_sim::Enrolment;
use ironic_client::{Api, Method, Query};
use serde_json::{Value, json};

use crate::enrolment::create;

const FIELDS: &str = "name,provision_state,target_provision_state,last_error,inspection_finished_at,\
                      clean_step,deploy_step";

/// The stages of every machine, in order: what is asked for, and what it is then.
const STAGES: &[(&str, &str)] = &[
    ("manage", "managed"),
    ("inspect", "inspected"),
    ("provide", "cleaned"),
    ("active", "active"),
];

/// All machines.
pub(super) struct Rack {
    api: Api,
    machines: Vec<Machine>,
}

/// One machine.
struct Machine {
    name: String,
    model: String,
    /// How many stages are behind it.
    stage: usize,
    /// Whether the next stage was asked for.
    is_asked: bool,
    state: String,
    doing: String,
    failed: Option<String>,
}

/// A line of the display.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) model: String,
    pub(super) done: usize,
    pub(super) of: usize,
    pub(super) state: String,
    pub(super) doing: String,
}

impl Rack {
    /// Creates the machines as nodes with `more` fields.
    pub(super) async fn enrol(
        api: Api,
        enrolments: Vec<Enrolment>,
        more: &Value,
    ) -> anyhow::Result<Self> {
        let mut machines = Vec::new();
        for (mut enrolment, index) in enrolments.into_iter().zip(0..) {
            enrolment.name = name(index);
            create(&api, &enrolment, more)
                .await
                .with_context(|| format!("cannot enrol {}", enrolment.name))?;
            // What it says from now on is in its timeline, and its page has a terminal.
            let console = format!("/v1/nodes/{}/states/console", enrolment.name);
            api.send(Method::PUT, &console, Some(&json!({ "enabled": true })))
                .await
                .with_context(|| format!("cannot open the console of {}", enrolment.name))?;
            machines.push(Machine {
                name: enrolment.name,
                model: enrolment.properties["vendor"].as_str().unwrap_or_default().to_owned(),
                stage: 0,
                is_asked: false,
                state: "enroll".to_owned(),
                doing: String::new(),
                failed: None,
            });
        }
        Ok(Self { api, machines })
    }

    /// Whether there is nothing left to ask for.
    pub(super) fn is_at_rest(&self) -> bool {
        self.machines
            .iter()
            .all(|machine| machine.failed.is_some() || machine.stage == STAGES.len())
    }

    /// Looks at all machines, and asks those that are through with a stage for the next.
    pub(super) async fn go_on(&mut self) -> anyhow::Result<()> {
        let query = Query::new().with("fields", FIELDS);
        let nodes = self.api.list("/v1/nodes", "nodes", &query).await?;
        for machine in &mut self.machines {
            let Some(node) = nodes.iter().find(|node| node["name"] == machine.name.as_str()) else {
                continue;
            };
            machine.look(node);
            if let Some(verb) = machine.next() {
                machine.ask(&self.api, verb).await?;
            }
        }
        Ok(())
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let row = |machine: &Machine| Row {
            name: machine.name.clone(),
            model: machine.model.clone(),
            done: machine.stage,
            of: STAGES.len(),
            state: machine.state.clone(),
            doing: machine.failed.clone().unwrap_or_else(|| machine.doing.clone()),
        };
        self.machines.iter().map(row).collect()
    }

    /// What went wrong, a line each.
    pub(super) fn failures(&self) -> Vec<String> {
        let failed = self.machines.iter().filter_map(|machine| {
            Some(format!("{} is {}: {}", machine.name, machine.state, machine.failed.as_ref()?))
        });
        failed.collect()
    }

    /// One line about all of it.
    pub(super) fn summary(&self, took: Duration) -> String {
        let there = self.machines.iter().filter(|machine| machine.stage == STAGES.len()).count();
        format!(
            "{there} of {} machines were enrolled, inspected, cleaned and deployed in {:.1} s",
            self.machines.len(),
            took.as_secs_f64()
        )
    }
}

impl Machine {
    /// Takes in what the API says of it.
    fn look(&mut self, node: &Value) {
        let text = |field: &str| node[field].as_str().unwrap_or_default().to_owned();
        self.state = text("provision_state");
        let step =
            ["deploy_step", "clean_step"].iter().find_map(|step| node[step]["step"].as_str());
        self.doing = step.unwrap_or_default().to_owned();
        if node["target_provision_state"].is_null() || self.state.ends_with("failed") {
            let error = text("last_error");
            if !error.is_empty() && self.is_asked {
                self.failed = Some(error);
                return;
            }
        }
        if let Some(stage) = reached(node) {
            if stage > self.stage {
                self.is_asked = false;
            }
            self.stage = self.stage.max(stage);
        }
    }

    /// What to ask for now.
    fn next(&self) -> Option<&'static str> {
        if self.is_asked || self.failed.is_some() {
            return None;
        }
        STAGES.get(self.stage).map(|(verb, _)| *verb)
    }

    async fn ask(&mut self, api: &Api, verb: &str) -> anyhow::Result<()> {
        let path = format!("/v1/nodes/{}/states/provision", self.name);
        let body = json!({ "target": verb });
        // One that is busy for a moment is asked again at the next look.
        match api.send(Method::PUT, &path, Some(&body)).await {
            Ok(_) => self.is_asked = true,
            Err(error) if error.status() == Some(409) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// What the machine at a place of the rack is called.
pub(super) fn name(index: usize) -> String {
    format!("rack1-u{:02}", index + 1)
}

/// How many stages a machine has behind it that rests; none if it does not.
fn reached(node: &Value) -> Option<usize> {
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

    fn machine() -> Machine {
        Machine {
            name: "rack1-u01".to_owned(),
            model: String::new(),
            stage: 0,
            is_asked: false,
            state: String::new(),
            doing: String::new(),
            failed: None,
        }
    }

    #[test]
    fn a_machine_is_asked_for_each_stage_once() {
        let mut machine = machine();
        let mut asked = Vec::new();
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
            machine.look(&json!({
                "provision_state": state,
                "target_provision_state": target,
                "inspection_finished_at": finished,
            }));
            if let Some(verb) = machine.next() {
                asked.push(verb);
                machine.is_asked = true;
            }
        }
        assert_eq!(asked, ["manage", "inspect", "provide", "active"]);
        assert_eq!(machine.stage, STAGES.len());
    }

    #[test]
    fn a_machine_that_failed_is_left_alone() {
        let mut machine = machine();
        machine.is_asked = true;
        machine.look(&json!({
            "provision_state": "enroll",
            "target_provision_state": null,
            "last_error": "the BMC refuses the password",
        }));
        assert_eq!(machine.failed.as_deref(), Some("the BMC refuses the password"));
        assert_eq!(machine.next(), None);
    }
}
