// SPDX-License-Identifier: Apache-2.0
//! A budget of memory for the bodies of requests.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The budget in bytes. One client uses at most half of it.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    total: usize,
    per_client: usize,
    used: Mutex<BudgetUse>,
}

#[derive(Debug, Default)]
struct BudgetUse {
    total: usize,
    clients: HashMap<IpAddr, usize>,
}

/// The part of the budget that one request uses, returned on drop.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Arc<ByteBudget>,
    client: IpAddr,
    bytes: usize,
}

/// The budget of the server or of this client is used up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BudgetExhausted;

impl ByteBudget {
    /// A budget of `total` bytes. `largest` bytes are available to each client, so that the largest
    /// permitted body can be received.
    pub(crate) fn new(total: usize, largest: usize) -> Arc<Self> {
        let total = total.max(largest);
        let per_client = (total / 2).max(largest);
        Arc::new(Self { total, per_client, used: Mutex::default() })
    }

    /// An empty share of the budget for one request.
    pub(crate) fn share(self: &Arc<Self>, client: IpAddr) -> BudgetShare {
        BudgetShare { budget: Arc::clone(self), client, bytes: 0 }
    }

    /// The number of bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.lock().total
    }

    fn lock(&self) -> MutexGuard<'_, BudgetUse> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetShare {
    /// Adds bytes to the share.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        let mut used = self.budget.lock();
        let by_client = used.clients.get(&self.client).copied().unwrap_or(0);
        if used.total + bytes > self.budget.total || by_client + bytes > self.budget.per_client {
            return Err(BudgetExhausted);
        }
        used.total += bytes;
        used.clients.insert(self.client, by_client + bytes);
        drop(used);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut used = self.budget.lock();
        used.total -= self.bytes;
        if let Some(by_client) = used.clients.get_mut(&self.client) {
            *by_client -= self.bytes;
            if *by_client == 0 {
                used.clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[test]
    fn one_client_cannot_use_the_whole_budget() {
        let budget = ByteBudget::new(100, 10);
        let mut shares: Vec<BudgetShare> = (0..5).map(|_| budget.share(client(1))).collect();
        assert!(shares.iter_mut().all(|share| share.grow(10).is_ok()));
        assert_eq!(shares[0].grow(1), Err(BudgetExhausted));
        let mut other = budget.share(client(2));
        assert_eq!(other.grow(50), Ok(()));
        assert_eq!(budget.used(), 100);
        let mut third = budget.share(client(3));
        assert_eq!(third.grow(1), Err(BudgetExhausted), "the total is limited, too");
        drop(shares);
        assert_eq!(third.grow(1), Ok(()));
        drop((other, third));
        assert_eq!(budget.used(), 0);
        assert!(budget.lock().clients.is_empty());
    }

    #[test]
    fn the_largest_body_always_fits() {
        let budget = ByteBudget::new(5, 10);
        assert_eq!(budget.share(client(1)).grow(10), Ok(()));
    }
}
