// SPDX-License-Identifier: Apache-2.0
//! Explanations, compared with what the jobs do.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{
    BootService, DriverError, DriverTarget, ImageDownloadSource, MediaDevice, PublishedBootMedia,
    PublishedImage,
};
use lifecycle::{Explanation, ProvisionRequest};
use node_model::{
    BootMethod, BootMethodStats, BootPurpose, InterfaceKind, JournalEvent, Node, NodeId, Port,
    PortId, ProvisionState, Step, Timestamp, Verb,
};
use serde_json::{Map, json};

use super::{TestConductor, user};

/// A boot service without configured ramdisks, which serves no images.
pub(super) struct NoRamdisks;

#[async_trait]
impl BootService for NoRamdisks {
    fn check(
        &self,
        target: &DriverTarget<'_>,
        _: BootMethod,
        purpose: BootPurpose,
    ) -> Result<(), DriverError> {
        if target.ports.is_empty() {
            let why = "the node has no ports".to_owned();
            return Err(DriverError::InvalidParameter { name: "ports".to_owned(), why });
        }
        Err(DriverError::InvalidParameter {
            name: "driver_info/deploy_kernel".to_owned(),
            why: format!("the {purpose} has no kernel"),
        })
    }

    async fn publish(
        &self,
        target: &DriverTarget<'_>,
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<PublishedBootMedia, DriverError> {
        self.check(target, method, purpose)?;
        unreachable!("the check fails")
    }

    async fn withdraw(&self, _: &DriverTarget<'_>) -> Result<(), DriverError> {
        Ok(())
    }

    async fn publish_image(
        &self,
        _: &DriverTarget<'_>,
        _: ImageDownloadSource,
    ) -> Result<PublishedImage, DriverError> {
        unreachable!("no image is requested")
    }

    async fn publish_medium(
        &self,
        _: &DriverTarget<'_>,
        _: MediaDevice,
        _: &str,
        _: ImageDownloadSource,
    ) -> Result<String, DriverError> {
        Err(DriverError::invalid("image_url", "no image is served"))
    }

    async fn config_drive(&self, _: &DriverTarget<'_>) -> Result<Option<String>, DriverError> {
        Ok(None)
    }

    async fn boot_method_stats(&self, _: &str) -> Vec<BootMethodStats> {
        Vec::new()
    }

    async fn record_boot_result(&self, _: &str, _: BootMethod, _: bool) {}
}

/// Uses the agent, booted over the network.
fn use_agent(node: &mut Node) {
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

async fn explain(test: &TestConductor, id: NodeId, verb: Verb) -> Explanation {
    test.conductor.explain(id, request(verb)).await.unwrap()
}

/// The actions in the journal after the first `before` entries.
async fn actions(test: &TestConductor, id: NodeId, before: usize) -> Vec<String> {
    let mut actions = Vec::new();
    for row in test.journal(id).await.into_iter().skip(before) {
        if let JournalEvent::ActionDone { action, .. } = row.entry.event {
            actions.push(action);
        }
    }
    actions
}

/// The planned actions of every verb are those that are executed.
#[tokio::test]
async fn plans_match_the_executed_actions() {
    let test = TestConductor::new();
    let id = test.insert_node(ProvisionState::Enroll, json!({})).await;
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
        let explained = explain(&test, id, verb).await;
        assert_eq!(explained.obstacles, Vec::<String>::new(), "{verb}");
        let before = test.journal(id).await.len();
        test.conductor.provision(id, request(verb)).await.unwrap();
        let state = test.run_node(id).await;
        assert_eq!(explained.ends_in, state.as_str(), "{verb}: {:?}", explained.plan);
        let planned: Vec<String> =
            explained.actions.iter().map(|planned| planned.action.to_string()).collect();
        assert_eq!(planned, actions(&test, id, before).await, "{verb}");
    }
}

/// Obstacles have the text of the later error.
#[tokio::test]
async fn missing_boot_settings_are_obstacles() {
    for (verb, state, failed) in [
        (Verb::Provide, ProvisionState::Manageable, ProvisionState::CleanFail),
        (Verb::Clean, ProvisionState::Manageable, ProvisionState::CleanFail),
        (Verb::Service, ProvisionState::Active, ProvisionState::ServiceFail),
        (Verb::Adopt, ProvisionState::Manageable, ProvisionState::AdoptFail),
        (Verb::Deleted, ProvisionState::Active, ProvisionState::CleanFail),
    ] {
        let test = TestConductor::with_boot_service(Arc::new(NoRamdisks));
        let id = test.insert_node_with(state, json!({}), use_agent).await;
        let without_port = explain(&test, id, verb).await.obstacles;
        if verb != Verb::Adopt {
            for missing in ["'ports'", "deploy_kernel"] {
                let is_listed = without_port.iter().any(|obstacle| obstacle.contains(missing));
                assert!(is_listed, "{verb}: {missing} is not in {without_port:?}");
            }
        }
        insert_port(&test, id).await;
        let explained = explain(&test, id, verb).await;
        assert!(!explained.possible, "{verb}");
        test.conductor.provision(id, request(verb)).await.unwrap();
        assert_eq!(test.run_node(id).await, failed, "{verb}");
        let error = test.get(id).await.last_error.unwrap();
        assert!(error.contains("deploy_kernel"), "{error}");
        assert!(explained.obstacles.contains(&error), "{verb}: {:?} {error}", explained.obstacles);
    }
    // Immediate rejections are obstacles too.
    let test = TestConductor::with_boot_service(Arc::new(NoRamdisks));
    for (verb, state) in
        [(Verb::Inspect, ProvisionState::Manageable), (Verb::Rescue, ProvisionState::Active)]
    {
        let id = test.insert_node_with(state, json!({}), use_agent).await;
        let explained = explain(&test, id, verb).await;
        let rejection = test.conductor.provision(id, request(verb)).await.unwrap_err();
        assert!(
            explained.obstacles.contains(&crate::error::error_text(&rejection)),
            "{explained:?}"
        );
    }
}

async fn insert_port(test: &TestConductor, id: NodeId) {
    let address = "52:54:00:00:00:01".parse().unwrap();
    let port = Port::new(PortId::random(), id, address, Timestamp(0));
    test.store.write(move |tx| tx.insert(&port)).await.unwrap();
}

/// Without cleaning no ramdisk is booted, so its settings are not checked.
#[tokio::test]
async fn skipped_actions_have_no_obstacles() {
    let test = TestConductor::with_boot_service(Arc::new(NoRamdisks));
    let id = test
        .insert_node_with(ProvisionState::Manageable, json!({}), |node| {
            use_agent(node);
            node.automated_clean = Some(false);
        })
        .await;
    assert_eq!(explain(&test, id, Verb::Provide).await.obstacles, Vec::<String>::new());
    assert_eq!(test.run_verb(id, Verb::Provide).await, ProvisionState::Available);
}

#[tokio::test]
async fn plan_lists_steps_with_priorities() {
    let test = TestConductor::new();
    let id = test.insert_node_with(ProvisionState::Manageable, json!({}), use_agent).await;
    let explained = explain(&test, id, Verb::Provide).await;
    assert_eq!(explained.obstacles, Vec::<String>::new());
    assert_eq!(
        explained.plan,
        [
            "manageable -> cleaning",
            "prepare cleaning",
            "list clean steps",
            "the agent lists its clean steps once it runs: the steps of a typical agent are assumed",
            "run clean step deploy.erase_devices_metadata (priority 99)",
            "run clean step deploy.erase_devices (priority 10)",
            "run clean step vendor.log_passthrough (priority 1)",
            "tear down cleaning",
            "cleaning -> available",
        ]
    );
    // The steps that the agent listed before are used.
    test.change(id, |node| {
        let steps = json!([{"interface": "deploy", "step": "shred", "priority": 7}]);
        node.driver_internal_info.set("agent_cached_clean_steps", steps);
    })
    .await;
    let plan = explain(&test, id, Verb::Provide).await.plan;
    assert_eq!(plan[2..4], ["list clean steps", "run clean step deploy.shred (priority 7)"]);
}

#[tokio::test]
async fn explanations_of_many_nodes_have_no_names() {
    let test = TestConductor::new();
    let mut ids = Vec::new();
    // Names that occur in the texts.
    for name in ["state", "e", "active"] {
        let named = |node: &mut Node| node.name = Some(name.to_owned());
        ids.push(test.insert_node_with(ProvisionState::Active, json!({}), named).await);
    }
    ids.extend((0..300).map(|_| NodeId::random()));
    let provide = request(Verb::Provide);
    let explained = test.conductor.explain_many(&ids, &provide, &Map::new()).await.unwrap();
    assert_eq!(explained.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids[..3]);
    for (_, result) in explained {
        let obstacles = result.unwrap().obstacles;
        let expected = "The requested action \"provide\" can not be performed on node \"…\" while it \
                        is in state \"active\".";
        assert!(obstacles[0].starts_with(expected), "{obstacles:?}");
    }
}
