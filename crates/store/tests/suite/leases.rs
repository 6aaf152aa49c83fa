// SPDX-License-Identifier: Apache-2.0
//! One process works on a node at a time, and a process without a lease cannot write.

use std::time::Duration;

use node_model::NodeId;
use store::{LeaseOwner, NodeFilter, NodeLease, StoreError};
use uuid::Uuid;

use crate::samples::*;
use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! { only_one_owner_holds_a_lease stale_token_cannot_save leases_of_earlier_runs_are_released one_of_many_concurrent_claims_wins }

const TTL: Duration = Duration::from_secs(60);

fn owner(hostname: &str) -> LeaseOwner {
    LeaseOwner { hostname: hostname.to_owned(), run: Uuid::new_v4() }
}

fn enrolled(db: &TestDatabase, name: &str) -> NodeId {
    let machine = node(name);
    let id = machine.id;
    db.write(move |w| w.insert(&machine)).unwrap();
    id
}

fn claim(db: &TestDatabase, id: NodeId, owner: &LeaseOwner) -> Option<NodeLease> {
    let owner = owner.clone();
    db.write(move |w| w.claim(id, &owner, TTL)).unwrap()
}

fn reservation(db: &TestDatabase, id: NodeId) -> Option<String> {
    db.read(move |r| r.get(id)).unwrap().unwrap().reservation
}

fn only_one_owner_holds_a_lease(db: &TestDatabase) {
    let (id, one, two) = (enrolled(db, "n"), owner("one"), owner("two"));
    let first = claim(db, id, &one).unwrap();
    assert_eq!(reservation(db, id).as_deref(), Some("one"));
    assert_eq!(claim(db, id, &two), None);
    assert_eq!(claim(db, NodeId::random(), &two), None);
    // The same run may claim again, which invalidates its older lease.
    let second = claim(db, id, &one).unwrap();
    assert!(second.token > first.token);
    assert!(!db.write(move |w| w.renew(&first, TTL)).unwrap());
    db.advance(TTL - Duration::from_micros(1));
    assert_eq!(claim(db, id, &two), None);
    assert!(db.write(move |w| w.renew(&second, TTL)).unwrap());
    db.advance(TTL - Duration::from_micros(1));
    assert_eq!(claim(db, id, &two), None);
    db.advance(Duration::from_micros(1));
    let third = claim(db, id, &two).unwrap();
    assert!(third.token > second.token);
    assert_eq!(reservation(db, id).as_deref(), Some("two"));
    assert!(!db.write(move |w| w.renew(&second, TTL)).unwrap());
    assert!(!db.write(move |w| w.release(&second)).unwrap());
    assert_eq!(reservation(db, id).as_deref(), Some("two"));
    assert!(db.write(move |w| w.release(&third)).unwrap());
    assert_eq!(reservation(db, id), None);
    assert!(claim(db, id, &one).unwrap().token > third.token);
    let reserved = NodeFilter { reserved: Some(true), ..NodeFilter::default() };
    assert_eq!(db.read(move |r| r.count::<node_model::Node>(&reserved)).unwrap(), 1);
}

fn stale_token_cannot_save(db: &TestDatabase) {
    let (id, one, two) = (enrolled(db, "n"), owner("one"), owner("two"));
    let save = move |lease: NodeLease, error: &'static str| {
        db.write(move |w| {
            let mut node = w.get(id)?.ok_or(StoreError::Missing)?;
            node.last_error = Some(error.to_owned());
            w.save_fenced(&mut node, &lease)
        })
    };
    let last_error = || db.read(move |r| r.get(id)).unwrap().unwrap().last_error;
    let first = claim(db, id, &one).unwrap();
    save(first, "first").unwrap();
    assert_eq!(reservation(db, id).as_deref(), Some("one"), "saving leaves the lease alone");
    db.advance(TTL * 2);
    // Expired but not claimed by another process: the save still succeeds.
    save(first, "late").unwrap();
    let second = claim(db, id, &two).unwrap();
    assert!(matches!(save(first, "stale"), Err(StoreError::LeaseLost)));
    assert_eq!(last_error().as_deref(), Some("late"));
    save(second, "second").unwrap();
    assert!(db.write(move |w| w.release(&second)).unwrap());
    assert!(matches!(save(second, "released"), Err(StoreError::LeaseLost)));
    // A save without a lease, as in the API server, neither needs nor changes one.
    let third = claim(db, id, &one).unwrap();
    db.write(move |w| {
        let mut node = w.get(id)?.ok_or(StoreError::Missing)?;
        node.reservation = None;
        w.save(&mut node)
    })
    .unwrap();
    assert_eq!(reservation(db, id).as_deref(), Some("one"));
    save(third, "third").unwrap();
}

fn leases_of_earlier_runs_are_released(db: &TestDatabase) {
    let (a, b, c) = (enrolled(db, "a"), enrolled(db, "b"), enrolled(db, "c"));
    let (before, after, other) = (owner("one"), owner("one"), owner("two"));
    let old = claim(db, a, &before).unwrap();
    claim(db, b, &other).unwrap();
    claim(db, c, &after).unwrap();
    let run = after.run;
    let freed = db.write(move |w| w.release_leases_of_earlier_runs("one", run)).unwrap();
    assert_eq!(freed, [a]);
    assert_eq!(reservation(db, a), None);
    assert_eq!(reservation(db, b).as_deref(), Some("two"));
    assert_eq!(reservation(db, c).as_deref(), Some("one"));
    assert!(!db.write(move |w| w.renew(&old, TTL)).unwrap());
    assert!(claim(db, a, &other).unwrap().token > old.token + 1);
}

fn one_of_many_concurrent_claims_wins(db: &TestDatabase) {
    let id = enrolled(db, "n");
    let claims: Vec<_> = (0..16)
        .map(|number| {
            let (store, owner) = (db.store.clone(), owner(&format!("host-{number}")));
            db.runtime.spawn(async move {
                store
                    .write(move |w| w.claim(id, &owner, TTL))
                    .await
                    .unwrap_or_else(|error: StoreError| panic!("{error:?}"))
            })
        })
        .collect();
    let won = claims.into_iter().filter_map(|claim| db.runtime.block_on(claim).unwrap()).count();
    assert_eq!(won, 1);
}
