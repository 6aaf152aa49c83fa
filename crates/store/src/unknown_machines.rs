// SPDX-License-Identifier: Apache-2.0
//! Sightings of unknown machines on the network, and the inspection reports of their ramdisks.

use node_model::{Mac, MachineSighting, ReportId, UnknownMachine, UnknownMachineReport};

use crate::boot_plans::upsert;
use crate::engine::DatabaseRow;
use crate::error::StoreError;
use crate::query::SqlBuilder;
use crate::reader::{StoreReader, decode_field};
use crate::value::{ColumnType, SqlParam};
use crate::writer::StoreWriter;

/// Maximum number of stored sightings. More indicate a misconfiguration or an attack.
const MAX_SIGHTINGS: i64 = 10_000;

/// Maximum number of stored reports.
const MAX_REPORTS: i64 = 1_000;

const COLUMNS: &str = "address, first_seen_at, last_seen_at, times, ip_address, interface, \
                       architecture, last_activity";

const SELECT_SIGHTINGS: &str = "SELECT unknown_machines.address, first_seen_at, last_seen_at, times, ip_address, \
                       interface, architecture, last_activity, \
                       COALESCE(ports.node_uuid, unknown_machine_reports.node_uuid), \
                       unknown_machine_reports.reported_at, unknown_machine_reports.summary FROM unknown_machines \
                       LEFT JOIN ports ON ports.address = unknown_machines.address \
                       LEFT JOIN unknown_machine_reports ON unknown_machine_reports.uuid = unknown_machines.report_uuid";

impl StoreReader<'_> {
    /// The unknown machines seen on the network, latest first, without those enrolled since.
    pub fn unknown_machines(&mut self, limit: u32) -> Result<Vec<UnknownMachine>, StoreError> {
        let sql = format!(
            "{SELECT_SIGHTINGS} WHERE ports.node_uuid IS NULL AND unknown_machine_reports.node_uuid IS NULL \
             ORDER BY last_seen_at DESC, unknown_machines.address LIMIT ?"
        );
        self.query_sightings(&sql, SqlParam::Int(i64::from(limit)))
    }

    /// All sightings, latest first, with the nodes of machines enrolled since.
    pub fn sightings(&mut self, limit: u32) -> Result<Vec<UnknownMachine>, StoreError> {
        let sql = format!(
            "{SELECT_SIGHTINGS} ORDER BY last_seen_at DESC, unknown_machines.address LIMIT ?"
        );
        self.query_sightings(&sql, SqlParam::Int(i64::from(limit)))
    }

    /// The sighting of the machine with this MAC address.
    pub fn sighting(&mut self, address: &Mac) -> Result<Option<UnknownMachine>, StoreError> {
        let sql = format!("{SELECT_SIGHTINGS} WHERE unknown_machines.address = ?");
        Ok(self.query_sightings(&sql, address.bind())?.pop())
    }

    /// The report of the unknown machine with this MAC address.
    pub fn unknown_machine_report(
        &mut self,
        address: &Mac,
    ) -> Result<Option<UnknownMachineReport>, StoreError> {
        const TABLE: &str = "unknown_machine_reports";
        let sql = "SELECT unknown_machine_reports.uuid, reported_at, node_uuid, summary, body \
                   FROM unknown_machines JOIN unknown_machine_reports \
                   ON unknown_machine_reports.uuid = unknown_machines.report_uuid WHERE unknown_machines.address = ?";
        let mut found = None;
        self.session.query(sql, &[address.bind()], &mut |row| {
            found = Some(UnknownMachineReport {
                id: decode_field(row, 0, TABLE, "uuid")?,
                reported_at: decode_field(row, 1, TABLE, "reported_at")?,
                node_id: decode_field(row, 2, TABLE, "node_uuid")?,
                summary: decode_field(row, 3, TABLE, "summary")?,
                body: decode_field(row, 4, TABLE, "body")?,
            });
            Ok(())
        })?;
        Ok(found)
    }

    fn query_sightings(
        &mut self,
        sql: &str,
        param: SqlParam<'_>,
    ) -> Result<Vec<UnknownMachine>, StoreError> {
        const TABLE: &str = "unknown_machine_reports";
        let mut found = Vec::new();
        self.session.query(sql, &[param], &mut |row| {
            found.push(UnknownMachine {
                sighting: decode_sighting(row)?,
                node_id: decode_field(row, 8, TABLE, "node_uuid")?,
                reported_at: decode_field(row, 9, TABLE, "reported_at")?,
                summary: decode_field(row, 10, TABLE, "summary")?,
            });
            Ok(())
        })?;
        Ok(found)
    }
}

impl StoreWriter<'_> {
    /// Inserts or updates a sighting, and deletes the least recently seen ones beyond the limit.
    pub fn record_sighting(&mut self, sighting: &MachineSighting) -> Result<(), StoreError> {
        let mut is_known = false;
        let sql = "SELECT 1 FROM unknown_machines WHERE address = ?";
        self.session.query(sql, &[sighting.mac.bind()], &mut |_| {
            is_known = true;
            Ok(())
        })?;
        // An upsert, because another process may insert the same machine concurrently.
        let sql = upsert(
            self.session.dialect(),
            &format!("INSERT INTO unknown_machines ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"),
            "address",
            "last_seen_at = {new:last_seen_at}, times = unknown_machines.times + {new:times},
             ip_address = COALESCE({new:ip_address}, unknown_machines.ip_address),
             interface = CASE WHEN {new:interface} = '' THEN unknown_machines.interface
                              ELSE {new:interface} END,
             architecture = COALESCE({new:architecture}, unknown_machines.architecture),
             last_activity = {new:last_activity}",
        );
        self.session.execute(
            &sql,
            &[
                sighting.mac.bind(),
                sighting.first_seen_at.bind(),
                sighting.last_seen_at.bind(),
                sighting.times.bind(),
                sighting.ip_address.bind(),
                sighting.interface.bind(),
                sighting.architecture.bind(),
                sighting.last_activity.bind(),
            ],
        )?;
        if is_known {
            return Ok(());
        }
        // The derived table is for MariaDB, which rejects LIMIT in this subquery.
        self.session
            .execute(
                "DELETE FROM unknown_machines WHERE last_seen_at <= (SELECT last_seen_at FROM
                 (SELECT last_seen_at FROM unknown_machines ORDER BY last_seen_at DESC LIMIT 1 OFFSET ?)
                 AS oldest)",
                &[SqlParam::Int(MAX_SIGHTINGS)],
            )
            .map(drop)
    }

    /// Deletes a sighting. Returns whether it existed.
    pub fn delete_sighting(&mut self, address: &Mac) -> Result<bool, StoreError> {
        let removed = self
            .session
            .execute("DELETE FROM unknown_machines WHERE address = ?", &[address.bind()])?;
        Ok(removed > 0)
    }

    /// Stores the report of an unknown machine, replacing its previous one, and deletes the oldest
    /// reports beyond the limit. `sighting` is for the NIC that sent the report, `macs` are the
    /// addresses of all its NICs.
    pub fn store_unknown_machine_report(
        &mut self,
        report: &UnknownMachineReport,
        sighting: &MachineSighting,
        macs: &[Mac],
    ) -> Result<(), StoreError> {
        // Comes first: the row lock serialises concurrent reports of one machine.
        self.record_sighting(sighting)?;
        let known = self.open_report_id(macs)?;
        let id = known.unwrap_or(report.id);
        let values = [
            report.reported_at.bind(),
            report.node_id.bind(),
            report.summary.bind(),
            report.body.bind(),
            id.bind(),
        ];
        let sql = if known.is_some() {
            "UPDATE unknown_machine_reports SET reported_at = ?, node_uuid = ?, summary = ?, body = ?
             WHERE uuid = ?"
        } else {
            "INSERT INTO unknown_machine_reports (reported_at, node_uuid, summary, body, uuid)
             VALUES (?, ?, ?, ?, ?)"
        };
        self.session.execute(sql, &values)?;
        let sql = "UPDATE unknown_machines SET report_uuid = ?".to_owned();
        let mut statement = SqlBuilder::new(self.session.dialect(), sql);
        statement.params.push(id.bind());
        statement.in_list("address", macs.iter().map(ColumnType::bind));
        self.session.execute(&statement.sql, &statement.params)?;
        if known.is_some() {
            return Ok(());
        }
        // The derived table is for MariaDB, which rejects LIMIT in this subquery.
        self.session
            .execute(
                "DELETE FROM unknown_machine_reports WHERE reported_at <= (SELECT reported_at FROM
                 (SELECT reported_at FROM unknown_machine_reports ORDER BY reported_at DESC
                 LIMIT 1 OFFSET ?) AS oldest)",
                &[SqlParam::Int(MAX_REPORTS)],
            )
            .map(drop)
    }

    /// The report of the unknown machine with one of these MAC addresses. A report of a machine that
    /// was enrolled belongs to its node and is not reused, even if a NIC has moved.
    fn open_report_id(&mut self, macs: &[Mac]) -> Result<Option<ReportId>, StoreError> {
        let sql = "SELECT unknown_machine_reports.uuid FROM unknown_machines JOIN unknown_machine_reports \
                   ON unknown_machine_reports.uuid = unknown_machines.report_uuid"
            .to_owned();
        let mut statement = SqlBuilder::new(self.session.dialect(), sql);
        statement.is_null_or_not("node_uuid", Some(false));
        statement.in_list("address", macs.iter().map(ColumnType::bind));
        let table = "unknown_machine_reports";
        let found = self.query_column(&statement.sql, &statement.params, table, "uuid")?;
        Ok(found.first().copied())
    }
}

fn decode_sighting(row: &dyn DatabaseRow) -> Result<MachineSighting, StoreError> {
    const TABLE: &str = "unknown_machines";
    Ok(MachineSighting {
        mac: decode_field(row, 0, TABLE, "address")?,
        first_seen_at: decode_field(row, 1, TABLE, "first_seen_at")?,
        last_seen_at: decode_field(row, 2, TABLE, "last_seen_at")?,
        times: decode_field(row, 3, TABLE, "times")?,
        ip_address: decode_field(row, 4, TABLE, "ip_address")?,
        interface: decode_field(row, 5, TABLE, "interface")?,
        architecture: decode_field(row, 6, TABLE, "architecture")?,
        last_activity: decode_field(row, 7, TABLE, "last_activity")?,
    })
}
