// SPDX-License-Identifier: Apache-2.0
//! Direct calls: one at a time, and told in the timeline. And BMCs that do not answer.

use std::time::Duration;

use bmc_drivers::NodeChanges;
use node_model::{Happening, JsonObject, PowerTarget, ProvisionState, Verb, WaitReason};
use serde_json::json;

use super::{House, user};
use crate::{Error, runner};

#[tokio::test]
async fn a_direct_call_holds_the_node() {
    let house = House::new();
    let id = house.node(ProvisionState::Enroll, json!({})).await;
    house.ask(id, Verb::Manage).await.unwrap();
    let held = house.conductor.hold(id).await.unwrap();
    assert_eq!(house.get(id).await.reservation.as_deref(), Some("here"));
    let second = house.conductor.set_boot_device(id, "pxe", false, &user()).await;
    assert!(matches!(second, Err(Error::PowerRefused(_))), "{second:?}");

    // One that comes while another is at it waits its turn.
    let waiting = tokio::spawn({
        let conductor = house.conductor.clone();
        async move { conductor.set_boot_device(id, "pxe", false, &user()).await }
    });
    assert_eq!(house.work(id).await, ProvisionState::Verifying, "our own jobs wait, too");

    let work = async { Ok(((), NodeChanges::none())) };
    held.carry_out(&house.conductor, &user(), "look", work).await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(house.work(id).await, ProvisionState::Manageable);
}

#[tokio::test]
async fn what_a_user_did_is_in_the_timeline() {
    let house = House::new();
    let id = house.node(ProvisionState::Manageable, json!({})).await;
    house.conductor.set_boot_device(id, "pxe", true, &user()).await.unwrap();
    let node = house.get(id).await;
    assert_eq!(node.reservation, None);
    let told = house.journal(id).await;
    let did = told.iter().find(|recorded| matches!(recorded.entry.what, Happening::Did { .. }));
    let did = did.expect("it is told");
    assert_eq!(did.entry.actor, user());
    let Happening::Did { action, .. } = &did.entry.what else { unreachable!() };
    assert!(action.contains("pxe") && action.contains("from now on"), "{action}");

    house.change(id, |node| node.driver_info.set("fake_management_failure", "inject_nmi")).await;
    assert!(house.conductor.inject_nmi(id, &user()).await.is_err());
    let told = house.journal(id).await;
    assert!(told.iter().any(|recorded| matches!(recorded.entry.what, Happening::Failed { .. })));
    assert_eq!(house.get(id).await.reservation, None, "a failed call lets go, too");
}

#[tokio::test]
async fn a_bmc_that_does_not_answer_is_asked_again() {
    let house = House::new();
    let silent = json!({"fake_power_failure": "unreachable"});
    let id = house.node(ProvisionState::Enroll, silent).await;
    assert_eq!(house.through(id, Verb::Manage).await, ProvisionState::Verifying);
    let node = house.get(id).await;
    let retry = node.work.unwrap().retry.unwrap();
    assert_eq!(node.wait.unwrap().why, WaitReason::BmcAnswer);
    assert_eq!((node.due_at, node.reservation), (Some(retry.at), None));
    assert!(node.last_error.unwrap().contains("could not be reached"));

    house.change(id, |node| node.driver_info = JsonObject::empty()).await;
    house.pass(Duration::from_secs(2));
    assert_eq!(house.work(id).await, ProvisionState::Manageable);
    assert_eq!(house.get(id).await.last_error, None);
}

#[tokio::test]
async fn a_change_of_power_tells_what_it_was_and_what_it_is() {
    let house = House::new();
    let id = house.node(ProvisionState::Manageable, json!({})).await;
    house.conductor.power(id, PowerTarget::On, None, user()).await.unwrap();
    runner::run(&house.conductor, id).await;
    let told: Vec<_> = house
        .journal(id)
        .await
        .into_iter()
        .filter_map(|recorded| {
            if let Happening::Power { from, to, .. } = recorded.entry.what {
                return Some((from, to));
            }
            None
        })
        .collect();
    assert_eq!(told, [(Some("power off".to_owned()), Some("power on".to_owned()))]);
}

#[tokio::test]
async fn a_call_that_nobody_saw_the_end_of_is_told() {
    let house = House::new();
    let id = house.node(ProvisionState::Manageable, json!({})).await;
    let held = house.neighbour("here").hold(id).await.unwrap();
    held.announce(&house.conductor, "set the boot mode to bios").await.unwrap();
    // The process ends here; the next run of it starts.
    crate::membership::take_up(&house.conductor).await.unwrap();
    let node = house.get(id).await;
    assert_eq!(node.reservation, None);
    let error = node.last_error.unwrap();
    assert!(error.contains("boot mode to bios") && error.contains("not known"), "{error}");
    assert_eq!(node.driver_internal_info.get("direct_call"), None);

    house.conductor.set_boot_mode(id, "bios", &user()).await.unwrap();
    let node = house.get(id).await;
    assert_eq!(node.boot_mode.as_deref(), Some("bios"));
    assert_eq!(node.driver_internal_info.get("direct_call"), None);
}
