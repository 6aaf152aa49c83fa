// SPDX-License-Identifier: Apache-2.0
//! What an operator may say about IPMI and serial consoles for all machines.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::BootMode;

/// How IPMI BMCs are talked to where a node's `driver_info` does not say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IpmiSettings {
    /// Seconds until a BMC must have answered a request, all repetitions and the opening of a
    /// session included. A BMC that says it is busy is asked again for as long.
    pub command_retry_timeout: u64,
    /// BMCs that are remembered, each with its session while it is in use; beyond that the longest
    /// unused is forgotten.
    pub connection_cache_size: usize,
    /// Keep BMCs from forgetting a boot device when the machine does not boot within a minute.
    pub disable_boot_timeout: bool,
    /// The boot mode of machines of which none is known: `uefi` or `bios`. Boot devices are set
    /// for one or the other.
    pub default_boot_mode: BootMode,
    /// Seconds a machine may take to reach the power state it was asked to.
    pub power_state_change_timeout: u64,
    /// Seconds an operating system may take to shut down when it was asked to.
    pub soft_power_off_timeout: u64,
}

/// Where serial consoles are served.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsoleSettings {
    /// The address to listen at, and to tell users. Nobody is asked for a password there.
    pub socat_address: String,
    /// Ports for nodes that choose none, as `first:last`.
    pub port_range: String,
    /// Seconds without a byte in either direction after which a user is disconnected; zero for
    /// never.
    pub terminal_timeout: u64,
    /// Hold the serial line of every console that is on, and keep what the machine prints: the last
    /// 64 KiB in memory, and at most `recorded_kib_per_hour` in the timeline. Without it a line is
    /// held while somebody watches, and nothing is kept.
    pub record: bool,
    /// KiB of one machine's console that go to its timeline in an hour; more is left out there, and
    /// said to be. Zero for none.
    pub recorded_kib_per_hour: u64,
}

impl ConsoleSettings {
    /// The ports of [`Self::port_range`]; none if it cannot be read.
    pub(super) fn ports(&self) -> Option<RangeInclusive<u16>> {
        let (first, last) = self.port_range.split_once(':')?;
        let (first, last) = (first.trim().parse::<u16>().ok()?, last.trim().parse().ok()?);
        (first > 0 && first <= last).then_some(first..=last)
    }
}

impl Default for IpmiSettings {
    fn default() -> Self {
        Self {
            command_retry_timeout: 15,
            connection_cache_size: 10_000,
            disable_boot_timeout: true,
            default_boot_mode: BootMode::Uefi,
            power_state_change_timeout: 60,
            soft_power_off_timeout: 600,
        }
    }
}

impl Default for ConsoleSettings {
    fn default() -> Self {
        Self {
            socat_address: "127.0.0.1".to_owned(),
            port_range: "10000:20000".to_owned(),
            terminal_timeout: 600,
            record: true,
            recorded_kib_per_hour: 128,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges() {
        for (text, ports) in [
            ("10000:20000", Some(10_000..=20_000)),
            ("7:7", Some(7..=7)),
            ("8:7", None),
            ("0:7", None),
            ("1:70000", None),
            ("10000", None),
            ("", None),
        ] {
            let settings =
                ConsoleSettings { port_range: text.to_owned(), ..ConsoleSettings::default() };
            assert_eq!(settings.ports(), ports, "{text}");
        }
    }
}
