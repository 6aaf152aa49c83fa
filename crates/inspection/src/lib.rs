// SPDX-License-Identifier: Apache-2.0
//! In-band inspection: turns the report of an inspection ramdisk into changes of the node.
//!
//! All functions are pure. The caller receives the report over HTTP, reads the nodes that match
//! its addresses (see [`lookup`]), calls [`process_report`] with node, ports and report, and stores
//! the [`InspectionResult`]. Reports are unauthenticated input: every list is bounded and no content
//! causes a panic.

mod address;
mod attributes;
mod capabilities;
mod derived_values;
mod flavours;
mod hooks;
mod inspection_draft;
mod inspection_result;
mod inventory_summary;
pub mod lldp;
pub mod lookup;
mod process;
mod report;
pub mod rules;
mod settings;
#[cfg(test)]
mod tests;

pub use address::{IpNetwork, ParseNetworkError};
pub use flavours::{FlavourError, FlavourSet, validate_flavour};
pub use hooks::{Hook, HookError};
pub use inspection_result::{
    ApiCall, InspectedNodeChanges, InspectionLogEntry, InspectionLogLevel, InspectionLogSource,
    InspectionResult, NewPort, ObjectField, PortChange,
};
pub use inventory_summary::{boot_mac, inventory_summary};
pub use process::{ProcessError, ReportContext, process_report};
pub use report::{HardwareReport, MAX_REPORT_BYTES, ReportError, ReportedInterface};
pub use rules::{RuleError, RuleSet, validate_rule};
pub use settings::{
    AddPorts, AutoDiscovery, CollectLogs, ExistingProperties, InspectionSettings,
    InspectionSettingsError, KeepPorts, KnownAccelerator, MaskSecrets, PciAlias, PhysicalNetwork,
    parse_hooks,
};
