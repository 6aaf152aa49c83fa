// SPDX-License-Identifier: Apache-2.0
//! Who looks after which node: the conductors that live, remembered for a moment.
//!
//! Every node that is shown names its conductor, so the list of conductors would be read from the
//! database with every request. It changes when a process comes or goes; a second late is early
//! enough.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ironic_wire::{ApiVersion, Context, Selection, WireError};
use node_model::{ConductorInfo, Node, Timestamp};
use store::Reader;

use crate::conductors::is_alive;

/// How long a list of conductors is believed.
const BELIEVED: Duration = Duration::from_secs(1);

/// The conductors that live.
#[derive(Clone, Default)]
pub(crate) struct Caretakers(Arc<[ConductorInfo]>);

/// Remembers the conductors that live.
pub(crate) struct CaretakerCache {
    /// How long a conductor may be silent before it counts as dead.
    patience: Duration,
    seen: Mutex<Option<(Timestamp, Caretakers)>>,
}

impl CaretakerCache {
    /// Knows nobody yet.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, seen: Mutex::new(None) }
    }

    /// The conductors that live, as they were at most a second ago.
    pub(crate) fn get(
        &self,
        reader: &mut Reader<'_>,
        now: Timestamp,
    ) -> Result<Caretakers, store::Error> {
        if let Some((at, seen)) = &*self.seen.lock().unwrap_or_else(PoisonError::into_inner)
            && now.since(*at) < BELIEVED
        {
            return Ok(seen.clone());
        }
        self.look(reader, now)
    }

    /// The conductor that would look after `node`; 400 if nobody would. Before that is said, the
    /// database is asked again: a process may just have started.
    pub(crate) fn require(
        &self,
        reader: &mut Reader<'_>,
        node: &Node,
        now: Timestamp,
    ) -> Result<Caretakers, crate::Refusal> {
        let seen = self.get(reader, now)?;
        if seen.of(node).is_some() {
            return Ok(seen);
        }
        let seen = self.look(reader, now)?;
        if seen.of(node).is_some() {
            return Ok(seen);
        }
        // Clients know the words up to the driver.
        Err(WireError::invalid(format!(
            "No valid host was found. Reason: No conductor service registered which supports \
             driver {} for conductor group \"{}\". Choose one of the drivers that GET /v1/drivers \
             lists, or start a conductor that has it enabled.",
            excerpt(&node.driver),
            excerpt(&node.conductor_group),
        ))
        .into())
    }

    fn look(&self, reader: &mut Reader<'_>, now: Timestamp) -> Result<Caretakers, store::Error> {
        let mut conductors = reader.conductors()?;
        conductors.retain(|conductor| is_alive(conductor, now, self.patience));
        let seen = Caretakers(conductors.into());
        // That nobody is there is true only for the first moments after a start.
        let remembered = (!seen.0.is_empty()).then(|| (now, seen.clone()));
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = remembered;
        Ok(seen)
    }
}

impl fmt::Debug for CaretakerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaretakerCache").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl Caretakers {
    /// The conductor that looks after `node`.
    pub(crate) fn of(&self, node: &Node) -> Option<&str> {
        conductor::conductor_of(node, self.0.iter())
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> &[ConductorInfo] {
        &self.0
    }

    /// One node as a response body.
    pub(crate) fn body(
        &self,
        node: &Node,
        selection: &Selection<Node>,
        version: ApiVersion,
        base_url: &str,
    ) -> Vec<u8> {
        let conductor_of = |node: &Node| self.of(node);
        let context = Context::new(version, base_url).with_conductors(&conductor_of);
        selection.body(node, &context)
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(120).collect()
}
