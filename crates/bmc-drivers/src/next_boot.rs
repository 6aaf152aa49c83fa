// SPDX-License-Identifier: Apache-2.0
//! Where a machine boots next, for the boot interfaces: through its management interface, with
//! what the operator forces and what the firmware does by itself.

use node_model::ProvisionState;
use serde_json::{Map, Value};

use crate::{BootDevice, Error, NodeChanges, Property, Target};

/// The `driver_info` key that says how long a boot device is to be set for.
const FORCE_PERSISTENT: Property = (
    "force_persistent_boot_device",
    "Whether boot devices are set for all boots ('Always'), for the next boot only ('Never') or as \
     each case wants it ('Default'). Optional.",
);

/// The `driver_info` keys of all boot interfaces.
pub(crate) const BOOT_PROPERTIES: [Property; 6] = [
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

/// Makes the machine boot from `device`: at its next boot, or at all of them if `persistent` is
/// true and the operator does not force something else.
pub(crate) async fn boot_from(
    target: &Target<'_>,
    device: BootDevice,
    persistent: bool,
) -> Result<NodeChanges, Error> {
    let persistent = is_persistent(target.driver_info, persistent)?;
    target.driver.management().set_boot_device(target, device, persistent).await
}

/// Makes the machine boot from its disk from now on, unless its firmware sees to that.
pub(crate) async fn boot_from_disk(target: &Target<'_>) -> Result<NodeChanges, Error> {
    if target.driver.management().boots_disk_by_itself(target).await? {
        return Ok(NodeChanges::none());
    }
    boot_from(target, BootDevice::Disk, true).await
}

/// Whether the instance runs already, so that how it boots is none of our business: after a
/// takeover or on adoption.
pub(crate) fn instance_runs(target: &Target<'_>) -> bool {
    matches!(target.node.provision_state, ProvisionState::Active | ProvisionState::Adopting)
}

/// Whether the instance has no disk: it is booted from outside every time.
pub(crate) fn lives_in_memory(target: &Target<'_>) -> Result<bool, Error> {
    let given = |key: &str| {
        let value = target.instance_info.get(key);
        value.is_some_and(|value| !value.is_null() && value != "")
    };
    let from_cd = given(BOOT_ISO);
    if from_cd && given("image_source") {
        return Err(Error::invalid(
            format!("instance_info/{BOOT_ISO}"),
            "there is an image_source too; an instance is either written to the disk or runs from \
             an ISO image, so remove one of them",
        ));
    }
    Ok(from_cd || target.driver.deploy().name() == crate::ramdisk::NAME)
}

/// The `instance_info` key of an instance that runs from a CD.
const BOOT_ISO: &str = "boot_iso";

/// How long the boot device is set for, if `wanted` is what the case at hand wants.
pub(crate) fn is_persistent(driver_info: &Map<String, Value>, wanted: bool) -> Result<bool, Error> {
    let forced = match driver_info.get(FORCE_PERSISTENT.0) {
        None | Some(Value::Null) => return Ok(wanted),
        Some(Value::Bool(forced)) => Some(*forced),
        // It once was true or false, and only true made a difference.
        Some(Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "always" | "true" | "yes" => Some(true),
            "default" | "false" | "no" | "" => return Ok(wanted),
            "never" => return Ok(false),
            _ => None,
        },
        Some(Value::Number(_) | Value::Array(_) | Value::Object(_)) => None,
    };
    match forced {
        Some(forced) => Ok(forced || wanted),
        None => Err(Error::invalid(
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
    fn what_the_operator_forces() {
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
