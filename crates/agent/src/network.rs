// SPDX-License-Identifier: Apache-2.0
//! The machine's network: every card with a cable gets an address, and those who wait for one are
//! told.
//!
//! Without being told otherwise, all cards ask DHCP at once, and IPv6 is left to the kernel's own
//! autoconfiguration, with DHCPv6 where routers ask for it. A medium may bring `network_data`
//! instead, which is then all there is.

mod dhcp4;
mod dhcp4_client;
mod dhcp6;
pub mod dns;
pub mod mdns;
pub mod netlink;
pub mod sntp;
pub mod static_setup;
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

pub use dhcp4::Lease;
use dhcp4_client::Change;
use dhcp6::Lease6;
use netlink::Kernel;
use static_setup::StaticSetup;

/// A network card of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    /// The kernel's number for it.
    pub index: u32,
    /// The kernel's name for it.
    pub name: String,
    /// Its hardware address.
    pub address: [u8; 6],
    /// Whether there is something at the other end.
    pub has_carrier: bool,
    /// Whether it is made of hardware, rather than of other cards.
    pub physical: bool,
}

impl Card {
    /// Its hardware address as it is written.
    #[must_use]
    pub fn mac(&self) -> String {
        self.address.map(|byte| format!("{byte:02x}")).join(":")
    }
}

/// The network. Cheap to clone.
#[derive(Clone)]
pub struct Network(Arc<Shared>);

struct Shared {
    leases: Mutex<BTreeMap<String, Lease>>,
    name_servers: Mutex<Vec<IpAddr>>,
    changes: watch::Sender<u64>,
    boot_mac: Option<String>,
}

impl Network {
    /// On a machine whose network somebody else takes care of.
    #[must_use]
    pub fn of_others() -> Self {
        Self::new(None)
    }

    /// Takes care of the machine's network from now on.
    #[must_use]
    pub fn start(boot_mac: Option<String>, vlans: Vec<String>, setup: Option<StaticSetup>) -> Self {
        let network = Self::new(boot_mac);
        let followed = network.clone();
        tokio::spawn(async move { followed.follow(vlans, setup).await });
        network
    }

    fn new(boot_mac: Option<String>) -> Self {
        Self(Arc::new(Shared {
            leases: Mutex::default(),
            name_servers: Mutex::default(),
            changes: watch::channel(0).0,
            boot_mac,
        }))
    }

    /// Changes whenever a card gets or loses an address.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// What DHCP gave, by the names of the cards.
    #[must_use]
    pub fn leases(&self) -> BTreeMap<String, Lease> {
        self.0.leases.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The name servers; those in `/etc/resolv.conf` where somebody else takes care.
    #[must_use]
    pub fn name_servers(&self) -> Vec<IpAddr> {
        let leases = self.leases();
        let mut leases: Vec<_> = leases.iter().filter(|(_, lease)| leads_anywhere(lease)).collect();
        // The card the machine booted from is on the server's network.
        let boot = self.boot_card();
        leases.sort_by_key(|(name, _)| Some(*name) != boot.as_ref());
        let mut servers: Vec<IpAddr> =
            leases.into_iter().flat_map(|(_, lease)| lease.name_servers.clone()).collect();
        servers.extend(self.0.name_servers.lock().unwrap_or_else(PoisonError::into_inner).iter());
        if servers.is_empty() {
            servers =
                dns::servers_in(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
        }
        servers.dedup();
        servers
    }

    /// The name of the card the machine booted from, if it is known.
    fn boot_card(&self) -> Option<String> {
        let boot = self.0.boot_mac.as_deref()?;
        cards().into_iter().find(|card| card.mac() == boot).map(|card| card.name)
    }

    /// Returns when there is any address beside those every machine has, or after the bound.
    pub async fn wait_for_address(&self, bound: Duration) -> bool {
        let mut changes = self.changes();
        tokio::time::timeout(bound, async {
            while !has_address() {
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        })
        .await
        .is_ok()
    }

    /// Makes VLANs, as `eth0.100`. Whoever follows the network finds them and asks DHCP there.
    pub fn make_vlans(names: &[String]) {
        if names.is_empty() {
            return;
        }
        match Kernel::open() {
            Ok(mut kernel) => vlans::make(&mut kernel, names),
            Err(error) => tracing::warn!(%error, "VLANs could not be made"),
        }
    }

    /// Switches every card off, so that nobody can reach the machine any more.
    pub fn shut_down() {
        let Ok(mut kernel) = Kernel::open() else { return };
        for card in cards() {
            let _ = kernel.set_down(card.index);
        }
    }

    async fn follow(self, vlans: Vec<String>, setup: Option<StaticSetup>) {
        let mut kernel = match Kernel::open() {
            Ok(kernel) => kernel,
            Err(error) => return tracing::error!(%error, "the network cannot be set up"),
        };
        // The loopback interface is always the first.
        let _ = kernel.set_up(1);
        #[expect(deprecated, reason = "an OwnedFd keeps its descriptor as long as it lives")]
        let watcher = netlink::changes().and_then(AsyncFd::new);
        let mut started = HashSet::new();
        let mut started6 = HashSet::new();
        let mut switched_on = HashSet::new();
        loop {
            for card in cards() {
                if switched_on.insert(card.index)
                    && let Err(error) = kernel.set_up(card.index)
                {
                    tracing::warn!(card = card.name, %error, "a card could not be switched on");
                }
            }
            if let Some(setup) = &setup {
                let applied = setup.apply(&mut kernel, &mut started);
                if applied.changed {
                    self.set_name_servers(setup.name_servers());
                }
                applied.ask_dhcp.into_iter().for_each(|card| self.keep_address(card));
            } else {
                vlans::make(&mut kernel, &vlans);
                self.start_dhcp(&mut started);
                self.start_dhcp6(&mut kernel, &mut started6);
            }
            self.0.changes.send_modify(|count| *count += 1);
            if let Err(error) = next_change(watcher.as_ref()).await {
                tracing::error!(%error, "changes of the network are not noticed any more");
                return std::future::pending().await;
            }
        }
    }

    /// Starts DHCP on every card that has a cable now, the one the machine booted from first.
    fn start_dhcp(&self, started: &mut HashSet<u32>) {
        let mut cards = cards();
        cards.sort_by_key(|card| self.0.boot_mac.as_deref() != Some(&card.mac()));
        for card in cards {
            if card.has_carrier && started.insert(card.index) {
                self.keep_address(card);
            }
        }
    }

    /// Starts DHCPv6 on every card whose routers say so.
    fn start_dhcp6(&self, kernel: &mut Kernel, started: &mut HashSet<u32>) {
        let flags = kernel.router_flags().unwrap_or_default();
        for card in cards() {
            let Some(&(_, managed, other)) = flags.iter().find(|(index, ..)| *index == card.index)
            else {
                continue;
            };
            if (managed || other) && started.insert(card.index) {
                let network = self.clone();
                tokio::spawn(async move {
                    let mut had = None;
                    let tell = |lease: Option<&Lease6>| {
                        network.apply6(&card, had.take(), lease);
                        had = lease.cloned();
                    };
                    dhcp6::keep(&card, managed, tell).await;
                });
            }
        }
    }

    fn apply6(&self, card: &Card, old: Option<Lease6>, new: Option<&Lease6>) {
        let old_address = old.as_ref().and_then(|lease| lease.address);
        let new_address = new.and_then(|lease| lease.address);
        let done = Kernel::open().and_then(|mut kernel| {
            if let Some(address) = old_address.filter(|_| old_address != new_address) {
                kernel.remove_address(card.index, address.into(), 128)?;
            }
            match new_address {
                Some(address) => kernel.add_address(card.index, address.into(), 128),
                None => Ok(()),
            }
        });
        match (done, new_address) {
            (Err(error), _) => {
                tracing::warn!(card = card.name, %error, "an address could not be set")
            }
            (Ok(()), Some(address)) if old_address != new_address => {
                tracing::info!(card = card.name, %address, "DHCPv6 gave an address");
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

    fn keep_address(&self, card: Card) {
        let network = self.clone();
        tokio::spawn(async move {
            dhcp4_client::keep(&card, |change| network.apply(&card, change)).await;
        });
    }

    fn apply(&self, card: &Card, change: Change) {
        let mut leases = self.0.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let done = Kernel::open().and_then(|mut kernel| match &change {
            Change::Has(lease) => {
                let known = leases.get(&card.name);
                if let Some(old) = known.filter(|old| old.address != lease.address) {
                    let _ = kernel.remove_address(card.index, old.address.into(), old.prefix);
                }
                if known != Some(lease) {
                    tracing::info!(card = card.name, address = %lease.address, prefix = lease.prefix, "DHCP gave an address");
                }
                self.configure(&mut kernel, card, lease)
            }
            Change::Lost(lease) => {
                kernel.remove_address(card.index, lease.address.into(), lease.prefix)
            }
        });
        if let Err(error) = done {
            tracing::error!(card = card.name, %error, "an address could not be set");
        }
        match change {
            Change::Has(lease) => {
                if let Some(name) = lease.hostname.as_ref().filter(|_| leads_anywhere(&lease)) {
                    let _ = rustix::system::sethostname(name.as_bytes());
                }
                leases.insert(card.name.clone(), lease);
            }
            Change::Lost(_) => {
                leases.remove(&card.name);
            }
        }
        drop(leases);
        dns::write_resolv_conf(Path::new("/etc/resolv.conf"), &self.name_servers());
        self.0.changes.send_modify(|count| *count += 1);
    }

    fn configure(&self, kernel: &mut Kernel, card: &Card, lease: &Lease) -> io::Result<()> {
        if let Some(mtu) = lease.mtu {
            kernel.set_mtu(card.index, u32::from(mtu))?;
        }
        kernel.add_address(card.index, lease.address.into(), lease.prefix)?;
        // The way the machine booted is the way to the server.
        let boot = self.0.boot_mac.as_deref() == Some(&card.mac());
        if !leads_anywhere(lease) {
            return Ok(());
        }
        for route in &lease.routes {
            let metric = if boot { 10 } else { 100 + card.index };
            kernel.add_route(card.index, &netlink::Route { metric, ..route.clone() })?;
        }
        Ok(())
    }

    fn set_name_servers(&self, servers: Vec<IpAddr>) {
        dns::write_resolv_conf(Path::new("/etc/resolv.conf"), &servers);
        *self.0.name_servers.lock().unwrap_or_else(PoisonError::into_inner) = servers;
    }
}

/// The machine's cards, by their numbers.
#[must_use]
pub fn cards() -> Vec<Card> {
    cards_in(Path::new("/sys/class/net"))
}

fn cards_in(folder: &Path) -> Vec<Card> {
    let mut cards: Vec<Card> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let fact = |name: &str| {
                std::fs::read_to_string(entry.path().join(name)).map(|text| text.trim().to_owned())
            };
            // 1 is Ethernet; loopback, tunnels and InfiniBand are other numbers.
            (fact("type").ok()? == "1").then_some(())?;
            let physical = entry.path().join("device").exists();
            let made_of_others = entry.path().join("bonding").exists()
                || std::fs::read_to_string(entry.path().join("uevent"))
                    .is_ok_and(|text| text.contains("DEVTYPE=vlan"));
            // A card in a bond has no address of its own.
            let in_bond = entry.path().join("master").exists();
            ((physical || made_of_others) && !in_bond).then_some(())?;
            Some(Card {
                index: fact("ifindex").ok()?.parse().ok()?,
                name: entry.file_name().into_string().ok()?,
                address: parse_mac(&fact("address").ok()?)?,
                has_carrier: fact("carrier").is_ok_and(|text| text == "1"),
                physical,
            })
        })
        .collect();
    cards.sort_by_key(|card| card.index);
    cards
}

/// The hardware addresses of all cards made of hardware, those in bonds too. These are what a server
/// knows the machine by.
#[must_use]
pub fn hardware_addresses() -> Vec<String> {
    hardware_addresses_in(Path::new("/sys/class/net"))
}

fn hardware_addresses_in(folder: &Path) -> Vec<String> {
    let mut found: Vec<(u32, String)> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let fact = |name: &str| std::fs::read_to_string(entry.path().join(name)).ok();
            let ethernet = fact("type")?.trim() == "1" && entry.path().join("device").exists();
            ethernet.then_some(())?;
            // In a bond all cards show the same address; the kernel keeps their own here.
            let own = fact("bonding_slave/perm_hwaddr").or_else(|| fact("address"))?;
            let address = parse_mac(own.trim())?;
            let text = address.map(|byte| format!("{byte:02x}")).join(":");
            Some((fact("ifindex")?.trim().parse().ok()?, text))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, address)| address).collect()
}

/// Reads `52:54:00:aa:bb:01`.
#[must_use]
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut address {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

/// The address packets to this one are sent from. Nothing is sent.
#[must_use]
pub fn source_towards(target: IpAddr) -> Option<IpAddr> {
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

/// Whether a lease is one of a network. Many BMCs have a network card of their own on the machine's
/// USB, and give it an address of the kind that is never routed (169.254.0.0/16), sometimes with a
/// gateway and name servers that lead nowhere.
fn leads_anywhere(lease: &Lease) -> bool {
    !lease.address.is_link_local()
}

/// Whether the machine has an address with which it can go anywhere.
fn has_address() -> bool {
    if has_route(&std::fs::read_to_string("/proc/net/route").unwrap_or_default()) {
        return true;
    }
    // The fourth word is the scope: 00 is global. `lo` is the last word.
    let addresses_6 = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    addresses_6.lines().any(|line| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        words.get(3) == Some(&"00") && words.get(5) != Some(&"lo")
    })
}

/// Whether `/proc/net/route` has a route beside those between neighbours that nobody else reaches.
fn has_route(table: &str) -> bool {
    // The second word is the network, in the bytes' order in memory.
    let network = |line: &str| u32::from_str_radix(line.split_ascii_whitespace().nth(1)?, 16).ok();
    let mut networks = table.lines().skip(1).filter_map(network);
    networks.any(|network| !std::net::Ipv4Addr::from(network.to_ne_bytes()).is_link_local())
}

/// Returns after something changed; changes that come together count once.
async fn next_change(
    watcher: Result<&AsyncFd<std::os::fd::OwnedFd>, &io::Error>,
) -> io::Result<()> {
    let watcher = watcher.map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let mut ready = watcher.readable().await?;
    let mut message = [0; 8192];
    loop {
        match recv(watcher.get_ref(), &mut message[..], RecvFlags::empty()) {
            // Too many at once to hear them all: looking again shows what they said.
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
    fn an_address_of_a_bmc_is_no_way_out() {
        const HEAD: &str =
            "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";
        let line = |name: &str, network: [u8; 4]| {
            format!(
                "{name} {:08X} 00000000 0001 0 0 0 0000FFFF 0 0 0\n",
                u32::from_ne_bytes(network)
            )
        };
        let usb = line("usb0", [169, 254, 0, 0]);
        assert!(!has_route(HEAD) && !has_route("") && !has_route(&format!("{HEAD}{usb}")));
        assert!(has_route(&format!("{HEAD}{usb}{}", line("eth0", [10, 0, 2, 0]))));
        assert!(has_route(&format!("{HEAD}{}", line("eth0", [0; 4]))));
    }

    #[test]
    fn cards_are_those_made_of_hardware() {
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
        let found = cards_in(folder.path());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].mac(), "52:54:00:aa:bb:01");
        assert!(found[0].has_carrier && found[0].physical);
        let bonded = folder.path().join("eth0/bonding_slave");
        std::fs::create_dir(&bonded).unwrap();
        std::fs::write(bonded.join("perm_hwaddr"), "52:54:00:aa:bb:02\n").unwrap();
        std::fs::create_dir(folder.path().join("eth0/master")).unwrap();
        assert!(cards_in(folder.path()).is_empty());
        assert_eq!(hardware_addresses_in(folder.path()), ["52:54:00:aa:bb:02"]);
    }
}
