// SPDX-License-Identifier: Apache-2.0
//! Direct calls: exclusive, and recorded in the journal. Retries of unresponsive BMCs.

use std::sync::Arc;
use std::time::Duration;

use drivers::NodeChanges;
use node_model::{
    Fault, Interfaces, JournalEvent, JsonObject, Node, PowerTarget, ProvisionState, Verb,
    WaitReason,
};
use serde_json::json;
use tokio::time::timeout;

use super::explain::NoRamdisks;
use super::{TestConductor, user};
use crate::{ConductorError, runner};

#[tokio::test]
async fn direct_call_leases_the_node() {
    let test = TestConductor::new();
    let id = test.insert_node(ProvisionState::Enroll, json!({})).await;
    test.request(id, Verb::Manage).await.unwrap();
    let call = test.conductor.exclusive_call(id).await.unwrap();
    assert_eq!(test.get(id).await.reservation.as_deref(), Some("here"));
    let second = test.conductor.set_boot_device(id, "pxe", false, &user()).await;
    assert!(matches!(second, Err(ConductorError::PowerRejected(_))), "{second:?}");

    // A concurrent call waits.
    let waiting = tokio::spawn({
        let conductor = test.conductor.clone();
        async move { conductor.set_boot_device(id, "pxe", false, &user()).await }
    });
    assert_eq!(
        test.run_node(id).await,
        ProvisionState::Verifying,
        "jobs of the same process wait too"
    );

    let work = async { Ok(((), NodeChanges::none())) };
    call.run(&test.conductor, &user(), "read", work).await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(test.run_node(id).await, ProvisionState::Manageable);
}

#[tokio::test]
async fn direct_calls_are_in_the_journal() {
    let test = TestConductor::new();
    let id = test.insert_node(ProvisionState::Manageable, json!({})).await;
    test.conductor.set_boot_device(id, "pxe", true, &user()).await.unwrap();
    let node = test.get(id).await;
    assert_eq!(node.reservation, None);
    let journal = test.journal(id).await;
    let done =
        journal.iter().find(|row| matches!(row.entry.event, JournalEvent::ActionDone { .. }));
    let done = done.expect("an entry");
    assert_eq!(done.entry.actor, user());
    let JournalEvent::ActionDone { action, .. } = &done.entry.event else { unreachable!() };
    assert!(action.contains("pxe") && action.contains("permanently"), "{action}");

    test.change(id, |node| node.driver_info.set("fake_management_failure", "inject_nmi")).await;
    assert!(test.conductor.inject_nmi(id, &user()).await.is_err());
    let journal = test.journal(id).await;
    assert!(journal.iter().any(|row| matches!(row.entry.event, JournalEvent::ActionFailed { .. })));
    assert_eq!(test.get(id).await.reservation, None, "a failed call releases the node too");
}

#[tokio::test]
async fn retries_an_unresponsive_bmc() {
    let test = TestConductor::new();
    let unreachable = json!({"fake_power_failure": "unreachable"});
    let id = test.insert_node(ProvisionState::Enroll, unreachable).await;
    assert_eq!(test.run_verb(id, Verb::Manage).await, ProvisionState::Verifying);
    let node = test.get(id).await;
    let retry = node.work.unwrap().retry.unwrap();
    assert_eq!(node.wait.unwrap().reason, WaitReason::BmcResponse);
    assert_eq!((node.due_at, node.reservation), (Some(retry.at), None));
    assert!(node.last_error.unwrap().contains("could not be reached"));

    test.change(id, |node| node.driver_info = JsonObject::empty()).await;
    test.advance(Duration::from_secs(2));
    assert_eq!(test.run_node(id).await, ProvisionState::Manageable);
    assert_eq!(test.get(id).await.last_error, None);
}

#[tokio::test]
async fn power_event_has_both_states() {
    let test = TestConductor::new();
    let id = test.insert_node(ProvisionState::Manageable, json!({})).await;
    test.conductor.power(id, PowerTarget::On, None, user()).await.unwrap();
    runner::run(&test.conductor, id).await;
    let events: Vec<_> = test
        .journal(id)
        .await
        .into_iter()
        .filter_map(|row| {
            if let JournalEvent::Power { from, to, .. } = row.entry.event {
                return Some((from, to));
            }
            None
        })
        .collect();
    assert_eq!(events, [(Some("power off".to_owned()), Some("power on".to_owned()))]);
}

#[tokio::test]
async fn changes_virtual_media_in_the_background() {
    let (test, actor) = (TestConductor::new(), user());
    let image = "http://images/rescue.iso";
    let slow = json!({"fake_management_delay": "600"});
    let old_error = |node: &mut Node| node.last_error = Some("an old error".to_owned());
    let id = test.insert_node_with(ProvisionState::Active, slow, old_error).await;
    let attach = test.conductor.attach_virtual_media(id, "cdrom", image, "http", &actor);
    timeout(Duration::from_secs(30), attach).await.expect("accepted at once").unwrap();
    let node = test.get(id).await;
    assert_eq!((node.reservation.as_deref(), node.last_error), (Some("here"), None));

    let failing = json!({"fake_management_failure": "always",
                         "fake_management_failure_message": "the drive is broken"});
    let id = test.insert_node(ProvisionState::Active, failing).await;
    let attach = test.conductor.attach_virtual_media(id, "cdrom", image, "http", &actor);
    attach.await.unwrap();
    let error = test.wait_until_released(id).await.last_error.unwrap();
    assert!(error.contains("attach an image") && error.contains("drive is broken"), "{error}");
    test.conductor.detach_virtual_media(id, &[], &actor).await.unwrap();
    let error = test.wait_until_released(id).await.last_error.unwrap();
    assert!(error.contains("detach virtual media") && error.contains("broken"), "{error}");
}

#[tokio::test]
async fn fetches_no_image_for_a_management_interface_without_virtual_media() {
    let (test, actor) = (TestConductor::with_boot_service(Arc::new(NoRamdisks)), user());
    for (driver, expected) in
        [("ipmi", "cannot attach virtual media"), ("fake-hardware", "no image is served")]
    {
        let choose = |node: &mut Node| {
            node.driver = driver.to_owned();
            node.interfaces = Interfaces::default();
            test.conductor.registry.resolve(driver, &mut node.interfaces).unwrap();
        };
        let bmc = json!({"ipmi_address": "127.0.0.1", "ipmi_username": "admin"});
        let id = test.insert_node_with(ProvisionState::Active, bmc, choose).await;
        let image = "http://images/rescue.iso";
        let attach = test.conductor.attach_virtual_media(id, "cdrom", image, "local", &actor);
        attach.await.unwrap();
        let error = test.wait_until_released(id).await.last_error.unwrap();
        assert!(error.contains(expected), "{driver}: {error}");
    }
}

#[tokio::test]
async fn rejects_virtual_media_of_a_node_that_cannot_be_used() {
    let (test, actor) = (TestConductor::new(), user());
    let invalid = test.insert_node(ProvisionState::Active, json!({"fake_health": "good"})).await;
    let failed = |node: &mut Node| {
        node.maintenance = true;
        node.fault = Some(Fault::Power);
    };
    let failed = test.insert_node_with(ProvisionState::Active, json!({}), failed).await;
    for id in [invalid, failed] {
        let conductor = &test.conductor;
        let attached = conductor.attach_virtual_media(id, "cdrom", "http://h/i", "http", &actor);
        let detached = conductor.detach_virtual_media(id, &[], &actor);
        for rejected in [attached.await, detached.await] {
            let error = rejected.unwrap_err();
            assert_eq!(matches!(error, ConductorError::NotYet(_)), id == failed, "{error}");
        }
        let node = test.get(id).await;
        assert_eq!((node.reservation, node.last_error), (None, None));
    }
}

#[tokio::test]
async fn failed_firmware_changes_become_the_last_error() {
    let (test, actor) = (TestConductor::new(), user());
    let failing = json!({"fake_management_failure": "always",
                         "fake_management_failure_message": "the BIOS is busy"});
    let id = test.insert_node(ProvisionState::Manageable, failing).await;
    test.conductor.set_boot_mode(id, "uefi", &actor).await.unwrap();
    let error = test.wait_until_released(id).await.last_error.unwrap();
    assert!(error.contains("boot mode to uefi") && error.contains("BIOS is busy"), "{error}");
    test.conductor.set_secure_boot(id, true, &actor).await.unwrap();
    let error = test.wait_until_released(id).await.last_error.unwrap();
    assert!(error.contains("enable secure boot") && error.contains("BIOS is busy"), "{error}");
}

#[tokio::test]
async fn reports_an_interrupted_call() {
    let test = TestConductor::new();
    let id = test.insert_node(ProvisionState::Manageable, json!({})).await;
    let call = test.other_process("here").exclusive_call(id).await.unwrap();
    call.record_intent(&test.conductor, "set the boot mode to bios").await.unwrap();
    // The process ends here; the next run of it starts.
    crate::membership::release_previous_run(&test.conductor).await.unwrap();
    let node = test.get(id).await;
    assert_eq!(node.reservation, None);
    let error = node.last_error.unwrap();
    assert!(error.contains("boot mode to bios") && error.contains("unknown"), "{error}");
    assert_eq!(node.driver_internal_info.get("direct_call"), None);

    test.conductor.set_boot_mode(id, "bios", &user()).await.unwrap();
    let node = test.get(id).await;
    assert_eq!(node.boot_mode.as_deref(), Some("bios"));
    assert_eq!(node.driver_internal_info.get("direct_call"), None);
}
