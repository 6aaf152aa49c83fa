// SPDX-License-Identifier: Apache-2.0
//! All driver crates registered in one [`DriverRegistry`], with their combined settings.

mod settings;

use std::sync::Arc;

use agent_driver::AgentDriverError;
use drivers::{BootService, DriverRegistry, RegistryBuilder, RegistryError};
use fake_driver::FakeSettingsError;
use ipmi_driver::IpmiSettingsError;
use redfish_driver::QuirksError;

pub use settings::DriverSettings;

/// Why the registry cannot be built from the settings.
#[derive(Debug, thiserror::Error)]
pub enum DriverSetError {
    /// The enabled hardware types and implementations are inconsistent.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The agent driver rejects its settings.
    #[error(transparent)]
    Agent(#[from] AgentDriverError),
    /// The fake driver rejects its settings.
    #[error(transparent)]
    Fake(#[from] FakeSettingsError),
    /// The IPMI driver rejects its settings.
    #[error(transparent)]
    Ipmi(#[from] IpmiSettingsError),
    /// The Redfish driver cannot load its quirks.
    #[error(transparent)]
    Redfish(#[from] QuirksError),
}

/// Builds a registry with all drivers. `boot_service` prepares what machines boot.
pub fn build_registry(
    settings: &DriverSettings,
    boot_service: Arc<dyn BootService>,
) -> Result<DriverRegistry, DriverSetError> {
    let mut builder =
        RegistryBuilder::new(settings.enabled_drivers(), boot_service, settings.requests_per_bmc);
    fake_driver::register(&mut builder, &settings.fake)?;
    redfish_driver::register(&mut builder, &settings.redfish)?;
    ipmi_driver::register(&mut builder, &settings.ipmi, &settings.console)?;
    // Last: its boot interface `automatic` chooses among the boot methods registered before.
    agent_driver::register(&mut builder, &settings.agent_driver())?;
    Ok(builder.build()?)
}
