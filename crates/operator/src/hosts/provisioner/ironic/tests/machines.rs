// SPDX-License-Identifier: Apache-2.0
//! Simulated machines with agents that call a service, and the life cycle of a host on one of them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fleet_sim::machine::{PowerState, RunningSoftware};
use fleet_sim::{
    FaultRule, FleetConfig, Personality, SimulatedAgentConfig, SimulatedFleet, SimulatedMachine,
};
use ironic_client::{Api, ApiTarget};
use kube_resources::hosts::annotations::HostRebootMode;
use kube_resources::hosts::bare_metal_host::AutomatedCleaningMode;
use kube_resources::hosts::bmc_address::{BmcAddress, HostBmcCredentials};
use kube_resources::hosts::host_image::HostImage;
use kube_resources::hosts::raid::HostRaid;
use serde_json::{Value, json};

use super::super::{IronicProvisioner, IronicProvisionerSettings};
use crate::hosts::provisioner::{
    AbortScope, AdoptionRequest, BmcAccess, BmcEventRequest, DeprovisionRequest, FirmwareChanges,
    HostDeployRequest, HostProvisioner, InspectionRequest, ManagedHost, PowerOffRequest,
    PreparationRequest, ProvisionerWaitReason, RegistrationRequest, ServicingRequest, VerbOutcome,
    VerbStop,
};

/// Time limit of a verb.
const LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);
const MACHINES: u32 = 4;
/// Content of every file that the test serves, and its SHA-256.
const FILE: &[u8] = b"abc";
const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// A provisioner for a service, and machines that the service manages.
pub(super) struct MachineBench {
    pub(super) provisioner: IronicProvisioner,
    fleet: SimulatedFleet,
    /// A server that returns a small file for every path.
    files: String,
}

impl MachineBench {
    /// `speed` makes the machines faster.
    pub(super) fn start(url: &str, speed: f64, settings: IronicProvisionerSettings) -> Self {
        let api = Api::new(ApiTarget::at(url, None, None, "a test").unwrap()).unwrap();
        let fleet = SimulatedFleet::start(FleetConfig {
            bmcs: MACHINES,
            personalities: vec![Personality::built_in("generic").unwrap()],
            speed,
            agents: Some(SimulatedAgentConfig { tls: true, ..SimulatedAgentConfig::for_api(url) }),
            ..FleetConfig::default()
        })
        .unwrap();
        Self {
            provisioner: IronicProvisioner::new(Arc::new(api), settings),
            fleet,
            files: serve_files(),
        }
    }

    fn machine(&self, index: u32) -> SimulatedMachine {
        self.fleet.machine(index).unwrap()
    }

    fn add_fault(&self, rule: &str) {
        self.fleet.faults().add(rule.parse::<FaultRule>().unwrap(), self.fleet.now());
    }

    /// A host for a machine, not registered yet.
    pub(super) fn host(&self, index: u32, scheme: &str) -> ManagedHost {
        let machine = self.machine(index);
        let address = format!("{scheme}+http://{}{}", machine.address(), machine.system_path());
        ManagedHost {
            namespace: "lab".to_owned(),
            name: format!("host-{index}"),
            uid: format!("6a6a6a6a-0000-4000-8000-00000000000{index}"),
            node_id: None,
            boot_mac_address: machine.macs().first().map(ToString::to_string),
            bmc: Some(BmcAccess {
                address: BmcAddress::parse(&address).unwrap(),
                credentials: credentials("password"),
                disable_certificate_verification: false,
            }),
            disable_power_off: false,
        }
    }

    /// Calls a verb until it is done. Returns the message of a failure.
    async fn finish<T>(
        &self,
        verb: &str,
        mut call: impl AsyncFnMut(bool) -> VerbOutcome<T>,
    ) -> Result<T, String> {
        let start = Instant::now();
        let mut is_started = false;
        loop {
            let stop = match call(!is_started).await {
                Err(VerbStop::Failed(failure)) => {
                    println!("{verb} failed after {:?}: {}", start.elapsed(), failure.message);
                    return Err(failure.message);
                }
                Err(stop) => stop,
                Ok(value) => {
                    println!("{verb} took {:?}", start.elapsed());
                    return Ok(value);
                }
            };
            is_started |= matches!(&stop, VerbStop::InProgress(wait) if wait.is_changed);
            assert!(start.elapsed() < LIMIT, "{verb} does not end: {stop:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// What a new host needs. Hosts with virtual media boot an ISO image that was built for them.
    fn registration(&self, host: &ManagedHost) -> RegistrationRequest {
        let boots_iso = host.bmc.as_ref().unwrap().address.bmc_type.boots_iso;
        let image = json!({"imageUrl": format!("{}/ramdisk.iso", self.files), "format": "iso"});
        RegistrationRequest {
            ramdisk: boots_iso.then(|| serde_json::from_value(image).unwrap()),
            ..RegistrationRequest::default()
        }
    }

    async fn register(
        &self,
        host: &mut ManagedHost,
        request: &RegistrationRequest,
    ) -> Result<(), String> {
        let mut request = request.clone();
        let registered = self
            .finish("register", async |is_start| {
                // The first request restarts what failed before; the others observe it.
                request.restart_on_failure &= is_start;
                request.credentials_changed &= is_start;
                self.provisioner.register(host, &request).await.node_id
            })
            .await?;
        host.node_id = Some(registered);
        Ok(())
    }

    pub(super) async fn registered_host(&self, index: u32, scheme: &str) -> ManagedHost {
        let mut host = self.host(index, scheme);
        let request = self.registration(&host);
        self.register(&mut host, &request).await.unwrap();
        host
    }

    async fn power(&self, host: &ManagedHost, is_on: bool) {
        let off = PowerOffRequest {
            mode: HostRebootMode::Soft,
            is_forced: false,
            aborts: AbortScope::Nothing,
        };
        self.finish("power", async |_| match is_on {
            true => self.provisioner.power_on(host, false).await,
            false => self.provisioner.power_off(host, &off).await,
        })
        .await
        .unwrap();
        assert_eq!(self.provisioner.observe(host).await.unwrap().powered_on, Some(is_on));
    }

    pub(super) async fn remove(&self, host: &ManagedHost) {
        let scope = AbortScope::AllButErasure;
        self.finish("delete", async |_| self.provisioner.delete(host, scope).await).await.unwrap();
        let found = self.provisioner.observe(host).await;
        assert_eq!(found, Err(VerbStop::NeedsRegistration));
    }

    async fn prepare(&self, host: &ManagedHost, request: PreparationRequest) -> Result<(), String> {
        self.finish("prepare", async |is_start| {
            let request = PreparationRequest { is_start, ..request.clone() };
            self.provisioner.prepare(host, &request).await
        })
        .await
    }

    /// The requested BIOS settings together with the current ones.
    async fn settings(&self, host: &ManagedHost, requested: Value) -> FirmwareChanges {
        let current = self.provisioner.firmware_settings(host, false).await.unwrap();
        FirmwareChanges {
            settings: serde_json::from_value(requested).unwrap(),
            current_settings: Some(current.settings),
            updates: Vec::new(),
        }
    }

    /// The image that is written to disks.
    fn image(&self) -> HostImage {
        let image = json!({"url": format!("{}/image.raw", self.files), "format": "raw",
            "checksum": DIGEST, "checksumType": "sha256"});
        serde_json::from_value(image).unwrap()
    }

    /// Deployment of an image without cleaning before it, because the disks have no data.
    fn deployment(&self, host: &ManagedHost) -> HostDeployRequest {
        HostDeployRequest {
            image: Some(self.image()),
            config_drive: Some(json!({"meta_data": {"name": host.name},
                "user_data": "#cloud-config\n"})),
            root_device_hints: serde_json::from_value(json!({"minSizeGigabytes": 10})).ok(),
            automated_cleaning: Some(AutomatedCleaningMode::Disabled),
            ..HostDeployRequest::default()
        }
    }

    async fn deploy(&self, host: &ManagedHost, request: &HostDeployRequest) {
        self.finish("provision", async |_| self.provisioner.provision(host, request).await)
            .await
            .unwrap();
    }

    async fn deprovision(&self, host: &ManagedHost) {
        self.finish("deprovision", async |is_start| {
            let request =
                DeprovisionRequest { restart_on_failure: !is_start, ..Default::default() };
            self.provisioner.deprovision(host, &request).await
        })
        .await
        .unwrap();
    }

    async fn adopt(&self, host: &ManagedHost) {
        let request = AdoptionRequest::default();
        self.finish("adopt", async |_| self.provisioner.adopt(host, &request).await).await.unwrap();
    }

    /// A wrong password is reported, and a new one is accepted.
    pub(super) async fn register_with_wrong_password(&self, host: &mut ManagedHost) {
        let access = host.bmc.as_mut().unwrap();
        let right = std::mem::replace(&mut access.credentials, credentials("wrong"));
        let request = self.registration(host);
        let error = self.register(host, &request).await.unwrap_err();
        assert!(!error.is_empty());
        host.bmc.as_mut().unwrap().credentials = right;
        let request = RegistrationRequest { credentials_changed: true, ..request };
        self.register(host, &request).await.unwrap();
    }

    /// The agent finds the hardware.
    pub(super) async fn inspect(&self, host: &ManagedHost, is_fast: bool) {
        let hardware = self
            .finish("inspect", async |is_start| {
                let request =
                    InspectionRequest { is_fast, refresh: is_start, ..Default::default() };
                self.provisioner.inspect(host, &request).await
            })
            .await
            .unwrap();
        assert!(hardware.ram_mebibytes > 0 && hardware.cpu.count > 0, "{hardware:?}");
        let macs: Vec<&str> = hardware.nics.iter().filter_map(|nic| nic.mac.as_deref()).collect();
        assert!(macs.contains(&host.boot_mac_address.as_deref().unwrap()), "{macs:?}");
    }

    /// RAID volumes and BIOS settings.
    pub(super) async fn prepare_hardware(&self, host: &ManagedHost, index: u32) {
        let reading = self.provisioner.firmware_settings(host, true).await.unwrap();
        assert_eq!(reading.settings["SriovGlobalEnable"], "Disabled");
        assert!(reading.schema.unwrap()["BootDelaySeconds"].attribute_type.is_some());
        let requested = json!({"SriovGlobalEnable": "Enabled", "BootDelaySeconds": 7});
        let raid: HostRaid = serde_json::from_value(json!({"hardwareRAIDVolumes": [
            {"level": "1", "sizeGibibytes": 100, "numberOfPhysicalDisks": 2}]}))
        .unwrap();
        let request = PreparationRequest {
            raid: Some(raid.clone()),
            firmware: self.settings(host, requested).await,
            ..PreparationRequest::default()
        };
        self.prepare(host, request).await.unwrap();
        let machine = self.machine(index);
        assert_eq!(machine.volumes().len(), 1);
        assert_eq!(machine.bios_attribute("SriovGlobalEnable"), Some(json!("Enabled")));
        assert_eq!(machine.bios_attribute("BootDelaySeconds"), Some(json!(7)));
        let request = PreparationRequest {
            raid: serde_json::from_value(json!({"hardwareRAIDVolumes": []})).ok(),
            applied_raid: Some(raid),
            ..PreparationRequest::default()
        };
        self.prepare(host, request).await.unwrap();
        assert!(machine.volumes().is_empty());
    }

    /// Deployment, power, detachment with adoption, removal of the image.
    pub(super) async fn deploy_and_adopt(&self, host: &mut ManagedHost, index: u32) {
        let machine = self.machine(index);
        self.deploy(host, &self.deployment(host)).await;
        self.power(host, true).await;
        let is_running = || machine.running_software() == RunningSoftware::Instance;
        wait_until("the image does not run", is_running).await;
        assert!(machine.disk_image().unwrap().config_drive);
        self.power(host, false).await;
        assert_eq!(machine.power_state(), PowerState::Off);
        self.power(host, true).await;
        wait_until("the image does not run", is_running).await;
        let detached = async |_| self.provisioner.detach(host, false).await;
        self.finish("detach", detached).await.unwrap();
        host.node_id = None;
        let boots = machine.boot_history().len();
        let request =
            RegistrationRequest { current_image: Some(self.image()), ..self.registration(host) };
        self.register(host, &request).await.unwrap();
        self.adopt(host).await;
        assert_eq!(machine.boot_history().len(), boots, "the system keeps running");
        assert!(is_running());
    }

    /// BIOS settings of a host that runs an image.
    pub(super) async fn service(&self, host: &ManagedHost, index: u32) {
        let requested = json!({"SriovGlobalEnable": "Disabled"});
        let firmware = self.settings(host, requested).await;
        self.change_firmware(host, firmware).await;
        let machine = self.machine(index);
        assert_eq!(machine.bios_attribute("SriovGlobalEnable"), Some(json!("Disabled")));
    }

    async fn change_firmware(&self, host: &ManagedHost, firmware: FirmwareChanges) {
        self.finish("service", async |is_start| {
            let request = ServicingRequest {
                firmware: firmware.clone(),
                is_start,
                restart_on_failure: false,
            };
            self.provisioner.service(host, &request).await
        })
        .await
        .unwrap();
    }

    /// Firmware of a host that runs an image.
    pub(super) async fn update_firmware(&self, host: &ManagedHost) {
        let version = async || {
            let components = self.provisioner.firmware_components(host).await.unwrap();
            let bios = components.into_iter().find(|part| part.component == "bios").unwrap();
            bios.current_version.unwrap()
        };
        let before = version().await;
        let url = format!("{}/bios-9.9.9.bin", self.files);
        let updates = serde_json::from_value(json!([{"component": "bios", "url": url}])).unwrap();
        self.change_firmware(host, FirmwareChanges { updates, ..Default::default() }).await;
        assert_ne!(version().await, before);
    }

    /// Software RAID, which the agent creates.
    pub(super) async fn prepare_software_raid(&self, host: &ManagedHost, index: u32) {
        let raid: HostRaid = serde_json::from_value(json!({"softwareRAIDVolumes": [
            {"level": "1", "physicalDisks": [{"deviceName": "/dev/sda"}, {"deviceName": "/dev/sdb"}]},
            {"level": "0", "sizeGibibytes": 10}]}))
        .unwrap();
        let machine = self.machine(index);
        let request = PreparationRequest { raid: Some(raid.clone()), ..Default::default() };
        self.prepare(host, request).await.unwrap();
        assert_eq!(machine.completed_step_count("create_configuration"), 1);
        let request = PreparationRequest {
            raid: serde_json::from_value(json!({"softwareRAIDVolumes": []})).ok(),
            applied_raid: Some(raid),
            ..Default::default()
        };
        self.prepare(host, request).await.unwrap();
        assert_eq!(machine.completed_step_count("create_configuration"), 1);
        assert_eq!(machine.completed_step_count("delete_configuration"), 2);
    }

    /// A live ISO, and a custom deployment after it.
    pub(super) async fn deploy_specially(&self, host: &ManagedHost, index: u32) {
        let machine = self.machine(index);
        let url = format!("{}/live.iso", self.files);
        let image = serde_json::from_value(json!({"url": url, "format": "live-iso"})).ok();
        let request = HostDeployRequest { image, config_drive: None, ..self.deployment(host) };
        self.deploy(host, &request).await;
        assert!(machine.virtual_media().iter().any(Option::is_some));
        self.deprovision(host).await;
        assert!(machine.virtual_media().iter().all(Option::is_none));
        let custom = serde_json::from_value(json!({"method": "clean_uefi_nvram"})).ok();
        let request =
            HostDeployRequest { image: None, custom_deploy: custom, ..self.deployment(host) };
        self.deploy(host, &request).await;
        assert_eq!(machine.completed_step_count("clean_uefi_nvram"), 1);
        assert_eq!(machine.completed_step_count("write_image"), 0);
    }

    /// Event subscriptions and firmware versions.
    pub(super) async fn read_and_subscribe(&self, host: &ManagedHost) {
        let components = self.provisioner.firmware_components(host).await.unwrap();
        let names: Vec<&str> = components.iter().map(|part| part.component.as_str()).collect();
        assert!(names.contains(&"bios") && names.contains(&"bmc"), "{names:?}");
        let subscription = BmcEventRequest {
            destination: "https://127.0.0.1:9/events".to_owned(),
            context: Some("rack 7".to_owned()),
            http_headers: [("X-Token".to_owned(), "1".to_owned())].into(),
            ..BmcEventRequest::default()
        };
        let id = self.provisioner.add_event_subscription(host, &subscription).await.unwrap();
        let again = self.provisioner.add_event_subscription(host, &subscription).await.unwrap();
        assert_eq!(again, id, "the first one is used again");
        self.provisioner.remove_event_subscription(host, &id).await.unwrap();
        // Also one that does not exist.
        self.provisioner.remove_event_subscription(host, &id).await.unwrap();
    }

    /// An image as virtual media.
    pub(super) async fn attach_data_image(&self, host: &ManagedHost, index: u32) {
        let machine = self.machine(index);
        let is_inserted = || machine.virtual_media().iter().any(Option::is_some);
        assert!(!is_inserted());
        let attach = async |name: &str| {
            let url = format!("{}/{name}", self.files);
            self.finish("attach", async |_| self.provisioner.attach_data_image(host, &url).await)
                .await
        };
        attach("data.iso").await.unwrap();
        assert!(is_inserted());
        self.finish("detach", async |_| self.provisioner.detach_data_image(host).await)
            .await
            .unwrap();
        assert!(!is_inserted());
        assert!(attach("missing").await.is_err());
    }

    /// Removal of the image, and of the node.
    pub(super) async fn deprovision_and_delete(&self, host: &ManagedHost) {
        self.deprovision(host).await;
        self.remove(host).await;
    }

    /// A host whose agent never starts can be detached by force while it is deployed.
    pub(super) async fn detach_during_deployment(&self, index: u32, scheme: &str) {
        let host = self.registered_host(index, scheme).await;
        let request = self.deployment(&host);
        let deadline = Instant::now() + LIMIT;
        loop {
            let stop = self.provisioner.provision(&host, &request).await.unwrap_err();
            assert!(Instant::now() < deadline, "{stop:?}");
            if let VerbStop::InProgress(wait) = &stop
                && wait.reason == ProvisionerWaitReason::Deploying
                && self.machine(index).power_state() == PowerState::On
            {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        self.finish("detach", async |_| self.provisioner.detach(&host, true).await).await.unwrap();
    }

    /// A host whose agent never starts can be removed while it is inspected.
    pub(super) async fn delete_during_inspection(&self, index: u32, scheme: &str) {
        self.add_fault(&format!("hang path=/agent/boot bmcs={index}"));
        let host = self.registered_host(index, scheme).await;
        let request = InspectionRequest::default();
        let start = self.provisioner.inspect(&host, &request).await;
        assert!(matches!(start, Err(VerbStop::InProgress(wait)) if wait.is_changed));
        self.remove(&host).await;
    }
}

/// Settings with a ramdisk. Machines only simulate booting it, so any files will do.
pub(super) fn ramdisk_settings(folder: &Path) -> IronicProvisionerSettings {
    let variable = |variable: &str, name: &str| {
        let path = folder.join(name);
        std::fs::write(&path, name).unwrap();
        (variable.to_owned(), format!("file://{}", path.display()))
    };
    let variables =
        [variable("DEPLOY_KERNEL_URL", "kernel"), variable("DEPLOY_RAMDISK_URL", "ramdisk")];
    IronicProvisionerSettings::from_variables(variables, false).unwrap()
}

/// Waits for something that no verb reports.
async fn wait_until(failure: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "{failure}");
        tokio::time::sleep(POLL).await;
    }
}

fn credentials(password: &str) -> Arc<HostBmcCredentials> {
    Arc::new(HostBmcCredentials { username: "admin".to_owned(), password: password.to_owned() })
}

/// Serves a small file under every path but `missing`, and an ISO 9660 image for paths of this kind;
/// returns the URL.
fn serve_files() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(request)) = lines.next() else { continue };
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let content = if request.contains(".iso ") { iso_image() } else { FILE.to_vec() };
            let status = if request.contains("/missing ") { "404 Not Found" } else { "200 OK" };
            let size = content.len();
            let head =
                format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n");
            // The client may have gone.
            let _ = stream.write_all(head.as_bytes());
            if request.starts_with("GET") {
                let _ = stream.write_all(&content);
            }
        }
    });
    url
}

/// The system area, an empty volume descriptor and the end of descriptors.
fn iso_image() -> Vec<u8> {
    let mut image = vec![0; 18 * 2048];
    image[16 * 2048..][..7].copy_from_slice(b"\x01CD001\x01");
    image[17 * 2048..][..7].copy_from_slice(b"\xffCD001\x01");
    image
}
