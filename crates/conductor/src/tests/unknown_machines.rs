// SPDX-License-Identifier: Apache-2.0
//! Unknown machines, and the data stored by in-band inspections.

use inspection::{AutoDiscovery, CollectLogs, HardwareReport, InspectionSettings};
use node_model::{Flavour, FlavourId, JsonArray, JsonObject, Mac, NodeId, Port, PortId};
use node_model::{Node, ProvisionState, Timestamp};
use serde_json::{Map, Value, json};
use store::{CableFilter, NodeFilter, PortFilter, ResourceQuery};

use super::{AGENT_ADDRESS, TestConductor, agent_at, user};
use crate::{EnrolError, NewNodeSettings};

const MAC: &str = "52:54:00:aa:00:01";
const OTHER_MAC: &str = "52:54:00:aa:00:02";

fn body() -> Value {
    json!({
        "inventory": {
            "interfaces": [
                {"name": "eno1", "mac_address": MAC, "ipv4_address": "10.0.0.9",
                 "lldp": [[1, "04aabbccddeeff"], [2, "0545746865726e6574312f31"], [5, "746f72"]]},
                {"name": "eno2", "mac_address": OTHER_MAC, "lldp": []},
            ],
            "cpu": {"architecture": "x86_64", "count": 8},
            "memory": {"physical_mb": 16384},
            "disks": [{"name": "/dev/sda", "size": 1_000_000_000_000_u64}],
            "bmc_address": "10.1.0.7",
            "system_vendor": {"manufacturer": "Acme", "product_name": "Anvil", "serial_number": "7"},
            "boot": {"current_boot_mode": "uefi", "pxe_interface": "01-52-54-00-aa-00-01"},
        },
        "logs": "H4sIAAAA",
    })
}

fn report() -> HardwareReport {
    HardwareReport::from_value(body()).unwrap()
}

fn auto_discovery(driver: &str) -> InspectionSettings {
    InspectionSettings {
        auto_discovery: Some(AutoDiscovery {
            driver: driver.to_owned(),
            conductor_group: String::new(),
            resource_class: Some("found".to_owned()),
        }),
        ..InspectionSettings::default()
    }
}

/// A flavour with a condition on the memory.
fn flavour(name: &str, op: &str, memory: u64) -> Flavour {
    let values = json!(["{inventory[memory][physical_mb]}", memory]);
    Flavour {
        id: FlavourId::random(),
        name: name.to_owned(),
        created_at: Timestamp(0),
        updated_at: None,
        description: None,
        priority: 0,
        conditions: JsonArray::from(vec![json!({"op": op, "args": {"values": values}})]),
        resource_class: Some(name.to_owned()),
        traits: vec![format!("CUSTOM_{}", name.to_uppercase())],
        properties: JsonObject::empty(),
        capabilities: JsonObject::empty(),
        overwrite: false,
    }
}

async fn send(test: &TestConductor, report: HardwareReport) -> Option<NodeId> {
    let reply = test.conductor.continue_inspection(report, None, agent_at(AGENT_ADDRESS)).await;
    reply.unwrap().map(|reply| reply.node)
}

async fn ports(test: &TestConductor, id: NodeId) -> Vec<String> {
    let query = ResourceQuery::<Port> {
        filter: PortFilter { node: Some(id), ..PortFilter::default() },
        ..ResourceQuery::default()
    };
    let ports = test.store.read(move |reader| reader.collect(&query)).await.unwrap();
    ports.into_iter().map(|port| port.address.as_str().to_owned()).collect()
}

async fn count_nodes(test: &TestConductor) -> u64 {
    test.store.read(|reader| reader.count::<Node>(&NodeFilter::default())).await.unwrap()
}

#[tokio::test]
async fn enrols_a_machine_once() {
    let test = TestConductor::with_inspection(auto_discovery("ipmi"));
    let id = send(&test, report()).await.expect("a node");
    let node = test.get(id).await;
    assert_eq!(node.provision_state, ProvisionState::Enroll);
    assert_eq!((node.driver.as_str(), node.name.as_deref()), ("ipmi", None));
    assert_eq!(node.driver_info.parse(), *json!({"ipmi_address": "10.1.0.7"}).as_object().unwrap());
    assert_eq!(node.resource_class.as_deref(), Some("found"));
    assert_eq!(node.properties.get("cpu_arch"), Some(json!("x86_64")));
    assert_eq!(ports(&test, id).await, [MAC]);
    let inventory = test.store.read(move |reader| reader.inventory(id)).await.unwrap().unwrap();
    assert_eq!(inventory.plugin_data.get("auto_discovered"), Some(json!(true)));
    assert!(inventory.plugin_data.get("logs").is_none());
    let notes = test.notes(id).await;
    assert!(
        notes[0].contains("enrolled automatically") && notes[0].contains("10.1.0.7"),
        "{notes:?}"
    );
    let mac: Mac = MAC.parse().unwrap();
    let machine = test.store.read(move |reader| reader.sighting(&mac)).await.unwrap().unwrap();
    assert_eq!(machine.node_id, Some(id));

    assert_eq!(send(&test, report()).await, None, "it is enrolled and not in inspection");
    assert_eq!(count_nodes(&test).await, 1);
}

/// Without a hook that creates ports too: the machine must be recognised.
#[tokio::test]
async fn concurrent_reports_enrol_one_node() {
    let mut settings = auto_discovery("redfish");
    settings.hooks = inspection::parse_hooks("architecture").unwrap();
    let test = TestConductor::with_inspection(settings);
    let (one, two) = tokio::join!(send(&test, report()), send(&test, report()));
    assert_eq!(count_nodes(&test).await, 1);
    let id = one.xor(two).expect("one is accepted");
    assert_eq!(ports(&test, id).await, [MAC]);
    let node = test.get(id).await;
    assert_eq!(node.driver_info.get("redfish_address"), Some(json!("https://10.1.0.7")));
}

#[tokio::test]
async fn enrols_a_machine_with_a_failed_report() {
    let test = TestConductor::with_inspection(auto_discovery("fake-hardware"));
    let mut bad = body();
    bad["error"] = json!("no disks");
    let id = send(&test, HardwareReport::from_value(bad).unwrap()).await.unwrap();
    let node = test.get(id).await;
    assert!(node.last_error.unwrap().contains("no disks"));
    assert_eq!(ports(&test, id).await, [MAC]);
    let logs = test.store.read(move |reader| reader.agent_logs(id)).await.unwrap();
    assert_eq!(logs.len(), 1);
}

#[tokio::test]
async fn does_not_enrol_with_an_unknown_driver() {
    let test = TestConductor::with_inspection(auto_discovery("no-such-driver"));
    assert_eq!(send(&test, report()).await, None);
    assert_eq!(count_nodes(&test).await, 0);
}

#[tokio::test]
async fn stores_an_unknown_machine_until_it_is_enrolled() {
    let test = TestConductor::new();
    assert_eq!(send(&test, report()).await, None);
    assert_eq!(count_nodes(&test).await, 0);
    let machines = test.store.read(|reader| reader.unknown_machines(9)).await.unwrap();
    assert_eq!(machines.len(), 1, "one machine is one sighting");
    let summary = machines[0].summary.parse();
    for (key, value) in [
        ("vendor", json!("Acme")),
        ("model", json!("Anvil")),
        ("serial_number", json!("7")),
        ("cpus", json!(8)),
        ("memory_mb", json!(16384)),
        ("bmc_addresses", json!(["10.1.0.7"])),
        (
            "neighbours",
            json!([{"interface": "eno1", "switch": "aa:bb:cc:dd:ee:ff", "switch_name": "tor",
                    "switch_port": "Ethernet1/1"}]),
        ),
    ] {
        assert_eq!(summary.get(key), Some(&value), "{key}");
    }

    let settings = |name: &str| NewNodeSettings {
        driver: "ipmi".to_owned(),
        driver_info: Map::from_iter([("ipmi_password".to_owned(), json!("hunter2"))]),
        name: Some(name.to_owned()),
        conductor_group: String::new(),
        resource_class: None,
    };
    let mac: Mac = MAC.parse().unwrap();
    let enrol =
        |name, mac: &Mac| test.conductor.enrol_unknown_machine(mac.clone(), settings(name), user());
    let unknown: Mac = "52:54:00:00:00:99".parse().unwrap();
    assert!(matches!(enrol("a", &unknown).await, Err(EnrolError::Unknown(_))));
    let id = enrol("a", &mac).await.unwrap();
    let node = test.get(id).await;
    assert_eq!(node.driver_info.get("ipmi_password"), Some(json!(node_model::MASK)));
    assert_eq!(node.properties.get("cpu_arch"), Some(json!("x86_64")));
    assert_eq!(ports(&test, id).await, [MAC]);
    assert!(test.store.read(move |reader| reader.inventory(id)).await.unwrap().is_some());
    assert!(test.store.read(|reader| reader.unknown_machines(9)).await.unwrap().is_empty());
    assert!(matches!(enrol("b", &mac).await, Err(EnrolError::Enrolled { node, .. }) if node == id));
}

#[tokio::test]
async fn machine_of_an_enrolled_node_is_not_unknown() {
    let test = TestConductor::with_inspection(auto_discovery("ipmi"));
    let id = test.insert_node(ProvisionState::Available, json!({})).await;
    let port = Port::new(PortId::random(), id, MAC.parse().unwrap(), Timestamp(0));
    test.store.write(move |tx| tx.insert(&port)).await.unwrap();
    assert_eq!(send(&test, report()).await, None);
    assert_eq!(count_nodes(&test).await, 1);
    assert!(test.store.read(|reader| reader.sightings(9)).await.unwrap().is_empty());
}

async fn insert_waiting_node(test: &TestConductor) -> NodeId {
    let id = test.insert_node(ProvisionState::InspectWait, json!({})).await;
    let port = Port::new(PortId::random(), id, MAC.parse().unwrap(), Timestamp(0));
    test.store.write(move |tx| tx.insert(&port)).await.unwrap();
    id
}

#[tokio::test]
async fn stores_logs_as_configured() {
    for (collect, fails, expected) in [
        (CollectLogs::OnFailure, false, 0),
        (CollectLogs::OnFailure, true, 1),
        (CollectLogs::Always, false, 1),
        (CollectLogs::Never, true, 0),
    ] {
        let test = TestConductor::with_inspection(InspectionSettings {
            collect_logs: collect,
            ..InspectionSettings::default()
        });
        let id = insert_waiting_node(&test).await;
        let mut body = body();
        body["error"] = if fails { json!("on fire") } else { Value::Null };
        assert_eq!(send(&test, HardwareReport::from_value(body).unwrap()).await, Some(id));
        let logs = test.store.read(move |reader| reader.agent_logs(id)).await.unwrap();
        assert_eq!(logs.len(), expected, "{collect:?} {fails}");
        if let Some(log) = logs.first() {
            assert_eq!(log.reason.contains("on fire"), fails, "{}", log.reason);
            let content = test.store.read({
                let log = log.id;
                move |reader| reader.agent_log(id, log)
            });
            assert_eq!(content.await.unwrap().unwrap().1, [0x1f, 0x8b, 8, 0, 0, 0]);
        }
    }
}

/// LLDP neighbours are stored even without a hook for them.
#[tokio::test]
async fn stores_neighbours_and_applies_flavours() {
    let test = TestConductor::new();
    let id = insert_waiting_node(&test).await;
    let flavour = flavour("small", "lt", 20_000);
    test.store.write(move |tx| tx.insert(&flavour)).await.unwrap();
    assert_eq!(send(&test, report()).await, Some(id));
    let node = test.get(id).await;
    assert_eq!(node.resource_class.as_deref(), Some("small"));
    assert_eq!(node.traits, ["CUSTOM_SMALL"]);
    let cables =
        test.store.read(|reader| reader.detected_cables(&CableFilter::default())).await.unwrap();
    let observed: Vec<_> = cables.into_iter().filter_map(|end| end.observed).collect();
    assert_eq!(observed.len(), 1);
    assert_eq!(
        (observed[0].interface.as_str(), observed[0].port_id.as_str()),
        ("eno1", "Ethernet1/1")
    );
}

/// A node without ports is found by the resolved address of its BMC.
#[tokio::test]
async fn finds_a_node_by_the_stored_bmc_address() {
    let test = TestConductor::new();
    let info = json!({"redfish_address": "https://bmc-7.invalid/redfish"});
    let id = test.insert_node(ProvisionState::InspectWait, info).await;
    assert_eq!(send(&test, report()).await, None, "the address is unknown");
    test.change(id, |node| crate::bmc_resolver::store(node, &["10.1.0.7".to_owned()])).await;
    assert_eq!(send(&test, report()).await, Some(id));
}

#[tokio::test]
async fn ignores_a_report_with_an_unknown_node_id() {
    let test = TestConductor::with_inspection(auto_discovery("ipmi"));
    let id = Some(NodeId::random());
    let reply = test.conductor.continue_inspection(report(), id, agent_at(AGENT_ADDRESS)).await;
    assert!(reply.unwrap().is_none());
    assert_eq!(count_nodes(&test).await, 0);
}

/// Rules and flavours apply to out-of-band inspections too.
#[tokio::test]
async fn applies_flavours_to_out_of_band_data() {
    let test = TestConductor::new();
    let info = json!({"fake_inventory": {"memory": {"physical_mb": 64}}});
    let id = test.insert_node(ProvisionState::Manageable, info).await;
    let flavour = flavour("tiny", "eq", 64);
    test.store.write(move |tx| tx.insert(&flavour)).await.unwrap();
    assert_eq!(test.run_verb(id, node_model::Verb::Inspect).await, ProvisionState::Manageable);
    let node = test.get(id).await;
    assert_eq!(node.resource_class.as_deref(), Some("tiny"), "{:?}", test.notes(id).await);
}
