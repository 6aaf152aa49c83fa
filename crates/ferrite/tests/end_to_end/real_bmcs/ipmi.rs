// SPDX-License-Identifier: Apache-2.0
//! IPMI, on a machine behind virtualbmc and on one behind OpenIPMI's ipmi_sim.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api_operator::ApiOperator;
use super::lab::{LabInventory, text};

const IPMI_SIM: &str = "ipmi-sim";

/// One test, because the parts share the machine.
#[test]
fn operates_a_machine_over_ipmi() {
    let Some(lab) = LabInventory::find() else { return };
    let mut operator = ApiOperator::start();
    let interfaces =
        json!({ "console_interface": "ipmitool-socat", "vendor_interface": "ipmitool" });
    let node = operator.manage("ipmi", lab.ipmi_info(IPMI_SIM), interfaces);
    assert_eq!(operator.node(&node)["power_state"], "power off");
    boot_devices(&lab, &mut operator, &node);
    sensors(&lab, &mut operator, &node);
    identify(&lab, &mut operator, &node);
    vendor(&lab, &mut operator, &node);
    power_and_console(&lab, &mut operator, &node);
}

fn boot_devices(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    let path = format!("/v1/nodes/{node}/management/boot_device");
    // Once and persistent, BIOS and UEFI, with the message that the BMC must receive: parameter 5, flags,
    // device.
    for (mode, device, persistent, message, seen) in [
        ("uefi", "pxe", true, "05 e0 04 00 00 00", "Force PXE"),
        ("uefi", "disk", false, "05 a0 08 00 00 00", "Force Boot from default Hard-Drive"),
        ("uefi", "cdrom", false, "05 a0 14 00 00 00", "Force Boot from CD/DVD"),
        ("bios", "pxe", false, "05 80 04 00 00 00", "Force PXE"),
        ("bios", "disk", true, "05 c0 08 00 00 00", "Force Boot from default Hard-Drive"),
    ] {
        let what = format!("{mode} {device} persistent={persistent}");
        let capabilities = json!([{
            "op": "add", "path": "/properties/capabilities", "value": format!("boot_mode:{mode}"),
        }]);
        operator.expect(200, "PATCH", &format!("/v1/nodes/{node}"), Some(&capabilities));
        let read_before = lab.ipmi_sim_messages().len();
        let body = json!({ "boot_device": device, "persistent": persistent });
        operator.expect(204, "PUT", &path, Some(&body));
        let messages = lab.ipmi_sim_messages()[read_before..].to_owned();
        assert!(messages.contains(message), "{what}: {messages}");
        let parameter = lab.ipmitool(IPMI_SIM, "chassis bootparam get 5");
        assert!(parameter.contains(seen), "{what}: {parameter}");
        assert_eq!(operator.get(&path)["boot_device"], device, "{what}");
    }
}

fn sensors(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    let sensors = operator.get(&format!("/v1/ferrite/nodes/{node}/sensors")).to_string();
    let ipmitool = lab.ipmitool(IPMI_SIM, "sdr");
    for (name, reading, as_ipmitool) in [
        ("Inlet Temp", "42", "42 degrees C"),
        ("Fan 1", "4500", "4500 RPM"),
        ("12V", "12.03", "12.03 Volts"),
    ] {
        assert!(ipmitool.contains(as_ipmitool), "{ipmitool}");
        assert!(sensors.contains(name) && sensors.contains(reading), "{name}: {sensors}");
    }
}

/// IPMI has one indicator, the chassis identify light.
fn identify(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    let path = format!("/v1/nodes/{node}/management/indicators");
    let indicators = operator.get(&path);
    let Some(first) = indicators["indicators"].as_array().and_then(|all| all.first()) else {
        panic!("no indicator in {indicators}");
    };
    let name = text(&first["name"]).to_owned();
    operator.expect(204, "PUT", &format!("{path}/{name}"), Some(&json!({ "state": "on" })));
    assert!(lab.ipmi_sim_changes().contains("identify 0 1"), "{}", lab.ipmi_sim_changes());
    operator.expect(204, "PUT", &format!("{path}/{name}"), Some(&json!({ "state": "off" })));
    assert!(lab.ipmi_sim_changes().contains("identify 0 0"), "{}", lab.ipmi_sim_changes());
}

fn vendor(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    let passthru = |method: &str| format!("/v1/nodes/{node}/vendor_passthru?method={method}");
    let changes = || lab.ipmi_sim_changes().matches("identify 7 0").count();
    let before = changes();
    // Chassis identify for seven seconds as raw bytes.
    let raw = json!({ "raw_bytes": "0x00 0x04 0x07" });
    operator.expect(202, "POST", &passthru("send_raw"), Some(&raw));
    operator.wait_until(node, "sent", |_| changes() > before);

    let resets = || lab.ipmi_sim_messages().matches("netfn=0x6 cmd=0x2 ").count();
    let before = resets();
    operator.expect(202, "POST", &passthru("bmc_reset"), Some(&json!({ "warm": "false" })));
    operator.wait_until(node, "reset", |_| resets() > before);

    // This BMC has no warm reset, which last_error states.
    operator.expect(202, "POST", &passthru("bmc_reset"), Some(&json!({ "warm": "true" })));
    operator.wait_until(node, "refused", |node| {
        node["last_error"]
            .as_str()
            .is_some_and(|error| error.contains("0x03: the BMC does not know this command"))
    });
}

fn power_and_console(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    operator.power(node, "power on", "power on");
    assert_eq!(lab.power(IPMI_SIM), "running");
    console(operator, node);
    let before = lab.virsh(&["domid", IPMI_SIM]);
    operator.power(node, "rebooting", "power on");
    assert_ne!(lab.virsh(&["domid", IPMI_SIM]), before, "the machine was powered off in between");
    assert!(lab.ipmitool(IPMI_SIM, "power status").contains("is on"));
    operator.power(node, "power off", "power off");
    assert_eq!(lab.power(IPMI_SIM), "shut off");
    assert!(lab.ipmitool(IPMI_SIM, "power status").contains("is off"));
}

/// The firmware starts a UEFI shell, whose `ver` command is run over the serial console.
fn console(operator: &mut ApiOperator, node: &str) {
    let path = format!("/v1/nodes/{node}/states/console");
    operator.expect(202, "PUT", &path, Some(&json!({ "enabled": true })));
    operator.wait_until(node, "with its console on", |node| node["console_enabled"] == true);
    let console = operator.get(&path);
    let url = text(&console["console_info"]["url"]);
    let address = url.strip_prefix("tcp://").unwrap_or_else(|| panic!("{console}"));
    let mut line = TcpStream::connect(address).unwrap();
    line.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut seen = Vec::new();
    loop {
        let mut bytes = [0; 4096];
        match line.read(&mut bytes) {
            Ok(0) => panic!("the console closed after {}", String::from_utf8_lossy(&seen)),
            Ok(read) => seen.extend_from_slice(&bytes[..read]),
            // Read timeout: the shell may be waiting, or the command was sent too early.
            Err(_) => line.write_all(b"\r\nver\r\n").unwrap(),
        }
        let text = String::from_utf8_lossy(&seen);
        if text.contains("UEFI Interactive Shell v") {
            break;
        }
        assert!(Instant::now() < deadline, "no response of the shell: {text}");
    }
    drop(line);
    operator.expect(202, "PUT", &path, Some(&json!({ "enabled": false })));
    operator.wait_until(node, "with its console off", |node| {
        node["console_enabled"] == Value::Bool(false)
    });
}
