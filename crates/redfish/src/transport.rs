// SPDX-License-Identifier: Apache-2.0
//! The HTTP clients under the Redfish clients, shared by all BMCs that want the same of them.
//!
//! A fleet has thousands of BMCs and two or three ways to check certificates. One HTTP client
//! (with its roots, its TLS session memory and its connection pool) is made per way and kept for
//! the life of the process; a Redfish client on top of it costs a few hundred bytes.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::{Endpoint, Error, MinTls, Timeouts, Trust, tls};

/// How long a connection that is not used stays open. BMCs have few to give, and close them
/// themselves after 5 to 60 seconds.
const IDLE: Duration = Duration::from_secs(30);

/// What an HTTP client is shared by.
#[derive(PartialEq, Eq, Hash)]
enum Kind {
    /// Without TLS.
    Plain { connect: Duration },
    /// With TLS that trusts these and is at least this new.
    Secure { connect: Duration, trust: Trust, min_tls: MinTls },
}

/// A client, and the state of the CA file it was made from.
struct Made {
    client: reqwest::Client,
    state: Option<FileState>,
}

/// What changes when a file does; of a folder, when files come to it or go from it.
#[derive(PartialEq, Eq)]
struct FileState {
    changed: SystemTime,
    length: u64,
}

static CLIENTS: LazyLock<Mutex<HashMap<Kind, Made>>> = LazyLock::new(Mutex::default);

/// The HTTP client for this endpoint: a new one the first time such a one is wanted, and when the
/// CA file has changed since.
pub(crate) fn client(endpoint: &Endpoint, timeouts: &Timeouts) -> Result<reqwest::Client, Error> {
    let connect = timeouts.connect;
    let plain = endpoint.address.starts_with("http://");
    let (kind, state) = if plain {
        (Kind::Plain { connect }, None)
    } else {
        let (trust, min_tls) = (endpoint.trust.clone(), endpoint.min_tls);
        let state = match &trust {
            Trust::File(path) => Some(state_of(path)?),
            Trust::System | Trust::Nobody => None,
        };
        (Kind::Secure { connect, trust, min_tls }, state)
    };
    // The map is whole at every instant: a panic elsewhere cannot have left it half changed.
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(made) = clients.get(&kind).filter(|made| made.state == state) {
        return Ok(made.client.clone());
    }
    let tls = match &kind {
        // Never used, but reqwest would look for a process-wide default otherwise.
        Kind::Plain { .. } => tls::config(&Trust::Nobody, MinTls::V1_2)?,
        Kind::Secure { trust, min_tls, .. } => tls::config(trust, *min_tls)?,
    };
    let client = build(tls, connect).map_err(|error| Error::BadAddress {
        address: endpoint.address.clone(),
        why: format!("no HTTP client can be made for it: {error}"),
    })?;
    clients.insert(kind, Made { client: client.clone(), state });
    Ok(client)
}

/// Why no answer came, and what may be done about it.
pub(crate) struct Failure {
    /// The error for the caller.
    pub(crate) error: Error,
    /// How far the request got.
    pub(crate) reached: Reached,
}

/// How far a request got before it failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reached {
    /// The BMC refused the connection: it cannot have seen the request.
    NotConnected,
    /// The connection broke before the answer was whole: an idle connection the BMC had just
    /// closed looks like this.
    Broken,
    /// It took too long, or something failed that will fail again.
    Hopeless,
}

impl Failure {
    /// Tells what `error` means for a request to `address`.
    pub(crate) fn of(error: &reqwest::Error, address: &str, timeouts: &Timeouts) -> Self {
        let address = address.to_owned();
        if let Some(tls) = find::<rustls::Error>(error) {
            let error = Error::Certificate { address, why: tls::words(tls) };
            return Self { error, reached: Reached::Hopeless };
        }
        let (why, reached) = if error.is_timeout() {
            let (what, limit) = if error.is_connect() {
                ("it takes no connection", timeouts.connect)
            } else {
                ("it gave no whole answer", timeouts.request)
            };
            (format!("{what} within {} s", limit.as_secs_f32()), Reached::Hopeless)
        } else if error.is_connect() {
            let refused = find::<io::Error>(error)
                .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            let reached = if refused { Reached::NotConnected } else { Reached::Hopeless };
            (connect_words(error), reached)
        } else {
            (format!("the connection broke: {}", root_cause(error)), Reached::Broken)
        };
        Self { error: Error::Unreachable { address, why }, reached }
    }
}

fn build(tls: rustls::ClientConfig, connect: Duration) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .http1_only()
        // BMCs are near; a proxy for the way out has no business here.
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

fn state_of(path: &Path) -> Result<FileState, Error> {
    let read = || {
        let metadata = std::fs::metadata(path)?;
        Ok(FileState { changed: metadata.modified()?, length: metadata.len() })
    };
    read().map_err(|error: io::Error| Error::BadTrust {
        path: path.to_owned(),
        why: error.to_string(),
    })
}

fn connect_words(error: &reqwest::Error) -> String {
    if error.is_dns() {
        return "its host name is not known to the name servers".to_owned();
    }
    let Some(cause) = find::<io::Error>(error) else { return root_cause(error) };
    // Only what happens to connections; the rest speaks for itself.
    let known = [
        (io::ErrorKind::ConnectionRefused, "nothing listens at that port (connection refused)"),
        (io::ErrorKind::HostUnreachable, "there is no such host on its network (no route to host)"),
        (io::ErrorKind::NetworkUnreachable, "there is no route to its network"),
        (io::ErrorKind::ConnectionReset, "it breaks the connection off as soon as it is made"),
        (io::ErrorKind::UnexpectedEof, "it closes the connection as soon as it is made"),
        (io::ErrorKind::TimedOut, "it takes no connection (timed out)"),
    ];
    let words = known.iter().find(|(kind, _)| *kind == cause.kind());
    words.map_or_else(|| cause.to_string(), |(_, words)| (*words).to_owned())
}

/// The first error of this type in the chain. What an I/O error carries is looked at too: it does
/// not count as the error's source.
fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            // Wrappers of their own kind hide the error that has the real reason.
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

/// What the innermost error says: the outer ones only say that there was one.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn StdError = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
