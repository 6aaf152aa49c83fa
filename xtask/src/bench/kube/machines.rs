// SPDX-License-Identifier: Apache-2.0
//! Simulated machines: `ferrite sim` with Redfish BMCs and agents.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::test::process::{Process, with_death_signal};

/// High, because the operator is measured and not the machines.
const SPEED: &str = "50";

/// A process with simulated machines.
pub(super) struct SimulatedMachines {
    _process: Process,
    inventory: PathBuf,
}

/// How a host reaches its machine.
pub(super) struct MachineAddress {
    /// In the form of `spec.bmc.address`.
    pub(super) bmc: String,
    /// The MAC address of the first NIC.
    pub(super) mac: String,
}

impl SimulatedMachines {
    /// Starts `count` machines whose agents call the API at `api`. `number` is that of the process, and
    /// makes its machines different from those of others.
    pub(super) fn start(
        ferrite: &Path,
        folder: &Path,
        number: usize,
        count: usize,
        api: &str,
    ) -> Result<Self> {
        let inventory = folder.join(format!("machines-{number}.json"));
        let log = folder.join(format!("machines-{number}.log"));
        let mut command = with_death_signal(ferrite, "KILL", folder);
        command.args(["sim", "--port", "0", "--personality", "generic", "--speed", SPEED]);
        command.args(["--bmcs", &count.to_string(), "--seed", &(number + 1).to_string()]);
        command.args(["--agents", api, "--agents-tls", "--inventory"]).arg(&inventory);
        let mut process = Process::start("ferrite sim", "TERM", command, log.clone())?;
        // Printed after the inventory was written.
        process.wait_until(|| {
            fs::read_to_string(&log).is_ok_and(|text| text.contains(" simulated BMC"))
        })?;
        Ok(Self { _process: process, inventory })
    }

    /// Reads the addresses of all machines.
    pub(super) fn addresses(&self) -> Result<Vec<MachineAddress>> {
        let inventory: Value = serde_json::from_slice(&fs::read(&self.inventory)?)?;
        let machines = inventory.as_array().context("the inventory is not a list")?;
        machines.iter().map(|it| machine_address(it).context("a machine has no address")).collect()
    }
}

fn machine_address(machine: &Value) -> Option<MachineAddress> {
    let info = &machine["driver_info"];
    let (address, system) =
        (info["redfish_address"].as_str()?, info["redfish_system_id"].as_str()?);
    Some(MachineAddress {
        bmc: format!("redfish-virtualmedia+{address}{system}"),
        mac: machine["ports"][0]["address"].as_str()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_have_the_form_of_hosts() {
        let machine = json!({
            "driver_info": {"redfish_address": "http://127.0.0.1:8000",
                "redfish_system_id": "/redfish/v1/Systems/1"},
            "ports": [{"address": "52:54:00:00:00:01"}],
        });
        let address = machine_address(&machine).unwrap();
        assert_eq!(address.bmc, "redfish-virtualmedia+http://127.0.0.1:8000/redfish/v1/Systems/1");
        assert_eq!(address.mac, "52:54:00:00:00:01");
        assert!(machine_address(&json!({})).is_none());
    }
}
