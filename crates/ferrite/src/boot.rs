// SPDX-License-Identifier: Apache-2.0
//! The servers that machines boot from: HTTP, TFTP and DHCP, wired to the boot services.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use boot_plans::BootServices;
use boot_server::{FileLeaseBook, Plans, Sightings, dhcp4, dhcp6, http, mdns, tftp};
use node_model::Timestamp;
use store::{Clock, Store};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::config::Config;

/// The port of the file service.
const HTTP_PORT: u16 = 6180;
const TFTP_PORT: u16 = 69;

/// The servers, bound and not yet serving: a port that cannot be had ends the program before it has
/// promised anything.
pub(crate) struct BootServers {
    services: BootServices,
    http: Vec<http::Server>,
    tftp: Vec<tftp::Server>,
    dhcp4: Option<dhcp4::Listener>,
    dhcp6: Option<dhcp6::Listener>,
    mdns: mdns::Listener,
    url: String,
    scribe: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Opens the boot services; none if they are switched off.
pub(crate) async fn open(
    config: &Config,
    store: &Store,
    data_dir: &Path,
    hostname: String,
    clock: Clock,
) -> anyhow::Result<Option<BootServices>> {
    if !config.boot.enabled {
        if !config.dhcp.networks.is_empty() {
            bail!("boot.enabled is false, so nothing can be said to machines on dhcp.networks");
        }
        return Ok(None);
    }
    let (settings, images) = (config.boot.clone(), config.images.clone());
    let (store, data_dir) = (store.clone(), data_dir.to_owned());
    let open = move || BootServices::open(store, settings, &images, &data_dir, hostname, clock);
    let services = tokio::task::spawn_blocking(open).await?;
    Ok(Some(services.context("cannot open the boot services")?))
}

impl BootServers {
    /// Begins to listen.
    pub(crate) fn bind(
        config: &Config,
        services: &BootServices,
        data_dir: &Path,
        clock: fn() -> Timestamp,
    ) -> anyhow::Result<Self> {
        let (witness, scribe) = services.witness();
        let witness: Arc<dyn Sightings> = Arc::new(witness);
        let http = bind_http(config, services, &witness, clock)?;
        let url = file_url(config, &http)?;
        let servers = config.dhcp.servers()?;
        let mut tftp = Vec::new();
        for (address, interface) in config.dhcp.own_addresses() {
            let mut settings = tftp::Settings::new(SocketAddr::new(address, TFTP_PORT));
            settings.interface = Some(interface.as_str().into());
            let parts = tftp::Services {
                files: Arc::new(services.clone()),
                sightings: Arc::clone(&witness),
                clock,
            };
            let server = tftp::Server::bind(settings, parts).with_context(|| {
                format!(
                    "cannot serve TFTP on {address} ({interface}), which needs CAP_NET_BIND_SERVICE"
                )
            });
            tftp.push(server?);
        }
        let parts = |family: Family| {
            let plans: Arc<dyn Plans> = Arc::new(services.plans(urls(config, &http, family)?));
            anyhow::Ok(dhcp4::Services { plans, sightings: Arc::clone(&witness), clock })
        };
        let dhcp4 = if servers.v4.interfaces.is_empty() {
            None
        } else {
            let book = FileLeaseBook::new(data_dir.join("dhcp-leases"));
            let leases = dhcp4::Leases::load(Box::new(book)).context("cannot serve DHCP")?;
            let listener = dhcp4::Listener::bind(servers.v4.clone(), leases, parts(Family::V4)?);
            Some(listener.context("cannot serve DHCP, which needs CAP_NET_BIND_SERVICE")?)
        };
        let dhcp6 = if servers.interfaces6.is_empty() {
            None
        } else {
            let settings = dhcp6::Settings {
                duid: identity(data_dir)?,
                interfaces: servers.interfaces6,
                subnets: servers.subnets6,
                ignored: servers.v4.ignored,
                first_stages: servers.v4.first_stages,
            };
            let book = FileLeaseBook::new(data_dir.join("dhcpv6-leases"));
            let leases = dhcp6::Leases::load(Box::new(book)).context("cannot serve DHCPv6")?;
            let listener = dhcp6::Listener::bind(settings, leases, parts(Family::V6)?);
            Some(listener.context("cannot serve DHCPv6, which needs CAP_NET_BIND_SERVICE")?)
        };
        let books = ["dhcp-leases", "dhcpv6-leases"].map(|name| data_dir.join(name)).to_vec();
        let networks = serde_json::to_value(&config.dhcp.networks).context("dhcp.networks")?;
        services.answers_on(networks, books);
        let mdns = mdns::Listener::bind(&config.boot.mdns_interfaces)
            .context("cannot offer the API by multicast DNS (boot.mdns_interfaces)")?;
        Ok(Self {
            services: services.clone(),
            http,
            tftp,
            dhcp4,
            dhcp6,
            mdns,
            url,
            scribe: Box::pin(scribe),
        })
    }

    /// Serves. `api` is where the API listens.
    pub(crate) fn spawn(self, config: &Config, api: SocketAddr) -> Serving {
        let api_url = match (&config.boot.api_url, &config.api.public_endpoint) {
            (Some(url), _) | (None, Some(url)) => url.clone(),
            (None, None) => format!("http://{}", reachable(config, api)),
        };
        if !config.dhcp.own_addresses().is_empty() && is_for_this_machine(&api_url) {
            tracing::warn!(
                api_url,
                "machines that boot cannot reach the API there: give api.listen an address on their \
                 network, or say in boot.api_url where it is"
            );
        }
        self.services.found_at(&self.url, &api_url, config.dhcp.discovers());
        let mut servers = JoinSet::new();
        servers.spawn(self.services.clone().keep_at_hand());
        for server in self.http {
            servers.spawn(server.run());
        }
        for server in self.tftp {
            servers.spawn(server.run());
        }
        if let Some(listener) = self.dhcp4 {
            servers.spawn(listener.run());
        }
        if let Some(listener) = self.dhcp6 {
            servers.spawn(listener.run());
        }
        if !config.boot.mdns_interfaces.is_empty() {
            servers.spawn(offer(self.mdns, api_url));
        }
        Serving { servers, scribe: tokio::spawn(self.scribe) }
    }

    /// Where machines reach the file service.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// The servers at work.
pub(crate) struct Serving {
    servers: JoinSet<()>,
    scribe: tokio::task::JoinHandle<()>,
}

impl Serving {
    /// Ends when one of the servers does, which none should.
    pub(crate) async fn one_ended(&mut self) {
        // There is one at least, so there is something to wait for.
        let _ended = self.servers.join_next().await;
    }

    /// Stops serving, and lets what was seen be written down.
    pub(crate) async fn stop(mut self, patience: Duration) {
        self.servers.shutdown().await;
        if tokio::time::timeout(patience, self.scribe).await.is_err() {
            tracing::warn!("not all that was seen of booting machines was written down");
        }
    }
}

/// Offers the API by multicast DNS, as soon as its name has an address.
async fn offer(listener: mdns::Listener, api_url: String) {
    const PAUSE: Duration = Duration::from_secs(30);
    let offer = loop {
        match find_offer(&api_url).await {
            Ok(offer) => break offer,
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the API is not offered by multicast DNS yet; boot.api_url says where it is"
                );
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    tracing::info!(api_url, "the API is offered by multicast DNS");
    listener.run(offer).await;
}

async fn find_offer(api_url: &str) -> anyhow::Result<mdns::Offer> {
    let place = mdns::Place::of_url(api_url)?;
    let found = tokio::net::lookup_host((place.host.as_str(), place.port));
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found.await.with_context(|| format!("{} has no address", place.host))? {
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    Ok(mdns::Offer::new(place, addresses, &crate::service::machine_name())?)
}

fn bind_http(
    config: &Config,
    services: &BootServices,
    witness: &Arc<dyn Sightings>,
    clock: fn() -> Timestamp,
) -> anyhow::Result<Vec<http::Server>> {
    let tls = match (&config.boot.tls_certificate, &config.boot.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(http::tls_from_files(certificate, key).context("boot.tls_certificate")?)
        }
        (None, None) => None,
        (Some(_), None) => bail!("boot.tls_certificate is given without boot.tls_key"),
        (None, Some(_)) => bail!("boot.tls_key is given without boot.tls_certificate"),
    };
    let mut servers = Vec::new();
    for listen in http_addresses(config) {
        let mut settings = http::Settings::new(listen);
        settings.tls.clone_from(&tls);
        let parts = http::Services {
            pages: Arc::new(services.clone()),
            sightings: Arc::clone(witness),
            clock,
        };
        let server = http::Server::bind(settings, parts).with_context(|| {
            format!("cannot serve files on {listen}; choose another address with --boot-listen")
        });
        servers.push(server?);
    }
    Ok(servers)
}

/// Where the file service listens: as configured, or where the API does and on every DHCP network.
pub(crate) fn http_addresses(config: &Config) -> Vec<SocketAddr> {
    if !config.boot.listen.is_empty() {
        return config.boot.listen.clone();
    }
    let api = config.api.listen;
    // Whoever wants any free port for the API, as tests do, wants any for the files too.
    let port = if api.port() == 0 { 0 } else { HTTP_PORT };
    let mut addresses = vec![SocketAddr::new(api.ip(), port)];
    for (ip, _) in config.dhcp.own_addresses() {
        let covers = |known: &SocketAddr| {
            known.ip() == ip || (known.ip().is_unspecified() && known.is_ipv4() == ip.is_ipv4())
        };
        if !addresses.iter().any(covers) {
            addresses.push(SocketAddr::new(ip, port));
        }
    }
    addresses
}

/// What machines call the file service: by an address that machines on a network can reach, if it
/// has one.
fn file_url(config: &Config, servers: &[http::Server]) -> anyhow::Result<String> {
    if let Some(url) = &config.boot.http_url {
        return Ok(url.trim_end_matches('/').to_owned());
    }
    let mut addresses = Vec::new();
    for server in servers {
        addresses.push(server.local_address().context("cannot tell where HTTP is")?);
    }
    let best = addresses.iter().find(|address| !address.ip().is_loopback());
    let address = best.or(addresses.first()).context("boot.listen is empty")?;
    let scheme = if config.boot.tls_certificate.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{}", reachable(config, *address)))
}

/// By which URL machines on each interface of a DHCP network reach the file service.
fn urls(
    config: &Config,
    servers: &[http::Server],
    family: Family,
) -> anyhow::Result<HashMap<String, String>> {
    let mut urls = HashMap::new();
    let scheme = if config.boot.tls_certificate.is_some() { "https" } else { "http" };
    for (ip, interface) in config.dhcp.own_addresses() {
        if ip.is_ipv4() != (family == Family::V4) {
            continue;
        }
        for server in servers {
            let address = server.local_address().context("cannot tell where HTTP is")?;
            let listens = address.ip() == ip
                || (address.ip().is_unspecified() && address.is_ipv4() == ip.is_ipv4());
            if listens {
                let url = format!("{scheme}://{}", SocketAddr::new(ip, address.port()));
                urls.insert(interface.clone(), url);
            }
        }
    }
    Ok(urls)
}

/// A version of IP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// Whether the URL means this machine to whoever reads it.
fn is_for_this_machine(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|local| host.starts_with(local))
}

/// The address by which machines reach what listens on `address`: itself; or, if that is everywhere,
/// ours on the first DHCP network, or the one this machine goes out by.
fn reachable(config: &Config, address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    let same_kind = |found: &IpAddr| found.is_ipv4() == address.is_ipv4();
    let on_dhcp = config.dhcp.own_addresses().into_iter().map(|(found, _)| found).find(same_kind);
    let ip = on_dhcp.or_else(|| outgoing(address)).unwrap_or(address.ip());
    SocketAddr::new(ip, address.port())
}

/// The address of the default route. Nothing is sent: a datagram socket only chooses its address.
fn outgoing(like: SocketAddr) -> Option<IpAddr> {
    // Addresses for documentation (RFC 5737, RFC 3849): nobody has them.
    let far: (SocketAddr, SocketAddr) = if like.is_ipv4() {
        (([0, 0, 0, 0], 0).into(), ([192, 0, 2, 1], 9).into())
    } else {
        let far: std::net::Ipv6Addr = "2001:db8::1".parse().ok()?;
        ((std::net::Ipv6Addr::UNSPECIFIED, 0).into(), (far, 9).into())
    };
    let socket = UdpSocket::bind(far.0).ok()?;
    socket.connect(far.1).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
}

/// This server's identity in DHCPv6 (a DUID-UUID, RFC 6355), made once and kept: clients renew by it.
fn identity(data_dir: &Path) -> anyhow::Result<Vec<u8>> {
    const KIND: [u8; 2] = [0, 4];
    let path = data_dir.join("dhcpv6-identity");
    let kept = match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse::<Uuid>().ok(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let id = match kept {
        Some(id) => id,
        None => {
            let id = Uuid::new_v4();
            std::fs::write(&path, format!("{id}\n"))
                .with_context(|| format!("cannot write {}", path.display()))?;
            id
        }
    };
    Ok([&KIND[..], id.as_bytes()].concat())
}
