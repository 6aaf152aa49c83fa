// SPDX-License-Identifier: Apache-2.0
//! Requests that inspection rules ask for, against a server that notes what it is asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use inspection::{ApiCall, Settings};
use node_model::ProvisionState;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::House;
use crate::api_call;

/// Answers requests one after the other with `answers`, then with 200, and notes their heads.
async fn server(answers: &'static [&'static str]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::new(Mutex::new(Vec::new()));
    let noted = heads.clone();
    tokio::spawn(async move {
        let mut answers = answers.iter();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            noted.lock().unwrap().push(String::from_utf8(head).unwrap());
            let status = answers.next().unwrap_or(&"200 OK");
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address, heads)
}

fn call(url: String, retries: u32) -> ApiCall {
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
async fn what_is_allowed_is_asked_and_told() {
    let (address, heads) =
        server(&["503 Busy", "200 OK", "404 None", "302 Found\r\nLocation: /elsewhere"]).await;
    let house = House::with(Settings {
        api_call_allowed: vec![format!("{address}/cmdb")],
        ..Settings::default()
    });
    let id = house.node(ProvisionState::Manageable, json!({})).await;
    let calls = vec![
        call(format!("{address}/cmdb/one?key=hunter2"), 3),
        call(format!("{address}/cmdb/two"), 3),
        call(format!("{address}/cmdb/three"), 0),
        call(format!("{address}/admin"), 3),
    ];
    api_call::carry_out(house.conductor.clone(), id, calls).await;
    let told: Vec<String> =
        house.notes(id).await.iter().map(|text| text.replace(&address, "")).collect();
    assert_eq!(
        told,
        [
            "api-call: asked for /cmdb/one: 200",
            "api-call: asked for /cmdb/two in vain: it answered 404",
            "api-call: asked for /cmdb/three in vain: it answered 302",
            "api-call: asked for /admin in vain: inspection.api_call_allowed does not allow this address",
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
async fn a_server_that_is_not_there_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let house =
        House::with(Settings { api_call_allowed: vec![address.clone()], ..Settings::default() });
    let id = house.node(ProvisionState::Manageable, json!({})).await;
    let calls = vec![call(format!("{address}/?secret=hunter2"), 1)];
    api_call::carry_out(house.conductor.clone(), id, calls).await;
    let story = format!("{:?}", house.journal(id).await);
    assert!(story.contains("in vain") && story.contains("2 tries"), "{story}");
    assert!(!story.contains("hunter2"), "{story}");
}
