// SPDX-License-Identifier: Apache-2.0
//! Fake machines and the registry their drivers come from.

use std::sync::Arc;

use driver_set::{DriverSettings, build_registry};
use drivers::{DriverRegistry, ExternalBootService};
use fake_driver::FakeMachine;
use node_model::InterfaceKind;
use serde_json::{Map, Value};

/// Fake hardware with this `driver_info`.
pub(crate) fn fake(driver_info: Value) -> FakeMachine {
    with_interfaces(driver_info, &[])
}

/// Fake hardware with this `driver_info` and these non-default interfaces.
pub(crate) fn with_interfaces(driver_info: Value, chosen: &[(InterfaceKind, &str)]) -> FakeMachine {
    FakeMachine::new(registry, driver_info, chosen)
}

pub(crate) fn registry() -> DriverRegistry {
    build_registry(&DriverSettings::default(), Arc::new(ExternalBootService))
        .expect("the defaults work")
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}
