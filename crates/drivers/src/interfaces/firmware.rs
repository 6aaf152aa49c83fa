// SPDX-License-Identifier: Apache-2.0
//! The BIOS and firmware interfaces. Steps change settings and versions.

use async_trait::async_trait;
use node_model::{BiosSetting, FirmwareComponent};

use super::BaseInterface;
use crate::{DriverError, DriverTarget};

/// Firmware settings. Steps: `apply_configuration`, `factory_reset`.
#[async_trait]
pub trait BiosInterface: BaseInterface {
    /// Reads the settings. `None` if the implementation cannot read settings.
    async fn settings(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Option<Vec<BiosSetting>>, DriverError>;
}

/// Firmware versions. Steps: `update`.
#[async_trait]
pub trait FirmwareInterface: BaseInterface {
    /// Reads the firmware components. `None` if the implementation cannot read them.
    async fn components(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Option<Vec<FirmwareComponent>>, DriverError>;
}
