// SPDX-License-Identifier: Apache-2.0
//! A server for benchmarks with machines, and the requests of its operator.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http_probe::{ProbeClient, ServerProcess};
use serde_json::{Value, json};

const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The number of log lines in error messages.
const LAST_LINES: usize = 15;

/// A server and a client.
pub(crate) struct BenchOperator {
    server: ServerProcess,
    client: ProbeClient,
}

impl BenchOperator {
    /// Starts a server at `address` with these settings; its files are in `folder`.
    pub(crate) fn start(
        ferrite: &Path,
        folder: &Path,
        address: &str,
        settings: &str,
    ) -> Result<Self> {
        let config = folder.join("ferrite.toml");
        std::fs::write(&config, settings)?;
        let mut command = Command::new(ferrite);
        command.args(["serve", "--auth", "none", "--listen", address]);
        command.arg("--data-dir").arg(folder.join("data")).arg("--config").arg(config);
        let server = ServerProcess::start(&mut command, &folder.join("log"))?;
        let client = server.client();
        Ok(Self { server, client })
    }

    /// Enrols a node with one port; returns its UUID.
    pub(crate) fn enrol(&mut self, node: &Value, mac: &str) -> Result<String> {
        let made = self.expect(201, "POST", "/v1/nodes", Some(node))?;
        let uuid = made["uuid"].as_str().context("the node has no UUID")?.to_owned();
        let port = json!({"node_uuid": uuid, "address": mac});
        self.expect(201, "POST", "/v1/ports", Some(&port))?;
        Ok(uuid)
    }

    /// Sends a provision request.
    pub(crate) fn provision(&mut self, node: &str, verb: &str) -> Result<()> {
        let path = format!("/v1/nodes/{node}/states/provision");
        self.expect(202, "PUT", &path, Some(&json!({ "target": verb })))?;
        Ok(())
    }

    /// Sends a provision request and waits for the state.
    pub(crate) fn provision_and_wait(
        &mut self,
        node: &str,
        verb: &str,
        state: &str,
        timeout: Duration,
    ) -> Result<()> {
        self.provision(node, verb)?;
        self.wait_until(node, timeout, |node| node["provision_state"] == state)?;
        Ok(())
    }

    /// Sets a field of the node.
    pub(crate) fn set(&mut self, node: &str, field: &str, value: Value) -> Result<()> {
        let change = json!([{"op": "add", "path": field, "value": value}]);
        self.expect(200, "PATCH", &format!("/v1/nodes/{node}"), Some(&change))?;
        Ok(())
    }

    /// Waits for a condition. Fails as soon as the node is in a failed state.
    pub(crate) fn wait_until(
        &mut self,
        node: &str,
        timeout: Duration,
        condition: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let deadline = Instant::now() + timeout;
        loop {
            let shown = self.show(node)?;
            if condition(&shown) {
                return Ok(shown);
            }
            if Instant::now() >= deadline {
                bail!("the node stays {}; the log:\n{}", shown["provision_state"], self.log());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the node. Fails if it is in a failed state.
    pub(crate) fn show(&mut self, node: &str) -> Result<Value> {
        let shown = self.expect(200, "GET", &format!("/v1/nodes/{node}"), None)?;
        let state = shown["provision_state"].as_str().unwrap_or_default();
        if state.ends_with("failed") {
            bail!("the node is {state}: {}; the log:\n{}", shown["last_error"], self.log());
        }
        Ok(shown)
    }

    /// The last lines of the server's log.
    pub(crate) fn log(&self) -> String {
        let log = self.server.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }

    /// Sends a request. Fails unless the response has the status `status`.
    pub(crate) fn expect(
        &mut self,
        status: u16,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let response = self.client.send_json(method, path, body)?;
        if response.status != status {
            bail!("{method} {path}: {} {}", response.status, response.text());
        }
        Ok(response.json())
    }
}

/// Returns whether the server has received a heartbeat of the agent.
pub(crate) fn has_agent(node: &Value) -> bool {
    node["driver_internal_info"]["agent_url"].is_string()
}
