// SPDX-License-Identifier: Apache-2.0
//! In-band inspection: what the ramdisk sent, what we believe of it, and what that changes.
//!
//! Everything here is a pure function of its arguments. The caller receives the report over HTTP,
//! asks the database for the nodes that [`lookup`] wants, hands node, ports and report to
//! [`process`], and stores the [`Findings`]. The report comes from a machine nobody vouches for, so
//! every list is bounded and nothing in it can cause a panic.

mod address;
mod attributes;
mod capabilities;
mod draft;
mod findings;
mod flavours;
mod found;
mod hooks;
pub mod lldp;
pub mod lookup;
mod process;
mod report;
pub mod rules;
mod settings;
mod summary;
#[cfg(test)]
mod tests;

pub use agent_protocol::{HintError, Hints};

pub use address::{Network, ParseNetworkError};
pub use findings::{
    ApiCall, Findings, Level, NewPort, NodeChanges, Note, ObjectField, PortChange, Source,
};
pub use flavours::{FlavourError, FlavourSet, validate_flavour};
pub use hooks::{Hook, HookFailure};
pub use process::{Context, HookError, process};
pub use report::{Interface, MAX_REPORT_BYTES, ParseError, Report};
pub use rules::{RuleError, RuleSet, validate_rule};
pub use settings::{
    AddPorts, AutoDiscovery, CollectLogs, ExistingProperties, KeepPorts, KnownAccelerator,
    MaskSecrets, PciAlias, PhysicalNetwork, Settings, SettingsError, parse_hooks,
};
pub use summary::{boot_card, summary};
