// SPDX-License-Identifier: Apache-2.0
//! Explains what a verb would do to nodes, with everything that would make it fail: rejections, and
//! missing settings of the driver.

use drivers::{Driver, DriverTarget, RamdiskMode};
use lifecycle::{
    Explanation, JobContext, PlannedAction, Prerequisite, ProvisionRequest, StepForecast, explain,
};
use node_model::{NodeId, Port, PortId, PowerState, QueuePosition, Step, StepFlow, Verb};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::error_text;
use crate::job_queue::QueueLoads;
use crate::node_snapshot::NodeSnapshot;
use crate::provision::{requested_steps, template_steps};
use crate::{Conductor, ConductorError, available_steps};

/// The number of nodes read in one transaction.
const BATCH_SIZE: usize = 200;

/// A MAC address for validating boot settings of nodes without ports.
const PLACEHOLDER_MAC: &str = "02:00:00:00:00:00";

/// Replaces the names of nodes that are explained together.
const PLACEHOLDER_NAME: &str = "…";

impl Conductor {
    /// Explains what a provision request would do to a node, without changing anything.
    pub async fn explain(
        &self,
        id: NodeId,
        request: ProvisionRequest,
    ) -> Result<Explanation, ConductorError> {
        let mut explained = Vec::new();
        let loads = self.store.read(QueueLoads::read).await?;
        let batch = ExplainedBatch {
            request: &request,
            instance_info: &Map::new(),
            naming: NodeNaming::RealNames,
            loads: &loads,
        };
        self.explain_batch(vec![id], &batch, &mut explained).await?;
        let Some((_, result)) = explained.pop() else {
            return Err(ConductorError::NoSuchNode(id.to_string()));
        };
        result
    }

    /// Explains a provision request for many nodes, as if their `instance_info` also had the given
    /// members, such as an image. Names of nodes are replaced by `…`, so that equal explanations have
    /// equal texts. Missing nodes are skipped.
    ///
    /// # Errors
    /// If the database fails. Errors of one node are part of the result of that node.
    pub async fn explain_many(
        &self,
        ids: &[NodeId],
        request: &ProvisionRequest,
        instance_info: &Map<String, Value>,
    ) -> Result<Vec<(NodeId, Result<Explanation, ConductorError>)>, ConductorError> {
        let mut explained = Vec::with_capacity(ids.len());
        // Read once, so that equal explanations have equal texts.
        let loads = self.store.read(QueueLoads::read).await?;
        let batch = ExplainedBatch {
            request,
            instance_info,
            naming: NodeNaming::Placeholder,
            loads: &loads,
        };
        for ids in ids.chunks(BATCH_SIZE) {
            self.explain_batch(ids.to_vec(), &batch, &mut explained).await?;
            // Explaining is CPU-bound: let other tasks run between batches.
            tokio::task::yield_now().await;
        }
        Ok(explained)
    }

    async fn explain_batch(
        &self,
        ids: Vec<NodeId>,
        batch: &ExplainedBatch<'_>,
        explained: &mut Vec<(NodeId, Result<Explanation, ConductorError>)>,
    ) -> Result<(), ConductorError> {
        let &ExplainedBatch { request, instance_info, naming, loads } = batch;
        let (verb, instance_info) = (request.verb, instance_info.clone());
        let read = move |reader: &mut store::StoreReader<'_>| {
            let mut nodes: Vec<(NodeSnapshot, Vec<Step>, Option<QueuePosition>)> =
                Vec::with_capacity(ids.len());
            for snapshot in NodeSnapshot::read_many(reader, &ids)? {
                let snapshot = snapshot.with_instance_info(instance_info.clone());
                let templates = template_steps(reader, &snapshot.node, verb)?;
                // Responses for many nodes do not contain it.
                let position = match naming {
                    NodeNaming::RealNames => reader.queue_position(&snapshot.node)?,
                    NodeNaming::Placeholder => None,
                };
                nodes.push((snapshot, templates, position));
            }
            Ok::<_, store::StoreError>(nodes)
        };
        let nodes = match naming {
            NodeNaming::RealNames => self.store.read(read).await?,
            NodeNaming::Placeholder => self.store.scan(read).await?,
        };
        for (mut snapshot, templates, position) in nodes {
            match naming {
                NodeNaming::RealNames => {}
                NodeNaming::Placeholder => snapshot.node.name = Some(PLACEHOLDER_NAME.to_owned()),
            }
            let mut result = self.explain_one(&snapshot, templates, request).await;
            if let Ok(explanation) = &mut result {
                explanation.queue_position = position;
                loads.add_to(explanation, &self.rules);
            }
            explained.push((snapshot.node.id, result));
        }
        Ok(())
    }

    async fn explain_one(
        &self,
        snapshot: &NodeSnapshot,
        template_steps: Vec<Step>,
        request: &ProvisionRequest,
    ) -> Result<Explanation, ConductorError> {
        let (node, driver) = (&snapshot.node, snapshot.driver(&self.registry)?);
        let driver_steps = requested_steps(&driver, request.verb);
        let context = JobContext { template_steps, driver_steps, work_id: Uuid::nil() };
        let is_automated = matches!(request.verb, Verb::Provide | Verb::Deleted | Verb::Undeploy);
        let forecast = |flow: StepFlow| {
            let forecast = available_steps::forecast(&self.registry, &driver, node, flow);
            let is_assumed = forecast.is_assumed && is_automated && flow == StepFlow::Clean;
            StepForecast { is_assumed, ..forecast }
        };
        let mut explanation = explain(node, request, &context, &forecast, &self.rules, self.now());
        let driver_obstacles = self.driver_obstacles(snapshot, &driver, request).await;
        let mut obstacles: Vec<String> =
            driver_obstacles.iter().map(|error| error_text(error)).collect();
        for planned in &explanation.actions {
            let errors = self.check_prerequisite(snapshot, &driver, planned).await;
            obstacles.extend(errors.iter().map(|error| error_text(error)));
        }
        for obstacle in obstacles {
            // Several actions may have the same obstacle.
            if !explanation.obstacles.contains(&obstacle) {
                explanation.obstacles.push(obstacle);
            }
        }
        explanation.possible = explanation.obstacles.is_empty();
        Ok(explanation)
    }

    /// Checks the settings that a planned action needs.
    async fn check_prerequisite(
        &self,
        snapshot: &NodeSnapshot,
        driver: &Driver,
        planned: &PlannedAction,
    ) -> Vec<ConductorError> {
        let target = snapshot.target(driver, self.now());
        let empty = Map::new();
        let target = if planned.has_instance {
            target
        } else {
            DriverTarget { instance_info: &empty, ..target }
        };
        let mode = match planned.action.prerequisite() {
            None => return Vec::new(),
            Some(Prerequisite::Interface(kind)) => {
                let validated = driver.interface(kind).validate(&target).await;
                return validated
                    .map_err(|source| snapshot.driver_error(source))
                    .err()
                    .into_iter()
                    .collect();
            }
            Some(Prerequisite::DeployRamdisk) if driver.deploy().in_band().is_some() => {
                RamdiskMode::Deploy
            }
            Some(Prerequisite::RescueRamdisk) if driver.rescue().boots_ramdisk() => {
                RamdiskMode::Rescue
            }
            Some(Prerequisite::DeployRamdisk | Prerequisite::RescueRamdisk) => return Vec::new(),
        };
        let is_on = snapshot.node.power_state == Some(PowerState::On);
        if planned.has_agent && is_on {
            return Vec::new();
        }
        let mut errors = Vec::new();
        let mut check = |checked: Result<(), drivers::DriverError>| {
            errors.extend(checked.err().map(|source| snapshot.driver_error(source)));
        };
        check(driver.network().validate(&target).await);
        check(driver.boot().validate_ramdisk(&target, mode).await);
        if driver.boot().boots_over_network() && target.ports.is_empty() {
            // With a placeholder port, the other missing settings are found too.
            let address = PLACEHOLDER_MAC.parse().expect("a valid MAC address");
            let port = [Port::new(PortId(Uuid::nil()), target.node.id, address, self.now())];
            let target = DriverTarget { ports: &port, ..target };
            check(driver.boot().validate_ramdisk(&target, mode).await);
        }
        errors
    }
}

/// What the batches of nodes that are explained together have in common.
struct ExplainedBatch<'a> {
    request: &'a ProvisionRequest,
    instance_info: &'a Map<String, Value>,
    naming: NodeNaming,
    loads: &'a QueueLoads,
}

/// How texts name nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeNaming {
    /// By their names.
    RealNames,
    /// By [`PLACEHOLDER_NAME`].
    Placeholder,
}
