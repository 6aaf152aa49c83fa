// SPDX-License-Identifier: Apache-2.0
//! HTTP infrastructure: everything between the socket and a handler.

pub(crate) mod access;
pub(crate) mod audit_log;
pub(crate) mod auth_response;
mod body;
pub(crate) mod browser_headers;
mod byte_budget;
pub(crate) mod certificate_expiry;
mod client_certificate;
mod client_connection;
pub(crate) mod client_limits;
pub(crate) mod dispatch;
mod error;
pub(crate) mod health;
pub(crate) mod listener;
pub(crate) mod metrics;
pub(crate) mod metrics_listener;
pub(crate) mod openid_login;
mod parser_threads;
mod request;
pub(crate) mod request_id;
pub(crate) mod request_origin;
mod request_rate;
mod response;
pub(crate) mod routes;
pub(crate) mod session;
mod task;
pub(crate) mod transport;
mod unix_socket;
mod url;

pub use error::ApiError;
pub(crate) use error::ReplaceDuplicate;
pub use request::ApiRequest;
pub(crate) use response::MaybeCompressed;
pub use response::{ApiResponse, EventSender, ResponseBody};
pub use routes::{
    ApiRoute, BodyLimit, Handler, HandlerFuture, RouteAccess, RouteTableError, TooOld, UNVERSIONED,
};
pub(crate) use task::run_to_completion;
