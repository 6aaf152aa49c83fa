// SPDX-License-Identifier: Apache-2.0
//! Booting over the network: the boot interfaces `ipxe`, `pxe`, `http-ipxe` and `http`.
//!
//! Each lays out at the boot services what the machine is to boot, and tells the machine to boot
//! from its network card. They differ in how the first piece gets there: see [`BootWay`].

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{BootPurpose, BootWay, InterfaceKind};

use crate::boot_desk::{BootDesk, OneWay, Published};
use crate::driver::Shelves;
use crate::interfaces::{Boot, Interface, Property};
use crate::next_boot::{
    BOOT_PROPERTIES, boot_from, boot_from_disk, instance_runs, is_persistent, lives_in_memory,
};
use crate::{BootDevice, Error, NodeChanges, RamdiskMode, Target};

/// Puts these implementations on their shelves, and their ways among `ways`.
pub(crate) fn add_to(
    shelves: &mut Shelves,
    ways: &mut Vec<Arc<dyn OneWay>>,
    desk: &Arc<dyn BootDesk>,
) {
    for (name, way, device) in WAYS {
        let desk = Arc::clone(desk);
        let boot = Arc::new(NetworkBoot { name, way: *way, device: *device, desk });
        shelves.boot.push((name, boot.clone()));
        ways.push(boot);
    }
}

const WAYS: &[(&str, BootWay, BootDevice)] = &[
    ("ipxe", BootWay::Ipxe, BootDevice::Pxe),
    ("pxe", BootWay::Pxe, BootDevice::Pxe),
    ("http-ipxe", BootWay::HttpIpxe, BootDevice::UefiHttp),
    ("http", BootWay::Http, BootDevice::UefiHttp),
];

/// A way of booting over the network.
struct NetworkBoot {
    name: &'static str,
    way: BootWay,
    device: BootDevice,
    desk: Arc<dyn BootDesk>,
}

#[async_trait]
impl Interface for NetworkBoot {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Boot
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn properties(&self) -> &[Property] {
        &BOOT_PROPERTIES
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        is_persistent(target.driver_info, true)?;
        let purpose = if lives_in_memory(target)? {
            BootPurpose::Instance
        } else {
            BootPurpose::DeployRamdisk
        };
        self.desk.check(target, self.way, purpose)
    }
}

#[async_trait]
impl Boot for NetworkBoot {
    fn capabilities(&self) -> &'static [&'static str] {
        match self.way {
            BootWay::Ipxe | BootWay::HttpIpxe => &["ipxe_boot", "pxe_boot", "ramdisk_boot"],
            BootWay::Pxe | BootWay::Http | BootWay::VirtualMedia => &["pxe_boot", "ramdisk_boot"],
        }
    }

    async fn validate_ramdisk(&self, target: &Target<'_>, mode: RamdiskMode) -> Result<(), Error> {
        is_persistent(target.driver_info, true)?;
        self.desk.check(target, self.way, mode.purpose())
    }

    fn is_by_network(&self) -> bool {
        true
    }

    async fn prepare_ramdisk(
        &self,
        target: &Target<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, Error> {
        let published = self.desk.publish(target, self.way, mode.purpose()).await?;
        self.present(target, &published, mode.purpose(), false).await
    }

    async fn clean_up_ramdisk(
        &self,
        target: &Target<'_>,
        _mode: RamdiskMode,
    ) -> Result<NodeChanges, Error> {
        self.desk.withdraw(target).await?;
        Ok(NodeChanges::none())
    }

    async fn prepare_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        if instance_runs(target) {
            return Ok(NodeChanges::none());
        }
        if lives_in_memory(target)? {
            let published = self.desk.publish(target, self.way, BootPurpose::Instance).await?;
            return self.present(target, &published, BootPurpose::Instance, true).await;
        }
        self.desk.withdraw(target).await?;
        boot_from_disk(target).await
    }

    async fn clean_up_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.desk.withdraw(target).await?;
        Ok(NodeChanges::none())
    }
}

#[async_trait]
impl OneWay for NetworkBoot {
    fn way(&self) -> BootWay {
        self.way
    }

    /// Makes the machine boot from its card, which finds there what was laid out. A BMC that cannot
    /// tell HTTP from PXE is told PXE: the firmware then tries both.
    async fn present(
        &self,
        target: &Target<'_>,
        _published: &Published,
        _purpose: BootPurpose,
        always: bool,
    ) -> Result<NodeChanges, Error> {
        let offered = target.driver.management().supported_boot_devices();
        let device = if offered.contains(&self.device) { self.device } else { BootDevice::Pxe };
        match boot_from(target, device, always).await {
            Err(error) if device != BootDevice::Pxe && error.is_callers_fault() => {
                boot_from(target, BootDevice::Pxe, always).await
            }
            done => done,
        }
    }
}
