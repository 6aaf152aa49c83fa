// SPDX-License-Identifier: Apache-2.0
//! Files of the web UI, and its sessions.

use std::path::Path;

use authentication::AuthSettings;
use serde_json::json;

use crate::support::fixture::{Fixture, RawResponse};

/// The lowest bcrypt cost, to keep the tests fast.
const LOWEST_COST: u32 = 4;
const FROM_WEB_UI: &str = "X-Ferrite-Page: 1\r\n";

fn write_password(file: &Path, password: &str) {
    let hash = bcrypt::hash(password, LOWEST_COST).unwrap();
    std::fs::write(file, format!("me:{hash}\n")).unwrap();
}

async fn fixture(file: &Path) -> Fixture {
    write_password(file, "right");
    Fixture::with(|config| config.auth = AuthSettings::htpasswd(file.to_owned())).await
}

async fn sign_in(fixture: &Fixture, user: &str, password: &str, headers: &str) -> RawResponse {
    let body = json!({"username": user, "password": password}).to_string();
    fixture.send("POST", "/ui/session", headers, body.as_bytes()).await
}

/// The `Cookie` header line for a response with `Set-Cookie`.
fn cookie(response: &RawResponse) -> String {
    let set = response.header("set-cookie").expect("a cookie is set");
    format!("Cookie: {}\r\n", set.split(';').next().unwrap())
}

#[tokio::test]
async fn serves_files_and_pages() {
    let fixture = Fixture::start().await;
    for path in ["/ui", "/ui/", "/ui/fleet", "/ui/machines/r01-u01", "/ui/machines/a.b"] {
        let response = fixture.get(path, "").await;
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        assert_eq!(response.header("cache-control"), Some("no-cache"), "{path}");
        assert!(response.header("content-security-policy").unwrap().contains("default-src 'self'"));
        assert!(
            response.header("content-security-policy").unwrap().contains("frame-ancestors 'none'")
        );
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(response.header("referrer-policy"), Some("no-referrer"));
    }
    let index = fixture.get("/ui", "").await;
    let script = index.body.split("src=\"").find(|rest| rest.contains("main.js\"")).unwrap();
    let script = script.split('"').next().unwrap();
    let response = fixture.get(script, "").await;
    assert_eq!(response.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert!(response.header("cache-control").unwrap().contains("immutable"), "{}", response.head);
    let etag = response.header("etag").unwrap();
    let again = fixture.get(script, &format!("If-None-Match: {etag}\r\n")).await;
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    let compressed = fixture.get(script, "Accept-Encoding: gzip, br\r\n").await;
    assert_eq!(compressed.header("content-encoding"), Some("gzip"));
    for missing in ["/ui/app/none.js", "/ui/@0/app/none.js", "/ui/style/../lib.rs"] {
        assert_eq!(fixture.get(missing, "").await.status, 404, "{missing}");
    }
    assert_eq!(fixture.send("POST", "/ui", "", b"").await.status, 405);
}

#[tokio::test]
async fn sessions_are_not_needed_without_authentication() {
    let fixture = Fixture::start().await;
    let session = fixture.get("/ui/session", "").await;
    assert_eq!(session.json(), json!({"needed": false, "user": null}));
}

#[tokio::test]
async fn signs_in_and_out() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(&dir.path().join("htpasswd")).await;
    let session = fixture.get("/ui/session", "").await;
    assert_eq!(session.json(), json!({"needed": true, "user": null}));
    // Not pages of the web UI: without OpenID Connect they do not exist.
    for path in ["/ui/oidc/login", "/ui/oidc/callback?code=c&state=s"] {
        assert_eq!(fixture.get(path, "").await.status, 404, "{path}");
    }

    for (user, password, headers, status) in [
        ("me", "wrong", FROM_WEB_UI, 401),
        ("you", "right", FROM_WEB_UI, 401),
        ("me", "right", "", 403),
    ] {
        let rejected = sign_in(&fixture, user, password, headers).await;
        assert_eq!(rejected.status, status, "{user} {password}: {}", rejected.body);
        assert_eq!(rejected.header("set-cookie"), None);
        assert_eq!(rejected.header("www-authenticate"), None, "the web UI has its own login form");
    }
    for body in ["", "{}", "[]", r#"{"username": "me"}"#, r#"{"username": 1, "password": 2}"#] {
        let rejected = fixture.send("POST", "/ui/session", FROM_WEB_UI, body.as_bytes()).await;
        assert_eq!(rejected.status, 400, "{body}: {}", rejected.body);
    }

    let signed_in = sign_in(&fixture, "me", "right", FROM_WEB_UI).await;
    assert_eq!(signed_in.json(), json!({"needed": true, "user": "me"}));
    let set = signed_in.header("set-cookie").unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(set.contains(attribute), "{set}");
    }
    assert!(!set.contains("Secure"), "{set}");
    let cookie = cookie(&signed_in);
    assert_eq!(fixture.get("/ui/session", &cookie).await.json()["user"], "me");
    let shown = fixture.get("/v1/probe/x", &cookie).await;
    assert_eq!(shown.status, 200);
    assert!(shown.body.contains(r#"Some(\"me\")"#), "{}", shown.body);

    let out = fixture.send("DELETE", "/ui/session", &format!("{cookie}{FROM_WEB_UI}"), b"").await;
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"), "{}", out.head);
    assert_eq!(fixture.get("/v1/probe/x", &cookie).await.status, 401, "the session has ended");
}

#[tokio::test]
async fn rejects_changes_with_a_cookie_alone() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(&dir.path().join("htpasswd")).await;
    let cookie = cookie(&sign_in(&fixture, "me", "right", FROM_WEB_UI).await);
    for (method, headers, status) in [
        ("GET", cookie.clone(), 200),
        ("POST", cookie.clone(), 403),
        ("PUT", cookie.clone(), 403),
        ("POST", format!("{cookie}{FROM_WEB_UI}"), 200),
        ("POST", FROM_WEB_UI.to_owned(), 401),
    ] {
        let response = fixture.send(method, "/v1/probe/x", &headers, b"").await;
        assert_eq!(response.status, status, "{method} {headers}: {}", response.body);
    }
}

#[tokio::test]
async fn rejects_invalid_and_outdated_cookies() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("htpasswd");
    let fixture = fixture(&file).await;
    let good = cookie(&sign_in(&fixture, "me", "right", FROM_WEB_UI).await);
    let mut forged = good.trim_end().to_owned();
    let last = if forged.ends_with('A') { 'B' } else { 'A' };
    forged.pop();
    forged.push(last);
    let long = "a".repeat(4000);
    for bad in [
        format!("{forged}\r\n"),
        "Cookie: ferrite_session=\r\n".to_owned(),
        "Cookie: ferrite_session=nonsense\r\n".to_owned(),
        format!("Cookie: ferrite_session={long}\r\n"),
    ] {
        let rejected = fixture.get("/v1/probe/x", &bad).await;
        assert_eq!(rejected.status, 401, "{bad}");
        assert_eq!(rejected.header("www-authenticate"), None, "the web UI has its own login form");
    }
    // The Authorization header takes precedence over the cookie.
    let wrong = format!("{good}Authorization: Basic bWU6d3Jvbmc=\r\n");
    assert_eq!(fixture.get("/v1/probe/x", &wrong).await.status, 401);

    assert_eq!(fixture.get("/v1/probe/x", &good).await.status, 200);
    write_password(&file, "another");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while fixture.get("/v1/probe/x", &good).await.status == 200 {
        assert!(std::time::Instant::now() < deadline, "a new password ends old sessions");
    }
}

#[tokio::test]
async fn event_streams_open_no_password_dialog() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(&dir.path().join("htpasswd")).await;
    let rejected = fixture.get("/v1/ferrite/events", "Accept: text/event-stream\r\n").await;
    assert_eq!((rejected.status, rejected.header("www-authenticate")), (401, None));
    let others = fixture.get("/v1/ferrite/events", "").await;
    assert!(others.header("www-authenticate").is_some());
}

/// Consoles need authentication, and other sites cannot send input through a browser.
#[tokio::test]
async fn consoles_need_authentication() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(&dir.path().join("htpasswd")).await;
    fixture.node("n", |_| {}).await;
    let credentials = json!({"username": "me", "password": "right"}).to_string();
    let signed_in = fixture.send("POST", "/ui/session", FROM_WEB_UI, credentials.as_bytes()).await;
    let cookie = cookie(&signed_in);
    let path = "/v1/ferrite/nodes/n/console";
    // The console is disabled: authorized requests get 409.
    for (method, headers, status) in [
        ("GET", String::new(), 401),
        ("POST", String::new(), 401),
        ("POST", FROM_WEB_UI.to_owned(), 401),
        ("GET", cookie.clone(), 409),
        ("POST", cookie.clone(), 403),
        ("POST", format!("{cookie}{FROM_WEB_UI}Content-Type: application/json\r\n"), 409),
    ] {
        let body = if method == "POST" { br#"{"text": "x"}"#.as_slice() } else { b"" };
        let response = fixture.send(method, path, &headers, body).await;
        assert_eq!(response.status, status, "{method} {headers}: {}", response.body);
    }
}
