// SPDX-License-Identifier: Apache-2.0
//! Login, renewal and logout.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use redfish::{RedfishAuth, RedfishEndpoint, RedfishError, RedfishRetryPolicy};
use serde_json::json;

use crate::bmc::{BmcTestRequest, BmcTestResponse, ScriptedBmc, client};

/// A BMC whose current session is the given number: `forget` adds one to it.
async fn with_sessions(valid: Arc<AtomicUsize>) -> ScriptedBmc {
    ScriptedBmc::start(move |request| {
        let current = valid.load(Ordering::SeqCst);
        let path = "/redfish/v1/SessionService/Sessions";
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/redfish/v1/") => {
                BmcTestResponse::json(200, &json!({"Links": {"Sessions": {"@odata.id": path}}}))
            }
            ("POST", at) if at == path => {
                if request.body["Password"] != "right" {
                    return BmcTestResponse::nothing(401);
                }
                BmcTestResponse::nothing(201)
                    .with("x-auth-token", &format!("token-{current}"))
                    .with("location", &format!("https://elsewhere{path}/{current}"))
            }
            ("DELETE", _) => BmcTestResponse::nothing(204),
            _ if request.header("x-auth-token") == Some(&format!("token-{current}")) => {
                BmcTestResponse::json(200, &json!({}))
            }
            _ => BmcTestResponse::nothing(401),
        }
    })
    .await
}

#[tokio::test]
async fn one_session_serves_all_requests_and_is_closed() {
    let bmc = with_sessions(Arc::default()).await;
    let client = bmc.client_as("admin", "right");
    let (one, other) = (client.clone(), client.clone());
    let (a, b) = tokio::join!(one.get("/a"), other.get("/b"));
    a.unwrap();
    b.unwrap();
    client.close().await;
    client.close().await;
    let mut lines = bmc.take_request_lines();
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
    bmc.take_requests();
    client.post("/a", &json!({})).await.unwrap();
    assert_eq!(
        bmc.take_request_lines(),
        [
            "POST /a",
            "DELETE /redfish/v1/SessionService/Sessions/0",
            "POST /redfish/v1/SessionService/Sessions",
            "POST /a"
        ]
    );
}

#[tokio::test]
async fn reports_wrong_passwords() {
    let bmc = with_sessions(Arc::default()).await;
    let error = bmc.client_as("admin", "wrong").get("/a").await.unwrap_err();
    assert!(matches!(error, RedfishError::Unauthorized { .. }), "{error}");
    assert_eq!(
        bmc.take_request_lines(),
        ["GET /redfish/v1/", "POST /redfish/v1/SessionService/Sessions"]
    );
    let error = bmc.client().get("/a").await.unwrap_err();
    assert!(matches!(error, RedfishError::Unauthorized { .. }), "{error}");
}

#[tokio::test]
async fn without_a_session_service_it_is_basic() {
    let basic = |request: &BmcTestRequest| match request.header("authorization") {
        _ if request.method == "POST" => BmcTestResponse::nothing(404),
        Some("Basic YWRtaW46cmlnaHQ=") => BmcTestResponse::json(200, &json!({})),
        Some(_) | None => BmcTestResponse::nothing(401),
    };
    let bmc = ScriptedBmc::start(basic).await;
    let right = bmc.client_as("admin", "right");
    right.get("/a").await.unwrap();
    right.get("/b").await.unwrap();
    assert_eq!(
        bmc.take_request_lines(),
        ["GET /redfish/v1/", "POST /redfish/v1/SessionService/Sessions", "GET /a", "GET /b"]
    );
    // This root requires credentials.
    right.root().await.unwrap();
    assert_eq!(bmc.take_request_lines(), ["GET /redfish/v1/", "GET /redfish/v1/"]);

    let error = bmc.client_as("admin", "wrong").get("/a").await.unwrap_err();
    assert!(matches!(error, RedfishError::Unauthorized { .. }), "{error}");

    let mut endpoint = RedfishEndpoint::parse(&bmc.address).unwrap().with_login("admin", "right");
    endpoint.auth = RedfishAuth::Session;
    let error = client(endpoint).get("/a").await.unwrap_err();
    assert!(matches!(error, RedfishError::NoSession { .. }), "{error}");
}

#[tokio::test]
async fn uses_basic_auth_if_the_root_lists_no_sessions() {
    // Like sushy-emulator: 401 for every path except the root.
    let bmc = ScriptedBmc::start(|request| match request.header("authorization") {
        _ if request.path == "/redfish/v1/" => BmcTestResponse::json(200, &json!({})),
        Some("Basic YWRtaW46cmlnaHQ=") => BmcTestResponse::json(200, &json!({})),
        Some(_) | None => BmcTestResponse::nothing(401),
    })
    .await;
    bmc.client_as("admin", "right").get("/a").await.unwrap();
    assert_eq!(bmc.take_request_lines(), ["GET /redfish/v1/", "GET /a"]);
    let error = bmc.client_as("admin", "wrong").get("/a").await.unwrap_err();
    assert!(matches!(error, RedfishError::Unauthorized { .. }), "{error}");
    assert_eq!(
        bmc.take_request_lines(),
        ["GET /redfish/v1/", "GET /a"],
        "one wrong attempt, not two"
    );
}

#[tokio::test]
async fn a_session_that_ended_with_403_is_made_anew_whatever_is_forbidden() {
    // Like some BMCs: 403 for ended sessions and for forbidden requests.
    let valid = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&valid);
    let bmc = ScriptedBmc::start(move |request| {
        let token = format!("token-{}", current.load(Ordering::SeqCst));
        match request.path.as_str() {
            "/redfish/v1/" => BmcTestResponse::json(
                200,
                &json!({"Links": {"Sessions": {"@odata.id": "/Sessions"}}}),
            ),
            "/Sessions" => BmcTestResponse::nothing(201).with("x-auth-token", &token),
            "/mine" if request.header("x-auth-token") == Some(&token) => {
                BmcTestResponse::json(200, &json!({}))
            }
            _ => BmcTestResponse::nothing(403),
        }
    })
    .await;
    let client = bmc.client_as("admin", "right");
    for _ in 0..3 {
        let error = client.get("/theirs").await.unwrap_err();
        assert!(matches!(error, RedfishError::Forbidden { .. }), "{error}");
        client.get("/mine").await.unwrap();
        valid.fetch_add(1, Ordering::SeqCst);
        client.get("/mine").await.unwrap();
    }
    let logins = bmc.take_requests().iter().filter(|request| request.method == "POST").count();
    assert_eq!(logins, 1 + 1 + 3, "at first, to be sure about /theirs, and for each that ended");
}

#[tokio::test]
async fn forbidden_is_not_a_reason_to_log_in_for_ever() {
    let bmc = ScriptedBmc::start(|request| match request.method.as_str() {
        "POST" => BmcTestResponse::nothing(201).with("x-auth-token", "t"),
        _ if request.path == "/redfish/v1/" => BmcTestResponse::json(
            200,
            &json!({"SessionService": {"@odata.id": "/redfish/v1/SessionService"}}),
        ),
        _ => BmcTestResponse::nothing(403),
    })
    .await;
    let client = bmc.client_as("admin", "right");
    for _ in 0..3 {
        let error = client.get("/a").await.unwrap_err();
        assert!(matches!(error, RedfishError::Forbidden { .. }), "{error}");
    }
    let logins = bmc.take_requests().iter().filter(|request| request.method == "POST").count();
    assert_eq!(logins, 2, "once at first, once to be sure");
}

#[tokio::test]
async fn tries_a_wrong_password_once_for_any_status() {
    for status in [400, 403] {
        let bmc = ScriptedBmc::start(move |request| match request.method.as_str() {
            // The response of iLO.
            "POST" => BmcTestResponse::json(
                status,
                &json!({"error": {"@Message.ExtendedInfo":
                    [{"MessageId": "iLO.2.14.UnauthorizedLoginAttempt"}]}}),
            ),
            _ => BmcTestResponse::nothing(401),
        })
        .await;
        for auth in [RedfishAuth::Auto, RedfishAuth::Session, RedfishAuth::Basic] {
            let mut endpoint =
                RedfishEndpoint::parse(&bmc.address).unwrap().with_login("admin", "wrong");
            endpoint.auth = auth;
            let error = client(endpoint).get("/a").await.unwrap_err();
            assert!(matches!(error, RedfishError::Unauthorized { .. }), "{auth:?} {error}");
            assert_eq!(attempts(&bmc), 1, "{auth:?} {status}");
        }
    }
}

#[tokio::test]
async fn a_rejected_password_is_not_tried_again_for_a_while() {
    for auth in [RedfishAuth::Auto, RedfishAuth::Session, RedfishAuth::Basic] {
        let bmc = with_sessions(Arc::default()).await;
        let mut endpoint =
            RedfishEndpoint::parse(&bmc.address).unwrap().with_login("admin", "wrong");
        endpoint.auth = auth;
        let impatient = client(endpoint);
        let client = impatient.with_retry_policy(RedfishRetryPolicy::default());
        for _ in 0..3 {
            let error = client.get("/a").await.unwrap_err();
            assert!(matches!(error, RedfishError::Unauthorized { .. }), "{auth:?} {error}");
        }
        assert_eq!(attempts(&bmc), 1, "{auth:?}: three calls, one attempt");

        client.clear_rejection();
        client.get("/a").await.unwrap_err();
        client.get("/a").await.unwrap_err();
        assert_eq!(attempts(&bmc), 1, "{auth:?}: credentials were sent again");

        impatient.get("/a").await.unwrap_err();
        assert_eq!(attempts(&bmc), 1, "{auth:?}: the while is over");
    }
}

#[tokio::test]
async fn accepts_a_corrected_password() {
    let is_right = Arc::new(AtomicBool::new(false));
    let right = Arc::clone(&is_right);
    let bmc = ScriptedBmc::start(move |request| match request.header("authorization") {
        Some(_) if right.load(Ordering::SeqCst) => BmcTestResponse::json(200, &json!({})),
        Some(_) | None => BmcTestResponse::nothing(401),
    })
    .await;
    let mut endpoint = RedfishEndpoint::parse(&bmc.address).unwrap().with_login("admin", "wrong");
    endpoint.auth = RedfishAuth::Basic;
    let client = client(endpoint).with_retry_policy(RedfishRetryPolicy::default());
    client.get("/a").await.unwrap_err();
    is_right.store(true, Ordering::SeqCst);
    client.get("/a").await.unwrap_err();
    client.clear_rejection();
    client.get("/a").await.unwrap();
    client.get("/a").await.unwrap();
}

#[tokio::test]
async fn a_401_to_one_thing_does_not_lock_a_good_session_out() {
    let bmc = ScriptedBmc::start(|request| match request.path.as_str() {
        "/redfish/v1/" => {
            BmcTestResponse::json(200, &json!({"Links": {"Sessions": {"@odata.id": "/Sessions"}}}))
        }
        "/Sessions" => BmcTestResponse::nothing(201).with("x-auth-token", "t"),
        "/mine" => BmcTestResponse::json(200, &json!({})),
        _ => BmcTestResponse::nothing(401),
    })
    .await;
    let client = bmc.client_as("admin", "right").with_retry_policy(RedfishRetryPolicy::default());
    let error = client.get("/theirs").await.unwrap_err();
    assert!(matches!(error, RedfishError::Unauthorized { .. }), "{error}");
    client.get("/mine").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_gives_up_leaves_no_session_behind() {
    let (reached, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let bmc = ScriptedBmc::start(move |request| match request.path.as_str() {
        "/redfish/v1/" => {
            BmcTestResponse::json(200, &json!({"Links": {"Sessions": {"@odata.id": "/Sessions"}}}))
        }
        "/Sessions" => {
            reached.send(()).unwrap();
            tokio::task::block_in_place(|| wait.lock().unwrap().recv()).unwrap();
            BmcTestResponse::nothing(201).with("x-auth-token", "t").with("location", "/Sessions/1")
        }
        _ => BmcTestResponse::json(200, &json!({})),
    })
    .await;
    let client = bmc.client_as("admin", "right");
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.get("/a").await });
    seen.recv().await.unwrap();
    calling.abort();
    assert!(calling.await.unwrap_err().is_cancelled());
    release.send(()).unwrap();
    client.close().await;
    let expected = ["GET /redfish/v1/", "POST /Sessions", "DELETE /Sessions/1"];
    assert_eq!(bmc.take_request_lines(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_sends_nothing_more_after_its_caller_is_cancelled() {
    let (reached, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let bmc = ScriptedBmc::start(move |request| match request.path.as_str() {
        "/redfish/v1/" => {
            reached.send(()).unwrap();
            tokio::task::block_in_place(|| wait.lock().unwrap().recv()).unwrap();
            BmcTestResponse::json(200, &json!({"Links": {"Sessions": {"@odata.id": "/Sessions"}}}))
        }
        "/Sessions" => BmcTestResponse::nothing(201).with("x-auth-token", "t"),
        _ => BmcTestResponse::json(200, &json!({})),
    })
    .await;
    let client = bmc.client_as("admin", "right");
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.get("/a").await });
    seen.recv().await.unwrap();
    calling.abort();
    assert!(calling.await.unwrap_err().is_cancelled());
    release.send(()).unwrap();
    // Waits for the end of the login.
    client.close().await;
    assert_eq!(bmc.take_request_lines(), ["GET /redfish/v1/"]);
    // The next caller logs in.
    client.get("/a").await.unwrap();
    assert_eq!(bmc.take_request_lines(), ["POST /Sessions", "GET /a"]);
}

/// The number of requests with user name and password since the last call.
fn attempts(bmc: &ScriptedBmc) -> usize {
    let shows = |request: &&BmcTestRequest| {
        request.method == "POST" || request.header("authorization").is_some()
    };
    bmc.take_requests().iter().filter(shows).count()
}
