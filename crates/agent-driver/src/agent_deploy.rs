// SPDX-License-Identifier: Apache-2.0
//! The deploy interfaces that use the agent: `direct` writes an image, `bootc` installs a bootable
//! container, `custom-agent` leaves the installation to the agent's own steps.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drivers::instance_image::{
    HTTP_PROXY, HTTPS_PROXY, InstanceImage, NO_PROXY, PULL_SECRET, boot_mode, pull_secret,
};
use drivers::ramdisk_boot::{boot_ramdisk_next, leave_ramdisk_networks, reboot_ramdisk};
use drivers::requested_firmware::{RequestedFirmware, SIGNED_RAMDISK};
use drivers::{
    BaseInterface, DeployInterface, DriverError, DriverProperty, DriverTarget, InBandAgent,
    NetworkPurpose, NodeChanges, PublishedImage, RamdiskMode, RegistryBuilder, StepDefinition,
    StepOutcome, steps_of_flow,
};
use node_model::{AvailableStep, InterfaceKind, PowerState, PowerTarget, Secret, Step, StepFlow};
use serde_json::{Map, Value, json};

use super::agent_boot::{FAST_TRACK, tear_down_instance};
use super::image_info::image_info;
use super::{AgentAccess, autodetect_deploy};

/// Registers these implementations.
pub(super) fn register(registry: &mut RegistryBuilder, in_band: &Arc<AgentAccess>) {
    for variant in [&DIRECT, &CUSTOM_AGENT, &BOOTC] {
        let deploy = AgentDeploy { in_band: Arc::clone(in_band), variant };
        registry.implementations.add_deploy(Arc::new(deploy));
    }
    autodetect_deploy::register(registry);
}

/// Deploys through the agent.
pub(crate) struct AgentDeploy {
    in_band: Arc<AgentAccess>,
    variant: &'static AgentDeployVariant,
}

/// One of the deploy interfaces: its name, its steps and what it installs.
struct AgentDeployVariant {
    name: &'static str,
    steps: &'static [StepDefinition],
    content: InstalledContent,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InstalledContent {
    Image,
    Container,
    AgentDefined,
}

const DEPLOY_STEP: StepDefinition = deploy_step("deploy", 100);
const PREPARE_BOOT_STEP: StepDefinition = deploy_step("prepare_instance_boot", 60);
const TEAR_DOWN_STEP: StepDefinition = deploy_step("tear_down_agent", 40);
const SWITCH_NETWORK_STEP: StepDefinition = deploy_step("switch_to_tenant_network", 30);
const BOOT_STEP: StepDefinition = deploy_step("boot_instance", 20);

const DIRECT: AgentDeployVariant = AgentDeployVariant {
    name: "direct",
    steps: &[
        DEPLOY_STEP,
        deploy_step("write_image", 80),
        PREPARE_BOOT_STEP,
        TEAR_DOWN_STEP,
        SWITCH_NETWORK_STEP,
        BOOT_STEP,
    ],
    content: InstalledContent::Image,
};

const CUSTOM_AGENT: AgentDeployVariant = AgentDeployVariant {
    name: "custom-agent",
    steps: &[DEPLOY_STEP, PREPARE_BOOT_STEP, TEAR_DOWN_STEP, SWITCH_NETWORK_STEP, BOOT_STEP],
    content: InstalledContent::AgentDefined,
};

const BOOTC: AgentDeployVariant = AgentDeployVariant {
    name: "bootc",
    steps: &[
        DEPLOY_STEP,
        deploy_step("execute_bootc_install", 80),
        deploy_step("set_boot_to_disk", 60),
        TEAR_DOWN_STEP,
        SWITCH_NETWORK_STEP,
        BOOT_STEP,
    ],
    content: InstalledContent::Container,
};

const fn deploy_step(name: &'static str, priority: i64) -> StepDefinition {
    StepDefinition {
        name,
        flows: &[StepFlow::Deploy],
        priority,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[],
    }
}

#[async_trait]
impl BaseInterface for AgentDeploy {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Deploy
    }

    fn name(&self) -> &'static str {
        self.variant.name
    }

    fn properties(&self) -> &[DriverProperty] {
        match self.variant.content {
            InstalledContent::Image => {
                &[FAST_TRACK, KEXEC, SIGNED_RAMDISK, HTTP_PROXY, HTTPS_PROXY, NO_PROXY, PULL_SECRET]
            }
            InstalledContent::Container => &[FAST_TRACK, KEXEC, SIGNED_RAMDISK, PULL_SECRET],
            InstalledContent::AgentDefined => &[FAST_TRACK, KEXEC, SIGNED_RAMDISK],
        }
    }

    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        target.driver.boot().validate(target).await?;
        RequestedFirmware::from_target(target)?;
        match self.variant.content {
            InstalledContent::Image => {
                InstanceImage::from_target(target)?;
                self.in_band.boot_service.check_image(target)
            }
            InstalledContent::Container => container_source(target).map(drop),
            InstalledContent::AgentDefined => Ok(()),
        }
    }

    fn steps(&self, flow: StepFlow) -> Vec<AvailableStep> {
        steps_of_flow(self.variant.steps, InterfaceKind::Deploy, flow)
    }

    fn runs_agent_steps(&self) -> bool {
        true
    }

    async fn execute_step(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        let is_own_step =
            flow == StepFlow::Deploy && self.variant.steps.iter().any(|row| row.name == step.step);
        if !is_own_step {
            return self.in_band.run_agent_step(target, flow, step).await;
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
                Ok(StepOutcome::done(left.and(network.join(target, NetworkPurpose::Tenant).await?)))
            }
            "boot_instance" => self.in_band.boot_instance(target).await,
            _ => Err(self.unsupported(&format!("carry out the {flow} step '{}'", step.step))),
        }
    }
}

/// The `driver_info` key that starts the deployed system without a firmware boot.
pub(super) const KEXEC: DriverProperty = (
    "kexec",
    "Whether the agent starts the deployed system with kexec, without a firmware boot, if the agent \
     supports it; instance_info/kexec overrides it. Optional; defaults to the configured value.",
);

impl AgentDeploy {
    /// Boots the prepared agent, unless one runs already: one that was kept, or one that an out-of-band
    /// step started.
    async fn boot_agent(&self, target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
        if let Some(changes) = self.in_band.client.check_idle(target).await {
            return Ok(StepOutcome::agent_ready(changes));
        }
        if target.agent_was_awaited() {
            return Ok(StepOutcome::agent_ready(NodeChanges::none()));
        }
        let power = target.driver.power();
        if target.node.agent.url.is_some() || target.node.disable_power_off {
            // The agent does not respond, or was not stopped: the one-time boot setup may be used up.
            return Ok(target.wait_for_agent(reboot_ramdisk(target).await?));
        }
        if power.get(target).await? == Some(PowerState::On) {
            return Ok(target.wait_for_agent(NodeChanges::none()));
        }
        Ok(target.wait_for_agent(power.set(target, PowerTarget::Reboot, None).await?))
    }

    async fn write_image(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        let arguments = async {
            let image = InstanceImage::from_target(target)?;
            let published = self.in_band.publish_image(target).await?;
            let info =
                image_info(&image, target, published, &self.in_band.settings, &boot_mode(target));
            let drive = self.in_band.boot_service.config_drive(target).await?;
            Ok(Map::from_iter([
                ("image_info".to_owned(), json!(info)),
                ("configdrive".to_owned(), json!(drive)),
            ]))
        };
        self.in_band.run_agent_step_with(target, flow, step, arguments).await
    }

    /// Makes the machine boot its disk. Installs a bootloader only for images: containers and the
    /// agent's own steps install bootable systems.
    async fn prepare_boot(&self, target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
        match self.variant.content {
            InstalledContent::Image => self.in_band.prepare_instance_boot(target).await,
            InstalledContent::Container | InstalledContent::AgentDefined => {
                Ok(StepOutcome::done(target.driver.boot().prepare_instance(target).await?))
            }
        }
    }

    async fn install_container(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        let arguments = async {
            let source = container_source(target)?;
            let verified = self.in_band.boot_service.verified_container(target, source).await?;
            let drive = self.in_band.boot_service.config_drive(target).await?;
            Ok(Map::from_iter([
                ("image_source".to_owned(), json!(verified)),
                ("configdrive".to_owned(), json!(drive)),
                ("oci_pull_secret".to_owned(), json!(self.pull_secret(target, source)?)),
            ]))
        };
        self.in_band.run_agent_step_with(target, flow, step, arguments).await
    }

    /// Credentials for the registry in the agent's format: the instance's, the node's, or those
    /// configured for the registry.
    fn pull_secret(
        &self,
        target: &DriverTarget<'_>,
        source: &str,
    ) -> Result<Option<String>, DriverError> {
        let configured = || self.in_band.boot_service.registry_login(source);
        let secret = match pull_secret(target, source)? {
            Some(secret) => Some(Secret::new(secret.to_owned())),
            None => configured(),
        };
        Ok(secret.map(|secret| encode_registry_auth(secret.reveal())))
    }
}

#[async_trait]
impl DeployInterface for AgentDeploy {
    fn in_band(&self) -> Option<&dyn InBandAgent> {
        Some(&*self.in_band)
    }

    /// Publishes the image first, so that an unavailable image fails the deployment before the machine
    /// is powered off.
    async fn prepare(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        let mut changes = NodeChanges::none();
        if self.variant.content == InstalledContent::Image {
            let image = InstanceImage::from_target(target)?;
            self.in_band.publish_image(target).await?;
            changes = NodeChanges::internal_info("is_whole_disk_image", image.is_whole_disk());
        }
        if self.variant.content == InstalledContent::Container {
            let source = container_source(target)?;
            self.in_band.boot_service.verified_container(target, source).await?;
        }
        let changes = changes.and(target.driver.storage().attach_volumes(target).await?);
        if self.in_band.running_agent(target).await.is_some() {
            return Ok(changes);
        }
        let booted =
            boot_ramdisk_next(target, RamdiskMode::Deploy, NetworkPurpose::Provisioning).await?;
        Ok(changes.and(booted))
    }

    async fn tear_down(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        tear_down_instance(target).await
    }

    async fn clean_up(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        let boot = target.driver.boot();
        let changes = boot.clean_up_ramdisk(target, RamdiskMode::Deploy).await?;
        Ok(changes.and(boot.clean_up_instance(target).await?))
    }
}

impl AgentAccess {
    async fn publish_image(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<PublishedImage, DriverError> {
        self.boot_service.publish_image(target, self.settings.image_download_source).await
    }
}

/// The container image of the instance.
fn container_source<'a>(target: &DriverTarget<'a>) -> Result<&'a str, DriverError> {
    let source = target.instance_info.get("image_source").and_then(Value::as_str);
    match source {
        Some(source) if source.starts_with("oci://") => Ok(source),
        Some(_) => Err(DriverError::invalid(
            "instance_info/image_source",
            "bootc installs containers; give an oci:// URL",
        )),
        None => {
            Err(DriverError::missing("instance_info/image_source", "give the container to install"))
        }
    }
}

/// A pull secret in the agent's format: the base64 of the `auth` value of a container login file, which
/// is the base64 of `user:password`. Accepts `user:password`, an `auth` value, and a bare token, which
/// becomes the password of an empty user name.
fn encode_registry_auth(secret: &str) -> String {
    let secret = secret.trim();
    let is_credentials =
        |bytes: Vec<u8>| String::from_utf8(bytes).is_ok_and(|text| text.contains(':'));
    let auth = if secret.contains(':') {
        STANDARD.encode(secret)
    } else if STANDARD.decode(secret).is_ok_and(is_credentials) {
        secret.to_owned()
    } else {
        STANDARD.encode(format!(":{secret}"))
    };
    STANDARD.encode(auth)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As ironic-python-agent 13 decodes it: the decoded text becomes `auth` in a login file.
    #[test]
    fn encodes_all_pull_secret_formats() {
        for (secret, credentials) in [
            ("me:hush", "me:hush"),
            ("me:hu:sh", "me:hu:sh"),
            ("bWU6aHVzaA==", "me:hush"),
            ("glpat-token", ":glpat-token"),
            // Base64 of something else than credentials.
            ("dG9rZW4=", ":dG9rZW4="),
        ] {
            let auth = STANDARD.decode(encode_registry_auth(secret)).unwrap();
            let login = STANDARD.decode(auth).unwrap();
            assert_eq!(String::from_utf8(login).unwrap(), credentials, "{secret}");
        }
    }
}
