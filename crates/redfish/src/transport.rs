// SPDX-License-Identifier: Apache-2.0
//! The HTTP clients of the Redfish clients, shared by all BMCs with the same TLS settings.
//!
//! A fleet has thousands of BMCs but only two or three TLS configurations. There is one HTTP client
//! (with CA certificates, TLS session cache and connection pool) per configuration for the life of the
//! process; a Redfish client on top of it takes a few hundred bytes.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::{CertificateTrust, MinTlsVersion, RedfishEndpoint, RedfishError, RedfishTimeouts, tls};

/// Idle connections are closed after this time. BMCs allow few connections, and close idle ones
/// themselves after 5 to 60 seconds.
const IDLE: Duration = Duration::from_secs(30);

/// The settings that identify a shared HTTP client.
#[derive(PartialEq, Eq, Hash)]
enum HttpClientKey {
    /// Without TLS.
    Plain { connect: Duration },
    /// With TLS.
    Secure { connect: Duration, trust: CertificateTrust, min_tls: MinTlsVersion },
}

/// A client, and the state of the CA file it was built from.
struct CachedHttpClient {
    client: reqwest::Client,
    state: Option<FileState>,
}

/// Changes when the file changes; for a directory, when files are added or removed.
#[derive(PartialEq, Eq)]
struct FileState {
    changed: SystemTime,
    length: u64,
}

static CLIENTS: LazyLock<Mutex<HashMap<HttpClientKey, CachedHttpClient>>> =
    LazyLock::new(Mutex::default);

/// Returns the HTTP client for this endpoint; builds it on first use and after a change of the CA
/// file.
pub(crate) fn client(
    endpoint: &RedfishEndpoint,
    timeouts: &RedfishTimeouts,
) -> Result<reqwest::Client, RedfishError> {
    let connect = timeouts.connect;
    let plain = endpoint.address.starts_with("http://");
    let (kind, state) = if plain {
        (HttpClientKey::Plain { connect }, None)
    } else {
        let (trust, min_tls) = (endpoint.trust.clone(), endpoint.min_tls);
        let state = match &trust {
            CertificateTrust::File(path) => Some(state_of(path)?),
            CertificateTrust::System | CertificateTrust::AnyCertificate => None,
        };
        (HttpClientKey::Secure { connect, trust, min_tls }, state)
    };
    // The map is always consistent, so a poisoned lock is usable.
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(made) = clients.get(&kind).filter(|made| made.state == state) {
        return Ok(made.client.clone());
    }
    let tls = match &kind {
        // Not used, but without it reqwest requires a process-wide default.
        HttpClientKey::Plain { .. } => {
            tls::config(&CertificateTrust::AnyCertificate, MinTlsVersion::V1_2)?
        }
        HttpClientKey::Secure { trust, min_tls, .. } => tls::config(trust, *min_tls)?,
    };
    let client = build(tls, connect).map_err(|error| RedfishError::BadAddress {
        address: endpoint.address.clone(),
        why: format!("no HTTP client can be made for it: {error}"),
    })?;
    clients.insert(kind, CachedHttpClient { client: client.clone(), state });
    Ok(client)
}

/// Why there is no response.
pub(crate) struct TransportFailure {
    /// The error for the caller.
    pub(crate) error: RedfishError,
    /// The progress of the request.
    pub(crate) reached: RequestProgress,
}

/// The progress of a request before it failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestProgress {
    /// The connection was refused, so the BMC has not received the request.
    NotConnected,
    /// The connection broke before the response was complete, for example an idle connection that
    /// the BMC had just closed.
    Broken,
    /// A timeout, or an error that would repeat.
    Hopeless,
}

impl TransportFailure {
    /// Classifies an error of a request to `address`.
    pub(crate) fn of(error: &reqwest::Error, address: &str, timeouts: &RedfishTimeouts) -> Self {
        let address = address.to_owned();
        if let Some(tls) = find::<rustls::Error>(error) {
            let error = RedfishError::Certificate { address, why: tls::describe_tls_error(tls) };
            return Self { error, reached: RequestProgress::Hopeless };
        }
        let (why, reached) = if error.is_timeout() {
            let (what, limit) = if error.is_connect() {
                ("it accepts no connection", timeouts.connect)
            } else {
                ("no complete response", timeouts.request)
            };
            (format!("{what} within {} s", limit.as_secs_f32()), RequestProgress::Hopeless)
        } else if error.is_connect() {
            let refused = find::<io::Error>(error)
                .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            let reached =
                if refused { RequestProgress::NotConnected } else { RequestProgress::Hopeless };
            (describe_connect_error(error), reached)
        } else {
            (format!("the connection broke: {}", root_cause(error)), RequestProgress::Broken)
        };
        Self { error: RedfishError::Unreachable { address, why }, reached }
    }
}

fn build(tls: rustls::ClientConfig, connect: Duration) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .http1_only()
        // BMCs are on the management network, not behind a proxy.
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .tcp_nodelay(true)
        .connect_timeout(connect)
        .pool_max_idle_per_host(1)
        .pool_idle_timeout(IDLE)
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .build()
}

fn state_of(path: &Path) -> Result<FileState, RedfishError> {
    let read = || {
        let metadata = std::fs::metadata(path)?;
        Ok(FileState { changed: metadata.modified()?, length: metadata.len() })
    };
    read().map_err(|error: io::Error| RedfishError::BadTrust {
        path: path.to_owned(),
        why: error.to_string(),
    })
}

fn describe_connect_error(error: &reqwest::Error) -> String {
    if error.is_dns() {
        return "its host name is not known to the name servers".to_owned();
    }
    let Some(cause) = find::<io::Error>(error) else { return root_cause(error) };
    // Only connection errors; the texts of others are clear.
    let known = [
        (io::ErrorKind::ConnectionRefused, "nothing listens at that port (connection refused)"),
        (io::ErrorKind::HostUnreachable, "there is no such host on its network (no route to host)"),
        (io::ErrorKind::NetworkUnreachable, "there is no route to its network"),
        (io::ErrorKind::ConnectionReset, "it resets the connection immediately"),
        (io::ErrorKind::UnexpectedEof, "it closes the connection immediately"),
        (io::ErrorKind::TimedOut, "it accepts no connection (timed out)"),
    ];
    let words = known.iter().find(|(kind, _)| *kind == cause.kind());
    words.map_or_else(|| cause.to_string(), |(_, words)| (*words).to_owned())
}

/// Returns the first error of this type in the chain, including the errors inside of I/O errors,
/// which are not their sources.
fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            // An I/O error may wrap another one with the real reason.
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            return inner.and_then(|inner| find::<E>(inner)).or(Some(found));
        }
        let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = carried.and_then(|carried| find::<E>(carried)) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The text of the innermost error; the outer ones add nothing.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn StdError = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
