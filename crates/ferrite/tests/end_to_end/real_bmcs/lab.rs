// SPDX-License-Identifier: Apache-2.0
//! The lab: the state of machines according to libvirt, the emulators and `ipmitool`.

use std::net::SocketAddr;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_probe::ProbeClient;
use serde_json::{Value, json};

use crate::test_process::output_of;

/// The inventory of a running lab.
pub(crate) struct LabInventory {
    inventory: Value,
}

impl LabInventory {
    /// Returns `None` if there is no lab. Panics if the servers are required, as in CI.
    pub(crate) fn find() -> Option<Self> {
        if let Some(path) = std::env::var_os("FERRITE_TEST_LAB") {
            let text = std::fs::read_to_string(path).unwrap();
            return Some(Self { inventory: serde_json::from_str(&text).unwrap() });
        }
        let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|value| value == "required");
        assert!(!required, "FERRITE_TEST_LAB is not set: run `cargo xtask test`");
        println!("skipped: FERRITE_TEST_LAB is not set; `cargo xtask test` sets it");
        None
    }

    /// The libvirt connection URI.
    pub(super) fn libvirt_uri(&self) -> &str {
        text(&self.inventory["libvirt_uri"])
    }

    pub(super) fn username(&self) -> &str {
        text(&self.inventory["username"])
    }

    pub(super) fn password(&self) -> &str {
        text(&self.inventory["password"])
    }

    /// URL of a Redfish BMC: `redfish` or `redfish-https`.
    pub(super) fn url(&self, bmc: &str) -> &str {
        text(&self.inventory["bmcs"][bmc]["url"])
    }

    /// The file with the certificate of `redfish-https`.
    pub(super) fn certificate(&self) -> &str {
        text(&self.inventory["bmcs"]["redfish-https"]["certificate"])
    }

    /// The UDP port of an IPMI BMC: `virtualbmc` or `ipmi-sim`.
    pub(super) fn ipmi_port(&self, bmc: &str) -> u64 {
        self.inventory["bmcs"][bmc]["port"].as_u64().unwrap()
    }

    /// The MAC address of a machine.
    pub(crate) fn mac(&self, machine: &str) -> &str {
        text(&self.inventory["machines"][machine]["mac"])
    }

    /// The file with the serial console output of a machine.
    pub(crate) fn console(&self, machine: &str) -> &str {
        text(&self.inventory["machines"][machine]["console"])
    }

    /// The bridge of a machine: its name and the server's address on it.
    pub(crate) fn bridge(&self, machine: &str) -> (&str, &str) {
        let network = &self.inventory["machines"][machine]["network"];
        (text(&network["interface"]), text(&network["address"]))
    }

    /// The disks of a machine: serial number, size, and the file behind each.
    pub(crate) fn disks(&self, machine: &str) -> Vec<Value> {
        self.inventory["machines"][machine]["disks"].as_array().cloned().unwrap_or_default()
    }

    /// The path of a machine's System resource.
    pub(crate) fn system(&self, machine: &str) -> String {
        format!("/redfish/v1/Systems/{}", text(&self.inventory["machines"][machine]["uuid"]))
    }

    /// The `driver_info` of a machine behind `redfish`.
    pub(crate) fn redfish_info(&self, machine: &str) -> Value {
        json!({
            "redfish_address": self.url("redfish"),
            "redfish_system_id": self.system(machine),
            "redfish_username": self.username(),
            "redfish_password": self.password(),
        })
    }

    /// The `driver_info` of the machine behind `redfish-https`, the only system of its BMC.
    pub(super) fn https_info(&self) -> Value {
        json!({
            "redfish_address": self.url("redfish-https"),
            "redfish_username": self.username(),
            "redfish_password": self.password(),
            "redfish_verify_ca": self.certificate(),
        })
    }

    /// The `driver_info` of the machine behind an IPMI BMC.
    pub(crate) fn ipmi_info(&self, bmc: &str) -> Value {
        json!({
            "ipmi_address": "127.0.0.1",
            "ipmi_port": self.ipmi_port(bmc),
            "ipmi_username": self.username(),
            "ipmi_password": self.password(),
        })
    }

    /// The state in libvirt: `running` or `shut off`.
    pub(crate) fn power(&self, machine: &str) -> String {
        self.virsh(&["domstate", machine]).trim().to_owned()
    }

    /// The libvirt definition for the next start.
    pub(super) fn definition(&self, machine: &str) -> String {
        self.virsh(&["dumpxml", "--inactive", machine])
    }

    pub(crate) fn virsh(&self, arguments: &[&str]) -> String {
        let mut virsh = Command::new("virsh");
        command_output(virsh.args(["--quiet", "--connect", self.libvirt_uri()]).args(arguments))
    }

    pub(super) fn ipmitool(&self, bmc: &str, command: &str) -> String {
        let mut ipmitool = Command::new("ipmitool");
        ipmitool
            .args(["-I", "lanplus", "-C", "3", "-H", "127.0.0.1"])
            .args(["-p", &self.ipmi_port(bmc).to_string()])
            .args(["-U", self.username(), "-P", self.password()])
            .args(command.split(' '));
        command_output(&mut ipmitool)
    }

    /// Reads a resource of the `redfish` emulator.
    pub(crate) fn resource(&self, path: &str) -> Value {
        let address: SocketAddr = self.url("redfish")["http://".len()..].parse().unwrap();
        let login = STANDARD.encode(format!("{}:{}", self.username(), self.password()));
        let mut client =
            ProbeClient::new(address).with_header("Authorization", &format!("Basic {login}"));
        let response = client.send("GET", path, None).unwrap();
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.json()
    }

    /// The changes that `ipmi_sim` made to its machine, such as `identify 5 0`.
    pub(super) fn ipmi_sim_changes(&self) -> String {
        self.ipmi_sim_file("changes")
    }

    /// The messages of `ipmi_sim` and its replies, in hexadecimal.
    pub(super) fn ipmi_sim_messages(&self) -> String {
        self.ipmi_sim_file("messages")
    }

    fn ipmi_sim_file(&self, name: &str) -> String {
        let path = text(&self.inventory["bmcs"]["ipmi-sim"][name]);
        String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
    }
}

/// The text of a JSON string.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}

fn command_output(command: &mut Command) -> String {
    let output = output_of(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
