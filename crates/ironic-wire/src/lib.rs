// SPDX-License-Identifier: Apache-2.0
//! Everything that knows Ironic's JSON.
//!
//! Microversions, resources as each version shows them, request bodies, JSON patches, query
//! strings, error bodies. One field table per resource drives all of it. Nothing here knows HTTP
//! servers or the database: bytes and model types go in, bytes and model types come out.

mod agent;
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
mod recipe;
mod replies;
mod requests;
mod root;
mod rows;
mod schema;
mod steps;
mod value;
mod version;
mod volume;
mod writer;

pub use agent::{Heartbeat, InspectionData, Lookup};
pub use allocation::AllocationDraft;
pub use body::{DEEPEST, Drafted, Writable, create, parse_body, parse_object};
pub use conductor::ConductorView;
pub use context::{ConductorOf, Context};
pub use driver::{DriverInterface, DriverView};
pub use error::{ErrorForm, WireError};
pub use field::{Field, Identity, NEVER_SHOWN, Resource, Selection, Set, Shape, Write};
pub use hardware::{BiosView, HistoryView, bios_setting_body, inventory_body};
pub use list::{BY_CREATION, ListQuery, Param, ParamKind, Params, named_selection, write_list};
pub use names::{MOST_TRAITS, is_logical_name, is_trait};
pub use node::{
    NodeDraft, as_uuid, initial_state, node_states_body, node_states_fields, shown_state,
};
pub use patch::Patch;
pub use port::PortDraft;
pub use provision::{
    ConfigDrive, ProvisionContent, ProvisionRequest, VERB_GATES, VerbGate, check_abort_version,
    check_verb_version, gate_of,
};
pub use raid::parse_raid_config;
pub use replies::{
    ConsoleInfo, boot_device_body, children_body, console_body, indicator_state_body,
    inspected_body, supported_boot_devices_body, traits_body, validate_body, vifs_body,
};
pub use requests::{
    BootDevice, PowerChange, VifAttachment, VirtualMedia, parse_boot_mode, parse_console,
    parse_events, parse_indicator, parse_maintenance, parse_secure_boot, parse_trait, parse_traits,
};
pub use root::{PLACES, root_body, shards_body, v1_body, volume_body};
pub use schema::{create_schema, list_schema, patch_schema, shown_schema};
pub use value::Problem;
pub use version::{ApiVersion, VersionError, negotiate};
pub use volume::VolumeTargetDraft;
pub use writer::JsonWriter;
