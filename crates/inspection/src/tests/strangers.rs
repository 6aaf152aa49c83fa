// SPDX-License-Identifier: Apache-2.0
//! A machine in short, and what it hears on its cables.

use serde_json::{Value, json};

use super::{BENCH, Case, SERVER};
use crate::{Report, boot_card, lldp, summary};

fn report(body: Value) -> Report {
    Report::from_value(body).unwrap()
}

fn with_cards(cards: Value) -> Report {
    report(json!({"inventory": {"interfaces": cards}}))
}

/// However long the words are that a machine sends, the short form stays short.
#[test]
fn the_short_form_is_bounded() {
    let long = "x".repeat(100_000);
    let cards: Vec<Value> =
        (0..500).map(|n| json!({"name": long, "mac_address": format!("52:54:00:00:{:02x}:{:02x}", n / 256, n % 256)})).collect();
    let disks: Vec<Value> =
        (0..500).map(|_| json!({"name": long, "model": long, "size": 1})).collect();
    let body = json!({
        "inventory": {
            "interfaces": cards, "disks": disks,
            "system_vendor": {"manufacturer": long, "product_name": [long], "serial_number": {}},
            "cpu": {"model_name": long},
        },
        "error": long,
    });
    let short = summary(&report(body));
    assert!(short.as_str().len() < 20_000, "{} bytes", short.as_str().len());
}

#[test]
fn samples_in_short() {
    for sample in [SERVER, BENCH] {
        let case = Case::new(sample, "architecture");
        let short = summary(&report(case.report)).parse();
        assert_eq!(short["architecture"], "x86_64");
        assert!(short["cpus"].as_u64().unwrap() > 0);
        assert!(!short["interfaces"].as_array().unwrap().is_empty());
    }
}

#[test]
fn the_card_a_machine_is_known_by() {
    let cards = json!([{"mac_address": "?"}, {"mac_address": "52:54:00:00:00:01"},
                       {"mac_address": "52:54:00:00:00:02"}]);
    let first = with_cards(cards.clone());
    assert_eq!(boot_card(&first).unwrap().as_str(), "52:54:00:00:00:01");
    for (booted, known_by) in [
        ("01-52-54-00-00-00-02", "52:54:00:00:00:02"),
        ("52:54:00:00:00:02", "52:54:00:00:00:02"),
        // One that is not its own says nothing.
        ("52:54:00:00:00:09", "52:54:00:00:00:01"),
    ] {
        let body = json!({"inventory": {"interfaces": cards, "boot": {"pxe_interface": booted}}});
        assert_eq!(boot_card(&report(body)).unwrap().as_str(), known_by, "{booted}");
    }
    assert_eq!(boot_card(&with_cards(json!([{"mac_address": "?"}]))), None);
}

#[test]
fn silence_is_not_the_same_as_not_listening() {
    let card =
        |lldp: Value| json!([{"name": "a", "mac_address": "52:54:00:00:00:01", "lldp": lldp}]);
    assert_eq!(lldp::neighbours(&with_cards(card(Value::Null))), None);
    assert_eq!(lldp::neighbours(&with_cards(card(json!([])))), Some(Vec::new()));
    let raw = json!({"inventory": {"interfaces": card(Value::Null)}, "lldp_raw": {}});
    assert_eq!(lldp::neighbours(&report(raw)), Some(Vec::new()));
}

#[test]
fn a_neighbour_has_what_it_said() {
    // A chassis with a name of its own, a port, VLANs and an aggregate.
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
    let heard = lldp::neighbours(&report(body)).unwrap();
    let [one] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!((one.switch_id.as_str(), one.switch_name.as_deref()), ("sw01", Some("tor")));
    assert_eq!((one.port_id.as_str(), one.port_description.as_deref()), ("Eth1", Some("uplink")));
    assert_eq!(one.management_addresses, ["192.168.1.1"]);
    assert_eq!(
        Value::from(one.detail.parse()),
        json!({"untagged_vlan": 101, "aggregation_supported": true, "aggregation_enabled": true,
               "aggregation_id": 7})
    );
    // One that says neither what it is nor what it is called is nobody.
    let body = json!({
        "inventory": {"interfaces": [{"name": "a", "mac_address": "52:54:00:00:00:01"}]},
        "lldp_raw": {"a": [[2, "0545746831"]]},
    });
    assert_eq!(lldp::neighbours(&report(body)), Some(Vec::new()));
}
