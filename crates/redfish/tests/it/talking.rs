// SPDX-License-Identifier: Apache-2.0
//! Requests and answers: redirects, odd bodies, refusals, etags, repetition.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redfish::{Error, Exchange, Observer};
use serde_json::json;

use crate::bmc::{Bmc, Say};

#[tokio::test]
async fn a_resource_is_read_with_its_etag() {
    let bmc = Bmc::start(|_| Say::json(200, &json!({"Id": "1"})).with("etag", "W/\"7\"")).await;
    let resource = bmc.client().get("/redfish/v1/Systems/1").await.unwrap();
    assert_eq!(resource.text("Id"), Some("1"));
    assert_eq!(resource.etag.as_deref(), Some("W/\"7\""));
    assert_eq!(resource.path, "/redfish/v1/Systems/1");
    let asked = &bmc.asked()[0];
    assert_eq!(asked.header("accept"), Some("application/json"));
    assert_eq!(asked.header("odata-version"), Some("4.0"));
    assert_eq!(asked.header("accept-encoding"), None);
    assert_eq!(asked.header("authorization"), None);
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only() {
    let bmc = Bmc::start(|asked| match asked.path.as_str() {
        "/redfish/v1/Systems" => Say::nothing(301).with("location", "/redfish/v1/Systems/"),
        "/redfish/v1/Away" => Say::nothing(302).with("location", "https://evil.example/x?t=1"),
        "/redfish/v1/Secure" => Say::nothing(308).with("location", "https://127.0.0.1/x"),
        "/redfish/v1/Round" => Say::nothing(307).with("location", "/redfish/v1/Round"),
        _ => Say::json(200, &json!({"Members": []})),
    })
    .await;
    let client = bmc.client_as("admin", "pw");
    let systems = client.get("/redfish/v1/Systems").await.unwrap();
    assert_eq!(systems.path, "/redfish/v1/Systems/");
    let asked = bmc.asked();
    assert!(asked.last().unwrap().header("authorization").is_some(), "it is still us");
    for path in ["/redfish/v1/Away", "/redfish/v1/Secure"] {
        let error = client.get(path).await.unwrap_err();
        assert!(matches!(error, Error::Redirected { .. }), "{error}");
        assert!(!error.to_string().contains('?'), "{error}");
    }
    let error = client.get("/redfish/v1/Round").await.unwrap_err();
    assert!(matches!(error, Error::Garbled { .. }), "{error}");
}

#[tokio::test]
async fn odd_answers_are_told_apart() {
    let bmc = Bmc::start(|asked| match asked.path.as_str() {
        "/empty" => Say::nothing(200),
        "/html" => Say(200, vec![("content-type", "text/html".to_owned())], "<html>".into()),
        "/list" => Say::json(200, &json!([1])),
        "/huge" => Say(200, vec![], vec![b' '; 3 * 1024 * 1024]),
        "/Registries/huge" => Say(200, vec![], vec![b' '; 17 * 1024 * 1024]),
        "/Registries/large" => {
            let large = [vec![b' '; 3 * 1024 * 1024], b"{}".to_vec()].concat();
            Say(200, vec![], large)
        }
        "/latin" => {
            Say(200, vec![("content-type", "image/png".to_owned())], "{\"a\":\"\t\"}".into())
        }
        _ => Say::nothing(404),
    })
    .await;
    let client = bmc.client();
    for (path, said) in [
        ("/empty", "the BMC's answer for /empty cannot be read: it is empty"),
        ("/html", "the BMC's answer for /html cannot be read: expected value at line 1 column 1"),
        ("/list", "the BMC's answer for /list cannot be read: it is not a JSON object"),
        ("/huge", "the BMC's answer for /huge is larger than 2097152 bytes"),
        ("/Registries/huge", "the BMC's answer for /Registries/huge is larger than 16777216 bytes"),
        ("/none", "the BMC has no /none"),
    ] {
        assert_eq!(client.get(path).await.unwrap_err().to_string(), said);
    }
    assert!(client.get("/latin").await.is_ok());
    assert!(client.get("/Registries/large").await.is_ok());
}

#[tokio::test]
async fn refusals_say_what_the_bmc_said() {
    let bmc = Bmc::start(|_| {
        let info = json!({"MessageId": "Base.1.8.ActionNotSupported",
            "Message": "The action Reset with password hunter2 is not supported for \
                        https://me:secret@images/a.iso?token=abc."});
        Say::json(400, &json!({"error": {"@Message.ExtendedInfo": [info]}}))
    })
    .await;
    let body = json!({
        "Nested": {"Password": "hunter2"}, "Image": "https://me:secret@images/a.iso?token=abc",
    });
    let error = bmc.client().post("/reset", &body).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the BMC answered 400 to POST /reset: The action Reset with password ****** is not \
         supported for https://******@images/a.iso?******."
    );
    assert!(error.says("ActionNotSupported") && !error.says("Supported"));
    assert_eq!(error.status(), Some(400));
    assert_eq!(bmc.lines(), ["POST /reset"], "what changes something is not repeated");
}

#[tokio::test]
async fn reading_is_repeated_while_the_bmc_is_busy() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let bmc = Bmc::start(move |asked| match asked.path.as_str() {
        "/soon" if counted.fetch_add(1, Ordering::SeqCst) < 2 => {
            Say::nothing(503).with("retry-after", "60")
        }
        "/soon" => Say::json(200, &json!({})),
        "/never" => Say::nothing(500),
        _ => Say::nothing(501),
    })
    .await;
    let client = bmc.client();
    client.get("/soon").await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 3);
    assert_eq!(client.get("/never").await.unwrap_err().status(), Some(500));
    assert_eq!(client.get("/unknown").await.unwrap_err().status(), Some(501));
    assert_eq!(client.post("/never", &json!({})).await.unwrap_err().status(), Some(500));
    let lines = bmc.lines();
    let never = lines.iter().filter(|line| line.as_str() == "GET /never").count();
    assert_eq!((lines.len(), never), (3 + 3 + 1 + 1, 3));
}

#[tokio::test]
async fn etags_that_are_refused_are_left_out() {
    let bmc = Bmc::start(|asked| match (asked.path.as_str(), asked.header("if-match")) {
        ("/strict", Some("\"1\"")) | ("/none", None) | ("/any", Some("*")) => Say::nothing(204),
        ("/any", None) => Say::nothing(428),
        _ => Say::nothing(412),
    })
    .await;
    let client = bmc.client();
    for (path, requests) in [("/strict", 2), ("/none", 3), ("/any", 4)] {
        assert_eq!(client.patch(path, &json!({}), Some("W/\"1\"")).await.unwrap().status, 204);
        assert_eq!(bmc.asked().len(), requests, "{path}");
    }
    let error = client.patch("/never", &json!({}), None).await.unwrap_err();
    assert_eq!(error.status(), Some(412));
}

#[tokio::test]
async fn answers_keep_their_location_on_the_host() {
    let bmc = Bmc::start(|_| {
        Say::nothing(202).with("location", "https://evil.example/redfish/v1/TaskService/Tasks/7")
    })
    .await;
    let answer = bmc.client().post("/x", &json!({})).await.unwrap();
    assert_eq!(answer.task(), Some("/redfish/v1/TaskService/Tasks/7"));
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
    let bmc =
        Bmc::start(move |asked| match (asked.path.as_str(), asked.header("accept-encoding")) {
            (_, None) => Say::nothing(406),
            ("/good", _) => Say(200, vec![], good.clone()).with("content-encoding", "gzip"),
            ("/bomb", _) => Say(200, vec![], bomb.clone()).with("content-encoding", "gzip"),
            (_, _) => Say::json(200, &json!({})).with("content-encoding", "gzip"),
        })
        .await;
    let client = bmc.client();
    assert_eq!(client.get("/good").await.unwrap().text("Id"), Some("BiosAttributeRegistry"));
    assert_eq!(bmc.lines(), ["GET /good", "GET /good"]);
    let error = client.get("/bomb").await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let error = client.get("/bad").await.unwrap_err();
    assert!(matches!(error, Error::Garbled { .. }), "{error}");
}

#[tokio::test]
async fn absolute_links_lead_to_the_bmc_itself() {
    let bmc = Bmc::start(|_| Say::json(200, &json!({}))).await;
    let client = bmc.client();
    client.get("https://evil.example/redfish/v1/Systems/1#/Boot").await.unwrap();
    client.get("//evil.example/x").await.unwrap();
    assert_eq!(bmc.lines(), ["GET /redfish/v1/Systems/1", "GET //evil.example/x"]);
}

#[tokio::test]
async fn exchanges_are_told() {
    #[derive(Default)]
    struct Told(std::sync::Mutex<Vec<String>>);
    impl Observer for Told {
        fn exchanged(&self, exchange: &Exchange<'_>) {
            let result = exchange.result.as_ref().map_err(|error| error.to_string());
            let line = format!("{} {} {result:?}", exchange.method, exchange.path);
            self.0.lock().unwrap().push(line);
        }
    }
    let bmc = Bmc::start(|_| Say::nothing(404)).await;
    let told = Arc::new(Told::default());
    let _ = bmc.client().observed(Arc::<Told>::clone(&told)).get("/x").await;
    assert_eq!(*told.0.lock().unwrap(), ["GET /x Ok(404)"]);
}
