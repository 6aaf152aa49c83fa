// SPDX-License-Identifier: Apache-2.0
//! Ferrite's durable memory.
//!
//! Rows, migrations, leases, the journal and sealed secrets, on SQLite, PostgreSQL or MariaDB.
//! A caller gives a closure to [`Store::read`] or [`Store::write`]; the closure is plain
//! synchronous code over a [`Reader`] or [`Writer`], and a write is one transaction. The id's type
//! says what is meant: `reader.get(node_id)` is a node, `writer.delete(port_id)` removes a port.
//!
//! Nothing here knows what a provision state means or what a request is.

mod agent_log;
mod audit;
mod boot;
mod engine;
mod error;
mod journal;
mod lease;
mod migrate;
mod neighbours;
mod query;
mod reader;
mod record;
mod reseal;
mod schema;
mod seal;
mod sealed_steps;
mod search;
mod settings;
mod store;
mod strangers;
mod tables;
mod value;
mod vault;
mod writer;

pub use audit::{Entry, JournalSearch};
pub use error::{Cause, Error, OpenError};
pub use journal::JournalQuery;
pub use lease::{Lease, Owner};
pub use neighbours::CableFilter;
pub use query::{Page, Query};
pub use reader::Reader;
pub use record::{Columns, Identifies, Record, Resource};
pub use seal::NodeSecrets;
pub use search::Trace;
pub use settings::{Settings, Synchronous};
pub use store::{Clock, Store};
pub use tables::allocation::{AllocationColumn, AllocationFilter};
pub use tables::chassis::{ChassisColumn, ChassisFilter};
pub use tables::flavour::{FlavourColumn, FlavourFilter};
pub use tables::hardware::{HistoryColumn, HistoryFilter};
pub use tables::network::{PortColumn, PortFilter, PortgroupColumn, PortgroupFilter};
pub use tables::node::{Children, NodeColumn, NodeFilter};
pub use tables::recipes::{
    DeployTemplateColumn, DeployTemplateFilter, InspectionRuleColumn, InspectionRuleFilter,
    RunbookColumn, RunbookFilter,
};
pub use tables::volume::{VolumeConnectorColumn, VolumeFilter, VolumeTargetColumn};
pub use vault::VaultError;
pub use writer::Writer;
