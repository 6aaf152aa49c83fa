// SPDX-License-Identifier: Apache-2.0
//! A simulated machine, the node that stands for it, and the driver between them.

use std::sync::Arc;

use bmc_drivers::{
    BootDesk, CallLog, Driver, DriverSettings, NoBootServices, NodeChanges, Registry, Target,
};
use fleet_sim::{Fleet, FleetConfig, Personality, SimulatedMachine};
use node_model::{InterfaceKind, Node, NodeId, PowerTarget, Timestamp};
use serde_json::{Map, Value};
use tempfile::TempDir;

/// How many times faster than real ones the machines are: a minute takes 60 ms.
pub(crate) const SPEED: f64 = 1000.0;

/// A quirk file that takes the rest out of a power cycle, for which no test has the time.
const NO_REST: &str = r#"
[[quirk]]
why = "simulated machines need no rest"
vendor = "*"
[quirk.behaviour]
rest_after_power_off = 0
"#;

pub(crate) struct Rig {
    pub(crate) fleet: Fleet,
    pub(crate) node: Node,
    pub(crate) driver_info: Map<String, Value>,
    pub(crate) driver: Driver,
    /// What was said to the BMC.
    pub(crate) calls: Arc<CallLog>,
    pub(crate) instance_info: Map<String, Value>,
    pub(crate) registry: Registry,
    _quirks: TempDir,
}

impl Rig {
    /// A machine of one of the kinds that come with the simulator.
    pub(crate) fn named(kind: &str) -> Self {
        Self::of(Personality::named(kind).expect("the kind exists"))
    }

    /// A machine of this kind.
    pub(crate) fn of(personality: Personality) -> Self {
        Self::at(personality, Arc::new(NoBootServices))
    }

    /// A machine of this kind, which boots what is laid out at `desk`.
    pub(crate) fn at(personality: Personality, desk: Arc<dyn BootDesk>) -> Self {
        let personalities = vec![personality];
        let fleet = Fleet::start(FleetConfig { personalities, speed: SPEED, ..Default::default() })
            .expect("a fleet starts");
        let quirks = tempfile::tempdir().expect("a folder");
        std::fs::write(quirks.path().join("tests.toml"), NO_REST).expect("a file");
        let mut settings = DriverSettings::default();
        settings.redfish.quirks_dir = Some(quirks.path().to_owned());
        let registry = Registry::new(&settings, desk).expect("the settings are sound");
        let mut node = Node::new(NodeId::random(), "redfish", Timestamp(0));
        node.interfaces.set(InterfaceKind::Boot, Some("redfish-virtual-media"));
        let machine = fleet.machine(0).expect("there is one");
        Self {
            driver: registry.compose(&node).expect("the driver is enabled"),
            driver_info: machine.enrolment(None).driver_info.into_iter().collect(),
            fleet,
            node,
            calls: Arc::default(),
            instance_info: Map::new(),
            registry,
            _quirks: quirks,
        }
    }

    /// Makes the node use another implementation.
    pub(crate) fn choose(&mut self, kind: InterfaceKind, name: &str) {
        self.node.interfaces.set(kind, Some(name));
        self.driver = self.registry.compose(&self.node).expect("it is enabled");
    }

    pub(crate) fn machine(&self) -> SimulatedMachine {
        self.fleet.machine(0).expect("there is one")
    }

    pub(crate) fn target(&self) -> Target<'_> {
        let now = self.fleet.now();
        let mut target =
            Target::new(&self.driver, &self.node, &self.driver_info, &self.instance_info, now);
        target.calls = Some(&self.calls);
        target
    }

    /// Brings the machine there.
    pub(crate) async fn power(&self, wanted: PowerTarget) {
        let set = self.driver.power().set(&self.target(), wanted, None).await;
        let changes = set.unwrap_or_else(|error| panic!("{wanted}: {error}"));
        assert_eq!(changes.power_state, Some(wanted.state()));
    }

    /// Keeps what a call changed, as a conductor does.
    pub(crate) fn keep(&mut self, changes: &NodeChanges) {
        changes.apply_to(&mut self.node);
    }

    /// The requests since the last time that were neither looks nor logins, as `POST …/Reset 204`.
    pub(crate) fn deeds(&self) -> Vec<String> {
        let (calls, _) = self.calls.take();
        let is_deed = |what: &str| !what.starts_with("GET") && !what.contains("/Sessions");
        let deeds = calls.iter().filter(|call| is_deed(&call.what));
        deeds.map(|call| format!("{} {}", call.what, call.result)).collect()
    }

    /// Makes something go wrong, in the simulator's words.
    pub(crate) fn fault(&self, rule: &str) {
        self.fleet.faults().add(rule.parse().expect("a rule"), self.fleet.now());
    }
}
