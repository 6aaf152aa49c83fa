// SPDX-License-Identifier: Apache-2.0
//! From a report to findings: every hook's first look, every hook's work, the rules, the flavours.

use node_model::{Inventory, Node, NodeId, Port, Timestamp};

use crate::draft::Draft;
use crate::findings::{Findings, Source};
use crate::flavours::FlavourSet;
use crate::hooks::{Hook, HookFailure};
use crate::report::Report;
use crate::rules::{RuleFailure, RuleSet};
use crate::settings::Settings;

/// Everything a report is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The node it is about.
    pub node: &'a Node,
    /// The node's ports.
    pub ports: &'a [Port],
    /// What the ramdisk sent.
    pub report: &'a Report,
    /// What the last inspection stored, for those hooks that look for differences.
    pub previous: Option<&'a Inventory>,
    /// How to judge.
    pub settings: &'a Settings,
    /// The operator's rules.
    pub rules: &'a RuleSet,
    /// The operator's kinds of machines.
    pub flavours: &'a FlavourSet,
    /// The time.
    pub now: Timestamp,
}

/// Inspection failed; nothing changes. The message is for the node's `last_error`.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The report is not good enough to work with.
    #[error("inspection data of node {node} was refused: {}", list(.failures))]
    Refused {
        /// The node.
        node: NodeId,
        /// What each hook said.
        failures: Vec<(Hook, HookFailure)>,
    },
    /// A hook could not do its work.
    #[error("inspection hook {hook} failed for node {node}")]
    Hook {
        /// The node.
        node: NodeId,
        /// Which hook.
        hook: Hook,
        /// Why.
        #[source]
        source: HookFailure,
    },
    /// A rule could not be carried out, or says that the machine must fail.
    #[error("an inspection rule failed for node {node}")]
    Rule {
        /// The node.
        node: NodeId,
        /// Which rule and why.
        #[source]
        source: RuleFailure,
    },
}

impl HookError {
    /// The message with its cause, in one line.
    #[must_use]
    pub fn full_message(&self) -> String {
        let mut message = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        message
    }
}

/// Works out what a report changes. The same arguments always give the same findings.
///
/// # Errors
/// If the report is no good, a hook finds a contradiction, or a rule fails. Then nothing changes.
pub fn process(context: &Context<'_>) -> Result<Findings, HookError> {
    let node = context.node.id;
    let hooks = &context.settings.hooks;
    // Before any hook runs, no hook is the source of anything.
    let mut draft = Draft::new(context, Source::Hook(Hook::RamdiskError));

    // All hooks get their first look, so that the operator sees all that is wrong at once.
    let mut failures = Vec::new();
    for hook in hooks {
        draft.source = Source::Hook(*hook);
        if let Err(failure) = hook.look(&mut draft) {
            failures.push((*hook, failure));
        }
    }
    if !failures.is_empty() {
        return Err(HookError::Refused { node, failures });
    }

    for hook in hooks {
        draft.source = Source::Hook(*hook);
        hook.work(&mut draft).map_err(|source| HookError::Hook { node, hook: *hook, source })?;
    }

    context.rules.run(&mut draft).map_err(|source| HookError::Rule { node, source })?;
    context.flavours.run(&mut draft);
    Ok(draft.finish())
}

fn list(failures: &[(Hook, HookFailure)]) -> String {
    let lines: Vec<String> =
        failures.iter().map(|(hook, failure)| format!("{hook}: {failure}")).collect();
    lines.join("; ")
}
