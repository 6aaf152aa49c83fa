// SPDX-License-Identifier: Apache-2.0
//! Machines seen on the network: when and where, what their ramdisk told, and which node they
//! became.

use node_model::{Mac, ReportId, Sighted, StrangerReport, StrangerSeen, Timestamp};

use crate::boot::upsert;
use crate::engine::Row;
use crate::error::Error;
use crate::query::Where;
use crate::reader::{Reader, field};
use crate::value::{Field, Param};
use crate::writer::Writer;

/// How many strangers are remembered. More than that are a mistake or an attack.
const STRANGERS: i64 = 10_000;

/// How many reports of strangers are remembered.
const REPORTS: i64 = 1_000;

const COLUMNS: &str = "address, first_seen_at, last_seen_at, times, ip_address, interface, \
                       architecture, last_words";

const SIGHTED: &str = "SELECT strangers.address, first_seen_at, last_seen_at, times, ip_address, \
                       interface, architecture, last_words, \
                       COALESCE(ports.node_uuid, stranger_reports.node_uuid), \
                       stranger_reports.reported_at, stranger_reports.summary FROM strangers \
                       LEFT JOIN ports ON ports.address = strangers.address \
                       LEFT JOIN stranger_reports ON stranger_reports.uuid = strangers.report_uuid";

impl Reader<'_> {
    /// The strangers seen on the network, the latest first. Those that were enrolled since are
    /// strangers no more.
    pub fn strangers(&mut self, limit: u32) -> Result<Vec<Sighted>, Error> {
        let sql = format!(
            "{SIGHTED} WHERE ports.node_uuid IS NULL AND stranger_reports.node_uuid IS NULL \
             ORDER BY last_seen_at DESC, strangers.address LIMIT ?"
        );
        self.sighted(&sql, Param::Int(i64::from(limit)))
    }

    /// Everything that was seen as a stranger, the latest first, with the nodes they became.
    pub fn sightings(&mut self, limit: u32) -> Result<Vec<Sighted>, Error> {
        let sql = format!("{SIGHTED} ORDER BY last_seen_at DESC, strangers.address LIMIT ?");
        self.sighted(&sql, Param::Int(i64::from(limit)))
    }

    /// What is known of the machine with this card, if it was ever seen.
    pub fn sighting(&mut self, address: &Mac) -> Result<Option<Sighted>, Error> {
        let sql = format!("{SIGHTED} WHERE strangers.address = ?");
        Ok(self.sighted(&sql, address.bind())?.pop())
    }

    /// What the ramdisk on the stranger with this card told.
    pub fn stranger_report(&mut self, address: &Mac) -> Result<Option<StrangerReport>, Error> {
        const TABLE: &str = "stranger_reports";
        let sql = "SELECT stranger_reports.uuid, reported_at, node_uuid, summary, body \
                   FROM strangers JOIN stranger_reports \
                   ON stranger_reports.uuid = strangers.report_uuid WHERE strangers.address = ?";
        let mut found = None;
        self.session.query(sql, &[address.bind()], &mut |row| {
            found = Some(StrangerReport {
                id: field(row, 0, TABLE, "uuid")?,
                reported_at: field(row, 1, TABLE, "reported_at")?,
                node_id: field(row, 2, TABLE, "node_uuid")?,
                summary: field(row, 3, TABLE, "summary")?,
                body: field(row, 4, TABLE, "body")?,
            });
            Ok(())
        })?;
        Ok(found)
    }

    fn sighted(&mut self, sql: &str, param: Param<'_>) -> Result<Vec<Sighted>, Error> {
        const TABLE: &str = "stranger_reports";
        let mut found = Vec::new();
        self.session.query(sql, &[param], &mut |row| {
            found.push(Sighted {
                seen: stranger(row)?,
                node_id: field(row, 8, TABLE, "node_uuid")?,
                reported_at: field(row, 9, TABLE, "reported_at")?,
                summary: field(row, 10, TABLE, "summary")?,
            });
            Ok(())
        })?;
        Ok(found)
    }
}

impl Writer<'_> {
    /// Adds what was seen of a stranger to what is known of it, and forgets the strangers that were
    /// not seen for longest if there are too many.
    pub fn see_stranger(&mut self, seen: &StrangerSeen) -> Result<(), Error> {
        let mut is_known = false;
        let sql = "SELECT 1 FROM strangers WHERE address = ?";
        self.session.query(sql, &[seen.address.bind()], &mut |_| {
            is_known = true;
            Ok(())
        })?;
        // Another process may see it for the first time at the same moment.
        let sql = upsert(
            self.session.dialect(),
            &format!("INSERT INTO strangers ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"),
            "address",
            "last_seen_at = {new:last_seen_at}, times = strangers.times + {new:times},
             ip_address = COALESCE({new:ip_address}, strangers.ip_address),
             interface = CASE WHEN {new:interface} = '' THEN strangers.interface
                              ELSE {new:interface} END,
             architecture = COALESCE({new:architecture}, strangers.architecture),
             last_words = {new:last_words}",
        );
        self.session.execute(
            &sql,
            &[
                seen.address.bind(),
                seen.first_seen_at.bind(),
                seen.last_seen_at.bind(),
                seen.times.bind(),
                seen.ip_address.bind(),
                seen.interface.bind(),
                seen.architecture.bind(),
                seen.last.bind(),
            ],
        )?;
        if is_known {
            return Ok(());
        }
        // The derived table is for MariaDB, which does not take a LIMIT directly below.
        self.session
            .execute(
                "DELETE FROM strangers WHERE last_seen_at <= (SELECT last_seen_at FROM
                 (SELECT last_seen_at FROM strangers ORDER BY last_seen_at DESC LIMIT 1 OFFSET ?)
                 AS oldest)",
                &[Param::Int(STRANGERS)],
            )
            .map(drop)
    }

    /// Forgets a stranger: it was enrolled, or is of no interest. Says whether it was known.
    pub fn forget_stranger(&mut self, address: &Mac) -> Result<bool, Error> {
        let removed =
            self.session.execute("DELETE FROM strangers WHERE address = ?", &[address.bind()])?;
        Ok(removed > 0)
    }

    /// Keeps what the ramdisk on a stranger told, in place of what it told before, and which node it
    /// became if it did. `seen` is the card it is known by, `cards` are all it has. The reports that are oldest are forgotten if
    /// there are too many.
    pub fn keep_stranger_report(
        &mut self,
        report: &StrangerReport,
        seen: &StrangerSeen,
        cards: &[Mac],
    ) -> Result<(), Error> {
        // First, so that two reports of one machine wait for each other.
        self.see_stranger(seen)?;
        let known = self.report_of(cards)?;
        let id = known.unwrap_or(report.id);
        let values = [
            report.reported_at.bind(),
            report.node_id.bind(),
            report.summary.bind(),
            report.body.bind(),
            id.bind(),
        ];
        let sql = if known.is_some() {
            "UPDATE stranger_reports SET reported_at = ?, node_uuid = ?, summary = ?, body = ?
             WHERE uuid = ?"
        } else {
            "INSERT INTO stranger_reports (reported_at, node_uuid, summary, body, uuid)
             VALUES (?, ?, ?, ?, ?)"
        };
        self.session.execute(sql, &values)?;
        let sql = "UPDATE strangers SET report_uuid = ?".to_owned();
        let mut statement = Where::new(self.session.dialect(), sql);
        statement.params.push(id.bind());
        statement.any_of("address", cards.iter().map(Field::bind));
        self.session.execute(&statement.sql, &statement.params)?;
        if known.is_some() {
            return Ok(());
        }
        // The derived table is for MariaDB, which does not take a LIMIT directly below.
        self.session
            .execute(
                "DELETE FROM stranger_reports WHERE reported_at <= (SELECT reported_at FROM
                 (SELECT reported_at FROM stranger_reports ORDER BY reported_at DESC
                 LIMIT 1 OFFSET ?) AS oldest)",
                &[Param::Int(REPORTS)],
            )
            .map(drop)
    }

    /// The report of the stranger with one of these cards. What was told before it became a node
    /// is that node's, whoever has one of its cards now.
    fn report_of(&mut self, cards: &[Mac]) -> Result<Option<ReportId>, Error> {
        let sql = "SELECT stranger_reports.uuid FROM strangers JOIN stranger_reports \
                   ON stranger_reports.uuid = strangers.report_uuid"
            .to_owned();
        let mut statement = Where::new(self.session.dialect(), sql);
        statement.has_value("node_uuid", Some(false));
        statement.any_of("address", cards.iter().map(Field::bind));
        let found = self.column(&statement.sql, &statement.params, "stranger_reports")?;
        Ok(found.first().copied())
    }
}

fn stranger(row: &dyn Row) -> Result<StrangerSeen, Error> {
    const TABLE: &str = "strangers";
    let first_seen_at: Timestamp = field(row, 1, TABLE, "first_seen_at")?;
    Ok(StrangerSeen {
        address: field(row, 0, TABLE, "address")?,
        first_seen_at,
        last_seen_at: field(row, 2, TABLE, "last_seen_at")?,
        times: field(row, 3, TABLE, "times")?,
        ip_address: field(row, 4, TABLE, "ip_address")?,
        interface: field(row, 5, TABLE, "interface")?,
        architecture: field(row, 6, TABLE, "architecture")?,
        last: field(row, 7, TABLE, "last_words")?,
    })
}
