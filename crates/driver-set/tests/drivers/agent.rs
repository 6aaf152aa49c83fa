// SPDX-License-Identifier: Apache-2.0
//! Tests with the ramdisk agent, on simulated machines with simulated agents.

mod agent_raid;
mod agent_test;
mod deploy_interfaces;

use std::time::Duration;

use agent_test::AgentTest;
use drivers::RamdiskMode;
use drivers::ramdisk_boot::retry_ramdisk_boot;
use fake_driver::FakeMachine;
use fleet_sim::machine::{PowerState as SimulatedPower, ResetType, RunningSoftware};
use node_model::{
    ActionProgress, InterfaceKind, JsonObject, PowerState, PowerTarget, Step, StepFlow,
};
use serde_json::json;

use crate::machine::{self, object};

const DEPLOY: InterfaceKind = InterfaceKind::Deploy;

fn direct(driver_info: serde_json::Value) -> FakeMachine {
    machine::with_interfaces(driver_info, &[(DEPLOY, "direct")])
}

#[tokio::test]
async fn validate_requires_image_source() {
    let mut machine = direct(json!({}));
    let error = machine.driver.interface(DEPLOY).validate(&machine.target()).await.unwrap_err();
    assert!(error.to_string().contains("image_source"), "{error}");
    machine.instance_info = object(json!({"image_source": "file:///var/lib/image.raw"}));
    machine.driver.interface(DEPLOY).validate(&machine.target()).await.unwrap();
}

#[tokio::test]
async fn disable_power_off_reboots_instead() {
    let mut machine = direct(json!({}));
    machine.instance_info =
        object(json!({"image_source": "http://127.0.0.1:1/i", "image_checksum": "0".repeat(64)}));
    machine.node.disable_power_off = true;
    let changes = machine.driver.deploy().prepare(&machine.target()).await.unwrap();
    assert_eq!(changes.power_state, None);
    let changes = machine.driver.deploy().tear_down(&machine.target()).await.unwrap();
    assert_eq!(changes.power_state, None);
    // With `disable_power_off`, booting again requires a reboot.
    let changes = retry_ramdisk_boot(&machine.target(), RamdiskMode::Deploy).await.unwrap();
    assert_eq!(changes.power_state, Some(PowerState::On));
}

#[tokio::test]
async fn tear_down_powers_off() {
    let machine = direct(json!({}));
    let changes = machine.driver.deploy().tear_down(&machine.target()).await.unwrap();
    assert_eq!(changes.power_state, Some(PowerState::Off));
}

#[tokio::test]
async fn inspection_powers_off_unless_fast_track() {
    for (fast_track, power) in [(false, Some(PowerState::Off)), (true, None)] {
        let info = json!({"fast_track": fast_track});
        let mut machine = machine::with_interfaces(info, &[(InterfaceKind::Inspect, "agent")]);
        machine.node.power_state = Some(PowerState::On);
        let inspect = machine.driver.inspect();
        let changes = inspect.clean_up(&machine.target()).await.unwrap();
        assert_eq!(changes.power_state, power, "fast track: {fast_track}");
        let changes = inspect.abort(&machine.target()).await.unwrap();
        assert_eq!(changes.power_state, Some(PowerState::Off), "an aborted inspection");
    }
}

#[tokio::test]
async fn full_deployment() {
    for is_tls in [false, true] {
        let mut test = AgentTest::with(|agents| agents.tls = is_tls).await;
        test.instance_info.insert("configdrive".to_owned(), json!("H4sI"));
        test.boot_agent().await;
        assert_eq!(test.machine().running_software(), RunningSoftware::Ramdisk);
        let scheme = if is_tls { "https:" } else { "http:" };
        assert!(test.node.agent.url.as_ref().unwrap().starts_with(scheme));
        for step in ["write_image", "prepare_instance_boot", "tear_down_agent"] {
            test.finish_deploy_step(step).await.unwrap_or_else(|error| panic!("{step}: {error}"));
        }
        assert_eq!(test.node.power_state, Some(PowerState::Off));
        test.wait_until(|machine| machine.power_state() == SimulatedPower::Off).await;
        for step in ["switch_to_tenant_network", "boot_instance"] {
            test.finish_deploy_step(step).await.unwrap_or_else(|error| panic!("{step}: {error}"));
        }
        test.wait_until(|machine| machine.running_software() == RunningSoftware::Instance).await;
        assert_eq!(test.machine().completed_step_count("write_image"), 1);
        let disk = test.machine().disk_image().unwrap();
        assert_eq!(&*disk.source, "http://127.0.0.1:1/image.raw");
        assert!(disk.config_drive);
        assert!(test.node.driver_internal_info.get_str("root_uuid_or_disk_id").is_some());
    }
}

#[tokio::test]
async fn bootc_installs_container_or_reports_agent_error() {
    let mut test = AgentTest::new().await;
    test.node.interfaces.set(DEPLOY, Some("bootc"));
    test.driver = test.registry.compose(&test.node).unwrap();
    let driver = test.driver.clone();
    let error = driver.interface(DEPLOY).validate(&test.target()).await.unwrap_err();
    assert!(error.to_string().contains("oci://"), "{error}");
    test.instance_info = object(json!({
        "image_source": "oci://registry.example/fedora-bootc:43",
        "image_pull_secret": "c2VjcmV0",
        "configdrive": "H4sI",
    }));
    driver.interface(DEPLOY).validate(&test.target()).await.unwrap();
    test.boot_agent().await;
    test.finish_deploy_step("execute_bootc_install").await.unwrap();
    let commands = test.agent().commands();
    let sent = commands.iter().find(|report| report.command_name == "execute_deploy_step").unwrap();
    let step = &sent.command_result.as_ref().unwrap()["deploy_step"];
    assert_eq!(step["step"], "execute_bootc_install");
    // The simulated agent uses ironic-python-agent's names of the arguments.
    let disk = test.machine().disk_image().unwrap();
    assert_eq!(&*disk.source, "oci://registry.example/fedora-bootc:43");
    assert!(disk.config_drive);
    // The error of an agent without support is reported.
    test.fault("fail=this_agent_cannot_install_containers path=/agent/step/execute_bootc_install");
    let error = test.finish_deploy_step("execute_bootc_install").await.unwrap_err();
    assert!(error.to_string().contains("this_agent_cannot_install_containers"), "{error}");
}

#[tokio::test]
async fn step_is_sent_once_even_if_not_recorded() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.fault("delay=400 path=/agent/step/write_image");
    let driver = test.driver.clone();
    let step = Step::new("deploy", "write_image", 80);
    for _ in 0..3 {
        // The outcome is not stored, as if the process stopped.
        let sent =
            driver.interface(DEPLOY).execute_step(&test.target(), StepFlow::Deploy, &step).await;
        assert!(matches!(sent.unwrap().progress, ActionProgress::PollAgentAt(_)));
    }
    test.finish_deploy_step("write_image").await.unwrap();
    assert_eq!(test.command_count("execute_deploy_step"), 1);
    // An ended step does not count as sent but not recorded.
    test.finish_deploy_step("write_image").await.unwrap();
    assert_eq!(test.command_count("execute_deploy_step"), 2);
    assert_eq!(test.machine().completed_step_count("write_image"), 2);
}

#[tokio::test]
async fn power_loss_during_step_is_permanent_error() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.fault("power-cut path=/agent/step");
    let sent = test.step("write_image").await.unwrap();
    assert!(matches!(sent.progress, ActionProgress::PollAgentAt(_)), "{sent:?}");
    test.wait_until(|machine| machine.power_state() == SimulatedPower::Off).await;
    let error = test.step("write_image").await.unwrap_err();
    assert!(error.to_string().contains("the machine is off"), "{error}");
    assert!(error.unreachable_peer().is_none(), "there is nothing to wait for");
}

#[tokio::test]
async fn network_loss_during_step_is_transient_error() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.fault("network-loss=1 path=/agent/step");
    let sent = test.step("write_image").await.unwrap();
    assert!(matches!(sent.progress, ActionProgress::PollAgentAt(_)), "{sent:?}");
    let error = loop {
        if let Err(error) = test.step("write_image").await {
            break error;
        }
    };
    assert!(error.unreachable_peer().is_some(), "{error}");
    test.wait_for_heartbeat().await;
    test.finish_deploy_step("write_image").await.unwrap();
    assert_eq!(test.machine().completed_step_count("write_image"), 1);
}

#[tokio::test]
async fn restarted_agent_is_permanent_error() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.fault("hang path=/agent/step times=1");
    let sent = test.step("write_image").await.unwrap();
    assert!(matches!(sent.progress, ActionProgress::PollAgentAt(_)), "{sent:?}");
    // The machine is restarted into the same ramdisk through its BMC.
    let boots = test.machine().with_model(|machine, now| {
        let always = fleet_sim::machine::BootChange {
            target: Some(fleet_sim::machine::BootTarget::Pxe),
            enabled: Some(fleet_sim::machine::BootOverride::Continuous),
            ..Default::default()
        };
        machine.set_boot(always, now).unwrap();
        machine.reset(ResetType::ForceRestart, now).unwrap();
        machine.boot_count()
    });
    test.wait_until(|machine| machine.with_model(|it, _| it.boot_count()) > boots).await;
    test.wait_until(|machine| machine.agent().is_some_and(|agent| agent.heartbeat_count() > 0))
        .await;
    let error = test.step("write_image").await.unwrap_err();
    assert!(error.to_string().contains("another agent responds"), "{error}");
    // Even with the new token, the agent does not know the step.
    test.wait_for_heartbeat().await;
    let error = test.step("write_image").await.unwrap_err();
    assert!(error.to_string().contains("does not know the command any more"), "{error}");
}

#[tokio::test]
async fn busy_agent_is_polled() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.fault("hang path=/agent/step/erase_pstore");
    let clean = Step::new("deploy", "erase_pstore", 0);
    let driver = test.driver.clone();
    let sent = driver.interface(DEPLOY).execute_step(&test.target(), StepFlow::Clean, &clean).await;
    assert!(matches!(sent.unwrap().progress, ActionProgress::PollAgentAt(_)));
    let waits = test.step("write_image").await.unwrap();
    let ActionProgress::PollAgentAt(poll_at) = waits.progress else { panic!("{waits:?}") };
    assert!(poll_at > test.now());
    assert_eq!(test.command_count("execute_deploy_step"), 0);
    let error = test.registry.agent_steps(&test.target(), StepFlow::Deploy).await.unwrap_err();
    assert!(error.unreachable_peer().is_some(), "a busy agent is a transient error: {error}");
}

#[tokio::test]
async fn failed_step_reports_reason() {
    for (rule, why) in [
        ("fail=the_disk_is_on_fire path=/agent/step/write_image", "the_disk_is_on_fire"),
        ("wrong-checksum path=/agent/step/write_image", "checksum"),
    ] {
        let mut test = AgentTest::new().await;
        test.boot_agent().await;
        test.fault(rule);
        let error = test.finish_deploy_step("write_image").await.unwrap_err();
        assert!(error.to_string().contains("deploy.write_image"), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(test.machine().disk_image(), None);
    }
}

#[tokio::test]
async fn steps_are_listed_again_after_version_mismatch() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    let managers = object(json!({"generic_hardware_manager": "1.3"}));
    test.agent().set_hardware_managers(managers.clone());
    test.finish_deploy_step("write_image").await.unwrap();
    assert_eq!(test.command_count("execute_deploy_step"), 2);
    assert_eq!(test.command_count("get_deploy_steps"), 2);
    let known = test.node.driver_internal_info.get("hardware_manager_version");
    assert_eq!(known, Some(managers.into()));
    assert_eq!(test.machine().completed_step_count("write_image"), 1);
}

#[tokio::test]
async fn step_with_reboot_requested_reboots_into_agent() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.list_steps(StepFlow::Clean).await;
    let boots = test.machine().with_model(|machine, _| machine.boot_count());
    let step = Step { reboot_requested: true, ..Step::new("deploy", "erase_pstore", 0) };
    let mut restarted = test.run_step_once(DEPLOY, StepFlow::Clean, &step).await.unwrap();
    loop {
        match restarted.progress {
            ActionProgress::PollAgentAt(_) => test.wait_for_heartbeat().await,
            // The restart is due at once.
            ActionProgress::Checkpoint => {}
            ActionProgress::Done
            | ActionProgress::AgentReady
            | ActionProgress::WaitForAgent
            | ActionProgress::WaitForInstaller
            | ActionProgress::PollAt(_) => break,
        }
        restarted = test.run_step_once(DEPLOY, StepFlow::Clean, &step).await.unwrap();
    }
    assert!(restarted.progress == ActionProgress::WaitForAgent, "{restarted:?}");
    assert_eq!(test.node.agent.url, None);
    test.wait_until(|machine| machine.with_model(|it, _| it.boot_count()) == boots + 1).await;
    assert_eq!(
        test.machine().running_software(),
        RunningSoftware::Ramdisk,
        "boots the agent again"
    );
    let driver = test.driver.clone();
    let done = driver.interface(DEPLOY).execute_step(&test.target(), StepFlow::Clean, &step).await;
    assert!(done.unwrap().is_done());
    assert_eq!(test.machine().completed_step_count("erase_pstore"), 1);
}

#[tokio::test]
async fn interrupted_step_reboot_is_repeated() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.list_steps(StepFlow::Clean).await;
    let step = Step { reboot_requested: true, ..Step::new("deploy", "erase_pstore", 0) };
    loop {
        // The pending restart is stored before it starts.
        let outcome = test.run_step_once(DEPLOY, StepFlow::Clean, &step).await.unwrap();
        match outcome.progress {
            ActionProgress::PollAgentAt(_) => test.wait_for_heartbeat().await,
            ActionProgress::Checkpoint => break,
            ActionProgress::Done
            | ActionProgress::AgentReady
            | ActionProgress::WaitForAgent
            | ActionProgress::WaitForInstaller
            | ActionProgress::PollAt(_) => panic!("{outcome:?}"),
        }
    }
    let driver = test.driver.clone();
    let lost = driver.interface(DEPLOY).execute_step(&test.target(), StepFlow::Clean, &step).await;
    assert!(lost.unwrap().progress == ActionProgress::WaitForAgent);
    test.wait_for_heartbeat().await;
    test.finish_step(DEPLOY, StepFlow::Clean, &step).await.unwrap();
    assert_eq!(test.machine().completed_step_count("erase_pstore"), 1);
}

#[tokio::test]
async fn commands_of_earlier_job_are_ignored() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.fault("fail=no_such_image path=/agent/step/write_image times=1");
    test.finish_deploy_step("write_image").await.unwrap_err();
    // The machine stays on, and the next job uses the same agent.
    test.driver_state = JsonObject::empty();
    let ready = test.step("deploy").await.unwrap();
    assert!(ready.progress == ActionProgress::AgentReady, "{ready:?}");
    test.finish_deploy_step("write_image").await.unwrap();
    assert_eq!(test.machine().completed_step_count("write_image"), 1);
}

#[tokio::test]
async fn busy_agent_is_not_used_for_another_job() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.fault("hang path=/agent/step/write_image");
    let _ = test.step("write_image").await.unwrap();
    test.driver_state = JsonObject::empty();
    let boots = test.machine().with_model(|machine, _| machine.boot_count());
    let booted = test.step("deploy").await.unwrap();
    assert!(booted.progress == ActionProgress::WaitForAgent, "{booted:?}");
    test.wait_until(|machine| machine.with_model(|it, _| it.boot_count()) == boots + 1).await;
}

#[tokio::test]
async fn agent_busy_for_30_minutes_fails() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.fault("hang path=/agent/step/erase_pstore");
    let clean = Step::new("deploy", "erase_pstore", 0);
    let driver = test.driver.clone();
    let sent = driver.interface(DEPLOY).execute_step(&test.target(), StepFlow::Clean, &clean).await;
    assert!(matches!(sent.unwrap().progress, ActionProgress::PollAgentAt(_)));
    let _ = test.step("write_image").await.unwrap();
    test.clock_offset = Duration::from_secs(1801);
    let error = test.step("write_image").await.unwrap_err();
    assert!(error.to_string().contains("busy with another command for 30 minutes"), "{error}");
}

#[tokio::test]
async fn restart_by_out_of_band_step_boots_agent_if_needed_later() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    let bios = |quiet: &str| Step {
        args: object(json!({"settings": [{"name": "QuietBoot", "value": quiet}]})).into(),
        ..Step::new("bios", "apply_configuration", 70)
    };
    let write = Step { requires_ramdisk: true, ..Step::new("deploy", "write_image", 60) };
    test.set_job(vec![bios("false"), write]);
    let boots = test.machine().with_model(|machine, _| machine.boot_count());
    test.finish_step(InterfaceKind::Bios, StepFlow::Deploy, &bios("false")).await.unwrap();
    assert!(
        test.machine().with_model(|machine, _| machine.boot_count()) > boots,
        "it was restarted"
    );
    test.finish_deploy_step("write_image").await.unwrap();
    assert_eq!(test.machine().running_software(), RunningSoftware::Ramdisk);
    // No agent is booted if no later step needs one.
    test.set_job(vec![bios("true")]);
    test.finish_step(InterfaceKind::Bios, StepFlow::Deploy, &bios("true")).await.unwrap();
    test.wait_until(|machine| machine.running_software() == RunningSoftware::Instance).await;
}

#[tokio::test]
async fn slow_bootloader_installation_is_polled() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.finish_deploy_step("write_image").await.unwrap();
    test.fault("delay=300 path=/agent/command/install_bootloader");
    for _ in 0..2 {
        let waits = test.step("prepare_instance_boot").await.unwrap();
        assert!(matches!(waits.progress, ActionProgress::PollAgentAt(_)), "{waits:?}");
    }
    test.finish_deploy_step("prepare_instance_boot").await.unwrap();
    assert_eq!(test.command_count("install_bootloader"), 1);
}

#[tokio::test]
async fn instance_is_rebooted_if_kexec_is_unconfirmed() {
    let mut test = AgentTest::with(|agents| agents.is_ferrite_agent = true).await;
    test.instance_info.insert("kexec".to_owned(), json!(true));
    test.boot_agent().await;
    for step in ["write_image", "prepare_instance_boot", "tear_down_agent"] {
        test.finish_deploy_step(step).await.unwrap_or_else(|error| panic!("{step}: {error}"));
    }
    test.set_job(vec![Step::new("deploy", "boot_instance", 20)]);
    test.fault("drop path=/agent/v1");
    let error = test.step("boot_instance").await.unwrap_err();
    assert!(error.unreachable_peer().is_some(), "retried at first: {error}");
    test.set_agent_unreachable();
    test.clock_offset = Duration::from_secs(31);
    test.finish_deploy_step("boot_instance").await.unwrap();
    test.wait_until(|machine| machine.running_software() == RunningSoftware::Instance).await;
}

#[tokio::test]
async fn machine_that_does_not_power_itself_off_is_powered_off() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    test.fault("hang path=/agent/command/power_off");
    for _ in 0..3 {
        let waits = test.step("tear_down_agent").await.unwrap();
        assert!(matches!(waits.progress, ActionProgress::PollAt(_)), "{waits:?}");
    }
    assert_eq!(test.command_count("power_off"), 1);
    test.clock_offset = Duration::from_secs(46);
    let done = test.step("tear_down_agent").await.unwrap();
    assert!(done.is_done(), "{done:?}");
    test.wait_until(|machine| machine.power_state() == SimulatedPower::Off).await;
    assert_eq!(test.node.agent.url, None);
}

#[tokio::test]
async fn power_off_that_an_earlier_version_sent_is_not_sent_again() {
    let mut test = AgentTest::new().await;
    test.boot_agent().await;
    let now = test.target().now;
    test.driver_state.set("told_to_stop", now.0);
    let waits = test.step("tear_down_agent").await.unwrap();
    assert!(matches!(waits.progress, ActionProgress::PollAt(_)), "{waits:?}");
    assert_eq!(test.command_count("power_off"), 0);
    test.clock_offset = Duration::from_secs(46);
    let done = test.step("tear_down_agent").await.unwrap();
    assert!(done.is_done(), "{done:?}");
    test.wait_until(|machine| machine.power_state() == SimulatedPower::Off).await;
}

#[tokio::test]
async fn ferrite_agent_starts_instance_with_kexec() {
    for (is_ferrite_agent, kexec, boots) in [(true, true, 1), (true, false, 2), (false, true, 2)] {
        let mut test = AgentTest::with(|agents| agents.is_ferrite_agent = is_ferrite_agent).await;
        test.instance_info.insert("kexec".to_owned(), json!(kexec));
        test.boot_agent().await;
        for step in ["write_image", "prepare_instance_boot", "tear_down_agent", "boot_instance"] {
            test.finish_deploy_step(step).await.unwrap_or_else(|error| panic!("{step}: {error}"));
        }
        test.wait_until(|machine| machine.running_software() == RunningSoftware::Instance).await;
        assert_eq!(test.machine().with_model(|machine, _| machine.boot_count()), boots);
        assert_eq!(test.node.agent.url, None);
    }
}

#[tokio::test]
async fn instance_is_rebooted_if_kexec_fails() {
    let mut test = AgentTest::with(|agents| agents.is_ferrite_agent = true).await;
    test.instance_info.insert("kexec".to_owned(), json!(true));
    test.boot_agent().await;
    for step in ["write_image", "prepare_instance_boot", "tear_down_agent"] {
        test.finish_deploy_step(step).await.unwrap_or_else(|error| panic!("{step}: {error}"));
    }
    test.fault("fail=too_old path=/agent/command/kexec");
    test.finish_deploy_step("boot_instance").await.unwrap();
    test.wait_until(|machine| machine.running_software() == RunningSoftware::Instance).await;
    assert_eq!(test.machine().with_model(|machine, _| machine.boot_count()), 2);
}

#[tokio::test]
async fn rescue_sets_password() {
    let mut test = AgentTest::new().await;
    test.instance_info.insert("rescue_password".to_owned(), json!("open sesame"));
    let driver = test.driver.clone();
    let waits = driver.rescue().rescue(&test.target()).await.unwrap();
    assert!(waits.progress == ActionProgress::WaitForAgent, "{waits:?}");
    test.record(&waits.changes);
    test.wait_for_heartbeat().await;
    let done = driver.rescue().rescue(&test.target()).await.unwrap();
    assert!(done.is_done(), "{done:?}");
    test.record(&done.changes);
    test.wait_until(|machine| machine.running_software() == RunningSoftware::Rescue).await;
    assert_eq!(test.node.agent.url, None);
}

#[tokio::test]
async fn logs_are_collected_from_running_agent() {
    let mut test = AgentTest::new().await;
    assert_eq!(test.registry.agent_logs(&test.target()).await.unwrap(), None);
    test.boot_agent().await;
    let logs = test.registry.agent_logs(&test.target()).await.unwrap();
    assert!(logs.is_some_and(|logs| logs.starts_with("H4sI")));
}

#[tokio::test]
async fn running_agent_is_reused_with_fast_track() {
    for (fast_track, seconds_later, is_dead, is_used) in [
        (true, 10, false, true),
        (false, 10, false, false),
        (true, 301, false, false),
        (true, 10, true, false),
    ] {
        let mut test = AgentTest::new().await;
        test.driver_info.insert("fast_track".to_owned(), json!(fast_track));
        test.boot_agent().await;
        test.clock_offset = Duration::from_secs(seconds_later);
        if is_dead {
            test.fault("drop path=/agent/v1");
        }
        let driver = test.driver.clone();
        let changes = driver.deploy().prepare(&test.target()).await.unwrap();
        let case = format!("{fast_track} {seconds_later} {is_dead}");
        assert_eq!(changes.power_state.is_none(), is_used, "{case}");
        test.record(&changes);
        let deploy = test.step("deploy").await.unwrap();
        assert_eq!(deploy.progress == ActionProgress::AgentReady, is_used, "{case}");
    }
}

#[tokio::test]
async fn cleaning_runs_steps_and_stops_agent() {
    let mut test = AgentTest::new().await;
    let driver = test.driver.clone();
    let waits = driver.deploy().prepare_cleaning(&test.target()).await.unwrap();
    assert!(waits.progress == ActionProgress::WaitForAgent, "{waits:?}");
    test.record(&waits.changes);
    test.wait_for_heartbeat().await;
    let ready = driver.deploy().prepare_cleaning(&test.target()).await.unwrap();
    assert!(ready.is_done(), "{ready:?}");
    test.record(&ready.changes);
    test.driver_state = JsonObject::empty();
    test.list_steps(StepFlow::Clean).await;
    for step in ["erase_devices_metadata", "erase_devices"] {
        let step = Step::new("deploy", step, 10);
        test.finish_step(DEPLOY, StepFlow::Clean, &step).await.unwrap();
    }
    let changes = driver.deploy().tear_down_cleaning(&test.target()).await.unwrap();
    assert!(changes.agent_stopped);
    test.wait_until(|machine| machine.power_state() == SimulatedPower::Off).await;
    assert_eq!(test.machine().completed_step_count("erase_devices"), 1);
    let powered_on = driver.power().set(&test.target(), PowerTarget::On, None).await.unwrap();
    assert_eq!(powered_on.power_state, Some(PowerState::On));
}
