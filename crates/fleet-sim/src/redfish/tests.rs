// SPDX-License-Identifier: Apache-2.0
//! The Redfish face without sockets: links that lead somewhere, refusals, conditions, sessions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use http::{Method, StatusCode, header};
use node_model::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Answer, Asked, Service, answer};
use crate::Credentials;
use crate::machine::{Identity, Machine, Reset};
use crate::personality::Personality;

/// A BMC to talk to.
struct Rig {
    machine: Machine,
    service: Service,
    credentials: Credentials,
    now: Timestamp,
    token: Option<String>,
}

impl Rig {
    fn new(personality: &str) -> Self {
        let personality = Arc::new(Personality::named(personality).unwrap());
        Self {
            machine: Machine::new(Identity { index: 3, seed: 1 }, personality),
            service: Service::default(),
            credentials: Credentials::default(),
            now: Timestamp::from_secs(1_000_000),
            token: None,
        }
    }

    fn pass(&mut self, seconds: i64) {
        self.now = Timestamp(self.now.0 + seconds * 1_000_000);
    }

    fn send(&mut self, method: &Method, path: &str, body: &[u8], if_match: Option<&str>) -> Answer {
        let asked = Asked {
            method,
            path,
            authorization: self.token.is_none().then_some("Basic YWRtaW46cGFzc3dvcmQ="),
            token: self.token.as_deref(),
            if_match,
            body,
            now: self.now,
            refuses_everybody: false,
            power_is_stuck: false,
        };
        answer(&mut self.machine, &mut self.service, &self.credentials, asked)
    }

    fn get(&mut self, path: &str) -> (StatusCode, Value) {
        let answer = self.send(&Method::GET, path, b"", None);
        (answer.status, parsed(&answer))
    }

    fn ask(&mut self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        // As sushy does: changes of resources are conditional.
        let etag = (method == Method::PATCH).then(|| self.etag(path)).flatten();
        let answer = self.send(&method, path, body.to_string().as_bytes(), etag.as_deref());
        (answer.status, parsed(&answer))
    }

    fn etag(&mut self, path: &str) -> Option<String> {
        let answer = self.send(&Method::GET, path, b"", None);
        header_of(&answer, &header::ETAG)
    }

    fn system(&self) -> String {
        super::system_path(&self.machine)
    }

    /// Every document that links lead to, by path.
    fn walk(&mut self) -> BTreeMap<String, Value> {
        let mut found = BTreeMap::new();
        let mut queue = VecDeque::from(["/redfish/v1/".to_owned()]);
        while let Some(path) = queue.pop_front() {
            if found.contains_key(&path) {
                continue;
            }
            let (status, document) = self.get(&path);
            assert!(status.is_success(), "{path} answers {status}");
            links(&document, &mut queue);
            found.insert(path, document);
        }
        found
    }
}

fn parsed(answer: &Answer) -> Value {
    if answer.body.is_empty() { Value::Null } else { serde_json::from_slice(&answer.body).unwrap() }
}

fn header_of(answer: &Answer, name: &http::HeaderName) -> Option<String> {
    let found = answer.headers.iter().find(|(other, _)| other == name);
    found.map(|(_, value)| value.to_str().unwrap().to_owned())
}

/// Everything a document points to: links, settings, registries, action infos.
fn links(value: &Value, queue: &mut VecDeque<String>) {
    const LEADING: &[&str] = &["@odata.id", "Uri", "@Redfish.ActionInfo", "TaskMonitor"];
    if let Some(fields) = value.as_object() {
        let leading = LEADING.iter().filter_map(|name| fields.get(*name)?.as_str());
        queue.extend(leading.filter(|path| !path.contains('#')).map(str::to_owned));
        fields.values().for_each(|value| links(value, queue));
    }
    value.as_array().into_iter().flatten().for_each(|value| links(value, queue));
}

/// A machine with something in every collection.
fn busy(personality: &str) -> Rig {
    let mut rig = Rig::new(personality);
    rig.machine.reset(Reset::On, rig.now).unwrap();
    rig.pass(300);
    let image = json!({"ImageURI": "http://images/bios-9.9.bin"});
    let update = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate";
    assert_eq!(rig.ask(Method::POST, update, &image).0, StatusCode::ACCEPTED);
    let destination = json!({"Destination": "https://events/", "Context": "x"});
    let subscriptions = "/redfish/v1/EventService/Subscriptions";
    assert_eq!(rig.ask(Method::POST, subscriptions, &destination).0, StatusCode::CREATED);
    let controller = &rig.machine.personality().storage[0];
    if !controller.raid.is_empty() {
        let volumes = format!("{}/Storage/{}/Volumes", rig.system(), controller.id);
        let (status, _) = rig.ask(Method::POST, &volumes, &json!({"RAIDType": "RAID1"}));
        assert!(status.is_success(), "{status}");
    }
    rig.pass(100);
    rig
}

#[test]
fn every_link_leads_somewhere_on_every_kind_of_machine() {
    for name in Personality::names() {
        let mut rig = busy(name);
        let documents = rig.walk();
        assert!(documents.len() > 30, "{name} shows only {}", documents.len());
        for (path, document) in &documents {
            let own = document["@odata.id"].as_str().unwrap_or(path).trim_end_matches('/');
            let monitored = path.contains("/TaskMonitors/");
            assert!(own == path.trim_end_matches('/') || monitored, "{name}: {path} says {own}");
            let count = document["Members"].as_array().map(Vec::len);
            assert_eq!(document["Members@odata.count"].as_u64().map(|it| it as usize), count);
        }
    }
}

#[test]
fn what_a_kind_does_not_have_is_neither_linked_nor_there() {
    let mut rig = Rig::new("dell-like");
    let chassis = "/redfish/v1/Chassis/System.Embedded.1";
    let (_, document) = rig.get(chassis);
    assert!(document.get("Thermal").is_none() && document.get("ThermalSubsystem").is_some());
    assert_eq!(rig.get(&format!("{chassis}/Thermal")).0, StatusCode::NOT_FOUND);
    let media = "/redfish/v1/Systems/System.Embedded.1/VirtualMedia/CD";
    assert_eq!(rig.get(media).0, StatusCode::NOT_FOUND);
}

#[test]
fn makers_have_their_habits() {
    let mut hpe = Rig::new("hpe-like");
    let moved = hpe.send(&Method::GET, "/redfish/v1", b"", None);
    assert_eq!(moved.status, StatusCode::PERMANENT_REDIRECT);
    assert_eq!(header_of(&moved, &header::LOCATION).as_deref(), Some("/redfish/v1/"));
    let (_, root) = hpe.get("/redfish/v1/");
    assert_eq!(root["Systems"]["@odata.id"], "/redfish/v1/Systems/");
    assert!(hpe.etag("/redfish/v1/Systems/1/").unwrap().starts_with("W/"));

    let mut supermicro = Rig::new("supermicro-like");
    let (_, system) = supermicro.get("/redfish/v1/Systems/1");
    assert!(system.get("BootProgress").is_none());
    let action = &system["Actions"]["#ComputerSystem.Reset"];
    assert!(action.get("ResetType@Redfish.AllowableValues").is_none());
    let (_, info) = supermicro.get(action["@Redfish.ActionInfo"].as_str().unwrap());
    assert_eq!(info["Parameters"][0]["AllowableValues"][0], "On");
    let (status, said) = supermicro.get("/redfish/v1/Systems/2");
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(said["error"].get("@Message.ExtendedInfo").is_none());

    let mut lenovo = Rig::new("lenovo-like");
    let slot = "/redfish/v1/Managers/1/VirtualMedia/EXT1";
    assert!(lenovo.get(slot).1.get("Actions").is_none());
    let image = json!({"Image": "http://images/a.iso", "Inserted": true});
    let bare = lenovo.send(&Method::PATCH, slot, image.to_string().as_bytes(), None);
    assert_eq!(bare.status, StatusCode::PRECONDITION_REQUIRED);
    let (status, shown) = lenovo.ask(Method::PATCH, slot, &image);
    assert_eq!((status, &shown["Inserted"]), (StatusCode::OK, &json!(true)));
    let (_, shown) = lenovo.ask(Method::PATCH, slot, &json!({"Image": null, "Inserted": false}));
    assert_eq!((&shown["Inserted"], &shown["Image"]), (&json!(false), &Value::Null));
}

#[test]
fn refusals_say_what_is_wrong() {
    let mut rig = Rig::new("generic");
    let system = rig.system();
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
        let (got, said) = rig.ask(method.clone(), path, &body);
        let id = said.pointer("/error/@Message.ExtendedInfo/0/MessageId").and_then(Value::as_str);
        let wanted = format!("Base.1.12.{message}");
        assert_eq!((got.as_u16(), id), (status, Some(wanted.as_str())), "{method} {path} {body}");
    }
    let garbled = rig.send(&Method::POST, &reset, b"{\"ResetType\": ", None);
    assert_eq!(garbled.status, StatusCode::BAD_REQUEST);
    let wrong = rig.send(&Method::PUT, &system, b"{}", None);
    assert_eq!(header_of(&wrong, &header::ALLOW).as_deref(), Some("GET, HEAD, PATCH"));
}

#[test]
fn changes_can_be_conditional() {
    let mut rig = Rig::new("generic");
    let system = rig.system();
    let old = rig.etag(&system).unwrap();
    assert_eq!(rig.etag(&system).as_ref(), Some(&old), "nothing changed");
    let lit = json!({"IndicatorLED": "Lit"}).to_string();
    let mut patch =
        |etag: &str| rig.send(&Method::PATCH, &system, lit.as_bytes(), Some(etag)).status;
    assert_eq!(patch(&old), StatusCode::OK);
    assert_eq!(patch(&old), StatusCode::PRECONDITION_FAILED);
    assert_eq!(patch("*"), StatusCode::OK);
    let new = rig.etag(&system).unwrap();
    assert_ne!(new, old);
    let both = format!("{old}, W/{new}");
    let status = rig.send(&Method::PATCH, &system, lit.as_bytes(), Some(&both)).status;
    assert_eq!(status, StatusCode::OK);
}

#[test]
fn sessions_open_expire_and_are_few() {
    let mut rig = Rig::new("supermicro-like");
    let sessions = "/redfish/v1/SessionService/Sessions";
    let login = json!({"UserName": "admin", "Password": "password"}).to_string();
    let wrong = json!({"UserName": "admin", "Password": "guess"});
    assert_eq!(rig.ask(Method::POST, sessions, &wrong).0, StatusCode::UNAUTHORIZED);
    let opened = rig.send(&Method::POST, sessions, login.as_bytes(), None);
    assert_eq!(opened.status, StatusCode::CREATED);
    let token = header_of(&opened, &http::HeaderName::from_static("x-auth-token")).unwrap();
    let location = header_of(&opened, &header::LOCATION).unwrap();
    for _ in 0..3 {
        let more = rig.send(&Method::POST, sessions, login.as_bytes(), None);
        assert_eq!(more.status, StatusCode::CREATED);
    }
    let full = rig.send(&Method::POST, sessions, login.as_bytes(), None);
    assert_eq!(full.status, StatusCode::SERVICE_UNAVAILABLE);

    rig.token = Some(token.clone());
    assert_eq!(rig.get("/redfish/v1/Systems/1").0, StatusCode::OK);
    // Used every now and then, it lives on; the others do not.
    rig.pass(500);
    assert_eq!(rig.get("/redfish/v1/Systems/1").0, StatusCode::OK);
    rig.pass(500);
    assert_eq!(rig.get(sessions).1["Members"].as_array().unwrap().len(), 1);
    rig.pass(601);
    assert_eq!(rig.get("/redfish/v1/Systems/1").0, StatusCode::UNAUTHORIZED);

    rig.token = None;
    let opened = rig.send(&Method::POST, sessions, login.as_bytes(), None);
    let token = header_of(&opened, &http::HeaderName::from_static("x-auth-token")).unwrap();
    assert_eq!(rig.ask(Method::DELETE, &location, &json!({})).0, StatusCode::NOT_FOUND);
    rig.token = Some(token);
    assert_eq!(rig.get("/redfish/v1/Systems/1").0, StatusCode::OK);
    rig.machine.restart_bmc(rig.now);
    rig.pass(300);
    assert_eq!(rig.get("/redfish/v1/Systems/1").0, StatusCode::UNAUTHORIZED);
}

#[test]
fn nothing_is_shown_to_strangers() {
    let mut rig = busy("generic");
    let documents = rig.walk();
    rig.token = Some("guess".to_owned());
    let public: BTreeSet<&str> = ["/redfish/v1/"].into();
    for path in documents.keys() {
        let (status, _) = rig.get(path);
        let expected =
            if public.contains(path.as_str()) { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        assert_eq!(status, expected, "{path}");
    }
}

/// JSON of some depth with the names and values that handlers look for.
fn body() -> impl Strategy<Value = Value> {
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

    /// Whatever is asked, there is an answer with a status and JSON, and the machine still works.
    #[test]
    fn no_request_breaks_a_bmc(
        kind in 0_usize..5,
        requests in prop::collection::vec(
            (0_usize..5, any::<prop::sample::Index>(), "[ -~]{0,12}", body(), 0_i64..100),
            1..12,
        ),
    ) {
        let name = Personality::names()[kind];
        let mut rig = busy(name);
        let documents = rig.walk();
        let mut paths: Vec<String> = documents.keys().cloned().collect();
        for document in documents.values() {
            if let Some(actions) = document["Actions"].as_object() {
                paths.extend(actions.values().filter_map(|it| Some(it["target"].as_str()?.to_owned())));
            }
        }
        let methods = [Method::GET, Method::POST, Method::PATCH, Method::DELETE, Method::PUT];
        for (method, path, more, body, seconds) in requests {
            let mut path = paths[path.index(paths.len())].clone();
            if more.len() > 6 {
                path.push_str(&more);
            }
            let bytes = if more.len() == 3 { more.into_bytes() } else { body.to_string().into_bytes() };
            let answer = rig.send(&methods[method], &path, &bytes, Some("*"));
            prop_assert!(answer.status.as_u16() >= 200);
            if !answer.body.is_empty() {
                prop_assert!(serde_json::from_slice::<Value>(&answer.body).is_ok());
            }
            rig.pass(seconds);
        }
        rig.walk();
    }
}
