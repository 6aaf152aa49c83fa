// SPDX-License-Identifier: Apache-2.0
//! The JSON of the Ironic API.
//!
//! Microversions, resources as each version shows them, request bodies, JSON patches, query strings
//! and error bodies, all driven by one field table per resource. This crate does not depend on HTTP
//! servers or the database: it converts between bytes and model types.

mod agent;
mod agent_config;
mod allocation;
mod body;
mod chassis;
mod conductor;
mod context;
mod driver;
mod error;
mod field;
mod hardware;
mod inspection_rule;
mod list;
mod names;
mod network_data;
mod node;
mod node_rules;
pub mod params;
mod patch;
mod port;
mod portgroup;
mod provision;
mod raid;
mod requests;
mod responses;
mod root;
mod rows;
mod schema;
mod steps;
mod templates_and_runbooks;
mod value;
mod version;
mod volume;
mod writer;

pub use agent::{InspectionData, LookupQuery, parse_heartbeat};
pub use agent_config::LookupResponse;
pub use allocation::AllocationDraft;
pub use body::{
    MAX_NESTING, MAX_VALUES, ResourceDraft, WritableResource, create, parse_body, parse_fields,
    parse_object,
};
pub use conductor::ConductorView;
pub use context::{ConductorLookup, RenderContext};
pub use driver::{DriverInterface, DriverView};
pub use error::{ErrorForm, WireError};
pub use field::{
    FieldSelection, FieldSetter, FieldShape, FieldWriter, NEVER_SHOWN, ResourceField,
    ResourceIdentity, WireResource,
};
pub use hardware::{BiosSettingView, HistoryView, bios_setting_body, inventory_body};
pub use list::{
    CREATION_ORDER, ListQuery, ParamKind, QueryParam, QueryParams, named_selection, write_list,
};
pub use names::{MAX_TRAITS, is_logical_name, is_trait};
pub use node::{
    NodeDraft, as_uuid, initial_state, node_states_body, node_states_fields, provision_state_at,
};
pub use patch::Patch;
pub use port::PortDraft;
pub use provision::{
    ConfigDriveInput, ProvisionArguments, ProvisionBody, VERB_GATES, VerbGate, check_abort_version,
    check_verb_version, verb_gate,
};
pub use raid::parse_raid_config;
pub use requests::{
    BootDeviceRequest, PowerChange, VifAttachment, VirtualMedia, parse_boot_mode, parse_console,
    parse_events, parse_indicator, parse_maintenance, parse_secure_boot, parse_trait, parse_traits,
};
pub use responses::{
    ConsoleConnection, boot_device_body, children_body, console_body, indicator_state_body,
    inspected_body, supported_boot_devices_body, traits_body, validate_body, vifs_body,
};
pub use root::{V1_COLLECTIONS, root_body, shards_body, v1_body, volume_body};
pub use schema::{create_schema, list_schema, patch_schema, shown_schema};
pub use value::ValueError;
pub use version::{ApiVersion, VersionError, negotiate};
pub use volume::VolumeTargetDraft;
pub use writer::JsonWriter;
