// SPDX-License-Identifier: Apache-2.0
//! A simulated machine with its agents, an API they call, and a caller that does as a conductor
//! does: it writes down what drivers ask for, and calls again when the agent has called.

use std::sync::Arc;
use std::time::Duration;

use bmc_drivers::{
    Driver, DriverSettings, Error, NoBootServices, NodeChanges, Outcome, Registry, Target,
};
use fleet_sim::{AgentConfig, AgentView, Fleet, FleetConfig, Personality, SimulatedMachine};
use node_model::{
    Actor, Agent, InterfaceKind, JsonObject, Node, NodeId, Port, PortId, PowerState, Retry, Secret,
    Silent, Stage, Step, StepFlow, Timestamp, Work, WorkKind,
};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use uuid::Uuid;

use crate::machine::object;

/// How long anything may take before a test is over.
const PATIENCE: Duration = Duration::from_secs(60);

/// A quirk file that takes the rest out of a power cycle, for which no test has the time.
const NO_REST: &str = r#"
[[quirk]]
why = "simulated machines need no rest"
vendor = "*"
[quirk.behaviour]
rest_after_power_off = 0
"#;

/// What an agent said.
enum Call {
    /// It asked who it is, and was given this token.
    Lookup(String),
    Heartbeat(Value),
}

pub(crate) struct Site {
    pub(crate) fleet: Fleet,
    pub(crate) registry: Registry,
    pub(crate) driver: Driver,
    pub(crate) node: Node,
    pub(crate) driver_info: Map<String, Value>,
    pub(crate) instance_info: Map<String, Value>,
    pub(crate) notes: JsonObject,
    /// How much later it is than the clock says.
    pub(crate) later: Duration,
    token: Option<Secret<String>>,
    ports: Vec<Port>,
    calls: UnboundedReceiver<Call>,
    _quirks: TempDir,
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    /// With other agents than the usual ones.
    pub(crate) async fn with(change: impl FnOnce(&mut AgentConfig)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let api = format!("http://{}", listener.local_addr().expect("it is bound"));
        let mut agents = AgentConfig { inspects: false, ..AgentConfig::calling(&api) };
        change(&mut agents);
        let fleet = Fleet::start(FleetConfig {
            personalities: vec![Personality::named("generic").expect("the kind exists")],
            speed: 1_000.0,
            agents: Some(agents),
            ..FleetConfig::default()
        })
        .expect("a fleet starts");
        let quirks = tempfile::tempdir().expect("a folder");
        std::fs::write(quirks.path().join("tests.toml"), NO_REST).expect("a file");
        let mut settings = DriverSettings::default();
        settings.redfish.quirks_dir = Some(quirks.path().to_owned());
        let registry =
            Registry::new(&settings, Arc::new(NoBootServices)).expect("the settings are sound");
        let now = fleet.now();
        let mut node = Node::new(NodeId::random(), "redfish", now);
        for (kind, name) in [
            (InterfaceKind::Boot, "pxe"),
            (InterfaceKind::Deploy, "direct"),
            (InterfaceKind::Raid, "agent"),
            (InterfaceKind::Rescue, "agent"),
        ] {
            node.interfaces.set(kind, Some(name));
        }
        let (tell, calls) = unbounded_channel();
        tokio::spawn(answer_all(listener, node.id, tell));
        let machine = fleet.machine(0).expect("there is one");
        let port = |mac| Port::new(PortId::random(), node.id, mac, now);
        let image = json!({"image_source": "http://127.0.0.1:1/image.raw", "image_checksum": "0".repeat(64)});
        Self {
            driver: registry.compose(&node).expect("the interfaces exist"),
            driver_info: machine.enrolment(None).driver_info.into_iter().collect(),
            instance_info: object(image),
            ports: machine.macs().into_iter().map(port).collect(),
            notes: JsonObject::empty(),
            later: Duration::ZERO,
            token: None,
            fleet,
            registry,
            node,
            calls,
            _quirks: quirks,
        }
    }

    pub(crate) fn machine(&self) -> SimulatedMachine {
        self.fleet.machine(0).expect("there is one")
    }

    /// The agent that runs on it.
    pub(crate) fn agent(&self) -> AgentView {
        self.machine().agent().expect("an agent runs")
    }

    /// How often the agent was told to do this.
    pub(crate) fn times_told(&self, command: &str) -> usize {
        let commands = self.agent().commands();
        commands.iter().filter(|report| report.command_name == command).count()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.fleet.now().plus(self.later)
    }

    pub(crate) fn target(&self) -> Target<'_> {
        Target {
            ports: &self.ports,
            notes: &self.notes,
            agent_token: self.token.as_ref(),
            ..Target::new(
                &self.driver,
                &self.node,
                &self.driver_info,
                &self.instance_info,
                self.now(),
            )
        }
    }

    /// A job is at the first of these steps.
    pub(crate) fn work_on(&mut self, steps: Vec<Step>) {
        self.node.work = Some(Work {
            id: Uuid::from_u128(1),
            kind: WorkKind::Deploy,
            stage: Stage::Run,
            steps,
            cursor: 0,
            awaiting: false,
            heard: false,
            requested_steps: Vec::new(),
            disable_ramdisk: false,
            started_at: self.now(),
            since: self.now(),
            asked_by: Actor::Conductor { hostname: "tests".to_owned() },
            notes: JsonObject::empty(),
            retry: None,
        });
    }

    /// The agent has not answered a first time, now.
    pub(crate) fn found_silent(&mut self) {
        let now = self.now();
        let retry =
            Retry { since: now, tries: 1, at: now, why: String::new(), whom: Silent::Agent };
        self.node.work.as_mut().expect("there is a job").retry = Some(retry);
    }

    pub(crate) fn fault(&self, rule: &str) {
        self.fleet.faults().add(rule.parse().expect("a rule"), self.fleet.now());
    }

    /// Writes down what a driver asked for.
    pub(crate) fn keep(&mut self, changes: &NodeChanges) {
        changes.apply_to(&mut self.node);
        if let Some(notes) = &changes.notes {
            self.notes = notes.clone();
        }
        if changes.agent_is_gone || changes.power_state == Some(PowerState::Off) {
            self.node.agent = Agent::default();
        }
    }

    /// Waits for the agent's next call.
    pub(crate) async fn hear(&mut self) {
        loop {
            let called = tokio::time::timeout(PATIENCE, self.calls.recv()).await;
            match called.expect("the agent calls").expect("the API is there") {
                Call::Lookup(token) => self.token = Some(Secret::new(token)),
                Call::Heartbeat(heartbeat) => {
                    let text = |key: &str| heartbeat[key].as_str().map(str::to_owned);
                    self.node.agent.url = text("callback_url");
                    self.node.agent.verify_ca = text("agent_verify_ca");
                    self.node.agent.last_heartbeat = Some(self.fleet.now());
                    return;
                }
            }
        }
    }

    /// Boots an agent, as a deployment does.
    pub(crate) async fn boot_agent(&mut self) {
        let driver = self.driver.clone();
        let changes = driver.deploy().prepare(&self.target()).await.expect("it is prepared");
        self.keep(&changes);
        let booted = self.step("deploy").await.expect("it boots");
        assert!(matches!(booted, Outcome::WaitForAgent(_)), "{booted:?}");
        self.hear().await;
        let up = self.step("deploy").await.expect("it has called");
        assert!(matches!(up, Outcome::AgentIsUp(_)), "{up:?}");
        self.notes = JsonObject::empty();
        self.list(StepFlow::Deploy).await;
    }

    /// Asks for the steps of a flow.
    pub(crate) async fn list(&mut self, flow: StepFlow) {
        let listed = self.registry.agent_steps(&self.target(), flow).await;
        let (_, changes) = listed.expect("the agent offers steps");
        self.keep(&changes);
    }

    /// One call for a step of the deployment.
    pub(crate) async fn step(&mut self, name: &str) -> Result<Outcome, Error> {
        self.step_of(InterfaceKind::Deploy, StepFlow::Deploy, &Step::new("deploy", name, 0)).await
    }

    /// One call for a step.
    pub(crate) async fn step_of(
        &mut self,
        kind: InterfaceKind,
        flow: StepFlow,
        step: &Step,
    ) -> Result<Outcome, Error> {
        let driver = self.driver.clone();
        let outcome = driver.interface(kind).execute_step(&self.target(), flow, step).await?;
        self.keep(outcome.changes());
        Ok(outcome)
    }

    /// Calls for a step of the deployment until it is done, whenever the agent has called.
    pub(crate) async fn finish(&mut self, name: &str) -> Result<(), Error> {
        let step = Step::new("deploy", name, 0);
        self.finish_of(InterfaceKind::Deploy, StepFlow::Deploy, &step).await
    }

    /// The same for any step.
    pub(crate) async fn finish_of(
        &mut self,
        kind: InterfaceKind,
        flow: StepFlow,
        step: &Step,
    ) -> Result<(), Error> {
        loop {
            match self.step_of(kind, flow, step).await? {
                Outcome::Done(_) | Outcome::AgentIsUp(_) => break,
                // What is due now is not waited for.
                Outcome::AgentWorks { moment, .. } if moment <= self.now() => {}
                Outcome::WaitForAgent(_) | Outcome::AgentWorks { .. } => self.hear().await,
                Outcome::WaitUntil { .. } => tokio::task::yield_now().await,
            }
        }
        self.notes = JsonObject::empty();
        Ok(())
    }

    /// Waits until the machine is as it should be.
    pub(crate) async fn until(&self, condition: impl Fn(&SimulatedMachine) -> bool) {
        let waits = async {
            while !condition(&self.machine()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, waits).await.expect("it comes to pass");
    }
}

/// An API that knows one node, and gives every agent that asks a token of its own.
async fn answer_all(listener: TcpListener, node: NodeId, tell: UnboundedSender<Call>) {
    let mut tokens = 0;
    while let Ok((mut stream, _)) = listener.accept().await {
        let Some((path, body)) = read(&mut stream).await else { continue };
        let (status, answer, call) = if path.starts_with("/v1/lookup") {
            tokens += 1;
            let token = format!("{tokens:032}");
            let config = json!({"heartbeat_timeout": 300, "agent_token": token});
            let answer = json!({"node": {"uuid": node.to_string()}, "config": config});
            ("200 OK", answer.to_string(), Call::Lookup(token))
        } else {
            ("202 Accepted", String::new(), Call::Heartbeat(body))
        };
        let head = "Content-Type: application/json\r\nConnection: close\r\nContent-Length: ";
        let text = format!("HTTP/1.1 {status}\r\n{head}{}\r\n\r\n{answer}", answer.len());
        if stream.write_all(text.as_bytes()).await.is_ok() {
            // A test that has seen enough does not listen any more.
            let _ = tell.send(call);
        }
    }
}

/// The path and the body of a request.
async fn read(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            let path = head.split_whitespace().nth(1)?.to_owned();
            return Some((path, serde_json::from_str(body).unwrap_or_default()));
        }
    }
}
