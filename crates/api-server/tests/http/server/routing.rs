// SPDX-License-Identifier: Apache-2.0
//! Ironic's routing rules: optional prefix, trailing slash, suffixes, errors.

use crate::support::fixture::{Fixture, exchange};

const OLD: &str = "X-OpenStack-Ironic-API-Version: 1.90\r\n";
const NEW: &str = "X-OpenStack-Ironic-API-Version: 1.91\r\n";

#[tokio::test]
async fn normalizes_paths() {
    let fixture = Fixture::start().await;
    for (path, headers, name) in [
        ("/v1/probe/x", "", "x"),
        ("/v1/probe/x/", "", "x"),
        ("/probe/x", "", "x"),
        ("/v1/prob%65/%78", "", "x"),
        ("/v1/probe/a%20b", "", "a b"),
        ("/v1/probe/x.json", OLD, "x"),
        ("/v1/probe/x.json", NEW, "x.json"),
        ("/v1/probe/x.json", "", "x.json"),
    ] {
        let response = fixture.get(path, headers).await;
        assert_eq!(response.status, 200, "{path}");
        assert!(response.body.contains(&format!("\\\"{name}\\\"")), "{path}: {}", response.body);
    }
}

#[tokio::test]
async fn router_errors() {
    let fixture = Fixture::start().await;
    for (method, path, status, versions, allow) in [
        ("GET", "/nope", 404, "- - -", None),
        ("GET", "/v1/nope", 404, "- - -", None),
        ("GET", "/v2", 404, "- - -", None),
        ("GET", "/v1/probe/x/y/z", 404, "1.1 1.1 1.115", None),
        ("DELETE", "/v1/probe/x", 405, "- - -", Some("GET, POST, PUT")),
        ("HEAD", "/v1/probe/x", 405, "- - -", Some("GET, POST, PUT")),
        ("BREW", "/v1/probe/x", 405, "- - -", Some("GET, POST, PUT")),
        ("OPTIONS", "/v1/probe/x", 200, "- - -", Some("GET, POST, PUT")),
        ("HEAD", "/healthz", 200, "- - -", None),
        ("GET", "/v1/probe/%2F", 400, "- - -", None),
        ("GET", "/v1/probe/%ff", 400, "- - -", None),
        ("GET", "/v1/probe/x?a=%f", 400, "1.1 1.1 1.115", None),
    ] {
        let response = fixture.send(method, path, "", b"").await;
        let actual = (response.status, response.versions(), response.header("allow"));
        assert_eq!(actual, (status, versions.to_owned(), allow), "{method} {path}");
    }
    let long = format!("/v1/probe/{}", "x".repeat(3000));
    assert_eq!(fixture.get(&long, "").await.status, 400);
}

#[tokio::test]
async fn a_panic_does_not_close_the_connection() {
    let fixture = Fixture::start().await;
    let request = |path: &str, connection: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\n\r\n")
    };
    let both = request("/v1/probe/x/panic", "keep-alive") + &request("/v1/probe/x", "close");
    let response = exchange(fixture.server.address(), both.as_bytes()).await;
    let text = String::from_utf8(response).unwrap();
    assert!(text.starts_with("HTTP/1.1 500"), "{text}");
    let id = text.split("openstack-request-id: ").nth(1).unwrap().split("\r\n").next().unwrap();
    assert!(text.contains(&format!("under {id}")), "the message contains the request id: {text}");
    assert!(text.contains("HTTP/1.1 200"), "the connection stays open: {text}");
}

#[tokio::test]
async fn links_use_the_host_header_if_it_is_valid() {
    let fixture = Fixture::start().await;
    let own = format!("http://{}", "127.0.0.1:0");
    for (host, base) in [
        ("api.example:6385", "http://api.example:6385"),
        ("[::1]:6385", "http://[::1]:6385"),
        ("", own.as_str()),
    ] {
        let request = format!(
            "GET /v1/probe/x HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n\r\n"
        );
        let response = exchange(fixture.server.address(), request.as_bytes()).await;
        let text = String::from_utf8(response).unwrap();
        assert!(text.contains(&format!(" {base} ")), "{host}: {text}");
    }
    for host in ["evil.example", "evil\"<script>"] {
        let request =
            format!("GET /v1/probe/x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let response = exchange(fixture.server.address(), request.as_bytes()).await;
        assert!(response.starts_with(b"HTTP/1.1 421 "), "{host}");
    }
    let fixture = Fixture::with(|config| config.trust_forwarded_headers = true).await;
    let response = fixture.get("/v1/probe/x", "X-Forwarded-Proto: https\r\n").await;
    assert!(response.body.contains("https://api.example:6385"), "{}", response.body);
    let fixture =
        Fixture::with(|config| config.public_endpoint = Some("https://metal.example".into())).await;
    let response = fixture.get("/v1/probe/x", "").await;
    assert!(response.body.contains(" https://metal.example "), "{}", response.body);
}
