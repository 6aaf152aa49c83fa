// SPDX-License-Identifier: Apache-2.0
//! Direct calls of drivers: boot device, indicators, console, virtual media, VIFs, RAID, vendor methods.

use std::time::Duration;

use node_model::{InterfaceKind, NodeId, ProvisionState};
use serde_json::{Value, json};

use crate::ironic::rejected_requests::lock;
use crate::support::fixture::Fixture;
use crate::support::test_lab::version_header;

/// Method, path below the node, body, expected status and expected body (null for none).
type RequestRow = (&'static str, &'static str, Value, u16, Value);

async fn send_all(rows: &[RequestRow]) -> Fixture {
    let api = Fixture::start().await;
    api.node("n", |_| {}).await;
    for (method, path, body, status, expected) in rows {
        let response = api.request(method, &format!("/v1/nodes/n{path}"), body.clone()).await;
        let message = response.message();
        assert_eq!(response.status, *status, "{method} {path} {body}: {message}");
        if *status < 300 {
            let actual: Value = serde_json::from_str(&response.body).unwrap_or_default();
            assert_eq!(actual, *expected, "{method} {path}");
        }
    }
    api
}

#[tokio::test]
async fn sets_the_boot_device_and_sends_an_nmi() {
    const BOOT: &str = "/management/boot_device";
    send_all(&[
        ("PUT", BOOT, json!({"boot_device": "pxe", "persistent": true}), 204, Value::Null),
        ("GET", BOOT, Value::Null, 200, json!({"boot_device": "pxe", "persistent": true})),
        ("PUT", BOOT, json!({"boot_device": "abacus"}), 400, Value::Null),
        ("PUT", BOOT, json!({}), 400, Value::Null),
        ("PUT", "/management/inject_nmi", json!({}), 204, Value::Null),
    ])
    .await;
}

#[tokio::test]
async fn enables_and_disables_the_console() {
    const CONSOLE: &str = "/states/console";
    let off = json!({"console_enabled": false, "console_info": null});
    let api = send_all(&[
        ("GET", CONSOLE, Value::Null, 200, off.clone()),
        ("PUT", CONSOLE, json!({"enabled": "perhaps"}), 400, Value::Null),
        ("PUT", CONSOLE, json!({"enabled": 2}), 400, Value::Null),
        ("PUT", CONSOLE, json!({"enabled": 0}), 202, Value::Null),
        ("PUT", CONSOLE, json!({"enabled": 1}), 202, Value::Null),
        ("PUT", CONSOLE, json!({"enabled": true}), 202, Value::Null),
    ])
    .await;
    let on = api.get("/v1/nodes/n/states/console", &version_header(5)).await.json();
    assert_eq!(on["console_enabled"], true);
    assert_eq!(on["console_info"]["type"], "fake");
    api.node("none", |node| node.interfaces.set(InterfaceKind::Console, Some("no-console"))).await;
    assert_eq!(api.get("/v1/nodes/none/states/console", &version_header(5)).await.json(), off);
    let path = "/v1/nodes/none/states/console";
    assert_eq!(api.request("PUT", path, json!({"enabled": true})).await.status, 400);
    let response =
        api.request("PUT", "/v1/nodes/n/states/console", json!({"enabled": false})).await;
    let location = "http://api.example:6385/v1/nodes/n/states/console";
    assert_eq!(response.header("location"), Some(location));
    assert_eq!(api.get("/v1/nodes/n/states/console", &version_header(5)).await.json(), off);
}

#[tokio::test]
async fn sets_indicators() {
    let api = Fixture::start().await;
    api.node("n", |_| {}).await;
    let listed = api.get("/v1/nodes/n/management/indicators", &version_header(63)).await.json();
    let indicators = listed["indicators"].as_array().unwrap();
    let writable = indicators.iter().find(|indicator| indicator["readonly"] == false).unwrap();
    let name = writable["name"].as_str().unwrap();
    assert_eq!(
        writable["links"][0]["href"],
        format!("http://api.example:6385/v1/nodes/n/management/indicators/{name}")
    );
    assert!(name.ends_with(&format!("@{}", writable["component"].as_str().unwrap())), "{name}");
    let path = format!("/v1/nodes/n/management/indicators/{name}");
    let set = api.request("PUT", &path, json!({"state": "on"})).await;
    assert_eq!(set.status, 204, "{}", set.message());
    assert_eq!(api.get(&path, &version_header(63)).await.json(), json!({"state": "on"}));
    for (path, body) in [
        ("led", json!({"state": "on"})),
        ("@system", json!({"state": "on"})),
        ("led@nowhere", json!({"state": "on"})),
        (name, json!({"state": "dancing"})),
    ] {
        let path = format!("/v1/nodes/n/management/indicators/{path}");
        let response = api.request("PUT", &path, body).await;
        assert_eq!(response.status, 400, "{path}: {}", response.message());
    }
}

#[tokio::test]
async fn attaches_and_detaches_virtual_media() {
    let api = Fixture::start().await;
    api.node("n", |_| {}).await;
    let path = "/v1/nodes/n/vmedia";
    let image = "http://images.example/rescue.iso";
    for (method, minor, query, body, status) in [
        ("GET", 92, "", Value::Null, 404),
        ("POST", 88, "", json!({"device_type": "cdrom", "image_url": image}), 404),
        ("POST", 89, "", json!({"device_type": "tape", "image_url": image}), 400),
        ("POST", 89, "", json!({"device_type": "cdrom", "image_url": "glance://x"}), 400),
        (
            "POST",
            89,
            "",
            json!({"device_type": "cdrom", "image_url": image, "image_download_source": null}),
            400,
        ),
        ("POST", 89, "", json!({"device_type": "cdrom", "image_url": image}), 204),
        ("DELETE", 89, "?device_types=tape", Value::Null, 400),
        ("DELETE", 89, "?bogus=1", Value::Null, 400),
        ("DELETE", 89, "?device_types=floppy,disk", Value::Null, 204),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = api
            .send(method, &format!("{path}{query}"), &version_header(minor), body.as_bytes())
            .await;
        assert_eq!(response.status, status, "{method}{query} {body}: {}", response.message());
        wait_until_unlocked(&api, "n").await;
    }
    let inserted = |slots: &Value| -> Vec<Value> {
        slots.as_array().unwrap().iter().filter(|slot| slot["inserted"] == true).cloned().collect()
    };
    let slots = api.get(path, &version_header(93)).await.json();
    let expected = json!({"media_types": ["CD"], "inserted": true, "image": image});
    assert_eq!(inserted(&slots), [expected]);
    assert_eq!(api.request("DELETE", path, Value::Null).await.status, 204);
    wait_until_unlocked(&api, "n").await;
    assert_eq!(inserted(&api.get(path, &version_header(93)).await.json()), [] as [Value; 0]);
}

/// As in Ironic, a failure is reported on the node.
#[tokio::test]
async fn accepts_virtual_media_that_cannot_be_attached() {
    let api = Fixture::start().await;
    let failing = json!({"fake_management_failure": "always"});
    let failing = failing.as_object().unwrap().clone();
    api.node("n", |node| node.driver_info = failing.into()).await;
    let media = json!({"device_type": "cdrom", "image_url": "http://images.example/rescue.iso"});
    assert_eq!(api.request("POST", "/v1/nodes/n/vmedia", media).await.status, 204);
    let node = wait_until_unlocked(&api, "n").await;
    let error = node["last_error"].as_str().unwrap();
    assert!(error.contains("attach an image to the cdrom device"), "{error}");
}

/// Waits until no call in the background uses the node, and returns it.
async fn wait_until_unlocked(api: &Fixture, node: &str) -> Value {
    let wait = async {
        loop {
            let shown = api.request("GET", &format!("/v1/nodes/{node}"), Value::Null).await.json();
            if shown["reservation"].is_null() {
                return shown;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.expect("the call ends")
}

#[tokio::test]
async fn attaches_and_detaches_vifs() {
    let port = NodeId::random().to_string();
    let api = send_all(&[
        ("GET", "/vifs", Value::Null, 200, json!({"vifs": []})),
        ("POST", "/vifs", json!({"id": "vif-1", "more": 1}), 204, Value::Null),
        ("POST", "/vifs", json!({"id": "vif-1", "port_uuid": "x"}), 400, Value::Null),
        ("POST", "/vifs", json!({"id": "not a name!"}), 400, Value::Null),
        ("POST", "/vifs", json!({}), 400, Value::Null),
        ("DELETE", "/vifs/vif-1", Value::Null, 204, Value::Null),
    ])
    .await;
    let both = json!({"id": "v", "port_uuid": port, "portgroup_uuid": port});
    assert_eq!(api.request("POST", "/v1/nodes/n/vifs", both).await.status, 400);
    assert_eq!(api.get("/v1/nodes/n/vifs", &version_header(27)).await.status, 404);
}

#[tokio::test]
async fn sets_the_target_raid_configuration() {
    let disks = json!({"logical_disks": [{"size_gb": 100, "raid_level": "1"}]});
    let api = send_all(&[
        ("PUT", "/states/raid", disks.clone(), 204, Value::Null),
        ("PUT", "/states/raid", json!({"logical_disks": [{"raid_level": "1"}]}), 400, Value::Null),
        ("PUT", "/states/raid", json!({"bogus": 1}), 400, Value::Null),
    ])
    .await;
    let states = api.get("/v1/nodes/n/states", &version_header(12)).await.json();
    assert_eq!(states["target_raid_config"], disks);
    let set = |node: &'static str, minor, body: &Value| {
        let (path, body) = (format!("/v1/nodes/{node}/states/raid"), body.to_string());
        let api = &api;
        async move { api.send("PUT", &path, &version_header(minor), body.as_bytes()).await.status }
    };
    assert_eq!(set("n", 11, &disks).await, 406);
    assert_eq!(set("n", 12, &json!({})).await, 204);
    assert_eq!(
        api.get("/v1/nodes/n/states", &version_header(12)).await.json()["target_raid_config"],
        json!({})
    );
    // An empty body is an empty configuration; null is not.
    assert_eq!(set("n", 12, &disks).await, 204);
    assert_eq!(api.request("PUT", "/v1/nodes/n/states/raid", Value::Null).await.status, 204);
    let states = api.get("/v1/nodes/n/states", &version_header(12)).await.json();
    assert_eq!(states["target_raid_config"], json!({}));
    assert_eq!(set("n", 12, &Value::Null).await, 400);
    api.node("bare", |node| node.interfaces.set(InterfaceKind::Raid, Some("no-raid"))).await;
    assert_eq!(set("bare", 12, &disks).await, 404);
    assert_eq!(api.request("PUT", "/v1/nodes/bare/states/raid", Value::Null).await.status, 204);
}

#[tokio::test]
async fn calls_vendor_methods_of_nodes() {
    let api = Fixture::start().await;
    api.node("n", |_| {}).await;
    let locked = api.node("locked", |_| {}).await;
    lock(&api, locked).await;
    let methods = api.get("/v1/nodes/n/vendor_passthru/methods", &version_header(5)).await.json();
    assert_eq!(methods["third_method_sync"]["http_methods"], json!(["POST"]));
    assert_eq!(methods["third_method_sync"]["async"], false);
    assert_eq!(methods["second_method"]["async"], true);
    let meow = json!({"bar": "meow"});
    for (method, path, body, status, expected) in [
        ("POST", "n/vendor_passthru?method=third_method_sync", meow.clone(), 200, "true"),
        ("POST", "n/vendor_passthru/third_method_sync", meow.clone(), 200, "true"),
        ("POST", "n/vendor_passthru?method=third_method_sync", json!({"bar": "x"}), 200, "false"),
        ("POST", "n/vendor_passthru?method=second_method", json!({"bar": "kazoo"}), 202, ""),
        ("POST", "n/vendor_passthru?method=third_method_sync", json!({}), 400, "bar"),
        ("GET", "n/vendor_passthru?method=third_method_sync", Value::Null, 400, "GET"),
        ("DELETE", "n/vendor_passthru?method=third_method_sync", meow.clone(), 400, "DELETE"),
        ("POST", "n/vendor_passthru?method=nope", json!({}), 400, "nope"),
        ("POST", "n/vendor_passthru", json!({}), 400, "method"),
        ("POST", "n/vendor_passthru?method=third_method_sync&x=1", meow.clone(), 400, "x"),
        ("POST", "n/vendor_passthru?method=third_method_sync", json!([1]), 400, ""),
        ("POST", "unknown/vendor_passthru?method=third_method_sync", meow.clone(), 404, "unknown"),
        ("POST", "locked/vendor_passthru?method=third_method_sync", meow, 409, "elsewhere"),
    ] {
        let response = api.request(method, &format!("/v1/nodes/{path}"), body.clone()).await;
        assert_eq!(response.status, status, "{method} {path} {body}: {}", response.message());
        let actual = if status < 300 { response.body.clone() } else { response.message() };
        assert!(actual.contains(expected), "{method} {path} {body}: {actual}");
    }
}

#[tokio::test]
async fn calls_vendor_methods_of_hardware_types() {
    let api = Fixture::start().await;
    for (method, path, status) in [
        ("GET", "fake-hardware/vendor_passthru/methods", 200),
        ("GET", "abacus/vendor_passthru/methods", 404),
        ("POST", "fake-hardware/vendor_passthru?method=nope", 400),
        ("POST", "fake-hardware/vendor_passthru", 400),
        ("POST", "abacus/vendor_passthru?method=nope", 404),
    ] {
        let response = api.request(method, &format!("/v1/drivers/{path}"), Value::Null).await;
        assert_eq!(response.status, status, "{method} {path}: {}", response.message());
    }
}

#[tokio::test]
async fn explains_a_verb_and_reads_sensors() {
    let api = Fixture::start().await;
    api.node("n", |node| node.provision_state = ProvisionState::Available).await;
    let possible = api.get("/v1/ferrite/nodes/n/explain?target=active", "").await;
    assert_eq!(possible.status, 200, "{}", possible.message());
    let possible = possible.json();
    assert_eq!(possible["possible"], true, "{possible}");
    assert_eq!(possible["ends_in"], "active");
    assert_eq!(possible["waiting"], Value::Null);
    let plan: Vec<&str> =
        possible["plan"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(plan.first(), Some(&"available -> deploying"), "{plan:?}");

    let rejected = api.get("/v1/ferrite/nodes/n/explain?target=rescue", "").await.json();
    assert_eq!(rejected["possible"], false);
    assert!(rejected["obstacles"][0].as_str().is_some_and(|why| why.contains("available")));

    for (query, status) in [("", 400), ("?target=dance", 400), ("?target=active&x=1", 400)] {
        let response = api.get(&format!("/v1/ferrite/nodes/n/explain{query}"), "").await;
        assert_eq!(response.status, status, "{query}: {}", response.message());
    }
    let sensors = api.get("/v1/ferrite/nodes/n/sensors", "").await.json();
    let first = &sensors["sensors"][0];
    assert!(first["name"].is_string() && first["kind"].is_string(), "{sensors}");
    assert_eq!(api.get("/v1/ferrite/nodes/unknown/sensors", "").await.status, 404);
    let deleted = format!("/v1/ferrite/nodes/{}/explain?target=active", NodeId::random());
    assert_eq!(api.get(&deleted, "").await.status, 404);
}
