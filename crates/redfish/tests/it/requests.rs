// SPDX-License-Identifier: Apache-2.0
//! Requests and responses: redirects, invalid bodies, errors, etags, retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redfish::{ExchangeObserver, RedfishError, RedfishExchange};
use serde_json::json;

use crate::bmc::{BmcTestResponse, ScriptedBmc};

#[tokio::test]
async fn a_resource_is_read_with_its_etag() {
    let bmc = ScriptedBmc::start(|_| {
        BmcTestResponse::json(200, &json!({"Id": "1"})).with("etag", "W/\"7\"")
    })
    .await;
    let resource = bmc.client().get("/redfish/v1/Systems/1").await.unwrap();
    assert_eq!(resource.text("Id"), Some("1"));
    assert_eq!(resource.etag.as_deref(), Some("W/\"7\""));
    assert_eq!(resource.path, "/redfish/v1/Systems/1");
    let request = &bmc.take_requests()[0];
    assert_eq!(request.header("accept"), Some("application/json"));
    assert_eq!(request.header("odata-version"), Some("4.0"));
    assert_eq!(request.header("accept-encoding"), None);
    assert_eq!(request.header("authorization"), None);
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only() {
    let bmc = ScriptedBmc::start(|request| match request.path.as_str() {
        "/redfish/v1/Systems" => {
            BmcTestResponse::nothing(301).with("location", "/redfish/v1/Systems/")
        }
        "/redfish/v1/Away" => {
            BmcTestResponse::nothing(302).with("location", "https://evil.example/x?t=1")
        }
        "/redfish/v1/Secure" => {
            BmcTestResponse::nothing(308).with("location", "https://127.0.0.1/x")
        }
        "/redfish/v1/Round" => BmcTestResponse::nothing(307).with("location", "/redfish/v1/Round"),
        _ => BmcTestResponse::json(200, &json!({"Members": []})),
    })
    .await;
    let client = bmc.client_as("admin", "pw");
    let systems = client.get("/redfish/v1/Systems").await.unwrap();
    assert_eq!(systems.path, "/redfish/v1/Systems/");
    let requests = bmc.take_requests();
    assert!(requests.last().unwrap().header("authorization").is_some(), "it is still us");
    for path in ["/redfish/v1/Away", "/redfish/v1/Secure"] {
        let error = client.get(path).await.unwrap_err();
        assert!(matches!(error, RedfishError::Redirected { .. }), "{error}");
        assert!(!error.to_string().contains('?'), "{error}");
    }
    let error = client.get("/redfish/v1/Round").await.unwrap_err();
    assert!(matches!(error, RedfishError::Garbled { .. }), "{error}");
}

#[tokio::test]
async fn distinguishes_invalid_responses() {
    let bmc = ScriptedBmc::start(|request| match request.path.as_str() {
        "/empty" => BmcTestResponse::nothing(200),
        "/html" => {
            BmcTestResponse(200, vec![("content-type", "text/html".to_owned())], "<html>".into())
        }
        "/list" => BmcTestResponse::json(200, &json!([1])),
        "/huge" => BmcTestResponse(200, vec![], vec![b' '; 3 * 1024 * 1024]),
        "/Registries/huge" => BmcTestResponse(200, vec![], vec![b' '; 17 * 1024 * 1024]),
        "/Registries/large" => {
            let large = [vec![b' '; 3 * 1024 * 1024], b"{}".to_vec()].concat();
            BmcTestResponse(200, vec![], large)
        }
        "/latin" => BmcTestResponse(
            200,
            vec![("content-type", "image/png".to_owned())],
            "{\"a\":\"\t\"}".into(),
        ),
        _ => BmcTestResponse::nothing(404),
    })
    .await;
    let client = bmc.client();
    for (path, expected) in [
        ("/empty", "the response of the BMC for /empty is invalid: it is empty"),
        (
            "/html",
            "the response of the BMC for /html is invalid: expected value at line 1 column 1",
        ),
        ("/list", "the response of the BMC for /list is invalid: it is not a JSON object"),
        ("/huge", "the response of the BMC for /huge is larger than 2097152 bytes"),
        (
            "/Registries/huge",
            "the response of the BMC for /Registries/huge is larger than 16777216 bytes",
        ),
        ("/none", "the BMC has no /none"),
    ] {
        assert_eq!(client.get(path).await.unwrap_err().to_string(), expected);
    }
    assert!(client.get("/latin").await.is_ok());
    assert!(client.get("/Registries/large").await.is_ok());
}

#[tokio::test]
async fn errors_contain_the_message_of_the_bmc() {
    let bmc = ScriptedBmc::start(|_| {
        let info = json!({"MessageId": "Base.1.8.ActionNotSupported",
            "Message": "The action Reset with password hunter2 is not supported for \
                        https://me:secret@images/a.iso?token=abc."});
        BmcTestResponse::json(400, &json!({"error": {"@Message.ExtendedInfo": [info]}}))
    })
    .await;
    let body = json!({
        "Nested": {"Password": "hunter2"}, "Image": "https://me:secret@images/a.iso?token=abc",
    });
    let error = bmc.client().post("/reset", &body).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the BMC returned 400 to POST /reset: The action Reset with password ****** is not \
         supported for https://******@images/a.iso?******."
    );
    assert!(error.has_message_id("ActionNotSupported") && !error.has_message_id("Supported"));
    assert_eq!(error.status(), Some(400));
    assert_eq!(bmc.take_request_lines(), ["POST /reset"], "what changes something is not repeated");
}

#[tokio::test]
async fn reading_is_repeated_while_the_bmc_is_busy() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let bmc = ScriptedBmc::start(move |request| match request.path.as_str() {
        "/soon" if counted.fetch_add(1, Ordering::SeqCst) < 2 => {
            BmcTestResponse::nothing(503).with("retry-after", "60")
        }
        "/soon" => BmcTestResponse::json(200, &json!({})),
        "/never" => BmcTestResponse::nothing(500),
        _ => BmcTestResponse::nothing(501),
    })
    .await;
    let client = bmc.client();
    client.get("/soon").await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 3);
    assert_eq!(client.get("/never").await.unwrap_err().status(), Some(500));
    assert_eq!(client.get("/unknown").await.unwrap_err().status(), Some(501));
    assert_eq!(client.post("/never", &json!({})).await.unwrap_err().status(), Some(500));
    let lines = bmc.take_request_lines();
    let never = lines.iter().filter(|line| line.as_str() == "GET /never").count();
    assert_eq!((lines.len(), never), (3 + 3 + 1 + 1, 3));
}

#[tokio::test]
async fn etags_that_are_refused_are_left_out() {
    let bmc =
        ScriptedBmc::start(|request| match (request.path.as_str(), request.header("if-match")) {
            ("/strict", Some("\"1\"")) | ("/none", None) | ("/any", Some("*")) => {
                BmcTestResponse::nothing(204)
            }
            ("/any", None) => BmcTestResponse::nothing(428),
            _ => BmcTestResponse::nothing(412),
        })
        .await;
    let client = bmc.client();
    for (path, requests) in [("/strict", 2), ("/none", 3), ("/any", 4)] {
        assert_eq!(client.patch(path, &json!({}), Some("W/\"1\"")).await.unwrap().status, 204);
        assert_eq!(bmc.take_requests().len(), requests, "{path}");
    }
    let error = client.patch("/never", &json!({}), None).await.unwrap_err();
    assert_eq!(error.status(), Some(412));
}

#[tokio::test]
async fn responses_keep_their_location_on_the_host() {
    let bmc = ScriptedBmc::start(|_| {
        BmcTestResponse::nothing(202)
            .with("location", "https://evil.example/redfish/v1/TaskService/Tasks/7")
    })
    .await;
    let response = bmc.client().post("/x", &json!({})).await.unwrap();
    assert_eq!(response.task(), Some("/redfish/v1/TaskService/Tasks/7"));
}

#[tokio::test]
async fn what_comes_compressed_only_is_read_compressed() {
    use std::io::Write as _;
    let squeezed = |text: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let good = squeezed(br#"{"Id": "BiosAttributeRegistry"}"#);
    let bomb = squeezed(&vec![b' '; 17 * 1024 * 1024]);
    let bmc = ScriptedBmc::start(move |request| {
        match (request.path.as_str(), request.header("accept-encoding")) {
            (_, None) => BmcTestResponse::nothing(406),
            ("/good", _) => {
                BmcTestResponse(200, vec![], good.clone()).with("content-encoding", "gzip")
            }
            ("/bomb", _) => {
                BmcTestResponse(200, vec![], bomb.clone()).with("content-encoding", "gzip")
            }
            (_, _) => BmcTestResponse::json(200, &json!({})).with("content-encoding", "gzip"),
        }
    })
    .await;
    let client = bmc.client();
    assert_eq!(client.get("/good").await.unwrap().text("Id"), Some("BiosAttributeRegistry"));
    assert_eq!(bmc.take_request_lines(), ["GET /good", "GET /good"]);
    let error = client.get("/bomb").await.unwrap_err();
    assert!(matches!(error, RedfishError::TooLarge { .. }), "{error}");
    let error = client.get("/bad").await.unwrap_err();
    assert!(matches!(error, RedfishError::Garbled { .. }), "{error}");
}

#[tokio::test]
async fn absolute_links_lead_to_the_bmc_itself() {
    let bmc = ScriptedBmc::start(|_| BmcTestResponse::json(200, &json!({}))).await;
    let client = bmc.client();
    client.get("https://evil.example/redfish/v1/Systems/1#/Boot").await.unwrap();
    client.get("//evil.example/x").await.unwrap();
    assert_eq!(bmc.take_request_lines(), ["GET /redfish/v1/Systems/1", "GET //evil.example/x"]);
}

#[tokio::test]
async fn observers_receive_every_exchange() {
    #[derive(Default)]
    struct ExchangeRecorder(std::sync::Mutex<Vec<String>>);
    impl ExchangeObserver for ExchangeRecorder {
        fn exchanged(&self, exchange: &RedfishExchange<'_>) {
            let result = exchange.result.as_ref().map_err(|error| error.to_string());
            let line = format!("{} {} {result:?}", exchange.method, exchange.path);
            self.0.lock().unwrap().push(line);
        }
    }
    let bmc = ScriptedBmc::start(|_| BmcTestResponse::nothing(404)).await;
    let recorder = Arc::new(ExchangeRecorder::default());
    let _ = bmc.client().observed(Arc::<ExchangeRecorder>::clone(&recorder)).get("/x").await;
    assert_eq!(*recorder.0.lock().unwrap(), ["GET /x Ok(404)"]);
}
