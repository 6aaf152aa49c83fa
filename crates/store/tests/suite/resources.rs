// SPDX-License-Identifier: Apache-2.0
//! Records round-trip unchanged, and unique fields are enforced.

use std::fmt::Debug;

use node_model::{
    AgentInfo, ConductorInfo, HistoryEntry, JsonObject, Node, NodeId, ProvisionState, Sensitive,
    Timestamp,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use store::{HistoryFilter, NodeColumn, ResourceQuery, StoreError, StoredResource};

use crate::samples::*;
use crate::test_database::{EngineKind, TestDatabase, on_every_engine};

on_every_engine! {
    resources_round_trip arbitrary_nodes_round_trip duplicate_errors_name_the_field deleting_a_node_deletes_dependent_rows
    foreign_keys_are_enforced saving_a_missing_record_fails agent_update_changes_only_agent_columns
    hardware_data_is_replaced history_is_pruned conductor_heartbeats_are_stored
    unsupported_texts_are_rejected
}

/// Inserts, reads and saves a record.
fn round_trip<R: StoredResource + Clone + PartialEq + Debug + Sync>(
    db: &TestDatabase,
    id: R::Id,
    record: R,
) {
    let written = record.clone();
    db.write(move |w| w.insert(&written)).unwrap();
    assert_eq!(db.read(move |r| r.get(id)).unwrap().as_ref(), Some(&record));
    assert_eq!(
        db.read(move |r| r.collect(&ResourceQuery::<R>::default())).unwrap().last(),
        Some(&record)
    );
    let mut expected = record.clone();
    expected.touch(db.now());
    let saved = db
        .write(move |w| {
            let mut loaded = w.get(id)?.ok_or(StoreError::Missing)?;
            w.save(&mut loaded)?;
            Ok(loaded)
        })
        .unwrap();
    assert_eq!(saved, expected);
    assert_eq!(db.read(move |r| r.get(id)).unwrap(), Some(expected));
}

fn resources_round_trip(db: &TestDatabase) {
    let rack = chassis();
    round_trip(db, rack.id, rack.clone());
    let machine = full_node(rack.id);
    let id = machine.id;
    round_trip(db, id, machine);
    let bond = portgroup(id, 7);
    round_trip(db, bond.id, bond.clone());
    let mut nic_port = port(id, 1);
    nic_port.portgroup_id = Some(bond.id);
    round_trip(db, nic_port.id, nic_port);
    let connector = volume_connector(id, "iqn.x");
    round_trip(db, connector.id, connector);
    let target = volume_target(id, 0);
    round_trip(db, target.id, target);
    let allocated = allocation(Some(id), "a");
    round_trip(db, allocated.id, allocated);
    let deploy_template = template("CUSTOM_A");
    round_trip(db, deploy_template.id, deploy_template);
    let book = runbook("b");
    round_trip(db, book.id, book);
    for sensitive in [Sensitive::No, Sensitive::Yes] {
        let inspection_rule = rule(sensitive);
        round_trip(db, inspection_rule.id, inspection_rule);
    }
}

fn arbitrary_nodes_round_trip(db: &TestDatabase) {
    // No NUL, which PostgreSQL rejects, and no text longer than MariaDB's keys.
    let text = || proptest::option::of("[^\u{0}]{0,60}");
    let json = || {
        proptest::collection::btree_map("[^\u{0}]{0,9}", "[^\u{0}]{0,30}", 0..4).prop_map(|map| {
            JsonObject::from(
                map.into_iter()
                    .map(|(key, value)| (key, value.into()))
                    .collect::<serde_json::Map<_, _>>(),
            )
        })
    };
    let timestamp = || proptest::option::of(any::<i64>().prop_map(Timestamp));
    let state = proptest::sample::select(ProvisionState::ALL);
    let strategy = (
        (text(), text(), text(), text(), text(), text()),
        (json(), json(), json(), json()),
        (timestamp(), timestamp(), timestamp()),
        (state, any::<bool>(), proptest::option::of(any::<bool>())),
        proptest::collection::vec("[A-Z_]{1,9}", 0..4),
        proptest::collection::vec(any::<u8>(), 0..64),
    );
    let cases = Config { cases: 48, failure_persistence: None, ..Config::default() };
    TestRunner::new(cases)
        .run(&strategy, |(texts, objects, timestamps, states, traits, sealed)| {
            let mut node = Node::new(NodeId::random(), "d", THEN);
            (node.owner, node.lessee, node.description) = (texts.0, texts.1, texts.2);
            (node.last_error, node.shard, node.instance_name) = (texts.3, texts.4, texts.5);
            (node.extra, node.properties, node.driver_info, node.raid_config) = objects;
            (node.due_at, node.provision_updated_at, node.inspection_started_at) = timestamps;
            (node.provision_state, node.maintenance, node.automated_clean) = states;
            (node.traits, node.sealed) = (traits, sealed);
            let (id, written) = (node.id, node.clone());
            db.write(move |w| w.insert(&written)).unwrap();
            prop_assert_eq!(db.read(move |r| r.get(id)).unwrap(), Some(node));
            Ok(())
        })
        .unwrap();
}

fn duplicate_errors_name_the_field(db: &TestDatabase) {
    let mut first = node("one");
    first.instance_uuid = Some(uuid::Uuid::new_v4());
    let (id, instance) = (first.id, first.instance_uuid);
    db.write(move |w| {
        w.insert(&first)?;
        w.insert(&port(id, 1))?;
        w.insert(&portgroup(id, 2))?;
        w.insert(&volume_connector(id, "iqn"))?;
        w.insert(&volume_target(id, 0))?;
        w.insert(&allocation(None, "a"))?;
        w.insert(&template("t"))?;
        w.insert(&runbook("b"))
    })
    .unwrap();

    let taken = |what: &str, result: Result<(), StoreError>| match result {
        Err(StoreError::Duplicate { what: named }) => assert_eq!(named, what),
        other => panic!("{what}: {other:?}"),
    };
    taken("name", db.write(|w| w.insert(&node("one"))));
    taken(
        "uuid",
        db.write(move |w| {
            let mut same = node("two");
            same.id = id;
            w.insert(&same)
        }),
    );
    taken(
        "instance_uuid",
        db.write(move |w| {
            let mut same = node("two");
            same.instance_uuid = instance;
            w.insert(&same)
        }),
    );
    taken(
        "address",
        db.write(move |w| {
            let mut same = port(id, 1);
            same.name = None;
            w.insert(&same)
        }),
    );
    taken(
        "name",
        db.write(move |w| {
            let mut same = port(id, 5);
            same.name = Some("port-1".to_owned());
            w.insert(&same)
        }),
    );
    taken(
        "address",
        db.write(move |w| {
            let mut same = portgroup(id, 2);
            same.name = None;
            w.insert(&same)
        }),
    );
    taken("connector_id", db.write(move |w| w.insert(&volume_connector(id, "iqn"))));
    taken("boot_index", db.write(move |w| w.insert(&volume_target(id, 0))));
    taken("name", db.write(|w| w.insert(&allocation(None, "a"))));
    taken("name", db.write(|w| w.insert(&template("t"))));
    taken("name", db.write(|w| w.insert(&runbook("b"))));
    // A save can collide too. Names are compared with case and trailing blanks.
    for name in ["One", "one ", "öne"] {
        db.write(move |w| w.insert(&node(name))).unwrap();
    }
    taken(
        "name",
        db.write(|w| {
            let mut other = w.find::<Node>(NodeColumn::Name, "One")?.ok_or(StoreError::Missing)?;
            other.name = Some("one".to_owned());
            w.save(&mut other)
        }),
    );
}

fn deleting_a_node_deletes_dependent_rows(db: &TestDatabase) {
    let machine = node("one");
    let (id, bond, nic_port) = (machine.id, portgroup(machine.id, 2), port(machine.id, 1));
    let (bond_id, port_id) = (bond.id, nic_port.id);
    let allocated = allocation(Some(id), "a");
    let allocation_id = allocated.id;
    let history_entry = history(id, "x");
    db.write(move |w| {
        w.insert(&machine)?;
        w.insert(&bond)?;
        w.insert(&nic_port)?;
        w.insert(&allocated)?;
        w.insert(&volume_connector(id, "iqn"))?;
        w.insert(&volume_target(id, 0))?;
        w.add_history(&history_entry)?;
        w.set_inventory(&inventory(id))?;
        w.replace_bios_settings(id, &[bios_setting("a")])?;
        w.replace_firmware_components(id, &[firmware("bmc")])?;
        w.append(entry(id, THEN, "x"));
        Ok(())
    })
    .unwrap();
    assert!(db.write(move |w| w.delete(id)).unwrap());
    assert!(!db.write(move |w| w.delete(id)).unwrap());
    db.read(move |r| {
        assert!(r.get(port_id)?.is_none());
        assert!(r.get(bond_id)?.is_none());
        assert!(r.get(allocation_id)?.is_none());
        assert_eq!(r.count::<node_model::VolumeConnector>(&Default::default())?, 0);
        assert_eq!(r.count::<node_model::VolumeTarget>(&Default::default())?, 0);
        assert_eq!(r.count::<HistoryEntry>(&Default::default())?, 0);
        assert!(r.inventory(id)?.is_none());
        assert!(r.bios_settings(id)?.is_empty());
        assert!(r.firmware_components(id)?.is_empty());
        Ok(())
    })
    .unwrap();
}

fn foreign_keys_are_enforced(db: &TestDatabase) {
    let rack = chassis();
    let (rack_id, mut machine) = (rack.id, node("one"));
    machine.chassis_id = Some(rack_id);
    let id = machine.id;
    assert!(matches!(
        db.write(|w| w.insert(&port(NodeId::random(), 1))),
        Err(StoreError::Reference)
    ));
    let early = machine.clone();
    assert!(matches!(db.write(move |w| w.insert(&early)), Err(StoreError::Reference)));
    db.write(move |w| {
        w.insert(&rack)?;
        w.insert(&machine)
    })
    .unwrap();
    assert!(matches!(db.write(move |w| w.delete(rack_id)), Err(StoreError::Reference)));
    // Deleting a portgroup keeps its ports.
    let bond = portgroup(id, 9);
    let mut nic_port = port(id, 1);
    nic_port.portgroup_id = Some(bond.id);
    let (bond_id, port_id) = (bond.id, nic_port.id);
    db.write(move |w| {
        w.insert(&bond)?;
        w.insert(&nic_port)?;
        w.delete(bond_id)
    })
    .unwrap();
    assert_eq!(db.read(move |r| r.get(port_id)).unwrap().unwrap().portgroup_id, None);
}

fn saving_a_missing_record_fails(db: &TestDatabase) {
    let gone = db.write(|w| w.save(&mut node("gone")));
    assert!(matches!(gone, Err(StoreError::Missing)));
    let gone = db.write(|w| w.update_agent(NodeId::random(), &AgentInfo::default(), None));
    assert!(matches!(gone, Err(StoreError::Missing)));
    assert!(db.read(|r| r.get(NodeId::random())).unwrap().is_none());
    assert!(db.read(|r| r.find::<Node>(NodeColumn::Name, "gone")).unwrap().is_none());
}

fn agent_update_changes_only_agent_columns(db: &TestDatabase) {
    let machine = node("one");
    let (id, mut expected) = (machine.id, machine.clone());
    db.write(move |w| w.insert(&machine)).unwrap();
    expected.agent.url = Some("http://agent".to_owned());
    let agent = expected.agent.clone();
    db.write(move |w| w.update_agent(id, &agent, None)).unwrap();
    assert_eq!(db.read(move |r| r.get(id)).unwrap().as_ref(), Some(&expected));
    expected.provision_updated_at = Some(Timestamp(77));
    let agent = expected.agent.clone();
    // An update without a change still finds the node.
    db.write(move |w| w.update_agent(id, &agent, Some(Timestamp(77)))).unwrap();
    let agent = expected.agent.clone();
    db.write(move |w| w.update_agent(id, &agent, Some(Timestamp(77)))).unwrap();
    assert_eq!(db.read(move |r| r.get(id)).unwrap(), Some(expected));
}

fn hardware_data_is_replaced(db: &TestDatabase) {
    let machine = node("one");
    let id = machine.id;
    db.write(move |w| w.insert(&machine)).unwrap();
    let many: Vec<_> = (0..450).map(|number| bios_setting(&format!("{number:04}"))).collect();
    let few = vec![bios_setting("a"), bios_setting("b")];
    for settings in [many, few, vec![]] {
        let written = settings.clone();
        db.write(move |w| w.replace_bios_settings(id, &written)).unwrap();
        assert_eq!(db.read(move |r| r.bios_settings(id)).unwrap(), settings);
    }
    let components = vec![firmware("bios"), firmware("bmc")];
    let written = components.clone();
    db.write(move |w| w.replace_firmware_components(id, &written)).unwrap();
    assert_eq!(db.read(move |r| r.firmware_components(id)).unwrap(), components);
    for text in [r#"{"first":1}"#, r#"{"second":2}"#] {
        let mut found = inventory(id);
        found.inventory = object(text);
        let written = found.clone();
        db.write(move |w| w.set_inventory(&written)).unwrap();
        assert_eq!(db.read(move |r| r.inventory(id)).unwrap(), Some(found));
    }
}

fn history_is_pruned(db: &TestDatabase) {
    let (one, two) = (node("one"), node("two"));
    let (id, other) = (one.id, two.id);
    db.write(move |w| {
        w.insert(&one)?;
        w.insert(&two)?;
        w.add_history(&history(other, "other"))?;
        for number in 0..310 {
            w.add_history(&history(id, &number.to_string()))?;
        }
        Ok(())
    })
    .unwrap();
    let filter = HistoryFilter { node: Some(id) };
    let events =
        db.read(move |r| r.collect(&ResourceQuery::<HistoryEntry>::filtered(filter))).unwrap();
    assert_eq!(events.len(), 300);
    assert_eq!((events[0].event.as_str(), events[299].event.as_str()), ("10", "309"));
    let first = events[0].clone();
    assert_eq!(db.read(move |r| r.get(events[0].id)).unwrap(), Some(first));
    let filter = HistoryFilter { node: Some(other) };
    assert_eq!(db.read(move |r| r.count::<HistoryEntry>(&filter)).unwrap(), 1);
}

fn conductor_heartbeats_are_stored(db: &TestDatabase) {
    let mut conductor = ConductorInfo {
        hostname: "b".to_owned(),
        run: None,
        version: None,
        conductor_group: String::new(),
        drivers: vec!["redfish".to_owned()],
        created_at: Timestamp(1),
        updated_at: Timestamp(2),
        online: true,
    };
    let other = ConductorInfo { hostname: "a".to_owned(), ..conductor.clone() };
    let written = [conductor.clone(), other.clone()];
    db.write(move |w| written.iter().try_for_each(|one| w.record_conductor_heartbeat(one)))
        .unwrap();
    conductor.updated_at = Timestamp(3);
    conductor.run = Some(uuid::Uuid::from_u128(9));
    conductor.online = false;
    let later = ConductorInfo { created_at: Timestamp(99), ..conductor.clone() };
    db.write(move |w| w.record_conductor_heartbeat(&later)).unwrap();
    assert_eq!(db.read(|r| r.conductors()).unwrap(), [other, conductor]);
}

/// Not reported as a database failure, which would be retried.
fn unsupported_texts_are_rejected(db: &TestDatabase) {
    let mut with_nul = node("with-nul");
    with_nul.description = Some("a\0b".to_owned());
    let mut too_long = node("too-long");
    too_long.owner = Some("x".repeat(256));
    for (record, refusing) in [(with_nul, EngineKind::Postgres), (too_long, EngineKind::MariaDb)] {
        match db.write(move |w| w.insert(&record)) {
            Err(StoreError::ValueRejected(_)) => assert_eq!(db.kind, refusing),
            other => assert!(other.is_ok() && db.kind != refusing, "{other:?}"),
        }
    }
}
