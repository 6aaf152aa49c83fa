// SPDX-License-Identifier: Apache-2.0
//! A server with machines to look after, and what its operator does.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http_probe::{Client, Server};
use serde_json::{Value, json};

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How many lines of the server's log are shown when something fails.
const LAST_LINES: usize = 15;

/// A server of our own, and a client of it.
pub(crate) struct Operator {
    server: Server,
    client: Client,
}

impl Operator {
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
        let server = Server::start(&mut command, &folder.join("log"))?;
        let client = server.client();
        Ok(Self { server, client })
    }

    /// Enrols a machine with one network card; its id.
    pub(crate) fn enrol(&mut self, node: &Value, mac: &str) -> Result<String> {
        let made = self.expect(201, "POST", "/v1/nodes", Some(node))?;
        let uuid = made["uuid"].as_str().context("the node has no id")?.to_owned();
        let port = json!({"node_uuid": uuid, "address": mac});
        self.expect(201, "POST", "/v1/ports", Some(&port))?;
        Ok(uuid)
    }

    /// Asks for a provision state and does not wait.
    pub(crate) fn provision(&mut self, node: &str, verb: &str) -> Result<()> {
        let path = format!("/v1/nodes/{node}/states/provision");
        self.expect(202, "PUT", &path, Some(&json!({ "target": verb })))?;
        Ok(())
    }

    /// Asks for a provision state and waits for what it leads to.
    pub(crate) fn go(
        &mut self,
        node: &str,
        verb: &str,
        state: &str,
        patience: Duration,
    ) -> Result<()> {
        self.provision(node, verb)?;
        self.until(node, patience, |node| node["provision_state"] == state)?;
        Ok(())
    }

    /// Gives a field of the node a value.
    pub(crate) fn set(&mut self, node: &str, field: &str, value: Value) -> Result<()> {
        let change = json!([{"op": "add", "path": field, "value": value}]);
        self.expect(200, "PATCH", &format!("/v1/nodes/{node}"), Some(&change))?;
        Ok(())
    }

    /// Waits until the node is as it should be; an error as soon as it has failed.
    pub(crate) fn until(
        &mut self,
        node: &str,
        patience: Duration,
        is_so: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let deadline = Instant::now() + patience;
        loop {
            let shown = self.show(node)?;
            if is_so(&shown) {
                return Ok(shown);
            }
            if Instant::now() >= deadline {
                bail!("the node stays {}; the log:\n{}", shown["provision_state"], self.log());
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// The node; an error if it has failed.
    pub(crate) fn show(&mut self, node: &str) -> Result<Value> {
        let shown = self.expect(200, "GET", &format!("/v1/nodes/{node}"), None)?;
        let state = shown["provision_state"].as_str().unwrap_or_default();
        if state.ends_with("failed") {
            bail!("the node is {state}: {}; the log:\n{}", shown["last_error"], self.log());
        }
        Ok(shown)
    }

    /// The end of the server's log.
    pub(crate) fn log(&self) -> String {
        let log = self.server.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }

    /// Sends a request that is to be answered with `status`.
    pub(crate) fn expect(
        &mut self,
        status: u16,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let answer = self.client.ask(method, path, body)?;
        if answer.status != status {
            bail!("{method} {path}: {} {}", answer.status, answer.text());
        }
        Ok(answer.json())
    }
}

/// Whether the node's agent has called: the server writes that down with the first heartbeat.
pub(crate) fn agent_called(node: &Value) -> bool {
    node["driver_internal_info"]["agent_url"].is_string()
}
