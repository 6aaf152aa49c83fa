// SPDX-License-Identifier: Apache-2.0
//! The four ways a DHCP server can stand on a network.

/// Whom the server answers, and with what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nobody.
    #[default]
    Off,
    /// Known machines whose plan is to boot from the network get boot information and never an address:
    /// another DHCP server gives those. In v6, where there is no proxy, only requests for information
    /// are answered.
    Proxy,
    /// Machines that are known get an address, and boot information when their plan says so.
    Reserve,
    /// Unknown machines get an address and what the plans give to unknown machines; known ones are
    /// answered only when they are booting something of ours, or renew an address they have.
    Discover,
}
