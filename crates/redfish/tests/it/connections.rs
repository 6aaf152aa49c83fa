// SPDX-License-Identifier: Apache-2.0
//! Connections that are refused, closed, reset or time out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redfish::{RedfishClient, RedfishEndpoint, RedfishError, RedfishTimeouts};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::bmc::{BmcTestResponse, ScriptedBmc, client};

/// A BMC that reads each request, sends a fixed response and closes. Counts its connections.
async fn closing_bmc(responses: Vec<&'static str>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let _ = socket.read(&mut [0; 4096]).await;
            let response = responses.get(number).or(responses.last()).unwrap();
            let _ = socket.write_all(response.as_bytes()).await;
        }
    });
    (address, connections)
}

const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{";

#[tokio::test]
async fn reading_survives_a_connection_that_breaks_once() {
    for broken in ["", HALF] {
        let (address, connections) = closing_bmc(vec![broken, WHOLE]).await;
        client(RedfishEndpoint::parse(&address).unwrap()).get("/x").await.unwrap();
        assert_eq!(connections.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn reading_gives_up_when_it_breaks_again() {
    let (address, connections) = closing_bmc(vec![""]).await;
    let error = client(RedfishEndpoint::parse(&address).unwrap()).get("/x").await.unwrap_err();
    assert!(matches!(error, RedfishError::Unreachable { .. }), "{error}");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_change_is_not_repeated_when_the_connection_breaks() {
    let (address, connections) = closing_bmc(vec!["", WHOLE]).await;
    let client = client(RedfishEndpoint::parse(&address).unwrap());
    let error = client.post("/x", &json!({})).await.unwrap_err();
    assert!(matches!(error, RedfishError::Unreachable { .. }), "{error}");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn connections_are_kept_and_shared() {
    let bmc = ScriptedBmc::start(|_| BmcTestResponse::json(200, &json!({}))).await;
    bmc.client().get("/a").await.unwrap();
    bmc.client().post("/b", &json!({})).await.unwrap();
    assert_eq!(bmc.connections(), 1);
}

#[tokio::test]
async fn a_closed_connection_is_not_used_again() {
    let (address, connections) = closing_bmc(vec![WHOLE]).await;
    let client = client(RedfishEndpoint::parse(&address).unwrap());
    client.get("/a").await.unwrap();
    client.post("/b", &json!({})).await.unwrap();
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn explains_unreachable_addresses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = client(RedfishEndpoint::parse(&address).unwrap()).get("/x").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "no response from the BMC at {address}: nothing listens at that port (connection refused)"
        )
    );
    // A name this long is rejected without a DNS query.
    let nowhere = format!("http://{}", "x".repeat(80));
    let error = client(RedfishEndpoint::parse(&nowhere).unwrap()).get("/x").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "no response from the BMC at {nowhere}: its host name is not known to the name servers"
        )
    );
}

#[tokio::test]
async fn a_hanging_bmc_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let timeouts =
        RedfishTimeouts { connect: Duration::from_secs(5), request: Duration::from_millis(50) };
    let turns = Arc::new(Semaphore::new(1));
    let client =
        RedfishClient::new(RedfishEndpoint::parse(&address).unwrap(), timeouts, Arc::clone(&turns))
            .unwrap();
    let error = client.get("/x").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("no response from the BMC at {address}: no complete response within 0.05 s")
    );
    assert_eq!(turns.available_permits(), 1, "the turn is given back");
}

#[tokio::test]
async fn limits_concurrent_requests() {
    let turns = Arc::new(Semaphore::new(1));
    let seen = Arc::clone(&turns);
    let bmc = ScriptedBmc::start(move |_| {
        assert_eq!(seen.available_permits(), 0);
        BmcTestResponse::json(200, &json!({}))
    })
    .await;
    let endpoint = RedfishEndpoint::parse(&bmc.address).unwrap();
    let one = RedfishClient::new(endpoint.clone(), RedfishTimeouts::default(), Arc::clone(&turns))
        .unwrap();
    let other =
        RedfishClient::new(endpoint, RedfishTimeouts::default(), Arc::clone(&turns)).unwrap();
    let (a, b, c) = tokio::join!(one.get("/a"), one.get("/b"), other.get("/c"));
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    turns.close();
    let error = one.get("/a").await.unwrap_err();
    assert!(matches!(error, RedfishError::Closed { .. }), "{error}");
}
