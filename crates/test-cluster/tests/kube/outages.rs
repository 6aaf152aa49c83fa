// SPDX-License-Identifier: Apache-2.0
//! Loss of the API server and of a node.

use serde_json::json;

use crate::cluster::{KubectlNamespace, file_server, get, is_available, poll, start};

#[tokio::test]
async fn pods_survive_the_api_server_and_move_from_a_lost_node() {
    if !is_available() {
        return;
    }
    let cluster = start().await;
    let namespace = KubectlNamespace::create(&cluster, "outage");
    let labels = json!({"app": "web"});
    namespace.apply(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [file_server()]},
        }},
    }));
    namespace.wait("condition=Available", "deployment/web");
    let field = |path: &str| {
        let all = namespace.kubectl(&["get", "pods", "--output", &format!("jsonpath={{{path}}}")]);
        all.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let address = field(".items[*].status.podIP").remove(0);
    cluster.stop_api_server().await;
    assert!(cluster.kubectl(&["get", "nodes"]).is_err());
    assert!(get(&address, "/name").is_some());
    cluster.start_api_server().await.unwrap();
    namespace.kubectl(&["scale", "deployment/web", "--replicas=2"]);
    namespace.wait_for_field("deployment/web", ".status.availableReplicas", "2");

    namespace.kubectl(&["scale", "deployment/web", "--replicas=1"]);
    namespace.wait_for_field("deployment/web", ".status.replicas", "1");
    poll("one pod", || (field(".items[*].metadata.name").len() == 1).then_some(()));
    let (pod, node) =
        (field(".items[*].metadata.name").remove(0), field(".items[*].spec.nodeName").remove(0));
    let address = field(".items[*].status.podIP").remove(0);
    cluster.lose_node(&node).unwrap();
    poll("no response from the lost node", || get(&address, "/name").is_none().then_some(()));
    namespace.wait("condition=Ready=Unknown", &format!("node/{node}"));
    poll("a pod on another node", || {
        let other = format!(".items[?(@.spec.nodeName!=\"{node}\")].status.phase");
        (field(&other) == ["Running"]).then_some(())
    });
    // The old pod cannot be deleted before its node is back.
    assert!(field(".items[*].metadata.name").contains(&pod));
    cluster.restore_node(&node).await.unwrap();
    namespace.wait("delete", &format!("pod/{pod}"));
    namespace.wait("condition=Ready", &format!("node/{node}"));
}
