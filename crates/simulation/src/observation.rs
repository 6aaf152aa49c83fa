// SPDX-License-Identifier: Apache-2.0
//! Compares each change of a node with the machines.

use node_model::ProvisionState;

use crate::history::VersionChange;
use crate::world::WorldState;

impl WorldState {
    /// Reads the nodes after a commit of `host`, and checks what has changed.
    pub(crate) fn observe_nodes(&mut self, host: &str) {
        let changes = match self.history.observe() {
            Ok(changes) => changes,
            Err(error) => return self.violation(format!("the database is unreadable: {error:#}")),
        };
        for (process, lasts) in self.history.observe_sessions().unwrap_or_default() {
            let event = if lasts { "begins" } else { "ends" };
            self.record(&format!("{host} {event} the session of {process}"));
        }
        for change in changes {
            let machines = &self.machines.machines;
            let number = machines.get(&change.node).map_or(0, |machine| machine.number);
            let mut problems = change.problems(number);
            problems.extend(self.unproven_result(&change, number));
            let after = &change.after;
            let before = change.before.as_ref();
            if before.is_none_or(|before| before.state != after.state) {
                let error = after.last_error.as_deref().unwrap_or_default();
                let (state, token) = (after.state, after.lease.token);
                self.record(&format!(
                    "{host} stores '{state}' of node {number}, token {token} {error}"
                ));
            }
            self.violations(problems);
        }
    }

    /// A result that is reported, but that the machine does not have.
    fn unproven_result(&self, change: &VersionChange, number: usize) -> Option<String> {
        let machine = self.machines.machines.get(&change.node)?;
        let before = change.before.as_ref()?;
        let (from, to) = (before.state, change.after.state);
        if from == ProvisionState::Deploying && to == ProvisionState::Active {
            let has_image = machine.image_of.is_some() && machine.image_of == before.job;
            return (!has_image).then(|| format!("node {number} is active without its image"));
        }
        if from == ProvisionState::Cleaning && to == ProvisionState::Available {
            let is_erased = machine.erased_by.is_some() && machine.image_of.is_none();
            return (!is_erased).then(|| format!("node {number} is available and not erased"));
        }
        None
    }
}
