// SPDX-License-Identifier: Apache-2.0
//! `IronicDatabase` objects, and replicas of the service on them: loss of a node, upgrade, changed
//! password.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube_resources::ironic::database::IronicDatabase;
use serde_json::json;

use crate::cluster::wait_within;
use crate::installation_lab::{INSTALLATION, InstallationLab};

#[tokio::test]
async fn replicas_on_a_database_survive_the_loss_of_a_node_and_are_upgraded() {
    let Some(mut lab) = InstallationLab::start("database").await else { return };
    lab.create_database("state", json!({})).await;
    let spec = json!({
        "databaseRef": {"name": "state"},
        "highAvailability": true,
        "tls": {"generate": true},
    });
    lab.create_ironic("ironic", spec).await;
    lab.wait_not_ready("ironic", "IronicDatabase state is not ready").await;
    let database = lab.wait_database_ready("state").await.status.unwrap();
    assert_eq!(database.host, Some(format!("state-database.{}.svc", lab.namespace.name)));
    let ironic = lab.wait_ready("ironic", 1).await;
    assert_eq!(ironic.status.unwrap().installed_version.as_deref(), Some("0.1"));
    let pods = lab.pods("ironic").await;
    assert_eq!(pods.len(), 3);
    assert_job_before_pods(&lab, "ironic-pre-none-to-0.1-", &pods).await;
    let client = lab.service_client("ironic").await;
    client.wait_response().await;
    client.create_node("kept").await;

    // Two of three replicas are enough.
    let cluster = lab.namespace.cluster;
    let lost = pods[0].spec.clone().unwrap().node_name.unwrap();
    cluster.lose_node(&lost).unwrap();
    let sets = lab.namespace.api::<DaemonSet>();
    // Kubernetes does not count pods on nodes that it cannot reach.
    let has_ready = |count: i32| {
        move |set: &Option<DaemonSet>| {
            let status = set.as_ref().and_then(|set| set.status.as_ref());
            status.is_some_and(|status| status.number_ready == count)
        }
    };
    wait_within(INSTALLATION, "two replicas", &sets, "ironic-service", has_ready(2)).await;
    for _ in 0..10 {
        let nodes = client.wait_response().await;
        assert_eq!(nodes["nodes"][0]["name"], "kept", "{nodes}");
    }
    cluster.restore_node(&lost).await.unwrap();
    wait_within(INSTALLATION, "three replicas", &sets, "ironic-service", has_ready(3)).await;
    lab.wait_ready("ironic", 1).await;

    // Another version: first the Job, then the pods.
    lab.stop_controllers().await;
    lab.start_controllers("0.2");
    let is_upgraded = |ironic: &Option<kube_resources::ironic::service::Ironic>| {
        let status = ironic.as_ref().and_then(|ironic| ironic.status.as_ref());
        status.is_some_and(|status| status.installed_version.as_deref() == Some("0.2"))
    };
    let what = "version 0.2 is installed";
    wait_within(INSTALLATION, what, &lab.ironics(), "ironic", is_upgraded).await;
    let pods = lab.pods("ironic").await;
    assert_eq!(pods.len(), 3);
    assert_job_before_pods(&lab, "ironic-pre-0.1-to-0.2-", &pods).await;
    let nodes = client.wait_response().await;
    assert_eq!(nodes["nodes"][0]["name"], "kept", "{nodes}");

    // The condition changes when a pod dies.
    let pod = lab.pods("ironic").await[0].metadata.name.clone().unwrap();
    let pods = lab.namespace.api::<Pod>();
    pods.delete(&pod, &DeleteParams::default()).await.unwrap();
    lab.wait_not_ready("ironic", "").await;
    lab.wait_ready("ironic", 1).await;

    // An older version is refused, and nothing changes.
    lab.stop_controllers().await;
    let before = sets.get("ironic-service").await.unwrap().metadata.generation;
    lab.start_controllers("0.1");
    lab.wait_not_ready("ironic", "Ironic does not support downgrades").await;
    assert_eq!(sets.get("ironic-service").await.unwrap().metadata.generation, before);
    lab.stop_controllers().await;
    lab.start_controllers("0.2");
    lab.wait_ready("ironic", 1).await;

    // Another password of the database.
    let old = lab.pods("ironic").await;
    let name = database.credentials_name.unwrap();
    lab.patch_secret(&name, json!({"stringData": {"password": "it's another one"}})).await;
    let is_new =
        |set: &Option<DaemonSet>| set.as_ref().is_some_and(|set| set.metadata.generation > before);
    wait_within(INSTALLATION, "new pods", &sets, "ironic-service", is_new).await;
    lab.wait_ready("ironic", 1).await;
    let new = lab.pods("ironic").await;
    assert!(new.iter().all(|pod| old.iter().all(|it| it.metadata.uid != pod.metadata.uid)));
    let nodes = client.wait_response().await;
    assert_eq!(nodes["nodes"][0]["name"], "kept", "{nodes}");

    // The database stays while an installation uses it.
    lab.databases().delete("state", &DeleteParams::default()).await.unwrap();
    let is_waiting = |database: &Option<IronicDatabase>| {
        let status = database.as_ref().and_then(|it| it.status.as_ref());
        status.is_some_and(|status| {
            let mut conditions = status.conditions.iter();
            conditions.any(|it| it.message.contains("until no Ironic uses the database: ironic"))
        })
    };
    let what = "deletion of the database waits";
    wait_within(INSTALLATION, what, &lab.databases(), "state", is_waiting).await;
    lab.delete_ironic("ironic").await;
    let is_gone = Option::is_none;
    wait_within(INSTALLATION, "the Ironic is deleted", &lab.ironics(), "ironic", is_gone).await;
    let is_gone = Option::is_none;
    let what = "the database is deleted";
    wait_within(INSTALLATION, what, &lab.databases(), "state", is_gone).await;
    lab.namespace.delete().await;
}

/// The Job finished before the first of these pods was created.
async fn assert_job_before_pods(lab: &InstallationLab, prefix: &str, pods: &[Pod]) {
    let jobs = lab.namespace.api::<Job>().list(&ListParams::default()).await.unwrap().items;
    let job = jobs.iter().find(|job| job.metadata.name.as_ref().unwrap().starts_with(prefix));
    let names: Vec<_> = jobs.iter().map(|job| job.metadata.name.clone()).collect();
    let job = job.unwrap_or_else(|| panic!("no job {prefix}: {names:?}"));
    let finished = job.status.as_ref().unwrap().completion_time.as_ref().unwrap().0;
    for pod in pods {
        let created = pod.metadata.creation_timestamp.as_ref().unwrap().0;
        assert!(finished <= created, "{finished} {created}");
    }
}
