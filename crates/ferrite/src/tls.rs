// SPDX-License-Identifier: Apache-2.0
//! TLS of the running server: the certificate authority in the database, the certificate of the API and
//! the file service, and its replacement.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use api_server::{ApiServer, CertificateExpiry};
use boot_plans::AgentTrust;
use node_model::{Secret, Timestamp};
use server_tls::{
    AuthorityKey, AuthorityRecord, CertificateAuthority, CertificateChange, CertificateNames,
    ClientCertificateTls, ServerTls, earliest_expiry, pem_bundle, read_certificates, url_host,
};
use store::{Store, StoredAuthority};
use tokio::signal::unix::{SignalKind, signal};

use crate::boot::{http_addresses, https_addresses};
use crate::certificate_expiries::CertificateExpiries;
use crate::config::Config;
use crate::local_addresses::{IpFamily, host_addresses};
use crate::service::host_name;

/// File name of the CA certificate in the data directory.
const CA_FILE: &str = "ca.pem";
/// Interval of checks whether the certificate has to be replaced.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of addresses of this host in a certificate.
const MAX_ADDRESSES: usize = 256;

/// TLS of the running server.
pub(crate) struct TlsService {
    /// The certificate.
    pub(crate) tls: Arc<ServerTls>,
    /// TLS of the API if clients may use certificates.
    pub(crate) clients: Option<Arc<ClientCertificateTls>>,
    /// When the certificates expire.
    pub(crate) expiries: CertificateExpiries,
    /// The CA certificate of an own CA in the data directory.
    pub(crate) ca_file: Option<PathBuf>,
}

/// Checks the settings, before anything is created.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    if let Some(files) = config.certificate_files()? {
        ServerTls::from_files(files).context("api.tls.certificate")?;
    }
    if let Some(path) = &config.api.tls.client_ca {
        read_certificates(path).context("api.tls.client_ca")?;
    }
    certificate_names(config)?;
    client_trust(config, None).map(drop)
}

/// Prepares the certificate; `None` if no server uses TLS.
pub(crate) async fn open(
    config: &Config,
    store: &Store,
    data_dir: &Path,
    clock: fn() -> Timestamp,
) -> anyhow::Result<Option<TlsService>> {
    if !config.has_api_tls() && https_addresses(config).is_empty() {
        return Ok(None);
    }
    if let Some(files) = config.certificate_files()? {
        let tls = ServerTls::from_files(files).context("api.tls.certificate")?;
        return TlsService::new(tls, config, None, clock).map(Some);
    }
    let now = system_time(clock());
    let authority = load_authority(store, now).await.context("the certificate authority")?;
    let ca_file = data_dir.join(CA_FILE);
    write_public(&ca_file, authority.certificate())
        .with_context(|| format!("cannot write {}", ca_file.display()))?;
    let tls = ServerTls::from_authority(authority, certificate_names(config)?, now)?;
    TlsService::new(tls, config, Some(ca_file), clock).map(Some)
}

/// The CA certificates that clients need to verify the API: the configured ones, or that of the own CA.
/// `None` if clients need none, or are expected to know the issuer. The bundle also has the certificates
/// of this host.
pub(crate) fn client_trust(
    config: &Config,
    service: Option<&TlsService>,
) -> anyhow::Result<Option<AgentTrust>> {
    let certificates = match &config.api.tls.ca_file {
        Some(path) => pem_bundle(&read_certificates(path).context("api.tls.ca_file")?),
        None => match service.and_then(|service| service.tls.authority_certificate()) {
            Some(certificate) => certificate,
            None => return Ok(None),
        },
    };
    let host = match &config.images.ca_file {
        Some(path) => server_trust::load_certificates(path)
            .with_context(|| format!("images.ca_file: cannot read {}", path.display()))?,
        None => server_trust::system_certificates().unwrap_or_default(),
    };
    let bundle = format!("{certificates}{}", pem_bundle(&host));
    Ok(Some(AgentTrust { certificates, bundle }))
}

impl TlsService {
    fn new(
        tls: ServerTls,
        config: &Config,
        ca_file: Option<PathBuf>,
        clock: fn() -> Timestamp,
    ) -> anyhow::Result<Self> {
        let tls = Arc::new(tls);
        let clients = match &config.api.tls.client_ca {
            Some(path) => {
                let clients = ClientCertificateTls::new(Arc::clone(&tls), path.clone());
                Some(Arc::new(clients.context("api.tls.client_ca")?))
            }
            None => None,
        };
        let service = Self { tls, clients, expiries: CertificateExpiries::default(), ca_file };
        service.expiries.update(service.found_expiries(config), clock());
        Ok(service)
    }

    /// Serves the API with TLS.
    pub(crate) fn secure(self: Arc<Self>, server: ApiServer) -> ApiServer {
        server.with_tls(move || match &self.clients {
            Some(clients) => clients.server_config(),
            None => self.tls.server_config(),
        })
    }

    /// The certificates and when they expire. Reads `api.tls.ca_file`.
    fn found_expiries(&self, config: &Config) -> Vec<CertificateExpiry> {
        let is_from_files = self.tls.is_from_files();
        let ca = match &config.api.tls.ca_file {
            Some(path) => read_certificates(path)
                .ok()
                .and_then(|certificates| earliest_expiry(&certificates).ok().flatten()),
            None => self.tls.authority_expiry(),
        };
        let has_ca_file = config.api.tls.ca_file.is_some();
        let clients = self.clients.as_ref().and_then(|clients| clients.expires_at());
        [
            (
                "server",
                is_from_files.then_some("api.tls.certificate"),
                self.tls.certificate_expiry(),
            ),
            ("ca", has_ca_file.then_some("api.tls.ca_file"), ca),
            ("client_ca", Some("api.tls.client_ca"), clients),
        ]
        .into_iter()
        .filter_map(|(name, key, expires_at)| {
            Some(CertificateExpiry { name, key, expires_at: timestamp(expires_at?) })
        })
        .collect()
    }

    /// Reads the CA certificates for clients again if they changed.
    fn refresh_clients(&self) {
        match self.clients.as_ref().map(|clients| clients.refresh()) {
            None | Some(Ok(false)) => {}
            Some(Ok(true)) => tracing::info!("CA certificates for clients reloaded"),
            Some(Err(error)) => tracing::warn!(
                error = error_chain::error_chain(&error),
                retry_in = ?CHECK_INTERVAL,
                "CA certificates for clients could not be read, using the previous ones"
            ),
        }
    }

    /// Replaces the certificate whenever necessary. Runs until it is dropped.
    pub(crate) async fn maintain(
        self: Arc<Self>,
        config: Config,
        store: Store,
        clock: fn() -> Timestamp,
    ) {
        let mut reload = signal(SignalKind::hangup()).ok();
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                () = received(reload.as_mut()) => tracing::info!("checking the certificate"),
            }
            let now = system_time(clock());
            let (service, settings) = (Arc::clone(&self), config.clone());
            // Reads files.
            let refresh = move || {
                let names = certificate_names(&settings);
                let refreshed = names.and_then(|names| Ok(service.tls.refresh(&names, now)?));
                service.refresh_clients();
                service.expiries.update(service.found_expiries(&settings), timestamp(now));
                refreshed
            };
            let outcome = tokio::task::spawn_blocking(refresh).await;
            match outcome.unwrap_or_else(|error| Err(error.into())) {
                Ok(CertificateChange::Unchanged) => {}
                Ok(CertificateChange::Reloaded) => tracing::info!("certificate reloaded"),
                Ok(CertificateChange::Issued { expires_at }) => {
                    tracing::info!(expires_at = %timestamp(expires_at), "certificate issued");
                    // Stored for the next start; the current CA certificate is valid for years.
                    if let Err(error) = load_authority(&store, now).await {
                        tracing::warn!(error = format!("{error:#}"), "CA certificate check failed");
                    }
                }
                Err(error) => tracing::warn!(
                    error = format!("{error:#}"),
                    retry_in = ?CHECK_INTERVAL,
                    "certificate could not be replaced, using the previous one"
                ),
            }
        }
    }
}

async fn received(signal: Option<&mut tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Loads the CA of this installation, creates it if there is none, and renews its certificate if it is
/// due. All processes that share the database use the same CA.
async fn load_authority(store: &Store, now: SystemTime) -> anyhow::Result<CertificateAuthority> {
    let load = || store.read(|reader| reader.certificate_authority());
    let stored = match load().await? {
        Some(stored) => stored,
        None => {
            let created = stored_authority(CertificateAuthority::create(now)?.record());
            store.write(move |tx| tx.add_certificate_authority(&created)).await?;
            // Another process may have been faster.
            let Some(stored) = load().await? else { bail!("it is missing after it was stored") };
            tracing::info!("certificate authority created");
            stored
        }
    };
    let authority = CertificateAuthority::open(AuthorityRecord {
        certificate: stored.certificate,
        key: AuthorityKey::from_pem(stored.key.reveal().clone()),
        expires_at: system_time(stored.expires_at),
    })?;
    if !authority.is_renewal_due(now) {
        return Ok(authority);
    }
    let renewed = authority.renew(now)?;
    let record = stored_authority(renewed.record());
    store.write(move |tx| tx.set_certificate_authority(&record)).await?;
    tracing::info!("CA certificate renewed, key unchanged");
    Ok(renewed)
}

fn stored_authority(record: &AuthorityRecord) -> StoredAuthority {
    StoredAuthority {
        certificate: record.certificate.clone(),
        key: Secret::new(record.key.reveal().to_owned()),
        expires_at: timestamp(record.expires_at),
    }
}

/// The names for which the certificate of the own CA is valid: everything under which the configuration
/// offers this server to clients, and the names and addresses of this host.
fn certificate_names(config: &Config) -> anyhow::Result<CertificateNames> {
    let mut names = CertificateNames::default();
    for name in &config.api.tls.names {
        names.add_host(name).context("api.tls.names")?;
    }
    for host in config.api.allowed_hosts.iter().filter(|host| *host != "*") {
        let name = if host.starts_with('.') { format!("*{host}") } else { host.clone() };
        names.add_host(&name).context("api.allowed_hosts")?;
    }
    let boot = &config.boot;
    for url in [
        &config.api.public_endpoint,
        &boot.api_url,
        &boot.external_callback_url,
        &boot.http_url,
        &boot.https_url,
        &boot.external_http_url,
    ] {
        // Invalid URLs are reported elsewhere.
        if let Some(host) = url.as_deref().and_then(url_host) {
            let _ = names.add_host(host);
        }
    }
    for local in ["localhost", "127.0.0.1", "::1", &host_name()] {
        // The host name may contain characters that no host name in a URL has.
        let _ = names.add_host(local);
    }
    let listening = [config.api.listen]
        .into_iter()
        .chain(http_addresses(config))
        .chain(https_addresses(config));
    let mut is_unspecified = false;
    for address in listening {
        is_unspecified |= address.ip().is_unspecified();
        names.add_address(address.ip());
    }
    for (address, _) in config.dhcp.server_addresses() {
        names.add_address(address);
    }
    if is_unspecified {
        let addresses =
            host_addresses(IpFamily::V4).into_iter().chain(host_addresses(IpFamily::V6));
        addresses.take(MAX_ADDRESSES).for_each(|address| names.add_address(address));
    }
    Ok(names)
}

/// Writes a file that every user may read, if its content differs.
fn write_public(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if std::fs::read_to_string(path).is_ok_and(|current| current == text) {
        return Ok(());
    }
    let new = path.with_extension("new");
    std::fs::write(&new, text)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o644))?;
    std::fs::rename(&new, path)
}

fn system_time(timestamp: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(timestamp.0).unwrap_or_default())
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use store::StoreSettings;

    use super::*;

    fn open_store(folder: &Path) -> Store {
        let clock = AtomicI64::new(0);
        let tick = move || Timestamp(clock.fetch_add(1, Ordering::Relaxed));
        Store::open_with_clock(&StoreSettings::in_dir(folder), Arc::new(tick)).unwrap()
    }

    /// All processes that share a database use one CA, and it is renewed in place.
    #[tokio::test]
    async fn authority_is_shared_and_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (open_store(folder.path()), open_store(folder.path()));
        let now = UNIX_EPOCH + Duration::from_secs(1_767_225_600);
        let (first, second) = tokio::join!(load_authority(&one, now), load_authority(&other, now));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(first.certificate(), second.certificate());
        let years = |count: u64| Duration::from_secs(count * 365 * 24 * 60 * 60);
        let same = load_authority(&one, now + years(6)).await.unwrap();
        assert_eq!(first.certificate(), same.certificate());
        let renewed = load_authority(&one, now + years(7)).await.unwrap();
        assert_ne!(first.certificate(), renewed.certificate());
        assert_eq!(first.record().key, renewed.record().key);
        let again = load_authority(&other, now + years(7)).await.unwrap();
        assert_eq!(again.certificate(), renewed.certificate());
    }

    #[test]
    fn certificate_has_the_configured_names() {
        let mut config = Config::default();
        config.api.listen = "10.0.0.1:6385".parse().unwrap();
        config.api.public_endpoint = Some("https://api.example/baremetal".to_owned());
        config.boot.api_url = Some("https://[fd00::5]:6385".to_owned());
        config.api.tls.names = vec!["more.example".to_owned()];
        config.api.allowed_hosts = vec![".lab.example".to_owned(), "*".to_owned()];
        let names = certificate_names(&config).unwrap();
        for name in
            ["10.0.0.1", "api.example", "fd00::5", "more.example", "*.lab.example", "localhost"]
        {
            let mut expected = CertificateNames::default();
            expected.add_host(name).unwrap();
            assert!(names.contains_all(&expected), "{name} is missing in {names:?}");
        }
        config.api.tls.names = vec!["not a name".to_owned()];
        let error = format!("{:#}", certificate_names(&config).unwrap_err());
        assert!(error.contains("api.tls.names: \"not a name\""), "{error}");
    }
}
