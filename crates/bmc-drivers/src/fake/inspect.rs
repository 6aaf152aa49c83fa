// SPDX-License-Identifier: Apache-2.0
//! Inspection of a simulated machine: it finds nothing new, unless the node says what there is.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{InterfaceKind, JsonObject, Mac};
use serde_json::{Map, Value};

use super::behaviour::in_driver_info;
use super::{FakeBehaviour, NAME, behaviour};
use crate::{Error, Findings, Inspect, Inspection, Interface, NodeChanges, Property, Target};

/// The fake inspect interface.
pub(crate) struct FakeInspect(pub(super) Arc<FakeBehaviour>);

/// The `driver_info` key that says what an inspection finds.
pub(super) const INVENTORY: Property = (
    "fake_inventory",
    "The inventory that an inspection finds, as an agent would send it. Optional; nothing is found \
     if it is not given.",
);

#[async_trait]
impl Interface for FakeInspect {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Inspect
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn properties(&self) -> &[Property] {
        behaviour::INSPECT
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        inventory(target)?;
        self.0.validate(self.kind(), target.driver_info)
    }
}

#[async_trait]
impl Inspect for FakeInspect {
    async fn inspect(&self, target: &Target<'_>) -> Result<Inspection, Error> {
        self.0.act(InterfaceKind::Inspect, target, "inspect").await?;
        let found = inventory(target)?.map(findings).unwrap_or_default();
        Ok(Inspection::Done(Box::new(found)))
    }

    async fn abort(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.0.act(InterfaceKind::Inspect, target, "abort").await?;
        Ok(NodeChanges::none())
    }
}

fn inventory<'a>(target: &Target<'a>) -> Result<Option<&'a Map<String, Value>>, Error> {
    match target.driver_info.get(INVENTORY.0) {
        None => Ok(None),
        Some(Value::Object(inventory)) => Ok(Some(inventory)),
        Some(_) => Err(Error::invalid(in_driver_info(INVENTORY.0), "use an object")),
    }
}

/// What follows from an inventory. Parts of it that are not as expected say nothing.
fn findings(inventory: &Map<String, Value>) -> Findings {
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
    let cards =
        inventory.get("interfaces").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let address = |card: &Value| card.get("mac_address")?.as_str()?.parse::<Mac>().ok();
    Findings {
        changes: NodeChanges { properties, ..NodeChanges::none() },
        ports: cards.iter().filter_map(address).collect(),
        inventory: Some(JsonObject::from(inventory.clone())),
    }
}
