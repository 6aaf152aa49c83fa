// SPDX-License-Identifier: Apache-2.0
//! Probes of containers: HTTP, HTTPS, TCP and commands.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rustix::process::Pid;

use crate::process::{ChildProcess, dies_with_tests};

/// The longest interval until the first success: a real kubelet also probes at once when something
/// changes.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);

/// How often a probe runs, and how many results count.
pub(super) struct ProbeTiming {
    pub(super) initial_delay: Duration,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) successes: u32,
    pub(super) failures: u32,
}

impl ProbeTiming {
    pub(super) fn of(probe: &Probe) -> Self {
        let number = |value: Option<i32>, default: u32| {
            value.and_then(|value| u32::try_from(value).ok()).filter(|n| *n > 0).unwrap_or(default)
        };
        let seconds = |value, default| Duration::from_secs(number(value, default).into());
        Self {
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            interval: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            successes: number(probe.success_threshold, 1),
            failures: number(probe.failure_threshold, 3),
        }
    }

    /// The interval before the first success.
    pub(super) fn first_interval(&self) -> Duration {
        self.interval.min(FIRST_INTERVAL)
    }
}

/// A running container, as probes see it.
pub(super) struct ProbeTarget<'a> {
    pub(super) container: &'a Container,
    pub(super) address: Ipv4Addr,
    /// The first process of the container.
    pub(super) process: Option<Pid>,
}

/// Runs a probe once; `inside` is the command line for commands in the container.
pub(super) async fn check(
    target: &ProbeTarget<'_>,
    probe: &Probe,
    inside: impl Fn(&[String]) -> Vec<String>,
) -> Result<()> {
    let timeout = ProbeTiming::of(probe).timeout;
    let attempt = async {
        if let Some(get) = &probe.http_get {
            http_get(target, get, timeout).await
        } else if let Some(connect) = &probe.tcp_socket {
            let host = connect.host.clone().unwrap_or_else(|| target.address.to_string());
            let port = port_number(target.container, &connect.port)?;
            tokio::net::TcpStream::connect((host, port)).await?;
            Ok(())
        } else if let Some(exec) = &probe.exec {
            let command = inside(exec.command.as_deref().unwrap_or_default());
            execute(target.process.context("the container is not running")?, &command).await
        } else {
            bail!("this kind of probe is not supported by the test kubelet")
        }
    };
    tokio::time::timeout(timeout, attempt).await.context("timeout")?
}

async fn http_get(target: &ProbeTarget<'_>, get: &HTTPGetAction, timeout: Duration) -> Result<()> {
    let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
    let host = get.host.clone().unwrap_or_else(|| target.address.to_string());
    let port = port_number(target.container, &get.port)?;
    let path = get.path.clone().unwrap_or_default();
    let path = path.trim_start_matches('/');
    let mut headers = HeaderMap::new();
    for header in get.http_headers.iter().flatten() {
        let name = HeaderName::try_from(&header.name)?;
        headers.insert(name, HeaderValue::try_from(&header.value)?);
    }
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    // A kubelet does not verify certificates.
    let client = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .timeout(timeout)
        .build()?;
    let response =
        client.get(format!("{scheme}://{host}:{port}/{path}")).headers(headers).send().await?;
    let status = response.status();
    ensure!((200..400).contains(&status.as_u16()), "statuscode: {status}");
    Ok(())
}

/// Runs a command in the namespaces of a container.
async fn execute(process: Pid, command: &[String]) -> Result<()> {
    let mut enter = dies_with_tests("nsenter");
    enter.args(["--target", &process.as_raw_nonzero().to_string()]);
    enter.args(["--mount", "--pid", "--uts", "--net", "--root", "--"]).args(command);
    enter.stdout(Stdio::null()).stderr(Stdio::null());
    let child = StopOnDrop(ChildProcess::start(enter)?);
    let status = child.0.wait().await.context("the command was lost")?;
    ensure!(status.success(), "the command failed with {status}");
    Ok(())
}

/// Kills a command whose time is over.
struct StopOnDrop(ChildProcess);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.kill();
    }
}

fn port_number(container: &Container, port: &IntOrString) -> Result<u16> {
    match port {
        IntOrString::Int(number) => Ok(u16::try_from(*number)?),
        IntOrString::String(name) => {
            if let Ok(number) = name.parse() {
                return Ok(number);
            }
            let ports = container.ports.iter().flatten();
            let found = ports.into_iter().find(|port| port.name.as_ref() == Some(name));
            let found = found.with_context(|| format!("the container has no port {name:?}"))?;
            Ok(u16::try_from(found.container_port)?)
        }
    }
}

/// `nsenter` into the network of a process, then the given command.
pub(super) fn in_network_of(process: Pid, program: &str) -> Command {
    let mut command = dies_with_tests("nsenter");
    command.arg(format!("--net=/proc/{}/ns/net", process.as_raw_nonzero()));
    command.args(["--", program]);
    command
}
