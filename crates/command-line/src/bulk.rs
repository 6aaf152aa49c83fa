// SPDX-License-Identifier: Apache-2.0
//! One operation on many nodes: confirmation, limited concurrency and a summary of the outcomes.

use std::future::Future;
use std::sync::Arc;

use clap::Args;
use ironic_client::Api;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::interrupts::Interrupts;
use crate::output::OutputFormat;
use crate::selection::SelectedNode;
use crate::wait::{self, NodeOutcome, WaitDeadline, WaitGoal};

/// Number of nodes that the confirmation prompt lists by name.
const MAX_LISTED_NODES: usize = 20;

/// Options of commands that change several machines.
#[derive(Args, Clone, Debug)]
pub(crate) struct BulkArguments {
    /// Do not prompt for confirmation before a destructive operation on several machines.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Number of concurrent requests.
    #[arg(long, value_name = "NUMBER", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) parallel: u16,
}

/// The outcomes of requests to several nodes.
pub(crate) struct BulkOutcome {
    pub(crate) outcomes: Vec<NodeOutcome>,
    /// Whether Ctrl-C stopped it.
    is_interrupted: bool,
}

/// Lists the nodes and prompts for confirmation if there are several. `is_confirmed` skips the prompt.
pub(crate) async fn confirm(
    context: &CliContext,
    operation: &str,
    selected: &[SelectedNode],
    is_confirmed: bool,
) -> Result<(), CliError> {
    if selected.len() < 2 || is_confirmed {
        return Ok(());
    }
    let mut plan =
        format!("{operation} {} machines at {}:\n", selected.len(), context.api.address());
    for machine in selected.iter().take(MAX_LISTED_NODES) {
        let instance = machine.node["instance_uuid"].as_str();
        let instance = instance.map(|uuid| format!(", instance {uuid}")).unwrap_or_default();
        plan.push_str(&format!("  {} ({}{instance})\n", machine.label, machine.state()));
    }
    if selected.len() > MAX_LISTED_NODES {
        plan.push_str(&format!("  and {} more\n", selected.len() - MAX_LISTED_NODES));
    }
    context.screen.note(&plan);
    if !context.screen.is_interactive {
        return Err(CliError::Usage(format!(
            "cannot prompt for confirmation to {operation} {} machines without a terminal; give --yes",
            selected.len()
        )));
    }
    if context.screen.confirm("Continue?").await? {
        Ok(())
    } else {
        Err(CliError::Interrupted("cancelled; nothing was changed".to_owned()))
    }
}

/// Runs an action on every node, `parallel` at a time. Outcomes are in the order of the nodes. After
/// Ctrl-C no further actions are started.
pub(crate) async fn for_each_node<Action, Doing>(
    context: &CliContext,
    selected: Vec<SelectedNode>,
    parallel: u16,
    action: Action,
) -> Result<BulkOutcome, CliError>
where
    Action: Fn(Arc<Api>, SelectedNode) -> Doing,
    Doing: Future<Output = Result<String, CliError>> + Send + 'static,
{
    let mut interrupts = Interrupts::listen()?;
    Ok(for_each_until_interrupted(context, selected, parallel, action, &mut interrupts).await)
}

async fn for_each_until_interrupted<Action, Doing>(
    context: &CliContext,
    selected: Vec<SelectedNode>,
    parallel: u16,
    action: Action,
    interrupts: &mut Interrupts,
) -> BulkOutcome
where
    Action: Fn(Arc<Api>, SelectedNode) -> Doing,
    Doing: Future<Output = Result<String, CliError>> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(usize::from(parallel)));
    let mut tasks = JoinSet::new();
    for (index, node) in selected.iter().enumerate() {
        let running = action(context.api.clone(), node.clone());
        let permits = permits.clone();
        tasks.spawn(async move {
            let Ok(_permit) = permits.acquire_owned().await else {
                return (index, Err(CliError::Interrupted("not requested".to_owned())));
            };
            (index, running.await)
        });
    }
    let mut results: Vec<Option<Result<String, CliError>>> =
        selected.iter().map(|_| None).collect();
    loop {
        tokio::select! {
            joined = tasks.join_next() => match joined {
                Some(Ok((index, result))) => results[index] = Some(result),
                Some(Err(_)) => {}
                None => break,
            },
            () = interrupts.next() => {
                if permits.is_closed() {
                    break;
                }
                permits.close();
                context.screen.note(
                    "stopping after the responses to requests in flight; press Ctrl-C again to stop now",
                );
            }
        }
    }
    let unknown = || {
        let message = "the server may or may not have accepted the request";
        Err(CliError::Interrupted(message.to_owned()))
    };
    let outcome = |(selected, result): (SelectedNode, Option<Result<String, CliError>>)| {
        NodeOutcome { selected, result: result.unwrap_or_else(unknown) }
    };
    BulkOutcome {
        outcomes: selected.into_iter().zip(results).map(outcome).collect(),
        is_interrupted: permits.is_closed(),
    }
}

impl BulkOutcome {
    /// Waits for the nodes that accepted the request, unless Ctrl-C was pressed.
    pub(crate) async fn wait_for_goal(
        self,
        context: &CliContext,
        goal: &WaitGoal,
        deadline: WaitDeadline,
    ) -> Vec<NodeOutcome> {
        let (accepted, mut finished): (Vec<NodeOutcome>, Vec<NodeOutcome>) =
            self.outcomes.into_iter().partition(|outcome| outcome.result.is_ok());
        let waiting =
            accepted.into_iter().map(|outcome| (outcome.selected, goal.clone())).collect();
        finished.extend(match self.is_interrupted {
            true => wait::interrupted_before_wait(waiting),
            false => wait::wait_for(context, waiting, deadline).await,
        });
        finished
    }
}

/// Prints the outcomes and returns the error for the exit code: that of a single node, or a summary of
/// several.
pub(crate) fn report(
    context: &CliContext,
    outcomes: Vec<NodeOutcome>,
    format: OutputFormat,
) -> Result<(), CliError> {
    let all = outcomes.len();
    if format.is_machine_readable() {
        let rows: Vec<Value> = outcomes.iter().map(outcome_row).collect();
        context.screen.print(&format.format_list(&rows, &[], context.screen));
    }
    let mut failed = Vec::new();
    for NodeOutcome { selected, result } in outcomes {
        match result {
            Ok(text) => match format {
                OutputFormat::Table | OutputFormat::Wide => {
                    context.screen.print(&format!("{}: {text}", selected.label));
                }
                OutputFormat::Name => context.screen.print(&selected.label),
                OutputFormat::Json | OutputFormat::Yaml => {}
            },
            Err(failure) => {
                if all > 1 {
                    context.screen.note(&format!("{}: {}", selected.label, failure.message()));
                }
                failed.push((selected, failure));
            }
        }
    }
    match (failed.len(), all) {
        (0, _) => Ok(()),
        (1, 1) => {
            Err(failed.remove(0)).map_err(|(selected, failure)| with_label(&selected, failure))
        }
        (_, _) if failed.iter().any(|(_, it)| matches!(it, CliError::Interrupted(_))) => {
            let succeeded = all - failed.len();
            Err(CliError::Interrupted(format!("stopped; {succeeded} of {all} machines succeeded")))
        }
        (_, _) if failed.iter().all(|(_, it)| matches!(it, CliError::ConnectionLost(_))) => {
            Err(failed.remove(0).1)
        }
        (_, _) if failed.iter().all(|(_, it)| matches!(it, CliError::TimedOut(_))) => {
            Err(CliError::TimedOut(format!("{} of {all} machines timed out", failed.len())))
        }
        (failed, all) => Err(CliError::SomeFailed { failed, total: all }),
    }
}

fn outcome_row(outcome: &NodeOutcome) -> Value {
    let mut row = json!({
        "node": outcome.selected.label,
        "uuid": outcome.selected.uuid,
        "ok": outcome.result.is_ok(),
    });
    match &outcome.result {
        Ok(text) => row["result"] = json!(text),
        Err(failure) => row["error"] = json!(failure.message()),
    }
    row
}

/// Prefixes an error with the node's label, unless the text contains it.
fn with_label(selected: &SelectedNode, failure: CliError) -> CliError {
    let label = &selected.label;
    let with = |text: String| if text.contains(label) { text } else { format!("{label}: {text}") };
    match failure {
        CliError::NotFound(text) => CliError::NotFound(with(text)),
        CliError::Rejected(text) => CliError::Rejected(with(text)),
        CliError::Failed(text) => CliError::Failed(with(text)),
        CliError::TimedOut(text) => CliError::TimedOut(format!("{label} {text}")),
        CliError::Interrupted(text) => CliError::Interrupted(format!("{label}: {text}")),
        CliError::Api(error) => match error.status() {
            Some(404) => CliError::NotFound(with(error.to_string())),
            Some(400..=499) => CliError::Rejected(with(error.to_string())),
            Some(_) | None => CliError::Api(error),
        },
        CliError::OutcomeUnknown(text) => CliError::OutcomeUnknown(with(text)),
        other @ (CliError::Usage(_)
        | CliError::ConnectionLost(_)
        | CliError::SomeFailed { .. }
        | CliError::Target(_)
        | CliError::Unreadable { .. }
        | CliError::Unwritable { .. }) => other,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::cli_error::CliExitCode;
    use crate::test_server::unreachable_server;

    fn machines(count: usize) -> Vec<SelectedNode> {
        (0..count).map(|number| SelectedNode::new(json!({"uuid": format!("u{number}")}))).collect()
    }

    /// Two at a time; Ctrl-C arrives while the first of five runs.
    #[tokio::test]
    async fn ctrl_c_starts_no_further_actions() {
        let (press, presses) = unbounded_channel();
        let action = |_, machine: SelectedNode| {
            let press = press.clone();
            async move {
                if machine.uuid == "u0" {
                    press.send(()).unwrap();
                }
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                Ok("done".to_owned())
            }
        };
        let context = unreachable_server();
        let mut interrupts = Interrupts::from_channel(presses);
        let outcome =
            for_each_until_interrupted(&context, machines(5), 2, action, &mut interrupts).await;
        let outcomes = outcome.outcomes;
        let done: Vec<bool> = outcomes.iter().map(|outcome| outcome.result.is_ok()).collect();
        assert_eq!(done, [true, true, false, false, false]);
        let failure = report(&context, outcomes, OutputFormat::Name).unwrap_err();
        assert_eq!(failure.exit_code(), CliExitCode::Interrupted);
        assert_eq!(failure.to_string(), "stopped; 2 of 5 machines succeeded");
    }

    #[tokio::test]
    async fn second_ctrl_c_does_not_wait_for_responses() {
        let (press, presses) = unbounded_channel();
        press.send(()).unwrap();
        press.send(()).unwrap();
        let action = |_, _| std::future::pending();
        let mut interrupts = Interrupts::from_channel(presses);
        let server = unreachable_server();
        let outcome =
            for_each_until_interrupted(&server, machines(1), 2, action, &mut interrupts).await;
        let message = outcome.outcomes[0].result.as_ref().unwrap_err().to_string();
        assert_eq!(message, "the server may or may not have accepted the request");
    }

    #[tokio::test]
    async fn ctrl_c_skips_waiting_for_accepted_requests() {
        let (press, presses) = unbounded_channel();
        let action = |_, _| {
            let press = press.clone();
            async move {
                press.send(()).unwrap();
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                Ok("accepted".to_owned())
            }
        };
        let (context, mut interrupts) = (unreachable_server(), Interrupts::from_channel(presses));
        let outcome =
            for_each_until_interrupted(&context, machines(1), 2, action, &mut interrupts).await;
        let deadline = wait::TimeoutArguments::default().deadline();
        let outcomes = outcome.wait_for_goal(&context, &WaitGoal::Stable, deadline).await;
        let failure = report(&context, outcomes, OutputFormat::Name).unwrap_err();
        assert_eq!(failure.exit_code(), CliExitCode::Interrupted);
        assert!(failure.to_string().contains("the server continues"), "{failure}");
    }
}
