// SPDX-License-Identifier: Apache-2.0
//! The same for many machines: the plan and the question before, so many at a time, and what came of
//! it.

use std::future::Future;
use std::sync::Arc;

use clap::Args;
use ironic_client::Api;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::desk::Desk;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::output::Format;
use crate::selection::Chosen;
use crate::wait::{self, Deadline, Goal, Outcome};

/// So many machines of a plan are shown by name.
const SHOWN: usize = 20;

/// Options of everything that is done to machines.
#[derive(Args, Clone, Debug)]
pub(crate) struct BulkArguments {
    /// Do not ask before doing something destructive to several machines.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// How many machines are asked at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) parallel: u16,
}

/// What came of it to ask machines.
pub(crate) struct Asked {
    pub(crate) outcomes: Vec<Outcome>,
    /// Whether somebody stopped it.
    is_interrupted: bool,
}

/// Shows what is about to happen to several machines and asks for a yes, unless it was given.
pub(crate) async fn consent(
    desk: &Desk,
    what: &str,
    chosen: &[Chosen],
    is_given: bool,
) -> Result<(), Failure> {
    if chosen.len() < 2 || is_given {
        return Ok(());
    }
    let mut plan = format!("{what} {} machines at {}:\n", chosen.len(), desk.api.address());
    for machine in chosen.iter().take(SHOWN) {
        let instance = machine.node["instance_uuid"].as_str();
        let instance = instance.map(|uuid| format!(", instance {uuid}")).unwrap_or_default();
        plan.push_str(&format!("  {} ({}{instance})\n", machine.label, machine.state()));
    }
    if chosen.len() > SHOWN {
        plan.push_str(&format!("  and {} more\n", chosen.len() - SHOWN));
    }
    desk.screen.note(&plan);
    if !desk.screen.can_ask {
        return Err(Failure::Usage(format!(
            "nobody can be asked whether to {what} {} machines: give --yes",
            chosen.len()
        )));
    }
    if desk.screen.asks("Go on?").await? {
        Ok(())
    } else {
        Err(Failure::Interrupted("nothing was done".to_owned()))
    }
}

/// Does something to every machine, so many at a time; outcomes are in the order of the machines. After
/// Ctrl-C no more are asked.
pub(crate) async fn each<Action, Doing>(
    desk: &Desk,
    chosen: Vec<Chosen>,
    parallel: u16,
    action: Action,
) -> Result<Asked, Failure>
where
    Action: Fn(Arc<Api>, Chosen) -> Doing,
    Doing: Future<Output = Result<String, Failure>> + Send + 'static,
{
    let mut interrupts = Interrupts::listen()?;
    Ok(each_until(desk, chosen, parallel, action, &mut interrupts).await)
}

async fn each_until<Action, Doing>(
    desk: &Desk,
    chosen: Vec<Chosen>,
    parallel: u16,
    action: Action,
    interrupts: &mut Interrupts,
) -> Asked
where
    Action: Fn(Arc<Api>, Chosen) -> Doing,
    Doing: Future<Output = Result<String, Failure>> + Send + 'static,
{
    let turns = Arc::new(Semaphore::new(usize::from(parallel)));
    let mut tasks = JoinSet::new();
    for (place, machine) in chosen.iter().enumerate() {
        let doing = action(desk.api.clone(), machine.clone());
        let turns = turns.clone();
        tasks.spawn(async move {
            let Ok(_turn) = turns.acquire_owned().await else {
                return (place, Err(Failure::Interrupted("was not asked".to_owned())));
            };
            (place, doing.await)
        });
    }
    let mut results: Vec<Option<Result<String, Failure>>> = chosen.iter().map(|_| None).collect();
    loop {
        tokio::select! {
            joined = tasks.join_next() => match joined {
                Some(Ok((place, result))) => results[place] = Some(result),
                Some(Err(_)) => {}
                None => break,
            },
            () = interrupts.next() => {
                if turns.is_closed() {
                    break;
                }
                turns.close();
                desk.screen.note(
                    "stopping as soon as the server has answered; Ctrl-C again does not wait",
                );
            }
        }
    }
    let unknown = || {
        let told = "it is not known whether the server took the request";
        Err(Failure::Interrupted(told.to_owned()))
    };
    let outcome = |(chosen, result): (Chosen, Option<Result<String, Failure>>)| Outcome {
        chosen,
        result: result.unwrap_or_else(unknown),
    };
    Asked {
        outcomes: chosen.into_iter().zip(results).map(outcome).collect(),
        is_interrupted: turns.is_closed(),
    }
}

impl Asked {
    /// Waits for the machines that took it, unless somebody stopped it.
    pub(crate) async fn reached(
        self,
        desk: &Desk,
        goal: &Goal,
        deadline: Deadline,
    ) -> Vec<Outcome> {
        let (accepted, mut done): (Vec<Outcome>, Vec<Outcome>) =
            self.outcomes.into_iter().partition(|outcome| outcome.result.is_ok());
        let waiting = accepted.into_iter().map(|outcome| (outcome.chosen, goal.clone())).collect();
        done.extend(match self.is_interrupted {
            true => wait::left(waiting),
            false => wait::wait_for(desk, waiting, deadline).await,
        });
        done
    }
}

/// Shows what came of it, and makes the exit code of it: of one machine its own, of several that some
/// failed.
pub(crate) fn told(desk: &Desk, outcomes: Vec<Outcome>, format: Format) -> Result<(), Failure> {
    let all = outcomes.len();
    if format.is_for_programs() {
        let rows: Vec<Value> = outcomes.iter().map(row).collect();
        desk.screen.print(&format.list(&rows, &[], desk.screen));
    }
    let mut failed = Vec::new();
    for Outcome { chosen, result } in outcomes {
        match result {
            Ok(text) => match format {
                Format::Table | Format::Wide => {
                    desk.screen.print(&format!("{}: {text}", chosen.label));
                }
                Format::Name => desk.screen.print(&chosen.label),
                Format::Json | Format::Yaml => {}
            },
            Err(failure) => {
                if all > 1 {
                    desk.screen.note(&format!("{}: {}", chosen.label, failure.told()));
                }
                failed.push((chosen, failure));
            }
        }
    }
    match (failed.len(), all) {
        (0, _) => Ok(()),
        (1, 1) => Err(failed.remove(0)).map_err(|(chosen, failure)| about(&chosen, failure)),
        (_, _) if failed.iter().any(|(_, it)| matches!(it, Failure::Interrupted(_))) => {
            let well = all - failed.len();
            Err(Failure::Interrupted(format!("stopped; {well} of {all} machines went well")))
        }
        (_, _) if failed.iter().all(|(_, it)| matches!(it, Failure::Lost(_))) => {
            Err(failed.remove(0).1)
        }
        (_, _) if failed.iter().all(|(_, it)| matches!(it, Failure::TimedOut(_))) => {
            Err(Failure::TimedOut(format!("{} of {all} machines took too long", failed.len())))
        }
        (failed, all) => Err(Failure::Some { failed, all }),
    }
}

fn row(outcome: &Outcome) -> Value {
    let mut row = json!({
        "node": outcome.chosen.label,
        "uuid": outcome.chosen.uuid,
        "ok": outcome.result.is_ok(),
    });
    match &outcome.result {
        Ok(text) => row["result"] = json!(text),
        Err(failure) => row["error"] = json!(failure.told()),
    }
    row
}

/// The failure of one machine with its name in front, unless it says it already.
fn about(chosen: &Chosen, failure: Failure) -> Failure {
    let label = &chosen.label;
    let with = |text: String| if text.contains(label) { text } else { format!("{label}: {text}") };
    match failure {
        Failure::NotFound(text) => Failure::NotFound(with(text)),
        Failure::Refused(text) => Failure::Refused(with(text)),
        Failure::Failed(text) => Failure::Failed(with(text)),
        Failure::TimedOut(text) => Failure::TimedOut(format!("{label} {text}")),
        Failure::Interrupted(text) => Failure::Interrupted(format!("{label}: {text}")),
        Failure::Api(error) => match error.status() {
            Some(404) => Failure::NotFound(with(error.to_string())),
            Some(400..=499) => Failure::Refused(with(error.to_string())),
            Some(_) | None => Failure::Api(error),
        },
        Failure::Unanswered(text) => Failure::Unanswered(with(text)),
        other @ (Failure::Usage(_)
        | Failure::Lost(_)
        | Failure::Some { .. }
        | Failure::Settings(_)
        | Failure::Unreadable { .. }
        | Failure::Unwritable { .. }) => other,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::failure::Code;
    use crate::test_server::nobody;

    fn machines(count: usize) -> Vec<Chosen> {
        (0..count).map(|number| Chosen::of(json!({"uuid": format!("u{number}")}))).collect()
    }

    /// Two at a time; Ctrl-C comes as soon as the first of five is under way.
    #[tokio::test]
    async fn after_ctrl_c_no_more_machines_are_asked() {
        let (press, presses) = unbounded_channel();
        let action = |_, machine: Chosen| {
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
        let desk = nobody();
        let mut interrupts = Interrupts::told(presses);
        let asked = each_until(&desk, machines(5), 2, action, &mut interrupts).await;
        let outcomes = asked.outcomes;
        let done: Vec<bool> = outcomes.iter().map(|outcome| outcome.result.is_ok()).collect();
        assert_eq!(done, [true, true, false, false, false]);
        let failure = told(&desk, outcomes, Format::Name).unwrap_err();
        assert_eq!(failure.code(), Code::Interrupted);
        assert_eq!(failure.to_string(), "stopped; 2 of 5 machines went well");
    }

    #[tokio::test]
    async fn a_second_ctrl_c_does_not_wait_for_the_server() {
        let (press, presses) = unbounded_channel();
        press.send(()).unwrap();
        press.send(()).unwrap();
        let action = |_, _| std::future::pending();
        let mut interrupts = Interrupts::told(presses);
        let asked = each_until(&nobody(), machines(1), 2, action, &mut interrupts).await;
        let told = asked.outcomes[0].result.as_ref().unwrap_err().to_string();
        assert_eq!(told, "it is not known whether the server took the request");
    }

    /// Although they all took it.
    #[tokio::test]
    async fn after_ctrl_c_no_machine_is_waited_for() {
        let (press, presses) = unbounded_channel();
        let action = |_, _| {
            let press = press.clone();
            async move {
                press.send(()).unwrap();
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                Ok("was asked".to_owned())
            }
        };
        let (desk, mut interrupts) = (nobody(), Interrupts::told(presses));
        let asked = each_until(&desk, machines(1), 2, action, &mut interrupts).await;
        let deadline = wait::Patience::default().deadline();
        let outcomes = asked.reached(&desk, &Goal::Rest, deadline).await;
        let failure = told(&desk, outcomes, Format::Name).unwrap_err();
        assert_eq!(failure.code(), Code::Interrupted);
        assert!(failure.to_string().contains("the server goes on with it"), "{failure}");
    }
}
