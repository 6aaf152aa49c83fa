// SPDX-License-Identifier: Apache-2.0
//! Implementations that work through the ramdisk agent: deploy `direct` and inspect `agent`.
//!
//! In this version the agent can be booted, looked up and heard; it cannot be commanded. So
//! inspection is complete, because its data comes from the agent unasked, and deployment goes as
//! far as the agent's first call and then says what is missing. Cleaning and service through the
//! agent are refused from the start: a machine must not count as clean because nothing was done.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{InterfaceKind, PowerState, PowerTarget, Step, StepFlow, StepOffer};
use serde_json::{Map, Value};

use crate::driver::Shelves;
use crate::interfaces::{Deploy, Inspect, Inspection, Interface, NetworkUse, Property};
use crate::step::{StepRow, offers};
use crate::{Error, NodeChanges, Outcome, RamdiskMode, Target};

/// Puts these implementations on their shelves.
pub(crate) fn add_to(shelves: &mut Shelves) {
    shelves.deploy.push((DirectDeploy.name(), Arc::new(DirectDeploy)));
    shelves.inspect.push((AgentInspect.name(), Arc::new(AgentInspect)));
}

const FAST_TRACK: Property = (
    "fast_track",
    "Whether an agent that already runs on the machine is used instead of booting it again. \
     Optional; false if not given.",
);

/// Deploys by having the agent write the image.
struct DirectDeploy;

const DEPLOY_STEP: &str = "deploy";

const STEPS: &[StepRow] = &[
    step(DEPLOY_STEP, 100),
    step("write_image", 80),
    step("prepare_instance_boot", 60),
    step("tear_down_agent", 40),
    step("switch_to_tenant_network", 30),
    step("boot_instance", 20),
];

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
impl Interface for DirectDeploy {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Deploy
    }

    fn name(&self) -> &'static str {
        "direct"
    }

    fn properties(&self) -> &[Property] {
        &[FAST_TRACK]
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        target.driver.boot().validate(target).await?;
        validate_image(target.instance_info)
    }

    fn steps(&self, flow: StepFlow) -> Vec<StepOffer> {
        offers(STEPS, self.kind(), flow)
    }

    async fn execute_step(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<Outcome, Error> {
        if flow != StepFlow::Deploy || step.step != DEPLOY_STEP {
            return Err(needs_commands(
                self,
                &format!("carry out the {flow} step '{}'", step.step),
            ));
        }
        if target.agent_was_awaited() || agent_runs(target) {
            return Ok(Outcome::Done(NodeChanges::none()));
        }
        let changes = target.driver.power().set(target, PowerTarget::Reboot, None).await?;
        Ok(target.wait_for_agent(changes))
    }
}

#[async_trait]
impl Deploy for DirectDeploy {
    async fn prepare(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        if agent_runs(target) {
            return Ok(NodeChanges::none());
        }
        let changes =
            boot_ramdisk_next(target, RamdiskMode::Deploy, NetworkUse::Provisioning).await?;
        Ok(changes.and(target.driver.storage().attach_volumes(target).await?))
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

    async fn prepare_cleaning(&self, _target: &Target<'_>) -> Result<Outcome, Error> {
        Err(needs_commands(self, "clean the machine (automated_clean=false goes without)"))
    }

    async fn prepare_service(&self, _target: &Target<'_>) -> Result<Outcome, Error> {
        Err(needs_commands(self, "service the machine"))
    }
}

/// The error for what needs the agent to be commanded.
pub(crate) fn needs_commands(deploy: &dyn Interface, what: &str) -> Error {
    deploy.cannot(&format!("{what}, because this version does not command the ramdisk agent yet"))
}

/// Inspects by booting the agent, which sends what it finds.
struct AgentInspect;

#[async_trait]
impl Interface for AgentInspect {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Inspect
    }

    fn name(&self) -> &'static str {
        "agent"
    }

    fn properties(&self) -> &[Property] {
        &[FAST_TRACK]
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        target.driver.boot().validate(target).await
    }
}

#[async_trait]
impl Inspect for AgentInspect {
    async fn inspect(&self, target: &Target<'_>) -> Result<Inspection, Error> {
        if agent_runs(target) {
            return Ok(Inspection::WaitForAgent(NodeChanges::none()));
        }
        let changes =
            boot_ramdisk_next(target, RamdiskMode::Inspection, NetworkUse::Inspection).await?;
        Ok(Inspection::WaitForAgent(changes.and(start(target).await?)))
    }

    async fn abort(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.clean_up(target).await
    }

    async fn clean_up(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        if agent_runs(target) {
            return Ok(NodeChanges::none());
        }
        let changes = power_off(target).await?;
        let boot = target.driver.boot();
        let changes = changes.and(boot.clean_up_ramdisk(target, RamdiskMode::Inspection).await?);
        Ok(changes.and(target.driver.network().leave(target, NetworkUse::Inspection).await?))
    }
}

/// Switches the machine off and makes its next boot start the agent, on the network for `purpose`.
async fn boot_ramdisk_next(
    target: &Target<'_>,
    mode: RamdiskMode,
    purpose: NetworkUse,
) -> Result<NodeChanges, Error> {
    let changes = power_off(target).await?;
    let changes = changes.and(target.driver.network().join(target, purpose).await?);
    let boot = target.driver.boot();
    Ok(changes.and(boot.prepare_ramdisk(target, mode).await?))
}

/// Boots the ramdisk of `mode` once more, because nothing was heard of its agent: by another way, if
/// the boot interface has one.
pub async fn boot_again(target: &Target<'_>, mode: RamdiskMode) -> Result<NodeChanges, Error> {
    let changes = power_off(target).await?;
    let changes = changes.and(target.driver.boot().prepare_again(target, mode).await?);
    Ok(changes.and(start(target).await?))
}

/// Switches a machine on that was switched off, or reboots one that must not be.
pub(crate) async fn start(target: &Target<'_>) -> Result<NodeChanges, Error> {
    let wanted = if target.node.disable_power_off { PowerTarget::Reboot } else { PowerTarget::On };
    target.driver.power().set(target, wanted, None).await
}

pub(crate) async fn power_off(target: &Target<'_>) -> Result<NodeChanges, Error> {
    if target.node.disable_power_off {
        return Ok(NodeChanges::none());
    }
    target.driver.power().set(target, PowerTarget::Off, None).await
}

/// Whether the agent on the machine may be used as it is.
fn agent_runs(target: &Target<'_>) -> bool {
    let fast_track = match target.driver_info.get(FAST_TRACK.0) {
        Some(Value::Bool(fast_track)) => *fast_track,
        Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
        Some(Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) | None => false,
    };
    fast_track
        && target.node.power_state == Some(PowerState::On)
        && target.node.last_error.is_none()
        && target.node.agent.is_fresh(target.now)
}

/// Whether `instance_info` names an image, and how to tell that it arrived whole.
fn validate_image(instance_info: &Map<String, Value>) -> Result<(), Error> {
    let text =
        |key: &str| instance_info.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let Some(source) = text("image_source") else {
        return Err(Error::missing("instance_info/image_source", "give the image to deploy"));
    };
    let needs_checksum = source.starts_with("http://") || source.starts_with("https://");
    let checksum = text("image_checksum");
    match (text("image_os_hash_algo"), text("image_os_hash_value")) {
        (Some(_), Some(_)) => Ok(()),
        (Some(_), None) => Err(Error::missing(
            "instance_info/image_os_hash_value",
            "image_os_hash_algo is given without it",
        )),
        (None, Some(_)) => Err(Error::missing(
            "instance_info/image_os_hash_algo",
            "image_os_hash_value is given without it",
        )),
        (None, None) if needs_checksum && checksum.is_none() => Err(Error::missing(
            "instance_info/image_checksum",
            "an image from a web server needs it, or image_os_hash_algo with image_os_hash_value",
        )),
        (None, None) => checksum.map_or(Ok(()), validate_checksum),
    }
}

fn validate_checksum(checksum: &str) -> Result<(), Error> {
    const HEX_DIGITS: [usize; 3] = [32, 64, 128]; // MD5, SHA-256, SHA-512
    let is_digest = HEX_DIGITS.contains(&checksum.len())
        && checksum.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_url = checksum.contains("://");
    if is_digest || is_url {
        return Ok(());
    }
    Err(Error::invalid(
        "instance_info/image_checksum",
        "use an MD5, SHA-256 or SHA-512 digest in hexadecimal, or the URL of a file with one",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images() {
        let digest = "d41d8cd98f00b204e9800998ecf8427e";
        for (instance_info, problem) in [
            (json!({"image_source": "https://h/i", "image_checksum": digest}), None),
            (json!({"image_source": "https://h/i", "image_checksum": "https://h/SUMS"}), None),
            (
                json!({"image_source": "http://h/i", "image_os_hash_algo": "sha256", "image_os_hash_value": "x"}),
                None,
            ),
            (json!({"image_source": "file:///i"}), None),
            (json!({"image_source": "oci://h/i:latest"}), None),
            (json!({}), Some("image_source")),
            (json!({"image_source": ""}), Some("image_source")),
            (json!({"image_source": "http://h/i"}), Some("image_checksum")),
            (
                json!({"image_source": "http://h/i", "image_checksum": "abc"}),
                Some("image_checksum"),
            ),
            (
                json!({"image_source": "http://h/i", "image_os_hash_algo": "sha256"}),
                Some("image_os_hash_value"),
            ),
            (
                json!({"image_source": "http://h/i", "image_os_hash_value": "x"}),
                Some("image_os_hash_algo"),
            ),
        ] {
            let result = validate_image(instance_info.as_object().expect("an object"));
            match (result, problem) {
                (Ok(()), None) => {}
                (Err(error), Some(key)) => assert!(error.to_string().contains(key), "{error}"),
                (result, problem) => panic!("{instance_info}: {result:?}, expected {problem:?}"),
            }
        }
    }
}
