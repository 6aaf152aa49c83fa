// SPDX-License-Identifier: Apache-2.0
//! Random numbers, for waiting times and identifiers that must not be guessed.

/// Any number.
#[must_use]
pub(crate) fn number() -> u32 {
    getrandom::u32().unwrap_or_else(|_| {
        // Without a source of chance, time must do: nothing that asks here is a secret.
        std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| time.subsec_nanos())
    })
}

/// A number between two.
#[must_use]
pub(crate) fn between(low: f64, high: f64) -> f64 {
    low + (high - low) * f64::from(number()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_stays_between() {
        for _ in 0..1000 {
            assert!((0.3..=0.6).contains(&super::between(0.3, 0.6)));
        }
    }
}
