// SPDX-License-Identifier: Apache-2.0
//! What caches keep of objects. Ten thousand hosts have to fit into little memory.

use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::hardware_data::{HardwareDetails, HostNic};
use kube_resources::hosts::host_firmware_components::HostFirmwareComponents;
use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;

/// Annotation of `kubectl apply` with a copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Removes the copy that `kubectl` stores, and all hardware details but the MAC addresses, which
/// registration needs. A status with other hardware details therefore differs from a narrow one.
pub(super) fn narrow_host(host: &mut BareMetalHost) {
    host.metadata.managed_fields = None;
    if let Some(annotations) = &mut host.metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    let hardware = host.status.as_mut().and_then(|status| status.hardware.as_mut());
    if let Some(hardware) = hardware {
        let nics = hardware.nics.drain(..);
        let nics = nics.map(|nic| HostNic { mac: nic.mac, ..HostNic::default() }).collect();
        *hardware = HardwareDetails { nics, ..HardwareDetails::default() };
    }
}

/// Removes the current values, of which there are hundreds.
pub(super) fn narrow_settings(settings: &mut HostFirmwareSettings) {
    if let Some(status) = &mut settings.status {
        status.settings.clear();
    }
}

/// Removes the versions.
pub(super) fn narrow_components(components: &mut HostFirmwareComponents) {
    if let Some(status) = &mut components.status {
        status.components = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_narrow_host_is_small_and_keeps_what_decisions_need() {
        let mut host: BareMetalHost = serde_json::from_value(json!({
            "metadata": {"name": "a", "managedFields": [{"manager": "x"}],
                "annotations": {LAST_APPLIED: "{}", "reboot.metal3.io": ""}},
            "spec": {"online": true},
            "status": {"hardware": {"hostname": "h", "cpu": {"flags": ["fpu"]},
                "nics": [{"name": "eth0", "mac": "52:54:00:00:00:01", "ip": "192.0.2.1"}]}},
        }))
        .unwrap();
        narrow_host(&mut host);
        assert_eq!(
            serde_json::to_value(&host).unwrap()["metadata"],
            json!({"name": "a", "annotations": {"reboot.metal3.io": ""}})
        );
        let hardware = host.status.unwrap().hardware.unwrap();
        assert_eq!(
            serde_json::to_value(hardware).unwrap(),
            json!({"nics": [{"mac": "52:54:00:00:00:01"}]})
        );
    }
}
