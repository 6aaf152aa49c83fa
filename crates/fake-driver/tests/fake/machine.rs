// SPDX-License-Identifier: Apache-2.0
//! Fake machines and the registry their drivers come from.

use std::sync::Arc;

use drivers::{DriverRegistry, EnabledDrivers, ExternalBootService, RegistryBuilder};
use fake_driver::{FakeMachine, FakeSettings};
use node_model::InterfaceKind;
use serde_json::{Map, Value};

/// Fake hardware with this `driver_info`.
pub(crate) fn fake(driver_info: Value) -> FakeMachine {
    with_interfaces(driver_info, &[])
}

/// Fake hardware with this `driver_info`, and with these non-default interfaces.
pub(crate) fn with_interfaces(driver_info: Value, chosen: &[(InterfaceKind, &str)]) -> FakeMachine {
    FakeMachine::new(registry, driver_info, chosen)
}

pub(crate) fn registry() -> DriverRegistry {
    registry_with(&FakeSettings::default())
}

/// A registry with everything that the fake driver registers.
pub(crate) fn registry_with(settings: &FakeSettings) -> DriverRegistry {
    let enabled = EnabledDrivers::new(&["fake-hardware".to_owned()], |kind| {
        let none = format!("no-{kind}");
        let names: &[&str] = match kind {
            InterfaceKind::Bios
            | InterfaceKind::Console
            | InterfaceKind::Firmware
            | InterfaceKind::Inspect
            | InterfaceKind::Raid
            | InterfaceKind::Rescue
            | InterfaceKind::Vendor => &["fake", &none],
            InterfaceKind::Boot | InterfaceKind::Power => &["fake"],
            InterfaceKind::Deploy | InterfaceKind::Management => &["fake", "noop"],
            InterfaceKind::Network => &["noop"],
            InterfaceKind::Storage => &["noop", "fake"],
        };
        let default = (kind == InterfaceKind::Storage).then(|| "noop".to_owned());
        (names.iter().map(|name| (*name).to_owned()).collect(), default)
    });
    let mut builder = RegistryBuilder::new(enabled, Arc::new(ExternalBootService), 1);
    fake_driver::register(&mut builder, settings).expect("the settings are valid");
    builder.build().expect("the defaults work")
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}
