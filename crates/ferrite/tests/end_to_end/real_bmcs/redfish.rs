// SPDX-License-Identifier: Apache-2.0
//! Power, boot devices, virtual media and indicators over Redfish, on a machine behind sushy-emulator.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::api_operator::ApiOperator;
use super::lab::{LabInventory, text};

const MACHINE: &str = "redfish-power";

/// One test, because the parts share the machine.
#[test]
fn operates_a_machine_over_redfish() {
    let Some(lab) = LabInventory::find() else { return };
    let mut operator = ApiOperator::start();
    let node = operator.manage("redfish", lab.redfish_info(MACHINE), Value::Null);
    let shown = operator.node(&node);
    assert_eq!(shown["power_state"], "power off");
    assert_eq!(shown["boot_mode"], "uefi");
    assert_eq!(shown["secure_boot"], false);
    boot_devices(&lab, &mut operator, &node);
    virtual_media(&lab, &mut operator, &node);
    boot_modes(&lab, &mut operator, &node);
    indicators(&lab, &mut operator, &node);
    power(&lab, &mut operator, &node);
}

fn power(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    operator.power(node, "power on", "power on");
    assert_eq!(lab.power(MACHINE), "running");
    // Requesting the current state changes nothing and is not an error.
    operator.power(node, "power on", "power on");
    operator.expect(
        204,
        "PUT",
        &format!("/v1/nodes/{node}/management/inject_nmi"),
        Some(&json!({})),
    );

    let before = lab.virsh(&["domid", MACHINE]);
    operator.power(node, "rebooting", "power on");
    assert_eq!(lab.power(MACHINE), "running");
    assert_ne!(lab.virsh(&["domid", MACHINE]), before, "the machine was powered off in between");

    // No operating system reacts to it.
    let path = format!("/v1/nodes/{node}/states/power");
    let soft = json!({ "target": "soft power off", "timeout": 2 });
    operator.expect(202, "PUT", &path, Some(&soft));
    operator.wait_until(node, "a soft power off that fails", |node| {
        node["target_power_state"].is_null() && !node["last_error"].is_null()
    });
    let shown = operator.node(node);
    assert_eq!(shown["power_state"], "power on");
    let error = text(&shown["last_error"]);
    assert!(error.contains("soft power off") || error.contains("shut down"), "{error}");
    assert_eq!(lab.power(MACHINE), "running");

    operator.power(node, "power off", "power off");
    assert_eq!(lab.power(MACHINE), "shut off");
}

fn boot_devices(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    let path = format!("/v1/nodes/{node}/management/boot_device");
    let supported = operator.get(&format!("{path}/supported"));
    let supported = supported["supported_boot_devices"].as_array().unwrap();
    for (device, target, first) in
        [("pxe", "Pxe", "<interface type='user'>"), ("disk", "Hdd", "device='disk'")]
    {
        assert!(supported.contains(&json!(device)), "{supported:?}");
        let requested = json!({ "boot_device": device, "persistent": true });
        operator.expect(204, "PUT", &path, Some(&requested));
        assert_eq!(operator.get(&path), requested);
        let boot = &lab.resource(&lab.system(MACHINE))["Boot"];
        assert_eq!(boot["BootSourceOverrideTarget"], target);
        assert_eq!(boot["BootSourceOverrideEnabled"], "Continuous");
        let definition = lab.definition(MACHINE);
        let order = definition.find("<boot order='1'/>").unwrap();
        let device = definition.find(first).unwrap();
        assert!(device < order && !definition[device + 1..order].contains("<boot"), "{definition}");
    }
    let invalid = json!({ "boot_device": "floppy-drive-9" });
    let response = operator.expect(400, "PUT", &path, Some(&invalid));
    assert!(response.text().contains("floppy-drive-9"), "{}", response.text());
}

fn virtual_media(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    let path = format!("/v1/nodes/{node}/vmedia");
    let boot_device = format!("/v1/nodes/{node}/management/boot_device");
    // Without media this BMC has no CD drive.
    let from_cd = json!({ "boot_device": "cdrom", "persistent": false });
    let rejected = operator.send("PUT", &boot_device, Some(&from_cd));
    assert!(rejected.status >= 400, "{}", rejected.status);

    let image = format!("{}/image.iso", serve(b"test image"));
    let insert =
        json!({ "device_type": "cdrom", "image_url": image, "image_download_source": "http" });
    operator.expect(204, "POST", &path, Some(&insert));
    let holds_image = |lab: &LabInventory| lab.definition(MACHINE).contains("device='cdrom'");
    operator.wait_until(node, "holding the image", |_| holds_image(lab));
    let slots = operator.get(&path);
    assert!(slots.to_string().contains(&image), "{slots}");
    let drive = lab.resource(&format!("{}/VirtualMedia/Cd", lab.system(MACHINE)));
    assert_eq!(drive["Image"], image);

    operator.expect(204, "PUT", &boot_device, Some(&from_cd));
    assert_eq!(operator.get(&boot_device)["boot_device"], "cdrom");
    let definition = lab.definition(MACHINE);
    let cdrom = definition.split("device='cdrom'").nth(1).unwrap();
    assert!(cdrom.split("</disk>").next().unwrap().contains("<boot order='1'/>"), "{definition}");

    operator.expect(204, "DELETE", &format!("{path}?device_types=cdrom"), None);
    operator.wait_until(node, "empty again", |_| !holds_image(lab));
    let slots = operator.get(&path);
    assert!(!slots.to_string().contains(&image), "{slots}");
}

fn boot_modes(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    for (path, target, field, wanted, in_definition) in [
        ("boot_mode", json!("bios"), "boot_mode", json!("bios"), "type='rom'"),
        ("boot_mode", json!("uefi"), "boot_mode", json!("uefi"), "type='pflash'"),
        ("secure_boot", json!(true), "secure_boot", json!(true), "OVMF_VARS_4M.ms.fd"),
        ("secure_boot", json!(false), "secure_boot", json!(false), "OVMF_VARS_4M.fd"),
    ] {
        let path = format!("/v1/nodes/{node}/states/{path}");
        operator.expect(202, "PUT", &path, Some(&json!({ "target": target })));
        operator.wait_until(node, &path, |node| node[field] == wanted);
        let definition = lab.definition(MACHINE);
        assert!(definition.contains(in_definition), "{path} {target}: {definition}");
    }
}

fn indicators(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    let path = format!("/v1/nodes/{node}/management/indicators");
    let indicators = operator.get(&path);
    let name = indicators["indicators"]
        .as_array()
        .unwrap()
        .iter()
        .map(|indicator| text(&indicator["name"]))
        .find(|name| name.ends_with("@system"))
        .unwrap_or_else(|| panic!("no system indicator in {indicators}"))
        .to_owned();
    for (state, led) in [("blinking", "Blinking"), ("off", "Off"), ("on", "Lit")] {
        operator.expect(204, "PUT", &format!("{path}/{name}"), Some(&json!({ "state": state })));
        assert_eq!(operator.get(&format!("{path}/{name}"))["state"], state);
        assert_eq!(lab.resource(&lab.system(MACHINE))["IndicatorLED"], led);
    }
}

/// Serves bytes under every path until the test ends; returns the base URL.
fn serve(content: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut request = [0; 4096];
            let read = connection.read(&mut request).unwrap_or(0);
            let length = content.len();
            let mut response = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\
                 Content-Type: application/octet-stream\r\nConnection: close\r\n\r\n"
            )
            .into_bytes();
            if !request[..read].starts_with(b"HEAD") {
                response.extend_from_slice(content);
            }
            // The client may have disconnected.
            let _disconnected = connection.write_all(&response);
        }
    });
    url
}
