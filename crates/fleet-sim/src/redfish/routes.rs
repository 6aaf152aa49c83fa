// SPDX-License-Identifier: Apache-2.0
//! The route table: which path is which resource, and what may be done there.

use std::sync::LazyLock;

use http::Method;
use serde_json::Value;

use super::kind::Kind;
use super::refusal::Refusal;
use super::visit::{Reply, Visit};
use super::{
    accounts, bios, chassis, events, managers, media, network, root, sensors, sessions, storage,
    systems, tasks, updates,
};

/// Writes a resource's document.
pub(super) type Read = fn(&Visit<'_>) -> Result<Value, Refusal>;
/// Does something to a resource.
pub(super) type Change = fn(&mut Visit<'_>) -> Result<Reply, Refusal>;

/// One path.
pub(super) struct Route {
    pub(super) kind: Kind,
    pub(super) path: &'static str,
    pub(super) get: Option<Read>,
    pub(super) patch: Option<Change>,
    pub(super) post: Option<Change>,
    pub(super) delete: Option<Change>,
    /// Whether it can be read without credentials.
    pub(super) is_public: bool,
    /// Whether it can be posted to without credentials.
    pub(super) is_door: bool,
    /// Whether its document changes by itself all the time, so that an ETag would be of no use.
    pub(super) is_volatile: bool,
}

const TABLES: &[&[Route]] = &[
    root::ROUTES,
    sessions::ROUTES,
    accounts::ROUTES,
    systems::ROUTES,
    network::ROUTES,
    bios::ROUTES,
    storage::ROUTES,
    media::ROUTES,
    managers::ROUTES,
    chassis::ROUTES,
    sensors::ROUTES,
    updates::ROUTES,
    tasks::ROUTES,
    events::ROUTES,
];

static ROUTER: LazyLock<matchit::Router<&'static Route>> = LazyLock::new(|| {
    let mut router = matchit::Router::new();
    for route in TABLES.iter().copied().flatten() {
        router.insert(route.path, route).expect("the paths of the table do not contradict");
    }
    router
});

/// The route of a path (without a slash at its end), with the path's parameters.
pub(super) fn find(path: &str) -> Option<matchit::Match<'_, '_, &&'static Route>> {
    ROUTER.at(path).ok()
}

impl Route {
    /// A path where nothing can be done yet.
    pub(super) const fn at(kind: Kind, path: &'static str) -> Self {
        Self {
            kind,
            path,
            get: None,
            patch: None,
            post: None,
            delete: None,
            is_public: false,
            is_door: false,
            is_volatile: false,
        }
    }

    pub(super) const fn get(mut self, read: Read) -> Self {
        self.get = Some(read);
        self
    }

    pub(super) const fn patch(mut self, change: Change) -> Self {
        self.patch = Some(change);
        self
    }

    pub(super) const fn post(mut self, change: Change) -> Self {
        self.post = Some(change);
        self
    }

    pub(super) const fn delete(mut self, change: Change) -> Self {
        self.delete = Some(change);
        self
    }

    pub(super) const fn public(mut self) -> Self {
        self.is_public = true;
        self
    }

    pub(super) const fn door(mut self) -> Self {
        self.is_door = true;
        self
    }

    pub(super) const fn volatile(mut self) -> Self {
        self.is_volatile = true;
        self
    }

    /// The methods that are taken, as in the `Allow` header.
    pub(super) fn allow(&self) -> String {
        let methods = [
            (self.get.is_some(), "GET, HEAD"),
            (self.patch.is_some(), "PATCH"),
            (self.post.is_some(), "POST"),
            (self.delete.is_some(), "DELETE"),
        ];
        let taken: Vec<&str> =
            methods.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name).collect();
        taken.join(", ")
    }

    /// What is done for a method that changes something.
    pub(super) fn change(&self, method: &Method) -> Option<Change> {
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
