// SPDX-License-Identifier: Apache-2.0
//! ServiceAccount tokens in pods, and what RBAC grants and refuses.

use serde_json::json;

use crate::cluster::{pod, shared};

#[tokio::test]
async fn tokens_work_and_permissions_are_limited() {
    let Some(namespace) = shared("permissions").await else { return };
    namespace.kubectl(&["create", "serviceaccount", "reader"]);
    namespace.kubectl(&["create", "role", "reader", "--verb=list", "--resource=configmaps"]);
    let account = format!("--serviceaccount={}:reader", namespace.name);
    namespace.kubectl(&["create", "rolebinding", "reader", "--role=reader", &account]);
    for (resource, phase, expected) in [
        ("configmaps", "Succeeded", "kube-root-ca.crt"),
        ("secrets", "Failed", "cannot list resource \"secrets\""),
    ] {
        // The client finds the API server, its certificate, the token and the namespace by itself.
        let container =
            json!({"name": "kubectl", "image": "kubectl", "args": ["kubectl", "get", resource]});
        let mut client = pod(resource, container);
        client["spec"]["serviceAccountName"] = json!("reader");
        namespace.apply(&client);
        namespace.wait_for_field(&format!("pod/{resource}"), ".status.phase", phase);
        let printed = namespace.cluster.logs(&namespace.name, resource, "kubectl");
        assert!(printed.contains(expected), "{printed}");
    }
    let denied = namespace.cluster.denied_requests(&namespace.name, "reader").await.unwrap();
    let expected = format!("list /api/v1/namespaces/{}/secrets?limit=500", namespace.name);
    assert_eq!(denied, [expected]);
}
