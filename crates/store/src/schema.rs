// SPDX-License-Identifier: Apache-2.0
//! The schema migrations, in order.
//!
//! Never edit a released migration; append a new one. On MariaDB, where DDL is not transactional, a
//! migration that was interrupted is run again, so every statement must have an idempotent form
//! there (see [`crate::migrate`]). Statements are written once, with `{placeholders}` for types
//! whose names differ between the engines. Unique indexes are named `<table>_<field>_unique`,
//! because the API derives the field of a duplicate from the index name.
//!
//! The numbers of a release begin with a thousand of its own, [`RELEASE`], so that a program knows how much
//! later a schema is whose migrations it does not know. When the next release has migrations, a published
//! one gets no more: databases of the next release would not apply them.
//!
//! A migration only adds tables, indexes and columns with a default: in a rolling upgrade, processes of the
//! previous version use the new schema until they are replaced.

use crate::engine::DatabaseSession;
use crate::error::StoreError;
use crate::key_ring::KeyRing;
use crate::{journal_search, rename_existing, seal_existing, search};

/// One schema migration.
pub(crate) struct Migration {
    pub(crate) number: i64,
    pub(crate) name: &'static str,
    pub(crate) statements: &'static [&'static str],
    /// Fills new tables and columns from existing data, after the statements.
    pub(crate) backfill: Option<Backfill>,
}

/// A data migration. It must be idempotent, because an earlier run may have been interrupted.
#[derive(Clone, Copy)]
pub(crate) enum Backfill {
    /// Needs only the database.
    Plain(fn(&mut dyn DatabaseSession) -> Result<(), StoreError>),
    /// Also needs the sealing key.
    WithKey(fn(&mut dyn DatabaseSession, &KeyRing) -> Result<(), StoreError>),
}

/// The number of this release: 0 for version 0.1, 1 for 0.2.
pub(crate) const RELEASE: i64 = 0;
/// Release 1 has the migrations from 1000 on.
pub(crate) const MIGRATIONS_PER_RELEASE: i64 = 1000;

/// Every migration, oldest first.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration::new(1, "initial tables", INITIAL_TABLES),
    Migration::new(2, "boot plans", BOOT_TABLES),
    Migration::new(3, "agent logs, inspection reports and neighbours", RAMDISK_TABLES),
    Migration::new(4, "conductor runs", CONDUCTOR_RUNS),
    Migration {
        backfill: Some(Backfill::Plain(backfill_lookups)),
        ..Migration::new(5, "serial numbers and state changes", LOOKUPS)
    },
    Migration {
        backfill: Some(Backfill::WithKey(seal_existing::seal_existing_secrets)),
        ..Migration::new(6, "sealed passwords in URLs", &[])
    },
    Migration::new(7, "renamed tables of unknown machines", UNKNOWN_MACHINES),
    Migration {
        backfill: Some(Backfill::Plain(rename_existing::rename_existing_values)),
        ..Migration::new(8, "renamed columns, journal events and wait reasons", RENAMED_COLUMNS)
    },
    Migration::new(9, "identity", IDENTITY_TABLES),
    Migration::new(10, "deployments, quotas and audit log", TENANCY_TABLES),
    Migration::new(11, "certificate authority", CERTIFICATE_AUTHORITY),
    Migration {
        backfill: Some(Backfill::WithKey(seal_existing::seal_more_secrets)),
        ..Migration::new(12, "sealed secrets in more objects", &[])
    },
    Migration::new(13, "rotation of the sealing key", KEY_ROTATION),
    Migration::new(14, "DHCP leases", DHCP_LEASES),
    Migration::new(15, "commit markers", COMMIT_MARKERS),
    Migration::new(16, "conductor sessions", CONDUCTOR_SESSIONS),
    Migration::new(17, "job queues", JOB_QUEUES),
    Migration::new(18, "versions of processes", CONDUCTOR_VERSIONS),
];

impl Migration {
    const fn new(number: i64, name: &'static str, statements: &'static [&'static str]) -> Self {
        Self { number, name, statements, backfill: None }
    }
}

const INITIAL_TABLES: &[&str] = &[
    "CREATE TABLE vault (key_id {key} NOT NULL) {table}",
    "CREATE TABLE chassis (
        id {id}, uuid {uuid} NOT NULL, created_at {int} NOT NULL, updated_at {int},
        description {text}, extra {json}) {table}",
    "CREATE UNIQUE INDEX chassis_uuid_unique ON chassis (uuid)",
    // The lease columns are written only by claim, renew and release.
    "CREATE TABLE nodes (
        id {id}, uuid {uuid} NOT NULL, name {key}, instance_uuid {uuid}, power_state {key},
        provision_state {key} NOT NULL, maintenance {bool} NOT NULL, driver {key} NOT NULL,
        resource_class {key}, conductor_group {key} NOT NULL, owner {key}, lessee {key}, shard {key},
        chassis_uuid {uuid} REFERENCES chassis (uuid), parent_node {uuid}, allocation_uuid {uuid},
        instance_name {key}, fault {key}, retired {bool} NOT NULL, created_at {int} NOT NULL,
        updated_at {int}, provision_updated_at {int}, due_at {int}, reservation {key},
        lease_run {uuid}, lease_token {int} NOT NULL DEFAULT 0, lease_until {int},
        target_power_state {key}, target_provision_state {key}, maintenance_reason {text},
        last_error {text}, console_enabled {bool} NOT NULL, inspection_started_at {int},
        inspection_finished_at {int}, automated_clean {bool}, protected {bool} NOT NULL,
        protected_reason {text}, retired_reason {text}, description {text}, boot_mode {key},
        secure_boot {bool}, disable_power_off {bool} NOT NULL, health {key}, traits {json},
        bios_interface {key}, boot_interface {key}, console_interface {key}, deploy_interface {key},
        firmware_interface {key}, inspect_interface {key}, management_interface {key},
        network_interface {key}, power_interface {key}, raid_interface {key},
        rescue_interface {key}, storage_interface {key}, vendor_interface {key}, agent {json},
        wait {json}, power_request {json}, work {json}, properties {json}, extra {json},
        driver_info {json}, instance_info {json}, driver_internal_info {json}, network_data {json},
        raid_config {json}, target_raid_config {json}, sealed {blob}) {table}",
    "CREATE UNIQUE INDEX nodes_uuid_unique ON nodes (uuid)",
    "CREATE UNIQUE INDEX nodes_name_unique ON nodes (name)",
    "CREATE UNIQUE INDEX nodes_instance_uuid_unique ON nodes (instance_uuid)",
    "CREATE INDEX nodes_provision_state ON nodes (provision_state)",
    "CREATE INDEX nodes_owner ON nodes (owner)",
    // Partial indexes on SQLite and PostgreSQL: the columns are NULL for most nodes.
    "CREATE INDEX nodes_due_at ON nodes (due_at) {where due_at}",
    "CREATE INDEX nodes_lessee ON nodes (lessee) {where lessee}",
    "CREATE INDEX nodes_parent_node ON nodes (parent_node) {where parent_node}",
    "CREATE INDEX nodes_chassis_uuid ON nodes (chassis_uuid) {where chassis_uuid}",
    "CREATE INDEX nodes_reservation ON nodes (reservation) {where reservation}",
    "CREATE TABLE portgroups (
        id {id}, uuid {uuid} NOT NULL, address {key},
        node_uuid {uuid} NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE, name {key},
        created_at {int} NOT NULL, updated_at {int}, mode {key} NOT NULL,
        standalone_ports_supported {bool} NOT NULL, physical_network {key}, category {key},
        dynamic_portgroup {bool} NOT NULL, properties {json}, extra {json}, internal_info {json})
        {table}",
    "CREATE UNIQUE INDEX portgroups_uuid_unique ON portgroups (uuid)",
    "CREATE UNIQUE INDEX portgroups_address_unique ON portgroups (address)",
    "CREATE UNIQUE INDEX portgroups_name_unique ON portgroups (name)",
    "CREATE INDEX portgroups_node_uuid ON portgroups (node_uuid)",
    "CREATE TABLE ports (
        id {id}, uuid {uuid} NOT NULL, address {key} NOT NULL,
        node_uuid {uuid} NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE, name {key},
        created_at {int} NOT NULL, updated_at {int},
        portgroup_uuid {uuid} REFERENCES portgroups (uuid) ON DELETE SET NULL,
        pxe_enabled {bool} NOT NULL, is_smartnic {bool} NOT NULL, physical_network {key},
        vendor {key}, category {key}, available_for_dynamic_portgroup {bool} NOT NULL,
        description {text}, local_link_connection {json}, extra {json}, internal_info {json}) {table}",
    "CREATE UNIQUE INDEX ports_uuid_unique ON ports (uuid)",
    "CREATE UNIQUE INDEX ports_address_unique ON ports (address)",
    "CREATE UNIQUE INDEX ports_name_unique ON ports (name)",
    "CREATE INDEX ports_node_uuid ON ports (node_uuid)",
    "CREATE INDEX ports_portgroup_uuid ON ports (portgroup_uuid) {where portgroup_uuid}",
    "CREATE TABLE volume_connectors (
        id {id}, uuid {uuid} NOT NULL,
        node_uuid {uuid} NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE, type {key} NOT NULL,
        connector_id {key} NOT NULL, created_at {int} NOT NULL, updated_at {int}, extra {json})
        {table}",
    "CREATE UNIQUE INDEX volume_connectors_uuid_unique ON volume_connectors (uuid)",
    "CREATE UNIQUE INDEX volume_connectors_connector_id_unique ON volume_connectors (type, connector_id)",
    "CREATE INDEX volume_connectors_node_uuid ON volume_connectors (node_uuid)",
    "CREATE TABLE volume_targets (
        id {id}, uuid {uuid} NOT NULL,
        node_uuid {uuid} NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE,
        volume_type {key} NOT NULL, volume_id {key} NOT NULL, boot_index {int} NOT NULL,
        created_at {int} NOT NULL, updated_at {int}, properties {json}, extra {json}, sealed {blob})
        {table}",
    "CREATE UNIQUE INDEX volume_targets_uuid_unique ON volume_targets (uuid)",
    "CREATE UNIQUE INDEX volume_targets_boot_index_unique ON volume_targets (node_uuid, boot_index)",
    "CREATE TABLE allocations (
        id {id}, uuid {uuid} NOT NULL, name {key},
        node_uuid {uuid} REFERENCES nodes (uuid) ON DELETE CASCADE, state {key} NOT NULL,
        resource_class {key}, owner {key}, created_at {int} NOT NULL, updated_at {int},
        last_error {text}, traits {json}, candidate_nodes {json}, extra {json}) {table}",
    "CREATE UNIQUE INDEX allocations_uuid_unique ON allocations (uuid)",
    "CREATE UNIQUE INDEX allocations_name_unique ON allocations (name)",
    "CREATE INDEX allocations_node_uuid ON allocations (node_uuid)",
    "CREATE TABLE deploy_templates (
        id {id}, uuid {uuid} NOT NULL, name {key} NOT NULL, created_at {int} NOT NULL,
        updated_at {int}, steps {json}, extra {json}) {table}",
    "CREATE UNIQUE INDEX deploy_templates_uuid_unique ON deploy_templates (uuid)",
    "CREATE UNIQUE INDEX deploy_templates_name_unique ON deploy_templates (name)",
    "CREATE TABLE runbooks (
        id {id}, uuid {uuid} NOT NULL, name {key} NOT NULL, created_at {int} NOT NULL,
        updated_at {int}, description {text}, disable_ramdisk {bool} NOT NULL,
        public {bool} NOT NULL, owner {key}, traits {json}, steps {json}, extra {json}) {table}",
    "CREATE UNIQUE INDEX runbooks_uuid_unique ON runbooks (uuid)",
    "CREATE UNIQUE INDEX runbooks_name_unique ON runbooks (name)",
    "CREATE TABLE inspection_rules (
        id {id}, uuid {uuid} NOT NULL, created_at {int} NOT NULL, updated_at {int},
        priority {int} NOT NULL, phase {key}, is_sensitive {bool} NOT NULL, description {text},
        conditions {json}, actions {json}) {table}",
    "CREATE UNIQUE INDEX inspection_rules_uuid_unique ON inspection_rules (uuid)",
    "CREATE TABLE bios_settings (
        id {id}, node_uuid {uuid} NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE,
        name {key} NOT NULL, value {text}, created_at {int} NOT NULL, updated_at {int},
        registry {json}) {table}",
    "CREATE UNIQUE INDEX bios_settings_name_unique ON bios_settings (node_uuid, name)",
    "CREATE TABLE firmware_components (
        id {id}, node_uuid {uuid} NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE,
        component {key} NOT NULL, initial_version {text} NOT NULL, current_version {text},
        last_version_flashed {text}, vendor {text}, model {text}, serial_number {text},
        created_at {int} NOT NULL, updated_at {int}) {table}",
    "CREATE UNIQUE INDEX firmware_components_component_unique
        ON firmware_components (node_uuid, component)",
    "CREATE TABLE node_history (
        id {id}, uuid {uuid} NOT NULL,
        node_uuid {uuid} NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE,
        created_at {int} NOT NULL, event_type {key} NOT NULL, severity {key} NOT NULL,
        event {text} NOT NULL, conductor {key}, user_name {key}, project {key}, state {key},
        target_provision_state {key}, duration_seconds {int}) {table}",
    "CREATE UNIQUE INDEX node_history_uuid_unique ON node_history (uuid)",
    "CREATE INDEX node_history_node_uuid ON node_history (node_uuid, id)",
    "CREATE TABLE inventories (
        id {id}, node_uuid {uuid} NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE,
        created_at {int} NOT NULL, inventory {json}, plugin_data {json}) {table}",
    "CREATE UNIQUE INDEX inventories_node_uuid_unique ON inventories (node_uuid)",
    "CREATE TABLE conductors (
        id {id}, hostname {key} NOT NULL, conductor_group {key} NOT NULL, drivers {json},
        created_at {int} NOT NULL, updated_at {int} NOT NULL, online {bool} NOT NULL) {table}",
    "CREATE UNIQUE INDEX conductors_hostname_unique ON conductors (hostname)",
    // No foreign key to nodes: entries outlive their node.
    "CREATE TABLE journal (
        seq {seq}, recorded_at {int} NOT NULL, node_uuid {uuid} NOT NULL, actor {json} NOT NULL,
        what {json} NOT NULL) {table}",
    "CREATE INDEX journal_node_uuid ON journal (node_uuid, seq)",
];

const BOOT_TABLES: &[&str] = &[
    "CREATE TABLE boot_plans (
        id {id}, node_uuid {uuid} NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE,
        key_digest {key} NOT NULL, made_at {int} NOT NULL, expires_at {int}, sealed {blob}) {table}",
    "CREATE UNIQUE INDEX boot_plans_node_uuid_unique ON boot_plans (node_uuid)",
    "CREATE UNIQUE INDEX boot_plans_key_digest_unique ON boot_plans (key_digest)",
    "CREATE TABLE strangers (
        id {id}, address {key} NOT NULL, first_seen_at {int} NOT NULL, last_seen_at {int} NOT NULL,
        times {int} NOT NULL, ip_address {key}, interface {key} NOT NULL, architecture {key},
        last_words {text}) {table}",
    "CREATE UNIQUE INDEX strangers_address_unique ON strangers (address)",
    "CREATE INDEX strangers_last_seen_at ON strangers (last_seen_at)",
    "CREATE TABLE boot_experience (
        id {id}, model {key} NOT NULL, way {key} NOT NULL, worked {int} NOT NULL,
        failed {int} NOT NULL, tried_at {int} NOT NULL) {table}",
    "CREATE UNIQUE INDEX boot_experience_way_unique ON boot_experience (model, way)",
];

const RAMDISK_TABLES: &[&str] = &[
    "CREATE TABLE agent_logs (
        id {id}, uuid {uuid} NOT NULL,
        node_uuid {uuid} NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE,
        created_at {int} NOT NULL, kind {key} NOT NULL, why {text} NOT NULL, size {int} NOT NULL)
        {table}",
    "CREATE UNIQUE INDEX agent_logs_uuid_unique ON agent_logs (uuid)",
    "CREATE INDEX agent_logs_node_uuid ON agent_logs (node_uuid, id)",
    // Split into parts: MariaDB limits a statement to 16 MiB, and logs should not be held in
    // memory twice.
    "CREATE TABLE agent_log_parts (
        id {id}, log_uuid {uuid} NOT NULL REFERENCES agent_logs (uuid) ON DELETE CASCADE,
        sealed {blob}) {table}",
    "CREATE INDEX agent_log_parts_log_uuid ON agent_log_parts (log_uuid, id)",
    "ALTER TABLE inventories ADD COLUMN found {json}",
    "CREATE TABLE stranger_reports (
        id {id}, uuid {uuid} NOT NULL, reported_at {int} NOT NULL,
        node_uuid {uuid} REFERENCES nodes (uuid) ON DELETE SET NULL, summary {json}, body {json})
        {table}",
    "CREATE UNIQUE INDEX stranger_reports_uuid_unique ON stranger_reports (uuid)",
    "CREATE INDEX stranger_reports_reported_at ON stranger_reports (reported_at)",
    // No foreign key: a dangling reference means that the report was pruned.
    "ALTER TABLE strangers ADD COLUMN report_uuid {uuid}",
    // When LLDP neighbours were last collected for a node, also if there were none.
    "CREATE TABLE listenings (
        id {id}, node_uuid {uuid} NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE,
        listened_at {int} NOT NULL) {table}",
    "CREATE UNIQUE INDEX listenings_node_uuid_unique ON listenings (node_uuid)",
    "CREATE TABLE neighbours (
        id {id}, node_uuid {uuid} NOT NULL REFERENCES nodes (uuid) ON DELETE CASCADE,
        interface {key} NOT NULL, address {key} NOT NULL, switch_id {key} NOT NULL,
        switch_name {key}, switch_description {text}, management_addresses {json},
        port_id {key} NOT NULL, port_description {text}, detail {json}) {table}",
    "CREATE INDEX neighbours_node_uuid ON neighbours (node_uuid)",
    "CREATE INDEX neighbours_address ON neighbours (address)",
    "CREATE INDEX neighbours_switch_id ON neighbours (switch_id)",
    "CREATE INDEX neighbours_switch_name ON neighbours (switch_name) {where switch_name}",
    "CREATE TABLE flavours (
        id {id}, uuid {uuid} NOT NULL, name {key} NOT NULL, created_at {int} NOT NULL,
        updated_at {int}, description {text}, priority {int} NOT NULL, conditions {json},
        resource_class {key}, traits {json}, properties {json}, capabilities {json},
        overwrite {bool} NOT NULL) {table}",
    "CREATE UNIQUE INDEX flavours_uuid_unique ON flavours (uuid)",
    "CREATE UNIQUE INDEX flavours_name_unique ON flavours (name)",
];

const CONDUCTOR_RUNS: &[&str] = &["ALTER TABLE conductors ADD COLUMN run_uuid {uuid}"];

const LOOKUPS: &[&str] = &[
    // Lower case, for prefix search.
    "ALTER TABLE inventories ADD COLUMN serial {key}",
    "CREATE INDEX inventories_serial ON inventories (serial) {where serial}",
    // State changes are in the journal too; this table makes them cheap to read.
    "CREATE TABLE state_entries (
        id {id}, recorded_at {int} NOT NULL, node_uuid {uuid} NOT NULL, from_state {key} NOT NULL,
        to_state {key} NOT NULL) {table}",
];

const UNKNOWN_MACHINES: &[&str] = &[
    "ALTER TABLE strangers RENAME TO unknown_machines",
    "ALTER TABLE unknown_machines RENAME COLUMN last_words TO last_activity",
    "DROP INDEX strangers_address_unique {on unknown_machines}",
    "DROP INDEX strangers_last_seen_at {on unknown_machines}",
    "CREATE UNIQUE INDEX unknown_machines_address_unique ON unknown_machines (address)",
    "CREATE INDEX unknown_machines_last_seen_at ON unknown_machines (last_seen_at)",
    "ALTER TABLE stranger_reports RENAME TO unknown_machine_reports",
    "DROP INDEX stranger_reports_uuid_unique {on unknown_machine_reports}",
    "DROP INDEX stranger_reports_reported_at {on unknown_machine_reports}",
    "CREATE UNIQUE INDEX unknown_machine_reports_uuid_unique ON unknown_machine_reports (uuid)",
    "CREATE INDEX unknown_machine_reports_reported_at ON unknown_machine_reports (reported_at)",
];

const RENAMED_COLUMNS: &[&str] = &[
    "ALTER TABLE journal RENAME COLUMN what TO event",
    "ALTER TABLE agent_logs RENAME COLUMN why TO reason",
    "ALTER TABLE inventories RENAME COLUMN found TO derived",
    "ALTER TABLE boot_plans RENAME COLUMN made_at TO created_at",
    "ALTER TABLE boot_experience RENAME TO boot_method_stats",
    "ALTER TABLE boot_method_stats RENAME COLUMN way TO method",
    "DROP INDEX boot_experience_way_unique {on boot_method_stats}",
    "CREATE UNIQUE INDEX boot_method_stats_method_unique ON boot_method_stats (model, method)",
    "ALTER TABLE listenings RENAME TO neighbour_observations",
    "ALTER TABLE neighbour_observations RENAME COLUMN listened_at TO observed_at",
    // Before the old index is dropped: MariaDB needs one for the foreign key.
    "CREATE UNIQUE INDEX neighbour_observations_node_uuid_unique
        ON neighbour_observations (node_uuid)",
    "DROP INDEX listenings_node_uuid_unique {on neighbour_observations}",
];

const CERTIFICATE_AUTHORITY: &[&str] = &[
    "CREATE TABLE certificate_authorities (
        id {id}, name {key} NOT NULL, certificate {text} NOT NULL, expires_at {int} NOT NULL,
        sealed {blob} NOT NULL) {table}",
    "CREATE UNIQUE INDEX certificate_authorities_name_unique ON certificate_authorities (name)",
];

/// The table `vault` has the key that seals; during a rotation in phase `sealing`, the new key does.
const KEY_ROTATION: &[&str] = &[
    "CREATE TABLE key_rotations (
        id {id}, key_id {key} NOT NULL, old_key_id {key} NOT NULL, phase {key} NOT NULL,
        started_at {int} NOT NULL, finished_at {int}) {table}",
    "CREATE UNIQUE INDEX key_rotations_key_id_unique ON key_rotations (key_id)",
    "CREATE TABLE key_processes (
        id {id}, uuid {uuid} NOT NULL, name {key} NOT NULL, key_ids {text} NOT NULL,
        sealing_key_id {key} NOT NULL, seen_at {int} NOT NULL) {table}",
    "CREATE UNIQUE INDEX key_processes_uuid_unique ON key_processes (uuid)",
];

/// Leases of the DHCP servers of all processes. `client` is hexadecimal, and empty for an address that is used by a host without
/// a lease.
const DHCP_LEASES: &[&str] = &[
    "CREATE TABLE dhcp_leases (
        id {id}, address {key} NOT NULL, client {text} NOT NULL, expires_at {int} NOT NULL,
        changed_at {int} NOT NULL) {table}",
    "CREATE UNIQUE INDEX dhcp_leases_address_unique ON dhcp_leases (address)",
    "CREATE INDEX dhcp_leases_changed_at ON dhcp_leases (changed_at)",
    "CREATE INDEX dhcp_leases_expires_at ON dhcp_leases (expires_at)",
];

/// One row per connection to a server, the number of its last committed transaction.
const COMMIT_MARKERS: &[&str] = &[
    "CREATE TABLE commit_markers (
        id {id}, uuid {uuid} NOT NULL, number {int} NOT NULL, changed_at {int} NOT NULL) {table}",
    "CREATE UNIQUE INDEX commit_markers_uuid_unique ON commit_markers (uuid)",
];

/// The counter that a running process increments. `renewing_run` is the run that does so; it differs from
/// `run_uuid` for a process of an earlier version, which does not know these columns.
const CONDUCTOR_SESSIONS: &[&str] = &[
    "ALTER TABLE conductors ADD COLUMN renewals {int} NOT NULL DEFAULT 0",
    "ALTER TABLE conductors ADD COLUMN renewing_run {uuid}",
];

const CONDUCTOR_VERSIONS: &[&str] = &["ALTER TABLE conductors ADD COLUMN version {key}"];

/// `queued_at` is NULL for jobs that were started.
const JOB_QUEUES: &[&str] = &[
    "ALTER TABLE nodes ADD COLUMN job_queue {key}",
    "ALTER TABLE nodes ADD COLUMN queued_at {int}",
    "CREATE INDEX nodes_job_queue ON nodes (job_queue, queued_at) {where job_queue}",
];

const IDENTITY_TABLES: &[&str] = &[
    "CREATE TABLE users (
        id {id}, uuid {uuid} NOT NULL, name {key} NOT NULL, kind {key} NOT NULL,
        created_at {int} NOT NULL, updated_at {int}, description {text}, enabled {bool} NOT NULL,
        password_hash {text}, default_project {key}) {table}",
    "CREATE UNIQUE INDEX users_uuid_unique ON users (uuid)",
    "CREATE UNIQUE INDEX users_name_unique ON users (name)",
    "CREATE TABLE projects (
        id {id}, uuid {uuid} NOT NULL, name {key} NOT NULL, created_at {int} NOT NULL,
        updated_at {int}, description {text}, enabled {bool} NOT NULL) {table}",
    "CREATE UNIQUE INDEX projects_uuid_unique ON projects (uuid)",
    "CREATE UNIQUE INDEX projects_name_unique ON projects (name)",
    // `scope` is a project name or `system`, which no project may be named.
    "CREATE TABLE role_assignments (
        id {id}, user_uuid {uuid} NOT NULL REFERENCES users (uuid) ON DELETE CASCADE,
        role {key} NOT NULL, scope {key} NOT NULL) {table}",
    "CREATE UNIQUE INDEX role_assignments_role_unique ON role_assignments (user_uuid, role, scope)",
    "CREATE TABLE api_tokens (
        id {id}, uuid {uuid} NOT NULL, lookup {key} NOT NULL, digest {key} NOT NULL,
        user_uuid {uuid} NOT NULL REFERENCES users (uuid) ON DELETE CASCADE,
        description {text} NOT NULL, created_at {int} NOT NULL, expires_at {int},
        last_used_at {int}, role {key}, scope {key}) {table}",
    "CREATE UNIQUE INDEX api_tokens_uuid_unique ON api_tokens (uuid)",
    "CREATE UNIQUE INDEX api_tokens_lookup_unique ON api_tokens (lookup)",
    "CREATE INDEX api_tokens_user_uuid ON api_tokens (user_uuid)",
    "CREATE TABLE sessions (
        id {id}, uuid {uuid} NOT NULL, digest {key} NOT NULL, source {key} NOT NULL,
        user_uuid {uuid} REFERENCES users (uuid) ON DELETE CASCADE, user_name {key} NOT NULL,
        credential {text} NOT NULL, scope {key}, created_at {int} NOT NULL,
        expires_at {int} NOT NULL, address {key}) {table}",
    "CREATE UNIQUE INDEX sessions_uuid_unique ON sessions (uuid)",
    "CREATE UNIQUE INDEX sessions_digest_unique ON sessions (digest)",
    "CREATE INDEX sessions_user_uuid ON sessions (user_uuid)",
    "CREATE INDEX sessions_expires_at ON sessions (expires_at)",
    "CREATE TABLE sign_in_failures (
        id {id}, user_name {key} NOT NULL, address {key} NOT NULL, credential {key} NOT NULL,
        first_at {int} NOT NULL, last_at {int} NOT NULL, attempts {int} NOT NULL) {table}",
];

const TENANCY_TABLES: &[&str] = &[
    "CREATE TABLE deployments (
        id {id}, uuid {uuid} NOT NULL, name {key}, created_at {int} NOT NULL, updated_at {int},
        state {key} NOT NULL, project {key}, user_name {key}, request_id {key} NOT NULL,
        flavour {key}, resource_class {key}, traits {json}, node_owner {key}, candidate_nodes {json},
        node_uuid {uuid} REFERENCES nodes (uuid) ON DELETE SET NULL, instance {json}, sealed {blob},
        last_error {text}, expires_at {int}, warn_seconds {int} NOT NULL, expiry_action {key} NOT NULL,
        warned_at {int}, expired_at {int}, due_at {int}) {table}",
    "CREATE UNIQUE INDEX deployments_uuid_unique ON deployments (uuid)",
    "CREATE UNIQUE INDEX deployments_name_unique ON deployments (name)",
    "CREATE INDEX deployments_project ON deployments (project)",
    "CREATE INDEX deployments_node_uuid ON deployments (node_uuid) {where node_uuid}",
    "CREATE INDEX deployments_due_at ON deployments (due_at) {where due_at}",
    "CREATE INDEX allocations_owner ON allocations (owner) {where owner}",
    "CREATE TABLE quotas (
        id {id}, uuid {uuid} NOT NULL, project {key} NOT NULL, subject {key} NOT NULL,
        machines {int} NOT NULL, created_at {int} NOT NULL, updated_at {int}) {table}",
    "CREATE UNIQUE INDEX quotas_uuid_unique ON quotas (uuid)",
    "CREATE UNIQUE INDEX quotas_subject_unique ON quotas (project, subject)",
    // No foreign keys: entries outlive users, projects and resources.
    "CREATE TABLE audit_log (
        id {id}, uuid {uuid} NOT NULL, recorded_at {int} NOT NULL, outcome {key} NOT NULL,
        status {int} NOT NULL, user_id {key}, user_name {key}, project {key}, roles {text},
        auth_method {key}, method {key} NOT NULL, path {text} NOT NULL, request_id {key} NOT NULL,
        address {key}, resource_type {key}, resource_id {key}, message {text},
        suppressed {int} NOT NULL) {table}",
    "CREATE UNIQUE INDEX audit_log_uuid_unique ON audit_log (uuid)",
    "CREATE INDEX audit_log_recorded_at ON audit_log (recorded_at)",
    "CREATE INDEX audit_log_user_name ON audit_log (user_name)",
    "CREATE INDEX audit_log_project ON audit_log (project)",
    "CREATE INDEX audit_log_resource_id ON audit_log (resource_id)",
    "CREATE INDEX audit_log_request_id ON audit_log (request_id)",
];

fn backfill_lookups(session: &mut dyn DatabaseSession) -> Result<(), StoreError> {
    search::backfill_serials(session)?;
    journal_search::backfill_state_entries(session)
}
