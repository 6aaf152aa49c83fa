// SPDX-License-Identifier: Apache-2.0
//! Migrations keep existing data, and can be resumed where DDL is not transactional.

use node_model::{
    BootMethod, ChassisId, Deadline, JournalEntry, JournalEvent, JsonObject, MachineSighting, Node,
    NodeId, ProvisionState, ReportId, Timestamp, UnknownMachineReport, Wait, WaitReason,
};
use serde_json::json;
use store::{JournalQuery, NodeMatch};

use crate::samples::*;
use crate::search::inspected;
use crate::test_database::{EngineKind, TestDatabase, on_every_engine};

on_every_engine! {
    backfills_older_databases interrupted_migration_is_resumed
    renaming_unknown_machines_keeps_sightings_and_reports renaming_columns_and_values_keeps_data
}

fn backfills_older_databases(db: &TestDatabase) {
    let id = inspected_node_with_state_change(db);
    revert_lookups(db);
    check_migrated_again(db, id);
}

/// Only MariaDB can be left with a partly applied migration.
fn interrupted_migration_is_resumed(db: &TestDatabase) {
    if db.kind != EngineKind::MariaDb {
        return;
    }
    let id = inspected_node_with_state_change(db);
    // Killed before the migration was recorded.
    check_migrated_again(db, id);
    // Killed after its first statement.
    db.sql("DROP INDEX inventories_serial ON inventories");
    db.sql("UPDATE inventories SET serial = NULL");
    db.sql("DROP TABLE state_entries");
    check_migrated_again(db, id);
    // All migrations again: existing tables are left as they are.
    db.sql("DELETE FROM schema_migrations");
    check_migrated_again(db, id);
    assert!(db.read(move |r| r.inventory(id)).unwrap().is_some());
}

/// A node with a serial number and a state change.
fn inspected_node_with_state_change(db: &TestDatabase) -> NodeId {
    let id = inspected(db, "one", r#"{"system_vendor":{"serial_number":"ABC-1"}}"#);
    let at = db.now();
    db.write(move |w| {
        let mut entered = entry(id, at, "");
        let (event, reason) = ("done".to_owned(), "so".to_owned());
        entered.event = JournalEvent::StateChanged {
            from: "enroll".into(),
            to: "verifying".into(),
            event,
            reason,
        };
        w.append(entry(id, at, "x"));
        w.append(entered);
        Ok(())
    })
    .unwrap();
    id
}

fn check_migrated_again(db: &TestDatabase, id: NodeId) {
    let at = db.now();
    revert_renames(db);
    db.sql("DELETE FROM schema_migrations WHERE number >= 5");
    let store = db.open_again().unwrap();
    let read = move |r: &mut store::StoreReader<'_>| {
        Ok::<_, store::StoreError>((r.nodes_by_mac_or_serial("abc", None, 9)?, r.state_entries(9)?))
    };
    let (matches, entries) = db.runtime.block_on(store.read(read)).unwrap();
    store.close();
    assert_eq!(matches, [(id, NodeMatch::Serial("ABC-1".into()))]);
    let entries: Vec<_> = entries.into_iter().map(|it| (it.node, it.at, it.from, it.to)).collect();
    assert_eq!(entries, [(id, at, "enroll".to_owned(), "verifying".to_owned())]);
}

/// Reverts migration 5.
pub(crate) fn revert_lookups(db: &TestDatabase) {
    let drop_index = match db.kind {
        EngineKind::Sqlite | EngineKind::Postgres => "DROP INDEX inventories_serial",
        EngineKind::MariaDb => "DROP INDEX inventories_serial ON inventories",
    };
    for sql in
        [drop_index, "ALTER TABLE inventories DROP COLUMN serial", "DROP TABLE state_entries"]
    {
        db.sql(sql);
    }
}

/// Migration 7, also from the states in which a killed process leaves MariaDB.
fn renaming_unknown_machines_keeps_sightings_and_reports(db: &TestDatabase) {
    let sighting = MachineSighting {
        mac: mac(1),
        first_seen_at: THEN,
        last_seen_at: THEN,
        times: 1,
        ip_address: None,
        interface: "eth1".to_owned(),
        architecture: None,
        last_activity: "DISCOVER".to_owned(),
    };
    let report = UnknownMachineReport {
        id: ReportId::random(),
        reported_at: THEN,
        node_id: None,
        summary: object(r#"{"model":"m"}"#),
        body: JsonObject::empty(),
    };
    let (expected, stored) = (sighting.clone(), report.clone());
    db.write(move |w| w.store_unknown_machine_report(&stored, &sighting, &[mac(1)])).unwrap();

    let reopen = || {
        db.sql("DELETE FROM schema_migrations WHERE number >= 7");
        db.open_again().unwrap().close();
        let machines = db.read(|r| r.unknown_machines(9)).unwrap();
        let sightings: Vec<_> = machines.into_iter().map(|machine| machine.sighting).collect();
        assert_eq!(sightings, std::slice::from_ref(&expected));
        let found = db.read(|r| r.unknown_machine_report(&mac(1))).unwrap();
        assert_eq!(found, Some(report.clone()));
    };
    revert_renames(db);
    reopen();
    // Reverting again fails if a column or an index does not have its new name.
    revert_renames(db);
    reopen();
    if db.kind == EngineKind::MariaDb {
        // Killed before the migration was recorded.
        reopen();
        revert_renames(db);
        // Killed after its first statements.
        db.sql("ALTER TABLE strangers RENAME TO unknown_machines");
        db.sql("DROP INDEX strangers_address_unique ON unknown_machines");
        reopen();
    }
    // The unique index exists: a second sighting of the machine updates the row.
    let again = expected.clone();
    db.write(move |w| w.record_sighting(&again)).unwrap();
    assert_eq!(db.read(|r| r.unknown_machines(9)).unwrap()[0].sighting.times, 2);
}

/// Migration 8, also from the states in which a killed process leaves MariaDB.
fn renaming_columns_and_values_keeps_data(db: &TestDatabase) {
    let waiting = Wait {
        reason: WaitReason::BmcResponse,
        deadline: Deadline::At(THEN),
        next_action_at: Some(THEN),
        state: ProvisionState::Deploying,
    };
    let work = full_node(ChassisId::random()).work;
    let in_maintenance = Node { maintenance: true, work: work.clone(), ..node("two") };
    let other = in_maintenance.id;
    let machine = Node {
        wait: Some(waiting),
        work,
        driver_internal_info: object(
            r#"{"boot_method":"ipxe","bmc_unreachable":{"since":"s","error":"timeout"}}"#,
        ),
        ..node("one")
    };
    let (id, at) = (machine.id, db.now());
    let events = [
        JournalEvent::Requested { target: "active".into() },
        JournalEvent::StateChanged {
            from: "available".into(),
            to: "deploying".into(),
            event: "deploy".into(),
            reason: "requested".into(),
        },
        JournalEvent::ActionDone { action: "power on".into(), took_ms: 1, result: None },
        JournalEvent::ActionFailed { action: "x".into(), took_ms: 1, error: "it failed".into() },
        JournalEvent::Waiting {
            reason: WaitReason::AgentResponse.as_str().into(),
            until: None,
            next_action_at: None,
        },
        JournalEvent::Note { by: "rule".into(), text: "\"agent answer\" is kept".into() },
        JournalEvent::NetworkActivity { by: "dhcp".into(), text: "DISCOVER".into(), times: 1 },
        JournalEvent::AgentCall { call: "lookup".into() },
    ];
    let expected = events.to_vec();
    db.write(move |w| {
        w.insert(&machine)?;
        w.insert(&in_maintenance)?;
        for event in events.clone() {
            w.append(JournalEntry { event, ..entry(id, at, "") });
        }
        w.record_boot_result("model", BootMethod::Ipxe, true)?;
        w.replace_neighbours(id, &[])
    })
    .unwrap();

    let reopen = || {
        drop_newer_tables(db);
        db.sql("DELETE FROM schema_migrations WHERE number >= 8");
        db.open_again().unwrap().close();
        let query = JournalQuery { node: Some(id), after: 0, limit: 99 };
        let entries = db.read(move |r| r.journal(&query)).unwrap();
        let found: Vec<_> = entries.into_iter().map(|row| row.entry.event).collect();
        assert_eq!(found, expected);
        let machine = db.read(move |r| r.get(id)).unwrap().unwrap();
        assert_eq!(machine.wait, Some(waiting));
        assert_eq!(machine.due_at, Some(Timestamp(0)), "a job without a due time becomes due");
        assert_eq!(db.read(move |r| r.get(other)).unwrap().unwrap().due_at, None);
        let info = machine.driver_internal_info;
        assert_eq!(info.get_str("boot_method").as_deref(), Some("ipxe"));
        assert_eq!(info.get("bmc_unreachable"), Some(json!({"since": "s", "error": "timeout"})));
        // The unique index exists: the second result of a method updates its row.
        db.write(|w| w.record_boot_result("model", BootMethod::Ipxe, false)).unwrap();
        let stats = db.read(|r| r.boot_method_stats("model")).unwrap();
        assert_eq!((stats.len(), stats[0].worked), (1, 1));
        db.write(move |w| w.replace_neighbours(id, &[])).unwrap();
    };
    revert_columns_and_values(db);
    reopen();
    // Reverting again fails if a column or an index does not have its new name.
    revert_columns_and_values(db);
    reopen();
    if db.kind == EngineKind::MariaDb {
        // Killed before the migration was recorded.
        reopen();
        revert_columns_and_values(db);
        // Killed after its first statements.
        db.sql("ALTER TABLE journal RENAME COLUMN what TO event");
        db.sql("ALTER TABLE boot_experience RENAME TO boot_method_stats");
        db.sql("ALTER TABLE listenings RENAME TO neighbour_observations");
        reopen();
    }
}

/// Reverts migration 8, with the values that earlier versions stored.
fn revert_columns_and_values(db: &TestDatabase) {
    let drop_index = |index: &str, table: &str| match db.kind {
        EngineKind::Sqlite | EngineKind::Postgres => format!("DROP INDEX {index}"),
        EngineKind::MariaDb => format!("DROP INDEX {index} ON {table}"),
    };
    for (table, new, old) in [
        ("journal", "event", "what"),
        ("agent_logs", "reason", "why"),
        ("inventories", "derived", "found"),
        ("boot_plans", "created_at", "made_at"),
        ("boot_method_stats", "method", "way"),
        ("neighbour_observations", "observed_at", "listened_at"),
    ] {
        db.sql(&format!("ALTER TABLE {table} RENAME COLUMN {new} TO {old}"));
    }
    for (new, old, new_column, old_column, columns) in [
        ("boot_method_stats", "boot_experience", "method", "way", "model, way"),
        ("neighbour_observations", "listenings", "node_uuid", "node_uuid", "node_uuid"),
    ] {
        db.sql(&format!("ALTER TABLE {new} RENAME TO {old}"));
        db.sql(&format!("CREATE UNIQUE INDEX {old}_{old_column}_unique ON {old} ({columns})"));
        db.sql(&drop_index(&format!("{new}_{new_column}_unique"), old));
    }
    for (new, old) in [
        ("requested", "asked"),
        ("state_changed", "entered"),
        ("action_done", "did"),
        ("action_failed", "failed"),
        ("note", "noted"),
        ("network_activity", "seen"),
        ("agent_call", "heard"),
    ] {
        db.sql(&format!(
            r#"UPDATE journal SET what = REPLACE(what, '{{"kind":"{new}"', '{{"kind":"{old}"')"#
        ));
    }
    for (column, new, old) in [
        ("wait", "\"reason\":\"BMC response\"", "\"why\":\"BMC answer\""),
        ("driver_internal_info", "\"boot_method\"", "\"boot_way\""),
        ("driver_internal_info", "\"bmc_unreachable\"", "\"bmc_silent\""),
        ("driver_internal_info", "\"error\"", "\"why\""),
    ] {
        db.sql(&format!("UPDATE nodes SET {column} = REPLACE({column}, '{new}', '{old}')"));
    }
    db.sql(
        r#"UPDATE journal SET what = REPLACE(what, '"reason":"agent response"', '"why":"agent answer"')"#,
    );
}

/// Reverts migration 7 and the later ones.
pub(crate) fn revert_renames(db: &TestDatabase) {
    drop_newer_tables(db);
    revert_columns_and_values(db);
    let drop_index = |index: &str, table: &str| match db.kind {
        EngineKind::Sqlite | EngineKind::Postgres => format!("DROP INDEX {index}"),
        EngineKind::MariaDb => format!("DROP INDEX {index} ON {table}"),
    };
    for (new, old, index, unique) in [
        ("unknown_machines", "strangers", "last_seen_at", "address"),
        ("unknown_machine_reports", "stranger_reports", "reported_at", "uuid"),
    ] {
        db.sql(&drop_index(&format!("{new}_{unique}_unique"), new));
        db.sql(&drop_index(&format!("{new}_{index}"), new));
        db.sql(&format!("ALTER TABLE {new} RENAME TO {old}"));
        db.sql(&format!("CREATE UNIQUE INDEX {old}_{unique}_unique ON {old} ({unique})"));
        db.sql(&format!("CREATE INDEX {old}_{index} ON {old} ({index})"));
    }
    db.sql("ALTER TABLE strangers RENAME COLUMN last_activity TO last_words");
}

/// Reverts the migrations from 9 on, except the values that 12 seals.
fn drop_newer_tables(db: &TestDatabase) {
    drop_key_tables(db);
    for table in [
        "certificate_authorities",
        "audit_log",
        "quotas",
        "deployments",
        "sign_in_failures",
        "sessions",
        "api_tokens",
        "role_assignments",
        "projects",
        "users",
    ] {
        db.sql(&format!("DROP TABLE {table}"));
    }
    db.sql(match db.kind {
        EngineKind::Sqlite | EngineKind::Postgres => "DROP INDEX allocations_owner",
        EngineKind::MariaDb => "DROP INDEX allocations_owner ON allocations",
    });
}

/// Reverts the migrations from 13 on.
pub(crate) fn drop_key_tables(db: &TestDatabase) {
    db.sql(match db.kind {
        EngineKind::Sqlite | EngineKind::Postgres => "DROP INDEX nodes_job_queue",
        EngineKind::MariaDb => "DROP INDEX nodes_job_queue ON nodes",
    });
    for column in ["job_queue", "queued_at"] {
        db.sql(&format!("ALTER TABLE nodes DROP COLUMN {column}"));
    }
    for column in ["renewals", "renewing_run", "version"] {
        db.sql(&format!("ALTER TABLE conductors DROP COLUMN {column}"));
    }
    for table in ["commit_markers", "dhcp_leases", "key_rotations", "key_processes"] {
        db.sql(&format!("DROP TABLE {table}"));
    }
}
