// SPDX-License-Identifier: Apache-2.0
//! Two network namespaces with a veth pair, removed when dropped.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// The server side (`s0`, 10.77.0.1) and the machine side (`c0`), which has every address of the
/// range.
pub(crate) struct BenchNetwork {
    servers: String,
    machines: String,
}

/// The server's address.
pub(crate) const SERVER: &str = "10.77.0.1";
/// The DHCP range: first address, last address, and the network.
pub(crate) const RANGE: (&str, &str, &str) = ("10.77.64.1", "10.77.127.254", "10.77.64.0/18");

impl BenchNetwork {
    /// Creates a network; `name` is unique within the run.
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
        // Every machine is reachable at its address, but does not respond to the probe that a server
        // sends before it offers the address.
        ip(&["-n", machines, "route", "add", "local", RANGE.2, "dev", "c0"])?;
        let quiet = "echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all";
        run(network.in_machine_namespace("sh").args(["-c", quiet]))?;
        Ok(network)
    }

    /// Flushes the neighbour tables. All namespaces share their limit of a thousand entries.
    pub(crate) fn flush_neighbours(&self) -> Result<()> {
        for space in [&self.servers, &self.machines] {
            ip(&["-n", space, "neighbour", "flush", "all"])?;
        }
        Ok(())
    }

    /// A program in the namespace of the servers.
    pub(crate) fn in_server_namespace(&self, program: &str) -> Command {
        in_namespace(&self.servers, program)
    }

    /// A program in the namespace of the machines.
    pub(crate) fn in_machine_namespace(&self, program: &str) -> Command {
        in_namespace(&self.machines, program)
    }
}

impl Drop for BenchNetwork {
    fn drop(&mut self) {
        for space in [&self.servers, &self.machines] {
            let _not_there = ip(&["netns", "delete", space]);
        }
    }
}

/// `ip netns exec` becomes the program, so that its process is the child we start.
fn in_namespace(space: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", space, program]);
    command
}

fn ip(arguments: &[&str]) -> Result<()> {
    run(Command::new("ip").args(arguments))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().context("cannot start `ip`; is iproute2 installed")?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
