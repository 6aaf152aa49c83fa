// SPDX-License-Identifier: Apache-2.0
//! Handlers of Ironic's REST API, one file per resource. The JSON itself is in `ironic-wire`.

pub(crate) mod access_subject;
pub(crate) mod agent;
pub(crate) mod allocations;
mod chassis;
pub(crate) mod conductor_cache;
pub(crate) mod conductors;
pub(crate) mod continue_inspection;
mod crud;
mod deploy_templates;
mod driver_vendor_passthru;
mod drivers;
mod inspection_rules;
pub(crate) mod node_resources;
pub(crate) mod nodes;
mod portgroups;
mod ports;
pub(crate) mod redaction;
pub(crate) mod resource;
mod root;
mod runbooks;
mod volume;
mod volume_connectors;
mod volume_targets;

use crate::server::ApiRoute;

/// All routes of Ironic's API, by resource.
pub(crate) const ROUTES: &[&[ApiRoute]] = &[
    root::ROUTES,
    nodes::list::ROUTES,
    nodes::show::ROUTES,
    nodes::create::ROUTES,
    nodes::update::ROUTES,
    nodes::delete::ROUTES,
    nodes::maintenance::ROUTES,
    nodes::validate::ROUTES,
    nodes::traits::ROUTES,
    nodes::hardware::ROUTES,
    nodes::history::ROUTES,
    nodes::children::ROUTES,
    nodes::states::ROUTES,
    nodes::provision::ROUTES,
    nodes::power::ROUTES,
    nodes::raid::ROUTES,
    nodes::console::ROUTES,
    nodes::management::ROUTES,
    nodes::indicators::ROUTES,
    nodes::vendor_passthru::ROUTES,
    nodes::vifs::ROUTES,
    nodes::virtual_media::ROUTES,
    allocations::ROUTES,
    drivers::ROUTES,
    driver_vendor_passthru::ROUTES,
    chassis::ROUTES,
    ports::ROUTES,
    portgroups::ROUTES,
    volume::ROUTES,
    volume_connectors::ROUTES,
    volume_targets::ROUTES,
    deploy_templates::ROUTES,
    runbooks::ROUTES,
    inspection_rules::ROUTES,
    conductors::ROUTES,
    agent::ROUTES,
    continue_inspection::ROUTES,
];
