// SPDX-License-Identifier: Apache-2.0
//! Inspection: collects the hardware inventory and sends it to the server.

use std::time::Duration;

use agent_protocol::{
    AgentInventory, BOOT_SECRET_HEADER, CollectorConfiguration, InspectionReport, ManagerVersion,
    choose_root_device,
};
use error_chain::error_chain;
use machine_inventory::{InventoryOptions, LocalMachine, benchmarks};
use serde_json::{Map, Value, json};

use crate::agent::RamdiskAgent;
use crate::logs;
use crate::network::{interfaces, mdns};

/// The collectors to run by default.
const DEFAULT_COLLECTORS: &[&str] = &["default", "logs"];
/// The duration of each benchmark.
const BENCHMARK_DURATION: Duration = Duration::from_secs(1);
/// The delay of the next attempt after a change of the network.
const NETWORK_CHANGE_DELAY: Duration = Duration::from_secs(1);
/// The delays between attempts to send, in seconds.
const RETRY_DELAYS: [u64; 4] = [5, 6, 12, 24];

/// Inspection failed.
#[derive(Debug, thiserror::Error)]
pub enum InspectionError {
    /// The data could not be sent.
    #[error("cannot send inspection data: {reason}")]
    NotSent {
        /// The cause.
        reason: String,
    },
    /// The server rejected the data.
    #[error("the server rejected the inspection data with {status}: {message}")]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The start of the response body.
        message: String,
    },
    /// mDNS found no server.
    #[error("no server for inspection data found by mDNS")]
    NoServer(#[source] std::io::Error),
}

/// Whether the boot parameters request an inspection.
#[must_use]
pub fn is_requested(agent: &RamdiskAgent) -> bool {
    let options = &agent.options;
    !options.inspection_urls.is_empty()
        || !options.collectors.is_empty() && !options.api_urls.is_empty()
}

/// Collects and sends the data. Returns the node UUID of the response, if it contains one.
///
/// # Errors
/// If the data cannot be sent, or the server rejects them.
pub async fn inspect(agent: &RamdiskAgent) -> Result<Option<String>, InspectionError> {
    let urls = callback_urls(agent).await?;
    wait_for_addresses(agent).await;
    agent.devices.wait_settled().await;
    let report = collect(agent).await;
    let body = serde_json::to_string(&report)
        .map_err(|error| InspectionError::NotSent { reason: error.to_string() })?;
    send(agent, &urls, body).await
}

/// Collects the hardware inventory.
pub async fn inventory(agent: &RamdiskAgent) -> AgentInventory {
    let known = agent.server_config();
    let options = InventoryOptions {
        bootif: agent.options.boot_interface.clone(),
        detect_bmc: !known.is_some_and(|options| options.agent_skip_bmc_detect),
        hostname: RamdiskAgent::hostname(),
        lldp: agent.lldp().unwrap_or_default(),
    };
    let read = tokio::task::spawn_blocking(move || LocalMachine::new().inventory(&options));
    let mut inventory = read.await.expect("reading an inventory does not panic");
    inventory.disks = agent.managers.disks();
    agent.managers.amend_inventory(&mut inventory);
    inventory
}

async fn collect(agent: &RamdiskAgent) -> InspectionReport {
    let options = &agent.options;
    let collectors: Vec<String> = if options.collectors.is_empty() {
        DEFAULT_COLLECTORS.iter().map(|name| (*name).to_owned()).collect()
    } else {
        options.collectors.clone()
    };
    let inventory = inventory(agent).await;
    let root_disk = choose_root_device(&inventory.disks, None).ok().cloned();
    let version = |(name, version): (String, Value)| ManagerVersion {
        name,
        version: version.as_str().unwrap_or_default().to_owned(),
    };
    let mut report = InspectionReport {
        inventory,
        root_disk,
        boot_interface: options.boot_interface.clone(),
        configuration: Some(CollectorConfiguration {
            collectors: collectors.clone(),
            managers: agent.managers.versions().into_iter().map(version).collect(),
        }),
        error: None,
        logs: None,
        rest: Map::new(),
    };
    let mut failures = Vec::new();
    for name in &collectors {
        tracing::debug!(collector = name, "collector started");
        match name.as_str() {
            "default" => {}
            "logs" => report.logs = Some(run_blocking(logs::collect_base64).await),
            "lldp" => {
                let tlvs = agent.lldp().unwrap_or_default();
                report.rest.insert("lldp_raw".to_owned(), json!(tlvs));
            }
            _ => match run_collector(name, options.benchmarks.join(",")).await {
                Some((key, value)) => {
                    report.rest.extend(value.map(|value| (key.to_owned(), value)));
                }
                None => failures.push(format!("unknown collector {name}")),
            },
        }
    }
    report.error = (!failures.is_empty()).then(|| failures.join("; "));
    report
}

/// Runs a collector that only reads. Returns the key and the data; `None` if it is unknown.
async fn run_collector(name: &str, measure: String) -> Option<(&'static str, Option<Value>)> {
    let machine = LocalMachine::new();
    Some(match name {
        "pci-devices" => ("pci_devices", Some(run_blocking(move || machine.pci_devices()).await)),
        "usb-devices" => ("usb_devices", Some(run_blocking(move || machine.usb_devices()).await)),
        "numa-topology" => ("numa_topology", run_blocking(move || machine.numa_topology()).await),
        "dmi-decode" => ("dmi", run_blocking(move || machine.dmi()).await),
        "extra-hardware" => {
            let collect = move || {
                let mut facts = machine.extra_hardware();
                if !measure.is_empty() {
                    let which = benchmarks::BenchmarkSelection::parse(&measure);
                    facts.extend(benchmarks::run(&machine, which, BENCHMARK_DURATION));
                }
                Value::Array(facts)
            };
            ("data", Some(run_blocking(collect).await))
        }
        _ => return None,
    })
}

async fn run_blocking<T: Send + Default + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}

async fn callback_urls(agent: &RamdiskAgent) -> Result<Vec<String>, InspectionError> {
    let options = &agent.options;
    if options.inspection_urls == ["mdns"] {
        agent.network.wait_for_address(options.inspection_dhcp_wait).await;
        let services = ["baremetal-introspection", "baremetal"];
        let server = mdns::discover(&services, options.inspection_dhcp_wait)
            .await
            .map_err(InspectionError::NoServer)?;
        // The former inspection service, or the API.
        let path = if server.service == services[0] { "continue" } else { "continue_inspection" };
        return Ok(vec![format!("{}/v1/{path}", server.url)]);
    }
    if !options.inspection_urls.is_empty() {
        return Ok(options.inspection_urls.clone());
    }
    let complete = |url: &String| format!("{}/v1/continue_inspection", url.trim_end_matches('/'));
    Ok(options.api_urls.iter().map(complete).collect())
}

/// Waits until the boot interface has an address, or all interfaces have, as configured.
async fn wait_for_addresses(agent: &RamdiskAgent) {
    let options = &agent.options;
    if !agent.network.wait_for_address(options.inspection_dhcp_wait).await {
        tracing::warn!("no interface got an address within the timeout");
        return;
    }
    let boot = options.boot_mac();
    if !agent.in_ramdisk || !options.inspection_dhcp_all && boot.is_none() {
        return;
    }
    let mut changes = agent.network.changes();
    let wait = async {
        loop {
            let leases = agent.network.leases();
            let missing = interfaces().into_iter().any(|interface| {
                // The boot interface has a link even if the kernel does not report it yet; others
                // without a link get no address.
                let is_boot = boot.as_deref() == Some(&interface.mac_text());
                let needed = is_boot || options.inspection_dhcp_all && interface.has_carrier;
                needed && !leases.contains_key(&interface.name)
            });
            if !missing || leases.is_empty() || changes.changed().await.is_err() {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(options.inspection_dhcp_wait, wait).await;
}

/// Sends the data to each server in turn, with retries.
async fn send(
    agent: &RamdiskAgent,
    urls: &[String],
    body: String,
) -> Result<Option<String>, InspectionError> {
    let mut failure = InspectionError::NotSent { reason: "no URL configured".to_owned() };
    for attempt in 0..=RETRY_DELAYS.len() {
        for url in urls {
            tracing::info!(bytes = body.len(), url, "sending inspection data");
            // Without a version header, as ironic-python-agent sends it.
            let mut request = agent
                .http
                .client
                .post(url)
                .header("Content-Type", "application/json")
                .header("Accept", "application/json");
            if let Some(token) = agent.token() {
                request = request.header(BOOT_SECRET_HEADER, token);
            }
            if let Some(id) = &agent.options.request_id {
                request = request.header("X-OpenStack-Request-ID", id);
            }
            let exchange = async {
                let response = request.body(body.clone()).send().await?;
                Ok::<_, reqwest::Error>((response.status(), response.bytes().await?))
            };
            match exchange.await {
                Ok((status, body)) if status.is_success() => {
                    let reply: Value = serde_json::from_slice(&body).unwrap_or_default();
                    let node = reply.get("uuid").and_then(Value::as_str);
                    return Ok(node
                        .filter(|text| text.parse::<uuid::Uuid>().is_ok())
                        .map(str::to_owned));
                }
                Ok((status, body)) => {
                    let message =
                        String::from_utf8_lossy(&body[..body.len().min(1000)]).into_owned();
                    failure = InspectionError::Rejected { status: status.as_u16(), message };
                    if !status.is_server_error() && status != reqwest::StatusCode::CONFLICT {
                        return Err(failure);
                    }
                    break;
                }
                Err(error) => {
                    let reason = error_chain(&error.without_url());
                    tracing::warn!(url, error = reason, "failed to send inspection data");
                    failure = InspectionError::NotSent { reason };
                }
            }
        }
        if let Some(&pause) = RETRY_DELAYS.get(attempt) {
            let mut changes = agent.network.changes();
            // A new address may change the result, so do not wait for the delay.
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(pause)) => {}
                _ = changes.changed() => tokio::time::sleep(NETWORK_CHANGE_DELAY).await,
            }
        }
    }
    Err(failure)
}
