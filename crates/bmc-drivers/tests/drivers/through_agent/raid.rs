// SPDX-License-Identifier: Apache-2.0
//! Logical disks that the agent makes: which of them, and what the node has afterwards.

use bmc_drivers::Error;
use node_model::{InterfaceKind, Step, StepFlow};
use serde_json::{Value, json};

use super::site::Site;
use crate::machine::object;

const RAID: InterfaceKind = InterfaceKind::Raid;

/// A machine with an agent, whose node wants a root volume and another.
async fn site() -> Site {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.list(StepFlow::Clean).await;
    site.node.properties.set("capabilities", "boot_mode:uefi,raid_level:0");
    let wanted = json!({"logical_disks": [
        {"raid_level": "1", "size_gb": 100, "is_root_volume": true, "controller": "software",
         "root_device_hint": {"wwn": "0x5000"}},
        {"raid_level": "0", "size_gb": "MAX", "controller": "software"},
    ]});
    site.node.target_raid_config = object(wanted).into();
    site
}

async fn carry_out(
    site: &mut Site,
    flow: StepFlow,
    name: &str,
    arguments: Value,
) -> Result<(), Error> {
    let step = Step { args: object(arguments).into(), ..Step::new("raid", name, 0) };
    site.finish_of(RAID, flow, &step).await
}

/// The RAID levels of the logical disks that the node has.
fn levels(site: &Site) -> Vec<String> {
    let disks = site.node.raid_config.get("logical_disks").unwrap_or_default();
    let disks = disks.as_array().cloned().unwrap_or_default();
    disks.iter().map(|disk| disk["raid_level"].as_str().expect("a level").to_owned()).collect()
}

#[tokio::test]
async fn what_became_of_the_disks_is_kept() {
    let mut site = site().await;
    carry_out(&mut site, StepFlow::Clean, "create_configuration", json!({})).await.unwrap();
    assert_eq!(levels(&site), ["1", "0"]);
    assert!(site.node.raid_config.get_str("last_updated").is_some());
    assert_eq!(site.node.properties.get("root_device"), Some(json!({"wwn": "0x5000"})));
    assert_eq!(site.node.properties.get("local_gb"), Some(json!(100)));
    let capabilities = site.node.properties.get_str("capabilities");
    assert_eq!(capabilities.as_deref(), Some("boot_mode:uefi,raid_level:1"));
    carry_out(&mut site, StepFlow::Clean, "delete_configuration", json!({})).await.unwrap();
    assert!(site.node.raid_config.is_empty());
    assert_eq!(site.node.properties.get("root_device"), None);
}

#[tokio::test]
async fn what_became_of_the_disks_survives_the_restart_that_the_step_wants() {
    let mut site = site().await;
    let boots = site.machine().with(|machine, _| machine.boot_count());
    let step = Step { reboot_requested: true, ..Step::new("raid", "create_configuration", 0) };
    site.finish_of(RAID, StepFlow::Clean, &step).await.unwrap();
    assert_eq!(site.machine().with(|machine, _| machine.boot_count()), boots + 1);
    assert_eq!(levels(&site), ["1", "0"]);
}

#[tokio::test]
async fn only_the_wanted_disks_are_made() {
    let mut site = site().await;
    for (arguments, made) in [
        (json!({"create_root_volume": false}), vec!["0"]),
        (json!({"create_nonroot_volumes": "no"}), vec!["1"]),
        (json!({"create_root_volume": true}), vec!["1", "0"]),
    ] {
        carry_out(&mut site, StepFlow::Clean, "create_configuration", arguments).await.unwrap();
        assert_eq!(levels(&site), made);
    }
    let told = site.times_told("execute_clean_step");
    for (arguments, why) in [
        (json!({"create_root_volume": false, "create_nonroot_volumes": false}), "leave nothing"),
        (json!({"create_root_volume": "perhaps"}), "create_root_volume"),
    ] {
        let tried = carry_out(&mut site, StepFlow::Clean, "create_configuration", arguments).await;
        let error = tried.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(site.times_told("execute_clean_step"), told, "the agent is not bothered with it");
    let offered = site.driver.interface(RAID).steps(StepFlow::Clean);
    let create = offered.iter().find(|offer| offer.step.step == "create_configuration").unwrap();
    let names: Vec<&str> = create.arguments.iter().map(|argument| &*argument.name).collect();
    assert_eq!(names, ["create_root_volume", "create_nonroot_volumes"]);
}

#[tokio::test]
async fn an_agent_that_says_nothing_of_disks_made_none() {
    for (applied, why) in [
        (json!({}), "which logical disks"),
        (json!({"raid_config": {}}), "which logical disks"),
        (json!({"raid_config": {"logical_disks": [], "more": "x".repeat(70_000)}}), "too long"),
    ] {
        let mut site = site().await;
        site.list(StepFlow::Deploy).await;
        let tried = carry_out(&mut site, StepFlow::Deploy, "apply_configuration", applied).await;
        let error = tried.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert!(site.node.raid_config.is_empty());
    }
}
