// SPDX-License-Identifier: Apache-2.0
//! A simulated machine with its agents, an API for them, and a caller that stores the changes of drivers
//! and repeats calls after heartbeats, as a conductor does.

use std::sync::Arc;
use std::time::Duration;

use driver_set::{DriverSettings, build_registry};
use drivers::{
    Driver, DriverError, DriverRegistry, DriverTarget, ExternalBootService, NodeChanges,
    StepOutcome,
};
use fleet_sim::{
    FleetConfig, Personality, SimulatedAgentConfig, SimulatedAgentHandle, SimulatedFleet,
    SimulatedMachine,
};
use node_model::{
    ActionProgress, Actor, AgentInfo, InterfaceKind, JobHints, JsonObject, Node, NodeId, Port,
    PortId, PowerState, Retry, Secret, Stage, Step, StepFlow, Timestamp, UnreachablePeer, Work,
    WorkKind,
};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use uuid::Uuid;

use crate::machine::object;

/// Limit of each wait.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A quirk file that removes the delay of a power cycle, which would slow the tests down.
const NO_POWER_CYCLE_DELAY: &str = r#"
[[quirk]]
reason = "simulated machines need no delay"
vendor = "*"
[quirk.behaviour]
delay_after_power_off = 0
"#;

/// A request of an agent.
enum AgentApiCall {
    /// A lookup, which returned this token.
    Lookup(String),
    Heartbeat(Value),
}

pub(crate) struct AgentTest {
    pub(crate) fleet: SimulatedFleet,
    pub(crate) registry: DriverRegistry,
    pub(crate) driver: Driver,
    pub(crate) node: Node,
    pub(crate) driver_info: Map<String, Value>,
    pub(crate) instance_info: Map<String, Value>,
    pub(crate) driver_state: JsonObject,
    /// Offset of the tests' time from the fleet's clock.
    pub(crate) clock_offset: Duration,
    token: Option<Secret<String>>,
    ports: Vec<Port>,
    calls: UnboundedReceiver<AgentApiCall>,
    _quirks: TempDir,
}

impl AgentTest {
    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    /// With other settings of the simulated agents.
    pub(crate) async fn with(change: impl FnOnce(&mut SimulatedAgentConfig)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let api = format!("http://{}", listener.local_addr().expect("it is bound"));
        let mut agents = SimulatedAgentConfig {
            sends_inspection_data: false,
            ..SimulatedAgentConfig::for_api(&api)
        };
        change(&mut agents);
        let fleet = SimulatedFleet::start(FleetConfig {
            personalities: vec![Personality::built_in("generic").expect("the kind exists")],
            speed: 1_000.0,
            agents: Some(agents),
            ..FleetConfig::default()
        })
        .expect("a fleet starts");
        let quirks = tempfile::tempdir().expect("a folder");
        std::fs::write(quirks.path().join("tests.toml"), NO_POWER_CYCLE_DELAY).expect("a file");
        let mut settings = DriverSettings::default();
        settings.redfish.quirks_dir = Some(quirks.path().to_owned());
        let registry = build_registry(&settings, Arc::new(ExternalBootService))
            .expect("the settings are sound");
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
        let (call_sender, calls) = unbounded_channel();
        tokio::spawn(serve_agent_api(listener, node.id, call_sender));
        let machine = fleet.machine(0).expect("there is one");
        let port = |mac| Port::new(PortId::random(), node.id, mac, now);
        let image = json!({"image_source": "http://127.0.0.1:1/image.raw", "image_checksum": "0".repeat(64)});
        Self {
            driver: registry.compose(&node).expect("the interfaces exist"),
            driver_info: machine.redfish_enrolment(None).driver_info.into_iter().collect(),
            instance_info: object(image),
            ports: machine.macs().into_iter().map(port).collect(),
            driver_state: JsonObject::empty(),
            clock_offset: Duration::ZERO,
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

    /// The agent that runs on the machine.
    pub(crate) fn agent(&self) -> SimulatedAgentHandle {
        self.machine().agent().expect("an agent runs")
    }

    /// The number of commands with this name that the agent got.
    pub(crate) fn command_count(&self, command: &str) -> usize {
        let commands = self.agent().commands();
        commands.iter().filter(|report| report.command_name == command).count()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.fleet.now().plus(self.clock_offset)
    }

    /// The hints that `lifecycle` derives from the job.
    fn job_hints(&self) -> JobHints {
        let Some(work) = &self.node.work else { return JobHints::NONE };
        let retry = work.retry.as_ref().filter(|retry| retry.peer == UnreachablePeer::Agent);
        JobHints {
            may_keep_agent: work.stage == Stage::Finish,
            needs_agent_later: work.steps.iter().skip(1).any(|step| step.requires_ramdisk),
            agent_unreachable_since: retry.map(|retry| retry.since),
        }
    }

    pub(crate) fn target(&self) -> DriverTarget<'_> {
        DriverTarget {
            ports: &self.ports,
            driver_state: &self.driver_state,
            job: self.job_hints(),
            agent_token: self.token.as_ref(),
            ..DriverTarget::new(
                &self.driver,
                &self.node,
                &self.driver_info,
                &self.instance_info,
                self.now(),
            )
        }
    }

    /// Sets a job whose current step is the first of these.
    pub(crate) fn set_job(&mut self, steps: Vec<Step>) {
        let requested_by = Actor::Conductor { hostname: "tests".to_owned() };
        let work = Work::new(Uuid::from_u128(1), WorkKind::Deploy, requested_by, self.now());
        self.node.work = Some(Work { stage: Stage::Run, steps, ..work });
    }

    /// Records that the agent is unreachable since now.
    pub(crate) fn set_agent_unreachable(&mut self) {
        let now = self.now();
        let retry = Retry {
            since: now,
            attempts: 1,
            at: now,
            error: String::new(),
            peer: UnreachablePeer::Agent,
        };
        self.node.work.as_mut().expect("there is a job").retry = Some(retry);
    }

    pub(crate) fn fault(&self, rule: &str) {
        self.fleet.faults().add(rule.parse().expect("a rule"), self.fleet.now());
    }

    /// Stores the changes that a driver returned.
    pub(crate) fn record(&mut self, changes: &NodeChanges) {
        changes.apply_to(&mut self.node);
        changes.apply_to_driver_state(&mut self.driver_state);
        if changes.agent_stopped || changes.power_state == Some(PowerState::Off) {
            self.node.agent = AgentInfo::default();
        }
    }

    /// Waits for the agent's next heartbeat.
    pub(crate) async fn wait_for_heartbeat(&mut self) {
        loop {
            let call = tokio::time::timeout(TEST_TIMEOUT, self.calls.recv()).await;
            match call.expect("the agent calls").expect("the API is there") {
                AgentApiCall::Lookup(token) => self.token = Some(Secret::new(token)),
                AgentApiCall::Heartbeat(heartbeat) => {
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
        self.record(&changes);
        let booted = self.step("deploy").await.expect("it boots");
        assert!(booted.progress == ActionProgress::WaitForAgent, "{booted:?}");
        self.wait_for_heartbeat().await;
        let ready = self.step("deploy").await.expect("it has called");
        assert!(ready.progress == ActionProgress::AgentReady, "{ready:?}");
        self.driver_state = JsonObject::empty();
        self.list_steps(StepFlow::Deploy).await;
    }

    /// Lists the agent's steps of a flow.
    pub(crate) async fn list_steps(&mut self, flow: StepFlow) {
        let listed = self.registry.agent_steps(&self.target(), flow).await;
        let (_, changes) = listed.expect("the agent offers steps");
        self.record(&changes);
    }

    /// One call of a deploy step.
    pub(crate) async fn step(&mut self, name: &str) -> Result<StepOutcome, DriverError> {
        self.run_step_once(InterfaceKind::Deploy, StepFlow::Deploy, &Step::new("deploy", name, 0))
            .await
    }

    /// One call of a step.
    pub(crate) async fn run_step_once(
        &mut self,
        kind: InterfaceKind,
        flow: StepFlow,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        let driver = self.driver.clone();
        let outcome = driver.interface(kind).execute_step(&self.target(), flow, step).await?;
        self.record(&outcome.changes);
        Ok(outcome)
    }

    /// Repeats a deploy step after each heartbeat until it is done.
    pub(crate) async fn finish_deploy_step(&mut self, name: &str) -> Result<(), DriverError> {
        let step = Step::new("deploy", name, 0);
        self.finish_step(InterfaceKind::Deploy, StepFlow::Deploy, &step).await
    }

    /// The same for any step.
    pub(crate) async fn finish_step(
        &mut self,
        kind: InterfaceKind,
        flow: StepFlow,
        step: &Step,
    ) -> Result<(), DriverError> {
        loop {
            match self.run_step_once(kind, flow, step).await?.progress {
                ActionProgress::Done | ActionProgress::AgentReady => break,
                ActionProgress::Checkpoint => {}
                ActionProgress::PollAgentAt(time) if time <= self.now() => {}
                ActionProgress::WaitForAgent | ActionProgress::PollAgentAt(_) => {
                    self.wait_for_heartbeat().await;
                }
                ActionProgress::PollAt(_) => tokio::task::yield_now().await,
                ActionProgress::WaitForInstaller => panic!("there is no installer"),
            }
        }
        self.driver_state = JsonObject::empty();
        Ok(())
    }

    /// Waits until the machine fulfils the condition.
    pub(crate) async fn wait_until(&self, condition: impl Fn(&SimulatedMachine) -> bool) {
        let waits = async {
            while !condition(&self.machine()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, waits).await.expect("the condition is fulfilled");
    }
}

/// An API with one node that returns a new token for every lookup.
async fn serve_agent_api(
    listener: TcpListener,
    node: NodeId,
    call_sender: UnboundedSender<AgentApiCall>,
) {
    let mut tokens = 0;
    while let Ok((mut stream, _)) = listener.accept().await {
        let Some((path, body)) = read_request(&mut stream).await else { continue };
        let (status, response, call) = if path.starts_with("/v1/lookup") {
            tokens += 1;
            let token = format!("{tokens:032}");
            let config = json!({"heartbeat_timeout": 300, "agent_token": token});
            let response = json!({"node": {"uuid": node.to_string()}, "config": config});
            ("200 OK", response.to_string(), AgentApiCall::Lookup(token))
        } else {
            ("202 Accepted", String::new(), AgentApiCall::Heartbeat(body))
        };
        let head = "Content-Type: application/json\r\nConnection: close\r\nContent-Length: ";
        let text = format!("HTTP/1.1 {status}\r\n{head}{}\r\n\r\n{response}", response.len());
        if stream.write_all(text.as_bytes()).await.is_ok() {
            // The receiver is gone when the test has ended.
            let _ = call_sender.send(call);
        }
    }
}

/// The path and the body of a request.
async fn read_request(stream: &mut TcpStream) -> Option<(String, Value)> {
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
