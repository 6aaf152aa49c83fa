// SPDX-License-Identifier: Apache-2.0
//! Inspection: collects what the machine is made of and sends it to the server.

use std::time::Duration;

use agent_protocol::{Configuration, Inventory, ManagerVersion, Report, choose_root_device};
use machine_inventory::{InventoryOptions, Machine, benchmarks};
use serde_json::{Map, Value, json};

use crate::agent::Agent;
use crate::logs;
use crate::network::{cards, mdns};

/// What is collected if nobody says.
const DEFAULT_COLLECTORS: &[&str] = &["default", "logs"];
/// How long each benchmark runs.
const BENCHMARK: Duration = Duration::from_secs(1);
/// How long after a change of the network there is another attempt to send.
const AFTER_CHANGE: Duration = Duration::from_secs(1);
/// The pauses between attempts to send.
const PAUSES: [u64; 4] = [5, 6, 12, 24];

/// Why inspection failed.
#[derive(Debug, thiserror::Error)]
pub enum InspectionError {
    /// Nobody took the data.
    #[error("the inspection data could not be sent: {reason}")]
    NotSent {
        /// Why.
        reason: String,
    },
    /// The server did not want them.
    #[error("the server answered {status} to the inspection data: {said}")]
    Refused {
        /// Its answer.
        status: u16,
        /// Its words.
        said: String,
    },
    /// There is no server.
    #[error("no server for inspection data was found by mDNS")]
    NoServer(#[source] std::io::Error),
}

/// Whether the machine was told to inspect itself.
#[must_use]
pub fn is_wanted(agent: &Agent) -> bool {
    let settings = &agent.settings;
    !settings.inspection_urls.is_empty()
        || !settings.collectors.is_empty() && !settings.api_urls.is_empty()
}

/// Collects and sends. The server says which node it is, if it knows.
///
/// # Errors
/// If the data cannot be sent, or the server does not want them.
pub async fn inspect(agent: &Agent) -> Result<Option<String>, InspectionError> {
    let urls = urls(agent).await?;
    wait_for_addresses(agent).await;
    agent.devices.settled().await;
    let report = collect(agent).await;
    let body = serde_json::to_string(&report)
        .map_err(|error| InspectionError::NotSent { reason: error.to_string() })?;
    send(agent, &urls, body).await
}

/// What the machine is made of.
pub async fn inventory(agent: &Agent) -> Inventory {
    let known = agent.server_settings();
    let options = InventoryOptions {
        bootif: agent.settings.boot_interface.clone(),
        detect_bmc: !known.is_some_and(|settings| settings.agent_skip_bmc_detect),
        hostname: Agent::hostname(),
        lldp: agent.lldp().unwrap_or_default(),
    };
    let read = tokio::task::spawn_blocking(move || Machine::here().inventory(&options));
    let mut inventory = read.await.expect("reading an inventory does not panic");
    inventory.disks = agent.managers.disks();
    agent.managers.amend_inventory(&mut inventory);
    inventory
}

async fn collect(agent: &Agent) -> Report {
    let settings = &agent.settings;
    let collectors: Vec<String> = if settings.collectors.is_empty() {
        DEFAULT_COLLECTORS.iter().map(|name| (*name).to_owned()).collect()
    } else {
        settings.collectors.clone()
    };
    let inventory = inventory(agent).await;
    let root_disk = choose_root_device(&inventory.disks, None).ok().cloned();
    let version = |(name, version): (String, Value)| ManagerVersion {
        name,
        version: version.as_str().unwrap_or_default().to_owned(),
    };
    let mut report = Report {
        inventory,
        root_disk,
        boot_interface: settings.boot_interface.clone(),
        configuration: Some(Configuration {
            collectors: collectors.clone(),
            managers: agent.managers.versions().into_iter().map(version).collect(),
        }),
        error: None,
        logs: None,
        rest: Map::new(),
    };
    let mut failures = Vec::new();
    for name in &collectors {
        tracing::debug!(name, "collecting");
        match name.as_str() {
            "default" => {}
            "logs" => report.logs = Some(blocking(logs::collect_base64).await),
            "lldp" => {
                let heard = agent.lldp().unwrap_or_default();
                report.rest.insert("lldp_raw".to_owned(), json!(heard));
            }
            _ => match more(name, settings.benchmarks.join(",")).await {
                Some((key, value)) => {
                    report.rest.extend(value.map(|value| (key.to_owned(), value)));
                }
                None => failures.push(format!("this agent has no collector {name}")),
            },
        }
    }
    report.error = (!failures.is_empty()).then(|| failures.join("; "));
    report
}

/// The collectors that only read: the key their data are sent by, and the data.
async fn more(name: &str, measure: String) -> Option<(&'static str, Option<Value>)> {
    let machine = Machine::here();
    Some(match name {
        "pci-devices" => ("pci_devices", Some(blocking(move || machine.pci_devices()).await)),
        "usb-devices" => ("usb_devices", Some(blocking(move || machine.usb_devices()).await)),
        "numa-topology" => ("numa_topology", blocking(move || machine.numa_topology()).await),
        "dmi-decode" => ("dmi", blocking(move || machine.dmi()).await),
        "extra-hardware" => {
            let collect = move || {
                let mut facts = machine.extra_hardware();
                if !measure.is_empty() {
                    let which = benchmarks::Selection::parse(&measure);
                    facts.extend(benchmarks::run(&machine, which, BENCHMARK));
                }
                Value::Array(facts)
            };
            ("data", Some(blocking(collect).await))
        }
        _ => return None,
    })
}

async fn blocking<T: Send + Default + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}

async fn urls(agent: &Agent) -> Result<Vec<String>, InspectionError> {
    let settings = &agent.settings;
    if settings.inspection_urls == ["mdns"] {
        agent.network.wait_for_address(settings.inspection_dhcp_wait).await;
        let kinds = ["baremetal-introspection", "baremetal"];
        let found = mdns::find(&kinds, settings.inspection_dhcp_wait)
            .await
            .map_err(InspectionError::NoServer)?;
        // The old service for inspection, or the API itself.
        let path = if found.kind == kinds[0] { "continue" } else { "continue_inspection" };
        return Ok(vec![format!("{}/v1/{path}", found.url)]);
    }
    if !settings.inspection_urls.is_empty() {
        return Ok(settings.inspection_urls.clone());
    }
    let complete = |url: &String| format!("{}/v1/continue_inspection", url.trim_end_matches('/'));
    Ok(settings.api_urls.iter().map(complete).collect())
}

/// Waits until the card the machine booted from has an address, or all have, as was asked.
async fn wait_for_addresses(agent: &Agent) {
    let settings = &agent.settings;
    if !agent.network.wait_for_address(settings.inspection_dhcp_wait).await {
        tracing::warn!("no card got an address in time");
        return;
    }
    let boot = settings.boot_mac();
    if !agent.own_machine || !settings.inspection_dhcp_all && boot.is_none() {
        return;
    }
    let mut changes = agent.network.changes();
    let wait = async {
        loop {
            let leases = agent.network.leases();
            let missing = cards().into_iter().any(|card| {
                // The card the machine booted from has a cable, even if the kernel does not see it
                // yet; of the others, those without one get nothing.
                let booted = boot.as_deref() == Some(&card.mac());
                let meant = booted || settings.inspection_dhcp_all && card.has_carrier;
                meant && !leases.contains_key(&card.name)
            });
            if !missing || leases.is_empty() || changes.changed().await.is_err() {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(settings.inspection_dhcp_wait, wait).await;
}

/// Tries every server, several times.
async fn send(
    agent: &Agent,
    urls: &[String],
    body: String,
) -> Result<Option<String>, InspectionError> {
    let mut failure = InspectionError::NotSent { reason: "there is no URL".to_owned() };
    for attempt in 0..=PAUSES.len() {
        for url in urls {
            tracing::info!(bytes = body.len(), url, "sending inspection data");
            // Without a version: that is how inspection data are told apart from other requests.
            let mut request = agent
                .reach
                .client
                .post(url)
                .header("Content-Type", "application/json")
                .header("Accept", "application/json");
            if let Some(id) = &agent.settings.request_id {
                request = request.header("X-OpenStack-Request-ID", id);
            }
            let answer = async {
                let answer = request.body(body.clone()).send().await?;
                Ok::<_, reqwest::Error>((answer.status(), answer.bytes().await?))
            };
            match answer.await {
                Ok((status, said)) if status.is_success() => {
                    let said: Value = serde_json::from_slice(&said).unwrap_or_default();
                    let node = said.get("uuid").and_then(Value::as_str);
                    return Ok(node
                        .filter(|text| text.parse::<uuid::Uuid>().is_ok())
                        .map(str::to_owned));
                }
                Ok((status, said)) => {
                    let text = String::from_utf8_lossy(&said[..said.len().min(1000)]).into_owned();
                    failure = InspectionError::Refused { status: status.as_u16(), said: text };
                    if !status.is_server_error() && status != reqwest::StatusCode::CONFLICT {
                        return Err(failure);
                    }
                    break;
                }
                Err(error) => {
                    let reason = logs::causes(&error.without_url());
                    tracing::warn!(url, reason, "inspection data could not be sent");
                    failure = InspectionError::NotSent { reason };
                }
            }
        }
        if let Some(&pause) = PAUSES.get(attempt) {
            let mut changes = agent.network.changes();
            // An address that just came is reason enough to try again.
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(pause)) => {}
                _ = changes.changed() => tokio::time::sleep(AFTER_CHANGE).await,
            }
        }
    }
    Err(failure)
}
