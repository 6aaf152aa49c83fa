// SPDX-License-Identifier: Apache-2.0
//! What is set up below the operating system: firmware settings and firmware versions. Changing
//! them is done by steps.

use async_trait::async_trait;
use node_model::{BiosSetting, FirmwareComponent};

use super::Interface;
use crate::{Error, Target};

/// Firmware settings. Steps: `apply_configuration`, `factory_reset`.
#[async_trait]
pub trait Bios: Interface {
    /// The settings as they are. None where there is nothing to read, which is no error.
    async fn settings(&self, target: &Target<'_>) -> Result<Option<Vec<BiosSetting>>, Error>;
}

/// Firmware versions. Steps: `update`.
#[async_trait]
pub trait Firmware: Interface {
    /// The pieces of firmware as they are. None where there is nothing to read, which is no error.
    async fn components(
        &self,
        target: &Target<'_>,
    ) -> Result<Option<Vec<FirmwareComponent>>, Error>;
}
