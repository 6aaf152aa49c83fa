// SPDX-License-Identifier: Apache-2.0
//! Tests of the conductor with a real store, fake hardware and a controlled clock.

mod agent_logs;
mod agent_proof;
mod agent_requests;
mod allocations;
mod boot_attempts;
mod consoles;
mod crashes;
mod deployments;
mod direct_calls;
mod explain;
mod inspection_data;
mod job_queue;
mod leases;
mod out_of_band_inspection;
mod power_polls;
mod related_nodes;
mod requested_firmware;
mod rule_requests;
mod scheduler;
mod unknown_machines;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use driver_set::{DriverSettings, build_registry};
use drivers::{BootService, DriverRegistry};
use lifecycle::{LifecycleSettings, ProvisionRequest};
use node_model::{
    Actor, BootProof, JournalEvent, JournalRow, Node, NodeId, PowerState, ProvisionState,
    Timestamp, Verb,
};
use serde_json::{Value, json};
use store::{JournalQuery, Store, StoreClock};
use tempfile::TempDir;

use crate::{AgentCaller, Conductor, ConductorError, ConductorParts, ConductorSettings, runner};

/// A conductor that is not started: the test runs nodes itself.
pub(crate) struct TestConductor {
    pub(crate) conductor: Conductor,
    pub(crate) store: Store,
    now: Arc<AtomicI64>,
    _data: TempDir,
}

impl TestConductor {
    pub(crate) fn new() -> Self {
        Self::with_inspection(inspection::InspectionSettings::default())
    }

    pub(crate) fn with_inspection(inspection: inspection::InspectionSettings) -> Self {
        Self::build(registry(), settings(), inspection)
    }

    pub(crate) fn with_boot_service(boot_service: Arc<dyn BootService>) -> Self {
        let registry = build_registry(&DriverSettings::default(), boot_service).unwrap();
        Self::build(registry, settings(), inspection::InspectionSettings::default())
    }

    pub(crate) fn with_boot_service_and_settings(
        boot_service: Arc<dyn BootService>,
        settings: ConductorSettings,
    ) -> Self {
        let registry = build_registry(&DriverSettings::default(), boot_service).unwrap();
        Self::build(registry, settings, inspection::InspectionSettings::default())
    }

    pub(crate) fn with_settings(settings: ConductorSettings) -> Self {
        Self::build(registry(), settings, inspection::InspectionSettings::default())
    }

    /// With a limit of concurrent deployments and of concurrent cleanings.
    pub(crate) fn with_job_limit(limit: u64) -> Self {
        let mut test = Self::new();
        test.set_job_limit(limit);
        test
    }

    /// Replaces the conductor by one with other limits.
    pub(crate) fn set_job_limit(&mut self, limit: u64) {
        let mut parts = parts(&self.store, "here", self.conductor.clock.clone());
        parts.rules.max_concurrent_deploy = limit;
        parts.rules.max_concurrent_clean = limit;
        self.conductor = Conductor::new(parts);
    }

    fn build(
        registry: DriverRegistry,
        settings: ConductorSettings,
        inspection: inspection::InspectionSettings,
    ) -> Self {
        let data = TempDir::new().unwrap();
        let now = Arc::new(AtomicI64::new(1_000_000_000));
        let clock: StoreClock = {
            let now = now.clone();
            Arc::new(move || Timestamp(now.load(Ordering::SeqCst)))
        };
        let store =
            Store::open_with_clock(&store::StoreSettings::in_dir(data.path()), clock.clone())
                .unwrap();
        let conductor = Conductor::new(ConductorParts {
            registry,
            settings,
            inspection,
            ..parts(&store, "here", clock)
        });
        Self { conductor, store, now, _data: data }
    }

    /// Another process on the same database.
    pub(crate) fn other_process(&self, hostname: &str) -> Conductor {
        Conductor::new(parts(&self.store, hostname, self.conductor.clock.clone()))
    }

    /// Advances the clock.
    pub(crate) fn advance(&self, time: Duration) {
        self.now.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }

    /// Inserts a node in `state` with this `driver_info`.
    pub(crate) async fn insert_node(&self, state: ProvisionState, driver_info: Value) -> NodeId {
        self.insert_node_with(state, driver_info, |_| {}).await
    }

    pub(crate) async fn insert_node_with(
        &self,
        state: ProvisionState,
        driver_info: Value,
        change: impl FnOnce(&mut Node),
    ) -> NodeId {
        let now = Timestamp(self.now.load(Ordering::SeqCst));
        let mut node = Node::new(NodeId::random(), "fake-hardware", now);
        node.provision_state = state;
        node.power_state = Some(PowerState::Off);
        let Value::Object(info) = driver_info else { panic!("driver_info is an object") };
        node.driver_info = info.into();
        self.conductor.registry.resolve("fake-hardware", &mut node.interfaces).unwrap();
        change(&mut node);
        let id = node.id;
        self.store.write(move |tx| tx.insert(&node)).await.unwrap();
        id
    }

    pub(crate) async fn get(&self, id: NodeId) -> Node {
        self.store.read(move |reader| reader.get(id)).await.unwrap().unwrap()
    }

    pub(crate) async fn change(&self, id: NodeId, change: impl Fn(&mut Node) + Send + 'static) {
        self.store
            .write(move |tx| {
                let mut node = tx.get(id)?.unwrap();
                change(&mut node);
                tx.save(&mut node)
            })
            .await
            .unwrap();
    }

    pub(crate) async fn request(&self, id: NodeId, verb: Verb) -> Result<(), ConductorError> {
        self.conductor.provision(id, ProvisionRequest::plain(verb, user())).await
    }

    /// Requests a verb, runs the node until it waits or is idle, and returns its state.
    pub(crate) async fn run_verb(&self, id: NodeId, verb: Verb) -> ProvisionState {
        self.request(id, verb).await.unwrap();
        self.run_node(id).await
    }

    /// Runs the node until it waits or is idle, and returns its state.
    pub(crate) async fn run_node(&self, id: NodeId) -> ProvisionState {
        runner::run(&self.conductor, id).await;
        self.get(id).await.provision_state
    }

    /// Waits until no call holds the node's lease.
    pub(crate) async fn wait_until_released(&self, id: NodeId) -> Node {
        let wait = async {
            loop {
                let node = self.get(id).await;
                if node.reservation.is_none() {
                    return node;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.expect("the call ends")
    }

    /// The notes in the journal of a node, as `by: text`.
    pub(crate) async fn notes(&self, id: NodeId) -> Vec<String> {
        let note = |row: JournalRow| {
            if let JournalEvent::Note { by, text } = row.entry.event {
                return Some(format!("{by}: {text}"));
            }
            None
        };
        self.journal(id).await.into_iter().filter_map(note).collect()
    }

    pub(crate) async fn journal(&self, id: NodeId) -> Vec<JournalRow> {
        let query = JournalQuery { node: Some(id), after: 0, limit: 1000 };
        self.store.read(move |reader| reader.journal(&query)).await.unwrap()
    }
}

pub(crate) fn parts(store: &Store, hostname: &str, clock: StoreClock) -> ConductorParts {
    ConductorParts {
        store: store.clone(),
        registry: registry(),
        hostname: hostname.to_owned(),
        settings: settings(),
        rules: LifecycleSettings { boot_retry_timeout: 600, ..LifecycleSettings::default() },
        inspection: inspection::InspectionSettings::default(),
        clock,
    }
}

/// Settings for agents without a boot service, which have no boot proof.
pub(crate) fn settings() -> ConductorSettings {
    ConductorSettings { agent_boot_proof: BootProof::None, ..ConductorSettings::default() }
}

/// The address in the callback URLs of agents.
pub(crate) const AGENT_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// The sender of an agent's request without a boot secret.
pub(crate) fn agent_at(address: IpAddr) -> AgentCaller {
    AgentCaller { address: Some(address), secret: None, request_id: "req-agent".to_owned() }
}

pub(crate) fn registry() -> DriverRegistry {
    build_registry(&DriverSettings::default(), Arc::new(drivers::ExternalBootService)).unwrap()
}

pub(crate) fn user() -> Actor {
    Actor::User { name: None, project: None, request_id: "req-test".to_owned() }
}

#[tokio::test]
async fn node_passes_through_all_jobs() {
    let test = TestConductor::new();
    let id = test.insert_node(ProvisionState::Enroll, json!({})).await;
    for (verb, state) in [
        (Verb::Manage, ProvisionState::Manageable),
        (Verb::Inspect, ProvisionState::Manageable),
        (Verb::Provide, ProvisionState::Available),
        (Verb::Active, ProvisionState::Active),
        (Verb::Rescue, ProvisionState::Rescue),
        (Verb::Unrescue, ProvisionState::Active),
        (Verb::Rebuild, ProvisionState::Active),
        (Verb::Deleted, ProvisionState::Available),
        (Verb::Manage, ProvisionState::Manageable),
        (Verb::Adopt, ProvisionState::Active),
    ] {
        if verb == Verb::Rescue {
            let mut request = ProvisionRequest::plain(verb, user());
            request.rescue_password = Some("secret".to_owned());
            test.conductor.provision(id, request).await.unwrap();
            assert_eq!(test.run_node(id).await, state, "{verb}");
        } else {
            assert_eq!(test.run_verb(id, verb).await, state, "{verb}");
        }
        let node = test.get(id).await;
        assert_eq!((node.last_error, node.reservation), (None, None), "{verb}");
    }
    let mut state = "enroll".to_owned();
    for row in test.journal(id).await {
        if let JournalEvent::StateChanged { from, to, .. } = row.entry.event {
            assert_eq!(from, state, "the journal is complete");
            state = to;
        }
    }
    assert_eq!(state, "active");
}

#[tokio::test]
async fn last_error_names_the_node_and_the_cause() {
    let test = TestConductor::new();
    let info =
        json!({"fake_deploy_failure": "deploy", "fake_deploy_failure_message": "disk on fire"});
    let named = |node: &mut Node| node.name = Some("rack1-u7".to_owned());
    let id = test.insert_node_with(ProvisionState::Available, info, named).await;
    assert_eq!(test.run_verb(id, Verb::Active).await, ProvisionState::DeployFail);
    let error = test.get(id).await.last_error.unwrap();
    assert!(error.contains("disk on fire") && error.contains("rack1-u7"), "{error}");
}
