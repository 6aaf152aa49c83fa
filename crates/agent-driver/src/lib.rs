// SPDX-License-Identifier: Apache-2.0
//! Implementations that use the ramdisk agent: deployment, cleaning, service, rescue, software RAID and
//! inspection; also network boot and automatic selection of the boot method.
//!
//! The agent is booted ([`agent_boot`]), sends a heartbeat, and then gets commands over HTTP
//! ([`agent_client`]). It runs long commands asynchronously; [`agent_commands`] sends each once, even
//! if the process is restarted, and polls it until it ends. [`agent_steps`] runs the agent's steps.

mod agent_access;
mod agent_boot;
mod agent_client;
mod agent_commands;
mod agent_deploy;
mod agent_inspect;
mod agent_raid;
mod agent_rescue;
mod agent_steps;
mod agent_tls;
mod anaconda_deploy;
mod autodetect_deploy;
mod automatic_boot;
mod finish_deploy;
mod image_info;
mod network_boot;
mod node_info;
mod ramdisk_deploy;
mod rescue_password;
mod settings;
#[cfg(test)]
mod test_registry;

use std::sync::Arc;

use agent_access::AgentAccess;
use drivers::RegistryBuilder;
pub use settings::{AgentDriverError, AgentDriverSettings, AgentSettings};

/// Registers the implementations that work through the agent, the network boot interfaces, and
/// the boot interface `automatic`, which chooses among the boot methods registered so far. Call it
/// after the other drivers.
pub fn register(
    registry: &mut RegistryBuilder,
    settings: &AgentDriverSettings,
) -> Result<(), AgentDriverError> {
    let in_band = Arc::new(AgentAccess::new(settings, registry.boot_service())?);
    registry.set_agent(Arc::clone(&in_band) as Arc<dyn drivers::InBandAgent>);
    ramdisk_deploy::register(registry, &in_band);
    anaconda_deploy::register(registry, &in_band, settings.install_timeout);
    agent_deploy::register(registry, &in_band);
    agent_inspect::register(registry, &in_band);
    agent_raid::register(registry, &in_band);
    agent_rescue::register(registry, &in_band);
    network_boot::register(registry);
    automatic_boot::register(registry);
    Ok(())
}
