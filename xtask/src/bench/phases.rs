// SPDX-License-Identifier: Apache-2.0
//! What is measured, phase by phase: enrolling, reading, changing, walking, calling home.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http_probe::Client;
use serde_json::json;

use super::Settings;
use super::load::{Expected, Manner, Measured, Request, drive, operate, shortened};
use super::meter::{Usage, resident_mib};
use super::table::{Figure, Table};
use super::target::{Fleet, Target};

/// The polite way: a few connections, kept open.
const STEADY: Manner =
    Manner { at_once: 16, reconnects: false, at_most: None, expects: Expected::Success };
/// One request after the other.
const SINGLE: Manner =
    Manner { at_once: 1, reconnects: false, at_most: None, expects: Expected::Success };
/// How long a walk through states may take before it counts as failed.
const WALK_PATIENCE: Duration = Duration::from_secs(120);

/// One server under measurement, and what is known of it so far.
pub(crate) struct Bench<'a> {
    pub(crate) target: &'a Target,
    pub(crate) column: usize,
    pub(crate) settings: &'a Settings,
    /// How many agents call this server home.
    pub(crate) agents: usize,
    /// Token by number of agent, as given out at the first lookup.
    pub(crate) tokens: BTreeMap<usize, String>,
}

impl Bench<'_> {
    /// What it costs to stand there with nothing to do.
    pub(crate) fn idle(&self, table: &mut Table, when: &str) -> Result<()> {
        let Some(pid) = self.target.pid else { return Ok(()) };
        let (before, began) = (Usage::of(pid)?, Instant::now());
        thread::sleep(self.settings.idle);
        let share = Usage::of(pid)?.since(&before).as_secs_f64() / began.elapsed().as_secs_f64();
        table.add(
            self.column,
            &format!("idle CPU {when}"),
            Figure::Plain(share * 100.0, "% of a core"),
        );
        table.add(
            self.column,
            &format!("idle memory {when}"),
            Figure::Plain(resident_mib(pid)?, "MiB"),
        );
        Ok(())
    }

    /// Nodes and ports are created.
    pub(crate) fn enrol(&self, table: &mut Table) -> Result<()> {
        let target = self.target;
        let nodes = drive(target, STEADY, self.settings.nodes, |number| {
            Request::with_body("POST", "/v1/nodes", &target.rack_node(number))
        })?;
        let failed = nodes.errors;
        let why = nodes.first_error.clone().unwrap_or_default();
        table.add(self.column, "POST node", Figure::Load(nodes));
        if failed > 0 {
            bail!(
                "{failed} nodes could not be created; figures of a smaller fleet would mislead: {why}"
            );
        }
        let ports = drive(target, STEADY, self.settings.nodes, |number| {
            Request::with_body("POST", "/v1/ports", &target.port(Fleet::Rack, number))
        })?;
        table.add(self.column, "POST port", Figure::Load(ports));
        Ok(())
    }

    /// Single nodes, lists and filters are read, and nodes patched.
    pub(crate) fn read_and_patch(&self, table: &mut Table) -> Result<()> {
        self.check_lists()?;
        let nodes = self.settings.nodes;
        // Steps through the fleet so that neighbours in time are not neighbours in the database.
        let some = |number: usize| self.target.uuid(Fleet::Rack, number * 7919 % nodes);
        type Make<'m> = Box<dyn Fn(usize) -> Request + Sync + 'm>;
        let rows: Vec<(&str, Make<'_>)> = vec![
            ("GET /v1", Box::new(|_| Request::get("/v1"))),
            ("GET node", Box::new(|number| Request::get(format!("/v1/nodes/{}", some(number))))),
            (
                "GET node states",
                Box::new(|number| Request::get(format!("/v1/nodes/{}/states", some(number)))),
            ),
            ("list", Box::new(|_| Request::get("/v1/nodes"))),
            (
                "list, four fields",
                Box::new(|_| {
                    Request::get("/v1/nodes?fields=uuid,name,provision_state,power_state")
                }),
            ),
            ("detail list", Box::new(|_| Request::get("/v1/nodes/detail?limit=1000"))),
            (
                "filter by state, none",
                Box::new(|_| Request::get("/v1/nodes?provision_state=active")),
            ),
            (
                "filter by state, all",
                Box::new(|_| Request::get("/v1/nodes?provision_state=enroll")),
            ),
            ("filter by driver, all", Box::new(|_| Request::get("/v1/nodes?driver=fake-hardware"))),
            (
                "filter by owner, a tenth",
                Box::new(|number| Request::get(format!("/v1/nodes?owner=owner-{}", number % 10))),
            ),
            (
                "ports by address",
                Box::new(|number| {
                    Request::get(format!(
                        "/v1/ports?address={}",
                        self.target.mac(Fleet::Rack, number % nodes)
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
                    let node = self.target.uuid(Fleet::Rack, number % nodes);
                    Request::with_body("PATCH", format!("/v1/nodes/{node}"), &patch)
                }),
            ),
        ];
        for (name, make) in rows {
            let budget = Some(self.settings.at_most);
            for manner in [SINGLE, STEADY] {
                let manner = Manner { at_most: budget, ..manner };
                let measured = drive(self.target, manner, self.settings.requests, &make)?;
                let name = format!("{name}, {} at once", manner.at_once);
                table.add(self.column, &name, Figure::Load(measured));
            }
        }
        Ok(())
    }

    /// Nodes go from enroll to active and back, and are switched on and off.
    pub(crate) fn walk(&self, table: &mut Table) -> Result<()> {
        const WALK: [(&str, &str); 4] = [
            ("manage", "manageable"),
            ("provide", "available"),
            ("active", "active"),
            ("deleted", "available"),
        ];
        let walkers = self.settings.walkers.min(self.settings.nodes);
        let mut all = Measured::default();
        for (verb, state) in WALK {
            let measured = operate(self.target, STEADY, walkers, |client, number| {
                let node = self.target.uuid(Fleet::Rack, number);
                change(client, &node, "provision", verb)?;
                arrive(client, &node, "provision_state", state)
            })?;
            all.operations += measured.operations;
            all.server += measured.server;
            all.wall += measured.wall;
            all.errors += measured.errors;
            all.latencies.extend_from_slice(&measured.latencies);
            table.add(self.column, &format!("transition: {verb}"), Figure::Load(measured));
        }
        all.latencies.sort_unstable();
        table.add(self.column, "transition, mean with its polls", Figure::Load(all));
        for power in ["power on", "power off"] {
            let measured = operate(self.target, STEADY, walkers, |client, number| {
                let node = self.target.uuid(Fleet::Rack, number);
                change(client, &node, "power", power)?;
                arrive(client, &node, "power_state", power)
            })?;
            table.add(self.column, power, Figure::Load(measured));
        }
        Ok(())
    }

    /// Agents look themselves up and send heartbeats, politely and all at once.
    pub(crate) fn call_home(&mut self, table: &mut Table) -> Result<()> {
        let (target, agents) = (self.target, self.agents);
        let created = drive(target, STEADY, agents, |number| {
            Request::with_body("POST", "/v1/nodes", &target.agent_node(number))
        })?;
        if created.errors > 0 {
            bail!("agents' nodes cannot be created: {}", created.first_error.unwrap_or_default());
        }
        drive(target, STEADY, agents, |number| {
            Request::with_body("POST", "/v1/ports", &target.port(Fleet::Agents, number))
        })?;
        let tokens = Mutex::new(BTreeMap::new());
        let lookup =
            |number: usize| format!("/v1/lookup?addresses={}", target.mac(Fleet::Agents, number));
        let first = operate(target, STEADY, agents, |client, number| {
            let answer =
                client.send("GET", &lookup(number), None).map_err(|error| error.to_string())?;
            let found = answer.json();
            let Some(token) = found["config"]["agent_token"].as_str() else {
                return Err(format!("no token: {} {}", answer.status, answer.text()));
            };
            tokens.lock().map_err(|_| "poisoned")?.insert(number, token.to_owned());
            Ok(())
        })?;
        table.add(self.column, "lookup, first", Figure::Load(first));
        self.tokens = tokens.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if self.tokens.is_empty() {
            bail!("no agent was given a token");
        }
        let budgeted = Manner { at_most: Some(self.settings.at_most), ..STEADY };
        let requests = self.settings.requests;
        let again =
            drive(target, budgeted, requests, |number| Request::get(lookup(number % agents)))?;
        table.add(self.column, "lookup, again", Figure::Load(again));
        let unknown = drive(
            target,
            Manner { expects: Expected::Exactly(404), ..budgeted },
            requests,
            |number| {
                Request::get(format!(
                    "/v1/lookup?addresses=02:00:00:00:{:02x}:{:02x}",
                    number >> 8 & 255,
                    number & 255
                ))
            },
        )?;
        table.add(self.column, "lookup, unknown", Figure::Load(unknown));
        let heartbeat = |number: usize| self.heartbeat(number % agents);
        let kept = drive(target, budgeted, requests, heartbeat)?;
        table.add(self.column, "heartbeat", Figure::Load(kept));
        let fresh = drive(target, Manner { reconnects: true, ..budgeted }, requests, heartbeat)?;
        table.add(self.column, "heartbeat, new connections", Figure::Load(fresh));
        for burst in self.settings.bursts.iter().copied().filter(|burst| *burst <= agents) {
            let manner = Manner { at_once: burst, reconnects: true, ..STEADY };
            let measured = drive(target, manner, burst, heartbeat)?;
            table.add(
                self.column,
                &format!("heartbeat, {burst} in one instant"),
                Figure::Load(measured),
            );
        }
        Ok(())
    }

    /// Inventories arrive from inspected machines.
    pub(crate) fn inspect(&self, table: &mut Table) -> Result<()> {
        let target = self.target;
        let count = self.settings.walkers.min(self.settings.nodes);
        let sent = operate(target, STEADY, count, |client, number| {
            let node = target.uuid(Fleet::Rack, number);
            let patch = json!([{"op": "add", "path": "/inspect_interface", "value": "agent"}]);
            let answer = client
                .ask("PATCH", &format!("/v1/nodes/{node}"), Some(&patch))
                .map_err(|error| error.to_string())?;
            if answer.status != 200 {
                return Err(format!(
                    "inspect_interface refused: {} {}",
                    answer.status,
                    answer.text()
                ));
            }
            change(client, &node, "provision", "manage")?;
            arrive(client, &node, "provision_state", "manageable")?;
            change(client, &node, "provision", "inspect")?;
            arrive(client, &node, "provision_state", "inspect wait")
        })?;
        if sent.errors > 0 {
            bail!("inspection cannot be started: {}", sent.first_error.unwrap_or_default());
        }
        let bodies: Vec<String> =
            (0..count).map(|number| target.inventory(number).to_string()).collect();
        let measured = operate(target, STEADY, count, |client, number| {
            let body = bodies.get(number).map(String::as_bytes);
            repeat_while_busy(|| client.send("POST", "/v1/continue_inspection", body))?;
            arrive(client, &target.uuid(Fleet::Rack, number), "provision_state", "manageable")
        })?;
        table.add(self.column, "continue_inspection, to the end", Figure::Load(measured));
        Ok(())
    }

    /// Everything is taken away again.
    pub(crate) fn remove(&self, table: &mut Table) -> Result<()> {
        let nodes = self.settings.nodes;
        let measured = drive(self.target, STEADY, nodes, |number| Request {
            method: "DELETE",
            path: format!("/v1/nodes/{}", self.target.uuid(Fleet::Rack, number)),
            body: None,
        })?;
        table.add(self.column, "DELETE node", Figure::Load(measured));
        drive(self.target, STEADY, self.agents, |number| Request {
            method: "DELETE",
            path: format!("/v1/nodes/{}", self.target.uuid(Fleet::Agents, number)),
            body: None,
        })?;
        Ok(())
    }

    fn heartbeat(&self, number: usize) -> Request {
        let token = self.tokens.get(&number).map_or("", String::as_str);
        let body = json!({
            "callback_url": format!("https://10.200.{}.{}:9999", number >> 8 & 255, number & 255),
            "agent_version": "11.2.0",
            "agent_token": token,
        });
        Request::with_body(
            "POST",
            format!("/v1/heartbeat/{}", self.target.uuid(Fleet::Agents, number)),
            &body,
        )
    }

    /// An empty or short list would look fast.
    fn check_lists(&self) -> Result<()> {
        let wanted = self.settings.nodes.min(1000);
        let mut client = self.target.client();
        for path in ["/v1/nodes", "/v1/nodes/detail?limit=1000", "/v1/nodes?driver=fake-hardware"] {
            let answer = client.send("GET", path, None)?;
            let listed = answer.json()["nodes"].as_array().map_or(0, Vec::len);
            if listed < wanted {
                bail!("{}: GET {path} lists {listed} nodes instead of {wanted}", self.target.label);
            }
        }
        Ok(())
    }
}

/// Asks for a state, as often as the node is busy.
fn change(client: &mut Client, node: &str, what: &str, target: &str) -> Result<(), String> {
    let path = format!("/v1/nodes/{node}/states/{what}");
    let body = json!({ "target": target });
    repeat_while_busy(|| client.ask("PUT", &path, Some(&body)))
}

fn repeat_while_busy(
    mut send: impl FnMut() -> std::io::Result<http_probe::Answer>,
) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let answer = send().map_err(|error| error.to_string())?;
        match answer.status {
            200..300 => return Ok(()),
            409 | 503 if began.elapsed() < WALK_PATIENCE => {
                thread::sleep(Duration::from_millis(50))
            }
            status => return Err(format!("{status} {}", shortened(&answer.text()))),
        }
    }
}

/// Looks until a field has the value: after 10, 30, 70, 150 ms and so on, so that looking is not
/// the load.
fn arrive(client: &mut Client, node: &str, field: &str, wanted: &str) -> Result<(), String> {
    let path = format!("/v1/nodes/{node}/states");
    let began = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        let states = client.send("GET", &path, None).map_err(|error| error.to_string())?.json();
        let now = states[field].as_str().unwrap_or_default();
        if now == wanted {
            return Ok(());
        }
        if now.ends_with("failed") || began.elapsed() > WALK_PATIENCE {
            return Err(format!(
                "{node} is {now} instead of {wanted}: {}",
                shortened(&states["last_error"].to_string())
            ));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
