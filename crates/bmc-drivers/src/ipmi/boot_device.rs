// SPDX-License-Identifier: Apache-2.0
//! Where a machine boots from: what is said to the BMC, and what is remembered where BMCs forget.
//!
//! The flag for UEFI matters: BMCs that are told to boot a disk without it start the BIOS way and
//! find nothing. And some makers have numbers of their own: see [`quirks`].

use ipmi::{BootFlags, DisableBootTimeout, GetBootFlags, SetBootFlags};
use serde_json::Value;

use super::bmc::Bmc;
use super::connections::Connections;
use super::quirks;
use crate::{BootDevice, BootDeviceSetting, BootMode, Error, NodeChanges, Target};

/// The devices IPMI has numbers for.
pub(super) const SUPPORTED: &[BootDevice] =
    &[BootDevice::Pxe, BootDevice::Disk, BootDevice::Cdrom, BootDevice::Bios, BootDevice::Safe];

/// Where the machine boots from next.
pub(super) async fn get(bmc: &Bmc, target: &Target<'_>) -> Result<BootDeviceSetting, Error> {
    if bmc.access.force_boot_device
        && let Some(device) = Remembered::of(target).next()
    {
        return Ok(BootDeviceSetting { device: Some(device), persistent: Some(true) });
    }
    let flags = bmc.ask(&GetBootFlags).await?;
    let usual = || NUMBERS.iter().find(|(_, number)| *number == flags.device);
    let device = quirks::boot_device(&vendor(target), flags.device)
        .or_else(|| usual().map(|(device, _)| *device));
    Ok(BootDeviceSetting { device, persistent: Some(flags.persistent) })
}

/// Makes the machine boot from `device`.
pub(super) async fn set(
    connections: &Connections,
    bmc: &Bmc,
    target: &Target<'_>,
    device: BootDevice,
    persistent: bool,
) -> Result<NodeChanges, Error> {
    if !bmc.access.force_boot_device {
        tell(connections, bmc, target, device, persistent).await?;
        return Ok(NodeChanges::none());
    }
    // The BMC forgets, so it is only ever told for the next boot; we remember for it.
    tell(connections, bmc, target, device, false).await?;
    Ok(if persistent {
        NodeChanges::remember(DEVICE, device.as_str())
            .and(NodeChanges::remember(NEXT_IS_PERSISTENT, Value::Null))
    } else {
        NodeChanges::remember(NEXT_IS_PERSISTENT, false)
    })
}

/// What comes before every power on: where the BMC forgets its boot device, it is told again,
/// unless the next boot was meant to be from another one.
pub(super) async fn before_power_on(
    connections: &Connections,
    bmc: &Bmc,
    target: &Target<'_>,
) -> Result<NodeChanges, Error> {
    if !bmc.access.force_boot_device {
        return Ok(NodeChanges::none());
    }
    let remembered = Remembered::of(target);
    if !remembered.next_is_persistent {
        return Ok(NodeChanges::remember(NEXT_IS_PERSISTENT, Value::Null));
    }
    if let Some(device) = remembered.next() {
        tell(connections, bmc, target, device, false).await?;
    }
    Ok(NodeChanges::none())
}

/// What we remember for a BMC that does not.
struct Remembered {
    device: Option<BootDevice>,
    next_is_persistent: bool,
}

impl Remembered {
    fn of(target: &Target<'_>) -> Self {
        let info = target.node.driver_internal_info.parse();
        let device = info.get(DEVICE).and_then(Value::as_str);
        Self {
            device: device.and_then(|name| name.parse().ok()),
            next_is_persistent: info.get(NEXT_IS_PERSISTENT) != Some(&Value::Bool(false)),
        }
    }

    /// Where the next boot is from, if that is remembered.
    fn next(&self) -> Option<BootDevice> {
        self.device.filter(|_| self.next_is_persistent)
    }
}

/// The device for all boots, in `driver_internal_info`, as Ironic keeps it.
const DEVICE: &str = "persistent_boot_device";
/// False there if the next boot is from another one.
const NEXT_IS_PERSISTENT: &str = "is_next_boot_persistent";

const NUMBERS: &[(BootDevice, ipmi::BootDevice)] = &[
    (BootDevice::Pxe, ipmi::BootDevice::PXE),
    (BootDevice::Disk, ipmi::BootDevice::DISK),
    (BootDevice::Cdrom, ipmi::BootDevice::CDROM),
    (BootDevice::Bios, ipmi::BootDevice::BIOS),
    (BootDevice::Safe, ipmi::BootDevice::SAFE),
];

async fn tell(
    connections: &Connections,
    bmc: &Bmc,
    target: &Target<'_>,
    device: BootDevice,
    persistent: bool,
) -> Result<(), Error> {
    let mode = boot_mode(target, connections.settings.default_boot_mode);
    let Some((_, usual)) = NUMBERS.iter().find(|(known, _)| *known == device) else {
        let known: Vec<_> = SUPPORTED.iter().map(|device| device.as_str()).collect();
        let why = format!("IPMI has no number for '{device}'; use one of {}", known.join(", "));
        return Err(Error::invalid("boot_device", why));
    };
    let number = quirks::boot_number(&vendor(target), mode, device).unwrap_or(*usual);
    if bmc.access.disable_boot_timeout {
        match bmc.try_ask(&DisableBootTimeout).await {
            // A BMC without this parameter, such as OpenBMC, has no timeout to disable.
            Ok(()) | Err(ipmi::Error::Completion { .. }) => {}
            Err(error) => return Err(bmc.explain(error)),
        }
    }
    let uefi = mode == BootMode::Uefi;
    bmc.ask(&SetBootFlags(BootFlags { valid: true, persistent, uefi, device: number })).await
}

/// The mode that the machine boots in, as far as anybody has said: for this instance, for this
/// machine, or for all.
fn boot_mode(target: &Target<'_>, default: BootMode) -> BootMode {
    let instance = target.instance_info;
    let capabilities = instance.get("capabilities");
    if capability(capabilities, "secure_boot").is_some_and(|on| on.eq_ignore_ascii_case("true")) {
        return BootMode::Uefi;
    }
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let said = capability(capabilities, "boot_mode")
        .or_else(|| text(instance.get("deploy_boot_mode")))
        .or_else(|| capability(target.node.properties.get("capabilities").as_ref(), "boot_mode"))
        .or_else(|| target.node.driver_internal_info.get_str("deploy_boot_mode"))
        .or_else(|| target.node.boot_mode.clone());
    match said {
        None => default,
        Some(said) if said.trim().eq_ignore_ascii_case("bios") => BootMode::Bios,
        Some(_) => BootMode::Uefi,
    }
}

/// A capability, whether they are an object, an object in a string, or `name:value,…`.
fn capability(capabilities: Option<&Value>, name: &str) -> Option<String> {
    match capabilities? {
        Value::Object(members) => members.get(name)?.as_str().map(str::to_owned),
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(members)) => members.get(name)?.as_str().map(str::to_owned),
            Ok(_) | Err(_) => text.split(',').find_map(|pair| {
                let (key, value) = pair.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            }),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

fn vendor(target: &Target<'_>) -> String {
    target.node.properties.get_str("vendor").unwrap_or_default()
}
