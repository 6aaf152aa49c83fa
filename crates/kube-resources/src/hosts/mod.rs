// SPDX-License-Identifier: Apache-2.0
//! The kinds of group `metal3.io`: hosts, their hardware, firmware, images and claims.
//!
//! Names, schema and behaviour are those of Metal3's baremetal-operator, so that existing manifests
//! and clients such as Cluster API Provider Metal3 work unchanged.

pub mod annotations;
pub mod bare_metal_host;
pub mod bmc_address;
pub mod bmc_event_subscription;
pub mod conditions;
pub mod data_image;
pub mod firmware_schema;
pub mod hardware_data;
pub mod host_claim;
pub mod host_deploy_policy;
pub mod host_firmware_components;
pub mod host_firmware_settings;
pub mod host_image;
pub mod host_status;
pub mod host_update_policy;
pub mod ironic_payloads;
pub mod names;
pub mod preprovisioning_image;
pub mod raid;
pub mod validation;
