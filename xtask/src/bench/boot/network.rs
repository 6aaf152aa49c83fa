// SPDX-License-Identifier: Apache-2.0
//! Two network namespaces and a cable, gone when dropped.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// A server's end (`s0`, 10.77.0.1) and the machines' end (`c0`), which has every address that is
/// handed out.
pub(crate) struct Network {
    servers: String,
    machines: String,
}

/// The server's address.
pub(crate) const SERVER: &str = "10.77.0.1";
/// What is handed out: the first, the last, and all of it as a network.
pub(crate) const RANGE: (&str, &str, &str) = ("10.77.64.1", "10.77.127.254", "10.77.64.0/18");

impl Network {
    /// A new network; the name tells it from others of this run.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let prefix = format!("bb{}-{name}", std::process::id());
        let network =
            Self { servers: format!("{prefix}-servers"), machines: format!("{prefix}-machines") };
        let (servers, machines) = (&*network.servers, &*network.machines);
        for space in [servers, machines] {
            ip(&["netns", "add", space])?;
            ip(&["-n", space, "link", "set", "lo", "up"])?;
        }
        ip(&[
            "link", "add", "s0", "netns", servers, "type", "veth", "peer", "name", "c0", "netns",
            machines,
        ])?;
        for (space, link, address) in
            [(servers, "s0", "10.77.0.1/16"), (machines, "c0", "10.77.0.2/16")]
        {
            ip(&["-n", space, "address", "add", address, "dev", link])?;
            ip(&["-n", space, "link", "set", link, "up"])?;
        }
        ip(&["-n", machines, "route", "add", "255.255.255.255/32", "dev", "c0"])?;
        // Every machine is reachable at its address as soon as it has one, and does not answer a
        // server that probes the address before.
        ip(&["-n", machines, "route", "add", "local", RANGE.2, "dev", "c0"])?;
        let quiet = "echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all";
        run(network.beside_machines("sh").args(["-c", quiet]))?;
        Ok(network)
    }

    /// Empties the kernel's tables of neighbours, which all namespaces share the room of: a thousand
    /// entries, where each side leaves as many as it had machines.
    pub(crate) fn forget_neighbours(&self) -> Result<()> {
        for space in [&self.servers, &self.machines] {
            ip(&["-n", space, "neighbour", "flush", "all"])?;
        }
        Ok(())
    }

    /// A program next to the servers.
    pub(crate) fn beside_servers(&self, program: &str) -> Command {
        inside(&self.servers, program)
    }

    /// A program next to the machines.
    pub(crate) fn beside_machines(&self, program: &str) -> Command {
        inside(&self.machines, program)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for space in [&self.servers, &self.machines] {
            let _not_there = ip(&["netns", "delete", space]);
        }
    }
}

/// `ip netns exec` becomes the program, so that its process is the child we start.
fn inside(space: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", space, program]);
    command
}

fn ip(arguments: &[&str]) -> Result<()> {
    run(Command::new("ip").args(arguments))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().context("cannot start `ip`; is iproute2 there")?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
