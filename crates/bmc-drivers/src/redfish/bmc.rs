// SPDX-License-Identifier: Apache-2.0
//! A BMC in the middle of one call: its connection, and errors in the words of what was wanted.

use node_model::without_keys;
use redfish::{Answer, Client, Resource};
use serde_json::Value;

use super::access::Access;
use crate::Error;

/// A machine's BMC, while something is wanted of it.
pub(super) struct Bmc {
    client: Client,
    access: Access,
    /// What is wanted: a verb and its object.
    what: String,
}

impl Bmc {
    pub(super) fn new(client: Client, access: Access, what: String) -> Self {
        Self { client, access, what }
    }

    /// The connection itself, for those who have to look at its errors; see [`Self::explain`].
    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Where it is.
    pub(super) fn address(&self) -> &str {
        &self.access.endpoint.address
    }

    /// The machine, of those the BMC looks after.
    pub(super) async fn system(&self) -> Result<Resource, Error> {
        let system = self.client.system(self.access.system_id.as_deref()).await;
        system.map_err(|error| self.explain(error))
    }

    /// Reads a resource.
    pub(super) async fn get(&self, path: &str) -> Result<Resource, Error> {
        self.client.get(path).await.map_err(|error| self.explain(error))
    }

    /// Reads a resource, if there is one.
    pub(super) async fn find(&self, path: &str) -> Result<Option<Resource>, Error> {
        match self.client.get(path).await {
            Ok(resource) => Ok(Some(resource)),
            Err(redfish::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Reads what a resource links to, if it does and there is such a thing.
    pub(super) async fn follow(
        &self,
        from: &Resource,
        pointer: &str,
    ) -> Result<Option<Resource>, Error> {
        match from.link(pointer) {
            None => Ok(None),
            Some(path) => self.find(path).await,
        }
    }

    /// Reads the members of a collection a resource links to; none if there is no such thing.
    pub(super) async fn collect(
        &self,
        from: &Resource,
        pointer: &str,
    ) -> Result<Vec<Resource>, Error> {
        let Some(path) = from.link(pointer) else { return Ok(Vec::new()) };
        match self.client.collect(path).await {
            Ok(members) => Ok(members),
            Err(redfish::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Posts to a collection or an action.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Answer, Error> {
        self.client.post(path, body).await.map_err(|error| self.explain(error))
    }

    /// Changes a resource.
    pub(super) async fn patch(&self, resource: &Resource, body: &Value) -> Result<Answer, Error> {
        let patched = self.client.patch(&resource.path, body, resource.etag.as_deref()).await;
        patched.map_err(|error| self.explain(error))
    }

    /// The error that what was wanted failed for this reason.
    pub(super) fn failed(&self, why: impl AsRef<str>) -> Error {
        Error::Failed { what: self.what.clone(), why: without_keys(why.as_ref()) }
    }

    /// What an error of the connection means for what was wanted.
    pub(super) fn explain(&self, error: redfish::Error) -> Error {
        explain(error, self.address(), &self.what)
    }
}

/// What an error of the connection to the BMC at `address` means for somebody who wanted `what`. A
/// BMC may repeat the URL it was told to boot from: the key in it is left out.
pub(super) fn explain(error: redfish::Error, address: &str, what: &str) -> Error {
    let (address, what) = (address.to_owned(), what.to_owned());
    match error {
        redfish::Error::Unreachable { why, .. } => {
            Error::Unreachable { address, what, source: Some(why.into()) }
        }
        redfish::Error::Certificate { why, .. } => Error::Untrusted { address, what, why },
        redfish::Error::Unauthorized { .. } => Error::Refused { address, what },
        error @ (redfish::Error::NoSuchSystem { .. } | redfish::Error::SeveralSystems { .. }) => {
            Error::invalid("driver_info/redfish_system_id", error.to_string())
        }
        error @ redfish::Error::BadTrust { .. } => {
            Error::invalid("driver_info/redfish_verify_ca", error.to_string())
        }
        error @ redfish::Error::BadAddress { .. } => {
            Error::invalid("driver_info/redfish_address", error.to_string())
        }
        error @ (redfish::Error::Forbidden { .. }
        | redfish::Error::NoSession { .. }
        | redfish::Error::NoSystems { .. }
        | redfish::Error::NotFound { .. }
        | redfish::Error::Refused { .. }
        | redfish::Error::Redirected { .. }
        | redfish::Error::Garbled { .. }
        | redfish::Error::TooLarge { .. }
        | redfish::Error::Endless { .. }
        | redfish::Error::Closed { .. }) => {
            Error::Failed { what, why: without_keys(&format!("the BMC at {address}: {error}")) }
        }
    }
}
