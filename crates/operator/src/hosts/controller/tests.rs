// SPDX-License-Identifier: Apache-2.0
//! The controllers with an API server in memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tower::service_fn;

use super::*;
use crate::context::WatchScope;
use crate::health::OperatorReadiness;
use crate::hosts::provisioner::fixture::FixtureProvisioner;
use crate::metrics::OperatorMetrics;

/// The manager runs the controllers on several threads.
#[test]
fn the_controllers_can_run_on_any_thread() {
    fn check<T: Send>(_: fn(ControllerContext, Arc<dyn HostProvisioner>) -> T) {}
    check(|context, provisioner| run(context, provisioner, HostControllerSettings::default()));
}

/// An API server that lists these objects and reports no changes. It records requests that change
/// something, and rejects them.
#[derive(Clone, Default)]
struct ListedObjects {
    /// By plural.
    objects: Arc<Vec<(&'static str, Value)>>,
    /// The plural that is listed only after all others were used.
    last: &'static str,
    changes: Arc<Mutex<Vec<(String, Value)>>>,
    /// Whether changes are accepted, although watches do not report them.
    accepts_changes: bool,
}

impl ListedObjects {
    fn context(&self) -> (ControllerContext, watch::Sender<bool>) {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, std::convert::Infallible>(server.respond(request).await) }
        });
        let (stop, shutdown) = watch::channel(false);
        let context = ControllerContext {
            client: Client::new(service, "lab"),
            scope: WatchScope::Cluster,
            shutdown,
            metrics: OperatorMetrics::new(),
            readiness: OperatorReadiness::default(),
        };
        (context, stop)
    }

    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let failure = |code: StatusCode, reason: &str| {
            let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code.as_u16(), "message": "test", "reason": reason});
            respond(code, &body)
        };
        if parts.method != Method::GET {
            let body = body.collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let line = format!("{} {}", parts.method, parts.uri.path());
            self.changes.lock().unwrap().push((line, body));
            let plural = |kind: &str| parts.uri.path().contains(&format!("/{kind}/"));
            let changed = self.objects.iter().find(|(kind, object)| {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                plural(kind) && parts.uri.path().split('/').any(|part| part == name)
            });
            return match changed.filter(|_| self.accepts_changes) {
                Some((_, object)) => respond(StatusCode::OK, object),
                None => failure(StatusCode::CONFLICT, "Conflict"),
            };
        }
        if parts.uri.query().is_some_and(|query| query.contains("watch=")) {
            std::future::pending::<()>().await;
        }
        let (parent, last) = parts.uri.path().rsplit_once('/').unwrap();
        if parent.contains("/namespaces/") {
            let found = self.objects.iter().find(|(kind, object)| {
                parent.ends_with(kind) && object["metadata"]["name"] == last
            });
            return match found {
                Some((_, object)) => respond(StatusCode::OK, object),
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            };
        }
        if last == self.last {
            // Injected time passes only when nothing else can be done.
            sleep(Duration::from_secs(60)).await;
        }
        let listed = self.objects.iter().filter(|(kind, _)| *kind == last);
        let items: Vec<&Value> = listed.map(|(_, object)| object).collect();
        respond(
            StatusCode::OK,
            &json!({"kind": "List", "apiVersion": "v1",
            "metadata": {"resourceVersion": "1"}, "items": items}),
        )
    }
}

fn respond(code: StatusCode, body: &Value) -> Response<Body> {
    let body = Body::from(serde_json::to_vec(body).unwrap());
    Response::builder().status(code).body(body).unwrap()
}

fn metadata(name: &str, finalizer: &str) -> Value {
    json!({"name": name, "namespace": "lab", "uid": name, "resourceVersion": "1",
        "finalizers": [finalizer]})
}

/// Runs the controllers until a condition holds.
async fn run_until(server: &ListedObjects, mut is_reached: impl FnMut(&[(String, Value)]) -> bool) {
    let (context, _stop) = server.context();
    let provisioner = Arc::new(FixtureProvisioner::quick());
    let controllers = run(context, provisioner, HostControllerSettings::default());
    let reached = async {
        while !is_reached(&server.changes.lock().unwrap()) {
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = controllers => panic!("the controllers ended"),
        reached = timeout(Duration::from_secs(600), reached) => reached.unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn companions_wait_until_all_hosts_are_known() {
    let objects = vec![
        (
            "baremetalhosts",
            json!({"metadata": metadata("h", "baremetalhost.metal3.io"),
            "spec": {"online": false}}),
        ),
        (
            "dataimages",
            json!({"metadata": metadata("h", "dataimage.metal3.io"),
            "spec": {"url": "http://data"}}),
        ),
    ];
    let server =
        ListedObjects { objects: objects.into(), last: "baremetalhosts", ..Default::default() };
    let path = "PATCH /apis/metal3.io/v1alpha1/namespaces/lab/dataimages/h";
    run_until(&server, |changes| changes.iter().any(|(line, _)| line == path)).await;
    let changes = server.changes.lock().unwrap();
    let (_, change) = changes.iter().find(|(line, _)| line == path).unwrap();
    assert_eq!(change["metadata"]["finalizers"], Value::Null, "the image belongs to a host");
    assert_eq!(change["metadata"]["ownerReferences"][0]["name"], "h");
}

#[tokio::test(start_paused = true)]
async fn a_paused_host_changes_nothing() {
    let mut paused = metadata("paused", "baremetalhost.metal3.io");
    paused["annotations"] = json!({"baremetalhost.metal3.io/paused": ""});
    let host = |metadata: Value| {
        json!({"metadata": metadata, "spec": {"online": true, "bootMACAddress": "00:00:5e:00:53:01",
            "bmc": {"address": "redfish://192.0.2.1/redfish/v1/Systems/1", "credentialsName": "bmc"}},
            "status": {"provisioning": {"state": "available", "ID": "n1"}}})
    };
    let objects = vec![
        ("baremetalhosts", host(paused)),
        ("baremetalhosts", host(metadata("running", "baremetalhost.metal3.io"))),
        (
            "secrets",
            json!({"metadata": {"name": "bmc", "namespace": "lab", "resourceVersion": "1"},
            "data": {"username": "YWRtaW4=", "password": "c2VjcmV0"}}),
        ),
    ];
    let server =
        ListedObjects { objects: objects.into(), last: "baremetalhosts", ..Default::default() };
    // The Secret of the other host is marked; each pass begins with it.
    run_until(&server, |changes| {
        changes.iter().filter(|(line, _)| line.ends_with("/secrets/bmc")).count() > 2
    })
    .await;
    for (line, body) in server.changes.lock().unwrap().iter() {
        let owner = &body["metadata"]["ownerReferences"][0]["name"];
        assert!(!line.contains("paused") && owner != "paused", "{line} {body}");
    }
}

/// The caches show neither subscription, as shortly after their creation.
#[tokio::test(start_paused = true)]
async fn equal_event_subscriptions_do_not_share_one_of_the_bmc() {
    let subscription = |name: &str| {
        json!({"metadata": metadata(name, "bmceventsubscription.metal3.io"),
            "spec": {"hostName": "h", "destination": "https://events/in"}})
    };
    let objects = vec![
        (
            "baremetalhosts",
            json!({"metadata": metadata("h", "baremetalhost.metal3.io"),
                "spec": {"online": true, "bmc": {
                    "address": "redfish://192.0.2.1/redfish/v1/Systems/1",
                    "credentialsName": "bmc"}},
                "status": {"provisioning": {"state": "available", "ID": "temporary-fake-id"}}}),
        ),
        ("bmceventsubscriptions", subscription("a")),
        ("bmceventsubscriptions", subscription("b")),
        (
            "secrets",
            json!({"metadata": {"name": "bmc", "namespace": "lab", "resourceVersion": "1"},
            "data": {"username": "YWRtaW4=", "password": "c2VjcmV0"}}),
        ),
    ];
    let server =
        ListedObjects { objects: objects.into(), accepts_changes: true, ..Default::default() };
    let ids = |changes: &[(String, Value)]| {
        let status = changes.iter().filter_map(|(line, body)| {
            let id = body["status"]["subscriptionID"].as_str()?;
            Some((line.rsplit('/').nth(1)?.to_owned(), id.to_owned()))
        });
        status.collect::<std::collections::BTreeMap<_, _>>()
    };
    run_until(&server, |changes| ids(changes).len() == 2).await;
    let ids = ids(&server.changes.lock().unwrap());
    assert_ne!(ids["a"], ids["b"]);
}
