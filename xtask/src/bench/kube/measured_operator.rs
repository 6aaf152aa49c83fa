// SPDX-License-Identifier: Apache-2.0
//! The measured `ferrite operator`: its process and its metrics.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http_probe::ProbeClient;

use super::super::meter::{self, CpuUsage};
use super::control_plane::BenchControlPlane;
use super::host_objects::NAMESPACE;
use super::request_counts::samples;
use crate::interrupt::Interrupt;
use crate::print;
use crate::test::process::{Process, free_port, with_death_signal};

/// The operator is settled if it reconciled nothing for this time.
const QUIET: Duration = Duration::from_secs(15);
/// If it does not settle, it is measured all the same.
const SETTLE_LIMIT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Lines of the log in error messages.
const LAST_LINES: usize = 15;

/// A running operator for hosts, with leader election and without webhooks.
pub(super) struct MeasuredOperator {
    /// `None` after it was stopped.
    process: Option<Process>,
    pid: u32,
    metrics: SocketAddr,
    log: PathBuf,
}

impl MeasuredOperator {
    /// Starts it and waits until it is ready. It provisions with the Ironic API at `ironic`.
    pub(super) fn start(
        ferrite: &Path,
        folder: &Path,
        cluster: &BenchControlPlane,
        ironic: &str,
    ) -> Result<Self> {
        let local = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (metrics, health) = (local(free_port()?), local(free_port()?));
        let log = folder.join("operator.log");
        let mut command = with_death_signal(ferrite, "KILL", folder);
        command.args(["operator", "--controllers", "baremetalhost", "--webhook-listen", "off"]);
        command.args(["--leader-elect", "--leader-election-namespace", NAMESPACE]);
        command.arg(format!("--metrics-listen={metrics}"));
        command.arg(format!("--health-listen={health}"));
        command.arg("--kubeconfig").arg(cluster.kubeconfig());
        command.env("IRONIC_ENDPOINT", ironic);
        // There are no credentials in this folder.
        command.env("METAL3_AUTH_ROOT_DIR", folder);
        let ramdisk = folder.join("files/ramdisk.iso");
        fs::write(&ramdisk, iso_image())?;
        command.env("DEPLOY_ISO_URL", format!("file://{}", ramdisk.display()));
        let mut process = Process::start("ferrite operator", "TERM", command, log.clone())?;
        process.wait_until(|| {
            let response = ProbeClient::new(health).send("GET", "/readyz", None);
            response.is_ok_and(|response| response.status == 200)
        })?;
        Ok(Self { pid: process.pid(), process: Some(process), metrics, log })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Processor time since the start.
    pub(super) fn cpu(&self) -> Result<Duration> {
        Ok(CpuUsage::of(self.pid)?.total())
    }

    /// Resident memory in MiB.
    pub(super) fn memory(&self) -> Result<f64> {
        meter::resident_mib(self.pid)
    }

    /// Peak of the resident memory in MiB.
    pub(super) fn peak_memory(&self) -> Result<f64> {
        meter::peak_resident_mib(self.pid)
    }

    /// Stops it with SIGTERM.
    pub(super) fn stop(&mut self, timeout: Duration) -> Result<()> {
        match self.process.take() {
            Some(process) => process.stop(timeout),
            None => Ok(()),
        }
    }

    /// How many hosts became available since the start.
    pub(super) fn became_available(&self) -> Result<usize> {
        let text = self.metrics()?;
        let changes = samples(&text, "metal3_provisioning_state_change_total");
        let available = changes.filter(|(labels, _)| labels.get("new_state") == Some(&"available"));
        Ok(available.map(|(_, value)| value as usize).sum())
    }

    /// How many operations of hosts failed since the start.
    pub(super) fn failed_operations(&self) -> Result<usize> {
        let text = self.metrics()?;
        Ok(samples(&text, "metal3_host_error_total").map(|(_, value)| value as usize).sum())
    }

    /// Waits until nothing was reconciled for some time, which is returned. Reports it if that takes too
    /// long.
    pub(super) fn wait_until_settled(&self, interrupt: &Interrupt) -> Result<Duration> {
        let deadline = Instant::now() + SETTLE_LIMIT;
        let (mut last, mut since) = (self.reconciliations()?, Instant::now());
        while since.elapsed() < QUIET {
            if interrupt.is_raised() {
                bail!("interrupted");
            }
            if Instant::now() >= deadline {
                print::problem("the operator still reconciles hosts although nothing changes");
                break;
            }
            thread::sleep(POLL_INTERVAL);
            let now = self.reconciliations()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(since.elapsed())
    }

    /// The last lines of its log.
    pub(super) fn last_lines(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default().join("\n")
    }

    fn reconciliations(&self) -> Result<u64> {
        let text = self.metrics()?;
        let counts = samples(&text, "controller_runtime_reconcile_total");
        Ok(counts.map(|(_, value)| value as u64).sum())
    }

    fn metrics(&self) -> Result<String> {
        let response = ProbeClient::new(self.metrics).send("GET", "/metrics", None)?;
        if response.status != 200 {
            bail!("GET /metrics of the operator: {}", response.status);
        }
        Ok(response.text())
    }
}

/// An image that passes for an ISO 9660 file system: the system area, an empty volume descriptor and the
/// end of descriptors. Simulated machines do not read more of it.
fn iso_image() -> Vec<u8> {
    const SECTOR: usize = 2048;
    let mut image = vec![0; 16 * SECTOR];
    for start in [b"\x01CD001\x01", b"\xffCD001\x01"] {
        image.extend_from_slice(start);
        image.resize(image.len().next_multiple_of(SECTOR), 0);
    }
    image
}

#[test]
fn the_image_has_two_descriptors() {
    let image = iso_image();
    assert_eq!(image.len(), 18 * 2048);
    assert_eq!(image[16 * 2048..][..7], *b"\x01CD001\x01");
    assert_eq!(image[17 * 2048..][..7], *b"\xffCD001\x01");
}
