// SPDX-License-Identifier: Apache-2.0
//! A network with another DHCP server (dnsmasq): it assigns the address, and Ferrite only the boot file.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::boot_site::{BootSite, lock_boot_bios};
use crate::real_bmcs::lab::LabInventory;
use crate::test_process::output_of;

const MACHINE: &str = "boot-bios";

/// dnsmasq in its own network namespace, connected to the bridge by a veth pair, because two servers on
/// one host would share a port.
const OTHER_SERVER: &str = "read plugged && ip link set lo up \
    && ip address add 10.77.0.2/24 dev boot0-other && ip link set boot0-other up \
    && exec dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --user=root --log-facility=- \
       --pid-file= --leasefile-ro --interface=boot0-other --dhcp-authoritative \
       --dhcp-range=10.77.0.210,10.77.0.220,255.255.255.0";

#[test]
fn boots_with_another_dhcp_server_in_the_network() {
    let Some(lab) = LabInventory::find() else { return };
    let _lock = lock_boot_bios();
    let _other = OtherDhcpServer::start();
    let mut site = BootSite::start(&lab, MACHINE, "proxy", "");
    let node = site.enrol("ipxe", json!({}));
    let instance = site.instance("beside", "ferrite.dhcp=1");
    let boot = site.deploy(node, &instance);
    site.wait_until_up(&boot.console, "beside");
    let address = boot.console.ramdisk_value("ADDRESS").unwrap();
    assert!(address.starts_with("10.77.0.21") || address == "10.77.0.220/24", "{address}");
    let steps = [
        "dhcp: DISCOVER from iPXE (x86 BIOS) on boot0: sent boot file",
        "http: iPXE script of 52-54-00-1a-b0-10: 200 (iPXE",
        "http: kernel of the instance: 200 (iPXE",
        "http: ramdisk of the instance: 200 (iPXE",
    ];
    let seen = site.wait_for_activity(&boot.node, &steps);
    let has_address = seen.iter().any(|line| line.contains("leased") || line.contains("offered"));
    assert!(!has_address, "{seen:?}");
    site.undeploy(&boot);
}

/// Another DHCP server.
struct OtherDhcpServer(Child);

impl OtherDhcpServer {
    fn start() -> Self {
        let mut server = Command::new("unshare")
            .args(["--net", "sh", "-c", OTHER_SERVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The namespace is created shortly after the process.
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let other = format!("/proc/{}/ns/net", server.id());
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::fs::read_link(&other).unwrap() == own {
            assert!(Instant::now() < deadline, "no namespace");
            std::thread::sleep(Duration::from_millis(10));
        }
        let plug = format!(
            "ip link add boot0-cable type veth peer name boot0-other \
             && ip link set boot0-other netns {} && ip link set boot0-cable master boot0 up",
            server.id()
        );
        let plugged = output_of(Command::new("sh").args(["-c", &plug]));
        assert!(plugged.status.success(), "{}", String::from_utf8_lossy(&plugged.stderr));
        server.stdin.take().unwrap().write_all(b"plugged\n").unwrap();
        Self(server)
    }
}

impl Drop for OtherDhcpServer {
    fn drop(&mut self) {
        // The veth pair is removed with its namespace, and that with the server.
        let _exited = self.0.kill();
        let _waited = self.0.wait();
    }
}
