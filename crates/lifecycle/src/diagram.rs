// SPDX-License-Identifier: Apache-2.0
//! Generates the documentation of the transition table.

use std::fmt::Write as _;

use node_model::{Event, ProvisionState};

use crate::provision_request::verb_event;
use crate::transitions::{StateClass, TRANSITIONS, state_class};

/// The content of `docs/lifecycle.md`: all states and transitions, as a Mermaid diagram and a table.
#[must_use]
pub fn diagram() -> String {
    let mut page = String::from(
        "# Provision states\n\nGenerated from `crates/lifecycle/src/transitions.rs`; a test keeps this \
         page up to date.\nEvents in *italics* come from the conductor, all others from \
         users.\n\n```mermaid\nstateDiagram-v2\n",
    );
    for state in ProvisionState::ALL {
        let _ = writeln!(page, "    state \"{state}\" as {}", id(*state));
    }
    for (event, from, to) in TRANSITIONS {
        for state in *from {
            let _ = writeln!(page, "    {} --> {}: {event}", id(*state), id(*to));
        }
    }
    page.push_str("```\n\n| state | job | events |\n|---|---|---|\n");
    for state in ProvisionState::ALL {
        let events: Vec<String> = TRANSITIONS
            .iter()
            .filter(|(_, from, _)| from.contains(state))
            .map(|(event, _, to)| {
                let mark = if is_requested(*event) { "" } else { "*" };
                format!("{mark}{event}{mark} → {to}")
            })
            .collect();
        let _ = writeln!(
            page,
            "| {state} | {} | {} |",
            describe(state_class(*state)),
            events.join(", ")
        );
    }
    page
}

fn is_requested(event: Event) -> bool {
    node_model::Verb::ALL.iter().any(|verb| verb_event(*verb) == event)
}

const fn describe(class: StateClass) -> &'static str {
    match class {
        StateClass::Stable => "none",
        StateClass::Working => "runs",
        StateClass::Waiting => "waits for the agent",
        StateClass::Held => "held until `unhold`",
        StateClass::Failed => "failed",
    }
}

fn id(state: ProvisionState) -> String {
    state.as_str().replace([' ', '-'], "_")
}
