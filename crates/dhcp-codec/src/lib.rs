// SPDX-License-Identifier: Apache-2.0
//! Encodes and decodes DHCPv4 ([`v4`]) and DHCPv6 ([`v6`]) messages, without IO.
//!
//! The boot server, the agent's DHCP clients and the boot benchmark share this codec. Options are stored
//! as bytes and interpreted when a caller reads them, so a malformed option that no caller reads does not
//! make the message unusable. No input panics. `docs/decisions/0009-own-dhcp-codec.md` has the reasons for
//! an own codec.

mod hardware_address;
pub mod v4;
pub mod v6;

pub use hardware_address::HardwareAddress;
