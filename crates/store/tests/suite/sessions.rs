// SPDX-License-Identifier: Apache-2.0
//! A lease ends with the session of its owner, and a session that is renewed is not ended.

use std::sync::mpsc;
use std::time::Duration;

use node_model::{ConductorInfo, NodeId};
use store::{LeaseOwner, NodeLease, ObservedSession, SessionReport, StoreError};
use uuid::Uuid;

use crate::samples::*;
use crate::test_database::{EngineKind, TestDatabase, on_every_engine};

on_every_engine! {
    a_lease_lasts_as_long_as_the_session_of_its_owner
    ending_a_session_releases_only_the_nodes_of_its_run
    a_renewed_session_is_not_ended
    a_second_process_with_the_same_name_is_refused
    a_process_of_an_earlier_version_has_no_session
    a_claim_with_an_unknown_result_is_released_by_its_run
    renewals_end_with_the_session
}

const TTL: Duration = Duration::from_secs(60);
/// A timeout that a busy host does not reach.
const TIMEOUT: Duration = Duration::from_secs(60);

fn owner(hostname: &str) -> LeaseOwner {
    LeaseOwner { hostname: hostname.to_owned(), run: Uuid::new_v4() }
}

fn info(db: &TestDatabase, owner: &LeaseOwner) -> ConductorInfo {
    ConductorInfo {
        hostname: owner.hostname.clone(),
        run: Some(owner.run),
        version: None,
        conductor_group: String::new(),
        drivers: vec!["fake-hardware".to_owned()],
        created_at: db.now(),
        updated_at: db.now(),
        online: true,
    }
}

fn begin(db: &TestDatabase, owner: &LeaseOwner, replaced: Option<ObservedSession>) -> bool {
    let info = info(db, owner);
    db.write(move |w| w.begin_session(&info, replaced.as_ref())).unwrap()
}

fn started(db: &TestDatabase, hostname: &str) -> LeaseOwner {
    let owner = owner(hostname);
    assert!(begin(db, &owner, None));
    owner
}

fn end(db: &TestDatabase, owner: &LeaseOwner, renewals: Option<i64>) -> Option<Vec<NodeId>> {
    let owner = owner.clone();
    db.write(move |w| w.end_session(&owner, renewals)).unwrap()
}

fn session(db: &TestDatabase, hostname: &'static str) -> ObservedSession {
    let sessions = db.read(|r| r.sessions()).unwrap();
    sessions.into_iter().find(|session| session.hostname == hostname).unwrap()
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

fn save(db: &TestDatabase, lease: NodeLease) -> Result<(), StoreError> {
    db.write(move |w| {
        let mut node = w.get(lease.node)?.ok_or(StoreError::Missing)?;
        w.save_fenced(&mut node, &lease)
    })
}

fn a_lease_lasts_as_long_as_the_session_of_its_owner(db: &TestDatabase) {
    let (id, one, two) = (enrolled(db, "n"), started(db, "one"), started(db, "two"));
    let first = claim(db, id, &one).unwrap();
    db.advance(TTL * 10);
    assert_eq!(claim(db, id, &two), None, "the session of the owner has not ended");
    save(db, first).unwrap();
    assert_eq!(end(db, &one, None), Some(vec![id]));
    assert!(matches!(save(db, first), Err(StoreError::LeaseLost)));
    let second = claim(db, id, &two).unwrap();
    assert!(second.token > first.token);
}

fn ending_a_session_releases_only_the_nodes_of_its_run(db: &TestDatabase) {
    let (a, b, c) = (enrolled(db, "a"), enrolled(db, "b"), enrolled(db, "c"));
    let (one, two, earlier) = (started(db, "one"), started(db, "two"), owner("one"));
    claim(db, a, &one).unwrap();
    claim(db, b, &two).unwrap();
    claim(db, c, &earlier).unwrap();
    let seen = session(db, "one");
    assert_eq!(end(db, &one, Some(seen.renewals)), Some(vec![a]));
    assert!(!session(db, "one").online);
    assert!(session(db, "two").online);
    assert_eq!(end(db, &one, Some(seen.renewals)), None, "it has ended already");
    assert!(claim(db, a, &two).is_some());
    assert_eq!(claim(db, c, &two), None);
}

fn a_renewed_session_is_not_ended(db: &TestDatabase) {
    let (id, one) = (enrolled(db, "n"), started(db, "one"));
    let lease = claim(db, id, &one).unwrap();
    let seen = session(db, "one").renewals;
    assert!(begin(db, &one, None), "the same run may begin its session again");
    assert_eq!(end(db, &one, Some(seen)), None);
    save(db, lease).unwrap();
    assert_eq!(end(db, &one, Some(seen + 1)), Some(vec![id]));
    // A session that begins again is not mistaken for the one that ended.
    assert!(begin(db, &one, None));
    assert!(session(db, "one").renewals > seen + 1);
}

fn a_second_process_with_the_same_name_is_refused(db: &TestDatabase) {
    let (first, second) = (started(db, "one"), owner("one"));
    assert!(!begin(db, &second, None));
    let seen = session(db, "one");
    assert!(begin(db, &first, None));
    assert!(!begin(db, &second, Some(seen)), "the first process has renewed its session");
    let seen = session(db, "one");
    assert!(begin(db, &second, Some(seen)), "the first process is dead");
    assert_eq!(session(db, "one").run, Some(second.run));
    assert_eq!(end(db, &second, None), Some(vec![]));
    assert!(begin(db, &owner("one"), None), "a session that has ended is replaced");
}

fn a_process_of_an_earlier_version_has_no_session(db: &TestDatabase) {
    let (id, before, two) = (enrolled(db, "n"), started(db, "one"), started(db, "two"));
    // The same host is downgraded: the earlier version does not know the columns of sessions.
    let earlier = owner("one");
    let heartbeat = info(db, &earlier);
    db.write(move |w| w.record_conductor_heartbeat(&heartbeat)).unwrap();
    assert!(!session(db, "one").renews);
    assert_eq!(end(db, &before, Some(session(db, "one").renewals)), None);
    claim(db, id, &earlier).unwrap();
    assert_eq!(claim(db, id, &two), None);
    db.advance(TTL);
    assert!(claim(db, id, &two).is_some());
    assert!(begin(db, &owner("one"), None), "it can be replaced by the next version");
}

fn a_claim_with_an_unknown_result_is_released_by_its_run(db: &TestDatabase) {
    let (id, one, two) = (enrolled(db, "n"), started(db, "one"), started(db, "two"));
    let lease = claim(db, id, &one).unwrap();
    let release = |owner: &LeaseOwner| {
        let owner = owner.clone();
        db.write(move |w| w.release_of_run(id, &owner)).unwrap()
    };
    assert!(!release(&two));
    assert!(release(&one));
    assert!(!release(&one));
    assert!(matches!(save(db, lease), Err(StoreError::LeaseLost)));
    assert!(claim(db, id, &two).is_some());
}

fn renewals_end_with_the_session(db: &TestDatabase) {
    let (one, two) = (started(db, "one"), started(db, "two"));
    let (sender, reports) = mpsc::channel();
    let report = move |report| drop(sender.send(report));
    let renewals = db.store.start_renewals(one.clone(), report);
    if db.kind == EngineKind::Sqlite {
        assert!(renewals.is_none() && !db.store.is_shared());
        return;
    }
    let wait_for = |wanted: &dyn Fn(&SessionReport) -> bool| loop {
        let report = reports.recv_timeout(TIMEOUT).unwrap();
        if wanted(&report) {
            return report;
        }
    };
    let seen = session(db, "one").renewals;
    let increased = |report: &SessionReport| {
        let SessionReport::Observed { sessions, .. } = report else { return false };
        assert_eq!(sessions.len(), 2);
        sessions[0].renewals > seen + 1
    };
    wait_for(&increased);
    wait_for(&|report| matches!(report, SessionReport::Renewed { .. }));
    let never_renewed = session(db, "two").renewals;
    assert_eq!(end(db, &two, Some(never_renewed)), Some(vec![]));
    assert_eq!(end(db, &one, None), Some(vec![]));
    wait_for(&|report| matches!(report, SessionReport::Ended));
    renewals.unwrap().stop();
}
