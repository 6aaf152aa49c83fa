// SPDX-License-Identifier: Apache-2.0
//! Hardware managers that are programs in the ramdisk. `docs/hardware-managers.md` specifies the
//! protocol.
//!
//! A program is run once per request: its argument is the request, a JSON object on standard input has
//! the details, and standard output has the response as a JSON object. Standard error is logged.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agent_protocol::{AgentStep, ExecuteStepRequest, StepFlow};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::{HardwareManager, HardwareSupport, ManagerStepError};
use crate::agent::RamdiskAgent;

/// The timeout of `describe` and `steps`.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size of a response in bytes.
const MAX_RESPONSE_SIZE: u64 = 4 << 20;

/// An external hardware manager.
pub(super) struct ExternalManager {
    program: PathBuf,
    description: ManagerDescription,
}

#[derive(Deserialize)]
struct ManagerDescription {
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    support: u8,
}

#[derive(Deserialize)]
struct ManagerResponse {
    #[serde(default)]
    steps: Vec<AgentStep>,
    #[serde(default)]
    result: Value,
    error: Option<String>,
    #[serde(default)]
    not_mine: bool,
}

/// Runs `describe` for every program in the directory. Those that fail are ignored with a warning.
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
                    "external hardware manager loaded"
                );
                managers.push(ExternalManager { program, description });
            }
            Err(error) => {
                tracing::warn!(path = %program.display(), error, "external hardware manager ignored")
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

    fn support(&self) -> HardwareSupport {
        match self.description.support {
            0 => HardwareSupport::None,
            1 => HardwareSupport::Generic,
            2 => HardwareSupport::Mainline,
            3.. => HardwareSupport::ServiceProvider,
        }
    }

    async fn steps(
        &self,
        _agent: &RamdiskAgent,
        flow: StepFlow,
        node: &Map<String, Value>,
        ports: &[Value],
    ) -> Result<Vec<AgentStep>, ManagerStepError> {
        let request = json!({"flow": flow.as_str(), "node": node, "ports": ports});
        let output =
            tokio::time::timeout(QUERY_TIMEOUT, run_program(&self.program, "steps", &request));
        let output = output.await.map_err(|_| self.step_error("listing its steps timed out"))?;
        let response: ManagerResponse = self.parse_response(output)?;
        match response.error {
            Some(error) => Err(self.step_error(&error)),
            None => Ok(response.steps),
        }
    }

    async fn execute(
        &self,
        _agent: &RamdiskAgent,
        flow: StepFlow,
        request: &ExecuteStepRequest,
    ) -> Result<Value, ManagerStepError> {
        let request = json!({
            "flow": flow.as_str(),
            "step": request.step,
            "node": request.node,
            "ports": request.ports,
        });
        let response =
            self.parse_response(run_program(&self.program, "execute", &request).await)?;
        match response {
            ManagerResponse { not_mine: true, .. } => Err(ManagerStepError::NotSupported),
            ManagerResponse { error: Some(error), .. } => Err(self.step_error(&error)),
            ManagerResponse { result, .. } => Ok(result),
        }
    }
}

impl ExternalManager {
    fn parse_response(
        &self,
        response: Result<Vec<u8>, String>,
    ) -> Result<ManagerResponse, ManagerStepError> {
        let response = response.map_err(|error| self.step_error(&error))?;
        serde_json::from_slice(&response)
            .map_err(|error| self.step_error(&format!("invalid response: {error}")))
    }

    fn step_error(&self, reason: &str) -> ManagerStepError {
        let details = format!("the hardware manager {} failed: {reason}", self.description.name);
        ManagerStepError::failed("CommandExecutionError", "Command execution failed", &details)
    }
}

async fn describe(program: &Path) -> Result<ManagerDescription, String> {
    let request = json!({});
    let output = tokio::time::timeout(QUERY_TIMEOUT, run_program(program, "describe", &request));
    let output = output.await.map_err(|_| "describe timed out".to_owned())??;
    serde_json::from_slice(&output)
        .map_err(|error| format!("invalid response to describe: {error}"))
}

/// Runs a program with a request and returns its output.
async fn run_program(program: &Path, request: &str, details: &Value) -> Result<Vec<u8>, String> {
    let io_error = |error: std::io::Error| error.to_string();
    let mut child = Command::new(program)
        .arg(request)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(io_error)?;
    let (mut input, output, errors) =
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(input), Some(output), Some(errors)) => (input, output, errors),
            _ => return Err("no pipes to the program".to_owned()),
        };
    let details = details.to_string();
    let write_input = async {
        // A program that does not read its input may close it.
        let _ = input.write_all(details.as_bytes()).await;
        drop(input);
    };
    let mut response = Vec::new();
    let read_output = async {
        let mut output = output.take(MAX_RESPONSE_SIZE);
        let _ = output.read_to_end(&mut response).await;
    };
    let log_errors = async {
        let mut lines = BufReader::new(errors).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            tracing::info!(path = %program.display(), line, "output of hardware manager");
        }
    };
    tokio::join!(write_input, read_output, log_errors);
    let status = child.wait().await.map_err(io_error)?;
    if status.success() || !response.is_empty() {
        Ok(response)
    } else {
        Err(format!("the program ended with {status}"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const PROGRAM: &str = r#"#!/bin/sh
request=$(cat)
case "$1" in
  describe) echo '{"name": "acme", "version": "2", "support": 3}' ;;
  steps) echo '{"steps": [{"step": "update_nic", "priority": 5, "interface": "deploy", "abortable": false}]}' ;;
  execute) case "$request" in
    *update_nic*) echo "flashing" >&2; echo '{"result": {"flashed": true}}' ;;
    *break*) echo '{"error": "the NIC is on fire"}' ;;
    *) echo '{"not_mine": true}' ;;
  esac ;;
esac
"#;

    fn step_request(name: &str) -> ExecuteStepRequest {
        ExecuteStepRequest {
            step: Map::from_iter([("step".to_owned(), Value::String(name.to_owned()))]),
            node: Map::new(),
            ports: Vec::new(),
            versions: None,
        }
    }

    #[tokio::test]
    async fn runs_programs_as_managers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("acme");
        std::fs::write(&path, PROGRAM).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(folder.path().join("readme.txt"), "not a program").unwrap();
        let managers = load(folder.path()).await;
        assert_eq!(managers.len(), 1);
        let manager = &managers[0];
        assert_eq!((manager.name(), manager.support()), ("acme", HardwareSupport::ServiceProvider));
        let agent = crate::testing::test_agent(super::super::HardwareManagers::new(Vec::new()));
        let steps = manager.steps(&agent, StepFlow::Clean, &Map::new(), &[]).await.unwrap();
        assert_eq!(steps[0].step, "update_nic");
        let execute = |name: &'static str| {
            let agent = &agent;
            async move { manager.execute(agent, StepFlow::Clean, &step_request(name)).await }
        };
        assert_eq!(execute("update_nic").await, Ok(json!({"flashed": true})));
        assert_eq!(execute("other").await, Err(ManagerStepError::NotSupported));
        let Err(ManagerStepError::Failed(error)) = execute("break").await else {
            panic!("no error")
        };
        assert!(error.text().contains("the NIC is on fire"));
    }
}
