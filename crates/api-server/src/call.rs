// SPDX-License-Identifier: Apache-2.0
//! A request as a handler sees it: authenticated, versioned, with its body read.

use std::sync::Arc;

use bytes::Bytes;
use node_model::{Actor, Timestamp};

use crate::app::App;
use crate::auth::Identity;
use crate::page_headers::PageHeaders;
use crate::request_id::RequestId;
use ironic_wire::ApiVersion;

/// One request.
#[derive(Debug)]
pub struct Call {
    /// Everything the program shares.
    pub app: Arc<App>,
    /// The microversion it is served at; the newest on routes without versions.
    pub version: ApiVersion,
    /// Its name.
    pub request_id: RequestId,
    /// Who calls.
    pub identity: Identity,
    /// `http://host:port`, without a trailing slash: links start with it.
    pub base_url: String,
    /// The decoded path segments that stand for something, by their name in the route.
    pub params: Vec<(&'static str, String)>,
    /// Whether `.json` was cut off the path. A thing whose name ends in it is tried when the
    /// shorter name does not exist.
    pub json_suffix_cut: bool,
    /// The decoded query, in order.
    pub query: Vec<(String, String)>,
    /// `Last-Event-ID`, where a stream of events is taken up again.
    pub last_event_id: Option<String>,
    /// What browsers say.
    pub(crate) page: PageHeaders,
    /// The whole body; empty if there is none.
    pub body: Bytes,
}

impl Call {
    /// The path segment the route calls `name`; empty if it has none of that name.
    #[must_use]
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    /// The first value of a query parameter.
    #[must_use]
    pub fn query_value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The moment, by the program's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.app.now()
    }

    /// The caller, for the journal.
    #[must_use]
    pub fn actor(&self) -> Actor {
        Actor::User {
            name: self.identity.name().map(str::to_owned),
            request_id: self.request_id.to_string(),
        }
    }

    /// `{base}/v1/{rest}`: where something is found.
    #[must_use]
    pub fn link(&self, rest: &str) -> String {
        format!("{}/v1/{rest}", self.base_url)
    }
}
