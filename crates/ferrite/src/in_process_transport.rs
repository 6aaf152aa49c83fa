// SPDX-License-Identifier: Apache-2.0
//! Requests of the operator to the service in the same process, without sockets.
//!
//! They pass through the same routes, checks, body limits, metrics and audit log as requests over HTTP.
//! The caller is this process itself, so policy rules do not apply to it.

use std::sync::Arc;

use access_policy::{AuthMethod, Caller};
use api_server::{App, ResponseBody};
use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use ironic_client::error_message;
use operator::hosts::provisioner::ironic::{IronicTransport, IronicTransportError};
use serde_json::Value;

/// Name of the caller in the journal of nodes and in the audit log.
const OPERATOR_USER: &str = "operator";
const VERSION_HEADER: &str = "X-OpenStack-Ironic-API-Version";

/// Calls the API of the service in this process.
pub(crate) struct InProcessTransport {
    app: Arc<App>,
    caller: Caller,
}

impl InProcessTransport {
    /// Calls this API.
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self { app, caller: Caller::unrestricted(OPERATOR_USER, AuthMethod::InProcess) }
    }

    /// Whether the service can do its work: its database responds and its conductor runs.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(crate) async fn check_ready(&self) -> Result<(), IronicTransportError> {
        self.request(Method::GET, "/readyz", None).await.map(|_| ())
    }
}

#[async_trait]
impl IronicTransport for InProcessTransport {
    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, IronicTransportError> {
        let without_response = |reason: &str| IronicTransportError {
            status: None,
            message: format!("{method} {path}: {reason}"),
        };
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = Request::builder()
            .method(&method)
            .uri(path)
            .header(VERSION_HEADER, "latest")
            .header(CONTENT_TYPE, "application/json")
            .body(bytes)
            .map_err(|error| without_response(&error.to_string()))?;
        let response = self.app.serve(self.caller.clone(), request).await;
        let status = response.status();
        let ResponseBody::Complete(bytes) = response.into_body() else {
            return Err(without_response("the response is a stream"));
        };
        let parsed = match &*bytes {
            [] => Ok(Value::Null),
            bytes => serde_json::from_slice(bytes),
        };
        if status.is_success() {
            return parsed.map_err(|_| without_response("the response is not JSON"));
        }
        let message = parsed.map(|body| failure_message(&body)).unwrap_or_default();
        let message =
            if message.is_empty() { format!("{method} {path}: {status}") } else { message };
        Err(IronicTransportError { status: Some(status.as_u16()), message })
    }

    async fn wait_for_event(&self, after: u64) -> Result<(), IronicTransportError> {
        let mut position = self.app.store.journal_position();
        let mut stopping = self.app.watch_stopping();
        let has_event = position.wait_for(|end| u64::try_from(*end).unwrap_or_default() > after);
        let is_open = tokio::select! {
            found = has_event => found.is_ok(),
            _ = stopping.wait_for(|is_stopping| *is_stopping) => false,
        };
        if is_open {
            return Ok(());
        }
        Err(IronicTransportError { status: None, message: "the service is stopping".to_owned() })
    }
}

/// What failed, according to an error response or a readiness check.
fn failure_message(body: &Value) -> String {
    match body["missing"].as_str() {
        Some(missing) => missing.to_owned(),
        None => error_message(body),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::config::Config;
    use crate::service::FerriteService;

    const TIMEOUT: Duration = Duration::from_secs(60);

    async fn start(data_dir: &TempDir) -> (FerriteService, InProcessTransport) {
        let mut config = Config::default();
        config.api.listen.set_port(0);
        config.boot.enabled = false;
        let inspection = config.inspection().unwrap();
        let service = FerriteService::start(&config, inspection, data_dir.path()).await.unwrap();
        let transport = InProcessTransport::new(Arc::clone(&service.app));
        (service, transport)
    }

    /// The node, once it has a state. Waits only for events.
    async fn node_in_state(transport: &InProcessTransport, path: &str, state: &str) -> Value {
        let wait = async {
            loop {
                let fleet =
                    transport.request(Method::GET, "/v1/ferrite/fleet", None).await.unwrap();
                let node = transport.request(Method::GET, path, None).await.unwrap();
                if node["provision_state"] == state {
                    return node;
                }
                transport.wait_for_event(fleet["seq"].as_u64().unwrap()).await.unwrap();
            }
        };
        tokio::time::timeout(TIMEOUT, wait).await.unwrap()
    }

    #[tokio::test]
    async fn nodes_are_created_changed_and_listed() {
        let data_dir = tempfile::tempdir().unwrap();
        let (service, transport) = start(&data_dir).await;
        transport.check_ready().await.unwrap();
        let body = json!({"name": "lab~host-0", "driver": "fake-hardware"});
        let created = transport.request(Method::POST, "/v1/nodes", Some(&body)).await.unwrap();
        assert_eq!(created["provision_state"], "enroll");

        let path = format!("/v1/nodes/{}", created["uuid"].as_str().unwrap());
        let state = format!("{path}/states/provision");
        let target = json!({"target": "manage"});
        let accepted = transport.request(Method::PUT, &state, Some(&target)).await.unwrap();
        assert_eq!(accepted, Value::Null);
        node_in_state(&transport, &path, "manageable").await;

        let list = "/v1/nodes?fields=name,provision_state";
        let list = transport.request(Method::GET, list, None).await.unwrap();
        let nodes = list["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), 1, "{list}");
        assert_eq!(nodes[0]["name"], "lab~host-0");
        assert_eq!(nodes[0]["provision_state"], "manageable");

        let audit = transport.request(Method::GET, "/v1/ferrite/audit-log", None).await.unwrap();
        let entry = &audit["entries"][0];
        assert_eq!(entry["user"], OPERATOR_USER, "{audit}");
        assert_eq!(entry["auth_method"], "in_process", "{audit}");

        transport.request(Method::DELETE, &path, None).await.unwrap();
        let gone = transport.request(Method::GET, &path, None).await.unwrap_err();
        assert_eq!(gone.status, Some(404));
        service.stop().await;
    }

    #[tokio::test]
    async fn failures_have_the_status_and_the_reason() {
        let data_dir = tempfile::tempdir().unwrap();
        let (service, transport) = start(&data_dir).await;
        let long = "x".repeat(service.app.config.body_limits.small);
        for (method, path, body, status, reason) in [
            (Method::GET, "/v1/nodes/lab~none", None, Some(404), "could not be found"),
            (Method::GET, "/v1/none", None, Some(404), "No endpoint at this path"),
            (Method::GET, "/v1/ferrite/events", None, None, "stream"),
            (Method::GET, "/v1/ no path", None, None, "invalid uri"),
            (Method::POST, "/v1/nodes", Some(json!({"driver": "none"})), Some(400), "none"),
            (Method::POST, "/v1/nodes", Some(json!({"name": long})), Some(413), "bytes"),
        ] {
            let error = transport.request(method.clone(), path, body.as_ref()).await.unwrap_err();
            assert_eq!(error.status, status, "{method} {path}: {error}");
            assert!(error.message.contains(reason), "{method} {path}: {error}");
        }
        service.stop().await;
    }

    #[tokio::test]
    async fn a_wait_ends_when_the_service_stops() {
        let data_dir = tempfile::tempdir().unwrap();
        let (service, transport) = start(&data_dir).await;
        let wait = tokio::spawn(async move { transport.wait_for_event(u64::MAX >> 1).await });
        service.stop().await;
        let ended = tokio::time::timeout(TIMEOUT, wait).await.unwrap().unwrap();
        assert!(ended.unwrap_err().message.contains("stopping"));
    }
}
