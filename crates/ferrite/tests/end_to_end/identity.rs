// SPDX-License-Identifier: Apache-2.0
//! Users of Keystone, of an OpenID Connect provider and of the own database, with real services and
//! real clients, over TLS with the own CA.

mod keystone;
mod openid_connect;
mod personas;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use http_probe::{ProbeClient, ServerProcess};
use serde_json::{Value, json};

use crate::real_clients::without_user_settings;
use crate::test_process::{TestHome, output_of};

/// Timeout for everything that is polled.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The folder of the scripts.
const SCRIPTS: &str = "tests/end_to_end/identity";

/// `ferrite serve` with TLS.
struct TlsServer {
    home: TestHome,
    process: ServerProcess,
}

/// A response to curl.
#[derive(Debug)]
struct CurlResponse {
    status: u16,
    /// The header lines, in lower case.
    head: String,
    body: Value,
}

impl TlsServer {
    /// Starts a server with a configuration file and these modes of authentication.
    fn start(home: TestHome, auth: &str, configuration: &str) -> Self {
        let file = home.path("ferrite.toml");
        std::fs::write(&file, configuration).unwrap();
        let mut command = home.command();
        command.args(["--tls", "on", "--auth", auth, "--config"]).arg(&file);
        let process = ServerProcess::start(&mut command, &home.path("log"));
        let process = process.unwrap_or_else(|error| panic!("{error}"));
        Self { home, process }
    }

    fn url(&self) -> String {
        self.process.url()
    }

    fn ca(&self) -> PathBuf {
        self.home.path("data/ca.pem")
    }

    /// A client with full access, over the Unix socket.
    fn local_client(&self) -> ProbeClient {
        ProbeClient::on_socket(&self.home.path("data/ferrite.sock"))
    }

    /// The response to `GET path` with these headers, over TLS.
    fn get(&self, path: &str, headers: &[&str]) -> CurlResponse {
        let mut command = without_user_settings(Command::new("curl"));
        command.args(["--silent", "--show-error", "--include", "--cacert"]).arg(self.ca());
        command.args(["--header", "X-OpenStack-Ironic-API-Version: latest"]);
        command.args(headers.iter().flat_map(|header| ["--header", header]));
        let output = output_of(command.arg(format!("{}{path}", self.url())));
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text}{error}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        CurlResponse {
            status: status.unwrap_or_else(|| panic!("{head}")),
            head: head.to_lowercase(),
            body: serde_json::from_str(body).unwrap_or_default(),
        }
    }

    /// The names of the nodes that are listed for a request with this header.
    fn listed(&self, header: &str) -> Vec<String> {
        let response = self.get("/v1/nodes", &[header]);
        assert_eq!(response.status, 200, "{response:?}\n{}", self.home.log());
        response.names()
    }

    /// Creates an available node.
    fn create_node(&self, name: &str, owner: Option<&str>, lessee: Option<&str>) {
        let mut client = self.local_client();
        let node =
            json!({"driver": "fake-hardware", "name": name, "owner": owner, "lessee": lessee});
        let created = client.send_json("POST", "/v1/nodes", Some(&node)).unwrap();
        assert_eq!(created.status, 201, "{}", created.text());
        for (target, expected) in [("manage", "manageable"), ("provide", "available")] {
            let path = format!("/v1/nodes/{name}/states/provision");
            let body = json!({ "target": target });
            let accepted = client.send_json("PUT", &path, Some(&body)).unwrap();
            assert_eq!(accepted.status, 202, "{}", accepted.text());
            wait_until(&format!("{name} is {expected}"), || {
                let node = client.send("GET", &format!("/v1/nodes/{name}"), None).unwrap().json();
                node["provision_state"] == expected && node["target_provision_state"].is_null()
            });
        }
    }

    /// Waits until the record of failed sign-ins has one with this kind of credential.
    fn wait_for_sign_in_failure(&self, credential: &str, user: &str) {
        let mut client = self.local_client();
        wait_until(&format!("the sign-in of {user:?} with {credential} is recorded"), || {
            let found = client.send("GET", "/v1/ferrite/sign-in-failures", None).unwrap().json();
            let failures = found["failures"].as_array().cloned().unwrap_or_default();
            failures.iter().any(|it| it["credential"] == credential && it["user"] == user)
        });
    }

    /// The value of a counter of sign-ins.
    fn sign_ins(&self, credential: &str, outcome: &str) -> u64 {
        let text = self.local_client().send("GET", "/metrics", None).unwrap().text();
        let labels = format!("{{credential=\"{credential}\",outcome=\"{outcome}\"}} ");
        let name = format!("ferrite_sign_ins_total{labels}");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(0, |value| value.parse().unwrap())
    }
}

impl CurlResponse {
    /// The names of the nodes in a list.
    fn names(&self) -> Vec<String> {
        let nodes = self.body["nodes"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> =
            nodes.iter().filter_map(|node| node["name"].as_str().map(str::to_owned)).collect();
        names.sort();
        names
    }

    /// The message of a refusal.
    fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_default()
    }
}

fn wait_until(expected: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_true() {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {expected}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A Python script of this folder.
fn script(environment: &Path, name: &str) -> Command {
    let mut python = without_user_settings(Command::new(environment.join("bin/python")));
    python.arg(format!("{SCRIPTS}/{name}")).current_dir(env!("CARGO_MANIFEST_DIR"));
    python
}
