// SPDX-License-Identifier: Apache-2.0
//! How requests reach the API: over HTTP, or in the same process.

use async_trait::async_trait;
use ironic_client::{Api, IronicClientError, Method};
use serde_json::Value;

/// Sends requests to an Ironic API.
#[async_trait]
pub trait IronicTransport: Send + Sync {
    /// Sends a request to a path such as `/v1/nodes`. Returns the JSON of a successful response, null
    /// if it is empty.
    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, IronicTransportError>;

    /// Waits until Ferrite records an event after the one with this number. Fails if the server or
    /// the transport has no events.
    async fn wait_for_event(&self, _after: u64) -> Result<(), IronicTransportError> {
        let message = "the transport has no events".to_owned();
        Err(IronicTransportError { status: None, message })
    }
}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct IronicTransportError {
    /// HTTP status; `None` if there was no response.
    pub status: Option<u16>,
    /// What failed. The server's message, if there is one.
    pub message: String,
}

#[async_trait]
impl IronicTransport for Api {
    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, IronicTransportError> {
        self.send(method, path, body).await.map_err(transport_error)
    }

    async fn wait_for_event(&self, after: u64) -> Result<(), IronicTransportError> {
        let mut events = self.events(None, Some(after)).await.map_err(transport_error)?;
        events.next().await.map(|_| ()).map_err(transport_error)
    }
}

fn transport_error(error: IronicClientError) -> IronicTransportError {
    let status = error.status();
    let message = if let IronicClientError::Rejected { message, .. } = &error
        && !message.is_empty()
    {
        message.clone()
    } else {
        error.to_string()
    };
    IronicTransportError { status, message }
}
