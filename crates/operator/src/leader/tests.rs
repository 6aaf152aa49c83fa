// SPDX-License-Identifier: Apache-2.0
//! Decisions as a table, and elections against an API server in memory with injected time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::client::{Body, ClientBuilder};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep, timeout};
use tower::service_fn;

use super::fence::FenceLayer;
use super::steps::{LeaseStep, SeenLease, next_step, released};
use super::{InvalidLeaseTiming, LeaderElection, LeadershipFence, LeadershipLoss, LeaseTiming};
use crate::metrics::OperatorMetrics;

const ME: &str = "me";
const OTHER: &str = "other";

fn spec(holder: Option<&str>, seconds: Option<i32>, transitions: Option<i32>) -> LeaseSpec {
    LeaseSpec {
        holder_identity: holder.map(str::to_owned),
        lease_duration_seconds: seconds,
        lease_transitions: transitions,
        acquire_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
        // A clock that is an hour behind or ahead must not matter.
        renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
        ..LeaseSpec::default()
    }
}

/// Name of the step, and the transitions that are written.
fn describe(step: &LeaseStep) -> String {
    let transitions = |spec: &LeaseSpec| spec.lease_transitions.unwrap_or(-1);
    match step {
        LeaseStep::Create(spec) => format!("create {}", transitions(spec)),
        LeaseStep::Renew(spec) => format!("renew {}", transitions(spec)),
        LeaseStep::Take(spec) => format!("take {}", transitions(spec)),
        LeaseStep::Wait { holder } => format!("wait for {holder}"),
    }
}

#[tokio::test(start_paused = true)]
async fn decides_by_the_time_since_the_last_change() {
    let start = Instant::now();
    let clock: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let timing = LeaseTiming::default();
    for (seen, elapsed, expected) in [
        (None, 0, "create 0"),
        (Some(spec(Some(ME), Some(15), Some(3))), 0, "renew 3"),
        (Some(spec(Some(ME), Some(15), Some(3))), 100, "renew 3"),
        (Some(spec(Some(OTHER), Some(15), Some(3))), 0, "wait for other"),
        (Some(spec(Some(OTHER), Some(15), Some(3))), 14, "wait for other"),
        (Some(spec(Some(OTHER), Some(15), Some(3))), 15, "take 4"),
        // The holder's promise counts, not the configuration of the candidate.
        (Some(spec(Some(OTHER), Some(60), Some(3))), 59, "wait for other"),
        (Some(spec(Some(OTHER), Some(60), Some(3))), 60, "take 4"),
        // Released, empty and malformed Leases.
        (Some(spec(Some(""), Some(1), Some(3))), 0, "take 4"),
        (Some(spec(None, None, None)), 0, "take 1"),
        (Some(spec(Some(OTHER), Some(-5), None)), 14, "wait for other"),
        (Some(spec(Some(OTHER), Some(-5), None)), 15, "take 1"),
        (Some(spec(Some(OTHER), None, Some(i32::MAX))), 15, "take 2147483647"),
        (Some(LeaseSpec::default()), 0, "take 1"),
    ] {
        let seen =
            seen.map(|spec| SeenLease { resource_version: "1".to_owned(), spec, seen_at: start });
        let now = start + Duration::from_secs(elapsed);
        let step = next_step(seen.as_ref(), ME, &timing, now, clock);
        assert_eq!(describe(&step), expected, "{seen:?} after {elapsed} s");
    }
}

#[tokio::test(start_paused = true)]
async fn written_fields_are_those_of_client_go() {
    let clock: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let timing = LeaseTiming::default();
    let LeaseStep::Create(created) = next_step(None, ME, &timing, Instant::now(), clock) else {
        panic!("not created")
    };
    assert_eq!(
        serde_json::to_value(&created).unwrap(),
        json!({
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": "2030-01-01T00:00:00.000000Z",
            "renewTime": "2030-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        })
    );
    let later: Timestamp = "2030-01-01T00:00:02Z".parse().unwrap();
    let seen =
        SeenLease { resource_version: "1".to_owned(), spec: created, seen_at: Instant::now() };
    let LeaseStep::Renew(renewed) = next_step(Some(&seen), ME, &timing, Instant::now(), later)
    else {
        panic!("not renewed")
    };
    assert_eq!(renewed.acquire_time, Some(MicroTime(clock)));
    assert_eq!(renewed.renew_time, Some(MicroTime(later)));
    let released = released(&renewed, later);
    assert_eq!(
        serde_json::to_value(&released).unwrap(),
        json!({
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": "2030-01-01T00:00:02.000000Z",
            "renewTime": "2030-01-01T00:00:02.000000Z",
            "leaseTransitions": 0,
        })
    );
}

#[test]
fn times_that_allow_two_leaders_are_rejected() {
    let seconds = Duration::from_secs;
    for (duration, deadline, retry, expected) in [
        (seconds(15), seconds(10), seconds(2), Ok(())),
        (seconds(0), seconds(10), seconds(2), Err(InvalidLeaseTiming::Duration)),
        (Duration::from_millis(1500), seconds(1), seconds(2), Err(InvalidLeaseTiming::Duration)),
        (seconds(u64::MAX), seconds(1), seconds(2), Err(InvalidLeaseTiming::Duration)),
        (seconds(15), seconds(15), seconds(2), Err(InvalidLeaseTiming::Deadline)),
        (seconds(15), seconds(10), seconds(6), Err(InvalidLeaseTiming::Retry)),
        (seconds(15), seconds(10), seconds(0), Err(InvalidLeaseTiming::Retry)),
    ] {
        let timing = LeaseTiming { duration, renew_deadline: deadline, retry_period: retry };
        assert_eq!(timing.check(), expected, "{timing:?}");
    }
}

/// An API server with one Lease.
#[derive(Clone, Default)]
struct LeaseServer(Arc<Mutex<LeaseServerState>>);

#[derive(Default)]
struct LeaseServerState {
    version: u64,
    lease: Option<Value>,
    behaviour: LeaseServerMode,
    writes: usize,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum LeaseServerMode {
    #[default]
    Responds,
    Fails,
    Hangs,
}

impl LeaseServer {
    fn client(&self) -> Client {
        self.client_with(&FenceLayer(LeadershipFence::unlimited()))
    }

    fn client_with(&self, fence: &FenceLayer) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.respond(request).await }
        });
        ClientBuilder::new(service, "lab").with_layer(fence).build()
    }

    fn election(&self, identity: &str) -> LeaderElection {
        LeaderElection::new(
            self.client(),
            "lab",
            "ironic.metal3.io",
            identity,
            LeaseTiming::default(),
            OperatorMetrics::new(),
        )
    }

    fn set(&self, behaviour: LeaseServerMode) {
        self.0.lock().unwrap().behaviour = behaviour;
    }

    fn change(&self, change: impl FnOnce(&mut Option<Value>)) {
        let mut state = self.0.lock().unwrap();
        state.version += 1;
        let version = state.version.to_string();
        change(&mut state.lease);
        if let Some(lease) = &mut state.lease {
            lease["metadata"]["resourceVersion"] = json!(version);
        }
    }

    fn holder(&self) -> String {
        let state = self.0.lock().unwrap();
        let holder = state.lease.as_ref().map(|lease| lease["spec"]["holderIdentity"].clone());
        holder.and_then(|holder| holder.as_str().map(str::to_owned)).unwrap_or_default()
    }

    async fn respond(&self, request: Request<Body>) -> Result<Response<Body>, std::io::Error> {
        let behaviour = self.0.lock().unwrap().behaviour;
        match behaviour {
            LeaseServerMode::Responds => {}
            LeaseServerMode::Fails => return Ok(status(StatusCode::SERVICE_UNAVAILABLE)),
            LeaseServerMode::Hangs => std::future::pending().await,
        }
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let mut state = self.0.lock().unwrap();
        let code = match parts.method {
            Method::GET => StatusCode::OK,
            Method::POST if state.lease.is_some() => StatusCode::CONFLICT,
            Method::POST => {
                state.lease = Some(serde_json::from_slice(&body).unwrap());
                StatusCode::CREATED
            }
            _ => match &mut state.lease {
                None => StatusCode::NOT_FOUND,
                Some(lease) => {
                    let patch: Value = serde_json::from_slice(&body).unwrap();
                    let expected = &patch["metadata"]["resourceVersion"];
                    if *expected == lease["metadata"]["resourceVersion"] {
                        for (key, value) in patch["spec"].as_object().unwrap() {
                            lease["spec"][key] = value.clone();
                        }
                        StatusCode::OK
                    } else {
                        StatusCode::CONFLICT
                    }
                }
            },
        };
        if parts.method != Method::GET && code.is_success() {
            state.version += 1;
            state.writes += 1;
            let version = state.version.to_string();
            state.lease.as_mut().unwrap()["metadata"]["resourceVersion"] = json!(version);
        }
        Ok(match &state.lease {
            _ if !code.is_success() => status(code),
            None => status(StatusCode::NOT_FOUND),
            Some(lease) => Response::new(Body::from(serde_json::to_vec(lease).unwrap())),
        })
    }
}

/// Waits until the candidate leads, for at most ten minutes of injected time.
async fn lead(election: &mut LeaderElection) {
    timeout(Duration::from_secs(600), election.acquire()).await.unwrap();
}

fn status(code: StatusCode) -> Response<Body> {
    let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(),
        "message": "test", "reason": reason});
    let response = Response::builder().status(code);
    response.body(Body::from(serde_json::to_vec(&body).unwrap())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_and_renews() {
    let server = LeaseServer::default();
    let mut election = server.election(ME);
    let fence = election.fence();
    assert!(fence.check().is_err(), "not before the election");
    lead(&mut election).await;
    assert_eq!(server.holder(), ME);
    assert!(fence.check().is_ok());
    let held = timeout(Duration::from_secs(61), election.hold()).await;
    assert!(held.is_err(), "{held:?}");
    // One creation, and one renewal every two seconds.
    assert_eq!(server.0.lock().unwrap().writes, 1 + 30);
    assert!(fence.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_replaced_after_the_lease_duration() {
    let server = LeaseServer::default();
    lead(&mut server.election(OTHER)).await;
    let start = Instant::now();
    let mut election = server.election(ME);
    lead(&mut election).await;
    assert_eq!(server.holder(), ME);
    let waited = start.elapsed();
    assert!((15..=18).contains(&waited.as_secs()), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_living_leader_is_not_replaced() {
    let server = LeaseServer::default();
    let mut leader = server.election(OTHER);
    lead(&mut leader).await;
    let mut candidate = server.election(ME);
    tokio::select! {
        () = candidate.acquire() => panic!("two leaders"),
        loss = leader.hold() => panic!("lost: {loss}"),
        () = sleep(Duration::from_secs(600)) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_the_next_attempt() {
    let server = LeaseServer::default();
    let mut leader = server.election(OTHER);
    lead(&mut leader).await;
    let mut candidate = server.election(ME);
    let held = timeout(Duration::from_secs(20), async {
        tokio::join!(candidate.acquire(), async {
            let _ = timeout(Duration::from_secs(5), leader.hold()).await;
            let fence = leader.fence();
            leader.release().await;
            assert!(fence.check().is_err());
        });
    });
    let start = Instant::now();
    held.await.unwrap();
    assert_eq!(server.holder(), ME);
    assert!(start.elapsed() <= Duration::from_secs(8), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_candidate_releases_nothing() {
    let server = LeaseServer::default();
    lead(&mut server.election(OTHER)).await;
    let mut candidate = server.election(ME);
    let _ = timeout(Duration::from_secs(3), candidate.acquire()).await;
    candidate.release().await;
    assert_eq!(server.holder(), OTHER);
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_api_server_ends_before_others_start() {
    for behaviour in [LeaseServerMode::Fails, LeaseServerMode::Hangs] {
        let server = LeaseServer::default();
        let mut election = server.election(ME);
        lead(&mut election).await;
        let fence = election.fence();
        server.set(behaviour);
        let start = Instant::now();
        let loss = election.hold().await;
        assert_eq!(loss, LeadershipLoss::NotRenewed { deadline: Duration::from_secs(10) });
        assert_eq!(start.elapsed().as_secs(), 10);
        assert!(fence.check().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_ends_no_leader() {
    let server = LeaseServer::default();
    let mut election = server.election(ME);
    lead(&mut election).await;
    server.set(LeaseServerMode::Hangs);
    let outage = async {
        sleep(Duration::from_secs(6)).await;
        server.set(LeaseServerMode::Responds);
        sleep(Duration::from_secs(60)).await;
    };
    tokio::select! {
        loss = election.hold() => panic!("lost: {loss}"),
        () = outage => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_ends() {
    let server = LeaseServer::default();
    let mut election = server.election(ME);
    lead(&mut election).await;
    server.change(|lease| lease.as_mut().unwrap()["spec"]["holderIdentity"] = json!(OTHER));
    assert_eq!(election.hold().await, LeadershipLoss::Replaced { holder: OTHER.to_owned() });
}

#[tokio::test(start_paused = true)]
async fn changes_of_others_do_not_end_the_leader() {
    let server = LeaseServer::default();
    let mut election = server.election(ME);
    lead(&mut election).await;
    for change in [
        (|lease| lease.as_mut().unwrap()["metadata"]["labels"] = json!({"a": "b"}))
            as fn(&mut Option<Value>),
        |lease| *lease = None,
    ] {
        server.change(change);
        let held = timeout(Duration::from_secs(30), election.hold()).await;
        assert!(held.is_err(), "{held:?}");
        assert_eq!(server.holder(), ME);
    }
}

#[tokio::test(start_paused = true)]
async fn the_fence_rejects_writes_of_a_suspended_leader() {
    let server = LeaseServer::default();
    let mut election = server.election(ME);
    lead(&mut election).await;
    let fenced = server.client_with(&FenceLayer(election.fence()));
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(fenced, "lab");
    leases.get("ironic.metal3.io").await.unwrap();
    // The process is suspended: nothing renews the Lease.
    advance(Duration::from_secs(11)).await;
    let patch = kube::api::Patch::Merge(json!({}));
    let error = leases.patch("x", &kube::api::PatchParams::default(), &patch).await.unwrap_err();
    assert!(error_chain::error_chain(&error).contains("no longer the leader"), "{error:?}");
    leases.get("ironic.metal3.io").await.unwrap();
}
