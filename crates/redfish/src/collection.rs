// SPDX-License-Identifier: Apache-2.0
//! Collections and their members; finds systems, managers and chassis.

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};

use crate::{RedfishClient, RedfishError, RedfishResource, path};

/// The limit for members of a collection. The largest real collections have some hundreds.
const MOST_MEMBERS: usize = 1000;

impl RedfishClient {
    /// Returns the links to all members of a collection, from all pages.
    pub async fn members(&self, collection: &str) -> Result<Vec<String>, RedfishError> {
        let root = &self.shared.endpoint.root;
        let mut page = path::local(root, collection);
        let mut seen = Vec::new();
        let mut members: Vec<String> = Vec::new();
        loop {
            let resource = self.get(&page).await?;
            members
                .extend(resource.links("/Members").into_iter().map(|link| path::local(root, link)));
            let next = ["Members@odata.nextLink", "@odata.nextLink"]
                .iter()
                .find_map(|key| resource.link(key))
                .map(|link| path::local(root, link));
            seen.push(page);
            // Pages may be empty, so the limit applies to the number of pages too.
            if members.len() > MOST_MEMBERS || seen.len() > MOST_MEMBERS {
                return Err(endless(collection));
            }
            let Some(next) = next else { break };
            if seen.contains(&next) {
                return Err(endless(collection));
            }
            page = next;
        }
        Ok(members)
    }

    /// Returns the members of a collection. Listed members that do not exist are ignored.
    pub async fn collect(&self, collection: &str) -> Result<Vec<RedfishResource>, RedfishError> {
        let members = self.members(collection).await?;
        self.gather(members.iter().map(String::as_str)).await
    }

    /// Returns the system with this path or id; without one, the only system.
    pub async fn system(&self, system_id: Option<&str>) -> Result<RedfishResource, RedfishError> {
        let key = system_id.map(str::to_owned);
        let known = self.system_paths().get(&key).cloned();
        if let Some(known) = known {
            match self.get(&known).await {
                // Some BMCs rename their systems on a firmware update.
                Err(RedfishError::NotFound { .. }) => {
                    self.system_paths().remove(&key);
                }
                other => return other,
            }
        }
        let system = match system_id {
            Some(wanted) => self.named_system(wanted).await?,
            None => self.only_system().await?,
        };
        self.system_paths().insert(key, system.path.clone());
        Ok(system)
    }

    /// Returns the managers that a system links to, or all managers.
    pub async fn managers(
        &self,
        system: &RedfishResource,
    ) -> Result<Vec<RedfishResource>, RedfishError> {
        self.linked_or_all(&system.links("/Links/ManagedBy"), "Managers").await
    }

    /// Returns the chassis that a system links to, or all chassis.
    pub async fn chassis(
        &self,
        system: &RedfishResource,
    ) -> Result<Vec<RedfishResource>, RedfishError> {
        self.linked_or_all(&system.links("/Links/Chassis"), "Chassis").await
    }

    async fn linked_or_all(
        &self,
        links: &[&str],
        collection: &str,
    ) -> Result<Vec<RedfishResource>, RedfishError> {
        if links.len() > MOST_MEMBERS {
            return Err(endless(collection));
        }
        let linked = self.gather(links.iter().copied()).await?;
        if !linked.is_empty() {
            return Ok(linked);
        }
        match self.known_root().await?.link(collection) {
            Some(path) => self.collect(path).await,
            None => Ok(Vec::new()),
        }
    }

    async fn gather(
        &self,
        links: impl Iterator<Item = &str>,
    ) -> Result<Vec<RedfishResource>, RedfishError> {
        let mut resources = Vec::new();
        for link in links {
            match self.get(link).await {
                Ok(resource) => resources.push(resource),
                Err(RedfishError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(resources)
    }

    async fn named_system(&self, wanted: &str) -> Result<RedfishResource, RedfishError> {
        if wanted.contains('/') {
            match self.get(wanted).await {
                Err(RedfishError::NotFound { .. }) => {}
                other => return other,
            }
        }
        let known = self.system_links().await?;
        let id = path::last_segment(wanted);
        let found = known.iter().find(|path| {
            path::same(path, wanted) || (!wanted.contains('/') && path::last_segment(path) == id)
        });
        match found {
            Some(path) => self.get(path).await,
            None => Err(RedfishError::NoSuchSystem { wanted: wanted.to_owned(), known }),
        }
    }

    async fn only_system(&self) -> Result<RedfishResource, RedfishError> {
        let known = self.system_links().await?;
        match known.as_slice() {
            [] => Err(RedfishError::NoSystems { address: self.shared.endpoint.address.clone() }),
            [only] => self.get(only).await,
            [_, _, ..] => Err(RedfishError::SeveralSystems { known }),
        }
    }

    async fn system_links(&self) -> Result<Vec<String>, RedfishError> {
        let root = self.known_root().await?;
        let systems = match root.link("/Systems") {
            Some(systems) => systems.to_owned(),
            None => format!("{}Systems", self.shared.endpoint.root),
        };
        self.members(&systems).await
    }

    fn system_paths(&self) -> MutexGuard<'_, HashMap<Option<String>, String>> {
        self.shared.systems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn endless(collection: &str) -> RedfishError {
    RedfishError::Endless { path: collection.to_owned(), limit: MOST_MEMBERS }
}
