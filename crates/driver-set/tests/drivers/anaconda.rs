// SPDX-License-Identifier: Apache-2.0
//! The deploy interface `anaconda`: from booting the installer to booting the installed system, and its
//! errors.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use driver_set::{DriverSettings, build_registry};
use drivers::ramdisk_boot::retry_ramdisk_boot;
use drivers::{
    BootService, DriverError, DriverTarget, ImageDownloadSource, PublishedBootMedia,
    PublishedImage, RamdiskMode, StepOutcome,
};
use fake_driver::FakeMachine;
use node_model::{
    ActionProgress, BootMethod, BootMethodStats, BootPurpose, InterfaceKind, PowerState, StepFlow,
};
use serde_json::json;

use crate::machine;

/// A boot service that publishes nothing and records the calls.
#[derive(Default)]
struct InstallerBootService {
    calls: Mutex<Vec<String>>,
    rejects_installer: bool,
}

#[async_trait]
impl BootService for InstallerBootService {
    fn check(
        &self,
        _: &DriverTarget<'_>,
        _: BootMethod,
        purpose: BootPurpose,
    ) -> Result<(), DriverError> {
        if self.rejects_installer && purpose == BootPurpose::Installer {
            let (name, why) = ("instance_info/stage2".to_owned(), "give it".to_owned());
            return Err(DriverError::MissingParameter { name, why });
        }
        Ok(())
    }

    async fn publish(
        &self,
        target: &DriverTarget<'_>,
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<PublishedBootMedia, DriverError> {
        self.check(target, method, purpose)?;
        self.calls.lock().expect("no thread panics").push(format!("{purpose} by {method}"));
        Ok(PublishedBootMedia { boot_url: String::new(), config_drive: None })
    }

    async fn withdraw(&self, _: &DriverTarget<'_>) -> Result<(), DriverError> {
        self.calls.lock().expect("no thread panics").push("disk".to_owned());
        Ok(())
    }

    async fn publish_image(
        &self,
        _: &DriverTarget<'_>,
        _: ImageDownloadSource,
    ) -> Result<PublishedImage, DriverError> {
        panic!("no agent downloads the image")
    }

    async fn config_drive(&self, _: &DriverTarget<'_>) -> Result<Option<String>, DriverError> {
        panic!("it is in the kickstart")
    }

    async fn boot_method_stats(&self, _: &str) -> Vec<BootMethodStats> {
        Vec::new()
    }

    async fn record_boot_result(&self, _: &str, _: BootMethod, _: bool) {}
}

/// A machine that is deployed by an installer, and its boot service.
struct InstallerTest {
    machine: FakeMachine,
    boot_service: Arc<InstallerBootService>,
}

impl InstallerTest {
    fn new() -> Self {
        Self::with("ipxe", InstallerBootService::default())
    }

    fn with(boot: &str, boot_service: InstallerBootService) -> Self {
        let mut machine = machine::fake(json!({}));
        machine.node.interfaces.set(InterfaceKind::Deploy, Some("anaconda"));
        machine.node.interfaces.set(InterfaceKind::Boot, Some(boot));
        machine.node.power_state = Some(PowerState::Off);
        let mut test = Self { machine, boot_service: Arc::new(boot_service) };
        test.restart();
        test
    }

    /// Simulates a new process.
    fn restart(&mut self) {
        let mut settings = DriverSettings { install_timeout: 1000, ..DriverSettings::default() };
        settings.enabled_deploy_interfaces.push("anaconda".to_owned());
        let boot_service: Arc<dyn BootService> = self.boot_service.clone();
        let registry = build_registry(&settings, boot_service).expect("the settings work");
        self.machine.driver = registry.compose(&self.machine.node).expect("the interfaces exist");
    }

    async fn step(&mut self) -> Result<StepOutcome, DriverError> {
        let deploy = InterfaceKind::Deploy;
        self.machine.step(deploy, StepFlow::Deploy, "deploy", json!({})).await
    }

    /// Simulates a heartbeat of the installer.
    async fn send_heartbeat(
        &mut self,
        status: &str,
        message: &str,
    ) -> Result<StepOutcome, DriverError> {
        self.machine.node.agent.status = Some(status.to_owned());
        self.machine.node.agent.status_message = Some(message.to_owned());
        self.machine.node.agent.last_heartbeat = Some(self.machine.now);
        self.restart();
        self.step().await
    }

    fn advance_clock(&mut self, seconds: u64) {
        self.machine.now = self.machine.now.plus(Duration::from_secs(seconds));
    }

    /// Waits until the outcome's poll time and repeats the step.
    async fn poll(&mut self, outcome: StepOutcome) -> Result<StepOutcome, DriverError> {
        let ActionProgress::PollAgentAt(poll_at) = outcome.progress else { panic!("{outcome:?}") };
        self.machine.now = poll_at;
        self.restart();
        self.step().await
    }

    fn boot_service_calls(&self) -> String {
        self.boot_service.calls.lock().expect("no thread panics").join(", ")
    }
}

#[tokio::test]
async fn validate_requires_network_boot_and_installer() {
    for boot in ["ipxe", "pxe", "http-ipxe", "http"] {
        let test = InstallerTest::with(boot, InstallerBootService::default());
        let deploy = test.machine.driver.interface(InterfaceKind::Deploy);
        deploy.validate(&test.machine.target()).await.unwrap();
    }
    for (boot, rejects_installer, expected) in
        [("automatic", false, "boot_interface"), ("fake", false, "ipxe"), ("ipxe", true, "stage2")]
    {
        let test = InstallerTest::with(
            boot,
            InstallerBootService { rejects_installer, ..InstallerBootService::default() },
        );
        let driver = &test.machine.driver;
        let target = test.machine.target();
        let deploy = driver.interface(InterfaceKind::Deploy);
        let error = deploy.validate(&target).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{boot}: {error}");
        let early = driver.deploy().prepare(&target).await.unwrap_err().to_string();
        assert_eq!(early, error);
    }
}

#[tokio::test]
async fn full_installation() {
    let mut test = InstallerTest::new();
    let booted = test.step().await.unwrap();
    assert!(booted.progress == ActionProgress::WaitForInstaller, "{booted:?}");
    assert_eq!(test.machine.node.power_state, Some(PowerState::On));
    assert_eq!(test.boot_service_calls(), "installer by ipxe");
    // A heartbeat without a status.
    let waiting = test.step().await.unwrap();
    assert!(waiting.progress == ActionProgress::WaitForInstaller, "{waiting:?}");

    let started = test.send_heartbeat("start", "here we go").await.unwrap();
    assert_eq!(
        started.changes.progress_text.as_deref(),
        Some("the installer has started: here we go")
    );
    let polled = test.poll(started).await.unwrap();
    let ActionProgress::PollAgentAt(poll_at) = polled.progress else { panic!("{polled:?}") };
    assert_eq!(poll_at.since(test.machine.now), Duration::from_secs(60));
    test.advance_clock(30);
    let ended = test.send_heartbeat("end", "done").await.unwrap();
    assert!(ended.is_done() && ended.changes.agent_stopped, "{ended:?}");
    assert_eq!(test.machine.node.power_state, Some(PowerState::On));
    assert_eq!(test.boot_service_calls(), "installer by ipxe, disk");
    let device =
        test.machine.driver.management().boot_device(&test.machine.target()).await.unwrap();
    assert_eq!(device.device, Some(drivers::BootDevice::Disk));
}

#[tokio::test]
async fn installer_error_is_reported() {
    let mut test = InstallerTest::new();
    let _booted = test.step().await.unwrap();
    let _started = test.send_heartbeat("start", "").await.unwrap();
    let error =
        test.send_heartbeat("error", "no disk is large enough").await.unwrap_err().to_string();
    assert!(error.contains("no disk is large enough"), "{error}");
    let error = test.send_heartbeat("error", "").await.unwrap_err().to_string();
    assert!(error.contains("an error without a reason"), "{error}");
    let changes = test.machine.driver.deploy().clean_up(&test.machine.target()).await.unwrap();
    assert_eq!(changes.power_state, None);
    assert!(test.boot_service_calls().ends_with("disk"));
}

#[tokio::test]
async fn installation_times_out_unless_in_maintenance() {
    let mut test = InstallerTest::new();
    let _booted = test.step().await.unwrap();
    let mut outcome = test.send_heartbeat("start", "").await.unwrap();
    let started = test.machine.now;
    let error = loop {
        outcome = match test.poll(outcome).await {
            Ok(next) => next,
            Err(error) => break error.to_string(),
        };
    };
    assert_eq!(test.machine.now.since(started), Duration::from_secs(1000));
    assert!(error.contains("1000 s ago") && error.contains("install_timeout"), "{error}");
    // No timeout during maintenance.
    test.machine.node.maintenance = true;
    assert!(matches!(test.step().await.unwrap().progress, ActionProgress::PollAgentAt(_)));
}

#[tokio::test]
async fn powered_off_machine_fails_unless_installer_ended() {
    for is_done in [false, true] {
        let mut test = InstallerTest::new();
        let _booted = test.step().await.unwrap();
        let started = test.send_heartbeat("start", "").await.unwrap();
        test.machine.node.power_state = Some(PowerState::Off);
        let found_off = test.poll(started).await.unwrap();
        let ActionProgress::PollAgentAt(poll_at) = found_off.progress else {
            panic!("{found_off:?}")
        };
        assert_eq!(poll_at.since(test.machine.now), Duration::from_secs(10));
        if is_done {
            assert!(test.send_heartbeat("end", "").await.unwrap().is_done());
        } else {
            let error = test.poll(found_off).await.unwrap_err().to_string();
            assert!(error.contains("the machine is off"), "{error}");
        }
    }
}

#[tokio::test]
async fn boot_retry_boots_installer() {
    let mut test = InstallerTest::new();
    let _booted = test.step().await.unwrap();
    assert_eq!(test.machine.driver.deploy().ramdisk_mode(), RamdiskMode::Installer);
    let _changes =
        retry_ramdisk_boot(&test.machine.target(), RamdiskMode::Installer).await.unwrap();
    assert_eq!(test.boot_service_calls(), "installer by ipxe, installer by ipxe");
}
