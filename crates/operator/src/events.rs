// SPDX-License-Identifier: Apache-2.0
//! Kubernetes events about objects, shown by `kubectl describe`.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use tracing::warn;

use crate::log_limit::API_FAILURES;
use crate::owned_objects::api_error_chain;

/// Maximum length of the text in bytes; the API server rejects longer ones.
const MAX_NOTE: usize = 1024;

/// Publishes the events of one controller. Clones share the counters of repeated events.
#[derive(Clone)]
pub struct ObjectEventRecorder {
    recorder: Recorder,
}

impl ObjectEventRecorder {
    /// Creates a recorder. `controller` is shown as the source of events.
    #[must_use]
    pub fn new(client: Client, controller: &str) -> Self {
        Self { recorder: Recorder::new(client, Reporter::from(controller)) }
    }

    /// Reports that something happened as expected.
    pub async fn normal<K>(&self, object: &K, reason: &str, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        self.publish(&object.object_ref(&()), EventType::Normal, reason, note).await;
    }

    /// Reports that something needs attention.
    pub async fn warning<K>(&self, object: &K, reason: &str, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        self.warning_about(&object.object_ref(&()), reason, note).await;
    }

    /// Like [`ObjectEventRecorder::warning`], for an object without a type.
    pub(crate) async fn warning_about(&self, object: &ObjectReference, reason: &str, note: &str) {
        self.publish(object, EventType::Warning, reason, note).await;
    }

    /// An event that cannot be published is logged: it must not stop what it describes.
    async fn publish(&self, object: &ObjectReference, type_: EventType, reason: &str, note: &str) {
        let event = event(type_, reason, note);
        if let Err(error) = self.recorder.publish(&event, object).await
            && let Some(omitted) = API_FAILURES.admit_failure("event", &error)
        {
            warn!(
                namespace = object.namespace.as_deref(),
                name = object.name.as_deref(),
                reason,
                error = api_error_chain(&error),
                omitted,
                "event cannot be published"
            );
        }
    }
}

/// The library counts repeated events with the same reason and action, with the text of the first
/// one. So that another text is another event, the action contains a hash of the text.
fn event(type_: EventType, reason: &str, note: &str) -> Event {
    let mut hash = DefaultHasher::new();
    note.hash(&mut hash);
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(shortened(note)),
        action: format!("Reconcile-{:016x}", hash.finish()),
        secondary: None,
    }
}

/// The text, cut at a character boundary.
fn shortened(note: &str) -> String {
    const ELLIPSIS: &str = "…";
    if note.len() <= MAX_NOTE {
        return note.to_owned();
    }
    let mut end = MAX_NOTE - ELLIPSIS.len();
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{ELLIPSIS}", &note[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_text_is_another_event() {
        let first = event(EventType::Normal, "VersionChange", "from 0.1 to 0.2");
        let second = event(EventType::Normal, "VersionChange", "from 0.2 to 0.3");
        assert_ne!(first.action, second.action);
        assert_eq!(first.action, event(EventType::Normal, "x", "from 0.1 to 0.2").action);
        assert!(first.action.len() <= 128);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        for length in 1000..1100 {
            let cut = shortened(&"ä".repeat(length));
            assert!(cut.len() <= MAX_NOTE, "{length}");
            assert_eq!(cut.ends_with('…'), length * 2 > MAX_NOTE, "{length}");
        }
    }
}
