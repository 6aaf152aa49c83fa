// SPDX-License-Identifier: Apache-2.0
//! An Ironic API, as the few requests need it that this program makes itself.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use fleet_sim::Enrolment;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);

/// The API.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
    base: String,
}

impl Api {
    /// The API at an address, which may have a name and a password in it.
    pub(crate) fn at(url: &str) -> anyhow::Result<Self> {
        // Fails only if somebody chose one before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client =
            Client::builder().timeout(PATIENCE).build().context("cannot make HTTP requests")?;
        let base = url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        Ok(Self { client, base })
    }

    /// Creates a node with its ports; `more` are further fields. Returns false if there is a node of
    /// that name.
    pub(crate) async fn create(&self, node: &Enrolment, more: &Value) -> anyhow::Result<bool> {
        let mut body = json!({
            "name": node.name,
            "driver": node.driver,
            "driver_info": node.driver_info,
            "properties": node.properties,
            "resource_class": node.resource_class,
        });
        if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
            body.extend(more.clone());
        }
        let (status, answer) = self.send(Method::POST, "/v1/nodes", Some(&body)).await?;
        match status {
            StatusCode::CREATED => {}
            StatusCode::CONFLICT => return Ok(false),
            _ => bail!("{}", refusal(status, &answer)),
        }
        for port in &node.ports {
            let body = json!({"node_uuid": answer["uuid"], "address": port.address});
            self.expect(Method::POST, "/v1/ports", Some(&body)).await?;
        }
        Ok(true)
    }

    /// A request that must succeed; gives the answer.
    pub(crate) async fn expect(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let (status, answer) = self.send(method, path, body).await?;
        if status.is_success() { Ok(answer) } else { bail!("{}", refusal(status, &answer)) }
    }

    /// A request, and what is answered.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.base))
            .header("X-OpenStack-Ironic-API-Version", "latest");
        if let Some(body) = body {
            request = request.json(body);
        }
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
