// SPDX-License-Identifier: Apache-2.0
//! A tenant never reads or changes a node that it neither owns nor leases, on any route, in random
//! fleets.

use access_policy::Caller;
use node_model::{
    Actor, HistoryEntry, HistoryId, Inventory, JournalEntry, JournalEvent, JsonObject, Node,
    NodeId, ProvisionState, Severity,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use store::ResourceQuery;
use uuid::Uuid;

use crate::every_route::{PolicyRoute, documented_routes};
use crate::fixture::{NOW, PolicyFixture, project_caller};

const PROJECTS: [&str; 3] = ["tenant-a", "tenant-b", "tenant-c"];
const ROLES: [&[&str]; 5] = [
    &["reader"],
    &["member", "reader"],
    &["manager", "member", "reader"],
    &["admin", "manager", "member", "reader"],
    &["service"],
];
/// Number of random fleets.
const FLEETS: u32 = 6;

/// A node of a random fleet.
#[derive(Clone, Debug)]
struct FleetNode {
    owner: Option<usize>,
    lessee: Option<usize>,
    state: ProvisionState,
}

/// A node with everything that belongs to it. `mark` is part of all its texts.
#[derive(Clone, Debug)]
struct MarkedNode {
    id: NodeId,
    mark: String,
    /// Ids of its resources, by the name of their path parameter.
    resources: Vec<(&'static str, String)>,
}

fn fleet() -> impl Strategy<Value = (Vec<FleetNode>, usize, usize)> {
    let states = prop_oneof![
        Just(ProvisionState::Available),
        Just(ProvisionState::Active),
        Just(ProvisionState::Manageable),
        Just(ProvisionState::Enroll),
    ];
    let project = || prop::option::weighted(0.7, 0..PROJECTS.len());
    let node = (project(), project(), states).prop_map(|(owner, lessee, state)| FleetNode {
        owner,
        lessee,
        state,
    });
    (prop::collection::vec(node, 3..7), 0..PROJECTS.len(), 0..ROLES.len())
}

#[test]
fn tenants_reach_only_their_own_nodes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner =
        TestRunner::new(Config { cases: FLEETS, failure_persistence: None, ..Config::default() });
    runner
        .run(&fleet(), |(nodes, project, roles)| {
            runtime.block_on(check_fleet(&nodes, project, ROLES[roles]));
            Ok(())
        })
        .unwrap();
}

async fn check_fleet(nodes: &[FleetNode], project: usize, roles: &[&str]) {
    let fixture = PolicyFixture::empty().await;
    let mut own = Vec::new();
    let mut foreign = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let marked = insert(&fixture, index, node).await;
        let is_own = node.owner == Some(project) || node.lessee == Some(project);
        if is_own { own.push(marked) } else { foreign.push(marked) }
    }
    let caller = project_caller(PROJECTS[project], roles);
    let before = foreign_rows(&fixture, &foreign).await;
    let context = format!("{nodes:?} {roles:?}");
    for route in documented_routes() {
        // The audit log contains the names that the caller itself sent.
        if route.is_public || route.path == "/v1/ferrite/audit-log" {
            continue;
        }
        if route.path.contains("{node}") || has_resource_parameter(&route) {
            for node in &foreign {
                check_foreign_resource(&fixture, &caller, &route, node, &context).await;
            }
        } else {
            check_collection(&fixture, &caller, &route, &foreign, &context).await;
        }
    }
    check_events(&fixture, &caller, &own, &foreign, nodes, project).await;
    assert_eq!(foreign_rows(&fixture, &foreign).await, before, "{context}");
}

const RESOURCE_PARAMETERS: [&str; 5] =
    ["{port}", "{portgroup}", "{connector}", "{target}", "{allocation}"];

fn has_resource_parameter(route: &PolicyRoute) -> bool {
    RESOURCE_PARAMETERS.iter().any(|parameter| route.path.contains(parameter))
}

/// A foreign node and its resources do not exist for the caller.
async fn check_foreign_resource(
    fixture: &PolicyFixture,
    caller: &Caller,
    route: &PolicyRoute,
    node: &MarkedNode,
    context: &str,
) {
    for node_ident in [node.id.to_string(), node.mark.clone()] {
        let mut path = route.path.replace("{node}", &node_ident);
        for (name, id) in &node.resources {
            path = path.replace(&format!("{{{name}}}"), id);
        }
        let path = with_query(&fill_rest(&path), &node_ident);
        for body in bodies(&route.method, &route.path, node) {
            let response = fixture.call(caller, &route.method, &path, &body).await;
            assert!(
                matches!(response.status, 400 | 403 | 404),
                "{} {path} {body}: {} {}; {context}",
                route.method,
                response.status,
                response.text
            );
            let named_in_request = node_ident == node.mark;
            if !named_in_request {
                assert!(!response.text.contains(&node.mark), "{path}: {}", response.text);
            }
        }
    }
}

/// A collection contains nothing of foreign nodes, with or without references to them.
async fn check_collection(
    fixture: &PolicyFixture,
    caller: &Caller,
    route: &PolicyRoute,
    foreign: &[MarkedNode],
    context: &str,
) {
    let mut queries = vec![String::new()];
    if route.method == "GET" {
        for node in foreign {
            queries.push(format!("?node={}", node.id));
            queries.push(format!("?marker={}", node.id));
            queries.push(format!("?parent_node={}", node.id));
            queries.push(format!("?text={}", &node.mark));
            queries.push(format!("?node_uuid={}", node.id));
        }
        for query in ["?project=tenant-a", "?owner=tenant-b", "?detail=true", "?after=0"] {
            queries.push(query.to_owned());
        }
    }
    let path = fill_rest(&route.path);
    let no_node = MarkedNode { id: NodeId(Uuid::nil()), mark: "x".to_owned(), resources: vec![] };
    for query in queries {
        for node in foreign.iter().chain([&no_node]) {
            for body in bodies(&route.method, &route.path, node) {
                let url = format!("{path}{query}");
                let response = fixture.call(caller, &route.method, &url, &body).await;
                for hidden in foreign {
                    let is_named =
                        body.to_string().contains(&hidden.mark) || url.contains(&hidden.mark);
                    assert!(
                        is_named || !response.text.contains(&hidden.mark),
                        "{} {url} {body}: {}; {context}",
                        route.method,
                        response.text
                    );
                }
                assert!(response.status < 500, "{} {url}: {}", route.method, response.text);
            }
            if route.method == "GET" {
                break;
            }
        }
    }
}

/// The event stream contains nothing of foreign nodes, and the owner's own events.
async fn check_events(
    fixture: &PolicyFixture,
    caller: &Caller,
    own: &[MarkedNode],
    foreign: &[MarkedNode],
    nodes: &[FleetNode],
    project: usize,
) {
    let owned = nodes.iter().enumerate().filter(|(_, node)| node.owner == Some(project));
    let Some(last) = owned.map(|(index, _)| mark(index)).next_back() else { return };
    let last = own.iter().find(|node| node.mark == last).expect("an own node");
    append_event(fixture, last.id, "last event of the test").await;
    let text =
        fixture.events_until(caller, "/v1/ferrite/events?after=0", "last event of the test").await;
    for hidden in foreign {
        assert!(!text.contains(&hidden.mark) && !text.contains(&hidden.id.to_string()), "{text}");
    }
}

fn mark(index: usize) -> String {
    format!("marked-{index}")
}

/// Inserts a node with one of each resource.
async fn insert(fixture: &PolicyFixture, index: usize, fleet_node: &FleetNode) -> MarkedNode {
    let mark = mark(index);
    let id = NodeId::random();
    let mut node = Node::new(id, "fake-hardware", NOW);
    node.name = Some(mark.clone());
    node.owner = fleet_node.owner.map(|project| PROJECTS[project].to_owned());
    node.lessee = fleet_node.lessee.map(|project| PROJECTS[project].to_owned());
    node.provision_state = fleet_node.state;
    node.last_error = Some(format!("error of {mark}"));
    node.extra.set("mark", Value::from(mark.as_str()));
    node.console_enabled = true;
    let serial = json!({"system_vendor": {"serial_number": mark}});
    let inventory = Inventory {
        node_id: id,
        created_at: NOW,
        inventory: JsonObject::from(serial.as_object().expect("an object").clone()),
        plugin_data: JsonObject::empty(),
        derived: JsonObject::empty(),
    };
    let history = HistoryId(Uuid::new_v4());
    let entry = HistoryEntry {
        id: history,
        node_id: id,
        created_at: NOW,
        event_type: "provisioning".to_owned(),
        severity: Severity::Error,
        event: mark.clone(),
        conductor: None,
        user: None,
        project: None,
        state: None,
        target_provision_state: None,
        duration_seconds: None,
    };
    fixture
        .store
        .write(move |writer| {
            writer.insert(&node)?;
            writer.set_inventory(&inventory)?;
            writer.add_history(&entry)
        })
        .await
        .unwrap();
    append_event(fixture, id, &mark).await;
    let uuid = || Uuid::new_v4().to_string();
    let (port, portgroup, connector, target, allocation) = (uuid(), uuid(), uuid(), uuid(), uuid());
    let extra = json!({"mark": mark});
    for (path, body) in [
        (
            "/v1/ports",
            json!({"node_uuid": id, "uuid": port, "address": format!("02:00:00:00:01:{index:02x}"), "extra": extra}),
        ),
        ("/v1/portgroups", json!({"node_uuid": id, "uuid": portgroup, "extra": extra})),
        (
            "/v1/volume/connectors",
            json!({"node_uuid": id, "uuid": connector, "type": "iqn", "connector_id": mark}),
        ),
        (
            "/v1/volume/targets",
            json!({
                "node_uuid": id, "uuid": target, "volume_type": "iscsi", "boot_index": 0,
                "volume_id": mark,
            }),
        ),
        (
            "/v1/allocations",
            json!({
                "uuid": allocation, "resource_class": "none", "extra": extra,
                "owner": fleet_node.owner.map_or("operator", |project| PROJECTS[project]),
            }),
        ),
    ] {
        fixture.create(path, body).await;
    }
    let mut resources = vec![
        ("port", port),
        ("portgroup", portgroup),
        ("connector", connector),
        ("target", target),
        ("event", history.0.to_string()),
    ];
    resources.push(("allocation", allocation));
    MarkedNode { id, mark, resources }
}

async fn append_event(fixture: &PolicyFixture, node_id: NodeId, text: &str) {
    let actor =
        Actor::User { name: Some(text.to_owned()), project: None, request_id: "req".to_owned() };
    let event = JournalEvent::Changed { fields: vec![text.to_owned()] };
    let entry = JournalEntry { at: NOW, node_id, actor, event };
    fixture
        .store
        .write(move |writer| {
            writer.append(entry.clone());
            Ok::<_, store::StoreError>(())
        })
        .await
        .unwrap();
}

/// The rows of foreign nodes and of their ports.
async fn foreign_rows(fixture: &PolicyFixture, foreign: &[MarkedNode]) -> Vec<String> {
    let ids: Vec<NodeId> = foreign.iter().map(|node| node.id).collect();
    fixture
        .store
        .read(move |reader| {
            let mut rows = Vec::new();
            for id in &ids {
                rows.push(format!("{:?}", reader.get(*id)?));
            }
            let filter = store::PortFilter { nodes: Some(ids), ..store::PortFilter::default() };
            for port in reader.collect(&ResourceQuery::<node_model::Port>::filtered(filter))? {
                rows.push(format!("{port:?}"));
            }
            Ok::<_, store::StoreError>(rows)
        })
        .await
        .unwrap()
}

/// Fills the path parameters that are left.
fn fill_rest(path: &str) -> String {
    path.split('/')
        .map(|segment| match segment {
            "{mac}" => "02:00:00:00:01:00",
            "{trait}" => "CUSTOM_X",
            "{indicator}" => "led@system",
            "{log}" => "1",
            segment if segment.starts_with('{') => "3f0d4a0c-6f1c-4a34-9f02-5d3f0f1b0001",
            segment => segment,
        })
        .collect::<Vec<_>>()
        .join("/")
}

fn with_query(path: &str, node: &str) -> String {
    if path.ends_with("/explain") {
        return format!("{path}?target=manage");
    }
    if path.ends_with("/vendor_passthru") {
        return format!("{path}?method=first_method");
    }
    if path == "/v1/nodes/validate" {
        return format!("{path}?node={node}");
    }
    path.to_owned()
}

/// Bodies that a handler would accept.
fn bodies(method: &str, path: &str, node: &MarkedNode) -> Vec<Value> {
    let id = node.id;
    let end = path.rsplit('/').next().unwrap_or_default();
    let patch = |field: &str, value: Value| json!([{"op": "add", "path": field, "value": value}]);
    match (method, end) {
        ("GET" | "DELETE", _) => vec![Value::Null],
        ("PATCH", "{node}") => vec![
            patch("/extra/x", json!("y")),
            patch("/owner", json!("tenant-a")),
            patch("/lessee", json!("tenant-a")),
            patch("/description", json!("x")),
            json!([]),
        ],
        ("PATCH", "{port}") => {
            vec![patch("/extra/x", json!("y")), patch("/node_uuid", json!(id))]
        }
        ("PATCH", _) => vec![patch("/extra/x", json!("y"))],
        (_, "provision") => vec![json!({"target": "manage"}), json!({"target": "active"})],
        (_, "power") => vec![json!({"target": "power on"})],
        (_, "boot_mode") => vec![json!({"target": "uefi"})],
        (_, "secure_boot") => vec![json!({"target": true})],
        (_, "raid") => vec![json!({"logical_disks": []})],
        ("PUT", "console") => vec![json!({"enabled": true})],
        ("POST", "console") => vec![json!({"text": "x"})],
        (_, "maintenance") => vec![json!({"reason": "x"})],
        ("PUT", "traits") => vec![json!({"traits": ["CUSTOM_X"]})],
        ("PUT", "{trait}" | "inject_nmi") => vec![Value::Null],
        (_, "boot_device") => vec![json!({"boot_device": "disk"})],
        (_, "{indicator}") => vec![json!({"state": "ON"})],
        (_, "vifs") => vec![json!({"id": "vif"})],
        (_, "vmedia") => vec![json!({"device_type": "cdrom", "image_url": "http://192.0.2.1/x"})],
        (_, "ports") => vec![json!({"node_uuid": id, "address": "02:00:00:00:02:01"})],
        (_, "portgroups") => vec![json!({"node_uuid": id})],
        (_, "connectors") => {
            vec![json!({"node_uuid": id, "type": "iqn", "connector_id": "new"})]
        }
        (_, "targets") => vec![json!({
            "node_uuid": id, "volume_type": "iscsi", "boot_index": 7, "volume_id": "v",
        })],
        (_, "allocations") => vec![
            json!({"resource_class": "x", "candidate_nodes": [id]}),
            json!({"resource_class": "x", "node": id}),
        ],
        (_, "explain") => {
            vec![json!({"target": "manage", "nodes": [id]}), json!({"target": "manage"})]
        }
        (_, "nodes") => vec![json!({"driver": "fake-hardware", "parent_node": id})],
        _ => vec![json!({})],
    }
}
