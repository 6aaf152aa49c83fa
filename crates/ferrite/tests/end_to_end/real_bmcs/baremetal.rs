// SPDX-License-Identifier: Apache-2.0
//! Enrol, validate, manage, power on, reboot and power off a machine with the real `baremetal` client, over
//! Redfish with a self-signed certificate and over IPMI.

use std::process::Command;

use serde_json::Value;

use super::api_operator::ApiOperator;
use super::lab::LabInventory;
use crate::real_clients::{clients, without_user_settings};
use crate::test_process::output_of;

const POWER_SCRIPT: &str = "tests/end_to_end/real_bmcs/baremetal_power.py";

#[test]
fn baremetal_manages_a_machine_over_redfish() {
    run_power_script("redfish", "redfish-https", LabInventory::https_info);
}

#[test]
fn baremetal_manages_a_machine_over_ipmi() {
    run_power_script("ipmi", "virtualbmc", |lab| lab.ipmi_info("virtualbmc"));
}

fn run_power_script(driver: &str, machine: &str, driver_info: fn(&LabInventory) -> Value) {
    let (Some(lab), Some(clients)) = (LabInventory::find(), clients()) else { return };
    let operator = ApiOperator::start();
    let mut python = without_user_settings(Command::new(clients.join("bin/python")));
    python
        .args([POWER_SCRIPT, &operator.server.url(), driver, &driver_info(&lab).to_string()])
        .args(["virsh", "--quiet", "--connect", lab.libvirt_uri(), "domstate", machine])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = output_of(&mut python);
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(
        output.status.success(),
        "{}\nthe server's log:\n{}",
        String::from_utf8_lossy(&output.stderr),
        operator.log()
    );
}
