// SPDX-License-Identifier: Apache-2.0
//! Users, projects, role assignments, API tokens, sessions and failed sign-ins.

use node_model::{
    AccessScope, ApiToken, ApiTokenId, IdentitySource, Node, Project, ProjectId, RoleAssignment,
    Secret, SessionId, SignInFailure, Timestamp, UserAccount, UserId, UserKind, UserSession,
};
use store::{
    ApiTokenColumn, OwnedByUserFilter, ProjectColumn, ResourceQuery, SessionColumn, StoreError,
    UserColumn,
};

use crate::samples::*;
use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! {
    stores_users_with_roles_tokens_and_sessions
    deleting_a_project_deletes_what_refers_to_it
    keeps_the_latest_sign_in_failures
}

fn user(name: &str) -> UserAccount {
    UserAccount {
        id: UserId::random(),
        name: name.to_owned(),
        kind: UserKind::Human,
        created_at: THEN,
        updated_at: None,
        description: Some("a user".to_owned()),
        enabled: true,
        password_hash: Some(Secret::new("$argon2id$x".to_owned())),
        default_project: Some("a".to_owned()),
    }
}

fn token(user: UserId, lookup: &str, scope: Option<AccessScope>) -> ApiToken {
    ApiToken {
        id: ApiTokenId::random(),
        lookup: lookup.to_owned(),
        digest: format!("digest of {lookup}"),
        user_id: user,
        description: "ci".to_owned(),
        created_at: THEN,
        expires_at: Some(THEN),
        last_used_at: None,
        role: Some("reader".to_owned()),
        scope,
    }
}

fn session(user: &UserAccount, digest: &str, expires_at: Timestamp) -> UserSession {
    UserSession {
        id: SessionId::random(),
        digest: digest.to_owned(),
        source: IdentitySource::Local,
        user_id: Some(user.id),
        user_name: user.name.clone(),
        credential: "c".to_owned(),
        scope: Some(AccessScope::System),
        created_at: THEN,
        expires_at,
        address: Some("::1".to_owned()),
    }
}

fn roles(texts: &[&str]) -> Vec<RoleAssignment> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn stores_users_with_roles_tokens_and_sessions(db: &TestDatabase) {
    let (alice, bob) = (user("alice"), user("bob"));
    let (alice_id, bob_id) = (alice.id, bob.id);
    let stored = alice.clone();
    db.write(move |w| {
        w.insert(&stored)?;
        w.insert(&bob)?;
        w.set_role_assignments(stored.id, &roles(&["reader@system", "member@a", "member@a"]))
    })
    .unwrap();
    let duplicate = db.write(|w| w.insert(&user("alice"))).unwrap_err();
    assert!(matches!(duplicate, StoreError::Duplicate { what: "name" }), "{duplicate:?}");
    assert_eq!(db.read(|r| r.find(UserColumn::Name, "alice")).unwrap(), Some(alice.clone()));
    assert_eq!(db.read(|r| r.find::<UserAccount>(UserColumn::Name, "Alice")).unwrap(), None);
    let found = db.read(move |r| r.role_assignments(alice_id)).unwrap();
    assert_eq!(found, roles(&["member@a", "reader@system"]));
    assert!(!db.read(|r| r.has_system_admin(None)).unwrap());
    db.write(move |w| w.set_role_assignments(alice_id, &roles(&["admin@system"]))).unwrap();
    assert!(db.read(|r| r.has_system_admin(None)).unwrap());
    assert!(!db.read(move |r| r.has_system_admin(Some(alice_id))).unwrap());
    let all = db.read(|r| r.all_role_assignments()).unwrap();
    assert_eq!(all, [(alice_id, roles(&["admin@system"]).remove(0))]);

    let first = token(alice_id, "first", None);
    let (other, expected) = (token(bob_id, "other", Some(AccessScope::System)), first.clone());
    db.write(move |w| {
        w.insert(&first)?;
        w.insert(&other)
    })
    .unwrap();
    assert_eq!(
        db.read(|r| r.find(ApiTokenColumn::Lookup, "first")).unwrap(),
        Some(expected.clone())
    );
    let of_alice = ResourceQuery::filtered(OwnedByUserFilter { user: Some(alice_id) });
    let listed: Vec<ApiToken> = db.read(move |r| r.collect(&of_alice)).unwrap();
    assert_eq!(listed, std::slice::from_ref(&expected));
    // An earlier use does not replace a later one.
    for at in [Timestamp(20), Timestamp(10)] {
        db.write(move |w| w.record_token_use(expected.id, at)).unwrap();
    }
    let used = db.read(move |r| r.get(expected.id)).unwrap().unwrap();
    assert_eq!(used.last_used_at, Some(Timestamp(20)));

    let (kept, expired) =
        (session(&alice, "kept", Timestamp(100)), session(&alice, "expired", Timestamp(50)));
    let expected = kept.clone();
    db.write(move |w| {
        w.insert(&kept)?;
        w.insert(&expired)?;
        w.delete_expired_sessions(Timestamp(50))
    })
    .unwrap();
    let find = |digest: &'static str| {
        db.read(move |r| r.find::<UserSession>(SessionColumn::Digest, digest)).unwrap()
    };
    assert_eq!((find("kept"), find("expired")), (Some(expected.clone()), None));
    assert!(db.write(|w| w.delete_session("kept")).unwrap());
    assert!(!db.write(|w| w.delete_session("kept")).unwrap());
    db.write(move |w| w.insert(&expected)).unwrap();
    assert_eq!(db.write(move |w| w.delete_sessions_of(alice_id)).unwrap(), 1);

    let again = session(&alice, "kept", Timestamp(100));
    db.write(move |w| {
        w.insert(&again)?;
        w.delete(alice_id)
    })
    .unwrap();
    assert_eq!(find("kept"), None, "sessions are deleted with their user");
    assert!(db.read(|r| r.find::<ApiToken>(ApiTokenColumn::Lookup, "first")).unwrap().is_none());
    assert!(db.read(|r| r.find::<ApiToken>(ApiTokenColumn::Lookup, "other")).unwrap().is_some());
    assert!(db.read(|r| r.all_role_assignments()).unwrap().is_empty());
}

fn deleting_a_project_deletes_what_refers_to_it(db: &TestDatabase) {
    let project = Project {
        id: ProjectId::random(),
        name: "a".to_owned(),
        created_at: THEN,
        updated_at: None,
        description: None,
        enabled: true,
    };
    let alice = user("alice");
    let (expected, alice_id, project_id) = (project.clone(), alice.id, project.id);
    let mut machine = node("n");
    machine.owner = Some("c".to_owned());
    machine.lessee = Some("a".to_owned());
    db.write(move |w| {
        w.insert(&project)?;
        w.insert(&alice)?;
        w.insert(&machine)?;
        w.set_role_assignments(alice.id, &roles(&["member@a", "reader@b"]))?;
        w.insert(&token(alice.id, "of a", Some(AccessScope::named("a"))))?;
        w.insert(&token(alice.id, "of b", Some(AccessScope::named("b"))))
    })
    .unwrap();
    assert_eq!(db.read(|r| r.find(ProjectColumn::Name, "a")).unwrap(), Some(expected));
    assert_eq!(db.read(|r| r.nodes_of_project("a")).unwrap(), 1);
    assert!(db.read(|r| r.owns_most_nodes("c")).unwrap());
    assert!(!db.read(|r| r.owns_most_nodes("a")).unwrap(), "it leases the node");
    let others = (0..40).map(|number| {
        let mut other = node(&format!("other-{number}"));
        other.owner = Some(if number % 4 == 0 { "d" } else { "e" }.to_owned());
        other
    });
    let others: Vec<Node> = others.collect();
    db.write(move |w| others.iter().try_for_each(|other| w.insert(other))).unwrap();
    for (project, owns_most) in [("c", false), ("d", false), ("e", true)] {
        assert_eq!(db.read(move |r| r.owns_most_nodes(project)).unwrap(), owns_most, "{project}");
    }
    let valid = || db.read(move |r| r.valid_role_assignments(alice_id)).unwrap();
    assert_eq!(valid(), roles(&["member@a"]), "project b does not exist");
    db.write(move |w| {
        let mut project = w.get(project_id)?.expect("it was inserted");
        project.enabled = false;
        w.save(&mut project)
    })
    .unwrap();
    assert_eq!(valid(), []);
    assert_eq!(db.read(|r| r.nodes_of_project("b")).unwrap(), 0);
    db.write(move |w| {
        w.delete_project_references("a")?;
        w.delete(project_id)
    })
    .unwrap();
    let account = db.read(move |r| r.get(alice_id)).unwrap().unwrap();
    assert_eq!(account.default_project, None);
    assert_eq!(db.read(move |r| r.role_assignments(alice_id)).unwrap(), roles(&["reader@b"]));
    let tokens: Vec<ApiToken> = db.read(|r| r.collect(&ResourceQuery::default())).unwrap();
    let lookups: Vec<_> = tokens.into_iter().map(|token| token.lookup).collect();
    assert_eq!(lookups, ["of b"]);
}

fn keeps_the_latest_sign_in_failures(db: &TestDatabase) {
    let failure = |number: i64| SignInFailure {
        user_name: format!("user {number}"),
        address: "192.0.2.1".to_owned(),
        credential: "password".to_owned(),
        first_at: Timestamp(number),
        last_at: Timestamp(number + 1),
        attempts: 7,
    };
    for batch in 0..101 {
        let failures: Vec<_> = (0..100).map(|n| failure(batch * 100 + n)).collect();
        db.write(move |w| w.record_sign_in_failures(&failures)).unwrap();
    }
    let found = db.read(|r| r.sign_in_failures(20_000)).unwrap();
    assert_eq!(found.len(), 10_000);
    assert_eq!(found.first(), Some(&failure(10_099)));
    assert_eq!(found.last(), Some(&failure(100)));
}
