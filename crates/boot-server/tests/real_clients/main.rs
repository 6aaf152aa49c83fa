// SPDX-License-Identifier: Apache-2.0
//! Counterpart tests: Debian's DHCP, TFTP and HTTP clients against the boot servers, in network namespaces.
//!
//! They need root and the programs `udhcpc`, `isc-dhcp-client`, `isc-dhcp-relay`, `dhcpcd-base`,
//! `dnsmasq-base`, `curl`, `wget`, `tftp-hpa`, `atftp` and `nftables`. Without them the tests print that they
//! are skipped and pass; with `FERRITE_TEST_SERVERS=required` they fail.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is tests")]

mod dhcp;
mod http;
mod lab;
mod loss;
mod many_machines;
mod proxy;
mod tftp;
