// SPDX-License-Identifier: Apache-2.0
//! Leader election between processes of `ferrite operator`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::PostParams;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::NamedTempFile;

use crate::cluster::{TIMEOUT, TestNamespace, wait_for};

const LEASE: &str = "baremetal-operator";
/// Between two looks at a process.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A leader that ends without releasing its lease is replaced soon.
const SHORT: [&str; 3] = ["--lease-duration=4s", "--renew-deadline=3s", "--retry-period=1s"];
/// A lease that is not released is not taken before the test fails.
const LONG: [&str; 3] = ["--lease-duration=900s", "--renew-deadline=600s", "--retry-period=1s"];

/// A process of the operator, killed at the end of the test.
struct OperatorProcess {
    child: Child,
    metrics: String,
    log: NamedTempFile,
}

impl OperatorProcess {
    /// Starts an operator for the hosts of a namespace, and waits until it serves metrics.
    async fn start(namespace: &TestNamespace, timing: [&str; 3]) -> Self {
        Self::start_with(namespace, timing, &[]).await
    }

    /// The same with more options.
    async fn start_with(namespace: &TestNamespace, timing: [&str; 3], options: &[&str]) -> Self {
        let log = NamedTempFile::new().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrite"));
        command.arg("operator").arg("--kubeconfig").arg(namespace.cluster.kubeconfig());
        command.args(["--controllers", "baremetalhost", "--provisioner", "fixture"]);
        command.args(["--namespace", &namespace.name, "--leader-elect"]);
        command.args(["--leader-election-namespace", &namespace.name]).args(timing);
        command.args(["--webhook-listen", "off", "--health-listen", "off"]);
        command.args(["--metrics-listen", "127.0.0.1:0"]).args(options);
        command.stdout(Stdio::piped()).stderr(File::create(log.path()).unwrap());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let lines = tokio::task::spawn_blocking(move || {
            let mut metrics = String::new();
            for line in output.lines().map_while(Result::ok) {
                if let Some(address) = line.strip_prefix("metrics on ") {
                    address.clone_into(&mut metrics);
                }
                if line == "ferrite operator started" {
                    break;
                }
            }
            metrics
        });
        let metrics = lines.await.unwrap();
        let process = Self { child, metrics, log };
        assert!(!process.metrics.is_empty(), "{}", process.log());
        process
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap_or_default()
    }

    fn is_leader(&self) -> bool {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response.contains(&format!("leader_election_master_status{{name=\"{LEASE}\"}} 1\n"))
    }

    /// Waits until the process leads.
    async fn wait_to_lead(&self) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.is_leader() {
            assert!(Instant::now() < deadline, "did not become leader: {}", self.log());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until the process ends.
    async fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "does not end: {}", self.log());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

impl Drop for OperatorProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates a host, and waits until a controller has seen it.
async fn check_that_hosts_are_controlled(namespace: &TestNamespace, name: &str) {
    let hosts = namespace.api::<BareMetalHost>();
    let host = json!({"metadata": {"name": name}, "spec": {"online": true}});
    let host = serde_json::from_value(host).unwrap();
    hosts.create(&PostParams::default(), &host).await.unwrap();
    let is_controlled = |host: &Option<BareMetalHost>| {
        host.as_ref().is_some_and(|host| !host.finalizers().is_empty())
    };
    wait_for("the finalizer of a host", &hosts, name, is_controlled).await;
}

/// The holder of the lease, which is not `previous`.
async fn wait_for_holder(namespace: &TestNamespace, previous: &str) -> String {
    let holder = |lease: &Option<Lease>| {
        let spec = lease.as_ref().and_then(|lease| lease.spec.clone())?;
        spec.holder_identity.filter(|holder| !holder.is_empty() && holder != previous)
    };
    let is_held = |lease: &Option<Lease>| holder(lease).is_some();
    let lease = wait_for("another holder", &namespace.api::<Lease>(), LEASE, is_held).await;
    holder(&lease).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_replaced() {
    let Some(namespace) = TestNamespace::create("killed-leader").await else { return };
    let mut first = OperatorProcess::start(&namespace, SHORT).await;
    first.wait_to_lead().await;
    let second = OperatorProcess::start(&namespace, SHORT).await;
    let holder = wait_for_holder(&namespace, "").await;
    check_that_hosts_are_controlled(&namespace, "host-0").await;
    assert!(!second.is_leader());
    first.signal(Signal::KILL);
    first.wait().await;
    wait_for_holder(&namespace, &holder).await;
    second.wait_to_lead().await;
    check_that_hosts_are_controlled(&namespace, "host-1").await;
    drop((first, second));
    namespace.delete().await;
}

/// It may be created later.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_does_not_exist_is_a_warning() {
    let Some(namespace) = TestNamespace::create("missing-namespace").await else { return };
    let missing = ["--namespace", "not-created-yet"];
    let process = OperatorProcess::start_with(&namespace, SHORT, &missing).await;
    process.wait_to_lead().await;
    let deadline = Instant::now() + TIMEOUT;
    while !process.log().contains("namespace does not exist") {
        assert!(Instant::now() < deadline, "{}", process.log());
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let log = process.log();
    let warnings: Vec<&str> =
        log.lines().filter(|line| line.contains("namespace does not exist")).collect();
    assert!(matches!(warnings[..], [line] if line.contains("not-created-yet")), "{warnings:?}");
    drop(process);
    namespace.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_releases_its_lease() {
    let Some(namespace) = TestNamespace::create("stopped-leader").await else { return };
    let mut first = OperatorProcess::start(&namespace, LONG).await;
    first.wait_to_lead().await;
    let second = OperatorProcess::start(&namespace, LONG).await;
    check_that_hosts_are_controlled(&namespace, "host-0").await;
    first.signal(Signal::TERM);
    let status = first.wait().await;
    assert!(status.success(), "{status}: {}", first.log());
    second.wait_to_lead().await;
    check_that_hosts_are_controlled(&namespace, "host-1").await;
    drop((first, second));
    namespace.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_leader_ends_when_it_continues() {
    let Some(namespace) = TestNamespace::create("suspended-leader").await else { return };
    let mut first = OperatorProcess::start(&namespace, SHORT).await;
    first.wait_to_lead().await;
    let second = OperatorProcess::start(&namespace, SHORT).await;
    first.signal(Signal::STOP);
    second.wait_to_lead().await;
    first.signal(Signal::CONT);
    let status = first.wait().await;
    assert_eq!(status.code(), Some(2), "{}", first.log());
    assert!(first.log().contains("stopped because lease baremetal-operator was lost"));
    assert!(second.is_leader());
    drop((first, second));
    namespace.delete().await;
}
