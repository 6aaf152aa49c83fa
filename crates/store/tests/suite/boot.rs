// SPDX-License-Identifier: Apache-2.0
//! What machines should boot, who was seen on the network, and which way works for which model.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use node_model::{
    BootImage, BootPlan, BootPurpose, BootSystem, BootWay, JsonObject, Node, Port, PortId,
    StrangerSeen,
};
use store::Writer;

use crate::database::{Database, Kind, on_every_engine};
use crate::samples::*;

on_every_engine! {
    plans_are_found_by_node_key_and_card a_plan_that_cannot_be_opened_is_left_out
    strangers_are_counted experience_is_kept processes_learn_together
}

fn image(source: &str) -> BootImage {
    BootImage { source: source.to_owned(), checksum: None, pull_secret: None }
}

fn plan(node: &Node, key: &str) -> BootPlan {
    BootPlan {
        node_id: node.id,
        purpose: BootPurpose::DeployRamdisk,
        way: BootWay::Ipxe,
        system: BootSystem::Kernel {
            kernel: image("http://images/kernel"),
            ramdisk: image("http://images/ramdisk"),
            parameters: vec!["ipa-agent-token=hunter2".to_owned()],
            network_data: JsonObject::empty(),
        },
        key: key.to_owned(),
        config_drive: None,
        installer: None,
        made_at: THEN,
        expires_at: Some(THEN.plus(Duration::from_secs(60))),
    }
}

fn plans_are_found_by_node_key_and_card(db: &Database) {
    let machine = node("n");
    let (id, known) = (machine.id, machine.clone());
    db.write(move |w| {
        w.insert(&known)?;
        w.insert(&Port::new(PortId::random(), known.id, mac(1), THEN))
    })
    .unwrap();
    let cards = move || db.read(|r| r.boot_cards(&[mac(1), mac(2)])).unwrap();
    assert_eq!(cards().len(), 1);
    assert_eq!(cards()[0].plan, None);

    let first = plan(&machine, "key-one");
    let second = plan(&machine, "key-two");
    for plan in [first, second.clone()] {
        db.write(move |w| w.set_boot_plan(&plan)).unwrap();
    }
    assert_eq!(db.read(move |r| r.boot_plan(id)).unwrap(), Some(second.clone()));
    assert_eq!(db.read(|r| r.boot_plan_by_key("key-one")).unwrap(), None);
    assert_eq!(db.read(|r| r.boot_plan_by_key("key-two")).unwrap(), Some(second.clone()));
    let card = &cards()[0];
    assert_eq!((&card.address, card.node_id, card.pxe_enabled), (&mac(1), id, true));
    assert_eq!(card.node_name.as_deref(), Some("n"));
    assert_eq!(card.plan, Some(second));

    assert!(db.write(move |w| w.remove_boot_plan(id)).unwrap());
    assert!(!db.write(move |w| w.remove_boot_plan(id)).unwrap());
    let again = plan(&machine, "key-three");
    db.write(move |w| w.set_boot_plan(&again)).unwrap();
    db.write(move |w| w.delete(id)).unwrap();
    assert_eq!(db.read(|r| r.boot_plan_by_key("key-three")).unwrap(), None);
}

fn a_plan_that_cannot_be_opened_is_left_out(db: &Database) {
    let machines = [node("broken"), node("whole")];
    let ids = machines.each_ref().map(|machine| machine.id);
    let all: Vec<_> = (1..).zip(machines).collect();
    db.write(move |w| {
        for (number, machine) in &all {
            w.insert(machine)?;
            w.insert(&Port::new(PortId::random(), machine.id, mac(*number), THEN))?;
            w.set_boot_plan(&plan(machine, &format!("key-{number}")))?;
        }
        Ok(())
    })
    .unwrap();
    // What was sealed for one machine does not open for another.
    db.sql(&format!(
        "UPDATE boot_plans SET sealed = (SELECT sealed FROM
         (SELECT sealed FROM boot_plans WHERE node_uuid = '{}') AS other) WHERE node_uuid = '{}'",
        ids[1], ids[0]
    ));
    let mut cards = db.read(|r| r.boot_cards(&[mac(1), mac(2)])).unwrap();
    cards.sort_by_key(|card| card.plan.is_some());
    let found: Vec<_> = cards.iter().map(|card| (card.node_id, card.plan.is_some())).collect();
    assert_eq!(found, [(ids[0], false), (ids[1], true)]);
}

fn strangers_are_counted(db: &Database) {
    let seen = |card: u32, second: u64, address: Option<&str>, words: &str| StrangerSeen {
        address: mac(card),
        first_seen_at: THEN.plus(Duration::from_secs(second)),
        last_seen_at: THEN.plus(Duration::from_secs(second)),
        times: 2,
        ip_address: address.map(str::to_owned),
        interface: "eth1".to_owned(),
        architecture: None,
        last: words.to_owned(),
    };
    let all = [
        seen(1, 1, Some("10.0.0.1"), "DISCOVER"),
        seen(2, 2, None, "DISCOVER"),
        seen(1, 3, None, "boot.ipxe"),
    ];
    db.write(move |w| all.iter().try_for_each(|seen| w.see_stranger(seen))).unwrap();
    let found: Vec<_> =
        db.read(|r| r.strangers(10)).unwrap().into_iter().map(|known| known.seen).collect();
    let expected = StrangerSeen {
        first_seen_at: THEN.plus(Duration::from_secs(1)),
        times: 4,
        ip_address: Some("10.0.0.1".to_owned()),
        ..seen(1, 3, None, "boot.ipxe")
    };
    assert_eq!(found, [expected, seen(2, 2, None, "DISCOVER")]);
    let machine = node("n");
    db.write(move |w| {
        w.insert(&machine)?;
        w.insert(&Port::new(PortId::random(), machine.id, mac(2), THEN))
    })
    .unwrap();
    let cards: Vec<_> =
        db.read(|r| r.strangers(10)).unwrap().into_iter().map(|known| known.seen.address).collect();
    assert_eq!(cards, [mac(1)], "who was enrolled is no stranger");
    assert!(db.write(|w| w.forget_stranger(&mac(1))).unwrap());
    assert!(!db.write(|w| w.forget_stranger(&mac(1))).unwrap());
    assert!(db.read(|r| r.strangers(10)).unwrap().is_empty());
}

fn experience_is_kept(db: &Database) {
    db.write(|w| {
        w.note_boot("Dell R650", BootWay::Ipxe, false)?;
        w.note_boot("Dell R650", BootWay::Ipxe, false)?;
        w.note_boot("Dell R650", BootWay::Http, true)?;
        w.note_boot("HPE DL360", BootWay::Ipxe, true)
    })
    .unwrap();
    let ways = |db: &Database| {
        let found = db.read(|r| r.boot_experience("Dell R650")).unwrap();
        found.iter().map(|known| (known.way, known.worked, known.failed)).collect::<Vec<_>>()
    };
    assert_eq!(ways(db), [(BootWay::Http, 1, 0), (BootWay::Ipxe, 0, 2)]);
    db.write(|w| w.note_boot("Dell R650", BootWay::Ipxe, true)).unwrap();
    assert_eq!(ways(db), [(BootWay::Http, 1, 0), (BootWay::Ipxe, 1, 0)]);
}

/// Two processes that see the same new machines, of the same new models, at the same moments.
fn processes_learn_together(db: &Database) {
    const ROUNDS: u32 = 20;
    // One process alone uses a file.
    let other = match db.kind {
        Kind::Sqlite => db.store.clone(),
        Kind::Postgres | Kind::MariaDb => db.open_again().unwrap(),
    };
    for round in 0..ROUNDS {
        let start = Arc::new(Barrier::new(2));
        let writes = [db.store.clone(), other.clone()].map(|store| {
            let start = Arc::clone(&start);
            db.runtime.spawn(async move {
                tokio::task::block_in_place(|| start.wait());
                let write = move |w: &mut Writer<'_>| {
                    w.see_stranger(&StrangerSeen {
                        address: mac(round),
                        first_seen_at: THEN,
                        last_seen_at: THEN,
                        times: 1,
                        ip_address: None,
                        interface: "eth1".to_owned(),
                        architecture: None,
                        last: "DISCOVER".to_owned(),
                    })?;
                    w.note_boot(&format!("model {round}"), BootWay::Ipxe, false)
                };
                store.write(write).await
            })
        });
        for write in writes {
            db.runtime.block_on(write).unwrap().unwrap();
        }
    }
    let seen = db.read(|r| r.strangers(2 * ROUNDS)).unwrap();
    assert_eq!(seen.iter().map(|known| known.seen.times).collect::<Vec<_>>(), [2; ROUNDS as usize]);
    for round in 0..ROUNDS {
        let known = db.read(move |r| r.boot_experience(&format!("model {round}"))).unwrap();
        assert_eq!(known.iter().map(|known| known.failed).collect::<Vec<_>>(), [2]);
    }
}
