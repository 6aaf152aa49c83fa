// SPDX-License-Identifier: Apache-2.0
//! Debian's DHCP, TFTP and HTTP clients against our servers, in network namespaces made for each test.
//!
//! Needs root and the programs (`udhcpc`, `isc-dhcp-client`, `isc-dhcp-relay`, `dhcpcd-base`,
//! `dnsmasq-base`, `curl`, `wget`, `tftp-hpa`, `atftp`, `nftables`). Without them the tests say so and pass; with `FERRITE_TEST_SERVERS=required`
//! their absence is a failure.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is tests")]

mod crowd;
mod dhcp;
mod http;
mod lab;
mod loss;
mod proxy;
mod tftp;
