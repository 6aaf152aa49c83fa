// SPDX-License-Identifier: Apache-2.0
//! Handlers of Ferrite's own API below `/v1/ferrite`, and the files of the web UI.

mod agent_logs;
mod audit;
mod bmc;
mod boot;
mod console;
mod dhcp;
mod durations;
mod events;
mod explain;
mod flavours;
mod fleet;
mod images;
pub(crate) mod openapi;
mod search;
mod sightings;
mod topology;
pub(crate) mod web_ui;

use crate::server::ApiRoute;

/// All routes of Ferrite's own API. Those of the web UI are in [`crate::WEB_UI_ROUTES`].
pub(crate) const ROUTES: &[&[ApiRoute]] = &[
    agent_logs::ROUTES,
    audit::ROUTES,
    bmc::ROUTES,
    boot::ROUTES,
    console::ROUTES,
    dhcp::ROUTES,
    durations::ROUTES,
    events::ROUTES,
    explain::ROUTES,
    flavours::ROUTES,
    fleet::ROUTES,
    images::ROUTES,
    openapi::ROUTES,
    search::ROUTES,
    sightings::ROUTES,
    topology::ROUTES,
];
