// SPDX-License-Identifier: Apache-2.0
//! Every sealed value in the database makes the key file mandatory. SQLite only: on a server the key
//! file is always mandatory.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node_model::{
    AgentLogKind, AgentLogLimits, BootImage, BootMethod, BootPlan, BootPurpose, BootSystem,
    JsonObject, NodeId, Sensitive, Step, Timestamp, Work,
};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::json;
use store::{
    NodeSecrets, SealError, Store, StoreError, StoreOpenError, StoreSettings, StoreWriter,
};
use uuid::Uuid;

use crate::certificate_authority::authority;
use crate::samples::*;
use crate::tenancy::deployment;
use crate::test_database::{EngineKind, TestDatabase, run};

/// Table and column of every sealed value. A new one also belongs into `has_sealed_data` and into
/// [`insert_secrets`].
const SEALED_COLUMNS: &[(&str, &str)] = &[
    ("agent_log_parts", "sealed"),
    ("boot_plans", "sealed"),
    ("certificate_authorities", "sealed"),
    ("deploy_templates", "steps"),
    ("deployments", "sealed"),
    ("inspection_rules", "actions"),
    ("nodes", "sealed"),
    ("nodes", "work"),
    ("runbooks", "steps"),
    ("volume_targets", "sealed"),
];

/// The tables without sealed values. A new table belongs here or into [`SEALED_COLUMNS`].
const OTHER_TABLES: &[&str] = &[
    "agent_logs",
    "allocations",
    "api_tokens",
    "audit_log",
    "bios_settings",
    "boot_method_stats",
    "chassis",
    "conductors",
    "commit_markers",
    "dhcp_leases",
    "firmware_components",
    "flavours",
    "inventories",
    "journal",
    "key_processes",
    "key_rotations",
    "neighbour_observations",
    "neighbours",
    "node_history",
    "portgroups",
    "ports",
    "projects",
    "quotas",
    "role_assignments",
    "sessions",
    "sign_in_failures",
    "state_entries",
    "unknown_machine_reports",
    "unknown_machines",
    "users",
    "vault",
    "volume_connectors",
];

/// Inserts a record with a secret into every table that has sealed values.
pub(crate) fn insert_secrets(w: &mut StoreWriter<'_>) -> Result<(), StoreError> {
    let secrets = json!({"password": "sesame"}).as_object().unwrap().clone();
    let arguments = JsonObject::from(secrets.clone());
    let step = Step { args: arguments.clone(), ..Step::new("raid", "apply", 1) };
    let work = full_node(node_model::ChassisId::random()).work.unwrap();
    let mut machine = node("one");
    machine.work = Some(Work { steps: Vec::new(), requested_steps: vec![step], ..work });
    let of_driver = NodeSecrets { driver_info: secrets.clone(), ..NodeSecrets::default() };
    w.seal_node(&mut machine, of_driver)?;
    w.insert(&machine)?;
    let mut target = volume_target(machine.id, 0);
    w.seal_volume_target(&mut target, secrets)?;
    w.insert(&target)?;
    let mut deploy_template = template("CUSTOM_ONE");
    deploy_template.steps[0].args = arguments.clone();
    w.insert(&deploy_template)?;
    let mut book = runbook("CUSTOM_TWO");
    book.steps[0].args = arguments;
    w.insert(&book)?;
    w.insert(&rule(Sensitive::Yes))?;
    w.set_boot_plan(&boot_plan(machine.id))?;
    w.set_certificate_authority(&authority("certificate", "key"))?;
    let mut web = deployment("web", "shop");
    w.seal_deployment(&mut web, json!({"user_data": "sesame"}).as_object().unwrap().clone())?;
    w.insert(&web)?;
    let limits = AgentLogLimits { per_node: 1, bytes: 9 };
    w.insert_agent_log(machine.id, AgentLogKind::Deploy, "it failed", b"sesame", limits).map(drop)
}

fn boot_plan(node_id: NodeId) -> BootPlan {
    let image =
        BootImage { source: "http://images/iso".to_owned(), checksum: None, pull_secret: None };
    BootPlan {
        node_id,
        purpose: BootPurpose::DeployRamdisk,
        method: BootMethod::Ipxe,
        system: BootSystem::Kernel {
            kernel: image.clone(),
            ramdisk: image,
            parameters: Vec::new(),
            network_data: JsonObject::empty(),
        },
        key: "key".to_owned(),
        config_drive: None,
        installer: None,
        created_at: THEN,
        expires_at: None,
    }
}

/// The tables of a database and their columns with type.
fn schema(connection: &Connection) -> Vec<(String, Vec<(String, String)>)> {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
               AND name <> 'schema_migrations' ORDER BY name";
    let mut statement = connection.prepare(sql).unwrap();
    let tables = statement.query_map([], |row| row.get(0)).unwrap();
    let columns = |table: &str| {
        let sql = format!("SELECT name, type FROM pragma_table_info('{table}')");
        let mut statement = connection.prepare(&sql).unwrap();
        let columns = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        columns.collect::<Result<_, _>>().unwrap()
    };
    tables
        .map(|table| {
            let table: String = table.unwrap();
            let columns = columns(&table);
            (table, columns)
        })
        .collect()
}

/// Whether a column has a value that was sealed with the key of this header.
fn has_sealed_value(connection: &Connection, table: &str, column: &str, header: &[u8]) -> bool {
    // Nine bytes are twelve characters in base64.
    let text = STANDARD.encode(header);
    let mut statement = connection.prepare(&format!("SELECT {column} FROM {table}")).unwrap();
    let found = statement.query_map([], |row| {
        Ok(match row.get_ref(0)? {
            ValueRef::Blob(bytes) => bytes.starts_with(header),
            ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).contains(&text),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => false,
        })
    });
    found.unwrap().any(Result::unwrap)
}

fn every_sealed_column_is_listed(db: &TestDatabase) {
    db.write(insert_secrets).unwrap();
    let sealed = db.read(|r| Ok(r.seal(Uuid::nil(), b"x"))).unwrap();
    let connection = Connection::open(db.settings.data_dir.join("ferrite.sqlite")).unwrap();
    let mut sealed_columns = BTreeSet::new();
    let mut blobs = BTreeSet::new();
    let mut tables = BTreeSet::new();
    for (table, columns) in schema(&connection) {
        for (column, column_type) in columns {
            if has_sealed_value(&connection, &table, &column, &sealed[..9]) {
                sealed_columns.insert((table.clone(), column.clone()));
            }
            if column_type == "BLOB" {
                blobs.insert((table.clone(), column));
            }
        }
        tables.insert(table);
    }
    let listed: BTreeSet<_> = SEALED_COLUMNS
        .iter()
        .map(|(table, column)| ((*table).to_owned(), (*column).to_owned()))
        .collect();
    assert_eq!(sealed_columns, listed);
    assert_eq!(blobs.difference(&listed).next(), None, "all binary columns are sealed");
    let listed_tables =
        SEALED_COLUMNS.iter().map(|(table, _)| *table).chain(OTHER_TABLES.iter().copied());
    assert_eq!(tables, listed_tables.map(str::to_owned).collect());
}

/// Opens a copy of the database without the key file, in which only `kept` has sealed values.
fn open_copy(database: &Path, kept: Option<&(&str, &str)>) -> Result<(), StoreOpenError> {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("ferrite.sqlite");
    std::fs::copy(database, &copy).unwrap();
    let connection = Connection::open(&copy).unwrap();
    for (table, column) in SEALED_COLUMNS.iter().filter(|place| Some(*place) != kept) {
        let sql = match *table {
            // The column is NOT NULL.
            "certificate_authorities" => format!("DELETE FROM {table}"),
            _ => format!("UPDATE {table} SET {column} = NULL"),
        };
        connection.execute(&sql, []).unwrap();
    }
    drop(connection);
    let settings = StoreSettings::in_dir(dir.path());
    Store::open_with_clock(&settings, Arc::new(|| Timestamp(0))).map(Store::close)
}

fn missing_key_file_is_noticed(db: &TestDatabase) {
    db.write(insert_secrets).unwrap();
    db.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    let database = db.settings.data_dir.join("ferrite.sqlite");
    open_copy(&database, None).unwrap();
    for place in SEALED_COLUMNS {
        let opened = open_copy(&database, Some(place));
        let is_missing =
            matches!(opened, Err(StoreOpenError::Key { source: SealError::Missing, .. }));
        assert!(is_missing, "{place:?}: {opened:?}");
    }
}

#[test]
fn sealed_columns_are_listed() {
    run(EngineKind::Sqlite, every_sealed_column_is_listed);
}

#[test]
fn key_file_is_mandatory_for_each_sealed_column() {
    run(EngineKind::Sqlite, missing_key_file_is_noticed);
}
