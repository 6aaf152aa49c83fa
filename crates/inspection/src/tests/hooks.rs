// SPDX-License-Identifier: Apache-2.0
//! Tests of each hook with the samples.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::{BENCH, InspectionCase, SERVER, inventory_with_serials, object};
use crate::{AddPorts, ExistingProperties, Hook, KeepPorts, ObjectField, PciAlias, PortChange};

fn check(case: &InspectionCase, expect: &Expect) {
    expect.assert_eq(&case.outcome_text());
}

fn server(hooks: &str) -> InspectionCase {
    InspectionCase::new(SERVER, hooks)
}

fn edit(path: &str, value: Value) -> impl FnOnce(&mut InspectionCase) {
    let path = path.to_owned();
    move |case| *case.report.pointer_mut(&path).unwrap() = value
}

#[test]
fn default_hooks_on_the_server() {
    check(
        &server("$default_hooks"),
        &expect![[r#"
        properties/cpu_arch = "x86_64"
        create port 52:54:00:aa:bb:01 pxe=true link={} physical=None extra={} name=None
        Warning: ignored network interface eno3: its MAC address is not valid
        Info: 1 of 3 network interfaces selected
        Info: created port 52:54:00:aa:bb:01 for eno1, which the machine booted from
        Info: set properties/cpu_arch to "x86_64"
    "#]],
    );
}

#[test]
fn default_hooks_on_the_bench_report() {
    check(
        &InspectionCase::new(BENCH, "$default_hooks"),
        &expect![[r#"
        properties/cpu_arch = "x86_64"
        create port 52:54:00:00:00:07 pxe=true link={} physical=None extra={} name=None
        Info: 1 of 4 network interfaces selected
        Info: created port 52:54:00:00:00:07 for eth0, which the machine booted from
        Info: set properties/cpu_arch to "x86_64"
    "#]],
    );
}

#[test]
fn second_inspection_changes_nothing() {
    let mut case = server(
        "$default_hooks,cpus,memory,root-device,boot-mode,cpu-capabilities,local-link-connection",
    );
    let result = case.process().unwrap();
    result.node.apply_to(&mut case.node);
    for change in result.ports {
        let crate::PortChange::Create(port) = change else { panic!("{change:?}") };
        case.ports.push(port.into_port(node_model::PortId::random()));
    }
    let again = case.process().unwrap();
    assert!(again.node.is_empty(), "{:?}", again.node);
    assert_eq!(again.ports, []);
    assert_eq!(again.plugin_data, result.plugin_data);
}

#[test]
fn fails_if_the_ramdisk_reported_an_error() {
    let case = server("ramdisk-error,validate-interfaces")
        .with(edit("/error", json!("no disks")))
        .with(edit("/inventory/interfaces", json!([{"mac_address": "x"}])));
    check(
        &case,
        &expect![[r#"
        failed: inspection data of node 00000000-0000-0000-0000-000000000001 was refused: ramdisk-error: the ramdisk reported: no disks; validate-interfaces: no network interface has a name and a valid MAC address
    "#]],
    );
    for quiet in [json!(null), json!(""), json!(false)] {
        assert!(server("ramdisk-error").with(edit("/error", quiet)).process().is_ok());
    }
}

#[test]
fn selects_interfaces_by_add_ports() {
    for (add_ports, valid) in [
        (AddPorts::All, json!(["52:54:00:AA:BB:01", "52:54:00:aa:bb:02"])),
        (AddPorts::Disabled, json!(["52:54:00:AA:BB:01", "52:54:00:aa:bb:02"])),
        (AddPorts::Active, json!(["52:54:00:AA:BB:01"])),
        (AddPorts::Pxe, json!(["52:54:00:AA:BB:01"])),
    ] {
        let case = server("validate-interfaces").with(|case| case.settings.add_ports = add_ports);
        let plugin_data = case.process().unwrap().plugin_data.parse();
        assert_eq!(plugin_data["macs"], valid, "{add_ports:?}");
        assert_eq!(plugin_data["all_interfaces"].as_object().unwrap().len(), 3);
        assert_eq!(plugin_data["all_interfaces"]["eno1"]["pxe_enabled"], true);
        assert_eq!(plugin_data["all_interfaces"]["eno1"]["ipv6_address"], "fe80::1");
    }
    check(
        &server("validate-interfaces")
            .with(edit("/inventory/boot/pxe_interface", json!("01-00-00-00-00-00-09"))),
        &expect![[r#"
            failed: inspection data of node 00000000-0000-0000-0000-000000000001 was refused: validate-interfaces: no network interface is left with add_ports = pxe; try add_ports = all
        "#]],
    );
    check(
        &server("validate-interfaces").with(edit("/inventory/boot", json!(null))),
        &expect![[r#"
        Warning: ignored network interface eno3: its MAC address is not valid
        Warning: the boot interface is unknown; all interfaces are selected
        Info: 2 of 3 network interfaces selected
    "#]],
    );
}

#[test]
fn creates_updates_and_deletes_ports() {
    let existing = || {
        server("validate-interfaces,ports")
            .port(11, "52:54:00:aa:bb:01")
            .port(12, "52:54:00:aa:bb:02")
            .port(13, "52:54:00:aa:bb:99")
    };
    check(
        &existing(),
        &expect![[r#"
        update port 52:54:00:aa:bb:02 pxe=false link={} physical=None extra={"client-id":"ff:00:01"} name=None
        update port 52:54:00:aa:bb:99 pxe=false link={} physical=None extra={} name=None
        Warning: ignored network interface eno3: its MAC address is not valid
        Info: 1 of 3 network interfaces selected
        Debug: port 52:54:00:aa:bb:01 exists
        Info: set pxe_enabled of port 52:54:00:aa:bb:02 to false
        Info: set the client id of port 52:54:00:aa:bb:02
        Info: set pxe_enabled of port 52:54:00:aa:bb:99 to false
    "#]],
    );
    check(
        &existing().with(|case| {
            case.settings.keep_ports = KeepPorts::Present;
            case.settings.update_pxe_enabled = false;
        }),
        &expect![[r#"
            update port 52:54:00:aa:bb:02 pxe=true link={} physical=None extra={"client-id":"ff:00:01"} name=None
            delete port 52:54:00:aa:bb:99
            Warning: ignored network interface eno3: its MAC address is not valid
            Info: 1 of 3 network interfaces selected
            Debug: port 52:54:00:aa:bb:01 exists
            Info: set the client id of port 52:54:00:aa:bb:02
            Info: deleted port 52:54:00:aa:bb:99, which keep_ports = present does not keep
        "#]],
    );
    check(
        &existing().with(|case| case.settings.keep_ports = KeepPorts::Added),
        &expect![[r#"
            delete port 52:54:00:aa:bb:02
            delete port 52:54:00:aa:bb:99
            Warning: ignored network interface eno3: its MAC address is not valid
            Info: 1 of 3 network interfaces selected
            Debug: port 52:54:00:aa:bb:01 exists
            Info: deleted port 52:54:00:aa:bb:02, which keep_ports = added does not keep
            Info: deleted port 52:54:00:aa:bb:99, which keep_ports = added does not keep
        "#]],
    );
    check(
        &server("validate-interfaces,ports").with(|case| case.settings.add_ports = AddPorts::All),
        &expect![[r#"
            create port 52:54:00:aa:bb:01 pxe=true link={} physical=None extra={} name=None
            create port 52:54:00:aa:bb:02 pxe=false link={} physical=None extra={"client-id":"ff:00:01"} name=None
            Warning: ignored network interface eno3: its MAC address is not valid
            Info: 2 of 3 network interfaces selected
            Info: created port 52:54:00:aa:bb:01 for eno1, which the machine booted from
            Info: created port 52:54:00:aa:bb:02 for eno2
        "#]],
    );
    check(
        &server("validate-interfaces,ports")
            .with(|case| case.settings.add_ports = AddPorts::Disabled),
        &expect![[r#"
            Warning: ignored network interface eno3: its MAC address is not valid
            Info: 2 of 3 network interfaces selected
        "#]],
    );
}

#[test]
fn sets_cpu_memory_and_boot_mode() {
    let hooks = "architecture,cpus,memory,boot-mode,cpu-capabilities";
    check(
        &server(hooks),
        &expect![[r#"
        properties/capabilities = "boot_mode:uefi,cpu_vt:true,cpu_aes:true"
        properties/cpu_arch = "x86_64"
        properties/cpus = 64
        properties/memory_mb = 131072
        Info: set properties/cpu_arch to "x86_64"
        Info: set properties/cpus to 64
        Info: set properties/memory_mb to 131072
        Info: set capabilities boot_mode:uefi
        Info: set capabilities cpu_vt:true,cpu_aes:true
    "#]],
    );
    let known = || {
        server(hooks)
            .properties(json!({"cpus": 2, "memory_mb": 1, "capabilities": "boot_mode:bios,a:b"}))
    };
    check(
        &known().with(|case| case.settings.existing_properties = ExistingProperties::Overwrite),
        &expect![[r#"
        properties/capabilities = "boot_mode:uefi,a:b,cpu_vt:true,cpu_aes:true"
        properties/cpu_arch = "x86_64"
        properties/cpus = 64
        properties/memory_mb = 131072
        Info: set properties/cpu_arch to "x86_64"
        Info: set properties/cpus to 64
        Info: set properties/memory_mb to 131072
        Info: set capabilities boot_mode:uefi
        Info: set capabilities cpu_vt:true,cpu_aes:true
    "#]],
    );
    check(
        &known(),
        &expect![[r#"
            properties/capabilities = "boot_mode:bios,a:b,cpu_vt:true,cpu_aes:true"
            properties/cpu_arch = "x86_64"
            Info: set properties/cpu_arch to "x86_64"
            Warning: kept properties/cpus = 2; the ramdisk has 64
            Warning: kept properties/memory_mb = 1; the ramdisk has 131072
            Warning: kept capability boot_mode:bios; the ramdisk has uefi
            Info: set capabilities cpu_vt:true,cpu_aes:true
        "#]],
    );
    check(
        &server("boot-mode").properties(json!({"capabilities": "nonsense"})),
        &expect![[r#"
        failed: inspection hook boot-mode failed for node 00000000-0000-0000-0000-000000000001: the node's capabilities cannot be read: capability "nonsense" has no value; write it as name:value in properties/capabilities
    "#]],
    );
    check(
        &server("architecture").with(edit("/inventory/cpu", json!({}))),
        &expect![[r#"
        failed: inspection hook architecture failed for node 00000000-0000-0000-0000-000000000001: the inventory has no usable CPU architecture (cpu.architecture)
    "#]],
    );
    check(
        &server("memory").with(edit("/inventory/memory", json!("lots"))),
        &expect![[r#"
        failed: inspection hook memory failed for node 00000000-0000-0000-0000-000000000001: the inventory has no usable memory size (memory.physical_mb)
    "#]],
    );
    check(
        &server("cpus,boot-mode,cpu-capabilities")
            .with(edit("/inventory/cpu", json!(7)))
            .with(edit("/inventory/boot", json!([]))),
        &expect![[r#"
            Warning: the inventory has no CPU count
            Warning: the inventory has no boot mode
            Warning: the inventory has no CPU flags
        "#]],
    );
}

#[test]
fn sets_root_disk_and_local_gb() {
    check(
        &server("root-device"),
        &expect![[r#"
        properties/local_gb = 446
        Info: set properties/local_gb to 446
    "#]],
    );
    check(
        &server("root-device").with(|case| case.settings.disk_partitioning_spacing = false),
        &expect![[r#"
            properties/local_gb = 447
            Info: set properties/local_gb to 447
        "#]],
    );
    check(
        &server("root-device").properties(json!({"root_device": {"rotational": true}})),
        &expect![[r#"
        properties/local_gb = 3725
        Info: /dev/sdb matches properties/root_device
        Info: set properties/local_gb to 3725
    "#]],
    );
    check(
        &server("root-device").properties(json!({
            "root_device": {"vendor": "ata"},
            "skip_block_devices": [{"name": "/dev/sda"}, {"volume_name": "keep"}],
        })),
        &expect![[r#"
            properties/local_gb = 3725
            Info: /dev/sdb matches properties/root_device
            Info: set properties/local_gb to 3725
        "#]],
    );
    check(
        &server("root-device").properties(json!({"root_device": {"serial": "other"}})),
        &expect![[r#"
        failed: inspection hook root-device failed for node 00000000-0000-0000-0000-000000000001: none of 2 disks matches properties/root_device; correct the hints or the disks
    "#]],
    );
    check(
        &server("root-device").properties(json!({"root_device": {"size": "huge"}})),
        &expect![[r#"
        failed: inspection hook root-device failed for node 00000000-0000-0000-0000-000000000001: the node's properties/root_device cannot be used: the root device hint size must be a value, or an operator and values of its type
    "#]],
    );
    check(
        &server("root-device").with(edit("/root_disk", json!(null))),
        &expect![[r#"
        properties/local_gb = 0
        Warning: no root disk found; the machine is treated as diskless
        Info: set properties/local_gb to 0
    "#]],
    );
    check(
        &server("root-device").with(edit("/root_disk/size", json!(1000))),
        &expect![[r#"
        properties/local_gb = 0
        Warning: the root disk is smaller than 1 GiB, or its size is unknown
        Info: set properties/local_gb to 0
    "#]],
    );
}

#[test]
fn sets_root_device_to_the_only_new_disk() {
    check(
        &server("raid-device"),
        &expect![[r#"
        Info: no earlier inventory to compare disks with; inspect again after creating the volume
    "#]],
    );
    for (before, expect) in [
        (
            &["ZC1"][..],
            expect![[r#"
            properties/root_device = {"serial":"PHYF"}
            Info: set properties/root_device to {"serial":"PHYF"}
        "#]],
        ),
        (
            &["PHYF", "ZC1"],
            expect![[r#"
            Warning: no disk is new since the last inspection
        "#]],
        ),
        (
            &[],
            expect![[r#"
            Warning: 2 disks are new, so the root disk cannot be determined
        "#]],
        ),
    ] {
        check(
            &server("raid-device")
                .with(|case| case.previous = Some(inventory_with_serials(before))),
            &expect,
        );
    }
    let known = server("raid-device")
        .properties(json!({"root_device": {}}))
        .with(|case| case.previous = Some(inventory_with_serials(&["ZC1"])));
    assert!(known.process().unwrap().node.is_empty());
}

#[test]
fn sets_accelerators_and_pci_device_counts() {
    let alias = |product_id: &str, name: &str| PciAlias {
        vendor_id: "10de".to_owned(),
        product_id: product_id.to_owned(),
        name: name.to_owned(),
    };
    let aliases = vec![alias("1eb8", "t4"), alias("ffff", "none")];
    check(
        &server("accelerators,pci-devices")
            .with(|case| case.settings.pci_device_alias = aliases.clone()),
        &expect![[r#"
            properties/accelerators = [{"device_id":"1eb8","device_info":"NVIDIA Corporation Tesla T4","pci_address":"0000:3b:00.0","type":"GPU","vendor_id":"10de"},{"device_id":"1eb8","device_info":"NVIDIA Corporation Tesla T4","pci_address":"0000:5e:00.0","type":"GPU","vendor_id":"10de"}]
            properties/capabilities = "t4:2"
            Info: set properties/accelerators to [{"device_id":"1eb8","device_info":"NVIDIA Corporation Tesla T4","pci_address":"0000:3b:00.0","type":"GPU","vendor_id":"10de"},{"device_id":"1eb8","device_info":"NVIDIA Corporation Tesla T4","pci_address":"0000:5e:00.0","type":"GPU","vendor_id":"10de"}]
            Info: set capabilities t4:2
        "#]],
    );
    check(
        &server("accelerators,pci-devices")
            .with(edit("/pci_devices", json!([{"bus": 1}, 7])))
            .with(|case| case.settings.pci_device_alias = aliases.clone()),
        &expect![[r#"
            properties/accelerators = []
            Info: set properties/accelerators to []
        "#]],
    );
    check(
        &server("accelerators,pci-devices")
            .with(edit("/pci_devices", json!(null)))
            .with(|case| case.settings.pci_device_alias = aliases.clone()),
        &expect![[r#"
            Warning: the ramdisk sent no PCI devices
            Warning: the ramdisk sent no PCI devices
        "#]],
    );
}

#[test]
fn converts_extra_hardware_records() {
    for (data, strict, extra, left) in [
        (
            json!([
                ["cpu", "physical", "number", "2"],
                ["disk", "sda", "size", 480.9],
                ["disk", "sda", "id", "x1"],
                []
            ]),
            false,
            json!({"cpu": {"physical": {"number": 2}}, "disk": {"sda": {"size": 480, "id": "x1"}}}),
            json!(null),
        ),
        (
            json!([["a", "b"], ["c", "d", "e", true, 9]]),
            false,
            json!({"c": {"d": {"e": true}}}),
            json!(null),
        ),
        (json!([["a", "b"]]), true, json!(null), json!(null)),
        (json!("raw"), false, json!(null), json!("raw")),
        (json!([["a", [], "c", 1]]), false, json!({"a": {}}), json!(null)),
    ] {
        let case = server("extra-hardware")
            .with(edit("/data", data.clone()))
            .with(|case| case.settings.extra_hardware_strict = strict);
        let plugin_data = case.process().unwrap().plugin_data.parse();
        assert_eq!(plugin_data.get("extra").unwrap_or(&Value::Null), &extra, "{data}");
        assert_eq!(plugin_data.get("data").unwrap_or(&Value::Null), &left, "{data}");
    }
}

#[test]
fn keeps_or_overwrites_client_ids() {
    for (existing, known, after) in [
        (ExistingProperties::Keep, json!({}), json!({"client-id": "ff:00:01"})),
        (ExistingProperties::Keep, json!({"client-id": null}), json!({"client-id": "ff:00:01"})),
        (ExistingProperties::Keep, json!({"client-id": "aa"}), json!({"client-id": "aa"})),
        (
            ExistingProperties::Overwrite,
            json!({"client-id": "aa"}),
            json!({"client-id": "ff:00:01"}),
        ),
    ] {
        let case = server("validate-interfaces,ports").port(12, "52:54:00:aa:bb:02").with(|case| {
            case.settings.existing_properties = existing;
            case.ports[0].extra = object(known.clone());
        });
        let result = case.process().unwrap();
        let port = result.ports.iter().find_map(|change| match change {
            PortChange::Update(port) => Some(port),
            PortChange::Create(_) | PortChange::Delete(..) => None,
        });
        let port = port.expect("at least pxe_enabled changes");
        assert_eq!(port.extra, object(after), "{known}");
        let is_kept =
            result.log.iter().any(|entry| entry.text.starts_with("kept the client id of port"));
        assert_eq!(is_kept, existing == ExistingProperties::Keep && known["client-id"] == "aa");
    }
}

#[test]
fn sets_physical_network_and_local_link_connection() {
    let hooks = "validate-interfaces,ports,physical-network,local-link-connection";
    let mapped = |case: &mut InspectionCase| {
        case.settings.physical_network_cidr_map =
            ["10.0.0.0/8:wrong", "172.22.0.0/16:physnet_a", "fe80::/10:physnet_b"]
                .map(|entry| entry.parse().unwrap())
                .to_vec();
    };
    check(
        &server(hooks).with(mapped),
        &expect![[r#"
        create port 52:54:00:aa:bb:01 pxe=true link={"port_id":"Ethernet1/18","switch_id":"88:5a:92:ec:54:59","switch_info":"sw01-dist-1b-b12"} physical=Some("physnet_a") extra={} name=None
        Warning: ignored network interface eno3: its MAC address is not valid
        Info: 1 of 3 network interfaces selected
        Info: created port 52:54:00:aa:bb:01 for eno1, which the machine booted from
        Info: set physical_network of port 52:54:00:aa:bb:01 to physnet_a
        Debug: no LLDP received on lo
        Info: set port_id, switch_id, switch_info of port 52:54:00:aa:bb:01 from LLDP
    "#]],
    );
    let known = server(hooks).port(11, "52:54:00:aa:bb:01").with(|case| {
        case.ports[0].local_link_connection = object(json!({"switch_id": "11:22:33:44:55:66"}));
        case.ports[0].physical_network = Some("physnet_a".to_owned());
    });
    check(
        &known.with(mapped),
        &expect![[r#"
        update port 52:54:00:aa:bb:01 pxe=true link={"port_id":"Ethernet1/18","switch_id":"11:22:33:44:55:66","switch_info":"sw01-dist-1b-b12"} physical=Some("physnet_a") extra={} name=None
        Warning: ignored network interface eno3: its MAC address is not valid
        Info: 1 of 3 network interfaces selected
        Debug: port 52:54:00:aa:bb:01 exists
        Debug: no LLDP received on lo
        Info: set port_id, switch_info of port 52:54:00:aa:bb:01 from LLDP
    "#]],
    );
    // An existing physical network is kept, unless the settings permit overwriting it.
    for (existing, physical, expected_text) in [
        (
            ExistingProperties::Keep,
            "corporate",
            "kept physical_network = corporate of port 52:54:00:aa:bb:01; the ramdisk's address is in",
        ),
        (ExistingProperties::Overwrite, "physnet_a", "set physical_network of port"),
    ] {
        let case = server(hooks).port(11, "52:54:00:aa:bb:01").with(mapped).with(|case| {
            case.settings.existing_properties = existing;
            case.ports[0].physical_network = Some("corporate".to_owned());
        });
        let result = case.process().unwrap();
        let after = result.ports.iter().find_map(|change| match change {
            PortChange::Update(port) => port.physical_network.clone(),
            PortChange::Create(_) | PortChange::Delete(..) => None,
        });
        assert_eq!(after.as_deref(), Some(physical));
        assert!(
            result.log.iter().any(|entry| entry.text.contains(expected_text)),
            "{expected_text}"
        );
    }
    // Data of the LLDP collector have precedence over the inventory.
    let collected = server(hooks).with(|case| {
        case.report["lldp_raw"] = json!({"eno1": [[1, "04aabbccddeeff"]], "eno2": []});
    });
    check(
        &collected,
        &expect![[r#"
        create port 52:54:00:aa:bb:01 pxe=true link={"switch_id":"aa:bb:cc:dd:ee:ff"} physical=None extra={} name=None
        Warning: ignored network interface eno3: its MAC address is not valid
        Info: 1 of 3 network interfaces selected
        Info: created port 52:54:00:aa:bb:01 for eno1, which the machine booted from
        Debug: no LLDP received on lo
        Info: set switch_id of port 52:54:00:aa:bb:01 from LLDP
    "#]],
    );
    check(
        &server(hooks).with(edit("/inventory/interfaces/1/lldp", json!([[2, "05"], [1, "04"]]))),
        &expect![[r#"
            create port 52:54:00:aa:bb:01 pxe=true link={} physical=None extra={} name=None
            Warning: ignored network interface eno3: its MAC address is not valid
            Info: 1 of 3 network interfaces selected
            Info: created port 52:54:00:aa:bb:01 for eno1, which the machine booted from
            Debug: no LLDP received on lo
            Warning: LLDP of eno1 was ignored: the TLV of type 1 has a malformed value
        "#]],
    );
}

#[test]
fn stores_parsed_lldp() {
    let plugin_data = server("parse-lldp").process().unwrap().plugin_data.parse();
    assert_eq!(
        plugin_data["parsed_lldp"],
        json!({"eno1": {
            "switch_chassis_id": "88:5a:92:ec:54:59",
            "switch_port_id": "Ethernet1/18",
            "switch_system_name": "sw01-dist-1b-b12",
        }})
    );
}

#[test]
fn stores_inventory_and_plugin_data() {
    let result = server("ramdisk-error").process().unwrap();
    assert_eq!(Value::from(result.inventory.parse()), server("").report["inventory"]);
    let mut rest = server("").report;
    rest.as_object_mut().unwrap().retain(|key, _| key != "inventory" && key != "logs");
    assert_eq!(Value::from(result.plugin_data.parse()), rest);
}

#[test]
fn all_hooks_together_are_deterministic() {
    let all: Vec<&str> = Hook::all().map(Hook::as_str).collect();
    for sample in [SERVER, BENCH] {
        let case = InspectionCase::new(sample, &all.join(","));
        let result = case.process().unwrap();
        assert_eq!(result, case.process().unwrap());
        assert!(result.node.objects.contains_key(&ObjectField::Properties));
    }
}

#[test]
fn updates_derived_values_but_keeps_values_set_by_an_operator() {
    let mut case = server("cpus,memory,boot-mode");
    let first = case.process().unwrap();
    first.node.apply_to(&mut case.node);
    case.node.properties.edit(|properties| {
        properties.insert("memory_mb".to_owned(), json!(7));
    });
    case.previous = Some(node_model::Inventory {
        node_id: case.node.id,
        created_at: super::NOW,
        inventory: first.inventory,
        plugin_data: first.plugin_data,
        derived: first.derived,
    });
    let case = case
        .with(edit("/inventory/cpu/count", json!(128)))
        .with(edit("/inventory/memory/physical_mb", json!(262_144)))
        .with(edit("/inventory/boot/current_boot_mode", json!("bios")));
    check(
        &case,
        &expect![[r#"
            properties/capabilities = "boot_mode:bios"
            properties/cpus = 128
            Info: set properties/cpus to 128
            Warning: kept properties/memory_mb = 7; the ramdisk has 262144
            Info: set capabilities boot_mode:bios
        "#]],
    );
}
