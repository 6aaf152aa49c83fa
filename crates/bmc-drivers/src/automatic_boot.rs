// SPDX-License-Identifier: Apache-2.0
//! Booting by whatever way works: the boot interface `automatic`.
//!
//! It has no way of its own. It goes through the enabled boot interfaces that fit the machine: first
//! those that worked for machines of its model, then those nobody tried on that model, then those
//! that failed. A BMC that refuses has the next one tried at once; an agent that stays silent has
//! it tried when the machine is booted again. Which one is in use, and which were tried, is in
//! `driver_internal_info` for as long as the job lasts, so that what one laid out is put back by the
//! same one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use node_model::{
    BOOT_WAY, BOOT_WAYS_TRIED, BootExperience, BootPurpose, BootWay, InterfaceKind, Node, NodeId,
    Timestamp,
};
use serde_json::Value;

use crate::boot_desk::{BootDesk, OneWay};
use crate::driver::Shelves;
use crate::interfaces::{Boot, Interface, Property};
use crate::next_boot::{boot_from_disk, instance_runs, lives_in_memory};
use crate::{BootMode, Error, HardwareType, NodeChanges, RamdiskMode, Target};

/// What nodes call it.
const NAME: &str = "automatic";

/// The ways in the order in which they are tried while nothing is known: what needs least of the
/// network and of the firmware first.
const ORDER: &[BootWay] =
    &[BootWay::VirtualMedia, BootWay::Http, BootWay::Ipxe, BootWay::Pxe, BootWay::HttpIpxe];

/// How many times in a row a way that worked before may fail before it no longer counts as one that
/// works. A single failure may be a single machine's.
const FAILURES_FORGIVEN: i64 = 2;

/// The longest model that is remembered, in characters: more than any maker uses.
const LONGEST_MODEL: usize = 200;

/// Puts this implementation on its shelf. It chooses between `ways`.
pub(crate) fn add_to(
    shelves: &mut Shelves,
    mut ways: Vec<Arc<dyn OneWay>>,
    desk: &Arc<dyn BootDesk>,
) {
    ways.sort_by_key(|way| ORDER.iter().position(|known| *known == way.way()));
    let mut properties: Vec<Property> =
        ways.iter().flat_map(|way| way.properties()).copied().collect();
    properties.sort_unstable();
    properties.dedup_by_key(|(name, _)| *name);
    let desk = Arc::clone(desk);
    let refusals = Mutex::default();
    shelves.boot.push((NAME, Arc::new(AutomaticBoot { ways, desk, properties, refusals })));
}

/// What experience with booting is remembered by: maker and model as the BMC tells them, or else the
/// vendor the node was given. None if nothing of that is known.
#[must_use]
pub fn boot_model(node: &Node) -> Option<String> {
    let probed = node.driver_internal_info.get("bmc").unwrap_or_default();
    let text = |key: &str| probed.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    // IPMI has a number for the model.
    let product = probed.get("product_id").map(|number| format!("product {number}"));
    let model = text("model").map(str::to_owned).or(product);
    let name = match (text("vendor"), model) {
        (Some(vendor), Some(model)) => format!("{vendor} {model}"),
        (Some(vendor), None) => vendor.to_owned(),
        (None, Some(model)) if text("model").is_some() => model,
        (None, Some(_) | None) => {
            node.properties.get_str("vendor").filter(|vendor| !vendor.is_empty())?
        }
    };
    Some(name.chars().take(LONGEST_MODEL).collect())
}

/// The boot interface that chooses between the others.
struct AutomaticBoot {
    /// All that are enabled, in [`ORDER`].
    ways: Vec<Arc<dyn OneWay>>,
    desk: Arc<dyn BootDesk>,
    properties: Vec<Property>,
    /// By machine.
    refusals: Mutex<HashMap<NodeId, Refusals>>,
}

/// The ways that a machine's BMC refused in a job, which are counted.
#[derive(Default)]
struct Refusals {
    /// When the job began.
    since: Option<Timestamp>,
    ways: Vec<BootWay>,
}

#[async_trait]
impl Interface for AutomaticBoot {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Boot
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// One way that could be is enough.
    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        self.fitting(target).await.map(drop)
    }
}

#[async_trait]
impl Boot for AutomaticBoot {
    fn capabilities(&self) -> &'static [&'static str] {
        &["ramdisk_boot"]
    }

    async fn prepare_ramdisk(
        &self,
        target: &Target<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, Error> {
        self.boot_afresh(target, mode.purpose(), false).await
    }

    async fn prepare_again(
        &self,
        target: &Target<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, Error> {
        let tried = tried(target.node);
        let current = self.current(target.node);
        let mut queue = self.by_experience(target).await?;
        queue.retain(|way| !tried.contains(&way.way()));
        // When everything was tried, the last gets another chance.
        queue.extend(current);
        self.boot(target, &queue, tried, mode.purpose(), false).await
    }

    async fn clean_up_ramdisk(
        &self,
        target: &Target<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, Error> {
        match self.current(target.node) {
            Some(way) => {
                Ok(way.clean_up_ramdisk(target, mode).await?.and(self.forgotten(target.node)))
            }
            None => {
                self.eject_leftovers(target, mode).await?;
                self.desk.withdraw(target).await?;
                Ok(self.forgotten(target.node))
            }
        }
    }

    async fn prepare_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        if instance_runs(target) {
            return Ok(NodeChanges::none());
        }
        if lives_in_memory(target)? {
            return self.boot_afresh(target, BootPurpose::Instance, true).await;
        }
        let changes = match self.current(target.node) {
            Some(way) => way.prepare_instance(target).await?,
            None => {
                self.desk.withdraw(target).await?;
                boot_from_disk(target).await?
            }
        };
        Ok(changes.and(self.forgotten(target.node)))
    }

    async fn clean_up_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let changes = match self.current(target.node) {
            Some(way) => way.clean_up_instance(target).await?,
            None => {
                // One that lived in memory may have been put into drives by a job that ended too
                // early to say so, and its config drive is not for the next to have the machine.
                if lives_in_memory(target).unwrap_or(true) {
                    self.eject_leftovers(target, RamdiskMode::Deploy).await?;
                }
                self.desk.withdraw(target).await?;
                NodeChanges::none()
            }
        };
        Ok(changes.and(self.forgotten(target.node)))
    }
}

impl AutomaticBoot {
    /// The way the job in flight boots by.
    fn current(&self, node: &Node) -> Option<&dyn OneWay> {
        let way: BootWay = node.driver_internal_info.get_str(BOOT_WAY)?.parse().ok()?;
        self.ways.iter().find(|known| known.way() == way).map(|way| &**way)
    }

    /// The ways that are possible for this machine, in [`ORDER`]. There is at least one.
    async fn fitting(&self, target: &Target<'_>) -> Result<Vec<&dyn OneWay>, Error> {
        let mut possible: Vec<&dyn OneWay> = Vec::new();
        let mut obstacle = None;
        for way in self.ways.iter().filter(|way| fits(target.node, &***way)) {
            match way.validate(target).await {
                Ok(()) => possible.push(&**way),
                Err(error) => obstacle = obstacle.or(Some(error)),
            }
        }
        if possible.is_empty() {
            return Err(obstacle.unwrap_or_else(|| {
                self.cannot("boot this machine, because no other that fits it is enabled")
            }));
        }
        Ok(possible)
    }

    /// The ways that are possible for this machine, the most promising first.
    async fn by_experience(&self, target: &Target<'_>) -> Result<Vec<&dyn OneWay>, Error> {
        let mut ways = self.fitting(target).await?;
        if let Some(model) = boot_model(target.node) {
            let experience = self.desk.experience(&model).await;
            ways.sort_by_key(|way| promise(way.way(), &experience));
        }
        Ok(ways)
    }

    /// Boots by the way the job boots by already, or else by the most promising one.
    async fn boot_afresh(
        &self,
        target: &Target<'_>,
        purpose: BootPurpose,
        always: bool,
    ) -> Result<NodeChanges, Error> {
        let mut queue = self.by_experience(target).await?;
        if let Some(current) = self.current(target.node) {
            queue.sort_by_key(|way| way.way() != current.way());
        }
        self.boot(target, &queue, Vec::new(), purpose, always).await
    }

    /// Boots by the first way of `queue` that the boot services can lay out and the BMC accepts.
    /// A way that the BMC refuses counts as failed, unless it was in `tried` before.
    async fn boot(
        &self,
        target: &Target<'_>,
        queue: &[&dyn OneWay],
        mut tried: Vec<BootWay>,
        purpose: BootPurpose,
        always: bool,
    ) -> Result<NodeChanges, Error> {
        let mut problems: Vec<(&'static str, Error)> = Vec::new();
        let mut before = self.current(target.node);
        for way in queue {
            if let Some(before) = before.filter(|before| before.way() != way.way()) {
                put_back(before, target).await?;
            }
            let is_new = !tried.contains(&way.way());
            if is_new {
                tried.push(way.way());
            }
            let published = match self.desk.publish(target, way.way(), purpose).await {
                Ok(published) => published,
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    // Nothing was asked of the machine yet.
                    problems.push((way.name(), error));
                    continue;
                }
            };
            before = Some(*way);
            match way.present(target, &published, purpose, always).await {
                Ok(changes) => return Ok(changes.and(remembered(way.way(), &tried))),
                Err(error) if is_refusal(&error) => {
                    tracing::warn!(node = %target.node.id, way = %way.way(), %error, "the BMC refuses");
                    if is_new {
                        self.note_refusal(target, way.way()).await;
                    }
                    problems.push((way.name(), error));
                }
                Err(error) => return Err(error),
            }
        }
        Err(no_way_left(problems))
    }

    /// Remembers that a way failed, once for the job: when the BMC falls silent afterwards, what was
    /// tried is not written down, and all of it is tried again.
    async fn note_refusal(&self, target: &Target<'_>, way: BootWay) {
        let Some(model) = boot_model(target.node) else { return };
        let since = target.node.work.as_ref().map(|work| work.started_at);
        let is_first = {
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            let counted = refusals.entry(target.node.id).or_default();
            if counted.since != since {
                *counted = Refusals { since, ways: Vec::new() };
            }
            let is_first = !counted.ways.contains(&way);
            if is_first {
                counted.ways.push(way);
            }
            is_first
        };
        if is_first {
            self.desk.note(&model, way, false).await;
        }
    }

    /// The job has ended: the next one chooses anew.
    fn forgotten(&self, node: &Node) -> NodeChanges {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).remove(&node.id);
        let mut changes = NodeChanges::none();
        for key in [BOOT_WAY, BOOT_WAYS_TRIED] {
            if node.driver_internal_info.get(key).is_some() {
                changes = changes.and(NodeChanges::remember(key, Value::Null));
            }
        }
        changes
    }

    /// Takes out a CD of a job that ended before it could write down that it had put one in.
    async fn eject_leftovers(&self, target: &Target<'_>, mode: RamdiskMode) -> Result<(), Error> {
        let is_media = |way: &&Arc<dyn OneWay>| way.way() == BootWay::VirtualMedia;
        let Some(media) = self.ways.iter().find(is_media) else { return Ok(()) };
        if !fits(target.node, &**media) || media.validate(target).await.is_err() {
            return Ok(());
        }
        match media.clean_up_ramdisk(target, mode).await {
            Err(error) if !is_refusal(&error) => Err(error),
            // Its drives may not work at all, which is why another way is in use.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Whether a way could be this machine's at all. Firmware that is not UEFI cannot load by HTTP.
fn fits(node: &Node, way: &dyn OneWay) -> bool {
    let needs_uefi = match way.way() {
        BootWay::Http | BootWay::HttpIpxe => true,
        BootWay::VirtualMedia | BootWay::Ipxe | BootWay::Pxe => false,
    };
    let is_bios = node.boot_mode.as_deref() == Some(BootMode::Bios.as_str());
    let hardware_type = HardwareType::named(&node.driver);
    !(needs_uefi && is_bios)
        && hardware_type.is_some_and(|known| known.accepts(InterfaceKind::Boot, way.name()))
}

/// What comes first of two ways, in view of what is known about the model: less is better.
fn promise(way: BootWay, experience: &[BootExperience]) -> (u8, Reverse<i64>, i64) {
    match experience.iter().find(|known| known.way == way) {
        Some(known) if known.worked > 0 && known.failed <= FAILURES_FORGIVEN => {
            (0, Reverse(known.worked), known.failed)
        }
        None => (1, Reverse(0), 0),
        Some(known) => (2, Reverse(0), known.failed),
    }
}

/// Removes what was laid out for a way that is given up. That this fails is part of why it is.
async fn put_back(way: &dyn OneWay, target: &Target<'_>) -> Result<(), Error> {
    match way.clean_up_ramdisk(target, RamdiskMode::Deploy).await {
        Err(error) if !is_refusal(&error) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether the BMC will not do what this way needs. One that cannot be asked at all is no better
/// for another way.
const fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Unsupported { .. }
        | Error::InvalidParameter { .. }
        | Error::MissingParameter { .. }
        | Error::NotFound { .. }
        | Error::Failed { .. } => true,
        Error::Unreachable { .. }
        | Error::AgentSilent { .. }
        | Error::Refused { .. }
        | Error::Untrusted { .. } => false,
    }
}

/// The error for a machine that no way is left for.
fn no_way_left(mut problems: Vec<(&'static str, Error)>) -> Error {
    if problems.len() == 1
        && let Some((_, error)) = problems.pop()
    {
        return error;
    }
    let told: Vec<String> =
        problems.iter().map(|(name, error)| format!("{name}: {error}")).collect();
    Error::Failed { what: "boot the machine by any way".to_owned(), why: told.join("; ") }
}

/// The ways that the job in flight has tried.
fn tried(node: &Node) -> Vec<BootWay> {
    match node.driver_internal_info.get(BOOT_WAYS_TRIED) {
        Some(Value::Array(ways)) => {
            ways.iter().filter_map(|way| way.as_str()?.parse().ok()).collect()
        }
        Some(_) | None => Vec::new(),
    }
}

fn remembered(way: BootWay, tried: &[BootWay]) -> NodeChanges {
    let tried: Vec<&str> = tried.iter().map(|way| way.as_str()).collect();
    NodeChanges::remember(BOOT_WAY, way.as_str()).and(NodeChanges::remember(BOOT_WAYS_TRIED, tried))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(way: BootWay, worked: i64, failed: i64) -> BootExperience {
        BootExperience { model: "m".to_owned(), way, worked, failed, tried_at: Timestamp(0) }
    }

    fn order(experience: &[BootExperience]) -> String {
        let mut ways = ORDER.to_vec();
        ways.sort_by_key(|way| promise(*way, experience));
        ways.iter().map(|way| way.as_str()).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn what_worked_comes_first_and_what_failed_least_last() {
        use BootWay::{Http, HttpIpxe, Ipxe, Pxe, VirtualMedia};
        for (experience, expected) in [
            (&[][..], "virtual media, http, ipxe, pxe, http-ipxe"),
            (&[known(Pxe, 1, 0)][..], "pxe, virtual media, http, ipxe, http-ipxe"),
            (
                &[known(Ipxe, 3, 0), known(Pxe, 9, 1), known(VirtualMedia, 0, 1)],
                "pxe, ipxe, http, http-ipxe, virtual media",
            ),
            // It worked for years, and then no more.
            (&[known(VirtualMedia, 900, 3)], "http, ipxe, pxe, http-ipxe, virtual media"),
            (
                &[known(VirtualMedia, 0, 4), known(Http, 0, 9), known(HttpIpxe, 5, 3)],
                "ipxe, pxe, http-ipxe, virtual media, http",
            ),
        ] {
            assert_eq!(order(experience), expected, "{experience:?}");
        }
    }

    #[test]
    fn models() {
        let long = "x".repeat(500);
        for (bmc, vendor, expected) in [
            (json!({"vendor": "HPE", "model": "DL380"}), "given", Some("HPE DL380")),
            (json!({"vendor": "HPE", "model": null}), "given", Some("HPE")),
            (json!({"vendor": null, "model": "DL380"}), "given", Some("DL380")),
            (json!({"vendor": "dell inc.", "product_id": 256}), "", Some("dell inc. product 256")),
            (json!({"vendor": null, "product_id": 256}), "given", Some("given")),
            (json!(null), "given", Some("given")),
            (json!(null), "", None),
            (json!({"model": long.clone()}), "", Some(&long[..LONGEST_MODEL])),
        ] {
            let mut node = Node::new(NodeId::random(), "redfish", Timestamp(0));
            node.driver_internal_info.set("bmc", bmc.clone());
            node.properties.set("vendor", vendor);
            assert_eq!(boot_model(&node).as_deref(), expected, "{bmc} {vendor}");
        }
    }
}
