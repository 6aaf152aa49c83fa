// SPDX-License-Identifier: Apache-2.0
//! A server that is measured, and the machines that are invented for it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_probe::Client;
use serde_json::{Value, json};

/// A server that is measured.
pub(crate) struct Target {
    /// Its column in the table.
    pub(crate) label: &'static str,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Its process, to read its cost from.
    pub(crate) pid: Option<u32>,
    /// Tells the names of this run from those of others on the same server.
    run: u32,
}

/// What the invented machines are for; keeps their names, addresses and ids apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fleet {
    /// Those that are listed, changed and walked through their states.
    Rack = 1,
    /// Those whose agents call home.
    Agents = 2,
}

impl Target {
    pub(crate) fn new(
        label: &'static str,
        address: SocketAddr,
        pid: Option<u32>,
        run: u32,
    ) -> Self {
        Self { label, address, pid, run }
    }

    /// From a URL such as `http://127.0.0.1:6385`.
    pub(crate) fn at(label: &'static str, url: &str, pid: Option<u32>, run: u32) -> Result<Self> {
        let Some(authority) = url.trim_end_matches('/').strip_prefix("http://") else {
            bail!("{url} does not begin with http://");
        };
        let address = authority
            .to_socket_addrs()
            .with_context(|| format!("{authority} is no host and port"))?
            .next()
            .with_context(|| format!("{authority} has no address"))?;
        Ok(Self::new(label, address, pid, run))
    }

    pub(crate) fn client(&self) -> Client {
        // Ironic without Keystone takes roles at their word; without them `owner` cannot be set.
        Client::new(self.address)
            .speaking("1.109")
            .with_header("X-Roles", "admin")
            .with_header("OpenStack-System-Scope", "all")
            .with_patience(Duration::from_secs(120))
    }

    /// The id of a machine.
    pub(crate) fn uuid(&self, fleet: Fleet, number: usize) -> String {
        format!("{:08x}-{:04x}-4000-8000-{number:012x}", self.run, fleet as u16)
    }

    /// The address of its first network card.
    pub(crate) fn mac(&self, fleet: Fleet, number: usize) -> String {
        self.card(fleet, number, 0)
    }

    /// What is sent to enrol a machine: as much as a real one has.
    pub(crate) fn rack_node(&self, number: usize) -> Value {
        json!({
            "uuid": self.uuid(Fleet::Rack, number),
            "driver": "fake-hardware",
            "name": format!("bench-{:08x}-{number}", self.run),
            "resource_class": format!("bm.{}", number % 8),
            "owner": format!("owner-{}", number % 10),
            "driver_info": {
                "ipmi_address": bmc_address(number),
                "ipmi_username": "admin",
                "ipmi_password": "secret",
                "deploy_kernel": "http://10.0.0.1/agent.kernel",
                "deploy_ramdisk": "http://10.0.0.1/agent.initramfs",
            },
            "properties": {
                "cpus": 64, "memory_mb": 262_144, "local_gb": 1862, "cpu_arch": "x86_64",
                "capabilities": "boot_mode:uefi,secure_boot:true", "vendor": "acme",
            },
            "extra": {
                "rack": format!("r{:02}", number / 40),
                "unit": number % 40,
                "serial": format!("SN{number:08}"),
            },
            "description": format!("bench node {number}"),
        })
    }

    /// What is sent to enrol a machine whose agent is running already.
    pub(crate) fn agent_node(&self, number: usize) -> Value {
        json!({
            "uuid": self.uuid(Fleet::Agents, number),
            "driver": "fake-hardware",
            "name": format!("bench-agent-{:08x}-{number}", self.run),
            "deploy_interface": "direct",
            "driver_info": {"fast_track": true},
        })
    }

    /// What is sent to add its network card.
    pub(crate) fn port(&self, fleet: Fleet, number: usize) -> Value {
        json!({
            "node_uuid": self.uuid(fleet, number),
            "address": self.mac(fleet, number),
            "pxe_enabled": true,
            "local_link_connection": {
                "switch_id": "aa:bb:cc:dd:ee:ff",
                "port_id": format!("Gi1/{number}"),
                "switch_info": "tor",
            },
        })
    }

    /// What a machine's agent sends after inspection.
    pub(crate) fn inventory(&self, number: usize) -> Value {
        let mac = self.mac(Fleet::Rack, number);
        let cards: Vec<Value> = (0..4)
            .map(|card| {
                let neighbour = json!([[1, "04aabbccddeeff"], [2, format!("0545746865726e6574312f{card:02x}")]]);
                let neighbours: Vec<&Value> = neighbour.as_array().into_iter().flatten().cycle().take(8).collect();
                json!({
                    "name": format!("eth{card}"), "mac_address": self.card(Fleet::Rack, number, card),
                    "has_carrier": card < 2, "ipv6_address": null,
                    "ipv4_address": (card == 0).then(|| format!("10.1.{}.{}", number >> 8 & 255, number & 255)),
                    "lldp": neighbours, "vendor": "0x8086", "product": "0x1572", "speed_mbps": 25000,
                    "pci_address": format!("0000:3b:00.{card}"), "driver": "i40e",
                })
            })
            .collect();
        let disks: Vec<Value> = (0..8)
            .map(|disk| {
                json!({
                    "name": format!("/dev/nvme{disk}n1"), "model": "ACME NVMe 3.84TB",
                    "size": 3_840_755_982_336_u64, "rotational": false,
                    "wwn": format!("eui.{:016x}", number * 16 + disk), "serial": format!("S{number:08}{disk}"),
                    "vendor": "ACME", "by_path": format!("/dev/disk/by-path/pci-{disk}"),
                    "logical_sectors": 512, "physical_sectors": 4096,
                })
            })
            .collect();
        json!({
            "inventory": {
                "bmc_address": bmc_address(number), "bmc_v6address": null, "interfaces": cards, "disks": disks,
                "cpu": {
                    "model_name": "Acme Xeon 6", "frequency": "2800", "count": 64, "architecture": "x86_64",
                    "flags": (0..120).map(|flag| format!("flag{flag}")).collect::<Vec<_>>(), "socket_count": 2,
                },
                "memory": {"total": 274_877_906_944_u64, "physical_mb": 262_144},
                "system_vendor": {
                    "product_name": "R1", "serial_number": format!("SN{number:08}"), "manufacturer": "ACME",
                    "firmware": {"vendor": "ACME", "version": "1.2.3", "build_date": "01/01/2026"},
                },
                "boot": {"current_boot_mode": "uefi", "pxe_interface": mac}, "hostname": "localhost",
            },
            "root_disk": disks.first(), "boot_interface": mac,
            "configuration": {"collectors": ["default"], "managers": []},
        })
    }

    fn card(&self, fleet: Fleet, number: usize, card: usize) -> String {
        let [_, _, run_high, run_low] = self.run.to_be_bytes();
        let [.., high, low] = number.to_be_bytes();
        // Locally administered; the fleet and the card share the second byte.
        let second = (fleet as usize) << 4 | card;
        format!("52:{second:02x}:{run_high:02x}:{run_low:02x}:{high:02x}:{low:02x}")
    }
}

fn bmc_address(number: usize) -> String {
    format!("10.{}.{}.{}", 100 + (number >> 16), number >> 8 & 255, number & 255)
}
