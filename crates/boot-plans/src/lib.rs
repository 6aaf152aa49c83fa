// SPDX-License-Identifier: Apache-2.0
//! Boot plans: what each node boots next.
//!
//! A boot interface publishes a plan through [`BootServices`], the implementation of
//! [`BootService`](drivers::BootService): the images are fetched and verified, and the plan is stored.
//! Every process then serves the plan in the form that the firmware requests: a DHCP reply, an iPXE
//! script, a boot loader configuration, a unified kernel image or an ISO. All of these are generated from
//! the plan; none is stored on disk.
//!
//! Requests of machines are recorded in the timeline of their node, or, for unknown machines, as
//! sightings.

mod agent_ramdisks;
mod agent_trust;
mod attached_media;
mod boot_events;
mod boot_service;
mod boot_system;
mod database_dhcp_leases;
mod dhcp_directory;
mod dhcp_networks;
mod discovery;
mod http_files;
mod installer;
mod instance_images;
mod kernel_parameters;
mod kickstart;
mod loader_delivery;
mod loaders;
mod plan_files;
mod scripts;
mod services;
mod settings;
#[cfg(test)]
mod tests;
mod tftp_files;

pub use agent_ramdisks::{AgentImage, AgentImageContent, ConfiguredRamdisk};
pub use agent_trust::AgentTrust;
pub use boot_events::BootEventSender;
pub use database_dhcp_leases::DatabaseDhcpLeases;
pub use dhcp_directory::DhcpBootDirectory;
pub use dhcp_networks::{ClientLease, ClientLeasesError, DhcpClient, DhcpLeaseLocation};
pub use http_files::LoaderScript;
pub use services::{BootServices, BootServicesError};
pub use settings::{BootServiceSettings, ImageSettings, IsoDownloadSource};
