// SPDX-License-Identifier: Apache-2.0
//! Configures the machine's network and reports changes.
//!
//! By default, DHCPv4 runs on every interface with a link, and the kernel configures IPv6 by router
//! advertisements, with DHCPv6 where they request it. `network_data.json` on virtual media replaces
//! all of this.

mod dhcp4;
mod dhcp4_client;
mod dhcp6;
pub mod dns;
pub mod mdns;
pub mod netlink;
pub mod network_data;
pub mod sntp;
pub mod vlans;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

pub use dhcp4::Dhcp4Lease;
use dhcp4_client::LeaseChange;
use dhcp6::Dhcp6Lease;
use netlink::RtNetlink;
use network_data::NetworkData;

/// An Ethernet interface of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalInterface {
    /// The interface index.
    pub index: u32,
    /// The name.
    pub name: String,
    /// The MAC address.
    pub mac: [u8; 6],
    /// Whether the link is up.
    pub has_carrier: bool,
    /// Whether it is a NIC, not a VLAN or a bond.
    pub physical: bool,
}

impl LocalInterface {
    /// Returns the MAC address in lower case with colons.
    #[must_use]
    pub fn mac_text(&self) -> String {
        format_mac(self.mac)
    }
}

/// The machine's network. Cheap to clone.
#[derive(Clone)]
pub struct AgentNetwork(Arc<NetworkState>);

struct NetworkState {
    leases: Mutex<BTreeMap<String, Dhcp4Lease>>,
    name_servers: Mutex<Vec<IpAddr>>,
    changes: watch::Sender<u64>,
    boot_mac: Option<String>,
}

impl AgentNetwork {
    /// For a host process: the system configures the network.
    #[must_use]
    pub fn unmanaged() -> Self {
        Self::new(None)
    }

    /// Starts a task that configures the network.
    #[must_use]
    pub fn start(boot_mac: Option<String>, vlans: Vec<String>, setup: Option<NetworkData>) -> Self {
        let network = Self::new(boot_mac);
        let task = network.clone();
        tokio::spawn(async move { task.run(vlans, setup).await });
        network
    }

    fn new(boot_mac: Option<String>) -> Self {
        Self(Arc::new(NetworkState {
            leases: Mutex::default(),
            name_servers: Mutex::default(),
            changes: watch::channel(0).0,
            boot_mac,
        }))
    }

    /// Subscribes to changes of links and addresses.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Returns the DHCPv4 leases by interface name.
    #[must_use]
    pub fn leases(&self) -> BTreeMap<String, Dhcp4Lease> {
        self.0.leases.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the DNS servers; those of `/etc/resolv.conf` if none were configured here.
    #[must_use]
    pub fn name_servers(&self) -> Vec<IpAddr> {
        let leases = self.leases();
        let mut leases: Vec<_> = leases.iter().filter(|(_, lease)| is_routable(lease)).collect();
        // Prefer the boot interface, which is on the server's network.
        let boot = self.boot_interface();
        leases.sort_by_key(|(name, _)| Some(*name) != boot.as_ref());
        let mut servers: Vec<IpAddr> =
            leases.into_iter().flat_map(|(_, lease)| lease.name_servers.clone()).collect();
        servers.extend(self.0.name_servers.lock().unwrap_or_else(PoisonError::into_inner).iter());
        if servers.is_empty() {
            servers = dns::parse_resolv_conf(
                &std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
            );
        }
        servers.dedup();
        servers
    }

    /// Returns the name of the boot interface, if known.
    fn boot_interface(&self) -> Option<String> {
        let boot = self.0.boot_mac.as_deref()?;
        interfaces()
            .into_iter()
            .find(|interface| interface.mac_text() == boot)
            .map(|interface| interface.name)
    }

    /// Waits for a routable address. Returns false after the timeout.
    pub async fn wait_for_address(&self, timeout: Duration) -> bool {
        let mut changes = self.changes();
        tokio::time::timeout(timeout, async {
            while !has_routable_address() {
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        })
        .await
        .is_ok()
    }

    /// Creates VLAN interfaces, such as `eth0.100`. The configuration task then runs DHCP on them.
    pub fn create_vlans(names: &[String]) {
        if names.is_empty() {
            return;
        }
        match RtNetlink::open() {
            Ok(mut netlink) => vlans::create(&mut netlink, names),
            Err(error) => tracing::warn!(%error, "failed to create VLAN interfaces"),
        }
    }

    /// Disables all interfaces.
    pub fn disable_all() {
        let Ok(mut netlink) = RtNetlink::open() else { return };
        for interface in interfaces() {
            let _ = netlink.set_down(interface.index);
        }
    }

    async fn run(self, vlans: Vec<String>, setup: Option<NetworkData>) {
        let mut netlink = match RtNetlink::open() {
            Ok(netlink) => netlink,
            Err(error) => return tracing::error!(%error, "network configuration failed"),
        };
        // The loopback interface always has index 1.
        let _ = netlink.set_up(1);
        #[expect(deprecated, reason = "an OwnedFd keeps its descriptor as long as it lives")]
        let watcher = netlink::open_change_socket().and_then(AsyncFd::new);
        let mut started = HashSet::new();
        let mut started6 = HashSet::new();
        let mut enabled = HashSet::new();
        loop {
            for interface in interfaces() {
                if enabled.insert(interface.index)
                    && let Err(error) = netlink.set_up(interface.index)
                {
                    tracing::warn!(interface = interface.name, %error, "failed to enable interface");
                }
            }
            if let Some(setup) = &setup {
                let applied = setup.apply(&mut netlink, &mut started);
                if applied.changed {
                    self.set_name_servers(setup.name_servers());
                }
                applied
                    .dhcp_interfaces
                    .into_iter()
                    .for_each(|interface| self.start_dhcp4_client(interface));
            } else {
                vlans::create(&mut netlink, &vlans);
                self.start_dhcp4(&mut started);
                self.start_dhcp6(&mut netlink, &mut started6);
            }
            self.0.changes.send_modify(|count| *count += 1);
            if let Err(error) = wait_for_change(watcher.as_ref()).await {
                tracing::error!(%error, "network monitoring failed, changes are no longer detected");
                return std::future::pending().await;
            }
        }
    }

    /// Starts DHCPv4 on every interface with a link, on the boot interface first.
    fn start_dhcp4(&self, started: &mut HashSet<u32>) {
        let mut interfaces = interfaces();
        interfaces
            .sort_by_key(|interface| self.0.boot_mac.as_deref() != Some(&interface.mac_text()));
        for interface in interfaces {
            if interface.has_carrier && started.insert(interface.index) {
                self.start_dhcp4_client(interface);
            }
        }
    }

    /// Starts DHCPv6 on every interface whose routers request it.
    fn start_dhcp6(&self, netlink: &mut RtNetlink, started: &mut HashSet<u32>) {
        let flags = netlink.router_flags().unwrap_or_default();
        for interface in interfaces() {
            let Some(&(_, managed, other)) =
                flags.iter().find(|(index, ..)| *index == interface.index)
            else {
                continue;
            };
            if (managed || other) && started.insert(interface.index) {
                let network = self.clone();
                tokio::spawn(async move {
                    let mut previous = None;
                    let on_lease = |lease: Option<&Dhcp6Lease>| {
                        network.apply_dhcp6_lease(&interface, previous.take(), lease);
                        previous = lease.cloned();
                    };
                    dhcp6::maintain_lease(&interface, managed, on_lease).await;
                });
            }
        }
    }

    fn apply_dhcp6_lease(
        &self,
        interface: &LocalInterface,
        old: Option<Dhcp6Lease>,
        new: Option<&Dhcp6Lease>,
    ) {
        let old_address = old.as_ref().and_then(|lease| lease.address);
        let new_address = new.and_then(|lease| lease.address);
        let done = RtNetlink::open().and_then(|mut netlink| {
            if let Some(address) = old_address.filter(|_| old_address != new_address) {
                netlink.remove_address(interface.index, address.into(), 128)?;
            }
            match new_address {
                Some(address) => netlink.add_address(interface.index, address.into(), 128),
                None => Ok(()),
            }
        });
        match (done, new_address) {
            (Err(error), _) => {
                tracing::warn!(interface = interface.name, %error, "failed to set DHCPv6 address")
            }
            (Ok(()), Some(address)) if old_address != new_address => {
                tracing::info!(interface = interface.name, %address, "DHCPv6 address assigned");
            }
            (Ok(()), _) => {}
        }
        if let Some(lease) = new.filter(|lease| !lease.name_servers.is_empty()) {
            *self.0.name_servers.lock().unwrap_or_else(PoisonError::into_inner) =
                lease.name_servers.clone();
            dns::write_resolv_conf(Path::new("/etc/resolv.conf"), &self.name_servers());
        }
        self.0.changes.send_modify(|count| *count += 1);
    }

    fn start_dhcp4_client(&self, interface: LocalInterface) {
        let network = self.clone();
        tokio::spawn(async move {
            dhcp4_client::maintain_lease(&interface, |change| {
                network.apply_lease_change(&interface, change)
            })
            .await;
        });
    }

    fn apply_lease_change(&self, interface: &LocalInterface, change: LeaseChange) {
        let mut leases = self.0.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let done = RtNetlink::open().and_then(|mut netlink| match &change {
            LeaseChange::Active(lease) => {
                let known = leases.get(&interface.name);
                if let Some(old) = known.filter(|old| old.address != lease.address) {
                    let _ = netlink.remove_address(interface.index, old.address.into(), old.prefix);
                }
                if known != Some(lease) {
                    tracing::info!(interface = interface.name, address = %lease.address, prefix = lease.prefix, "DHCP address assigned");
                }
                self.configure_interface(&mut netlink, interface, lease)
            }
            LeaseChange::Lost(lease) => {
                netlink.remove_address(interface.index, lease.address.into(), lease.prefix)
            }
        });
        if let Err(error) = done {
            tracing::error!(interface = interface.name, %error, "failed to set DHCP address");
        }
        match change {
            LeaseChange::Active(lease) => {
                if let Some(name) = lease.hostname.as_ref().filter(|_| is_routable(&lease)) {
                    let _ = rustix::system::sethostname(name.as_bytes());
                }
                leases.insert(interface.name.clone(), lease);
            }
            LeaseChange::Lost(_) => {
                leases.remove(&interface.name);
            }
        }
        drop(leases);
        dns::write_resolv_conf(Path::new("/etc/resolv.conf"), &self.name_servers());
        self.0.changes.send_modify(|count| *count += 1);
    }

    fn configure_interface(
        &self,
        netlink: &mut RtNetlink,
        interface: &LocalInterface,
        lease: &Dhcp4Lease,
    ) -> io::Result<()> {
        if let Some(mtu) = lease.mtu {
            netlink.set_mtu(interface.index, u32::from(mtu))?;
        }
        netlink.add_address(interface.index, lease.address.into(), lease.prefix)?;
        // Prefer routes of the boot interface, which leads to the server.
        let boot = self.0.boot_mac.as_deref() == Some(&interface.mac_text());
        if !is_routable(lease) {
            return Ok(());
        }
        for route in &lease.routes {
            let metric = if boot { 10 } else { 100 + interface.index };
            netlink
                .add_route(interface.index, &netlink::KernelRoute { metric, ..route.clone() })?;
        }
        Ok(())
    }

    fn set_name_servers(&self, servers: Vec<IpAddr>) {
        dns::write_resolv_conf(Path::new("/etc/resolv.conf"), &servers);
        *self.0.name_servers.lock().unwrap_or_else(PoisonError::into_inner) = servers;
    }
}

/// Returns the Ethernet interfaces, sorted by index. Members of bonds are excluded.
#[must_use]
pub fn interfaces() -> Vec<LocalInterface> {
    interfaces_in(Path::new("/sys/class/net"))
}

fn interfaces_in(folder: &Path) -> Vec<LocalInterface> {
    let mut interfaces: Vec<LocalInterface> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let fact = |name: &str| {
                std::fs::read_to_string(entry.path().join(name)).map(|text| text.trim().to_owned())
            };
            // 1 is Ethernet (ARPHRD_ETHER); loopback, tunnels and InfiniBand have other types.
            (fact("type").ok()? == "1").then_some(())?;
            let physical = entry.path().join("device").exists();
            let is_virtual = entry.path().join("bonding").exists()
                || std::fs::read_to_string(entry.path().join("uevent"))
                    .is_ok_and(|text| text.contains("DEVTYPE=vlan"));
            // Members of a bond get no address.
            let in_bond = entry.path().join("master").exists();
            ((physical || is_virtual) && !in_bond).then_some(())?;
            Some(LocalInterface {
                index: fact("ifindex").ok()?.parse().ok()?,
                name: entry.file_name().into_string().ok()?,
                mac: parse_mac(&fact("address").ok()?)?,
                has_carrier: fact("carrier").is_ok_and(|text| text == "1"),
                physical,
            })
        })
        .collect();
    interfaces.sort_by_key(|interface| interface.index);
    interfaces
}

/// Returns the MAC addresses of all NICs, including members of bonds. The server looks up the node by
/// them.
#[must_use]
pub fn mac_addresses() -> Vec<String> {
    mac_addresses_in(Path::new("/sys/class/net"))
}

fn mac_addresses_in(folder: &Path) -> Vec<String> {
    let mut addresses: Vec<(u32, String)> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let fact = |name: &str| std::fs::read_to_string(entry.path().join(name)).ok();
            let ethernet = fact("type")?.trim() == "1" && entry.path().join("device").exists();
            ethernet.then_some(())?;
            // Members of a bond share its address; the kernel keeps the permanent one here.
            let permanent = fact("bonding_slave/perm_hwaddr").or_else(|| fact("address"))?;
            let text = format_mac(parse_mac(permanent.trim())?);
            Some((fact("ifindex")?.trim().parse().ok()?, text))
        })
        .collect();
    addresses.sort();
    addresses.into_iter().map(|(_, address)| address).collect()
}

/// Parses a MAC address with colons or dashes.
#[must_use]
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut address {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

fn format_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns the source address of packets to `target`. Sends nothing.
#[must_use]
pub fn source_address_for(target: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match target {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    socket.connect((target, 9)).ok()?;
    let source = socket.local_addr().ok()?.ip();
    let link_local = match source {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    (!link_local && !source.is_unspecified()).then_some(source)
}

/// Whether the lease is for a routable address. Many BMCs have a USB NIC on the machine that assigns
/// link-local addresses (169.254.0.0/16), sometimes with a gateway and DNS servers that do not work.
fn is_routable(lease: &Dhcp4Lease) -> bool {
    !lease.address.is_link_local()
}

/// Whether the machine has a routable address.
fn has_routable_address() -> bool {
    if has_routable_route(&std::fs::read_to_string("/proc/net/route").unwrap_or_default()) {
        return true;
    }
    // The fourth field is the scope (00 is global), the last the interface.
    let addresses_6 = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    addresses_6.lines().any(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        fields.get(3) == Some(&"00") && fields.get(5) != Some(&"lo")
    })
}

/// Whether `/proc/net/route` has a route other than link-local ones.
fn has_routable_route(table: &str) -> bool {
    // The second field is the destination network, as a hexadecimal number in memory byte order.
    let network = |line: &str| u32::from_str_radix(line.split_ascii_whitespace().nth(1)?, 16).ok();
    let mut networks = table.lines().skip(1).filter_map(network);
    networks.any(|network| !std::net::Ipv4Addr::from(network.to_ne_bytes()).is_link_local())
}

/// Waits for a change. Changes that arrive together are reported once.
async fn wait_for_change(
    watcher: Result<&AsyncFd<std::os::fd::OwnedFd>, &io::Error>,
) -> io::Result<()> {
    let watcher = watcher.map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let mut ready = watcher.readable().await?;
    let mut message = [0; 8192];
    loop {
        match recv(watcher.get_ref(), &mut message[..], RecvFlags::empty()) {
            // The socket buffer overflowed: the caller reads the current state anyway.
            Ok(_) | Err(rustix::io::Errno::NOBUFS) => {}
            Err(rustix::io::Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    ready.clear_ready();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_routes_are_not_routable() {
        const HEAD: &str =
            "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";
        let line = |name: &str, network: [u8; 4]| {
            format!(
                "{name} {:08X} 00000000 0001 0 0 0 0000FFFF 0 0 0\n",
                u32::from_ne_bytes(network)
            )
        };
        let usb = line("usb0", [169, 254, 0, 0]);
        assert!(
            !has_routable_route(HEAD)
                && !has_routable_route("")
                && !has_routable_route(&format!("{HEAD}{usb}"))
        );
        assert!(has_routable_route(&format!("{HEAD}{usb}{}", line("eth0", [10, 0, 2, 0]))));
        assert!(has_routable_route(&format!("{HEAD}{}", line("eth0", [0; 4]))));
    }

    #[test]
    fn lists_physical_interfaces() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, facts: &[(&str, &str)], device: bool| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            for (name, text) in facts {
                std::fs::write(path.join(name), text).unwrap();
            }
            if device {
                std::fs::create_dir(path.join("device")).unwrap();
            }
        };
        let ethernet = [
            ("type", "1\n"),
            ("ifindex", "2\n"),
            ("address", "52:54:00:aa:bb:01\n"),
            ("carrier", "1\n"),
        ];
        make("eth0", &ethernet, true);
        make("docker0", &ethernet, false);
        make(
            "lo",
            &[("type", "772\n"), ("ifindex", "1\n"), ("address", "00:00:00:00:00:00\n")],
            false,
        );
        let interfaces = interfaces_in(folder.path());
        assert_eq!(interfaces.len(), 1);
        assert_eq!(interfaces[0].mac_text(), "52:54:00:aa:bb:01");
        assert!(interfaces[0].has_carrier && interfaces[0].physical);
        let bonded = folder.path().join("eth0/bonding_slave");
        std::fs::create_dir(&bonded).unwrap();
        std::fs::write(bonded.join("perm_hwaddr"), "52:54:00:aa:bb:02\n").unwrap();
        std::fs::create_dir(folder.path().join("eth0/master")).unwrap();
        assert!(interfaces_in(folder.path()).is_empty());
        assert_eq!(mac_addresses_in(folder.path()), ["52:54:00:aa:bb:02"]);
    }
}
