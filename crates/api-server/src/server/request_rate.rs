// SPDX-License-Identifier: Apache-2.0
//! Limits the rate of unauthenticated requests per client with token buckets.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A client may send the requests of this many seconds at once.
const BURST_SECONDS: u32 = 10;
/// Known clients may send this many times as many requests: many agents may share one address.
const KNOWN_FACTOR: u32 = 10;
/// The number of clients with an own bucket. Further ones share one.
const MAX_BUCKETS: usize = 16 * 1024;

/// The token buckets of all clients.
#[derive(Debug)]
pub(crate) struct RequestRates {
    /// Requests per second of an unknown client; 0 disables the limit.
    rate: u32,
    buckets: Mutex<Buckets>,
}

#[derive(Debug)]
struct Buckets {
    by_client: HashMap<IpAddr, RequestBucket>,
    shared: Option<RequestBucket>,
}

/// A bucket, as the time at which it was last empty: it fills by one token per interval.
#[derive(Debug, Clone, Copy)]
struct RequestBucket {
    /// If every earlier request had waited for its token, the next one could be sent at this time.
    next: Instant,
}

impl RequestRates {
    /// Allows each client `rate` requests per second.
    pub(crate) fn new(rate: u32) -> Self {
        let buckets = Buckets { by_client: HashMap::new(), shared: None };
        Self { rate, buckets: Mutex::new(buckets) }
    }

    /// Takes a token. Returns false if the client sent too many requests.
    pub(crate) fn take(&self, client: IpAddr, is_known: bool, now: Instant) -> bool {
        if self.rate == 0 {
            return true;
        }
        let rate = if is_known { self.rate.saturating_mul(KNOWN_FACTOR) } else { self.rate };
        let interval = Duration::from_secs(1) / rate;
        let burst = interval * (rate.saturating_mul(BURST_SECONDS) - 1);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.by_client.len() >= MAX_BUCKETS && !buckets.by_client.contains_key(&client) {
            // A full bucket has no effect.
            buckets.by_client.retain(|_, bucket| bucket.next > now);
        }
        let full = RequestBucket { next: now };
        let bucket =
            if buckets.by_client.len() >= MAX_BUCKETS && !buckets.by_client.contains_key(&client) {
                buckets.shared.get_or_insert(full)
            } else {
                buckets.by_client.entry(client).or_insert(full)
            };
        let next = bucket.next.max(now);
        if next.duration_since(now) > burst {
            return false;
        }
        bucket.next = next + interval;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> IpAddr {
        IpAddr::from(std::net::Ipv4Addr::from_bits(number))
    }

    fn allowed(rates: &RequestRates, number: u32, is_known: bool, now: Instant) -> usize {
        (0..10_000).take_while(|_| rates.take(client(number), is_known, now)).count()
    }

    #[test]
    fn limits_each_client() {
        let rates = RequestRates::new(20);
        let now = Instant::now();
        assert_eq!(allowed(&rates, 1, false, now), 200);
        assert_eq!(allowed(&rates, 2, false, now), 200, "other clients have their own bucket");
        assert_eq!(allowed(&rates, 1, false, now + Duration::from_secs(1)), 20);
        assert_eq!(allowed(&rates, 1, false, now + Duration::from_secs(3600)), 200);
        assert_eq!(allowed(&rates, 3, true, now), 2000);
        assert_eq!(allowed(&RequestRates::new(0), 1, false, now), 10_000);
    }

    #[test]
    fn stores_a_bounded_number_of_clients() {
        let rates = RequestRates::new(1);
        let now = Instant::now();
        for number in 0..u32::try_from(MAX_BUCKETS).unwrap() {
            assert!(rates.take(client(number), false, now));
        }
        assert_eq!(allowed(&rates, 1_000_000, false, now), 10);
        assert!(!rates.take(client(2_000_000), false, now), "further clients share one bucket");
        let later = now + Duration::from_secs(60);
        assert!(rates.take(client(2_000_000), false, later));
        assert_eq!(rates.buckets.lock().unwrap().by_client.len(), 1);
    }
}
