// SPDX-License-Identifier: Apache-2.0
//! The deploy interface `anaconda`: from booting the installer to booting what it installed, and what
//! is said when that does not happen.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bmc_drivers::{
    BootDesk, DriverSettings, Error, ImageDownloadSource, OfferedImage, Outcome, Published,
    RamdiskMode, Registry, Target, boot_again,
};
use node_model::{BootExperience, BootPurpose, BootWay, InterfaceKind, PowerState, StepFlow};
use serde_json::json;

use crate::machine::Machine;

/// Boot services that lay nothing out and remember what they were asked for.
#[derive(Default)]
struct Desk {
    asked: Mutex<Vec<String>>,
    refuses: bool,
}

#[async_trait]
impl BootDesk for Desk {
    fn check(&self, _: &Target<'_>, _: BootWay, purpose: BootPurpose) -> Result<(), Error> {
        if self.refuses && purpose == BootPurpose::Installer {
            let (name, why) = ("instance_info/stage2".to_owned(), "give it".to_owned());
            return Err(Error::MissingParameter { name, why });
        }
        Ok(())
    }

    async fn publish(
        &self,
        target: &Target<'_>,
        way: BootWay,
        purpose: BootPurpose,
    ) -> Result<Published, Error> {
        self.check(target, way, purpose)?;
        self.asked.lock().expect("nobody panics with it").push(format!("{purpose} by {way}"));
        Ok(Published { cd: String::new(), config_drive: None })
    }

    async fn withdraw(&self, _: &Target<'_>) -> Result<(), Error> {
        self.asked.lock().expect("nobody panics with it").push("disk".to_owned());
        Ok(())
    }

    async fn offer_image(
        &self,
        _: &Target<'_>,
        _: ImageDownloadSource,
    ) -> Result<OfferedImage, Error> {
        panic!("no agent fetches it")
    }

    async fn config_drive(&self, _: &Target<'_>) -> Result<Option<String>, Error> {
        panic!("it is in the kickstart")
    }

    async fn experience(&self, _: &str) -> Vec<BootExperience> {
        Vec::new()
    }

    async fn note(&self, _: &str, _: BootWay, _: bool) {}
}

/// A machine that is deployed by an installer, and what was asked of the boot services for it.
struct Site {
    machine: Machine,
    desk: Arc<Desk>,
}

impl Site {
    fn new() -> Self {
        Self::with("ipxe", Desk::default())
    }

    fn with(boot: &str, desk: Desk) -> Self {
        let mut machine = Machine::fake(json!({}));
        machine.node.interfaces.set(InterfaceKind::Deploy, Some("anaconda"));
        machine.node.interfaces.set(InterfaceKind::Boot, Some(boot));
        machine.node.power_state = Some(PowerState::Off);
        let mut site = Self { machine, desk: Arc::new(desk) };
        site.restart();
        site
    }

    /// What a new process knows.
    fn restart(&mut self) {
        let mut settings = DriverSettings { install_timeout: 1000, ..DriverSettings::default() };
        settings.enabled_deploy_interfaces.push("anaconda".to_owned());
        let desk: Arc<dyn BootDesk> = self.desk.clone();
        let registry = Registry::new(&settings, desk).expect("the settings work");
        self.machine.driver = registry.compose(&self.machine.node).expect("the interfaces exist");
    }

    async fn step(&mut self) -> Result<Outcome, Error> {
        let deploy = InterfaceKind::Deploy;
        self.machine.step(deploy, StepFlow::Deploy, "deploy", json!({})).await
    }

    /// The installer calls.
    async fn says(&mut self, status: &str, message: &str) -> Result<Outcome, Error> {
        self.machine.node.agent.status = Some(status.to_owned());
        self.machine.node.agent.status_message = Some(message.to_owned());
        self.machine.node.agent.last_heartbeat = Some(self.machine.now);
        self.restart();
        self.step().await
    }

    fn pass(&mut self, seconds: u64) {
        self.machine.now = self.machine.now.plus(Duration::from_secs(seconds));
    }

    /// Waits as long as it is told to, and looks again.
    async fn look(&mut self, outcome: Outcome) -> Result<Outcome, Error> {
        let Outcome::AgentWorks { moment, .. } = outcome else { panic!("{outcome:?}") };
        self.machine.now = moment;
        self.restart();
        self.step().await
    }

    fn asked(&self) -> String {
        self.desk.asked.lock().expect("nobody panics with it").join(", ")
    }
}

#[tokio::test]
async fn what_is_needed() {
    for boot in ["ipxe", "pxe", "http-ipxe", "http"] {
        let site = Site::with(boot, Desk::default());
        let deploy = site.machine.driver.interface(InterfaceKind::Deploy);
        deploy.validate(&site.machine.target()).await.unwrap();
    }
    for (boot, refuses, named) in
        [("automatic", false, "boot_interface"), ("fake", false, "ipxe"), ("ipxe", true, "stage2")]
    {
        let site = Site::with(boot, Desk { refuses, ..Desk::default() });
        let driver = &site.machine.driver;
        let target = site.machine.target();
        let deploy = driver.interface(InterfaceKind::Deploy);
        let error = deploy.validate(&target).await.unwrap_err().to_string();
        assert!(error.contains(named), "{boot}: {error}");
        let early = driver.deploy().prepare(&target).await.unwrap_err().to_string();
        assert_eq!(early, error);
    }
}

#[tokio::test]
async fn a_whole_installation() {
    let mut site = Site::new();
    let booted = site.step().await.unwrap();
    assert!(matches!(booted, Outcome::WaitForAgent(_)), "{booted:?}");
    assert_eq!(site.machine.node.power_state, Some(PowerState::On));
    assert_eq!(site.asked(), "installer by ipxe");
    // Somebody calls without a word of how far it is.
    let waiting = site.step().await.unwrap();
    assert!(matches!(waiting, Outcome::WaitForAgent(_)), "{waiting:?}");

    let started = site.says("start", "here we go").await.unwrap();
    assert_eq!(
        site.machine.notes.get_str("progress").as_deref(),
        Some("the installer has started: here we go")
    );
    let looked = site.look(started).await.unwrap();
    let Outcome::AgentWorks { moment, .. } = looked else { panic!("{looked:?}") };
    assert_eq!(moment.since(site.machine.now), Duration::from_secs(60));
    site.pass(30);
    let ended = site.says("end", "done").await.unwrap();
    let Outcome::Done(changes) = ended else { panic!("{ended:?}") };
    assert!(changes.agent_is_gone);
    assert_eq!(site.machine.node.power_state, Some(PowerState::On));
    assert_eq!(site.asked(), "installer by ipxe, disk");
    let device =
        site.machine.driver.management().boot_device(&site.machine.target()).await.unwrap();
    assert_eq!(device.device, Some(bmc_drivers::BootDevice::Disk));
}

#[tokio::test]
async fn an_installer_that_fails_has_the_last_word() {
    let mut site = Site::new();
    let _booting = site.step().await.unwrap();
    let _working = site.says("start", "").await.unwrap();
    let error = site.says("error", "no disk is large enough").await.unwrap_err().to_string();
    assert!(error.contains("no disk is large enough"), "{error}");
    let error = site.says("error", "").await.unwrap_err().to_string();
    assert!(error.contains("nothing but that it failed"), "{error}");
    let changes = site.machine.driver.deploy().clean_up(&site.machine.target()).await.unwrap();
    assert_eq!(changes.power_state, None);
    assert!(site.asked().ends_with("disk"));
}

#[tokio::test]
async fn an_installer_that_never_ends_is_explained() {
    let mut site = Site::new();
    let _booting = site.step().await.unwrap();
    let mut outcome = site.says("start", "").await.unwrap();
    let started = site.machine.now;
    let error = loop {
        outcome = match site.look(outcome).await {
            Ok(next) => next,
            Err(error) => break error.to_string(),
        };
    };
    assert_eq!(site.machine.now.since(started), Duration::from_secs(1000));
    assert!(error.contains("1000 s ago") && error.contains("install_timeout"), "{error}");
    // Somebody looks at it: it has all the time there is.
    site.machine.node.maintenance = true;
    assert!(matches!(site.step().await.unwrap(), Outcome::AgentWorks { .. }));
}

#[tokio::test]
async fn a_machine_that_goes_off_is_explained_unless_it_was_done() {
    for is_done in [false, true] {
        let mut site = Site::new();
        let _booting = site.step().await.unwrap();
        let started = site.says("start", "").await.unwrap();
        site.machine.node.power_state = Some(PowerState::Off);
        let found_off = site.look(started).await.unwrap();
        let Outcome::AgentWorks { moment, .. } = &found_off else { panic!("{found_off:?}") };
        assert_eq!(moment.since(site.machine.now), Duration::from_secs(10));
        if is_done {
            assert!(matches!(site.says("end", "").await.unwrap(), Outcome::Done(_)));
        } else {
            let error = site.look(found_off).await.unwrap_err().to_string();
            assert!(error.contains("the machine is off"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_machine_that_is_booted_again_boots_the_installer() {
    let mut site = Site::new();
    let _booting = site.step().await.unwrap();
    assert_eq!(site.machine.driver.deploy().boots(), RamdiskMode::Installer);
    let _changes = boot_again(&site.machine.target(), RamdiskMode::Installer).await.unwrap();
    assert_eq!(site.asked(), "installer by ipxe, installer by ipxe");
}
