// SPDX-License-Identifier: Apache-2.0
//! The boot networks: one bridge per machine, so that tests can run in parallel and each server
//! sees one machine only.
//!
//! They are created in the network namespace of the run and disappear with it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::test::process::UNPRIVILEGED_USER;

/// A bridge with one machine. No DHCP server runs there unless a test starts one.
#[derive(Clone, Copy)]
pub(super) struct Bridge {
    /// From 0 to 255; names and addresses are derived from it.
    number: u8,
}

impl Bridge {
    pub(super) const fn new(number: u8) -> Self {
        Self { number }
    }

    /// The interface that servers bind to.
    pub(super) fn name(self) -> String {
        format!("boot{}", self.number)
    }

    /// The tap device of the machine's NIC.
    pub(super) fn tap_device(self) -> String {
        format!("boot{}-machine", self.number)
    }

    /// The entry in the inventory of the lab.
    pub(super) fn inventory_entry(self) -> Value {
        json!({
            "interface": self.name(),
            "address": format!("10.77.{}.1", self.number),
            "prefix_length": 24,
            "address_v6": format!("fd77:{:x}::1", self.number),
            "prefix_length_v6": 64,
        })
    }

    /// The `ip` commands that create the bridge. There is no duplicate address detection, so that
    /// addresses are usable at once, and no forwarding delay, so that the first packet arrives.
    fn commands(self) -> String {
        let Self { number } = self;
        let (bridge, socket) = (self.name(), self.tap_device());
        format!(
            "link add {bridge} type bridge forward_delay 0 stp_state 0 mcast_snooping 0
             address add 10.77.{number}.1/24 dev {bridge}
             address add fd77:{number:x}::1/64 dev {bridge} nodad
             tuntap add dev {socket} mode tap user {UNPRIVILEGED_USER}
             link set {socket} master {bridge} up
             link set {bridge} up
            "
        )
    }
}

/// Creates the bridges. Needs root.
pub(super) fn create_all(bridges: impl Iterator<Item = Bridge>) -> Result<()> {
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run ip")?;
    let mut input = ip.stdin.take().context("the input was not piped")?;
    input.write_all(bridges.map(Bridge::commands).collect::<String>().as_bytes())?;
    drop(input);
    let output = ip.wait_with_output()?;
    if !output.status.success() {
        bail!("cannot create bridges: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
