// SPDX-License-Identifier: Apache-2.0
//! `ferrite run` with simulated Redfish machines: all operations, failures, kills and the sample Job.

mod run_rig;
mod sample_job;

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use fleet_sim::machine::{PowerState, RunningSoftware};
use http_probe::ProbeClient;
use serde_json::{Value, json};

use run_rig::{IMAGE_SHA256, RunRig, wait_until};

#[test]
fn deploys_and_reports_success_again() {
    let rig = RunRig::new();
    let host = rig.write_host("host.yaml", &rig.host());
    let mut process = rig.start(&["deploy"], &host, &["--state-dir", "state"]);
    let api = process.connect_agents();
    let (code, lines) = process.finish();
    assert_eq!(code, 0, "{lines:#?}");
    assert_eq!(lines.last().unwrap()["outcome"], "done");
    let states: Vec<&str> = lines
        .iter()
        .filter(|line| line["event"]["kind"] == "state_changed")
        .filter_map(|line| line["event"]["to"].as_str())
        .collect();
    assert_eq!(states.first(), Some(&"verifying"), "{states:?}");
    assert_eq!(states.last(), Some(&"active"), "{states:?}");
    let texts: Vec<&str> = lines.iter().filter_map(|line| line["text"].as_str()).collect();
    for expected in ["requested: manage", "requested: provide", "requested: deploy"] {
        assert!(texts.contains(&expected), "{texts:#?}");
    }
    assert!(texts.iter().any(|text| text.contains("deploy.write_image")), "{texts:#?}");
    let machine = rig.machine();
    assert_eq!(machine.completed_step_count("write_image"), 1);
    assert_eq!(machine.completed_step_count("erase_devices_metadata"), 1);
    assert_eq!(machine.disk_image().unwrap().checksum.as_deref(), Some(IMAGE_SHA256));
    wait_until(|| machine.running_software() == RunningSoftware::Instance);
    assert!(ProbeClient::new(api).send("GET", "/", None).is_err(), "the service has stopped");
    let mode = std::fs::metadata(rig.path("state")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    // The same command does nothing and succeeds.
    let boots = machine.boot_history().len();
    let again = rig.run(&["deploy"], &host, &["--state-dir", "state"]);
    assert_eq!((again.code, again.outcome()), (0, "done"), "{}", again.text());
    assert_eq!(machine.boot_history().len(), boots);
    assert_eq!(machine.completed_step_count("write_image"), 1);

    // Another image is not written over the instance by mistake.
    let mut changed = rig.host();
    changed["deploy"]["meta_data"] = json!({"hostname": "other"});
    let changed = rig.write_host("changed.yaml", &changed);
    let refused = rig.run(&["deploy"], &changed, &["--state-dir", "state"]);
    assert_eq!((refused.code, refused.outcome()), (2, "invalid input"), "{}", refused.text());
    assert!(refused.message().ends_with("use another --state-dir to overwrite it"));
    assert_eq!(machine.boot_history().len(), boots);

    // Neither does another operation.
    let refused = rig.run(&["clean"], &host, &["--state-dir", "state"]);
    assert_eq!((refused.code, refused.outcome()), (2, "invalid input"), "{}", refused.text());
    assert!(refused.message().contains("use another --state-dir"), "{}", refused.message());
    // A refused operation does not replace the record of the complete one.
    let again = rig.run(&["deploy"], &host, &["--state-dir", "state"]);
    assert_eq!(again.code, 0, "{}", again.text());
    assert_eq!(machine.boot_history().len(), boots);
}

/// The disks are not erased for an image that cannot be written.
#[test]
fn invalid_deployments_are_refused_before_cleaning() {
    let rig = RunRig::new();
    let mut without_checksum = rig.host();
    without_checksum["deploy"].as_object_mut().unwrap().remove("checksum");
    let host = rig.write_host("host.yaml", &without_checksum);
    let mut process = rig.start(&["deploy"], &host, &["--state-dir", "state"]);
    process.connect_agents();
    let (code, lines) = process.finish();
    let result = lines.last().unwrap();
    assert_eq!((code, result["outcome"].as_str()), (2, Some("invalid input")), "{lines:#?}");
    let message = result["message"].as_str().unwrap();
    assert!(message.contains("deploy.checksum is missing"), "{message}");
    assert!(message.contains("host.yaml"), "{message}");
    let machine = rig.machine();
    assert_eq!(machine.completed_step_count("erase_devices_metadata"), 0);
    assert_eq!(machine.boot_history().len(), 0, "{:?}", machine.boot_history());

    // The corrected host file is used with the same state directory.
    let host = rig.write_host("host.yaml", &rig.host());
    let mut process = rig.start(&["deploy"], &host, &["--state-dir", "state"]);
    process.connect_agents();
    let (code, lines) = process.finish();
    assert_eq!(code, 0, "{lines:#?}");
    assert_eq!(machine.completed_step_count("erase_devices_metadata"), 1);
    assert_eq!(machine.completed_step_count("write_image"), 1);
}

#[test]
fn killed_deployment_continues_with_the_same_state_directory() {
    let rig = RunRig::new();
    let host = rig.write_host("host.yaml", &rig.host());
    let mut process = rig.start(&["deploy"], &host, &["--state-dir", "state"]);
    process.connect_agents();
    process.wait_for(|line| line["event"]["to"] == "wait call-back");
    process.kill();

    let mut changed = rig.host();
    changed["deploy"]["checksum"] = json!("0a".repeat(32));
    let changed = rig.write_host("changed.yaml", &changed);
    let refused = rig.run(&["deploy"], &changed, &["--state-dir", "state"]);
    assert_eq!((refused.code, refused.outcome()), (2, "invalid input"));
    assert!(refused.message().contains("the host file has changed"), "{}", refused.message());
    let refused = rig.run(&["clean"], &host, &["--state-dir", "state"]);
    assert_eq!(refused.code, 2, "{}", refused.text());

    let mut process = rig.start(&["deploy"], &host, &["--state-dir", "state"]);
    process.connect_agents();
    let (code, lines) = process.finish();
    assert_eq!(code, 0, "{lines:#?}");
    let started = lines.iter().find(|line| line["kind"] == "started").unwrap();
    assert_eq!(started["resumed"], true);
    let machine = rig.machine();
    assert_eq!(machine.completed_step_count("write_image"), 1);
    assert_eq!(machine.completed_step_count("erase_devices_metadata"), 1, "cleaned once");
}

#[test]
fn cleans_with_steps_and_automatically() {
    let rig = RunRig::new();
    let mut host = rig.host();
    host["clean"] = json!({"clean_steps": [{"interface": "deploy", "step": "erase_devices"}]});
    let with_steps = rig.write_host("steps.yaml", &host);
    let mut process = rig.start(&["clean"], &with_steps, &["--state-dir", "state"]);
    process.connect_agents();
    let (code, lines) = process.finish();
    assert_eq!(code, 0, "{lines:#?}");
    let machine = rig.machine();
    assert_eq!(machine.completed_step_count("erase_devices"), 1);
    assert_eq!(machine.completed_step_count("erase_devices_metadata"), 0);

    // Another operation with the same state directory; cleaning is not disabled by the configuration.
    let automated = rig.write_host("automated.yaml", &rig.host());
    let options = ["--state-dir", "state"];
    let mut process = rig.start_with(
        &["clean"],
        &automated,
        &options,
        &[("FERRITE_LIFECYCLE__AUTOMATED_CLEAN", "false")],
    );
    process.connect_agents();
    let (code, lines) = process.finish();
    assert_eq!(code, 0, "{lines:#?}");
    assert_eq!(machine.completed_step_count("erase_devices_metadata"), 1);
    assert_eq!(machine.power_state(), PowerState::Off);

    host["clean"] = json!({"clean_steps": [{"interface": "deploy", "step": "no_such_step"}]});
    let unknown = rig.write_host("unknown.yaml", &host);
    let mut process = rig.start(&["clean"], &unknown, &[]);
    process.connect_agents();
    let (code, lines) = process.finish();
    assert_eq!(code, 1, "{lines:#?}");
    assert!(lines.last().unwrap()["message"].as_str().unwrap().contains("no_such_step"));
}

#[test]
fn inspects_and_writes_the_inventory() {
    let rig = RunRig::new();
    let host = rig.write_host("host.yaml", &rig.host());
    let options = ["--state-dir", "state", "--inventory", "inventory.json"];
    let mut process = rig.start(&["inspect"], &host, &options);
    process.connect_agents();
    let (code, lines) = process.finish();
    assert_eq!(code, 0, "{lines:#?}");
    assert!(lines.last().unwrap()["inventory"].is_null(), "it is in the file");
    let text = std::fs::read_to_string(rig.path("inventory.json")).unwrap();
    let inventory: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(inventory["inventory"]["system_vendor"]["manufacturer"], "Ferrite", "{inventory}");
    // A file that cannot be written is reported before the machine is used.
    let boots = rig.machine().boot_history().len();
    std::fs::create_dir(rig.path("folder")).unwrap();
    for (file, expected) in [
        ("absent/inventory.json", "--inventory: cannot write absent/inventory.json: "),
        ("folder", "--inventory: cannot write folder: "),
    ] {
        let refused = rig.run(&["inspect"], &host, &["--inventory", file]);
        assert_eq!((refused.code, refused.outcome()), (2, "invalid input"), "{}", refused.text());
        assert!(refused.message().starts_with(expected), "{}", refused.message());
        assert_eq!(refused.lines.len(), 1, "nothing was started: {}", refused.text());
    }
    assert_eq!(rig.machine().boot_history().len(), boots);
    // Without a file the earlier result is printed.
    let again = rig.run(&["inspect"], &host, &["--state-dir", "state"]);
    assert_eq!(again.code, 0, "{}", again.text());
    assert_eq!(again.lines.last().unwrap()["inventory"], inventory);
}

#[test]
fn changes_and_shows_the_power_state() {
    let rig = RunRig::new();
    let host = rig.write_host("host.yaml", &rig.host());
    let machine = rig.machine();
    for (target, expected, state) in [
        ("status", "power off", PowerState::Off),
        ("on", "power on", PowerState::On),
        ("status", "power on", PowerState::On),
        ("reboot", "power on", PowerState::On),
        ("off", "power off", PowerState::Off),
    ] {
        let run = rig.run(&["power", target], &host, &[]);
        assert_eq!(run.code, 0, "{target}: {}", run.text());
        assert_eq!(run.lines.last().unwrap()["power_state"], expected, "{target}");
        assert_eq!(machine.power_state(), state, "{target}");
    }
    // The state directory is not needed, but a wrong one is a mistake.
    std::fs::write(rig.path("file"), "").unwrap();
    let refused = rig.run(&["power", "status"], &host, &["--state-dir", "file"]);
    assert_eq!((refused.code, refused.outcome()), (2, "invalid input"), "{}", refused.text());
    assert!(
        refused.message().contains("file; give another with --state-dir"),
        "{}",
        refused.message()
    );
    let mut other = rig.host();
    other["name"] = json!("other");
    let other = rig.write_host("other.yaml", &other);
    let run = rig.run(&["power", "off"], &other, &["--state-dir", "state"]);
    assert_eq!(run.code, 0, "{}", run.text());
    let run = rig.run(&["power", "status"], &other, &["--state-dir", "state"]);
    assert_eq!(run.code, 0, "{}", run.text());
    let refused = rig.run(&["power", "status"], &host, &["--state-dir", "state"]);
    assert_eq!((refused.code, refused.outcome()), (2, "invalid input"), "{}", refused.text());
    assert!(refused.message().contains("is that of the machine other"), "{}", refused.message());
    // The power may have changed since the same operation was complete.
    for (target, expected, state) in [
        ("on", "power on", PowerState::On),
        ("off", "power off", PowerState::Off),
        ("on", "power on", PowerState::On),
        ("on", "power on", PowerState::On),
        ("off", "power off", PowerState::Off),
    ] {
        let run = rig.run(&["power", target], &other, &["--state-dir", "state"]);
        assert_eq!(run.code, 0, "{target}: {}", run.text());
        assert_eq!(run.lines.last().unwrap()["power_state"], expected, "{target}");
        assert_eq!(machine.power_state(), state, "{target}");
    }
    // A run does not continue the work of a service.
    std::fs::create_dir(rig.path("service")).unwrap();
    std::fs::write(rig.path("service/ferrite.sqlite"), "").unwrap();
    let refused = rig.run(&["power", "on"], &host, &["--state-dir", "service"]);
    assert_eq!((refused.code, refused.outcome()), (2, "invalid input"), "{}", refused.text());
    assert!(refused.message().contains("the data directory of a service"), "{}", refused.message());
    // Text output: only the result is on standard output.
    let output = rig.run_text(&["power", "status"], &host);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "power off\n");
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(progress.contains("starting power status of "), "{progress}");
    assert!(progress.contains("enroll → verifying"), "{progress}");
}

#[test]
fn exit_codes_distinguish_failures() {
    let rig = RunRig::new();
    let mut wrong = rig.host();
    wrong["driver_info"]["redfish_password"] = json!({"env": "WRONG_PASSWORD"});
    let host = rig.write_host("wrong.yaml", &wrong);
    let without = rig.run(&["power", "status"], &host, &[]);
    assert_eq!(without.code, 2, "the variable is not set: {}", without.text());
    let run =
        rig.start_with(&["power", "on"], &host, &[], &[("WRONG_PASSWORD", "incorrect-7")]).finish();
    assert_eq!(run.0, 5, "{:#?}", run.1);
    let message = run.1.last().unwrap()["message"].to_string();
    assert!(message.contains("rejected the credentials"), "{message}");
    assert!(message.contains("correct driver_info in the host file"), "{message}");
    assert!(!format!("{:?}", run.1).contains("incorrect-7"));

    // Repeated with the right password, the same state directory is used.
    let mut silent = rig.host();
    silent["driver_info"]["redfish_address"] = json!("http://127.0.0.1:1");
    let host = rig.write_host("silent.yaml", &silent);
    let run = rig.run(&["power", "on"], &host, &["--state-dir", "state"]);
    assert_eq!((run.code, run.outcome()), (6, "BMC unreachable"), "{}", run.text());
    let mut other = rig.host();
    other["uuid"] = json!("1be26c0b-03f2-4d2e-ae87-c02d7f33c123");
    let host = rig.write_host("other.yaml", &other);
    let run = rig.run(&["power", "on"], &host, &["--state-dir", "state"]);
    assert_eq!(run.code, 2, "{}", run.text());
    let host = rig.write_host("silent.yaml", &rig.host());
    let run = rig.run(&["power", "on"], &host, &["--state-dir", "state"]);
    assert_eq!(run.code, 0, "{}", run.text());
    assert_eq!(rig.machine().power_state(), PowerState::On);

    let mut invalid = rig.host();
    invalid["deploy"]["imgae"] = json!("x");
    let unknown_key = rig.write_host("invalid.yaml", &invalid);
    let mut other_driver = rig.host();
    other_driver["driver"] = json!("telepathy");
    let other_driver = rig.write_host("driver.yaml", &other_driver);
    let mut misspelt = rig.host();
    let driver_info = misspelt["driver_info"].as_object_mut().unwrap();
    let user = driver_info.remove("redfish_username").unwrap();
    driver_info.insert("redfish_user".to_owned(), user);
    let misspelt = rig.write_host("misspelt.yaml", &misspelt);
    for (file, expected) in [
        (unknown_key.as_str(), "deploy.imgae: unknown key; did you mean image?"),
        (other_driver.as_str(), "driver: telepathy is not enabled; use one of "),
        (misspelt.as_str(), "'driver_info/redfish_username' is missing"),
        ("absent.yaml", "absent.yaml: it cannot be read"),
    ] {
        let run = rig.run(&["deploy"], file, &[]);
        assert_eq!((run.code, run.outcome()), (2, "invalid input"), "{}", run.text());
        assert!(run.message().contains(expected), "{}", run.message());
    }
    let host = rig.write_host("host.yaml", &rig.host());
    let run = rig.run(&["deploy"], &host, &["--config", "absent.toml"]);
    assert_eq!(run.code, 2, "{}", run.text());
}

/// Both leave an operation that continues.
#[test]
fn timeout_and_signal_end_the_run() {
    let rig = RunRig::new();
    rig.add_fault("hang path=/agent/boot");
    let host = rig.write_host("host.yaml", &rig.host());
    let options = ["--state-dir", "state", "--timeout", "4s"];
    let run = rig.run(&["inspect"], &host, &options);
    assert_eq!((run.code, run.outcome()), (7, "timeout"), "{}", run.text());
    assert!(run.message().contains("run the same command again to continue"), "{}", run.message());

    let mut process = rig.start(&["inspect"], &host, &["--state-dir", "state"]);
    let api = process.connect_agents();
    // Clients of the network need the password, agents do not.
    let mut client = ProbeClient::new(api).with_timeout(Duration::from_secs(10));
    for path in ["/v1/nodes", "/v1/ferrite/events", "/metrics"] {
        assert_eq!(client.send("GET", path, None).unwrap().status, 401, "{path}");
    }
    let lookup = client.send("GET", "/v1/lookup?addresses=52:54:00:00:00:99", None).unwrap();
    assert_eq!(lookup.status, 404, "{}", lookup.text());
    let busy = rig.run(&["inspect"], &host, &["--state-dir", "state"]);
    assert_eq!(busy.code, 2, "{}", busy.text());
    assert!(busy.message().contains("--state-dir"), "{}", busy.message());
    process.terminate();
    let (code, lines) = process.finish();
    assert_eq!(code, 130, "{lines:#?}");
    assert_eq!(lines.last().unwrap()["outcome"], "interrupted");

    // Without a state directory nothing is left.
    let run = rig.run(&["inspect"], &host, &["--timeout", "3s"]);
    assert_eq!(run.code, 7, "{}", run.text());
    assert!(run.message().contains("starts from the beginning"), "{}", run.message());
    assert_eq!(
        std::fs::read_dir(rig.path("tmp")).unwrap().count(),
        0,
        "temporary files are removed"
    );
}
