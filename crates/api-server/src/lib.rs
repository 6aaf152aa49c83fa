// SPDX-License-Identifier: Apache-2.0
//! HTTP server for Ironic's REST API, Ferrite's own API and the web UI.
//!
//! - [`server`]: listener, route table, request dispatch, authentication, metrics, error responses.
//! - [`ironic`]: handlers of Ironic's API, one file per resource.
//! - [`ferrite`]: handlers of `/v1/ferrite/…` and the files of the web UI.
//!
//! A [`ApiRoute`] holds everything about an endpoint except its handler's code: first microversion,
//! access, body limit, query parameters. The dispatcher reads the request, negotiates the version,
//! authenticates the caller and calls the handler with an [`ApiRequest`]; the handler returns an
//! [`ApiResponse`] or an [`ApiError`].

mod app;
mod config;
mod ferrite;
mod ironic;
mod server;

pub use app::{App, AppParts};
pub use config::{ApiConfig, BodyLimits};
pub use ferrite::openapi::openapi;
pub use server::certificate_expiry::{CertificateExpiry, CertificateExpirySource};
pub use server::listener::{ApiServer, ApiServerHandle};
pub use server::metrics::Metrics;
pub use server::metrics_listener::{MetricsServer, MetricsServerHandle};
pub use server::request_id::RequestId;
pub use server::{
    ApiError, ApiRequest, ApiResponse, ApiRoute, BodyLimit, EventSender, Handler, HandlerFuture,
    ResponseBody, RouteAccess, RouteTableError, TooOld, UNVERSIONED,
};

/// Routes of the web UI and its sign-in. They are not part of the API: add them to
/// [`AppParts::more_routes`] to serve the web UI.
pub const WEB_UI_ROUTES: &[&[ApiRoute]] =
    &[ferrite::web_ui::ROUTES, server::session::ROUTES, server::openid_login::ROUTES];
