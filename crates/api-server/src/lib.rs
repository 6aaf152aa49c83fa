// SPDX-License-Identifier: Apache-2.0
//! Ironic's REST API over HTTP: routing, microversions, sign-in, handlers, the event stream.
//!
//! One table of routes says everything about each endpoint: when it appeared, who may call it, how
//! large its body may be, which function answers. The frame around the table reads the request,
//! negotiates the version, checks the caller, and turns what the handler returns into a response;
//! handlers see a [`Call`] and return a [`Reply`] or a refusal.

mod agent;
mod agent_logs;
mod allocations;
mod answer;
mod app;
mod audit;
mod auth;
mod belongings;
mod boot;
mod call;
mod chassis;
mod conductors;
mod config;
mod deploy_templates;
mod driver_vendor;
mod drivers;
mod durations;
mod event_stream;
mod explain;
mod ferrite;
mod flavours;
mod fleet;
mod health;
mod htpasswd;
mod images;
mod inspection;
mod inspection_rules;
mod kept;
mod metrics;
mod networks;
mod nodes;
mod openapi;
mod page;
mod page_headers;
mod path;
mod portgroups;
mod ports;
mod refusal;
mod reply;
mod request_id;
mod root;
mod routes;
mod runbooks;
mod search;
mod server;
mod session;
mod sightings;
mod topology;
mod volume_connectors;
mod volume_targets;
mod volumes;

pub use app::{App, AppParts};
pub use auth::{Authenticator, Identity};
pub use call::Call;
pub use config::{ApiConfig, AuthStrategy, BodyLimits};
pub use htpasswd::{FirstPassword, HtpasswdError};
pub use metrics::Metrics;
pub use openapi::openapi;
pub use refusal::Refusal;
pub use reply::{EventSender, Reply};
pub use request_id::RequestId;
pub use routes::{
    Access, BodyLimit, Handler, HandlerFuture, Route, RouteTableError, TooOld, UNVERSIONED,
};
pub use server::{Server, ServerHandle};

/// The web page and signing in to it. They are no part of the API: whoever puts the program together
/// adds them to [`AppParts::more_routes`].
pub const PAGE_ROUTES: &[&[Route]] = &[page::ROUTES, session::ROUTES];
