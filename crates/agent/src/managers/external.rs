// SPDX-License-Identifier: Apache-2.0
//! Hardware managers that are programs in the ramdisk. `docs/hardware-managers.md` is the protocol.
//!
//! A program is run once per question: its argument says which, a JSON object on standard input
//! gives the details, and it answers with one on standard output. Whatever it writes to standard
//! error is logged.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agent_protocol::{Flow, StepDescription, StepOrder};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::{HardwareManager, StepError, Support};
use crate::agent::Agent;

/// How long a program may think about what it is and what it offers.
const PATIENCE: Duration = Duration::from_secs(30);
/// No answer is longer.
const LONGEST_ANSWER: u64 = 4 << 20;

/// A program.
pub(super) struct ExternalManager {
    program: PathBuf,
    description: Description,
}

#[derive(Deserialize)]
struct Description {
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    support: u8,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    steps: Vec<StepDescription>,
    #[serde(default)]
    result: Value,
    error: Option<String>,
    #[serde(default)]
    not_mine: bool,
}

/// Asks every program in the folder what it is. Those that do not say are left out, with a warning.
pub(super) async fn load(folder: &Path) -> Vec<ExternalManager> {
    let mut programs: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    programs.sort();
    let mut managers = Vec::new();
    for program in programs {
        match describe(&program).await {
            Ok(description) => {
                tracing::info!(
                    name = description.name,
                    version = description.version,
                    support = description.support,
                    "found a hardware manager"
                );
                managers.push(ExternalManager { program, description });
            }
            Err(error) => {
                tracing::warn!(program = %program.display(), error, "not a hardware manager")
            }
        }
    }
    managers
}

#[async_trait]
impl HardwareManager for ExternalManager {
    fn name(&self) -> &str {
        &self.description.name
    }

    fn versions(&self) -> Vec<(String, String)> {
        vec![(self.description.name.clone(), self.description.version.clone())]
    }

    fn support(&self) -> Support {
        match self.description.support {
            0 => Support::None,
            1 => Support::Generic,
            2 => Support::Mainline,
            3.. => Support::ServiceProvider,
        }
    }

    async fn steps(
        &self,
        _agent: &Agent,
        flow: Flow,
        node: &Map<String, Value>,
        ports: &[Value],
    ) -> Result<Vec<StepDescription>, StepError> {
        let question = json!({"flow": flow.as_str(), "node": node, "ports": ports});
        let answer = tokio::time::timeout(PATIENCE, ask(&self.program, "steps", &question));
        let answer = answer.await.map_err(|_| self.fail("it took too long to list its steps"))?;
        let answer: Answer = self.read(answer)?;
        match answer.error {
            Some(error) => Err(self.fail(&error)),
            None => Ok(answer.steps),
        }
    }

    async fn execute(
        &self,
        _agent: &Agent,
        flow: Flow,
        order: &StepOrder,
    ) -> Result<Value, StepError> {
        let question = json!({
            "flow": flow.as_str(),
            "step": order.step,
            "node": order.node,
            "ports": order.ports,
        });
        let answer = self.read(ask(&self.program, "execute", &question).await)?;
        match answer {
            Answer { not_mine: true, .. } => Err(StepError::NotMine),
            Answer { error: Some(error), .. } => Err(self.fail(&error)),
            Answer { result, .. } => Ok(result),
        }
    }
}

impl ExternalManager {
    fn read(&self, answer: Result<Vec<u8>, String>) -> Result<Answer, StepError> {
        let answer = answer.map_err(|error| self.fail(&error))?;
        serde_json::from_slice(&answer).map_err(|error| {
            self.fail(&format!("its answer is not what a manager answers: {error}"))
        })
    }

    fn fail(&self, why: &str) -> StepError {
        let details = format!("the hardware manager {} failed: {why}", self.description.name);
        StepError::failed("CommandExecutionError", "Command execution failed", &details)
    }
}

async fn describe(program: &Path) -> Result<Description, String> {
    let nothing = json!({});
    let answer = tokio::time::timeout(PATIENCE, ask(program, "describe", &nothing));
    let answer = answer.await.map_err(|_| "it took too long to say what it is".to_owned())??;
    serde_json::from_slice(&answer).map_err(|error| format!("it does not say what it is: {error}"))
}

/// One question to a program.
async fn ask(program: &Path, question: &str, details: &Value) -> Result<Vec<u8>, String> {
    let words = |error: std::io::Error| error.to_string();
    let mut child = Command::new(program)
        .arg(question)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(words)?;
    let (mut input, output, errors) =
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(input), Some(output), Some(errors)) => (input, output, errors),
            _ => return Err("it could not be talked to".to_owned()),
        };
    let details = details.to_string();
    let feed = async {
        // A program that does not care what it is told closes its input.
        let _ = input.write_all(details.as_bytes()).await;
        drop(input);
    };
    let mut answer = Vec::new();
    let hear = async {
        let mut output = output.take(LONGEST_ANSWER);
        let _ = output.read_to_end(&mut answer).await;
    };
    let log = async {
        let mut lines = BufReader::new(errors).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            tracing::info!(program = %program.display(), "{line}");
        }
    };
    tokio::join!(feed, hear, log);
    let status = child.wait().await.map_err(words)?;
    if status.success() || !answer.is_empty() {
        Ok(answer)
    } else {
        Err(format!("it ended with {status}"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const PROGRAM: &str = r#"#!/bin/sh
question=$(cat)
case "$1" in
  describe) echo '{"name": "acme", "version": "2", "support": 3}' ;;
  steps) echo '{"steps": [{"step": "update_nic", "priority": 5, "interface": "deploy", "abortable": false}]}' ;;
  execute) case "$question" in
    *update_nic*) echo "flashing" >&2; echo '{"result": {"flashed": true}}' ;;
    *break*) echo '{"error": "the card is on fire"}' ;;
    *) echo '{"not_mine": true}' ;;
  esac ;;
esac
"#;

    fn order(name: &str) -> StepOrder {
        StepOrder {
            step: Map::from_iter([("step".to_owned(), Value::String(name.to_owned()))]),
            node: Map::new(),
            ports: Vec::new(),
            versions: None,
        }
    }

    #[tokio::test]
    async fn a_program_can_be_a_manager() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("acme");
        std::fs::write(&path, PROGRAM).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(folder.path().join("readme.txt"), "not a program").unwrap();
        let managers = load(folder.path()).await;
        assert_eq!(managers.len(), 1);
        let manager = &managers[0];
        assert_eq!((manager.name(), manager.support()), ("acme", Support::ServiceProvider));
        let agent = crate::testing::agent(super::super::Managers::of(Vec::new()));
        let steps = manager.steps(&agent, Flow::Clean, &Map::new(), &[]).await.unwrap();
        assert_eq!(steps[0].step, "update_nic");
        let execute = |name: &'static str| {
            let agent = &agent;
            async move { manager.execute(agent, Flow::Clean, &order(name)).await }
        };
        assert_eq!(execute("update_nic").await, Ok(json!({"flashed": true})));
        assert_eq!(execute("other").await, Err(StepError::NotMine));
        let Err(StepError::Failed(error)) = execute("break").await else { panic!("it breaks") };
        assert!(error.text().contains("the card is on fire"));
    }
}
