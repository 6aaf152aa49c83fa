// SPDX-License-Identifier: Apache-2.0
//! A request as a handler gets it: authenticated, with negotiated version and complete body.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use ironic_wire::{ApiVersion, WireError};
use node_model::{Actor, Timestamp};

use super::auth::CallerIdentity;
use super::browser_headers::BrowserHeaders;
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
    pub identity: CallerIdentity,
    /// `http://host:port` without a trailing slash: the prefix of all links.
    pub base_url: String,
    /// Decoded path parameters by their name in the route.
    pub params: Vec<(&'static str, String)>,
    /// Whether `.json` was removed from the end of the path. If the shorter name does not exist,
    /// the name with `.json` is tried.
    pub json_suffix_cut: bool,
    /// Decoded query parameters, in order.
    pub query: Vec<(String, String)>,
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

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.app.now()
    }

    /// The caller as recorded in the journal.
    #[must_use]
    pub fn actor(&self) -> Actor {
        Actor::User {
            name: self.identity.name().map(str::to_owned),
            request_id: self.request_id.to_string(),
        }
    }

    /// `{base_url}/v1/{rest}`.
    #[must_use]
    pub fn link(&self, rest: &str) -> String {
        format!("{}/v1/{rest}", self.base_url)
    }
}
