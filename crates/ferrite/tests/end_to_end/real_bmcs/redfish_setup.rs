// SPDX-License-Identifier: Apache-2.0
//! BIOS settings, RAID, firmware and inspection over Redfish, on a machine behind sushy-emulator.

use serde_json::{Value, json};

use super::api_operator::ApiOperator;
use super::lab::{LabInventory, text};

const MACHINE: &str = "redfish-settings";

/// One test, because the parts share the machine.
#[test]
fn configures_a_machine_over_redfish() {
    let Some(lab) = LabInventory::find() else { return };
    let mut operator = ApiOperator::start();
    let interfaces = json!({
        "bios_interface": "redfish",
        "raid_interface": "redfish",
        "firmware_interface": "redfish",
        "inspect_interface": "redfish",
    });
    let node = operator.manage("redfish", lab.redfish_info(MACHINE), interfaces);
    inspection(&lab, &mut operator, &node);
    bios(&lab, &mut operator, &node);
    firmware(&lab, &mut operator, &node);
    raid(&lab, &mut operator, &node);
}

fn inspection(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    operator.provision(node, json!({ "target": "inspect" }), "manageable");
    let shown = operator.node(node);
    assert_eq!(shown["last_error"], Value::Null);
    let properties = &shown["properties"];
    assert_eq!(properties["cpu_arch"], "x86_64", "{properties}");
    assert_eq!(properties["vendor"], "Sushy Emulator", "{properties}");
    assert!(text(&properties["capabilities"]).contains("boot_mode:uefi"), "{properties}");
    let ports = operator.get(&format!("/v1/nodes/{node}/ports"));
    let addresses: Vec<&str> =
        ports["ports"].as_array().unwrap().iter().map(|port| text(&port["address"])).collect();
    assert_eq!(addresses, [lab.mac(MACHINE)]);
    let inventory = operator.get(&format!("/v1/nodes/{node}/inventory"));
    let interfaces = &inventory["inventory"]["interfaces"];
    assert!(interfaces.to_string().contains(lab.mac(MACHINE)), "{interfaces}");
}

fn bios(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    const SETTING: &str = "ProcTurboMode";
    let setting = format!("/v1/nodes/{node}/bios/{SETTING}");
    let bmc_value =
        || lab.resource(&format!("{}/BIOS", lab.system(MACHINE)))["Attributes"][SETTING].clone();
    let all = operator.get(&format!("/v1/nodes/{node}/bios"));
    assert!(all["bios"].as_array().unwrap().len() >= 10, "{all}");
    let before = operator.get(&setting)[SETTING]["value"].clone();
    assert_eq!(before, bmc_value());
    assert_ne!(before, "Disabled");
    operator.clean(
        node,
        json!([{
            "interface": "bios",
            "step": "apply_configuration",
            "args": { "settings": [{ "name": SETTING, "value": "Disabled" }] },
        }]),
    );
    assert_eq!(bmc_value(), "Disabled");
    assert_eq!(operator.get(&setting)[SETTING]["value"], "Disabled");
    operator.clean(node, json!([{ "interface": "bios", "step": "factory_reset" }]));
    assert_eq!(bmc_value(), before);
    assert_eq!(operator.get(&setting)[SETTING]["value"], before);
}

fn firmware(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    let path = format!("/v1/nodes/{node}/firmware");
    let version = |components: &Value, field: &str| {
        let components = components["firmware"].as_array().unwrap();
        let bios = components.iter().find(|component| component["component"] == "bios");
        bios.unwrap_or_else(|| panic!("no bios in {components:?}"))[field].clone()
    };
    let before = operator.get(&path);
    let bmc_value = || lab.resource(&lab.system(MACHINE))["BiosVersion"].clone();
    assert_eq!(version(&before, "current_version"), bmc_value());
    // The emulator does not download it.
    let update = json!({ "component": "bios", "url": "http://127.0.0.1/bios-1.1.0.exe" });
    operator.clean(
        node,
        json!([{ "interface": "firmware", "step": "update", "args": { "settings": [update] } }]),
    );
    let after = operator.get(&path);
    assert_ne!(version(&after, "current_version"), version(&before, "current_version"));
    assert_eq!(version(&after, "current_version"), bmc_value());
    assert_eq!(version(&after, "initial_version"), version(&before, "current_version"));
}

fn raid(lab: &LabInventory, operator: &mut ApiOperator, node: &str) {
    let volumes = format!("{}/Storage/1/Volumes", lab.system(MACHINE));
    let count = || lab.resource(&volumes)["Members"].as_array().unwrap().len();
    let before = count();
    let target = json!({ "logical_disks": [{
        "size_gb": 2, "raid_level": "1", "controller": "Contoso Integrated RAID",
        "is_root_volume": true,
    }] });
    operator.expect(204, "PUT", &format!("/v1/nodes/{node}/states/raid"), Some(&target));
    operator.clean(
        node,
        json!([{
            "interface": "raid",
            "step": "create_configuration",
            "args": { "delete_existing": false },
        }]),
    );
    assert_eq!(count(), before + 1);
    let created = operator.node(node)["raid_config"].clone();
    let disks = created["logical_disks"].as_array().unwrap();
    assert!(disks.iter().any(|disk| disk["raid_level"] == "1"), "{created}");
}
