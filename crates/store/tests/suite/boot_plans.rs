// SPDX-License-Identifier: Apache-2.0
//! Boot plans, sightings and boot method statistics.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use node_model::{
    BootImage, BootMethod, BootPlan, BootPurpose, BootSystem, JsonObject, MachineSighting, Node,
    Port, PortId,
};
use store::StoreWriter;

use crate::samples::*;
use crate::test_database::{EngineKind, TestDatabase, on_every_engine};

on_every_engine! {
    boot_plans_are_found_by_node_key_and_mac undecryptable_boot_plan_is_left_out
    sightings_are_counted boot_results_are_counted concurrent_processes_count_correctly
}

fn image(source: &str) -> BootImage {
    BootImage { source: source.to_owned(), checksum: None, pull_secret: None }
}

pub(crate) fn plan(node: &Node, key: &str) -> BootPlan {
    BootPlan {
        node_id: node.id,
        purpose: BootPurpose::DeployRamdisk,
        method: BootMethod::Ipxe,
        system: BootSystem::Kernel {
            kernel: image("http://images/kernel"),
            ramdisk: image("http://images/ramdisk"),
            parameters: vec!["ipa-agent-token=hunter2".to_owned()],
            network_data: JsonObject::empty(),
        },
        key: key.to_owned(),
        config_drive: None,
        installer: None,
        created_at: THEN,
        expires_at: Some(THEN.plus(Duration::from_secs(60))),
    }
}

fn boot_plans_are_found_by_node_key_and_mac(db: &TestDatabase) {
    let machine = node("n");
    let (id, known) = (machine.id, machine.clone());
    db.write(move |w| {
        w.insert(&known)?;
        w.insert(&Port::new(PortId::random(), known.id, mac(1), THEN))
    })
    .unwrap();
    let ports = move || db.read(|r| r.boot_ports(&[mac(1), mac(2)])).unwrap();
    assert_eq!(ports().len(), 1);
    assert_eq!(ports()[0].plan, None);

    let first = plan(&machine, "key-one");
    let second = plan(&machine, "key-two");
    for plan in [first, second.clone()] {
        db.write(move |w| w.set_boot_plan(&plan)).unwrap();
    }
    assert_eq!(db.read(move |r| r.boot_plan(id)).unwrap(), Some(second.clone()));
    assert_eq!(db.read(|r| r.boot_plan_by_key("key-one")).unwrap(), None);
    assert_eq!(db.read(|r| r.boot_plan_by_key("key-two")).unwrap(), Some(second.clone()));
    let port = &ports()[0];
    assert_eq!((&port.mac, port.node_id, port.pxe_enabled), (&mac(1), id, true));
    assert_eq!(port.node_name.as_deref(), Some("n"));
    assert_eq!(port.plan, Some(second));

    assert!(db.write(move |w| w.remove_boot_plan(id)).unwrap());
    assert!(!db.write(move |w| w.remove_boot_plan(id)).unwrap());
    let again = plan(&machine, "key-three");
    db.write(move |w| w.set_boot_plan(&again)).unwrap();
    db.write(move |w| w.delete(id)).unwrap();
    assert_eq!(db.read(|r| r.boot_plan_by_key("key-three")).unwrap(), None);
}

fn undecryptable_boot_plan_is_left_out(db: &TestDatabase) {
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
    // A plan sealed for one node cannot be opened for another.
    db.sql(&format!(
        "UPDATE boot_plans SET sealed = (SELECT sealed FROM
         (SELECT sealed FROM boot_plans WHERE node_uuid = '{}') AS other) WHERE node_uuid = '{}'",
        ids[1], ids[0]
    ));
    let mut ports = db.read(|r| r.boot_ports(&[mac(1), mac(2)])).unwrap();
    ports.sort_by_key(|port| port.plan.is_some());
    let found: Vec<_> = ports.iter().map(|port| (port.node_id, port.plan.is_some())).collect();
    assert_eq!(found, [(ids[0], false), (ids[1], true)]);
}

fn sightings_are_counted(db: &TestDatabase) {
    let seen = |number: u32, second: u64, address: Option<&str>, activity: &str| MachineSighting {
        mac: mac(number),
        first_seen_at: THEN.plus(Duration::from_secs(second)),
        last_seen_at: THEN.plus(Duration::from_secs(second)),
        times: 2,
        ip_address: address.map(str::to_owned),
        interface: "eth1".to_owned(),
        architecture: None,
        last_activity: activity.to_owned(),
    };
    let all = [
        seen(1, 1, Some("10.0.0.1"), "DISCOVER"),
        seen(2, 2, None, "DISCOVER"),
        seen(1, 3, None, "boot.ipxe"),
    ];
    db.write(move |w| all.iter().try_for_each(|seen| w.record_sighting(seen))).unwrap();
    let found: Vec<_> = db
        .read(|r| r.unknown_machines(10))
        .unwrap()
        .into_iter()
        .map(|known| known.sighting)
        .collect();
    let expected = MachineSighting {
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
    let macs: Vec<_> = db
        .read(|r| r.unknown_machines(10))
        .unwrap()
        .into_iter()
        .map(|known| known.sighting.mac)
        .collect();
    assert_eq!(macs, [mac(1)], "an enrolled machine is not unknown");
    assert!(db.write(|w| w.delete_sighting(&mac(1))).unwrap());
    assert!(!db.write(|w| w.delete_sighting(&mac(1))).unwrap());
    assert!(db.read(|r| r.unknown_machines(10)).unwrap().is_empty());
}

fn boot_results_are_counted(db: &TestDatabase) {
    db.write(|w| {
        w.record_boot_result("Dell R650", BootMethod::Ipxe, false)?;
        w.record_boot_result("Dell R650", BootMethod::Ipxe, false)?;
        w.record_boot_result("Dell R650", BootMethod::Http, true)?;
        w.record_boot_result("HPE DL360", BootMethod::Ipxe, true)
    })
    .unwrap();
    let ways = |db: &TestDatabase| {
        let found = db.read(|r| r.boot_method_stats("Dell R650")).unwrap();
        found.iter().map(|known| (known.method, known.worked, known.failed)).collect::<Vec<_>>()
    };
    assert_eq!(ways(db), [(BootMethod::Http, 1, 0), (BootMethod::Ipxe, 0, 2)]);
    db.write(|w| w.record_boot_result("Dell R650", BootMethod::Ipxe, true)).unwrap();
    assert_eq!(ways(db), [(BootMethod::Http, 1, 0), (BootMethod::Ipxe, 1, 0)]);
}

/// Two processes record the same new machines and models at the same time.
fn concurrent_processes_count_correctly(db: &TestDatabase) {
    const ROUNDS: u32 = 20;
    // An SQLite file is used by one process only.
    let other = match db.kind {
        EngineKind::Sqlite => db.store.clone(),
        EngineKind::Postgres | EngineKind::MariaDb => db.open_again().unwrap(),
    };
    for round in 0..ROUNDS {
        let start = Arc::new(Barrier::new(2));
        let writes = [db.store.clone(), other.clone()].map(|store| {
            let start = Arc::clone(&start);
            db.runtime.spawn(async move {
                tokio::task::block_in_place(|| start.wait());
                let write = move |w: &mut StoreWriter<'_>| {
                    w.record_sighting(&MachineSighting {
                        mac: mac(round),
                        first_seen_at: THEN,
                        last_seen_at: THEN,
                        times: 1,
                        ip_address: None,
                        interface: "eth1".to_owned(),
                        architecture: None,
                        last_activity: "DISCOVER".to_owned(),
                    })?;
                    w.record_boot_result(&format!("model {round}"), BootMethod::Ipxe, false)
                };
                store.write(write).await
            })
        });
        for write in writes {
            db.runtime.block_on(write).unwrap().unwrap();
        }
    }
    let seen = db.read(|r| r.unknown_machines(2 * ROUNDS)).unwrap();
    assert_eq!(
        seen.iter().map(|known| known.sighting.times).collect::<Vec<_>>(),
        [2; ROUNDS as usize]
    );
    for round in 0..ROUNDS {
        let known = db.read(move |r| r.boot_method_stats(&format!("model {round}"))).unwrap();
        assert_eq!(known.iter().map(|known| known.failed).collect::<Vec<_>>(), [2]);
    }
}
