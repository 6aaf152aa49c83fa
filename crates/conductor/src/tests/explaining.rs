// SPDX-License-Identifier: Apache-2.0
//! What is told of a verb beforehand, held against what really happens.

use std::sync::Arc;

use async_trait::async_trait;
use bmc_drivers::{BootDesk, Error, ImageDownloadSource, OfferedImage, Published, Target};
use lifecycle::Explanation;
use node_model::{
    BootExperience, BootPurpose, BootWay, Happening, InterfaceKind, Node, NodeId, Port, PortId,
    ProvisionState, Step, Timestamp, Verb,
};
use serde_json::{Map, json};

use super::{House, user};
use crate::ProvisionRequest;

/// A desk where nobody said what ramdisks are to be booted.
struct Bare;

#[async_trait]
impl BootDesk for Bare {
    fn check(&self, target: &Target<'_>, _: BootWay, purpose: BootPurpose) -> Result<(), Error> {
        if target.ports.is_empty() {
            let why = "nobody knows the machine".to_owned();
            return Err(Error::InvalidParameter { name: "ports".to_owned(), why });
        }
        Err(Error::InvalidParameter {
            name: "driver_info/deploy_kernel".to_owned(),
            why: format!("the {purpose} has no kernel"),
        })
    }

    async fn publish(
        &self,
        target: &Target<'_>,
        way: BootWay,
        purpose: BootPurpose,
    ) -> Result<Published, Error> {
        self.check(target, way, purpose)?;
        unreachable!("the check fails")
    }

    async fn withdraw(&self, _: &Target<'_>) -> Result<(), Error> {
        Ok(())
    }

    async fn offer_image(
        &self,
        _: &Target<'_>,
        _: ImageDownloadSource,
    ) -> Result<OfferedImage, Error> {
        unreachable!("no image is asked for")
    }

    async fn config_drive(&self, _: &Target<'_>) -> Result<Option<String>, Error> {
        Ok(None)
    }

    async fn experience(&self, _: &str) -> Vec<BootExperience> {
        Vec::new()
    }

    async fn note(&self, _: &str, _: BootWay, _: bool) {}
}

/// Cleaned and serviced by an agent that is booted over the network.
fn by_agent(node: &mut Node) {
    node.interfaces.set(InterfaceKind::Deploy, Some("direct"));
    node.interfaces.set(InterfaceKind::Boot, Some("ipxe"));
    node.interfaces.set(InterfaceKind::Inspect, Some("agent"));
    node.interfaces.set(InterfaceKind::Rescue, Some("agent"));
}

fn request(verb: Verb) -> ProvisionRequest {
    let steps = if verb == Verb::Clean {
        vec![Step::new("deploy", "erase_devices", 0)]
    } else if verb == Verb::Service {
        vec![Step::new("deploy", "burnin_cpu", 0)]
    } else {
        Vec::new()
    };
    let rescue_password = (verb == Verb::Rescue).then(|| "secret".to_owned());
    ProvisionRequest { steps, rescue_password, ..ProvisionRequest::plain(verb, user()) }
}

async fn told(house: &House, id: NodeId, verb: Verb) -> Explanation {
    house.conductor.explain(id, request(verb)).await.unwrap()
}

/// The actions that were carried out since the journal had `before` entries.
async fn done(house: &House, id: NodeId, before: usize) -> Vec<String> {
    let mut done = Vec::new();
    for recorded in house.journal(id).await.into_iter().skip(before) {
        if let Happening::Did { action, .. } = recorded.entry.what {
            done.push(action);
        }
    }
    done
}

/// Of every verb it is told which actions it takes, and those are what happens.
#[tokio::test]
async fn plans_are_what_happens() {
    let house = House::new();
    let id = house.node(ProvisionState::Enroll, json!({})).await;
    for verb in [
        Verb::Manage,
        Verb::Inspect,
        Verb::Clean,
        Verb::Provide,
        Verb::Active,
        Verb::Rescue,
        Verb::Unrescue,
        Verb::Rebuild,
        Verb::Deleted,
    ] {
        let explained = told(&house, id, verb).await;
        assert_eq!(explained.obstacles, Vec::<String>::new(), "{verb}");
        let before = house.journal(id).await.len();
        house.conductor.provision(id, request(verb)).await.unwrap();
        let state = house.work(id).await;
        assert_eq!(explained.ends_in, state.as_str(), "{verb}: {:?}", explained.plan);
        let planned: Vec<String> =
            explained.actions.iter().map(|imagined| imagined.action.to_string()).collect();
        assert_eq!(planned, done(&house, id, before).await, "{verb}");
    }
}

/// What a job would fail at is told before: in the words it fails with.
#[tokio::test]
async fn what_is_missing_for_booting_is_an_obstacle() {
    for (verb, state, failed) in [
        (Verb::Provide, ProvisionState::Manageable, ProvisionState::CleanFail),
        (Verb::Clean, ProvisionState::Manageable, ProvisionState::CleanFail),
        (Verb::Service, ProvisionState::Active, ProvisionState::ServiceFail),
        (Verb::Adopt, ProvisionState::Manageable, ProvisionState::AdoptFail),
        (Verb::Deleted, ProvisionState::Active, ProvisionState::CleanFail),
    ] {
        let house = House::with_desk(Arc::new(Bare));
        let id = house.node_with(state, json!({}), by_agent).await;
        let without_port = told(&house, id, verb).await.obstacles;
        if verb != Verb::Adopt {
            for missing in ["'ports'", "deploy_kernel"] {
                let is_told = without_port.iter().any(|obstacle| obstacle.contains(missing));
                assert!(is_told, "{verb}: {missing} is not in {without_port:?}");
            }
        }
        give_port(&house, id).await;
        let explained = told(&house, id, verb).await;
        assert!(!explained.possible, "{verb}");
        house.conductor.provision(id, request(verb)).await.unwrap();
        assert_eq!(house.work(id).await, failed, "{verb}");
        let error = house.get(id).await.last_error.unwrap();
        assert!(error.contains("deploy_kernel"), "{error}");
        assert!(explained.obstacles.contains(&error), "{verb}: {:?} {error}", explained.obstacles);
    }
    // What is refused at once is told as well.
    let house = House::with_desk(Arc::new(Bare));
    for (verb, state) in
        [(Verb::Inspect, ProvisionState::Manageable), (Verb::Rescue, ProvisionState::Active)]
    {
        let id = house.node_with(state, json!({}), by_agent).await;
        let explained = told(&house, id, verb).await;
        let refusal = house.conductor.provision(id, request(verb)).await.unwrap_err();
        assert!(explained.obstacles.contains(&crate::act::chain(&refusal)), "{explained:?}");
    }
}

async fn give_port(house: &House, id: NodeId) {
    let address = "52:54:00:00:00:01".parse().unwrap();
    let port = Port::new(PortId::random(), id, address, Timestamp(0));
    house.store.write(move |tx| tx.insert(&port)).await.unwrap();
}

/// Nothing is booted if nothing is cleaned, so nothing for that is in the way.
#[tokio::test]
async fn what_is_not_done_needs_nothing() {
    let house = House::with_desk(Arc::new(Bare));
    let id = house
        .node_with(ProvisionState::Manageable, json!({}), |node| {
            by_agent(node);
            node.automated_clean = Some(false);
        })
        .await;
    assert_eq!(told(&house, id, Verb::Provide).await.obstacles, Vec::<String>::new());
    assert_eq!(house.through(id, Verb::Provide).await, ProvisionState::Available);
}

#[tokio::test]
async fn steps_are_told_with_their_priorities() {
    let house = House::new();
    let id = house.node_with(ProvisionState::Manageable, json!({}), by_agent).await;
    let explained = told(&house, id, Verb::Provide).await;
    assert_eq!(explained.obstacles, Vec::<String>::new());
    assert_eq!(
        explained.plan,
        [
            "manageable -> cleaning",
            "prepare cleaning",
            "list clean steps",
            "the agent says which clean steps it has once it runs: expected are those that agents \
             usually have",
            "run clean step deploy.erase_devices_metadata (priority 99)",
            "run clean step deploy.erase_devices (priority 10)",
            "run clean step vendor.log_passthrough (priority 1)",
            "tear down cleaning",
            "cleaning -> available",
        ]
    );
    // What it said when it was asked counts.
    house
        .change(id, |node| {
            let steps = json!([{"interface": "deploy", "step": "shred", "priority": 7}]);
            node.driver_internal_info.set("agent_cached_clean_steps", steps);
        })
        .await;
    let plan = told(&house, id, Verb::Provide).await.plan;
    assert_eq!(plan[2..4], ["list clean steps", "run clean step deploy.shred (priority 7)"]);
}

#[tokio::test]
async fn what_is_told_of_many_has_no_names() {
    let house = House::new();
    let mut ids = Vec::new();
    // Names that are parts of what is said.
    for name in ["state", "e", "active"] {
        let named = |node: &mut Node| node.name = Some(name.to_owned());
        ids.push(house.node_with(ProvisionState::Active, json!({}), named).await);
    }
    ids.extend((0..300).map(|_| NodeId::random()));
    let provide = request(Verb::Provide);
    let explained = house.conductor.explain_many(&ids, &provide, &Map::new()).await.unwrap();
    assert_eq!(explained.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids[..3]);
    for (_, outcome) in explained {
        let obstacles = outcome.unwrap().obstacles;
        let expected = "The requested action \"provide\" can not be performed on node \"…\" while it \
                        is in state \"active\".";
        assert!(obstacles[0].starts_with(expected), "{obstacles:?}");
    }
}

#[tokio::test]
async fn what_is_too_much_at_once_is_an_obstacle() {
    let house = House::new();
    for _ in 0..50 {
        house.node(ProvisionState::Cleaning, json!({})).await;
    }
    let id = house.node(ProvisionState::Active, json!({})).await;
    let explained = told(&house, id, Verb::Deleted).await;
    let refusal = house.conductor.provision(id, request(Verb::Deleted)).await.unwrap_err();
    assert_eq!(explained.obstacles, [refusal.to_string()]);
}
