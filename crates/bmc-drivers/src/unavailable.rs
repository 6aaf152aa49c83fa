// SPDX-License-Identifier: Apache-2.0
//! The `no-…` implementations: how a node says that it does without an interface.
//!
//! Every use of them is refused, and so is validation, except reading settings and firmware: there
//! are none, and that is no error.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{BiosSetting, FirmwareComponent, InterfaceKind};
use serde_json::{Map, Value};

use crate::driver::Shelves;
use crate::interfaces::{
    Bios, Console, ConsoleInfo, Firmware, Inspect, Inspection, Interface, Property, Raid, Rescue,
    Vendor, VendorAnswer,
};
use crate::{Error, HttpMethod, NodeChanges, Outcome, Target};

/// Puts these implementations on their shelves.
pub(crate) fn add_to(shelves: &mut Shelves) {
    shelves.bios.push((NoBios.name(), Arc::new(NoBios)));
    shelves.console.push((NoConsole.name(), Arc::new(NoConsole)));
    shelves.firmware.push((NoFirmware.name(), Arc::new(NoFirmware)));
    shelves.inspect.push((NoInspect.name(), Arc::new(NoInspect)));
    shelves.raid.push((NoRaid.name(), Arc::new(NoRaid)));
    shelves.rescue.push((NoRescue.name(), Arc::new(NoRescue)));
    shelves.vendor.push((NoVendor.name(), Arc::new(NoVendor)));
}

/// Declares implementations that refuse validation, with what they cannot do.
macro_rules! refusing {
    ($($name:ident, $kind:ident, $text:literal, $what:literal;)*) => {$(
        struct $name;

        #[async_trait]
        impl Interface for $name {
            fn kind(&self) -> InterfaceKind {
                InterfaceKind::$kind
            }

            fn name(&self) -> &'static str {
                $text
            }

            async fn validate(&self, _target: &Target<'_>) -> Result<(), Error> {
                Err(self.cannot($what))
            }
        }
    )*};
}

refusing! {
    NoBios, Bios, "no-bios", "change BIOS settings";
    NoConsole, Console, "no-console", "show a console";
    NoFirmware, Firmware, "no-firmware", "update firmware";
    NoInspect, Inspect, "no-inspect", "inspect the hardware";
    NoRaid, Raid, "no-raid", "configure RAID";
    NoRescue, Rescue, "no-rescue", "rescue the machine";
    NoVendor, Vendor, "no-vendor", "call vendor methods";
}

#[async_trait]
impl Bios for NoBios {
    async fn settings(&self, _target: &Target<'_>) -> Result<Option<Vec<BiosSetting>>, Error> {
        Ok(None)
    }
}

#[async_trait]
impl Console for NoConsole {
    async fn start(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Err(self.cannot("start a console"))
    }

    async fn stop(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Err(self.cannot("stop a console"))
    }

    async fn info(&self, _target: &Target<'_>) -> Result<ConsoleInfo, Error> {
        Err(self.cannot("show a console"))
    }
}

#[async_trait]
impl Firmware for NoFirmware {
    async fn components(
        &self,
        _target: &Target<'_>,
    ) -> Result<Option<Vec<FirmwareComponent>>, Error> {
        Ok(None)
    }
}

#[async_trait]
impl Inspect for NoInspect {
    async fn inspect(&self, _target: &Target<'_>) -> Result<Inspection, Error> {
        Err(self.cannot("inspect the hardware"))
    }
}

#[async_trait]
impl Raid for NoRaid {
    async fn validate_config(
        &self,
        _target: &Target<'_>,
        _config: &Map<String, Value>,
    ) -> Result<(), Error> {
        Err(self.cannot("configure RAID"))
    }

    fn logical_disk_properties(&self) -> Option<&'static [Property]> {
        None
    }
}

#[async_trait]
impl Rescue for NoRescue {
    async fn rescue(&self, _target: &Target<'_>) -> Result<Outcome, Error> {
        Err(self.cannot("rescue the machine"))
    }

    async fn unrescue(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Err(self.cannot("unrescue the machine"))
    }
}

#[async_trait]
impl Vendor for NoVendor {
    async fn validate_call(
        &self,
        _target: &Target<'_>,
        method: &str,
        _arguments: &Map<String, Value>,
    ) -> Result<(), Error> {
        Err(self.cannot(&format!("call the vendor method '{method}'")))
    }

    async fn call(
        &self,
        _target: &Target<'_>,
        method: &str,
        _http_method: HttpMethod,
        _arguments: &Map<String, Value>,
    ) -> Result<VendorAnswer, Error> {
        Err(self.cannot(&format!("call the vendor method '{method}'")))
    }
}
