// SPDX-License-Identifier: Apache-2.0
//! The networks machines boot from: a bridge for each, so that tests can run side by side and each
//! server sees one machine only.
//!
//! They are made in the network namespace of the run and go with it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::test::process::NOBODY;

/// A bridge with one machine on it. Nothing answers there unless a test serves.
#[derive(Clone, Copy)]
pub(super) struct Bridge {
    /// From 0 to 255; names and addresses follow from it.
    number: u8,
}

impl Bridge {
    pub(super) const fn new(number: u8) -> Self {
        Self { number }
    }

    /// The interface a server binds to.
    pub(super) fn name(self) -> String {
        format!("boot{}", self.number)
    }

    /// The end that the machine's network card is plugged into.
    pub(super) fn socket(self) -> String {
        format!("boot{}-machine", self.number)
    }

    /// For the inventory.
    pub(super) fn described(self) -> Value {
        json!({
            "interface": self.name(),
            "address": format!("10.77.{}.1", self.number),
            "prefix_length": 24,
            "address_v6": format!("fd77:{:x}::1", self.number),
            "prefix_length_v6": 64,
        })
    }

    /// What `ip` has to do. Addresses are there before the machine is on, hence no duplicate address
    /// detection, and a machine is heard at once, hence no delay in forwarding.
    fn commands(self) -> String {
        let Self { number } = self;
        let (bridge, socket) = (self.name(), self.socket());
        format!(
            "link add {bridge} type bridge forward_delay 0 stp_state 0 mcast_snooping 0
             address add 10.77.{number}.1/24 dev {bridge}
             address add fd77:{number:x}::1/64 dev {bridge} nodad
             tuntap add dev {socket} mode tap user {NOBODY}
             link set {socket} master {bridge} up
             link set {bridge} up
            "
        )
    }
}

/// Makes them all; for root, in a namespace of its own.
pub(super) fn make(bridges: impl Iterator<Item = Bridge>) -> Result<()> {
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
        bail!("cannot make bridges: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
