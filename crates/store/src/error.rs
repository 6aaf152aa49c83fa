// SPDX-License-Identifier: Apache-2.0
//! Errors of the store.

use std::path::PathBuf;
use std::sync::Arc;

use crate::sealing_key::SealError;

/// The error of a database library.
pub type ErrorSource = Arc<dyn std::error::Error + Send + Sync>;

/// A read or a write failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A unique field has a value that another row has already.
    #[error("another record already has this {what}")]
    Duplicate {
        /// The field: `uuid`, `name`, `address`, `instance_uuid`, …
        what: &'static str,
    },
    /// A foreign key points to a missing row, or the deleted row is still referenced.
    #[error("the record refers to a missing record, or other records still refer to it")]
    Reference,
    /// The row to update does not exist.
    #[error("the record no longer exists")]
    Missing,
    /// The engine rejects a text that is longer than its column or contains NUL. The API checks
    /// texts by field name; this covers the other paths.
    #[error("a text of the record is too long or contains a NUL character")]
    ValueRejected(#[source] ErrorSource),
    /// The row that a page should start after does not exist.
    #[error("the marker does not exist")]
    MarkerNotFound,
    /// Another process has claimed the node.
    #[error("lease lost: another process has claimed the node")]
    LeaseLost,
    /// The transaction kept conflicting with others. Retrying later helps.
    #[error("too many conflicting database transactions; retry later")]
    Contended(#[source] ErrorSource),
    /// The database is unreachable or cannot execute the statement.
    #[error("database unavailable; check its log, disk space and address")]
    Unavailable(#[source] ErrorSource),
    /// The connection broke during COMMIT, and the database was unavailable for too long to look up the
    /// result.
    #[error(
        "database unavailable since COMMIT was sent, so it is unknown whether the change was stored"
    )]
    CommitUnknown(#[source] ErrorSource),
    /// A column contains a value that Ferrite did not write.
    #[error("cannot decode column {column} of table {table}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
    /// Sealed data could not be decrypted.
    #[error("cannot decrypt the secrets of {owner} with the sealing keys of this process")]
    Unseal {
        /// The node or resource that the data belongs to.
        owner: String,
        /// The cause.
        #[source]
        source: SealError,
    },
    /// The sealing key was replaced, and this process does not have the new one.
    #[error(
        "this process does not have the key {key_id}, which replaced the sealing key; give it the key \
         and restart it"
    )]
    KeyMissing {
        /// The id of the key.
        key_id: String,
    },
    /// The closure panicked; the transaction was rolled back.
    #[error("a database operation panicked and was rolled back")]
    Panicked,
    /// The store is closed.
    #[error("the database is closed; this process is stopping")]
    Closed,
}

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// The database URL is invalid.
    #[error(
        "the database URL must be sqlite:PATH, postgresql://user:password@host:port/database \
         or mysql://user:password@host:port/database: {why}"
    )]
    Address {
        /// What is wrong with the URL.
        why: String,
    },
    /// The servers do not support this statement timeout.
    #[error(
        "database.statement_timeout is {timeout:?}, but must be 0 or between 100 milliseconds and 24 \
         hours"
    )]
    StatementTimeout {
        /// The configured value.
        timeout: std::time::Duration,
    },
    /// The data directory cannot be created or used.
    #[error("cannot use the data directory {path}; check that it exists and is writable")]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The connection failed.
    #[error("cannot connect to database {what}; check its address, user and password")]
    Connect {
        /// Database name and address, without the password.
        what: String,
        /// The cause.
        #[source]
        source: ErrorSource,
    },
    /// The certificates for the connection cannot be used.
    #[error(
        "cannot use the certificates of the database URL (sslrootcert, sslcert, sslkey): {why}"
    )]
    Certificates {
        /// The file and what is wrong with it.
        why: String,
    },
    /// The SQLite file cannot be opened.
    #[error(
        "cannot use the database file {what}; check that its folder exists and is writable, and \
         restore a backup if the file is damaged"
    )]
    File {
        /// The path.
        what: String,
        /// The cause.
        #[source]
        source: ErrorSource,
    },
    /// A migration failed.
    #[error("database migration {number} ({name}) failed; later migrations were not run")]
    Migrate {
        /// Its number.
        number: i64,
        /// Its name.
        name: &'static str,
        /// The cause.
        #[source]
        source: StoreError,
    },
    /// Another process holds the migration lock.
    #[error(
        "another process has held the migration lock for {seconds} seconds; wait until it has \
         started, or stop it if it hangs"
    )]
    Busy {
        /// How long this process waited.
        seconds: u32,
    },
    /// The database contains tables of another program.
    #[error(
        "the database has a table {table} that Ferrite did not create; use a separate database for \
         Ferrite"
    )]
    ForeignTable {
        /// One of the tables.
        table: String,
    },
    /// The database was migrated by a version that is more than one release newer.
    #[error(
        "the database has schema {found}, and this version knows schemas up to {known} and can use those of \
         the next release; use the newer version, or restore a backup from before the upgrade"
    )]
    NewerSchema {
        /// The schema of the database.
        found: i64,
        /// The newest supported schema.
        known: i64,
    },
    /// A process with another version is running that cannot share the database with this one.
    #[error(
        "{hostname} runs version {version}, which cannot share the database with version {own}; upgrade \
         one release after the other, or stop all processes first"
    )]
    VersionSkew {
        /// The running process.
        hostname: String,
        /// Its version.
        version: String,
        /// The version of this program.
        own: &'static str,
    },
    /// The clock of this host differs too much from that of the database server.
    #[error(
        "the clock of this host is {ahead_seconds} seconds ahead of the database server, and \
         database.clock_tolerance is {tolerance_seconds} seconds; synchronise both with NTP"
    )]
    ClockDiffers {
        /// Negative if the host is behind.
        ahead_seconds: i64,
        /// The greatest accepted difference.
        tolerance_seconds: u64,
    },
    /// The sealing keys are missing, unreadable, or not those the database was written with.
    #[error("cannot use {from}")]
    Key {
        /// The source of the keys, such as `the key file PATH`.
        from: String,
        /// The cause and the remedy.
        #[source]
        source: SealError,
    },
    /// A statement failed while opening.
    #[error("cannot prepare the database")]
    Prepare(#[source] StoreError),
}
