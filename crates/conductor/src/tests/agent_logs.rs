// SPDX-License-Identifier: Apache-2.0
//! Collection of agent logs at the end of a job, and restored interfaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use node_model::{AgentLogKind, InterfaceKind, NodeId, ProvisionState, Verb};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::TestConductor;

/// An agent that implements only the log command, with a counter of its calls.
async fn log_agent() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let times = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&times);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            while !String::from_utf8_lossy(&request).contains("collect_system_logs") {
                match stream.read(&mut buffer).await {
                    Ok(length) if length > 0 => request.extend_from_slice(&buffer[..length]),
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

async fn logs(test: &TestConductor, id: NodeId) -> Vec<(AgentLogKind, String)> {
    let logs = test.store.read(move |reader| reader.agent_logs(id)).await.unwrap();
    logs.into_iter().map(|log| (log.kind, log.reason)).collect()
}

/// A node in `clean wait` with an agent at `url`, whose driver calls fail as given.
async fn waiting(test: &TestConductor, url: String, failure: &'static str) -> NodeId {
    let wait = json!({"fake_wait_for_agent": true});
    let id = test.insert_node(ProvisionState::Manageable, wait).await;
    assert_eq!(test.run_verb(id, Verb::Provide).await, ProvisionState::CleanWait);
    test.change(id, move |node| {
        node.agent.url = Some(url.clone());
        node.driver_info.set("fake_deploy_failure", failure);
    })
    .await;
    id
}

#[tokio::test]
async fn stores_logs_when_clean_up_fails() {
    let test = TestConductor::new();
    let (url, times) = log_agent().await;
    let id = waiting(&test, url, "tear_down_cleaning").await;
    assert_eq!(test.run_verb(id, Verb::Abort).await, ProvisionState::CleanFail);
    let stored = logs(&test, id).await;
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert_eq!(stored[0].0, AgentLogKind::Clean);
    assert!(stored[0].1.contains("aborted"), "{stored:?}");
    assert_eq!(times.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn requests_logs_once_when_the_bmc_is_retried() {
    let test = TestConductor::new();
    let (url, times) = log_agent().await;
    let id = waiting(&test, url, "unreachable").await;
    test.request(id, Verb::Abort).await.unwrap();
    for _ in 0..3 {
        test.run_node(id).await;
        assert!(test.get(id).await.work.is_some(), "the BMC is retried");
        test.advance(Duration::from_secs(30));
    }
    assert_eq!(times.load(Ordering::SeqCst), 1);
    assert_eq!(logs(&test, id).await.len(), 1);
    test.change(id, |node| node.driver_info.remove("fake_deploy_failure")).await;
    assert_eq!(test.run_node(id).await, ProvisionState::CleanFail);
    assert_eq!(test.get(id).await.work, None);
    assert_eq!(logs(&test, id).await.len(), 1);
}

#[tokio::test]
async fn restores_the_deploy_interface_without_cleaning() {
    let test = TestConductor::new();
    let deploy = InterfaceKind::Deploy;
    let id = test.insert_node_with(ProvisionState::Active, json!({}), |node| {
        node.automated_clean = Some(false);
        node.interfaces.set(deploy, Some("direct"));
        node.driver_internal_info.set("original_deploy_interface", "autodetect");
    });
    let id = id.await;
    assert_eq!(test.run_verb(id, Verb::Deleted).await, ProvisionState::Available);
    let node = test.get(id).await;
    assert_eq!(node.interfaces.get(deploy), Some("autodetect"), "{:?}", node.last_error);
    assert_eq!(node.driver_internal_info.get("original_deploy_interface"), None);
}
