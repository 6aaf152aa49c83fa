// SPDX-License-Identifier: Apache-2.0
//! Accepted verbs per state, and the errors of rejected requests.

use std::fmt::Write as _;

use expect_test::expect;
use lifecycle::ProvisionRequestError;
use node_model::{ProvisionState, Verb};

use crate::support::JobHarness;

#[test]
fn verbs_accepted_in_each_state() {
    let mut table = String::new();
    for state in ProvisionState::ALL {
        let accepted: Vec<&str> = Verb::ALL
            .iter()
            .filter(|verb| lifecycle::check_verb(&JobHarness::new(*state).node, **verb).is_ok())
            .map(|verb| verb.as_str())
            .collect();
        let _ = writeln!(table, "{state}: {}", accepted.join(", "));
    }
    expect![[r#"
        enroll: manage
        verifying: 
        manageable: provide, inspect, clean, adopt
        available: active, deploy, manage
        active: rebuild, deleted, undeploy, rescue, service
        error: rebuild, deleted, undeploy
        rescue: deleted, undeploy, rescue, unrescue
        deploying: 
        wait call-back: deleted, undeploy, abort
        deploy failed: active, rebuild, deleted, deploy, undeploy
        deploy hold: abort, unhold
        cleaning: manage
        clean wait: abort
        clean failed: manage
        clean hold: abort, unhold
        deleting: clean
        inspecting: 
        inspect wait: abort
        inspect failed: manage, inspect
        adopting: 
        adopt failed: manage, adopt
        rescuing: 
        rescue wait: deleted, undeploy, abort
        rescue failed: deleted, undeploy, rescue, unrescue
        unrescuing: 
        unrescue failed: deleted, undeploy, rescue, unrescue
        servicing: 
        service wait: deleted, undeploy, abort
        service failed: deleted, undeploy, abort, rescue, service
        service hold: abort, unhold, service
    "#]]
    .assert_eq(&table);
}

fn rejection(
    prepare: impl FnOnce(&mut JobHarness),
    state: ProvisionState,
    verb: Verb,
) -> ProvisionRequestError {
    let mut harness = JobHarness::new(state);
    prepare(&mut harness);
    let before = harness.node.clone();
    let error = harness.try_request(verb, &[]).expect_err("rejected");
    assert_eq!(harness.node, before, "a rejected verb changed the node");
    error
}

#[test]
fn maintenance_is_checked_before_the_state() {
    let error = rejection(
        |harness| {
            harness.node.maintenance = true;
            harness.node.maintenance_reason = Some("new disk".to_owned());
        },
        ProvisionState::Enroll,
        Verb::Active,
    );
    expect!["node 00000000-0000-0000-0000-000000000000 is in maintenance (new disk); clear it first, then request active again"]
        .assert_eq(&error.to_string());
}

#[test]
fn rejects_every_verb_on_a_locked_node() {
    let error = rejection(
        |harness| harness.node.reservation = Some("host-1".to_owned()),
        ProvisionState::Deploying,
        Verb::Manage,
    );
    assert!(matches!(error, ProvisionRequestError::Locked { .. }), "{error}");
}

#[test]
fn rejects_verbs_on_protected_and_retired_nodes() {
    let protected =
        rejection(|harness| harness.node.protected = true, ProvisionState::Active, Verb::Deleted);
    assert!(matches!(protected, ProvisionRequestError::Protected { .. }), "{protected}");
    let retired =
        rejection(|harness| harness.node.retired = true, ProvisionState::Manageable, Verb::Provide);
    assert!(matches!(retired, ProvisionRequestError::Retired { .. }), "{retired}");
}

#[test]
fn rejection_lists_the_possible_verbs() {
    let error = rejection(|_| {}, ProvisionState::Active, Verb::Provide);
    expect![[r#"The requested action "provide" can not be performed on node "00000000-0000-0000-0000-000000000000" while it is in state "active". Possible now: rebuild, deleted, rescue, service."#]]
        .assert_eq(&error.to_string());
}
