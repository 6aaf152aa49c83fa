// SPDX-License-Identifier: Apache-2.0
//! HTTP infrastructure: everything between the socket and a handler.

pub(crate) mod auth;
mod body;
pub(crate) mod browser_headers;
mod dispatch;
mod error;
pub(crate) mod health;
pub(crate) mod htpasswd;
pub(crate) mod listener;
pub(crate) mod metrics;
mod request;
pub(crate) mod request_id;
mod response;
pub(crate) mod routes;
pub(crate) mod session;
mod task;
mod url;

pub use error::ApiError;
pub(crate) use error::ReplaceDuplicate;
pub use request::ApiRequest;
pub(crate) use response::MaybeCompressed;
pub use response::{ApiResponse, EventSender};
pub use routes::{
    ApiRoute, BodyLimit, Handler, HandlerFuture, RouteAccess, RouteTableError, TooOld, UNVERSIONED,
};
pub(crate) use task::run_to_completion;
