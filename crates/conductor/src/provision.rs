// SPDX-License-Identifier: Apache-2.0
//! What users ask of a node: provision verbs and power, with the checks that need its driver.

use bmc_drivers::Driver;
use lifecycle::{Ask, Ramdisk, Reserved, ask, ask_power, check_requested, set_maintenance};
use node_model::{
    Actor, DeployTemplate, InterfaceKind, Node, NodeId, PowerTarget, ProvisionState, Runbook, Step,
    StepFlow, Verb,
};
use serde_json::{Map, Value};
use store::{DeployTemplateFilter, Query, Reader, Writer};
use uuid::Uuid;

use crate::ledger::write_ledger;
use crate::sight::Sight;
use crate::{Conductor, Error, bmc_names, offers};

/// A provision verb as a user gave it.
#[derive(Clone, Debug)]
pub struct ProvisionRequest {
    /// The verb.
    pub verb: Verb,
    /// Clean, deploy or service steps.
    pub steps: Vec<Step>,
    /// A runbook whose steps are used instead.
    pub runbook: Option<Runbook>,
    /// Do without the ramdisk.
    pub disable_ramdisk: bool,
    /// The config drive to put on the machine: kept with the instance, as a secret.
    pub configdrive: Option<Value>,
    /// The password of the rescue system: kept with the instance, as a secret.
    pub rescue_password: Option<String>,
    /// Who asks.
    pub actor: Actor,
}

impl ProvisionRequest {
    /// A verb without anything.
    #[must_use]
    pub fn plain(verb: Verb, actor: Actor) -> Self {
        Self {
            verb,
            steps: Vec::new(),
            runbook: None,
            disable_ramdisk: false,
            configdrive: None,
            rescue_password: None,
            actor,
        }
    }

    pub(crate) fn all_steps(&self) -> Vec<Step> {
        match &self.runbook {
            None => self.steps.clone(),
            Some(runbook) => {
                let mut steps = runbook.steps.clone();
                steps.sort_by_key(|step| step.order);
                steps
                    .into_iter()
                    .map(|step| Step {
                        args: step.args,
                        ..Step::new(&step.interface, &step.step, 0)
                    })
                    .collect()
            }
        }
    }

    /// Whether the ramdisk is not booted: because the user says so, or because every step that was
    /// asked for is done by the BMC.
    pub(crate) fn without_ramdisk(&self, driver: &Driver) -> bool {
        let said = self.disable_ramdisk
            || self.runbook.as_ref().is_some_and(|runbook| runbook.disable_ramdisk);
        said || self.needs_no_ramdisk(driver)
    }

    fn needs_no_ramdisk(&self, driver: &Driver) -> bool {
        let flow = if self.verb == Verb::Clean {
            StepFlow::Clean
        } else if self.verb == Verb::Service {
            StepFlow::Service
        } else {
            return false;
        };
        let (steps, offers) = (self.all_steps(), offers::of_driver(driver, flow));
        let by_bmc = |step: &Step| {
            let power = Reserved::of(step).and_then(Reserved::power_target).is_some();
            power
                || offers.known.iter().any(|offer| {
                    offer.step.interface == step.interface
                        && offer.step.step == step.step
                        && !offer.step.requires_ramdisk
                })
        };
        !steps.is_empty() && steps.iter().all(by_bmc)
    }
}

impl Conductor {
    /// Asks `id` for a verb. When this returns, the request is in the database and will be carried
    /// out, whatever happens to this process.
    pub async fn provision(&self, id: NodeId, request: ProvisionRequest) -> Result<(), Error> {
        let sight = self.store.read(move |reader| Sight::load(reader, id)).await?;
        // What the node alone decides comes first, so that a driver is not asked in vain.
        lifecycle::check_maintenance(&sight.node, request.verb)?;
        lifecycle::check_verb(&sight.node, request.verb)?;
        lifecycle::check_policy(&sight.node, request.verb, &self.rules)?;
        let driver = sight.driver(&self.registry)?;
        if let Some(obstacle) =
            self.driver_obstacles(&sight, &driver, &request).await.into_iter().next()
        {
            return Err(obstacle);
        }
        let bmc = if request.verb == Verb::Inspect {
            Some(bmc_names::resolve(&sight.node).await)
        } else {
            None
        };
        let conductor = self.clone();
        self.store.write(move |tx| write_ask(&conductor, tx, id, &request, bmc.as_deref())).await
    }

    /// Asks for a change of power.
    pub async fn power(
        &self,
        id: NodeId,
        target: PowerTarget,
        timeout: Option<u32>,
        actor: Actor,
    ) -> Result<(), Error> {
        let sight = self.store.read(move |reader| Sight::load(reader, id)).await?;
        let driver = sight.driver(&self.registry)?;
        if !driver.power().supported().contains(&target) {
            return Err(Error::Invalid {
                node: sight.node.label(),
                why: format!("its power interface cannot do '{target}'"),
            });
        }
        let seen = sight.target(&driver, self.now());
        driver.power().validate(&seen).await.map_err(|source| sight.failed(source))?;
        let hostname = self.owner.hostname.clone();
        self.store
            .write(move |tx| {
                let mut node = get(tx, id)?;
                let now = tx.now();
                let ledger = ask_power(&mut node, target, timeout, actor.clone(), now)?;
                write_ledger(tx, &mut node, ledger, &actor, &hostname)?;
                tx.save(&mut node)?;
                tx.wake(id);
                Ok(())
            })
            .await
    }

    /// Everything that the node's driver has against the request, without asking the machine.
    pub(crate) async fn driver_obstacles(
        &self,
        sight: &Sight,
        driver: &Driver,
        request: &ProvisionRequest,
    ) -> Vec<Error> {
        let target = sight.target(driver, self.now());
        let mut obstacles = Vec::new();
        for kind in validated(request.verb, sight.node.provision_state) {
            if let Err(source) = driver.interface(*kind).validate(&target).await {
                obstacles.push(sight.failed(source));
            }
        }
        if is_deployment(request.verb) {
            obstacles.extend(check_traits(sight).err());
        }
        obstacles.extend(self.check_steps(driver, request).err());
        obstacles
    }

    fn check_steps(&self, driver: &Driver, request: &ProvisionRequest) -> Result<(), Error> {
        let flow = match request.verb {
            Verb::Clean => StepFlow::Clean,
            Verb::Service => StepFlow::Service,
            Verb::Active | Verb::Deploy | Verb::Rebuild => StepFlow::Deploy,
            Verb::Deleted
            | Verb::Undeploy
            | Verb::Manage
            | Verb::Provide
            | Verb::Inspect
            | Verb::Abort
            | Verb::Adopt
            | Verb::Rescue
            | Verb::Unrescue
            | Verb::Unhold => return Ok(()),
        };
        let offers = offers::of_driver(driver, flow);
        let ramdisk =
            if request.without_ramdisk(driver) { Ramdisk::Disabled } else { Ramdisk::Booted };
        check_requested(flow, &request.all_steps(), Some(&offers), ramdisk, &self.rules)
            .map_err(|error| Error::Refused(lifecycle::Refusal::Steps(error)))?;
        Ok(())
    }

    /// Sets or clears maintenance.
    pub async fn maintain(
        &self,
        id: NodeId,
        maintenance: Option<Option<String>>,
        actor: Actor,
    ) -> Result<(), Error> {
        let hostname = self.owner.hostname.clone();
        self.store
            .write(move |tx| {
                let mut node = get(tx, id)?;
                let now = tx.now();
                let ledger = set_maintenance(&mut node, maintenance.clone(), now);
                if node.due_at == Some(now) {
                    tx.wake(id);
                }
                write_ledger(tx, &mut node, ledger, &actor, &hostname)?;
                tx.save(&mut node)?;
                Ok(())
            })
            .await
    }
}

/// Which interfaces must have what they need for a verb to be accepted.
const fn validated(verb: Verb, state: ProvisionState) -> &'static [InterfaceKind] {
    use InterfaceKind::{Deploy, Inspect, Power, Rescue};
    match verb {
        Verb::Active | Verb::Deploy | Verb::Rebuild => &[Power, Deploy],
        Verb::Inspect => &[Power, Inspect],
        Verb::Rescue | Verb::Unrescue => &[Power, Rescue],
        Verb::Clean | Verb::Provide | Verb::Service => &[Power],
        Verb::Abort if matches!(state, ProvisionState::InspectWait) => &[Inspect],
        Verb::Abort
        | Verb::Deleted
        | Verb::Undeploy
        | Verb::Manage
        | Verb::Adopt
        | Verb::Unhold => &[],
    }
}

pub(crate) const fn is_deployment(verb: Verb) -> bool {
    matches!(verb, Verb::Active | Verb::Deploy | Verb::Rebuild)
}

/// An instance may only ask for traits the node has.
fn check_traits(sight: &Sight) -> Result<(), Error> {
    let missing: Vec<String> = wanted_traits(&sight.node)
        .into_iter()
        .filter(|wanted| !sight.node.traits.contains(wanted))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Invalid {
        node: sight.node.label(),
        why: format!(
            "instance_info asks for traits the node does not have: {}",
            missing.join(", ")
        ),
    })
}

fn wanted_traits(node: &Node) -> Vec<String> {
    match node.instance_info.get("traits") {
        Some(Value::Array(traits)) => {
            traits.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    }
}

/// The steps of the deploy templates whose traits the instance asks for, in a deployment.
pub(crate) fn template_steps(
    reader: &mut Reader<'_>,
    node: &Node,
    verb: Verb,
) -> Result<Vec<Step>, store::Error> {
    let names = if is_deployment(verb) { wanted_traits(node) } else { Vec::new() };
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let templates: Vec<DeployTemplate> = reader.collect(&Query {
        filter: DeployTemplateFilter { names: Some(names) },
        ..Query::default()
    })?;
    Ok(templates
        .into_iter()
        .flat_map(|template| template.steps)
        .map(|step| Step {
            args: step.args,
            ..Step::new(&step.interface, &step.step, step.priority)
        })
        .collect())
}

fn write_ask(
    conductor: &Conductor,
    tx: &mut Writer<'_>,
    id: NodeId,
    request: &ProvisionRequest,
    bmc: Option<&[String]>,
) -> Result<(), Error> {
    let mut node = get(tx, id)?;
    let now = tx.now();
    if let Some(bmc) = bmc {
        bmc_names::keep(&mut node, bmc);
    }
    check_limits(conductor, tx, request.verb)?;
    let driver = conductor
        .registry
        .compose(&node)
        .map_err(|source| Error::Selection { node: node.label(), source })?;
    let asked = Ask {
        verb: request.verb,
        steps: request.all_steps(),
        template_steps: template_steps(tx, &node, request.verb)?,
        disable_ramdisk: request.without_ramdisk(&driver),
        actor: request.actor.clone(),
        work_id: Uuid::new_v4(),
    };
    let ledger = ask(&mut node, &asked, &conductor.rules, now)?;
    keep_instance_secrets(tx, &mut node, request)?;
    write_ledger(tx, &mut node, ledger, &request.actor, &conductor.owner.hostname)?;
    tx.save(&mut node)?;
    if node.work.is_some() {
        tx.wake(id);
    }
    Ok(())
}

/// The config drive and the rescue password belong to the instance and are sealed with it.
fn keep_instance_secrets(
    tx: &mut Writer<'_>,
    node: &mut Node,
    request: &ProvisionRequest,
) -> Result<(), store::Error> {
    let mut kept = Map::new();
    if let Some(configdrive) = &request.configdrive {
        kept.insert("configdrive".to_owned(), configdrive.clone());
    }
    if let Some(password) = &request.rescue_password {
        kept.insert("rescue_password".to_owned(), Value::String(password.clone()));
    }
    if kept.is_empty() {
        return Ok(());
    }
    let mut secrets = tx.reveal(node)?;
    secrets.instance_info.extend(kept);
    tx.seal_node(node, secrets)
}

/// As many machines may be deployed, and torn down or cleaned, at once as the operator says.
pub(crate) fn check_limits(
    conductor: &Conductor,
    reader: &mut Reader<'_>,
    verb: Verb,
) -> Result<(), Error> {
    let (kind, states, limit, option): (_, &[ProvisionState], _, _) = match verb {
        Verb::Active | Verb::Deploy | Verb::Rebuild => (
            "deployment",
            &[ProvisionState::Deploying, ProvisionState::DeployWait],
            conductor.rules.max_concurrent_deploy,
            "max_concurrent_deploy",
        ),
        Verb::Deleted | Verb::Undeploy | Verb::Clean => (
            "tear-down or cleaning",
            &[ProvisionState::Deleting, ProvisionState::Cleaning, ProvisionState::CleanWait],
            conductor.rules.max_concurrent_clean,
            "max_concurrent_clean",
        ),
        Verb::Manage
        | Verb::Provide
        | Verb::Inspect
        | Verb::Abort
        | Verb::Adopt
        | Verb::Rescue
        | Verb::Unrescue
        | Verb::Unhold
        | Verb::Service => return Ok(()),
    };
    let running = reader.nodes_in_states(states)?;
    if running >= limit { Err(Error::Limit { kind, running, limit, option }) } else { Ok(()) }
}

pub(crate) fn get(tx: &mut Writer<'_>, id: NodeId) -> Result<Node, Error> {
    tx.get(id)?.ok_or_else(|| Error::NoSuchNode(id.to_string()))
}
