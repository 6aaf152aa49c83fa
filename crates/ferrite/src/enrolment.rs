// SPDX-License-Identifier: Apache-2.0
//! Simulated machines as nodes with ports of an Ironic API.

use anyhow::Context as _;
use fleet_sim::Enrolment;
use ironic_client::{Api, ApiError, Method, Query, Target, segment};
use serde_json::{Value, json};

/// The API at an address, which may have a name and a password in it; `option` says where the address
/// comes from.
pub(crate) fn api_at(url: &str, option: &str) -> anyhow::Result<Api> {
    let target = Target::at(url, None, None, option).context("the address of the API")?;
    Ok(Api::new(target)?)
}

/// Creates a node with its ports; `more` are further fields. Returns false if there is a node of that
/// name; ports it lacks, because whoever made it broke off, are made all the same.
pub(crate) async fn create(api: &Api, node: &Enrolment, more: &Value) -> Result<bool, ApiError> {
    let mut body = json!({
        "name": node.name,
        "driver": node.driver,
        "driver_info": node.driver_info,
        "properties": node.properties,
        "resource_class": node.resource_class,
    });
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        body.extend(more.clone());
    }
    let (node_uuid, known) = match api.send(Method::POST, "/v1/nodes", Some(&body)).await {
        Ok(made) => (made["uuid"].clone(), None),
        Err(error) if error.status() == Some(409) => {
            let there = api.get(&format!("/v1/nodes/{}", segment(&node.name))).await?;
            let uuid = there["uuid"].as_str().unwrap_or_default();
            let query = Query::new().with("node", uuid).with("fields", "address");
            let ports = api.list("/v1/ports", "ports", &query).await?;
            (there["uuid"].clone(), Some(ports))
        }
        Err(error) => return Err(error),
    };
    for port in &node.ports {
        let is_same = |known: &Value| {
            known["address"].as_str().is_some_and(|it| it.eq_ignore_ascii_case(&port.address))
        };
        if known.iter().flatten().any(is_same) {
            continue;
        }
        let body = json!({"node_uuid": node_uuid, "address": port.address});
        api.send(Method::POST, "/v1/ports", Some(&body)).await?;
    }
    Ok(known.is_none())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};

    use fleet_sim::EnrolmentPort;

    use super::*;

    /// A request, without its query, and its body.
    fn read(stream: &TcpStream) -> (String, String) {
        let mut reader = BufReader::new(stream);
        let (mut first, mut length) = (String::new(), 0);
        reader.read_line(&mut first).unwrap();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim_end().to_lowercase() {
                line if line.is_empty() => break,
                line => {
                    let number = line.strip_prefix("content-length: ").map(str::parse);
                    length = number.map_or(length, Result::unwrap);
                }
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let line = first.trim_end_matches(" HTTP/1.1\r\n").split('?').next().unwrap().to_owned();
        (line, String::from_utf8(body).unwrap())
    }

    /// A server that has the node with one of its ports. Gives the ports that are made there.
    fn server() -> (Api, Arc<Mutex<Vec<Value>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let made = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&made);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let (line, body) = read(&stream);
                let (status, answer) = match &*line {
                    "POST /v1/nodes" => (409, json!({"error_message": "it is there"})),
                    "GET /v1/nodes/n" => (200, json!({"uuid": "u"})),
                    "GET /v1/ports" => (200, json!({"ports": [{"address": "0a"}]})),
                    _ => {
                        log.lock().unwrap().push(serde_json::from_str(&body).unwrap());
                        (201, json!({}))
                    }
                };
                let answer = answer.to_string();
                let length = answer.len();
                let head = "X\r\nConnection: close\r\nContent-Length:";
                let text = format!("HTTP/1.1 {status} {head} {length}\r\n\r\n{answer}");
                stream.write_all(text.as_bytes()).unwrap();
            }
        });
        (api_at(&url, "a test").unwrap(), made)
    }

    #[tokio::test]
    async fn a_node_that_was_made_in_part_gets_its_ports() {
        let (api, made) = server();
        let port = |address: &str| EnrolmentPort { address: address.to_owned() };
        let node = Enrolment {
            name: "n".to_owned(),
            driver: "redfish".to_owned(),
            driver_info: [].into(),
            properties: serde_json::Map::new(),
            resource_class: "big".to_owned(),
            ports: vec![port("0A"), port("0B")],
        };
        assert!(!create(&api, &node, &json!({})).await.unwrap());
        assert_eq!(*made.lock().unwrap(), [json!({"node_uuid": "u", "address": "0B"})]);
    }
}
