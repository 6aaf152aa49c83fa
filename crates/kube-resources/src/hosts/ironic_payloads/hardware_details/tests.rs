// SPDX-License-Identifier: Apache-2.0
//! Inventories and the hardware details they become.

use serde_json::json;

use super::*;

fn details(value: Value) -> Value {
    let inventory: IronicInventory = serde_json::from_value(value).unwrap();
    json!(hardware_details(&inventory))
}

#[test]
fn a_complete_inventory_is_translated() {
    let made = details(json!({
        "inventory": {
            "hostname": "host-0",
            "memory": {"physical_mb": 131072, "total": 1},
            "cpu": {"architecture": "x86_64", "model_name": "CPU", "frequency": "2599.6",
                "count": 8, "flags": ["sse", "fpu"]},
            "system_vendor": {"manufacturer": "M", "product_name": "P", "serial_number": "S",
                "firmware": {"vendor": "V", "version": "1", "build_date": "2026"}},
            "interfaces": [{"name": "eth0", "mac_address": "00:53:00:12:34:56",
                "ipv4_address": "192.0.2.1", "ipv6_address": "2001:db8::1", "vendor": "0x8086",
                "product": "0x1572", "speed_mbps": 25000, "pci_address": "0000:01:00.0"}],
            "disks": [{"name": "/dev/sda", "by_path": "/dev/disk/by-path/p", "rotational": true,
                "size": 1000, "vendor": "V", "model": "M", "serial": "S", "wwn": "W",
                "wwn_vendor_extension": "WV", "wwn_with_extension": "WE", "hctl": "0:0:0:0"}],
        },
        "plugin_data": {
            "all_interfaces": {"eth0": {"pxe_enabled": true}},
            "parsed_lldp": {"eth0": {"switch_chassis_id": "c", "switch_port_id": "p",
                "switch_system_name": "s", "switch_port_untagged_vlan_id": 100,
                "switch_port_vlans": [{"id": 100, "name": "a"}, {"id": 200}]}},
        },
    }));
    let nic = |address: &str| {
        json!({
            "name": "eth0", "mac": "00:53:00:12:34:56", "ip": address, "model": "0x8086 0x1572",
            "speedGbps": 25, "pciAddress": "0000:01:00.0", "pxe": true, "vlanId": 100,
            "vlans": [{"id": 100, "name": "a"}, {"id": 200}],
            "lldp": {"switchID": "c", "portID": "p", "switchSystemName": "s"},
        })
    };
    assert_eq!(
        made,
        json!({
            "hostname": "host-0",
            "ramMebibytes": 131072,
            "cpu": {"arch": "x86_64", "model": "CPU", "clockMegahertz": 2600.0, "count": 8,
                "flags": ["fpu", "sse"]},
            "systemVendor": {"manufacturer": "M", "productName": "P", "serialNumber": "S"},
            "firmware": {"bios": {"vendor": "V", "version": "1", "date": "2026"}},
            "nics": [nic("192.0.2.1"), nic("2001:db8::1")],
            "storage": [{"name": "/dev/disk/by-path/p", "alternateNames":
                ["/dev/sda", "/dev/disk/by-path/p"], "rotational": true, "type": "HDD",
                "sizeBytes": 1000, "vendor": "V", "model": "M", "serialNumber": "S", "wwn": "W",
                "wwnVendorExtension": "WV", "wwnWithExtension": "WE", "hctl": "0:0:0:0"}],
        })
    );
}

#[test]
fn missing_and_null_values_are_left_out() {
    assert_eq!(details(json!({})), json!({}));
    let nulls = json!({
        "inventory": {"interfaces": null, "disks": null, "memory": null, "cpu": null,
            "system_vendor": null, "hostname": null},
        "plugin_data": null,
    });
    assert_eq!(details(nulls), json!({}));
    let nulls = json!({"inventory": {
        "interfaces": [{"name": "eth0", "mac_address": null, "speed_mbps": null, "vendor": null}],
        "cpu": {"frequency": null, "flags": null},
    }});
    assert_eq!(details(nulls), json!({"nics": [{"name": "eth0"}]}));
}

#[test]
fn disks_have_a_type_and_a_stable_name() {
    for (name, rotational, expected) in [
        ("/dev/sda", true, "HDD"),
        ("/dev/sda", false, "SSD"),
        ("/dev/nvme0n1", false, "NVME"),
        ("/dev/nvme0n1", true, "HDD"),
    ] {
        let disk = json!({"name": name, "rotational": rotational, "size": 1});
        let made = details(json!({"inventory": {"disks": [disk]}}));
        assert_eq!(made["storage"][0]["type"], expected, "{name} {rotational}");
        assert_eq!(made["storage"][0]["name"], name);
    }
}

#[test]
fn the_frequency_is_a_text_or_a_number() {
    for (frequency, expected) in [
        (json!("2599.4"), json!(2599.0)),
        (json!(2599.5), json!(2600.0)),
        (json!("unknown"), Value::Null),
        (json!("NaN"), Value::Null),
        (json!(["x"]), Value::Null),
    ] {
        let made = details(json!({"inventory": {"cpu": {"frequency": frequency}}}));
        let megahertz = made.pointer("/cpu/clockMegahertz").cloned().unwrap_or_default();
        assert_eq!(megahertz, expected, "{frequency}");
    }
}

#[test]
fn values_that_the_schema_rejects_are_left_out() {
    let made = details(json!({
        "inventory": {"interfaces": [{"name": "eth0", "mac_address": "unknown"}]},
        "plugin_data": {"all_interfaces": [], "parsed_lldp": {"eth0": {
            "switch_port_untagged_vlan_id": 5000, "switch_chassis_id": "",
            "switch_port_vlans": [{"id": -1}, {"name": "x"}, {"id": "7"}, {"id": 7}],
        }}},
    }));
    assert_eq!(made, json!({"nics": [{"name": "eth0", "vlans": [{"id": 7}]}]}));
}
