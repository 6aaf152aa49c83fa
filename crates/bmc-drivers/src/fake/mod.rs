// SPDX-License-Identifier: Apache-2.0
//! Fake hardware: a simulated machine behind every interface, for trying things out and for tests.
//!
//! The simulated machine remembers everything in the node itself (its power state, its boot mode,
//! `driver_internal_info`), so that a restart loses nothing. How slow it is and when it fails can
//! be set for all machines in the settings and for each in its `driver_info`.

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

use std::sync::Arc;

use crate::driver::Shelves;

pub(crate) use behaviour::FakeBehaviour;

/// What nodes call all of these.
const NAME: &str = "fake";

/// Puts these implementations on their shelves. There is no fake network, as in Ironic.
pub(crate) fn add_to(shelves: &mut Shelves, behaviour: FakeBehaviour) {
    let behaviour = Arc::new(behaviour);
    shelves.bios.push((NAME, Arc::new(bios::FakeBios(Arc::clone(&behaviour)))));
    shelves.boot.push((NAME, Arc::new(boot::FakeBoot(Arc::clone(&behaviour)))));
    shelves.console.push((NAME, Arc::new(console::FakeConsole(Arc::clone(&behaviour)))));
    shelves.deploy.push((NAME, Arc::new(deploy::FakeDeploy(Arc::clone(&behaviour)))));
    shelves.firmware.push((NAME, Arc::new(firmware::FakeFirmware(Arc::clone(&behaviour)))));
    shelves.inspect.push((NAME, Arc::new(inspect::FakeInspect(Arc::clone(&behaviour)))));
    shelves.management.push((NAME, Arc::new(management::FakeManagement(Arc::clone(&behaviour)))));
    shelves.power.push((NAME, Arc::new(power::FakePower(Arc::clone(&behaviour)))));
    shelves.raid.push((NAME, Arc::new(raid::FakeRaid(Arc::clone(&behaviour)))));
    shelves.rescue.push((NAME, Arc::new(rescue::FakeRescue(Arc::clone(&behaviour)))));
    shelves.storage.push((NAME, Arc::new(storage::FakeStorage(Arc::clone(&behaviour)))));
    shelves.vendor.push((NAME, Arc::new(vendor::FakeVendor(behaviour))));
}
