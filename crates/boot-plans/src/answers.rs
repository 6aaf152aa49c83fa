// SPDX-License-Identifier: Apache-2.0
//! What DHCP answers machines, from their plans.
//!
//! All cards in a batch of packets are looked up at once; what was found is believed for a second,
//! so that a machine's four packets cost one look at the database.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bmc_drivers::Target;
use boot_server::{
    Architecture, BootAnswer, BootRequest, HardwareAddress, Netboot, Plan, Plans, Stage,
};
use node_model::{BootCard, BootPlan, BootSystem, BootWay, Mac};

use crate::layouts::Piece;
use crate::loaders::Loaders;
use crate::scripts::hyphenated;
use crate::services::BootServices;

/// How long what was looked up is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// How long it is kept beyond that: whoever found it fresh may still be about to ask for it.
const KEPT: Duration = Duration::from_secs(5);

/// What was found about a card.
pub(crate) struct Lookup {
    believed_until: Instant,
    card: Option<BootCard>,
}

/// The plans of machines, as DHCP of one version of IP answers them.
#[derive(Debug)]
pub struct DhcpPlans {
    services: BootServices,
    /// Where the file service is, by the interface that a machine asks on.
    files: HashMap<String, String>,
}

impl BootServices {
    /// The plans for a DHCP server. `files` says by which URL machines on each interface reach the
    /// file service; those on others reach it where it is said to be found.
    #[must_use]
    pub fn plans(&self, files: HashMap<String, String>) -> DhcpPlans {
        DhcpPlans { services: self.clone(), files }
    }
}

#[async_trait]
impl Plans for DhcpPlans {
    async fn look_up(&self, machines: &[HardwareAddress]) -> bool {
        self.services.look_up(machines).await
    }

    fn plan(&self, request: &BootRequest<'_>) -> Plan {
        let files = match self.files.get(request.interface) {
            Some(files) if self.services.0.settings.http_url.is_none() => files.clone(),
            Some(_) | None => self.services.0.places().files,
        };
        self.services.plan(request, &files)
    }
}

impl BootServices {
    async fn look_up(&self, machines: &[HardwareAddress]) -> bool {
        let now = Instant::now();
        let macs: Vec<(HardwareAddress, Mac)> = {
            let known = self.0.lookups.lock().unwrap_or_else(PoisonError::into_inner);
            let is_fresh =
                |machine| known.get(machine).is_some_and(|lookup| now < lookup.believed_until);
            machines
                .iter()
                .filter(|machine| !is_fresh(machine))
                .filter_map(|machine| Some((*machine, mac(*machine)?)))
                .collect()
        };
        if macs.is_empty() {
            return true;
        }
        let wanted: Vec<Mac> = macs.iter().map(|(_, mac)| mac.clone()).collect();
        let found = match self.0.store.read(move |reader| reader.boot_cards(&wanted)).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "cannot look up machines that boot");
                return false;
            }
        };
        let mut known = self.0.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, lookup| now < lookup.believed_until + KEPT);
        let mut found: HashMap<Mac, BootCard> =
            found.into_iter().map(|card| (card.address.clone(), card)).collect();
        for (machine, mac) in macs {
            let card = found.remove(&mac);
            known.insert(machine, Lookup { believed_until: now + BELIEVED, card });
        }
        true
    }

    fn plan(&self, request: &BootRequest<'_>, files: &str) -> Plan {
        let known = self.0.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&request.hardware) {
            // Not an Ethernet card: nobody can enrol it, and no script is named after it.
            None => Plan::default(),
            Some(Lookup { card: None, .. }) => {
                Plan { boot: self.discovery(request, files), ..Plan::default() }
            }
            Some(Lookup { card: Some(card), .. }) => Plan {
                known: true,
                is_booting: self.valid_plan(card).is_some(),
                boot: self.boot_of(card, request, files),
                host_name: card.node_name.as_deref().map(Arc::from),
            },
        }
    }

    /// Forgets what was looked up about a machine whose plan changed.
    pub(crate) fn forget_cards(&self, target: &Target<'_>) {
        let now = Instant::now();
        let mut known = self.0.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked up again before it is believed again, and kept until then: a machine whose packet is
        // being answered at this moment must not become a stranger.
        for lookup in known.values_mut() {
            if lookup.card.as_ref().is_some_and(|card| card.node_id == target.node.id) {
                lookup.believed_until = lookup.believed_until.min(now);
            }
        }
    }

    fn valid_plan<'a>(&self, card: &'a BootCard) -> Option<&'a BootPlan> {
        card.plan.as_ref().filter(|plan| plan.is_valid(self.0.now()))
    }

    fn boot_of(&self, card: &BootCard, request: &BootRequest<'_>, files: &str) -> BootAnswer {
        let Some(plan) = self.valid_plan(card).filter(|_| card.pxe_enabled) else {
            return BootAnswer::Disk;
        };
        let script: Arc<str> = format!("{files}/pxelinux.cfg/{}", hyphenated(&card.address)).into();
        let Some(http) = by_http(plan, request, files) else {
            return BootAnswer::NothingForThisFirmware;
        };
        let first_stage = first_stage(plan.way, request);
        answer(request.stage, Netboot { script, http, first_stage, parameters: Vec::new() })
    }

    /// What a machine boots that nobody enrolled: the agent, to be inspected.
    fn discovery(&self, request: &BootRequest<'_>, files: &str) -> BootAnswer {
        let settings = &self.0.settings;
        let (Some(card), Some(_), Some(_)) =
            (mac(request.hardware), &settings.deploy_kernel, &settings.deploy_ramdisk)
        else {
            return BootAnswer::Disk;
        };
        let netboot = Netboot {
            script: format!("{files}/pxelinux.cfg/{}", hyphenated(&card)).into(),
            http: loader_by_http(request.architecture, files),
            first_stage: first_stage(BootWay::Ipxe, request),
            parameters: Vec::new(),
        };
        answer(request.stage, netboot)
    }
}

/// The answer, unless there is nothing in it for the program that asks.
fn answer(stage: Stage, netboot: Netboot) -> BootAnswer {
    let has_something = match stage {
        Stage::Pxe => netboot.first_stage.is_some(),
        Stage::HttpBoot => netboot.http.is_some(),
        Stage::Ipxe | Stage::System => true,
    };
    if has_something { BootAnswer::Netboot(netboot) } else { BootAnswer::NothingForThisFirmware }
}

/// What firmware loads first by TFTP. Firmware that does not say what it is is a BIOS.
fn first_stage(way: BootWay, request: &BootRequest<'_>) -> Option<Arc<str>> {
    Loaders::first(way, request.architecture.unwrap_or(Architecture::Bios))
}

/// What UEFI firmware loads by HTTP. None altogether if the plan's way is not the one the firmware
/// tries: then it is told of nothing to load, and goes on to the next.
#[expect(clippy::option_option, reason = "no answer is another thing than an answer without HTTP")]
fn by_http(plan: &BootPlan, request: &BootRequest<'_>, files: &str) -> Option<Option<Arc<str>>> {
    match plan.way {
        BootWay::VirtualMedia => None,
        BootWay::Pxe => Some(None),
        BootWay::Ipxe | BootWay::HttpIpxe => Some(loader_by_http(request.architecture, files)),
        // One image with everything in it, for firmware that can load it. A machine whose firmware
        // asks by TFTP first is left to ask again by HTTP.
        BootWay::Http if request.stage == Stage::Pxe => None,
        BootWay::Http => {
            let piece = match plan.system {
                BootSystem::Kernel { .. } => Piece::UnifiedImage,
                BootSystem::Iso { .. } => Piece::Cd,
            };
            Some(Some(format!("{files}/{}/{}", plan.key, piece.name()).into()))
        }
    }
}

fn loader_by_http(architecture: Option<Architecture>, files: &str) -> Option<Arc<str>> {
    let name = Loaders::first(BootWay::HttpIpxe, architecture?)?;
    Some(format!("{files}/{name}").into())
}

/// The address of an Ethernet card.
pub(crate) fn mac(hardware: HardwareAddress) -> Option<Mac> {
    hardware.mac().and_then(|_| hardware.to_string().parse().ok())
}
