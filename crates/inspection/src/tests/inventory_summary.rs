// SPDX-License-Identifier: Apache-2.0
//! Tests of the inventory summary, the boot MAC address and LLDP neighbours.

use serde_json::{Value, json};

use super::{BENCH, InspectionCase, SERVER};
use crate::{HardwareReport, boot_mac, inventory_summary, lldp};

fn report(body: Value) -> HardwareReport {
    HardwareReport::from_value(body).unwrap()
}

fn with_interfaces(interfaces: Value) -> HardwareReport {
    report(json!({"inventory": {"interfaces": interfaces}}))
}

#[test]
fn bounds_the_size_of_the_summary() {
    let long = "x".repeat(100_000);
    let interfaces: Vec<Value> =
        (0..500).map(|n| json!({"name": long, "mac_address": format!("52:54:00:00:{:02x}:{:02x}", n / 256, n % 256)})).collect();
    let disks: Vec<Value> =
        (0..500).map(|_| json!({"name": long, "model": long, "size": 1})).collect();
    let body = json!({
        "inventory": {
            "interfaces": interfaces, "disks": disks,
            "system_vendor": {"manufacturer": long, "product_name": [long], "serial_number": {}},
            "cpu": {"model_name": long},
        },
        "error": long,
    });
    let summary = inventory_summary(&report(body));
    assert!(summary.as_str().len() < 20_000, "{} bytes", summary.as_str().len());
}

#[test]
fn summarizes_the_samples() {
    for sample in [SERVER, BENCH] {
        let case = InspectionCase::new(sample, "architecture");
        let summary = inventory_summary(&report(case.report)).parse();
        assert_eq!(summary["architecture"], "x86_64");
        assert!(summary["cpus"].as_u64().unwrap() > 0);
        assert!(!summary["interfaces"].as_array().unwrap().is_empty());
    }
}

#[test]
fn boot_mac_is_the_boot_interface_or_the_first() {
    let interfaces = json!([{"mac_address": "?"}, {"mac_address": "52:54:00:00:00:01"},
                       {"mac_address": "52:54:00:00:00:02"}]);
    let first = with_interfaces(interfaces.clone());
    assert_eq!(boot_mac(&first).unwrap().as_str(), "52:54:00:00:00:01");
    for (pxe_interface, expected) in [
        ("01-52-54-00-00-00-02", "52:54:00:00:00:02"),
        ("52:54:00:00:00:02", "52:54:00:00:00:02"),
        // A MAC address of no interface is ignored.
        ("52:54:00:00:00:09", "52:54:00:00:00:01"),
    ] {
        let body = json!({"inventory": {"interfaces": interfaces, "boot": {"pxe_interface": pxe_interface}}});
        assert_eq!(boot_mac(&report(body)).unwrap().as_str(), expected, "{pxe_interface}");
    }
    assert_eq!(boot_mac(&with_interfaces(json!([{"mac_address": "?"}]))), None);
}

#[test]
fn distinguishes_no_neighbours_from_no_lldp_data() {
    let interface =
        |lldp: Value| json!([{"name": "a", "mac_address": "52:54:00:00:00:01", "lldp": lldp}]);
    assert_eq!(lldp::neighbours(&with_interfaces(interface(Value::Null))), None);
    assert_eq!(lldp::neighbours(&with_interfaces(interface(json!([])))), Some(Vec::new()));
    let raw = json!({"inventory": {"interfaces": interface(Value::Null)}, "lldp_raw": {}});
    assert_eq!(lldp::neighbours(&report(raw)), Some(Vec::new()));
}

#[test]
fn parses_neighbours() {
    // A locally assigned chassis id, a port, a VLAN and a link aggregation.
    let tlvs = json!([
        [1, "0773773031"],
        [2, "0545746831"],
        [4, "75706c696e6b"],
        [5, "746f72"],
        [8, "0501c0a80101020000000100"],
        [127, "0080c2010065"],
        [127, "0080c2070300000007"],
    ]);
    let body = json!({
        "inventory": {"interfaces": [{"name": "a", "mac_address": "52:54:00:00:00:01"}]},
        "lldp_raw": {"a": tlvs},
    });
    let neighbours = lldp::neighbours(&report(body)).unwrap();
    let [neighbour] = neighbours.as_slice() else { panic!("{neighbours:?}") };
    assert_eq!(
        (neighbour.switch_id.as_str(), neighbour.switch_name.as_deref()),
        ("sw01", Some("tor"))
    );
    assert_eq!(
        (neighbour.port_id.as_str(), neighbour.port_description.as_deref()),
        ("Eth1", Some("uplink"))
    );
    assert_eq!(neighbour.management_addresses, ["192.168.1.1"]);
    assert_eq!(
        Value::from(neighbour.detail.parse()),
        json!({"untagged_vlan": 101, "aggregation_supported": true, "aggregation_enabled": true,
               "aggregation_id": 7})
    );
    // Without chassis id and system name there is no neighbour.
    let body = json!({
        "inventory": {"interfaces": [{"name": "a", "mac_address": "52:54:00:00:00:01"}]},
        "lldp_raw": {"a": [[2, "0545746831"]]},
    });
    assert_eq!(lldp::neighbours(&report(body)), Some(Vec::new()));
}
