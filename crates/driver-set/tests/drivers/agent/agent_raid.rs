// SPDX-License-Identifier: Apache-2.0
//! The RAID interface `agent`: which logical disks it creates, and the changes of the node.

use drivers::DriverError;
use node_model::{InterfaceKind, Step, StepFlow};
use serde_json::{Value, json};

use super::agent_test::AgentTest;
use crate::machine::object;

const RAID: InterfaceKind = InterfaceKind::Raid;

/// A machine with an agent, whose target RAID configuration has a root volume and another.
async fn raid_test() -> AgentTest {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.list_steps(StepFlow::Clean).await;
    test.node.properties.set("capabilities", "boot_mode:uefi,raid_level:0");
    let target_config = json!({"logical_disks": [
        {"raid_level": "1", "size_gb": 100, "is_root_volume": true, "controller": "software",
         "root_device_hint": {"wwn": "0x5000"}},
        {"raid_level": "0", "size_gb": "MAX", "controller": "software"},
    ]});
    test.node.target_raid_config = object(target_config).into();
    test
}

async fn run_step(
    test: &mut AgentTest,
    flow: StepFlow,
    name: &str,
    arguments: Value,
) -> Result<(), DriverError> {
    let step = Step { args: object(arguments).into(), ..Step::new("raid", name, 0) };
    test.finish_step(RAID, flow, &step).await
}

/// The RAID levels of the logical disks that the node has.
fn levels(test: &AgentTest) -> Vec<String> {
    let disks = test.node.raid_config.get("logical_disks").unwrap_or_default();
    let disks = disks.as_array().cloned().unwrap_or_default();
    disks.iter().map(|disk| disk["raid_level"].as_str().expect("a level").to_owned()).collect()
}

#[tokio::test]
async fn created_disks_are_stored() {
    let mut test = raid_test().await;
    run_step(&mut test, StepFlow::Clean, "create_configuration", json!({})).await.unwrap();
    assert_eq!(levels(&test), ["1", "0"]);
    assert!(test.node.raid_config.get_str("last_updated").is_some());
    assert_eq!(test.node.properties.get("root_device"), Some(json!({"wwn": "0x5000"})));
    assert_eq!(test.node.properties.get("local_gb"), Some(json!(100)));
    let capabilities = test.node.properties.get_str("capabilities");
    assert_eq!(capabilities.as_deref(), Some("boot_mode:uefi,raid_level:1"));
    run_step(&mut test, StepFlow::Clean, "delete_configuration", json!({})).await.unwrap();
    assert!(test.node.raid_config.is_empty());
    assert_eq!(test.node.properties.get("root_device"), None);
}

#[tokio::test]
async fn created_disks_are_stored_after_requested_reboot() {
    let mut test = raid_test().await;
    let boots = test.machine().with_model(|machine, _| machine.boot_count());
    let step = Step { reboot_requested: true, ..Step::new("raid", "create_configuration", 0) };
    test.finish_step(RAID, StepFlow::Clean, &step).await.unwrap();
    assert_eq!(test.machine().with_model(|machine, _| machine.boot_count()), boots + 1);
    assert_eq!(levels(&test), ["1", "0"]);
}

#[tokio::test]
async fn arguments_select_disks_to_create() {
    let mut test = raid_test().await;
    for (arguments, created) in [
        (json!({"create_root_volume": false}), vec!["0"]),
        (json!({"create_nonroot_volumes": "no"}), vec!["1"]),
        (json!({"create_root_volume": true}), vec!["1", "0"]),
    ] {
        run_step(&mut test, StepFlow::Clean, "create_configuration", arguments).await.unwrap();
        assert_eq!(levels(&test), created);
    }
    let sent_before = test.command_count("execute_clean_step");
    for (arguments, why) in [
        (json!({"create_root_volume": false, "create_nonroot_volumes": false}), "exclude all"),
        (json!({"create_root_volume": "perhaps"}), "create_root_volume"),
    ] {
        let result = run_step(&mut test, StepFlow::Clean, "create_configuration", arguments).await;
        let error = result.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(test.command_count("execute_clean_step"), sent_before, "no command was sent");
    let available = test.driver.interface(RAID).steps(StepFlow::Clean);
    let create =
        available.iter().find(|available| available.step.step == "create_configuration").unwrap();
    let names: Vec<&str> = create.arguments.iter().map(|argument| &*argument.name).collect();
    assert_eq!(names, ["create_root_volume", "create_nonroot_volumes"]);
}

#[tokio::test]
async fn missing_or_oversized_raid_result_is_error() {
    for (applied, why) in [
        (json!({}), "logical disks that it created"),
        (json!({"raid_config": {}}), "logical disks that it created"),
        (json!({"raid_config": {"logical_disks": [], "more": "x".repeat(70_000)}}), "too long"),
    ] {
        let mut test = raid_test().await;
        test.list_steps(StepFlow::Deploy).await;
        let result = run_step(&mut test, StepFlow::Deploy, "apply_configuration", applied).await;
        let error = result.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert!(test.node.raid_config.is_empty());
    }
}
