// SPDX-License-Identifier: Apache-2.0
//! DHCP leases: an address has one holder, whichever process assigns it.

use std::net::IpAddr;
use std::time::Duration;

use node_model::Timestamp;
use store::{Store, StoreError, StoredDhcpLease};

use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! {
    an_address_has_one_holder concurrent_processes_assign_an_address_once
    changes_are_found_and_old_leases_deleted
}

const LEASE_TIME: Duration = Duration::from_secs(600);

fn lease(last: u8, client: &[u8], expires_at: Timestamp) -> StoredDhcpLease {
    StoredDhcpLease { address: [10, 0, 0, last].into(), client: client.to_vec(), expires_at }
}

fn an_address_has_one_holder(db: &TestDatabase) {
    let assign = |lease: &StoredDhcpLease| {
        let lease = lease.clone();
        db.write(move |w| w.lease_dhcp_address(&lease)).unwrap()
    };
    let one = lease(1, b"one", db.now().plus(LEASE_TIME));
    assert_eq!(assign(&one), None);
    let other = lease(1, b"two", db.now().plus(LEASE_TIME));
    assert_eq!(assign(&other), Some(one.clone()));
    // The holder renews, and releases.
    db.advance(Duration::from_secs(60));
    let renewed = lease(1, b"one", db.now().plus(LEASE_TIME));
    assert_eq!(assign(&renewed), None);
    assert_eq!(assign(&renewed), None, "the same values again");
    assert_eq!(assign(&lease(1, b"one", db.now())), None);
    assert_eq!(assign(&other), None);
    // The lease expires.
    db.advance(LEASE_TIME);
    let conflict = lease(1, b"", db.now().plus(LEASE_TIME));
    assert_eq!(assign(&conflict), None);
    assert_eq!(assign(&one), Some(conflict.clone()));
    let address: IpAddr = [10, 0, 0, 1].into();
    assert_eq!(db.read(move |r| r.dhcp_lease(address)).unwrap(), Some(conflict));
    let v6 = StoredDhcpLease {
        address: "fd00::1".parse().unwrap(),
        // The longest DUID, and an IAID.
        client: vec![7; 134],
        expires_at: db.now(),
    };
    assert_eq!(assign(&v6), None);
    let address = v6.address;
    assert_eq!(db.read(move |r| r.dhcp_lease(address)).unwrap(), Some(v6));
}

fn concurrent_processes_assign_an_address_once(db: &TestDatabase) {
    const ADDRESSES: u8 = 20;
    let stores: Vec<Store> = (0..4).map(|_| db.open_again().unwrap()).collect();
    let expires_at = db.now().plus(LEASE_TIME);
    let assigned: Vec<u32> = std::thread::scope(|scope| {
        let running: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(number, store)| {
                scope.spawn(move || {
                    let assign = |last: u8| {
                        let wanted = lease(last, &[number as u8], expires_at);
                        loop {
                            let wanted = wanted.clone();
                            let write = store.write(move |w| w.lease_dhcp_address(&wanted));
                            match db.runtime.block_on(write) {
                                Ok(holder) => return u32::from(holder.is_none()),
                                Err(StoreError::Duplicate { what: "address" }) => {}
                                Err(error) => panic!("{error:?}"),
                            }
                        }
                    };
                    (0..ADDRESSES).map(assign).sum()
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(assigned.iter().sum::<u32>(), u32::from(ADDRESSES), "{assigned:?}");
    assert_eq!(db.read(|r| r.dhcp_leases()).unwrap().len(), usize::from(ADDRESSES));
    stores.into_iter().for_each(Store::close);
}

fn changes_are_found_and_old_leases_deleted(db: &TestDatabase) {
    let start = db.now();
    for last in [1, 2] {
        let lease = lease(last, b"one", db.now().plus(LEASE_TIME));
        db.write(move |w| w.lease_dhcp_address(&lease)).unwrap();
        db.advance(Duration::from_secs(100));
    }
    let changed = move |since: Timestamp| {
        let found = db.read(move |r| r.dhcp_leases_changed_since(since)).unwrap();
        found.into_iter().map(|lease| lease.address.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(changed(start).len(), 2);
    assert_eq!(changed(start.plus(Duration::from_secs(50))), ["10.0.0.2"]);
    let before = start.plus(LEASE_TIME).plus(Duration::from_secs(50));
    db.write(move |w| w.delete_expired_dhcp_leases(before)).unwrap();
    assert_eq!(changed(start), ["10.0.0.2"]);
}
