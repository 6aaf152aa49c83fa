// SPDX-License-Identifier: Apache-2.0
//! The boot device over IPMI, and its persistence for BMCs that lose it.
//!
//! The UEFI flag matters: without it, BMCs boot a disk in legacy BIOS mode and find no boot loader. For
//! vendor-specific device numbers see [`quirks`].

use drivers::requested_firmware::RequestedFirmware;
use drivers::{BootDevice, BootDeviceSetting, BootMode, DriverError, DriverTarget, NodeChanges};
use ipmi::{DisableBootTimeout, GetBootFlags, IpmiBootFlags, SetBootFlags};
use serde_json::Value;

use super::bmc::IpmiBmc;
use super::connections::IpmiConnections;
use super::quirks;

/// The boot devices that IPMI defines.
pub(super) const SUPPORTED: &[BootDevice] =
    &[BootDevice::Pxe, BootDevice::Disk, BootDevice::Cdrom, BootDevice::Bios, BootDevice::Safe];

/// Returns the current boot device setting.
pub(super) async fn read_boot_device(
    bmc: &IpmiBmc,
    target: &DriverTarget<'_>,
) -> Result<BootDeviceSetting, DriverError> {
    if bmc.access.force_boot_device
        && let Some(device) = IpmiStoredBootDevice::from_target(target).next_device()
    {
        return Ok(BootDeviceSetting { device: Some(device), persistent: Some(true) });
    }
    let flags = bmc.execute(&GetBootFlags).await?;
    let standard = || DEVICE_NUMBERS.iter().find(|(_, number)| *number == flags.device);
    let device = quirks::vendor_boot_device(&vendor(target), flags.device)
        .or_else(|| standard().map(|(device, _)| *device));
    Ok(BootDeviceSetting { device, persistent: Some(flags.persistent) })
}

/// Sets the boot device.
pub(super) async fn write_boot_device(
    connections: &IpmiConnections,
    bmc: &IpmiBmc,
    target: &DriverTarget<'_>,
    device: BootDevice,
    persistent: bool,
) -> Result<NodeChanges, DriverError> {
    if !bmc.access.force_boot_device {
        send_boot_flags(connections, bmc, target, device, persistent).await?;
        return Ok(NodeChanges::none());
    }
    // The BMC loses the setting, so it is set for one boot and stored on the node.
    send_boot_flags(connections, bmc, target, device, false).await?;
    Ok(if persistent {
        NodeChanges::internal_info(PERSISTENT_DEVICE_KEY, device.as_str())
            .and(NodeChanges::internal_info(NEXT_IS_PERSISTENT_KEY, Value::Null))
    } else {
        NodeChanges::internal_info(NEXT_IS_PERSISTENT_KEY, false)
    })
}

/// Called before every power-on: sets a stored boot device again, unless the next_device boot is meant to use
/// another one.
pub(super) async fn before_power_on(
    connections: &IpmiConnections,
    bmc: &IpmiBmc,
    target: &DriverTarget<'_>,
) -> Result<NodeChanges, DriverError> {
    if !bmc.access.force_boot_device {
        return Ok(NodeChanges::none());
    }
    let stored = IpmiStoredBootDevice::from_target(target);
    if !stored.next_is_persistent {
        return Ok(NodeChanges::internal_info(NEXT_IS_PERSISTENT_KEY, Value::Null));
    }
    if let Some(device) = stored.next_device() {
        send_boot_flags(connections, bmc, target, device, false).await?;
    }
    Ok(NodeChanges::none())
}

/// The boot device stored on the node, for BMCs that lose it.
struct IpmiStoredBootDevice {
    device: Option<BootDevice>,
    next_is_persistent: bool,
}

impl IpmiStoredBootDevice {
    fn from_target(target: &DriverTarget<'_>) -> Self {
        let info = target.node.driver_internal_info.parse();
        let device = info.get(PERSISTENT_DEVICE_KEY).and_then(Value::as_str);
        Self {
            device: device.and_then(|name| name.parse().ok()),
            next_is_persistent: info.get(NEXT_IS_PERSISTENT_KEY) != Some(&Value::Bool(false)),
        }
    }

    /// The stored device if it applies to the next_device boot.
    fn next_device(&self) -> Option<BootDevice> {
        self.device.filter(|_| self.next_is_persistent)
    }
}

/// The persistent boot device in `driver_internal_info`, with Ironic's key.
const PERSISTENT_DEVICE_KEY: &str = "persistent_boot_device";
/// False if the next_device boot uses another device.
const NEXT_IS_PERSISTENT_KEY: &str = "is_next_boot_persistent";

const DEVICE_NUMBERS: &[(BootDevice, ipmi::IpmiBootDevice)] = &[
    (BootDevice::Pxe, ipmi::IpmiBootDevice::PXE),
    (BootDevice::Disk, ipmi::IpmiBootDevice::DISK),
    (BootDevice::Cdrom, ipmi::IpmiBootDevice::CDROM),
    (BootDevice::Bios, ipmi::IpmiBootDevice::BIOS),
    (BootDevice::Safe, ipmi::IpmiBootDevice::SAFE),
];

async fn send_boot_flags(
    connections: &IpmiConnections,
    bmc: &IpmiBmc,
    target: &DriverTarget<'_>,
    device: BootDevice,
    persistent: bool,
) -> Result<(), DriverError> {
    let mode = boot_mode(target, connections.settings.default_boot_mode);
    let Some((_, standard)) = DEVICE_NUMBERS.iter().find(|(known, _)| *known == device) else {
        let known: Vec<_> = SUPPORTED.iter().map(|device| device.as_str()).collect();
        let why = format!("IPMI has no number for '{device}'; use one of {}", known.join(", "));
        return Err(DriverError::invalid("boot_device", why));
    };
    let number = quirks::vendor_boot_number(&vendor(target), mode, device).unwrap_or(*standard);
    if bmc.access.disable_boot_timeout {
        match bmc.try_execute(&DisableBootTimeout).await {
            // A BMC without this parameter, such as OpenBMC, has no timeout to disable.
            Ok(()) | Err(ipmi::IpmiError::Completion { .. }) => {}
            Err(error) => return Err(bmc.explain(error)),
        }
    }
    let uefi = mode == BootMode::Uefi;
    bmc.execute(&SetBootFlags(IpmiBootFlags { valid: true, persistent, uefi, device: number }))
        .await
}

/// The boot mode of the instance, or else of the node, or else the default.
fn boot_mode(target: &DriverTarget<'_>, default: BootMode) -> BootMode {
    let requested = RequestedFirmware::from_target(target).unwrap_or_default().boot_mode;
    let known = || {
        let of_job = target.node.driver_internal_info.get_str("deploy_boot_mode");
        of_job.or_else(|| target.node.boot_mode.clone())?.trim().parse().ok()
    };
    requested.or_else(known).unwrap_or(default)
}

fn vendor(target: &DriverTarget<'_>) -> String {
    target.node.properties.get_str("vendor").unwrap_or_default()
}
