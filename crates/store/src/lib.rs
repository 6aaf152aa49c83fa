// SPDX-License-Identifier: Apache-2.0
//! Database layer: records, migrations, leases, the journal and sealed secrets, on SQLite,
//! PostgreSQL or MariaDB.
//!
//! Callers pass a closure to [`Store::read`] or [`Store::write`]. The closure is synchronous code
//! over a [`StoreReader`] or [`StoreWriter`], and each write is one transaction. The type of an id
//! selects the resource: `reader.get(node_id)` returns a node, `writer.delete(port_id)` deletes a
//! port.
//!
//! This crate does not depend on `lifecycle` or on HTTP.

mod agent_log;
mod backup;
mod boot_plans;
mod certificate_authority;
mod clock;
mod conductor_session;
mod dhcp_leases;
mod engine;
mod error;
mod job_queues;
mod journal;
mod journal_search;
mod key_ring;
mod key_rotation;
mod key_source;
mod lease;
mod migrate;
mod neighbours;
mod query;
mod reader;
mod record;
mod rename_existing;
mod reseal;
mod schema;
mod seal_existing;
mod sealed_steps;
mod sealing_key;
mod search;
mod secrets;
mod settings;
mod storage_monitor;
mod store;
mod tables;
mod unknown_machines;
mod value;
mod writer;

pub use backup::{
    BackupError, BackupSummary, RestoreOptions, RestoreReport, back_up, check_backup, restore,
};
pub use certificate_authority::StoredAuthority;
pub use clock::{ClockStatus, HostClocks, MonotonicClock, StoreClock};
pub use conductor_session::{ObservedSession, SessionRenewals, SessionReport};
pub use dhcp_leases::StoredDhcpLease;
pub use engine::simulated_server::{
    DatabaseLink, DatabaseLinkState, SimulatedCommit, SimulatedServer,
};
pub use error::{ErrorSource, StoreError, StoreOpenError};
pub use journal::JournalQuery;
pub use journal_search::{JournalSearch, StateEntry};
pub use key_ring::KeyRing;
pub use key_rotation::{
    KeyProcess, KeyRotation, KeyStatus, RotationError, RotationPhase, RotationProgress,
    RotationSummary,
};
pub use key_source::{KeyCommand, KeyFile, KeySource, KeySourceError, KeyVariable, MAX_KEYS_BYTES};
pub use lease::{LeaseOwner, NodeLease};
pub use migrate::{MigrationPlan, PlannedMigration, SchemaUpgrade};
pub use neighbours::CableFilter;
pub use query::{ResourcePage, ResourceQuery};
pub use reader::StoreReader;
pub use record::{Columns, ResourceId, StoredRecord, StoredResource};
pub use sealing_key::{SealError, new_key};
pub use search::NodeMatch;
pub use secrets::NodeSecrets;
pub use settings::{SQLITE_FILE, SqliteSynchronous, StoreSettings};
pub use storage_monitor::{StorageMonitor, StorageProblem};
pub use store::Store;
pub use tables::allocation::{AllocationColumn, AllocationFilter};
pub use tables::audit_log::{AuditColumn, AuditFilter};
pub use tables::chassis::{ChassisColumn, ChassisFilter};
pub use tables::deployment::{DeploymentColumn, DeploymentFilter, QuotaColumn, QuotaFilter};
pub use tables::flavour::{FlavourColumn, FlavourFilter};
pub use tables::hardware::{HistoryColumn, HistoryFilter};
pub use tables::identity::{
    ApiTokenColumn, OwnedByUserFilter, ProjectColumn, ProjectFilter, SessionColumn, UserColumn,
    UserFilter,
};
pub use tables::network::{PortColumn, PortFilter, PortgroupColumn, PortgroupFilter};
pub use tables::node::{ChildNodes, DueFilter, NodeColumn, NodeFilter};
pub use tables::templates_and_rules::{
    DeployTemplateColumn, DeployTemplateFilter, InspectionRuleColumn, InspectionRuleFilter,
    RunbookColumn, RunbookFilter,
};
pub use tables::volume::{VolumeConnectorColumn, VolumeFilter, VolumeTargetColumn};
pub use writer::StoreWriter;
