// SPDX-License-Identifier: Apache-2.0
//! The disabled projects of the store. Roles in them are ignored, also if an htpasswd file, an OpenID
//! Connect provider or Keystone assigned them.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use store::{Store, StoreError};

/// After how long the projects are read again: the delay with which changes made by other replicas
/// apply.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The disabled projects, read from the store every few seconds.
#[derive(Debug, Default)]
pub(crate) struct DisabledProjects {
    state: RwLock<ReadProjects>,
    /// Held while the projects are read, so that concurrent requests share one query.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct ReadProjects {
    names: Arc<BTreeSet<String>>,
    /// `None` if they must be read.
    read_at: Option<Instant>,
    /// Number of changes: names that were read before a change are not kept.
    version: u64,
}

impl DisabledProjects {
    /// The names of the disabled projects.
    pub(crate) async fn names(
        &self,
        store: &Store,
        now: Instant,
    ) -> Result<Arc<BTreeSet<String>>, StoreError> {
        if let Some(names) = self.recent(now) {
            return Ok(names);
        }
        let _reading = self.reading.lock().await;
        if let Some(names) = self.recent(now) {
            return Ok(names);
        }
        let version = self.state.read().unwrap_or_else(PoisonError::into_inner).version;
        let names = store.read(|reader| reader.disabled_projects()).await?;
        let names = BTreeSet::from_iter(names);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // Unchanged names stay the same object, for which callers were computed.
        let names = if *state.names == names { Arc::clone(&state.names) } else { Arc::new(names) };
        if state.version == version {
            state.names = Arc::clone(&names);
            state.read_at = Some(now);
        }
        Ok(names)
    }

    /// Makes the next request read the projects again.
    pub(crate) fn expire(&self) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.read_at = None;
        state.version += 1;
    }

    fn recent(&self, now: Instant) -> Option<Arc<BTreeSet<String>>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let age = now.saturating_duration_since(state.read_at?);
        (age < RECHECK_INTERVAL).then(|| Arc::clone(&state.names))
    }
}
