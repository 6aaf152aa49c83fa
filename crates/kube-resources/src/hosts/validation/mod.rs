// SPDX-License-Identifier: Apache-2.0
//! Validation of the kinds of group `metal3.io`: pure functions that return all violations.
//!
//! The webhooks and the controllers call the same functions. Every rule is one function, and every
//! error names the field and what to do. Rules that the CRD schema expresses are checked again only
//! where a value decides how another rule applies.

mod annotations;
mod bios_settings;
mod bmc;
mod events_and_images;
mod host;
mod host_claim;
mod host_deploy_policy;
mod image;
mod label;
mod raid;
mod secrets;
mod update;
mod url;

pub use bios_settings::{validate_bios_setting, validate_firmware_settings};
pub use events_and_images::{
    validate_bmc_event_subscription, validate_data_image, validate_firmware_components,
};
pub use host::validate_host;
pub use host_claim::validate_host_claim;
pub use host_deploy_policy::validate_host_deploy_policy;
pub use update::validate_host_update;

#[cfg(test)]
mod tests;
