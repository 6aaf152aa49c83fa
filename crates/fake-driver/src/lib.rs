// SPDX-License-Identifier: Apache-2.0
//! Fake hardware: a simulated machine behind every interface, for trials and tests.
//!
//! All state of the simulated machine is stored on the node (power state, boot mode,
//! `driver_internal_info`), so that a restart loses nothing. Delays and failures are configured for all
//! machines in the settings, and for each machine in its `driver_info`.

mod behaviour;
mod bios;
mod boot;
mod console;
mod deploy;
mod firmware;
mod inspect;
mod management;
mod power;
mod raid;
mod rescue;
mod sensors;
mod storage;
mod vendor;

mod fake_machine;
mod hardware_type;
mod noop;
mod settings;

use std::sync::Arc;

use behaviour::FakeBehaviour;
use drivers::RegistryBuilder;
pub use fake_machine::FakeMachine;
pub use settings::{FakeSettings, FakeSettingsError};

/// Name of all fake implementations.
const NAME: &str = "fake";

/// Registers the hardware type `fake-hardware`, the fake implementations and the `noop` ones. There
/// is no fake network interface, as in Ironic.
pub fn register(
    registry: &mut RegistryBuilder,
    settings: &FakeSettings,
) -> Result<(), FakeSettingsError> {
    let behaviour = Arc::new(FakeBehaviour::new(settings)?);
    registry.add_hardware_type(hardware_type::HARDWARE_TYPE);
    let implementations = &mut registry.implementations;
    implementations.add_bios(Arc::new(bios::FakeBios(Arc::clone(&behaviour))));
    implementations.add_boot(Arc::new(boot::FakeBoot(Arc::clone(&behaviour))));
    implementations.add_console(Arc::new(console::FakeConsole(Arc::clone(&behaviour))));
    implementations.add_deploy(Arc::new(deploy::FakeDeploy(Arc::clone(&behaviour))));
    implementations.add_firmware(Arc::new(firmware::FakeFirmware(Arc::clone(&behaviour))));
    implementations.add_inspect(Arc::new(inspect::FakeInspect(Arc::clone(&behaviour))));
    implementations.add_management(Arc::new(management::FakeManagement(Arc::clone(&behaviour))));
    implementations.add_power(Arc::new(power::FakePower(Arc::clone(&behaviour))));
    implementations.add_raid(Arc::new(raid::FakeRaid(Arc::clone(&behaviour))));
    implementations.add_rescue(Arc::new(rescue::FakeRescue(Arc::clone(&behaviour))));
    implementations.add_storage(Arc::new(storage::FakeStorage(Arc::clone(&behaviour))));
    implementations.add_vendor(Arc::new(vendor::FakeVendor(behaviour)));
    noop::register(implementations);
    Ok(())
}
