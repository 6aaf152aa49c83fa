// SPDX-License-Identifier: Apache-2.0
//! What users do to a machine directly: boot device, lights, console, drives, vendor methods.

use node_model::{InterfaceKind, NodeId, ProvisionState};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::lab::at;
use crate::refusals::lock;

/// Method, path below the node, body, status, and the body that comes back (null for none).
type Row = (&'static str, &'static str, Value, u16, Value);

async fn play(rows: &[Row]) -> Fixture {
    let api = Fixture::start().await;
    api.node("n", |_| {}).await;
    for (method, path, body, status, answer) in rows {
        let response = api.ask(method, &format!("/v1/nodes/n{path}"), body.clone()).await;
        let message = response.message();
        assert_eq!(response.status, *status, "{method} {path} {body}: {message}");
        if *status < 300 {
            let got: Value = serde_json::from_str(&response.body).unwrap_or_default();
            assert_eq!(got, *answer, "{method} {path}");
        }
    }
    api
}

#[tokio::test]
async fn boot_device_and_nmi() {
    const BOOT: &str = "/management/boot_device";
    play(&[
        ("PUT", BOOT, json!({"boot_device": "pxe", "persistent": true}), 204, Value::Null),
        ("GET", BOOT, Value::Null, 200, json!({"boot_device": "pxe", "persistent": true})),
        ("PUT", BOOT, json!({"boot_device": "abacus"}), 400, Value::Null),
        ("PUT", BOOT, json!({}), 400, Value::Null),
        ("PUT", "/management/inject_nmi", json!({}), 204, Value::Null),
    ])
    .await;
}

#[tokio::test]
async fn console() {
    const CONSOLE: &str = "/states/console";
    let off = json!({"console_enabled": false, "console_info": null});
    let api = play(&[
        ("GET", CONSOLE, Value::Null, 200, off.clone()),
        ("PUT", CONSOLE, json!({"enabled": "perhaps"}), 400, Value::Null),
        ("PUT", CONSOLE, json!({"enabled": true}), 202, Value::Null),
    ])
    .await;
    let on = api.get("/v1/nodes/n/states/console", &at(5)).await.json();
    assert_eq!(on["console_enabled"], true);
    assert_eq!(on["console_info"]["type"], "fake");
    let response = api.ask("PUT", "/v1/nodes/n/states/console", json!({"enabled": false})).await;
    let location = "http://api.example:6385/v1/nodes/n/states/console";
    assert_eq!(response.header("location"), Some(location));
    assert_eq!(api.get("/v1/nodes/n/states/console", &at(5)).await.json(), off);
}

#[tokio::test]
async fn lights() {
    let api = Fixture::start().await;
    api.node("n", |_| {}).await;
    let listed = api.get("/v1/nodes/n/management/indicators", &at(63)).await.json();
    let lights = listed["indicators"].as_array().unwrap();
    let writable = lights.iter().find(|light| light["readonly"] == false).unwrap();
    let name = writable["name"].as_str().unwrap();
    assert_eq!(
        writable["links"][0]["href"],
        format!("http://api.example:6385/v1/nodes/n/management/indicators/{name}")
    );
    assert!(name.ends_with(&format!("@{}", writable["component"].as_str().unwrap())), "{name}");
    let path = format!("/v1/nodes/n/management/indicators/{name}");
    let set = api.ask("PUT", &path, json!({"state": "on"})).await;
    assert_eq!(set.status, 204, "{}", set.message());
    assert_eq!(api.get(&path, &at(63)).await.json(), json!({"state": "on"}));
    for (path, body) in [
        ("led", json!({"state": "on"})),
        ("@system", json!({"state": "on"})),
        ("led@nowhere", json!({"state": "on"})),
        (name, json!({"state": "dancing"})),
    ] {
        let path = format!("/v1/nodes/n/management/indicators/{path}");
        let response = api.ask("PUT", &path, body).await;
        assert_eq!(response.status, 400, "{path}: {}", response.message());
    }
}

#[tokio::test]
async fn virtual_media() {
    let api = Fixture::start().await;
    api.node("n", |_| {}).await;
    let path = "/v1/nodes/n/vmedia";
    let image = "http://images.example/rescue.iso";
    for (method, minor, query, body, status) in [
        ("GET", 92, "", Value::Null, 404),
        ("POST", 88, "", json!({"device_type": "cdrom", "image_url": image}), 404),
        ("POST", 89, "", json!({"device_type": "tape", "image_url": image}), 400),
        ("POST", 89, "", json!({"device_type": "cdrom", "image_url": "glance://x"}), 400),
        ("POST", 89, "", json!({"device_type": "cdrom", "image_url": image}), 204),
        ("DELETE", 89, "?device_types=tape", Value::Null, 400),
        ("DELETE", 89, "?bogus=1", Value::Null, 400),
        ("DELETE", 89, "?device_types=floppy,disk", Value::Null, 204),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response =
            api.send(method, &format!("{path}{query}"), &at(minor), body.as_bytes()).await;
        assert_eq!(response.status, status, "{method}{query} {body}: {}", response.message());
    }
    let inserted = |slots: &Value| -> Vec<Value> {
        slots.as_array().unwrap().iter().filter(|slot| slot["inserted"] == true).cloned().collect()
    };
    let slots = api.get(path, &at(93)).await.json();
    let expected = json!({"media_types": ["CD"], "inserted": true, "image": image});
    assert_eq!(inserted(&slots), [expected]);
    assert_eq!(api.ask("DELETE", path, Value::Null).await.status, 204);
    assert_eq!(inserted(&api.get(path, &at(93)).await.json()), [] as [Value; 0]);
}

#[tokio::test]
async fn vifs() {
    let port = NodeId::random().to_string();
    let api = play(&[
        ("GET", "/vifs", Value::Null, 200, json!({"vifs": []})),
        ("POST", "/vifs", json!({"id": "vif-1", "more": 1}), 204, Value::Null),
        ("POST", "/vifs", json!({"id": "vif-1", "port_uuid": "x"}), 400, Value::Null),
        ("POST", "/vifs", json!({"id": "not a name!"}), 400, Value::Null),
        ("POST", "/vifs", json!({}), 400, Value::Null),
        ("DELETE", "/vifs/vif-1", Value::Null, 204, Value::Null),
    ])
    .await;
    let both = json!({"id": "v", "port_uuid": port, "portgroup_uuid": port});
    assert_eq!(api.ask("POST", "/v1/nodes/n/vifs", both).await.status, 400);
    assert_eq!(api.get("/v1/nodes/n/vifs", &at(27)).await.status, 404);
}

#[tokio::test]
async fn raid() {
    let disks = json!({"logical_disks": [{"size_gb": 100, "raid_level": "1"}]});
    let api = play(&[
        ("PUT", "/states/raid", disks.clone(), 204, Value::Null),
        ("PUT", "/states/raid", json!({"logical_disks": [{"raid_level": "1"}]}), 400, Value::Null),
        ("PUT", "/states/raid", json!({"bogus": 1}), 400, Value::Null),
    ])
    .await;
    let states = api.get("/v1/nodes/n/states", &at(12)).await.json();
    assert_eq!(states["target_raid_config"], disks);
    let set = |node: &'static str, minor, body: &Value| {
        let (path, body) = (format!("/v1/nodes/{node}/states/raid"), body.to_string());
        let api = &api;
        async move { api.send("PUT", &path, &at(minor), body.as_bytes()).await.status }
    };
    assert_eq!(set("n", 11, &disks).await, 406);
    assert_eq!(set("n", 12, &json!({})).await, 204);
    assert_eq!(
        api.get("/v1/nodes/n/states", &at(12)).await.json()["target_raid_config"],
        json!({})
    );
    api.node("bare", |node| node.interfaces.set(InterfaceKind::Raid, Some("no-raid"))).await;
    assert_eq!(set("bare", 12, &disks).await, 404);
}

#[tokio::test]
async fn vendor_methods() {
    let api = Fixture::start().await;
    api.node("n", |_| {}).await;
    let locked = api.node("locked", |_| {}).await;
    lock(&api, locked).await;
    let methods = api.get("/v1/nodes/n/vendor_passthru/methods", &at(5)).await.json();
    assert_eq!(methods["third_method_sync"]["http_methods"], json!(["POST"]));
    assert_eq!(methods["third_method_sync"]["async"], false);
    assert_eq!(methods["second_method"]["async"], true);
    let meow = json!({"bar": "meow"});
    for (method, path, body, status, answer) in [
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
        ("POST", "nobody/vendor_passthru?method=third_method_sync", meow.clone(), 404, "nobody"),
        ("POST", "locked/vendor_passthru?method=third_method_sync", meow, 409, "elsewhere"),
    ] {
        let response = api.ask(method, &format!("/v1/nodes/{path}"), body.clone()).await;
        assert_eq!(response.status, status, "{method} {path} {body}: {}", response.message());
        let told = if status < 300 { response.body.clone() } else { response.message() };
        assert!(told.contains(answer), "{method} {path} {body}: {told}");
    }
}

#[tokio::test]
async fn vendor_methods_of_hardware_types() {
    let api = Fixture::start().await;
    for (method, path, status) in [
        ("GET", "fake-hardware/vendor_passthru/methods", 200),
        ("GET", "abacus/vendor_passthru/methods", 404),
        ("POST", "fake-hardware/vendor_passthru?method=nope", 400),
        ("POST", "fake-hardware/vendor_passthru", 400),
        ("POST", "abacus/vendor_passthru?method=nope", 404),
    ] {
        let response = api.ask(method, &format!("/v1/drivers/{path}"), Value::Null).await;
        assert_eq!(response.status, status, "{method} {path}: {}", response.message());
    }
}

#[tokio::test]
async fn ferrites_own() {
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

    let refused = api.get("/v1/ferrite/nodes/n/explain?target=rescue", "").await.json();
    assert_eq!(refused["possible"], false);
    assert!(refused["obstacles"][0].as_str().is_some_and(|why| why.contains("available")));

    for (query, status) in [("", 400), ("?target=dance", 400), ("?target=active&x=1", 400)] {
        let response = api.get(&format!("/v1/ferrite/nodes/n/explain{query}"), "").await;
        assert_eq!(response.status, status, "{query}: {}", response.message());
    }
    let sensors = api.get("/v1/ferrite/nodes/n/sensors", "").await.json();
    let first = &sensors["sensors"][0];
    assert!(first["name"].is_string() && first["kind"].is_string(), "{sensors}");
    assert_eq!(api.get("/v1/ferrite/nodes/nobody/sensors", "").await.status, 404);
    let gone = format!("/v1/ferrite/nodes/{}/explain?target=active", NodeId::random());
    assert_eq!(api.get(&gone, "").await.status, 404);
}
