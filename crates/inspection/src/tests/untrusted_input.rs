// SPDX-License-Identifier: Apache-2.0
//! Property tests: no input causes a panic.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{BENCH, InspectionCase, SERVER};
use crate::{AddPorts, HardwareReport, Hook, KeepPorts, PciAlias, lldp, lookup, validate_rule};

/// Keys that hooks and rules read, so that random values reach them.
const KEYS: &[&str] = &[
    "interfaces",
    "name",
    "mac_address",
    "ipv4_address",
    "ipv6_address",
    "client_id",
    "lldp",
    "cpu",
    "count",
    "architecture",
    "flags",
    "disks",
    "size",
    "serial",
    "memory",
    "physical_mb",
    "boot",
    "pxe_interface",
    "current_boot_mode",
    "root_disk",
    "pci_devices",
    "vendor_id",
    "product_id",
    "bus",
    "data",
    "lldp_raw",
    "eno1",
    "error",
    "logs",
    "bmc_address",
    "op",
    "args",
    "values",
    "value",
    "loop",
    "multiple",
    "regex",
    "path",
];
const TEXTS: &[&str] = &[
    "",
    "eno1",
    "52:54:00:aa:bb:01",
    "01-52-54-00-aa-bb-01",
    "04885a92ec5459",
    "127.0.0.1",
    "fe80::1%eth0",
    "::/0",
    "{inventory[cpu]}",
    "{node.extra",
    "a.b.c",
    "eq",
    "!matches",
    "set-attribute",
    "é\u{0}☃",
    "1e999",
    "-1",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(TEXTS).prop_map(str::to_owned),
        "[0-9a-f]{0,40}",
        ".{0,12}"
    ]
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0u8..130, text()).prop_map(|(kind, hex)| json!([kind, hex])),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 8, |inner| {
        let key = prop_oneof![proptest::sample::select(KEYS).prop_map(str::to_owned), text()];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..8)
                .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// All hooks, with settings that enable all their branches.
fn all_hooks(sample: &str) -> InspectionCase {
    let hooks: Vec<&str> = Hook::all().map(Hook::as_str).collect();
    InspectionCase::new(sample, &hooks.join(",")).port(11, "52:54:00:aa:bb:01").with(|case| {
        case.settings.add_ports = AddPorts::All;
        case.settings.keep_ports = KeepPorts::Present;
        case.settings.physical_network_cidr_map = vec!["0.0.0.0/0:v4".parse().unwrap()];
        let (vendor_id, product_id, name) = ("10de".to_owned(), "1eb8".to_owned(), "t4".to_owned());
        case.settings.pci_device_alias = vec![PciAlias { vendor_id, product_id, name }];
    })
}

/// Collects JSON pointers to all values of a report.
fn collect_pointers(value: &Value, at: &str, pointers: &mut Vec<String>) {
    pointers.push(at.to_owned());
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_pointers(item, &format!("{at}/{index}"), pointers);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                collect_pointers(member, &format!("{at}/{key}"), pointers);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_do_not_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = HardwareReport::parse(&body);
    }

    #[test]
    fn any_damage_does_not_panic(sample in proptest::sample::select(&[SERVER, BENCH][..]), damage in
            proptest::collection::vec((any::<proptest::sample::Index>(), json_value()), 1..4)) {
        let mut case = all_hooks(sample);
        for (position, value) in damage {
            let mut pointers = Vec::new();
            collect_pointers(&case.report, "", &mut pointers);
            // A generated key may contain a slash; its pointer then does not resolve.
            if let Some(target) = case.report.pointer_mut(&pointers[position.index(pointers.len())]) {
                *target = value;
            }
        }
        if let Ok(report) = HardwareReport::from_value(case.report.clone()) {
            let _ = lookup::candidate_macs(&report);
            let _ = lookup::bmc_addresses(&report);
            if let Ok(result) = case.process() {
                prop_assert!(serde_json::from_str::<Value>(result.plugin_data.as_str()).is_ok());
                result.node.apply_to(&mut case.node);
            }
        }
    }

    #[test]
    fn any_driver_info_do_not_panic(value in json_value(), key in "[a-z]{0,3}_address") {
        let mut case = InspectionCase::new(SERVER, "");
        case.node.driver_info.set(&key, value);
        let _ = lookup::node_bmc_addresses(&case.node);
    }

    #[test]
    fn any_properties_do_not_panic(hints in json_value(), capabilities in json_value()) {
        let properties = json!({"root_device": hints, "capabilities": capabilities, "skip_block_devices": [hints]});
        let _ = all_hooks(SERVER).properties(properties).process();
    }

    #[test]
    fn any_tlvs_do_not_panic(tlvs in proptest::collection::vec(
            (prop_oneof![0u64..9, Just(127)], "(0080c2|00120f)?[0-9]{0,2}([0-9a-f]{2}){0,20}"), 0..9)) {
        let tlvs: Vec<Value> = tlvs.into_iter().map(|(kind, hex)| json!([kind, hex])).collect();
        let _ = lldp::parse_link(&tlvs);
        let _ = lldp::parse_tlvs(&tlvs);
    }

    #[test]
    fn any_rule_does_not_panic(conditions in proptest::collection::vec(json_value(), 0..3), actions in
            proptest::collection::vec(json_value(), 0..3)) {
        let _ = validate_rule(&conditions, &actions);
    }

    #[test]
    fn any_template_and_path_do_not_panic(template in prop_oneof!["[{}!.:\\[\\]a-z]{0,20}", text()], path in text(), item in json_value()) {
        let set = |op: &str| json!({"op": op, "args": {"path": path, "value": template}});
        let looped = json!({"op": "set-plugin-data", "args": {"path": "{item}", "value": "{item[value]}"}, "loop": [item]});
        for action in [set("set-attribute"), set("extend-attribute"), set("set-plugin-data"), looped] {
            let empty = json!([{"op": "!is-empty", "args": {"value": template}}]);
            let _ = InspectionCase::new(SERVER, "").rule(empty, json!([action])).process();
        }
    }
}
