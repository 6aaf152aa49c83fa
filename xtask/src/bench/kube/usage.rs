// SPDX-License-Identifier: Apache-2.0
//! Processor time and requests of all processes between two samples.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http_probe::ProbeClient;

use super::super::meter::CpuUsage;
use super::request_counts::RequestCounts;

/// Process ids.
pub(super) struct MeasuredProcesses {
    pub(super) operator: u32,
    pub(super) service: u32,
    pub(super) api_server: u32,
}

/// Everything that is counted so far.
pub(super) struct UsageSample {
    at: Instant,
    operator: CpuUsage,
    service: CpuUsage,
    api_server: CpuUsage,
    kubernetes: RequestCounts,
    ironic: RequestCounts,
}

/// What was used between two samples.
pub(super) struct ClusterUsage {
    pub(super) elapsed: Duration,
    pub(super) operator: Duration,
    pub(super) service: Duration,
    pub(super) api_server: Duration,
    pub(super) kubernetes: RequestCounts,
    pub(super) ironic: RequestCounts,
}

impl UsageSample {
    /// `own_host_lists` is how often the benchmark listed hosts so far.
    pub(super) fn take(
        processes: &MeasuredProcesses,
        api_server: &mut ProbeClient,
        service: &mut ProbeClient,
        own_host_lists: usize,
    ) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            operator: CpuUsage::of(processes.operator)?,
            service: CpuUsage::of(processes.service)?,
            api_server: CpuUsage::of(processes.api_server)?,
            kubernetes: RequestCounts::kubernetes(&metrics(api_server)?)
                .without_host_lists(own_host_lists),
            ironic: RequestCounts::ironic(&metrics(service)?),
        })
    }

    pub(super) fn since(&self, earlier: &Self) -> ClusterUsage {
        ClusterUsage {
            elapsed: self.at.duration_since(earlier.at),
            operator: self.operator.since(&earlier.operator),
            service: self.service.since(&earlier.service),
            api_server: self.api_server.since(&earlier.api_server),
            kubernetes: self.kubernetes.since(&earlier.kubernetes),
            ironic: self.ironic.since(&earlier.ironic),
        }
    }
}

fn metrics(client: &mut ProbeClient) -> Result<String> {
    let response = client.send("GET", "/metrics", None)?;
    if response.status != 200 {
        bail!("GET /metrics: {} {}", response.status, response.text());
    }
    Ok(response.text())
}
