// SPDX-License-Identifier: Apache-2.0
//! Deployment through the ramdisk agent: as far as it goes, and honest about where it ends.

use bmc_drivers::{Outcome, RamdiskMode, boot_again};
use node_model::{InterfaceKind, PowerState, StepFlow, Timestamp};
use serde_json::json;

use crate::machine::{Machine, object};

const DEPLOY: InterfaceKind = InterfaceKind::Deploy;

fn direct(driver_info: serde_json::Value) -> Machine {
    Machine::with_interfaces(driver_info, &[(DEPLOY, "direct")])
}

#[tokio::test]
async fn an_image_is_needed() {
    let mut machine = direct(json!({}));
    let error = machine.driver.interface(DEPLOY).validate(&machine.target()).await.unwrap_err();
    assert!(error.to_string().contains("image_source"), "{error}");
    machine.instance_info = object(json!({"image_source": "file:///var/lib/image.raw"}));
    machine.driver.interface(DEPLOY).validate(&machine.target()).await.unwrap();
}

#[tokio::test]
async fn the_agent_is_booted_and_awaited_and_then_it_ends() {
    let mut machine = direct(json!({}));
    machine.node.power_state = Some(PowerState::On);
    let driver = machine.driver.clone();
    let changes = driver.deploy().prepare(&machine.target()).await.unwrap();
    assert_eq!(changes.power_state, Some(PowerState::Off));
    machine.record(&changes);

    let waits = machine.step(DEPLOY, StepFlow::Deploy, "deploy", json!({})).await.unwrap();
    assert!(matches!(waits, Outcome::WaitForAgent(_)), "{waits:?}");
    assert_eq!(machine.node.power_state, Some(PowerState::On));
    let done = machine.step(DEPLOY, StepFlow::Deploy, "deploy", json!({})).await.unwrap();
    assert!(matches!(done, Outcome::Done(_)), "{done:?}");

    let error = machine.step(DEPLOY, StepFlow::Deploy, "write_image", json!({})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the deploy interface 'direct' cannot carry out the deploy step 'write_image', because this \
         version does not command the ramdisk agent yet; set deploy_interface to one that can"
    );
}

#[tokio::test]
async fn nothing_is_called_clean_that_was_not_cleaned() {
    let machine = direct(json!({}));
    assert!(machine.driver.deploy().prepare_cleaning(&machine.target()).await.is_err());
    assert!(machine.driver.deploy().prepare_service(&machine.target()).await.is_err());
}

#[tokio::test]
async fn a_running_agent_is_used_as_it_is() {
    for (fast_track, seconds_ago, power, error, is_used) in [
        (true, 10, PowerState::On, None, true),
        (false, 10, PowerState::On, None, false),
        (true, 301, PowerState::On, None, false),
        (true, 10, PowerState::Off, None, false),
        (true, 10, PowerState::On, Some("broken"), false),
    ] {
        let mut machine = direct(json!({ "fast_track": fast_track }));
        machine.node.power_state = Some(power);
        machine.node.last_error = error.map(str::to_owned);
        machine.node.agent.last_heartbeat =
            Some(Timestamp(machine.now.0 - seconds_ago * 1_000_000));
        let changes = machine.driver.deploy().prepare(&machine.target()).await.unwrap();
        assert_eq!(changes.is_empty(), is_used);
        let deploy = machine.step(DEPLOY, StepFlow::Deploy, "deploy", json!({})).await.unwrap();
        assert_eq!(matches!(deploy, Outcome::Done(_)), is_used);
    }
}

#[tokio::test]
async fn a_machine_that_must_stay_on_is_rebooted_instead() {
    let mut machine = direct(json!({}));
    machine.node.disable_power_off = true;
    let changes = machine.driver.deploy().prepare(&machine.target()).await.unwrap();
    assert_eq!(changes.power_state, None);
    let changes = machine.driver.deploy().tear_down(&machine.target()).await.unwrap();
    assert_eq!(changes.power_state, None);
    // A reboot is all that is left for booting again.
    let changes = boot_again(&machine.target(), RamdiskMode::Deploy).await.unwrap();
    assert_eq!(changes.power_state, Some(PowerState::On));
}

#[tokio::test]
async fn taking_down_switches_off() {
    let machine = direct(json!({}));
    let changes = machine.driver.deploy().tear_down(&machine.target()).await.unwrap();
    assert_eq!(changes.power_state, Some(PowerState::Off));
}
