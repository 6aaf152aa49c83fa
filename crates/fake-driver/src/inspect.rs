// SPDX-License-Identifier: Apache-2.0
//! The fake inspect interface: returns the inventory in `driver_info`, or an empty one.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{
    BaseInterface, DriverError, DriverProperty, DriverTarget, InspectInterface, InspectedHardware,
    InspectionOutcome, NodeChanges,
};
use node_model::{InterfaceKind, JsonObject, Mac};
use serde_json::{Map, Value};

use super::behaviour::driver_info_key;
use super::{FakeBehaviour, NAME, behaviour};

/// The fake inspect interface.
pub(crate) struct FakeInspect(pub(super) Arc<FakeBehaviour>);

/// The `driver_info` key with the inventory that an inspection returns.
pub(super) const INVENTORY: DriverProperty = (
    "fake_inventory",
    "The inventory that an inspection returns, in the format of an agent. Optional; the inspection \
     returns no hardware if it is not given.",
);

#[async_trait]
impl BaseInterface for FakeInspect {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Inspect
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn properties(&self) -> &[DriverProperty] {
        behaviour::INSPECT
    }

    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        inventory(target)?;
        self.0.validate(self.kind(), target.driver_info)
    }
}

#[async_trait]
impl InspectInterface for FakeInspect {
    async fn inspect(&self, target: &DriverTarget<'_>) -> Result<InspectionOutcome, DriverError> {
        self.0.begin_call(InterfaceKind::Inspect, target, "inspect").await?;
        let hardware = inventory(target)?.map(inspected_hardware).unwrap_or_default();
        Ok(InspectionOutcome::Done(Box::new(hardware)))
    }

    async fn abort(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.0.begin_call(InterfaceKind::Inspect, target, "abort").await?;
        Ok(NodeChanges::none())
    }
}

fn inventory<'a>(target: &DriverTarget<'a>) -> Result<Option<&'a Map<String, Value>>, DriverError> {
    match target.driver_info.get(INVENTORY.0) {
        None => Ok(None),
        Some(Value::Object(inventory)) => Ok(Some(inventory)),
        Some(_) => Err(DriverError::invalid(driver_info_key(INVENTORY.0), "use an object")),
    }
}

/// The inspection result for an inventory. Parts with an unexpected format are ignored.
fn inspected_hardware(inventory: &Map<String, Value>) -> InspectedHardware {
    let part = |path: &str| inventory.get(path.split('.').next()?)?.get(path.split('.').nth(1)?);
    let mut properties = Map::new();
    for (property, path) in [
        ("cpus", "cpu.count"),
        ("cpu_arch", "cpu.architecture"),
        ("memory_mb", "memory.physical_mb"),
    ] {
        if let Some(value) = part(path) {
            properties.insert(property.to_owned(), value.clone());
        }
    }
    let nics = inventory.get("interfaces").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let address = |nic: &Value| nic.get("mac_address")?.as_str()?.parse::<Mac>().ok();
    InspectedHardware {
        changes: NodeChanges { properties, ..NodeChanges::none() },
        ports: nics.iter().filter_map(address).collect(),
        inventory: Some(JsonObject::from(inventory.clone())),
    }
}
