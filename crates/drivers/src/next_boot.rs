// SPDX-License-Identifier: Apache-2.0
//! The boot device of the next boot, for boot interfaces: set through the management interface, with
//! the operator's override and the firmware's behaviour taken into account.

use node_model::ProvisionState;
use serde_json::{Map, Value};

use crate::{BootDevice, DriverError, DriverProperty, DriverTarget, NodeChanges};

/// The `driver_info` key that overrides the persistence of boot devices.
const FORCE_PERSISTENT: DriverProperty = (
    "force_persistent_boot_device",
    "Whether boot devices are set persistently ('Always'), for the next boot only ('Never') or as \
     each operation requires ('Default'). Optional.",
);

/// The `driver_info` keys of all boot interfaces.
pub const BOOT_PROPERTIES: [DriverProperty; 6] = [
    FORCE_PERSISTENT,
    (
        "deploy_kernel",
        "The URL of the kernel of the ramdisk for deployment, cleaning, service and inspection. \
         Optional where boot.deploy_kernel is configured.",
    ),
    (
        "deploy_ramdisk",
        "The URL of the ramdisk for deployment, cleaning, service and inspection. Optional where \
         boot.deploy_ramdisk is configured.",
    ),
    (
        "rescue_kernel",
        "The URL of the kernel of the ramdisk for rescue. Optional where boot.rescue_kernel is \
         configured.",
    ),
    (
        "rescue_ramdisk",
        "The URL of the ramdisk for rescue. Optional where boot.rescue_ramdisk is configured.",
    ),
    (
        "kernel_append_params",
        "Parameters for the ramdisk's kernel; %default% stands for the configured ones. Optional.",
    ),
];

/// Sets the boot device: for the next boot, or persistently if `persistent` is true and the operator
/// does not override it.
pub async fn set_boot_device(
    target: &DriverTarget<'_>,
    device: BootDevice,
    persistent: bool,
) -> Result<NodeChanges, DriverError> {
    let persistent = is_persistent(target.driver_info, persistent)?;
    target.driver.management().set_boot_device(target, device, persistent).await
}

/// Makes the machine boot from its disk persistently, unless the firmware does so itself.
pub async fn set_disk_boot(target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
    if target.driver.management().sets_disk_boot_itself(target).await? {
        return Ok(NodeChanges::none());
    }
    set_boot_device(target, BootDevice::Disk, true).await
}

/// Whether the instance already runs, so that its boot setup must not change: after a takeover or on
/// adoption.
pub fn is_instance_running(target: &DriverTarget<'_>) -> bool {
    matches!(target.node.provision_state, ProvisionState::Active | ProvisionState::Adopting)
}

/// Whether the instance runs without a disk and boots over the network or from an ISO every time.
pub fn is_ramdisk_instance(target: &DriverTarget<'_>) -> Result<bool, DriverError> {
    let is_set = |key: &str| {
        let value = target.instance_info.get(key);
        value.is_some_and(|value| !value.is_null() && value != "")
    };
    let has_boot_iso = is_set(BOOT_ISO);
    if has_boot_iso && is_set("image_source") {
        return Err(DriverError::invalid(
            format!("instance_info/{BOOT_ISO}"),
            "image_source is set too; an instance is either written to the disk or runs from an ISO \
             image, so remove one of them",
        ));
    }
    Ok(has_boot_iso || target.driver.deploy().name() == RAMDISK_DEPLOY)
}

/// Name of the deploy interface whose instances run from memory.
pub const RAMDISK_DEPLOY: &str = "ramdisk";

/// The `instance_info` key of an instance that runs from an ISO image.
const BOOT_ISO: &str = "boot_iso";

/// Whether to set the boot device persistently; `default` applies unless the operator overrides it.
pub fn is_persistent(driver_info: &Map<String, Value>, default: bool) -> Result<bool, DriverError> {
    let forced = match driver_info.get(FORCE_PERSISTENT.0) {
        None | Some(Value::Null) => return Ok(default),
        Some(Value::Bool(forced)) => Some(*forced),
        // Ironic's former boolean values, of which only true had an effect.
        Some(Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "always" | "true" | "yes" => Some(true),
            "default" | "false" | "no" | "" => return Ok(default),
            "never" => return Ok(false),
            _ => None,
        },
        Some(Value::Number(_) | Value::Array(_) | Value::Object(_)) => None,
    };
    match forced {
        Some(forced) => Ok(forced || default),
        None => Err(DriverError::invalid(
            format!("driver_info/{}", FORCE_PERSISTENT.0),
            "use 'Always', 'Never' or 'Default'",
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn force_persistent_overrides_default() {
        for (value, once, always) in [
            (json!(null), false, true),
            (json!("Default"), false, true),
            (json!("Always"), true, true),
            (json!("Never"), false, false),
            (json!(true), true, true),
            (json!(false), false, true),
            (json!("True"), true, true),
        ] {
            let info = Map::from_iter([(FORCE_PERSISTENT.0.to_owned(), value.clone())]);
            assert_eq!(is_persistent(&info, false).unwrap(), once, "{value}");
            assert_eq!(is_persistent(&info, true).unwrap(), always, "{value}");
        }
        let info = Map::from_iter([(FORCE_PERSISTENT.0.to_owned(), json!("Sometimes"))]);
        let error = is_persistent(&info, true).unwrap_err().to_string();
        assert!(error.contains("force_persistent_boot_device") && error.contains("'Never'"));
    }
}
