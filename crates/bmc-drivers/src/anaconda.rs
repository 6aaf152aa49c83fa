// SPDX-License-Identifier: Apache-2.0
//! The deploy interface `anaconda`: the installer of Fedora, CentOS and their kin puts the system
//! onto the disk.
//!
//! The machine boots the installer over the network, with a kickstart that says what it is to do. An
//! installer is no agent and cannot be asked anything: it calls when it starts, and when it has ended
//! or failed. In between there is only the clock and the machine's power to go by.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use node_model::{
    AWAITED, BootPurpose, BootWay, InterfaceKind, PowerState, Step, StepFlow, StepOffer, Timestamp,
};

use crate::agent::{InBand, power_off, start, take_down};
use crate::driver::Shelves;
use crate::interfaces::{Deploy, Interface, NetworkUse};
use crate::step::{DEPLOY_AT_ONCE, offers};
use crate::{BootDesk, Error, NodeChanges, Outcome, RamdiskMode, Target};

/// What nodes call it.
const NAME: &str = "anaconda";

/// How often the power of a machine is looked at that installs.
const LOOK: Duration = Duration::from_secs(60);
/// How long a machine that was found off has for its last call to be written down.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The note of when the installer was first heard.
const SINCE: &str = "installing_since";
/// The note that the machine was found off.
const FOUND_OFF: &str = "found_off";
/// The note that is told to the timeline.
const PROGRESS: &str = "progress";

const INSTALL: &str = "install the system";

/// Puts this implementation on its shelf.
pub(crate) fn add_to(
    shelves: &mut Shelves,
    in_band: &Arc<InBand>,
    desk: &Arc<dyn BootDesk>,
    install_timeout: u64,
) {
    let timeout = (install_timeout > 0).then(|| Duration::from_secs(install_timeout));
    let (in_band, desk) = (Arc::clone(in_band), Arc::clone(desk));
    shelves.deploy.push((NAME, Arc::new(AnacondaDeploy { in_band, desk, timeout })));
}

/// Deploys by an installer. Cleaning and service go through the agent.
struct AnacondaDeploy {
    in_band: Arc<InBand>,
    desk: Arc<dyn BootDesk>,
    /// How long an installation may take; none is for ever.
    timeout: Option<Duration>,
}

#[async_trait]
impl Interface for AnacondaDeploy {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Deploy
    }

    fn name(&self) -> &'static str {
        NAME
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        self.check(target)?;
        // The agent is needed when the instance is gone.
        target.driver.boot().validate(target).await
    }

    fn steps(&self, flow: StepFlow) -> Vec<StepOffer> {
        offers(DEPLOY_AT_ONCE, self.kind(), flow)
    }

    fn takes_agent_steps(&self) -> bool {
        true
    }

    async fn execute_step(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<Outcome, Error> {
        if flow != StepFlow::Deploy || step.step != DEPLOY_AT_ONCE[0].name {
            return self.in_band.agent_step(target, flow, step).await;
        }
        if !target.agent_was_awaited() {
            return boot_installer(target).await;
        }
        let agent = &target.node.agent;
        let said = agent.status_message.as_deref().filter(|words| !words.is_empty());
        match agent.status.as_deref() {
            Some("end") => boot_installed(target).await,
            Some("error") => Err(Error::failed(
                INSTALL,
                format!("the installer says: {}", said.unwrap_or("nothing but that it failed")),
            )),
            Some("start") => self.wait_for_end(target, said).await,
            // Whoever called did not say how far it is.
            Some(_) | None => Ok(target.wait_for_agent(NodeChanges::none())),
        }
    }
}

impl AnacondaDeploy {
    /// Whether the machine can boot an installer, and the instance says which.
    fn check(&self, target: &Target<'_>) -> Result<(), Error> {
        let boot = target.driver.boot().name();
        let Some(way) = network_way(boot) else {
            return Err(Error::invalid(
                "boot_interface",
                format!(
                    "'{boot}' does not boot from the network, as an installer has to; use ipxe, \
                     pxe, http-ipxe or http"
                ),
            ));
        };
        self.desk.check(target, way, BootPurpose::Installer)
    }

    /// The installer is at it, unless it has taken too long or its machine is off.
    async fn wait_for_end(
        &self,
        target: &Target<'_>,
        said: Option<&str>,
    ) -> Result<Outcome, Error> {
        let mut notes = target.notes.clone();
        let since = match notes.get(SINCE).and_then(|since| since.as_i64()) {
            Some(since) => Timestamp(since),
            None => {
                notes.set(SINCE, target.now.0);
                let words = said.map(|words| format!(": {words}")).unwrap_or_default();
                notes.set(PROGRESS, format!("the installer has started{words}"));
                target.now
            }
        };
        // Machines in maintenance are somebody's to look at.
        let deadline = self.timeout.filter(|_| !target.node.maintenance).map(|it| since.plus(it));
        let mut look = LOOK;
        if since != target.now {
            let is_off = target.driver.power().get(target).await? == Some(PowerState::Off);
            match (is_off, notes.get(FOUND_OFF).is_some()) {
                (true, true) => return Err(went_off()),
                // It may have said that it is done a moment ago.
                (true, false) => {
                    notes.set(FOUND_OFF, true);
                    look = LOOK_AGAIN;
                }
                (false, _) => {
                    notes.remove(FOUND_OFF);
                    if deadline.is_some_and(|deadline| deadline <= target.now) {
                        return Err(took_too_long(target.now.since(since)));
                    }
                }
            }
        }
        let next = target.now.plus(look);
        let moment = deadline.filter(|_| look == LOOK).map_or(next, |deadline| deadline.min(next));
        let changes = NodeChanges { notes: Some(notes), ..NodeChanges::none() };
        Ok(Outcome::AgentWorks { moment, changes })
    }
}

#[async_trait]
impl Deploy for AnacondaDeploy {
    fn in_band(&self) -> Option<&InBand> {
        Some(&self.in_band)
    }

    fn boots(&self) -> RamdiskMode {
        RamdiskMode::Installer
    }

    async fn prepare(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.check(target)?;
        target.driver.storage().attach_volumes(target).await
    }

    async fn tear_down(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        take_down(target).await
    }

    async fn clean_up(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let boot = target.driver.boot();
        let changes = boot.clean_up_ramdisk(target, RamdiskMode::Installer).await?;
        Ok(changes.and(boot.clean_up_instance(target).await?))
    }
}

/// The way of a boot interface that boots from the network: they are called by their ways.
fn network_way(boot: &str) -> Option<BootWay> {
    boot.parse().ok().filter(|way| *way != BootWay::VirtualMedia)
}

/// What is laid out first is what can be wrong: the machine is touched when it is at hand.
async fn boot_installer(target: &Target<'_>) -> Result<Outcome, Error> {
    let driver = target.driver;
    let laid_out = driver.boot().prepare_ramdisk(target, RamdiskMode::Installer).await?;
    let changes = laid_out.and(power_off(target).await?);
    let changes = changes.and(driver.network().join(target, NetworkUse::Provisioning).await?);
    let changes = changes.and(start(target).await?);
    Ok(target.wait_for_agent(changes.and(NodeChanges::note(target.notes, AWAITED, "installer"))))
}

async fn boot_installed(target: &Target<'_>) -> Result<Outcome, Error> {
    let driver = target.driver;
    let changes = power_off(target).await?;
    let changes = changes.and(driver.boot().prepare_instance(target).await?);
    let changes = changes.and(driver.network().leave(target, NetworkUse::Provisioning).await?);
    let changes = changes.and(driver.network().join(target, NetworkUse::Tenant).await?);
    let changes = changes.and(start(target).await?);
    Ok(Outcome::Done(NodeChanges { agent_is_gone: true, ..changes }))
}

fn went_off() -> Error {
    Error::failed(
        INSTALL,
        "the machine is off, and the installer never said that it is done: the power was cut, or \
         the kickstart switches the machine off without a last call with agent_status end",
    )
}

fn took_too_long(time: Duration) -> Error {
    Error::failed(
        INSTALL,
        format!(
            "the installer started {} s ago and has not said that it is done; look at the machine's \
             console, where it may be asking something, see that the kickstart calls with \
             agent_status end, or allow more time with drivers.install_timeout",
            time.as_secs()
        ),
    )
}
