// SPDX-License-Identifier: Apache-2.0
//! Recording a service over the wire.

use redfish::recording::{BmcRecording, VERSION, record};
use serde_json::json;

use crate::bmc::{BmcTestResponse, ScriptedBmc};

const TAG: &str = "437XR1138R2";

async fn contoso() -> ScriptedBmc {
    ScriptedBmc::start(|request| {
        let body = match request.path.as_str() {
            "/redfish/v1/" => json!({
                "@odata.id": "/redfish/v1/", "@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot",
                "RedfishVersion": "1.6.0", "UUID": "92384634-2938-2342-8820-489239905423",
                "Systems": {"@odata.id": "/redfish/v1/Systems"},
                "Managers": {"@odata.id": "/redfish/v1/Managers"},
                "AccountService": {"@odata.id": "/redfish/v1/AccountService/Accounts"},
            }),
            "/redfish/v1/Systems" => json!({
                "@odata.id": "/redfish/v1/Systems",
                "Members": [{"@odata.id": format!("/redfish/v1/Systems/{TAG}")}],
            }),
            path if path == format!("/redfish/v1/Systems/{TAG}") => json!({
                "@odata.id": path, "@odata.type": "#ComputerSystem.v1_10_0.ComputerSystem",
                "Manufacturer": "Contoso", "Model": "3500", "SerialNumber": TAG,
                "BiosVersion": "10.20.30.40",
                "HostName": "web-483", "Description": "web-483 in rack 12 (437xr1138r2)",
                "Actions": {"#ComputerSystem.Reset": {
                    "target": format!("{path}/Actions/ComputerSystem.Reset")}},
                "Links": {"ManagedBy": [{"@odata.id": "/redfish/v1/Managers/BMC"}]},
                "Boot": {"Gone": {"@odata.id": "/redfish/v1/Gone"}},
            }),
            "/redfish/v1/Managers" => json!({"Members": [{"@odata.id": "/redfish/v1/Managers/BMC"}]}),
            "/redfish/v1/Managers/BMC" => json!({
                "@odata.type": "#Manager.v1_5_0.Manager", "FirmwareVersion": "1.45.4b",
                "Oem": {"Contoso": {"MACAddress": "E9:47:D3:60:64:66", "At": "http://192.168.0.10/"}},
                "Note": "e9-47-d3-60-64-66",
            }),
            "/redfish/v1/AccountService/Accounts" => json!({
                "Members": [{"@odata.id": "/redfish/v1/AccountService/Accounts/jane"}],
                "Members@odata.count": 1,
            }),
            _ => return BmcTestResponse::json(404, &json!({"error": {"message": "none"}})),
        };
        BmcTestResponse::json(200, &body).with("allow", "GET, PATCH").with("etag", "\"1\"")
    })
    .await
}

#[tokio::test]
async fn a_recording_holds_the_service_and_not_the_machine() {
    let bmc = contoso().await;
    let mut counts = Vec::new();
    let recording = record(&bmc.client(), |count| counts.push(count)).await.unwrap();
    assert!(bmc.take_requests().iter().all(|request| request.method == "GET"));
    assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7]);

    let text = recording.to_text();
    for secret in
        [TAG, "437xr1138r2", "92384634", "web-483", "E9:47", "e9-47", "192.168.0.10", "jane"]
    {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    expect_test::expect_file!["../golden/contoso.json"].assert_eq(&text);

    let file = tempfile::NamedTempFile::new().unwrap();
    recording.write(file.path()).unwrap();
    assert_eq!(BmcRecording::read(file.path()).unwrap(), recording);
    assert_eq!(recording.version, VERSION);
}

#[test]
fn files_that_are_no_recordings() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (text, expected) in [
        ("{}", "is not a recording"),
        (r#"{"ferrite_recording": 2, "resources": {}}"#, "has version 2, and only 1 can be read"),
    ] {
        std::fs::write(file.path(), text).unwrap();
        let error = BmcRecording::read(file.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
