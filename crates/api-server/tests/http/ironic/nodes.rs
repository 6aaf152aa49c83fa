// SPDX-License-Identifier: Apache-2.0
//! Nodes: creation, representation, lists, deletion.

use expect_test::expect;
use node_model::{Fault, Node, ProvisionState};
use serde_json::{Value, json};
use store::JournalQuery;

use crate::support::fixture::{Fixture, LATEST};
use crate::support::test_lab::version_header;

const UNKNOWN_UUID: &str = "7fb9d8a5-7d76-4d38-b4a1-1e5ef7f0b3a3";
const ONE: &str = "11111111-1111-4111-8111-111111111111";
const TWO: &str = "22222222-2222-4222-8222-222222222222";

/// The kinds of the journal entries, in order.
async fn journal_kinds(fixture: &Fixture) -> Vec<String> {
    let query = JournalQuery { node: None, after: 0, limit: 1000 };
    let entries = fixture.store.read(move |reader| reader.journal(&query)).await.unwrap();
    entries
        .iter()
        .map(|recorded| {
            let what = serde_json::to_value(&recorded.entry.event).unwrap();
            match what["fields"].as_array() {
                None => what["kind"].as_str().unwrap().to_owned(),
                Some(fields) => {
                    let names: Vec<&str> = fields.iter().filter_map(Value::as_str).collect();
                    format!("{} {}", what["kind"].as_str().unwrap(), names.join(","))
                }
            }
        })
        .collect()
}

#[tokio::test]
async fn shows_a_node_to_the_oldest_and_the_newest_clients() {
    let fixture = Fixture::start().await;
    let body = json!({
        "uuid": ONE,
        "driver": "fake-hardware",
        "name": "n1",
        "driver_info": {"fake_address": "10.0.0.1", "fake_password": "secret"},
        "instance_info": {"display_name": "web"},
        "properties": {"cpus": 8},
        "conductor_group": "",
        "resource_class": "large",
    });
    let created = fixture.request("POST", "/v1/nodes", body).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let location = format!("http://api.example:6385/v1/nodes/{ONE}");
    assert_eq!(created.header("location"), Some(location.as_str()));
    let newest = fixture.request("GET", "/v1/nodes/n1", Value::Null).await;
    assert_eq!(newest.body, created.body);
    let oldest = fixture.get(&format!("/v1/nodes/{ONE}"), "").await;
    expect![[r#"
        {
          "chassis_uuid": null,
          "console_enabled": false,
          "created_at": "2026-11-18T11:06:40+00:00",
          "driver": "fake-hardware",
          "driver_info": {
            "fake_address": "10.0.0.1",
            "fake_password": "******"
          },
          "extra": {},
          "instance_info": {
            "display_name": "web"
          },
          "instance_uuid": null,
          "last_error": null,
          "links": [
            {
              "href": "http://api.example:6385/v1/nodes/11111111-1111-4111-8111-111111111111",
              "rel": "self"
            },
            {
              "href": "http://api.example:6385/nodes/11111111-1111-4111-8111-111111111111",
              "rel": "bookmark"
            }
          ],
          "maintenance": false,
          "maintenance_reason": null,
          "ports": [
            {
              "href": "http://api.example:6385/v1/nodes/11111111-1111-4111-8111-111111111111/ports",
              "rel": "self"
            },
            {
              "href": "http://api.example:6385/nodes/11111111-1111-4111-8111-111111111111/ports",
              "rel": "bookmark"
            }
          ],
          "power_state": null,
          "properties": {
            "cpus": 8
          },
          "provision_state": "enroll",
          "provision_updated_at": null,
          "reservation": null,
          "target_power_state": null,
          "target_provision_state": null,
          "updated_at": null,
          "uuid": "11111111-1111-4111-8111-111111111111"
        }"#]]
    .assert_eq(&format!("{:#}", oldest.json()));
    expect![[r#"
        {
          "allocation_uuid": null,
          "automated_clean": null,
          "bios_interface": "fake",
          "boot_interface": "fake",
          "boot_mode": null,
          "chassis_uuid": null,
          "clean_step": {},
          "conductor": "conductor-1",
          "conductor_group": "",
          "console_enabled": false,
          "console_interface": "fake",
          "created_at": "2026-11-18T11:06:40+00:00",
          "deploy_interface": "fake",
          "deploy_step": {},
          "description": null,
          "disable_power_off": false,
          "driver": "fake-hardware",
          "driver_info": {
            "fake_address": "10.0.0.1",
            "fake_password": "******"
          },
          "driver_internal_info": {},
          "extra": {},
          "fault": null,
          "firmware_interface": "fake",
          "health": null,
          "inspect_interface": "fake",
          "inspection_finished_at": null,
          "inspection_started_at": null,
          "instance_info": {
            "display_name": "web"
          },
          "instance_name": "web",
          "instance_uuid": null,
          "last_error": null,
          "lessee": null,
          "links": [
            {
              "href": "http://api.example:6385/v1/nodes/11111111-1111-4111-8111-111111111111",
              "rel": "self"
            },
            {
              "href": "http://api.example:6385/nodes/11111111-1111-4111-8111-111111111111",
              "rel": "bookmark"
            }
          ],
          "maintenance": false,
          "maintenance_reason": null,
          "management_interface": "fake",
          "name": "n1",
          "network_data": {},
          "network_interface": "noop",
          "owner": null,
          "parent_node": null,
          "portgroups": [
            {
              "href": "http://api.example:6385/v1/nodes/11111111-1111-4111-8111-111111111111/portgroups",
              "rel": "self"
            },
            {
              "href": "http://api.example:6385/nodes/11111111-1111-4111-8111-111111111111/portgroups",
              "rel": "bookmark"
            }
          ],
          "ports": [
            {
              "href": "http://api.example:6385/v1/nodes/11111111-1111-4111-8111-111111111111/ports",
              "rel": "self"
            },
            {
              "href": "http://api.example:6385/nodes/11111111-1111-4111-8111-111111111111/ports",
              "rel": "bookmark"
            }
          ],
          "power_interface": "fake",
          "power_state": null,
          "properties": {
            "cpus": 8
          },
          "protected": false,
          "protected_reason": null,
          "provision_state": "enroll",
          "provision_updated_at": null,
          "raid_config": {},
          "raid_interface": "fake",
          "rescue_interface": "fake",
          "reservation": null,
          "resource_class": "large",
          "retired": false,
          "retired_reason": null,
          "secure_boot": null,
          "service_step": {},
          "shard": null,
          "states": [
            {
              "href": "http://api.example:6385/v1/nodes/11111111-1111-4111-8111-111111111111/states",
              "rel": "self"
            },
            {
              "href": "http://api.example:6385/nodes/11111111-1111-4111-8111-111111111111/states",
              "rel": "bookmark"
            }
          ],
          "storage_interface": "noop",
          "target_power_state": null,
          "target_provision_state": null,
          "target_raid_config": {},
          "traits": [],
          "updated_at": null,
          "uuid": "11111111-1111-4111-8111-111111111111",
          "vendor_interface": "fake",
          "volume": [
            {
              "href": "http://api.example:6385/v1/nodes/11111111-1111-4111-8111-111111111111/volume",
              "rel": "self"
            },
            {
              "href": "http://api.example:6385/nodes/11111111-1111-4111-8111-111111111111/volume",
              "rel": "bookmark"
            }
          ]
        }"#]]
    .assert_eq(&format!("{:#}", newest.json()));
    assert_eq!(journal_kinds(&fixture).await, ["enrolled"]);
}

#[tokio::test]
async fn rejects_invalid_nodes() {
    let fixture = Fixture::start().await;
    fixture.node("taken", |node| node.instance_uuid = TWO.parse().ok()).await;
    for (body, status) in [
        (json!({}), 400),
        (json!({"driver": "nope"}), 400),
        (json!({"driver": "fake-hardware", "conductor_group": "elsewhere"}), 400),
        (json!({"driver": "fake-hardware", "power_interface": "nope"}), 400),
        (json!({"driver": "fake-hardware", "chassis_uuid": UNKNOWN_UUID}), 400),
        (json!({"driver": "fake-hardware", "parent_node": "nope"}), 400),
        (json!({"driver": "fake-hardware", "parent_node": UNKNOWN_UUID}), 400),
        (json!({"driver": "fake-hardware", "uuid": ONE, "parent_node": ONE}), 400),
        (json!({"driver": "fake-hardware", "name": "taken"}), 409),
        (json!({"driver": "fake-hardware", "name": "detail"}), 400),
        (json!({"driver": "fake-hardware", "name": "a b"}), 400),
        (json!({"driver": "fake-hardware", "instance_uuid": TWO}), 409),
        (json!({"driver": "fake-hardware", "properties": {"cpus": "many"}}), 400),
        (json!({"driver": "fake-hardware", "network_data": {"links": []}}), 400),
        (json!({"driver": "fake-hardware", "bogus": 1}), 400),
        (json!({"driver": "fake-hardware", "provision_state": "active"}), 400),
        (json!({"driver": "fake-hardware", "traits": ["CUSTOM_A"]}), 400),
    ] {
        let response = fixture.request("POST", "/v1/nodes", body.clone()).await;
        assert_eq!(response.status, status, "{body}: {}", response.body);
        assert!(!response.message().is_empty(), "{body}");
    }
    let old = fixture
        .send(
            "POST",
            "/v1/nodes",
            &version_header(4),
            br#"{"driver": "fake-hardware", "name": "n"}"#,
        )
        .await;
    assert_eq!(old.status, 406);
    // The tests of python-ironicclient match this text.
    let message = fixture.request("POST", "/v1/nodes", json!({"driver": "nope"})).await.message();
    let expected = "No valid host was found. Reason: No conductor service registered which supports \
                 driver nope";
    assert!(message.starts_with(expected), "{message}");
    let list = fixture.request("GET", "/v1/nodes?include_children=true", Value::Null).await;
    assert_eq!(list.json()["nodes"].as_array().map(Vec::len), Some(1), "nothing was stored");
    assert!(journal_kinds(&fixture).await.is_empty());
}

#[tokio::test]
async fn sets_defaults_of_the_configuration_and_of_the_version() {
    let fixture = Fixture::with(|config| config.default_resource_class = Some("any".into())).await;
    let body = json!({"driver": "fake-hardware", "inspect_interface": "no-inspect"});
    let node = fixture.request("POST", "/v1/nodes", body.clone()).await.json();
    assert_eq!(node["resource_class"], "any");
    assert_eq!(node["provision_state"], "enroll");
    assert_eq!(node["inspect_interface"], "no-inspect");
    assert_eq!(node["storage_interface"], "noop");
    let old = br#"{"driver": "fake-hardware"}"#;
    let node = fixture.send("POST", "/v1/nodes", &version_header(10), old).await.json();
    assert_eq!(node["provision_state"], "available");
    let node = fixture.send("POST", "/v1/nodes", &version_header(1), old).await.json();
    assert_eq!(node["provision_state"], Value::Null);
}

#[tokio::test]
async fn selects_fields_of_one_node() {
    let fixture = Fixture::start().await;
    let id = fixture.node("n1", |_| {}).await;
    let shown =
        fixture.request("GET", "/v1/nodes/n1?fields=name,conductor", Value::Null).await.json();
    assert_eq!(shown["name"], "n1");
    assert_eq!(shown["conductor"], "conductor-1");
    assert_eq!(shown.as_object().map(serde_json::Map::len), Some(3), "and the links");
    for (path, headers, status) in [
        (format!("/v1/nodes/{id}"), String::new(), 200),
        (format!("/v1/nodes/{id}.json"), version_header(90), 200),
        ("/v1/nodes/n1".to_owned(), version_header(4), 404),
        ("/v1/nodes/n1".to_owned(), version_header(5), 200),
        ("/v1/nodes/n1?fields=uuid".to_owned(), version_header(7), 406),
        ("/v1/nodes/n1?fields=bogus".to_owned(), LATEST.to_owned(), 400),
        ("/v1/nodes/n1?fields=shard".to_owned(), version_header(81), 406),
        ("/v1/nodes/n1?bogus=1".to_owned(), LATEST.to_owned(), 400),
        (format!("/v1/nodes/{UNKNOWN_UUID}"), LATEST.to_owned(), 404),
        ("/v1/nodes/a%20b".to_owned(), LATEST.to_owned(), 400),
    ] {
        let response = fixture.get(&path, &headers).await;
        assert_eq!(response.status, status, "{path} {headers}: {}", response.body);
    }
}

#[tokio::test]
async fn filters_lists() {
    let fixture = Fixture::start().await;
    let chassis = fixture.request("POST", "/v1/chassis", json!({})).await.json();
    let chassis = chassis["uuid"].as_str().unwrap().to_owned();
    let inside = chassis.clone();
    let parent = fixture
        .node("a", move |node| {
            node.chassis_id = inside.parse().ok();
            node.owner = Some("red".into());
            node.description = Some("The FIRST machine".into());
            node.shard = Some("s1".into());
        })
        .await;
    fixture
        .node("b", |node| {
            node.instance_uuid = TWO.parse().ok();
            node.instance_name = Some("web".into());
            node.provision_state = ProvisionState::Active;
            node.resource_class = Some("large".into());
            node.lessee = Some("red".into());
            node.shard = Some("s2".into());
        })
        .await;
    fixture
        .node("c", |node| {
            node.maintenance = true;
            node.fault = Some(Fault::Power);
            node.retired = true;
            node.conductor_group = "far".into();
        })
        .await;
    fixture.node("part", move |node| node.parent_node = Some(parent)).await;
    for (query, names) in [
        ("", "a b c"),
        ("include_children=true", "a b c part"),
        ("include_children=false", "a b c"),
        ("parent_node=a", "part"),
        (&format!("parent_node={parent}"), "part"),
        ("parent_node=nope", ""),
        ("associated=true", "b"),
        ("associated=false", "a c"),
        ("maintenance=true", "c"),
        ("retired=yes", "c"),
        ("fault=power%20failure", "c"),
        ("provision_state=active", "b"),
        ("driver=fake-hardware", "a b c"),
        ("driver=nope", ""),
        ("resource_class=large", "b"),
        ("owner=red", "a"),
        ("lessee=red", "b"),
        ("project=red", "a b"),
        ("description_contains=first", "a"),
        ("shard=s1", "a"),
        ("shard=s1,s2", "a b"),
        ("sharded=false", "c"),
        ("conductor_group=FAR", "c"),
        ("conductor=conductor-1", "a b"),
        ("conductor=unknown", ""),
        (&format!("chassis_uuid={chassis}"), "a"),
        (&format!("instance_uuid={TWO}&limit=1"), "b"),
        ("instance_name=web", "b"),
        ("sort_key=name&sort_dir=desc", "c b a"),
        ("sort_key=provision_state&limit=2", "b a"),
    ] {
        for path in ["/v1/nodes", "/v1/nodes/detail"] {
            let response = fixture.request("GET", &format!("{path}?{query}"), Value::Null).await;
            let list = response.json();
            let found: Vec<&str> = list["nodes"]
                .as_array()
                .unwrap_or_else(|| panic!("{path}?{query}: {}", response.body))
                .iter()
                .filter_map(|node| node["name"].as_str())
                .collect();
            assert_eq!(found.join(" "), names, "{path}?{query}");
            let paged = query.ends_with("limit=2");
            assert_eq!(list.get("next").is_some(), paged, "{path}?{query}");
        }
    }
    for path in
        [format!("/v1/chassis/{chassis}/nodes"), format!("/v1/chassis/{chassis}/nodes/detail")]
    {
        let list = fixture.request("GET", &path, Value::Null).await.json();
        assert_eq!(list["nodes"][0]["name"], "a", "{path}");
        assert_eq!(list["nodes"].as_array().map(Vec::len), Some(1), "{path}");
    }
}

#[tokio::test]
async fn rejects_invalid_list_queries() {
    let fixture = Fixture::start().await;
    for (path, headers, status) in [
        ("/v1/nodes?bogus=1", LATEST.to_owned(), 400),
        ("/v1/nodes?limit=0", LATEST.to_owned(), 400),
        ("/v1/nodes?sort_key=extra", LATEST.to_owned(), 400),
        ("/v1/nodes?sort_dir=up", LATEST.to_owned(), 400),
        ("/v1/nodes?provision_state=nope", LATEST.to_owned(), 400),
        ("/v1/nodes?maintenance=perhaps", LATEST.to_owned(), 400),
        ("/v1/nodes?fault=nope", LATEST.to_owned(), 400),
        ("/v1/nodes?detail=true&fields=uuid", LATEST.to_owned(), 400),
        ("/v1/nodes/detail?fields=uuid", LATEST.to_owned(), 400),
        (&format!("/v1/nodes?marker={UNKNOWN_UUID}"), LATEST.to_owned(), 404),
        (&format!("/v1/chassis/{UNKNOWN_UUID}/nodes"), LATEST.to_owned(), 404),
        (&format!("/v1/chassis/{UNKNOWN_UUID}/nodes?owner=x"), LATEST.to_owned(), 400),
        ("/v1/nodes?detail=true", version_header(42), 400),
        ("/v1/nodes?fields=uuid", version_header(7), 406),
        ("/v1/nodes?conductor=x", version_header(48), 406),
        ("/v1/nodes?shard=x", version_header(81), 406),
    ] {
        let response = fixture.get(path, &headers).await;
        assert_eq!(response.status, status, "{path} {headers}: {}", response.body);
    }
}

#[tokio::test]
async fn lists_are_paged() {
    let fixture = Fixture::with(|config| config.max_limit = 4).await;
    for number in 0..10 {
        fixture.node(&format!("n{number}"), |_| {}).await;
    }
    for query in ["", "?detail=true&sort_key=name", "?fields=name&limit=3&sort_dir=desc"] {
        let mut path = format!("/v1/nodes{query}");
        let mut seen = Vec::new();
        for _ in 0..5 {
            let page = fixture.request("GET", &path, Value::Null).await.json();
            let names = page["nodes"].as_array().unwrap().iter();
            seen.extend(names.map(|node| node["name"].as_str().unwrap().to_owned()));
            match page["next"].as_str() {
                Some(next) => path = next.replace("http://api.example:6385", ""),
                None => break,
            }
        }
        let mut expected: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
        if query.ends_with("desc") {
            expected.reverse();
        }
        assert_eq!(seen, expected, "{query}");
    }
}

#[tokio::test]
async fn deletion_depends_on_the_state() {
    let fixture = Fixture::start().await;
    let instance: fn(&mut Node) = |node| node.instance_uuid = TWO.parse().ok();
    type DeletionRow = (&'static str, fn(&mut Node), u16);
    let rows: [DeletionRow; 9] = [
        ("enrolled", |_| {}, 204),
        ("manageable", |node| node.provision_state = ProvisionState::Manageable, 204),
        ("available", |node| node.provision_state = ProvisionState::Available, 204),
        ("active", |node| node.provision_state = ProvisionState::Active, 409),
        ("clean failed", |node| node.provision_state = ProvisionState::CleanFail, 409),
        ("with an instance", instance, 409),
        (
            "with an instance, in maintenance",
            |node| {
                node.instance_uuid = TWO.parse().ok();
                node.maintenance = true;
            },
            204,
        ),
        (
            "protected",
            |node| {
                node.protected = true;
                node.maintenance = true;
            },
            403,
        ),
        (
            "active, in maintenance",
            |node| {
                node.provision_state = ProvisionState::Active;
                node.maintenance = true;
            },
            204,
        ),
    ];
    for (name, change, status) in rows {
        let id = fixture.node("n", change).await;
        let response = fixture.request("DELETE", &format!("/v1/nodes/{id}"), Value::Null).await;
        assert_eq!(response.status, status, "{name}: {}", response.body);
        let is_deleted =
            fixture.request("GET", &format!("/v1/nodes/{id}"), Value::Null).await.status == 404;
        assert_eq!(is_deleted, status == 204, "{name}");
        fixture.store.write(move |writer| writer.delete(id)).await.unwrap();
    }
    assert_eq!(journal_kinds(&fixture).await, ["removed"; 5]);
    assert_eq!(fixture.request("DELETE", "/v1/nodes/nope", Value::Null).await.status, 404);
}

#[tokio::test]
async fn rejects_deletion_of_a_locked_node() {
    let fixture = Fixture::start().await;
    let id = fixture.node("n1", |node| node.maintenance = true).await;
    let owner = store::LeaseOwner { hostname: "conductor-1".into(), run: uuid::Uuid::nil() };
    let duration = std::time::Duration::from_secs(60);
    fixture.store.write(move |writer| writer.claim(id, &owner, duration)).await.unwrap();
    let response = fixture.request("DELETE", "/v1/nodes/n1", Value::Null).await;
    assert_eq!(response.status, 409);
    assert!(response.message().contains("conductor-1"), "{}", response.body);
}
