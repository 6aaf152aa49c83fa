// SPDX-License-Identifier: Apache-2.0
//! Valid and invalid `driver_info`. Every error states what to fix, in the validation and in
//! `last_error`.

use std::net::{TcpListener, UdpSocket};

use serde_json::{Value, json};

use super::api_operator::ApiOperator;
use super::lab::LabInventory;

/// An invalid `driver_info`: a name, the changed keys (null removes a key), and texts that the error must
/// contain.
type InvalidInfo = (&'static str, Value, &'static [&'static str]);

/// A system that does not exist in the lab.
const UNKNOWN_SYSTEM: &str = "6c61620a-ffff-4fff-bfff-ffffffffffff";

#[test]
fn accepts_all_valid_forms() {
    let Some(lab) = LabInventory::find() else { return };
    let https = lab.url("redfish-https");
    let forms = [
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
        ("ipmi", lab.ipmi_info("virtualbmc-cases"), json!({})),
        ("ipmi", lab.ipmi_info("virtualbmc-cases"), json!({ "ipmi_cipher_suite": 3 })),
        ("ipmi", lab.ipmi_info("virtualbmc-cases"), json!({ "ipmi_priv_level": "OPERATOR" })),
        (
            "ipmi",
            lab.ipmi_info("virtualbmc-cases"),
            json!({ "ipmi_port": lab.ipmi_port("virtualbmc-cases").to_string() }),
        ),
    ];
    let mut operator = ApiOperator::start();
    let mut problems = Vec::new();
    for (driver, right, other) in &forms {
        let node = operator.enrol(driver, with_changes(right, other), Value::Null);
        manage(&mut operator, &node);
        let node_state = wait_until_verified(&mut operator, &node, driver);
        if node_state["provision_state"] != "manageable" {
            problems.push(format!("{driver} {other}: {}", node_state["last_error"]));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn explains_invalid_redfish_settings() {
    let Some(lab) = LabInventory::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let no_certificate = folder.path().join("no-certificate.crt");
    std::fs::write(&no_certificate, "not a certificate").unwrap();
    let other = folder.path().join("none.crt");
    let closed = format!("http://127.0.0.1:{}", closed_tcp_port());
    let https_to_http = lab.url("redfish").replace("http://", "https://");
    let http_to_https = lab.url("redfish-https").replace("https://", "http://");
    let cases: &[InvalidInfo] = &[
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
            "missing CA file",
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
            "unknown host name",
            json!({ "redfish_address": "http://bmc.invalid" }),
            &["check its address", "bmc.invalid", "host name"],
        ),
        (
            "unknown system",
            json!({ "redfish_system_id": format!("/redfish/v1/Systems/{UNKNOWN_SYSTEM}") }),
            &["redfish_system_id", UNKNOWN_SYSTEM],
        ),
        (
            "ambiguous system",
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
            json!({ "redfish_username": "unknown" }),
            &["credentials", "check the user name and password"],
        ),
        (
            "no credentials",
            json!({ "redfish_username": null, "redfish_password": null }),
            &["credentials", "check the user name and password"],
        ),
        (
            "self-signed certificate",
            json!({ "redfish_address": lab.url("redfish-https"), "redfish_system_id": null }),
            &["certificate", "redfish_verify_ca"],
        ),
        (
            "https to an http server",
            json!({ "redfish_address": https_to_http }),
            &["does not use TLS", "http"],
        ),
        (
            "http to an https server",
            json!({ "redfish_address": http_to_https }),
            &["check its address"],
        ),
    ];
    check("redfish", &lab.redfish_info("redfish-settings"), cases);
}

#[test]
fn explains_invalid_ipmi_settings() {
    let Some(lab) = LabInventory::find() else { return };
    let cases: &[InvalidInfo] = &[
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
        ("unsupported cipher suite", json!({ "ipmi_cipher_suite": 17 }), &["ipmi_cipher_suite"]),
        (
            "wrong password",
            json!({ "ipmi_password": "guess" }),
            &["credentials", "check the user name and password"],
        ),
        ("wrong user", json!({ "ipmi_username": "unknown" }), &["user name"]),
    ];
    check("ipmi", &lab.ipmi_info("virtualbmc-cases"), cases);
}

/// Checks all cases in parallel; a hanging BMC must not delay the others.
fn check(driver: &str, right: &Value, cases: &[InvalidInfo]) {
    // These BMCs never respond, so retries are short. But the error names the user only after a BMC has ignored two
    // attempts, and a busy host needs time for both.
    let mut operator = ApiOperator::start_with(&[
        ("FERRITE_LIFECYCLE__BMC_TIMEOUT", "2"),
        ("FERRITE_DRIVERS__IPMI__COMMAND_RETRY_TIMEOUT", "15"),
    ]);
    let mut problems = Vec::new();
    let nodes: Vec<String> = cases
        .iter()
        .map(|(_, wrong, _)| operator.enrol(driver, with_changes(right, wrong), Value::Null))
        .collect();
    for node in &nodes {
        manage(&mut operator, node);
    }
    for ((what, _, words), node) in cases.iter().zip(&nodes) {
        let last_error = wait_until_verified(&mut operator, node, what)["last_error"].clone();
        let power = operator.get(&format!("/v1/nodes/{node}/validate"))["power"].clone();
        println!("{what:32} {last_error}");
        if power["result"] != false {
            problems.push(format!("{what}: validate returns {power}"));
        }
        for (which, text) in [("last_error", &last_error), ("validate", &power["reason"])] {
            let text = text.as_str().unwrap_or_default();
            for word in words.iter().filter(|word| !text.contains(**word)) {
                problems.push(format!("{what}: {which} does not contain {word}: {text}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn manage(operator: &mut ApiOperator, node: &str) {
    let path = format!("/v1/nodes/{node}/states/provision");
    operator.expect(202, "PUT", &path, Some(&json!({ "target": "manage" })));
}

/// Waits until the verification has ended and returns the node.
fn wait_until_verified(operator: &mut ApiOperator, node: &str, what: &str) -> Value {
    operator.wait_until(node, &format!("verified ({what})"), |node| {
        node["target_provision_state"].is_null()
    });
    operator.node(node)
}

fn with_changes(right: &Value, wrong: &Value) -> Value {
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

/// A port on which no server listens: it was just closed.
fn closed_tcp_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn closed_udp_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
