// SPDX-License-Identifier: Apache-2.0
//! Random numbers, for waiting times and identifiers, and the kernel's readiness to give good ones.
//!
//! A machine that just started has not seen enough to be unpredictable, unless its processor or a
//! device makes random numbers. The kernel then makes chance of the time its own interrupts take,
//! within a second or two, but only for a process that waits in getrandom(2): one that polls
//! `/dev/random` waits for ever on a machine where nothing else happens. And polling is what the
//! libraries beneath TLS do in a static program, where they do not find getrandom. So somebody has to
//! wait in it, and that is done here.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::watch;

/// How often somebody who waits is told that it goes on.
const REMINDER: Duration = Duration::from_secs(10);

/// Whether the kernel is ready, once anybody asked.
static READY: OnceLock<watch::Receiver<bool>> = OnceLock::new();

/// Gets the kernel to make itself ready, if it is not, while other things go on.
pub fn prepare() {
    let _ = readiness();
}

/// Returns when the kernel gives numbers that nobody can guess. Keys are made only after.
pub(crate) async fn ready() {
    let mut ready = readiness();
    let begun = Instant::now();
    loop {
        let waiting = ready.wait_for(|ready| *ready);
        match tokio::time::timeout(REMINDER, waiting).await {
            Ok(_) => return,
            Err(_) => tracing::warn!(
                seconds = begun.elapsed().as_secs(),
                "the kernel has no random numbers yet, and without there are no keys; a random number device (virtio-rng for virtual machines) would help"
            ),
        }
    }
}

/// Any number. It comes at once, and may be guessed as long as the kernel is not ready: nothing that
/// asks here is a secret.
#[must_use]
pub(crate) fn number() -> u32 {
    let mut bytes = [0; 4];
    match getrandom(&mut bytes, GetRandomFlags::INSECURE) {
        Ok(4) => u32::from_ne_bytes(bytes),
        // Without a source of chance, time must do.
        Ok(_) | Err(_) => {
            std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| time.subsec_nanos())
        }
    }
}

/// A number between two.
#[must_use]
pub(crate) fn between(low: f64, high: f64) -> f64 {
    low + (high - low) * f64::from(number()) / f64::from(u32::MAX)
}

fn readiness() -> watch::Receiver<bool> {
    READY.get_or_init(start).clone()
}

/// Asks without waiting, and if the kernel is not ready, waits on a thread of its own.
fn start() -> watch::Receiver<bool> {
    let (tell, ready) = watch::channel(false);
    let mut byte = [0; 1];
    if getrandom(&mut byte, GetRandomFlags::NONBLOCK) != Err(Errno::AGAIN) {
        // It is ready, or too old to say: then the libraries know what to do.
        tell.send_replace(true);
        return ready;
    }
    let begun = Instant::now();
    tracing::info!("the kernel has no random numbers yet; it is made to collect some");
    let wait = move || {
        while getrandom(&mut byte, GetRandomFlags::empty()) == Err(Errno::INTR) {}
        tracing::info!(milliseconds = begun.elapsed().as_millis(), "the kernel has random numbers");
        tell.send_replace(true);
    };
    let thread = std::thread::Builder::new().name("chance".into()).stack_size(128 << 10);
    if let Err(error) = thread.spawn(wait) {
        tracing::warn!(%error, "nobody makes the kernel collect random numbers");
    }
    ready
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_that_runs_is_ready() {
        prepare();
        ready().await;
        assert!((0..8).map(|_| number()).collect::<std::collections::HashSet<_>>().len() > 1);
        let number = between(2.0, 3.0);
        assert!((2.0..=3.0).contains(&number), "{number}");
    }
}
