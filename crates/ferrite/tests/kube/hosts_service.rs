// SPDX-License-Identifier: Apache-2.0
//! Hosts with a real service and simulated machines: from creation to deletion, faults, firmware,
//! images, and the loss of the service's database.

use std::time::{Duration, Instant};

use fleet_sim::machine::RunningSoftware;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube_resources::hosts::annotations::RETRY_NOW;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::data_image::DataImage;
use kube_resources::hosts::firmware_schema::FirmwareSchema;
use kube_resources::hosts::host_firmware_components::HostFirmwareComponents;
use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;
use kube_resources::hosts::host_update_policy::HostUpdatePolicy;
use kube_resources::hosts::preprovisioning_image::PreprovisioningImage;
use serde_json::{Value, json};

use crate::cluster::wait_for;
use crate::hosts_lab::{error_of, is_on, operational, state_of, until_true};
use crate::hosts_service_lab::ServiceLab;

/// Time limit for many hosts.
const LONG_LIMIT: Duration = Duration::from_secs(600);
const VIRTUAL_MEDIA: &str = "redfish-virtualmedia";

fn is_settled(host: &BareMetalHost, state: &str) -> bool {
    state_of(host) == state && is_on(host) && error_of(host).is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_deployed_and_deleted() {
    let Some(lab) = ServiceLab::start("service-life", 2).await else { return };
    for (index, scheme) in [(0, "redfish"), (1, VIRTUAL_MEDIA)] {
        lab.create(&format!("host-{index}"), index, scheme, json!({})).await;
    }
    for index in 0..2 {
        let name = format!("host-{index}");
        let host = lab.hosts.until(&name, "available", |host| is_settled(host, "available")).await;
        let hardware = host.status.unwrap().hardware.unwrap();
        let macs: Vec<String> = lab.machine(index).macs().iter().map(ToString::to_string).collect();
        assert!(hardware.nics.iter().any(|nic| nic.mac.as_ref() == macs.first()), "{hardware:?}");
        let secret: Secret = serde_json::from_value(json!({"metadata": {"name": name},
            "stringData": {"userData": "#cloud-config\n"}}))
        .unwrap();
        let mut spec = lab.image("image.raw");
        spec["userData"] = json!({"name": name, "namespace": lab.hosts.namespace.name});
        spec["rootDeviceHints"] = json!({"minSizeGigabytes": 10});
        lab.hosts.edit(&name, spec).await;
        // The Secret may be created later.
        let progress = |host: &BareMetalHost| {
            let conditions = &host.status.as_ref().unwrap().conditions;
            conditions.iter().any(|found| found.message.contains("of spec.userData does not exist"))
        };
        lab.hosts.until(&name, "the missing Secret is shown", progress).await;
        let secrets = lab.hosts.namespace.api::<Secret>();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
    for index in 0..2 {
        let name = format!("host-{index}");
        lab.hosts.until(&name, "provisioned", |host| is_settled(host, "provisioned")).await;
        let machine = lab.machine(index);
        until_true("the image runs", || machine.running_software() == RunningSoftware::Instance)
            .await;
        assert!(machine.disk_image().unwrap().config_drive);
        lab.hosts.edit(&name, json!({"online": false})).await;
        lab.hosts.until(&name, "off", |host| !is_on(host)).await;
        lab.hosts.edit(&name, json!({"online": true})).await;
        lab.hosts.until(&name, "on", is_on).await;
    }
    for index in 0..2 {
        lab.hosts.delete(&format!("host-{index}")).await;
    }
    for index in 0..2 {
        lab.hosts.until_gone(&format!("host-{index}")).await;
        assert_eq!(lab.machine(index).disk_image(), None, "the image was erased");
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_bmcs_are_reported() {
    let Some(lab) = ServiceLab::start("service-faults", 3).await else { return };
    // A wrong password, which is corrected.
    lab.hosts.create_secret("wrong", "admin", "wrong").await;
    let address = lab.address(0, VIRTUAL_MEDIA);
    let bmc = json!({"bmc": {"address": address, "credentialsName": "wrong"}});
    lab.create("wrong", 0, VIRTUAL_MEDIA, bmc).await;
    let failed = |host: &BareMetalHost| {
        host.status.as_ref().is_some_and(|status| {
            status.error_type.as_ref().is_some_and(|kind| kind.as_str() == "registration error")
        })
    };
    let host = lab.hosts.until("wrong", "wrong password", failed).await;
    assert!(!error_of(&host).is_empty() && operational(&host) == "error");
    let patch = Patch::Merge(json!({"stringData": {"password": "password"}}));
    let secrets = lab.hosts.namespace.api::<Secret>();
    secrets.patch("wrong", &PatchParams::default(), &patch).await.unwrap();
    lab.hosts.until("wrong", "available", |host| is_settled(host, "available")).await;

    // Nothing listens at this address; another one is verified.
    let bmc = json!({"bmc": {"address": "redfish-virtualmedia+http://127.0.0.1:1/redfish/v1",
        "credentialsName": "bmc"}});
    lab.create("unreachable", 1, VIRTUAL_MEDIA, bmc).await;
    lab.hosts.until("unreachable", "unreachable", failed).await;
    let bmc = json!({"bmc": {"address": lab.address(1, VIRTUAL_MEDIA)}});
    lab.hosts.edit("unreachable", bmc).await;
    lab.hosts.until("unreachable", "available", |host| is_settled(host, "available")).await;

    // A BMC that accepts connections and never responds. The host can be deleted all the same.
    lab.add_fault("hang bmcs=2");
    lab.create("hanging", 2, VIRTUAL_MEDIA, json!({})).await;
    lab.hosts.until("hanging", "no response", failed).await;
    lab.hosts.delete("hanging").await;
    lab.hosts.until_gone("hanging").await;
    for name in ["wrong", "unreachable"] {
        lab.hosts.delete(name).await;
        lab.hosts.until_gone(name).await;
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn firmware_and_volumes_are_changed() {
    let Some(lab) = ServiceLab::start("service-firmware", 1).await else { return };
    lab.create("a", 0, VIRTUAL_MEDIA, json!({})).await;
    lab.hosts.until("a", "available", |host| is_settled(host, "available")).await;
    let settings = lab.hosts.namespace.api::<HostFirmwareSettings>();
    let read = |settings: &Option<HostFirmwareSettings>| {
        let status = settings.as_ref().and_then(|settings| settings.status.as_ref());
        status.is_some_and(|status| status.settings.contains_key("SriovGlobalEnable"))
    };
    let found = wait_for("current settings", &settings, "a", read).await.unwrap();
    let schema = found.status.unwrap().schema.unwrap();
    let schemas = lab.hosts.namespace.api::<FirmwareSchema>();
    let schema = schemas.get(&schema.name).await.unwrap();
    assert!(schema.spec.schema["BootDelaySeconds"].attribute_type.is_some());
    assert_eq!(schema.metadata.owner_references.unwrap()[0].kind, "HostFirmwareSettings");

    let set = |values: Value| Patch::Merge(json!({"spec": {"settings": values}}));
    let parameters = PatchParams::default();
    settings.patch("a", &parameters, &set(json!({"SriovGlobalEnable": "x"}))).await.unwrap();
    let invalid = |settings: &Option<HostFirmwareSettings>| {
        let status = settings.as_ref().and_then(|settings| settings.status.as_ref());
        status.is_some_and(|status| {
            let mut conditions = status.conditions.iter();
            conditions.any(|found| found.type_ == "Valid" && found.status == "False")
        })
    };
    wait_for("an invalid value", &settings, "a", invalid).await;
    assert_eq!(state_of(&lab.hosts.hosts().get("a").await.unwrap()), "available");
    let requested = json!({"SriovGlobalEnable": "Enabled", "BootDelaySeconds": 7});
    settings.patch("a", &parameters, &set(requested)).await.unwrap();
    let applied = |settings: &Option<HostFirmwareSettings>| {
        let status = settings.as_ref().and_then(|settings| settings.status.as_ref());
        status.is_some_and(|status| status.settings["SriovGlobalEnable"] == "Enabled")
    };
    wait_for("applied settings", &settings, "a", applied).await;
    let machine = lab.machine(0);
    assert_eq!(machine.bios_attribute("BootDelaySeconds"), Some(json!(7)));
    let recorded = |settings: &Option<HostFirmwareSettings>| {
        let settings = settings.as_ref().unwrap();
        let mut conditions = settings.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|found| {
            found.type_ == "Applied" && found.observed_generation == settings.metadata.generation
        })
    };
    wait_for("recorded settings", &settings, "a", recorded).await;
    lab.hosts.until("a", "available", |host| is_settled(host, "available")).await;

    let volumes = json!({"hardwareRAIDVolumes": [
        {"level": "1", "sizeGibibytes": 100, "numberOfPhysicalDisks": 2}]});
    lab.hosts.edit("a", json!({"raid": volumes})).await;
    let has_raid = |host: &BareMetalHost| {
        let raid = host.status.as_ref().and_then(|status| status.provisioning.raid.as_ref());
        raid.is_some() && is_settled(host, "available")
    };
    lab.hosts.until("a", "volumes", has_raid).await;
    assert_eq!(machine.volumes().len(), 1);
    lab.hosts.edit("a", json!({"raid": {"hardwareRAIDVolumes": []}})).await;
    until_true("no volumes", || machine.volumes().is_empty()).await;
    lab.hosts.until("a", "available", |host| is_settled(host, "available")).await;

    // Servicing: at a reboot, because the policy allows it.
    lab.hosts.edit("a", lab.image("image.raw")).await;
    lab.hosts.until("a", "provisioned", |host| is_settled(host, "provisioned")).await;
    let policy: HostUpdatePolicy = serde_json::from_value(json!({"metadata": {"name": "a"},
        "spec": {"firmwareSettings": "onReboot", "firmwareUpdates": "onReboot"}}))
    .unwrap();
    let policies = lab.hosts.namespace.api::<HostUpdatePolicy>();
    policies.create(&PostParams::default(), &policy).await.unwrap();
    let requested = json!({"SriovGlobalEnable": "Disabled"});
    settings.patch("a", &parameters, &set(requested)).await.unwrap();
    let changed = |settings: &Option<HostFirmwareSettings>| {
        let settings = settings.as_ref().unwrap();
        let status = settings.status.as_ref().unwrap();
        let mut conditions = status.conditions.iter();
        conditions.any(|found| {
            found.type_ == "ChangeDetected"
                && found.status == "True"
                && found.observed_generation == settings.metadata.generation
        })
    };
    wait_for("a detected change", &settings, "a", changed).await;
    assert_eq!(machine.bios_attribute("SriovGlobalEnable"), Some(json!("Enabled")));
    lab.hosts.annotate("a", "reboot.metal3.io", json!("{\"mode\": \"hard\"}")).await;
    until_true("the setting", || {
        machine.bios_attribute("SriovGlobalEnable") == Some(json!("Disabled"))
    })
    .await;
    lab.hosts
        .until("a", "serviced", |host| is_settled(host, "provisioned") && operational(host) == "OK")
        .await;

    let components = lab.hosts.namespace.api::<HostFirmwareComponents>();
    let listed = |components: &Option<HostFirmwareComponents>| {
        let status = components.as_ref().and_then(|components| components.status.as_ref());
        status.is_some_and(|status| status.components.iter().any(|it| it.component == "bios"))
    };
    wait_for("firmware versions", &components, "a", listed).await;
    lab.hosts.delete("a").await;
    lab.hosts.until_gone("a").await;
    wait_for("the schema", &schemas, &schema.metadata.name.unwrap(), Option::is_none).await;
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn iso_images_are_booted_and_attached() {
    let Some(lab) = ServiceLab::start("service-iso", 2).await else { return };
    let live = json!({"image": {"url": format!("{}/live.iso", lab.files), "format": "live-iso"}});
    lab.create("live", 0, VIRTUAL_MEDIA, live).await;
    lab.create("data", 1, VIRTUAL_MEDIA, lab.image("image.raw")).await;
    lab.hosts.until("live", "provisioned", |host| is_settled(host, "provisioned")).await;
    lab.hosts.until("data", "provisioned", |host| is_settled(host, "provisioned")).await;
    let images = lab.hosts.namespace.api::<DataImage>();
    let image: DataImage = serde_json::from_value(json!({"metadata": {"name": "data"},
        "spec": {"url": format!("{}/data.iso", lab.files)}}))
    .unwrap();
    images.create(&PostParams::default(), &image).await.unwrap();
    let held = |image: &Option<DataImage>| {
        let metadata = &image.as_ref().unwrap().metadata;
        metadata.finalizers.is_some() && metadata.owner_references.is_some()
    };
    wait_for("finalizer and owner", &images, "data", held).await;
    let attached = |image: &Option<DataImage>| {
        let status = image.as_ref().and_then(|image| image.status.as_ref());
        status.is_some_and(|status| status.attached_image.is_some())
    };
    lab.hosts.annotate("data", "reboot.metal3.io", json!("{\"mode\": \"hard\"}")).await;
    wait_for("attached", &images, "data", attached).await;
    let machine = lab.machine(1);
    until_true("inserted", || machine.virtual_media().iter().any(Option::is_some)).await;
    lab.hosts.until("data", "on", is_on).await;
    // It is detached at the next reboot.
    images.delete("data", &Default::default()).await.unwrap();
    lab.hosts.annotate("data", "reboot.metal3.io", json!("{\"mode\": \"hard\"}")).await;
    wait_for("deleted", &images, "data", Option::is_none).await;
    until_true("ejected", || machine.virtual_media().iter().all(Option::is_none)).await;
    for name in ["live", "data"] {
        lab.hosts.delete(name).await;
        lab.hosts.until_gone(name).await;
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_request_their_ramdisks() {
    let Some(lab) = ServiceLab::start_with("service-ramdisk", 1, true).await else { return };
    lab.create("a", 0, VIRTUAL_MEDIA, json!({})).await;
    lab.hosts.until("a", "available", |host| is_settled(host, "available")).await;
    let images = lab.hosts.namespace.api::<PreprovisioningImage>();
    // Inspection found the architecture, so that the image is requested again.
    let current = |image: &Option<PreprovisioningImage>| {
        let image = image.as_ref().unwrap();
        let status = image.status.as_ref();
        image.spec.architecture.is_some()
            && status.is_some_and(|status| status.architecture == image.spec.architecture)
    };
    let image = wait_for("the image", &images, "a", current).await.unwrap();
    assert_eq!(image.metadata.finalizers.unwrap().len(), 2);
    let status = image.status.unwrap();
    assert_eq!(status.image_url, Some(format!("{}/ramdisk.iso", lab.files)));
    lab.hosts.delete("a").await;
    lab.hosts.until_gone("a").await;
    wait_for("the image", &images, "a", Option::is_none).await;
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_deployment_runs_the_requested_step() {
    let Some(lab) = ServiceLab::start("service-custom", 1).await else { return };
    lab.create("a", 0, VIRTUAL_MEDIA, json!({"customDeploy": {"method": "no_such_step"}})).await;
    let failed = |host: &BareMetalHost| error_of(host).contains("no_such_step");
    lab.hosts.until("a", "an unknown step is reported", failed).await;
    lab.hosts.delete("a").await;
    lab.hosts.until_gone("a").await;
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_service_and_its_database_is_repaired() {
    let Some(mut lab) = ServiceLab::start("service-loss", 2).await else { return };
    lab.create("available", 0, VIRTUAL_MEDIA, json!({})).await;
    lab.create("provisioned", 1, VIRTUAL_MEDIA, lab.image("image.raw")).await;
    for state in ["available", "provisioned"] {
        lab.hosts.until(state, state, |host| is_settled(host, state)).await;
    }
    let machine = lab.machine(1);
    until_true("the image runs", || machine.running_software() == RunningSoftware::Instance).await;
    let boots = machine.boot_history().len();
    let id = |host: &BareMetalHost| host.status.as_ref().unwrap().provisioning.id.clone();
    for loses_database in [false, true] {
        let mut before = Vec::new();
        for name in ["available", "provisioned"] {
            before.push(id(&lab.hosts.hosts().get(name).await.unwrap()));
        }
        lab.restart_service(loses_database);
        // A change needs the service; a lost node is noticed without one.
        if !loses_database {
            lab.hosts.edit("available", json!({"online": false})).await;
            lab.hosts.until("available", "off", |host| !is_on(host)).await;
            lab.hosts.edit("available", json!({"online": true})).await;
        }
        for (name, before) in ["available", "provisioned"].iter().zip(before) {
            let goal = |host: &BareMetalHost| {
                let is_new = !id(host).is_empty() && (id(host) != before) == loses_database;
                is_settled(host, name) && is_new
            };
            lab.hosts.until(name, "repaired", goal).await;
        }
    }
    assert_eq!(machine.boot_history().len(), boots, "the system keeps running");
    // The adopted host can be cleaned.
    lab.hosts.annotate("provisioned", RETRY_NOW, json!("")).await;
    for name in ["available", "provisioned"] {
        lab.hosts.delete(name).await;
        lab.hosts.until_gone(name).await;
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_killed_in_any_state_continues() {
    let Some(mut lab) = ServiceLab::start("service-kill", 1).await else { return };
    lab.create("a", 0, VIRTUAL_MEDIA, lab.image("image.raw")).await;
    for state in ["registering", "inspecting", "provisioning"] {
        lab.hosts.until("a", state, |host| state_of(host) == state).await;
        lab.hosts.kill_operator().await;
        lab.hosts.start_operator();
    }
    lab.hosts.until("a", "provisioned", |host| is_settled(host, "provisioned")).await;
    assert_eq!(lab.machine(0).completed_step_count("write_image"), 1);
    lab.hosts.edit("a", json!({"image": null})).await;
    lab.hosts.until_state("a", "deprovisioning").await;
    lab.hosts.kill_operator().await;
    lab.hosts.start_operator();
    lab.hosts.until("a", "available", |host| is_settled(host, "available")).await;
    lab.hosts.delete("a").await;
    lab.hosts.until("a", "deletion", |host| host.metadata.deletion_timestamp.is_some()).await;
    lab.hosts.kill_operator().await;
    lab.hosts.start_operator();
    lab.hosts.until_gone("a").await;
    lab.end().await;
}

/// Many hosts need few passes, and idle ones none.
#[tokio::test(flavor = "multi_thread")]
async fn many_hosts_need_few_passes() {
    let count: u32 = std::env::var("FERRITE_TEST_HOSTS").map_or(30, |text| text.parse().unwrap());
    let Some(lab) = ServiceLab::start("service-many", count).await else { return };
    let start = Instant::now();
    for index in 0..count {
        lab.create(&format!("host-{index}"), index, VIRTUAL_MEDIA, json!({})).await;
    }
    for index in 0..count {
        let goal = |host: &BareMetalHost| is_settled(host, "available");
        lab.hosts.until_within(LONG_LIMIT, &format!("host-{index}"), "available", goal).await;
    }
    let passes = |metrics: &str| -> f64 {
        let lines = metrics.lines().filter(|line| {
            line.starts_with("controller_runtime_reconcile_total{controller=\"baremetalhost\"")
        });
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let metrics = lab.hosts.metrics();
    let per_host = passes(&metrics) / f64::from(count);
    println!("{count} hosts after {:?}, {per_host:.1} passes per host", start.elapsed());
    assert!(per_host < 25.0, "{per_host} passes per host\n{metrics}");
    // The last changes arrive; afterwards nothing happens.
    until_settled(|| passes(&lab.hosts.metrics())).await;
    for index in 0..count {
        lab.hosts.delete(&format!("host-{index}")).await;
    }
    for index in 0..count {
        lab.hosts.until_gone_within(LONG_LIMIT, &format!("host-{index}")).await;
    }
    lab.end().await;
}

/// Waits until a value stays the same for some seconds.
async fn until_settled(value: impl Fn() -> f64) {
    let deadline = Instant::now() + LONG_LIMIT;
    let mut last = value();
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if value() != last {
            (last, since) = (value(), Instant::now());
        }
        assert!(Instant::now() < deadline, "passes do not end");
    }
}
