// SPDX-License-Identifier: Apache-2.0
//! Health checks and metrics.

use node_model::{ConductorInfo, Timestamp};

use crate::support::fixture::Fixture;

#[tokio::test]
async fn ready_while_a_conductor_is_alive() {
    let fixture = Fixture::start().await;
    assert_eq!(fixture.get("/readyz", "").await.status, 200);
    let dead = ConductorInfo {
        hostname: "conductor-1".to_owned(),
        run: None,
        version: None,
        conductor_group: String::new(),
        drivers: Vec::new(),
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        online: true,
    };
    fixture.store.write(move |writer| writer.record_conductor_heartbeat(&dead)).await.unwrap();
    let response = fixture.get("/readyz", "").await;
    assert_eq!(response.status, 503, "{}", response.body);
    assert!(response.body.contains("no conductor"), "{}", response.body);
    assert_eq!(fixture.get("/healthz", "").await.status, 200);
}

#[tokio::test]
async fn not_ready_without_writes() {
    let fixture = Fixture::start().await;
    assert_eq!(fixture.get("/readyz", "").await.status, 200);
    fixture.store.clone().close();
    // The result of a test is used again for a second.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let response = loop {
        let response = fixture.get("/readyz", "").await;
        if response.status != 200 || std::time::Instant::now() > deadline {
            break response;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!(response.status, 503, "{}", response.body);
    assert!(response.body.contains("the database does not accept writes"), "{}", response.body);
    assert_eq!(fixture.get("/healthz", "").await.status, 200);
}

#[tokio::test]
async fn metrics_count_requests_by_route() {
    let fixture = Fixture::start().await;
    for path in ["/v1/probe/a", "/v1/probe/b", "/v1/probe/c?x=%f", "/nope"] {
        fixture.get(path, "").await;
    }
    let metrics = fixture.get("/metrics", "").await.body;
    for line in [
        r#"ferrite_http_requests_total{method="GET",route="/v1/probe/{name}",class="2xx"} 2"#,
        r#"ferrite_http_requests_total{method="GET",route="/v1/probe/{name}",class="4xx"} 1"#,
        r#"ferrite_http_requests_total{method="",route="none",class="4xx"} 1"#,
        r#"ferrite_http_request_duration_seconds_count{method="GET",route="/v1/probe/{name}"} 3"#,
        "ferrite_http_requests_in_flight 1",
    ] {
        assert!(metrics.contains(line), "{line} is missing in {metrics}");
    }
}
