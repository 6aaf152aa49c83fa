// SPDX-License-Identifier: Apache-2.0
//! Every kind of record comes back as it was put in, and unique fields are.

use std::fmt::Debug;

use node_model::{
    Agent, ConductorInfo, HistoryEntry, JsonObject, Node, NodeId, ProvisionState, Sensitive,
    Timestamp,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use store::{Error, HistoryFilter, NodeColumn, Query, Resource};

use crate::database::{Database, Kind, on_every_engine};
use crate::samples::*;

on_every_engine! {
    everything_comes_back any_node_comes_back taken_values_are_named removal_takes_the_rest_along
    references_hold saving_what_is_gone_is_an_error heartbeats_touch_little
    facts_about_a_node_are_replaced history_is_bounded conductors_report
    texts_that_do_not_fit_are_refused_as_such
}

/// Inserts, reads, saves and removes.
fn round_trip<R: Resource + Clone + PartialEq + Debug + Sync>(db: &Database, id: R::Id, record: R) {
    let written = record.clone();
    db.write(move |w| w.insert(&written)).unwrap();
    assert_eq!(db.read(move |r| r.get(id)).unwrap().as_ref(), Some(&record));
    assert_eq!(db.read(move |r| r.collect(&Query::<R>::default())).unwrap().last(), Some(&record));
    let mut expected = record.clone();
    expected.touch(db.now());
    let saved = db
        .write(move |w| {
            let mut loaded = w.get(id)?.ok_or(Error::Missing)?;
            w.save(&mut loaded)?;
            Ok(loaded)
        })
        .unwrap();
    assert_eq!(saved, expected);
    assert_eq!(db.read(move |r| r.get(id)).unwrap(), Some(expected));
}

fn everything_comes_back(db: &Database) {
    let rack = chassis();
    round_trip(db, rack.id, rack.clone());
    let machine = full_node(rack.id);
    let id = machine.id;
    round_trip(db, id, machine);
    let bond = portgroup(id, 7);
    round_trip(db, bond.id, bond.clone());
    let mut card = port(id, 1);
    card.portgroup_id = Some(bond.id);
    round_trip(db, card.id, card);
    let connector = volume_connector(id, "iqn.x");
    round_trip(db, connector.id, connector);
    let target = volume_target(id, 0);
    round_trip(db, target.id, target);
    let held = allocation(Some(id), "a");
    round_trip(db, held.id, held);
    let recipe = template("CUSTOM_A");
    round_trip(db, recipe.id, recipe);
    let book = runbook("b");
    round_trip(db, book.id, book);
    for sensitive in [Sensitive::No, Sensitive::Yes] {
        let law = rule(sensitive);
        round_trip(db, law.id, law);
    }
}

fn any_node_comes_back(db: &Database) {
    // No NUL: PostgreSQL's text has none. No length past what MariaDB's keys have.
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
    let moment = || proptest::option::of(any::<i64>().prop_map(Timestamp));
    let state = proptest::sample::select(ProvisionState::ALL);
    let strategy = (
        (text(), text(), text(), text(), text(), text()),
        (json(), json(), json(), json()),
        (moment(), moment(), moment()),
        (state, any::<bool>(), proptest::option::of(any::<bool>())),
        proptest::collection::vec("[A-Z_]{1,9}", 0..4),
        proptest::collection::vec(any::<u8>(), 0..64),
    );
    let cases = Config { cases: 48, failure_persistence: None, ..Config::default() };
    TestRunner::new(cases)
        .run(&strategy, |(texts, objects, moments, states, traits, sealed)| {
            let mut node = Node::new(NodeId::random(), "d", THEN);
            (node.owner, node.lessee, node.description) = (texts.0, texts.1, texts.2);
            (node.last_error, node.shard, node.instance_name) = (texts.3, texts.4, texts.5);
            (node.extra, node.properties, node.driver_info, node.raid_config) = objects;
            (node.due_at, node.provision_updated_at, node.inspection_started_at) = moments;
            (node.provision_state, node.maintenance, node.automated_clean) = states;
            (node.traits, node.sealed) = (traits, sealed);
            let (id, written) = (node.id, node.clone());
            db.write(move |w| w.insert(&written)).unwrap();
            prop_assert_eq!(db.read(move |r| r.get(id)).unwrap(), Some(node));
            Ok(())
        })
        .unwrap();
}

fn taken_values_are_named(db: &Database) {
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

    let taken = |what: &str, result: Result<(), Error>| match result {
        Err(Error::Duplicate { what: named }) => assert_eq!(named, what),
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
    // Saving can collide too, and names differ by case and trailing blanks.
    for name in ["One", "one ", "öne"] {
        db.write(move |w| w.insert(&node(name))).unwrap();
    }
    taken(
        "name",
        db.write(|w| {
            let mut other = w.find::<Node>(NodeColumn::Name, "One")?.ok_or(Error::Missing)?;
            other.name = Some("one".to_owned());
            w.save(&mut other)
        }),
    );
}

fn removal_takes_the_rest_along(db: &Database) {
    let machine = node("one");
    let (id, bond, card) = (machine.id, portgroup(machine.id, 2), port(machine.id, 1));
    let (bond_id, card_id) = (bond.id, card.id);
    let held = allocation(Some(id), "a");
    let held_id = held.id;
    let happened = history(id, "x");
    db.write(move |w| {
        w.insert(&machine)?;
        w.insert(&bond)?;
        w.insert(&card)?;
        w.insert(&held)?;
        w.insert(&volume_connector(id, "iqn"))?;
        w.insert(&volume_target(id, 0))?;
        w.add_history(&happened)?;
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
        assert!(r.get(card_id)?.is_none());
        assert!(r.get(bond_id)?.is_none());
        assert!(r.get(held_id)?.is_none());
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

fn references_hold(db: &Database) {
    let rack = chassis();
    let (rack_id, mut machine) = (rack.id, node("one"));
    machine.chassis_id = Some(rack_id);
    let id = machine.id;
    assert!(matches!(db.write(|w| w.insert(&port(NodeId::random(), 1))), Err(Error::Reference)));
    let early = machine.clone();
    assert!(matches!(db.write(move |w| w.insert(&early)), Err(Error::Reference)));
    db.write(move |w| {
        w.insert(&rack)?;
        w.insert(&machine)
    })
    .unwrap();
    assert!(matches!(db.write(move |w| w.delete(rack_id)), Err(Error::Reference)));
    // A bond that goes leaves its ports.
    let bond = portgroup(id, 9);
    let mut card = port(id, 1);
    card.portgroup_id = Some(bond.id);
    let (bond_id, card_id) = (bond.id, card.id);
    db.write(move |w| {
        w.insert(&bond)?;
        w.insert(&card)?;
        w.delete(bond_id)
    })
    .unwrap();
    assert_eq!(db.read(move |r| r.get(card_id)).unwrap().unwrap().portgroup_id, None);
}

fn saving_what_is_gone_is_an_error(db: &Database) {
    let gone = db.write(|w| w.save(&mut node("gone")));
    assert!(matches!(gone, Err(Error::Missing)));
    let gone = db.write(|w| w.touch_agent(NodeId::random(), &Agent::default(), None));
    assert!(matches!(gone, Err(Error::Missing)));
    assert!(db.read(|r| r.get(NodeId::random())).unwrap().is_none());
    assert!(db.read(|r| r.find::<Node>(NodeColumn::Name, "gone")).unwrap().is_none());
}

fn heartbeats_touch_little(db: &Database) {
    let machine = node("one");
    let (id, mut expected) = (machine.id, machine.clone());
    db.write(move |w| w.insert(&machine)).unwrap();
    expected.agent.url = Some("http://agent".to_owned());
    let agent = expected.agent.clone();
    db.write(move |w| w.touch_agent(id, &agent, None)).unwrap();
    assert_eq!(db.read(move |r| r.get(id)).unwrap().as_ref(), Some(&expected));
    expected.provision_updated_at = Some(Timestamp(77));
    let agent = expected.agent.clone();
    // The same again still finds the node.
    db.write(move |w| w.touch_agent(id, &agent, Some(Timestamp(77)))).unwrap();
    let agent = expected.agent.clone();
    db.write(move |w| w.touch_agent(id, &agent, Some(Timestamp(77)))).unwrap();
    assert_eq!(db.read(move |r| r.get(id)).unwrap(), Some(expected));
}

fn facts_about_a_node_are_replaced(db: &Database) {
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

fn history_is_bounded(db: &Database) {
    let (one, two) = (node("one"), node("two"));
    let (id, other) = (one.id, two.id);
    db.write(move |w| {
        w.insert(&one)?;
        w.insert(&two)?;
        w.add_history(&history(other, "kept"))?;
        for number in 0..310 {
            w.add_history(&history(id, &number.to_string()))?;
        }
        Ok(())
    })
    .unwrap();
    let filter = HistoryFilter { node: Some(id) };
    let events = db.read(move |r| r.collect(&Query::<HistoryEntry>::filtered(filter))).unwrap();
    assert_eq!(events.len(), 300);
    assert_eq!((events[0].event.as_str(), events[299].event.as_str()), ("10", "309"));
    let first = events[0].clone();
    assert_eq!(db.read(move |r| r.get(events[0].id)).unwrap(), Some(first));
    let filter = HistoryFilter { node: Some(other) };
    assert_eq!(db.read(move |r| r.count::<HistoryEntry>(&filter)).unwrap(), 1);
}

fn conductors_report(db: &Database) {
    let mut conductor = ConductorInfo {
        hostname: "b".to_owned(),
        run: None,
        conductor_group: String::new(),
        drivers: vec!["redfish".to_owned()],
        created_at: Timestamp(1),
        updated_at: Timestamp(2),
        online: true,
    };
    let other = ConductorInfo { hostname: "a".to_owned(), ..conductor.clone() };
    let written = [conductor.clone(), other.clone()];
    db.write(move |w| written.iter().try_for_each(|one| w.heartbeat_conductor(one))).unwrap();
    conductor.updated_at = Timestamp(3);
    conductor.run = Some(uuid::Uuid::from_u128(9));
    conductor.online = false;
    let later = ConductorInfo { created_at: Timestamp(99), ..conductor.clone() };
    db.write(move |w| w.heartbeat_conductor(&later)).unwrap();
    assert_eq!(db.read(|r| r.conductors()).unwrap(), [other, conductor]);
}

/// Not as trouble with the database, which would be tried again.
fn texts_that_do_not_fit_are_refused_as_such(db: &Database) {
    let mut with_nul = node("with-nul");
    with_nul.description = Some("a\0b".to_owned());
    let mut too_long = node("too-long");
    too_long.owner = Some("x".repeat(256));
    for (record, refusing) in [(with_nul, Kind::Postgres), (too_long, Kind::MariaDb)] {
        match db.write(move |w| w.insert(&record)) {
            Err(Error::Unfit(_)) => assert_eq!(db.kind, refusing),
            other => assert!(other.is_ok() && db.kind != refusing, "{other:?}"),
        }
    }
}
