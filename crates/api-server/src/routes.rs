// SPDX-License-Identifier: Apache-2.0
//! The table of routes and the router built from it.
//!
//! Each subject keeps its own slice of [`Route`]s next to its handlers; [`TABLES`] lists the
//! slices. Everything about an endpoint that is not its handler's business is said here once, and
//! the OpenAPI document is generated from the same rows.

use std::pin::Pin;

use http::Method;

use crate::call::Call;
use crate::path;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::{
    agent, agent_logs, allocations, audit, boot, chassis, conductors, deploy_templates,
    driver_vendor, drivers, durations, event_stream, explain, ferrite, flavours, fleet, health,
    images, inspection, inspection_rules, networks, nodes, openapi, portgroups, ports, root,
    runbooks, search, sightings, topology, volume_connectors, volume_targets, volumes,
};

/// Every route of the API, by subject.
pub(crate) const TABLES: &[&[Route]] = &[
    root::ROUTES,
    nodes::list::ROUTES,
    nodes::show::ROUTES,
    nodes::create::ROUTES,
    nodes::change::ROUTES,
    nodes::remove::ROUTES,
    nodes::maintenance::ROUTES,
    nodes::validate::ROUTES,
    nodes::traits::ROUTES,
    nodes::findings::ROUTES,
    nodes::history::ROUTES,
    nodes::children::ROUTES,
    allocations::ROUTES,
    drivers::ROUTES,
    chassis::ROUTES,
    ports::ROUTES,
    portgroups::ROUTES,
    volumes::ROUTES,
    volume_connectors::ROUTES,
    volume_targets::ROUTES,
    deploy_templates::ROUTES,
    runbooks::ROUTES,
    inspection_rules::ROUTES,
    conductors::ROUTES,
    driver_vendor::ROUTES,
    nodes::states::ROUTES,
    nodes::provision::ROUTES,
    nodes::power::ROUTES,
    nodes::raid::ROUTES,
    nodes::console::ROUTES,
    nodes::console_stream::ROUTES,
    nodes::management::ROUTES,
    nodes::indicators::ROUTES,
    nodes::vendor::ROUTES,
    nodes::vifs::ROUTES,
    nodes::vmedia::ROUTES,
    agent::ROUTES,
    boot::ROUTES,
    sightings::ROUTES,
    topology::ROUTES,
    flavours::ROUTES,
    agent_logs::ROUTES,
    inspection::ROUTES,
    ferrite::ROUTES,
    explain::ROUTES,
    fleet::ROUTES,
    search::ROUTES,
    audit::ROUTES,
    durations::ROUTES,
    images::ROUTES,
    networks::ROUTES,
    event_stream::ROUTES,
    openapi::ROUTES,
    health::ROUTES,
];

/// What a handler returns.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>>;

/// A handler. `handler!(list)` makes one of `async fn list(call: Call) -> Result<Reply, Refusal>`.
pub type Handler = fn(Call) -> HandlerFuture;

/// Makes a [`Handler`] of an async function.
#[macro_export]
macro_rules! handler {
    ($function:path) => {
        |call| ::std::boxed::Box::pin($function(call))
    };
}

/// `Route::since` of endpoints that have no microversions: they ignore the version headers and
/// answer without them.
pub const UNVERSIONED: u16 = 0;

/// One endpoint.
#[derive(Debug)]
pub struct Route {
    /// Its method.
    pub method: Method,
    /// Its path, with `/v1` in front and `{name}` for segments that stand for something.
    pub path: &'static str,
    /// The minor version it appeared in, or [`UNVERSIONED`].
    pub since: u16,
    /// What clients of older versions are told.
    pub too_old: TooOld,
    /// The query parameters it knows; the handler checks them, this names them for the
    /// documentation.
    pub query: &'static [&'static str],
    /// What it does, in a line.
    pub summary: &'static str,
    /// How large its body may be.
    pub body_limit: BodyLimit,
    /// Who may call it.
    pub access: Access,
    /// What answers it.
    pub handler: Handler,
}

/// What a client is told whose version is older than the endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooOld {
    /// 404, as for most.
    NotFound,
    /// 405, as for writes to the younger collections.
    MethodNotAllowed,
    /// 406.
    NotAcceptable,
    /// The handler decides: Ironic looks at other things first.
    HandlerDecides,
}

/// Which limit holds for the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLimit {
    /// The usual one.
    Small,
    /// The one for bodies with a config drive.
    Provision,
    /// The one for inspection data.
    Inspection,
}

/// Who may call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Everybody.
    Public,
    /// Whoever has signed in.
    Authenticated,
    /// As the setting `public_metrics` says.
    Metrics,
}

impl Route {
    /// A GET of version 1.1 for signed-in callers: what most rows start from.
    #[must_use]
    pub const fn get(path: &'static str, summary: &'static str, handler: Handler) -> Self {
        Self::new(Method::GET, path, summary, handler)
    }

    /// A route of version 1.1 for signed-in callers with a small body.
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
            access: Access::Authenticated,
            handler,
        }
    }

    /// The same, since minor version `minor`; older clients get 404.
    #[must_use]
    pub const fn since(mut self, minor: u16) -> Self {
        self.since = minor;
        self
    }

    /// The same, telling older clients something else.
    #[must_use]
    pub const fn too_old(mut self, too_old: TooOld) -> Self {
        self.too_old = too_old;
        self
    }

    /// The same, with query parameters.
    #[must_use]
    pub const fn query(mut self, query: &'static [&'static str]) -> Self {
        self.query = query;
        self
    }

    /// The same, with another body limit.
    #[must_use]
    pub const fn body_limit(mut self, body_limit: BodyLimit) -> Self {
        self.body_limit = body_limit;
        self
    }

    /// The same, for other callers.
    #[must_use]
    pub const fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }
}

/// Two rows of the table contradict each other, or one is malformed.
#[derive(Debug, thiserror::Error)]
pub enum RouteTableError {
    /// A path is malformed or overlaps another.
    #[error("route {path} cannot be added to the router")]
    Path {
        /// The path.
        path: &'static str,
        /// What is wrong with it.
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
    paths: matchit::Router<Vec<Numbered>>,
    first_segments: Vec<&'static str>,
    routes: usize,
}

/// A route, its place in the table, and the names of its path segments.
#[derive(Debug)]
pub(crate) struct Numbered {
    pub(crate) index: usize,
    pub(crate) route: &'static Route,
    names: Vec<&'static str>,
}

/// What the router found.
#[derive(Debug)]
pub(crate) enum Found<'r> {
    /// The route and its decoded segments.
    Route(&'r Numbered, Vec<(&'static str, String)>),
    /// The path exists, with these other methods.
    OtherMethods(&'r [Numbered]),
    /// Nothing there.
    Nothing {
        /// Whether at least the first segment is one of ours.
        known_first_segment: bool,
    },
}

impl Router {
    /// Builds the router of all `routes`.
    pub(crate) fn build(
        routes: impl Iterator<Item = &'static Route>,
    ) -> Result<Self, RouteTableError> {
        let mut paths = matchit::Router::<Vec<Numbered>>::new();
        let mut by_path: Vec<(&'static str, Vec<Numbered>)> = Vec::new();
        let mut first_segments = Vec::new();
        let mut count = 0;
        for route in routes {
            let key = path::route_key(route.path.strip_suffix('/').unwrap_or(route.path));
            let first = path::first_segment(key);
            if !first_segments.contains(&first) {
                first_segments.push(first);
            }
            let numbered = Numbered { index: count, route, names: segment_names(key) };
            count += 1;
            match by_path.iter_mut().find(|(path, _)| *path == key) {
                None => by_path.push((key, vec![numbered])),
                Some((_, methods)) => {
                    if methods.iter().any(|other| other.route.method == route.method) {
                        let method = route.method.clone();
                        return Err(RouteTableError::Twice { method, path: route.path });
                    }
                    methods.push(numbered);
                }
            }
        }
        for (path, methods) in by_path {
            paths.insert(path, methods).map_err(|source| RouteTableError::Path { path, source })?;
        }
        Ok(Self { paths, first_segments, routes: count })
    }

    /// How many routes there are.
    pub(crate) fn len(&self) -> usize {
        self.routes
    }

    /// What `method` on the route key `key` means.
    pub(crate) fn find(&self, method: &Method, key: &str) -> Found<'_> {
        let Ok(found) = self.paths.at(key) else {
            let known_first_segment = self.first_segments.contains(&path::first_segment(key));
            return Found::Nothing { known_first_segment };
        };
        match found.value.iter().find(|numbered| method_matches(method, numbered.route)) {
            None => Found::OtherMethods(found.value),
            Some(numbered) => {
                let values = found.params.iter().map(|(_, value)| value.to_owned());
                let params = numbered.names.iter().copied().zip(values).collect();
                Found::Route(numbered, params)
            }
        }
    }
}

/// HEAD is answered like GET on the version documents and the unversioned pages only: Ironic
/// refuses it everywhere else.
fn method_matches(method: &Method, route: &Route) -> bool {
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
