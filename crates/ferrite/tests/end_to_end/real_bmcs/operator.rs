// SPDX-License-Identifier: Apache-2.0
//! A Ferrite and somebody who operates it over its API.

use std::process::Command;
use std::time::{Duration, Instant};

use http_probe::{Answer, Client, Server};
use serde_json::{Value, json};

use super::lab::text;
use crate::ferrite::Home;
use crate::journal;

/// The longest a machine in software emulation may take for anything here, on a busy computer.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A running Ferrite and a client of it.
pub(crate) struct Operator {
    pub(crate) server: Server,
    client: Client,
    home: Home,
}

impl Operator {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with some settings, as environment variables.
    pub(crate) fn start_with(settings: &[(&str, &str)]) -> Self {
        let home = Home::new();
        let mut command = home.command();
        command
            .args(["--auth", "none"])
            // Tests look at what was asked for, so nothing else shall be sent to the BMCs meanwhile.
            .env("FERRITE_CONDUCTOR__SYNC_POWER_STATE_INTERVAL", "0")
            .env("FERRITE_DRIVERS__REDFISH__POLL_INTERVAL", "1")
            .envs(settings.iter().copied());
        Self::start_in(home, &mut command)
    }

    /// The Ferrite that `command` starts, with its log in `home`.
    pub(crate) fn start_in(home: Home, command: &mut Command) -> Self {
        let server = Server::start(command, &home.path("log")).unwrap_or_else(|error| {
            panic!("{error}");
        });
        let client = server.client().with_patience(PATIENCE);
        Self { server, client, home }
    }

    /// Kills it on the spot; what it kept stays.
    pub(crate) fn kill(self) -> Home {
        self.server.kill().unwrap();
        self.home
    }

    /// The whole timeline of a node, oldest first.
    pub(crate) fn timeline(&mut self, node: &str) -> Vec<Value> {
        journal::timeline(&mut self.client, node).unwrap()
    }

    /// A file of a test, next to the server's.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.home.path(name)
    }

    /// Waits until a list has something in it.
    pub(crate) fn until_listed(&mut self, path: &str, name: &str) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let listed = self.get(path)[name].as_array().cloned().unwrap_or_default();
            if !listed.is_empty() {
                return listed;
            }
            assert!(Instant::now() < deadline, "{path} stays empty:\n{}", self.log());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// What the server has logged so far.
    pub(crate) fn log(&self) -> String {
        self.home.log()
    }

    /// Enrols a node; returns its UUID.
    pub(crate) fn enrol(&mut self, driver: &str, driver_info: Value, more: Value) -> String {
        let mut node = json!({ "driver": driver, "driver_info": driver_info });
        for (key, value) in more.as_object().into_iter().flatten() {
            node[key] = value.clone();
        }
        let answer = self.expect(201, "POST", "/v1/nodes", Some(&node));
        text(&answer.json()["uuid"]).to_owned()
    }

    /// Enrols a node and brings it to manageable.
    pub(crate) fn manage(&mut self, driver: &str, driver_info: Value, more: Value) -> String {
        let node = self.enrol(driver, driver_info, more);
        self.provision(&node, json!({ "target": "manage" }), "manageable");
        node
    }

    /// Asks for a provision state and waits for the one it leads to.
    pub(crate) fn provision(&mut self, node: &str, body: Value, end: &str) {
        self.expect(202, "PUT", &format!("/v1/nodes/{node}/states/provision"), Some(&body));
        self.arrives(node, "provision_state", end);
    }

    /// Runs clean steps that need no ramdisk.
    pub(crate) fn clean(&mut self, node: &str, steps: Value) {
        let body = json!({ "target": "clean", "clean_steps": steps, "disable_ramdisk": true });
        self.provision(node, body, "manageable");
    }

    /// Asks for a power state and waits for the one it leads to.
    pub(crate) fn power(&mut self, node: &str, target: &str, end: &str) {
        let path = format!("/v1/nodes/{node}/states/power");
        self.expect(202, "PUT", &path, Some(&json!({ "target": target })));
        self.arrives(node, "power_state", end);
        let now = self.node(node);
        assert_eq!(now["last_error"], Value::Null, "after {target}");
    }

    /// The node as it is now.
    pub(crate) fn node(&mut self, node: &str) -> Value {
        self.get(&format!("/v1/nodes/{node}"))
    }

    /// Waits until the node is in a state and not on its way to another.
    pub(crate) fn arrives(&mut self, node: &str, field: &str, wanted: &str) {
        let target = format!("target_{field}");
        self.until(node, wanted, |node| node[field] == wanted && node[&target].is_null());
    }

    /// Waits until the node is as it should be; `what` is for the message if it never is.
    pub(crate) fn until(&mut self, node: &str, what: &str, is_so: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = self.node(node);
            if is_so(&now) {
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
            std::thread::sleep(LOOK_EVERY);
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> Value {
        self.expect(200, "GET", path, None).json()
    }

    /// Sends a request again until the node is no longer busy, and checks the status.
    pub(crate) fn expect(
        &mut self,
        status: u16,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let answer = self.ask(method, path, body);
        assert_eq!(answer.status, status, "{method} {path}: {}\n{}", answer.text(), self.log());
        answer
    }

    /// Sends a request, again until the node is no longer busy.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.client.ask(method, path, body).unwrap();
            if answer.status != 409 || Instant::now() > deadline {
                return answer;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
