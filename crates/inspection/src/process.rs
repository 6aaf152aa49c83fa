// SPDX-License-Identifier: Apache-2.0
//! Processes a report: checks of all hooks, changes of all hooks, rules, flavours.

use node_model::{Inventory, Node, NodeId, Port, Timestamp};

use crate::flavours::FlavourSet;
use crate::hooks::{Hook, HookError};
use crate::inspection_draft::InspectionDraft;
use crate::inspection_result::{InspectionLogSource, InspectionResult};
use crate::report::HardwareReport;
use crate::rules::{RuleFailure, RuleSet};
use crate::settings::InspectionSettings;

/// The input of [`process_report`].
#[derive(Clone, Copy, Debug)]
pub struct ReportContext<'a> {
    /// The node of the report.
    pub node: &'a Node,
    /// The node's ports.
    pub ports: &'a [Port],
    /// The report of the ramdisk.
    pub report: &'a HardwareReport,
    /// The stored inventory of the last inspection.
    pub previous: Option<&'a Inventory>,
    /// Settings of hooks and rules.
    pub settings: &'a InspectionSettings,
    /// The operator's rules.
    pub rules: &'a RuleSet,
    /// The operator's flavours.
    pub flavours: &'a FlavourSet,
    /// The current time.
    pub now: Timestamp,
}

/// The inspection failed and nothing changes. The message is stored as the node's `last_error`.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The checks of one or more hooks failed.
    #[error("inspection data of node {node} was refused: {}", format_failures(.failures))]
    Refused {
        /// The node.
        node: NodeId,
        /// The error of each hook.
        failures: Vec<(Hook, HookError)>,
    },
    /// A hook failed.
    #[error("inspection hook {hook} failed for node {node}")]
    Hook {
        /// The node.
        node: NodeId,
        /// The hook.
        hook: Hook,
        /// The cause.
        #[source]
        source: HookError,
    },
    /// A rule failed, or its `fail` action was executed.
    #[error("an inspection rule failed for node {node}")]
    Rule {
        /// The node.
        node: NodeId,
        /// The rule and the cause.
        #[source]
        source: RuleFailure,
    },
}

/// Computes the changes that result from a report. Deterministic.
///
/// # Errors
/// If a hook rejects the report or a rule fails.
pub fn process_report(context: &ReportContext<'_>) -> Result<InspectionResult, ProcessError> {
    let node = context.node.id;
    let hooks = &context.settings.hooks;
    // Replaced before the first hook runs.
    let mut draft = InspectionDraft::new(context, InspectionLogSource::Hook(Hook::RamdiskError));

    // Run the checks of all hooks, so that the operator sees all problems at once.
    let mut failures = Vec::new();
    for hook in hooks {
        draft.source = InspectionLogSource::Hook(*hook);
        if let Err(failure) = hook.check(&mut draft) {
            failures.push((*hook, failure));
        }
    }
    if !failures.is_empty() {
        return Err(ProcessError::Refused { node, failures });
    }

    for hook in hooks {
        draft.source = InspectionLogSource::Hook(*hook);
        hook.apply(&mut draft).map_err(|source| ProcessError::Hook {
            node,
            hook: *hook,
            source,
        })?;
    }

    context.rules.run(&mut draft).map_err(|source| ProcessError::Rule { node, source })?;
    context.flavours.run(&mut draft);
    Ok(draft.into_result())
}

fn format_failures(failures: &[(Hook, HookError)]) -> String {
    let lines: Vec<String> =
        failures.iter().map(|(hook, failure)| format!("{hook}: {failure}")).collect();
    lines.join("; ")
}
