// SPDX-License-Identifier: Apache-2.0
//! The web page's files over the wire, and signing in to it.

use std::path::Path;

use api_server::AuthStrategy;
use serde_json::json;

use crate::fixture::{Fixture, Response};

/// The cheapest hash there is: tests pay for it often.
const CHEAP: u32 = 4;
const FROM_PAGE: &str = "X-Ferrite-Page: 1\r\n";

fn write_password(file: &Path, password: &str) {
    let hash = bcrypt::hash(password, CHEAP).unwrap();
    std::fs::write(file, format!("me:{hash}\n")).unwrap();
}

async fn fixture(file: &Path) -> Fixture {
    write_password(file, "right");
    Fixture::with(|config| config.auth = AuthStrategy::Basic { file: file.to_owned() }).await
}

async fn sign_in(fixture: &Fixture, user: &str, password: &str, headers: &str) -> Response {
    let body = json!({"username": user, "password": password}).to_string();
    fixture.send("POST", "/ui/session", headers, body.as_bytes()).await
}

/// `Cookie: …` of an answer that sets one.
fn cookie(response: &Response) -> String {
    let set = response.header("set-cookie").expect("a cookie is set");
    format!("Cookie: {}\r\n", set.split(';').next().unwrap())
}

#[tokio::test]
async fn files() {
    let fixture = Fixture::start().await;
    for path in ["/ui", "/ui/", "/ui/fleet", "/ui/machines/r01-u01", "/ui/machines/a.b"] {
        let answer = fixture.get(path, "").await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-cache"), "{path}");
        assert!(answer.header("content-security-policy").unwrap().contains("default-src 'self'"));
        assert!(
            answer.header("content-security-policy").unwrap().contains("frame-ancestors 'none'")
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    }
    let frame = fixture.get("/ui", "").await;
    let script = frame.body.split("src=\"").find(|rest| rest.contains("main.js\"")).unwrap();
    let script = script.split('"').next().unwrap();
    let answer = fixture.get(script, "").await;
    assert_eq!(answer.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert!(answer.header("cache-control").unwrap().contains("immutable"), "{}", answer.head);
    let etag = answer.header("etag").unwrap();
    let again = fixture.get(script, &format!("If-None-Match: {etag}\r\n")).await;
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    let packed = fixture.get(script, "Accept-Encoding: gzip, br\r\n").await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    for missing in ["/ui/app/none.js", "/ui/@0/app/none.js", "/ui/style/../lib.rs"] {
        assert_eq!(fixture.get(missing, "").await.status, 404, "{missing}");
    }
    assert_eq!(fixture.send("POST", "/ui", "", b"").await.status, 405);
}

#[tokio::test]
async fn without_passwords_nobody_signs_in() {
    let fixture = Fixture::start().await;
    let told = fixture.get("/ui/session", "").await;
    assert_eq!(told.json(), json!({"needed": false, "user": null}));
}

#[tokio::test]
async fn signing_in_and_out() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(&dir.path().join("htpasswd")).await;
    let told = fixture.get("/ui/session", "").await;
    assert_eq!(told.json(), json!({"needed": true, "user": null}));

    for (user, password, headers, status) in [
        ("me", "wrong", FROM_PAGE, 401),
        ("you", "right", FROM_PAGE, 401),
        ("me", "right", "", 403),
    ] {
        let refused = sign_in(&fixture, user, password, headers).await;
        assert_eq!(refused.status, status, "{user} {password}: {}", refused.body);
        assert_eq!(refused.header("set-cookie"), None);
        assert_eq!(refused.header("www-authenticate"), None, "the page has a form of its own");
    }
    for body in ["", "{}", "[]", r#"{"username": "me"}"#, r#"{"username": 1, "password": 2}"#] {
        let refused = fixture.send("POST", "/ui/session", FROM_PAGE, body.as_bytes()).await;
        assert_eq!(refused.status, 400, "{body}: {}", refused.body);
    }

    let signed_in = sign_in(&fixture, "me", "right", FROM_PAGE).await;
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

    let out = fixture.send("DELETE", "/ui/session", &format!("{cookie}{FROM_PAGE}"), b"").await;
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"), "{}", out.head);
    assert_eq!(fixture.get("/v1/probe/x", &cookie).await.status, 401, "it is over");
}

#[tokio::test]
async fn a_cookie_alone_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(&dir.path().join("htpasswd")).await;
    let cookie = cookie(&sign_in(&fixture, "me", "right", FROM_PAGE).await);
    for (method, headers, status) in [
        ("GET", cookie.clone(), 200),
        ("POST", cookie.clone(), 403),
        ("PUT", cookie.clone(), 403),
        ("POST", format!("{cookie}{FROM_PAGE}"), 200),
        ("POST", FROM_PAGE.to_owned(), 401),
    ] {
        let answer = fixture.send(method, "/v1/probe/x", &headers, b"").await;
        assert_eq!(answer.status, status, "{method} {headers}: {}", answer.body);
    }
}

#[tokio::test]
async fn cookies_that_are_no_good() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("htpasswd");
    let fixture = fixture(&file).await;
    let good = cookie(&sign_in(&fixture, "me", "right", FROM_PAGE).await);
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
        let refused = fixture.get("/v1/probe/x", &bad).await;
        assert_eq!(refused.status, 401, "{bad}");
        assert_eq!(refused.header("www-authenticate"), None, "the page has a form of its own");
    }
    // Who says a password is asked for that, whatever cookie comes along.
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
async fn event_streams_of_the_page_raise_no_dialog() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(&dir.path().join("htpasswd")).await;
    let refused = fixture.get("/v1/ferrite/events", "Accept: text/event-stream\r\n").await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, None));
    let others = fixture.get("/v1/ferrite/events", "").await;
    assert!(others.header("www-authenticate").is_some());
}

/// Consoles are for those who have signed in, and no other site can type through a browser.
#[tokio::test]
async fn who_may_read_a_console_and_type() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(&dir.path().join("htpasswd")).await;
    fixture.node("n", |_| {}).await;
    let credentials = json!({"username": "me", "password": "right"}).to_string();
    let signed_in = fixture.send("POST", "/ui/session", FROM_PAGE, credentials.as_bytes()).await;
    let cookie = cookie(&signed_in);
    let path = "/v1/ferrite/nodes/n/console";
    // The console is off: 409 is what those are told who may ask.
    for (method, headers, status) in [
        ("GET", String::new(), 401),
        ("POST", String::new(), 401),
        ("POST", FROM_PAGE.to_owned(), 401),
        ("GET", cookie.clone(), 409),
        ("POST", cookie.clone(), 403),
        ("POST", format!("{cookie}{FROM_PAGE}"), 409),
    ] {
        let body = if method == "POST" { br#"{"text": "x"}"#.as_slice() } else { b"" };
        let answer = fixture.send(method, path, &headers, body).await;
        assert_eq!(answer.status, status, "{method} {headers}: {}", answer.body);
    }
}
