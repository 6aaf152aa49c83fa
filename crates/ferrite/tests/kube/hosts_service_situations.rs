// SPDX-License-Identifier: Apache-2.0
//! Hosts with a real service and simulated machines: one situation per host, all at the same time.

use fleet_sim::ComponentKind;
use fleet_sim::machine::RunningSoftware;
use kube::api::{Patch, PatchParams};
use kube_resources::hosts::annotations::{DETACHED, INSPECT, PAUSED, REBOOT};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::hardware_data::HardwareData;
use kube_resources::hosts::host_firmware_components::HostFirmwareComponents;
use serde_json::{Value, json};

use crate::cluster::wait_for;
use crate::hosts_lab::{error_of, is_on, operational, state_of, until_true};
use crate::hosts_service_lab::ServiceLab;

const VIRTUAL_MEDIA: &str = "redfish-virtualmedia";

/// A host of the lab and its machine.
struct Situation<'a> {
    lab: &'a ServiceLab,
    index: u32,
    name: &'static str,
}

impl Situation<'_> {
    async fn create(&self, spec: Value) {
        self.lab.create(self.name, self.index, VIRTUAL_MEDIA, spec).await;
    }

    async fn until_settled(&self, state: &str) -> BareMetalHost {
        let is_settled = |host: &BareMetalHost| {
            state_of(host) == state && is_on(host) && error_of(host).is_empty()
        };
        self.lab.hosts.until(self.name, &format!("{}: {state}", self.name), is_settled).await
    }

    async fn until(&self, what: &str, is_met: impl Fn(&BareMetalHost) -> bool) -> BareMetalHost {
        self.lab.hosts.until(self.name, &format!("{}: {what}", self.name), is_met).await
    }

    async fn until_image_runs(&self) {
        let machine = self.lab.machine(self.index);
        let is_running = || machine.running_software() == RunningSoftware::Instance;
        until_true(&format!("{}: the image runs", self.name), is_running).await;
    }

    async fn edit(&self, spec: Value) {
        self.lab.hosts.edit(self.name, spec).await;
    }

    async fn annotate(&self, key: &str, value: Value) {
        self.lab.hosts.annotate(self.name, key, value).await;
    }

    fn boots(&self) -> usize {
        self.lab.machine(self.index).boot_history().len()
    }

    async fn delete(&self) {
        self.lab.hosts.delete(self.name).await;
        self.lab.hosts.until_gone(self.name).await;
    }
}

/// The system of an externally provisioned host keeps running; its power is managed.
async fn externally_provisioned(host: Situation<'_>) {
    host.create(json!({"externallyProvisioned": true})).await;
    host.until_settled("externally provisioned").await;
    let machine = host.lab.machine(host.index);
    assert_ne!(machine.running_software(), RunningSoftware::Ramdisk);
    host.edit(json!({"online": false})).await;
    host.until("off", |host| !is_on(host)).await;
    host.edit(json!({"online": true})).await;
    host.until_settled("externally provisioned").await;
    assert_ne!(machine.running_software(), RunningSoftware::Ramdisk);
    assert_eq!(machine.completed_step_count("erase_devices_metadata"), 0);
    host.delete().await;
}

/// A paused host is not changed, and continues afterwards.
async fn paused(host: Situation<'_>) {
    host.create(json!({})).await;
    host.until_settled("available").await;
    host.annotate(PAUSED, json!("")).await;
    host.edit(host.lab.image("image.raw")).await;
    // Later changes of another host are processed.
    let other = Situation { lab: host.lab, index: host.index + 1, name: "beside-paused" };
    other.create(json!({})).await;
    other.until_settled("available").await;
    assert_eq!(state_of(&host.lab.hosts.hosts().get(host.name).await.unwrap()), "available");
    host.annotate(PAUSED, Value::Null).await;
    host.until_settled("provisioned").await;
    tokio::join!(host.delete(), other.delete());
}

/// A detached host is unknown to the service. It is adopted afterwards, and its system keeps running.
async fn detached(host: Situation<'_>) {
    host.create(host.lab.image("image.raw")).await;
    host.until_settled("provisioned").await;
    host.until_image_runs().await;
    let boots = host.boots();
    let before = host.lab.node_names();
    assert!(before.iter().any(|name| name.ends_with("~detached")), "{before:?}");
    host.annotate(DETACHED, json!("")).await;
    host.until("detached", |host| operational(host) == "detached").await;
    let after = host.lab.node_names();
    assert!(!after.iter().any(|name| name.ends_with("~detached")), "{after:?}");
    host.annotate(DETACHED, Value::Null).await;
    host.until("attached", |host| operational(host) == "OK").await;
    host.until_settled("provisioned").await;
    assert_eq!(host.boots(), boots, "the system keeps running");
    assert_eq!(host.lab.machine(host.index).completed_step_count("write_image"), 1);
    // A host that is deleted while it is detached is left alone.
    host.annotate(DETACHED, json!("")).await;
    host.until("detached", |host| operational(host) == "detached").await;
    host.delete().await;
    assert!(host.lab.machine(host.index).disk_image().is_some(), "it was not cleaned");
}

/// Reboots: hard, soft, and off until the annotation is removed.
async fn rebooted(host: Situation<'_>) {
    host.create(host.lab.image("image.raw")).await;
    host.until_settled("provisioned").await;
    for request in ["{\"mode\": \"hard\"}", "{\"mode\": \"soft\"}", ""] {
        host.until_image_runs().await;
        let boots = host.boots();
        host.annotate(REBOOT, json!(request)).await;
        host.until("rebooted", |host| host.annotation(REBOOT).is_none() && is_on(host)).await;
        until_true(&format!("reboot {request:?}"), || host.boots() > boots).await;
    }
    host.annotate("reboot.metal3.io/remediation", json!("")).await;
    host.until("off", |host| !is_on(host)).await;
    host.annotate("reboot.metal3.io/remediation", Value::Null).await;
    host.until_settled("provisioned").await;
    host.delete().await;
}

/// An available host is inspected again.
async fn inspected_again(host: Situation<'_>) {
    host.create(json!({})).await;
    let before = host.until_settled("available").await.status.unwrap().operation_history.inspect;
    host.annotate(INSPECT, json!("")).await;
    let after = host.until("inspected again", |host| {
        let history = host.status.as_ref().map(|status| &status.operation_history.inspect);
        state_of(host) == "available"
            && host.annotation(INSPECT).is_none()
            && history.is_some_and(|history| history.end.is_some() && history.end != before.end)
    });
    assert!(after.await.status.unwrap().hardware.is_some());
    let data = host.lab.hosts.namespace.api::<HardwareData>().get(host.name).await.unwrap();
    assert!(data.spec.hardware.is_some_and(|hardware| !hardware.nics.is_empty()));
    host.delete().await;
}

/// Firmware of an available host is updated.
async fn firmware_updated(host: Situation<'_>) {
    host.create(json!({})).await;
    host.until_settled("available").await;
    let components = host.lab.hosts.namespace.api::<HostFirmwareComponents>();
    let version = |components: &Option<HostFirmwareComponents>| {
        let status = components.as_ref().and_then(|components| components.status.as_ref())?;
        let mut found = status.components.iter().filter(|found| found.component == "bios");
        found.next().and_then(|found| found.current_version.clone())
    };
    wait_for("versions", &components, host.name, |found| version(found).is_some()).await;
    let url = format!("{}/bios-9.1.0.bin", host.lab.files);
    let patch = Patch::Merge(json!({"spec": {"updates": [{"component": "bios", "url": url}]}}));
    components.patch(host.name, &PatchParams::default(), &patch).await.unwrap();
    let machine = host.lab.machine(host.index);
    let is_installed = || {
        machine.with_model(|machine, _| {
            machine.component_version(ComponentKind::Bios) == Some("9.1.0")
        })
    };
    until_true("the firmware is installed", is_installed).await;
    let is_shown =
        |found: &Option<HostFirmwareComponents>| version(found).as_deref() == Some("9.1.0");
    wait_for("the new version", &components, host.name, is_shown).await;
    host.until_settled("available").await;
    host.delete().await;
}

/// The agent creates software RAID, and removes it.
async fn software_raid(host: Situation<'_>) {
    host.create(json!({})).await;
    host.until_settled("available").await;
    let machine = host.lab.machine(host.index);
    let raid = json!({"softwareRAIDVolumes": [{"level": "1"}]});
    host.edit(json!({"raid": raid})).await;
    host.until("volumes", |host| {
        let raid = host.status.as_ref().and_then(|status| status.provisioning.raid.as_ref());
        state_of(host) == "available" && raid.is_some_and(|raid| raid.software().len() == 1)
    })
    .await;
    assert_eq!(machine.completed_step_count("create_configuration"), 1);
    host.edit(json!({"raid": {"softwareRAIDVolumes": []}})).await;
    host.until("no volumes", |host| {
        let raid = host.status.as_ref().and_then(|status| status.provisioning.raid.as_ref());
        state_of(host) == "available" && raid.is_some_and(|raid| raid.software().is_empty())
    })
    .await;
    assert_eq!(machine.completed_step_count("create_configuration"), 1);
    host.delete().await;
}

/// Root device hints select the disk. Another image replaces the first.
async fn image_changed(host: Situation<'_>) {
    let mut spec = host.lab.image("first.raw");
    spec["rootDeviceHints"] = json!({"model": "NVMe 3840", "minSizeGigabytes": 1000});
    host.create(spec).await;
    host.until_settled("provisioned").await;
    let machine = host.lab.machine(host.index);
    assert_eq!(&*machine.disk_image().unwrap().device, "/dev/nvme0n1");
    host.edit(host.lab.image("second.raw")).await;
    let url = format!("{}/second.raw", host.lab.files);
    host.until("the second image", |host| {
        let image = host.status.as_ref().and_then(|status| status.provisioning.deployed_image());
        state_of(host) == "provisioned" && image.is_some_and(|image| image.url == url)
    })
    .await;
    let written = machine.disk_image().unwrap();
    assert_eq!((&*written.source, &*written.device), (&*url, "/dev/nvme0n1"));
    assert_eq!(machine.completed_step_count("write_image"), 2);
    host.delete().await;
}

/// A step of the agent deploys the host instead of an image.
async fn custom_deployment(host: Situation<'_>) {
    host.create(json!({"customDeploy": {"method": "clean_uefi_nvram"}})).await;
    let found = host.until_settled("provisioned").await;
    let deployed = found.status.unwrap().provisioning.custom_deploy.unwrap();
    assert_eq!(deployed.method, "clean_uefi_nvram");
    let machine = host.lab.machine(host.index);
    assert_eq!(machine.completed_step_count("clean_uefi_nvram"), 1);
    assert_eq!(machine.completed_step_count("write_image"), 0);
    host.edit(json!({"customDeploy": null})).await;
    host.until_settled("available").await;
    host.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_situation_is_handled() {
    let Some(lab) = ServiceLab::start("service-situations", 10).await else { return };
    let situation = |index, name| Situation { lab: &lab, index, name };
    tokio::join!(
        externally_provisioned(situation(0, "external")),
        // Also uses the next machine.
        paused(situation(1, "paused")),
        detached(situation(3, "detached")),
        rebooted(situation(4, "rebooted")),
        inspected_again(situation(5, "inspected")),
        firmware_updated(situation(6, "firmware")),
        software_raid(situation(7, "software-raid")),
        image_changed(situation(8, "image")),
        custom_deployment(situation(9, "custom")),
    );
    lab.end().await;
}
