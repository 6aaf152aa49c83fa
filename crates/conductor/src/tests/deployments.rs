// SPDX-License-Identifier: Apache-2.0
//! Deployments from the request to the release of the machine.

use std::time::Duration;

use node_model::{
    Actor, AllocationId, Deployment, DeploymentId, DeploymentState, JournalEvent, LeaseEndAction,
    Node, NodeId, ProjectQuota, ProvisionState, QuotaId, QuotaSubject, Timestamp,
};
use serde_json::json;

use super::TestConductor;

async fn insert_deployment(
    test: &TestConductor,
    change: impl FnOnce(&mut Deployment),
) -> DeploymentId {
    let now = test.conductor.now();
    let mut deployment = Deployment {
        name: Some("web".to_owned()),
        project: Some("shop".to_owned()),
        user: Some("ann".to_owned()),
        request_id: "req-ann".to_owned(),
        resource_class: Some("big".to_owned()),
        ..Deployment::new(DeploymentId::random(), now)
    };
    change(&mut deployment);
    let id = deployment.id;
    let instance = json!({
        "instance_info": {"image_source": "http://images/a", "image_checksum": "abc"},
        "user_data": "#cloud-config",
    });
    let instance = instance.as_object().unwrap().clone();
    test.store
        .write(move |tx| {
            let mut deployment = deployment.clone();
            tx.seal_deployment(&mut deployment, instance.clone())?;
            tx.insert(&deployment.allocation())?;
            tx.insert(&deployment)
        })
        .await
        .unwrap();
    id
}

async fn machine(
    test: &TestConductor,
    owner: &'static str,
    driver_info: serde_json::Value,
) -> NodeId {
    test.insert_node_with(ProvisionState::Available, driver_info, |node| {
        node.resource_class = Some("big".to_owned());
        node.owner = Some(owner.to_owned());
    })
    .await
}

async fn get(test: &TestConductor, id: DeploymentId) -> Option<Deployment> {
    test.store.read(move |reader| reader.get(id)).await.unwrap()
}

/// Runs the deployment and its machine until both wait.
async fn run(test: &TestConductor, id: DeploymentId, node: NodeId) -> Option<DeploymentState> {
    for _ in 0..6 {
        test.conductor.run_deployment(id).await.unwrap();
        test.run_node(node).await;
    }
    get(test, id).await.map(|deployment| deployment.state)
}

async fn allocation_exists(test: &TestConductor, id: DeploymentId) -> bool {
    let id = AllocationId(id.0);
    test.store.read(move |reader| reader.get(id)).await.unwrap().is_some()
}

#[tokio::test]
async fn deploys_and_undeploys_a_machine() {
    let test = TestConductor::new();
    let other = machine(&test, "infra", json!({})).await;
    let node = machine(&test, "shop", json!({})).await;
    let id = insert_deployment(&test, |_| {}).await;
    assert_eq!(run(&test, id, node).await, Some(DeploymentState::Active));
    assert_eq!(test.get(other).await.provision_state, ProvisionState::Available);
    let deployed = test.get(node).await;
    assert_eq!(deployed.provision_state, ProvisionState::Active);
    assert_eq!(deployed.instance_uuid, Some(id.0));
    assert_eq!(deployed.instance_name.as_deref(), Some("web"));
    assert_eq!(deployed.instance_info.get_str("image_source").as_deref(), Some("http://images/a"));
    let by = deployed.driver_internal_info.get("deployed_by").unwrap();
    assert_eq!(by, json!({"user": "ann", "project": "shop", "request_id": "req-ann"}));
    let secrets = test
        .store
        .read(move |reader| {
            let node = reader.get(node)?.unwrap();
            reader.reveal(&node)
        })
        .await
        .unwrap();
    let drive = &secrets.instance_info["configdrive"];
    assert_eq!(
        (&drive["user_data"], &drive["meta_data"]["hostname"]),
        (&json!("#cloud-config"), &json!("web"))
    );
    let requested = test
        .journal(node)
        .await
        .into_iter()
        .find(|row| matches!(&row.entry.event, JournalEvent::Requested { .. }));
    let Some(Actor::User { name, project, .. }) = requested.map(|row| row.entry.actor) else {
        panic!("the deployment was not requested by a user")
    };
    assert_eq!((name.as_deref(), project.as_deref()), (Some("ann"), Some("shop")));

    test.store
        .write(move |tx| {
            let mut deployment = tx.get(id)?.unwrap();
            deployment.state = DeploymentState::Deleting;
            tx.save(&mut deployment)
        })
        .await
        .unwrap();
    assert_eq!(run(&test, id, node).await, None);
    let released = test.get(node).await;
    assert_eq!(released.provision_state, ProvisionState::Available);
    assert_eq!((released.instance_uuid, released.allocation_id), (None, None));
    assert_eq!(released.driver_internal_info.get("deployed_by"), None);
    assert!(!allocation_exists(&test, id).await);
}

/// A process may be killed after every transaction: another one continues with the same outcome.
#[tokio::test]
async fn survives_a_crash_after_every_step() {
    for steps in 0..6 {
        let test = TestConductor::new();
        let node = machine(&test, "shop", json!({})).await;
        let id = insert_deployment(&test, |_| {}).await;
        for _ in 0..steps {
            // One step at a time: the task is dropped before it continues.
            test.conductor.run_one_step(id).await.unwrap();
        }
        let other = test.other_process("there");
        for _ in 0..6 {
            other.run_deployment(id).await.unwrap();
            test.run_node(node).await;
        }
        let deployment = get(&test, id).await.unwrap();
        assert_eq!(deployment.state, DeploymentState::Active, "after {steps} steps");
        assert_eq!(deployment.node_id, Some(node));
    }
}

#[tokio::test]
async fn two_processes_deploy_once() {
    let test = TestConductor::new();
    let node = machine(&test, "shop", json!({})).await;
    let id = insert_deployment(&test, |_| {}).await;
    let other = test.other_process("there");
    for _ in 0..4 {
        let (one, two) = tokio::join!(test.conductor.run_deployment(id), other.run_deployment(id));
        one.unwrap();
        two.unwrap();
    }
    assert_eq!(run(&test, id, node).await, Some(DeploymentState::Active));
    let requested = test
        .journal(node)
        .await
        .into_iter()
        .filter(|row| matches!(&row.entry.event, JournalEvent::Requested { .. }));
    assert_eq!(requested.count(), 1);
}

#[tokio::test]
async fn fails_without_a_machine_of_the_project() {
    let test = TestConductor::new();
    let node = machine(&test, "infra", json!({})).await;
    let id = insert_deployment(&test, |_| {}).await;
    assert_eq!(run(&test, id, node).await, Some(DeploymentState::Failed));
    let failed = get(&test, id).await.unwrap();
    assert!(failed.last_error.unwrap().contains("resource class big"));
    assert!(!allocation_exists(&test, id).await, "a failed deployment does not count as a machine");

    // An operator's deployment takes only machines of the requested owner.
    let wanted = insert_deployment(&test, |deployment| {
        deployment.project = None;
        deployment.name = None;
        deployment.node_owner = Some("absent".to_owned());
    })
    .await;
    assert_eq!(run(&test, wanted, node).await, Some(DeploymentState::Failed));
    let found = insert_deployment(&test, |deployment| {
        deployment.project = None;
        deployment.name = None;
        deployment.node_owner = Some("infra".to_owned());
    })
    .await;
    assert_eq!(run(&test, found, node).await, Some(DeploymentState::Active));
}

#[tokio::test]
async fn failure_keeps_the_machine_until_the_deployment_is_deleted() {
    let test = TestConductor::new();
    let info =
        json!({"fake_deploy_failure": "deploy", "fake_deploy_failure_message": "disk on fire"});
    let node = machine(&test, "shop", info).await;
    let id = insert_deployment(&test, |_| {}).await;
    assert_eq!(run(&test, id, node).await, Some(DeploymentState::Failed));
    let failed = get(&test, id).await.unwrap();
    assert!(failed.last_error.unwrap().contains("disk on fire"));
    assert_eq!(failed.node_id, Some(node));
    assert_eq!(test.get(node).await.provision_state, ProvisionState::DeployFail);
}

#[tokio::test]
async fn lease_warns_and_then_removes_the_instance() {
    let test = TestConductor::new();
    let node = machine(&test, "shop", json!({})).await;
    let hour = Duration::from_secs(3600);
    let end = test.conductor.now().plus(hour * 2);
    let id = insert_deployment(&test, |deployment| {
        deployment.expires_at = Some(end);
        deployment.warn_seconds = 3600;
    })
    .await;
    assert_eq!(run(&test, id, node).await, Some(DeploymentState::Active));
    let due = get(&test, id).await.unwrap().due_at;
    assert_eq!(due, Some(Timestamp(end.0 - 3_600_000_000)));
    test.advance(hour);
    assert_eq!(run(&test, id, node).await, Some(DeploymentState::Active));
    let warned = get(&test, id).await.unwrap();
    assert_eq!((warned.warned_at.is_some(), warned.due_at), (true, Some(end)));
    let lease_notes = |notes: Vec<String>| {
        notes.into_iter().filter(|note| note.contains("the lease of web")).count()
    };
    assert_eq!(lease_notes(test.notes(node).await), 1);
    test.advance(hour);
    assert_eq!(run(&test, id, node).await, None);
    assert_eq!(lease_notes(test.notes(node).await), 2);
    assert_eq!(test.get(node).await.provision_state, ProvisionState::Available);
}

#[tokio::test]
async fn lease_that_only_notifies_keeps_the_instance() {
    let test = TestConductor::new();
    let node = machine(&test, "shop", json!({})).await;
    let id = insert_deployment(&test, |deployment| {
        deployment.expires_at = Some(test.conductor.now().plus(Duration::from_secs(60)));
        deployment.expiry_action = LeaseEndAction::Notify;
    })
    .await;
    assert_eq!(run(&test, id, node).await, Some(DeploymentState::Active));
    test.advance(Duration::from_secs(61));
    assert_eq!(run(&test, id, node).await, Some(DeploymentState::Active));
    let ended = get(&test, id).await.unwrap();
    assert_eq!((ended.expired_at.is_some(), ended.due_at), (true, None));
}

#[tokio::test]
async fn notices_that_the_instance_was_removed_by_hand() {
    let test = TestConductor::new();
    let node = machine(&test, "shop", json!({})).await;
    let id = insert_deployment(&test, |_| {}).await;
    assert_eq!(run(&test, id, node).await, Some(DeploymentState::Active));
    test.run_verb(node, node_model::Verb::Deleted).await;
    assert_eq!(run(&test, id, node).await, Some(DeploymentState::Failed));
    assert_eq!(get(&test, id).await.unwrap().node_id, None);
    let node: Node = test.get(node).await;
    assert_eq!(node.instance_uuid, None);
}

/// An earlier lessee could leave a ramdisk that gets the config drive of the next one.
#[tokio::test]
async fn instance_info_of_an_earlier_lessee_is_discarded() {
    let test = TestConductor::new();
    let node = test
        .insert_node_with(ProvisionState::Available, json!({}), |node| {
            node.resource_class = Some("big".to_owned());
            node.owner = Some("shop".to_owned());
            node.instance_info.set("deploy_ramdisk", "http://earlier-lessee/ramdisk");
        })
        .await;
    let id = insert_deployment(&test, |_| {}).await;
    assert_eq!(run(&test, id, node).await, Some(DeploymentState::Active));
    let info = test.get(node).await.instance_info;
    assert_eq!(info.get("deploy_ramdisk"), None);
    assert_eq!(info.get_str("image_source").as_deref(), Some("http://images/a"));
}

/// A request without a resource class was not counted in the quota of the class.
#[tokio::test]
async fn quota_of_a_resource_class_limits_requests_for_named_machines() {
    let test = TestConductor::new();
    let (first, second) =
        (machine(&test, "shop", json!({})).await, machine(&test, "shop", json!({})).await);
    let quota = ProjectQuota {
        id: QuotaId::random(),
        project: "shop".to_owned(),
        subject: QuotaSubject::ResourceClass("big".to_owned()),
        machines: 1,
        created_at: test.conductor.now(),
        updated_at: None,
    };
    test.store.write(move |tx| tx.insert(&quota)).await.unwrap();
    let mut states = Vec::new();
    for (name, node) in [("one", first), ("two", second)] {
        let id = insert_deployment(&test, |deployment| {
            deployment.name = Some(name.to_owned());
            deployment.resource_class = None;
            deployment.candidate_nodes = vec![node];
        })
        .await;
        states.push(run(&test, id, node).await);
        let error = get(&test, id).await.unwrap().last_error;
        assert!(error.is_none_or(|error| error.contains("resource_class:big")));
    }
    assert_eq!(states, [Some(DeploymentState::Active), Some(DeploymentState::Failed)]);
}

/// The next instance could read its user data from an image that an earlier user attached.
#[tokio::test]
async fn images_that_a_user_attached_are_detached_with_the_instance() {
    let test = TestConductor::new();
    let node = machine(&test, "shop", json!({})).await;
    let id = insert_deployment(&test, |_| {}).await;
    assert_eq!(run(&test, id, node).await, Some(DeploymentState::Active));
    let attached = test
        .conductor
        .attach_virtual_media(node, "disk", "http://images/cidata", "http", &super::user())
        .await;
    attached.unwrap();
    let info = test.wait_until_released(node).await.driver_internal_info;
    assert!(info.as_str().contains("http://images/cidata"), "{}", info.as_str());
    test.run_verb(node, node_model::Verb::Deleted).await;
    let info = test.get(node).await.driver_internal_info;
    assert!(!info.as_str().contains("cidata") && !info.as_str().contains("attached_by_user"));
}
