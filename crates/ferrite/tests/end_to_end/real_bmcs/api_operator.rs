// SPDX-License-Identifier: Apache-2.0
//! A running Ferrite and an API client that operates it.

use std::process::Command;
use std::time::{Duration, Instant};

use http_probe::{ProbeClient, ProbeResponse, ServerProcess};
use serde_json::{Value, json};

use super::lab::text;
use crate::journal;
use crate::test_process::TestHome;

/// Timeout for operations of emulated machines on a busy host.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running Ferrite and a client of it.
pub(crate) struct ApiOperator {
    pub(crate) server: ServerProcess,
    client: ProbeClient,
    home: TestHome,
}

impl ApiOperator {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts it with settings as environment variables.
    pub(crate) fn start_with(settings: &[(&str, &str)]) -> Self {
        let home = TestHome::new();
        let mut command = home.command();
        command
            .args(["--auth", "none"])
            // No periodic requests to the BMCs: the tests check every request.
            .env("FERRITE_CONDUCTOR__SYNC_POWER_STATE_INTERVAL", "0")
            .env("FERRITE_DRIVERS__REDFISH__POLL_INTERVAL", "1")
            .envs(settings.iter().copied());
        Self::start_in(home, &mut command)
    }

    /// Starts `command` with its log in `home`.
    pub(crate) fn start_in(home: TestHome, command: &mut Command) -> Self {
        let server = ServerProcess::start(command, &home.path("log")).unwrap_or_else(|error| {
            panic!("{error}");
        });
        // The probe client has no TLS, which servers on other addresses than loopback use.
        let client = match server.url().starts_with("https:") {
            true => ProbeClient::on_socket(&home.path("data/ferrite.sock")),
            false => server.client(),
        };
        let client = client.with_timeout(TIMEOUT);
        Self { server, client, home }
    }

    /// Kills the server; its data remain.
    pub(crate) fn kill(self) -> TestHome {
        self.server.kill().unwrap();
        self.home
    }

    /// The complete timeline of a node, oldest first.
    pub(crate) fn timeline(&mut self, node: &str) -> Vec<Value> {
        journal::timeline(&mut self.client, node).unwrap()
    }

    /// A file in the temporary folder.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.home.path(name)
    }

    /// Waits until a list is not empty.
    pub(crate) fn wait_for_list(&mut self, path: &str, name: &str) -> Vec<Value> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let listed = self.get(path)[name].as_array().cloned().unwrap_or_default();
            if !listed.is_empty() {
                return listed;
            }
            assert!(Instant::now() < deadline, "{path} stays empty:\n{}", self.log());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The server's log.
    pub(crate) fn log(&self) -> String {
        self.home.log()
    }

    /// Enrols a node; returns its UUID.
    pub(crate) fn enrol(&mut self, driver: &str, driver_info: Value, more: Value) -> String {
        let mut node = json!({ "driver": driver, "driver_info": driver_info });
        for (key, value) in more.as_object().into_iter().flatten() {
            node[key] = value.clone();
        }
        let response = self.expect(201, "POST", "/v1/nodes", Some(&node));
        text(&response.json()["uuid"]).to_owned()
    }

    /// Enrols a node and manages it.
    pub(crate) fn manage(&mut self, driver: &str, driver_info: Value, more: Value) -> String {
        let node = self.enrol(driver, driver_info, more);
        self.provision(&node, json!({ "target": "manage" }), "manageable");
        node
    }

    /// Requests a provision state and waits for the resulting state.
    pub(crate) fn provision(&mut self, node: &str, body: Value, end: &str) {
        self.expect(202, "PUT", &format!("/v1/nodes/{node}/states/provision"), Some(&body));
        self.wait_for_state(node, "provision_state", end);
    }

    /// Runs clean steps that need no ramdisk.
    pub(crate) fn clean(&mut self, node: &str, steps: Value) {
        let body = json!({ "target": "clean", "clean_steps": steps, "disable_ramdisk": true });
        self.provision(node, body, "manageable");
    }

    /// Requests a power state and waits for the resulting state.
    pub(crate) fn power(&mut self, node: &str, target: &str, end: &str) {
        let path = format!("/v1/nodes/{node}/states/power");
        self.expect(202, "PUT", &path, Some(&json!({ "target": target })));
        self.wait_for_state(node, "power_state", end);
        let now = self.node(node);
        assert_eq!(now["last_error"], Value::Null, "after {target}");
    }

    /// The current node.
    pub(crate) fn node(&mut self, node: &str) -> Value {
        self.get(&format!("/v1/nodes/{node}"))
    }

    /// Waits until the node is in a state and has no target state.
    pub(crate) fn wait_for_state(&mut self, node: &str, field: &str, state: &str) {
        let target = format!("target_{field}");
        self.wait_until(node, state, |node| node[field] == state && node[&target].is_null());
    }

    /// Waits until the node fulfils the condition; `what` is for the message after a timeout.
    pub(crate) fn wait_until(
        &mut self,
        node: &str,
        what: &str,
        is_expected: impl Fn(&Value) -> bool,
    ) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let now = self.node(node);
            if is_expected(&now) {
                return;
            }
            let stuck = text(&now["provision_state"]).ends_with("failed")
                || (now["target_provision_state"].is_null()
                    && now["target_power_state"].is_null()
                    && now["reservation"].is_null()
                    && !now["last_error"].is_null());
            assert!(
                !stuck && Instant::now() < deadline,
                "not {what}: {} {} {}\n{}",
                now["provision_state"],
                now["power_state"],
                now["last_error"],
                self.log()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> Value {
        self.expect(200, "GET", path, None).json()
    }

    /// Sends a request, repeatedly while the node is locked, and checks the status.
    pub(crate) fn expect(
        &mut self,
        status: u16,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> ProbeResponse {
        let response = self.send(method, path, body);
        assert_eq!(response.status, status, "{method} {path}: {}\n{}", response.text(), self.log());
        response
    }

    /// Sends a request, repeatedly while the node is locked.
    pub(crate) fn send(&mut self, method: &str, path: &str, body: Option<&Value>) -> ProbeResponse {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let response = self.client.send_json(method, path, body).unwrap();
            if response.status != 409 || Instant::now() > deadline {
                return response;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
