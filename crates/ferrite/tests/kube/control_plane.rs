// SPDX-License-Identifier: Apache-2.0
//! The cluster of the tests itself: namespaces, CRDs, permissions.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};

use crate::cluster::{TestNamespace, wait_for};

#[tokio::test]
async fn objects_are_stored_and_namespaces_deleted() {
    let Some(namespace) = TestNamespace::create("control-plane").await else { return };
    let api = namespace.api::<ConfigMap>();
    let metadata = ObjectMeta { name: Some("example".to_owned()), ..ObjectMeta::default() };
    let example = ConfigMap { metadata, ..ConfigMap::default() };
    api.create(&PostParams::default(), &example).await.unwrap();
    wait_for("the ConfigMap", &api, "example", Option::is_some).await;
    let crds = namespace.cluster.kubectl(&["get", "crds", "--output", "name"]).unwrap();
    assert!(crds.contains("baremetalhosts.metal3.io"), "{crds}");
    namespace.delete().await;
    wait_for("deletion with the namespace", &api, "example", Option::is_none).await;
}
