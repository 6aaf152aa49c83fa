// SPDX-License-Identifier: Apache-2.0
//! The Redfish service without sockets: links, error responses, conditions, sessions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use http::{Method, StatusCode, header};
use node_model::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{RedfishRequest, RedfishResponse, RedfishServiceState, handle_request};
use crate::BmcCredentials;
use crate::machine::{MachineIdentity, MachineModel, ResetType};
use crate::personality::Personality;

/// A BMC with a client's session.
struct RedfishTestBmc {
    machine: MachineModel,
    service: RedfishServiceState,
    credentials: BmcCredentials,
    now: Timestamp,
    token: Option<String>,
}

impl RedfishTestBmc {
    fn new(personality: &str) -> Self {
        let personality = Arc::new(Personality::built_in(personality).unwrap());
        Self {
            machine: MachineModel::new(MachineIdentity { index: 3, seed: 1 }, personality),
            service: RedfishServiceState::default(),
            credentials: BmcCredentials::default(),
            now: Timestamp::from_secs(1_000_000),
            token: None,
        }
    }

    fn advance(&mut self, seconds: i64) {
        self.now = Timestamp(self.now.0 + seconds * 1_000_000);
    }

    fn send(
        &mut self,
        method: &Method,
        path: &str,
        body: &[u8],
        if_match: Option<&str>,
    ) -> RedfishResponse {
        let request = RedfishRequest {
            method,
            path,
            authorization: self.token.is_none().then_some("Basic YWRtaW46cGFzc3dvcmQ="),
            token: self.token.as_deref(),
            if_match,
            body,
            now: self.now,
            rejects_credentials: false,
            power_stuck: false,
        };
        handle_request(&mut self.machine, &mut self.service, &self.credentials, request)
    }

    fn get(&mut self, path: &str) -> (StatusCode, Value) {
        let response = self.send(&Method::GET, path, b"", None);
        (response.status, parsed(&response))
    }

    fn send_json(&mut self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        // Like sushy, make PATCH conditional.
        let etag = (method == Method::PATCH).then(|| self.etag(path)).flatten();
        let response = self.send(&method, path, body.to_string().as_bytes(), etag.as_deref());
        (response.status, parsed(&response))
    }

    fn etag(&mut self, path: &str) -> Option<String> {
        let response = self.send(&Method::GET, path, b"", None);
        header_value(&response, &header::ETAG)
    }

    fn system_path(&self) -> String {
        super::system_path(&self.machine)
    }

    /// Returns all documents reachable by links, by path.
    fn crawl(&mut self) -> BTreeMap<String, Value> {
        let mut found = BTreeMap::new();
        let mut queue = VecDeque::from(["/redfish/v1/".to_owned()]);
        while let Some(path) = queue.pop_front() {
            if found.contains_key(&path) {
                continue;
            }
            let (status, document) = self.get(&path);
            assert!(status.is_success(), "{path} returns {status}");
            collect_links(&document, &mut queue);
            found.insert(path, document);
        }
        found
    }
}

fn parsed(response: &RedfishResponse) -> Value {
    if response.body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&response.body).unwrap()
    }
}

fn header_value(response: &RedfishResponse, name: &http::HeaderName) -> Option<String> {
    let found = response.headers.iter().find(|(other, _)| other == name);
    found.map(|(_, value)| value.to_str().unwrap().to_owned())
}

/// Collects all paths in a document: links, settings, registries, action infos.
fn collect_links(value: &Value, queue: &mut VecDeque<String>) {
    const LINK_PROPERTIES: &[&str] = &["@odata.id", "Uri", "@Redfish.ActionInfo", "TaskMonitor"];
    if let Some(fields) = value.as_object() {
        let paths = LINK_PROPERTIES.iter().filter_map(|name| fields.get(*name)?.as_str());
        queue.extend(paths.filter(|path| !path.contains('#')).map(str::to_owned));
        fields.values().for_each(|value| collect_links(value, queue));
    }
    value.as_array().into_iter().flatten().for_each(|value| collect_links(value, queue));
}

/// Creates a BMC that has members in every collection.
fn bmc_with_content(personality: &str) -> RedfishTestBmc {
    let mut bmc = RedfishTestBmc::new(personality);
    bmc.machine.reset(ResetType::On, bmc.now).unwrap();
    bmc.advance(300);
    let image = json!({"ImageURI": "http://images/bios-9.9.bin"});
    let update = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate";
    assert_eq!(bmc.send_json(Method::POST, update, &image).0, StatusCode::ACCEPTED);
    let destination = json!({"Destination": "https://events/", "Context": "x"});
    let subscriptions = "/redfish/v1/EventService/Subscriptions";
    assert_eq!(bmc.send_json(Method::POST, subscriptions, &destination).0, StatusCode::CREATED);
    let controller = &bmc.machine.personality().storage[0];
    if !controller.raid.is_empty() {
        let volumes = format!("{}/Storage/{}/Volumes", bmc.system_path(), controller.id);
        let (status, _) = bmc.send_json(Method::POST, &volumes, &json!({"RAIDType": "RAID1"}));
        assert!(status.is_success(), "{status}");
    }
    bmc.advance(100);
    bmc
}

#[test]
fn every_link_resolves_for_every_personality() {
    for name in Personality::built_in_names() {
        let mut bmc = bmc_with_content(name);
        let documents = bmc.crawl();
        assert!(documents.len() > 30, "{name} has only {} documents", documents.len());
        for (path, document) in &documents {
            let id = document["@odata.id"].as_str().unwrap_or(path).trim_end_matches('/');
            let is_monitor = path.contains("/TaskMonitors/");
            assert!(id == path.trim_end_matches('/') || is_monitor, "{name}: {path} has id {id}");
            let count = document["Members"].as_array().map(Vec::len);
            assert_eq!(document["Members@odata.count"].as_u64().map(|it| it as usize), count);
        }
    }
}

#[test]
fn missing_resources_are_neither_linked_nor_served() {
    let mut bmc = RedfishTestBmc::new("dell-like");
    let chassis = "/redfish/v1/Chassis/System.Embedded.1";
    let (_, document) = bmc.get(chassis);
    assert!(document.get("Thermal").is_none() && document.get("ThermalSubsystem").is_some());
    assert_eq!(bmc.get(&format!("{chassis}/Thermal")).0, StatusCode::NOT_FOUND);
    let media = "/redfish/v1/Systems/System.Embedded.1/VirtualMedia/CD";
    assert_eq!(bmc.get(media).0, StatusCode::NOT_FOUND);
}

#[test]
fn personalities_show_vendor_behaviour() {
    let mut hpe = RedfishTestBmc::new("hpe-like");
    let redirect = hpe.send(&Method::GET, "/redfish/v1", b"", None);
    assert_eq!(redirect.status, StatusCode::PERMANENT_REDIRECT);
    assert_eq!(header_value(&redirect, &header::LOCATION).as_deref(), Some("/redfish/v1/"));
    let (_, root) = hpe.get("/redfish/v1/");
    assert_eq!(root["Systems"]["@odata.id"], "/redfish/v1/Systems/");
    assert!(hpe.etag("/redfish/v1/Systems/1/").unwrap().starts_with("W/"));

    let mut supermicro = RedfishTestBmc::new("supermicro-like");
    let (_, system) = supermicro.get("/redfish/v1/Systems/1");
    assert!(system.get("BootProgress").is_none());
    let action = &system["Actions"]["#ComputerSystem.Reset"];
    assert!(action.get("ResetType@Redfish.AllowableValues").is_none());
    let (_, info) = supermicro.get(action["@Redfish.ActionInfo"].as_str().unwrap());
    assert_eq!(info["Parameters"][0]["AllowableValues"][0], "On");
    let (status, error) = supermicro.get("/redfish/v1/Systems/2");
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(error["error"].get("@Message.ExtendedInfo").is_none());

    let mut lenovo = RedfishTestBmc::new("lenovo-like");
    let slot = "/redfish/v1/Managers/1/VirtualMedia/EXT1";
    assert!(lenovo.get(slot).1.get("Actions").is_none());
    let image = json!({"Image": "http://images/a.iso", "Inserted": true});
    let unconditional = lenovo.send(&Method::PATCH, slot, image.to_string().as_bytes(), None);
    assert_eq!(unconditional.status, StatusCode::PRECONDITION_REQUIRED);
    let (status, shown) = lenovo.send_json(Method::PATCH, slot, &image);
    assert_eq!((status, &shown["Inserted"]), (StatusCode::OK, &json!(true)));
    let (_, shown) =
        lenovo.send_json(Method::PATCH, slot, &json!({"Image": null, "Inserted": false}));
    assert_eq!((&shown["Inserted"], &shown["Image"]), (&json!(false), &Value::Null));
}

#[test]
fn error_responses_name_the_cause() {
    let mut bmc = RedfishTestBmc::new("generic");
    let system = bmc.system_path();
    let reset = format!("{system}/Actions/ComputerSystem.Reset");
    let media = format!("{system}/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia");
    let volumes = format!("{system}/Storage/raid/Volumes");
    let bios = format!("{system}/Bios/Settings");
    let update = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate".to_owned();
    let subscriptions = "/redfish/v1/EventService/Subscriptions".to_owned();
    let boot = |field: &str, value: Value| json!({"Boot": {(field): value}});
    for (method, path, body, status, message) in [
        (Method::POST, &reset, json!({}), 400, "ActionParameterMissing"),
        (
            Method::POST,
            &reset,
            json!({"ResetType": "Explode"}),
            400,
            "ActionParameterValueNotInList",
        ),
        (Method::POST, &reset, json!({"ResetType": 7}), 400, "PropertyValueTypeError"),
        (Method::POST, &reset, json!([1]), 400, "MalformedJSON"),
        (Method::DELETE, &reset, json!({}), 405, "OperationNotAllowed"),
        (Method::PATCH, &system, json!({"Colour": "red"}), 400, "PropertyUnknown"),
        (Method::PATCH, &system, json!({"Boot": 3}), 400, "PropertyValueTypeError"),
        (
            Method::PATCH,
            &system,
            boot("BootSourceOverrideTarget", json!("Tape")),
            400,
            "PropertyValueNotInList",
        ),
        (
            Method::PATCH,
            &system,
            boot("BootSourceOverrideMode", json!(null)),
            400,
            "PropertyValueNotInList",
        ),
        (Method::PATCH, &system, json!({"IndicatorLED": "Green"}), 400, "PropertyValueNotInList"),
        (Method::POST, &media, json!({}), 400, "ActionParameterMissing"),
        (Method::POST, &media, json!({"Image": "gopher://x"}), 400, "PropertyValueFormatError"),
        (
            Method::POST,
            &media,
            json!({"Image": "http://x", "Speed": 52}),
            400,
            "ActionParameterUnknown",
        ),
        (Method::POST, &volumes, json!({}), 400, "PropertyMissing"),
        (Method::POST, &volumes, json!({"RAIDType": "RAID7"}), 400, "PropertyValueNotInList"),
        (
            Method::POST,
            &volumes,
            json!({"RAIDType": "RAID1", "CapacityBytes": -1}),
            400,
            "PropertyValueTypeError",
        ),
        (
            Method::PATCH,
            &bios,
            json!({"Attributes": {"BootMode": "Both"}}),
            400,
            "PropertyValueNotInList",
        ),
        (
            Method::PATCH,
            &bios,
            json!({"Attributes": {"TpmPresent": false}}),
            400,
            "PropertyNotWritable",
        ),
        (Method::PATCH, &bios, json!({}), 400, "PropertyMissing"),
        (Method::POST, &update, json!({}), 400, "ActionParameterMissing"),
        (
            Method::POST,
            &update,
            json!({"ImageURI": "http://x/b", "Targets": ["/nowhere"]}),
            400,
            "ActionParameterValueNotInList",
        ),
        (Method::POST, &subscriptions, json!({"Destination": "me"}), 400, "PropertyValueNotInList"),
    ] {
        let (actual, error) = bmc.send_json(method.clone(), path, &body);
        let id = error.pointer("/error/@Message.ExtendedInfo/0/MessageId").and_then(Value::as_str);
        let expected = format!("Base.1.12.{message}");
        assert_eq!(
            (actual.as_u16(), id),
            (status, Some(expected.as_str())),
            "{method} {path} {body}"
        );
    }
    let garbled = bmc.send(&Method::POST, &reset, b"{\"ResetType\": ", None);
    assert_eq!(garbled.status, StatusCode::BAD_REQUEST);
    let wrong = bmc.send(&Method::PUT, &system, b"{}", None);
    assert_eq!(header_value(&wrong, &header::ALLOW).as_deref(), Some("GET, HEAD, PATCH"));
}

#[test]
fn if_match_makes_changes_conditional() {
    let mut bmc = RedfishTestBmc::new("generic");
    let system = bmc.system_path();
    let old = bmc.etag(&system).unwrap();
    assert_eq!(bmc.etag(&system).as_ref(), Some(&old), "nothing changed");
    let lit = json!({"IndicatorLED": "Lit"}).to_string();
    let mut patch =
        |etag: &str| bmc.send(&Method::PATCH, &system, lit.as_bytes(), Some(etag)).status;
    assert_eq!(patch(&old), StatusCode::OK);
    assert_eq!(patch(&old), StatusCode::PRECONDITION_FAILED);
    assert_eq!(patch("*"), StatusCode::OK);
    let new = bmc.etag(&system).unwrap();
    assert_ne!(new, old);
    let both = format!("{old}, W/{new}");
    let status = bmc.send(&Method::PATCH, &system, lit.as_bytes(), Some(&both)).status;
    assert_eq!(status, StatusCode::OK);
}

#[test]
fn sessions_expire_and_are_limited() {
    let mut bmc = RedfishTestBmc::new("supermicro-like");
    let sessions = "/redfish/v1/SessionService/Sessions";
    let login = json!({"UserName": "admin", "Password": "password"}).to_string();
    let wrong = json!({"UserName": "admin", "Password": "guess"});
    assert_eq!(bmc.send_json(Method::POST, sessions, &wrong).0, StatusCode::UNAUTHORIZED);
    let opened = bmc.send(&Method::POST, sessions, login.as_bytes(), None);
    assert_eq!(opened.status, StatusCode::CREATED);
    let token = header_value(&opened, &http::HeaderName::from_static("x-auth-token")).unwrap();
    let location = header_value(&opened, &header::LOCATION).unwrap();
    for _ in 0..3 {
        let more = bmc.send(&Method::POST, sessions, login.as_bytes(), None);
        assert_eq!(more.status, StatusCode::CREATED);
    }
    let full = bmc.send(&Method::POST, sessions, login.as_bytes(), None);
    assert_eq!(full.status, StatusCode::SERVICE_UNAVAILABLE);

    bmc.token = Some(token.clone());
    assert_eq!(bmc.get("/redfish/v1/Systems/1").0, StatusCode::OK);
    // Requests restart the idle timeout of this session; the others expire.
    bmc.advance(500);
    assert_eq!(bmc.get("/redfish/v1/Systems/1").0, StatusCode::OK);
    bmc.advance(500);
    assert_eq!(bmc.get(sessions).1["Members"].as_array().unwrap().len(), 1);
    bmc.advance(601);
    assert_eq!(bmc.get("/redfish/v1/Systems/1").0, StatusCode::UNAUTHORIZED);

    bmc.token = None;
    let opened = bmc.send(&Method::POST, sessions, login.as_bytes(), None);
    let token = header_value(&opened, &http::HeaderName::from_static("x-auth-token")).unwrap();
    assert_eq!(bmc.send_json(Method::DELETE, &location, &json!({})).0, StatusCode::NOT_FOUND);
    bmc.token = Some(token);
    assert_eq!(bmc.get("/redfish/v1/Systems/1").0, StatusCode::OK);
    bmc.machine.restart_bmc(bmc.now);
    bmc.advance(300);
    assert_eq!(bmc.get("/redfish/v1/Systems/1").0, StatusCode::UNAUTHORIZED);
}

#[test]
fn only_the_root_is_readable_without_credentials() {
    let mut bmc = bmc_with_content("generic");
    let documents = bmc.crawl();
    bmc.token = Some("guess".to_owned());
    let public: BTreeSet<&str> = ["/redfish/v1/"].into();
    for path in documents.keys() {
        let (status, _) = bmc.get(path);
        let expected =
            if public.contains(path.as_str()) { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        assert_eq!(status, expected, "{path}");
    }
}

/// Arbitrary nested JSON with property names and values that handlers use.
fn arbitrary_body() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "On",
        "Once",
        "Cd",
        "RAID1",
        "http://x/y.iso",
        "",
        "BootMode",
        "Uefi",
        "Immediate",
        "é\u{0}",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| {
        let name = prop::sample::select(vec![
            "Boot",
            "BootSourceOverrideTarget",
            "BootSourceOverrideEnabled",
            "ResetType",
            "Image",
            "Inserted",
            "Attributes",
            "BootMode",
            "RAIDType",
            "Links",
            "Drives",
            "@odata.id",
            "CapacityBytes",
            "@Redfish.OperationApplyTime",
            "ImageURI",
            "Targets",
            "Destination",
            "EventTypes",
            "UserName",
            "Password",
            "IndicatorLED",
            "SecureBootEnable",
            "Nonsense",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.prop_map(str::to_owned), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Every request gets a status and valid JSON, and the BMC keeps working.
    #[test]
    fn no_request_breaks_a_bmc(
        kind in 0_usize..5,
        requests in prop::collection::vec(
            (0_usize..5, any::<prop::sample::Index>(), "[ -~]{0,12}", arbitrary_body(), 0_i64..100),
            1..12,
        ),
    ) {
        let name = Personality::built_in_names()[kind];
        let mut bmc = bmc_with_content(name);
        let documents = bmc.crawl();
        let mut paths: Vec<String> = documents.keys().cloned().collect();
        for document in documents.values() {
            if let Some(actions) = document["Actions"].as_object() {
                paths.extend(actions.values().filter_map(|it| Some(it["target"].as_str()?.to_owned())));
            }
        }
        let methods = [Method::GET, Method::POST, Method::PATCH, Method::DELETE, Method::PUT];
        for (method, path, suffix, body, seconds) in requests {
            let mut path = paths[path.index(paths.len())].clone();
            if suffix.len() > 6 {
                path.push_str(&suffix);
            }
            let bytes = if suffix.len() == 3 { suffix.into_bytes() } else { body.to_string().into_bytes() };
            let response = bmc.send(&methods[method], &path, &bytes, Some("*"));
            prop_assert!(response.status.as_u16() >= 200);
            if !response.body.is_empty() {
                prop_assert!(serde_json::from_slice::<Value>(&response.body).is_ok());
            }
            bmc.advance(seconds);
        }
        bmc.crawl();
    }
}
