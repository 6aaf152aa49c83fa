// SPDX-License-Identifier: Apache-2.0
//! The BMC of a machine during one driver call: its connection, and errors that name the operation.

use drivers::DriverError;
use node_model::redact_boot_keys;
use redfish::{OperationResponse, RedfishClient, RedfishResource};
use serde_json::Value;

use super::access::RedfishAccess;

/// The BMC of a machine, for one operation.
pub(super) struct RedfishBmc {
    client: RedfishClient,
    access: RedfishAccess,
    /// The operation for error messages: a verb and its object.
    what: String,
}

impl RedfishBmc {
    pub(super) fn new(client: RedfishClient, access: RedfishAccess, what: String) -> Self {
        Self { client, access, what }
    }

    /// Returns the client, for callers that evaluate its errors; see [`Self::explain`].
    pub(super) const fn client(&self) -> &RedfishClient {
        &self.client
    }

    /// Returns the URL of the BMC.
    pub(super) fn address(&self) -> &str {
        &self.access.endpoint.address
    }

    /// Reads the `ComputerSystem` of the machine.
    pub(super) async fn system(&self) -> Result<RedfishResource, DriverError> {
        let system = self.client.system(self.access.system_id.as_deref()).await;
        system.map_err(|error| self.explain(error))
    }

    /// Reads a resource.
    pub(super) async fn get(&self, path: &str) -> Result<RedfishResource, DriverError> {
        self.client.get(path).await.map_err(|error| self.explain(error))
    }

    /// Reads a resource; `None` if the BMC returns 404.
    pub(super) async fn find(&self, path: &str) -> Result<Option<RedfishResource>, DriverError> {
        match self.client.get(path).await {
            Ok(resource) => Ok(Some(resource)),
            Err(redfish::RedfishError::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Reads the resource at the link `pointer`; `None` if the link or the resource is missing.
    pub(super) async fn follow(
        &self,
        from: &RedfishResource,
        pointer: &str,
    ) -> Result<Option<RedfishResource>, DriverError> {
        match from.link(pointer) {
            None => Ok(None),
            Some(path) => self.find(path).await,
        }
    }

    /// Reads the members of the collection at the link `pointer`; empty if it is missing.
    pub(super) async fn collect(
        &self,
        from: &RedfishResource,
        pointer: &str,
    ) -> Result<Vec<RedfishResource>, DriverError> {
        let Some(path) = from.link(pointer) else { return Ok(Vec::new()) };
        match self.client.collect(path).await {
            Ok(members) => Ok(members),
            Err(redfish::RedfishError::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Sends a POST to a collection or an action.
    pub(super) async fn post(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<OperationResponse, DriverError> {
        self.client.post(path, body).await.map_err(|error| self.explain(error))
    }

    /// Sends a PATCH to a resource, with its ETag.
    pub(super) async fn patch(
        &self,
        resource: &RedfishResource,
        body: &Value,
    ) -> Result<OperationResponse, DriverError> {
        let patched = self.client.patch(&resource.path, body, resource.etag.as_deref()).await;
        patched.map_err(|error| self.explain(error))
    }

    /// Returns the error that the operation failed because of `why`.
    pub(super) fn failed(&self, why: impl AsRef<str>) -> DriverError {
        DriverError::Failed { what: self.what.clone(), why: redact_boot_keys(why.as_ref()) }
    }

    /// Converts an error of the client.
    pub(super) fn explain(&self, error: redfish::RedfishError) -> DriverError {
        explain(error, self.address(), &self.what)
    }
}

/// Converts an error of the client for the BMC at `address` and the operation `what`. BMCs may repeat
/// the boot URL they were sent, so the key in it is redacted.
pub(super) fn explain(error: redfish::RedfishError, address: &str, what: &str) -> DriverError {
    let (address, what) = (address.to_owned(), what.to_owned());
    match error {
        redfish::RedfishError::Unreachable { why, .. } => {
            DriverError::BmcUnreachable { address, what, source: Some(why.into()) }
        }
        redfish::RedfishError::Certificate { why, .. } => {
            DriverError::Untrusted { address, what, why }
        }
        redfish::RedfishError::Unauthorized { .. } => {
            DriverError::CredentialsRejected { address, what }
        }
        error @ (redfish::RedfishError::NoSuchSystem { .. }
        | redfish::RedfishError::SeveralSystems { .. }) => {
            DriverError::invalid("driver_info/redfish_system_id", error.to_string())
        }
        error @ redfish::RedfishError::BadTrust { .. } => {
            DriverError::invalid("driver_info/redfish_verify_ca", error.to_string())
        }
        error @ redfish::RedfishError::BadAddress { .. } => {
            DriverError::invalid("driver_info/redfish_address", error.to_string())
        }
        error @ (redfish::RedfishError::Forbidden { .. }
        | redfish::RedfishError::NoSession { .. }
        | redfish::RedfishError::NoSystems { .. }
        | redfish::RedfishError::NotFound { .. }
        | redfish::RedfishError::Refused { .. }
        | redfish::RedfishError::Redirected { .. }
        | redfish::RedfishError::Garbled { .. }
        | redfish::RedfishError::TooLarge { .. }
        | redfish::RedfishError::Endless { .. }
        | redfish::RedfishError::Closed { .. }) => DriverError::Failed {
            what,
            why: redact_boot_keys(&format!("the BMC at {address}: {error}")),
        },
    }
}
