// SPDX-License-Identifier: Apache-2.0
//! Which password is verified next, and how many may be verified. No IO, no clock.
//!
//! A verification takes tens to hundreds of milliseconds of CPU by design, so they wait in a queue:
//!
//! - Each address and each user has a bucket of tokens. A verification takes a token from both; a
//!   right password puts them back. Without tokens, the attempts of the address or user wait until
//!   a token is added. So the number of failed sign-ins per second is limited.
//! - The address with the most tokens left is served first, addresses with equally many in turn. So
//!   clients that guess never delay a client that has not failed yet.
//! - Within an address, users with the most tokens left come first. Of their attempts, the latest three
//!   are served in turn. Guessing clients wait for their response before they send the next guess, so
//!   only one attempt arrives per verification, and a new client is among the latest three until it is
//!   served, even if it has the address and the user of 150 guessing clients. Clients of the same address
//!   that do not wait for responses can still delay it.
//! - The number of waiting attempts is limited; the oldest one of an address is rejected first.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// How many of the latest attempts of an address are served in turn.
const LATEST_IN_TURN: usize = 3;

/// Limits of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignInLimits {
    /// Failed sign-ins per address, and how many are allowed again per second.
    pub(crate) address: BucketLimit,
    /// Failed sign-ins per user.
    pub(crate) user: BucketLimit,
    /// Attempts that may wait, per address.
    pub(crate) waiting_per_address: usize,
    /// Attempts that may wait, in total.
    pub(crate) waiting: usize,
    /// Addresses and users whose failures are counted.
    pub(crate) tracked: usize,
}

/// Size of a bucket and tokens added per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketLimit {
    pub(crate) burst: f64,
    pub(crate) per_second: f64,
}

impl Default for SignInLimits {
    fn default() -> Self {
        Self {
            address: BucketLimit { burst: 30.0, per_second: 1.0 },
            user: BucketLimit { burst: 60.0, per_second: 2.0 },
            waiting_per_address: 512,
            waiting: 8192,
            tracked: 16_384,
        }
    }
}

/// Attempts that wait for their verification.
#[derive(Debug)]
pub(crate) struct SignInQueue<T> {
    limits: SignInLimits,
    addresses: HashMap<AddressKey, AddressState<T>>,
    users: HashMap<Box<str>, SignInBucket>,
    waiting: usize,
    /// Counts verifications, for the order of addresses with equally many tokens.
    served: u64,
}

/// An IPv4 address, or the network of an IPv6 address: a client can use all addresses of a /64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct AddressKey(IpAddr);

#[derive(Debug)]
struct AddressState<T> {
    bucket: SignInBucket,
    waiting: Vec<WaitingAttempt<T>>,
    last_served: u64,
    /// Which of the latest attempts is served next: 0 is the latest one.
    turn: usize,
}

#[derive(Debug)]
struct WaitingAttempt<T> {
    user: Box<str>,
    item: T,
}

/// What an attempt was charged.
#[derive(Debug)]
pub(crate) struct AttemptCharge {
    address: AddressKey,
    user: Box<str>,
}

/// Result of adding an attempt.
#[derive(Debug)]
pub(crate) enum Enqueued<T> {
    /// The attempt waits.
    Waiting,
    /// The attempt waits, and this older one must be rejected.
    Replaced(T),
    /// The queue is full: the attempt must be rejected.
    Full(T),
}

#[derive(Clone, Copy, Debug)]
struct SignInBucket {
    tokens: f64,
    updated_at: Instant,
}

impl SignInBucket {
    fn full(limit: BucketLimit, now: Instant) -> Self {
        Self { tokens: limit.burst, updated_at: now }
    }

    fn refill(&mut self, limit: BucketLimit, now: Instant) {
        let seconds = now.saturating_duration_since(self.updated_at).as_secs_f64();
        self.tokens = (self.tokens + seconds * limit.per_second).min(limit.burst);
        self.updated_at = now;
    }

    fn is_full(&self, limit: BucketLimit) -> bool {
        self.tokens >= limit.burst
    }

    fn has_token(&self) -> bool {
        whole(self.tokens) > 0
    }

    /// Time until the bucket has a token.
    fn wait(&self, limit: BucketLimit) -> Duration {
        if self.has_token() {
            return Duration::ZERO;
        }
        Duration::from_secs_f64((1.0 - self.tokens) / limit.per_second)
    }
}

impl AddressKey {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(IpAddr::V4(address)),
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                Self(IpAddr::V6(Ipv6Addr::from(network)))
            }
        }
    }
}

impl<T> SignInQueue<T> {
    pub(crate) fn new(limits: SignInLimits) -> Self {
        Self { limits, addresses: HashMap::new(), users: HashMap::new(), waiting: 0, served: 0 }
    }

    /// Number of waiting attempts.
    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    /// Adds an attempt.
    pub(crate) fn push(
        &mut self,
        address: IpAddr,
        user: &str,
        item: T,
        now: Instant,
    ) -> Enqueued<T> {
        let key = AddressKey::of(address);
        if self.waiting >= self.limits.waiting {
            return Enqueued::Full(item);
        }
        if !self.addresses.contains_key(&key) && self.addresses.len() >= self.limits.tracked {
            self.forget_idle(now);
            if self.addresses.len() >= self.limits.tracked {
                return Enqueued::Full(item);
            }
        }
        let limit = self.limits.address;
        let state = self.addresses.entry(key).or_insert_with(|| AddressState {
            bucket: SignInBucket::full(limit, now),
            waiting: Vec::new(),
            last_served: 0,
            turn: 0,
        });
        state.waiting.push(WaitingAttempt { user: user.into(), item });
        if state.waiting.len() > self.limits.waiting_per_address {
            return Enqueued::Replaced(state.waiting.remove(0).item);
        }
        self.waiting += 1;
        Enqueued::Waiting
    }

    /// Removes attempts whose clients are gone.
    pub(crate) fn retain(&mut self, is_alive: impl Fn(&T) -> bool) {
        for state in self.addresses.values_mut() {
            state.waiting.retain(|attempt| is_alive(&attempt.item));
        }
        self.waiting = self.addresses.values().map(|state| state.waiting.len()).sum();
    }

    /// The attempt to verify now. Returns `None` if none may be verified.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(T, AttemptCharge)> {
        if self.waiting == 0 {
            return None;
        }
        let (limits, users) = (self.limits, &self.users);
        let user_tokens = |user: &str| {
            users.get(user).map_or(limits.user.burst, |bucket| {
                let mut bucket = *bucket;
                bucket.refill(limits.user, now);
                bucket.tokens
            })
        };
        // (tokens of the address, tokens of the user), whole ones; then the longest not served.
        let mut best: Option<((u64, u64, u64), AddressKey, usize)> = None;
        for (key, state) in &mut self.addresses {
            if state.waiting.is_empty() {
                continue;
            }
            state.bucket.refill(limits.address, now);
            if !state.bucket.has_token() {
                continue;
            }
            let Some((tokens, index)) = next_attempt(state, user_tokens) else { continue };
            let rank = (whole(state.bucket.tokens), tokens, u64::MAX - state.last_served);
            if best.as_ref().is_none_or(|(best, _, _)| rank > *best) {
                best = Some((rank, *key, index));
            }
        }
        let (_, address, index) = best?;
        let state = self.addresses.get_mut(&address)?;
        let WaitingAttempt { user, item, .. } = state.waiting.remove(index);
        self.waiting -= 1;
        self.served += 1;
        state.last_served = self.served;
        state.turn = (state.turn + 1) % LATEST_IN_TURN;
        state.bucket.tokens -= 1.0;
        self.charge_user(&user, now);
        Some((item, AttemptCharge { address, user }))
    }

    /// Gives back what a successful attempt was charged.
    pub(crate) fn refund(&mut self, charge: &AttemptCharge) {
        if let Some(state) = self.addresses.get_mut(&charge.address) {
            state.bucket.tokens = (state.bucket.tokens + 1.0).min(self.limits.address.burst);
        }
        if let Some(bucket) = self.users.get_mut(&charge.user) {
            bucket.tokens = (bucket.tokens + 1.0).min(self.limits.user.burst);
        }
    }

    /// After which time an attempt may be verified that may not be verified now. Returns `None` if
    /// none waits.
    pub(crate) fn next_refill(&self, now: Instant) -> Option<Duration> {
        let limits = self.limits;
        let addresses = self.addresses.values().filter(|state| !state.waiting.is_empty());
        let waits = addresses.flat_map(|state| {
            let mut bucket = state.bucket;
            bucket.refill(limits.address, now);
            let of_address = bucket.wait(limits.address);
            state.waiting.iter().map(move |attempt| {
                let of_user = self.users.get(&attempt.user).map_or(Duration::ZERO, |bucket| {
                    let mut bucket = *bucket;
                    bucket.refill(limits.user, now);
                    bucket.wait(limits.user)
                });
                of_address.max(of_user)
            })
        });
        waits.min()
    }

    fn charge_user(&mut self, user: &str, now: Instant) {
        let limit = self.limits.user;
        if !self.users.contains_key(user) {
            if self.users.len() >= self.limits.tracked {
                self.forget_idle(now);
            }
            if self.users.len() >= self.limits.tracked {
                // The limits of the addresses still apply.
                return;
            }
            self.users.insert(user.into(), SignInBucket::full(limit, now));
        }
        if let Some(bucket) = self.users.get_mut(user) {
            bucket.refill(limit, now);
            bucket.tokens -= 1.0;
        }
    }

    /// Removes the state of addresses and users without recent failures.
    fn forget_idle(&mut self, now: Instant) {
        let limits = self.limits;
        self.addresses.retain(|_, state| {
            state.bucket.refill(limits.address, now);
            !state.waiting.is_empty() || !state.bucket.is_full(limits.address)
        });
        self.users.retain(|_, bucket| {
            bucket.refill(limits.user, now);
            !bucket.is_full(limits.user)
        });
    }
}

/// The attempt of an address to verify next: the tokens of its user, and its index.
fn next_attempt<T>(
    state: &AddressState<T>,
    user_tokens: impl Fn(&str) -> f64,
) -> Option<(u64, usize)> {
    let tokens: Vec<u64> =
        state.waiting.iter().map(|attempt| whole(user_tokens(&attempt.user))).collect();
    let most = tokens.iter().copied().max().filter(|most| *most > 0)?;
    let latest = (0..tokens.len()).rev().filter(|index| tokens[*index] == most);
    let index = latest.take(state.turn + 1).last()?;
    Some((most, index))
}

/// The number of whole tokens, tolerating rounding errors of refills.
fn whole(tokens: f64) -> u64 {
    (tokens + 1e-6).max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    /// A queue of numbers and a start time.
    fn queue() -> (SignInQueue<usize>, Instant) {
        (SignInQueue::new(SignInLimits::default()), Instant::now())
    }

    /// Pops the next attempt and advances the time if none may be verified.
    fn serve(queue: &mut SignInQueue<usize>, now: &mut Instant) -> (usize, AttemptCharge) {
        loop {
            match queue.pop(*now) {
                Some(served) => return served,
                None => *now += queue.next_refill(*now).expect("an attempt waits"),
            }
        }
    }

    /// With 150 guessing clients, the right password was rejected for 20 s. Guessers send the next guess
    /// after the response to the previous one.
    #[test]
    fn a_new_client_is_served_before_150_guessers() {
        const RIGHT: usize = 1_000;
        let cases = [
            ("other address", (|_| address(1)) as fn(usize) -> IpAddr, address(2), "admin"),
            ("other user", |_| address(1), address(1), "alice"),
            ("same address and user", |_| address(1), address(1), "admin"),
            ("150 addresses", |n| address(n as u8), address(200), "admin"),
        ];
        let arrivals = 0..2 * LATEST_IN_TURN;
        for (arrival, (name, address_of, own_address, user)) in
            arrivals.flat_map(|arrival| cases.map(|case| (arrival, case)))
        {
            let (mut queue, mut now) = queue();
            for guesser in 0..150 {
                queue.push(address_of(guesser), "admin", guesser, now);
            }
            for _ in 0..200 + arrival {
                let (guesser, _) = serve(&mut queue, &mut now);
                queue.push(address_of(guesser), "admin", guesser, now);
            }
            // The next guess of one guesser arrives after the new client.
            let (guesser, _) = serve(&mut queue, &mut now);
            let started = now;
            queue.push(own_address, user, RIGHT, now);
            queue.push(address_of(guesser), "admin", guesser, now);
            let mut others = 0;
            loop {
                let (served, _) = serve(&mut queue, &mut now);
                if served == RIGHT {
                    break;
                }
                queue.push(address_of(served), "admin", served, now);
                others += 1;
            }
            assert!(others <= 2 * LATEST_IN_TURN, "{name}: {others} guesses were verified first");
            let waited = now - started;
            assert!(waited <= Duration::from_secs(6), "{name}: waited {waited:?}");
        }
    }

    #[test]
    fn failures_are_limited_per_address_and_successes_are_not() {
        let (mut queue, now) = queue();
        for number in 0..100 {
            queue.push(address(1), &format!("user{number}"), number, now);
        }
        let mut charges = Vec::new();
        while let Some((_, charge)) = queue.pop(now) {
            charges.push(charge);
        }
        assert_eq!(charges.len(), 30);
        assert_eq!(queue.next_refill(now), Some(Duration::from_secs(1)));
        assert!(queue.pop(now + Duration::from_millis(999)).is_none());
        assert!(queue.pop(now + Duration::from_secs(1)).is_some());
        // Another address is not affected.
        queue.push(address(2), "user1", 0, now);
        assert!(queue.pop(now + Duration::from_secs(1)).is_some());
        charges.iter().for_each(|charge| queue.refund(charge));
        assert!(queue.pop(now + Duration::from_secs(1)).is_some());
    }

    #[test]
    fn failures_are_limited_per_user_over_all_addresses() {
        let (mut queue, now) = queue();
        for number in 0..200_u8 {
            queue.push(address(number), "admin", usize::from(number), now);
        }
        let verified = std::iter::from_fn(|| queue.pop(now)).count();
        assert_eq!(verified, 60);
        queue.push(address(201), "alice", 201, now);
        assert_eq!(queue.pop(now).map(|(item, _)| item), Some(201));
    }

    #[test]
    fn addresses_are_served_in_turn() {
        let (mut queue, now) = queue();
        for number in 0..6 {
            queue.push(address(1), "a", number, now);
        }
        queue.push(address(2), "b", 10, now);
        queue.push(address(2), "b", 11, now);
        queue.push(address(3), "c", 20, now);
        let order: Vec<usize> =
            std::iter::from_fn(|| queue.pop(now).map(|(item, _)| item)).collect();
        let position = |item| order.iter().position(|other| *other == item).unwrap();
        assert!(position(11) < 3 && position(20) < 3, "{order:?}");
        assert!(position(10) < 5, "{order:?}");
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_limit() {
        let (mut queue, now) = queue();
        for number in 0..40_u16 {
            let address = IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, number]);
            queue.push(address, &format!("user{number}"), 0, now);
        }
        assert_eq!(std::iter::from_fn(|| queue.pop(now)).count(), 30);
        queue.push("::ffff:192.0.2.1".parse().unwrap(), "mapped", 0, now);
        assert!(queue.addresses.contains_key(&AddressKey(address(1))));
    }

    #[test]
    fn length_is_limited() {
        let limits = SignInLimits { waiting_per_address: 2, waiting: 3, ..SignInLimits::default() };
        let (mut queue, now) = (SignInQueue::new(limits), Instant::now());
        assert!(matches!(queue.push(address(1), "a", 0, now), Enqueued::Waiting));
        assert!(matches!(queue.push(address(1), "a", 1, now), Enqueued::Waiting));
        assert!(matches!(queue.push(address(1), "a", 2, now), Enqueued::Replaced(0)));
        assert!(matches!(queue.push(address(2), "a", 3, now), Enqueued::Waiting));
        assert!(matches!(queue.push(address(3), "a", 4, now), Enqueued::Full(4)));
        queue.retain(|item| *item != 1);
        assert_eq!(queue.len(), 2);
        assert!(matches!(queue.push(address(3), "a", 5, now), Enqueued::Waiting));
    }

    #[test]
    fn idle_addresses_and_users_are_forgotten() {
        let limits = SignInLimits { tracked: 10, ..SignInLimits::default() };
        let (mut queue, mut now) = (SignInQueue::new(limits), Instant::now());
        for number in 0..100 {
            assert!(matches!(
                queue.push(address(number), &format!("user{number}"), 0, now),
                Enqueued::Waiting
            ));
            assert!(queue.pop(now).is_some());
            now += Duration::from_secs(60);
        }
        assert!(queue.addresses.len() <= 10 && queue.users.len() <= 10);
    }
}
