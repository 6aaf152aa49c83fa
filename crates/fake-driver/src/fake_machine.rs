// SPDX-License-Identifier: Apache-2.0
//! A node of type `fake-hardware` with its driver, and a caller that stores the changes the driver
//! returns. For tests.

use drivers::{Driver, DriverError, DriverRegistry, DriverTarget, NodeChanges, StepOutcome};
use node_model::{
    InterfaceKind, JsonObject, Node, NodeId, Port, PortId, Step, StepFlow, Timestamp,
};
use serde_json::{Map, Value};

/// A node of type `fake-hardware`, for tests of drivers.
#[derive(Debug)]
pub struct FakeMachine {
    /// Builds the registry that composes the driver, as a process does at start.
    registry: fn() -> DriverRegistry,
    /// The node's driver.
    pub driver: Driver,
    /// The node as stored.
    pub node: Node,
    /// `driver_info` with its secrets.
    pub driver_info: Map<String, Value>,
    /// `instance_info` with its secrets.
    pub instance_info: Map<String, Value>,
    /// The node's ports.
    pub ports: Vec<Port>,
    /// The driver state of the current step.
    pub driver_state: JsonObject,
    /// The current time.
    pub now: Timestamp,
}

impl FakeMachine {
    /// Fake hardware with this `driver_info` and these non-default interfaces.
    pub fn new(
        registry: fn() -> DriverRegistry,
        driver_info: Value,
        chosen: &[(InterfaceKind, &str)],
    ) -> Self {
        let now = Timestamp::from_secs(1_795_000_000);
        let mut node = Node::new(NodeId::random(), "fake-hardware", now);
        for (kind, name) in chosen {
            node.interfaces.set(*kind, Some(name));
        }
        Self {
            registry,
            driver: registry().compose(&node).expect("the interfaces exist"),
            node,
            driver_info: object(driver_info),
            instance_info: Map::new(),
            ports: Vec::new(),
            driver_state: JsonObject::empty(),
            now,
        }
    }

    /// The target for calls of the driver.
    pub fn target(&self) -> DriverTarget<'_> {
        DriverTarget {
            ports: &self.ports,
            driver_state: &self.driver_state,
            ..DriverTarget::new(
                &self.driver,
                &self.node,
                &self.driver_info,
                &self.instance_info,
                self.now,
            )
        }
    }

    /// Stores the changes that a driver returned.
    pub fn record(&mut self, changes: &NodeChanges) {
        changes.apply_to(&mut self.node);
        changes.apply_to_driver_state(&mut self.driver_state);
    }

    /// Simulates a new process, which has only the stored node.
    pub fn restart(&mut self) {
        self.driver = (self.registry)().compose(&self.node).expect("the interfaces exist");
    }

    /// Runs a step and stores its changes.
    pub async fn step(
        &mut self,
        kind: InterfaceKind,
        flow: StepFlow,
        name: &str,
        arguments: Value,
    ) -> Result<StepOutcome, DriverError> {
        let mut step = Step::new(kind.as_str(), name, 0);
        step.args = JsonObject::from(object(arguments));
        let driver = self.driver.clone();
        let outcome = driver.interface(kind).execute_step(&self.target(), flow, &step).await?;
        self.record(&outcome.changes);
        Ok(outcome)
    }

    /// Runs a step that must end at once.
    pub async fn finish_step(
        &mut self,
        kind: InterfaceKind,
        flow: StepFlow,
        name: &str,
        arguments: Value,
    ) {
        let outcome =
            self.step(kind, flow, name, arguments).await.expect("the step is carried out");
        assert!(outcome.is_done(), "{outcome:?}");
    }

    /// Adds a port with this MAC address.
    pub fn add_port(&mut self, address: &str) {
        let address = address.parse().expect("a MAC address");
        self.ports.push(Port::new(PortId::random(), self.node.id, address, self.now));
    }
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}
