// SPDX-License-Identifier: Apache-2.0
//! Creates simulated machines as nodes with ports, through the Ironic API.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use fleet_sim::Enrolment;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many nodes are created at a time.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(30);

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Enrolled {
    created: usize,
    updated: usize,
}

/// The API, as our few requests need it.
struct Api {
    client: Client,
    base: String,
}

enum Outcome {
    Created,
    Updated,
}

impl fmt::Display for Enrolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes created, {} brought up to date", self.created, self.updated)
    }
}

/// Creates all nodes, or brings those that are there up to date: their BMCs may have moved.
pub(super) async fn enrol(api: &str, nodes: &[Enrolment]) -> anyhow::Result<Enrolled> {
    // Fails only if somebody chose one before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client =
        Client::builder().timeout(PATIENCE).build().context("cannot make HTTP requests")?;
    let base = api.trim_end_matches('/').trim_end_matches("/v1").to_owned();
    let api = Arc::new(Api { client, base });
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut work = JoinSet::new();
    for node in nodes.iter().cloned() {
        let (api, turns) = (Arc::clone(&api), Arc::clone(&turns));
        work.spawn(async move {
            let _turn = turns.acquire().await.context("turns are never closed")?;
            let name = node.name.clone();
            api.enrol(&node).await.with_context(|| format!("cannot enrol {name}"))
        });
    }
    let mut told = Enrolled::default();
    while let Some(outcome) = work.join_next().await {
        match outcome.context("enrolment broke off")?? {
            Outcome::Created => told.created += 1,
            Outcome::Updated => told.updated += 1,
        }
    }
    Ok(told)
}

impl Api {
    async fn enrol(&self, node: &Enrolment) -> anyhow::Result<Outcome> {
        let body = json!({
            "name": node.name,
            "driver": node.driver,
            "driver_info": node.driver_info,
            "properties": node.properties,
            "resource_class": node.resource_class,
        });
        let (status, answer) = self.send(Method::POST, "/v1/nodes", &body).await?;
        match status {
            StatusCode::CREATED => {}
            StatusCode::CONFLICT => return self.update(node).await,
            _ => bail!("{}", refusal(status, &answer)),
        }
        for port in &node.ports {
            let body = json!({"node_uuid": answer["uuid"], "address": port.address});
            let (status, answer) = self.send(Method::POST, "/v1/ports", &body).await?;
            if !status.is_success() {
                bail!("{}", refusal(status, &answer));
            }
        }
        Ok(Outcome::Created)
    }

    async fn update(&self, node: &Enrolment) -> anyhow::Result<Outcome> {
        let body = json!([
            {"op": "replace", "path": "/driver_info", "value": node.driver_info},
        ]);
        let path = format!("/v1/nodes/{}", node.name);
        let (status, answer) = self.send(Method::PATCH, &path, &body).await?;
        if status.is_success() {
            Ok(Outcome::Updated)
        } else {
            bail!("{}", refusal(status, &answer))
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let url = format!("{}{path}", self.base);
        let request = self
            .client
            .request(method, url)
            .header("X-OpenStack-Ironic-API-Version", "latest")
            .json(body);
        // The URL may have a password in it.
        let response = request.send().await.map_err(reqwest::Error::without_url)?;
        let status = response.status();
        let body = response.bytes().await.map_err(reqwest::Error::without_url)?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// What the API says is wrong: Ironic wraps it in one of two ways.
fn refusal(status: StatusCode, answer: &Value) -> anyhow::Error {
    let told = &answer["error_message"];
    let inner = told.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let fault = inner.as_ref().unwrap_or(told)["faultstring"].as_str();
    let message = fault.or(told.as_str()).unwrap_or("without saying why");
    anyhow!("the API answers {status}: {message}")
}
