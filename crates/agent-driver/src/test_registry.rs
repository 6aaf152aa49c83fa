// SPDX-License-Identifier: Apache-2.0
//! A registry with fake hardware and this crate's implementations, for tests.

use std::sync::Arc;

use drivers::{
    Driver, DriverRegistry, EnabledDrivers, ExternalBootService, NetworkInterface, RegistryBuilder,
};
use fake_driver::FakeSettings;
use node_model::{InterfaceKind, Node, NodeId, Timestamp};

use crate::AgentDriverSettings;

/// A driver of fake hardware only.
pub(crate) fn fake_driver() -> Driver {
    let node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
    test_registry(None).compose(&node).expect("the interfaces exist")
}

/// With `network` as the only network interface, or else `noop`.
pub(crate) fn test_registry(network: Option<Arc<dyn NetworkInterface>>) -> DriverRegistry {
    let network_name = network.as_ref().map_or("noop", |network| network.name());
    let enabled = EnabledDrivers::new(&["fake-hardware".to_owned()], |kind| {
        let names: &[&str] = match kind {
            InterfaceKind::Network => &[network_name],
            InterfaceKind::Deploy => &["fake", "direct"],
            InterfaceKind::Inspect => &["fake", "agent"],
            InterfaceKind::Bios
            | InterfaceKind::Boot
            | InterfaceKind::Console
            | InterfaceKind::Firmware
            | InterfaceKind::Management
            | InterfaceKind::Power
            | InterfaceKind::Raid
            | InterfaceKind::Rescue
            | InterfaceKind::Storage
            | InterfaceKind::Vendor => &["fake"],
        };
        let default = (kind == InterfaceKind::Network).then(|| network_name.to_owned());
        (names.iter().map(|name| (*name).to_owned()).collect(), default)
    });
    let mut builder = RegistryBuilder::new(enabled, Arc::new(ExternalBootService), 1);
    fake_driver::register(&mut builder, &FakeSettings::default()).expect("the defaults work");
    crate::register(&mut builder, &AgentDriverSettings::default()).expect("the defaults work");
    if let Some(network) = network {
        builder.implementations.add_network(network);
    }
    builder.build().expect("the defaults work")
}
