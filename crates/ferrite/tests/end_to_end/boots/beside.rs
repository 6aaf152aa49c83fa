// SPDX-License-Identifier: Apache-2.0
//! A network that has a DHCP server already, here dnsmasq: it gives the address, and Ferrite only
//! what to boot.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::site::{Site, turn_of_boot_bios};
use crate::ferrite::output_of;
use crate::real_bmcs::lab::Lab;

const MACHINE: &str = "boot-bios";

/// dnsmasq in a network namespace of its own, at the other end of a cable to the bridge: two servers
/// on one machine would share a port.
const OTHER_SERVER: &str = "read plugged && ip link set lo up \
    && ip address add 10.77.0.2/24 dev boot0-other && ip link set boot0-other up \
    && exec dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --user=root --log-facility=- \
       --pid-file= --leasefile-ro --interface=boot0-other --dhcp-authoritative \
       --dhcp-range=10.77.0.210,10.77.0.220,255.255.255.0";

#[test]
fn a_machine_boots_beside_another_dhcp_server() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of_boot_bios();
    let _other = OtherServer::start();
    let mut site = Site::open(&lab, MACHINE, "proxy", "");
    let node = site.enrol("ipxe", json!({}));
    let instance = site.instance("beside", "ferrite.dhcp=1");
    let boot = site.deploy(node, &instance);
    site.comes_up(&boot.console, "beside");
    let address = boot.console.ramdisk_said("ADDRESS").unwrap();
    assert!(address.starts_with("10.77.0.21") || address == "10.77.0.220/24", "{address}");
    let steps = [
        "dhcp: DISCOVER by iPXE (x86 BIOS) on boot0: told what to load",
        "http: the script of 52-54-00-1a-b0-10: 200 (iPXE",
        "http: kernel of the instance: 200 (iPXE",
        "http: ramdisk of the instance: 200 (iPXE",
    ];
    let seen = site.seen(&boot.node, &steps);
    let gave = seen.iter().any(|line| line.contains("given") || line.contains("offered"));
    assert!(!gave, "{seen:?}");
    site.undeploy(&boot);
}

/// A DHCP server that is not ours.
struct OtherServer(Child);

impl OtherServer {
    fn start() -> Self {
        let mut server = Command::new("unshare")
            .args(["--net", "sh", "-c", OTHER_SERVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The namespace is there a moment after the process.
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let theirs = format!("/proc/{}/ns/net", server.id());
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::fs::read_link(&theirs).unwrap() == own {
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

impl Drop for OtherServer {
    fn drop(&mut self) {
        // The cable goes with its namespace, and that with the server.
        let _already_gone = self.0.kill();
        let _already_waited_for = self.0.wait();
    }
}
