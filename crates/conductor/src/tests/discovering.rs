// SPDX-License-Identifier: Apache-2.0
//! Machines that nobody enrolled, and what inspection keeps.

use inspection::{AutoDiscovery, CollectLogs, Report, Settings};
use node_model::{Flavour, FlavourId, JsonArray, JsonObject, Mac, NodeId, Port, PortId};
use node_model::{Node, ProvisionState, Timestamp};
use serde_json::{Map, Value, json};
use store::{CableFilter, NodeFilter, PortFilter, Query};

use super::{House, user};
use crate::{EnrolError, Enrolment};

const CARD: &str = "52:54:00:aa:00:01";
const OTHER: &str = "52:54:00:aa:00:02";

fn body() -> Value {
    json!({
        "inventory": {
            "interfaces": [
                {"name": "eno1", "mac_address": CARD, "ipv4_address": "10.0.0.9",
                 "lldp": [[1, "04aabbccddeeff"], [2, "0545746865726e6574312f31"], [5, "746f72"]]},
                {"name": "eno2", "mac_address": OTHER, "lldp": []},
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

fn report() -> Report {
    Report::from_value(body()).unwrap()
}

fn discovering(driver: &str) -> Settings {
    Settings {
        auto_discovery: Some(AutoDiscovery {
            driver: driver.to_owned(),
            conductor_group: String::new(),
            resource_class: Some("found".to_owned()),
        }),
        ..Settings::default()
    }
}

/// Gives class and trait to machines whose memory compares so.
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

async fn send(house: &House, report: Report) -> Option<NodeId> {
    let taken = house.conductor.continue_inspection(report, None, "req-1".to_owned()).await;
    taken.unwrap().map(|reply| reply.node)
}

async fn ports(house: &House, id: NodeId) -> Vec<String> {
    let query = Query::<Port> {
        filter: PortFilter { node: Some(id), ..PortFilter::default() },
        ..Query::default()
    };
    let ports = house.store.read(move |reader| reader.collect(&query)).await.unwrap();
    ports.into_iter().map(|port| port.address.as_str().to_owned()).collect()
}

async fn nodes(house: &House) -> u64 {
    house.store.read(|reader| reader.count::<Node>(&NodeFilter::default())).await.unwrap()
}

#[tokio::test]
async fn a_machine_enrols_itself_once() {
    let house = House::with(discovering("ipmi"));
    let id = send(&house, report()).await.expect("it was enrolled");
    let node = house.get(id).await;
    assert_eq!(node.provision_state, ProvisionState::Enroll);
    assert_eq!((node.driver.as_str(), node.name.as_deref()), ("ipmi", None));
    assert_eq!(node.driver_info.parse(), *json!({"ipmi_address": "10.1.0.7"}).as_object().unwrap());
    assert_eq!(node.resource_class.as_deref(), Some("found"));
    assert_eq!(node.properties.get("cpu_arch"), Some(json!("x86_64")));
    assert_eq!(ports(&house, id).await, [CARD]);
    let inventory = house.store.read(move |reader| reader.inventory(id)).await.unwrap().unwrap();
    assert_eq!(inventory.plugin_data.get("auto_discovered"), Some(json!(true)));
    assert!(inventory.plugin_data.get("logs").is_none());
    let notes = house.notes(id).await;
    assert!(notes[0].contains("enrolled by itself") && notes[0].contains("10.1.0.7"), "{notes:?}");
    let mac: Mac = CARD.parse().unwrap();
    let seen = house.store.read(move |reader| reader.sighting(&mac)).await.unwrap().unwrap();
    assert_eq!(seen.node_id, Some(id), "the sighting tells which node it is");

    assert_eq!(send(&house, report()).await, None, "it is known, and nobody inspects it");
    assert_eq!(nodes(&house).await, 1);
}

/// Also without a hook that makes ports: the machine must be known again.
#[tokio::test]
async fn two_reports_at_once_are_one_machine() {
    let mut settings = discovering("redfish");
    settings.hooks = inspection::parse_hooks("architecture").unwrap();
    let house = House::with(settings);
    let (one, two) = tokio::join!(send(&house, report()), send(&house, report()));
    assert_eq!(nodes(&house).await, 1);
    let id = one.xor(two).expect("one of them was first");
    assert_eq!(ports(&house, id).await, [CARD]);
    let node = house.get(id).await;
    assert_eq!(node.driver_info.get("redfish_address"), Some(json!("https://10.1.0.7")));
}

#[tokio::test]
async fn a_machine_with_a_bad_report_is_there_and_says_why() {
    let house = House::with(discovering("fake-hardware"));
    let mut bad = body();
    bad["error"] = json!("no disks");
    let id = send(&house, Report::from_value(bad).unwrap()).await.unwrap();
    let node = house.get(id).await;
    assert!(node.last_error.unwrap().contains("no disks"));
    assert_eq!(ports(&house, id).await, [CARD]);
    let logs = house.store.read(move |reader| reader.agent_logs(id)).await.unwrap();
    assert_eq!(logs.len(), 1);
}

#[tokio::test]
async fn a_driver_that_is_not_there_enrols_nobody() {
    let house = House::with(discovering("no-such-driver"));
    assert_eq!(send(&house, report()).await, None);
    assert_eq!(nodes(&house).await, 0);
}

#[tokio::test]
async fn a_stranger_is_remembered_and_enrolled_by_an_operator() {
    let house = House::new();
    assert_eq!(send(&house, report()).await, None);
    assert_eq!(nodes(&house).await, 0);
    let strangers = house.store.read(|reader| reader.strangers(9)).await.unwrap();
    assert_eq!(strangers.len(), 1, "one machine is one sighting");
    let told = strangers[0].summary.parse();
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
        assert_eq!(told.get(key), Some(&value), "{key}");
    }

    let enrolment = |name: &str| Enrolment {
        driver: "ipmi".to_owned(),
        driver_info: Map::from_iter([("ipmi_password".to_owned(), json!("hunter2"))]),
        name: Some(name.to_owned()),
        conductor_group: String::new(),
        resource_class: None,
    };
    let mac: Mac = CARD.parse().unwrap();
    let enrol =
        |name, mac: &Mac| house.conductor.enrol_stranger(mac.clone(), enrolment(name), user());
    let unknown: Mac = "52:54:00:00:00:99".parse().unwrap();
    assert!(matches!(enrol("a", &unknown).await, Err(EnrolError::Unknown(_))));
    let id = enrol("a", &mac).await.unwrap();
    let node = house.get(id).await;
    assert_eq!(node.driver_info.get("ipmi_password"), Some(json!(node_model::MASK)));
    assert_eq!(node.properties.get("cpu_arch"), Some(json!("x86_64")));
    assert_eq!(ports(&house, id).await, [CARD]);
    assert!(house.store.read(move |reader| reader.inventory(id)).await.unwrap().is_some());
    assert!(house.store.read(|reader| reader.strangers(9)).await.unwrap().is_empty());
    assert!(matches!(enrol("b", &mac).await, Err(EnrolError::Enrolled { node, .. }) if node == id));
}

#[tokio::test]
async fn the_card_of_a_node_in_another_state_is_no_stranger() {
    let house = House::with(discovering("ipmi"));
    let id = house.node(ProvisionState::Available, json!({})).await;
    let port = Port::new(PortId::random(), id, CARD.parse().unwrap(), Timestamp(0));
    house.store.write(move |tx| tx.insert(&port)).await.unwrap();
    assert_eq!(send(&house, report()).await, None);
    assert_eq!(nodes(&house).await, 1);
    assert!(house.store.read(|reader| reader.sightings(9)).await.unwrap().is_empty());
}

async fn waiting(house: &House) -> NodeId {
    let id = house.node(ProvisionState::InspectWait, json!({})).await;
    let port = Port::new(PortId::random(), id, CARD.parse().unwrap(), Timestamp(0));
    house.store.write(move |tx| tx.insert(&port)).await.unwrap();
    id
}

#[tokio::test]
async fn logs_are_kept_when_the_inspection_fails_or_always() {
    for (collect, bad, kept) in [
        (CollectLogs::OnFailure, false, 0),
        (CollectLogs::OnFailure, true, 1),
        (CollectLogs::Always, false, 1),
        (CollectLogs::Never, true, 0),
    ] {
        let house = House::with(Settings { collect_logs: collect, ..Settings::default() });
        let id = waiting(&house).await;
        let mut body = body();
        body["error"] = if bad { json!("on fire") } else { Value::Null };
        assert_eq!(send(&house, Report::from_value(body).unwrap()).await, Some(id));
        let logs = house.store.read(move |reader| reader.agent_logs(id)).await.unwrap();
        assert_eq!(logs.len(), kept, "{collect:?} {bad}");
        if let Some(log) = logs.first() {
            assert_eq!(log.why.contains("on fire"), bad, "{}", log.why);
            let content = house.store.read({
                let log = log.id;
                move |reader| reader.agent_log(id, log)
            });
            assert_eq!(content.await.unwrap().unwrap().1, [0x1f, 0x8b, 8, 0, 0, 0]);
        }
    }
}

/// What is heard is written even if no hook asks for it, and flavours are applied.
#[tokio::test]
async fn neighbours_and_flavours_come_with_the_report() {
    let house = House::new();
    let id = waiting(&house).await;
    let flavour = flavour("small", "lt", 20_000);
    house.store.write(move |tx| tx.insert(&flavour)).await.unwrap();
    assert_eq!(send(&house, report()).await, Some(id));
    let node = house.get(id).await;
    assert_eq!(node.resource_class.as_deref(), Some("small"));
    assert_eq!(node.traits, ["CUSTOM_SMALL"]);
    let cables =
        house.store.read(|reader| reader.cables_heard(&CableFilter::default())).await.unwrap();
    let heard: Vec<_> = cables.into_iter().filter_map(|end| end.heard).collect();
    assert_eq!(heard.len(), 1);
    assert_eq!((heard[0].interface.as_str(), heard[0].port_id.as_str()), ("eno1", "Ethernet1/1"));
}

/// A node without ports is found by what the name of its BMC stands for.
#[tokio::test]
async fn a_node_is_found_by_the_address_its_bmc_had_when_inspection_began() {
    let house = House::new();
    let info = json!({"redfish_address": "https://bmc-7.invalid/redfish"});
    let id = house.node(ProvisionState::InspectWait, info).await;
    assert_eq!(send(&house, report()).await, None, "nobody knows the address");
    house.change(id, |node| crate::bmc_names::keep(node, &["10.1.0.7".to_owned()])).await;
    assert_eq!(send(&house, report()).await, Some(id));
}

#[tokio::test]
async fn a_node_that_does_not_exist_is_no_stranger() {
    let house = House::with(discovering("ipmi"));
    let named = Some(NodeId::random());
    let taken = house.conductor.continue_inspection(report(), named, "req-1".to_owned()).await;
    assert!(taken.unwrap().is_none());
    assert_eq!(nodes(&house).await, 0);
}

/// What a BMC tells is judged by rules and flavours, too.
#[tokio::test]
async fn flavours_fit_machines_that_their_bmc_describes() {
    let house = House::new();
    let info = json!({"fake_inventory": {"memory": {"physical_mb": 64}}});
    let id = house.node(ProvisionState::Manageable, info).await;
    let flavour = flavour("tiny", "eq", 64);
    house.store.write(move |tx| tx.insert(&flavour)).await.unwrap();
    assert_eq!(house.through(id, node_model::Verb::Inspect).await, ProvisionState::Manageable);
    let node = house.get(id).await;
    assert_eq!(node.resource_class.as_deref(), Some("tiny"), "{:?}", house.notes(id).await);
}
