// SPDX-License-Identifier: Apache-2.0
//! Provision and power requests, with the checks that need the node's driver.

use drivers::Driver;
use lifecycle::{
    AvailableSteps, JobContext, ProvisionRequest, check_offered_steps, is_deployment,
    missing_traits, request_power, request_provision, requested_flow, requested_traits,
    set_maintenance, validated_interfaces,
};
use node_model::{Actor, DeployTemplate, Node, NodeId, PowerTarget, Step, Verb};
use serde_json::{Map, Value};
use store::{DeployTemplateFilter, ResourceQuery, StoreReader, StoreWriter};
use uuid::Uuid;

use crate::node_snapshot::NodeSnapshot;
use crate::pending_entries::write_pending_entries;
use crate::{Conductor, ConductorError, available_steps, bmc_resolver};

impl Conductor {
    /// Applies a provision request. When this returns, the job is stored and will be run, even if
    /// this process ends.
    pub async fn provision(
        &self,
        id: NodeId,
        request: ProvisionRequest,
    ) -> Result<(), ConductorError> {
        let snapshot = self.store.read(move |reader| NodeSnapshot::load(reader, id)).await?;
        // The checks that depend on the node alone come first, to avoid driver calls.
        lifecycle::check_maintenance(&snapshot.node, request.verb)?;
        lifecycle::check_verb(&snapshot.node, request.verb)?;
        lifecycle::check_policy(&snapshot.node, request.verb, &self.rules)?;
        let driver = snapshot.driver(&self.registry)?;
        let obstacles = self.driver_obstacles(&snapshot, &driver, &request).await;
        if let Some(obstacle) = obstacles.into_iter().next() {
            return Err(obstacle);
        }
        let bmc_addresses = if request.verb == Verb::Inspect {
            Some(bmc_resolver::resolve(&snapshot.node).await)
        } else {
            None
        };
        let conductor = self.clone();
        self.store
            .write(move |tx| write_request(&conductor, tx, id, &request, bmc_addresses.as_deref()))
            .await
    }

    /// Requests a power change.
    pub async fn power(
        &self,
        id: NodeId,
        target: PowerTarget,
        timeout: Option<u32>,
        actor: Actor,
    ) -> Result<(), ConductorError> {
        let snapshot = self.store.read(move |reader| NodeSnapshot::load(reader, id)).await?;
        let driver = snapshot.driver(&self.registry)?;
        if !driver.power().supported().contains(&target) {
            return Err(ConductorError::Invalid {
                node: snapshot.node.label(),
                why: format!("its power interface does not support '{target}'"),
            });
        }
        let validated = driver.power().validate(&snapshot.target(&driver, self.now())).await;
        validated.map_err(|source| snapshot.driver_error(source))?;
        let hostname = self.owner.hostname.clone();
        self.store
            .write(move |tx| {
                let mut node = get_node(tx, id)?;
                let now = tx.now();
                let entries = request_power(&mut node, target, timeout, actor.clone(), now)?;
                write_pending_entries(tx, &mut node, entries, &actor, &hostname)?;
                tx.save(&mut node)?;
                tx.wake(id);
                Ok(())
            })
            .await
    }

    /// Everything for which the node's driver would reject the request, without querying the
    /// machine.
    pub(crate) async fn driver_obstacles(
        &self,
        snapshot: &NodeSnapshot,
        driver: &Driver,
        request: &ProvisionRequest,
    ) -> Vec<ConductorError> {
        let target = snapshot.target(driver, self.now());
        let mut obstacles = Vec::new();
        for kind in validated_interfaces(request.verb, snapshot.node.provision_state) {
            if let Err(source) = driver.interface(*kind).validate(&target).await {
                obstacles.push(snapshot.driver_error(source));
            }
        }
        if is_deployment(request.verb) {
            obstacles.extend(check_traits(&snapshot.node).err());
        }
        let steps = requested_steps(driver, request.verb);
        let checked = check_offered_steps(request, &steps, &self.rules);
        obstacles.extend(checked.map_err(ConductorError::from).err());
        obstacles
    }

    /// Sets maintenance with an optional reason, or clears it.
    pub async fn set_maintenance(
        &self,
        id: NodeId,
        maintenance: Option<Option<String>>,
        actor: Actor,
    ) -> Result<(), ConductorError> {
        let hostname = self.owner.hostname.clone();
        self.store
            .write(move |tx| {
                let mut node = get_node(tx, id)?;
                let now = tx.now();
                let entries = set_maintenance(&mut node, maintenance.clone(), now);
                if node.due_at == Some(now) {
                    tx.wake(id);
                }
                write_pending_entries(tx, &mut node, entries, &actor, &hostname)?;
                tx.save(&mut node)?;
                Ok(())
            })
            .await
    }
}

/// The driver's steps for the flow of the verb.
pub(crate) fn requested_steps(driver: &Driver, verb: Verb) -> AvailableSteps {
    match requested_flow(verb) {
        Some(flow) => available_steps::of_driver(driver, flow),
        None => AvailableSteps::default(),
    }
}

/// Fails if the instance requests traits that the node does not have.
fn check_traits(node: &Node) -> Result<(), ConductorError> {
    let missing = missing_traits(node);
    if missing.is_empty() {
        return Ok(());
    }
    Err(ConductorError::Invalid {
        node: node.label(),
        why: format!(
            "instance_info requests traits that the node does not have: {}",
            missing.join(", ")
        ),
    })
}

/// The steps of the deploy templates whose traits the instance requests; none unless the verb is a
/// deployment.
pub(crate) fn template_steps(
    reader: &mut StoreReader<'_>,
    node: &Node,
    verb: Verb,
) -> Result<Vec<Step>, store::StoreError> {
    let names = if is_deployment(verb) { requested_traits(node) } else { Vec::new() };
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let templates: Vec<DeployTemplate> = reader.collect(&ResourceQuery {
        filter: DeployTemplateFilter { names: Some(names) },
        ..ResourceQuery::default()
    })?;
    let steps = templates.into_iter().flat_map(|template| template.steps);
    Ok(steps
        .map(|step| Step {
            args: step.args,
            ..Step::new(&step.interface, &step.step, step.priority)
        })
        .collect())
}

fn write_request(
    conductor: &Conductor,
    tx: &mut StoreWriter<'_>,
    id: NodeId,
    request: &ProvisionRequest,
    bmc_addresses: Option<&[String]>,
) -> Result<(), ConductorError> {
    let mut node = get_node(tx, id)?;
    let now = tx.now();
    if let Some(addresses) = bmc_addresses {
        bmc_resolver::store(&mut node, addresses);
    }
    let driver = conductor
        .registry
        .compose(&node)
        .map_err(|source| ConductorError::Selection { node: node.label(), source })?;
    let context = JobContext {
        template_steps: template_steps(tx, &node, request.verb)?,
        driver_steps: requested_steps(&driver, request.verb),
        work_id: Uuid::new_v4(),
    };
    let entries = request_provision(&mut node, request, &context, &conductor.rules, now)?;
    store_instance_secrets(tx, &mut node, request)?;
    write_pending_entries(tx, &mut node, entries, &request.actor, &conductor.owner.hostname)?;
    tx.save(&mut node)?;
    if node.work.is_some() {
        tx.wake(id);
    }
    Ok(())
}

/// Seals the config drive and the rescue password as part of the instance.
fn store_instance_secrets(
    tx: &mut StoreWriter<'_>,
    node: &mut Node,
    request: &ProvisionRequest,
) -> Result<(), store::StoreError> {
    let mut members = Map::new();
    if let Some(configdrive) = &request.configdrive {
        members.insert("configdrive".to_owned(), configdrive.clone());
    }
    if let Some(password) = &request.rescue_password {
        members.insert("rescue_password".to_owned(), Value::String(password.clone()));
    }
    if members.is_empty() {
        return Ok(());
    }
    let mut secrets = tx.reveal(node)?;
    secrets.instance_info.extend(members);
    tx.seal_node(node, secrets)
}

pub(crate) fn get_node(tx: &mut StoreWriter<'_>, id: NodeId) -> Result<Node, ConductorError> {
    tx.get(id)?.ok_or_else(|| ConductorError::NoSuchNode(id.to_string()))
}
