// SPDX-License-Identifier: Apache-2.0
//! Connections that are refused, closed, reset or never answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redfish::{Client, Endpoint, Error, Timeouts};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::bmc::{Bmc, Say, client};

/// A BMC that reads each request, sends what it is told to and closes. Counts its connections.
async fn rude(answers: Vec<&'static str>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let _ = socket.read(&mut [0; 4096]).await;
            let answer = answers.get(number).or(answers.last()).unwrap();
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    (address, connections)
}

const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{";

#[tokio::test]
async fn reading_survives_a_connection_that_breaks_once() {
    for broken in ["", HALF] {
        let (address, connections) = rude(vec![broken, WHOLE]).await;
        client(Endpoint::parse(&address).unwrap()).get("/x").await.unwrap();
        assert_eq!(connections.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn reading_gives_up_when_it_breaks_again() {
    let (address, connections) = rude(vec![""]).await;
    let error = client(Endpoint::parse(&address).unwrap()).get("/x").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_change_is_not_repeated_when_the_connection_breaks() {
    let (address, connections) = rude(vec!["", WHOLE]).await;
    let client = client(Endpoint::parse(&address).unwrap());
    let error = client.post("/x", &json!({})).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn connections_are_kept_and_shared() {
    let bmc = Bmc::start(|_| Say::json(200, &json!({}))).await;
    bmc.client().get("/a").await.unwrap();
    bmc.client().post("/b", &json!({})).await.unwrap();
    assert_eq!(bmc.connections(), 1);
}

#[tokio::test]
async fn a_closed_connection_is_not_used_again() {
    let (address, connections) = rude(vec![WHOLE]).await;
    let client = client(Endpoint::parse(&address).unwrap());
    client.get("/a").await.unwrap();
    client.post("/b", &json!({})).await.unwrap();
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn nobody_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = client(Endpoint::parse(&address).unwrap()).get("/x").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "no answer from the BMC at {address}: nothing listens at that port (connection refused)"
        )
    );
    // No name server is asked for a name this long: that there is none is known at once.
    let nowhere = format!("http://{}", "x".repeat(80));
    let error = client(Endpoint::parse(&nowhere).unwrap()).get("/x").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "no answer from the BMC at {nowhere}: its host name is not known to the name servers"
        )
    );
}

#[tokio::test]
async fn a_hanging_bmc_costs_no_more_than_its_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let timeouts = Timeouts { connect: Duration::from_secs(5), request: Duration::from_millis(50) };
    let turns = Arc::new(Semaphore::new(1));
    let client =
        Client::new(Endpoint::parse(&address).unwrap(), timeouts, Arc::clone(&turns)).unwrap();
    let error = client.get("/x").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("no answer from the BMC at {address}: it gave no whole answer within 0.05 s")
    );
    assert_eq!(turns.available_permits(), 1, "the turn is given back");
}

#[tokio::test]
async fn no_more_requests_at_once_than_turns() {
    let turns = Arc::new(Semaphore::new(1));
    let seen = Arc::clone(&turns);
    let bmc = Bmc::start(move |_| {
        assert_eq!(seen.available_permits(), 0);
        Say::json(200, &json!({}))
    })
    .await;
    let endpoint = Endpoint::parse(&bmc.address).unwrap();
    let one = Client::new(endpoint.clone(), Timeouts::default(), Arc::clone(&turns)).unwrap();
    let other = Client::new(endpoint, Timeouts::default(), Arc::clone(&turns)).unwrap();
    let (a, b, c) = tokio::join!(one.get("/a"), one.get("/b"), other.get("/c"));
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    turns.close();
    let error = one.get("/a").await.unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error}");
}
