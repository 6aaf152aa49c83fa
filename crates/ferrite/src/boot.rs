// SPDX-License-Identifier: Apache-2.0
//! Starts the boot servers (HTTP, TFTP, DHCP, mDNS) and connects them to the boot services.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api_server::Metrics;
use boot_plans::{BootServices, DatabaseDhcpLeases, DhcpLeaseLocation};
use boot_server::{
    BootDirectory, BootEventRecorder, DhcpLeaseFile, DhcpLeaseIndex, DhcpLeaseStore, dhcp4, dhcp6,
    dns, http, mdns, tftp,
};
use store::{Store, StoreClock};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::boot_metrics::CountedBootEvents;
use crate::config::{Config, DhcpNetwork};
use crate::local_addresses::{IpFamily, default_route_address, host_addresses};
use crate::tls::TlsService;

/// Default ports of the boot file server.
const HTTP_PORT: u16 = 6180;
const HTTPS_PORT: u16 = 6183;
const TFTP_PORT: u16 = 69;
const DNS_PORT: u16 = 53;
/// Files with DHCP leases in the data directory.
const LEASE_FILE_V4: &str = "dhcp-leases";
const LEASE_FILE_V6: &str = "dhcpv6-leases";

/// Bound servers that do not serve yet: a port conflict is found before the server reports readiness.
pub(crate) struct BootServers {
    services: BootServices,
    http: Vec<http::BootHttpServer>,
    https: Vec<http::BootHttpServer>,
    tftp: Vec<tftp::TftpServer>,
    dhcp4: Option<dhcp4::Dhcp4Listener>,
    dhcp6: Option<dhcp6::Dhcp6Listener>,
    dns: Vec<dns::DnsListener>,
    mdns: mdns::MdnsListener,
    url: String,
    event_writer: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Opens the boot services; `None` if they are disabled.
pub(crate) async fn open(
    config: &Config,
    store: &Store,
    data_dir: &Path,
    hostname: String,
    clock: StoreClock,
) -> anyhow::Result<Option<BootServices>> {
    if !config.boot.enabled {
        if !config.dhcp.networks.is_empty() {
            bail!("dhcp.networks requires boot.enabled");
        }
        if config.images.requires_signatures() {
            bail!("signatures of images are verified by the boot services; set boot.enabled");
        }
        return Ok(None);
    }
    let (settings, images) = (config.boot.clone(), config.images.clone());
    let (store, data_dir) = (store.clone(), data_dir.to_owned());
    let required_proof = config.conductor.agent_boot_proof;
    let open = move || {
        BootServices::open(store, settings, &images, &data_dir, hostname, clock, required_proof)
    };
    let services = tokio::task::spawn_blocking(open).await?;
    Ok(Some(services.context("cannot open the boot services")?))
}

impl BootServers {
    /// Binds all servers.
    pub(crate) async fn bind(
        config: &Config,
        services: &BootServices,
        store: &Store,
        data_dir: &Path,
        tls: Option<&TlsService>,
        metrics: &Metrics,
    ) -> anyhow::Result<Self> {
        let (recorder, event_writer) = services.event_recorder();
        let recorder: Arc<dyn BootEventRecorder> =
            Arc::new(CountedBootEvents::new(Arc::new(recorder), metrics));
        let clock = store.clock();
        let http = bind_http(&http_addresses(config), services, &recorder, &clock, None)?;
        let https = match tls {
            Some(tls) => {
                bind_http(&https_addresses(config), services, &recorder, &clock, Some(tls))?
            }
            None => Vec::new(),
        };
        let url = boot_file_url(config, &http)?;
        let servers = config.dhcp.server_config()?;
        let dns_clients = servers.client_check();
        let mut tftp = Vec::new();
        for (address, interface) in config.dhcp.server_addresses() {
            let mut settings = tftp::TftpSettings::new(SocketAddr::new(address, TFTP_PORT));
            settings.interface = Some(interface.as_str().into());
            let parts = tftp::TftpServices {
                files: Arc::new(services.clone()),
                events: Arc::clone(&recorder),
                clock: Arc::clone(&clock),
            };
            let server = tftp::TftpServer::bind(settings, parts).with_context(|| {
                format!(
                    "cannot serve TFTP on {address} ({interface}), which needs CAP_NET_BIND_SERVICE"
                )
            });
            tftp.push(server?);
        }
        let dhcp_services = |family: IpFamily| {
            let directory: Arc<dyn BootDirectory> =
                Arc::new(services.dhcp_directory(boot_urls_by_interface(config, &http, family)?));
            anyhow::Ok(boot_server::DhcpServices {
                directory,
                events: Arc::clone(&recorder),
                clock: Arc::clone(&clock),
            })
        };
        let leases = LeaseStores::choose(config, services, store, data_dir)?;
        let dhcp4 = if servers.v4.interfaces.is_empty() {
            None
        } else {
            let leases = dhcp4::DhcpLeases4::load(leases.open(LEASE_FILE_V4).await?)
                .context("cannot serve DHCP")?;
            let listener = dhcp4::Dhcp4Listener::bind(
                servers.v4.clone(),
                leases,
                dhcp_services(IpFamily::V4)?,
            );
            Some(listener.context("cannot serve DHCP, which needs CAP_NET_BIND_SERVICE")?)
        };
        let dhcp6 = if servers.interfaces6.is_empty() {
            None
        } else {
            let settings = dhcp6::Dhcp6Settings {
                duid: dhcpv6_duid(data_dir)?,
                interfaces: servers.interfaces6,
                subnets: servers.subnets6,
                ignored: servers.v4.ignored,
                first_stage_loaders: servers.v4.first_stage_loaders,
            };
            let leases = dhcp6::DhcpLeases6::load(leases.open(LEASE_FILE_V6).await?)
                .context("cannot serve DHCPv6")?;
            let listener =
                dhcp6::Dhcp6Listener::bind(settings, leases, dhcp_services(IpFamily::V6)?);
            Some(listener.context("cannot serve DHCPv6, which needs CAP_NET_BIND_SERVICE")?)
        };
        let networks = serde_json::to_value(&config.dhcp.networks).context("dhcp.networks")?;
        services.set_dhcp_networks(networks);
        let dns = bind_dns(config, &dns_clients)?;
        let mdns = mdns::MdnsListener::bind(&config.boot.mdns_interfaces)
            .context("cannot announce the API by mDNS (boot.mdns_interfaces)")?;
        Ok(Self {
            services: services.clone(),
            http,
            https,
            tftp,
            dhcp4,
            dhcp6,
            dns,
            mdns,
            url,
            event_writer: Box::pin(event_writer),
        })
    }

    /// Starts the servers. `api` is the address on which the API listens.
    pub(crate) fn spawn(
        self,
        config: &Config,
        api: SocketAddr,
    ) -> anyhow::Result<RunningBootServers> {
        let api_url = api_url(config, api);
        let agent_files_url = secure_file_url(config, &self.https)?;
        let is_remote = !config.dhcp.server_addresses().is_empty() || api.ip().is_unspecified();
        if is_remote && is_loopback_url(&api_url) {
            tracing::warn!(
                url = api_url,
                "machines cannot reach the API at this URL; set boot.api_url, or an address on their \
                 network in api.listen"
            );
        }
        self.services.set_service_urls(&self.url, &api_url, config.dhcp.discovers());
        if let Some(url) = &agent_files_url {
            self.services.set_agent_files_url(url);
        }
        let mut servers = JoinSet::new();
        servers.spawn(self.services.clone().maintain_caches());
        servers.spawn(self.services.clone().maintain_ramdisks());
        for server in self.http.into_iter().chain(self.https) {
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
        for listener in self.dns {
            servers.spawn(listener.run());
        }
        if !config.boot.mdns_interfaces.is_empty() {
            servers.spawn(announce_api(self.mdns, api_url));
        }
        Ok(RunningBootServers { servers, event_writer: tokio::spawn(self.event_writer) })
    }

    /// URL of the boot file server for machines.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// Where the DHCP leases are stored.
enum LeaseStores<'a> {
    /// In files of this process.
    Files { index: DhcpLeaseIndex, data_dir: &'a Path },
    /// In the database, which several processes can share.
    Database { store: &'a Store, data_dir: &'a Path },
}

impl<'a> LeaseStores<'a> {
    /// Chooses the database if it is on a server. A SQLite database has one process, and appending to a file
    /// is quicker.
    fn choose(
        config: &Config,
        services: &BootServices,
        store: &'a Store,
        data_dir: &'a Path,
    ) -> anyhow::Result<Self> {
        if config.store(data_dir).uses_server()? {
            services.set_dhcp_leases(DhcpLeaseLocation::Database);
            return Ok(Self::Database { store, data_dir });
        }
        let index = DhcpLeaseIndex::default();
        let files = [LEASE_FILE_V4, LEASE_FILE_V6].map(|name| data_dir.join(name)).to_vec();
        services.set_dhcp_leases(DhcpLeaseLocation::Files { index: index.clone(), files });
        Ok(Self::Files { index, data_dir })
    }

    async fn open(&self, file: &str) -> anyhow::Result<Box<dyn DhcpLeaseStore>> {
        match self {
            Self::Files { index, data_dir } => {
                Ok(Box::new(index.indexed(Box::new(DhcpLeaseFile::new(data_dir.join(file))))))
            }
            Self::Database { store, data_dir } => {
                let failed = "cannot serve DHCP";
                let clock = store.clock();
                DatabaseDhcpLeases::import(store, &data_dir.join(file), clock())
                    .await
                    .context(failed)?;
                let leases = DatabaseDhcpLeases::open((*store).clone(), clock).await;
                Ok(Box::new(leases.context(failed)?))
            }
        }
    }
}

/// The running servers.
pub(crate) struct RunningBootServers {
    servers: JoinSet<()>,
    event_writer: tokio::task::JoinHandle<()>,
}

impl RunningBootServers {
    /// Waits until a server ends, which is an error.
    pub(crate) async fn wait_for_exit(&mut self) {
        // The set is not empty.
        let _ended = self.servers.join_next().await;
    }

    /// Stops the servers and waits until the recorded boot events are stored.
    pub(crate) async fn stop(mut self, timeout: Duration) {
        self.servers.shutdown().await;
        if tokio::time::timeout(timeout, self.event_writer).await.is_err() {
            tracing::warn!("boot events were not stored before the shutdown timeout");
        }
    }
}

/// Announces the API by mDNS as soon as the host name of its URL resolves.
async fn announce_api(listener: mdns::MdnsListener, api_url: String) {
    const RETRY_INTERVAL: Duration = Duration::from_secs(30);
    let service = loop {
        match resolve_announcement(&api_url).await {
            Ok(service) => break service,
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    url = api_url,
                    retry_in = ?RETRY_INTERVAL,
                    "cannot announce the API by mDNS"
                );
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    };
    tracing::info!(url = api_url, "announcing the API by mDNS");
    listener.run(service).await;
}

async fn resolve_announcement(api_url: &str) -> anyhow::Result<mdns::MdnsService> {
    let endpoint = mdns::ApiEndpoint::from_url(api_url)?;
    let resolved = tokio::net::lookup_host((endpoint.host.as_str(), endpoint.port));
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in resolved.await.with_context(|| format!("{} has no address", endpoint.host))? {
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    Ok(mdns::MdnsService::new(endpoint, addresses, &crate::service::host_name())?)
}

fn bind_http(
    addresses: &[SocketAddr],
    services: &BootServices,
    recorder: &Arc<dyn BootEventRecorder>,
    clock: &StoreClock,
    tls: Option<&TlsService>,
) -> anyhow::Result<Vec<http::BootHttpServer>> {
    let mut servers = Vec::new();
    for listen in addresses {
        let mut settings = http::BootHttpSettings::new(*listen);
        settings.tls = tls.map(|service| service.tls.server_config());
        let parts = http::BootHttpServices {
            files: Arc::new(services.clone()),
            events: Arc::clone(recorder),
            clock: Arc::clone(clock),
        };
        let option = if tls.is_some() { "boot.tls_listen" } else { "--boot-listen" };
        let server = http::BootHttpServer::bind(settings, parts).with_context(|| {
            format!("cannot serve files on {listen}; choose another address with {option}")
        });
        servers.push(server?);
    }
    Ok(servers)
}

/// Binds a DNS forwarder for each network with `serve_dns`. It responds to machines on DHCP networks only.
fn bind_dns(
    config: &Config,
    is_client: &Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
) -> anyhow::Result<Vec<dns::DnsListener>> {
    let networks = config.dhcp.dns_networks();
    if networks.is_empty() {
        return Ok(Vec::new());
    }
    let own = networks.iter().map(|(address, _)| *address).collect();
    let upstreams = Arc::new(config.dns.upstreams(own)?);
    let host = crate::service::host_name();
    let bind = |(address, network): &(IpAddr, &DhcpNetwork)| {
        let settings = dns::DnsServerSettings {
            listen: SocketAddr::new(*address, DNS_PORT),
            interface: network.interface.as_deref().map(Arc::from),
            names: config.dns.own_names(&host, network.domain.as_deref(), *address)?,
            is_client: Arc::clone(is_client),
        };
        dns::DnsListener::bind(settings, Arc::clone(&upstreams)).with_context(|| {
            format!("cannot serve DNS on {address}, which needs CAP_NET_BIND_SERVICE (serve_dns)")
        })
    };
    networks.iter().map(bind).collect()
}

/// Addresses of the boot file server with TLS: as configured, or port 6183 of those without TLS if the API
/// uses TLS.
pub(crate) fn https_addresses(config: &Config) -> Vec<SocketAddr> {
    if !config.boot.enabled || !config.boot.tls_listen.is_empty() || !config.has_api_tls() {
        let configured = config.boot.tls_listen.clone();
        return if config.boot.enabled { configured } else { Vec::new() };
    }
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for plain in http_addresses(config) {
        let port = if plain.port() == 0 { 0 } else { HTTPS_PORT };
        let address = SocketAddr::new(plain.ip(), port);
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// Addresses of the boot file server: as configured, or those of the API and of every DHCP network.
pub(crate) fn http_addresses(config: &Config) -> Vec<SocketAddr> {
    if !config.boot.listen.is_empty() {
        return config.boot.listen.clone();
    }
    let api = config.api.listen;
    // Tests use a free port for the API, so the boot files use one too.
    let port = if api.port() == 0 { 0 } else { HTTP_PORT };
    let mut addresses = vec![SocketAddr::new(api.ip(), port)];
    for (ip, _) in config.dhcp.server_addresses() {
        let covers = |known: &SocketAddr| {
            known.ip() == ip || (known.ip().is_unspecified() && known.is_ipv4() == ip.is_ipv4())
        };
        if !addresses.iter().any(covers) {
            addresses.push(SocketAddr::new(ip, port));
        }
    }
    addresses
}

/// URL of the boot file server, with an address that is not loopback if possible.
fn boot_file_url(config: &Config, servers: &[http::BootHttpServer]) -> anyhow::Result<String> {
    if let Some(url) = &config.boot.http_url {
        return Ok(url.trim_end_matches('/').to_owned());
    }
    let address = best_address(servers)?.context("boot.listen is empty")?;
    Ok(format!("http://{}", reachable_address(config, address)))
}

/// URL of the boot file server with TLS, for agents; `None` if there is none, or if only `boot.http_url` is
/// set, which is the URL for all machines then.
fn secure_file_url(
    config: &Config,
    servers: &[http::BootHttpServer],
) -> anyhow::Result<Option<String>> {
    if config.boot.https_url.is_some() || config.boot.http_url.is_some() {
        return Ok(config.boot.https_url.clone());
    }
    let address = best_address(servers)?;
    Ok(address.map(|address| format!("https://{}", reachable_address(config, address))))
}

/// The address of a server, of one that is not on loopback if possible.
fn best_address(servers: &[http::BootHttpServer]) -> anyhow::Result<Option<SocketAddr>> {
    let mut addresses = Vec::new();
    for server in servers {
        addresses.push(
            server
                .local_address()
                .context("cannot determine the address of the boot file server")?,
        );
    }
    let best = addresses.iter().find(|address| !address.ip().is_loopback());
    Ok(best.or(addresses.first()).copied())
}

/// URLs of the boot file server by interface of the DHCP networks.
fn boot_urls_by_interface(
    config: &Config,
    servers: &[http::BootHttpServer],
    family: IpFamily,
) -> anyhow::Result<HashMap<String, String>> {
    let mut urls = HashMap::new();
    for (ip, interface) in config.dhcp.server_addresses() {
        if !family.has(ip) {
            continue;
        }
        for server in servers {
            let address = server
                .local_address()
                .context("cannot determine the address of the boot file server")?;
            let covers = address.ip() == ip
                || (address.ip().is_unspecified() && address.is_ipv4() == ip.is_ipv4());
            if covers {
                let url = format!("http://{}", SocketAddr::new(ip, address.port()));
                urls.insert(interface.clone(), url);
            }
        }
    }
    Ok(urls)
}

/// Whether the host of the URL is a loopback address.
fn is_loopback_url(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|local| host.starts_with(local))
}

/// URL of the API for machines.
fn api_url(config: &Config, listen: SocketAddr) -> String {
    match (&config.boot.api_url, &config.api.public_endpoint) {
        (Some(url), _) | (None, Some(url)) => url.clone(),
        (None, None) => {
            let scheme = if config.has_api_tls() { "https" } else { "http" };
            format!("{scheme}://{}", reachable_address(config, listen))
        }
    }
}

/// The address at which machines reach a server that listens on `address`. For an unspecified address
/// such as 0.0.0.0 this is, in order of preference, the server's address on the provisioning network, the one
/// on a DHCP network, the one of the default route, any other address of this host, and loopback.
fn reachable_address(config: &Config, address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    // A socket bound to [::] also accepts IPv4.
    let families: &[IpFamily] =
        if address.is_ipv4() { &[IpFamily::V4] } else { &[IpFamily::V6, IpFamily::V4] };
    let dhcp: Vec<IpAddr> =
        config.dhcp.server_addresses().into_iter().map(|(found, _)| found).collect();
    let on_dhcp =
        families.iter().find_map(|family| dhcp.iter().copied().find(|ip| family.has(*ip)));
    let provisioning =
        config.provisioning_ip().filter(|ip| families.iter().any(|family| family.has(*ip)));
    let ip = provisioning
        .or(on_dhcp)
        .or_else(|| families.iter().find_map(|family| default_route_address(*family)))
        .or_else(|| families.iter().find_map(|family| host_addresses(*family).first().copied()))
        .unwrap_or(if address.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            Ipv6Addr::LOCALHOST.into()
        });
    SocketAddr::new(ip, address.port())
}

/// The DHCPv6 server identifier (a DUID-UUID, RFC 6355). It is stored, because clients renew leases with
/// it.
fn dhcpv6_duid(data_dir: &Path) -> anyhow::Result<Vec<u8>> {
    const DUID_UUID: [u8; 2] = [0, 4];
    let path = data_dir.join("dhcpv6-identity");
    let stored = match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse::<Uuid>().ok(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let id = match stored {
        Some(id) => id,
        None => {
            let id = Uuid::new_v4();
            std::fs::write(&path, format!("{id}\n"))
                .with_context(|| format!("cannot write {}", path.display()))?;
            id
        }
    };
    Ok([&DUID_UUID[..], id.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machines must never get 0.0.0.0 or [::] as the address of the API or of the boot files.
    #[test]
    fn unspecified_addresses_are_replaced() {
        let config = Config::default();
        for listen in ["0.0.0.0:6385", "[::]:6385"] {
            let url = api_url(&config, listen.parse().unwrap());
            assert!(!url.contains("//0.0.0.0") && !url.contains("//[::]"), "{listen}: {url}");
            assert!(url.ends_with(":6385"), "{url}");
        }
        assert_eq!(api_url(&config, "10.0.0.1:80".parse().unwrap()), "http://10.0.0.1:80");
        let mut with_tls = Config::default();
        with_tls.api.tls.mode = crate::config::TlsMode::On;
        assert_eq!(api_url(&with_tls, "10.0.0.1:80".parse().unwrap()), "https://10.0.0.1:80");
        let network = "interface = \"eth1\"\naddress = \"10.9.0.1/24\"\nmode = \"reserve\"";
        let dhcp = toml::from_str(&format!("[[networks]]\n{network}")).unwrap();
        let with_dhcp = Config { dhcp, ..Config::default() };
        for listen in ["0.0.0.0:6385", "[::]:6385"] {
            assert_eq!(api_url(&with_dhcp, listen.parse().unwrap()), "http://10.9.0.1:6385");
        }
        let mut with_url = Config::default();
        with_url.boot.api_url = Some("https://api.example".to_owned());
        assert_eq!(api_url(&with_url, "0.0.0.0:6385".parse().unwrap()), "https://api.example");
    }

    #[test]
    fn file_service_uses_http_and_https_side_by_side() {
        let addresses = |listen: &str| {
            let mut config = Config::default();
            config.api.listen = listen.parse().unwrap();
            https_addresses(&config).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(addresses("127.0.0.1:6385"), [] as [String; 0]);
        assert_eq!(addresses("10.0.0.1:6385"), ["10.0.0.1:6183"]);
        assert_eq!(addresses("10.0.0.1:0"), ["10.0.0.1:0"]);
        let mut config = Config::default();
        config.boot.tls_listen = vec!["10.0.0.2:443".parse().unwrap()];
        assert_eq!(https_addresses(&config), config.boot.tls_listen);
        config.boot.enabled = false;
        assert_eq!(https_addresses(&config), []);
    }
}
