// SPDX-License-Identifier: Apache-2.0
//! How requests reach the API: over HTTP, or in the same process.

use async_trait::async_trait;
use error_chain::error_chain;
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
    IronicTransportError { status, message: message(&error) }
}

/// The text of an error without the options of the command line that the client suggests.
fn message(error: &IronicClientError) -> String {
    if let IronicClientError::Rejected { message, .. } = error
        && !message.is_empty()
    {
        return message.clone();
    }
    if let IronicClientError::Unreachable { url, source } = error {
        return format!("cannot reach {url}: {}", error_chain(source));
    }
    if let IronicClientError::Untrusted { url, problem } = error {
        return format!(
            "{url} cannot be trusted ({problem}); give the operator the certificate of its CA"
        );
    }
    if let IronicClientError::CredentialsRequired { url, .. } = error {
        return format!("{url} requires credentials; give them to the operator");
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use ironic_client::ApiTarget;

    use super::*;

    #[tokio::test]
    async fn errors_suggest_no_options_of_the_command_line() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        // Every connection is closed without a response.
        let server = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        let api = Api::new(ApiTarget::at(&url, None, None, "a test").unwrap()).unwrap();
        let unreachable = IronicTransport::request(&api, Method::GET, "/v1", None).await;
        let untrusted =
            IronicClientError::Untrusted { url: url.clone(), problem: "unknown issuer".into() };
        let locked =
            IronicClientError::CredentialsRequired { url: url.clone(), message: String::new() };
        for message in [unreachable.unwrap_err().message, message(&untrusted), message(&locked)] {
            assert!(message.contains(&url), "{message}");
            assert!(!message.contains("--") && !message.contains("OS_"), "{message}");
        }
        server.abort();
    }
}
