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
    /// The plural of a kind that is not installed.
    missing: &'static str,
    /// The end of the path of the object that the server refuses to change; others conflict.
    refused: &'static str,
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
            let is_refused = !self.refused.is_empty() && line.ends_with(self.refused);
            self.changes.lock().unwrap().push((line, body));
            if is_refused {
                return failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid");
            }
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
        if last == self.missing {
            return failure(StatusCode::NOT_FOUND, "NotFound");
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
    let controllers = run(context, provisioner, with_claims());
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

fn with_claims() -> HostControllerSettings {
    HostControllerSettings { host_claims: true, ..HostControllerSettings::default() }
}

/// An available host, a policy that admits all claims, and claims. Those without a finalizer get one before
/// they are bound.
fn claimed_objects(claims: Vec<Value>) -> Arc<Vec<(&'static str, Value)>> {
    let host = json!({"metadata": metadata("h", "baremetalhost.metal3.io"),
        "spec": {"online": false},
        "status": {"operationalStatus": "OK", "provisioning": {"state": "available", "ID": "n"}}});
    let policy = json!({"metadata": metadata("p", "x"), "spec": {"hostClaimNamespaces": {}}});
    let mut objects = vec![("baremetalhosts", host), ("hostdeploypolicies", policy)];
    let claims = claims.into_iter().map(|metadata| {
        let claim = json!({"metadata": metadata, "spec": {"poweredOn": true}});
        ("hostclaims", claim)
    });
    objects.extend(claims);
    Arc::new(objects)
}

fn claim_metadata(name: &str, created: &str, finalizers: &[&str]) -> Value {
    json!({"name": name, "namespace": "lab", "uid": name, "resourceVersion": "1",
        "creationTimestamp": created, "finalizers": finalizers})
}

/// The claims that a host was bound to.
fn bindings(changes: &[(String, Value)]) -> Vec<String> {
    let claims = changes.iter().filter(|(line, _)| line.ends_with("/baremetalhosts/h"));
    let names = claims.filter_map(|(_, body)| body["spec"]["consumerRef"]["name"].as_str());
    names.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_refused_change_of_a_claim_does_not_keep_the_host_from_others() {
    let objects = claimed_objects(vec![
        claim_metadata("old", "2026-11-17T10:00:00Z", &[]),
        claim_metadata("young", "2026-11-17T11:00:00Z", &["metal3.io/hostclaim"]),
    ]);
    let server = ListedObjects { objects, refused: "/hostclaims/old", ..Default::default() };
    let status = "PATCH /apis/metal3.io/v1alpha1/namespaces/lab/hostclaims/old/status";
    run_until(&server, |changes| {
        !bindings(changes).is_empty() && changes.iter().any(|(line, _)| line == status)
    })
    .await;
    let changes = server.changes.lock().unwrap();
    assert!(bindings(&changes).iter().all(|claim| claim == "young"), "{changes:?}");
    let (_, report) = changes.iter().find(|(line, _)| line == status).unwrap();
    let text = report["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(text.contains("refuses to add the finalizer"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_not_repeated_before_the_host_changes() {
    let objects = claimed_objects(vec![claim_metadata(
        "c",
        "2026-11-17T10:00:00Z",
        &["metal3.io/hostclaim"],
    )]);
    let server = ListedObjects { objects, ..Default::default() };
    // The status of the claim conflicts too, so the claim is looked at again and again.
    let status = |changes: &[(String, Value)]| {
        changes.iter().filter(|(line, _)| line.ends_with("/hostclaims/c/status")).count()
    };
    run_until(&server, |changes| status(changes) > 20).await;
    assert_eq!(bindings(&server.changes.lock().unwrap()), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn the_controllers_end_although_a_kind_is_not_installed() {
    for missing in ["hostclaims", "hostdeploypolicies"] {
        let objects = claimed_objects(vec![claim_metadata("c", "2026-11-17T10:00:00Z", &[])]);
        let server = ListedObjects { objects, missing, ..Default::default() };
        let (context, stop) = server.context();
        let controllers = run(context, Arc::new(FixtureProvisioner::quick()), with_claims());
        let stopping = async {
            // Hosts are controlled nevertheless.
            while server.changes.lock().unwrap().is_empty() {
                sleep(Duration::from_secs(1)).await;
            }
            sleep(Duration::from_secs(10)).await;
            stop.send_replace(true);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = timeout(Duration::from_secs(600), controllers) => ended.unwrap(),
            () = stopping => {}
        }
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
