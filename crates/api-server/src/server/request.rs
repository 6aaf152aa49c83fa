// SPDX-License-Identifier: Apache-2.0
//! A request as a handler gets it: authenticated, with negotiated version and complete body.

use std::net::IpAddr;
use std::sync::Arc;

use access_policy::Caller;
use authentication::CredentialHeaders;
use bytes::Bytes;
use http::Method;
use ironic_wire::{ApiVersion, WireError};
use node_model::{Actor, Secret, Timestamp};

use super::access::CallerAccess;
use super::browser_headers::BrowserHeaders;
use super::client_connection::ClientConnection;
use super::request_id::RequestId;
use crate::app::App;

/// One request.
#[derive(Debug)]
pub struct ApiRequest {
    /// Shared state.
    pub app: Arc<App>,
    /// HTTP method.
    pub method: Method,
    /// Negotiated microversion; the newest on unversioned routes.
    pub version: ApiVersion,
    /// Id of this request.
    pub request_id: RequestId,
    /// The authenticated caller.
    pub caller: Caller,
    /// The headers that authenticate the caller, for responses that last longer than a request.
    pub(crate) credentials: CredentialHeaders,
    /// What the caller may do.
    pub(crate) access: CallerAccess,
    /// The connection; `None` for clients over the Unix socket.
    pub(crate) connection: Option<Arc<ClientConnection>>,
    /// `http://host:port` without a trailing slash: the prefix of all links.
    pub base_url: String,
    /// Decoded path parameters by their name in the route.
    pub params: Vec<(&'static str, String)>,
    /// Whether `.json` was removed from the end of the path. If the shorter name does not exist,
    /// the name with `.json` is tried.
    pub json_suffix_cut: bool,
    /// Decoded query parameters, in order.
    pub query: Vec<(String, String)>,
    /// The address of the client; `None` for clients over the Unix socket.
    pub client_address: Option<IpAddr>,
    /// The `X-Ferrite-Boot-Secret` header of an agent.
    pub(crate) boot_secret: Option<Secret<String>>,
    /// `Last-Event-ID` header of a client that resumes an event stream.
    pub last_event_id: Option<String>,
    /// Headers sent by browsers.
    pub(crate) browser: BrowserHeaders,
    /// The complete body; empty if absent.
    pub body: Bytes,
}

impl ApiRequest {
    /// A path parameter; empty if the route has none of that name.
    #[must_use]
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    /// The first value of a query parameter.
    #[must_use]
    pub fn query_value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Fails with 400 if the query has parameters other than `allowed`.
    pub(crate) fn check_query(&self, allowed: &[&str]) -> Result<(), WireError> {
        let unknown: Vec<&str> = self
            .query
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !allowed.contains(name))
            .collect();
        if unknown.is_empty() { Ok(()) } else { Err(WireError::unexpected(&unknown)) }
    }

    /// Records that the client has proved who it is, so that its connections are preferred when the server
    /// has too many.
    pub(crate) fn mark_client_known(&self) {
        if let Some(connection) = &self.connection {
            connection.mark_known();
        }
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.app.now()
    }

    /// The caller as recorded in the journal.
    #[must_use]
    pub fn actor(&self) -> Actor {
        Actor::User {
            name: self.caller.name().map(str::to_owned),
            project: self.caller.project().map(str::to_owned),
            request_id: self.request_id.to_string(),
        }
    }

    /// `{base_url}/v1/{rest}`.
    #[must_use]
    pub fn link(&self, rest: &str) -> String {
        format!("{}/v1/{rest}", self.base_url)
    }
}
