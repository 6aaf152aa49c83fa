// SPDX-License-Identifier: Apache-2.0
//! What DHCP answers machines, from their plans.
//!
//! All cards in a batch of packets are looked up at once; what was found is believed for a second,
//! so that a machine's four packets cost one look at the database.

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

/// What was found about a card.
pub(crate) struct Lookup {
    at: Instant,
    card: Option<BootCard>,
}

#[async_trait]
impl Plans for BootServices {
    async fn look_up(&self, machines: &[HardwareAddress]) {
        let now = Instant::now();
        let macs: Vec<(HardwareAddress, Mac)> = {
            let known = self.0.lookups.lock().unwrap_or_else(PoisonError::into_inner);
            let is_fresh = |machine| {
                known.get(machine).is_some_and(|lookup| now.duration_since(lookup.at) < BELIEVED)
            };
            machines
                .iter()
                .filter(|machine| !is_fresh(machine))
                .filter_map(|machine| Some((*machine, mac(*machine)?)))
                .collect()
        };
        if macs.is_empty() {
            return;
        }
        let wanted: Vec<Mac> = macs.iter().map(|(_, mac)| mac.clone()).collect();
        let found = match self.0.store.read(move |reader| reader.boot_cards(&wanted)).await {
            Ok(found) => found,
            Err(error) => {
                // What was known before is believed a little longer; strangers ask again.
                tracing::warn!(%error, "cannot look up machines that boot");
                return;
            }
        };
        let mut known = self.0.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, lookup| now.duration_since(lookup.at) < BELIEVED);
        let mut found: std::collections::HashMap<Mac, BootCard> =
            found.into_iter().map(|card| (card.address.clone(), card)).collect();
        for (machine, mac) in macs {
            known.insert(machine, Lookup { at: now, card: found.remove(&mac) });
        }
    }

    fn plan(&self, request: &BootRequest<'_>) -> Plan {
        let known = self.0.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&request.hardware) {
            // The database did not answer: neither known nor unknown, so nothing is promised.
            None => Plan::default(),
            Some(Lookup { card: None, .. }) => {
                Plan { boot: self.discovery(request), ..Plan::default() }
            }
            Some(Lookup { card: Some(card), .. }) => Plan {
                known: true,
                boot: self.boot_of(card, request),
                host_name: card.node_name.as_deref().map(Arc::from),
                ..Plan::default()
            },
        }
    }
}

impl BootServices {
    /// Forgets what was looked up about a machine whose plan changed.
    pub(crate) fn forget_cards(&self, target: &Target<'_>) {
        let mut known = self.0.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, lookup| {
            lookup.card.as_ref().is_none_or(|card| card.node_id != target.node.id)
        });
    }

    fn boot_of(&self, card: &BootCard, request: &BootRequest<'_>) -> BootAnswer {
        let plan = card.plan.as_ref().filter(|plan| plan.is_valid(self.0.now()));
        let Some(plan) = plan.filter(|_| card.pxe_enabled) else { return BootAnswer::Disk };
        let files = self.0.places().files;
        let script: Arc<str> = format!("{files}/pxelinux.cfg/{}", hyphenated(&card.address)).into();
        let Some(http) = by_http(plan, request, &files) else { return BootAnswer::Disk };
        let first_stage =
            request.architecture.and_then(|architecture| Loaders::first(plan.way, architecture));
        BootAnswer::Netboot(Netboot { script, http, first_stage, parameters: Vec::new() })
    }

    /// What a machine boots that nobody enrolled: the agent, to be inspected.
    fn discovery(&self, request: &BootRequest<'_>) -> BootAnswer {
        let settings = &self.0.settings;
        let (Some(card), Some(_), Some(_)) =
            (mac(request.hardware), &settings.deploy_kernel, &settings.deploy_ramdisk)
        else {
            return BootAnswer::Disk;
        };
        let files = self.0.places().files;
        let first_stage = request
            .architecture
            .and_then(|architecture| Loaders::first(BootWay::Ipxe, architecture));
        BootAnswer::Netboot(Netboot {
            script: format!("{files}/pxelinux.cfg/{}", hyphenated(&card)).into(),
            http: loader_by_http(request.architecture, &files),
            first_stage,
            parameters: Vec::new(),
        })
    }
}

/// What UEFI firmware loads by HTTP. None altogether if the plan's way is not the one the firmware
/// tries: then it goes on to the next.
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
