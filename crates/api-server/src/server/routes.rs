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
    /// Whether the requests of each client are limited: for public routes that use the database.
    pub is_rate_limited: bool,
    /// Whether users may follow a link of another site to it.
    pub allows_links: bool,
    /// Whether requests for other host names are served: for health checks and metrics.
    pub allows_any_host: bool,
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
    /// 256 KiB, or `BodyLimits::small` if that is less: heartbeats and sign-ins.
    Message,
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
    /// All authenticated callers: no rule, because the response contains no resources.
    Authenticated,
    /// Every caller if `public_metrics` is set, else callers who may read metrics.
    Metrics,
    /// Callers who match the rule. Checked by the dispatcher, without a resource.
    Rule(&'static str),
    /// Callers who may see the resource in the path (else 404) and match the rule for it (else 403).
    /// Checked when the handler looks up the resource.
    Resource(&'static str),
    /// Callers who may list all resources, or those of their project. The handler filters the list
    /// with `CallerAccess::list_project`.
    List {
        /// The rule for all resources.
        all: &'static str,
        /// The rule for the resources of the caller's project.
        own: &'static str,
    },
    /// The handler checks these rules, or further ones that depend on the content of the request.
    CheckedByHandler(&'static [&'static str]),
    /// No rule yet: only callers without restriction. A test fails if a route has it.
    Unassigned,
}

impl RouteAccess {
    /// The policy rules by which the route is protected.
    #[must_use]
    pub fn rules(self) -> Vec<&'static str> {
        match self {
            Self::Public | Self::Authenticated | Self::Unassigned => Vec::new(),
            Self::Metrics => vec!["ferrite:metrics:get"],
            Self::Rule(rule) | Self::Resource(rule) => vec![rule],
            Self::List { all, own } => vec![all, own],
            Self::CheckedByHandler(rules) => rules.to_vec(),
        }
    }
}

impl ApiRoute {
    /// A GET route of version 1.1. Set its access with one of the methods below.
    #[must_use]
    pub const fn get(path: &'static str, summary: &'static str, handler: Handler) -> Self {
        Self::new(Method::GET, path, summary, handler)
    }

    /// A route of version 1.1 with a small body. Set its access with one of the methods below.
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
            access: RouteAccess::Unassigned,
            is_rate_limited: false,
            allows_links: true,
            allows_any_host: false,
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

    /// Limits the requests of each client, see `ApiConfig::unauthenticated_requests_per_second`. Links of
    /// other sites are rejected: they could use up the limit of the browser's address.
    #[must_use]
    pub const fn rate_limited(mut self) -> Self {
        self.is_rate_limited = true;
        self.allows_links = false;
        self
    }

    /// Like [`ApiRoute::rate_limited`], for pages to which other sites link.
    #[must_use]
    pub const fn rate_limited_page(mut self) -> Self {
        self.is_rate_limited = true;
        self
    }

    /// Serves requests for other host names.
    #[must_use]
    pub const fn any_host(mut self) -> Self {
        self.allows_any_host = true;
        self
    }

    /// For callers who match the policy rule; see [`RouteAccess::Rule`].
    #[must_use]
    pub const fn rule(self, rule: &'static str) -> Self {
        self.access(RouteAccess::Rule(rule))
    }

    /// For callers who match the policy rule for the resource in the path; see
    /// [`RouteAccess::Resource`].
    #[must_use]
    pub const fn resource(self, rule: &'static str) -> Self {
        self.access(RouteAccess::Resource(rule))
    }

    /// A list that is filtered for callers of a project; see [`RouteAccess::List`].
    #[must_use]
    pub const fn list(self, all: &'static str, own: &'static str) -> Self {
        self.access(RouteAccess::List { all, own })
    }

    /// The handler checks the rules; see [`RouteAccess::CheckedByHandler`].
    #[must_use]
    pub const fn checked_by_handler(self, rules: &'static [&'static str]) -> Self {
        self.access(RouteAccess::CheckedByHandler(rules))
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

#[cfg(test)]
mod tests {
    use access_policy::Policy;

    use super::*;

    #[test]
    fn every_route_has_an_access_with_existing_rules() {
        let policy = Policy::with_overrides(None).unwrap();
        let web_ui = crate::WEB_UI_ROUTES.iter().copied().flatten();
        for route in api_routes().chain(web_ui) {
            let (method, path) = (&route.method, route.path);
            assert_ne!(route.access, RouteAccess::Unassigned, "{method} {path}");
            for rule in route.access.rules() {
                assert!(policy.has_rule(rule), "{method} {path}: there is no rule {rule}");
            }
            if matches!(route.access, RouteAccess::Resource(_)) {
                assert!(path.contains('{') || path == "/v1/nodes/validate", "{method} {path}");
            }
        }
    }
}
