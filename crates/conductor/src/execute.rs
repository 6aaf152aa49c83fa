// SPDX-License-Identifier: Apache-2.0
//! Executes actions by calling drivers.

use std::sync::Arc;
use std::time::Duration;

use drivers::ramdisk_boot::retry_ramdisk_boot;
use drivers::requested_firmware::prepare_ramdisk_firmware;
use drivers::{
    BmcCallLog, Driver, DriverTarget, InspectionOutcome, NodeChanges, RamdiskMode, StepOutcome,
};
use lifecycle::{Action, ActionFailure, ActionOutcome, JobRamdisk, ReservedStep, job_ramdisk};
use node_model::{ActionProgress, JournalEvent, MediaDevice, NodeId, PowerTarget, Step, StepFlow};
use serde_json::Value;
use store::{NodeFilter, ResourceQuery};

use crate::agent_logs::AgentLogArchive;
use crate::direct_calls::ATTACHED_BY_USER;
use crate::error::error_text;
use crate::inspect::{OutOfBandResult, inspection_failure};
use crate::node_snapshot::NodeSnapshot;
use crate::{Conductor, ConductorError, available_steps, consoles, hardware};

/// What an action changes besides its outcome, written in the transaction that records the outcome.
#[derive(Default)]
pub(crate) struct ActionResults {
    /// Changes of the node.
    pub(crate) changes: NodeChanges,
    /// The result of an out-of-band inspection.
    pub(crate) inspection: Option<Box<OutOfBandResult>>,
    /// Changes of child nodes.
    pub(crate) children: Vec<(NodeId, NodeChanges)>,
    /// The requests to the BMC.
    pub(crate) bmc_calls: Option<JournalEvent>,
    /// The logs of the agent that the action stopped.
    pub(crate) logs: Option<AgentLogArchive>,
}

impl From<NodeChanges> for ActionResults {
    fn from(changes: NodeChanges) -> Self {
        Self { changes, ..Self::default() }
    }
}

type ExecuteResult = Result<(ActionOutcome, ActionResults), ConductorError>;

/// Executes `action` on the node of `snapshot`. Errors are part of the outcome.
pub(crate) async fn execute(
    conductor: &Conductor,
    snapshot: &NodeSnapshot,
    action: &Action,
    calls: &Arc<BmcCallLog>,
) -> (ActionOutcome, ActionResults) {
    let mut logs = None;
    let result = async {
        let driver = snapshot.driver(&conductor.registry)?;
        let target = snapshot.target(&driver, conductor.now());
        let target = DriverTarget { call_log: Some(calls), ..target };
        logs = conductor.collect_agent_logs(&target, action).await;
        ActionCall { conductor, snapshot, driver: &driver, target }.run(action).await
    };
    let (outcome, results) = match result.await {
        Ok(done) => done,
        Err(error) => (failed_outcome(&error), ActionResults::default()),
    };
    (outcome, ActionResults { logs, ..results })
}

fn failed_outcome(error: &ConductorError) -> ActionOutcome {
    let failure = ActionFailure::new(error_text(error));
    let peer = if let ConductorError::Driver { source, .. } = error {
        source.unreachable_peer()
    } else {
        None
    };
    match peer {
        Some(peer) => ActionOutcome::Unreachable(peer, failure),
        None => ActionOutcome::Failed(failure),
    }
}

/// The arguments of all calls for one action.
struct ActionCall<'a> {
    conductor: &'a Conductor,
    snapshot: &'a NodeSnapshot,
    driver: &'a Driver,
    target: DriverTarget<'a>,
}

impl ActionCall<'_> {
    fn error(&self, source: drivers::DriverError) -> ConductorError {
        self.snapshot.driver_error(source)
    }

    async fn run(&self, action: &Action) -> ExecuteResult {
        let (driver, target) = (self.driver, &self.target);
        let failed = |source| self.error(source);
        match action {
            Action::CheckPower => self.check_power().await,
            Action::CacheHardware => done(hardware::read(driver, target).await.map_err(failed)?),
            Action::ListSteps(flow) => self.list_steps(*flow, NodeChanges::none()).await,
            Action::RunStep { flow, step } | Action::PollStep { flow, step } => {
                self.run_step(*flow, step).await
            }
            Action::PrepareDeploy => {
                // First, because it refuses requests that the machine cannot fulfil.
                let firmware = prepare_ramdisk_firmware(target).await.map_err(failed)?;
                let console = self.restore_console().await;
                let prepared = driver.deploy().prepare(target).await.map_err(failed)?;
                done(console.and(firmware).and(prepared))
            }
            Action::CleanUpDeploy => {
                let changes = driver.deploy().clean_up(target).await.map_err(failed)?;
                done(changes.and(self.power_off_after_failure().await?))
            }
            Action::TearDown => self.tear_down().await,
            Action::PrepareCleaning => {
                progress(driver.deploy().prepare_cleaning(target).await.map_err(failed)?)
            }
            Action::TearDownCleaning => {
                let changes = driver.deploy().tear_down_cleaning(target).await.map_err(failed)?;
                done(changes.and(self.power_off_after_failure().await?))
            }
            Action::PrepareService => {
                progress(driver.deploy().prepare_service(target).await.map_err(failed)?)
            }
            Action::TearDownService => {
                let changes = driver.deploy().tear_down_service(target).await.map_err(failed)?;
                done(changes.and(self.power_off_after_failure().await?))
            }
            Action::Inspect => self.inspect().await,
            Action::FinishInspection => {
                let changes = driver.inspect().clean_up(target).await.map_err(failed)?;
                done(changes.and(hardware::read(driver, target).await.map_err(failed)?))
            }
            Action::AbortInspection => match driver.inspect().abort(target).await {
                Ok(changes) => done(changes),
                // There is nothing to stop.
                Err(drivers::DriverError::Unsupported { .. }) => done(NodeChanges::none()),
                Err(error) => Err(failed(error)),
            },
            Action::BootAgain => {
                let changes =
                    retry_ramdisk_boot(target, self.ramdisk_mode()).await.map_err(failed)?;
                let outcome = ActionOutcome::Progress(ActionProgress::WaitForAgent);
                Ok((outcome, changes.into()))
            }
            // The repeated call after the heartbeat returns whether the rescue system runs.
            Action::Rescue | Action::FinishRescue => {
                progress(driver.rescue().rescue(target).await.map_err(failed)?)
            }
            Action::CleanUpRescue => done(driver.rescue().clean_up(target).await.map_err(failed)?),
            Action::Unrescue => done(driver.rescue().unrescue(target).await.map_err(failed)?),
            Action::Adopt => {
                driver.boot().validate(target).await.map_err(failed)?;
                done(driver.deploy().take_over(target).await.map_err(failed)?)
            }
            Action::SetPower { target: requested, timeout } => {
                let timeout = timeout.map(|seconds| Duration::from_secs(u64::from(seconds)));
                let changes =
                    driver.power().set(target, *requested, timeout).await.map_err(failed)?;
                // `lifecycle::record` sets the power state, with the journal event of the change.
                done(NodeChanges { power_state: None, ..changes })
            }
        }
    }

    fn ramdisk_mode(&self) -> RamdiskMode {
        let kind = self.snapshot.node.work.as_ref().map(|work| work.kind);
        match kind.map_or(JobRamdisk::Agent, job_ramdisk) {
            JobRamdisk::Agent => RamdiskMode::Deploy,
            JobRamdisk::DeployInterface => self.driver.deploy().ramdisk_mode(),
            JobRamdisk::Inspection => RamdiskMode::Inspection,
            JobRamdisk::Rescue => RamdiskMode::Rescue,
        }
    }

    /// Powers the machine off, if the clean-up of the failed job requires it.
    async fn power_off_after_failure(&self) -> Result<NodeChanges, ConductorError> {
        let node = &self.snapshot.node;
        // `disable_power_off` may have been set after the job failed.
        if node.disable_power_off || !node.work.as_ref().is_some_and(|work| work.power_off) {
            return Ok(NodeChanges::none());
        }
        let off = self.driver.power().set(&self.target, PowerTarget::Off, None).await;
        off.map_err(|source| self.error(source))
    }

    async fn check_power(&self) -> ExecuteResult {
        let power = self.driver.power();
        power.validate(&self.target).await.map_err(|source| self.error(source))?;
        let state = power.get(&self.target).await.map_err(|source| self.error(source))?;
        done(NodeChanges { power_state: state, ..NodeChanges::none() })
    }

    async fn inspect(&self) -> ExecuteResult {
        let inspection = self.driver.inspect().inspect(&self.target).await;
        match inspection.map_err(|source| self.error(source))? {
            InspectionOutcome::Done(data) => {
                let result = self.conductor.process_out_of_band(self.snapshot, *data).await?;
                let outcome = match &result.findings {
                    Err(error) => ActionOutcome::Failed(inspection_failure(error)),
                    Ok(_) => ActionOutcome::DONE,
                };
                let inspection = Some(Box::new(result));
                Ok((outcome, ActionResults { inspection, ..ActionResults::default() }))
            }
            InspectionOutcome::WaitForAgent(changes) => {
                Ok((ActionOutcome::Progress(ActionProgress::WaitForAgent), (*changes).into()))
            }
        }
    }

    /// Starts the console again that was stopped with the last instance, if it is enabled. A failure
    /// does not prevent the deployment.
    async fn restore_console(&self) -> NodeChanges {
        let node = &self.snapshot.node;
        if !node.console_enabled {
            return NodeChanges::none();
        }
        let started = consoles::switch_on(self.conductor, self.driver, &self.target).await;
        let changes = started.unwrap_or_else(|error| {
            tracing::warn!(node = %node.id, error = error_text(&error), "console could not be re-enabled");
            NodeChanges { console_enabled: Some(false), ..consoles::clear_server() }
        });
        consoles::publish_server(self.conductor, node.id, &changes).await;
        changes
    }

    async fn tear_down(&self) -> ExecuteResult {
        let (driver, target) = (self.driver, &self.target);
        let failed = |source| self.error(source);
        let mut changes = driver.rescue().clean_up(target).await.map_err(failed)?;
        if self.snapshot.node.console_enabled {
            // It stays enabled, and is started again with the next instance.
            let off = consoles::switch_off(driver, target).await.map_err(failed)?;
            consoles::publish_server(self.conductor, self.snapshot.node.id, &off).await;
            changes = changes.and(off);
        }
        changes = changes.and(self.detach_user_media().await?);
        changes = changes.and(driver.deploy().clean_up(target).await.map_err(failed)?);
        changes = changes.and(driver.deploy().tear_down(target).await.map_err(failed)?);
        // The instance is removed from the node's record.
        changes.instance_info.clear();
        done(changes)
    }

    /// Detaches the images that a user attached: the next instance could read its user data from them.
    async fn detach_user_media(&self) -> Result<NodeChanges, ConductorError> {
        let (driver, target) = (self.driver, &self.target);
        if self.snapshot.node.driver_internal_info.get(ATTACHED_BY_USER).is_none() {
            return Ok(NodeChanges::none());
        }
        let failed = |source| self.error(source);
        let changes =
            driver.management().detach_virtual_media(target, &[]).await.map_err(failed)?;
        let boot_service = self.conductor.registry.boot_service();
        boot_service.withdraw_media(target, MediaDevice::ALL).await.map_err(failed)?;
        Ok(changes.and(NodeChanges::internal_info(ATTACHED_BY_USER, Value::Null)))
    }

    /// Lists the steps of the driver and of the running agent.
    async fn list_steps(&self, flow: StepFlow, before: NodeChanges) -> ExecuteResult {
        let listed =
            available_steps::list_all(self.conductor, self.driver, &self.target, flow).await;
        let (steps, changes) = listed.map_err(|source| self.error(source))?;
        Ok((ActionOutcome::StepsListed(steps), before.and(changes).into()))
    }

    async fn run_step(&self, flow: StepFlow, step: &Step) -> ExecuteResult {
        if step.execute_on_child_nodes {
            return run_on_children(self.conductor, self.snapshot.node.id, flow, step).await;
        }
        let outcome = call_step(self.driver, &self.target, flow, step).await;
        let outcome = outcome.map_err(|source| self.error(source))?;
        if outcome.progress == ActionProgress::AgentReady {
            return self.list_steps(flow, outcome.changes).await;
        }
        progress(outcome)
    }
}

fn done(changes: NodeChanges) -> ExecuteResult {
    Ok((ActionOutcome::DONE, changes.into()))
}

fn progress(outcome: StepOutcome) -> ExecuteResult {
    Ok((ActionOutcome::Progress(outcome.progress), outcome.changes.into()))
}

async fn call_step(
    driver: &Driver,
    target: &DriverTarget<'_>,
    flow: StepFlow,
    step: &Step,
) -> Result<StepOutcome, drivers::DriverError> {
    let reserved = ReservedStep::from_step(step);
    if let Some(power) = reserved.and_then(ReservedStep::power_target) {
        return driver.power().set(target, power, None).await.map(StepOutcome::done);
    }
    let kind = step.interface.parse().map_err(|()| drivers::DriverError::InvalidParameter {
        name: "interface".to_owned(),
        why: format!("there is no interface '{}'", step.interface),
    })?;
    driver.interface(kind).execute_step(target, flow, step).await
}

/// Runs a step on each child node, one after the other. Children have no job that could wait, so
/// steps that do not end at once are rejected.
async fn run_on_children(
    conductor: &Conductor,
    parent: NodeId,
    flow: StepFlow,
    step: &Step,
) -> ExecuteResult {
    let children = conductor
        .store
        .read(move |reader| {
            let query = ResourceQuery {
                filter: NodeFilter { parent_node: Some(parent), ..NodeFilter::default() },
                ..ResourceQuery::default()
            };
            let nodes = reader.collect(&query)?.into_iter();
            nodes.map(|node| NodeSnapshot::read(reader, node)).collect::<Result<Vec<_>, _>>()
        })
        .await
        .map_err(ConductorError::Store)?;
    let only = &step.limit_child_node_execution;
    let mut results = ActionResults::default();
    for child in children {
        if !only.is_empty() && !only.contains(&child.node.id.to_string()) {
            continue;
        }
        let driver = child.driver(&conductor.registry)?;
        let target = child.target(&driver, conductor.now());
        let outcome = call_step(&driver, &target, flow, step).await;
        let outcome = outcome.map_err(|source| child.driver_error(source))?;
        if !outcome.is_done() {
            return Err(ConductorError::Invalid {
                node: child.node.label(),
                why: format!(
                    "step {} does not end at once and so cannot run on a child node",
                    step.qualified()
                ),
            });
        }
        results.children.push((child.node.id, outcome.changes));
    }
    Ok((ActionOutcome::DONE, results))
}
