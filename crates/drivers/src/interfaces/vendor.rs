// SPDX-License-Identifier: Apache-2.0
//! The vendor interface: vendor-specific methods.

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::BaseInterface;
use crate::{DriverError, DriverTarget, HttpMethod, NodeChanges, VendorMethod};

/// The result of a vendor method.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct VendorResponse {
    /// The response of a synchronous call.
    pub value: Value,
    /// The changes to store.
    pub changes: NodeChanges,
}

/// Methods of one vendor.
#[async_trait]
pub trait VendorInterface: BaseInterface {
    /// Methods for a node.
    fn methods(&self) -> &'static [VendorMethod] {
        &[]
    }

    /// Methods for the hardware type as a whole.
    fn driver_methods(&self) -> &'static [VendorMethod] {
        &[]
    }

    /// Fails if `method` does not accept these arguments. Sends no request to the machine, so that an
    /// invalid asynchronous call is rejected before it is accepted.
    async fn validate_call(
        &self,
        target: &DriverTarget<'_>,
        method: &str,
        arguments: &Map<String, Value>,
    ) -> Result<(), DriverError>;

    /// Calls a method for a node.
    async fn call(
        &self,
        target: &DriverTarget<'_>,
        method: &str,
        http_method: HttpMethod,
        arguments: &Map<String, Value>,
    ) -> Result<VendorResponse, DriverError>;

    /// Calls a method for the hardware type as a whole.
    async fn call_driver(
        &self,
        method: &str,
        _http_method: HttpMethod,
        _arguments: &Map<String, Value>,
    ) -> Result<Value, DriverError> {
        Err(self.unsupported(&format!("call the driver method '{method}'")))
    }
}
