// SPDX-License-Identifier: Apache-2.0
//! Log lines about hosts: one for each change that was written to the API.

use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::host_status::BareMetalHostStatus;
use tracing::{info, warn};

use super::super::decide::HostEvent;
use crate::object_key::ObjectKey;

/// A change of a status that is logged.
#[derive(Debug, PartialEq, Eq)]
enum LoggedChange<'a> {
    Registered { node: &'a str },
    State { before: &'a str, state: &'a str },
    Failed { error_type: &'a str, error: &'a str },
    ErrorCleared,
}

fn changes<'a>(
    before: &'a BareMetalHostStatus,
    after: &'a BareMetalHostStatus,
) -> Vec<LoggedChange<'a>> {
    let mut changes = Vec::new();
    let (old, new) = (&before.provisioning, &after.provisioning);
    if old.id != new.id && !new.id.is_empty() {
        changes.push(LoggedChange::Registered { node: &new.id });
    }
    if old.state != new.state {
        let (before, state) = (old.state.as_str(), new.state.as_str());
        changes.push(LoggedChange::State { before, state });
    }
    if before.error_message != after.error_message {
        let error_type = after.error_type.as_ref().map(|kind| kind.as_str()).unwrap_or_default();
        changes.push(match after.error_message.as_str() {
            "" => LoggedChange::ErrorCleared,
            error => LoggedChange::Failed { error_type, error },
        });
    }
    changes
}

/// Logs how the status of a host differs from `before`.
pub(super) fn status_changed(host: &BareMetalHost, before: Option<&BareMetalHostStatus>) {
    let key = ObjectKey::of(host);
    let (namespace, name) = (key.namespace(), key.name());
    let none = BareMetalHostStatus::default();
    for change in changes(before.unwrap_or(&none), host.status.as_ref().unwrap_or(&none)) {
        match change {
            LoggedChange::Registered { node } => info!(namespace, name, node, "host registered"),
            LoggedChange::State { before, state } => {
                info!(namespace, name, state, before, "host changed its provisioning state");
            }
            LoggedChange::Failed { error_type, error } => {
                warn!(namespace, name, error_type, error, "host has an error");
            }
            LoggedChange::ErrorCleared => info!(namespace, name, "error of host cleared"),
        }
    }
}

/// Logs events that no other change shows.
pub(super) fn published(host: &BareMetalHost, events: &[HostEvent]) {
    let key = ObjectKey::of(host);
    let (namespace, name) = (key.namespace(), key.name());
    for event in events.iter().filter(|event| event.reason == "DeletionForced") {
        warn!(namespace, name, reason = event.message, "deletion of host forced");
    }
}

/// Logs that the finalizer was removed.
pub(super) fn released(host: &BareMetalHost) {
    let key = ObjectKey::of(host);
    let (namespace, name) = (key.namespace(), key.name());
    info!(namespace, name, "host deleted");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_change_is_logged_once() {
        let status = |state: &str, id: &str, error: &str| -> BareMetalHostStatus {
            let kind = (!error.is_empty()).then_some("registration error");
            serde_json::from_value(json!({
                "errorMessage": error, "errorType": kind,
                "provisioning": {"state": state, "ID": id},
            }))
            .unwrap()
        };
        let failed = |error| LoggedChange::Failed { error_type: "registration error", error };
        let (none, first) = (BareMetalHostStatus::default(), status("registering", "", ""));
        let (wrong, other) = (status("registering", "", "no"), status("registering", "", "busy"));
        let registered = status("inspecting", "n1", "");
        let state = |before, state| LoggedChange::State { before, state };
        for (before, after, expected) in [
            (&none, &first, vec![state("", "registering")]),
            (&first, &first, vec![]),
            (&first, &wrong, vec![failed("no")]),
            (&wrong, &wrong, vec![]),
            (&wrong, &other, vec![failed("busy")]),
            (
                &other,
                &registered,
                vec![
                    LoggedChange::Registered { node: "n1" },
                    state("registering", "inspecting"),
                    LoggedChange::ErrorCleared,
                ],
            ),
        ] {
            assert_eq!(changes(before, after), expected);
        }
    }
}
