// SPDX-License-Identifier: Apache-2.0
//! Hosts with a real service and simulated machines in every state: the operator's process is killed,
//! hosts continue, and hosts are deleted.
//!
//! Agents that cannot find the service keep hosts in the states that need an agent.

use std::process::Command;

use fleet_sim::machine::RunningSoftware;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube_resources::hosts::annotations::REBOOT;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;
use kube_resources::hosts::host_update_policy::HostUpdatePolicy;
use serde_json::json;

use crate::cluster::wait_for;
use crate::hosts_lab::{error_of, is_on, operational, state_of, until_true};
use crate::hosts_service_lab::ServiceLab;
use crate::migration::LoggedProcess;

const VIRTUAL_MEDIA: &str = "redfish-virtualmedia";
/// Nothing listens there.
const NO_SERVICE: &str = "http://127.0.0.1:1";
/// Name of the Secret with a wrong password.
const WRONG: &str = "wrong";
const SETTING: &str = "SriovGlobalEnable";

/// A state in which hosts are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldState {
    Unmanaged,
    Registering,
    Inspecting,
    Preparing,
    Available,
    Provisioning,
    Provisioned,
    ExternallyProvisioned,
    Deprovisioning,
    Servicing,
}

const STATES: [HeldState; 10] = [
    HeldState::Unmanaged,
    HeldState::Registering,
    HeldState::Inspecting,
    HeldState::Preparing,
    HeldState::Available,
    HeldState::Provisioning,
    HeldState::Provisioned,
    HeldState::ExternallyProvisioned,
    HeldState::Deprovisioning,
    HeldState::Servicing,
];

impl HeldState {
    fn label(self) -> &'static str {
        match self {
            Self::Unmanaged => "unmanaged",
            Self::Registering => "registering",
            Self::Inspecting => "inspecting",
            Self::Preparing => "preparing",
            Self::Available => "available",
            Self::Provisioning => "provisioning",
            Self::Provisioned => "provisioned",
            Self::ExternallyProvisioned => "externally provisioned",
            Self::Deprovisioning => "deprovisioning",
            Self::Servicing => "servicing",
        }
    }

    /// The state that the host reaches first, while agents work; `None` if it is created afterwards.
    fn start(self) -> Option<&'static str> {
        match self {
            Self::Unmanaged | Self::Registering | Self::Inspecting => None,
            Self::Preparing | Self::Available | Self::Provisioning => Some("available"),
            Self::ExternallyProvisioned => Some("externally provisioned"),
            Self::Provisioned | Self::Deprovisioning | Self::Servicing => Some("provisioned"),
        }
    }

    /// The state that the host reaches when agents work again.
    fn goal(self) -> &'static str {
        match self {
            Self::Unmanaged => "unmanaged",
            Self::Registering | Self::Inspecting | Self::Preparing | Self::Available => "available",
            Self::Deprovisioning => "available",
            Self::Provisioning | Self::Provisioned | Self::Servicing => "provisioned",
            Self::ExternallyProvisioned => "externally provisioned",
        }
    }

    fn is_held(self, host: &BareMetalHost) -> bool {
        if self == Self::Servicing {
            return operational(host) == "servicing";
        }
        let is_reported = self != Self::Registering || !error_of(host).is_empty();
        state_of(host) == self.label() && is_reported
    }
}

/// A host and its machine.
struct HeldHost<'a> {
    lab: &'a ServiceLab,
    state: HeldState,
    index: u32,
    name: String,
}

impl HeldHost<'_> {
    async fn create(&self) {
        let spec = match self.state {
            HeldState::Unmanaged => return self.create_unmanaged().await,
            HeldState::Registering => {
                let address = self.lab.address(self.index, VIRTUAL_MEDIA);
                json!({"bmc": {"address": address, "credentialsName": WRONG}})
            }
            HeldState::ExternallyProvisioned => json!({"externallyProvisioned": true}),
            HeldState::Provisioned | HeldState::Deprovisioning | HeldState::Servicing => {
                self.lab.image("image.raw")
            }
            HeldState::Inspecting
            | HeldState::Preparing
            | HeldState::Available
            | HeldState::Provisioning => json!({}),
        };
        self.lab.create(&self.name, self.index, VIRTUAL_MEDIA, spec).await;
    }

    async fn create_unmanaged(&self) {
        self.lab.hosts.create(&self.name, json!({"bmc": null})).await;
    }

    /// Requests what brings the host into its state.
    async fn request(&self) {
        let hosts = &self.lab.hosts;
        match self.state {
            HeldState::Unmanaged | HeldState::Registering | HeldState::Inspecting => {
                self.create().await;
            }
            HeldState::Preparing => self.set_firmware().await,
            HeldState::Provisioning => hosts.edit(&self.name, self.lab.image("image.raw")).await,
            HeldState::Deprovisioning => hosts.edit(&self.name, json!({"image": null})).await,
            HeldState::Servicing => {
                let policy = json!({"metadata": {"name": self.name},
                    "spec": {"firmwareSettings": "onReboot"}});
                let policy: HostUpdatePolicy = serde_json::from_value(policy).unwrap();
                let policies = hosts.namespace.api::<HostUpdatePolicy>();
                policies.create(&PostParams::default(), &policy).await.unwrap();
                self.set_firmware().await;
                hosts.annotate(&self.name, REBOOT, json!("{\"mode\": \"hard\"}")).await;
            }
            HeldState::Available | HeldState::Provisioned | HeldState::ExternallyProvisioned => {}
        }
    }

    /// Changes a BIOS setting, and waits until the change is detected.
    async fn set_firmware(&self) {
        let settings = self.lab.hosts.namespace.api::<HostFirmwareSettings>();
        let is_read = |settings: &Option<HostFirmwareSettings>| {
            let status = settings.as_ref().and_then(|settings| settings.status.as_ref());
            status.is_some_and(|status| status.settings.contains_key(SETTING))
        };
        wait_for("settings", &settings, &self.name, is_read).await;
        let patch = Patch::Merge(json!({"spec": {"settings": {SETTING: "Enabled"}}}));
        settings.patch(&self.name, &PatchParams::default(), &patch).await.unwrap();
        let is_detected = |settings: &Option<HostFirmwareSettings>| {
            let settings = settings.as_ref().unwrap();
            let mut conditions = settings.status.iter().flat_map(|status| &status.conditions);
            conditions.any(|found| {
                found.type_ == "ChangeDetected"
                    && found.status == "True"
                    && found.observed_generation == settings.metadata.generation
            })
        };
        wait_for("a detected change", &settings, &self.name, is_detected).await;
    }

    async fn until(&self, what: &str, is_met: impl Fn(&BareMetalHost) -> bool) {
        self.lab.hosts.until(&self.name, &format!("{}: {what}", self.name), is_met).await;
    }

    /// Waits for the state that follows, and checks that nothing was done twice.
    async fn until_goal(&self) {
        let goal = self.state.goal();
        self.until(goal, |host| {
            state_of(host) == goal
                && error_of(host).is_empty()
                && operational(host) != "servicing"
                && (is_on(host) || self.state == HeldState::Unmanaged)
        })
        .await;
        if self.state == HeldState::Unmanaged {
            return;
        }
        let machine = self.lab.machine(self.index);
        if goal == "provisioned" {
            let what = format!("{}: the image runs", self.name);
            until_true(&what, || machine.running_software() == RunningSoftware::Instance).await;
            assert_eq!(machine.completed_step_count("write_image"), 1, "{}", self.name);
        }
        if matches!(self.state, HeldState::Preparing | HeldState::Servicing) {
            assert_eq!(machine.bios_attribute(SETTING), Some(json!("Enabled")), "{}", self.name);
        }
        if self.state == HeldState::Deprovisioning {
            assert_eq!(machine.disk_image(), None, "{}", self.name);
        }
    }
}

/// Starts the operator as a process.
fn start_operator(lab: &ServiceLab, number: u32) -> LoggedProcess {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrite"));
    command.args(["operator", "--controllers", "baremetalhost"]);
    command.args(["--namespace", &lab.hosts.namespace.name, "--log-level", "info,operator=debug"]);
    for listen in ["--webhook-listen", "--metrics-listen", "--health-listen"] {
        command.args([listen, "off"]);
    }
    command.env("IRONIC_ENDPOINT", format!("{}/v1/", lab.service_url()));
    command.envs(lab.ramdisk_variables());
    command.env("METAL3_AUTH_ROOT_DIR", lab.path("no-credentials"));
    command.env("KUBECONFIG", lab.hosts.namespace.cluster.kubeconfig());
    LoggedProcess::start(command, lab.path(&format!("operator-{number}.log")))
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_continue_or_are_deleted_after_a_kill_in_every_state() {
    let machines = u32::try_from(2 * STATES.len()).unwrap();
    let Some(mut lab) = ServiceLab::start("service-states", machines).await else { return };
    lab.hosts.stop_operator().await;
    lab.hosts.create_secret(WRONG, "admin", "wrong").await;
    let operator = start_operator(&lab, 1);
    let lab_ref = &lab;
    let hosts = |purpose: &str, first: u32| -> Vec<HeldHost<'_>> {
        let named = (first..).zip(STATES).map(|(index, state)| {
            let name = format!("{purpose}-{}", state.label().replace(' ', "-"));
            HeldHost { lab: lab_ref, state, index, name }
        });
        named.collect()
    };
    let kept = hosts("kept", 0);
    let deleted = hosts("deleted", machines / 2);
    let all = || kept.iter().chain(&deleted);
    for host in all().filter(|host| host.state.start().is_some()) {
        host.create().await;
    }
    for host in all() {
        if let Some(start) = host.state.start() {
            host.until(start, |found| {
                state_of(found) == start && is_on(found) && error_of(found).is_empty()
            })
            .await;
        }
    }
    // From now on no agent finds the service.
    lab.fleet.set_agent_api(NO_SERVICE);
    for host in all() {
        host.request().await;
    }
    for host in all() {
        host.until(host.state.label(), |found| host.state.is_held(found)).await;
    }
    operator.kill();
    let operator = start_operator(&lab, 2);
    for host in &deleted {
        lab.hosts.delete(&host.name).await;
    }
    // Killed again, while it deletes hosts.
    for host in &deleted {
        let is_deleted = |found: &Option<BareMetalHost>| {
            found.as_ref().is_none_or(|found| {
                matches!(
                    state_of(found),
                    "deprovisioning" | "powering off before delete" | "deleting"
                )
            })
        };
        wait_for("the deletion", &lab.hosts.hosts(), &host.name, is_deleted).await;
    }
    operator.kill();
    let operator = start_operator(&lab, 3);
    lab.fleet.set_agent_api(&lab.service_url());
    // An agent gives up sending its data after some attempts; the inspection starts again.
    let inspecting = kept.iter().filter(|host| host.state == HeldState::Inspecting);
    for host in inspecting {
        let reboot = json!("{\"mode\": \"hard\", \"force\": true}");
        lab.hosts.annotate(&host.name, REBOOT, reboot).await;
    }
    let password = Patch::Merge(json!({"stringData": {"password": "password"}}));
    let secrets = lab.hosts.namespace.api::<Secret>();
    secrets.patch(WRONG, &PatchParams::default(), &password).await.unwrap();
    for host in &deleted {
        lab.hosts.until_gone(&host.name).await;
        if host.state != HeldState::Unmanaged {
            let image = lab.machine(host.index).disk_image();
            assert_eq!(image, None, "{} was erased", host.name);
        }
    }
    for host in &kept {
        host.until_goal().await;
    }
    let nodes = lab.node_names();
    assert!(!nodes.iter().any(|name| name.contains("~deleted-")), "{nodes:?}");
    for host in &kept {
        lab.hosts.delete(&host.name).await;
    }
    for host in &kept {
        lab.hosts.until_gone(&host.name).await;
    }
    assert_eq!(lab.node_names(), Vec::<String>::new());
    operator.stop().await;
    drop((kept, deleted));
    lab.end().await;
}
