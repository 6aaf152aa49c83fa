// SPDX-License-Identifier: Apache-2.0
//! Basic authentication.

use api_server::{AuthStrategy, Authenticator};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::support::fixture::Fixture;

/// The lowest bcrypt cost, to keep the tests fast.
const LOWEST_COST: u32 = 4;

fn basic(credentials: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(credentials))
}

async fn fixture(file: &std::path::Path) -> Fixture {
    let hash = bcrypt::hash("right", LOWEST_COST).unwrap();
    std::fs::write(file, format!("me:{hash}\n")).unwrap();
    Fixture::with(|config| config.auth = AuthStrategy::Basic { file: file.to_owned() }).await
}

#[tokio::test]
async fn checks_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(&dir.path().join("htpasswd")).await;
    for (headers, status) in [
        (String::new(), 401),
        (basic("me:right"), 200),
        (basic("me:right"), 200), // cached
        (basic("me:wrong"), 401),
        (basic("me:"), 401),
        (basic("you:right"), 401),
        (basic("nocolon"), 400),
        ("Authorization: Basic ???\r\n".to_owned(), 400),
        ("Authorization: Basic\r\n".to_owned(), 400),
        ("Authorization: Bearer abc\r\n".to_owned(), 400),
    ] {
        let response = fixture.get("/v1/probe/x", &headers).await;
        assert_eq!(response.status, status, "{headers}: {}", response.body);
        if status == 401 {
            let realm = response.header("www-authenticate");
            assert_eq!(realm, Some(r#"Basic realm="Baremetal API""#));
            let body: serde_json::Value = serde_json::from_str(&response.body).unwrap();
            assert_eq!(body["error"]["code"], 401);
        }
        if status == 200 {
            assert!(response.body.contains(r#"Some(\"me\")"#), "{}", response.body);
        }
    }
    let missing = fixture.get("/v1/probe/x", "").await;
    assert_eq!(missing.message(), "Authorization required");
}

#[tokio::test]
async fn public_paths_need_no_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(&dir.path().join("htpasswd")).await;
    for (path, status) in
        [("/healthz", 200), ("/metrics", 200), ("/v1/probe/x/panic", 500), ("/nope", 401)]
    {
        assert_eq!(fixture.get(path, "").await.status, status, "{path}");
    }
}

#[tokio::test]
async fn first_start_generates_a_valid_password() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("htpasswd");
    let strategy = AuthStrategy::Basic { file };
    let (_, generated) = Authenticator::new(&strategy).unwrap();
    let generated = generated.expect("the file was missing");
    let password = std::fs::read_to_string(&generated.path).unwrap();
    let fixture = Fixture::with(|config| config.auth = strategy).await;
    let header = basic(&format!("{}:{}", generated.user, password.trim()));
    assert_eq!(fixture.get("/v1/probe/x", &header).await.status, 200);
}
