// SPDX-License-Identifier: Apache-2.0
//! Handlers of Ferrite's own API below `/v1/ferrite`, and the files of the web UI.

mod agent_logs;
mod audit_log;
mod bmc;
mod bmc_identity;
mod boot;
mod ca_certificate;
mod cluster;
mod console;
mod deployment_request;
mod deployments;
mod dhcp;
mod durations;
mod events;
mod explain;
mod flavours;
mod fleet;
mod images;
mod journal_search;
pub(crate) mod openapi;
mod projects;
mod quotas;
mod ramdisks;
mod search;
mod sightings;
mod tokens;
mod topology;
mod users;
mod visible_nodes;
pub(crate) mod web_ui;

use crate::server::ApiRoute;

/// All routes of Ferrite's own API. Those of the web UI are in [`crate::WEB_UI_ROUTES`].
pub(crate) const ROUTES: &[&[ApiRoute]] = &[
    agent_logs::ROUTES,
    journal_search::ROUTES,
    audit_log::ROUTES,
    bmc::ROUTES,
    bmc_identity::ROUTES,
    boot::ROUTES,
    ca_certificate::ROUTES,
    cluster::ROUTES,
    console::ROUTES,
    deployments::ROUTES,
    dhcp::ROUTES,
    durations::ROUTES,
    events::ROUTES,
    explain::ROUTES,
    flavours::ROUTES,
    fleet::ROUTES,
    images::ROUTES,
    openapi::ROUTES,
    projects::ROUTES,
    quotas::ROUTES,
    ramdisks::ROUTES,
    search::ROUTES,
    sightings::ROUTES,
    tokens::ROUTES,
    topology::ROUTES,
    users::ROUTES,
];
