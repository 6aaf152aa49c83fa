// SPDX-License-Identifier: Apache-2.0
//! The boot mode and secure boot that an instance or its node requests in its capabilities.
//!
//! The boot mode is set before a ramdisk boots, and checked again before the instance boots. Secure boot is
//! enabled before the instance boots and disabled before a ramdisk boots, because ramdisks are often not
//! signed; with `driver_info/signed_ramdisk` it is enabled for ramdisks, too. It is disabled when the instance
//! is removed. A request that the machine cannot fulfil fails the deployment before anything is changed.

use serde_json::Value;

use crate::ramdisk_boot::power_off;
use crate::{BootMode, DriverError, DriverProperty, DriverTarget, NodeChanges};

const CAPABILITIES: &str = "instance_info/capabilities";
const NODE_CAPABILITIES: &str = "properties/capabilities";
/// The key in `driver_internal_info` that records that secure boot was enabled for the instance.
const ENABLED_FOR_INSTANCE: &str = "secure_boot_enabled_for_instance";

/// The `driver_info` key for machines whose ramdisk boots with secure boot.
pub const SIGNED_RAMDISK: DriverProperty = (
    "signed_ramdisk",
    "Whether the boot loader, kernel and ramdisk of the agent are signed with a key that the firmware of \
     the machine accepts. Secure boot that an instance requests is then enabled before the ramdisk boots. \
     Optional; false if not given.",
);

/// What an instance and its node request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestedFirmware {
    /// The boot mode. Secure boot implies `uefi`.
    pub boot_mode: Option<BootMode>,
    /// Whether secure boot is on or off.
    pub secure_boot: Option<bool>,
    /// Whether the instance requests the boot mode. That of the node is ignored if the machine can neither
    /// report nor set a boot mode.
    is_instance_mode: bool,
}

impl RequestedFirmware {
    /// Parses the capabilities of the instance and of the node. The boot mode of the instance must be that of
    /// the node, if both are given.
    pub fn from_target(target: &DriverTarget<'_>) -> Result<Self, DriverError> {
        let capabilities = target.instance_info.get("capabilities");
        let of_instance = |name: &str| capability_in(capabilities?, name);
        let deploy_boot_mode = target.instance_info.get("deploy_boot_mode").and_then(Value::as_str);
        let instance_mode = match of_instance("boot_mode") {
            Some(text) => Some(parse_boot_mode(CAPABILITIES, &text)?),
            None => deploy_boot_mode
                .map(|text| parse_boot_mode("instance_info/deploy_boot_mode", text))
                .transpose()?,
        };
        let secure_boot = match of_instance("secure_boot") {
            None => None,
            Some(text) => {
                let on = node_model::parse_bool(&Value::String(text.clone()));
                Some(on.ok_or_else(|| {
                    DriverError::invalid(
                        CAPABILITIES,
                        format!("secure_boot is '{text}', but must be true or false"),
                    )
                })?)
            }
        };
        if secure_boot == Some(true) {
            if instance_mode == Some(BootMode::Bios) {
                return Err(DriverError::invalid(
                    CAPABILITIES,
                    "secure boot needs the boot mode uefi, but boot_mode is bios",
                ));
            }
            let boot_mode = Some(BootMode::Uefi);
            return Ok(Self { boot_mode, secure_boot, is_instance_mode: true });
        }
        let node_mode = target.node.properties.get("capabilities");
        let node_mode = node_mode.and_then(|given| capability_in(&given, "boot_mode"));
        let node_mode =
            node_mode.map(|text| parse_boot_mode(NODE_CAPABILITIES, &text)).transpose()?;
        if let (Some(requested), Some(of_node)) = (instance_mode, node_mode)
            && requested != of_node
        {
            return Err(DriverError::invalid(
                CAPABILITIES,
                format!(
                    "boot_mode is {requested}, but {NODE_CAPABILITIES} of the node allows only {of_node}"
                ),
            ));
        }
        let is_instance_mode = instance_mode.is_some();
        Ok(Self { boot_mode: instance_mode.or(node_mode), secure_boot, is_instance_mode })
    }

    /// Whether secure boot is on while a ramdisk runs; `None` if it stays as it is.
    fn ramdisk_secure_boot(self, target: &DriverTarget<'_>) -> Option<bool> {
        if self.secure_boot != Some(true) {
            return was_enabled_for_instance(target).then_some(false);
        }
        let is_signed = target.driver_info.get(SIGNED_RAMDISK.0).and_then(node_model::parse_bool);
        Some(is_signed.unwrap_or(false))
    }
}

/// Sets the firmware as the next ramdisk needs it, and fails before any change if the machine cannot fulfil
/// the request of the instance. Powers the machine off if something has to be changed.
pub async fn prepare_ramdisk_firmware(
    target: &DriverTarget<'_>,
) -> Result<NodeChanges, DriverError> {
    let requested = RequestedFirmware::from_target(target)?;
    let secure_boot = requested.ramdisk_secure_boot(target);
    let change = RequestedFirmwareChange::find(target, requested, secure_boot).await?;
    if change.is_none() {
        return Ok(NodeChanges::none());
    }
    let off = power_off(target).await?;
    let changes = off.and(change.apply(target).await?);
    Ok(NodeChanges { agent_stopped: true, ..changes })
}

/// Sets the firmware as the instance requests it. Called before the instance boots, while the machine is off.
pub async fn prepare_instance_firmware(
    target: &DriverTarget<'_>,
) -> Result<NodeChanges, DriverError> {
    let requested = RequestedFirmware::from_target(target)?;
    let change = RequestedFirmwareChange::find(target, requested, requested.secure_boot).await?;
    let changes = change.apply(target).await?;
    let recorded = match requested.secure_boot {
        // The node may not have the state of the machine.
        Some(true) => NodeChanges { secure_boot: Some(true), ..NodeChanges::none() },
        Some(false) | None => NodeChanges::none(),
    };
    if change.boot_mode.is_none() {
        return Ok(changes.and(recorded));
    }
    // BMCs set the boot mode together with the boot device.
    let booted = target.driver.boot().prepare_instance(target).await?;
    Ok(changes.and(recorded).and(booted))
}

/// Disables secure boot that was enabled for the instance. Called when the instance is removed.
pub async fn release_secure_boot(target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
    let requested = RequestedFirmware::from_target(target).unwrap_or_default();
    let was_enabled = was_enabled_for_instance(target);
    if requested.secure_boot != Some(true) && !was_enabled {
        return Ok(NodeChanges::none());
    }
    let management = target.driver.management();
    let disabled = match management.secure_boot(target).await {
        Ok(true) => management.set_secure_boot(target, false).await?,
        Ok(false) | Err(DriverError::Unsupported { .. }) => NodeChanges::none(),
        Err(error) => return Err(error),
    };
    Ok(if was_enabled { disabled.and(enabled_record_removed()) } else { disabled })
}

fn was_enabled_for_instance(target: &DriverTarget<'_>) -> bool {
    target.node.driver_internal_info.get(ENABLED_FOR_INSTANCE) == Some(Value::Bool(true))
}

fn enabled_record_removed() -> NodeChanges {
    NodeChanges::internal_info(ENABLED_FOR_INSTANCE, Value::Null)
}

/// The differences between the firmware of a machine and the requested one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct RequestedFirmwareChange {
    boot_mode: Option<BootMode>,
    secure_boot: Option<bool>,
}

impl RequestedFirmwareChange {
    /// Compares the firmware with the request, without changing it. `secure_boot` is the value for the next
    /// boot.
    async fn find(
        target: &DriverTarget<'_>,
        requested: RequestedFirmware,
        secure_boot: Option<bool>,
    ) -> Result<Self, DriverError> {
        // First, so that a machine without secure boot is refused for this reason.
        let change = match secure_boot {
            Some(wanted) if wanted != has_secure_boot(target, requested).await? => Some(wanted),
            Some(_) | None => None,
        };
        let boot_mode = match requested.boot_mode {
            None => None,
            Some(mode) => changed_boot_mode(target, mode, requested.is_instance_mode).await?,
        };
        if boot_mode == Some(BootMode::Bios)
            && secure_boot.is_none()
            && has_secure_boot(target, requested).await?
        {
            return Err(DriverError::invalid(
                if requested.is_instance_mode { CAPABILITIES } else { NODE_CAPABILITIES },
                "the boot mode bios is requested, but secure boot is enabled on the machine; disable it, or \
                 add secure_boot:false to the capabilities of the instance",
            ));
        }
        Ok(Self { boot_mode, secure_boot: change })
    }

    fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Secure boot is disabled before the mode changes to BIOS, and enabled after it changed to UEFI.
    async fn apply(self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        let management = target.driver.management();
        let mut changes = NodeChanges::none();
        if self.secure_boot == Some(false) {
            changes = management.set_secure_boot(target, false).await.map_err(refuse)?;
            if was_enabled_for_instance(target) {
                changes = changes.and(enabled_record_removed());
            }
        }
        // The drivers of simulated machines read the state from the node.
        let mut node = target.node.clone();
        changes.apply_to(&mut node);
        let target = &DriverTarget { node: &node, ..*target };
        if let Some(mode) = self.boot_mode {
            changes = changes.and(management.set_boot_mode(target, mode).await.map_err(refuse)?);
        }
        let mut node = target.node.clone();
        changes.apply_to(&mut node);
        let target = &DriverTarget { node: &node, ..*target };
        if self.secure_boot == Some(true) {
            changes = changes.and(management.set_secure_boot(target, true).await.map_err(refuse)?);
            changes = changes.and(NodeChanges::internal_info(ENABLED_FOR_INSTANCE, true));
        }
        Ok(changes)
    }
}

/// Whether secure boot is enabled. Fails if it is requested and the machine does not have it.
async fn has_secure_boot(
    target: &DriverTarget<'_>,
    requested: RequestedFirmware,
) -> Result<bool, DriverError> {
    match target.driver.management().secure_boot(target).await {
        Ok(is_on) => Ok(is_on),
        Err(DriverError::Unsupported { .. }) if requested.secure_boot != Some(true) => Ok(false),
        Err(error) => Err(refuse(error)),
    }
}

/// The boot mode, if it has to be set. Fails if the machine has another one that cannot be changed.
async fn changed_boot_mode(
    target: &DriverTarget<'_>,
    mode: BootMode,
    is_instance_mode: bool,
) -> Result<Option<BootMode>, DriverError> {
    let management = target.driver.management();
    let can_set = management.supported_boot_modes().contains(&mode);
    match management.boot_mode(target).await {
        Ok(current) if current == mode => return Ok(None),
        Ok(_) => {}
        Err(DriverError::Unsupported { .. }) if management.sets_boot_mode_with_device() => {
            return Ok(None);
        }
        // Some BMCs can set the boot mode, but do not report it. That of the node is set if possible, as
        // in Ironic.
        Err(DriverError::Unsupported { .. }) if can_set || is_instance_mode => {}
        Err(DriverError::Unsupported { .. }) => return Ok(None),
        Err(error) => return Err(error),
    }
    if can_set {
        return Ok(Some(mode));
    }
    Err(DriverError::invalid(
        if is_instance_mode { CAPABILITIES } else { NODE_CAPABILITIES },
        format!(
            "the boot mode {mode} is requested, but the management interface {} cannot set it",
            management.name()
        ),
    ))
}

fn parse_boot_mode(key: &str, text: &str) -> Result<BootMode, DriverError> {
    let mode = BootMode::ALL.iter().find(|mode| mode.as_str().eq_ignore_ascii_case(text.trim()));
    mode.copied().ok_or_else(|| {
        DriverError::invalid(key, format!("boot_mode is '{text}', but must be bios or uefi"))
    })
}

/// Explains that the request of the instance is the cause.
fn refuse(error: DriverError) -> DriverError {
    let DriverError::Unsupported { interface, implementation, what } = error else { return error };
    DriverError::invalid(
        CAPABILITIES,
        format!(
            "it requests what the machine cannot fulfil: the {interface} interface \
             {implementation} cannot {what}"
        ),
    )
}

/// A capability in an object, a JSON object in a text, or `name:value,…`.
pub fn capability_in(capabilities: &Value, name: &str) -> Option<String> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Bool(on) => Some(on.to_string()),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    };
    match capabilities {
        Value::Object(members) => text(members.get(name)?),
        Value::String(given) => match serde_json::from_str::<Value>(given) {
            Ok(Value::Object(members)) => text(members.get(name)?),
            Ok(_) | Err(_) => given.split(',').find_map(|pair| {
                let (key, value) = pair.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            }),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}
