// SPDX-License-Identifier: Apache-2.0
//! The TLS certificate of a client, which authenticates it as a user.
//!
//! The certificate was verified in the handshake. The common name of its subject is the name of the user.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use access_policy::{AuthMethod, Caller};
use http::HeaderName;
use http::header::ORIGIN;
use http::request::Parts;
use ironic_wire::WireError;
use node_model::Timestamp;
use rustls::ServerConnection;
use server_tls::CertificateInfo;

use super::browser_headers;
use crate::app::App;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The verified certificate of a client. Every request of its connection has it as an extension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClientCertificate {
    /// The common name of the subject.
    user: Option<Arc<str>>,
    expires_at: Timestamp,
}

impl ClientCertificate {
    /// The certificate of the client; `None` if it sent none.
    pub(super) fn of(connection: &ServerConnection) -> Option<Arc<Self>> {
        let certificate = connection.peer_certificates()?.first()?;
        let CertificateInfo { common_name, expires_at } = CertificateInfo::parse(certificate)
            .inspect_err(|error| tracing::warn!(%error, "client certificate ignored"))
            .ok()?;
        let since = expires_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let expires_at = Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
        Some(Arc::new(Self { user: common_name.map(Arc::from), expires_at }))
    }
}

/// The user in the certificate of a request; `None` if there is no certificate, it has expired since the
/// handshake, or it has no common name.
pub(super) fn certificate_user(app: &App, head: &Parts) -> Option<Arc<str>> {
    let certificate = head.extensions.get::<Arc<ClientCertificate>>()?;
    (certificate.expires_at > app.now()).then(|| certificate.user.clone()).flatten()
}

/// Fails if clients need a certificate and this one has none.
pub(super) fn check_required(app: &App, user: Option<&str>) -> Result<(), WireError> {
    if app.config.requires_client_certificate && user.is_none() {
        return Err(WireError::new(
            401,
            "A TLS client certificate with the name of a user is required (api.tls.client_certificates).",
        ));
    }
    Ok(())
}

/// Fails if a browser sends a change that only its certificate authenticates, and not for the web UI: like
/// cookies, browsers send certificates with requests of other pages, too.
pub(super) fn check_browser(head: &Parts, caller: &Caller) -> Result<(), WireError> {
    let headers = &head.headers;
    let is_browser = headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE);
    if caller.method == AuthMethod::ClientCertificate
        && is_browser
        && !head.method.is_safe()
        && !headers.contains_key(browser_headers::WEB_UI)
    {
        return Err(WireError::new(
            403,
            "Changes of browsers authenticated by a certificate need the header X-Ferrite-Page.",
        ));
    }
    Ok(())
}
