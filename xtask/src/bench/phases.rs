// SPDX-License-Identifier: Apache-2.0
//! The phases of the API benchmark: enrol, read, change, provision, agents, inspect.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http_probe::ProbeClient;
use serde_json::json;

use super::ApiBenchSettings;
use super::bench_server::{BenchFleet, BenchServer};
use super::load::{
    ExpectedStatus, LoadMeasurement, LoadPattern, LoadRequest, run_operations, send_requests,
    truncate,
};
use super::meter::{CpuUsage, resident_mib};
use super::table::{FigureTable, TableFigure};

/// A few persistent connections.
const STEADY: LoadPattern =
    LoadPattern { at_once: 16, reconnects: false, at_most: None, expects: ExpectedStatus::Success };
/// One request after the other.
const SINGLE: LoadPattern =
    LoadPattern { at_once: 1, reconnects: false, at_most: None, expects: ExpectedStatus::Success };
/// A longer state change counts as failed.
const TRANSITION_TIMEOUT: Duration = Duration::from_secs(120);

/// The measurement of one server.
pub(crate) struct ApiBench<'a> {
    pub(crate) target: &'a BenchServer,
    pub(crate) column: usize,
    pub(crate) settings: &'a ApiBenchSettings,
    /// Number of agents that connect.
    pub(crate) agents: usize,
    /// The token of each agent, from its first lookup.
    pub(crate) tokens: BTreeMap<usize, String>,
}

impl ApiBench<'_> {
    /// Processor time and memory of the idle server.
    pub(crate) fn idle(&self, table: &mut FigureTable, when: &str) -> Result<()> {
        let Some(pid) = self.target.pid else { return Ok(()) };
        let (before, started) = (CpuUsage::of(pid)?, Instant::now());
        thread::sleep(self.settings.idle);
        let share =
            CpuUsage::of(pid)?.since(&before).as_secs_f64() / started.elapsed().as_secs_f64();
        table.add(
            self.column,
            &format!("idle CPU {when}"),
            TableFigure::Plain(share * 100.0, "% of a core"),
        );
        table.add(
            self.column,
            &format!("idle memory {when}"),
            TableFigure::Plain(resident_mib(pid)?, "MiB"),
        );
        Ok(())
    }

    /// Creates nodes and ports.
    pub(crate) fn enrol(&self, table: &mut FigureTable) -> Result<()> {
        let target = self.target;
        let nodes = send_requests(target, STEADY, self.settings.nodes, |number| {
            LoadRequest::with_body("POST", "/v1/nodes", &target.rack_node(number))
        })?;
        let failed = nodes.errors;
        let why = nodes.first_error.clone().unwrap_or_default();
        table.add(self.column, "POST node", TableFigure::Load(nodes));
        if failed > 0 {
            bail!(
                "{failed} nodes could not be created; figures of a smaller fleet would mislead: {why}"
            );
        }
        let ports = send_requests(target, STEADY, self.settings.nodes, |number| {
            LoadRequest::with_body("POST", "/v1/ports", &target.port(BenchFleet::Rack, number))
        })?;
        table.add(self.column, "POST port", TableFigure::Load(ports));
        Ok(())
    }

    /// Reads single nodes and lists with filters, and patches nodes.
    pub(crate) fn read_and_patch(&self, table: &mut FigureTable) -> Result<()> {
        self.check_lists()?;
        let nodes = self.settings.nodes;
        // Consecutive requests address distant rows of the database.
        let some = |number: usize| self.target.uuid(BenchFleet::Rack, number * 7919 % nodes);
        type Make<'m> = Box<dyn Fn(usize) -> LoadRequest + Sync + 'm>;
        let rows: Vec<(&str, Make<'_>)> = vec![
            ("GET /v1", Box::new(|_| LoadRequest::get("/v1"))),
            (
                "GET node",
                Box::new(|number| LoadRequest::get(format!("/v1/nodes/{}", some(number)))),
            ),
            (
                "GET node states",
                Box::new(|number| LoadRequest::get(format!("/v1/nodes/{}/states", some(number)))),
            ),
            ("list", Box::new(|_| LoadRequest::get("/v1/nodes"))),
            (
                "list, four fields",
                Box::new(|_| {
                    LoadRequest::get("/v1/nodes?fields=uuid,name,provision_state,power_state")
                }),
            ),
            ("detail list", Box::new(|_| LoadRequest::get("/v1/nodes/detail?limit=1000"))),
            (
                "filter by state, none",
                Box::new(|_| LoadRequest::get("/v1/nodes?provision_state=active")),
            ),
            (
                "filter by state, all",
                Box::new(|_| LoadRequest::get("/v1/nodes?provision_state=enroll")),
            ),
            (
                "filter by driver, all",
                Box::new(|_| LoadRequest::get("/v1/nodes?driver=fake-hardware")),
            ),
            (
                "filter by owner, a tenth",
                Box::new(|number| {
                    LoadRequest::get(format!("/v1/nodes?owner=owner-{}", number % 10))
                }),
            ),
            (
                "ports by address",
                Box::new(|number| {
                    LoadRequest::get(format!(
                        "/v1/ports?address={}",
                        self.target.mac(BenchFleet::Rack, number % nodes)
                    ))
                }),
            ),
            (
                "PATCH node",
                Box::new(|number| {
                    let patch = json!([
                        {"op": "add", "path": "/extra/k", "value": number},
                        {"op": "replace", "path": "/description", "value": format!("d{number}")},
                    ]);
                    let node = self.target.uuid(BenchFleet::Rack, number % nodes);
                    LoadRequest::with_body("PATCH", format!("/v1/nodes/{node}"), &patch)
                }),
            ),
        ];
        for (name, make) in rows {
            let budget = Some(self.settings.at_most);
            for manner in [SINGLE, STEADY] {
                let manner = LoadPattern { at_most: budget, ..manner };
                let measured = send_requests(self.target, manner, self.settings.requests, &make)?;
                let name = format!("{name}, {} at once", manner.at_once);
                table.add(self.column, &name, TableFigure::Load(measured));
            }
        }
        Ok(())
    }

    /// Provisions nodes from enroll to active and back, and changes their power state.
    pub(crate) fn change_states(&self, table: &mut FigureTable) -> Result<()> {
        const TRANSITIONS: [(&str, &str); 4] = [
            ("manage", "manageable"),
            ("provide", "available"),
            ("active", "active"),
            ("deleted", "available"),
        ];
        let provisioned = self.settings.provisioned.min(self.settings.nodes);
        let mut all = LoadMeasurement::default();
        for (verb, state) in TRANSITIONS {
            let measured = run_operations(self.target, STEADY, provisioned, |client, number| {
                let node = self.target.uuid(BenchFleet::Rack, number);
                request_state(client, &node, "provision", verb)?;
                wait_for_value(client, &node, "provision_state", state)
            })?;
            all.operations += measured.operations;
            all.server += measured.server;
            all.wall += measured.wall;
            all.errors += measured.errors;
            all.latencies.extend_from_slice(&measured.latencies);
            table.add(self.column, &format!("transition: {verb}"), TableFigure::Load(measured));
        }
        all.latencies.sort_unstable();
        table.add(self.column, "transition, mean with its polls", TableFigure::Load(all));
        for power in ["power on", "power off"] {
            let measured = run_operations(self.target, STEADY, provisioned, |client, number| {
                let node = self.target.uuid(BenchFleet::Rack, number);
                request_state(client, &node, "power", power)?;
                wait_for_value(client, &node, "power_state", power)
            })?;
            table.add(self.column, power, TableFigure::Load(measured));
        }
        Ok(())
    }

    /// Agents send lookups and heartbeats, over a few connections and all at once.
    pub(crate) fn agents_connect(&mut self, table: &mut FigureTable) -> Result<()> {
        let (target, agents) = (self.target, self.agents);
        let created = send_requests(target, STEADY, agents, |number| {
            LoadRequest::with_body("POST", "/v1/nodes", &target.agent_node(number))
        })?;
        if created.errors > 0 {
            bail!("agents' nodes cannot be created: {}", created.first_error.unwrap_or_default());
        }
        send_requests(target, STEADY, agents, |number| {
            LoadRequest::with_body("POST", "/v1/ports", &target.port(BenchFleet::Agents, number))
        })?;
        let tokens = Mutex::new(BTreeMap::new());
        let lookup = |number: usize| {
            format!("/v1/lookup?addresses={}", target.mac(BenchFleet::Agents, number))
        };
        let first = run_operations(target, STEADY, agents, |client, number| {
            let response =
                client.send("GET", &lookup(number), None).map_err(|error| error.to_string())?;
            let found = response.json();
            let Some(token) = found["config"]["agent_token"].as_str() else {
                return Err(format!("no token: {} {}", response.status, response.text()));
            };
            tokens.lock().map_err(|_| "poisoned")?.insert(number, token.to_owned());
            Ok(())
        })?;
        table.add(self.column, "lookup, first", TableFigure::Load(first));
        self.tokens = tokens.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if self.tokens.is_empty() {
            bail!("no agent was given a token");
        }
        let budgeted = LoadPattern { at_most: Some(self.settings.at_most), ..STEADY };
        let requests = self.settings.requests;
        let again = send_requests(target, budgeted, requests, |number| {
            LoadRequest::get(lookup(number % agents))
        })?;
        table.add(self.column, "lookup, again", TableFigure::Load(again));
        let unknown = send_requests(
            target,
            LoadPattern { expects: ExpectedStatus::Exactly(404), ..budgeted },
            requests,
            |number| {
                LoadRequest::get(format!(
                    "/v1/lookup?addresses=02:00:00:00:{:02x}:{:02x}",
                    number >> 8 & 255,
                    number & 255
                ))
            },
        )?;
        table.add(self.column, "lookup, unknown", TableFigure::Load(unknown));
        let heartbeat = |number: usize| self.heartbeat(number % agents);
        let kept = send_requests(target, budgeted, requests, heartbeat)?;
        table.add(self.column, "heartbeat", TableFigure::Load(kept));
        let fresh = send_requests(
            target,
            LoadPattern { reconnects: true, ..budgeted },
            requests,
            heartbeat,
        )?;
        table.add(self.column, "heartbeat, new connections", TableFigure::Load(fresh));
        for burst in self.settings.bursts.iter().copied().filter(|burst| *burst <= agents) {
            let manner = LoadPattern { at_once: burst, reconnects: true, ..STEADY };
            let measured = send_requests(target, manner, burst, heartbeat)?;
            table.add(
                self.column,
                &format!("heartbeat, {burst} in one instant"),
                TableFigure::Load(measured),
            );
        }
        Ok(())
    }

    /// Inspected machines send their inventories.
    pub(crate) fn inspect(&self, table: &mut FigureTable) -> Result<()> {
        let target = self.target;
        let count = self.settings.provisioned.min(self.settings.nodes);
        let sent = run_operations(target, STEADY, count, |client, number| {
            let node = target.uuid(BenchFleet::Rack, number);
            let patch = json!([{"op": "add", "path": "/inspect_interface", "value": "agent"}]);
            let response = client
                .send_json("PATCH", &format!("/v1/nodes/{node}"), Some(&patch))
                .map_err(|error| error.to_string())?;
            if response.status != 200 {
                return Err(format!(
                    "inspect_interface refused: {} {}",
                    response.status,
                    response.text()
                ));
            }
            request_state(client, &node, "provision", "manage")?;
            wait_for_value(client, &node, "provision_state", "manageable")?;
            request_state(client, &node, "provision", "inspect")?;
            wait_for_value(client, &node, "provision_state", "inspect wait")
        })?;
        if sent.errors > 0 {
            bail!("inspection cannot be started: {}", sent.first_error.unwrap_or_default());
        }
        let bodies: Vec<String> =
            (0..count).map(|number| target.inventory(number).to_string()).collect();
        let measured = run_operations(target, STEADY, count, |client, number| {
            let body = bodies.get(number).map(String::as_bytes);
            repeat_while_busy(|| client.send("POST", "/v1/continue_inspection", body))?;
            wait_for_value(
                client,
                &target.uuid(BenchFleet::Rack, number),
                "provision_state",
                "manageable",
            )
        })?;
        table.add(self.column, "continue_inspection, to the end", TableFigure::Load(measured));
        Ok(())
    }

    /// Deletes all nodes.
    pub(crate) fn remove(&self, table: &mut FigureTable) -> Result<()> {
        let nodes = self.settings.nodes;
        let measured = send_requests(self.target, STEADY, nodes, |number| LoadRequest {
            method: "DELETE",
            path: format!("/v1/nodes/{}", self.target.uuid(BenchFleet::Rack, number)),
            body: None,
        })?;
        table.add(self.column, "DELETE node", TableFigure::Load(measured));
        send_requests(self.target, STEADY, self.agents, |number| LoadRequest {
            method: "DELETE",
            path: format!("/v1/nodes/{}", self.target.uuid(BenchFleet::Agents, number)),
            body: None,
        })?;
        Ok(())
    }

    fn heartbeat(&self, number: usize) -> LoadRequest {
        let token = self.tokens.get(&number).map_or("", String::as_str);
        let body = json!({
            "callback_url": format!("https://10.200.{}.{}:9999", number >> 8 & 255, number & 255),
            "agent_version": "11.2.0",
            "agent_token": token,
        });
        LoadRequest::with_body(
            "POST",
            format!("/v1/heartbeat/{}", self.target.uuid(BenchFleet::Agents, number)),
            &body,
        )
    }

    /// Fails if a list is too short: an empty list would be fast.
    fn check_lists(&self) -> Result<()> {
        let wanted = self.settings.nodes.min(1000);
        let mut client = self.target.client();
        for path in ["/v1/nodes", "/v1/nodes/detail?limit=1000", "/v1/nodes?driver=fake-hardware"] {
            let response = client.send("GET", path, None)?;
            let listed = response.json()["nodes"].as_array().map_or(0, Vec::len);
            if listed < wanted {
                bail!("{}: GET {path} lists {listed} nodes instead of {wanted}", self.target.label);
            }
        }
        Ok(())
    }
}

/// Requests a state, and repeats the request while the node is locked.
fn request_state(
    client: &mut ProbeClient,
    node: &str,
    what: &str,
    target: &str,
) -> Result<(), String> {
    let path = format!("/v1/nodes/{node}/states/{what}");
    let body = json!({ "target": target });
    repeat_while_busy(|| client.send_json("PUT", &path, Some(&body)))
}

fn repeat_while_busy(
    mut send: impl FnMut() -> std::io::Result<http_probe::ProbeResponse>,
) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let response = send().map_err(|error| error.to_string())?;
        match response.status {
            200..300 => return Ok(()),
            409 | 503 if started.elapsed() < TRANSITION_TIMEOUT => {
                thread::sleep(Duration::from_millis(50))
            }
            status => return Err(format!("{status} {}", truncate(&response.text()))),
        }
    }
}

/// Polls until a field has the value. The interval doubles from 10 ms to 1 s, so that polling is not
/// the load.
fn wait_for_value(
    client: &mut ProbeClient,
    node: &str,
    field: &str,
    wanted: &str,
) -> Result<(), String> {
    let path = format!("/v1/nodes/{node}/states");
    let started = Instant::now();
    let mut interval = Duration::from_millis(10);
    loop {
        let states = client.send("GET", &path, None).map_err(|error| error.to_string())?.json();
        let now = states[field].as_str().unwrap_or_default();
        if now == wanted {
            return Ok(());
        }
        if now.ends_with("failed") || started.elapsed() > TRANSITION_TIMEOUT {
            return Err(format!(
                "{node} is {now} instead of {wanted}: {}",
                truncate(&states["last_error"].to_string())
            ));
        }
        thread::sleep(interval);
        interval = (interval * 2).min(Duration::from_secs(1));
    }
}
