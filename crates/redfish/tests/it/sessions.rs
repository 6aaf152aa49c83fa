// SPDX-License-Identifier: Apache-2.0
//! Logging in, staying in, logging out.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use redfish::{Auth, Endpoint, Error, Patience};
use serde_json::json;

use crate::bmc::{Asked, Bmc, Say, client};

/// A BMC whose current session is the given number: `forget` adds one to it.
async fn with_sessions(valid: Arc<AtomicUsize>) -> Bmc {
    Bmc::start(move |asked| {
        let current = valid.load(Ordering::SeqCst);
        let path = "/redfish/v1/SessionService/Sessions";
        match (asked.method.as_str(), asked.path.as_str()) {
            ("GET", "/redfish/v1/") => {
                Say::json(200, &json!({"Links": {"Sessions": {"@odata.id": path}}}))
            }
            ("POST", at) if at == path => {
                if asked.body["Password"] != "right" {
                    return Say::nothing(401);
                }
                Say::nothing(201)
                    .with("x-auth-token", &format!("token-{current}"))
                    .with("location", &format!("https://elsewhere{path}/{current}"))
            }
            ("DELETE", _) => Say::nothing(204),
            _ if asked.header("x-auth-token") == Some(&format!("token-{current}")) => {
                Say::json(200, &json!({}))
            }
            _ => Say::nothing(401),
        }
    })
    .await
}

#[tokio::test]
async fn one_session_serves_all_requests_and_is_given_back() {
    let bmc = with_sessions(Arc::default()).await;
    let client = bmc.client_as("admin", "right");
    let (one, other) = (client.clone(), client.clone());
    let (a, b) = tokio::join!(one.get("/a"), other.get("/b"));
    a.unwrap();
    b.unwrap();
    client.close().await;
    client.close().await;
    let mut lines = bmc.lines();
    lines[2..4].sort();
    assert_eq!(
        lines,
        [
            "GET /redfish/v1/",
            "POST /redfish/v1/SessionService/Sessions",
            "GET /a",
            "GET /b",
            "DELETE /redfish/v1/SessionService/Sessions/0",
        ]
    );
}

#[tokio::test]
async fn a_session_that_ended_is_made_anew() {
    let valid = Arc::new(AtomicUsize::new(0));
    let bmc = with_sessions(Arc::clone(&valid)).await;
    let client = bmc.client_as("admin", "right");
    client.get("/a").await.unwrap();
    valid.fetch_add(1, Ordering::SeqCst);
    bmc.asked();
    client.post("/a", &json!({})).await.unwrap();
    assert_eq!(
        bmc.lines(),
        [
            "POST /a",
            "DELETE /redfish/v1/SessionService/Sessions/0",
            "POST /redfish/v1/SessionService/Sessions",
            "POST /a"
        ]
    );
}

#[tokio::test]
async fn wrong_passwords_are_said_to_be_wrong() {
    let bmc = with_sessions(Arc::default()).await;
    let error = bmc.client_as("admin", "wrong").get("/a").await.unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
    assert_eq!(bmc.lines(), ["GET /redfish/v1/", "POST /redfish/v1/SessionService/Sessions"]);
    let error = bmc.client().get("/a").await.unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
}

#[tokio::test]
async fn without_a_session_service_it_is_basic() {
    let basic = |asked: &Asked| match asked.header("authorization") {
        _ if asked.method == "POST" => Say::nothing(404),
        Some("Basic YWRtaW46cmlnaHQ=") => Say::json(200, &json!({})),
        Some(_) | None => Say::nothing(401),
    };
    let bmc = Bmc::start(basic).await;
    let right = bmc.client_as("admin", "right");
    right.get("/a").await.unwrap();
    right.get("/b").await.unwrap();
    assert_eq!(
        bmc.lines(),
        ["GET /redfish/v1/", "POST /redfish/v1/SessionService/Sessions", "GET /a", "GET /b"]
    );
    // The root is for known users only here, and asked for as one.
    right.root().await.unwrap();
    assert_eq!(bmc.lines(), ["GET /redfish/v1/", "GET /redfish/v1/"]);

    let error = bmc.client_as("admin", "wrong").get("/a").await.unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error}");

    let mut endpoint = Endpoint::parse(&bmc.address).unwrap().with_login("admin", "right");
    endpoint.auth = Auth::Session;
    let error = client(endpoint).get("/a").await.unwrap_err();
    assert!(matches!(error, Error::NoSession { .. }), "{error}");
}

#[tokio::test]
async fn where_the_root_tells_of_no_sessions_none_is_asked_for() {
    // As sushy-emulator does: 401 to everything unknown, its root excepted.
    let bmc = Bmc::start(|asked| match asked.header("authorization") {
        _ if asked.path == "/redfish/v1/" => Say::json(200, &json!({})),
        Some("Basic YWRtaW46cmlnaHQ=") => Say::json(200, &json!({})),
        Some(_) | None => Say::nothing(401),
    })
    .await;
    bmc.client_as("admin", "right").get("/a").await.unwrap();
    assert_eq!(bmc.lines(), ["GET /redfish/v1/", "GET /a"]);
    let error = bmc.client_as("admin", "wrong").get("/a").await.unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
    assert_eq!(bmc.lines(), ["GET /redfish/v1/", "GET /a"], "one wrong attempt, not two");
}

#[tokio::test]
async fn a_session_that_ended_with_403_is_made_anew_whatever_is_forbidden() {
    // As some BMCs do: 403 to sessions that have ended, and to what the user may not do.
    let valid = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&valid);
    let bmc = Bmc::start(move |asked| {
        let token = format!("token-{}", current.load(Ordering::SeqCst));
        match asked.path.as_str() {
            "/redfish/v1/" => {
                Say::json(200, &json!({"Links": {"Sessions": {"@odata.id": "/Sessions"}}}))
            }
            "/Sessions" => Say::nothing(201).with("x-auth-token", &token),
            "/mine" if asked.header("x-auth-token") == Some(&token) => Say::json(200, &json!({})),
            _ => Say::nothing(403),
        }
    })
    .await;
    let client = bmc.client_as("admin", "right");
    for _ in 0..3 {
        let error = client.get("/theirs").await.unwrap_err();
        assert!(matches!(error, Error::Forbidden { .. }), "{error}");
        client.get("/mine").await.unwrap();
        valid.fetch_add(1, Ordering::SeqCst);
        client.get("/mine").await.unwrap();
    }
    let logins = bmc.asked().iter().filter(|asked| asked.method == "POST").count();
    assert_eq!(logins, 1 + 1 + 3, "at first, to be sure about /theirs, and for each that ended");
}

#[tokio::test]
async fn forbidden_is_not_a_reason_to_log_in_for_ever() {
    let bmc = Bmc::start(|asked| match asked.method.as_str() {
        "POST" => Say::nothing(201).with("x-auth-token", "t"),
        _ if asked.path == "/redfish/v1/" => {
            Say::json(200, &json!({"SessionService": {"@odata.id": "/redfish/v1/SessionService"}}))
        }
        _ => Say::nothing(403),
    })
    .await;
    let client = bmc.client_as("admin", "right");
    for _ in 0..3 {
        let error = client.get("/a").await.unwrap_err();
        assert!(matches!(error, Error::Forbidden { .. }), "{error}");
    }
    let logins = bmc.asked().iter().filter(|asked| asked.method == "POST").count();
    assert_eq!(logins, 2, "once at first, once to be sure");
}

#[tokio::test]
async fn a_wrong_password_is_tried_once_whatever_the_status_says() {
    for status in [400, 403] {
        let bmc = Bmc::start(move |asked| match asked.method.as_str() {
            // As iLO says it.
            "POST" => Say::json(
                status,
                &json!({"error": {"@Message.ExtendedInfo":
                    [{"MessageId": "iLO.2.14.UnauthorizedLoginAttempt"}]}}),
            ),
            _ => Say::nothing(401),
        })
        .await;
        for auth in [Auth::Auto, Auth::Session, Auth::Basic] {
            let mut endpoint = Endpoint::parse(&bmc.address).unwrap().with_login("admin", "wrong");
            endpoint.auth = auth;
            let error = client(endpoint).get("/a").await.unwrap_err();
            assert!(matches!(error, Error::Unauthorized { .. }), "{auth:?} {error}");
            assert_eq!(attempts(&bmc), 1, "{auth:?} {status}");
        }
    }
}

#[tokio::test]
async fn a_rejected_password_is_not_tried_again_for_a_while() {
    for auth in [Auth::Auto, Auth::Session, Auth::Basic] {
        let bmc = with_sessions(Arc::default()).await;
        let mut endpoint = Endpoint::parse(&bmc.address).unwrap().with_login("admin", "wrong");
        endpoint.auth = auth;
        let impatient = client(endpoint);
        let client = impatient.patient(Patience::default());
        for _ in 0..3 {
            let error = client.get("/a").await.unwrap_err();
            assert!(matches!(error, Error::Unauthorized { .. }), "{auth:?} {error}");
        }
        assert_eq!(attempts(&bmc), 1, "{auth:?}: three calls, one attempt");

        client.try_again();
        client.get("/a").await.unwrap_err();
        client.get("/a").await.unwrap_err();
        assert_eq!(attempts(&bmc), 1, "{auth:?}: somebody wanted to know");

        impatient.get("/a").await.unwrap_err();
        assert_eq!(attempts(&bmc), 1, "{auth:?}: the while is over");
    }
}

#[tokio::test]
async fn a_password_that_was_put_right_lets_in_again() {
    let is_right = Arc::new(AtomicBool::new(false));
    let right = Arc::clone(&is_right);
    let bmc = Bmc::start(move |asked| match asked.header("authorization") {
        Some(_) if right.load(Ordering::SeqCst) => Say::json(200, &json!({})),
        Some(_) | None => Say::nothing(401),
    })
    .await;
    let mut endpoint = Endpoint::parse(&bmc.address).unwrap().with_login("admin", "wrong");
    endpoint.auth = Auth::Basic;
    let client = client(endpoint).patient(Patience::default());
    client.get("/a").await.unwrap_err();
    is_right.store(true, Ordering::SeqCst);
    client.get("/a").await.unwrap_err();
    client.try_again();
    client.get("/a").await.unwrap();
    client.get("/a").await.unwrap();
}

#[tokio::test]
async fn a_401_to_one_thing_does_not_lock_a_good_session_out() {
    let bmc = Bmc::start(|asked| match asked.path.as_str() {
        "/redfish/v1/" => {
            Say::json(200, &json!({"Links": {"Sessions": {"@odata.id": "/Sessions"}}}))
        }
        "/Sessions" => Say::nothing(201).with("x-auth-token", "t"),
        "/mine" => Say::json(200, &json!({})),
        _ => Say::nothing(401),
    })
    .await;
    let client = bmc.client_as("admin", "right").patient(Patience::default());
    let error = client.get("/theirs").await.unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
    client.get("/mine").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_gives_up_leaves_no_session_behind() {
    let (reached, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let (answer, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let bmc = Bmc::start(move |asked| match asked.path.as_str() {
        "/redfish/v1/" => {
            Say::json(200, &json!({"Links": {"Sessions": {"@odata.id": "/Sessions"}}}))
        }
        "/Sessions" => {
            reached.send(()).unwrap();
            tokio::task::block_in_place(|| wait.lock().unwrap().recv()).unwrap();
            Say::nothing(201).with("x-auth-token", "t").with("location", "/Sessions/1")
        }
        _ => Say::json(200, &json!({})),
    })
    .await;
    let client = bmc.client_as("admin", "right");
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.get("/a").await });
    seen.recv().await.unwrap();
    calling.abort();
    assert!(calling.await.unwrap_err().is_cancelled());
    answer.send(()).unwrap();
    client.close().await;
    let expected = ["GET /redfish/v1/", "POST /Sessions", "DELETE /Sessions/1"];
    assert_eq!(bmc.lines(), expected);
}

/// How often the BMC was shown user name and password since the last time.
fn attempts(bmc: &Bmc) -> usize {
    let shows = |asked: &&Asked| asked.method == "POST" || asked.header("authorization").is_some();
    bmc.asked().iter().filter(shows).count()
}
