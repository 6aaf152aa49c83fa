// SPDX-License-Identifier: Apache-2.0
//! A provisioner without hardware, for tests and demonstrations: every operation takes two calls.
//!
//! It behaves like Metal3's provisioner of the same name, but keeps the state of each host apart.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use kube_resources::hosts::hardware_data::{
    HardwareDetails, HostCpu, HostDisk, HostDiskType, HostFirmware, HostLldp, HostNic,
    HostSystemVendor,
};
use kube_resources::hosts::host_firmware_components::FirmwareComponentVersion;
use kube_resources::hosts::preprovisioning_image::RamdiskFormat;

use super::HostProvisioner;
use super::outcome::{
    LONG_WAIT, ProvisionerFailureKind, ProvisionerWait, ProvisionerWaitReason, VerbOutcome,
    VerbStop,
};
use super::requests::{
    AbortScope, AdoptionRequest, BmcEventRequest, DeprovisionRequest, FirmwareSettingsReading,
    HostDeployRequest, HostObservation, InspectionRequest, ManagedHost, PowerOffRequest,
    PreparationRequest, RegistrationAttempt, RegistrationRequest, ServicingRequest,
};

const REGISTRATION_WAIT: Duration = Duration::from_secs(5);
const OPERATION_WAIT: Duration = Duration::from_secs(2);

/// Wait of a provisioner that need not behave like Metal3's.
const QUICK_WAIT: Duration = Duration::from_millis(20);

/// A provisioner without hardware.
#[derive(Debug, Default)]
pub struct FixtureProvisioner {
    /// Whether waits are short.
    is_quick: bool,
    hosts: Mutex<BTreeMap<(String, String), FixtureHost>>,
}

#[derive(Debug, Default)]
struct FixtureHost {
    /// `None` unless it is registered.
    node_id: Option<String>,
    /// The operation that the last call started.
    running: Option<&'static str>,
    has_image: bool,
    is_adopted: bool,
    powered_on: bool,
    /// Destinations and contexts of event subscriptions, by identifier.
    subscriptions: BTreeMap<String, (String, Option<String>)>,
    /// Why every verification of the BMC fails.
    rejection: Option<String>,
    /// Outcomes of the next calls of a verb.
    injected: BTreeMap<&'static str, VecDeque<VerbStop>>,
    calls: Vec<&'static str>,
}

impl FixtureProvisioner {
    /// A provisioner whose operations end at once.
    #[must_use]
    pub fn quick() -> Self {
        Self { is_quick: true, ..Self::default() }
    }

    /// The next calls of a verb, such as `inspect`, stop with these outcomes.
    pub fn inject(
        &self,
        host: (&str, &str),
        verb: &'static str,
        outcomes: impl IntoIterator<Item = VerbStop>,
    ) {
        let key = (host.0.to_owned(), host.1.to_owned());
        self.lock().entry(key).or_default().injected.entry(verb).or_default().extend(outcomes);
    }

    /// Every verification of the BMC of a host fails with this message; `None` ends that.
    pub fn reject(&self, host: (&str, &str), message: Option<&str>) {
        let key = (host.0.to_owned(), host.1.to_owned());
        self.lock().entry(key).or_default().rejection = message.map(str::to_owned);
    }

    /// Removes the outcomes that were injected for a host.
    pub fn release(&self, host: (&str, &str)) {
        let key = (host.0.to_owned(), host.1.to_owned());
        if let Some(state) = self.lock().get_mut(&key) {
            state.injected.clear();
        }
    }

    /// Forgets a host, as a service does that loses its database.
    pub fn forget(&self, host: (&str, &str)) {
        let key = (host.0.to_owned(), host.1.to_owned());
        if let Some(state) = self.lock().get_mut(&key) {
            *state = FixtureHost {
                calls: std::mem::take(&mut state.calls),
                powered_on: state.powered_on,
                ..FixtureHost::default()
            };
        }
    }

    /// Whether a host is registered.
    #[must_use]
    pub fn knows(&self, host: (&str, &str)) -> bool {
        let key = (host.0.to_owned(), host.1.to_owned());
        self.lock().get(&key).is_some_and(|state| state.node_id.is_some())
    }

    /// The verbs that were called for a host, in order.
    #[must_use]
    pub fn calls(&self, host: (&str, &str)) -> Vec<&'static str> {
        let key = (host.0.to_owned(), host.1.to_owned());
        self.lock().get(&key).map(|state| state.calls.clone()).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), FixtureHost>> {
        // The state is consistent after every statement.
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a verb of a host, unless an outcome was injected.
    fn run<T>(
        &self,
        host: &ManagedHost,
        verb: &'static str,
        action: impl FnOnce(&mut FixtureHost) -> VerbOutcome<T>,
    ) -> VerbOutcome<T> {
        let mut hosts = self.lock();
        let state = hosts.entry((host.namespace.clone(), host.name.clone())).or_default();
        state.calls.push(verb);
        let injected = state.injected.get_mut(verb).and_then(VecDeque::pop_front);
        let mut outcome = match injected {
            Some(stop) => Err(stop),
            None => action(state),
        };
        if let Err(VerbStop::InProgress(wait)) = &mut outcome
            && self.is_quick
        {
            wait.retry_after = QUICK_WAIT;
        }
        outcome
    }

    /// Like [`FixtureProvisioner::run`] for a registered host.
    fn run_registered<T>(
        &self,
        host: &ManagedHost,
        verb: &'static str,
        action: impl FnOnce(&mut FixtureHost) -> VerbOutcome<T>,
    ) -> VerbOutcome<T> {
        self.run(host, verb, |state| match &state.node_id {
            Some(id) if host.node_id.as_ref() == Some(id) => action(state),
            Some(_) | None => Err(VerbStop::NeedsRegistration),
        })
    }
}

impl FixtureHost {
    /// The first call starts an operation, the second ends it.
    fn two_calls(
        &mut self,
        operation: &'static str,
        reason: ProvisionerWaitReason,
        retry_after: Duration,
    ) -> VerbOutcome<()> {
        if self.running.take() == Some(operation) {
            return Ok(());
        }
        self.running = Some(operation);
        let (step, failure, is_changed) = (None, None, true);
        let next_attempt = None;
        let wait = ProvisionerWait { reason, step, failure, next_attempt, retry_after, is_changed };
        Err(VerbStop::InProgress(wait))
    }

    fn change_power(&mut self, is_on: bool) -> VerbOutcome<()> {
        if self.powered_on == is_on {
            return Ok(());
        }
        let operation = if is_on { "power on" } else { "power off" };
        self.two_calls(operation, ProvisionerWaitReason::Power, OPERATION_WAIT)?;
        self.powered_on = is_on;
        Ok(())
    }

    /// Creates a subscription, or returns an equal one that no other object uses.
    fn subscribe(&mut self, request: &BmcEventRequest) -> String {
        let wanted = (request.destination.clone(), request.context.clone());
        let mut existing = self.subscriptions.iter();
        let unused =
            existing.find(|(id, found)| **found == wanted && !request.used_ids.contains(*id));
        if let Some((id, _)) = unused {
            return id.clone();
        }
        let mut id = "temporary-fake-id".to_owned();
        for number in 2.. {
            if !self.subscriptions.contains_key(&id) {
                break;
            }
            id = format!("temporary-fake-id-{number}");
        }
        self.subscriptions.insert(id.clone(), wanted);
        id
    }

    fn remove(&mut self) -> VerbOutcome<()> {
        if self.node_id.is_none() {
            return Ok(());
        }
        self.two_calls("delete", ProvisionerWaitReason::Deleting, OPERATION_WAIT)?;
        self.node_id = None;
        self.has_image = false;
        self.is_adopted = false;
        Ok(())
    }
}

#[async_trait]
impl HostProvisioner for FixtureProvisioner {
    async fn register(
        &self,
        host: &ManagedHost,
        request: &RegistrationRequest,
    ) -> RegistrationAttempt {
        let node_id = self.run(host, "register", |state| {
            if let Some(message) = state.rejection.clone() {
                // Only new credentials or another attempt start a verification.
                if request.credentials_changed || request.restart_on_failure {
                    return Err(VerbStop::started(ProvisionerWaitReason::Verifying));
                }
                return Err(VerbStop::failed(ProvisionerFailureKind::Registration, message));
            }
            if state.node_id.is_none() {
                state.two_calls("register", ProvisionerWaitReason::Verifying, REGISTRATION_WAIT)?;
            }
            let node_id = state.node_id.get_or_insert_with(|| "temporary-fake-id".to_owned());
            Ok(node_id.clone())
        });
        node_id.into()
    }

    fn ramdisk_formats(&self, _host: &ManagedHost) -> Vec<RamdiskFormat> {
        Vec::new()
    }

    async fn inspect(
        &self,
        host: &ManagedHost,
        _request: &InspectionRequest,
    ) -> VerbOutcome<HardwareDetails> {
        self.run_registered(host, "inspect", |state| {
            state.two_calls("inspect", ProvisionerWaitReason::Inspecting, OPERATION_WAIT)?;
            Ok(fixture_hardware())
        })
    }

    async fn observe(&self, host: &ManagedHost) -> VerbOutcome<HostObservation> {
        self.run_registered(host, "observe", |state| {
            Ok(HostObservation { powered_on: Some(state.powered_on), ..HostObservation::default() })
        })
    }

    async fn adopt(&self, host: &ManagedHost, _request: &AdoptionRequest) -> VerbOutcome<()> {
        self.run_registered(host, "adopt", |state| {
            if !state.has_image && !state.is_adopted {
                state.two_calls("adopt", ProvisionerWaitReason::Adopting, OPERATION_WAIT)?;
                state.is_adopted = true;
            }
            Ok(())
        })
    }

    async fn prepare(&self, host: &ManagedHost, _request: &PreparationRequest) -> VerbOutcome<()> {
        self.run_registered(host, "prepare", |_| Ok(()))
    }

    async fn service(&self, host: &ManagedHost, _request: &ServicingRequest) -> VerbOutcome<()> {
        self.run_registered(host, "service", |_| Ok(()))
    }

    async fn provision(&self, host: &ManagedHost, _request: &HostDeployRequest) -> VerbOutcome<()> {
        self.run_registered(host, "provision", |state| {
            if !state.has_image {
                state.two_calls("provision", ProvisionerWaitReason::Deploying, LONG_WAIT)?;
                state.has_image = true;
                state.powered_on = true;
            }
            Ok(())
        })
    }

    async fn deprovision(
        &self,
        host: &ManagedHost,
        _request: &DeprovisionRequest,
    ) -> VerbOutcome<()> {
        self.run_registered(host, "deprovision", |state| {
            if state.has_image || state.is_adopted {
                state.two_calls("deprovision", ProvisionerWaitReason::Undeploying, LONG_WAIT)?;
                state.has_image = false;
                state.is_adopted = false;
            }
            Ok(())
        })
    }

    async fn delete(&self, host: &ManagedHost, _aborts: AbortScope) -> VerbOutcome<()> {
        self.run(host, "delete", FixtureHost::remove)
    }

    async fn detach(&self, host: &ManagedHost, _is_forced: bool) -> VerbOutcome<()> {
        self.run(host, "detach", FixtureHost::remove)
    }

    async fn power_on(&self, host: &ManagedHost, _is_forced: bool) -> VerbOutcome<()> {
        self.run_registered(host, "power_on", |state| state.change_power(true))
    }

    async fn power_off(&self, host: &ManagedHost, _request: &PowerOffRequest) -> VerbOutcome<()> {
        self.run_registered(host, "power_off", |state| state.change_power(false))
    }

    async fn has_capacity(&self, host: &ManagedHost) -> VerbOutcome<bool> {
        self.run(host, "has_capacity", |_| Ok(true))
    }

    async fn firmware_settings(
        &self,
        host: &ManagedHost,
        _includes_schema: bool,
    ) -> VerbOutcome<FirmwareSettingsReading> {
        self.run_registered(host, "firmware_settings", |_| Ok(FirmwareSettingsReading::default()))
    }

    async fn firmware_components(
        &self,
        host: &ManagedHost,
    ) -> VerbOutcome<Vec<FirmwareComponentVersion>> {
        self.run_registered(host, "firmware_components", |_| Ok(Vec::new()))
    }

    async fn add_event_subscription(
        &self,
        host: &ManagedHost,
        subscription: &BmcEventRequest,
    ) -> VerbOutcome<String> {
        self.run_registered(host, "add_event_subscription", |state| {
            Ok(state.subscribe(subscription))
        })
    }

    async fn remove_event_subscription(&self, host: &ManagedHost, id: &str) -> VerbOutcome<()> {
        self.run_registered(host, "remove_event_subscription", |state| {
            state.subscriptions.remove(id);
            Ok(())
        })
    }

    async fn attach_data_image(&self, host: &ManagedHost, _url: &str) -> VerbOutcome<()> {
        self.run_registered(host, "attach_data_image", |_| Ok(()))
    }

    async fn detach_data_image(&self, host: &ManagedHost) -> VerbOutcome<()> {
        self.run_registered(host, "detach_data_image", |_| Ok(()))
    }
}

fn fixture_hardware() -> HardwareDetails {
    let text = |text: &str| Some(text.to_owned());
    let nic = |name: &str, model: &str, mac: &str, ip: &str| HostNic {
        name: text(name),
        model: text(model),
        mac: text(mac),
        ip: text(ip),
        speed_gbps: 1,
        ..HostNic::default()
    };
    let disk = |name: &str| HostDisk {
        name: text(name),
        disk_type: Some(HostDiskType::Hdd),
        rotational: true,
        size_bytes: 93 << 40,
        vendor: text("Dell"),
        model: text("CFJ61"),
        ..HostDisk::default()
    };
    let lldp = HostLldp {
        switch_id: text("00:11:22:33:44:55"),
        port_id: text("Ethernet1/1"),
        switch_system_name: text("switch-1"),
    };
    let boot = nic("nic-1", "virt-io", "ab:cd:12:34:56:78", "192.168.100.1");
    HardwareDetails {
        system_vendor: HostSystemVendor::default(),
        firmware: HostFirmware::default(),
        ram_mebibytes: 128 * 1024,
        nics: vec![
            HostNic { pxe: true, lldp: Some(lldp), ..boot },
            nic("nic-2", "e1000", "12:34:56:78:ab:cd", "192.168.100.2"),
        ],
        storage: vec![disk("disk-1 (boot)"), disk("disk-2")],
        cpu: HostCpu {
            arch: text("x86_64"),
            model: text("FancyPants CPU"),
            clock_megahertz: 3000.0,
            flags: ["fpu", "hypervisor", "sse", "vmx"].map(str::to_owned).to_vec(),
            count: 1,
        },
        hostname: None,
    }
}
