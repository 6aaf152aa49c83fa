// SPDX-License-Identifier: Apache-2.0
//! The route table: the resource kind and handlers of each path.

use std::sync::LazyLock;

use http::Method;
use serde_json::Value;

use super::error_response::RedfishErrorResponse;
use super::request_context::{ChangeResponse, RequestContext};
use super::resource_kind::ResourceKind;
use super::{
    accounts, bios, chassis, dell, events, managers, media, network, root, sensors, sessions,
    storage, systems, tasks, updates,
};

/// Returns a resource's document.
pub(super) type ReadHandler = fn(&RequestContext<'_>) -> Result<Value, RedfishErrorResponse>;
/// Changes a resource.
pub(super) type ChangeHandler =
    fn(&mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse>;

/// A path with its handlers.
pub(super) struct RedfishRoute {
    pub(super) kind: ResourceKind,
    pub(super) path: &'static str,
    pub(super) get: Option<ReadHandler>,
    pub(super) patch: Option<ChangeHandler>,
    pub(super) post: Option<ChangeHandler>,
    pub(super) delete: Option<ChangeHandler>,
    /// Whether GET needs no credentials.
    pub(super) is_public: bool,
    /// Whether POST needs no credentials.
    pub(super) is_login: bool,
    /// Whether the document changes constantly, so that it has no ETag.
    pub(super) is_volatile: bool,
}

const TABLES: &[&[RedfishRoute]] = &[
    root::ROUTES,
    sessions::ROUTES,
    accounts::ROUTES,
    systems::ROUTES,
    network::ROUTES,
    bios::ROUTES,
    storage::ROUTES,
    media::ROUTES,
    managers::ROUTES,
    dell::ROUTES,
    chassis::ROUTES,
    sensors::ROUTES,
    updates::ROUTES,
    tasks::ROUTES,
    events::ROUTES,
];

static ROUTER: LazyLock<matchit::Router<&'static RedfishRoute>> = LazyLock::new(|| {
    let mut router = matchit::Router::new();
    for route in TABLES.iter().copied().flatten() {
        router.insert(route.path, route).expect("the paths of the table do not conflict");
    }
    router
});

/// Returns the route and parameters of a path without a trailing slash.
pub(super) fn find(path: &str) -> Option<matchit::Match<'_, '_, &&'static RedfishRoute>> {
    ROUTER.at(path).ok()
}

impl RedfishRoute {
    /// Creates a route without handlers.
    pub(super) const fn at(kind: ResourceKind, path: &'static str) -> Self {
        Self {
            kind,
            path,
            get: None,
            patch: None,
            post: None,
            delete: None,
            is_public: false,
            is_login: false,
            is_volatile: false,
        }
    }

    pub(super) const fn get(mut self, read: ReadHandler) -> Self {
        self.get = Some(read);
        self
    }

    pub(super) const fn patch(mut self, change: ChangeHandler) -> Self {
        self.patch = Some(change);
        self
    }

    pub(super) const fn post(mut self, change: ChangeHandler) -> Self {
        self.post = Some(change);
        self
    }

    pub(super) const fn delete(mut self, change: ChangeHandler) -> Self {
        self.delete = Some(change);
        self
    }

    pub(super) const fn public(mut self) -> Self {
        self.is_public = true;
        self
    }

    pub(super) const fn login(mut self) -> Self {
        self.is_login = true;
        self
    }

    pub(super) const fn volatile(mut self) -> Self {
        self.is_volatile = true;
        self
    }

    /// Returns the supported methods, as in the `Allow` header.
    pub(super) fn allow(&self) -> String {
        let methods = [
            (self.get.is_some(), "GET, HEAD"),
            (self.patch.is_some(), "PATCH"),
            (self.post.is_some(), "POST"),
            (self.delete.is_some(), "DELETE"),
        ];
        let supported: Vec<&str> =
            methods.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect();
        supported.join(", ")
    }

    /// Returns the handler of a method that changes the resource.
    pub(super) fn change_handler(&self, method: &Method) -> Option<ChangeHandler> {
        if *method == Method::POST {
            self.post
        } else if *method == Method::PATCH {
            self.patch
        } else if *method == Method::DELETE {
            self.delete
        } else {
            None
        }
    }
}
