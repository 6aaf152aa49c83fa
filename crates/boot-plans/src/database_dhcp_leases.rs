// SPDX-License-Identifier: Apache-2.0
//! DHCP leases in the database, which all processes on one database server share.
//!
//! A process serves from its own copy of the leases, which it refreshes at most once per second. The commit
//! decides: it fails for an address that another process has leased to another client in the meantime.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use boot_server::{DhcpLeaseRecord, DhcpLeaseStore, DhcpLeaseStoreError, read_dhcp_leases};
use node_model::Timestamp;
use store::{Store, StoreClock, StoreError, StoredDhcpLease};
use tokio::runtime::Handle;

/// The minimum time between two refreshes.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// How far the clocks of two processes may differ for a refresh to find all changes.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);
/// Timeout of a read or a commit. Firmware repeats a request after four seconds at the earliest.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long expired leases are kept, so that a client gets the same address again.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// The number of attempts if other processes lease the same addresses at the same time.
const MAX_ATTEMPTS: u32 = 5;

/// The lease store of one DHCP server. Must be used on threads that may block.
pub struct DatabaseDhcpLeases {
    store: Store,
    clock: StoreClock,
    runtime: Handle,
    /// The records that were read at start.
    loaded: Vec<DhcpLeaseRecord>,
    pending: Vec<StoredDhcpLease>,
    /// Whether expired leases have to be deleted with the next commit.
    needs_purge: bool,
    refreshed_at: Instant,
    /// The time of the last refresh, by the clock of the leases.
    refreshed_until: Timestamp,
}

impl DatabaseDhcpLeases {
    /// Reads the leases from the database.
    ///
    /// # Errors
    /// Fails if the database is not available.
    pub async fn open(store: Store, clock: StoreClock) -> Result<Self, StoreError> {
        let (refreshed_at, refreshed_until) = (Instant::now(), clock());
        let leases = store.scan(|reader| reader.dhcp_leases()).await?;
        Ok(Self {
            store,
            clock,
            runtime: Handle::current(),
            loaded: leases.into_iter().map(to_record).collect(),
            pending: Vec::new(),
            needs_purge: false,
            refreshed_at,
            refreshed_until,
        })
    }

    /// Moves the leases of a file to the database: those of a process that used SQLite before. The file is
    /// removed.
    ///
    /// # Errors
    /// Fails if the file cannot be read or removed, or if the database is not available.
    pub async fn import(
        store: &Store,
        path: &Path,
        now: Timestamp,
    ) -> Result<(), DhcpLeaseStoreError> {
        let mut leases: Vec<StoredDhcpLease> =
            read_dhcp_leases(path)?.into_iter().map(to_lease).collect();
        leases.retain(|lease| lease.expires_at > now);
        if !leases.is_empty() {
            commit(store, leases, None)
                .await
                .map_err(|error| write_error(io::Error::other(error)))?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let location = path.display().to_string();
                Err(DhcpLeaseStoreError::Write { location, source: error })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl DhcpLeaseStore for DatabaseDhcpLeases {
    fn load(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        Ok(std::mem::take(&mut self.loaded))
    }

    fn record(&mut self, record: DhcpLeaseRecord) {
        self.pending.push(to_lease(record));
    }

    fn purge(&mut self, _is_obsolete: &dyn Fn(&DhcpLeaseRecord) -> bool) {
        // Other processes may still need what is obsolete here, so only the time decides.
        self.needs_purge = true;
    }

    fn commit(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        let leases = std::mem::take(&mut self.pending);
        let purge_before = self.needs_purge.then(|| minus((self.clock)(), RETENTION));
        let commit = commit(&self.store, leases, purge_before);
        let conflicts = self.runtime.block_on(in_time(commit)).map_err(write_error)?;
        self.needs_purge = false;
        Ok(conflicts.into_iter().map(to_record).collect())
    }

    fn is_stale(&self) -> bool {
        self.refreshed_at.elapsed() >= REFRESH_INTERVAL
    }

    fn changes(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        let (started, until) = (Instant::now(), (self.clock)());
        let since = minus(self.refreshed_until, CLOCK_TOLERANCE);
        let read = self.store.read(move |reader| reader.dhcp_leases_changed_since(since));
        let changed = self.runtime.block_on(in_time(read)).map_err(|error| {
            DhcpLeaseStoreError::Read { location: LOCATION.to_owned(), source: error }
        })?;
        (self.refreshed_at, self.refreshed_until) = (started, until);
        Ok(changed.into_iter().map(to_record).collect())
    }
}

const LOCATION: &str = "the database";

/// Stores leases in one transaction. Returns those of other clients instead of which they were not stored.
async fn commit(
    store: &Store,
    mut leases: Vec<StoredDhcpLease>,
    purge_before: Option<Timestamp>,
) -> Result<Vec<StoredDhcpLease>, StoreError> {
    // All processes lock rows in the same order. Records of the same address keep theirs.
    leases.sort_by_key(|lease| lease.address);
    let mut attempt = 1;
    loop {
        let leases = leases.clone();
        let stored = store
            .write(move |writer| {
                let mut conflicts = Vec::new();
                for lease in &leases {
                    conflicts.extend(writer.lease_dhcp_address(lease)?);
                }
                if let Some(before) = purge_before {
                    writer.delete_expired_dhcp_leases(before)?;
                }
                Ok::<_, StoreError>(conflicts)
            })
            .await;
        match stored {
            // Another process has inserted an address. The next attempt reads its lease.
            Err(StoreError::Duplicate { .. }) if attempt < MAX_ATTEMPTS => attempt += 1,
            outcome => return outcome,
        }
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, StoreError>>) -> io::Result<T> {
    match tokio::time::timeout(DATABASE_TIMEOUT, work).await {
        Ok(outcome) => outcome.map_err(io::Error::other),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn write_error(source: io::Error) -> DhcpLeaseStoreError {
    DhcpLeaseStoreError::Write { location: LOCATION.to_owned(), source }
}

fn minus(time: Timestamp, duration: Duration) -> Timestamp {
    Timestamp(time.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
}

fn to_record(lease: StoredDhcpLease) -> DhcpLeaseRecord {
    let StoredDhcpLease { address, client, expires_at } = lease;
    DhcpLeaseRecord { address, client, expires_at }
}

fn to_lease(record: DhcpLeaseRecord) -> StoredDhcpLease {
    let DhcpLeaseRecord { address, client, expires_at } = record;
    StoredDhcpLease { address, client, expires_at }
}
