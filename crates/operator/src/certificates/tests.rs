// SPDX-License-Identifier: Apache-2.0
//! What is done with each content of the Secret and of the configuration.

use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use server_tls::{AUTHORITY_LIFETIME, CertificateAuthority, CertificateNames};

use super::authority_secret::{WebhookAuthority, read_authority, secret_data};
use super::bundle::{bundle_patch, called_names};

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000)
}

fn secret_of(authority: &CertificateAuthority) -> Secret {
    Secret { data: Some(secret_data(authority)), ..Secret::default() }
}

fn describe(secret: &Secret, now: SystemTime) -> String {
    match read_authority(secret, now).unwrap() {
        WebhookAuthority::Current(_) => "current".to_owned(),
        WebhookAuthority::Renewed(_) => "renewed".to_owned(),
        WebhookAuthority::Replaced(_, problem) => format!("replaced, {problem}"),
    }
}

#[test]
fn the_stored_ca_is_used_renewed_or_replaced() {
    let authority = CertificateAuthority::create(now()).unwrap();
    let other = CertificateAuthority::create(now()).unwrap();
    let stored = secret_of(&authority);
    let with = |key: &str, value: Option<&[u8]>| {
        let mut secret = stored.clone();
        let data = secret.data.as_mut().unwrap();
        match value {
            Some(value) => data.insert(key.to_owned(), ByteString(value.to_vec())),
            None => data.remove(key),
        };
        secret
    };
    let other_key = other.record().key.reveal().as_bytes();
    let life = AUTHORITY_LIFETIME;
    for (secret, at, expected) in [
        (stored.clone(), now(), "current"),
        (stored.clone(), now() + life / 2, "current"),
        (stored.clone(), now() + life * 3 / 4, "renewed"),
        (stored.clone(), now() + life, "replaced, its certificate has expired"),
        (Secret::default(), now(), "replaced, it has no ca.crt"),
        (with("ca.key", None), now(), "replaced, it has no ca.key"),
        (with("ca.crt", Some(b"\xff")), now(), "replaced, it has no ca.crt"),
        (with("ca.crt", Some(b"x")), now(), "replaced, its certificate is malformed"),
        (with("ca.key", Some(b"x")), now(), "replaced, its key is malformed"),
        (
            with("ca.key", Some(other_key)),
            now(),
            "replaced, its key does not belong to its certificate",
        ),
    ] {
        assert_eq!(describe(&secret, at), expected);
    }
}

#[test]
fn a_renewed_ca_keeps_its_key() {
    let authority = CertificateAuthority::create(now()).unwrap();
    let later = now() + AUTHORITY_LIFETIME * 3 / 4;
    let WebhookAuthority::Renewed(renewed) = read_authority(&secret_of(&authority), later).unwrap()
    else {
        panic!("not renewed")
    };
    assert_eq!(renewed.record().key, authority.record().key);
    assert_ne!(renewed.certificate(), authority.certificate());
    assert_eq!(describe(&secret_of(&renewed), later), "current");
}

fn configuration(webhooks: Value) -> ValidatingWebhookConfiguration {
    let webhooks: Vec<Value> = webhooks
        .as_array()
        .unwrap()
        .iter()
        .map(|client| {
            json!({
                "name": format!("w{}.metal3.io", client["path"].as_str().unwrap_or("0")),
                "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            })
        })
        .collect();
    let object = json!({"metadata": {"name": "x", "resourceVersion": "7"}, "webhooks": webhooks});
    serde_json::from_value(object).unwrap()
}

#[test]
fn names_are_those_that_the_api_server_calls() {
    let configuration = configuration(json!([
        {"service": {"name": "ferrite-operator", "namespace": "lab", "path": "/a"}},
        {"url": "https://127.0.0.1:9443/validate"},
        {"url": "https://[2001:db8::1]:9443/validate"},
        {},
    ]));
    let mut expected = CertificateNames::default();
    for host in ["ferrite-operator.lab.svc", "127.0.0.1", "2001:db8::1"] {
        expected.add_host(host).unwrap();
    }
    assert_eq!(called_names(&configuration), expected);
}

#[test]
fn only_other_bundles_are_replaced() {
    let current = configuration(json!([
        {"path": "1", "url": "https://a/", "caBundle": "WA=="},
        {"path": "2", "url": "https://a/", "caBundle": "WQ=="},
        {"path": "3", "url": "https://a/"},
    ]));
    let patch = bundle_patch(&current, "X").unwrap();
    assert_eq!(
        patch,
        json!({
            "metadata": {"resourceVersion": "7"},
            "webhooks": [
                {"name": "w2.metal3.io", "clientConfig": {"caBundle": "WA=="}},
                {"name": "w3.metal3.io", "clientConfig": {"caBundle": "WA=="}},
            ],
        })
    );
    let complete = configuration(json!([{"url": "https://a/", "caBundle": "WA=="}]));
    assert_eq!(bundle_patch(&complete, "X"), None);
}
