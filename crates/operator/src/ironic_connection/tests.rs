// SPDX-License-Identifier: Apache-2.0
//! Which Ironic is used, and with which credentials.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;
use tokio::sync::watch;
use tower::service_fn;

use super::*;
use crate::health::OperatorReadiness;
use crate::metrics::OperatorMetrics;

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
fn only_a_current_status_makes_an_installation_ready() {
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
fn an_unreadable_installation_is_ignored() {
    let found: Vec<DeserializeGuard<Ironic>> = serde_json::from_value(json!([
        {"metadata": {"name": "text", "namespace": "lab"}, "spec": "text"},
        {"metadata": {"name": "networking", "namespace": "lab"}, "spec": {"networking": "text"}},
        {"metadata": {"name": "ironic", "namespace": "lab"}, "spec": {}},
    ]))
    .unwrap();
    let readable = found.into_iter().filter_map(readable).collect();
    assert_eq!(only(readable).unwrap().name_any(), "ironic");
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

/// An API that responds or does not.
struct ResponseStub(bool);

#[async_trait]
impl IronicTransport for ResponseStub {
    async fn request(
        &self,
        _: Method,
        _: &str,
        _: Option<&Value>,
    ) -> Result<Value, IronicTransportError> {
        let message = "connection refused".to_owned();
        if self.0 { Ok(json!({})) } else { Err(IronicTransportError { status: None, message }) }
    }
}

/// One of several replicas may be missing.
#[tokio::test]
async fn an_installation_that_is_not_ready_is_used_if_it_responds() {
    let unready = || "Ironic lab/ironic is not ready: 2 of 3 replicas".to_owned();
    assert_eq!(check_response(&ResponseStub(true), unready()).await, Ok(()));
    let failed = check_response(&ResponseStub(false), unready()).await.unwrap_err();
    assert_eq!(failed, format!("{}; its API does not respond: connection refused", unready()));
}

#[tokio::test(start_paused = true)]
async fn a_missing_installation_is_looked_for_once_for_all_hosts() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let service = service_fn(move |_: Request<Body>| {
        counter.fetch_add(1, Ordering::Relaxed);
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []});
        let body = Body::from(serde_json::to_vec(&list).unwrap());
        async move { Ok::<_, std::convert::Infallible>(Response::new(body)) }
    });
    let context = ControllerContext {
        client: Client::new(service, "lab"),
        scope: WatchScope::Cluster,
        shutdown: watch::channel(false).1,
        metrics: OperatorMetrics::new(),
        readiness: OperatorReadiness::default(),
    };
    let installed = InstalledIronic { object: None, cluster_domain: None };
    let connection = IronicConnection::new(IronicLocation::Installed(installed), &context);
    for _ in 0..100 {
        let error = connection.request(Method::GET, "/v1", None).await.unwrap_err();
        assert!(error.message.starts_with("there is no Ironic; "), "{}", error.message);
    }
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    tokio::time::advance(FAILURE_INTERVAL).await;
    connection.request(Method::GET, "/v1", None).await.unwrap_err();
    assert_eq!(requests.load(Ordering::Relaxed), 2);
}

#[test]
fn an_address_is_logged_once_until_it_changes() {
    let target = |url: &str, source: &str| ApiTarget::at(url, None, None, source).unwrap();
    let mut last = None;
    for (url, source, expected) in [
        ("http://a", "Ironic lab/a", true),
        ("http://a", "Ironic lab/a", false),
        ("http://b", "Ironic lab/a", true),
        ("http://b", "Ironic lab/b", true),
        ("http://b", "Ironic lab/b", false),
        ("http://a", "Ironic lab/a", true),
    ] {
        assert_eq!(is_new(&mut last, &target(url, source)), expected, "{url} {source}");
    }
}
