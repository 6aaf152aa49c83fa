// SPDX-License-Identifier: Apache-2.0
//! Vendor methods: event subscriptions, and ejecting media by the older way.

use bmc_drivers::{Error, HttpMethod, MediaDevice};
use fleet_sim::{Kind, Personality};
use serde_json::{Value, json};

use crate::rig::Rig;

async fn call(
    rig: &Rig,
    method: &str,
    http_method: HttpMethod,
    arguments: Value,
) -> Result<Value, Error> {
    let arguments = arguments.as_object().expect("an object");
    let vendor = rig.driver.vendor();
    vendor.validate_call(&rig.target(), method, arguments).await?;
    Ok(vendor.call(&rig.target(), method, http_method, arguments).await?.value)
}

#[tokio::test]
async fn every_kind_of_machine_keeps_subscriptions() {
    for kind in Personality::names() {
        let rig = Rig::named(kind);
        let wanted = json!({"Destination": "https://events.example/e", "Context": "bmh",
            "HttpHeaders": [{"Authorization": "Bearer hunter2"}]});
        let made = call(&rig, "create_subscription", HttpMethod::Post, wanted).await.unwrap();
        let id = made["Id"].as_str().expect("an id").to_owned();
        assert_eq!(
            made,
            json!({"Id": id, "Context": "bmh", "Protocol": "Redfish",
                "Destination": "https://events.example/e", "EventTypes": ["Alert"]}),
            "{kind}"
        );
        let named = json!({"id": id});
        let got = call(&rig, "get_subscription", HttpMethod::Get, named.clone()).await.unwrap();
        assert_eq!(got, made, "{kind}");
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
async fn mistakes_are_refused_before_the_bmc_is_asked() {
    let rig = Rig::named("generic");
    for (method, arguments, words) in [
        ("create_subscription", json!({}), "Destination"),
        ("create_subscription", json!({"Destination": "ftp://h"}), "http"),
        ("delete_subscription", json!({}), "id"),
        ("get_subscription", json!({"id": 7}), "id"),
        ("eject_vmedia", json!({"boot_device": "tape"}), "tape"),
        ("dance", json!({}), "dance"),
    ] {
        let error = call(&rig, method, HttpMethod::Post, arguments).await.unwrap_err();
        assert!(error.is_callers_fault() && error.to_string().contains(words), "{error}");
    }
    assert_eq!(rig.calls.take(), (Vec::new(), 0));
    let wanted = json!({"Destination": "https://h", "EventTypes": ["Beep"]});
    let error = call(&rig, "create_subscription", HttpMethod::Post, wanted).await.unwrap_err();
    assert!(error.is_callers_fault() && error.to_string().contains("'Beep'"), "{error}");
}

#[tokio::test]
async fn a_bmc_without_events_says_so() {
    let mut quiet = Personality::named("generic").unwrap();
    quiet.missing = vec![Kind::EventService];
    let rig = Rig::of(quiet);
    let listed = call(&rig, "get_all_subscriptions", HttpMethod::Get, json!({})).await;
    let error = listed.unwrap_err().to_string();
    assert!(error.contains("no event service"), "{error}");
}

#[tokio::test]
async fn media_are_ejected_by_device() {
    let rig = Rig::named("generic");
    for device in [MediaDevice::Cdrom, MediaDevice::Disk] {
        let url = "http://images.example/i.iso";
        let management = rig.driver.management();
        let _ = management.attach_virtual_media(&rig.target(), device, url).await.unwrap();
    }
    let taken = |rig: &Rig| rig.machine().virtual_media().iter().flatten().count();
    assert_eq!(taken(&rig), 2);
    call(&rig, "eject_vmedia", HttpMethod::Post, json!({"boot_device": "DVD"})).await.unwrap();
    assert_eq!(taken(&rig), 1);
    call(&rig, "eject_vmedia", HttpMethod::Post, json!({})).await.unwrap();
    assert_eq!(taken(&rig), 0);
}
