// SPDX-License-Identifier: Apache-2.0
//! Reports of unknown machines, LLDP neighbours, and flavours.

use std::time::Duration;

use node_model::{
    Flavour, FlavourId, JsonArray, JsonObject, MachineSighting, Neighbour, Port, PortId, ReportId,
    UnknownMachineReport,
};
use serde_json::json;
use store::{CableFilter, FlavourColumn, ResourceQuery};

use crate::samples::*;
use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! {
    machine_with_two_nics_has_one_report oldest_reports_are_pruned cables_are_filtered_by_switch_and_node
    neighbours_are_replaced flavours_are_found_by_name
}

fn object(value: serde_json::Value) -> JsonObject {
    value.as_object().unwrap().clone().into()
}

fn seen(number: u32, second: u64) -> MachineSighting {
    MachineSighting {
        mac: mac(number),
        first_seen_at: THEN.plus(Duration::from_secs(second)),
        last_seen_at: THEN.plus(Duration::from_secs(second)),
        times: 1,
        ip_address: None,
        interface: "eth1".to_owned(),
        architecture: None,
        last_activity: "inspection data".to_owned(),
    }
}

fn report(second: u64, model: &str) -> UnknownMachineReport {
    UnknownMachineReport {
        id: ReportId::random(),
        reported_at: THEN.plus(Duration::from_secs(second)),
        node_id: None,
        summary: object(json!({"model": model})),
        body: object(json!({"inventory": {"model": model}})),
    }
}

fn machine_with_two_nics_has_one_report(db: &TestDatabase) {
    let macs = [mac(1), mac(2)];
    db.write(|w| w.record_sighting(&seen(2, 1))).unwrap();
    for second in [2, 3] {
        let macs = macs.clone();
        db.write(move |w| {
            let report = report(second, &format!("model {second}"));
            w.store_unknown_machine_report(&report, &seen(1, second), &macs)
        })
        .unwrap();
    }
    let unknown = db.read(|r| r.unknown_machines(9)).unwrap();
    assert_eq!(unknown.len(), 2);
    for known in &unknown {
        assert_eq!(known.reported_at, Some(THEN.plus(Duration::from_secs(3))));
        assert_eq!(known.summary, object(json!({"model": "model 3"})));
        assert_eq!(known.node_id, None);
    }
    let kept = db.read(|r| r.unknown_machine_report(&mac(2))).unwrap().unwrap();
    assert_eq!(kept.body, object(json!({"inventory": {"model": "model 3"}})));

    let machine = node("n");
    let id = machine.id;
    db.write(move |w| {
        w.insert(&machine)?;
        let report = UnknownMachineReport { node_id: Some(id), ..report(4, "model 4") };
        w.store_unknown_machine_report(&report, &seen(1, 4), &macs)
    })
    .unwrap();
    assert!(db.read(|r| r.unknown_machines(9)).unwrap().is_empty(), "none of its NICs is unknown");
    let nodes: Vec<_> =
        db.read(|r| r.sightings(9)).unwrap().into_iter().map(|known| known.node_id).collect();
    assert_eq!(nodes, [Some(id); 2]);
    db.write(move |w| w.delete(id)).unwrap();
    assert_eq!(db.read(|r| r.unknown_machines(9)).unwrap().len(), 2, "it is unknown again");
    assert_eq!(db.read(|r| r.sighting(&mac(1))).unwrap().unwrap().sighting.times, 3);
    assert!(db.read(|r| r.sighting(&mac(7))).unwrap().is_none());
}

fn oldest_reports_are_pruned(db: &TestDatabase) {
    db.write(|w| {
        for number in 0..1_003 {
            let address = mac(number);
            let second = u64::from(number);
            w.store_unknown_machine_report(
                &report(second, "m"),
                &seen(number, second),
                &[address],
            )?;
        }
        Ok(())
    })
    .unwrap();
    let unknown = db.read(|r| r.unknown_machines(2_000)).unwrap();
    assert_eq!(unknown.len(), 1_003);
    assert_eq!(unknown.iter().filter(|known| known.reported_at.is_some()).count(), 1_000);
}

fn neighbour(number: u32, switch: &str, port: &str) -> Neighbour {
    Neighbour {
        interface: format!("eno{number}"),
        address: mac(number),
        switch_id: switch.to_owned(),
        switch_name: Some(format!("name of {switch}")),
        switch_description: None,
        management_addresses: vec!["10.0.0.1".to_owned()],
        port_id: port.to_owned(),
        port_description: None,
        detail: object(json!({"mtu": 9000})),
    }
}

fn cables_are_filtered_by_switch_and_node(db: &TestDatabase) {
    let machines = [node("a"), node("b")];
    let [a, b] = machines.each_ref().map(|machine| machine.id);
    db.write(move |w| {
        for machine in &machines {
            w.insert(machine)?;
        }
        for (number, owner, connection) in [
            (1, a, json!({})),
            (2, a, json!({"switch_id": "s1", "port_id": "p9"})),
            (3, b, json!({"switch_id": "s2", "port_id": "p3"})),
        ] {
            let mut port = Port::new(PortId::random(), owner, mac(number), THEN);
            port.local_link_connection = object(connection);
            w.insert(&port)?;
        }
        w.replace_neighbours(a, &[neighbour(1, "s1", "p1"), neighbour(4, "s2", "p2")])
    })
    .unwrap();
    let detected = |filter: CableFilter| {
        let found = db.read(move |r| r.detected_cables(&filter)).unwrap();
        found
            .into_iter()
            .map(|end| {
                let neighbour = end.observed.unwrap();
                (
                    neighbour.switch_id,
                    neighbour.port_id,
                    end.port_id.is_some(),
                    end.observed_at.is_some(),
                )
            })
            .collect::<Vec<_>>()
    };
    let row = |switch: &str, port: &str, known| (switch.to_owned(), port.to_owned(), known, true);
    let both = vec![row("s1", "p1", true), row("s2", "p2", false)];
    assert_eq!(detected(CableFilter::default()), both);
    assert_eq!(detected(CableFilter { node: Some(a), ..CableFilter::default() }), both);
    assert!(detected(CableFilter { node: Some(b), ..CableFilter::default() }).is_empty());
    for name in ["s2", "name of s2"] {
        let switch = Some(name.to_owned());
        let found = detected(CableFilter { switch, ..CableFilter::default() });
        assert_eq!(found, [row("s2", "p2", false)]);
    }
    let undetected = |node| {
        let found = db.read(move |r| r.undetected_cables(node)).unwrap();
        found.into_iter().map(|end| (end.address, end.observed_at.is_some())).collect::<Vec<_>>()
    };
    assert_eq!(undetected(None), [(mac(2), true), (mac(3), false)]);
    assert_eq!(undetected(Some(b)), [(mac(3), false)]);
    db.write(move |w| w.delete(a)).unwrap();
    assert!(detected(CableFilter::default()).is_empty());
}

fn neighbours_are_replaced(db: &TestDatabase) {
    let machine = node("a");
    let id = machine.id;
    db.write(move |w| w.insert(&machine)).unwrap();
    for neighbours in [vec![neighbour(1, "s1", "p1")], vec![neighbour(1, "s2", "p1")], vec![]] {
        let expected: Vec<_> = neighbours.clone();
        db.write(move |w| w.replace_neighbours(id, &neighbours)).unwrap();
        let found = db.read(|r| r.detected_cables(&CableFilter::default())).unwrap();
        assert_eq!(found.into_iter().filter_map(|end| end.observed).collect::<Vec<_>>(), expected);
    }
}

fn flavours_are_found_by_name(db: &TestDatabase) {
    let mut flavour = Flavour {
        id: FlavourId::random(),
        name: "large".to_owned(),
        created_at: THEN,
        updated_at: None,
        description: Some("much memory".to_owned()),
        priority: 7,
        conditions: JsonArray::from(vec![json!({"op": "is-true", "args": {"value": "yes"}})]),
        resource_class: Some("baremetal.large".to_owned()),
        traits: vec!["CUSTOM_LARGE".to_owned()],
        properties: object(json!({"a": 1})),
        capabilities: object(json!({"b": "c"})),
        overwrite: true,
    };
    let stored = flavour.clone();
    db.write(move |w| w.insert(&stored)).unwrap();
    let found: Flavour =
        db.read(|r| r.find(FlavourColumn::Name, "large")).unwrap().expect("it was stored");
    assert_eq!(found, flavour);
    let mut again = flavour.clone();
    again.id = FlavourId::random();
    let refused = db.write(move |w| w.insert(&again)).unwrap_err();
    assert!(matches!(refused, store::StoreError::Duplicate { what: "name" }), "{refused:?}");
    flavour.priority = 8;
    let (id, mut changed) = (flavour.id, flavour);
    db.write(move |w| w.save(&mut changed)).unwrap();
    let all = db.read(|r| r.collect(&ResourceQuery::<Flavour>::default())).unwrap();
    assert_eq!(all.iter().map(|flavour| flavour.priority).collect::<Vec<_>>(), [8]);
    assert!(db.write(move |w| w.delete(id)).unwrap());
}
