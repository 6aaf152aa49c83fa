// SPDX-License-Identifier: Apache-2.0
//! What can go wrong between Ferrite and its memory.

use std::path::PathBuf;
use std::sync::Arc;

use crate::vault::VaultError;

/// The error of a database library, kept as the cause.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// A read or a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another row already has this value.
    #[error("another record already has this {what}")]
    Duplicate {
        /// The field that must be unique: `uuid`, `name`, `address`, `instance_uuid`, …
        what: &'static str,
    },
    /// The row names a parent that does not exist, or is itself still named by others.
    #[error("the record refers to one that does not exist, or others still refer to it")]
    Reference,
    /// The row to be changed is not there.
    #[error("the record no longer exists")]
    Missing,
    /// A text is longer than its column, or has a NUL character, and this engine cannot keep it.
    /// The API refuses such texts by name; this is for what comes past it.
    #[error("a text of the record is too long or has a NUL character")]
    Unfit(#[source] Cause),
    /// The row a page should start after is not there.
    #[error("the marker does not exist")]
    NoSuchMarker,
    /// Another process has taken the node over since.
    #[error("the lease on the node is held by another process now")]
    LeaseLost,
    /// Other transactions kept getting in the way; trying again later helps.
    #[error("the database is too contended; try again")]
    Contended(#[source] Cause),
    /// The database cannot be reached or cannot carry out the statement.
    #[error("the database does not serve; look at its log, disk space and address")]
    Unavailable(#[source] Cause),
    /// A column holds something Ferrite did not write there.
    #[error("column {column} of table {table} holds a value that cannot be read")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
    /// Secrets could not be sealed or opened.
    #[error("the secrets of {owner} cannot be opened with this key file")]
    Vault {
        /// Whose secrets.
        owner: String,
        /// Why.
        #[source]
        source: VaultError,
    },
    /// The closure given to the store panicked; nothing of it was kept.
    #[error("a database operation panicked and was rolled back")]
    Panicked,
    /// The store has been closed.
    #[error("the database is closed; this process is stopping")]
    Closed,
}

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address of the database is not one Ferrite understands.
    #[error(
        "the database address has to look like sqlite:PATH, postgresql://user:password@host:port/database \
         or mysql://user:password@host:port/database; {why}"
    )]
    Address {
        /// What is wrong with it.
        why: String,
    },
    /// The data directory cannot be made or used.
    #[error("the data directory {path} cannot be used; check that it exists and is writable")]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No connection.
    #[error("no connection to the database {what}; check its address, user and password")]
    Connect {
        /// The database, without its password.
        what: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// The SQLite file cannot be used.
    #[error(
        "cannot use the database file {what}; check that its folder exists and that this user may \
         write there, and restore a backup if the file is damaged"
    )]
    File {
        /// The file.
        what: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// A migration failed.
    #[error("migration {number} ({name}) of the database failed; nothing after it was tried")]
    Migrate {
        /// Its number.
        number: i64,
        /// Its name.
        name: &'static str,
        /// Why.
        #[source]
        source: Error,
    },
    /// Somebody else is at it.
    #[error(
        "another process has been preparing this database for {seconds} seconds: wait until it has \
         started, then start this one; if none is starting, look for one that hangs"
    )]
    Busy {
        /// How long it was waited for.
        seconds: u32,
    },
    /// The tables of another program are there.
    #[error(
        "the database has a table {table} that Ferrite did not make: give Ferrite a database of its \
         own"
    )]
    Taken {
        /// One of them.
        table: String,
    },
    /// The database was written by a newer Ferrite.
    #[error(
        "the database is at schema {found}, this program knows schemas up to {known}: start the newer \
         program again, or restore a backup made before the upgrade"
    )]
    Newer {
        /// The schema found.
        found: i64,
        /// The newest schema known here.
        known: i64,
    },
    /// The key file is missing, unreadable, or not the one the database was written with.
    #[error("the key file {path} cannot be used")]
    Key {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        #[source]
        source: VaultError,
    },
    /// A statement failed while opening.
    #[error("the database could not be prepared for use")]
    Prepare(#[source] Error),
}
