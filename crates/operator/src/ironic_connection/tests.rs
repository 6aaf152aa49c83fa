// SPDX-License-Identifier: Apache-2.0
//! Which Ironic is used, and with which credentials.

use serde_json::json;

use super::*;

fn ironic(generation: i64, condition: Value) -> Ironic {
    serde_json::from_value(json!({
        "metadata": {"name": "ironic", "namespace": "lab", "generation": generation},
        "spec": {},
        "status": {"conditions": [condition]},
    }))
    .unwrap()
}

fn ready(status: &str, observed: i64) -> Value {
    json!({"type": "Ready", "status": status, "observedGeneration": observed, "reason": "X",
        "message": "ironic: resources are not ready yet", "lastTransitionTime": "2030-01-01T00:00:00Z"})
}

#[test]
fn only_a_current_and_ready_installation_is_used() {
    for (ironic, expected) in [
        (ironic(2, ready("True", 2)), Ok(())),
        (
            ironic(2, ready("False", 2)),
            Err("Ironic lab/ironic is not ready: ironic: resources are not ready yet"),
        ),
        (
            ironic(2, ready("True", 1)),
            Err("Ironic lab/ironic is not ready: its status is not current"),
        ),
        (
            serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "b"}})).unwrap(),
            Err("Ironic b/a is not ready: its status is not current"),
        ),
    ] {
        assert_eq!(check_ready(&ironic), expected.map_err(str::to_owned));
    }
}

#[test]
fn one_of_several_must_be_named() {
    let one = || ironic(1, ready("True", 1));
    assert_eq!(only(vec![one()]).unwrap().name_any(), "ironic");
    assert!(only(Vec::new()).unwrap_err().starts_with("there is no Ironic; "));
    assert!(only(vec![one(), one()]).unwrap_err().starts_with("there are 2 Ironics; "));
}

#[test]
fn secrets_contain_credentials_and_certificates() {
    let secret = |data: Value| -> Secret { serde_json::from_value(json!({"data": data})).unwrap() };
    // "user", "pass" and a line break.
    let login = secret_login(&secret(json!({"username": "dXNlcg==", "password": "cGFzcwo="})));
    let password = HiddenText::new("pass");
    assert_eq!(login, Some(ApiLogin::Basic { user: "user".to_owned(), password }));
    assert_eq!(secret_login(&secret(json!({"username": "dXNlcg=="}))), None);
    // "ca" and "crt".
    let both = secret(json!({"ca.crt": "Y2E=", "tls.crt": "Y3J0"}));
    assert_eq!(secret_authority(&both).as_deref(), Some("ca"));
    let own = secret(json!({"ca.crt": "", "tls.crt": "Y3J0"}));
    assert_eq!(secret_authority(&own).as_deref(), Some("crt"));
}

#[tokio::test]
async fn configured_credentials_are_files() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = IronicEndpoint {
        url: "https://ironic.example:6385/v1/".to_owned(),
        credentials: folder.path().to_owned(),
        ca_file: None,
        accept_any: true,
        client_certificate: None,
    };
    assert_eq!(endpoint.target().await.unwrap().login, ApiLogin::Anonymous);
    std::fs::write(folder.path().join("username"), "admin\n").unwrap();
    std::fs::write(folder.path().join("password"), "secret\n").unwrap();
    let target = endpoint.target().await.unwrap();
    let password = HiddenText::new("secret");
    assert_eq!(target.login, ApiLogin::Basic { user: "admin".to_owned(), password });
    assert_eq!(target.url.as_deref(), Some("https://ironic.example:6385"));
    assert!(target.trust.accept_any);
}
