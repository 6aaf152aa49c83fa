// SPDX-License-Identifier: Apache-2.0
//! The life of the process without an API server. `crates/ferrite/tests/kube` tests it with one.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::*;

fn settings() -> ManagerSettings {
    let local = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    ManagerSettings {
        kube: kube::Config::new("http://127.0.0.1:1".parse().unwrap()),
        scope: WatchScope::Cluster,
        election: None,
        health_listen: local,
        metrics_listen: local,
        webhooks: None,
    }
}

fn controller<F>(
    name: &'static str,
    run: impl FnOnce(ControllerContext) -> F + Send + 'static,
) -> ManagedController
where
    F: Future<Output = Result<(), ControllerError>> + Send + 'static,
{
    ManagedController { name, start: Box::new(|context, _| run(context).boxed()) }
}

fn group(controllers: Vec<ManagedController>) -> Vec<ControllerGroup> {
    vec![ControllerGroup { lease: "ironic.metal3.io", controllers }]
}

/// Runs until the stop signal.
fn obedient(name: &'static str) -> ManagedController {
    controller(name, |context| async move {
        context.stopped().await;
        Ok(())
    })
}

/// Status and body of a GET request.
async fn get(address: SocketAddr, path: &'static str) -> (u16, String) {
    let request = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let status = response.split(' ').nth(1).unwrap().parse().unwrap();
        (status, response.split_once("\r\n\r\n").unwrap().1.to_owned())
    };
    tokio::task::spawn_blocking(request).await.unwrap()
}

#[tokio::test]
async fn probes_and_metrics_are_served_until_the_process_ends() {
    let manager = OperatorManager::bind(settings()).await.unwrap();
    let addresses = manager.addresses();
    let (health, metrics) = (addresses.health.unwrap(), addresses.metrics.unwrap());
    let (may_sync, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let synced = Arc::clone(&may_sync);
    let slow_cache = controller("slow", |context| async move {
        let gate = context.readiness.gate("cache of Ironic");
        context.metrics.reconciled(
            "slow",
            crate::metrics::ReconcileOutcome::Settled,
            Duration::from_millis(1),
        );
        synced.notified().await;
        gate.open();
        context.stopped().await;
        Ok(())
    });
    let stopped = Arc::clone(&stop);
    let running =
        tokio::spawn(manager.run(group(vec![slow_cache, obedient("other")]), async move {
            stopped.notified().await;
        }));
    assert_eq!(get(health, "/healthz").await, (200, "ok\n".to_owned()));
    // The controller starts at some time.
    while get(health, "/readyz").await.0 == 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(get(health, "/readyz").await, (503, "waiting for cache of Ironic\n".to_owned()));
    may_sync.notify_one();
    while get(health, "/readyz").await.0 == 503 {
        tokio::task::yield_now().await;
    }
    let (status, text) = get(metrics, "/metrics").await;
    assert_eq!(status, 200);
    assert!(text.contains(r#"controller_runtime_reconcile_total{controller="slow""#), "{text}");
    assert_eq!(get(metrics, "/healthz").await.0, 404);
    stop.notify_one();
    running.await.unwrap().unwrap();
    assert!(TcpStream::connect(health).is_err());
}

/// How a process ends whose first controller ends like this.
async fn end_of(first: ManagedController) -> String {
    let manager = OperatorManager::bind(settings()).await.unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let other_ended = Arc::clone(&ended);
    let other = controller("other", |context| async move {
        context.stopped().await;
        other_ended.store(true, Ordering::SeqCst);
        Ok(())
    });
    // In another group, which is stopped and not aborted.
    let groups = vec![
        ControllerGroup { lease: "ironic.metal3.io", controllers: vec![first] },
        ControllerGroup { lease: "baremetal-operator", controllers: vec![other] },
    ];
    let error = manager.run(groups, std::future::pending()).await.unwrap_err();
    assert!(ended.load(Ordering::SeqCst), "the other controller was not stopped");
    error_chain::error_chain(&error)
}

#[tokio::test]
async fn a_controller_that_ends_early_ends_the_process() {
    let failing = controller("ironic", |_| async { Err("no CRD".into()) });
    assert_eq!(end_of(failing).await, "controller ironic failed: no CRD");
    let ending = controller("ironic", |_| async { Ok(()) });
    assert_eq!(end_of(ending).await, "controller ironic ended unexpectedly");
    let panicking = controller("ironic", |_| async { panic!("injected") });
    let text = end_of(panicking).await;
    assert!(text.starts_with("a task of the operator failed"), "{text}");
}

#[tokio::test]
async fn a_stop_before_the_election_ends_at_once() {
    let mut settings = settings();
    settings.election = Some(ElectionSettings {
        namespace: "lab".to_owned(),
        lease_namespaces: Vec::new(),
        identity: "me".to_owned(),
        timing: LeaseTiming::default(),
    });
    let manager = OperatorManager::bind(settings).await.unwrap();
    let never = controller("ironic", |_| async { panic!("started without a lease") });
    manager.run(group(vec![never]), async {}).await.unwrap();
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let Err(error) =
        OperatorManager::bind(ManagerSettings { health_listen: Some(address), ..settings() }).await
    else {
        panic!("bound twice")
    };
    let text = error_chain::error_chain(&error);
    assert!(text.starts_with(&format!("cannot listen on {address} for probes: ")), "{text}");
}

#[tokio::test]
async fn servers_reject_large_bodies() {
    let manager = OperatorManager::bind(settings()).await.unwrap();
    let health = manager.addresses().health.unwrap();
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let running = tokio::spawn(
        manager.run(group(vec![obedient("a")]), async move { stopped.notified().await }),
    );
    for head in ["Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"] {
        let request = format!("POST /healthz HTTP/1.1\r\nHost: x\r\n{head}\r\n");
        let sent = move || {
            let mut stream = TcpStream::connect(health).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let chunk = format!("{:x}\r\n{}\r\n", 4096, "x".repeat(4096));
            // The server may close the connection while this is sent.
            let _ = stream.write_all(chunk.as_bytes());
            let mut response = [0; 12];
            stream.read_exact(&mut response).unwrap();
            String::from_utf8(response.to_vec()).unwrap()
        };
        assert_eq!(tokio::task::spawn_blocking(sent).await.unwrap(), "HTTP/1.1 413");
    }
    stop.notify_one();
    running.await.unwrap().unwrap();
}
