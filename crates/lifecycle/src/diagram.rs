// SPDX-License-Identifier: Apache-2.0
//! Draws the transition table, so that the picture in the documentation cannot be wrong.

use std::fmt::Write as _;

use node_model::{Event, ProvisionState};

use crate::ask::event_of;
use crate::transitions::{Rest, TRANSITIONS, rest};

/// The page `docs/lifecycle.md`: every state, every transition, as a table and as a Mermaid diagram.
#[must_use]
pub fn diagram() -> String {
    let mut page = String::from(
        "# Provision states\n\nDrawn from the table in `crates/lifecycle/src/transitions.rs`; a \
         test keeps this page fresh.\nSolid events are what users ask for, *italic* ones come from \
         within.\n\n```mermaid\nstateDiagram-v2\n",
    );
    for state in ProvisionState::ALL {
        let _ = writeln!(page, "    state \"{state}\" as {}", id(*state));
    }
    for (event, from, to) in TRANSITIONS {
        for state in *from {
            let _ = writeln!(page, "    {} --> {}: {event}", id(*state), id(*to));
        }
    }
    page.push_str("```\n\n| state | what a machine in it does | events |\n|---|---|---|\n");
    for state in ProvisionState::ALL {
        let events: Vec<String> = TRANSITIONS
            .iter()
            .filter(|(_, from, _)| from.contains(state))
            .map(|(event, _, to)| {
                let mark = if is_asked(*event) { "" } else { "*" };
                format!("{mark}{event}{mark} → {to}")
            })
            .collect();
        let _ = writeln!(page, "| {state} | {} | {} |", doing(rest(*state)), events.join(", "));
    }
    page
}

fn is_asked(event: Event) -> bool {
    node_model::Verb::ALL.iter().any(|verb| event_of(*verb) == event)
}

const fn doing(rest: Rest) -> &'static str {
    match rest {
        Rest::Stable => "rests",
        Rest::Working => "a job runs",
        Rest::Waiting => "a job waits for the agent",
        Rest::Held => "a job is held until `unhold`",
        Rest::Failed => "a job failed",
    }
}

fn id(state: ProvisionState) -> String {
    state.as_str().replace([' ', '-'], "_")
}
