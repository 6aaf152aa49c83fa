// SPDX-License-Identifier: Apache-2.0
//! The deploy interfaces that work through the agent: `direct` writes an image, `bootc` installs a
//! bootable container, `custom-agent` leaves what is installed to steps of the agent's own.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node_model::{
    InterfaceKind, PowerState, PowerTarget, Secret, Stage, Step, StepFlow, StepOffer,
};
use serde_json::{Map, Value, json};

use super::following::reboot;
use super::image::{
    HTTP_PROXY, HTTPS_PROXY, ImageOrder, NO_PROXY, PULL_SECRET, boot_mode, pull_secret,
};
use super::ready::{
    FAST_TRACK, boot_ramdisk_next, leave_ramdisk_networks, power_off, start, take_down,
};
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
        match self.kind.installs {
            Installs::Image => &[FAST_TRACK, KEXEC, HTTP_PROXY, HTTPS_PROXY, NO_PROXY, PULL_SECRET],
            Installs::Container => &[FAST_TRACK, KEXEC, PULL_SECRET],
            Installs::WhatTheAgentDoes => &[FAST_TRACK, KEXEC],
        }
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
            "prepare_instance_boot" | "set_boot_to_disk" => self.prepare_boot(target).await,
            "tear_down_agent" => self.in_band.tear_down_agent(target).await,
            "switch_to_tenant_network" => {
                let network = target.driver.network();
                let left = leave_ramdisk_networks(target).await?;
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

    /// The machine boots its disk from now on. Only an image that was written is made bootable: what
    /// containers and steps of the agent's own install is bootable already.
    async fn prepare_boot(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        match self.kind.installs {
            Installs::Image => self.in_band.prepare_instance_boot(target).await,
            Installs::Container | Installs::WhatTheAgentDoes => {
                Ok(Outcome::Done(target.driver.boot().prepare_instance(target).await?))
            }
        }
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
            Ok(Map::from_iter([
                ("image_source".to_owned(), json!(source)),
                ("configdrive".to_owned(), json!(drive)),
                ("oci_pull_secret".to_owned(), json!(self.pull_secret(target, source)?)),
            ]))
        };
        self.in_band.step_with(target, flow, step, arguments).await
    }

    /// What opens the registry, as agents take it: of the instance, of the node, or else what is
    /// configured for that registry.
    fn pull_secret(&self, target: &Target<'_>, source: &str) -> Result<Option<String>, Error> {
        let configured = || self.in_band.desk.registry_login(source);
        let secret = match pull_secret(target, source)? {
            Some(secret) => Some(Secret::new(secret.to_owned())),
            None => configured(),
        };
        Ok(secret.map(|secret| registry_auth(secret.reveal())))
    }
}

#[async_trait]
impl Deploy for AgentDeploy {
    fn in_band(&self) -> Option<&InBand> {
        Some(&self.in_band)
    }

    /// The image is looked at first: one that cannot be had is found out before the machine is
    /// touched.
    async fn prepare(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let mut changes = NodeChanges::none();
        if self.kind.installs == Installs::Image {
            let order = ImageOrder::of(target)?;
            self.in_band.offer_image(target).await?;
            changes = NodeChanges::remember("is_whole_disk_image", order.is_whole_disk());
        }
        let changes = changes.and(target.driver.storage().attach_volumes(target).await?);
        if self.in_band.running_agent(target).await.is_some() {
            return Ok(changes);
        }
        let booted =
            boot_ramdisk_next(target, RamdiskMode::Deploy, NetworkUse::Provisioning).await?;
        Ok(changes.and(booted))
    }

    async fn tear_down(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        take_down(target).await
    }

    async fn clean_up(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let boot = target.driver.boot();
        let changes = boot.clean_up_ramdisk(target, RamdiskMode::Deploy).await?;
        Ok(changes.and(boot.clean_up_instance(target).await?))
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
        let left = leave_ramdisk_networks(target).await?;
        Ok(NodeChanges { agent_is_gone: true, ..restored.and(off).and(cleared).and(left) })
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
        let left = driver.network().leave(target, NetworkUse::Servicing).await?;
        let joined = driver.network().join(target, NetworkUse::Tenant).await?;
        let booted = driver.boot().prepare_instance(target).await?;
        let changes = off.and(cleared).and(left).and(joined).and(booted);
        let changes = changes.and(start(target).await?);
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

/// A pull secret as agents take it: the base64 of what login files of containers have under `auth`,
/// which is itself the base64 of `user:password`. Three kinds of secrets are about: `user:password`,
/// what such a file has, and a bare token, which is the password of a user without a name.
fn registry_auth(secret: &str) -> String {
    let secret = secret.trim();
    let is_login = |bytes: Vec<u8>| String::from_utf8(bytes).is_ok_and(|text| text.contains(':'));
    let auth = if secret.contains(':') {
        STANDARD.encode(secret)
    } else if STANDARD.decode(secret).is_ok_and(is_login) {
        secret.to_owned()
    } else {
        STANDARD.encode(format!(":{secret}"))
    };
    STANDARD.encode(auth)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As ironic-python-agent 13 reads it: what comes out of the base64 goes into a file as `auth`.
    #[test]
    fn agents_can_log_in_with_any_kind_of_secret() {
        for (secret, user_and_password) in [
            ("me:hush", "me:hush"),
            ("me:hu:sh", "me:hu:sh"),
            ("bWU6aHVzaA==", "me:hush"),
            ("glpat-token", ":glpat-token"),
            // Base64 of something that is no login.
            ("dG9rZW4=", ":dG9rZW4="),
        ] {
            let auth = STANDARD.decode(registry_auth(secret)).unwrap();
            let login = STANDARD.decode(auth).unwrap();
            assert_eq!(String::from_utf8(login).unwrap(), user_and_password, "{secret}");
        }
    }
}
