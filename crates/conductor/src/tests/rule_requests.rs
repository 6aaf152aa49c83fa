// SPDX-License-Identifier: Apache-2.0
//! HTTP requests of inspection rules.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use inspection::{ApiCall, InspectionSettings};
use node_model::ProvisionState;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::TestConductor;
use crate::rule_requests;

/// A server that responds with `statuses`, then with 200, and records the request heads.
async fn server(statuses: &'static [&'static str]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::new(Mutex::new(Vec::new()));
    let recorded = heads.clone();
    tokio::spawn(async move {
        let mut statuses = statuses.iter();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            recorded.lock().unwrap().push(String::from_utf8(head).unwrap());
            let status = statuses.next().unwrap_or(&"200 OK");
            let response =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    });
    (address, heads)
}

fn request(url: String, retries: u32) -> ApiCall {
    ApiCall {
        url,
        headers: BTreeMap::from([("X-Key".to_owned(), "hunter2".to_owned())]),
        proxies: BTreeMap::new(),
        timeout: 5.0,
        retries,
        backoff_factor: 0.0,
    }
}

#[tokio::test]
async fn sends_allowed_requests_and_records_their_results() {
    let (address, heads) =
        server(&["503 Busy", "200 OK", "404 None", "302 Found\r\nLocation: /elsewhere"]).await;
    let test = TestConductor::with_inspection(InspectionSettings {
        api_call_allowed: vec![format!("{address}/cmdb")],
        ..InspectionSettings::default()
    });
    let id = test.insert_node(ProvisionState::Manageable, json!({})).await;
    let requests = vec![
        request(format!("{address}/cmdb/one?key=hunter2"), 3),
        request(format!("{address}/cmdb/two"), 3),
        request(format!("{address}/cmdb/three"), 0),
        request(format!("{address}/admin"), 3),
    ];
    rule_requests::send_all(test.conductor.clone(), id, requests).await;
    let notes: Vec<String> =
        test.notes(id).await.iter().map(|text| text.replace(&address, "")).collect();
    assert_eq!(
        notes,
        [
            "api-call: requested /cmdb/one: 200",
            "api-call: request of /cmdb/two failed: the server returned 404",
            "api-call: request of /cmdb/three failed: the server returned 302",
            "api-call: request of /admin failed: inspection.api_call_allowed does not allow this URL",
        ]
    );
    let heads = heads.lock().unwrap();
    let lines: Vec<&str> = heads.iter().map(|head| head.lines().next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "GET /cmdb/one?key=hunter2 HTTP/1.1",
            "GET /cmdb/one?key=hunter2 HTTP/1.1",
            "GET /cmdb/two HTTP/1.1",
            "GET /cmdb/three HTTP/1.1",
        ]
    );
    assert!(heads[0].to_lowercase().contains("x-key: hunter2"), "{}", heads[0]);
}

#[tokio::test]
async fn records_an_unreachable_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let test = TestConductor::with_inspection(InspectionSettings {
        api_call_allowed: vec![address.clone()],
        ..InspectionSettings::default()
    });
    let id = test.insert_node(ProvisionState::Manageable, json!({})).await;
    let requests = vec![request(format!("{address}/?secret=hunter2"), 1)];
    rule_requests::send_all(test.conductor.clone(), id, requests).await;
    let journal = format!("{:?}", test.journal(id).await);
    assert!(journal.contains("failed") && journal.contains("2 attempts"), "{journal}");
    assert!(!journal.contains("hunter2"), "{journal}");
}
