// SPDX-License-Identifier: Apache-2.0
//! A simulated machine, its node, and the driver between them.

use std::sync::Arc;

use agent_driver::AgentDriverSettings;
use drivers::{
    BmcCallLog, BootService, Driver, DriverRegistry, DriverTarget, EnabledDrivers,
    ExternalBootService, NodeChanges, RegistryBuilder,
};
use fake_driver::FakeSettings;
use fleet_sim::{FleetConfig, Personality, SimulatedFleet, SimulatedMachine};
use node_model::{InterfaceKind, Node, NodeId, PowerTarget, Timestamp};
use redfish_driver::RedfishSettings;
use serde_json::{Map, Value};
use tempfile::TempDir;

/// Speed factor of the simulated machines: a minute takes 60 ms.
pub(crate) const SPEED: f64 = 1000.0;

/// A quirk file without power-off delay, which would make the tests slow.
const NO_POWER_OFF_DELAY: &str = r#"
[[quirk]]
reason = "simulated machines need no delay"
vendor = "*"
[quirk.behaviour]
delay_after_power_off = 0
"#;

pub(crate) struct RedfishRig {
    pub(crate) fleet: SimulatedFleet,
    pub(crate) node: Node,
    pub(crate) driver_info: Map<String, Value>,
    pub(crate) driver: Driver,
    /// The requests to the BMC.
    pub(crate) calls: Arc<BmcCallLog>,
    pub(crate) instance_info: Map<String, Value>,
    pub(crate) registry: DriverRegistry,
    _quirks: TempDir,
}

impl RedfishRig {
    /// A machine of a built-in personality.
    pub(crate) fn named(kind: &str) -> Self {
        Self::with_personality(Personality::built_in(kind).expect("the personality exists"))
    }

    /// A machine of this personality.
    pub(crate) fn with_personality(personality: Personality) -> Self {
        Self::with_boot_service(personality, Arc::new(ExternalBootService))
    }

    /// A machine of this personality with this boot service.
    pub(crate) fn with_boot_service(
        personality: Personality,
        boot_service: Arc<dyn BootService>,
    ) -> Self {
        let personalities = vec![personality];
        let fleet = SimulatedFleet::start(FleetConfig {
            personalities,
            speed: SPEED,
            ..Default::default()
        })
        .expect("a fleet starts");
        let quirks = tempfile::tempdir().expect("a folder");
        std::fs::write(quirks.path().join("tests.toml"), NO_POWER_OFF_DELAY).expect("a file");
        let quirks_dir = Some(quirks.path().to_owned());
        let registry =
            registry(&RedfishSettings { quirks_dir, ..Default::default() }, boot_service);
        let mut node = Node::new(NodeId::random(), "redfish", Timestamp(0));
        node.interfaces.set(InterfaceKind::Boot, Some("redfish-virtual-media"));
        let machine = fleet.machine(0).expect("there is one");
        Self {
            driver: registry.compose(&node).expect("the driver is enabled"),
            driver_info: machine.redfish_enrolment(None).driver_info.into_iter().collect(),
            fleet,
            node,
            calls: Arc::default(),
            instance_info: Map::new(),
            registry,
            _quirks: quirks,
        }
    }

    /// Selects another implementation.
    pub(crate) fn set_interface(&mut self, kind: InterfaceKind, name: &str) {
        self.node.interfaces.set(kind, Some(name));
        self.driver = self.registry.compose(&self.node).expect("it is enabled");
    }

    /// Changes the hardware type to `idrac`, with virtual media.
    pub(crate) fn use_idrac(&mut self) {
        self.node.driver = "idrac".to_owned();
        self.set_interface(InterfaceKind::Boot, "idrac-redfish-virtual-media");
    }

    pub(crate) fn machine(&self) -> SimulatedMachine {
        self.fleet.machine(0).expect("there is one")
    }

    pub(crate) fn target(&self) -> DriverTarget<'_> {
        let now = self.fleet.now();
        let mut target = DriverTarget::new(
            &self.driver,
            &self.node,
            &self.driver_info,
            &self.instance_info,
            now,
        );
        target.call_log = Some(&self.calls);
        target
    }

    /// Changes the power state and waits for it.
    pub(crate) async fn power(&self, wanted: PowerTarget) {
        let set = self.driver.power().set(&self.target(), wanted, None).await;
        let changes = set.unwrap_or_else(|error| panic!("{wanted}: {error}"));
        assert_eq!(changes.power_state, Some(wanted.state()));
    }

    /// Applies the changes of a driver call to the node, as the conductor does.
    pub(crate) fn apply(&mut self, changes: &NodeChanges) {
        changes.apply_to(&mut self.node);
    }

    /// The requests since the last call except GETs and logins, as `POST …/Reset 204`.
    pub(crate) fn writes(&self) -> Vec<String> {
        let (calls, _) = self.calls.take();
        let is_write = |what: &str| !what.starts_with("GET") && !what.contains("/Sessions");
        let writes = calls.iter().filter(|call| is_write(&call.request));
        writes.map(|call| format!("{} {}", call.request, call.result)).collect()
    }

    /// Adds a fault rule of the simulator.
    pub(crate) fn fault(&self, rule: &str) {
        self.fleet.faults().add(rule.parse().expect("a rule"), self.fleet.now());
    }
}

/// A registry with the hardware types `redfish` and `idrac` and what they need of the other drivers.
fn registry(settings: &RedfishSettings, boot_service: Arc<dyn BootService>) -> DriverRegistry {
    let enabled = EnabledDrivers::new(&["redfish", "idrac"].map(str::to_owned), |kind| {
        let names: &[&str] = match kind {
            InterfaceKind::Firmware => &["redfish"],
            InterfaceKind::Bios
            | InterfaceKind::Inspect
            | InterfaceKind::Management
            | InterfaceKind::Power
            | InterfaceKind::Raid
            | InterfaceKind::Vendor => &["redfish", "idrac-redfish"],
            InterfaceKind::Boot => &[
                "ipxe",
                "pxe",
                "http-ipxe",
                "http",
                "redfish-virtual-media",
                "idrac-redfish-virtual-media",
                "redfish-https",
                "automatic",
            ],
            InterfaceKind::Console => &["no-console"],
            InterfaceKind::Deploy => &["direct", "ramdisk"],
            InterfaceKind::Network | InterfaceKind::Storage => &["noop"],
            InterfaceKind::Rescue => &["no-rescue"],
        };
        (names.iter().map(|name| (*name).to_owned()).collect(), None)
    });
    let mut builder = RegistryBuilder::new(enabled, boot_service, 1);
    fake_driver::register(&mut builder, &FakeSettings::default()).expect("the defaults work");
    redfish_driver::register(&mut builder, settings).expect("the quirks are valid");
    agent_driver::register(&mut builder, &AgentDriverSettings::default())
        .expect("the defaults work");
    builder.build().expect("the drivers are complete")
}
