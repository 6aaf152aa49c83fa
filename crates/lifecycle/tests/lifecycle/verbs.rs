// SPDX-License-Identifier: Apache-2.0
//! Which verb is accepted where, and in which words it is refused.

use std::fmt::Write as _;

use expect_test::expect;
use lifecycle::Refusal;
use node_model::{ProvisionState, Verb};

use crate::support::Bench;

#[test]
fn the_table_of_verbs() {
    let mut table = String::new();
    for state in ProvisionState::ALL {
        let accepted: Vec<&str> = Verb::ALL
            .iter()
            .filter(|verb| lifecycle::check_verb(&Bench::new(*state).node, **verb).is_ok())
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

fn refusal(prepare: impl FnOnce(&mut Bench), state: ProvisionState, verb: Verb) -> Refusal {
    let mut bench = Bench::new(state);
    prepare(&mut bench);
    let before = bench.node.clone();
    let refusal = bench.try_ask(verb, &[]).expect_err("refused");
    assert_eq!(bench.node, before, "a refused verb changed the node");
    refusal
}

#[test]
fn maintenance_comes_before_the_state() {
    let refused = refusal(
        |bench| {
            bench.node.maintenance = true;
            bench.node.maintenance_reason = Some("new disk".to_owned());
        },
        ProvisionState::Enroll,
        Verb::Active,
    );
    expect!["node 00000000-0000-0000-0000-000000000000 is in maintenance (new disk); clear it first, then ask for active again"]
        .assert_eq(&refused.to_string());
}

#[test]
fn a_reserved_node_is_locked_whatever_is_asked() {
    let refused = refusal(
        |bench| bench.node.reservation = Some("host-1".to_owned()),
        ProvisionState::Deploying,
        Verb::Manage,
    );
    assert!(matches!(refused, Refusal::Locked { .. }), "{refused}");
}

#[test]
fn protected_and_retired() {
    let protected =
        refusal(|bench| bench.node.protected = true, ProvisionState::Active, Verb::Deleted);
    assert!(matches!(protected, Refusal::Protected { .. }), "{protected}");
    let retired =
        refusal(|bench| bench.node.retired = true, ProvisionState::Manageable, Verb::Provide);
    assert!(matches!(retired, Refusal::Retired { .. }), "{retired}");
}

#[test]
fn a_refusal_says_what_is_possible() {
    let refused = refusal(|_| {}, ProvisionState::Active, Verb::Provide);
    expect![[r#"The requested action "provide" can not be performed on node "00000000-0000-0000-0000-000000000000" while it is in state "active". Possible now: rebuild, deleted, rescue, service."#]]
        .assert_eq(&refused.to_string());
}
