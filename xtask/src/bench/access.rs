// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench access`: the cost of TLS, API tokens and policy, and the delay that others notice
//! while a client guesses passwords.
//!
//! Both sides of a comparison are measured in turn, round by round, so that load affects both.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use http_probe::{ProbeClient, ServerProcess};
use serde_json::{Value, json};

use super::bench_server::{BenchFleet, BenchServer};
use super::load::{ExpectedStatus, LoadMeasurement, LoadPattern, LoadRequest, send_requests};
use super::password_guessing::{GuessSource, PasswordGuessing};
use super::summary::{FigureTarget, RoundsSummary};
use super::tls_client::BenchTls;
use crate::interrupt::Interrupt;
use crate::{print, repository, shell};

/// The project that owns all nodes.
const PROJECT: &str = "bench";
const PASSWORD: &str = "correct horse battery staple";
/// Users that sign in for the first time.
const USERS: usize = 40;
/// As many as a /24 network almost has.
const GUESSING_ADDRESSES: u8 = 200;
const RUN: u32 = 1;

/// Options of `cargo xtask bench access`.
#[derive(Args)]
pub(crate) struct AccessBenchOptions {
    /// Number of enrolled nodes, all of one project.
    #[arg(long, default_value_t = Self::default().nodes)]
    nodes: usize,
    /// Number of single requests per round and side; lists are requested a twentieth as often.
    #[arg(long, default_value_t = Self::default().requests)]
    requests: usize,
    /// Number of rounds.
    #[arg(long, default_value_t = Self::default().rounds)]
    rounds: usize,
    /// Wrong passwords per second.
    #[arg(long, default_value_t = Self::default().guesses)]
    guesses: u32,
    /// Seconds of each measurement while passwords are guessed.
    #[arg(long, default_value_t = Self::default().seconds)]
    seconds: u64,
}

impl Default for AccessBenchOptions {
    fn default() -> Self {
        Self { nodes: 1000, requests: 2000, rounds: 7, guesses: 500, seconds: 5 }
    }
}

/// A server with its data folder.
struct AccessServer {
    process: ServerProcess,
    data: PathBuf,
}

/// The servers and their clients.
struct AccessBench<'a> {
    options: &'a AccessBenchOptions,
    /// Without TLS and authentication.
    open: BenchServer,
    /// A member of the project, with TLS and an API token.
    tenant: BenchServer,
    /// An administrator of the system, with TLS and an API token.
    admin: BenchServer,
    /// A member of the project, with an API token and without TLS.
    plain: BenchServer,
    interrupt: &'a Interrupt,
}

/// Builds the server, runs the benchmark and prints the figures.
pub(crate) fn run(options: &AccessBenchOptions) -> Result<()> {
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    print::heading("building");
    let mut build = shell::cargo(&root);
    shell::run(build.args(["build", "--release", "--package", "ferrite"]), &interrupt)?;
    measure(&repository::target(&root).join("release/ferrite"), options, &interrupt)
}

/// Runs the benchmark with a built server.
pub(crate) fn measure(
    ferrite: &Path,
    options: &AccessBenchOptions,
    interrupt: &Interrupt,
) -> Result<()> {
    print::heading("access: preparing");
    let folder = tempfile::Builder::new().prefix("ferrite-bench-").tempdir()?;
    let start = |name: &str, arguments: &[&str]| {
        AccessServer::start(ferrite, &folder.path().join(name), arguments)
    };
    let open = start("open", &["--auth", "none", "--tls", "off"])?;
    let secured = start("secured", &["--auth", "local", "--tls", "on"])?;
    let plain = start("plain", &["--auth", "local", "--tls", "off"])?;
    for server in [&open, &secured, &plain] {
        server.enrol(options.nodes)?;
    }
    let tls = Arc::new(BenchTls::trusting(&secured.data.join("ca.pem"))?);
    let (tenant_token, admin_token) = secured.create_tokens()?;
    let (plain_token, _) = plain.create_tokens()?;
    let with_tls =
        |token| secured.client_of("secured", Some(token)).with_tls(Arc::<BenchTls>::clone(&tls));
    let bench = AccessBench {
        options,
        open: open.client_of("open", None),
        tenant: with_tls(tenant_token),
        admin: with_tls(admin_token),
        plain: plain.client_of("plain", Some(plain_token)),
        interrupt,
    };
    bench.check_lists()?;
    print::heading("access: measuring");
    let mut summary = RoundsSummary::default();
    let outcome = bench.measure_all(&plain, &mut summary);
    print::heading("access: figures");
    summary.print("measured", "compared with");
    outcome
}

impl AccessServer {
    fn start(ferrite: &Path, folder: &Path, arguments: &[&str]) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let data = folder.join("data");
        let mut command = Command::new(ferrite);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
        command.args(arguments);
        let process = ServerProcess::start(&mut command, &folder.join("log"))?;
        Ok(Self { process, data })
    }

    fn client_of(&self, label: &'static str, token: Option<String>) -> BenchServer {
        let server = self.server(label);
        match token {
            Some(token) => server.with_header("X-Auth-Token", token),
            None => server,
        }
    }

    fn server(&self, label: &'static str) -> BenchServer {
        BenchServer::new(label, self.process.address(), Some(self.process.pid()), RUN)
    }

    /// A client with full access.
    fn local_client(&self) -> ProbeClient {
        ProbeClient::on_socket(&self.data.join("ferrite.sock"))
    }

    fn create(&self, client: &mut ProbeClient, path: &str, body: &Value) -> Result<Value> {
        let response = client.send_json("POST", path, Some(body))?;
        if response.status != 201 {
            bail!("POST {path}: {} {}", response.status, response.text());
        }
        Ok(response.json())
    }

    /// Creates nodes of the project.
    fn enrol(&self, nodes: usize) -> Result<()> {
        let (server, mut client) = (self.server("setup"), self.local_client());
        for number in 0..nodes {
            let mut node = server.rack_node(number);
            node["owner"] = Value::from(PROJECT);
            self.create(&mut client, "/v1/nodes", &node)?;
        }
        Ok(())
    }

    /// Creates a member of the project and an administrator; returns their API tokens.
    fn create_tokens(&self) -> Result<(String, String)> {
        let mut client = self.local_client();
        self.create(&mut client, "/v1/ferrite/projects", &json!({"name": PROJECT}))?;
        let mut token = |user: &str, role: &str, scope: &str| -> Result<String> {
            let roles = [format!("{role}@{scope}")];
            let body = json!({"name": user, "kind": "service", "roles": roles});
            self.create(&mut client, "/v1/ferrite/users", &body)?;
            let body = json!({"user": user, "scope": scope, "expires_in": 86_400});
            let made = self.create(&mut client, "/v1/ferrite/tokens", &body)?;
            Ok(made["token"].as_str().context("no token in the response")?.to_owned())
        };
        Ok((token("tenant", "member", PROJECT)?, token("operator", "admin", "system")?))
    }
}

impl AccessBench<'_> {
    /// Fails if a list is too short: an empty list would be fast.
    fn check_lists(&self) -> Result<()> {
        for server in [&self.open, &self.tenant, &self.admin, &self.plain] {
            let response = server.client().send("GET", "/v1/nodes?limit=1000", None)?;
            let listed = response.json()["nodes"].as_array().map_or(0, Vec::len);
            ensure!(
                listed == self.options.nodes.min(1000),
                "{} lists {listed} nodes: {} {:.300}",
                server.label,
                response.status,
                response.text()
            );
        }
        Ok(())
    }

    fn measure_all(&self, plain: &AccessServer, summary: &mut RoundsSummary) -> Result<()> {
        for _ in 0..self.options.rounds {
            self.single_nodes(summary)?;
            self.lists(summary)?;
        }
        for source in [GuessSource::OneAddress, GuessSource::ManyAddresses(GUESSING_ADDRESSES)] {
            for _ in 0..self.options.rounds {
                self.guesses(source, summary)?;
            }
        }
        self.sign_ins(plain, summary)
    }

    /// GET of a node with TLS and an API token, and with the token alone, compared with neither.
    fn single_nodes(&self, summary: &mut RoundsSummary) -> Result<()> {
        for at_once in [1, 16] {
            let [secured, plain, open] = [&self.tenant, &self.plain, &self.open].map(|server| {
                self.request(server, steady(at_once), self.options.requests, |number| {
                    let number = number * 7919 % self.options.nodes;
                    format!("/v1/nodes/{}", server.uuid(BenchFleet::Rack, number))
                })
            });
            let (secured, plain, open) = (secured?, plain?, open?);
            for (what, measured, target) in [
                ("TLS and token", &secured, FigureTarget::AtMostShare(1.3)),
                ("token", &plain, FigureTarget::None),
            ] {
                let name = format!("GET node with {what} / open, {at_once} at once");
                add_cpu(summary, 0, &name, measured, target);
                add_cpu(summary, 1, &name, &open, target);
            }
            if at_once == 1 {
                let name = "GET node with TLS and token / open, median latency";
                summary.add(0, name, micros(&secured, 50)?, "us", FigureTarget::None);
                summary.add(1, name, micros(&open, 50)?, "us", FigureTarget::None);
            }
        }
        Ok(())
    }

    /// Lists as a tenant, compared with an administrator.
    fn lists(&self, summary: &mut RoundsSummary) -> Result<()> {
        for (name, path, share) in [
            ("list", "/v1/nodes?limit=1000", 20),
            ("list, four fields", "/v1/nodes?fields=uuid,name,provision_state,power_state", 20),
            ("detail list", "/v1/nodes/detail?limit=1000", 50),
        ] {
            let count = (self.options.requests / share).max(1);
            for (column, server) in [&self.tenant, &self.admin].into_iter().enumerate() {
                let measured = self.request(server, steady(1), count, |_| path.to_owned())?;
                let name = format!("{name} of {} as tenant / admin", self.options.nodes);
                add_cpu(summary, column, &name, &measured, FigureTarget::AtMostShare(1.1));
            }
        }
        Ok(())
    }

    /// GET of a node while passwords are guessed, compared with no guesses.
    fn guesses(&self, source: GuessSource, summary: &mut RoundsSummary) -> Result<()> {
        let rate = self.options.guesses;
        let from = match source {
            GuessSource::OneAddress => "one address".to_owned(),
            GuessSource::ManyAddresses(count) => format!("{count} addresses"),
        };
        let pattern =
            LoadPattern { at_most: Some(Duration::from_secs(self.options.seconds)), ..steady(1) };
        let node = format!("/v1/nodes/{}", self.plain.uuid(BenchFleet::Rack, 0));
        for column in [1, 0] {
            let attack =
                (column == 0).then(|| PasswordGuessing::start(self.plain.address, rate, source));
            let measured = self.request(&self.plain, pattern, usize::MAX, |_| node.clone());
            if let Some(attack) = attack {
                print::line(&attack.finish(rate)?.to_string());
            }
            let measured = measured?;
            for (share, target) in [(50, FigureTarget::None), (99, FigureTarget::AtMostShare(2.0))]
            {
                let name = format!(
                    "GET node, p{share} with {rate} wrong passwords/s from {from} / without"
                );
                summary.add(column, &name, micros(&measured, share)?, "us", target);
            }
        }
        Ok(())
    }

    /// Sign-ins to the web UI: the first of each user, and later ones.
    fn sign_ins(&self, server: &AccessServer, summary: &mut RoundsSummary) -> Result<()> {
        let mut client = server.local_client();
        for number in 0..USERS {
            let user = json!({
                "name": format!("user-{number}"),
                "password": PASSWORD,
                "roles": [format!("member@{PROJECT}")],
            });
            server.create(&mut client, "/v1/ferrite/users", &user)?;
        }
        let page = server.server("plain").with_header("X-Ferrite-Page", "1".to_owned());
        for name in ["first sign-in of a user", "later sign-in of a user"] {
            let measured = send_requests(&page, steady(4), USERS, |number| {
                let user = format!("user-{number}");
                let body = json!({"username": user, "password": PASSWORD});
                LoadRequest::with_body("POST", "/ui/session", &body)
            })?;
            check(&measured)?;
            let rate = measured.operations as f64 / measured.wall.as_secs_f64();
            summary.add(0, &format!("{name}, rate"), rate, "per s", FigureTarget::None);
            add_cpu(summary, 0, &format!("{name}, CPU"), &measured, FigureTarget::None);
        }
        Ok(())
    }

    fn request(
        &self,
        server: &BenchServer,
        pattern: LoadPattern,
        count: usize,
        path: impl Fn(usize) -> String + Sync,
    ) -> Result<LoadMeasurement> {
        if self.interrupt.is_raised() {
            bail!("interrupted");
        }
        let measured =
            send_requests(server, pattern, count, |number| LoadRequest::get(path(number)))?;
        check(&measured)?;
        Ok(measured)
    }
}

/// Persistent connections.
fn steady(at_once: usize) -> LoadPattern {
    LoadPattern { at_once, reconnects: false, at_most: None, expects: ExpectedStatus::Success }
}

/// Fails if a request failed: errors are fast.
fn check(measured: &LoadMeasurement) -> Result<()> {
    match &measured.first_error {
        Some(error) => bail!("{} requests failed: {error}", measured.errors),
        None => Ok(()),
    }
}

fn add_cpu(
    summary: &mut RoundsSummary,
    column: usize,
    name: &str,
    measured: &LoadMeasurement,
    target: FigureTarget,
) {
    let each = measured.server_each().unwrap_or_default();
    summary.add(column, name, each.as_secs_f64() * 1e6, "us CPU", target);
}

fn micros(measured: &LoadMeasurement, percentile: usize) -> Result<f64> {
    let latency = measured.percentile(percentile).context("no request was measured")?;
    Ok(latency.as_secs_f64() * 1e6)
}
