// SPDX-License-Identifier: Apache-2.0
//! Random numbers for delays and identifiers, and waiting for the kernel's random number generator.
//!
//! A machine that just booted may lack entropy, unless its processor or a device has a random number
//! generator. The kernel then collects entropy from interrupt timing within a second or two, but only
//! while a process blocks in getrandom(2); polling `/dev/random` would wait forever on an idle machine.
//! The TLS libraries poll in a static program, where they do not find getrandom. So this module blocks
//! in getrandom on a thread.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::watch;

/// The interval of warnings while waiting.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Whether the kernel's generator is ready; set by the first call.
static READY: OnceLock<watch::Receiver<bool>> = OnceLock::new();

/// Starts collecting entropy in the background, if necessary.
pub fn prepare() {
    let _ = readiness();
}

/// Waits until the kernel's generator is ready. Must be called before keys are generated.
pub(crate) async fn wait_until_ready() {
    let mut ready = readiness();
    let started = Instant::now();
    loop {
        let waiting = ready.wait_for(|ready| *ready);
        match tokio::time::timeout(WARNING_INTERVAL, waiting).await {
            Ok(_) => return,
            Err(_) => tracing::warn!(
                elapsed = ?started.elapsed(),
                "still waiting for kernel entropy; add a random number device, such as virtio-rng for virtual machines"
            ),
        }
    }
}

/// Returns a random number without blocking. It may be predictable before the generator is ready, so
/// it must not be used for secrets.
#[must_use]
pub(crate) fn random_u32() -> u32 {
    let mut bytes = [0; 4];
    match getrandom(&mut bytes, GetRandomFlags::INSECURE) {
        Ok(4) => u32::from_ne_bytes(bytes),
        // Fall back to the clock.
        Ok(_) | Err(_) => {
            std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| time.subsec_nanos())
        }
    }
}

/// Returns a random number between `low` and `high`.
#[must_use]
pub(crate) fn random_between(low: f64, high: f64) -> f64 {
    low + (high - low) * f64::from(random_u32()) / f64::from(u32::MAX)
}

fn readiness() -> watch::Receiver<bool> {
    READY.get_or_init(start_collection).clone()
}

/// Checks the generator and, if it is not ready, starts a thread that blocks until it is.
fn start_collection() -> watch::Receiver<bool> {
    let (sender, ready) = watch::channel(false);
    let mut byte = [0; 1];
    if getrandom(&mut byte, GetRandomFlags::NONBLOCK) != Err(Errno::AGAIN) {
        // Ready, or the kernel has no getrandom and the TLS libraries use another source.
        sender.send_replace(true);
        return ready;
    }
    let started = Instant::now();
    tracing::info!("kernel entropy not ready, collecting");
    let wait = move || {
        while getrandom(&mut byte, GetRandomFlags::empty()) == Err(Errno::INTR) {}
        tracing::info!(elapsed = ?started.elapsed(), "kernel entropy ready");
        sender.send_replace(true);
    };
    let thread = std::thread::Builder::new().name("entropy".into()).stack_size(128 << 10);
    if let Err(error) = thread.spawn(wait) {
        tracing::warn!(%error, "failed to spawn entropy thread");
    }
    ready
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn running_system_is_ready() {
        prepare();
        wait_until_ready().await;
        assert!((0..8).map(|_| random_u32()).collect::<std::collections::HashSet<_>>().len() > 1);
        let number = random_between(2.0, 3.0);
        assert!((2.0..=3.0).contains(&number), "{number}");
    }
}
