// SPDX-License-Identifier: Apache-2.0
//! A node with its driver, and a caller that writes down what the driver asks for.

use bmc_drivers::{Driver, DriverSettings, Error, NodeChanges, Outcome, Registry, Target};
use node_model::{
    InterfaceKind, JsonObject, Node, NodeId, Port, PortId, Step, StepFlow, Timestamp,
};
use serde_json::{Map, Value};

pub(crate) struct Machine {
    pub(crate) driver: Driver,
    pub(crate) node: Node,
    pub(crate) driver_info: Map<String, Value>,
    pub(crate) instance_info: Map<String, Value>,
    pub(crate) ports: Vec<Port>,
    pub(crate) notes: JsonObject,
    pub(crate) now: Timestamp,
}

impl Machine {
    /// Fake hardware with this `driver_info`.
    pub(crate) fn fake(driver_info: Value) -> Self {
        Self::with_interfaces(driver_info, &[])
    }

    /// Fake hardware with this `driver_info`, and with some interfaces that are not the default.
    pub(crate) fn with_interfaces(driver_info: Value, chosen: &[(InterfaceKind, &str)]) -> Self {
        let now = Timestamp::from_secs(1_795_000_000);
        let mut node = Node::new(NodeId::random(), "fake-hardware", now);
        for (kind, name) in chosen {
            node.interfaces.set(*kind, Some(name));
        }
        Self {
            driver: registry().compose(&node).expect("the interfaces exist"),
            node,
            driver_info: object(driver_info),
            instance_info: Map::new(),
            ports: Vec::new(),
            notes: JsonObject::empty(),
            now,
        }
    }

    pub(crate) fn target(&self) -> Target<'_> {
        Target {
            ports: &self.ports,
            notes: &self.notes,
            ..Target::new(
                &self.driver,
                &self.node,
                &self.driver_info,
                &self.instance_info,
                self.now,
            )
        }
    }

    /// Writes down what a driver asked for.
    pub(crate) fn record(&mut self, changes: &NodeChanges) {
        changes.apply_to(&mut self.node);
        if let Some(notes) = &changes.notes {
            self.notes = notes.clone();
        }
    }

    /// What a new process knows: the node as it was written down, and nothing else.
    pub(crate) fn restart(&mut self) {
        self.driver = registry().compose(&self.node).expect("the interfaces exist");
    }

    /// Carries out a step and writes down what comes of it.
    pub(crate) async fn step(
        &mut self,
        kind: InterfaceKind,
        flow: StepFlow,
        name: &str,
        arguments: Value,
    ) -> Result<Outcome, Error> {
        let mut step = Step::new(kind.as_str(), name, 0);
        step.args = JsonObject::from(object(arguments));
        let driver = self.driver.clone();
        let outcome = driver.interface(kind).execute_step(&self.target(), flow, &step).await?;
        self.record(outcome.changes());
        Ok(outcome)
    }

    /// Carries out a step that must be done at once.
    pub(crate) async fn finish_step(
        &mut self,
        kind: InterfaceKind,
        flow: StepFlow,
        name: &str,
        arguments: Value,
    ) {
        let outcome =
            self.step(kind, flow, name, arguments).await.expect("the step is carried out");
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    }

    pub(crate) fn add_port(&mut self, address: &str) {
        let address = address.parse().expect("a MAC address");
        self.ports.push(Port::new(PortId::random(), self.node.id, address, self.now));
    }
}

pub(crate) fn registry() -> Registry {
    Registry::new(&DriverSettings::default(), std::sync::Arc::new(bmc_drivers::NoBootServices))
        .expect("the defaults work")
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}
