// SPDX-License-Identifier: Apache-2.0
//! Creates simulated machines as nodes with ports through the Ironic API.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use fleet_sim::Enrolment;
use ironic_client::{Api, ApiTarget, IronicClientError, create_node_with_ports, percent_encode};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Number of nodes that are created at a time.
const MAX_CONCURRENT: usize = 16;

/// Number of nodes that were created and updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EnrolmentCounts {
    created: usize,
    updated: usize,
}

impl fmt::Display for EnrolmentCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes created, {} updated", self.created, self.updated)
    }
}

/// Creates all nodes. Existing nodes get the current BMC addresses, which may have changed.
pub(super) async fn enrol(api_url: &str, nodes: &[Enrolment]) -> anyhow::Result<EnrolmentCounts> {
    let target = ApiTarget::at(api_url, None, None, "--enrol").context("the address of the API")?;
    let api = Arc::new(Api::new(target)?);
    let permits = Arc::new(Semaphore::new(MAX_CONCURRENT));
    let mut tasks = JoinSet::new();
    for node in nodes.iter().cloned() {
        let (api, permits) = (Arc::clone(&api), Arc::clone(&permits));
        tasks.spawn(async move {
            let _permit = permits.acquire().await.context("the semaphore is never closed")?;
            create_or_update(&api, &node).await.map_err(|error| with_hint(error, &node.name))
        });
    }
    let mut counts = EnrolmentCounts::default();
    while let Some(outcome) = tasks.join_next().await {
        let is_new = outcome.context("an enrolment task ended unexpectedly")??;
        *if is_new { &mut counts.created } else { &mut counts.updated } += 1;
    }
    Ok(counts)
}

/// Returns whether the node was created.
async fn create_or_update(api: &Api, enrolment: &Enrolment) -> Result<bool, IronicClientError> {
    let node = json!({
        "name": enrolment.name,
        "driver": enrolment.driver,
        "driver_info": enrolment.driver_info,
        "properties": enrolment.properties,
        "resource_class": enrolment.resource_class,
    });
    let macs = enrolment.ports.iter().map(|port| port.address.as_str());
    let is_new = create_node_with_ports(api, &node, macs).await?;
    if !is_new {
        let change =
            json!({"op": "replace", "path": "/driver_info", "value": enrolment.driver_info});
        api.patch(&format!("/v1/nodes/{}", percent_encode(&enrolment.name)), &[change]).await?;
    }
    Ok(is_new)
}

/// `--enrol` takes only a URL, so the hint for missing credentials differs from the client's.
fn with_hint(error: IronicClientError, name: &str) -> anyhow::Error {
    let what = format!("cannot enrol {name}");
    if let IronicClientError::CredentialsRequired { url, .. } = &error {
        let host = url.split_once("://").map_or(url.as_str(), |(_, host)| host);
        return anyhow!(
            "{what}: {url} requires a user and a password; give them in the URL, as in \
             --enrol http://USER:PASSWORD@{host}"
        );
    }
    anyhow::Error::new(error).context(what)
}
