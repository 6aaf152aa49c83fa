// SPDX-License-Identifier: Apache-2.0
//! Booting over the network: the boot interfaces `ipxe` and `pxe`.
//!
//! They tell the machine to boot from its network card. What answers it there is, in this version,
//! the site's own DHCP and TFTP servers: they hand out the ramdisk to machines that ask for one.
//! Ferrite's own boot server, which gives each machine what its node says, comes later; so do
//! instances that run from the network rather than from a disk.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::InterfaceKind;
use serde_json::{Map, Value};

use crate::driver::Shelves;
use crate::interfaces::{Boot, Interface, Property};
use crate::next_boot::{FORCE_PERSISTENT, boot_from, boot_from_disk, instance_runs, is_persistent};
use crate::{BootDevice, Error, NodeChanges, RamdiskMode, Target};

/// Puts these implementations on their shelves.
pub(crate) fn add_to(shelves: &mut Shelves) {
    for boot in [&IPXE, &PXE] {
        shelves.boot.push((boot.name, Arc::new(boot.clone())));
    }
}

/// A way of booting over the network.
#[derive(Clone)]
struct NetworkBoot {
    name: &'static str,
    capabilities: &'static [&'static str],
}

const IPXE: NetworkBoot = NetworkBoot { name: "ipxe", capabilities: &["ipxe_boot", "pxe_boot"] };
const PXE: NetworkBoot = NetworkBoot { name: "pxe", capabilities: &["pxe_boot"] };

#[async_trait]
impl Interface for NetworkBoot {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Boot
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn properties(&self) -> &[Property] {
        &[FORCE_PERSISTENT]
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        is_persistent(target.driver_info, true).map(drop)
    }
}

#[async_trait]
impl Boot for NetworkBoot {
    fn capabilities(&self) -> &'static [&'static str] {
        self.capabilities
    }

    async fn prepare_ramdisk(
        &self,
        target: &Target<'_>,
        _mode: RamdiskMode,
        _parameters: &Map<String, Value>,
    ) -> Result<NodeChanges, Error> {
        boot_from(target, BootDevice::Pxe, false).await
    }

    async fn clean_up_ramdisk(
        &self,
        _target: &Target<'_>,
        _mode: RamdiskMode,
    ) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }

    async fn prepare_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        if instance_runs(target) {
            return Ok(NodeChanges::none());
        }
        boot_from_disk(target).await
    }

    async fn clean_up_instance(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }
}
