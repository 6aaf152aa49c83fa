// SPDX-License-Identifier: Apache-2.0
//! Microversion negotiation and version headers.

use crate::support::fixture::Fixture;

#[tokio::test]
async fn negotiates_the_version() {
    let fixture = Fixture::start().await;
    let ironic = |version: &str| format!("X-OpenStack-Ironic-API-Version: {version}\r\n");
    let openstack = |version: &str| format!("OpenStack-API-Version: {version}\r\n");
    for (headers, status, versions) in [
        (String::new(), 200, "1.1 1.1 1.115"),
        (ironic("1.40"), 200, "1.40 1.1 1.115"),
        (ironic("latest"), 200, "1.115 1.1 1.115"),
        (openstack("baremetal 1.41"), 200, "1.41 1.1 1.115"),
        (ironic("1.40") + &openstack("baremetal 1.41"), 200, "1.41 1.1 1.115"),
        (ironic("1.0"), 406, "- 1.1 1.115"),
        (ironic("1.116"), 406, "- 1.1 1.115"),
        (ironic("2.1"), 406, "- 1.1 1.115"),
        (ironic("nonsense"), 406, "- - -"),
        (ironic("\u{e9}"), 406, "- - -"),
    ] {
        let response = fixture.get("/v1/probe/x", &headers).await;
        assert_eq!(
            (response.status, response.versions().as_str()),
            (status, versions),
            "{headers}"
        );
    }
}

#[tokio::test]
async fn rejects_clients_older_than_the_endpoint() {
    let fixture = Fixture::start().await;
    for (method, version, status) in [
        ("GET", "1.49", 404),
        ("GET", "1.50", 200),
        ("POST", "1.49", 405),
        ("POST", "1.50", 200),
        ("PUT", "1.49", 406),
        ("PUT", "1.50", 200),
    ] {
        let header = format!("X-OpenStack-Ironic-API-Version: {version}\r\n");
        let response = fixture.send(method, "/v1/young", &header, b"").await;
        assert_eq!(response.status, status, "{method} at {version}");
        assert_eq!(response.versions(), format!("{version} 1.1 1.115"));
    }
}

#[tokio::test]
async fn unversioned_endpoints_ignore_version_headers() {
    let fixture = Fixture::start().await;
    for path in ["/healthz", "/readyz", "/metrics"] {
        let response = fixture.get(path, "X-OpenStack-Ironic-API-Version: nonsense\r\n").await;
        assert_eq!((response.status, response.versions().as_str()), (200, "- - -"), "{path}");
    }
}

#[tokio::test]
async fn every_response_has_a_request_id() {
    let fixture = Fixture::start().await;
    for path in ["/v1/probe/x", "/nope", "/healthz", "/v1/probe/%"] {
        let response = fixture.get(path, "X-OpenStack-Request-ID: req-mine\r\n").await;
        let id = response.header("openstack-request-id").expect("a request id");
        assert!(id.starts_with("req-") && id.len() == 40, "{id}");
        assert_eq!(response.header("x-openstack-request-id"), Some(id), "{path}");
    }
}
