// SPDX-License-Identifier: Apache-2.0
//! Limits on concurrent requests to one BMC.
//!
//! BMCs are slow, and some fail when two requests arrive at once. All nodes, interfaces and protocols
//! that use a BMC share its semaphore.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// The request limits of all BMCs.
#[derive(Debug)]
pub struct BmcLimits {
    requests_per_bmc: usize,
    bmcs: Mutex<BmcSemaphores>,
}

/// Semaphores by BMC address. Unused ones are removed each time the table has doubled.
#[derive(Debug, Default)]
struct BmcSemaphores {
    semaphores: HashMap<String, Weak<Semaphore>>,
    sweep_at: usize,
}

impl BmcLimits {
    /// Limits for `requests_per_bmc` concurrent requests to one BMC; at least 1.
    pub fn new(requests_per_bmc: usize) -> Self {
        Self { requests_per_bmc: requests_per_bmc.max(1), bmcs: Mutex::default() }
    }

    /// Returns the semaphore of the BMC at `host`, the same for all protocols. `port` is `None` for
    /// the protocol's standard port; each other port is a separate BMC.
    pub fn semaphore(&self, host: &str, port: Option<u16>) -> Arc<Semaphore> {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let address = match port {
            None => host,
            Some(port) => format!("{host} {port}"),
        };
        let mut known = self.bmcs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = known.semaphores.get(&address).and_then(Weak::upgrade) {
            return semaphore;
        }
        if known.semaphores.len() >= known.sweep_at {
            known.semaphores.retain(|_, semaphore| semaphore.strong_count() > 0);
            known.sweep_at = (known.semaphores.len() * 2).max(64);
        }
        let semaphore = Arc::new(Semaphore::new(self.requests_per_bmc));
        known.semaphores.insert(address, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_bmc_shares_semaphore_and_unused_ones_are_removed() {
        let limits = BmcLimits::new(1);
        let one = limits.semaphore("10.0.0.1", None);
        assert!(Arc::ptr_eq(&one, &limits.semaphore("10.0.0.1", None)));
        assert!(!Arc::ptr_eq(&one, &limits.semaphore("10.0.0.1", Some(8443))));
        for number in 0..1000 {
            drop(limits.semaphore(&format!("10.1.0.{number}"), None));
        }
        assert!(limits.bmcs.lock().unwrap().semaphores.len() <= 65);
        assert!(Arc::ptr_eq(&one, &limits.semaphore("10.0.0.1", None)), "a semaphore in use stays");
    }
}
