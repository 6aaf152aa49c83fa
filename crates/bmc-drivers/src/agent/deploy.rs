// SPDX-License-Identifier: Apache-2.0
//! The deploy interfaces that work through the agent: `direct` writes an image, `bootc` installs a
//! bootable container, `custom-agent` leaves what is installed to steps of the agent's own.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{InterfaceKind, PowerState, PowerTarget, Stage, Step, StepFlow, StepOffer};
use serde_json::{Map, Value, json};

use super::following::reboot;
use super::image::{ImageOrder, boot_mode};
use super::ready::{FAST_TRACK, boot_ramdisk_next, power_off, start};
use super::{InBand, autodetect};
use crate::driver::Shelves;
use crate::interfaces::{Deploy, Interface, NetworkUse, Property};
use crate::step::{StepRow, offers};
use crate::{Error, NodeChanges, OfferedImage, Outcome, RamdiskMode, Target};

/// Puts these implementations on their shelves.
pub(super) fn add_to(shelves: &mut Shelves, in_band: &Arc<InBand>, enabled: &[String]) {
    for kind in [&DIRECT, &CUSTOM_AGENT, &BOOTC] {
        let deploy = AgentDeploy { in_band: Arc::clone(in_band), kind };
        shelves.deploy.push((kind.name, Arc::new(deploy)));
    }
    autodetect::add_to(shelves, enabled);
}

/// Deploys through the agent.
pub(crate) struct AgentDeploy {
    in_band: Arc<InBand>,
    kind: &'static Kind,
}

/// What one of these interfaces installs, and in which steps.
struct Kind {
    name: &'static str,
    steps: &'static [StepRow],
    installs: Installs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Installs {
    Image,
    Container,
    WhatTheAgentDoes,
}

const DEPLOY: StepRow = step("deploy", 100);
const PREPARE_BOOT: StepRow = step("prepare_instance_boot", 60);
const TEAR_DOWN: StepRow = step("tear_down_agent", 40);
const SWITCH_NETWORK: StepRow = step("switch_to_tenant_network", 30);
const BOOT: StepRow = step("boot_instance", 20);

const DIRECT: Kind = Kind {
    name: "direct",
    steps: &[DEPLOY, step("write_image", 80), PREPARE_BOOT, TEAR_DOWN, SWITCH_NETWORK, BOOT],
    installs: Installs::Image,
};

const CUSTOM_AGENT: Kind = Kind {
    name: "custom-agent",
    steps: &[DEPLOY, PREPARE_BOOT, TEAR_DOWN, SWITCH_NETWORK, BOOT],
    installs: Installs::WhatTheAgentDoes,
};

const BOOTC: Kind = Kind {
    name: "bootc",
    steps: &[
        DEPLOY,
        step("execute_bootc_install", 80),
        step("set_boot_to_disk", 60),
        TEAR_DOWN,
        SWITCH_NETWORK,
        BOOT,
    ],
    installs: Installs::Container,
};

const fn step(name: &'static str, priority: i64) -> StepRow {
    StepRow {
        name,
        flows: &[StepFlow::Deploy],
        priority,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[],
    }
}

#[async_trait]
impl Interface for AgentDeploy {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Deploy
    }

    fn name(&self) -> &'static str {
        self.kind.name
    }

    fn properties(&self) -> &[Property] {
        &[FAST_TRACK, KEXEC]
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        target.driver.boot().validate(target).await?;
        match self.kind.installs {
            Installs::Image => ImageOrder::of(target).map(drop),
            Installs::Container => container(target).map(drop),
            Installs::WhatTheAgentDoes => Ok(()),
        }
    }

    fn steps(&self, flow: StepFlow) -> Vec<StepOffer> {
        offers(self.kind.steps, InterfaceKind::Deploy, flow)
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
        let is_ours =
            flow == StepFlow::Deploy && self.kind.steps.iter().any(|row| row.name == step.step);
        if !is_ours {
            return self.in_band.agent_step(target, flow, step).await;
        }
        match step.step.as_str() {
            "deploy" => self.boot_agent(target).await,
            "write_image" => self.write_image(target, flow, step).await,
            "execute_bootc_install" => self.install_container(target, flow, step).await,
            "prepare_instance_boot" => self.in_band.prepare_instance_boot(target).await,
            "set_boot_to_disk" => {
                Ok(Outcome::Done(target.driver.boot().prepare_instance(target).await?))
            }
            "tear_down_agent" => self.in_band.tear_down_agent(target).await,
            "switch_to_tenant_network" => {
                let network = target.driver.network();
                let left = network.leave(target, NetworkUse::Provisioning).await?;
                Ok(Outcome::Done(left.and(network.join(target, NetworkUse::Tenant).await?)))
            }
            "boot_instance" => self.in_band.boot_instance(target).await,
            _ => Err(self.cannot(&format!("carry out the {flow} step '{}'", step.step))),
        }
    }
}

/// The key that starts the deployed system without a boot of the firmware.
pub(super) const KEXEC: Property = (
    "kexec",
    "Whether the agent starts the deployed system itself, without a boot of the firmware, where \
     the agent can; instance_info/kexec wins over it. Optional; the configured value if not given.",
);

impl AgentDeploy {
    /// The machine was made ready to boot the agent; now it boots it, unless one runs: one that was
    /// there before, or one that an out-of-band step started.
    async fn boot_agent(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        if let Some(changes) = self.in_band.line.idle(target).await {
            return Ok(Outcome::AgentIsUp(changes));
        }
        if target.agent_was_awaited() {
            return Ok(Outcome::AgentIsUp(NodeChanges::none()));
        }
        let power = target.driver.power();
        if target.node.agent.url.is_some() || target.node.disable_power_off {
            // It is dead, or never ended: what the machine was made ready for may be used up.
            return Ok(target.wait_for_agent(reboot(target).await?));
        }
        if power.get(target).await? == Some(PowerState::On) {
            return Ok(target.wait_for_agent(NodeChanges::none()));
        }
        Ok(target.wait_for_agent(power.set(target, PowerTarget::Reboot, None).await?))
    }

    async fn write_image(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<Outcome, Error> {
        let arguments = async {
            let order = ImageOrder::of(target)?;
            let offered = self.in_band.offer_image(target).await?;
            let info = order.info(target, offered, &self.in_band.settings, &boot_mode(target));
            let drive = self.in_band.desk.config_drive(target).await?;
            Ok(Map::from_iter([
                ("image_info".to_owned(), json!(info)),
                ("configdrive".to_owned(), json!(drive)),
            ]))
        };
        self.in_band.step_with(target, flow, step, arguments).await
    }

    async fn install_container(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<Outcome, Error> {
        let arguments = async {
            let source = container(target)?;
            let drive = self.in_band.desk.config_drive(target).await?;
            let secret = target.instance_info.get("image_pull_secret");
            Ok(container_arguments(source, json!(drive), secret))
        };
        self.in_band.step_with(target, flow, step, arguments).await
    }
}

#[async_trait]
impl Deploy for AgentDeploy {
    /// The image is looked at first: one that cannot be had is found out before the machine is
    /// touched.
    async fn prepare(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let mut changes = NodeChanges::none();
        if self.kind.installs == Installs::Image {
            let order = ImageOrder::of(target)?;
            self.in_band.offer_image(target).await?;
            changes = NodeChanges::remember("is_whole_disk_image", order.is_whole_disk());
        }
        if self.in_band.running_agent(target).await.is_some() {
            return Ok(changes);
        }
        let booted =
            boot_ramdisk_next(target, RamdiskMode::Deploy, NetworkUse::Provisioning).await?;
        let attached = target.driver.storage().attach_volumes(target).await?;
        Ok(changes.and(booted).and(attached))
    }

    async fn tear_down(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let changes = power_off(target).await?;
        let changes = changes.and(target.driver.storage().detach_volumes(target).await?);
        Ok(changes.and(target.driver.network().leave(target, NetworkUse::Tenant).await?))
    }

    async fn clean_up(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let boot = target.driver.boot();
        let changes = boot.clean_up_ramdisk(target, RamdiskMode::Deploy).await?;
        Ok(changes.and(boot.clean_up_instance(target).await?))
    }

    async fn take_over(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        target.driver.boot().prepare_instance(target).await
    }

    async fn prepare_cleaning(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        self.in_band.prepare_cleaning(target).await
    }

    async fn tear_down_cleaning(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.in_band.tear_down_cleaning(target).await
    }

    async fn prepare_service(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        self.in_band.prepare_service(target).await
    }

    async fn tear_down_service(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.in_band.tear_down_service(target).await
    }
}

impl InBand {
    async fn offer_image(&self, target: &Target<'_>) -> Result<OfferedImage, Error> {
        self.desk.offer_image(target, self.settings.image_download_source).await
    }
}

/// Cleaning and service through the agent, whatever the instance was installed by.
impl InBand {
    pub(crate) async fn prepare_cleaning(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        let erasing = self.settings.erasing();
        let booted = self.boot_agent(target, RamdiskMode::Deploy, NetworkUse::Cleaning).await?;
        Ok(booted.after(erasing))
    }

    /// The agent may stay for the next job, if everything went well.
    pub(crate) async fn tear_down_cleaning(
        &self,
        target: &Target<'_>,
    ) -> Result<NodeChanges, Error> {
        let restored = autodetect::restored(target);
        let went_well = target.node.work.as_ref().is_some_and(|work| work.stage == Stage::Finish);
        if went_well && self.running_agent(target).await.is_some() {
            return Ok(restored);
        }
        let off = power_off(target).await?;
        let boot = target.driver.boot();
        let cleared = boot.clean_up_ramdisk(target, RamdiskMode::Deploy).await?;
        Ok(NodeChanges { agent_is_gone: true, ..restored.and(off).and(cleared) })
    }

    pub(crate) async fn prepare_service(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        if target.agent_was_awaited() {
            return Ok(Outcome::Done(NodeChanges::none()));
        }
        let off = power_off(target).await?;
        let cleared = target.driver.boot().clean_up_instance(target).await?;
        let left = target.driver.network().leave(target, NetworkUse::Tenant).await?;
        let changes = self.settings.erasing().and(off).and(cleared).and(left);
        let booted = boot_ramdisk_next(target, RamdiskMode::Deploy, NetworkUse::Servicing).await?;
        Ok(target.wait_for_agent(changes.and(booted).and(start(target).await?)))
    }

    pub(crate) async fn tear_down_service(
        &self,
        target: &Target<'_>,
    ) -> Result<NodeChanges, Error> {
        let driver = target.driver;
        let off = power_off(target).await?;
        let cleared = driver.boot().clean_up_ramdisk(target, RamdiskMode::Deploy).await?;
        let joined = driver.network().join(target, NetworkUse::Tenant).await?;
        let booted = driver.boot().prepare_instance(target).await?;
        let changes = off.and(cleared).and(joined).and(booted).and(start(target).await?);
        Ok(NodeChanges { agent_is_gone: true, ..changes })
    }
}

/// The container an instance asks for.
fn container<'a>(target: &Target<'a>) -> Result<&'a str, Error> {
    let source = target.instance_info.get("image_source").and_then(Value::as_str);
    match source {
        Some(source) if source.starts_with("oci://") => Ok(source),
        Some(_) => Err(Error::invalid(
            "instance_info/image_source",
            "bootc installs containers; give an oci:// URL",
        )),
        None => Err(Error::missing("instance_info/image_source", "give the container to install")),
    }
}

/// What an agent is told about a container: the arguments of ironic-python-agent's step.
fn container_arguments(source: &str, drive: Value, secret: Option<&Value>) -> Map<String, Value> {
    Map::from_iter([
        ("image_source".to_owned(), json!(source)),
        ("configdrive".to_owned(), drive),
        ("oci_pull_secret".to_owned(), secret.cloned().unwrap_or_default()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_told_whole() {
        let secret = json!("s");
        let told = |secret| container_arguments("oci://h/i", Value::Null, secret);
        let expected =
            json!({"image_source": "oci://h/i", "configdrive": null, "oci_pull_secret": "s"});
        assert_eq!(json!(told(Some(&secret))), expected);
        // All of them are always there: the agent's step has no defaults.
        assert_eq!(told(None)["oci_pull_secret"], Value::Null);
    }
}
