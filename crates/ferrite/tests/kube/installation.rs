// SPDX-License-Identifier: Apache-2.0
//! `Ironic` objects: installation, changes, credentials, certificates, foreign objects, deletion.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::wait_within;
use crate::installation_lab::{INSTALLATION, InstallationLab, OPT_IN};

/// Tests share nodes, so pods have addresses of their own.
fn spec(more: Value) -> Value {
    let mut spec = json!({"networking": {"disableHostNetwork": true}, "tls": {"generate": true}});
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

#[tokio::test]
async fn an_installation_serves_tls_with_generated_credentials() {
    let Some(lab) = InstallationLab::start("install").await else { return };
    lab.create_ironic("ironic", spec(json!({}))).await;
    let ironic = lab.wait_ready("ironic", 1).await;
    let status = ironic.status.unwrap();
    assert_eq!(status.requested_version.as_deref(), Some("0.1"));
    assert_eq!(status.installed_version.as_deref(), Some("0.1"));
    let client = lab.service_client("ironic").await;
    assert_eq!(client.user, "ironic");
    client.wait_response().await;
    client.wait_status("wrong", 401).await;

    // The certificate has the address of the pod, which agents use.
    let annotation = "ironic.metal3.io/certificate-names";
    let address = lab.pods("ironic").await[0].status.clone().unwrap().pod_ip.unwrap();
    let has_address = |secret: &Option<Secret>| {
        let annotations = secret.as_ref().and_then(|it| it.metadata.annotations.as_ref());
        annotations.is_some_and(|it| it[annotation].split(',').any(|name| name == address))
    };
    let secrets = lab.namespace.api::<Secret>();
    wait_within(INSTALLATION, "the certificate", &secrets, "ironic-tls", has_address).await;

    // The state is on the volume, and the condition changes when the pod dies.
    client.create_node("kept").await;
    let pod = lab.pods("ironic").await[0].metadata.name.clone().unwrap();
    let pods = lab.namespace.api::<Pod>();
    pods.delete(&pod, &DeleteParams::default()).await.unwrap();
    lab.wait_not_ready("ironic", "").await;
    lab.wait_ready("ironic", 1).await;
    let nodes = client.wait_response().await;
    assert_eq!(nodes["nodes"][0]["name"], "kept", "{nodes}");

    // Nothing is written without a change.
    let objects = |lab: &InstallationLab| {
        let deployments = lab.namespace.api::<Deployment>();
        let maps = lab.namespace.api::<ConfigMap>();
        async move {
            let deployment = deployments.get("ironic-service").await.unwrap().metadata;
            let map = maps.get("ironic-config").await.unwrap().metadata;
            (deployment.generation, map.resource_version)
        }
    };
    let before = objects(&lab).await;
    let annotate = Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
    lab.ironics().patch("ironic", &PatchParams::default(), &annotate).await.unwrap();
    let generation = lab.patch_ironic("ironic", json!({"nodeSelector": {}})).await;
    lab.wait_ready("ironic", generation).await;
    assert_eq!(objects(&lab).await, before);

    let reasons = lab.event_reasons().await;
    for reason in
        ["APISecretCreated", "CertificateIssued", "IronicNotReady", "IronicReady", "VersionChange"]
    {
        assert!(reasons.iter().any(|found| found == reason), "{reason}: {reasons:?}");
    }
    lab.namespace.delete().await;
}

#[tokio::test]
async fn changed_fields_and_passwords_roll_the_pod() {
    let Some(lab) = InstallationLab::start("change").await else { return };
    let overrides = json!({
        "annotations": {"example.org/a": "1"},
        "containers": [{"name": "ironic", "imagePullPolicy": "Never", "resources": {
            "requests": {"cpu": "0.05"}, "limits": {"memory": "1024Mi"}}}],
    });
    lab.create_ironic("ironic", spec(json!({"overrides": overrides}))).await;
    lab.wait_ready("ironic", 1).await;
    let first = lab.pods("ironic").await[0].metadata.uid.clone();
    let deployments = lab.namespace.api::<Deployment>();

    // Overrides are applied completely, and changes of others stay.
    let container = |deployment: &Deployment| {
        let template = deployment.spec.clone().unwrap().template;
        serde_json::to_value(&template.spec.unwrap().containers[0]).unwrap()
    };
    let deployment = deployments.get("ironic-service").await.unwrap();
    let found = container(&deployment);
    assert_eq!(found["imagePullPolicy"], "Never");
    assert_eq!(found["resources"]["requests"]["cpu"], "50m");
    let annotations = deployment.spec.unwrap().template.metadata.unwrap().annotations.unwrap();
    assert_eq!(annotations["example.org/a"], "1");
    let label = Patch::Merge(json!({"metadata": {"labels": {"theirs": "1"}}}));
    deployments.patch("ironic-service", &PatchParams::default(), &label).await.unwrap();

    // Another spec is another pod. What is not wanted any more is removed.
    let change = json!({"overrides": null, "deployRamdisk": {"extraKernelParams": "quiet"}});
    let generation = lab.patch_ironic("ironic", change).await;
    lab.wait_ready("ironic", generation).await;
    let second = lab.pods("ironic").await[0].metadata.uid.clone();
    assert_ne!(first, second);
    let deployment = deployments.get("ironic-service").await.unwrap();
    assert!(container(&deployment)["resources"].get("requests").is_none());
    assert_eq!(deployment.metadata.labels.clone().unwrap()["theirs"], "1");
    let annotations = deployment.spec.unwrap().template.metadata.unwrap().annotations.unwrap();
    assert!(!annotations.contains_key("example.org/a"));

    // A changed object is restored.
    let tamper = Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments.patch("ironic-service", &PatchParams::default(), &tamper).await.unwrap();
    let is_restored = |deployment: &Option<Deployment>| {
        deployment.as_ref().is_some_and(|it| it.spec.as_ref().unwrap().replicas == Some(1))
    };
    let what = "the Deployment is restored";
    wait_within(INSTALLATION, what, &deployments, "ironic-service", is_restored).await;
    lab.wait_ready("ironic", generation).await;

    // Another password: the user file is written, and the service accepts only the new one.
    let old = lab.service_client("ironic").await;
    old.wait_response().await;
    let name = lab.ironics().get("ironic").await.unwrap().spec.api_credentials_name.unwrap();
    lab.patch_secret(&name, json!({"stringData": {"password": "another one"}})).await;
    let new = lab.service_client("ironic").await;
    assert_eq!(new.password, "another one");
    new.wait_response().await;
    new.wait_status(&old.password, 401).await;
    lab.wait_ready("ironic", generation).await;
    lab.namespace.delete().await;
}

#[tokio::test]
async fn secrets_need_a_label_and_invalid_objects_do_not_block_others() {
    let Some(lab) = InstallationLab::start("label").await else { return };
    let namespace = &lab.namespace.name;
    lab.create_ironic("invalid", json!({"networking": {"ipAddress": "not an address"}})).await;
    lab.wait_not_ready("invalid", "spec.networking.ipAddress").await;
    lab.create_ironic("old", json!({"version": "36.0"})).await;
    lab.wait_not_ready("old", "version 36.0 is not supported").await;
    lab.create_ironic("ironic", spec(json!({"apiCredentialsName": "login"}))).await;
    let missing = format!("ironic: cannot load secret {namespace}/login: it does not exist");
    lab.wait_not_ready("ironic", &missing).await;
    let secret = json!({"metadata": {"name": "login"},
        "stringData": {"username": "admin", "password": "a password"}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    lab.namespace.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    lab.wait_not_ready("ironic", &format!("it has no label {OPT_IN}=true")).await;
    lab.patch_secret("login", json!({"metadata": {"labels": {OPT_IN: "true"}}})).await;
    lab.wait_ready("ironic", 1).await;
    let client = lab.service_client("ironic").await;
    assert_eq!(client.user, "admin");
    client.wait_response().await;
    // The Secret of the user got the user file, and stays when the installation is deleted.
    assert!(lab.secret("login").await["htpasswd"].starts_with("admin:$2y$"));
    lab.delete_ironic("ironic").await;
    let is_gone = Option::is_none;
    wait_within(INSTALLATION, "the Ironic is deleted", &lab.ironics(), "ironic", is_gone).await;
    assert_eq!(lab.secret("login").await["username"], "admin");
    let reasons = lab.event_reasons().await;
    for reason in ["InvalidLinkedResource", "VersionError"] {
        assert!(reasons.iter().any(|found| found == reason), "{reason}: {reasons:?}");
    }
    lab.namespace.delete().await;
}

#[tokio::test]
async fn foreign_objects_are_reported_and_kept_and_own_ones_deleted() {
    let Some(lab) = InstallationLab::start("foreign").await else { return };
    let services = lab.namespace.api::<Service>();
    let foreign = json!({"metadata": {"name": "ironic", "labels": {"theirs": "1"}},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}}});
    let foreign: Service = serde_json::from_value(foreign).unwrap();
    let foreign = services.create(&PostParams::default(), &foreign).await.unwrap();
    lab.create_ironic("ironic", spec(json!({}))).await;
    lab.wait_not_ready("ironic", "Service ironic already exists and does not belong").await;
    let kept = services.get("ironic").await.unwrap();
    assert_eq!(kept.metadata.resource_version, foreign.metadata.resource_version);

    lab.delete_ironic("ironic").await;
    let is_gone = Option::is_none;
    wait_within(INSTALLATION, "the Ironic is deleted", &lab.ironics(), "ironic", is_gone).await;
    let kept = services.get("ironic").await.unwrap();
    assert_eq!(kept.metadata.resource_version, foreign.metadata.resource_version);

    services.delete("ironic", &DeleteParams::default()).await.unwrap();
    lab.create_ironic("ironic", spec(json!({}))).await;
    lab.wait_ready("ironic", 1).await;
    lab.delete_ironic("ironic").await;
    let is_gone = Option::is_none;
    wait_within(INSTALLATION, "the Ironic is deleted", &lab.ironics(), "ironic", is_gone).await;
    // The finalizer is removed after the objects, so there is nothing to wait for.
    let all = ListParams::default();
    assert_eq!(lab.namespace.api::<Deployment>().list(&all).await.unwrap().items, []);
    assert_eq!(services.list(&all).await.unwrap().items, []);
    assert_eq!(lab.namespace.api::<Secret>().list(&all).await.unwrap().items, []);
    assert_eq!(lab.namespace.api::<Pod>().list(&all).await.unwrap().items, []);
    assert_eq!(lab.namespace.api::<PersistentVolumeClaim>().list(&all).await.unwrap().items, []);
    lab.namespace.delete().await;
}
