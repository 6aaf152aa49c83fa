// SPDX-License-Identifier: Apache-2.0
//! The route table and the router built from it.
//!
//! Each handler file has its own slice of [`ApiRoute`]s; `ironic::ROUTES` and `ferrite::ROUTES` list
//! the slices. The OpenAPI document is generated from the same rows.

use std::pin::Pin;

use http::Method;

use super::error::ApiError;
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::{health, url};
use crate::{ferrite, ironic};

/// All routes of the API, without those of the web UI.
pub(crate) fn api_routes() -> impl Iterator<Item = &'static ApiRoute> {
    ironic::ROUTES.iter().chain(ferrite::ROUTES).copied().flatten().chain(health::ROUTES)
}

/// The future of a handler.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<ApiResponse, ApiError>> + Send>>;

/// A handler. `handler!(list)` makes one from
/// `async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError>`.
pub type Handler = fn(ApiRequest) -> HandlerFuture;

/// Makes a [`Handler`] from an async function.
#[macro_export]
macro_rules! handler {
    ($function:path) => {
        |request| ::std::boxed::Box::pin($function(request))
    };
}

/// `ApiRoute::since` of endpoints without microversions: they ignore the version headers of requests
/// and send none.
pub const UNVERSIONED: u16 = 0;

/// One endpoint.
#[derive(Debug)]
pub struct ApiRoute {
    /// HTTP method.
    pub method: Method,
    /// Path with `/v1` prefix; `{name}` marks a path parameter.
    pub path: &'static str,
    /// First minor version that has the endpoint, or [`UNVERSIONED`].
    pub since: u16,
    /// Response to clients of older versions.
    pub too_old: TooOld,
    /// Known query parameters, for the documentation only; the handler checks them.
    pub query: &'static [&'static str],
    /// One-line description.
    pub summary: &'static str,
    /// Which body size limit applies.
    pub body_limit: BodyLimit,
    /// Who may call it.
    pub access: RouteAccess,
    /// The handler.
    pub handler: Handler,
}

/// Response to a client whose version is older than the endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooOld {
    /// 404: most endpoints.
    NotFound,
    /// 405: writes to newer collections.
    MethodNotAllowed,
    /// 406.
    NotAcceptable,
    /// The handler decides, because Ironic makes other checks first.
    HandlerDecides,
}

/// Which of the configured body limits applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLimit {
    /// `BodyLimits::small`.
    Small,
    /// `BodyLimits::provision`, for bodies with a config drive.
    Provision,
    /// `BodyLimits::inspection`, for inspection data.
    Inspection,
}

/// Who may call an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteAccess {
    /// Every caller.
    Public,
    /// Authenticated callers.
    Authenticated,
    /// Every caller if `public_metrics` is set, else authenticated callers.
    Metrics,
}

impl ApiRoute {
    /// A GET route of version 1.1 for authenticated callers.
    #[must_use]
    pub const fn get(path: &'static str, summary: &'static str, handler: Handler) -> Self {
        Self::new(Method::GET, path, summary, handler)
    }

    /// A route of version 1.1 for authenticated callers with a small body.
    #[must_use]
    pub const fn new(
        method: Method,
        path: &'static str,
        summary: &'static str,
        handler: Handler,
    ) -> Self {
        Self {
            method,
            path,
            since: 1,
            too_old: TooOld::NotFound,
            query: &[],
            summary,
            body_limit: BodyLimit::Small,
            access: RouteAccess::Authenticated,
            handler,
        }
    }

    /// Sets the first minor version; older clients get 404.
    #[must_use]
    pub const fn since(mut self, minor: u16) -> Self {
        self.since = minor;
        self
    }

    /// Sets the response to older clients.
    #[must_use]
    pub const fn too_old(mut self, too_old: TooOld) -> Self {
        self.too_old = too_old;
        self
    }

    /// Sets the documented query parameters.
    #[must_use]
    pub const fn query(mut self, query: &'static [&'static str]) -> Self {
        self.query = query;
        self
    }

    /// Sets the body limit.
    #[must_use]
    pub const fn body_limit(mut self, body_limit: BodyLimit) -> Self {
        self.body_limit = body_limit;
        self
    }

    /// Sets who may call the route.
    #[must_use]
    pub const fn access(mut self, access: RouteAccess) -> Self {
        self.access = access;
        self
    }
}

/// The route table is inconsistent.
#[derive(Debug, thiserror::Error)]
pub enum RouteTableError {
    /// A path is malformed or overlaps another.
    #[error("route {path} cannot be added to the router")]
    Path {
        /// The path.
        path: &'static str,
        /// The router's reason.
        #[source]
        source: matchit::InsertError,
    },
    /// Two routes have the same method and path.
    #[error("{method} {path} is in the route table twice")]
    Twice {
        /// The method.
        method: Method,
        /// The path.
        path: &'static str,
    },
}

/// Finds routes by path and method.
#[derive(Debug)]
pub(crate) struct Router {
    paths: matchit::Router<Vec<RouteEntry>>,
    first_segments: Vec<&'static str>,
    routes: usize,
}

/// A route with its index in the table and the names of its path parameters.
#[derive(Debug)]
pub(crate) struct RouteEntry {
    pub(crate) index: usize,
    pub(crate) route: &'static ApiRoute,
    names: Vec<&'static str>,
}

/// Result of a lookup in the router.
#[derive(Debug)]
pub(crate) enum RouteMatch<'r> {
    /// The route and its decoded path parameters.
    Route(&'r RouteEntry, Vec<(&'static str, String)>),
    /// The path exists, with other methods.
    OtherMethods(&'r [RouteEntry]),
    /// The path does not exist.
    NotFound {
        /// Whether the first path segment exists.
        known_first_segment: bool,
    },
}

impl Router {
    /// Builds the router from `routes`.
    pub(crate) fn build(
        routes: impl Iterator<Item = &'static ApiRoute>,
    ) -> Result<Self, RouteTableError> {
        let mut paths = matchit::Router::<Vec<RouteEntry>>::new();
        let mut by_path: Vec<(&'static str, Vec<RouteEntry>)> = Vec::new();
        let mut first_segments = Vec::new();
        let mut count = 0;
        for route in routes {
            let key = url::route_key(route.path.strip_suffix('/').unwrap_or(route.path));
            let first = url::first_segment(key);
            if !first_segments.contains(&first) {
                first_segments.push(first);
            }
            let entry = RouteEntry { index: count, route, names: segment_names(key) };
            count += 1;
            match by_path.iter_mut().find(|(path, _)| *path == key) {
                None => by_path.push((key, vec![entry])),
                Some((_, methods)) => {
                    if methods.iter().any(|other| other.route.method == route.method) {
                        let method = route.method.clone();
                        return Err(RouteTableError::Twice { method, path: route.path });
                    }
                    methods.push(entry);
                }
            }
        }
        for (path, methods) in by_path {
            paths.insert(path, methods).map_err(|source| RouteTableError::Path { path, source })?;
        }
        Ok(Self { paths, first_segments, routes: count })
    }

    /// Number of routes.
    pub(crate) fn len(&self) -> usize {
        self.routes
    }

    /// Looks up a method and a route key.
    pub(crate) fn find(&self, method: &Method, key: &str) -> RouteMatch<'_> {
        let Ok(found) = self.paths.at(key) else {
            let known_first_segment = self.first_segments.contains(&url::first_segment(key));
            return RouteMatch::NotFound { known_first_segment };
        };
        match found.value.iter().find(|entry| method_matches(method, entry.route)) {
            None => RouteMatch::OtherMethods(found.value),
            Some(entry) => {
                let values = found.params.iter().map(|(_, value)| value.to_owned());
                let params = entry.names.iter().copied().zip(values).collect();
                RouteMatch::Route(entry, params)
            }
        }
    }
}

/// Only the version documents and unversioned endpoints support HEAD; as in Ironic, all
/// others reject it.
fn method_matches(method: &Method, route: &ApiRoute) -> bool {
    *method == route.method
        || (*method == Method::HEAD
            && route.method == Method::GET
            && (route.since == UNVERSIONED || matches!(route.path, "/" | "/v1")))
}

fn segment_names(path: &'static str) -> Vec<&'static str> {
    path.split('/')
        .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| name.strip_prefix('*').unwrap_or(name))
        .collect()
}
