// SPDX-License-Identifier: Apache-2.0
//! The nodes of the cluster: objects, heartbeats, networks.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::KubeletContext;

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// A node to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestNode {
    /// The name.
    pub name: String,
    /// Labels besides the name and the architecture.
    pub labels: BTreeMap<String, String>,
    /// Key and effect of taints.
    pub taints: Vec<(String, String)>,
}

impl TestNode {
    /// A node for all pods.
    #[must_use]
    pub fn worker(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// A node with label and taint of the control plane.
    #[must_use]
    pub fn control_plane(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: BTreeMap::from([(CONTROL_PLANE.to_owned(), String::new())]),
            taints: vec![(CONTROL_PLANE.to_owned(), "NoSchedule".to_owned())],
        }
    }

    fn object(&self) -> Value {
        let mut labels = self.labels.clone();
        labels.extend([
            ("kubernetes.io/hostname".to_owned(), self.name.clone()),
            ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
        ]);
        let taints: Vec<Value> =
            self.taints.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"taints": taints},
        })
    }
}

/// Creates the object of a node.
pub(super) async fn register(client: &Client, node: &TestNode) -> Result<()> {
    let object: Node = serde_json::from_value(node.object())?;
    Api::all(client.clone()).create(&PostParams::default(), &object).await?;
    Ok(())
}

/// Writes heartbeats of all nodes that are not lost, for ever.
pub(super) async fn send_heartbeats(context: Arc<KubeletContext>) {
    loop {
        for (name, address) in context.running_nodes() {
            // The next one follows soon.
            let _missed = heartbeat(&context.client, &name, address).await;
        }
        sleep(HEARTBEAT_INTERVAL).await;
    }
}

/// Writes the status and the lease of a node.
pub(super) async fn heartbeat(client: &Client, name: &str, address: Ipv4Addr) -> Result<()> {
    let now = Timestamp::now();
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "1000"});
    let status = json!({"status": {
        "capacity": resources,
        "allocatable": resources,
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name},
        ],
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "the test kubelet is running",
            "lastHeartbeatTime": now,
        }],
    }});
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(&status)).await?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(now),
        },
    });
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let parameters = PatchParams::apply("test-kubelet").force();
    leases.patch(name, &parameters, &Patch::Apply(&lease)).await?;
    Ok(())
}
