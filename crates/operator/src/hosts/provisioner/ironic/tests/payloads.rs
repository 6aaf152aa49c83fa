// SPDX-License-Identifier: Apache-2.0
//! Bodies of requests, for every kind of registration, preparation and deployment.

use std::collections::{BTreeMap, BTreeSet};

use kube_resources::hosts::annotations::HostRebootMode;
use kube_resources::hosts::bare_metal_host::HostBootMode;
use kube_resources::hosts::preprovisioning_image::RamdiskFormat;
use serde_json::{Value, json};

use super::super::IronicProvisionerSettings;
use super::recording::{RecordedService, fixture, show, with_settings};
use crate::hosts::provisioner::{
    AbortScope, BmcAddressCheck, BmcEventRequest, FirmwareChanges, HostDeployRequest,
    HostProvisioner, InspectionRequest, PowerOffRequest, PreparationRequest, PullSecret,
    RegistrationRequest, ServicingRequest, VerbStop,
};

fn settings(variables: &[(&str, &str)], is_built_per_host: bool) -> IronicProvisionerSettings {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    IronicProvisionerSettings::from_variables(variables, is_built_per_host).unwrap()
}

async fn register(service: &RecordedService, request: &RegistrationRequest) -> String {
    show(&service.provisioner.register(&service.host, request).await.node_id)
}

fn manageable() -> Option<Value> {
    Some(json!({"provision_state": "manageable"}))
}

#[tokio::test]
async fn a_bmc_with_ipv6_gets_images_from_its_url() {
    let url = "http://[2001:db8::1]:6180";
    let configured = || settings(&[("IRONIC_EXTERNAL_URL_V6", url)], false);
    for (address, is_v6) in [
        ("redfish-virtualmedia://[2001:db8::7]/redfish/v1/Systems/1", true),
        ("redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/1", false),
    ] {
        let mut service = with_settings(None, &[], configured());
        service.set_address(address);
        assert_eq!(
            register(&service, &RegistrationRequest::default()).await,
            "started verifying the BMC"
        );
        let info = &service.body("POST /v1/nodes")["driver_info"];
        assert_eq!(info.get("external_http_url"), is_v6.then_some(&json!(url)), "{address}");
    }
    // An address that changed from IPv6 to IPv4, and the reverse.
    let node = |external: Value| {
        let mut node = json!({"provision_state": "manageable", "driver_info": {
            "redfish_address": "https://192.0.2.1", "redfish_username": "admin",
            "redfish_system_id": "/redfish/v1/Systems/1"}});
        if !external.is_null() {
            node["driver_info"]["external_http_url"] = external;
        }
        Some(node)
    };
    let service = with_settings(node(json!(url)), &[], configured());
    assert_eq!(register(&service, &RegistrationRequest::default()).await, "done");
    assert_eq!(service.patched(), json!({"driver_info/external_http_url": null}));
    let mut service = with_settings(node(json!(null)), &[], configured());
    service.set_address("redfish-virtualmedia://[2001:db8::7]/redfish/v1/Systems/1");
    assert_eq!(register(&service, &RegistrationRequest::default()).await, "done");
    assert_eq!(
        service.patched(),
        json!({"driver_info/redfish_address": "https://[2001:db8::7]",
            "driver_info/redfish_password": "secret", "driver_info/external_http_url": url})
    );
    // Without the setting, the field belongs to the user.
    let service = fixture(node(json!("http://mine")), &[]);
    assert_eq!(register(&service, &RegistrationRequest::default()).await, "done");
    assert!(service.changes().is_empty());
}

#[tokio::test]
async fn the_ramdisk_depends_on_the_architecture() {
    let configured = || {
        settings(
            &[
                ("DEPLOY_KERNEL_URL", "http://k/x86"),
                ("DEPLOY_RAMDISK_URL", "http://r/x86"),
                ("DEPLOY_KERNEL_BY_ARCH", "aarch64:http://k/arm"),
                ("DEPLOY_RAMDISK_BY_ARCH", "aarch64:http://r/arm"),
            ],
            false,
        )
    };
    let inspected = json!({"provision_state": "manageable",
        "properties": {"capabilities": "boot_mode:uefi", "cpu_arch": "aarch64"}});
    for (node, requested, expected) in [
        (manageable(), None, "x86"),
        (manageable(), Some("aarch64"), "arm"),
        (Some(inspected.clone()), None, "arm"),
        (Some(inspected), Some("x86_64"), "x86"),
    ] {
        let service = with_settings(node, &[], configured());
        let request = RegistrationRequest {
            architecture: requested.map(str::to_owned),
            ..RegistrationRequest::default()
        };
        assert_eq!(register(&service, &request).await, "done");
        let patched = service.patched();
        assert_eq!(patched["driver_info/deploy_kernel"], json!(format!("http://k/{expected}")));
        assert_eq!(patched["driver_info/deploy_ramdisk"], json!(format!("http://r/{expected}")));
    }
}

#[tokio::test]
async fn a_built_ramdisk_is_waited_for_and_used() {
    let kernel = ("DEPLOY_KERNEL_URL", "http://k");
    let network = json!({"links": []}).as_object().cloned();
    let request_with = |ramdisk: Option<Value>| RegistrationRequest {
        needs_ramdisk: true,
        ramdisk: ramdisk.map(|status| serde_json::from_value(status).unwrap()),
        ramdisk_network_data: network.clone(),
        ..RegistrationRequest::default()
    };
    let iso = || Some(json!({"imageUrl": "http://iso", "format": "iso"}));
    let initrd = || {
        Some(json!({"imageUrl": "http://initrd", "format": "initrd", "extraKernelParams": "a=b"}))
    };
    let virtual_media = "redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/1";
    let network_boot = "redfish://192.0.2.1/redfish/v1/Systems/1";
    for (address, ramdisk, outcome, patched) in [
        (virtual_media, None, "waiting for the ramdisk image", None),
        (virtual_media, iso(), "done", Some(json!({"driver_info/deploy_iso": "http://iso"}))),
        (network_boot, iso(), "waiting for the ramdisk image", None),
        (
            network_boot,
            initrd(),
            "done",
            Some(json!({"driver_info/deploy_kernel": "http://k",
                "driver_info/deploy_ramdisk": "http://initrd",
                "driver_info/kernel_append_params": "%default% a=b"})),
        ),
    ] {
        let mut service = with_settings(manageable(), &[], settings(&[kernel], true));
        service.set_address(address);
        assert_eq!(register(&service, &request_with(ramdisk)).await, outcome, "{address}");
        match patched {
            // The ramdisk contains the network configuration.
            Some(expected) => assert_eq!(service.patched(), expected, "{address}"),
            None => assert!(service.changes().is_empty(), "{address}"),
        }
    }
    // The BMC is verified without waiting for the ramdisk.
    let node = Some(json!({"provision_state": "enroll"}));
    let service = with_settings(node, &[], settings(&[kernel], true));
    assert_eq!(register(&service, &request_with(None)).await, "started verifying the BMC");
    // Without a builder, the service adds the network configuration.
    let service = fixture(manageable(), &[]);
    assert_eq!(register(&service, &request_with(None)).await, "done");
    assert_eq!(service.patched(), json!({"network_data": {"links": []}}));
    let mut service = with_settings(None, &[], settings(&[kernel], true));
    let formats = service.provisioner.ramdisk_formats(&service.host);
    assert_eq!(formats, [RamdiskFormat::Iso, RamdiskFormat::Initrd]);
    service.set_address(network_boot);
    assert_eq!(service.provisioner.ramdisk_formats(&service.host), [RamdiskFormat::Initrd]);
    assert!(fixture(None, &[]).provisioner.ramdisk_formats(&service.host).is_empty());
}

#[tokio::test]
async fn an_obsolete_ramdisk_is_removed() {
    let node = json!({"provision_state": "manageable", "driver_info": {
        "redfish_address": "https://192.0.2.1", "redfish_username": "admin",
        "redfish_system_id": "/redfish/v1/Systems/1",
        "deploy_kernel": "http://old/k", "deploy_ramdisk": "http://old/r"}});
    let variables = [("DEPLOY_ISO_URL", "http://iso")];
    let service = with_settings(Some(node), &[], settings(&variables, false));
    assert_eq!(register(&service, &RegistrationRequest::default()).await, "done");
    assert_eq!(
        service.patched(),
        json!({"driver_info/deploy_iso": "http://iso", "driver_info/deploy_kernel": null,
            "driver_info/deploy_ramdisk": null})
    );
}

#[tokio::test]
async fn unsupported_hosts_are_not_registered() {
    let disabled = || settings(&[("PROVISIONING_NETWORK_DISABLED", "true")], false);
    let secure = RegistrationRequest {
        boot_mode: Some(HostBootMode::UefiSecureBoot),
        ..RegistrationRequest::default()
    };
    let plain = RegistrationRequest::default();
    for (address, request, settings, expected) in [
        ("ipmi://192.0.2.1", &secure, IronicProvisionerSettings::default(), "Secure Boot"),
        ("redfish://192.0.2.1", &secure, IronicProvisionerSettings::default(), ""),
        ("redfish://192.0.2.1", &plain, disabled(), "provisioning network"),
        ("redfish-virtualmedia://192.0.2.1", &plain, disabled(), ""),
        ("libvirt://192.0.2.1", &plain, IronicProvisionerSettings::default(), "bootMACAddress"),
    ] {
        let mut service = with_settings(None, &[], settings);
        service.set_address(address);
        let outcome = register(&service, request).await;
        match expected {
            "" => assert_eq!(outcome, "started verifying the BMC", "{address}"),
            text => {
                assert!(outcome.starts_with("failed") && outcome.contains(text), "{outcome}");
                assert!(service.changes().is_empty(), "{address}");
            }
        }
    }
    let old = ("GET /v1", json!({"version": {"version": "1.94"}}));
    let mut service = fixture(None, &[old]);
    service.host.disable_power_off = true;
    let outcome = register(&service, &plain).await;
    assert!(outcome.starts_with("failed") && outcome.contains("disablePowerOff"), "{outcome}");
    assert!(service.changes().is_empty());
}

/// A node that is busy accepts only what needs no lock.
#[tokio::test]
async fn a_busy_node_is_not_changed() {
    for state in ["cleaning", "clean wait", "deploying", "wait call-back", "servicing"] {
        let node = json!({"provision_state": state, "name": "other", "automated_clean": false});
        let service = fixture(Some(node), &[]);
        assert_eq!(register(&service, &RegistrationRequest::default()).await, "done", "{state}");
        assert!(service.changes().is_empty(), "{state}");
    }
    let failure = json!({"provision_state": "manageable", "maintenance": true,
        "fault": "power failure", "maintenance_reason": "no response"});
    let service = fixture(Some(failure), &[]);
    let outcome = service.provisioner.inspect(&service.host, &InspectionRequest::default()).await;
    assert_eq!(show(&outcome), "busy power failure: no response");
    let request = PowerOffRequest {
        mode: HostRebootMode::Hard,
        is_forced: true,
        aborts: AbortScope::Nothing,
    };
    let powered = json!({"provision_state": "active", "power_state": "power on"});
    let service = fixture(Some(powered), &[]);
    let outcome = service.provisioner.power_off(&service.host, &request).await;
    assert_eq!(show(&outcome), "started changing the power state");
    assert_eq!(service.changes(), ["PUT NODE/states/power power off"]);
}

#[tokio::test]
async fn a_node_is_found_by_name_and_by_mac() {
    let named = |name: Value| json!({"uuid": "n1", "provision_state": "manageable", "name": name});
    let port = || json!({"ports": [{"node_uuid": "n1"}]});
    let by_mac = "GET /v1/ports?address=52:54:00:aa:00:01&fields=node_uuid,uuid,address";
    let plain = RegistrationRequest::default();
    // (UUID known, name of the node, outcome, new name)
    for (knows_id, name, outcome, renamed) in [
        (true, json!("renamed"), "done", true),
        (false, json!(null), "done", true),
        (false, json!("other~host"), "failed MAC address", false),
        (true, json!("other~host"), "failed MAC address", false),
    ] {
        let node = named(name.clone());
        let mut service = fixture(Some(node), &[(by_mac, port())]);
        service.host.boot_mac_address = Some("52:54:00:AA:00:01".to_owned());
        if !knows_id {
            service.host.node_id = None;
        }
        let result = register(&service, &plain).await;
        assert!(result.starts_with(outcome), "{name}: {result}");
        match renamed {
            true => assert_eq!(service.patched()["name"], json!("lab~host-1"), "{name}"),
            false => assert!(result.contains("other~host"), "{result}"),
        }
        // The node of another host is never removed.
        let scope = AbortScope::Forced;
        let removed = show(&service.provisioner.delete(&service.host, scope).await);
        assert_eq!(removed != "done", knows_id && renamed, "{name}: {removed}");
    }
    for found_by in ["GET /v1/nodes/lab~host-1", "GET /v1/nodes/host-1"] {
        let mut service =
            fixture(Some(named(json!("host-1"))), &[(found_by, named(json!("host-1")))]);
        service.host.node_id = None;
        assert_eq!(register(&service, &plain).await, "done", "{found_by}");
    }
}

async fn prepare(service: &RecordedService, request: PreparationRequest) -> String {
    let request = PreparationRequest { is_start: true, ..request };
    show(&service.provisioner.prepare(&service.host, &request).await)
}

fn raid(value: Value) -> Option<kube_resources::hosts::raid::HostRaid> {
    Some(serde_json::from_value(value).unwrap())
}

#[tokio::test]
async fn raid_volumes_are_created_by_steps() {
    let node = || Some(json!({"provision_state": "manageable", "raid_interface": "redfish"}));
    let service = fixture(node(), &[]);
    let hardware = json!({"hardwareRAIDVolumes": [
        {"level": "1", "sizeGibibytes": 100, "numberOfPhysicalDisks": 2}, {"level": "5"}]});
    let request = PreparationRequest { raid: raid(hardware.clone()), ..Default::default() };
    assert_eq!(prepare(&service, request).await, "started cleaning");
    assert_eq!(
        service.body("PUT NODE/states/raid"),
        json!({"logical_disks": [
            {"size_gb": 100, "raid_level": "1", "number_of_physical_disks": 2,
             "is_root_volume": true},
            {"size_gb": "MAX", "raid_level": "5"}]})
    );
    assert_eq!(
        service.body("PUT NODE/states/provision"),
        json!({"target": "clean", "clean_steps": [
            {"interface": "raid", "step": "delete_configuration"},
            {"interface": "raid", "step": "create_configuration"}]})
    );
    assert_eq!(service.changes().len(), 2, "the interface is right already");

    let service = fixture(node(), &[]);
    let software = json!({"softwareRAIDVolumes": [
        {"level": "1", "physicalDisks": [{"deviceName": "/dev/sda"}, {"serialNumber": "S"}]}]});
    let request = PreparationRequest {
        raid: raid(software.clone()),
        has_root_device_hints: true,
        ..Default::default()
    };
    assert_eq!(prepare(&service, request).await, "started cleaning");
    assert_eq!(service.patched(), json!({"raid_interface": "agent"}));
    assert_eq!(
        service.body("PUT NODE/states/raid"),
        json!({"logical_disks": [{"size_gb": "MAX", "raid_level": "1", "controller": "software",
            "physical_disks": [{"name": "s== /dev/sda"}, {"serial": "s== S"}]}]})
    );
    assert_eq!(
        service.body("PUT NODE/states/provision")["clean_steps"],
        json!([
            {"interface": "raid", "step": "delete_configuration"},
            {"interface": "deploy", "step": "erase_devices_metadata"},
            {"interface": "raid", "step": "create_configuration"}])
    );
    assert_eq!(service.changes()[0], "PATCH NODE /raid_interface", "before the volumes");

    // Deletion: Ironic's schema accepts no empty list of volumes.
    let service = fixture(node(), &[]);
    let request = PreparationRequest {
        raid: raid(json!({"softwareRAIDVolumes": []})),
        applied_raid: raid(software),
        ..Default::default()
    };
    assert_eq!(prepare(&service, request).await, "started cleaning");
    assert_eq!(
        service.changes(),
        ["PATCH NODE /raid_interface", "PUT NODE/states/provision clean"]
    );

    let mut service = fixture(node(), &[]);
    service.set_address("ipmi://192.0.2.1");
    let request = PreparationRequest { raid: raid(hardware), ..Default::default() };
    let outcome = prepare(&service, request).await;
    assert!(outcome.starts_with("failed") && outcome.contains("hardware RAID"), "{outcome}");
    assert!(service.changes().is_empty());
}

fn firmware() -> FirmwareChanges {
    FirmwareChanges {
        settings: serde_json::from_value(json!({"A": "new", "B": 2, "C": "same"})).unwrap(),
        current_settings: serde_json::from_value(json!({"A": "old", "B": "1", "C": "same"})).ok(),
        updates: serde_json::from_value(json!([
            {"component": "bmc", "url": "http://f/bmc"}, {"component": "bios", "url": "http://f/b"}]))
        .unwrap(),
    }
}

#[tokio::test]
async fn firmware_is_changed_by_steps() {
    let steps = json!([
        {"interface": "bios", "step": "apply_configuration", "args": {"settings": [
            {"name": "A", "value": "new"}, {"name": "B", "value": 2}]}},
        {"interface": "firmware", "step": "update", "args": {"settings": [
            {"component": "bmc", "url": "http://f/bmc"}, {"component": "bios", "url": "http://f/b"}]}},
    ]);
    let service = fixture(manageable(), &[]);
    let request = PreparationRequest { firmware: firmware(), ..Default::default() };
    assert_eq!(prepare(&service, request).await, "started cleaning");
    let body = service.body("PUT NODE/states/provision");
    assert_eq!(body, json!({"target": "clean", "clean_steps": steps}));

    let service = fixture(Some(json!({"provision_state": "active"})), &[]);
    let request =
        ServicingRequest { firmware: firmware(), is_start: true, restart_on_failure: false };
    let outcome = service.provisioner.service(&service.host, &request).await;
    assert_eq!(show(&outcome), "started servicing");
    let body = service.body("PUT NODE/states/provision");
    assert_eq!(body, json!({"target": "service", "service_steps": steps}));
    // Nothing is repeated once it is done.
    let request = ServicingRequest { is_start: false, ..request };
    assert_eq!(show(&service.provisioner.service(&service.host, &request).await), "done");
    assert_eq!(service.changes().len(), 1);
}

/// Deploys to an available node and returns the service.
async fn deploy(node: Value, request: &HostDeployRequest) -> RecordedService {
    let mut available = json!({"provision_state": "available", "instance_uuid": "u1"});
    available.as_object_mut().unwrap().extend(node.as_object().unwrap().clone());
    let report = json!({"boot": {"result": true}, "deploy": {"result": true}});
    let service = fixture(Some(available), &[("GET NODE/validate", report)]);
    let outcome = show(&service.provisioner.provision(&service.host, request).await);
    assert_eq!(outcome, "started deploying");
    service
}

#[tokio::test]
async fn images_become_instance_information() {
    let image = |value: Value| Some(serde_json::from_value(value).unwrap());
    let drive = || Some(json!({"user_data": "#cloud-config", "meta_data": {"name": "host-1"}}));
    // A written image replaces a live ISO.
    let service = deploy(
        json!({"deploy_interface": "ramdisk", "instance_info": {"boot_iso": "http://old"}}),
        &HostDeployRequest {
            image: image(json!({"url": "http://i", "checksum": "c", "checksumType": "sha256",
                "format": "raw"})),
            config_drive: drive(),
            root_device_hints: Some(
                serde_json::from_value(json!({"minSizeGigabytes": 9})).unwrap(),
            ),
            boot_mode: Some(HostBootMode::UefiSecureBoot),
            ..Default::default()
        },
    )
    .await;
    assert_eq!(
        service.patched(),
        json!({
            "instance_info/boot_iso": null, "instance_info/image_source": "http://i",
            "instance_info/image_disk_format": "raw",
            "instance_info/image_os_hash_algo": "sha256", "instance_info/image_os_hash_value": "c",
            "instance_info/root_device": {"size": ">= 9"},
            "instance_info/capabilities": {"secure_boot": "true"},
            "deploy_interface": null, "driver_info/force_persistent_boot_device": "Default",
            "properties/capabilities": "boot_mode:uefi,secure_boot:true",
        })
    );
    assert_eq!(
        service.body("PUT NODE/states/provision"),
        json!({"target": "active", "configdrive": drive()})
    );

    let service = deploy(
        json!({"deploy_interface": "direct"}),
        &HostDeployRequest {
            image: image(json!({"url": "http://iso", "format": "live-iso"})),
            ..Default::default()
        },
    )
    .await;
    let patched = service.patched();
    assert_eq!(patched["instance_info/boot_iso"], json!("http://iso"));
    assert_eq!(patched["deploy_interface"], json!("ramdisk"));
    assert_eq!(service.body("PUT NODE/states/provision"), json!({"target": "active"}));

    let service = deploy(
        json!({}),
        &HostDeployRequest {
            image: image(json!({"url": "oci://r/i:1"})),
            pull_secret: Some(PullSecret("user:password".to_owned())),
            config_drive: drive(),
            ..Default::default()
        },
    )
    .await;
    let patched = service.patched();
    assert_eq!(patched["instance_info/image_source"], json!("oci://r/i:1"));
    assert_eq!(patched["instance_info/image_pull_secret"], json!("user:password"));
    assert_eq!(patched.get("instance_info/image_checksum"), None);

    let service = deploy(
        json!({"deploy_interface": "direct", "instance_info": {"image_source": "http://old",
            "image_pull_secret": "******"}}),
        &HostDeployRequest {
            custom_deploy: Some(serde_json::from_value(json!({"method": "install"})).unwrap()),
            config_drive: drive(),
            ..Default::default()
        },
    )
    .await;
    let patched = service.patched();
    assert_eq!(patched["instance_info/image_source"], Value::Null);
    assert_eq!(patched["instance_info/image_pull_secret"], Value::Null);
    assert_eq!(patched["deploy_interface"], json!("custom-agent"));
    assert_eq!(
        service.body("PUT NODE/states/provision"),
        json!({"target": "active", "configdrive": drive(), "deploy_steps": [
            {"interface": "deploy", "step": "install", "args": {}, "priority": 80}]})
    );
}

#[tokio::test]
async fn a_failed_deployment_is_repeated_only_with_another_image() {
    let failed = json!({"provision_state": "deploy failed", "last_error": "bad image",
        "instance_info": {"image_source": "http://i", "image_checksum": "c"}});
    let report = json!({"boot": {"result": true}, "deploy": {"result": true}});
    for (url, expected) in [("http://i", "failed bad image"), ("http://j", "started deploying")] {
        let service = fixture(Some(failed.clone()), &[("GET NODE/validate", report.clone())]);
        let image = serde_json::from_value(json!({"url": url, "checksum": "c"})).unwrap();
        let request = HostDeployRequest { image: Some(image), ..Default::default() };
        let outcome = service.provisioner.provision(&service.host, &request).await;
        assert_eq!(show(&outcome), expected);
    }
}

/// The service accepts requests for virtual media at once and performs them later.
#[tokio::test]
async fn data_images_are_attached_once_the_bmc_reports_them() {
    let (vmedia, detach) = ("GET NODE/vmedia", "DELETE NODE/vmedia?device_types=cdrom");
    let devices = |inserted: bool| json!([{"media_types": ["CD"], "inserted": inserted}]);
    let active = || Some(json!({"provision_state": "active"}));
    let service = fixture(active(), &[(vmedia, devices(false))]);
    let attach = async |service: &RecordedService, url: &str| {
        show(&service.provisioner.attach_data_image(&service.host, url).await)
    };
    assert_eq!(attach(&service, "http://data").await, "started changing virtual media");
    let body = service.body("POST NODE/vmedia");
    assert_eq!(body, json!({"device_type": "cdrom", "image_url": "http://data"}));
    assert_eq!(attach(&service, "http://data").await, "changing virtual media");
    assert_eq!(show(&service.provisioner.detach_data_image(&service.host).await), "done");
    assert_eq!(service.changes().len(), 1);
    // The request fails at the BMC.
    assert_eq!(attach(&service, "http://data").await, "started changing virtual media");
    let set = |field: &str, value: Value| {
        service.recording.node.lock().unwrap().as_mut().unwrap()[field] = value;
    };
    set("last_error", json!("no such file"));
    set("reservation", json!("conductor"));
    assert_eq!(attach(&service, "http://data").await, "changing virtual media");
    set("reservation", Value::Null);
    assert_eq!(attach(&service, "http://data").await, "failed no such file");
    assert_eq!(attach(&service, "http://data").await, "started changing virtual media");
    assert_eq!(service.changes().len(), 3);

    let service = fixture(active(), &[(vmedia, devices(true))]);
    assert_eq!(attach(&service, "http://data").await, "done");
    let outcome = show(&service.provisioner.detach_data_image(&service.host).await);
    assert_eq!(outcome, "started changing virtual media");
    assert_eq!(service.body(detach), Value::Null);

    // Older services do not report the state.
    let old = ("GET /v1", json!({"version": {"version": "1.92"}}));
    let service = fixture(active(), &[old]);
    assert_eq!(attach(&service, "http://data").await, "done");
    assert_eq!(service.changes(), ["POST NODE/vmedia"]);
}

#[tokio::test]
async fn subscriptions_are_created_and_deleted() {
    let created = "POST NODE/vendor_passthru?method=create_subscription";
    let deleted = "DELETE NODE/vendor_passthru?method=delete_subscription";
    let service = fixture(
        Some(json!({"provision_state": "active"})),
        &[(created, json!({"Id": "7"})), (deleted, json!(404))],
    );
    let (provisioner, host) = (&service.provisioner, &service.host);
    let subscription = BmcEventRequest {
        destination: "https://events/in".to_owned(),
        context: Some("rack 7".to_owned()),
        http_headers: [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())].into(),
        used_ids: BTreeSet::new(),
    };
    assert_eq!(provisioner.add_event_subscription(host, &subscription).await.unwrap(), "7");
    assert_eq!(
        service.body(created),
        json!({"Destination": "https://events/in", "Context": "rack 7",
            "HttpHeaders": [{"A": "1"}, {"B": "2"}]})
    );
    provisioner.remove_event_subscription(host, "7").await.unwrap();
    assert_eq!(service.body(deleted), json!({"id": "7"}));
}

/// The identifier may have been lost after the creation.
#[tokio::test]
async fn an_existing_subscription_is_used_again() {
    let created = "POST NODE/vendor_passthru?method=create_subscription";
    let list = json!({"Members": [{"@odata.id": "/redfish/v1/EventService/Subscriptions/7"}]});
    let found =
        |context: Value| json!({"Id": "7", "Destination": "https://events/in", "Context": context});
    for (existing, context, used, expected) in [
        (found(json!("rack 7")), Some("rack 7"), None, "7"),
        (found(json!("")), None, None, "7"),
        (found(Value::Null), None, None, "7"),
        (found(json!("rack 8")), Some("rack 7"), None, "8"),
        (found(json!("rack 7")), Some("rack 7"), Some("7"), "8"),
        (json!(404), Some("rack 7"), None, "8"),
    ] {
        let case = format!("{existing} {context:?} {used:?}");
        let service = fixture(
            Some(json!({"provision_state": "active"})),
            &[
                ("GET NODE/vendor_passthru?method=get_all_subscriptions", list.clone()),
                ("GET NODE/vendor_passthru?method=get_subscription", existing),
                (created, json!({"Id": "8"})),
            ],
        );
        let request = BmcEventRequest {
            destination: "https://events/in".to_owned(),
            context: context.map(str::to_owned),
            http_headers: BTreeMap::new(),
            used_ids: used.into_iter().map(str::to_owned).collect(),
        };
        let added = service.provisioner.add_event_subscription(&service.host, &request).await;
        assert_eq!(added.unwrap(), expected, "{case}");
    }
}

/// A step that cannot be aborted may wait for a ramdisk that never starts.
#[tokio::test]
async fn a_deployment_is_removed_if_its_step_cannot_be_aborted() {
    for (abortable, version, target) in [
        (json!(true), "1.110", "abort"),
        (Value::Null, "1.110", "abort"),
        (json!(false), "1.110", "deleted"),
        (json!(true), "1.109", "deleted"),
    ] {
        let node = json!({"provision_state": "wait call-back",
            "deploy_step": {"step": "deploy", "abortable": abortable}});
        let root = ("GET /v1", json!({"version": {"version": version}}));
        let service = fixture(Some(node), &[root]);
        let outcome = show(&service.provisioner.detach(&service.host, true).await);
        assert_eq!(outcome, "started aborting");
        assert_eq!(service.changes(), [format!("PUT NODE/states/provision {target}")]);
    }
}

#[tokio::test]
async fn a_new_bmc_address_must_lead_to_the_same_machine() {
    let identity = "POST /v1/ferrite/bmc-identity";
    let found = |serial: &str| json!({"serial_number": serial, "mac_addresses": []});
    let active = || {
        json!({"provision_state": "active",
            "driver_internal_info": {"bmc": {"serial_number": "A1", "system_uuid": null}}})
    };
    let enroll = || json!({"provision_state": "enroll"});
    for (node, response, accepts, expected, is_changed) in [
        (active(), found("A1"), false, "done SameMachine", true),
        (active(), found("B2"), false, "failed Identity", false),
        (active(), found("B2"), true, "done Accepted", true),
        (active(), json!({}), false, "failed Identity", false),
        // Not Ferrite, or without permission.
        (active(), json!(404), false, "done NotVerified", true),
        (active(), json!(403), false, "done NotVerified", true),
        // The BMC does not respond or rejects the password.
        (active(), json!(504), false, "failed Registration", false),
        (active(), json!(400), false, "failed Registration", false),
        (active(), json!(500), false, "not ready", false),
        // Nothing is known about a machine that was never reached.
        (enroll(), found("B2"), false, "started", true),
    ] {
        let case = format!("{node} {response} {accepts}");
        let mut service = fixture(Some(node), &[(identity, response)]);
        service.set_address("redfish-virtualmedia://192.0.2.9/redfish/v1/Systems/1");
        let request =
            RegistrationRequest { accepts_replaced_machine: accepts, ..Default::default() };
        let attempt = service.provisioner.register(&service.host, &request).await;
        let shown = match &attempt.node_id {
            Ok(_) => {
                let check = format!("{:?}", attempt.address_change.unwrap().check);
                format!("done {}", check.split(' ').next().unwrap())
            }
            Err(VerbStop::Failed(failure)) => format!("failed {:?}", failure.kind),
            Err(_) => show(&attempt.node_id),
        };
        assert!(shown.starts_with(expected), "{case}: {shown}");
        let patches = service.changes().iter().any(|change| change.contains("redfish_address"));
        assert_eq!(patches, is_changed, "{case}: {:?}", service.changes());
    }
    // Another password is no other address.
    let service = fixture(Some(active()), &[(identity, found("B2"))]);
    let request = RegistrationRequest { credentials_changed: true, ..Default::default() };
    let attempt = service.provisioner.register(&service.host, &request).await;
    assert_eq!((attempt.node_id.unwrap().as_str(), attempt.address_change), ("n1", None));
}

/// The node has the new address, so the next call would find no change.
#[tokio::test]
async fn a_changed_address_is_reported_although_the_registration_has_not_ended() {
    let node = json!({"provision_state": "active",
        "driver_internal_info": {"bmc": {"serial_number": "A1"}}});
    let responses = [
        ("POST /v1/ferrite/bmc-identity", json!({"serial_number": "A1"})),
        ("POST /v1/ferrite/nodes/n1/bmc", json!(502)),
        ("GET NODE/management/boot_device", json!(500)),
    ];
    let mut service = fixture(Some(node), &responses);
    service.set_address("redfish-virtualmedia://192.0.2.9/redfish/v1/Systems/1");
    let request = RegistrationRequest::default();
    let attempt = service.provisioner.register(&service.host, &request).await;
    let shown = show(&attempt.node_id);
    assert!(shown.starts_with("failed the BMC does not respond"), "{shown}");
    let change = attempt.address_change.unwrap();
    assert_eq!(
        change.check,
        BmcAddressCheck::SameMachine { identity: "serial number A1".to_owned() }
    );
    assert!(change.probe_failure.unwrap().contains("cannot be read"));
}

/// The next change of the address is compared with the accepted machine.
#[tokio::test]
async fn an_accepted_machine_is_read_before_the_registration_ends() {
    let node = |address: &str| {
        json!({"provision_state": "active",
            "driver_internal_info": {"bmc": {"serial_number": "A1"}},
            "driver_info": {"redfish_address": address, "redfish_username": "admin",
                "redfish_system_id": "/redfish/v1/Systems/1"}})
    };
    let probe = "POST /v1/ferrite/nodes/n1/bmc";
    let new_address = "redfish-virtualmedia://192.0.2.9/redfish/v1/Systems/1";
    let accepts = RegistrationRequest { accepts_replaced_machine: true, ..Default::default() };
    let unread = RegistrationRequest { is_accepted_machine_unread: true, ..Default::default() };
    let (old, new) = ("https://192.0.2.1", "https://192.0.2.9");
    for (known, request, response, expected) in [
        (old, &accepts, json!(502), "failed the machine at the new spec.bmc.address"),
        (old, &accepts, json!(409), "busy"),
        (old, &accepts, json!({}), "done"),
        (old, &accepts, json!(404), "done"),
        // In later calls the node has the address.
        (new, &unread, json!(502), "failed the machine at the new spec.bmc.address"),
        (new, &unread, json!({}), "done"),
    ] {
        let mut service = fixture(Some(node(known)), &[(probe, response.clone())]);
        service.set_address(new_address);
        let attempt = service.provisioner.register(&service.host, request).await;
        let shown = show(&attempt.node_id);
        assert!(shown.starts_with(expected), "{known} {response}: {shown}");
        let change = attempt.address_change.unwrap();
        assert_eq!(change.check, BmcAddressCheck::Accepted);
        assert_eq!(change.probe_failure.is_none(), expected == "done", "{known} {response}");
    }
    // The service still has the serial number of the machine before.
    let identity = ("POST /v1/ferrite/bmc-identity", json!({"serial_number": "A1"}));
    let mut service = fixture(Some(node(old)), &[identity]);
    service.set_address(new_address);
    let attempt = service.provisioner.register(&service.host, &unread).await;
    let shown = show(&attempt.node_id);
    assert!(shown.contains("cannot be verified") && attempt.address_change.is_none(), "{shown}");
}

#[tokio::test]
async fn ports_of_a_replaced_machine_are_removed() {
    let (old, other) = ("00:53:00:00:00:01", "00:53:00:00:00:02");
    let new = "00:53:00:00:00:0A";
    let port = |uuid: &str, mac: &str| json!({"uuid": uuid, "address": mac});
    let list = "GET /v1/ports?node_uuid=n1&fields=uuid,address";
    let delete = ["DELETE /v1/ports/p1", "DELETE /v1/ports/p2"];
    let replaced = ["POST /v1/ports", delete[0], delete[1]];
    let old_ports = || json!({"ports": [port("p1", old), port("p2", other)]});
    let mixed = json!({"ports": [port("p0", new), port("p1", old), port("p2", other)]});
    let done = json!({"ports": [port("p0", new)]});
    for (state, boot, ports, deletion, expected, changes) in [
        ("available", Some(new), old_ports(), json!({}), "done", &replaced[..]),
        ("active", Some(new), old_ports(), json!({}), "done", &replaced),
        // The NICs of the new machine are found by the inspection.
        ("available", None, old_ports(), json!({}), "done", &delete),
        ("available", Some(new), mixed, json!({}), "done", &delete),
        ("available", Some(new), done.clone(), json!({}), "done", &[]),
        ("cleaning", Some(new), done, json!({}), "done", &[]),
        ("cleaning", Some(new), old_ports(), json!({}), "changing the node's state", &[]),
        ("available", Some(new), old_ports(), json!(404), "done", &replaced),
        ("available", Some(new), old_ports(), json!(409), "busy", &replaced[..2]),
        // A running system uses the port.
        ("active", Some(new), old_ports(), json!(409), "done", &replaced),
    ] {
        let case = format!("{state} {boot:?} {ports} {deletion}");
        let responses = [(list, ports), (delete[0], deletion)];
        let mut service = fixture(Some(json!({"provision_state": state})), &responses);
        service.host.boot_mac_address = boot.map(str::to_owned);
        let request = RegistrationRequest {
            has_other_nics: true,
            nic_mac_addresses: vec![old.to_owned(), other.to_owned()],
            ..Default::default()
        };
        let outcome = show(&service.provisioner.register(&service.host, &request).await.node_id);
        assert!(outcome.starts_with(expected), "{case}: {outcome}");
        let mut sent = service.changes();
        sent.retain(|change| change.contains("/v1/ports"));
        assert_eq!(sent, changes, "{case}");
    }
}
