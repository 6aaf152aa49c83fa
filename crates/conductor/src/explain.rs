// SPDX-License-Identifier: Apache-2.0
//! What a verb would do to nodes, without doing it, and everything that is known to be in its way:
//! what it would be refused for, and what the job would fail at.

use bmc_drivers::{Driver, RamdiskMode, Target};
use lifecycle::{Action, Ask, Explanation, Imagined, explain};
use node_model::{InterfaceKind, NodeId, Port, PortId, PowerState, Step, StepFlow, Verb};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::act::chain;
use crate::provision::{check_limits, template_steps};
use crate::sight::Sight;
use crate::{Conductor, Error, ProvisionRequest, offers};

/// How many nodes are read at a time.
const AT_ONCE: usize = 200;

/// The address of no card in particular.
const ANY_CARD: &str = "02:00:00:00:00:00";

/// What stands in the place of the names of nodes that are explained together.
const NAMELESS: &str = "…";

impl Conductor {
    /// Says, without doing anything, what a verb would do to a node and what stands in the way.
    pub async fn explain(
        &self,
        id: NodeId,
        request: ProvisionRequest,
    ) -> Result<Explanation, Error> {
        let mut explained = Vec::new();
        self.explain_slice(vec![id], &request, &Map::new(), Naming::Own, &mut explained).await?;
        let Some((_, outcome)) = explained.pop() else {
            return Err(Error::NoSuchNode(id.to_string()));
        };
        outcome
    }

    /// The same for many nodes, as if their `instance_info` had these members as well: what they are
    /// about to be given, such as an image. What is said of one is said in the same words of another:
    /// in the place of names stands `…`. Nodes that are not there are left out.
    ///
    /// # Errors
    /// If the database fails. What is wrong with a node is said of that node.
    pub async fn explain_many(
        &self,
        ids: &[NodeId],
        request: &ProvisionRequest,
        instance_info: &Map<String, Value>,
    ) -> Result<Vec<(NodeId, Result<Explanation, Error>)>, Error> {
        let mut explained = Vec::with_capacity(ids.len());
        for slice in ids.chunks(AT_ONCE) {
            let slice = slice.to_vec();
            self.explain_slice(slice, request, instance_info, Naming::None, &mut explained).await?;
            // Explaining is done right here; others have their turn in between.
            tokio::task::yield_now().await;
        }
        Ok(explained)
    }

    async fn explain_slice(
        &self,
        ids: Vec<NodeId>,
        request: &ProvisionRequest,
        instance_info: &Map<String, Value>,
        naming: Naming,
        explained: &mut Vec<(NodeId, Result<Explanation, Error>)>,
    ) -> Result<(), Error> {
        let (verb, given, conductor) = (request.verb, instance_info.clone(), self.clone());
        let read = move |reader: &mut store::Reader<'_>| {
            let limit = match check_limits(&conductor, reader, verb) {
                Ok(()) => None,
                Err(Error::Store(error)) => return Err(error),
                Err(limit) => Some(chain(&limit)),
            };
            let mut seen: Vec<(Sight, Vec<Step>)> = Vec::with_capacity(ids.len());
            for sight in Sight::many(reader, &ids)? {
                let sight = sight.given(given.clone());
                let templates = template_steps(reader, &sight.node, verb)?;
                seen.push((sight, templates));
            }
            Ok::<_, store::Error>((seen, limit))
        };
        let (seen, limit) = match naming {
            Naming::Own => self.store.read(read).await?,
            Naming::None => self.store.scan(read).await?,
        };
        for (mut sight, templates) in seen {
            match naming {
                Naming::Own => {}
                Naming::None => sight.node.name = Some(NAMELESS.to_owned()),
            }
            let outcome = self.explain_one(&sight, templates, request, limit.as_deref()).await;
            explained.push((sight.node.id, outcome));
        }
        Ok(())
    }

    async fn explain_one(
        &self,
        sight: &Sight,
        template_steps: Vec<Step>,
        request: &ProvisionRequest,
        limit: Option<&str>,
    ) -> Result<Explanation, Error> {
        let driver = sight.driver(&self.registry)?;
        let asked = Ask {
            verb: request.verb,
            steps: request.all_steps(),
            template_steps,
            disable_ramdisk: request.without_ramdisk(&driver),
            actor: request.actor.clone(),
            work_id: Uuid::nil(),
        };
        let is_automated = matches!(request.verb, Verb::Provide | Verb::Deleted | Verb::Undeploy);
        let offers = |flow: StepFlow| {
            let foreseen = offers::foreseen(&self.registry, &driver, &sight.node, flow);
            let is_usual = foreseen.is_usual && is_automated && flow == StepFlow::Clean;
            lifecycle::Foreseen { is_usual, ..foreseen }
        };
        let mut explanation = explain(&sight.node, &asked, &offers, &self.rules, self.now());
        let mut found: Vec<String> = limit.map(str::to_owned).into_iter().collect();
        let of_driver = self.driver_obstacles(sight, &driver, request).await;
        found.extend(of_driver.iter().map(|error| chain(error)));
        for imagined in &explanation.actions {
            let of_action = self.action_obstacles(sight, &driver, imagined).await;
            found.extend(of_action.iter().map(|error| chain(error)));
        }
        for obstacle in found {
            // The same may be in the way of several actions.
            if !explanation.obstacles.contains(&obstacle) {
                explanation.obstacles.push(obstacle);
            }
        }
        explanation.possible = explanation.obstacles.is_empty();
        Ok(explanation)
    }

    /// What an action would fail at, as far as the node's fields tell.
    async fn action_obstacles(
        &self,
        sight: &Sight,
        driver: &Driver,
        imagined: &Imagined,
    ) -> Vec<Error> {
        let target = sight.target(driver, self.now());
        let none = Map::new();
        let target =
            if imagined.has_instance { target } else { Target { instance_info: &none, ..target } };
        let mut found = Vec::new();
        let mut check = |checked: Result<(), bmc_drivers::Error>| {
            found.extend(checked.err().map(|source| sight.failed(source)));
        };
        match need_of(&imagined.action, driver) {
            Need::Nothing => {}
            Need::Interface(kind) => check(driver.interface(kind).validate(&target).await),
            Need::Ramdisk(mode) => {
                let is_up = sight.node.power_state == Some(PowerState::On);
                if imagined.has_agent && is_up {
                    return found;
                }
                check(driver.network().validate(&target).await);
                check(driver.boot().validate_ramdisk(&target, mode).await);
                if driver.boot().is_by_network() && target.ports.is_empty() {
                    // Whatever else is missing shows once the machine has a port.
                    let address = ANY_CARD.parse().expect("it is the address of a card");
                    let port = Port::new(PortId(Uuid::nil()), target.node.id, address, self.now());
                    let port = [port];
                    let target = Target { ports: &port, ..target };
                    check(driver.boot().validate_ramdisk(&target, mode).await);
                }
            }
        }
        found
    }
}

/// How nodes are called in what is said of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// By their own names.
    Own,
    /// Not at all.
    None,
}

/// What the node must have for an action to succeed.
enum Need {
    Nothing,
    /// What this interface needs.
    Interface(InterfaceKind),
    /// What booting this ramdisk needs.
    Ramdisk(RamdiskMode),
}

fn need_of(action: &Action, driver: &Driver) -> Need {
    let in_band = driver.deploy().in_band().is_some();
    match action {
        Action::CheckPower => Need::Interface(InterfaceKind::Power),
        Action::Adopt => Need::Interface(InterfaceKind::Boot),
        Action::PrepareCleaning | Action::PrepareService if in_band => {
            Need::Ramdisk(RamdiskMode::Deploy)
        }
        Action::Rescue if driver.rescue().boots_ramdisk() => Need::Ramdisk(RamdiskMode::Rescue),
        // What an inspection and a deployment boot is looked at when they are asked for: see
        // `driver_obstacles`.
        Action::Inspect
        | Action::PrepareDeploy
        | Action::PrepareCleaning
        | Action::PrepareService
        | Action::Rescue
        | Action::CacheHardware
        | Action::ListSteps(_)
        | Action::RunStep { .. }
        | Action::PollStep { .. }
        | Action::CleanUpDeploy
        | Action::TearDown
        | Action::TearDownCleaning
        | Action::TearDownService
        | Action::FinishInspection
        | Action::AbortInspection
        | Action::BootAgain
        | Action::FinishRescue
        | Action::CleanUpRescue
        | Action::Unrescue
        | Action::SetPower { .. } => Need::Nothing,
    }
}
