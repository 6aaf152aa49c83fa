// SPDX-License-Identifier: Apache-2.0
//! Work through the ramdisk agent, against simulated machines whose agents are real peers.

mod kinds;
mod raid;
mod site;

use std::time::Duration;

use bmc_drivers::{Outcome, RamdiskMode, boot_again};
use fleet_sim::machine::{PowerState as SimulatedPower, Reset, Runs};
use node_model::{InterfaceKind, JsonObject, PowerState, PowerTarget, Step, StepFlow};
use serde_json::json;

use crate::machine::{Machine, object};
use site::Site;

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
async fn a_machine_that_must_stay_on_is_rebooted_instead() {
    let mut machine = direct(json!({}));
    machine.instance_info =
        object(json!({"image_source": "http://127.0.0.1:1/i", "image_checksum": "0".repeat(64)}));
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

#[tokio::test]
async fn after_inspection_the_machine_is_switched_off_unless_agents_may_stay() {
    for (fast_track, power) in [(false, Some(PowerState::Off)), (true, None)] {
        let info = json!({"fast_track": fast_track});
        let mut machine = Machine::with_interfaces(info, &[(InterfaceKind::Inspect, "agent")]);
        machine.node.power_state = Some(PowerState::On);
        let inspect = machine.driver.inspect();
        let changes = inspect.clean_up(&machine.target()).await.unwrap();
        assert_eq!(changes.power_state, power, "fast track: {fast_track}");
        let changes = inspect.abort(&machine.target()).await.unwrap();
        assert_eq!(changes.power_state, Some(PowerState::Off), "an aborted inspection");
    }
}

#[tokio::test]
async fn a_whole_deployment() {
    for is_tls in [false, true] {
        let mut site = Site::with(|agents| agents.tls = is_tls).await;
        site.instance_info.insert("configdrive".to_owned(), json!("H4sI"));
        site.boot_agent().await;
        assert_eq!(site.machine().runs(), Runs::Ramdisk);
        let scheme = if is_tls { "https:" } else { "http:" };
        assert!(site.node.agent.url.as_ref().unwrap().starts_with(scheme));
        for step in ["write_image", "prepare_instance_boot", "tear_down_agent"] {
            site.finish(step).await.unwrap_or_else(|error| panic!("{step}: {error}"));
        }
        assert_eq!(site.node.power_state, Some(PowerState::Off));
        site.until(|machine| machine.power() == SimulatedPower::Off).await;
        for step in ["switch_to_tenant_network", "boot_instance"] {
            site.finish(step).await.unwrap_or_else(|error| panic!("{step}: {error}"));
        }
        site.until(|machine| machine.runs() == Runs::Instance).await;
        assert_eq!(site.machine().carried_out("write_image"), 1);
        let disk = site.machine().disk().unwrap();
        assert_eq!(&*disk.source, "http://127.0.0.1:1/image.raw");
        assert!(disk.config_drive);
        assert!(site.node.driver_internal_info.get_str("root_uuid_or_disk_id").is_some());
    }
}

#[tokio::test]
async fn a_container_is_installed_by_an_agent_that_can() {
    let mut site = Site::new().await;
    site.node.interfaces.set(DEPLOY, Some("bootc"));
    site.driver = site.registry.compose(&site.node).unwrap();
    let driver = site.driver.clone();
    let error = driver.interface(DEPLOY).validate(&site.target()).await.unwrap_err();
    assert!(error.to_string().contains("oci://"), "{error}");
    site.instance_info = object(json!({
        "image_source": "oci://registry.example/fedora-bootc:43",
        "image_pull_secret": "c2VjcmV0",
        "configdrive": "H4sI",
    }));
    driver.interface(DEPLOY).validate(&site.target()).await.unwrap();
    site.boot_agent().await;
    site.finish("execute_bootc_install").await.unwrap();
    let commands = site.agent().commands();
    let sent = commands.iter().find(|report| report.command_name == "execute_deploy_step").unwrap();
    let step = &sent.command_result.as_ref().unwrap()["deploy_step"];
    assert_eq!(step["step"], "execute_bootc_install");
    // The simulated agent knows the arguments by the names ironic-python-agent gave them.
    let disk = site.machine().disk().unwrap();
    assert_eq!(&*disk.source, "oci://registry.example/fedora-bootc:43");
    assert!(disk.config_drive);
    // An agent that cannot says so, and so does the node.
    site.fault("fail=this_agent_cannot_install_containers path=/agent/step/execute_bootc_install");
    let error = site.finish("execute_bootc_install").await.unwrap_err();
    assert!(error.to_string().contains("this_agent_cannot_install_containers"), "{error}");
}

#[tokio::test]
async fn a_step_is_sent_once_even_if_that_is_forgotten() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.fault("delay=400 path=/agent/step/write_image");
    let driver = site.driver.clone();
    let step = Step::new("deploy", "write_image", 80);
    for _ in 0..3 {
        // What comes of it is not written down: we died.
        let sent =
            driver.interface(DEPLOY).execute_step(&site.target(), StepFlow::Deploy, &step).await;
        assert!(matches!(sent.unwrap(), Outcome::AgentWorks { .. }));
    }
    site.finish("write_image").await.unwrap();
    assert_eq!(site.times_told("execute_deploy_step"), 1);
    // A step that ended is not taken for one that was sent and forgotten.
    site.finish("write_image").await.unwrap();
    assert_eq!(site.times_told("execute_deploy_step"), 2);
    assert_eq!(site.machine().carried_out("write_image"), 2);
}

#[tokio::test]
async fn a_machine_that_goes_off_in_the_middle_is_explained() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.fault("power-cut path=/agent/step");
    let sent = site.step("write_image").await.unwrap();
    assert!(matches!(sent, Outcome::AgentWorks { .. }), "{sent:?}");
    site.until(|machine| machine.power() == SimulatedPower::Off).await;
    let error = site.step("write_image").await.unwrap_err();
    assert!(error.to_string().contains("the machine is off"), "{error}");
    assert!(error.silent().is_none(), "there is nothing to wait for");
}

#[tokio::test]
async fn a_network_that_goes_away_in_the_middle_is_waited_for() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.fault("network-loss=1 path=/agent/step");
    let sent = site.step("write_image").await.unwrap();
    assert!(matches!(sent, Outcome::AgentWorks { .. }), "{sent:?}");
    let error = loop {
        if let Err(error) = site.step("write_image").await {
            break error;
        }
    };
    assert!(error.silent().is_some(), "{error}");
    site.hear().await;
    site.finish("write_image").await.unwrap();
    assert_eq!(site.machine().carried_out("write_image"), 1);
}

#[tokio::test]
async fn a_restarted_agent_is_explained() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.fault("hang path=/agent/step times=1");
    let sent = site.step("write_image").await.unwrap();
    assert!(matches!(sent, Outcome::AgentWorks { .. }), "{sent:?}");
    // Somebody at its BMC restarts it into the same ramdisk.
    let boots = site.machine().with(|machine, now| {
        let always = fleet_sim::machine::BootChange {
            target: Some(fleet_sim::machine::BootTarget::Pxe),
            enabled: Some(fleet_sim::machine::Override::Continuous),
            ..Default::default()
        };
        machine.set_boot(always, now).unwrap();
        machine.reset(Reset::ForceRestart, now).unwrap();
        machine.boot_count()
    });
    site.until(|machine| machine.with(|it, _| it.boot_count()) > boots).await;
    site.until(|machine| machine.agent().is_some_and(|agent| agent.heartbeats() > 0)).await;
    let error = site.step("write_image").await.unwrap_err();
    assert!(error.to_string().contains("another agent answers"), "{error}");
    // Had it kept its token, it would still know nothing of the step.
    site.hear().await;
    let error = site.step("write_image").await.unwrap_err();
    assert!(error.to_string().contains("knows nothing of it any more"), "{error}");
}

#[tokio::test]
async fn a_busy_agent_is_waited_for() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.fault("hang path=/agent/step/erase_pstore");
    let clean = Step::new("deploy", "erase_pstore", 0);
    let driver = site.driver.clone();
    let sent = driver.interface(DEPLOY).execute_step(&site.target(), StepFlow::Clean, &clean).await;
    assert!(matches!(sent.unwrap(), Outcome::AgentWorks { .. }));
    let waits = site.step("write_image").await.unwrap();
    let Outcome::AgentWorks { moment, .. } = waits else { panic!("{waits:?}") };
    assert!(moment > site.now());
    assert_eq!(site.times_told("execute_deploy_step"), 0);
    let error = site.registry.agent_steps(&site.target(), StepFlow::Deploy).await.unwrap_err();
    assert!(error.silent().is_some(), "as good as not having answered yet: {error}");
}

#[tokio::test]
async fn a_step_that_fails_says_why() {
    for (rule, why) in [
        ("fail=the_disk_is_on_fire path=/agent/step/write_image", "the_disk_is_on_fire"),
        ("wrong-checksum path=/agent/step/write_image", "checksum"),
    ] {
        let mut site = Site::new().await;
        site.boot_agent().await;
        site.fault(rule);
        let error = site.finish("write_image").await.unwrap_err();
        assert!(error.to_string().contains("deploy.write_image"), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(site.machine().disk(), None);
    }
}

#[tokio::test]
async fn steps_of_other_managers_are_listed_again() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    let managers = object(json!({"generic_hardware_manager": "1.3"}));
    site.agent().set_managers(managers.clone());
    site.finish("write_image").await.unwrap();
    assert_eq!(site.times_told("execute_deploy_step"), 2);
    assert_eq!(site.times_told("get_deploy_steps"), 2);
    let known = site.node.driver_internal_info.get("hardware_manager_version");
    assert_eq!(known, Some(managers.into()));
    assert_eq!(site.machine().carried_out("write_image"), 1);
}

#[tokio::test]
async fn a_step_may_want_a_reboot() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.list(StepFlow::Clean).await;
    let boots = site.machine().with(|machine, _| machine.boot_count());
    let step = Step { reboot_requested: true, ..Step::new("deploy", "erase_pstore", 0) };
    let mut restarted = site.step_of(DEPLOY, StepFlow::Clean, &step).await.unwrap();
    while let Outcome::AgentWorks { moment, .. } = restarted {
        // The restart is due at once.
        if moment > site.now() {
            site.hear().await;
        }
        restarted = site.step_of(DEPLOY, StepFlow::Clean, &step).await.unwrap();
    }
    assert!(matches!(restarted, Outcome::WaitForAgent(_)), "{restarted:?}");
    assert_eq!(site.node.agent.url, None);
    site.until(|machine| machine.with(|it, _| it.boot_count()) == boots + 1).await;
    assert_eq!(site.machine().runs(), Runs::Ramdisk, "it comes back with the agent");
    let driver = site.driver.clone();
    let done = driver.interface(DEPLOY).execute_step(&site.target(), StepFlow::Clean, &step).await;
    assert!(matches!(done.unwrap(), Outcome::Done(_)));
    assert_eq!(site.machine().carried_out("erase_pstore"), 1);
}

#[tokio::test]
async fn who_dies_while_a_step_restarts_the_machine_restarts_it_again() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.list(StepFlow::Clean).await;
    let step = Step { reboot_requested: true, ..Step::new("deploy", "erase_pstore", 0) };
    loop {
        // What is due now is the restart, which is written down before it is carried out.
        let goes_on = site.step_of(DEPLOY, StepFlow::Clean, &step).await.unwrap();
        let Outcome::AgentWorks { moment, .. } = goes_on else { panic!("{goes_on:?}") };
        if moment <= site.now() {
            break;
        }
        site.hear().await;
    }
    let driver = site.driver.clone();
    let lost = driver.interface(DEPLOY).execute_step(&site.target(), StepFlow::Clean, &step).await;
    assert!(matches!(lost.unwrap(), Outcome::WaitForAgent(_)));
    site.hear().await;
    site.finish_of(DEPLOY, StepFlow::Clean, &step).await.unwrap();
    assert_eq!(site.machine().carried_out("erase_pstore"), 1);
}

#[tokio::test]
async fn what_an_agent_did_for_an_earlier_job_is_not_taken_for_this_one() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.fault("fail=no_such_image path=/agent/step/write_image times=1");
    site.finish("write_image").await.unwrap_err();
    // The machine stayed on, and the next job begins with the same agent.
    site.notes = JsonObject::empty();
    let up = site.step("deploy").await.unwrap();
    assert!(matches!(up, Outcome::AgentIsUp(_)), "{up:?}");
    site.finish("write_image").await.unwrap();
    assert_eq!(site.machine().carried_out("write_image"), 1);
}

#[tokio::test]
async fn an_agent_that_is_still_busy_is_not_used_for_another_job() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.fault("hang path=/agent/step/write_image");
    let _ = site.step("write_image").await.unwrap();
    site.notes = JsonObject::empty();
    let boots = site.machine().with(|machine, _| machine.boot_count());
    let booted = site.step("deploy").await.unwrap();
    assert!(matches!(booted, Outcome::WaitForAgent(_)), "{booted:?}");
    site.until(|machine| machine.with(|it, _| it.boot_count()) == boots + 1).await;
}

#[tokio::test]
async fn an_agent_that_is_busy_for_ever_is_given_up() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.fault("hang path=/agent/step/erase_pstore");
    let clean = Step::new("deploy", "erase_pstore", 0);
    let driver = site.driver.clone();
    let sent = driver.interface(DEPLOY).execute_step(&site.target(), StepFlow::Clean, &clean).await;
    assert!(matches!(sent.unwrap(), Outcome::AgentWorks { .. }));
    let _ = site.step("write_image").await.unwrap();
    site.later = Duration::from_secs(1801);
    let error = site.step("write_image").await.unwrap_err();
    assert!(error.to_string().contains("busy with something else for 30 minutes"), "{error}");
}

#[tokio::test]
async fn a_machine_that_an_out_of_band_step_restarts_comes_back_with_the_agent() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    let bios = |quiet: &str| Step {
        args: object(json!({"settings": [{"name": "QuietBoot", "value": quiet}]})).into(),
        ..Step::new("bios", "apply_configuration", 70)
    };
    let write = Step { requires_ramdisk: true, ..Step::new("deploy", "write_image", 60) };
    site.work_on(vec![bios("false"), write]);
    let boots = site.machine().with(|machine, _| machine.boot_count());
    site.finish_of(InterfaceKind::Bios, StepFlow::Deploy, &bios("false")).await.unwrap();
    assert!(site.machine().with(|machine, _| machine.boot_count()) > boots, "it was restarted");
    site.finish("write_image").await.unwrap();
    assert_eq!(site.machine().runs(), Runs::Ramdisk);
    // Where no later step needs an agent, none is booted.
    site.work_on(vec![bios("true")]);
    site.finish_of(InterfaceKind::Bios, StepFlow::Deploy, &bios("true")).await.unwrap();
    site.until(|machine| machine.runs() == Runs::Instance).await;
}

#[tokio::test]
async fn a_boot_loader_that_takes_its_time_is_waited_for() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.finish("write_image").await.unwrap();
    site.fault("delay=300 path=/agent/command/install_bootloader");
    for _ in 0..2 {
        let waits = site.step("prepare_instance_boot").await.unwrap();
        assert!(matches!(waits, Outcome::AgentWorks { .. }), "{waits:?}");
    }
    site.finish("prepare_instance_boot").await.unwrap();
    assert_eq!(site.times_told("install_bootloader"), 1);
}

#[tokio::test]
async fn an_instance_whose_start_nobody_saw_is_booted_by_firmware() {
    let mut site = Site::with(|agents| agents.is_ours = true).await;
    site.instance_info.insert("kexec".to_owned(), json!(true));
    site.boot_agent().await;
    for step in ["write_image", "prepare_instance_boot", "tear_down_agent"] {
        site.finish(step).await.unwrap_or_else(|error| panic!("{step}: {error}"));
    }
    site.work_on(vec![Step::new("deploy", "boot_instance", 20)]);
    site.fault("drop path=/agent/v1");
    let error = site.step("boot_instance").await.unwrap_err();
    assert!(error.silent().is_some(), "at first it is tried again: {error}");
    site.found_silent();
    site.later = Duration::from_secs(31);
    site.finish("boot_instance").await.unwrap();
    site.until(|machine| machine.runs() == Runs::Instance).await;
}

#[tokio::test]
async fn a_machine_that_does_not_switch_itself_off_is_switched_off() {
    let mut site = Site::new().await;
    site.boot_agent().await;
    site.fault("hang path=/agent/command/power_off");
    for _ in 0..3 {
        let waits = site.step("tear_down_agent").await.unwrap();
        assert!(matches!(waits, Outcome::WaitUntil { .. }), "{waits:?}");
    }
    assert_eq!(site.times_told("power_off"), 1);
    site.later = Duration::from_secs(46);
    let done = site.step("tear_down_agent").await.unwrap();
    assert!(matches!(done, Outcome::Done(_)), "{done:?}");
    site.until(|machine| machine.power() == SimulatedPower::Off).await;
    assert_eq!(site.node.agent.url, None);
}

#[tokio::test]
async fn our_agent_starts_the_instance_itself() {
    for (is_ours, wanted, boots) in [(true, true, 1), (true, false, 2), (false, true, 2)] {
        let mut site = Site::with(|agents| agents.is_ours = is_ours).await;
        site.instance_info.insert("kexec".to_owned(), json!(wanted));
        site.boot_agent().await;
        for step in ["write_image", "prepare_instance_boot", "tear_down_agent", "boot_instance"] {
            site.finish(step).await.unwrap_or_else(|error| panic!("{step}: {error}"));
        }
        site.until(|machine| machine.runs() == Runs::Instance).await;
        assert_eq!(site.machine().with(|machine, _| machine.boot_count()), boots);
        assert_eq!(site.node.agent.url, None);
    }
}

#[tokio::test]
async fn an_instance_that_the_agent_cannot_start_is_booted_by_firmware() {
    let mut site = Site::with(|agents| agents.is_ours = true).await;
    site.instance_info.insert("kexec".to_owned(), json!(true));
    site.boot_agent().await;
    for step in ["write_image", "prepare_instance_boot", "tear_down_agent"] {
        site.finish(step).await.unwrap_or_else(|error| panic!("{step}: {error}"));
    }
    site.fault("fail=too_old path=/agent/command/kexec");
    site.finish("boot_instance").await.unwrap();
    site.until(|machine| machine.runs() == Runs::Instance).await;
    assert_eq!(site.machine().with(|machine, _| machine.boot_count()), 2);
}

#[tokio::test]
async fn the_owner_of_an_instance_is_let_in() {
    let mut site = Site::new().await;
    site.instance_info.insert("rescue_password".to_owned(), json!("open sesame"));
    let driver = site.driver.clone();
    let waits = driver.rescue().rescue(&site.target()).await.unwrap();
    assert!(matches!(waits, Outcome::WaitForAgent(_)), "{waits:?}");
    site.keep(waits.changes());
    site.hear().await;
    let done = driver.rescue().rescue(&site.target()).await.unwrap();
    assert!(matches!(done, Outcome::Done(_)), "{done:?}");
    site.keep(done.changes());
    site.until(|machine| machine.runs() == Runs::Rescue).await;
    assert_eq!(site.node.agent.url, None);
}

#[tokio::test]
async fn logs_are_collected_from_agents_that_run() {
    let mut site = Site::new().await;
    assert_eq!(site.registry.agent_logs(&site.target()).await.unwrap(), None);
    site.boot_agent().await;
    let logs = site.registry.agent_logs(&site.target()).await.unwrap();
    assert!(logs.is_some_and(|logs| logs.starts_with("H4sI")));
}

#[tokio::test]
async fn a_running_agent_is_used_as_it_is_and_a_dead_one_is_not() {
    for (fast_track, seconds_later, is_dead, is_used) in [
        (true, 10, false, true),
        (false, 10, false, false),
        (true, 301, false, false),
        (true, 10, true, false),
    ] {
        let mut site = Site::new().await;
        site.driver_info.insert("fast_track".to_owned(), json!(fast_track));
        site.boot_agent().await;
        site.later = Duration::from_secs(seconds_later);
        if is_dead {
            site.fault("drop path=/agent/v1");
        }
        let driver = site.driver.clone();
        let changes = driver.deploy().prepare(&site.target()).await.unwrap();
        let case = format!("{fast_track} {seconds_later} {is_dead}");
        assert_eq!(changes.power_state.is_none(), is_used, "{case}");
        site.keep(&changes);
        let deploy = site.step("deploy").await.unwrap();
        assert_eq!(matches!(deploy, Outcome::AgentIsUp(_)), is_used, "{case}");
    }
}

#[tokio::test]
async fn a_machine_is_cleaned_and_the_agent_ends() {
    let mut site = Site::new().await;
    let driver = site.driver.clone();
    let waits = driver.deploy().prepare_cleaning(&site.target()).await.unwrap();
    assert!(matches!(waits, Outcome::WaitForAgent(_)), "{waits:?}");
    site.keep(waits.changes());
    site.hear().await;
    let ready = driver.deploy().prepare_cleaning(&site.target()).await.unwrap();
    assert!(matches!(ready, Outcome::Done(_)), "{ready:?}");
    site.keep(ready.changes());
    site.notes = JsonObject::empty();
    site.list(StepFlow::Clean).await;
    for step in ["erase_devices_metadata", "erase_devices"] {
        let step = Step::new("deploy", step, 10);
        site.finish_of(DEPLOY, StepFlow::Clean, &step).await.unwrap();
    }
    let changes = driver.deploy().tear_down_cleaning(&site.target()).await.unwrap();
    assert!(changes.agent_is_gone);
    site.until(|machine| machine.power() == SimulatedPower::Off).await;
    assert_eq!(site.machine().carried_out("erase_devices"), 1);
    let driven = driver.power().set(&site.target(), PowerTarget::On, None).await.unwrap();
    assert_eq!(driven.power_state, Some(PowerState::On));
}
