// SPDX-License-Identifier: Apache-2.0
//! Creates simulated machines as nodes with ports, through the Ironic API.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use fleet_sim::Enrolment;
use ironic_client::{Api, ApiError, segment};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::enrolment::{api_at, create};

/// How many nodes are created at a time.
const AT_ONCE: usize = 16;

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Enrolled {
    created: usize,
    updated: usize,
}

impl fmt::Display for Enrolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes created, {} brought up to date", self.created, self.updated)
    }
}

/// Creates all nodes, or brings those that are there up to date: their BMCs may have moved.
pub(super) async fn enrol(api: &str, nodes: &[Enrolment]) -> anyhow::Result<Enrolled> {
    let api = Arc::new(api_at(api, "--enrol")?);
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut work = JoinSet::new();
    for node in nodes.iter().cloned() {
        let (api, turns) = (Arc::clone(&api), Arc::clone(&turns));
        work.spawn(async move {
            let _turn = turns.acquire().await.context("turns are never closed")?;
            create_or_update(&api, &node).await.map_err(|error| explained(error, &node.name))
        });
    }
    let mut told = Enrolled::default();
    while let Some(outcome) = work.join_next().await {
        let is_new = outcome.context("enrolment broke off")??;
        *if is_new { &mut told.created } else { &mut told.updated } += 1;
    }
    Ok(told)
}

/// Whether it was created.
async fn create_or_update(api: &Api, node: &Enrolment) -> Result<bool, ApiError> {
    let is_new = create(api, node, &json!({})).await?;
    if !is_new {
        let change = json!({"op": "replace", "path": "/driver_info", "value": node.driver_info});
        api.patch(&format!("/v1/nodes/{}", segment(&node.name)), &[change]).await?;
    }
    Ok(is_new)
}

/// The error with what can be done about it here, where there is only an address.
fn explained(error: ApiError, name: &str) -> anyhow::Error {
    let what = format!("cannot enrol {name}");
    if let ApiError::NotSignedIn { url, .. } = &error {
        let place = url.split_once("://").map_or(url.as_str(), |(_, place)| place);
        return anyhow!(
            "{what}: {url} asks who you are; say it in the address, as in \
             --enrol http://USER:PASSWORD@{place}"
        );
    }
    anyhow::Error::new(error).context(what)
}
