// SPDX-License-Identifier: Apache-2.0
//! The server that the measured machines call home, on a bridge of its own.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::bench::operator::{Operator, agent_called};

/// Our address on the bridge.
pub(crate) const ADDRESS: &str = "10.78.0.1";
/// What the machine's network card is plugged into.
pub(crate) const SOCKET: &str = "bench-machine";
/// What an agent is told to find the server.
pub(crate) const PARAMETERS: &str = "ipa-api-url=http://10.78.0.1:6385";
const BRIDGE: &str = "bench";
/// How long a change of state may take that touches no machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that gives machines addresses and waits for their agents.
pub(crate) struct Site {
    pub(crate) operator: Operator,
    enrolled: u8,
}

/// A machine the server knows.
pub(crate) struct Node {
    pub(crate) uuid: String,
    pub(crate) mac: String,
}

impl Site {
    /// Makes the bridge and starts the server, in a network of our own: the ports are the usual ones.
    pub(crate) fn open(ferrite: &Path, folder: &Path) -> Result<Self> {
        make_bridge()?;
        let settings = format!(
            "[boot]\nlisten = [\"{ADDRESS}:6180\"]\n[[dhcp.networks]]\n\
             interface = \"{BRIDGE}\"\naddress = \"{ADDRESS}/24\"\nmode = \"reserve\"\n\
             ranges = [\"10.78.0.10-10.78.0.250\"]\n"
        );
        let operator = Operator::start(ferrite, folder, &format!("{ADDRESS}:6385"), &settings)?;
        Ok(Self { operator, enrolled: 0 })
    }

    /// Enrols a machine whose agent may call at any time. Each boot is a machine of its own: the
    /// server tells an agent's token only once.
    pub(crate) fn enrol(&mut self) -> Result<Node> {
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
        self.operator.go(&uuid, "manage", "manageable", PATIENCE)?;
        self.operator.go(&uuid, "provide", "available", PATIENCE)?;
        // Only on a machine that is on an agent is believed to run.
        let path = format!("/v1/nodes/{uuid}/states/power");
        self.operator.expect(202, "PUT", &path, Some(&json!({"target": "power on"})))?;
        self.operator.until(&uuid, PATIENCE, |node| node["power_state"] == "power on")?;
        Ok(Node { uuid, mac })
    }

    /// Waits for the agent's first heartbeat; when it was there.
    pub(crate) fn first_heartbeat(&mut self, node: &Node, patience: Duration) -> Result<Instant> {
        self.operator.until(&node.uuid, patience, agent_called)?;
        Ok(Instant::now())
    }
}

fn make_bridge() -> Result<()> {
    let commands = format!(
        "link add {BRIDGE} type bridge forward_delay 0 stp_state 0 mcast_snooping 0
         address add {ADDRESS}/24 dev {BRIDGE}
         tuntap add dev {SOCKET} mode tap
         link set {SOCKET} master {BRIDGE} up
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
        bail!("cannot make the bridge of the measured machines");
    }
    Ok(())
}
