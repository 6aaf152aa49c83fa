// SPDX-License-Identifier: Apache-2.0
//! The `no-…` implementations, for nodes that do not use an interface.
//!
//! All calls and validation fail as unsupported, except reading BIOS settings and firmware, which
//! returns `None`.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{BiosSetting, FirmwareComponent, InterfaceKind};
use serde_json::{Map, Value};

use crate::interfaces::{
    BaseInterface, BiosInterface, ConsoleInterface, DriverProperty, FirmwareInterface,
    InspectInterface, InspectionOutcome, RaidInterface, RescueInterface, VendorInterface,
    VendorResponse,
};
use crate::{
    ConsoleInfo, DriverError, DriverTarget, HttpMethod, Implementations, NodeChanges, StepOutcome,
};

/// Registers these implementations.
pub(crate) fn register(implementations: &mut Implementations) {
    implementations.add_bios(Arc::new(NoBios));
    implementations.add_console(Arc::new(NoConsole));
    implementations.add_firmware(Arc::new(NoFirmware));
    implementations.add_inspect(Arc::new(NoInspect));
    implementations.add_raid(Arc::new(NoRaid));
    implementations.add_rescue(Arc::new(NoRescue));
    implementations.add_vendor(Arc::new(NoVendor));
}

/// Declares implementations whose validation fails as unsupported.
macro_rules! unsupported_implementations {
    ($($name:ident, $kind:ident, $text:literal, $what:literal;)*) => {$(
        struct $name;

        #[async_trait]
        impl BaseInterface for $name {
            fn kind(&self) -> InterfaceKind {
                InterfaceKind::$kind
            }

            fn name(&self) -> &'static str {
                $text
            }

            async fn validate(&self, _target: &DriverTarget<'_>) -> Result<(), DriverError> {
                Err(self.unsupported($what))
            }
        }
    )*};
}

unsupported_implementations! {
    NoBios, Bios, "no-bios", "change BIOS settings";
    NoConsole, Console, "no-console", "show a console";
    NoFirmware, Firmware, "no-firmware", "update firmware";
    NoInspect, Inspect, "no-inspect", "inspect the hardware";
    NoRaid, Raid, "no-raid", "configure RAID";
    NoRescue, Rescue, "no-rescue", "rescue the machine";
    NoVendor, Vendor, "no-vendor", "call vendor methods";
}

#[async_trait]
impl BiosInterface for NoBios {
    async fn settings(
        &self,
        _target: &DriverTarget<'_>,
    ) -> Result<Option<Vec<BiosSetting>>, DriverError> {
        Ok(None)
    }
}

#[async_trait]
impl ConsoleInterface for NoConsole {
    async fn start(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Err(self.unsupported("start a console"))
    }

    async fn stop(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Err(self.unsupported("stop a console"))
    }

    async fn info(&self, _target: &DriverTarget<'_>) -> Result<Option<ConsoleInfo>, DriverError> {
        Err(self.unsupported("show a console"))
    }
}

#[async_trait]
impl FirmwareInterface for NoFirmware {
    async fn components(
        &self,
        _target: &DriverTarget<'_>,
    ) -> Result<Option<Vec<FirmwareComponent>>, DriverError> {
        Ok(None)
    }
}

#[async_trait]
impl InspectInterface for NoInspect {
    async fn inspect(&self, _target: &DriverTarget<'_>) -> Result<InspectionOutcome, DriverError> {
        Err(self.unsupported("inspect the hardware"))
    }
}

#[async_trait]
impl RaidInterface for NoRaid {
    async fn validate_config(
        &self,
        _target: &DriverTarget<'_>,
        _config: &Map<String, Value>,
    ) -> Result<(), DriverError> {
        Err(self.unsupported("configure RAID"))
    }

    fn logical_disk_properties(&self) -> Option<&'static [DriverProperty]> {
        None
    }
}

#[async_trait]
impl RescueInterface for NoRescue {
    async fn rescue(&self, _target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
        Err(self.unsupported("rescue the machine"))
    }

    async fn unrescue(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Err(self.unsupported("unrescue the machine"))
    }
}

#[async_trait]
impl VendorInterface for NoVendor {
    async fn validate_call(
        &self,
        _target: &DriverTarget<'_>,
        method: &str,
        _arguments: &Map<String, Value>,
    ) -> Result<(), DriverError> {
        Err(self.unsupported(&format!("call the vendor method '{method}'")))
    }

    async fn call(
        &self,
        _target: &DriverTarget<'_>,
        method: &str,
        _http_method: HttpMethod,
        _arguments: &Map<String, Value>,
    ) -> Result<VendorResponse, DriverError> {
        Err(self.unsupported(&format!("call the vendor method '{method}'")))
    }
}
