// SPDX-License-Identifier: Apache-2.0
//! What only one vendor has.

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::Interface;
use crate::{Error, HttpMethod, NodeChanges, Target};

/// A method reached through `vendor_passthru`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VendorMethod {
    /// Its name.
    pub name: &'static str,
    /// How it may be called.
    pub http_methods: &'static [HttpMethod],
    /// Whether the caller is told "accepted" rather than the result.
    pub is_async: bool,
    /// What it does.
    pub description: &'static str,
    /// Whether the result is a file rather than JSON.
    pub attach: bool,
    /// Whether nothing else may happen to the machine meanwhile. A method for which that is not so
    /// only reads: what it changes is not kept.
    pub require_exclusive_lock: bool,
}

/// What a vendor method gave back.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct VendorAnswer {
    /// The result, for those who wait for it.
    pub value: Value,
    /// What to write down.
    pub changes: NodeChanges,
}

/// Methods of one vendor.
#[async_trait]
pub trait Vendor: Interface {
    /// Methods for a node.
    fn methods(&self) -> &'static [VendorMethod] {
        &[]
    }

    /// Methods for the hardware type as a whole.
    fn driver_methods(&self) -> &'static [VendorMethod] {
        &[]
    }

    /// Whether `method` may be called with these arguments. Asks nothing of the machine, so that
    /// a bad asynchronous call is refused before it is accepted.
    async fn validate_call(
        &self,
        target: &Target<'_>,
        method: &str,
        arguments: &Map<String, Value>,
    ) -> Result<(), Error>;

    /// Calls a method for a node.
    async fn call(
        &self,
        target: &Target<'_>,
        method: &str,
        http_method: HttpMethod,
        arguments: &Map<String, Value>,
    ) -> Result<VendorAnswer, Error>;

    /// Calls a method for the hardware type as a whole.
    async fn call_driver(
        &self,
        method: &str,
        _http_method: HttpMethod,
        _arguments: &Map<String, Value>,
    ) -> Result<Value, Error> {
        Err(self.cannot(&format!("call the driver method '{method}'")))
    }
}
