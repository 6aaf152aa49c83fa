// SPDX-License-Identifier: Apache-2.0
//! Where an action meets a driver.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bmc_drivers::{CallLog, Driver, Inspection, NodeChanges, RamdiskMode, Target, boot_again};
use lifecycle::{Action, Failure, Outcome, Reserved};
use node_model::{Happening, NodeId, PowerTarget, Step, StepFlow, WorkKind};
use store::{NodeFilter, Query};

use crate::agent_logs::{Logs, logs_collected};
use crate::inspect::{Found, could_not_finish};
use crate::sight::Sight;
use crate::{Conductor, Error, consoles, hardware, offers};

/// What came of an action besides its outcome: for the recording transaction to write.
#[derive(Default)]
pub(crate) struct Done {
    /// About the node.
    pub(crate) changes: NodeChanges,
    /// About its hardware.
    pub(crate) found: Option<Box<Found>>,
    /// About its children.
    pub(crate) children: Vec<(NodeId, NodeChanges)>,
    /// What was said to the BMC.
    pub(crate) calls: Option<Happening>,
    /// The logs of an agent that was ended.
    pub(crate) logs: Option<Logs>,
}

impl From<NodeChanges> for Done {
    fn from(changes: NodeChanges) -> Self {
        Self { changes, ..Self::default() }
    }
}

/// Carries out `action` on the node in `sight`. Never fails: failing is an outcome.
pub(crate) async fn act(
    conductor: &Conductor,
    sight: &Sight,
    action: &Action,
    calls: &Arc<CallLog>,
) -> (Outcome, Done) {
    let mut logs = None;
    let result = async {
        let driver = sight.driver(&conductor.registry)?;
        let target = sight.target(&driver, conductor.now());
        let target = Target { calls: Some(calls), ..target };
        logs = conductor.collect(&target, action).await;
        carry_out(conductor, sight, &driver, &target, action).await
    };
    match result.await {
        Ok((outcome, done)) => (outcome, Done { logs, ..done }),
        Err(error) => {
            let failure = Failure::new(chain(&error));
            let silent =
                if let Error::Driver { source, .. } = error { source.silent() } else { None };
            let outcome = match silent {
                Some(whom) => Outcome::Unreachable(whom, failure),
                None => Outcome::Failed(failure),
            };
            // Whatever went wrong, the logs are kept, and an action that is tried again does
            // not ask for them again.
            let asked = logs.as_ref().and(sight.node.work.as_ref());
            let changes = asked.map_or_else(NodeChanges::none, |work| logs_collected(&work.notes));
            (outcome, Done { logs, ..Done::from(changes) })
        }
    }
}

/// An error with its causes, for people: without the passwords of URLs.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = inner.source();
    }
    match node_model::mask_urls(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(shown) => shown,
    }
}

type Acted = Result<(Outcome, Done), Error>;

async fn carry_out(
    conductor: &Conductor,
    sight: &Sight,
    driver: &Driver,
    target: &Target<'_>,
    action: &Action,
) -> Acted {
    let failed = |source| sight.failed(source);
    match action {
        Action::CheckPower => check_power(sight, driver, target).await,
        Action::CacheHardware => done(hardware::read(driver, target).await.map_err(failed)?),
        Action::ListSteps(flow) => {
            ask_for_steps(conductor, sight, driver, target, *flow, NodeChanges::none()).await
        }
        Action::RunStep { flow, step } | Action::PollStep { flow, step } => {
            run_step(conductor, sight, driver, target, *flow, step).await
        }
        Action::PrepareDeploy => {
            let console = console_again(conductor, sight, driver, target).await;
            done(console.and(driver.deploy().prepare(target).await.map_err(failed)?))
        }
        Action::CleanUpDeploy => {
            let changes = driver.deploy().clean_up(target).await.map_err(failed)?;
            let off = power_off_if_noted(sight, driver, target).await?;
            done(changes.and(off))
        }
        Action::TearDown => tear_down(conductor, sight, driver, target).await,
        Action::PrepareCleaning => {
            Ok(stepped(driver.deploy().prepare_cleaning(target).await.map_err(failed)?))
        }
        Action::TearDownCleaning => {
            let torn = driver.deploy().tear_down_cleaning(target).await.map_err(failed)?;
            let off = power_off_if_noted(sight, driver, target).await?;
            done(torn.and(off))
        }
        Action::PrepareService => {
            Ok(stepped(driver.deploy().prepare_service(target).await.map_err(failed)?))
        }
        Action::TearDownService => {
            let torn = driver.deploy().tear_down_service(target).await.map_err(failed)?;
            let off = power_off_if_noted(sight, driver, target).await?;
            done(torn.and(off))
        }
        Action::Inspect => match driver.inspect().inspect(target).await.map_err(failed)? {
            Inspection::Done(findings) => {
                let found = conductor.judge_told(sight, *findings).await?;
                let outcome = match &found.judged {
                    Err(why) => Outcome::Failed(could_not_finish(why)),
                    Ok(_) => Outcome::Done,
                };
                Ok((outcome, Done { found: Some(Box::new(found)), ..Done::default() }))
            }
            Inspection::WaitForAgent(changes) => Ok((Outcome::AwaitAgent, (*changes).into())),
        },
        Action::FinishInspection => {
            let cleared = driver.inspect().clean_up(target).await.map_err(failed)?;
            done(cleared.and(hardware::read(driver, target).await.map_err(failed)?))
        }
        Action::AbortInspection => {
            let changes = match driver.inspect().abort(target).await {
                Ok(changes) => changes,
                // Nothing to stop is as good as stopped.
                Err(bmc_drivers::Error::Unsupported { .. }) => NodeChanges::none(),
                Err(error) => return Err(failed(error)),
            };
            done(changes)
        }
        Action::BootAgain => {
            let mode = ramdisk_mode(sight.node.work.as_ref().map(|work| work.kind), driver);
            let changes = boot_again(target, mode).await.map_err(failed)?;
            Ok((Outcome::AwaitAgent, changes.into()))
        }
        // When the agent has called, the same call says whether the rescue system is up.
        Action::Rescue | Action::FinishRescue => {
            Ok(stepped(driver.rescue().rescue(target).await.map_err(failed)?))
        }
        Action::CleanUpRescue => done(driver.rescue().clean_up(target).await.map_err(failed)?),
        Action::Unrescue => done(driver.rescue().unrescue(target).await.map_err(failed)?),
        Action::Adopt => {
            driver.boot().validate(target).await.map_err(failed)?;
            done(driver.deploy().take_over(target).await.map_err(failed)?)
        }
        Action::SetPower { target: wanted, timeout } => {
            let timeout = timeout.map(|seconds| Duration::from_secs(u64::from(seconds)));
            done(driver.power().set(target, *wanted, timeout).await.map_err(failed)?)
        }
    }
}

/// Which ramdisk a job boots.
fn ramdisk_mode(kind: Option<WorkKind>, driver: &Driver) -> RamdiskMode {
    match kind {
        Some(WorkKind::Inspect) => RamdiskMode::Inspection,
        Some(WorkKind::Rescue) => RamdiskMode::Rescue,
        Some(WorkKind::Deploy | WorkKind::Rebuild) => driver.deploy().boots(),
        Some(
            WorkKind::Verify
            | WorkKind::Clean
            | WorkKind::ManualClean
            | WorkKind::TearDown
            | WorkKind::Unrescue
            | WorkKind::Adopt
            | WorkKind::Service,
        )
        | None => RamdiskMode::Deploy,
    }
}

fn done(changes: NodeChanges) -> Acted {
    Ok((Outcome::Done, changes.into()))
}

/// A driver's answer.
fn stepped(outcome: bmc_drivers::Outcome) -> (Outcome, Done) {
    match outcome {
        bmc_drivers::Outcome::Done(changes) | bmc_drivers::Outcome::AgentIsUp(changes) => {
            (Outcome::Done, changes.into())
        }
        bmc_drivers::Outcome::WaitForAgent(changes) => (Outcome::AwaitAgent, changes.into()),
        bmc_drivers::Outcome::AgentWorks { moment, changes } => {
            (Outcome::AwaitStep(moment), changes.into())
        }
        bmc_drivers::Outcome::WaitUntil { moment, changes } => {
            (Outcome::AwaitUntil(moment), changes.into())
        }
    }
}

/// Switches the machine off, if that is to be done after the failure that is cleared up.
async fn power_off_if_noted(
    sight: &Sight,
    driver: &Driver,
    target: &Target<'_>,
) -> Result<NodeChanges, Error> {
    if target.notes.get("power_off").is_none() || sight.node.disable_power_off {
        return Ok(NodeChanges::none());
    }
    let off = driver.power().set(target, PowerTarget::Off, None).await;
    off.map_err(|source| sight.failed(source))
}

async fn check_power(sight: &Sight, driver: &Driver, target: &Target<'_>) -> Acted {
    let failed = |source| sight.failed(source);
    driver.power().validate(target).await.map_err(failed)?;
    let seen = driver.power().get(target).await.map_err(failed)?;
    done(NodeChanges { power_state: seen, ..NodeChanges::none() })
}

/// A console that is wanted is there again: it went with the last instance. Without it a machine can
/// be deployed all the same.
async fn console_again(
    conductor: &Conductor,
    sight: &Sight,
    driver: &Driver,
    target: &Target<'_>,
) -> NodeChanges {
    if !sight.node.console_enabled {
        return NodeChanges::none();
    }
    let changes = match consoles::switch_on(conductor, driver, target).await {
        Ok(changes) => changes,
        Err(error) => {
            tracing::warn!(node = %sight.node.id, error = chain(&error), "it has no console now");
            NodeChanges { console_enabled: Some(false), ..consoles::nobody_serves() }
        }
    };
    consoles::tell_others(conductor, sight.node.id, &changes).await;
    changes
}

async fn tear_down(
    conductor: &Conductor,
    sight: &Sight,
    driver: &Driver,
    target: &Target<'_>,
) -> Acted {
    let failed = |source| sight.failed(source);
    let mut changes = driver.rescue().clean_up(target).await.map_err(failed)?;
    if sight.node.console_enabled {
        // It stays wanted, and comes back with the next instance.
        let off = consoles::switch_off(driver, target).await.map_err(failed)?;
        consoles::tell_others(conductor, sight.node.id, &off).await;
        changes = changes.and(off);
    }
    changes = changes.and(driver.deploy().clean_up(target).await.map_err(failed)?);
    changes = changes.and(driver.deploy().tear_down(target).await.map_err(failed)?);
    // What the driver wanted to remember about the instance goes with it.
    changes.instance_info.clear();
    done(changes)
}

/// What the driver and the agent, which is up, offer for `flow`.
async fn ask_for_steps(
    conductor: &Conductor,
    sight: &Sight,
    driver: &Driver,
    target: &Target<'_>,
    flow: StepFlow,
    before: NodeChanges,
) -> Acted {
    let asked = offers::of_both(conductor, driver, target, flow).await;
    let (offers, found) = asked.map_err(|source| sight.failed(source))?;
    Ok((Outcome::Offers(offers), before.and(found).into()))
}

async fn run_step(
    conductor: &Conductor,
    sight: &Sight,
    driver: &Driver,
    target: &Target<'_>,
    flow: StepFlow,
    step: &Step,
) -> Acted {
    if step.execute_on_child_nodes {
        return run_on_children(conductor, sight, flow, step).await;
    }
    let outcome =
        run_one(driver, target, flow, step).await.map_err(|source| sight.failed(source))?;
    if let bmc_drivers::Outcome::AgentIsUp(changes) = outcome {
        return ask_for_steps(conductor, sight, driver, target, flow, changes).await;
    }
    Ok(stepped(outcome))
}

async fn run_one(
    driver: &Driver,
    target: &Target<'_>,
    flow: StepFlow,
    step: &Step,
) -> Result<bmc_drivers::Outcome, bmc_drivers::Error> {
    let Some(power) = Reserved::of(step).and_then(Reserved::power_target) else {
        let kind = step.interface.parse().map_err(|()| bmc_drivers::Error::InvalidParameter {
            name: "interface".to_owned(),
            why: format!("there is no interface '{}'", step.interface),
        })?;
        return driver.interface(kind).execute_step(target, flow, step).await;
    };
    driver.power().set(target, power, None).await.map(bmc_drivers::Outcome::Done)
}

/// Runs a step on each child of the node, one after the other. A child has no job of its own that
/// could wait, so a step that wants to wait is refused.
async fn run_on_children(
    conductor: &Conductor,
    sight: &Sight,
    flow: StepFlow,
    step: &Step,
) -> Acted {
    let parent = sight.node.id;
    let children = conductor
        .store
        .read(move |reader| {
            let query = Query {
                filter: NodeFilter { parent_node: Some(parent), ..NodeFilter::default() },
                ..Query::default()
            };
            let nodes = reader.collect(&query)?;
            nodes.into_iter().map(|node| Sight::of(reader, node)).collect::<Result<Vec<_>, _>>()
        })
        .await
        .map_err(Error::Store)?;
    let only = &step.limit_child_node_execution;
    let mut done = Done::default();
    for child in children {
        if !only.is_empty() && !only.contains(&child.node.id.to_string()) {
            continue;
        }
        let driver = child.driver(&conductor.registry)?;
        let target = child.target(&driver, conductor.now());
        let outcome =
            run_one(&driver, &target, flow, step).await.map_err(|source| child.failed(source))?;
        match outcome {
            bmc_drivers::Outcome::Done(changes) => done.children.push((child.node.id, changes)),
            bmc_drivers::Outcome::WaitForAgent(_)
            | bmc_drivers::Outcome::AgentIsUp(_)
            | bmc_drivers::Outcome::AgentWorks { .. }
            | bmc_drivers::Outcome::WaitUntil { .. } => {
                return Err(Error::Invalid {
                    node: child.node.label(),
                    why: format!(
                        "step {} does not end at once and so cannot be run on a child node",
                        step.qualified()
                    ),
                });
            }
        }
    }
    Ok((Outcome::Done, done))
}
