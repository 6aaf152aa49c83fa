// SPDX-License-Identifier: Apache-2.0
//! Finding members, systems, managers and chassis.

use redfish::{RedfishError, RedfishResource};
use serde_json::{Value, json};

use crate::bmc::{BmcTestResponse, ScriptedBmc};

fn links(paths: &[&str]) -> Value {
    paths.iter().map(|path| json!({"@odata.id": path})).collect()
}

/// A BMC with these systems, of which `/redfish/v1/Systems/gone` does not exist.
async fn with_systems(paths: &'static [&'static str]) -> ScriptedBmc {
    ScriptedBmc::start(move |request| match request.path.as_str() {
        "/redfish/v1/" => BmcTestResponse::json(
            200,
            &json!({"Systems": {"@odata.id": "/redfish/v1/Systems"},
                "Managers": {"@odata.id": "/redfish/v1/Managers"}}),
        ),
        "/redfish/v1/Systems" => BmcTestResponse::json(200, &json!({"Members": links(paths)})),
        "/redfish/v1/Managers" => {
            let members = links(&["/redfish/v1/Managers/bmc", "/redfish/v1/Managers/gone"]);
            BmcTestResponse::json(200, &json!({"Members": members}))
        }
        "/redfish/v1/Systems/1" => BmcTestResponse::json(
            200,
            &json!({"Id": "1", "Links": {"ManagedBy": links(&["/redfish/v1/Managers/mine"])}}),
        ),
        path if path.ends_with("gone") => BmcTestResponse::nothing(404),
        path if path.starts_with("/redfish/v1/Systems/") && !paths.contains(&path) => {
            BmcTestResponse::nothing(404)
        }
        path => BmcTestResponse::json(200, &json!({"Id": path})),
    })
    .await
}

#[tokio::test]
async fn the_only_system_needs_no_name() {
    let bmc = with_systems(&["/redfish/v1/Systems/1"]).await;
    let client = bmc.client();
    assert_eq!(client.system(None).await.unwrap().text("Id"), Some("1"));
    assert_eq!(bmc.take_requests().len(), 3);
    client.system(None).await.unwrap();
    assert_eq!(bmc.take_request_lines(), ["GET /redfish/v1/Systems/1"], "the path is cached");
}

#[tokio::test]
async fn systems_by_path_and_id() {
    let bmc = with_systems(&["/redfish/v1/Systems/1", "/redfish/v1/Systems/2"]).await;
    let client = bmc.client();
    for wanted in ["/redfish/v1/Systems/2", "2", "https://else/redfish/v1/Systems/2"] {
        let system = client.system(Some(wanted)).await.unwrap();
        assert_eq!(system.path, "/redfish/v1/Systems/2", "{wanted}");
    }
    assert_eq!(
        client.system(None).await.unwrap_err().to_string(),
        "the BMC has several systems; set redfish_system_id to one of /redfish/v1/Systems/1, \
         /redfish/v1/Systems/2"
    );
    for wanted in ["3", "/redfish/v1/Systems/3"] {
        let error = client.system(Some(wanted)).await.unwrap_err();
        assert!(
            matches!(&error, RedfishError::NoSuchSystem { known, .. } if known.len() == 2),
            "{wanted} {error}"
        );
    }
    let none = with_systems(&[]).await.client().system(None).await.unwrap_err();
    assert!(matches!(none, RedfishError::NoSystems { .. }), "{none}");
}

#[tokio::test]
async fn managers_by_link_else_all_that_exist() {
    let bmc = with_systems(&["/redfish/v1/Systems/1", "/redfish/v1/Systems/2"]).await;
    let client = bmc.client();
    for (system, managers) in
        [("1", ["/redfish/v1/Managers/mine"]), ("2", ["/redfish/v1/Managers/bmc"])]
    {
        let system = client.system(Some(system)).await.unwrap();
        let found = client.managers(&system).await.unwrap();
        let paths: Vec<_> = found.iter().map(|manager| manager.path.as_str()).collect();
        assert_eq!(paths, managers);
        assert!(client.chassis(&system).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn pages_are_followed_and_end() {
    let bmc = ScriptedBmc::start(|request| match request.path.as_str() {
        "/c" => BmcTestResponse::json(
            200,
            &json!({"Members": links(&["/c/1"]), "Members@odata.nextLink": "/c?$skip=1"}),
        ),
        "/c?$skip=1" => BmcTestResponse::json(200, &json!({"Members": links(&["/c/2"])})),
        "/crowd" => {
            let paths: Vec<String> = (0..1001).map(|number| format!("/crowd/{number}")).collect();
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            BmcTestResponse::json(200, &json!({"Members": links(&paths)}))
        }
        path if path.starts_with("/long") => {
            let next = format!("{path}1");
            BmcTestResponse::json(200, &json!({"Members": links(&["/x"]), "@odata.nextLink": next}))
        }
        "/round" => {
            BmcTestResponse::json(200, &json!({"Members": [], "@odata.nextLink": "/round"}))
        }
        _ => BmcTestResponse::json(200, &json!({})),
    })
    .await;
    let client = bmc.client();
    assert_eq!(client.members("/c").await.unwrap(), ["/c/1", "/c/2"]);
    assert_eq!(client.collect("/c").await.unwrap().len(), 2);
    for endless in ["/round", "/crowd", "/long"] {
        let error = client.members(endless).await.unwrap_err();
        assert!(matches!(error, RedfishError::Endless { limit: 1000, .. }), "{endless}: {error}");
    }
    bmc.take_requests();
    let many = vec![json!({"@odata.id": "/x"}); 1001];
    let system = RedfishResource {
        path: "/s".to_owned(),
        etag: None,
        body: json!({"Links": {"ManagedBy": many}}),
    };
    let error = client.managers(&system).await.unwrap_err();
    assert!(matches!(error, RedfishError::Endless { .. }), "{error}");
    assert!(bmc.take_requests().is_empty(), "no request is sent for too large a range");
}
