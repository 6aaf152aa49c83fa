// SPDX-License-Identifier: Apache-2.0
//! The network of a cluster: one bridge, one network namespace per node and per pod, and addresses
//! of Services that are local to the namespace of the test program.
//!
//! Each cluster has a range of its own, so several can run in one namespace. All names and addresses
//! disappear with the namespace of the test run, or with the folder of the cluster.

use std::net::Ipv4Addr;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use crate::process::{ChildProcess, dies_with_tests};

/// Second octets of the ranges. Those of the lab and of other tests are below.
const RANGES: std::ops::RangeInclusive<u8> = 128..=223;

/// The range and the bridge of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterNetwork {
    range: u8,
}

impl ClusterNetwork {
    /// Creates a bridge with a free range.
    pub(crate) fn create() -> Result<Self> {
        check_isolation()?;
        for range in RANGES {
            let network = Self { range };
            // Fails if another cluster has the range.
            let created =
                ip(&["link", "add", &network.bridge(), "type", "bridge", "forward_delay", "0"])?;
            if created.status.success() {
                network.configure()?;
                return Ok(network);
            }
            let error = String::from_utf8_lossy(&created.stderr).into_owned();
            if !error.contains("File exists") {
                bail!("cannot create a bridge: {}", error.trim());
            }
        }
        bail!("all address ranges for clusters are in use")
    }

    fn configure(self) -> Result<()> {
        let bridge = self.bridge();
        run_ip(&["address", "add", &format!("{}/17", self.host_address()), "dev", &bridge])?;
        run_ip(&["link", "set", &bridge, "up"])?;
        // The route of a cluster that ended may still exist: it is not removed with its bridge.
        run_ip(&["route", "replace", "local", &self.service_range(), "dev", "lo"])
    }

    /// The name of the bridge.
    pub(crate) fn bridge(self) -> String {
        format!("cluster{}", self.range)
    }

    /// The address of the test program, of the control plane and of the default route.
    pub(crate) fn host_address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.range, 0, 1)
    }

    /// The addresses of Services.
    pub(crate) fn service_range(self) -> String {
        format!("10.{}.128.0/17", self.range)
    }

    /// The address of the Service `kubernetes`, which is the first.
    pub(crate) fn api_service_address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.range, 128, 1)
    }
}

/// Addresses and interfaces must not be created in the network of the machine.
fn check_isolation() -> Result<()> {
    let routes = std::fs::read_to_string("/proc/self/net/route").context("cannot list routes")?;
    let has_default = routes.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, "00000000", _, _, _, _, _, "00000000", ..])
    });
    if has_default {
        bail!(
            "the cluster needs a network of its own: run the tests with `cargo xtask with-kube`, \
             for example `cargo xtask with-kube cargo test -p ferrite --test kube`"
        );
    }
    Ok(())
}

fn ip(arguments: &[&str]) -> Result<Output> {
    Command::new("ip").args(arguments).output().context("cannot run ip")
}

/// Runs `ip`. Fails with its error message.
pub(crate) fn run_ip(arguments: &[&str]) -> Result<()> {
    let output = ip(arguments)?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("`ip {}` failed: {}", arguments.join(" "), error.trim());
    }
    Ok(())
}

/// Connects a process that has a network namespace of its own to the bridge. It may not have entered
/// it yet.
const CONNECT: &str = r#"
set -e
process=$1 interface=$2 bridge=$3 address=$4 gateway=$5
outside=$(readlink /proc/self/ns/net)
while [ "$(readlink "/proc/$process/ns/net")" = "$outside" ]; do sleep 0.01; done
# The previous namespace of a restored node may not be gone yet.
ip link delete "$interface" 2>/dev/null || :
ip link add "$interface" type veth peer name eth0 netns "$process"
ip link set "$interface" master "$bridge" up
nsenter --target "$process" --net ip -batch - <<COMMANDS
link set lo up
address add $address dev eth0
link set eth0 up
route add default via $gateway
COMMANDS
"#;

/// A network namespace that is connected to the bridge, held by a process that only sleeps.
#[derive(Clone, Debug)]
pub(crate) struct ConnectedNamespace {
    pub(crate) holder: ChildProcess,
    pub(crate) address: Ipv4Addr,
}

impl ConnectedNamespace {
    /// Creates it with the address whose last two octets are `number`.
    pub(crate) async fn create(network: ClusterNetwork, number: u16) -> Result<Self> {
        let [high, low] = number.to_be_bytes();
        let address = Ipv4Addr::new(10, network.range, high, low);
        let mut holder = dies_with_tests("unshare");
        holder.args(["--net", "--", "sleep", "infinity"]);
        let holder = ChildProcess::start(holder).context("cannot run unshare")?;
        let namespace = Self { holder, address };
        let process = namespace.holder.pid().as_raw_nonzero().to_string();
        let interface = format!("pod{}-{number}", network.range);
        let mut connect = Command::new("sh");
        connect.args(["-c", CONNECT, "sh", &process, &interface, &network.bridge()]);
        connect.args([format!("{address}/17"), network.host_address().to_string()]);
        let output = tokio::task::spawn_blocking(move || connect.output()).await??;
        if !output.status.success() {
            namespace.holder.kill();
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("cannot create the network {address}: {}", error.trim());
        }
        Ok(namespace)
    }
}
