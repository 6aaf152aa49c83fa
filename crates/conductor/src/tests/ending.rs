// SPDX-License-Identifier: Apache-2.0
//! How jobs end: the agent's logs are kept whatever goes wrong, and nodes are what they were.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use node_model::{InterfaceKind, LogKind, NodeId, ProvisionState, Verb};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::House;

/// An agent that knows one command, collecting logs, and counts how often it is told to.
async fn agent() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let times = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&times);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = Vec::new();
            let mut buffer = [0; 4096];
            while !String::from_utf8_lossy(&asked).contains("collect_system_logs") {
                match stream.read(&mut buffer).await {
                    Ok(length) if length > 0 => asked.extend_from_slice(&buffer[..length]),
                    Ok(_) | Err(_) => break,
                }
            }
            count.fetch_add(1, Ordering::SeqCst);
            let report = json!({
                "id": "1", "command_name": "collect_system_logs", "command_status": "SUCCEEDED",
                "command_result": {"system_logs": "H4sIAAAA"},
            });
            let body = report.to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    (url, times)
}

async fn logs(house: &House, id: NodeId) -> Vec<(LogKind, String)> {
    let logs = house.store.read(move |reader| reader.agent_logs(id)).await.unwrap();
    logs.into_iter().map(|log| (log.kind, log.why)).collect()
}

/// A node in `clean wait` with an agent at `url`, on which calls of its driver fail this way.
async fn waiting(house: &House, url: String, failure: &'static str) -> NodeId {
    let wait = json!({"fake_wait_for_agent": true});
    let id = house.node(ProvisionState::Manageable, wait).await;
    assert_eq!(house.through(id, Verb::Provide).await, ProvisionState::CleanWait);
    house
        .change(id, move |node| {
            node.agent.url = Some(url.clone());
            node.driver_info.set("fake_deploy_failure", failure);
        })
        .await;
    id
}

#[tokio::test]
async fn logs_are_kept_when_putting_things_back_fails() {
    let house = House::new();
    let (url, times) = agent().await;
    let id = waiting(&house, url, "tear_down_cleaning").await;
    assert_eq!(house.through(id, Verb::Abort).await, ProvisionState::CleanFail);
    let kept = logs(&house, id).await;
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(kept[0].0, LogKind::Clean);
    assert!(kept[0].1.contains("aborted"), "{kept:?}");
    assert_eq!(times.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn logs_are_asked_for_once_though_the_bmc_is_asked_again() {
    let house = House::new();
    let (url, times) = agent().await;
    let id = waiting(&house, url, "unreachable").await;
    house.ask(id, Verb::Abort).await.unwrap();
    for _ in 0..3 {
        house.work(id).await;
        assert!(house.get(id).await.work.is_some(), "the BMC is asked again");
        house.pass(Duration::from_secs(30));
    }
    assert_eq!(times.load(Ordering::SeqCst), 1);
    assert_eq!(logs(&house, id).await.len(), 1);
    house.change(id, |node| node.driver_info.remove("fake_deploy_failure")).await;
    assert_eq!(house.work(id).await, ProvisionState::CleanFail);
    assert_eq!(house.get(id).await.work, None);
    assert_eq!(logs(&house, id).await.len(), 1);
}

#[tokio::test]
async fn without_cleaning_too_the_interface_is_the_nodes_own_again() {
    let house = House::new();
    let deploy = InterfaceKind::Deploy;
    let id = house.node_with(ProvisionState::Active, json!({}), |node| {
        node.automated_clean = Some(false);
        node.interfaces.set(deploy, Some("direct"));
        node.driver_internal_info.set("original_deploy_interface", "autodetect");
    });
    let id = id.await;
    assert_eq!(house.through(id, Verb::Deleted).await, ProvisionState::Available);
    let node = house.get(id).await;
    assert_eq!(node.interfaces.get(deploy), Some("autodetect"), "{:?}", node.last_error);
    assert_eq!(node.driver_internal_info.get("original_deploy_interface"), None);
}
