// SPDX-License-Identifier: Apache-2.0
//! Replaces fields that a caller may not see. Secrets are masked for every caller elsewhere.
//!
//! The texts are Ironic's, because clients compare them.

use std::cell::RefCell;

use access_policy::PolicyTarget;
use ironic_wire::FieldSelection;
use node_model::{JsonObject, Node, VolumeTarget};
use serde_json::Value;

use crate::server::access::CallerAccess;

/// Callers who match this rule see all fields.
const THRESHOLD: &str = "baremetal:node:get:filter_threshold";
const LAST_ERROR: &str = "baremetal:node:get:last_error";
const RESERVATION: &str = "baremetal:node:get:reservation";
const DRIVER_INTERNAL_INFO: &str = "baremetal:node:get:driver_internal_info";
const DRIVER_INFO: &str = "baremetal:node:get:driver_info";
const TARGET_PROPERTIES: &str = "baremetal:volume:view_target_properties";

/// Which fields of a node are hidden from the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HiddenFields {
    pub(crate) last_error: bool,
    reservation: bool,
    driver_internal_info: bool,
    driver_info: bool,
}

impl HiddenFields {
    /// The fields of `node` that the caller may not see.
    pub(crate) fn of(node: &Node, access: &CallerAccess) -> Self {
        let target = PolicyTarget::node(node.owner.as_deref(), node.lessee.as_deref());
        if !access.is_restricted() || access.allows(THRESHOLD, &target) {
            return Self::default();
        }
        let hides = |rule: &str| !access.allows(rule, &target);
        Self {
            last_error: hides(LAST_ERROR),
            reservation: hides(RESERVATION),
            driver_internal_info: hides(DRIVER_INTERNAL_INFO),
            driver_info: hides(DRIVER_INFO),
        }
    }

    /// A copy of the node without these fields; `None` if there are none. The fields have a text
    /// instead of being absent, so that clients show the reason.
    fn redact(self, node: &Node) -> Option<Node> {
        if self == Self::default() {
            return None;
        }
        let mut node = node.clone();
        if self.last_error {
            let text = format!("** Value Redacted - Requires {LAST_ERROR} permission. **");
            node.last_error = Some(text);
        }
        if self.reservation {
            let text = format!("** Redacted - requires {RESERVATION} permission. **");
            node.reservation = Some(text);
        }
        if self.driver_internal_info {
            let text = format!("** Redacted - Requires {DRIVER_INTERNAL_INFO} permission. **");
            node.driver_internal_info = object("content", text);
        }
        if self.driver_info {
            let text = format!("** Redacted - requires {DRIVER_INFO} permission. **");
            node.driver_info = object("content", text);
        }
        Some(node)
    }
}

/// A copy of the node without what the caller may not see; `None` if it may see everything.
pub(crate) fn redacted_node(node: &Node, access: &CallerAccess) -> Option<Node> {
    HiddenFields::of(node, access).redact(node)
}

/// The hidden fields of nodes with this owner and lessee.
struct DecidedFields {
    owner: Option<String>,
    lessee: Option<String>,
    hidden: HiddenFields,
}

/// Redacts the nodes of a list. Decides once for neighbouring nodes of the same projects.
pub(crate) struct NodeListRedaction<'a> {
    access: &'a CallerAccess,
    last: RefCell<Option<DecidedFields>>,
}

impl<'a> NodeListRedaction<'a> {
    /// `None` if no field that the list shows is ever hidden from the caller.
    pub(crate) fn new(access: &'a CallerAccess, selection: &FieldSelection<Node>) -> Option<Self> {
        const FIELDS: [&str; 4] =
            ["last_error", "reservation", "driver_internal_info", "driver_info"];
        let shows_any = FIELDS.iter().any(|field| selection.shows(field));
        (access.is_restricted() && shows_any).then(|| Self { access, last: RefCell::new(None) })
    }

    /// As [`redacted_node`].
    pub(crate) fn redact(&self, node: &Node) -> Option<Node> {
        let mut last = self.last.borrow_mut();
        let hidden = match &*last {
            Some(last) if last.owner == node.owner && last.lessee == node.lessee => last.hidden,
            Some(_) | None => {
                let hidden = HiddenFields::of(node, self.access);
                let (owner, lessee) = (node.owner.clone(), node.lessee.clone());
                *last = Some(DecidedFields { owner, lessee, hidden });
                hidden
            }
        };
        hidden.redact(node)
    }
}

/// A copy of the volume target without its properties; `None` if the caller may see them.
pub(crate) fn redacted_volume_target(
    target: &VolumeTarget,
    access: &CallerAccess,
) -> Option<VolumeTarget> {
    if access.allows(TARGET_PROPERTIES, &PolicyTarget::NONE) {
        return None;
    }
    let text = format!(
        "** Value redacted: Requires permission {TARGET_PROPERTIES} access. Permission denied. **"
    );
    let properties = object("redacted_contents", text);
    Some(VolumeTarget { properties, ..target.clone() })
}

/// For resources that are shown completely or not at all.
pub(crate) fn not_redacted<R>(_: &R, _: &CallerAccess) -> Option<R> {
    None
}

fn object(key: &str, text: String) -> JsonObject {
    JsonObject::from(serde_json::Map::from_iter([(key.to_owned(), Value::from(text))]))
}
