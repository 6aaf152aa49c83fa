// SPDX-License-Identifier: Apache-2.0
//! What `driver_info` may say. Every right way to name a BMC leads to it; every mistake says what to
//! fix, to who asks for validation and to who looks why the machine could not be taken under control.

use std::net::{TcpListener, UdpSocket};

use serde_json::{Value, json};

use super::lab::Lab;
use super::operator::Operator;

/// A mistake: what it is; the keys that are wrong, over right ones (null takes a key away); and words
/// that the reason must have, which say what is wrong and where.
type Mistake = (&'static str, Value, &'static [&'static str]);

/// A system that no BMC of the lab has.
const NOBODY: &str = "6c61620a-ffff-4fff-bfff-ffffffffffff";

#[test]
fn every_right_way_to_name_a_bmc_leads_to_it() {
    let Some(lab) = Lab::find() else { return };
    let https = lab.url("redfish-https");
    let ways = [
        ("redfish", lab.https_info(), json!({})),
        ("redfish", lab.https_info(), json!({ "redfish_verify_ca": "false" })),
        ("redfish", lab.https_info(), json!({ "redfish_address": &https["https://".len()..] })),
        ("redfish", lab.https_info(), json!({ "redfish_address": format!("{https}/redfish/v1/") })),
        ("redfish", lab.https_info(), json!({ "redfish_auth_type": "basic" })),
        ("redfish", lab.https_info(), json!({ "redfish_tls_minimum_version": "1.2" })),
        (
            "redfish",
            lab.https_info(),
            json!({ "redfish_system_id": format!("{}/", lab.system("redfish-https")) }),
        ),
        ("ipmi", lab.ipmi_info("virtualbmc-mistakes"), json!({})),
        ("ipmi", lab.ipmi_info("virtualbmc-mistakes"), json!({ "ipmi_cipher_suite": 3 })),
        ("ipmi", lab.ipmi_info("virtualbmc-mistakes"), json!({ "ipmi_priv_level": "OPERATOR" })),
        (
            "ipmi",
            lab.ipmi_info("virtualbmc-mistakes"),
            json!({ "ipmi_port": lab.ipmi_port("virtualbmc-mistakes").to_string() }),
        ),
    ];
    let mut operator = Operator::start();
    let mut complaints = Vec::new();
    for (driver, right, other) in &ways {
        let node = operator.enrol(driver, with(right, other), Value::Null);
        manage(&mut operator, &node);
        let about = verified(&mut operator, &node, driver);
        if about["provision_state"] != "manageable" {
            complaints.push(format!("{driver} {other}: {}", about["last_error"]));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn mistakes_over_redfish_say_what_to_fix() {
    let Some(lab) = Lab::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let no_certificate = folder.path().join("no-certificate.crt");
    std::fs::write(&no_certificate, "not a certificate").unwrap();
    let other = folder.path().join("none.crt");
    let closed = format!("http://127.0.0.1:{}", closed_tcp_port());
    let https_to_http = lab.url("redfish").replace("http://", "https://");
    let http_to_https = lab.url("redfish-https").replace("https://", "http://");
    let mistakes: &[Mistake] = &[
        ("no address", json!({ "redfish_address": null }), &["redfish_address"]),
        ("empty address", json!({ "redfish_address": "" }), &["redfish_address"]),
        (
            "bad port",
            json!({ "redfish_address": "https://127.0.0.1:99999" }),
            &["redfish_address", "99999"],
        ),
        (
            "other scheme",
            json!({ "redfish_address": "ftp://127.0.0.1" }),
            &["redfish_address", "ftp"],
        ),
        ("bad auth type", json!({ "redfish_auth_type": "magic" }), &["redfish_auth_type", "magic"]),
        (
            "CA file that is not there",
            json!({ "redfish_verify_ca": other }),
            &["redfish_verify_ca", "none.crt"],
        ),
        (
            "CA file without a certificate",
            json!({
                "redfish_address": lab.url("redfish-https"),
                "redfish_verify_ca": no_certificate,
            }),
            &["redfish_verify_ca", "no-certificate.crt"],
        ),
        ("user but no password", json!({ "redfish_password": null }), &["redfish_password"]),
        (
            "nothing listens",
            json!({ "redfish_address": closed }),
            &["check its address", "nothing listens", "connection refused"],
        ),
        (
            "name that does not exist",
            json!({ "redfish_address": "http://bmc.invalid" }),
            &["check its address", "bmc.invalid", "host name"],
        ),
        (
            "system that is not there",
            json!({ "redfish_system_id": format!("/redfish/v1/Systems/{NOBODY}") }),
            &["redfish_system_id", NOBODY],
        ),
        (
            "which of two systems",
            json!({ "redfish_system_id": null }),
            &["redfish_system_id", "/redfish/v1/Systems/"],
        ),
        (
            "wrong password",
            json!({ "redfish_password": "guess" }),
            &["credentials", "check the user name and password"],
        ),
        (
            "wrong user",
            json!({ "redfish_username": "nobody" }),
            &["credentials", "check the user name and password"],
        ),
        (
            "nobody signs in",
            json!({ "redfish_username": null, "redfish_password": null }),
            &["credentials", "check the user name and password"],
        ),
        (
            "certificate that signed itself",
            json!({ "redfish_address": lab.url("redfish-https"), "redfish_system_id": null }),
            &["certificate", "redfish_verify_ca"],
        ),
        (
            "https where http is spoken",
            json!({ "redfish_address": https_to_http }),
            &["other than TLS", "http"],
        ),
        (
            "http where https is spoken",
            json!({ "redfish_address": http_to_https }),
            &["check its address"],
        ),
    ];
    check("redfish", &lab.redfish_info("redfish-settings"), mistakes);
}

#[test]
fn mistakes_over_ipmi_say_what_to_fix() {
    let Some(lab) = Lab::find() else { return };
    let mistakes: &[Mistake] = &[
        ("no address", json!({ "ipmi_address": null }), &["ipmi_address"]),
        ("bad port", json!({ "ipmi_port": "many" }), &["ipmi_port", "many"]),
        ("port too high", json!({ "ipmi_port": 70000 }), &["ipmi_port", "70000"]),
        (
            "bad privilege level",
            json!({ "ipmi_priv_level": "EMPEROR" }),
            &["ipmi_priv_level", "EMPEROR"],
        ),
        (
            "bad protocol version",
            json!({ "ipmi_protocol_version": "3.0" }),
            &["ipmi_protocol_version", "3.0"],
        ),
        ("bad bridging", json!({ "ipmi_bridging": "single" }), &["ipmi_target_channel"]),
        ("bad key", json!({ "ipmi_hex_kg_key": "abc" }), &["ipmi_hex_kg_key"]),
        (
            "nothing listens",
            json!({ "ipmi_port": closed_udp_port() }),
            &["check its address", "127.0.0.1"],
        ),
        (
            "cipher suite that the BMC lacks",
            json!({ "ipmi_cipher_suite": 17 }),
            &["ipmi_cipher_suite"],
        ),
        (
            "wrong password",
            json!({ "ipmi_password": "guess" }),
            &["credentials", "check the user name and password"],
        ),
        ("wrong user", json!({ "ipmi_username": "nobody" }), &["user name"]),
    ];
    check("ipmi", &lab.ipmi_info("virtualbmc-mistakes"), mistakes);
}

/// Tries all mistakes side by side; what hangs for one must not hold up the others.
fn check(driver: &str, right: &Value, mistakes: &[Mistake]) {
    // Trying again is for BMCs that come back, and these will not.
    let mut operator = Operator::start_with(&[
        ("FERRITE_LIFECYCLE__BMC_TIMEOUT", "2"),
        ("FERRITE_DRIVERS__IPMI__COMMAND_RETRY_TIMEOUT", "5"),
    ]);
    let mut complaints = Vec::new();
    let nodes: Vec<String> = mistakes
        .iter()
        .map(|(_, wrong, _)| operator.enrol(driver, with(right, wrong), Value::Null))
        .collect();
    for node in &nodes {
        manage(&mut operator, node);
    }
    for ((what, _, words), node) in mistakes.iter().zip(&nodes) {
        let last_error = verified(&mut operator, node, what)["last_error"].clone();
        let power = operator.get(&format!("/v1/nodes/{node}/validate"))["power"].clone();
        println!("{what:32} {last_error}");
        if power["result"] != false {
            complaints.push(format!("{what}: validate says {power}"));
        }
        for (which, said) in [("last_error", &last_error), ("validate", &power["reason"])] {
            let said = said.as_str().unwrap_or_default();
            for word in words.iter().filter(|word| !said.contains(**word)) {
                complaints.push(format!("{what}: {which} does not say {word}: {said}"));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn manage(operator: &mut Operator, node: &str) {
    let path = format!("/v1/nodes/{node}/states/provision");
    operator.expect(202, "PUT", &path, Some(&json!({ "target": "manage" })));
}

/// The node once it is known whether it can be managed.
fn verified(operator: &mut Operator, node: &str, what: &str) -> Value {
    operator.until(node, &format!("verified ({what})"), |node| {
        node["target_provision_state"].is_null()
    });
    operator.node(node)
}

fn with(right: &Value, wrong: &Value) -> Value {
    let mut info = right.clone();
    for (key, value) in wrong.as_object().into_iter().flatten() {
        if value.is_null() {
            info.as_object_mut().unwrap().remove(key);
        } else {
            info[key] = value.clone();
        }
    }
    info
}

/// A port where nothing listens: one that just was ours.
fn closed_tcp_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn closed_udp_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
