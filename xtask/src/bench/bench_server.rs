// SPDX-License-Identifier: Apache-2.0
//! A measured server, and the invented machines that are enrolled on it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_probe::{ProbeClient, ProbeTls};
use serde_json::{Value, json};

/// A measured server.
pub(crate) struct BenchServer {
    /// The column of the table.
    pub(crate) label: &'static str,
    pub(crate) address: SocketAddr,
    /// The process whose processor time is measured.
    pub(crate) pid: Option<u32>,
    /// Makes names and identifiers of this run unique on the server.
    run: u32,
    /// Additional headers of each request.
    headers: Vec<(&'static str, String)>,
    tls: Option<Arc<dyn ProbeTls>>,
}

/// The purpose of the invented machines; part of their names, addresses and identifiers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchFleet {
    /// Nodes that are listed, changed and provisioned.
    Rack = 1,
    /// Nodes whose agents connect.
    Agents = 2,
}

impl BenchServer {
    pub(crate) fn new(
        label: &'static str,
        address: SocketAddr,
        pid: Option<u32>,
        run: u32,
    ) -> Self {
        Self { label, address, pid, run, headers: Vec::new(), tls: None }
    }

    /// Adds a header to each request.
    pub(crate) fn with_header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Uses TLS.
    pub(crate) fn with_tls(mut self, tls: Arc<dyn ProbeTls>) -> Self {
        self.tls = Some(tls);
        self
    }

    /// From a URL such as `http://127.0.0.1:6385`.
    pub(crate) fn at(label: &'static str, url: &str, pid: Option<u32>, run: u32) -> Result<Self> {
        let Some(authority) = url.trim_end_matches('/').strip_prefix("http://") else {
            bail!("{url} does not start with http://");
        };
        let address = authority
            .to_socket_addrs()
            .with_context(|| format!("{authority} is not a host and port"))?
            .next()
            .with_context(|| format!("{authority} has no address"))?;
        Ok(Self::new(label, address, pid, run))
    }

    pub(crate) fn client(&self) -> ProbeClient {
        // Ironic without Keystone trusts these headers; without them `owner` cannot be set.
        let mut client = ProbeClient::new(self.address)
            .with_microversion("1.109")
            .with_header("X-Roles", "admin")
            .with_header("OpenStack-System-Scope", "all")
            .with_timeout(Duration::from_secs(120));
        for (name, value) in &self.headers {
            client = client.with_header(name, value);
        }
        match &self.tls {
            Some(tls) => client.with_tls(Arc::clone(tls)),
            None => client,
        }
    }

    /// The UUID of a node.
    pub(crate) fn uuid(&self, fleet: BenchFleet, number: usize) -> String {
        format!("{:08x}-{:04x}-4000-8000-{number:012x}", self.run, fleet as u16)
    }

    /// The MAC address of the first NIC.
    pub(crate) fn mac(&self, fleet: BenchFleet, number: usize) -> String {
        self.nic_mac(fleet, number, 0)
    }

    /// The body that enrols a node, with as many fields as a real one.
    pub(crate) fn rack_node(&self, number: usize) -> Value {
        json!({
            "uuid": self.uuid(BenchFleet::Rack, number),
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

    /// The body that enrols a node whose agent is already running.
    pub(crate) fn agent_node(&self, number: usize) -> Value {
        json!({
            "uuid": self.uuid(BenchFleet::Agents, number),
            "driver": "fake-hardware",
            "name": format!("bench-agent-{:08x}-{number}", self.run),
            "deploy_interface": "direct",
            "driver_info": {"fast_track": true},
        })
    }

    /// The body that creates the port of a node.
    pub(crate) fn port(&self, fleet: BenchFleet, number: usize) -> Value {
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

    /// The body of the inspection data.
    pub(crate) fn inventory(&self, number: usize) -> Value {
        let mac = self.mac(BenchFleet::Rack, number);
        let interfaces: Vec<Value> = (0..4)
            .map(|nic| {
                let neighbour = json!([[1, "04aabbccddeeff"], [2, format!("0545746865726e6574312f{nic:02x}")]]);
                let neighbours: Vec<&Value> = neighbour.as_array().into_iter().flatten().cycle().take(8).collect();
                json!({
                    "name": format!("eth{nic}"), "mac_address": self.nic_mac(BenchFleet::Rack, number, nic),
                    "has_carrier": nic < 2, "ipv6_address": null,
                    "ipv4_address": (nic == 0).then(|| format!("10.1.{}.{}", number >> 8 & 255, number & 255)),
                    "lldp": neighbours, "vendor": "0x8086", "product": "0x1572", "speed_mbps": 25000,
                    "pci_address": format!("0000:3b:00.{nic}"), "driver": "i40e",
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
                "bmc_address": bmc_address(number), "bmc_v6address": null, "interfaces": interfaces, "disks": disks,
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

    fn nic_mac(&self, fleet: BenchFleet, number: usize, nic: usize) -> String {
        let [_, _, run_high, run_low] = self.run.to_be_bytes();
        let [.., high, low] = number.to_be_bytes();
        // Locally administered; the second byte contains the fleet and the NIC.
        let second = (fleet as usize) << 4 | nic;
        format!("52:{second:02x}:{run_high:02x}:{run_low:02x}:{high:02x}:{low:02x}")
    }
}

fn bmc_address(number: usize) -> String {
    format!("10.{}.{}.{}", 100 + (number >> 16), number >> 8 & 255, number & 255)
}
