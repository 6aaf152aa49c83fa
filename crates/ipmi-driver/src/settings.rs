// SPDX-License-Identifier: Apache-2.0
//! Settings of IPMI and serial consoles.

use std::ops::RangeInclusive;

use drivers::BootMode;
use serde::{Deserialize, Serialize};

/// Settings of IPMI BMCs; a node's `driver_info` overrides them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IpmiSettings {
    /// Timeout of a request in seconds, including retries and opening a session. A busy BMC is retried
    /// for as long.
    pub command_retry_timeout: u64,
    /// Maximum number of cached BMC clients; above it the least recently used is removed.
    pub connection_cache_size: usize,
    /// Disables the BMC timeout that drops a boot device if the machine does not boot within a minute.
    pub disable_boot_timeout: bool,
    /// The boot mode of machines with no known one: `uefi` or `bios`. It is part of the boot device
    /// setting.
    pub default_boot_mode: BootMode,
    /// Timeout of a power state change in seconds.
    pub power_state_change_timeout: u64,
    /// Timeout of a shutdown by the operating system in seconds.
    pub soft_power_off_timeout: u64,
}

/// Settings of serial consoles.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsoleSettings {
    /// The address to listen on, also used in console URLs. Connections are not authenticated.
    pub socat_address: String,
    /// Ports for nodes without `ipmi_terminal_port`, as `first:last`.
    pub port_range: String,
    /// Seconds without data in either direction after which a client is disconnected; zero for never.
    pub terminal_timeout: u64,
    /// Keeps the session of every enabled console open and records the output: the last 64 KiB in
    /// memory, and at most `recorded_kib_per_hour` in the timeline. Otherwise sessions are open only
    /// while there are watchers, and nothing is recorded.
    pub record: bool,
    /// KiB of console output per machine and hour recorded in the timeline; more is omitted with a
    /// notice. Zero for none.
    pub recorded_kib_per_hour: u64,
}

impl ConsoleSettings {
    /// The ports of [`Self::port_range`]; `None` if it is invalid.
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
    fn parses_port_ranges() {
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

/// The ports of consoles cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("console.port_range is '{port_range}', which is not first:last, such as 10000:20000")]
pub struct IpmiSettingsError {
    /// The configured value.
    pub port_range: String,
}
