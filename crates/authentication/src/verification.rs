// SPDX-License-Identifier: Apache-2.0
//! Verifies passwords on threads of low priority, few at a time, in the order of the sign-in queue.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use node_model::Secret;
use tokio::sync::oneshot;

use crate::error::AuthError;
use crate::password::verify_password;
use crate::sign_in_queue::{AttemptCharge, Enqueued, SignInLimits, SignInQueue};

/// How long an attempt waits before it is rejected.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Shortest delay of the timer that continues after a limit.
const MIN_TIMER: Duration = Duration::from_millis(10);

/// Priority of the threads that verify passwords: about a tenth of the CPU time of others if all CPUs are
/// busy.
const NICENESS: i32 = 10;

/// Verifies passwords.
#[derive(Clone, Debug)]
pub(crate) struct VerificationPool(Arc<PoolInner>);

#[derive(Debug)]
struct PoolInner {
    state: Mutex<PoolState>,
    max_running: usize,
}

#[derive(Debug)]
struct PoolState {
    queue: SignInQueue<oneshot::Sender<VerificationPermit>>,
    running: usize,
    /// Whether a timer will continue the queue.
    has_timer: bool,
}

/// The right to verify one password. Dropping it starts the next verification.
#[derive(Debug)]
struct VerificationPermit {
    /// `None` after the permit was given back without a verification.
    pool: Option<VerificationPool>,
    charge: AttemptCharge,
}

impl VerificationPool {
    pub(crate) fn new(limits: SignInLimits) -> Self {
        // Half of the CPUs: guessing must not slow down other requests.
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let state = PoolState { queue: SignInQueue::new(limits), running: 0, has_timer: false };
        Self(Arc::new(PoolInner { state: Mutex::new(state), max_running: (cpus / 2).max(1) }))
    }

    /// Whether the password of `user` matches `hash`. Waits for its turn.
    pub(crate) async fn verify(
        &self,
        address: IpAddr,
        user: &str,
        password: Secret<String>,
        hash: String,
    ) -> Result<bool, AuthError> {
        let permit = self.enqueue(address, user)?;
        let permit = match tokio::time::timeout(MAX_WAIT, permit).await {
            Ok(Ok(permit)) => permit,
            // Replaced by a later attempt of the same address, or waited too long.
            Ok(Err(_)) | Err(_) => return Err(AuthError::TooManyAttempts),
        };
        let (sender, verified) = oneshot::channel();
        let runtime = tokio::runtime::Handle::current();
        // A thread of its own, because a thread without privileges cannot raise its priority again. The
        // permit is held until the verification ends, also if the caller is gone.
        let thread = std::thread::Builder::new().name("password".to_owned()).spawn(move || {
            lower_priority();
            // The end of this verification starts the next one, or the timer for it.
            let _entered = runtime.enter();
            // Dropped before `_entered`, also if the verification panics.
            let permit = permit;
            let is_right = verify_password(&password, &hash);
            permit.finish(is_right);
            let _caller_gone = sender.send(is_right);
        });
        if let Err(error) = thread {
            tracing::warn!(%error, "a thread for a password verification could not be started");
            return Err(AuthError::Busy);
        }
        Ok(verified.await.unwrap_or(false))
    }

    /// Number of attempts that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    fn enqueue(
        &self,
        address: IpAddr,
        user: &str,
    ) -> Result<oneshot::Receiver<VerificationPermit>, AuthError> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.lock();
            let mut pushed = state.queue.push(address, user, sender, Instant::now());
            if let Enqueued::Full(sender) = pushed {
                state.queue.retain(|waiting| !waiting.is_closed());
                pushed = state.queue.push(address, user, sender, Instant::now());
            }
            match pushed {
                Enqueued::Waiting => {}
                // Dropping the sender rejects the attempt.
                Enqueued::Replaced(_oldest) => {}
                Enqueued::Full(_sender) => return Err(AuthError::Busy),
            }
        }
        self.start_next();
        Ok(receiver)
    }

    /// Starts as many verifications as allowed.
    fn start_next(&self) {
        loop {
            let (sender, charge) = {
                let mut state = self.lock();
                if state.running >= self.0.max_running {
                    return;
                }
                let now = Instant::now();
                let Some(next) = state.queue.pop(now) else {
                    self.start_timer(&mut state, now);
                    return;
                };
                state.running += 1;
                next
            };
            let permit = VerificationPermit { pool: Some(self.clone()), charge };
            if let Err(mut unused) = sender.send(permit) {
                // The client is gone. The drop of the permit would call this function recursively.
                unused.pool = None;
                let mut state = self.lock();
                state.running -= 1;
                state.queue.refund(&unused.charge);
                // Otherwise every client that is gone would take one search of the queue.
                state.queue.retain(|waiting| !waiting.is_closed());
            }
        }
    }

    /// Continues when a limit allows the next verification.
    fn start_timer(&self, state: &mut PoolState, now: Instant) {
        let Some(delay) = state.queue.next_refill(now) else { return };
        if std::mem::replace(&mut state.has_timer, true) {
            return;
        }
        let pool = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay.max(MIN_TIMER)).await;
            {
                let mut state = pool.lock();
                state.has_timer = false;
                state.queue.retain(|waiting| !waiting.is_closed());
            }
            pool.start_next();
        });
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests of other clients come first while passwords are guessed.
fn lower_priority() {
    // On failure the verification only has the usual priority.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
}

impl VerificationPermit {
    /// Ends the verification. A right password does not count against the limits.
    fn finish(self, is_right: bool) {
        if let Some(pool) = self.pool.as_ref().filter(|_| is_right) {
            pool.lock().queue.refund(&self.charge);
        }
    }
}

impl Drop for VerificationPermit {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.lock().running -= 1;
            pool.start_next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    /// The timer of a limit is started by the thread of the last verification, outside the runtime.
    #[tokio::test]
    async fn continues_after_a_limit() {
        let hash = bcrypt::hash("right", 4).unwrap();
        let address = crate::sign_in_queue::BucketLimit { burst: 2.0, per_second: 50.0 };
        let pool = VerificationPool::new(SignInLimits { address, ..SignInLimits::default() });
        let attempts = (0..8).map(|number| {
            let password = if number == 7 { "right" } else { "wrong" };
            let (pool, hash) = (pool.clone(), hash.clone());
            let password = Secret::new(password.to_owned());
            tokio::spawn(async move { pool.verify(ADDRESS, "admin", password, hash).await })
        });
        let attempts: Vec<_> = attempts.collect();
        for (number, attempt) in attempts.into_iter().enumerate() {
            assert_eq!(attempt.await.unwrap().unwrap(), number == 7, "{number}");
        }
        assert_eq!(pool.waiting(), 0);
    }
}
