// SPDX-License-Identifier: Apache-2.0
//! Vendor methods: event subscriptions and `eject_vmedia`.

use drivers::{DriverError, HttpMethod, MediaDevice};
use fleet_sim::{Personality, ResourceKind};
use serde_json::{Value, json};

use crate::rig::RedfishRig;

async fn call(
    rig: &RedfishRig,
    method: &str,
    http_method: HttpMethod,
    arguments: Value,
) -> Result<Value, DriverError> {
    let arguments = arguments.as_object().expect("an object");
    let vendor = rig.driver.vendor();
    vendor.validate_call(&rig.target(), method, arguments).await?;
    Ok(vendor.call(&rig.target(), method, http_method, arguments).await?.value)
}

#[tokio::test]
async fn manages_subscriptions_on_every_personality() {
    for kind in Personality::built_in_names() {
        let rig = RedfishRig::named(kind);
        let wanted = json!({"Destination": "https://events.example/e", "Context": "bmh",
            "HttpHeaders": [{"Authorization": "Bearer hunter2"}]});
        let created = call(&rig, "create_subscription", HttpMethod::Post, wanted).await.unwrap();
        let id = created["Id"].as_str().expect("an id").to_owned();
        assert_eq!(
            created,
            json!({"Id": id, "Context": "bmh", "Protocol": "Redfish",
                "Destination": "https://events.example/e", "EventTypes": ["Alert"]}),
            "{kind}"
        );
        let named = json!({"id": id});
        let got = call(&rig, "get_subscription", HttpMethod::Get, named.clone()).await.unwrap();
        assert_eq!(got, created, "{kind}");
        let all = call(&rig, "get_all_subscriptions", HttpMethod::Get, json!({})).await.unwrap();
        assert_eq!(all["Members@odata.count"], 1, "{kind}");
        assert!(all["Members"][0]["@odata.id"].is_string(), "{kind}");
        call(&rig, "delete_subscription", HttpMethod::Delete, named.clone()).await.unwrap();
        for (method, http) in
            [("delete_subscription", HttpMethod::Delete), ("get_subscription", HttpMethod::Get)]
        {
            let error = call(&rig, method, http, named.clone()).await.unwrap_err();
            assert!(error.is_not_found(), "{kind}: {error}");
            assert!(error.to_string().contains("get_all_subscriptions"), "{kind}: {error}");
        }
    }
}

#[tokio::test]
async fn rejects_invalid_calls_without_requests() {
    let rig = RedfishRig::named("generic");
    for (method, arguments, text) in [
        ("create_subscription", json!({}), "Destination"),
        ("create_subscription", json!({"Destination": "ftp://h"}), "http"),
        ("delete_subscription", json!({}), "id"),
        ("get_subscription", json!({"id": 7}), "id"),
        ("eject_vmedia", json!({"boot_device": "tape"}), "tape"),
        ("dance", json!({}), "dance"),
    ] {
        let error = call(&rig, method, HttpMethod::Post, arguments).await.unwrap_err();
        assert!(error.is_caller_error() && error.to_string().contains(text), "{error}");
    }
    assert_eq!(rig.calls.take(), (Vec::new(), 0));
    let wanted = json!({"Destination": "https://h", "EventTypes": ["Beep"]});
    let error = call(&rig, "create_subscription", HttpMethod::Post, wanted).await.unwrap_err();
    assert!(error.is_caller_error() && error.to_string().contains("'Beep'"), "{error}");
}

#[tokio::test]
async fn reports_a_missing_event_service() {
    let mut quiet = Personality::built_in("generic").unwrap();
    quiet.missing = vec![ResourceKind::EventService];
    let rig = RedfishRig::with_personality(quiet);
    let listed = call(&rig, "get_all_subscriptions", HttpMethod::Get, json!({})).await;
    let error = listed.unwrap_err().to_string();
    assert!(error.contains("no event service"), "{error}");
}

#[tokio::test]
async fn ejects_media_by_device() {
    let rig = RedfishRig::named("generic");
    for device in [MediaDevice::Cdrom, MediaDevice::Disk] {
        let url = "http://images.example/i.iso";
        let management = rig.driver.management();
        let _ = management.attach_virtual_media(&rig.target(), device, url).await.unwrap();
    }
    let inserted = |rig: &RedfishRig| rig.machine().virtual_media().iter().flatten().count();
    assert_eq!(inserted(&rig), 2);
    call(&rig, "eject_vmedia", HttpMethod::Post, json!({"boot_device": "DVD"})).await.unwrap();
    assert_eq!(inserted(&rig), 1);
    call(&rig, "eject_vmedia", HttpMethod::Post, json!({})).await.unwrap();
    assert_eq!(inserted(&rig), 0);
}
