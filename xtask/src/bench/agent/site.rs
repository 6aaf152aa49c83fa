// SPDX-License-Identifier: Apache-2.0
//! The server of the measured machines, on its own bridge.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::bench::operator::{BenchOperator, has_agent};

/// The server's address on the bridge.
pub(crate) const ADDRESS: &str = "10.78.0.1";
/// The tap device of the machine's NIC.
pub(crate) const TAP_DEVICE: &str = "bench-machine";
/// The kernel parameters with which an agent finds the server.
pub(crate) const PARAMETERS: &str = "ipa-api-url=http://10.78.0.1:6385";
const BRIDGE: &str = "bench";
/// For state changes that need no machine.
const STATE_TIMEOUT: Duration = Duration::from_secs(60);

/// A server with DHCP for the measured machines.
pub(crate) struct BenchSite {
    pub(crate) operator: BenchOperator,
    enrolled: u8,
}

/// An enrolled machine.
pub(crate) struct EnrolledMachine {
    pub(crate) uuid: String,
    pub(crate) mac: String,
}

impl BenchSite {
    /// Creates the bridge and starts the server. The default ports are free in the isolated network.
    pub(crate) fn open(ferrite: &Path, folder: &Path) -> Result<Self> {
        create_bridge()?;
        let settings = format!(
            "[boot]\nlisten = [\"{ADDRESS}:6180\"]\n[[dhcp.networks]]\n\
             interface = \"{BRIDGE}\"\naddress = \"{ADDRESS}/24\"\nmode = \"reserve\"\n\
             ranges = [\"10.78.0.10-10.78.0.250\"]\n"
        );
        let operator =
            BenchOperator::start(ferrite, folder, &format!("{ADDRESS}:6385"), &settings)?;
        Ok(Self { operator, enrolled: 0 })
    }

    /// Enrols a machine whose agent may connect at any time. Each boot uses a new node, because the
    /// server sends the token of an agent only once.
    pub(crate) fn enrol(&mut self) -> Result<EnrolledMachine> {
        self.enrolled = self.enrolled.checked_add(1).context("too many rounds")?;
        let mac = format!("52:54:00:be:7c:{:02x}", self.enrolled);
        let node = json!({
            "driver": "fake-hardware",
            "name": format!("bench-{}", self.enrolled),
            "deploy_interface": "direct",
            "automated_clean": false,
            "driver_info": {"fast_track": true},
        });
        let uuid = self.operator.enrol(&node, &mac)?;
        self.operator.provision_and_wait(&uuid, "manage", "manageable", STATE_TIMEOUT)?;
        self.operator.provision_and_wait(&uuid, "provide", "available", STATE_TIMEOUT)?;
        // The server accepts an agent only on a machine that is powered on.
        let path = format!("/v1/nodes/{uuid}/states/power");
        self.operator.expect(202, "PUT", &path, Some(&json!({"target": "power on"})))?;
        self.operator.wait_until(&uuid, STATE_TIMEOUT, |node| node["power_state"] == "power on")?;
        Ok(EnrolledMachine { uuid, mac })
    }

    /// Waits for the agent's first heartbeat and returns its time.
    pub(crate) fn first_heartbeat(
        &mut self,
        node: &EnrolledMachine,
        timeout: Duration,
    ) -> Result<Instant> {
        self.operator.wait_until(&node.uuid, timeout, has_agent)?;
        Ok(Instant::now())
    }
}

fn create_bridge() -> Result<()> {
    let commands = format!(
        "link add {BRIDGE} type bridge forward_delay 0 stp_state 0 mcast_snooping 0
         address add {ADDRESS}/24 dev {BRIDGE}
         tuntap add dev {TAP_DEVICE} mode tap
         link set {TAP_DEVICE} master {BRIDGE} up
         link set {BRIDGE} up
        "
    );
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run ip")?;
    let mut input = ip.stdin.take().context("the input was not piped")?;
    input.write_all(commands.as_bytes())?;
    drop(input);
    if !ip.wait()?.success() {
        bail!("cannot create the bridge of the measured machines");
    }
    Ok(())
}
