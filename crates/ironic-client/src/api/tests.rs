// SPDX-License-Identifier: Apache-2.0
//! Tests of the client against a minimal HTTP server.

use std::sync::{Arc, Mutex};

use super::*;
use crate::error::ErrorClass;
use crate::target::{ClientEnvironment, TargetFlags};
use crate::test_server::TestServer;

fn api_at(url: &str) -> Api {
    Api::new(ApiTarget::at(url, None, None, "a test").unwrap()).unwrap()
}

/// A client that signs in with a token at Keystone.
fn keystone_client(url: &str) -> Api {
    let variables = [("OS_AUTH_URL", url), ("OS_TOKEN", "t"), ("OS_PROJECT_ID", "p")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let environment =
        ClientEnvironment { variables: variables.into(), ..ClientEnvironment::default() };
    Api::new(ApiTarget::find(&TargetFlags::default(), &environment).unwrap()).unwrap()
}

fn catalogue(endpoint: &str) -> String {
    format!(
        r#"{{"token": {{"catalog": [{{"type": "baremetal", "endpoints":
           [{{"interface": "public", "url": "{endpoint}"}}]}}]}}}}"#
    )
}

#[tokio::test]
async fn negotiates_an_older_microversion() {
    let server = TestServer::start(|request, _| {
        match request.header("x-openstack-ironic-api-version") {
            "1.61" => (200, "", r#"{"name": "n"}"#.to_owned()),
            _ => (
                406,
                "X-OpenStack-Ironic-API-Minimum-Version: 1.1\r\nX-OpenStack-Ironic-API-Maximum-Version: 1.61\r\n",
                String::new(),
            ),
        }
    });
    let api = server.api();
    assert_eq!(api.get("/v1/nodes/n").await.unwrap()["name"], "n");
    assert_eq!(api.version(), Microversion(61));
    api.get("/v1/nodes/n").await.unwrap();
    assert_eq!(server.requests().len(), 3, "the negotiated version is reused");
}

#[tokio::test]
async fn reads_all_pages_of_a_list() {
    let server = TestServer::start(|request, base| {
        let page = match request.line.as_str() {
            "GET /v1/nodes?owner=a&limit=1000" => {
                // As behind a proxy: the host of the link is unreachable.
                r#"{"nodes": [1, 2], "next": "http://inside/v1/nodes?limit=2&marker=2"}"#.to_owned()
            }
            // The filters of the link are ignored: stock Ironic omits them.
            "GET /v1/nodes?owner=a&limit=1000&marker=2" => {
                format!(r#"{{"nodes": [3], "next": "{base}/v1/nodes?limit=2&owner=b&marker=3"}}"#)
            }
            _ => r#"{"nodes": []}"#.to_owned(),
        };
        (200, "", page)
    });
    let query = QueryString::new().with("owner", "a");
    let nodes = server.api().list("/v1/nodes", "nodes", &query).await.unwrap();
    assert_eq!(nodes, [1, 2, 3]);
    assert_eq!(
        server.request_lines(),
        [
            "GET /v1/nodes?owner=a&limit=1000",
            "GET /v1/nodes?owner=a&limit=1000&marker=2",
            "GET /v1/nodes?owner=a&limit=1000&marker=3",
        ]
    );
}

#[tokio::test]
async fn renews_an_expired_token() {
    let sign_ins = Mutex::new(0);
    let server = TestServer::start(move |request, base| {
        let mut sign_ins = sign_ins.lock().unwrap();
        if request.line == "POST /v3/auth/tokens" {
            *sign_ins += 1;
            let token = if *sign_ins == 1 {
                "X-Subject-Token: old\r\n"
            } else {
                "X-Subject-Token: new\r\n"
            };
            return (201, token, catalogue(&format!("{base}/baremetal")));
        }
        match (request.header("x-auth-token"), request.line.as_str()) {
            ("old", "GET /baremetal/v1/before") | ("new", "GET /baremetal/v1/after") => {
                (200, "", "{}".to_owned())
            }
            _ => (401, "", r#"{"error": {"message": "expired"}}"#.to_owned()),
        }
    });
    let api = keystone_client(&server.url);
    api.get("/v1/before").await.unwrap();
    api.get("/v1/after").await.unwrap();
    assert_eq!(
        server.request_lines(),
        [
            "POST /v3/auth/tokens",
            "GET /baremetal/v1/before",
            "GET /baremetal/v1/after",
            "POST /v3/auth/tokens",
            "GET /baremetal/v1/after",
        ]
    );
    // A new token that is rejected is not renewed again.
    assert_eq!(api.get("/v1/forbidden").await.unwrap_err().class(), ErrorClass::NotAuthorised);
}

#[tokio::test]
async fn concurrent_requests_renew_the_token_once() {
    const CONCURRENT: usize = 8;
    let (is_expired, tokens) = (Arc::new(Mutex::new(false)), Mutex::new(0));
    let expire = is_expired.clone();
    let server = TestServer::start(move |request, base| {
        if request.line == "POST /v3/auth/tokens" {
            *tokens.lock().unwrap() += 1;
            let token = if *tokens.lock().unwrap() == 1 {
                "X-Subject-Token: old\r\n"
            } else {
                "X-Subject-Token: new\r\n"
            };
            return (201, token, catalogue(base));
        }
        match (request.header("x-auth-token"), *is_expired.lock().unwrap()) {
            ("old", true) => (401, "", r#"{"error": {"message": "expired"}}"#.to_owned()),
            _ => (200, "", "{}".to_owned()),
        }
    });
    let api = Arc::new(keystone_client(&server.url));
    api.get("/v1/before").await.unwrap();
    *expire.lock().unwrap() = true;
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..CONCURRENT {
        let api = api.clone();
        requests.spawn(async move { api.get("/v1/after").await.map(drop) });
    }
    for result in requests.join_all().await {
        result.unwrap();
    }
    let requests = server.request_lines();
    let sign_ins = requests.iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(sign_ins, 2, "{requests:?}");
}

#[tokio::test]
async fn rejects_invalid_path_segments_without_a_request() {
    let server = TestServer::start(|_, _| (200, "", r#"{"nodes": []}"#.to_owned()));
    let api = server.api();
    for path in ["/v1/nodes/", "/v1/nodes/a%2Fb", "/v1/nodes//validate", "/v1/nodes/..", "/v1/."] {
        assert_eq!(api.get(path).await.unwrap_err().class(), ErrorClass::NotFound, "{path}");
    }
    api.get("/v1/nodes?owner=a%2Fb").await.unwrap();
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn reports_the_origin_of_a_rejected_password() {
    let server = TestServer::start(|_, _| (401, "", r#"{"error_message": "wrong"}"#.to_owned()));
    let target =
        ApiTarget::at(&server.url, Some("ann"), Some(HiddenText::new("hush")), "profile lab")
            .unwrap();
    let error = Api::new(target).unwrap().get("/v1/nodes").await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::NotAuthorised);
    let text = error.to_string();
    assert!(text.contains("\"ann\"") && text.contains("from profile lab (wrong)"), "{text}");
}

#[tokio::test]
async fn classifies_error_responses() {
    let server = TestServer::start(|request, _| match request.line.as_str() {
        "GET /404" => {
            (404, "", r#"{"error_message": {"faultstring": "No such node."}}"#.to_owned())
        }
        "GET /401" => (401, "", String::new()),
        "GET /403" => (403, "", r#"{"error_message": "not yours"}"#.to_owned()),
        "GET /502" => (502, "", "<html>".to_owned()),
        "GET /302" => (302, "Location: http://127.0.0.1:1/\r\n", String::new()),
        "GET /nginx?a=b" => (404, "", "<html>".to_owned()),
        "GET /other" => (404, "", r#"{"detail": "Not Found"}"#.to_owned()),
        "GET /html" => (200, "", "<html>".to_owned()),
        _ => (500, "", String::new()),
    });
    let api = server.api();
    for (path, class, expected) in [
        ("/404", ErrorClass::NotFound, "No such node."),
        ("/401", ErrorClass::NotAuthorised, "requires credentials; give --user"),
        ("/403", ErrorClass::NotAuthorised, "does not allow GET /403 (not yours)"),
        (
            "/302",
            ErrorClass::Unreachable,
            "returned 302 Found for GET /302; is it the address of an",
        ),
        (
            "/nginx?a=b",
            ErrorClass::Unreachable,
            "returned 404 Not Found for GET /nginx; is it the address",
        ),
        (
            "/other",
            ErrorClass::Unreachable,
            "returned 404 Not Found for GET /other; is it the address",
        ),
        ("/html", ErrorClass::Unreachable, "a body that is not JSON"),
        ("/502", ErrorClass::Unreachable, "returned 502 Bad Gateway for GET /502"),
        ("/500", ErrorClass::Other, "returned 500 Internal Server Error for GET /500"),
    ] {
        let error = api.get(path).await.unwrap_err();
        assert_eq!(error.class(), class, "{path}");
        assert_eq!(error.may_have_been_executed(), ["/500", "/502"].contains(&path), "{path}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn distinguishes_a_wrong_base_path_from_a_missing_node() {
    let server = TestServer::start(|request, _| match request.line.as_str() {
        _ if request.header("authorization").is_empty() => (401, "", String::new()),
        "GET /good/v1" => (200, "", r#"{"id": "v1"}"#.to_owned()),
        _ => (404, "", r#"{"error_message": "No such path."}"#.to_owned()),
    });
    let url = server.url.replace("http://", "http://ann:secret@");
    let wrong = api_at(&format!("{url}/wrong"));
    for _ in 0..2 {
        let error = wrong.find("/v1/nodes/n").await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Unreachable);
        assert!(error.to_string().contains("/wrong returned 404 Not Found for GET /v1"), "{error}");
    }
    assert_eq!(wrong.get("/v1/nodes").await.unwrap_err().class(), ErrorClass::Unreachable);
    // `/v1` is requested only once.
    let before = server.requests().len();
    let good = api_at(&format!("{url}/good"));
    assert_eq!(good.find("/v1/nodes/n").await.unwrap(), None);
    assert_eq!(good.find("/v1/nodes/n").await.unwrap(), None);
    let expected = ["GET /good/v1/nodes/n", "GET /good/v1", "GET /good/v1/nodes/n"];
    assert_eq!(server.request_lines()[before..], expected);
    assert_eq!(api_at(&url).find("/v1/nodes/n").await.unwrap(), None);
}
