// SPDX-License-Identifier: Apache-2.0
//! Rules for the spec and the name of a host.

use expect_test::expect;
use serde_json::json;

use super::*;

const MAC: &str = "00:53:00:12:34:56";

#[test]
fn common_hosts_are_valid() {
    valid(json!({}));
    valid(json!({"bmc": null}));
    valid(json!({"bmc": {"address": "", "credentialsName": ""}}));
    valid(json!({"bootMACAddress": MAC, "bootMode": "UEFISecureBoot"}));
    valid(json!({"online": false, "description": "rack 7"}));
    valid(json!({"online": true, "disablePowerOff": true}));
}

#[test]
fn names() {
    let errors = |name: &str| {
        let mut host = host_with(json!({}));
        host.metadata.name = Some(name.to_owned());
        messages(&validate_host(&host))
    };
    assert_eq!(errors("Host_0.a-b"), "");
    expect![[r#"
        metadata.name: "host~0" has other characters than [A-Za-z0-9._-]; choose another name
    "#]]
    .assert_eq(&errors("host~0"));
    expect![[r#"
        metadata.name: is a UUID, which a node ID could be; choose another name
    "#]]
    .assert_eq(&errors("11111111-2222-3333-4444-555555555555"));
}

#[test]
fn values_of_other_versions() {
    check(
        json!({"bootMode": "bios", "automatedCleaningMode": "full", "inspectionMode": "fast"}),
        expect![[r#"
            spec.automatedCleaningMode: "full" is not supported; use one of metadata, disabled
            spec.bootMode: "bios" is not supported; use one of UEFI, UEFISecureBoot, legacy
            spec.inspectionMode: "fast" is not supported; use one of disabled, agent
        "#]],
    );
}

#[test]
fn bmc_addresses() {
    let bmc = |address: &str| json!({"bmc": {"address": address, "credentialsName": "x"}});
    valid(bmc("ipmi://192.0.2.1"));
    valid(bmc("192.0.2.1:6230"));
    check(
        bmc("irmc://192.0.2.1"),
        expect![[r#"
            spec.bmc.address: has the unknown scheme "irmc"; use one of ipmi, libvirt, redfish, ilo5-redfish, idrac-redfish, redfish-virtualmedia, ilo5-virtualmedia, idrac-virtualmedia, redfish-uefihttp; all but ipmi and libvirt can be followed by +http or +https
        "#]],
    );
    check(
        bmc("redfish://bmc_1"),
        expect![[r#"
            spec.bmc.address: has the invalid host "bmc_1"; use an IP address, in brackets if it is IPv6, or a DNS name
        "#]],
    );
}

#[test]
fn drivers_and_what_they_support() {
    let ipmi = json!({"address": "ipmi://192.0.2.1", "credentialsName": "x"});
    let raid = json!({"hardwareRAIDVolumes": [{"level": "1"}]});
    valid(json!({"raid": raid}));
    check(
        json!({"bmc": ipmi, "raid": raid}),
        expect![[r#"
            spec.raid.hardwareRAIDVolumes: ipmi BMCs cannot configure hardware RAID; use softwareRAIDVolumes or a Redfish address
        "#]],
    );
    valid(json!({"bmc": ipmi, "raid": {"hardwareRAIDVolumes": []}}));
    valid(json!({"bmc": ipmi, "raid": {"softwareRAIDVolumes": [{"level": "1"}]}}));
    check(
        json!({"bmc": ipmi, "bootMode": "UEFISecureBoot"}),
        expect![[r#"
            spec.bootMode: ipmi BMCs cannot switch Secure Boot; use UEFI, or a Redfish address
        "#]],
    );
}

#[test]
fn boot_mac_addresses() {
    let libvirt = json!({"address": "libvirt://192.0.2.1", "credentialsName": "x"});
    check(
        json!({"bmc": libvirt}),
        expect![[r#"
            spec.bootMACAddress: is missing, and libvirt BMCs need it; set it to the MAC address of the boot NIC
        "#]],
    );
    valid(json!({"bmc": libvirt, "bootMACAddress": MAC}));
    check(
        json!({"inspectionMode": "disabled"}),
        expect![[r#"
            spec.bootMACAddress: is missing, and it cannot be found because inspection is disabled; set it to the MAC address of the boot NIC
        "#]],
    );
    valid(json!({"inspectionMode": "disabled", "bootMACAddress": MAC}));
    check(
        json!({"bootMACAddress": "00:53:00:12:34:56:78"}),
        expect![[r#"
            spec.bootMACAddress: "00:53:00:12:34:56:78" is not a MAC address; use six octets such as 00:53:00:12:34:56
        "#]],
    );
    check(
        json!({"bmc": null, "bootMACAddress": "x00:53:00:12:34:56"}),
        expect![[r#"
            spec.bootMACAddress: "x00:53:00:12:34:56" is not a MAC address; use six octets such as 00:53:00:12:34:56
        "#]],
    );
}

#[test]
fn removed_firmware_settings() {
    check(
        json!({"firmware": {"sriovEnabled": true}}),
        expect![[r#"
            spec.firmware: is no longer supported; remove it and set BIOS settings in a HostFirmwareSettings object
        "#]],
    );
}

#[test]
fn secrets_of_other_namespaces() {
    let own = json!({"name": "s", "namespace": "lab"});
    valid(json!({"userData": own, "networkData": own, "metaData": {"name": "s"}}));
    valid(json!({"userData": {"name": "s", "namespace": ""}}));
    let other = json!({"name": "s", "namespace": "kube-system"});
    check(
        json!({"userData": other, "networkData": other, "metaData": other}),
        expect![[r#"
            spec.userData.namespace: "kube-system" is not the namespace of this object; copy the Secret to lab and remove the field
            spec.networkData.namespace: "kube-system" is not the namespace of this object; copy the Secret to lab and remove the field
            spec.metaData.namespace: "kube-system" is not the namespace of this object; copy the Secret to lab and remove the field
        "#]],
    );
}

#[test]
fn raid_volumes() {
    let hardware = |volumes: Value| json!({"raid": {"hardwareRAIDVolumes": volumes}});
    let software = |volumes: Value| json!({"raid": {"softwareRAIDVolumes": volumes}});
    check(
        json!({"raid": {"hardwareRAIDVolumes": [{"level": "1"}],
            "softwareRAIDVolumes": [{"level": "1"}]}}),
        expect![[r#"
            spec.raid: has both hardwareRAIDVolumes and softwareRAIDVolumes; remove one of them
        "#]],
    );
    valid(json!({"raid": {"hardwareRAIDVolumes": [], "softwareRAIDVolumes": []}}));
    check(
        hardware(json!([{"level": "1", "physicalDisks": ["a", "b"]}])),
        expect![[r#"
            spec.raid.hardwareRAIDVolumes[0].controller: is missing; set it to the controller of physicalDisks
        "#]],
    );
    let disks = json!({"level": "1", "controller": "c", "physicalDisks": ["a", "b"]});
    valid(hardware(json!([disks])));
    let counted = |count: i64| {
        let mut volume = disks.clone();
        volume["numberOfPhysicalDisks"] = json!(count);
        hardware(json!([volume]))
    };
    valid(counted(2));
    check(
        counted(3),
        expect![[r#"
            spec.raid.hardwareRAIDVolumes[0].numberOfPhysicalDisks: is 3, and physicalDisks has 2; remove it or make them equal
        "#]],
    );
    check(
        counted(-1),
        expect![[r#"
            spec.raid.hardwareRAIDVolumes[0].numberOfPhysicalDisks: is -1, and physicalDisks has 2; remove it or make them equal
        "#]],
    );
    valid(hardware(json!([{"level": "1", "numberOfPhysicalDisks": 3}])));
    check(
        hardware(json!([{"level": "1", "name": "a"}, {"level": "1"}, {"level": "1", "name": "a"}])),
        expect![[r#"
            spec.raid.hardwareRAIDVolumes[2].name: "a" is also the name of volume 0; choose another name
        "#]],
    );
    check(
        hardware(json!([{"level": "7"}, {}])),
        expect![[r#"
            spec.raid.hardwareRAIDVolumes[0].level: "7" is not a RAID level; use one of 0, 1, 2, 5, 6, 1+0, 5+0, 6+0
            spec.raid.hardwareRAIDVolumes[1].level: "" is not a RAID level; use one of 0, 1, 2, 5, 6, 1+0, 5+0, 6+0
        "#]],
    );
    valid(software(json!([{"level": "1"}, {"level": "1+0"}])));
    check(
        software(json!([{"level": "0"}, {"level": "5"}])),
        expect![[r#"
            spec.raid.softwareRAIDVolumes[0].level: is "0"; the host boots from this volume, so use 1
            spec.raid.softwareRAIDVolumes[1].level: "5" is not supported by software RAID; use 0, 1 or 1+0
        "#]],
    );
}

#[test]
fn root_device_names() {
    let device = |name: &str| json!({"rootDeviceHints": {"deviceName": name}});
    valid(device("/dev/sda"));
    valid(device("/dev/disk/by-path/pci-0000:01:00.0-scsi-0:2:0:0"));
    valid(json!({"rootDeviceHints": {"wwn": "0x1"}}));
    check(
        device("sda"),
        expect![[r#"
            spec.rootDeviceHints.deviceName: "sda" is not a device; use a path such as /dev/sda or /dev/disk/by-path/…, or another hint such as wwn
        "#]],
    );
    check(
        device("/dev/disk/by-id/x"),
        expect![[r#"
            spec.rootDeviceHints.deviceName: "/dev/disk/by-id/x" is not a device; use a path such as /dev/sda or /dev/disk/by-path/…, or another hint such as wwn
        "#]],
    );
    check(
        device("/dev/"),
        expect![[r#"
            spec.rootDeviceHints.deviceName: "/dev/" is not a device; use a path such as /dev/sda or /dev/disk/by-path/…, or another hint such as wwn
        "#]],
    );
}

#[test]
fn images() {
    let image = |fields: Value| json!({"image": fields});
    valid(image(json!({"url": "http://192.0.2.1/image.qcow2", "checksum": "c"})));
    valid(image(json!({"url": "https://host/i", "checksum": "c", "checksumType": "sha256"})));
    valid(image(json!({"url": "HTTP://host/i", "checksum": "http://host/sums"})));
    valid(image(json!({"url": "http://host/i.iso", "format": "live-iso"})));
    valid(image(json!({"url": "oci://registry/image:1"})));
    check(
        image(json!({"url": "", "checksum": "c"})),
        expect![[r#"
            spec.image.url: is empty; set it to the URL of the file
        "#]],
    );
    check(
        image(json!({"url": "host/image", "checksum": "c"})),
        expect![[r#"
            spec.image.url: "host/image" is not an absolute URL; use one such as https://host/file
        "#]],
    );
    check(
        image(json!({"url": "http://host/a b", "checksum": "c"})),
        expect![[r#"
            spec.image.url: "http://host/a b" is not an absolute URL; use one such as https://host/file
        "#]],
    );
    check(
        image(json!({"url": "http:///i", "checksum": "c"})),
        expect![[r#"
            spec.image.url: "http:///i" has no host; add it after http://
        "#]],
    );
    check(
        image(json!({"url": "file:///i", "checksum": "c"})),
        expect![[r#"
            spec.image.url: has the scheme "file"; use one of http, https, ftp, gopher, oci
        "#]],
    );
    check(
        image(json!({"url": "http://host/i"})),
        expect![[r#"
            spec.image.checksum: is missing; set it to the checksum of the image or the URL of a checksum file
        "#]],
    );
    check(
        image(json!({"url": "oci://registry/i", "checksum": "c"})),
        expect![[r#"
            spec.image.checksum: is not supported for OCI images, which contain checksums; remove it
        "#]],
    );
    check(
        image(
            json!({"url": "http://host/i", "checksum": "c", "checksumType": "crc", "format": "x"}),
        ),
        expect![[r#"
            spec.image.checksumType: "crc" is not supported; use one of md5, sha256, sha512, auto
            spec.image.format: "x" is not supported; use one of raw, qcow2, vdi, vmdk, live-iso
        "#]],
    );
}

#[test]
fn power() {
    check(
        json!({"online": false, "disablePowerOff": true}),
        expect![[r#"
            spec.online: is false while spec.disablePowerOff is true; set online to true or disablePowerOff to false
        "#]],
    );
}

#[test]
fn all_errors_are_returned() {
    let host = host_with(json!({
        "bmc": {"address": "irmc://192.0.2.1", "credentialsName": ""},
        "image": {"url": "x"},
        "online": false,
        "disablePowerOff": true,
    }));
    let paths: Vec<String> = validate_host(&host).into_iter().map(|error| error.path).collect();
    assert_eq!(paths, ["spec.bmc.address", "spec.image.url", "spec.image.checksum", "spec.online"]);
}
