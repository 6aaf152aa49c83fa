// SPDX-License-Identifier: Apache-2.0
//! The processes that share a database.

use node_model::{ConductorInfo, Timestamp};
use serde_json::json;

use crate::support::fixture::{Fixture, NOW};

fn other(hostname: &str, renewed_at: Timestamp, online: bool) -> ConductorInfo {
    ConductorInfo {
        hostname: hostname.to_owned(),
        run: None,
        version: Some("0.2.0".to_owned()),
        conductor_group: "remote".to_owned(),
        drivers: vec!["fake-hardware".to_owned()],
        created_at: Timestamp(0),
        updated_at: renewed_at,
        online,
    }
}

#[tokio::test]
async fn shows_processes_their_nodes_and_their_lag() {
    let fixture = Fixture::start().await;
    let others = [
        other("conductor-2", NOW, true),
        other("dead", Timestamp(0), true),
        other("offline", NOW, false),
    ];
    fixture
        .store
        .write(move |writer| {
            others.iter().try_for_each(|other| writer.record_conductor_heartbeat(other))
        })
        .await
        .unwrap();
    fixture.node("idle", |_| {}).await;
    fixture.node("late", |node| node.due_at = Some(Timestamp(NOW.0 - 2_500_000))).await;
    fixture.node("remote", |node| node.conductor_group = "remote".to_owned()).await;
    fixture.node("foreign", |node| node.conductor_group = "unknown".to_owned()).await;
    let response = fixture.get("/v1/ferrite/cluster", "").await;
    assert_eq!(response.status, 200, "{}", response.body);
    let found = response.json();
    let replicas = found["replicas"].as_array().unwrap();
    let row = |hostname: &str| {
        let row = replicas.iter().find(|row| row["hostname"] == hostname).unwrap();
        json!([row["state"], row["version"], row["nodes"], row["late"], row["lag_seconds"]])
    };
    assert_eq!(row("conductor-1"), json!(["online", null, 2, 1, 2.5]));
    assert_eq!(row("conductor-2"), json!(["online", "0.2.0", 1, 0, 0.0]));
    assert_eq!(row("dead"), json!(["dead", "0.2.0", 0, 0, 0.0]));
    assert_eq!(row("offline"), json!(["offline", "0.2.0", 0, 0, 0.0]));
    assert_eq!(found["unmanaged_nodes"], 1);
    assert_eq!(found["shared_database"], false);
    let queues = found["queues"].as_array().unwrap();
    assert!(queues.iter().all(|queue| queue["waiting"] == 0), "{queues:?}");
    assert_eq!(fixture.get("/v1/ferrite/cluster?x=1", "").await.status, 400);
}
