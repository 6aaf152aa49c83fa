// SPDX-License-Identifier: Apache-2.0
//! The `redfish` hardware type: machines whose BMC speaks Redfish.
//!
//! All its interfaces reach a BMC through [`Connections`], which keeps one session per BMC and lets
//! one request at a time through. A [`Bmc`] is such a connection for one call on one machine.
//! BMCs are taken as they are: any field may be missing, and what only some of them do otherwise
//! is in the data files of [`quirks`], not in the code.

mod access;
mod bios;
mod bmc;
mod boot_settings;
mod clock;
mod connections;
mod firmware;
mod firmware_setup;
mod image_url;
mod inspect;
mod inventory;
mod lights;
mod management;
mod media;
mod media_drive;
mod names;
mod patience;
mod power;
mod probe;
mod quirks;
mod raid;
mod reset;
mod sensors;
mod settings;
mod subscription;
mod survey;
mod tasks;
mod vendor;
mod virtual_media_boot;

use std::sync::Arc;

use crate::boot_desk::OneWay;
use crate::driver::Shelves;
use crate::turns::Turns;
use crate::{BootDesk, ConfigError};

pub(crate) use connections::Connections;
pub(crate) use image_url::ImageUrl;
pub use settings::RedfishSettings;

use quirks::QuirkBook;

/// What nodes call all of these.
const NAME: &str = "redfish";

/// Puts these implementations on their shelves, and virtual media among `ways`; gives the
/// connections they share.
pub(crate) fn add_to(
    shelves: &mut Shelves,
    ways: &mut Vec<Arc<dyn OneWay>>,
    settings: &RedfishSettings,
    turns: &Arc<Turns>,
    desk: &Arc<dyn BootDesk>,
) -> Result<Arc<Connections>, ConfigError> {
    let quirks = QuirkBook::load(settings.quirks_dir.as_deref())?;
    let connections = Arc::new(Connections::new(settings.clone(), quirks, Arc::clone(turns)));
    shelves.bios.push((NAME, Arc::new(bios::RedfishBios(Arc::clone(&connections)))));
    shelves.firmware.push((NAME, Arc::new(firmware::RedfishFirmware(Arc::clone(&connections)))));
    shelves.raid.push((NAME, Arc::new(raid::RedfishRaid(Arc::clone(&connections)))));
    let inspect = inspect::RedfishInspect(Arc::clone(&connections));
    shelves.inspect.push((NAME, Arc::new(inspect)));
    shelves.vendor.push((NAME, Arc::new(vendor::RedfishVendor(Arc::clone(&connections)))));
    let media_boot =
        virtual_media_boot::VirtualMediaBoot::new(Arc::clone(&connections), Arc::clone(desk));
    let media_boot = Arc::new(media_boot);
    shelves.boot.push((virtual_media_boot::NAME, media_boot.clone()));
    ways.push(media_boot);
    let management = management::RedfishManagement(Arc::clone(&connections));
    shelves.management.push((NAME, Arc::new(management)));
    shelves.power.push((NAME, Arc::new(power::RedfishPower(Arc::clone(&connections)))));
    Ok(connections)
}
