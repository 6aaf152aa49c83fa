// SPDX-License-Identifier: Apache-2.0
//! Carries out deployments: reserves a machine, requests its deployment, ends leases, removes instances.
//!
//! Every step is one transaction that decides again, or a provision request that is rejected if it was
//! made already. A process that is killed between two steps, or several processes on one database,
//! therefore delay a deployment and never lose or repeat it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lifecycle::{
    DeploymentStep, ProvisionRequest, ProvisionRequestError, deployment_config_drive,
    next_deployment_step,
};
use node_model::{
    Allocation, Deployment, DeploymentId, DeploymentState, JournalEntry, JournalEvent, JsonObject,
    LeaseEndAction, Node, ProvisionState, Timestamp, Verb,
};
use serde_json::{Map, Value};
use store::{
    Columns, DeploymentColumn, DeploymentFilter, ResourceQuery, StoreError, StoreReader,
    StoreWriter,
};
use tokio::sync::{Semaphore, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::error::error_text;
use crate::{Conductor, ConductorError};

/// The longest time between two searches for due deployments.
const SEARCH_INTERVAL: Duration = Duration::from_secs(5);
/// The time between two comparisons of settled deployments with their machines.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(60);
/// Changes of nodes within this time are handled together.
const GATHER_TIME: Duration = Duration::from_millis(200);
/// The time until a step that failed for a temporary reason is tried again.
const RETRY_TIME: Duration = Duration::from_secs(10);
/// The maximum number of deployments worked on at the same time.
const MAX_RUNNING: usize = 64;
/// The maximum number of steps of a deployment in a row.
const MAX_STEPS: usize = 16;

impl Conductor {
    /// Makes this process look at new and changed deployments now. If the wake-up is lost, the search for
    /// due deployments finds them.
    pub fn wake_deployments(&self) {
        self.deployments_changed.notify_one();
    }

    /// Runs the steps of a deployment until it waits.
    pub(crate) async fn run_deployment(
        &self,
        id: DeploymentId,
    ) -> Result<DeploymentProgress, StoreError> {
        let mut result = DeploymentProgress::Continue;
        for _ in 0..MAX_STEPS {
            result = self.run_one_step(id).await?;
            if result != DeploymentProgress::Continue {
                break;
            }
        }
        Ok(result)
    }

    /// Runs the next step of a deployment.
    pub(crate) async fn run_one_step(
        &self,
        id: DeploymentId,
    ) -> Result<DeploymentProgress, StoreError> {
        let found = self.store.read(move |reader| DeploymentFacts::read(reader, id)).await?;
        let Some(facts) = found else { return Ok(DeploymentProgress::Settled) };
        let now = self.now();
        let step = facts.next_step(now);
        match &step {
            DeploymentStep::Wait { until } => {
                let waits_for_node = until.is_some_and(|until| until <= now);
                let is_due = facts.deployment.due_at.is_some_and(|due| due <= now);
                let is_stored =
                    if waits_for_node { is_due } else { facts.deployment.due_at == *until };
                if !is_stored {
                    self.apply(id, step).await?;
                }
                Ok(if waits_for_node {
                    DeploymentProgress::WaitsForNode
                } else {
                    DeploymentProgress::Settled
                })
            }
            DeploymentStep::Allocate => {
                let allocation = facts.deployment.allocation_id();
                self.allocate_now(allocation).await?;
                let after = self.store.read(move |reader| reader.get(allocation)).await?;
                // If its candidates were taken by others, the next search finds it again.
                let is_same = after == facts.allocation;
                Ok(if is_same {
                    DeploymentProgress::WaitsForNode
                } else {
                    DeploymentProgress::Continue
                })
            }
            DeploymentStep::RequestDeploy | DeploymentStep::RequestUndeploy => {
                self.request_verb(&facts, step).await
            }
            DeploymentStep::Blocked { .. } => {
                self.apply(id, step).await?;
                Ok(DeploymentProgress::Settled)
            }
            DeploymentStep::PrepareNode
            | DeploymentStep::Enter(_)
            | DeploymentStep::Fail(_)
            | DeploymentStep::WarnOfLeaseEnd
            | DeploymentStep::EndLease(_)
            | DeploymentStep::ReleaseNode
            | DeploymentStep::Remove => {
                self.apply(id, step).await?;
                Ok(DeploymentProgress::Continue)
            }
        }
    }

    /// Requests the deployment or the removal of the instance.
    async fn request_verb(
        &self,
        facts: &DeploymentFacts,
        step: DeploymentStep,
    ) -> Result<DeploymentProgress, StoreError> {
        let Some(node) = &facts.node else { return Ok(DeploymentProgress::Settled) };
        if !self.can_drive(node) {
            // A conductor of the machine's group does it.
            return Ok(DeploymentProgress::WaitsForNode);
        }
        let is_removal = step == DeploymentStep::RequestUndeploy;
        let verb = if is_removal { Verb::Undeploy } else { Verb::Deploy };
        let mut request = ProvisionRequest::plain(verb, facts.deployment.actor());
        if !is_removal {
            let deployment = facts.deployment.clone();
            let instance =
                self.store.read(move |reader| reader.reveal_deployment(&deployment)).await?;
            request.configdrive = deployment_config_drive(&facts.deployment, &instance, node);
        }
        let Err(error) = self.provision(node.id, request).await else {
            return Ok(DeploymentProgress::Continue);
        };
        let why = error_text(&error);
        let until = self.now().plus(RETRY_TIME);
        let is_temporary = is_temporary(&error);
        tracing::warn!(
            deployment = %facts.deployment.id, node = %node.id, %verb, error = why,
            retry = is_removal || is_temporary, "provision request of a deployment was rejected"
        );
        let outcome = if is_removal || is_temporary {
            DeploymentStep::Blocked { why, until }
        } else {
            DeploymentStep::Fail(why)
        };
        let (id, conductor) = (facts.deployment.id, self.clone());
        self.store
            .write(move |tx| {
                let Some(facts) = DeploymentFacts::read(tx, id)? else { return Ok(()) };
                // Another process may have requested it, or a user may have changed the deployment.
                if facts.next_step(tx.now()) == step {
                    facts.write(tx, &conductor, &outcome)?;
                }
                Ok::<_, StoreError>(())
            })
            .await?;
        Ok(DeploymentProgress::Settled)
    }

    /// Writes a step, if the deployment still needs it.
    async fn apply(&self, id: DeploymentId, step: DeploymentStep) -> Result<(), StoreError> {
        let conductor = self.clone();
        self.store
            .write(move |tx| {
                let Some(facts) = DeploymentFacts::read(tx, id)? else { return Ok(()) };
                let now = facts.next_step(tx.now());
                // The time of a wait depends on the clock; everything else must be the same.
                let is_same = now == step
                    || matches!(
                        (&now, &step),
                        (DeploymentStep::Wait { .. }, DeploymentStep::Wait { .. })
                            | (DeploymentStep::Blocked { .. }, DeploymentStep::Blocked { .. })
                    );
                if is_same {
                    facts.write(tx, &conductor, &now)?;
                }
                Ok(())
            })
            .await
    }
}

/// What follows a step of a deployment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeploymentProgress {
    /// The next step.
    Continue,
    /// A change of its machine.
    WaitsForNode,
    /// Nothing until its time or a request.
    Settled,
}

/// A deployment with what its next step depends on.
struct DeploymentFacts {
    deployment: Deployment,
    allocation: Option<Allocation>,
    node: Option<Node>,
}

impl DeploymentFacts {
    /// Inside a write, this locks the records.
    fn read(reader: &mut StoreReader<'_>, id: DeploymentId) -> Result<Option<Self>, StoreError> {
        let Some(deployment) = reader.get(id)? else { return Ok(None) };
        let allocation = reader.get(deployment.allocation_id())?;
        let node = allocation.as_ref().and_then(|it| it.node_id).or(deployment.node_id);
        let node = match node {
            Some(node) => reader.get(node)?,
            None => None,
        };
        Ok(Some(Self { deployment, allocation, node }))
    }

    fn next_step(&self, now: Timestamp) -> DeploymentStep {
        next_deployment_step(&self.deployment, self.allocation.as_ref(), self.node.as_ref(), now)
    }

    /// The machine, if it is still reserved for this deployment.
    fn own_node(&self) -> Option<&Node> {
        self.node.as_ref().filter(|node| self.deployment.runs_on(node))
    }

    /// Writes the outcome of a step.
    fn write(
        mut self,
        tx: &mut StoreWriter<'_>,
        conductor: &Conductor,
        step: &DeploymentStep,
    ) -> Result<(), StoreError> {
        let now = tx.now();
        match step {
            DeploymentStep::Wait { until } => self.deployment.due_at = *until,
            DeploymentStep::PrepareNode => self.prepare_node(tx)?,
            DeploymentStep::Enter(state) => {
                tracing::info!(deployment = %self.deployment.id, %state, "deployment entered a state");
                self.deployment.state = *state;
                self.deployment.last_error = None;
                self.deployment.node_id = self.own_node().map(|node| node.id);
                self.deployment.due_at = Some(now);
            }
            DeploymentStep::Fail(why) => {
                tracing::warn!(deployment = %self.deployment.id, error = why, "deployment failed");
                self.note(tx, conductor, &format!("deployment failed: {why}"));
                let is_untouched = self
                    .own_node()
                    .is_some_and(|node| node.provision_state == ProvisionState::Available);
                if is_untouched {
                    self.release_node(tx)?;
                }
                if self.own_node().is_none() {
                    tx.delete(self.deployment.allocation_id())?;
                    self.deployment.node_id = None;
                }
                self.deployment.state = DeploymentState::Failed;
                self.deployment.last_error = Some(why.clone());
                self.deployment.due_at = Some(now);
            }
            DeploymentStep::WarnOfLeaseEnd => {
                tracing::warn!(
                    deployment = %self.deployment.id, project = ?self.deployment.project,
                    user = ?self.deployment.user, expires_at = ?self.deployment.expires_at,
                    action = %self.deployment.expiry_action, "lease of a deployment ends soon"
                );
                self.deployment.warned_at = Some(now);
                self.note_lease(tx, conductor, "ends");
            }
            DeploymentStep::EndLease(action) => {
                tracing::warn!(
                    deployment = %self.deployment.id, project = ?self.deployment.project,
                    user = ?self.deployment.user, %action, "lease of a deployment has ended"
                );
                self.deployment.expired_at = Some(now);
                self.note_lease(tx, conductor, "ended");
                if *action == LeaseEndAction::Undeploy {
                    self.deployment.state = DeploymentState::Deleting;
                    self.deployment.due_at = Some(now);
                }
            }
            DeploymentStep::ReleaseNode => self.release_node(tx)?,
            DeploymentStep::Blocked { why, until } => {
                self.deployment.last_error = Some(why.clone());
                self.deployment.due_at = Some(*until);
            }
            DeploymentStep::Remove => {
                tracing::info!(deployment = %self.deployment.id, "deployment was removed");
                tx.delete(self.deployment.allocation_id())?;
                tx.delete(self.deployment.id)?;
                return Ok(());
            }
            DeploymentStep::Allocate
            | DeploymentStep::RequestDeploy
            | DeploymentStep::RequestUndeploy => {}
        }
        tx.save(&mut self.deployment)
    }

    /// Writes the instance to the reserved machine.
    fn prepare_node(&mut self, tx: &mut StoreWriter<'_>) -> Result<(), StoreError> {
        let Some(node) = &mut self.node else { return Ok(()) };
        let mut instance = tx.reveal_deployment(&self.deployment)?;
        let mut secrets = tx.reveal(node)?;
        // An earlier lessee may have left a ramdisk or an image in `instance_info`.
        secrets.instance_info.retain(|name, _| name == "traits");
        if let Some(Value::Object(info)) = instance.remove("instance_info") {
            secrets.instance_info.extend(info);
        }
        if let Some(name) = &self.deployment.name {
            secrets.instance_info.insert("display_name".to_owned(), Value::from(name.as_str()));
        }
        tx.seal_node(node, secrets)?;
        node.instance_name.clone_from(&self.deployment.name);
        append_change(tx, node, &self.deployment);
        tx.save(node)?;
        self.deployment.node_id = Some(node.id);
        self.deployment.state = DeploymentState::Reserved;
        self.deployment.due_at = Some(tx.now());
        Ok(())
    }

    /// Releases a machine on which nothing was deployed.
    fn release_node(&mut self, tx: &mut StoreWriter<'_>) -> Result<(), StoreError> {
        let Some(node) = &mut self.node else { return Ok(()) };
        let mut secrets = tx.reveal(node)?;
        secrets.instance_info = Map::new();
        tx.seal_node(node, secrets)?;
        node.instance_info = JsonObject::empty();
        node.instance_uuid = None;
        node.instance_name = None;
        node.allocation_id = None;
        append_change(tx, node, &self.deployment);
        tx.save(node)?;
        self.deployment.node_id = None;
        self.deployment.due_at = Some(tx.now());
        tx.delete(self.deployment.allocation_id()).map(drop)
    }

    /// Mentions the end of the lease in the journal of the machine.
    fn note_lease(&self, tx: &mut StoreWriter<'_>, conductor: &Conductor, verb: &str) {
        let at = self.deployment.expires_at.map(|at| at.to_string()).unwrap_or_default();
        let action = match self.deployment.expiry_action {
            LeaseEndAction::Undeploy => "the instance is removed then",
            LeaseEndAction::Notify => "the instance stays",
        };
        let label = self.deployment.label();
        self.note(tx, conductor, &format!("the lease of {label} {verb} at {at}; {action}"));
    }

    fn note(&self, tx: &mut StoreWriter<'_>, conductor: &Conductor, text: &str) {
        let Some(node) = self.own_node() else { return };
        tx.append(JournalEntry {
            at: tx.now(),
            node_id: node.id,
            actor: conductor.actor(),
            event: JournalEvent::Note { by: "deployment".to_owned(), text: text.to_owned() },
        });
    }
}

/// Records that the instance of a machine changed, by the user who requested the deployment.
fn append_change(tx: &mut StoreWriter<'_>, node: &Node, deployment: &Deployment) {
    let fields = vec!["instance_info".to_owned(), "instance_name".to_owned()];
    tx.append(JournalEntry {
        at: tx.now(),
        node_id: node.id,
        actor: deployment.actor(),
        event: JournalEvent::Changed { fields },
    });
}

/// Whether a request that was rejected with this error may be accepted later.
const fn is_temporary(error: &ConductorError) -> bool {
    match error {
        ConductorError::ProvisionRejected(reason) => matches!(
            reason,
            ProvisionRequestError::Locked { .. } | ProvisionRequestError::NotInThisState { .. }
        ),
        ConductorError::Conflict(_) | ConductorError::NotYet(_) | ConductorError::Store(_) => true,
        ConductorError::NoSuchNode(_)
        | ConductorError::PowerRejected(_)
        | ConductorError::Driver { .. }
        | ConductorError::Selection { .. }
        | ConductorError::Invalid { .. }
        | ConductorError::Agent(_)
        | ConductorError::Inspection(_) => false,
    }
}

/// Works on due deployments until the conductor stops.
pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let mut running = RunningDeployments::new();
    let mut next_search = Instant::now();
    let mut next_reconcile = Instant::now();
    // Followed only while a deployment waits for its machine, because it costs a query per second on
    // database servers.
    let mut nodes_changed: Option<watch::Receiver<i64>> = None;
    loop {
        tokio::select! {
            biased;
            _ = stopping.changed() => break,
            Some(ended) = running.tasks.join_next_with_id(), if !running.tasks.is_empty() => {
                if running.ended(ended) && nodes_changed.is_none() {
                    nodes_changed = Some(conductor.store.journal_position());
                }
            }
            () = conductor.deployments_changed.notified() => next_search = Instant::now(),
            () = wait_for_change(&mut nodes_changed) => {
                next_search = next_search.min(Instant::now() + GATHER_TIME);
            }
            () = tokio::time::sleep_until(next_search) => {
                let is_reconciling = Instant::now() >= next_reconcile;
                if is_reconciling {
                    next_reconcile = Instant::now() + RECONCILE_INTERVAL;
                }
                nodes_changed = None;
                next_search = Instant::now() + search(&conductor, &mut running, is_reconciling).await;
            }
        }
    }
    while running.tasks.join_next().await.is_some() {}
}

async fn wait_for_change(nodes_changed: &mut Option<watch::Receiver<i64>>) {
    let Some(receiver) = nodes_changed else { return std::future::pending().await };
    if receiver.changed().await.is_err() {
        // The store is closed.
        std::future::pending().await
    }
}

/// The running tasks, at most one per deployment.
struct RunningDeployments {
    tasks: JoinSet<bool>,
    ids: HashMap<Id, DeploymentId>,
    running: HashSet<DeploymentId>,
    permits: Arc<Semaphore>,
}

impl RunningDeployments {
    fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            ids: HashMap::new(),
            running: HashSet::new(),
            permits: Arc::new(Semaphore::new(MAX_RUNNING)),
        }
    }

    fn start(&mut self, conductor: &Conductor, id: DeploymentId) {
        if !self.running.insert(id) {
            return;
        }
        let (conductor, permits) = (conductor.clone(), Arc::clone(&self.permits));
        let task = self.tasks.spawn(async move {
            // Never closed.
            let _permit = permits.acquire().await;
            match conductor.run_deployment(id).await {
                Ok(result) => result == DeploymentProgress::WaitsForNode,
                Err(error) => {
                    tracing::warn!(deployment = %id, error = error_text(&error), "deployment could not be continued, will retry");
                    false
                }
            }
        });
        self.ids.insert(task.id(), id);
    }

    /// Removes a task. Returns whether its deployment waits for a machine.
    fn ended(&mut self, ended: Result<(Id, bool), JoinError>) -> bool {
        let (id, waits) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "deployment task panicked");
                (error.id(), false)
            }
        };
        if let Some(deployment) = self.ids.remove(&id) {
            self.running.remove(&deployment);
        }
        waits
    }
}

/// Starts tasks for due deployments, and for all others if `is_reconciling`. Returns the time until the
/// next search.
async fn search(
    conductor: &Conductor,
    running: &mut RunningDeployments,
    is_reconciling: bool,
) -> Duration {
    let now = conductor.now();
    let found = conductor
        .store
        .scan(move |reader| {
            let filter = DeploymentFilter {
                due_at: (!is_reconciling).then_some(now),
                ..DeploymentFilter::default()
            };
            let query = ResourceQuery::<Deployment> {
                filter,
                select: Columns::only(&[DeploymentColumn::Uuid]),
                ..ResourceQuery::default()
            };
            let mut ids = Vec::new();
            reader.list(&query, |deployment| ids.push(deployment.id))?;
            let next = reader.next_deployment_after(now)?;
            Ok::<_, StoreError>((ids, next))
        })
        .await;
    let (ids, next) = match found {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(error = error_text(&error), retry_in = ?SEARCH_INTERVAL, "search for due deployments failed");
            return SEARCH_INTERVAL;
        }
    };
    for id in ids {
        running.start(conductor, id);
    }
    next.map_or(SEARCH_INTERVAL, |next| next.since(now).clamp(GATHER_TIME, SEARCH_INTERVAL))
}
