// SPDX-License-Identifier: Apache-2.0
//! The way to a machine that is under control, with the real `baremetal` command line: enrol,
//! validate, manage, power on, reboot, power off. Over Redfish with a certificate of its own, and
//! over IPMI.

use std::process::Command;

use serde_json::Value;

use super::lab::Lab;
use super::operator::Operator;
use crate::ferrite::output_of;
use crate::real_clients::{clean, clients};

const WALK: &str = "tests/end_to_end/real_bmcs/power_walk.py";

#[test]
fn baremetal_takes_a_machine_under_control_over_redfish() {
    walk("redfish", "redfish-https", Lab::https_info);
}

#[test]
fn baremetal_takes_a_machine_under_control_over_ipmi() {
    walk("ipmi", "virtualbmc", |lab| lab.ipmi_info("virtualbmc"));
}

fn walk(driver: &str, machine: &str, driver_info: fn(&Lab) -> Value) {
    let (Some(lab), Some(clients)) = (Lab::find(), clients()) else { return };
    let operator = Operator::start();
    let mut python = clean(Command::new(clients.join("bin/python")));
    python
        .args([WALK, &operator.server.url(), driver, &driver_info(&lab).to_string()])
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
