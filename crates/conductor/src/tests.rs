// SPDX-License-Identifier: Apache-2.0
//! The conductor against a real store and fake hardware, with the clock in the test's hand.

mod agents;
mod allocating;
mod asking;
mod booting;
mod consoles;
mod direct;
mod discovering;
mod dying;
mod ending;
mod explaining;
mod family;
mod judging;
mod leases;
mod watching;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bmc_drivers::{BootDesk, DriverSettings, Registry};
use node_model::{
    Actor, Happening, Node, NodeId, PowerState, ProvisionState, Recorded, Timestamp, Verb,
};
use serde_json::{Value, json};
use store::{Clock, JournalQuery, Store};
use tempfile::TempDir;

use crate::{Conductor, Error, ProvisionRequest, Settings, runner};

/// A conductor whose scheduler does not run: the test says when which node is worked on.
pub(crate) struct House {
    pub(crate) conductor: Conductor,
    pub(crate) store: Store,
    now: Arc<AtomicI64>,
    _data: TempDir,
}

impl House {
    pub(crate) fn new() -> Self {
        Self::with(inspection::Settings::default())
    }

    /// One that judges inspection data so.
    pub(crate) fn with(settings: inspection::Settings) -> Self {
        Self::of(settings, registry())
    }

    /// One whose machines boot what this desk lays out.
    pub(crate) fn with_desk(desk: Arc<dyn BootDesk>) -> Self {
        let registry = Registry::new(&DriverSettings::default(), desk).unwrap();
        Self::of(inspection::Settings::default(), registry)
    }

    fn of(settings: inspection::Settings, registry: Registry) -> Self {
        let data = TempDir::new().unwrap();
        let now = Arc::new(AtomicI64::new(1_000_000_000));
        let clock: Clock = {
            let now = now.clone();
            Arc::new(move || Timestamp(now.load(Ordering::SeqCst)))
        };
        let store = Store::open(&store::Settings::in_dir(data.path()), clock.clone()).unwrap();
        let conductor = conductor(&store, registry, "here", settings, clock);
        Self { conductor, store, now, _data: data }
    }

    /// Another process on the same database.
    pub(crate) fn neighbour(&self, hostname: &str) -> Conductor {
        let now = self.now.clone();
        let clock: Clock = Arc::new(move || Timestamp(now.load(Ordering::SeqCst)));
        conductor(&self.store, registry(), hostname, inspection::Settings::default(), clock)
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.now.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }

    /// Enrols a node in `state` with this `driver_info`.
    pub(crate) async fn node(&self, state: ProvisionState, driver_info: Value) -> NodeId {
        self.node_with(state, driver_info, |_| {}).await
    }

    pub(crate) async fn node_with(
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

    pub(crate) async fn ask(&self, id: NodeId, verb: Verb) -> Result<(), Error> {
        self.conductor.provision(id, ProvisionRequest::plain(verb, user())).await
    }

    /// Asks, works on the node until it rests, and answers where it stands.
    pub(crate) async fn through(&self, id: NodeId, verb: Verb) -> ProvisionState {
        self.ask(id, verb).await.unwrap();
        self.work(id).await
    }

    pub(crate) async fn work(&self, id: NodeId) -> ProvisionState {
        runner::run(&self.conductor, id).await;
        self.get(id).await.provision_state
    }

    /// What was noted about a node, and by whom.
    pub(crate) async fn notes(&self, id: NodeId) -> Vec<String> {
        let note = |recorded: Recorded| {
            if let Happening::Noted { by, text } = recorded.entry.what {
                return Some(format!("{by}: {text}"));
            }
            None
        };
        self.journal(id).await.into_iter().filter_map(note).collect()
    }

    pub(crate) async fn journal(&self, id: NodeId) -> Vec<Recorded> {
        let query = JournalQuery { node: Some(id), after: 0, limit: 1000 };
        self.store.read(move |reader| reader.journal(&query)).await.unwrap()
    }
}

fn conductor(
    store: &Store,
    registry: Registry,
    hostname: &str,
    inspection: inspection::Settings,
    clock: Clock,
) -> Conductor {
    Conductor::new(
        store.clone(),
        registry,
        hostname.to_owned(),
        Settings::default(),
        lifecycle::Settings { boot_retry_timeout: 600, ..lifecycle::Settings::default() },
        inspection,
        clock,
    )
}

pub(crate) fn registry() -> Registry {
    Registry::new(&DriverSettings::default(), Arc::new(bmc_drivers::NoBootServices)).unwrap()
}

pub(crate) fn user() -> Actor {
    Actor::User { name: None, request_id: "req-test".to_owned() }
}

#[tokio::test]
async fn a_machine_goes_through_its_life() {
    let house = House::new();
    let id = house.node(ProvisionState::Enroll, json!({})).await;
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
            house.conductor.provision(id, request).await.unwrap();
            assert_eq!(house.work(id).await, state, "{verb}");
        } else {
            assert_eq!(house.through(id, verb).await, state, "{verb}");
        }
        let node = house.get(id).await;
        assert_eq!((node.last_error, node.reservation), (None, None), "{verb}");
    }
    let mut state = "enroll".to_owned();
    for recorded in house.journal(id).await {
        if let Happening::Entered { from, to, .. } = recorded.entry.what {
            assert_eq!(from, state, "the journal skips nothing");
            state = to;
        }
    }
    assert_eq!(state, "active");
}

#[tokio::test]
async fn failing_hardware_says_what_failed_on_which_machine() {
    let house = House::new();
    let broken =
        json!({"fake_deploy_failure": "deploy", "fake_deploy_failure_message": "disk on fire"});
    let id = house.node_with(ProvisionState::Available, broken, |node| {
        node.name = Some("rack1-u7".to_owned());
    });
    let id = id.await;
    assert_eq!(house.through(id, Verb::Active).await, ProvisionState::DeployFail);
    let error = house.get(id).await.last_error.unwrap();
    assert!(error.contains("disk on fire") && error.contains("rack1-u7"), "{error}");
}
