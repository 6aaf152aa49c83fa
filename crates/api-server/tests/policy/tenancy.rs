// SPDX-License-Identifier: Apache-2.0
//! Deployments, quotas and the audit log for owners, lessees, operators and others.

use std::time::Duration;

use access_policy::{Caller, CallerScope};
use node_model::{DeploymentId, DeploymentState, Node, NodeId, PowerState, ProvisionState};
use serde_json::{Value, json};

use crate::fixture::{NOW, PolicyFixture, PolicyOptions, caller, project_caller};

const READER: &[&str] = &["reader"];
const MEMBER: &[&str] = &["member", "reader"];
const ADMIN: &[&str] = &["admin", "manager", "member", "reader"];
const DEPLOYMENTS: &str = "/v1/ferrite/deployments";

async fn fixture() -> (PolicyFixture, NodeId) {
    let fixture = PolicyFixture::empty().await;
    let mut node = Node::new(NodeId::random(), "fake-hardware", NOW);
    node.name = Some("n1".to_owned());
    node.owner = Some("owner".to_owned());
    node.lessee = Some("lessee".to_owned());
    node.resource_class = Some("big".to_owned());
    node.provision_state = ProvisionState::Available;
    let id = node.id;
    fixture.store.write(move |writer| writer.insert(&node)).await.unwrap();
    (fixture, id)
}

fn request() -> Value {
    json!({
        "resource_class": "big", "image": "http://images/a", "user_data": "#cloud-config secret",
        "lease": {"duration": 3600},
    })
}

fn system(roles: &[&str]) -> Caller {
    caller(CallerScope::System, None, roles)
}

async fn call(
    fixture: &PolicyFixture,
    who: &Caller,
    method: &str,
    path: &str,
    body: Value,
    status: u16,
) -> Value {
    let response = fixture.call(who, method, path, &body).await;
    assert_eq!(response.status, status, "{method} {path} {who:?}: {}", response.text);
    serde_json::from_str(&response.text).unwrap_or_default()
}

#[tokio::test]
async fn owners_and_lessees_deploy_and_only_owners_update() {
    let (fixture, node) = fixture().await;
    let lessee = project_caller("lessee", MEMBER);
    let owner = project_caller("owner", MEMBER);
    let third = project_caller("third", ADMIN);
    call(&fixture, &project_caller("lessee", READER), "POST", DEPLOYMENTS, request(), 403).await;
    for field in ["deploy_kernel", "rescue_ramdisk", "kernel_append_params"] {
        let mut own_ramdisk = request();
        own_ramdisk["instance_info"] = json!({ field: "http://lessee/agent" });
        call(&fixture, &lessee, "POST", DEPLOYMENTS, own_ramdisk, 400).await;
    }
    call(
        &fixture,
        &caller(CallerScope::Unscoped, None, ADMIN),
        "POST",
        DEPLOYMENTS,
        request(),
        403,
    )
    .await;
    let foreign = json!({"nodes": ["n1"], "image": "http://images/a"});
    call(&fixture, &third, "POST", DEPLOYMENTS, foreign, 400).await;
    let mut for_others = request();
    for_others["project"] = json!("owner");
    call(&fixture, &lessee, "POST", DEPLOYMENTS, for_others, 403).await;
    let created = call(&fixture, &lessee, "POST", DEPLOYMENTS, request(), 202).await;
    assert_eq!(created["deployed_by"]["project"], "lessee");
    assert_eq!(created["instance"]["user_data"], "******");
    let uuid = created["uuid"].as_str().unwrap().to_owned();
    // As the conductor does.
    let id: DeploymentId = uuid.parse().unwrap();
    fixture
        .store
        .write(move |writer| {
            let mut deployment = writer.get(id)?.unwrap();
            deployment.node_id = Some(node);
            writer.save(&mut deployment)?;
            let mut node = writer.get(node)?.unwrap();
            node.instance_uuid = Some(id.0);
            writer.save(&mut node)
        })
        .await
        .unwrap();
    let path = format!("{DEPLOYMENTS}/{uuid}");
    let extend = json!({"lease": {"extend_by": 60}});
    for (who, method, body, status) in [
        (&lessee, "GET", Value::Null, 200),
        (&owner, "GET", Value::Null, 200),
        (&third, "GET", Value::Null, 404),
        (&system(READER), "GET", Value::Null, 200),
        (&third, "PATCH", extend.clone(), 404),
        (&lessee, "PATCH", extend.clone(), 403),
        (&system(READER), "PATCH", extend.clone(), 403),
        (&owner, "PATCH", extend, 200),
        (&third, "DELETE", Value::Null, 404),
        (&project_caller("lessee", READER), "DELETE", Value::Null, 403),
        (&lessee, "DELETE", Value::Null, 202),
    ] {
        call(&fixture, who, method, &path, body, status).await;
    }
    for (who, count) in [(&lessee, 1), (&owner, 1), (&third, 0), (&system(READER), 1)] {
        let list = call(&fixture, who, "GET", DEPLOYMENTS, Value::Null, 200).await;
        assert_eq!(list["deployments"].as_array().unwrap().len(), count, "{who:?}");
    }
    lost_machines_stay_hidden(&fixture, node, id).await;
}

/// After another instance was deployed on the machine, its owner does not see the deployment, and the lessee
/// still does not see the machine's error.
async fn lost_machines_stay_hidden(fixture: &PolicyFixture, node: NodeId, id: DeploymentId) {
    fixture
        .store
        .write(move |writer| {
            let mut deployment = writer.get(id)?.unwrap();
            deployment.state = DeploymentState::Failed;
            deployment.last_error = Some("BMC 192.0.2.9 does not respond".to_owned());
            writer.save(&mut deployment)?;
            let mut node = writer.get(node)?.unwrap();
            node.instance_uuid = None;
            writer.save(&mut node)
        })
        .await
        .unwrap();
    let path = format!("{DEPLOYMENTS}/{id}");
    let (lessee, owner) = (project_caller("lessee", MEMBER), project_caller("owner", MEMBER));
    let shown = call(fixture, &lessee, "GET", &path, Value::Null, 200).await;
    assert_eq!(shown["node"], Value::Null);
    assert!(!shown.to_string().contains("192.0.2.9"), "{shown}");
    call(fixture, &owner, "GET", &path, Value::Null, 404).await;
    let list = call(fixture, &owner, "GET", DEPLOYMENTS, Value::Null, 200).await;
    assert_eq!(list["deployments"], json!([]));
}

#[tokio::test]
async fn leases_of_projects_are_limited() {
    let max_lease = Some(Duration::from_secs(3600));
    let fixture = PolicyFixture::with(&PolicyOptions { max_lease, ..Default::default() }).await;
    let member = project_caller("lessee", MEMBER);
    let body =
        |lease: Value| json!({"resource_class": "big", "image": "http://i/a", "lease": lease});
    call(&fixture, &member, "POST", DEPLOYMENTS, body(json!({"duration": 3601})), 400).await;
    let made =
        call(&fixture, &member, "POST", DEPLOYMENTS, body(json!({"duration": 60})), 202).await;
    let path = format!("{DEPLOYMENTS}/{}", made["uuid"].as_str().unwrap());
    for (lease, status) in [
        (json!({"extend_by": 3600}), 400),
        (json!({"unlimited": true}), 400),
        (json!({"duration": 3600}), 200),
        (json!({"at_end": "notify"}), 200),
    ] {
        call(&fixture, &member, "PATCH", &path, json!({"lease": lease}), status).await;
    }
    let without = json!({"resource_class": "big", "image": "http://i/a"});
    let made = call(&fixture, &member, "POST", DEPLOYMENTS, without.clone(), 202).await;
    assert!(made["lease"]["expires_at"].is_string(), "{made}");
    let made = call(&fixture, &system(ADMIN), "POST", DEPLOYMENTS, without, 202).await;
    assert!(made["lease"]["expires_at"].is_null(), "{made}");
}

#[tokio::test]
async fn quotas_limit_deployments_and_allocations() {
    let (fixture, _) = fixture().await;
    // An allocation without a machine fails and does not count.
    let mut small = Node::new(NodeId::random(), "fake-hardware", NOW);
    small.owner = Some("lessee".to_owned());
    small.resource_class = Some("small".to_owned());
    small.provision_state = ProvisionState::Available;
    small.power_state = Some(PowerState::Off);
    fixture.store.write(move |writer| writer.insert(&small)).await.unwrap();
    let lessee = project_caller("lessee", ADMIN);
    let path = "/v1/ferrite/quotas/lessee";
    let limits = json!({"machines": 2, "resource_class:big": 1});
    call(&fixture, &lessee, "PUT", path, limits.clone(), 403).await;
    call(&fixture, &system(MEMBER), "PUT", path, limits.clone(), 403).await;
    call(&fixture, &system(ADMIN), "PUT", path, json!({"machine": 1}), 400).await;
    call(&fixture, &system(ADMIN), "PUT", path, json!({"machines": -1}), 400).await;
    call(&fixture, &system(ADMIN), "PUT", path, limits, 200).await;
    call(&fixture, &lessee, "POST", DEPLOYMENTS, request(), 202).await;
    call(&fixture, &lessee, "POST", DEPLOYMENTS, request(), 403).await;
    let allocation = |class: &str| json!({"resource_class": class});
    call(&fixture, &lessee, "POST", "/v1/allocations", allocation("big"), 403).await;
    call(&fixture, &lessee, "POST", "/v1/allocations", allocation("small"), 201).await;
    call(&fixture, &lessee, "POST", "/v1/allocations", allocation("small"), 403).await;
    call(&fixture, &system(ADMIN), "POST", "/v1/allocations", allocation("big"), 201).await;
    let own = call(&fixture, &lessee, "GET", path, Value::Null, 200).await;
    assert_eq!(own["machines_used"], 2);
    assert_eq!(own["limits"][0], json!({"subject": "machines", "machines": 2, "used": 2}));
    call(&fixture, &project_caller("third", ADMIN), "GET", path, Value::Null, 404).await;
    call(&fixture, &system(ADMIN), "DELETE", path, Value::Null, 204).await;
    call(&fixture, &lessee, "POST", DEPLOYMENTS, request(), 202).await;
}

#[tokio::test]
async fn audit_log_has_changes_and_refusals() {
    let (fixture, node) = fixture().await;
    let (owner, third) = (project_caller("owner", ADMIN), project_caller("third", ADMIN));
    let patch = json!([{"op": "add", "path": "/extra/x", "value": 1}]);
    call(&fixture, &owner, "PATCH", "/v1/nodes/n1", patch.clone(), 200).await;
    call(&fixture, &owner, "GET", "/v1/nodes/n1", Value::Null, 200).await;
    call(&fixture, &owner, "GET", "/v1/nodes/nope", Value::Null, 404).await;
    call(&fixture, &third, "PATCH", "/v1/nodes/n1", patch, 404).await;
    call(&fixture, &third, "GET", "/v1/nodes/n1", Value::Null, 404).await;
    call(&fixture, &third, "GET", "/v1/ferrite/topology", Value::Null, 403).await;
    call(&fixture, &owner, "POST", "/v1/nodes", json!({"driver": "none"}), 400).await;
    let created = call(
        &fixture,
        &owner,
        "POST",
        "/v1/ports",
        json!({"node_uuid": node, "address": "02:00:00:00:00:01"}),
        201,
    )
    .await;
    let log = "/v1/ferrite/audit-log";
    let all = call(&fixture, &system(READER), "GET", log, Value::Null, 200).await;
    let shown: Vec<Value> = all["entries"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|entry| {
            json!([
                entry["project"],
                entry["method"],
                entry["status"],
                entry["outcome"],
                entry["resource_type"],
                entry["resource_id"],
            ])
        })
        .collect();
    let id = node.to_string();
    assert_eq!(
        shown,
        [
            json!(["owner", "PATCH", 200, "accepted", "node", id]),
            json!(["third", "PATCH", 404, "refused", "node", "n1"]),
            json!(["third", "GET", 404, "refused", "node", "n1"]),
            json!(["third", "GET", 403, "refused", "topology", null]),
            json!(["owner", "POST", 400, "refused", "node", null]),
            json!(["owner", "POST", 201, "accepted", "port", created["uuid"]]),
        ]
    );
    let last = &all["entries"][0];
    assert!(last["request_id"].as_str().unwrap().starts_with("req-"), "{last}");
    assert_eq!(last["roles"], json!(["admin", "manager", "member", "reader"]));
    for (query, count) in [
        ("?project=third", 3),
        ("?resource=n1", 3),
        (&*format!("?resource={id}"), 1),
        ("?outcome=accepted", 2),
        ("?resource_type=port", 1),
        ("?from=2020-01-01&to=2020-01-02", 0),
        ("?limit=2", 2),
    ] {
        let found =
            call(&fixture, &system(READER), "GET", &format!("{log}{query}"), Value::Null, 200)
                .await;
        assert_eq!(found["entries"].as_array().unwrap().len(), count, "{query}");
    }
    let first =
        call(&fixture, &system(READER), "GET", &format!("{log}?limit=4"), Value::Null, 200).await;
    let next = format!("{log}?limit=4&marker={}", first["next"].as_str().unwrap());
    let rest = call(&fixture, &system(READER), "GET", &next, Value::Null, 200).await;
    assert_eq!((rest["entries"].as_array().unwrap().len(), &rest["next"]), (2, &Value::Null));
    // A manager sees the requests of the own project; members see nothing, which is a refusal itself.
    let own = call(&fixture, &owner, "GET", log, Value::Null, 200).await;
    assert_eq!(own["entries"].as_array().unwrap().len(), 3);
    call(&fixture, &owner, "GET", &format!("{log}?project=third"), Value::Null, 403).await;
    call(&fixture, &project_caller("owner", MEMBER), "GET", log, Value::Null, 403).await;
    for query in ["?outcome=maybe", "?from=soon", "?format=xml", "?marker=x", "?unknown=1"] {
        call(&fixture, &system(READER), "GET", &format!("{log}{query}"), Value::Null, 400).await;
    }
}
