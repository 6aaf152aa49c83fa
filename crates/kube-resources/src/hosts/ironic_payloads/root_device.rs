// SPDX-License-Identifier: Apache-2.0
//! Hints for the root device, in Ironic's notation.

use serde_json::{Map, Value};

use super::super::raid::DiskHints;

/// Values of the deprecated field `hardwareProfile`, and the hints they stand for.
const PROFILES: &[(&str, ProfileHint)] = &[
    ("unknown", ProfileHint::Device("/dev/sda")),
    ("libvirt", ProfileHint::Device("/dev/vda")),
    ("dell", ProfileHint::Hctl("0:0:0:0")),
    ("dell-raid", ProfileHint::Hctl("0:2:0:0")),
    ("openstack", ProfileHint::Device("/dev/vdb")),
    ("empty", ProfileHint::Nothing),
];

enum ProfileHint {
    Device(&'static str),
    Hctl(&'static str),
    Nothing,
}

/// The hints of a hardware profile; `None` if it is unknown.
#[must_use]
pub fn profile_hints(profile: &str) -> Option<DiskHints> {
    let (_, hint) = PROFILES.iter().find(|(name, _)| *name == profile)?;
    Some(match hint {
        ProfileHint::Device(name) => {
            DiskHints { device_name: Some((*name).to_owned()), ..DiskHints::default() }
        }
        ProfileHint::Hctl(address) => {
            DiskHints { hctl: Some((*address).to_owned()), ..DiskHints::default() }
        }
        ProfileHint::Nothing => DiskHints::default(),
    })
}

/// The value of `root_device`, also used for the disks of software RAID.
#[must_use]
pub fn root_device(hints: &DiskHints) -> Map<String, Value> {
    let mut device = Map::new();
    let mut set = |key: &str, operator: &str, value: Option<&str>| {
        if let Some(value) = value {
            device.insert(key.to_owned(), Value::String(format!("{operator}{value}")));
        }
    };
    let name = hints.device_name.as_deref();
    let is_by_path = name.is_some_and(|name| name.starts_with("/dev/disk/by-path/"));
    set(if is_by_path { "by_path" } else { "name" }, "s== ", name);
    set("hctl", "s== ", hints.hctl.as_deref());
    set("model", "<in> ", hints.model.as_deref());
    set("vendor", "<in> ", hints.vendor.as_deref());
    set("serial", "s== ", hints.serial_number.as_deref());
    let size = hints.min_size_gigabytes.filter(|size| *size != 0).map(|size| size.to_string());
    set("size", ">= ", size.as_deref());
    set("wwn", "s== ", hints.wwn.as_deref());
    set("wwn_with_extension", "s== ", hints.wwn_with_extension.as_deref());
    set("wwn_vendor_extension", "s== ", hints.wwn_vendor_extension.as_deref());
    let rotational = hints.rotational.map(|rotational| rotational.to_string());
    set("rotational", "", rotational.as_deref());
    device
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_hint_has_its_operator() {
        let check = |hints: Value, expected: Value| {
            let hints: DiskHints = serde_json::from_value(hints).unwrap();
            assert_eq!(Value::Object(root_device(&hints)), expected);
        };
        check(json!({}), json!({}));
        check(json!({"minSizeGigabytes": 0}), json!({}));
        check(
            json!({
                "deviceName": "/dev/sda", "hctl": "0:0:0:0", "model": "M", "vendor": "V",
                "serialNumber": "S", "minSizeGigabytes": 40, "wwn": "W", "wwnWithExtension": "WE",
                "wwnVendorExtension": "WV", "rotational": false,
            }),
            json!({
                "name": "s== /dev/sda", "hctl": "s== 0:0:0:0", "model": "<in> M",
                "vendor": "<in> V", "serial": "s== S", "size": ">= 40", "wwn": "s== W",
                "wwn_with_extension": "s== WE", "wwn_vendor_extension": "s== WV",
                "rotational": "false",
            }),
        );
        check(
            json!({"deviceName": "/dev/disk/by-path/pci-1", "rotational": true}),
            json!({"by_path": "s== /dev/disk/by-path/pci-1", "rotational": "true"}),
        );
    }

    #[test]
    fn profiles_become_hints() {
        let check = |profile: &str, expected: Value| {
            let hints = profile_hints(profile).unwrap();
            assert_eq!(Value::Object(root_device(&hints)), expected, "{profile}");
        };
        check("unknown", json!({"name": "s== /dev/sda"}));
        check("libvirt", json!({"name": "s== /dev/vda"}));
        check("dell", json!({"hctl": "s== 0:0:0:0"}));
        check("dell-raid", json!({"hctl": "s== 0:2:0:0"}));
        check("openstack", json!({"name": "s== /dev/vdb"}));
        check("empty", json!({}));
        assert_eq!(profile_hints("other"), None);
    }
}
