// SPDX-License-Identifier: Apache-2.0
//! The rescue interface `agent`: boots the agent, which lets the owner of the instance in.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::InterfaceKind;
use serde_json::{Map, Value};

use super::handover::has_been_silent;
use super::ready::{boot_ramdisk_next, power_off, start};
use super::{InBand, password};
use crate::driver::Shelves;
use crate::interfaces::{Interface, NetworkUse, Rescue};
use crate::{Error, NodeChanges, Outcome, RamdiskMode, Target};

/// Puts this implementation on its shelf.
pub(super) fn add_to(shelves: &mut Shelves, in_band: &Arc<InBand>) {
    let rescue = AgentRescue(Arc::clone(in_band));
    shelves.rescue.push((rescue.name(), Arc::new(rescue)));
}

struct AgentRescue(Arc<InBand>);

#[async_trait]
impl Interface for AgentRescue {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Rescue
    }

    fn name(&self) -> &'static str {
        "agent"
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        target.driver.boot().validate(target).await
    }
}

#[async_trait]
impl Rescue for AgentRescue {
    fn boots_ramdisk(&self) -> bool {
        true
    }

    async fn rescue(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        if target.node.agent.url.is_none() {
            let driver = target.driver;
            let changes = power_off(target).await?;
            let changes = changes.and(driver.boot().clean_up_instance(target).await?);
            let left = driver.network().leave(target, NetworkUse::Tenant).await?;
            let booted =
                boot_ramdisk_next(target, RamdiskMode::Rescue, NetworkUse::Rescuing).await?;
            let changes = changes.and(left).and(booted).and(start(target).await?);
            return Ok(target.wait_for_agent(changes));
        }
        let Some(plain) = target.instance_info.get("rescue_password").and_then(Value::as_str)
        else {
            return Err(Error::missing("instance_info/rescue_password", "nobody could log in"));
        };
        let hashed = password::hash(plain)?;
        let params = Map::from_iter([
            ("rescue_password".to_owned(), Value::String(hashed)),
            ("hashed".to_owned(), Value::Bool(true)),
        ]);
        match self.0.line.ask(target, "rescue.finalize_rescue", params).await {
            Ok(_) => {}
            // It does not listen any more when it has done this. If it called a moment ago and is
            // silent now, it is done and its answer was lost.
            Err(error) if error.silent().is_some() && has_been_silent(target) => {}
            Err(error) => return Err(error),
        }
        let boot = target.driver.boot();
        let changes = boot.clean_up_ramdisk(target, RamdiskMode::Rescue).await?;
        let joined = target.driver.network().join(target, NetworkUse::Tenant).await?;
        Ok(Outcome::Done(NodeChanges { agent_is_gone: true, ..changes.and(joined) }))
    }

    async fn unrescue(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let driver = target.driver;
        let changes = power_off(target).await?;
        let changes = changes.and(self.clean_up(target).await?);
        let joined = driver.network().join(target, NetworkUse::Tenant).await?;
        let booted = driver.boot().prepare_instance(target).await?;
        Ok(changes.and(joined).and(booted).and(start(target).await?))
    }

    async fn clean_up(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let boot = target.driver.boot();
        let changes = boot.clean_up_ramdisk(target, RamdiskMode::Rescue).await?;
        Ok(changes.and(target.driver.network().leave(target, NetworkUse::Rescuing).await?))
    }
}
