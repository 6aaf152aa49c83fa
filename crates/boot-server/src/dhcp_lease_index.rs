// SPDX-License-Identifier: Apache-2.0
//! The committed DHCP leases by address, for parts of the process that check which machine uses an
//! address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use node_model::Timestamp;

use crate::{DhcpLeaseRecord, DhcpLeaseStore, DhcpLeaseStoreError};

/// The DHCP leases of this process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct DhcpLeaseIndex {
    by_address: Arc<RwLock<HashMap<IpAddr, DhcpLeaseRecord>>>,
}

/// A lease store whose committed records are also in a [`DhcpLeaseIndex`].
pub struct IndexedDhcpLeaseStore {
    store: Box<dyn DhcpLeaseStore>,
    index: DhcpLeaseIndex,
    pending: Vec<DhcpLeaseRecord>,
}

impl DhcpLeaseIndex {
    /// Returns a store that adds the records of `store` to this index.
    #[must_use]
    pub fn indexed(&self, store: Box<dyn DhcpLeaseStore>) -> IndexedDhcpLeaseStore {
        IndexedDhcpLeaseStore { store, index: self.clone(), pending: Vec::new() }
    }

    /// Returns the key of the client that holds an unexpired lease of the address.
    #[must_use]
    pub fn holder(&self, address: IpAddr, now: Timestamp) -> Option<Vec<u8>> {
        let leases = self.by_address.read().unwrap_or_else(PoisonError::into_inner);
        let lease = leases.get(&address).filter(|lease| lease.expires_at > now)?;
        (!lease.client.is_empty()).then(|| lease.client.clone())
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<IpAddr, DhcpLeaseRecord>)) {
        change(&mut self.by_address.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl DhcpLeaseStore for IndexedDhcpLeaseStore {
    fn load(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        let records = self.store.load()?;
        let loaded = records.iter().map(|record| (record.address, record.clone()));
        self.index.change(|leases| leases.extend(loaded));
        Ok(records)
    }

    fn record(&mut self, record: DhcpLeaseRecord) {
        self.pending.push(record.clone());
        self.store.record(record);
    }

    fn purge(&mut self, is_obsolete: &dyn Fn(&DhcpLeaseRecord) -> bool) {
        self.pending.retain(|record| !is_obsolete(record));
        self.index.change(|leases| leases.retain(|_, record| !is_obsolete(record)));
        self.store.purge(is_obsolete);
    }

    fn commit(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        let pending = std::mem::take(&mut self.pending);
        let conflicts = self.store.commit()?;
        if !pending.is_empty() {
            let committed = pending.into_iter().map(|record| (record.address, record));
            self.index.change(|leases| leases.extend(committed));
        }
        self.add(&conflicts);
        Ok(conflicts)
    }

    fn is_stale(&self) -> bool {
        self.store.is_stale()
    }

    fn changes(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        let changes = self.store.changes()?;
        self.add(&changes);
        Ok(changes)
    }
}

impl IndexedDhcpLeaseStore {
    fn add(&self, records: &[DhcpLeaseRecord]) {
        if !records.is_empty() {
            let records = records.iter().map(|record| (record.address, record.clone()));
            self.index.change(|leases| leases.extend(records));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InMemoryDhcpLeaseStore;

    #[test]
    fn contains_committed_unexpired_leases() {
        let index = DhcpLeaseIndex::default();
        let shared = InMemoryDhcpLeaseStore::default();
        let mut store = index.indexed(Box::new(shared.clone()));
        let address: IpAddr = [10, 0, 0, 100].into();
        let record = |client: &[u8], expires| DhcpLeaseRecord {
            address,
            client: client.to_vec(),
            expires_at: Timestamp(expires),
        };
        store.record(record(b"one", 100));
        assert_eq!(index.holder(address, Timestamp(0)), None, "not committed");
        store.commit().unwrap();
        assert_eq!(index.holder(address, Timestamp(99)).as_deref(), Some(&b"one"[..]));
        assert_eq!(index.holder(address, Timestamp(100)), None, "expired");
        let restarted = DhcpLeaseIndex::default();
        restarted.indexed(Box::new(shared)).load().unwrap();
        assert!(restarted.holder(address, Timestamp(99)).is_some(), "loaded after a restart");
        // The address is used by a host without a lease.
        store.record(record(b"", 200));
        store.commit().unwrap();
        assert_eq!(index.holder(address, Timestamp(0)), None);
    }
}
