// SPDX-License-Identifier: Apache-2.0
//! The conductor of each node, from a cached list of live conductors.
//!
//! Every response with a node contains its conductor. Without the cache, every request would read the
//! conductor table; a list that is one second old is good enough.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ironic_wire::{ApiVersion, FieldSelection, RenderContext, WireError};
use node_model::{ConductorInfo, Node, Timestamp};
use store::{StoreError, StoreReader};

use super::conductors::is_alive;
use crate::server::ApiError;

/// How long a list of conductors is used.
const CACHE_LIFETIME: Duration = Duration::from_secs(1);

/// A list of live conductors.
#[derive(Clone, Default)]
pub(crate) struct LiveConductors(Arc<[ConductorInfo]>);

/// Caches the list of live conductors.
pub(crate) struct ConductorCache {
    /// Time without a heartbeat after which a conductor counts as dead.
    timeout: Duration,
    cached: Mutex<Option<(Timestamp, LiveConductors)>>,
}

impl ConductorCache {
    /// An empty cache.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, cached: Mutex::new(None) }
    }

    /// The live conductors, at most one second old.
    pub(crate) fn get(
        &self,
        reader: &mut StoreReader<'_>,
        now: Timestamp,
    ) -> Result<LiveConductors, StoreError> {
        if let Some((at, cached)) = &*self.cached.lock().unwrap_or_else(PoisonError::into_inner)
            && now.since(*at) < CACHE_LIFETIME
        {
            return Ok(cached.clone());
        }
        self.refresh(reader, now)
    }

    /// The live conductors, if one of them can manage `node`; fails with 400 otherwise. Refreshes the
    /// cache before it fails, because a conductor may just have started.
    pub(crate) fn require(
        &self,
        reader: &mut StoreReader<'_>,
        node: &Node,
        now: Timestamp,
    ) -> Result<LiveConductors, ApiError> {
        let cached = self.get(reader, now)?;
        if cached.conductor_of(node).is_some() {
            return Ok(cached);
        }
        let current = self.refresh(reader, now)?;
        if current.conductor_of(node).is_some() {
            return Ok(current);
        }
        // Ironic's message up to the driver: clients match it.
        Err(WireError::invalid(format!(
            "No valid host was found. Reason: No conductor service registered which supports \
             driver {} for conductor group \"{}\". Choose one of the drivers that GET /v1/drivers \
             lists, or start a conductor that has it enabled.",
            excerpt(&node.driver),
            excerpt(&node.conductor_group),
        ))
        .into())
    }

    fn refresh(
        &self,
        reader: &mut StoreReader<'_>,
        now: Timestamp,
    ) -> Result<LiveConductors, StoreError> {
        let mut conductors = reader.conductors()?;
        conductors.retain(|conductor| is_alive(conductor, now, self.timeout));
        let current = LiveConductors(conductors.into());
        // An empty list is not cached: it occurs only shortly after a start.
        let cached = (!current.0.is_empty()).then(|| (now, current.clone()));
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = cached;
        Ok(current)
    }
}

impl fmt::Debug for ConductorCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConductorCache").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl LiveConductors {
    /// The hostname of the conductor that manages `node`.
    pub(crate) fn conductor_of(&self, node: &Node) -> Option<&str> {
        conductor::conductor_of(node, self.0.iter())
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> &[ConductorInfo] {
        &self.0
    }

    /// The body of a response with one node.
    pub(crate) fn node_body(
        &self,
        node: &Node,
        selection: &FieldSelection<Node>,
        version: ApiVersion,
        base_url: &str,
    ) -> Vec<u8> {
        let conductor_of = |node: &Node| self.conductor_of(node);
        let context = RenderContext::new(version, base_url).with_conductors(&conductor_of);
        selection.body(node, &context)
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(120).collect()
}
