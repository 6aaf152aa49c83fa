// SPDX-License-Identifier: Apache-2.0
//! Calls that concern a hardware type and no node: its interfaces and properties, driver vendor
//! methods, logical disk properties.

use drivers::{Driver, DriverError, DriverProperty, DriverSelectionError};
use node_model::{HttpMethod, InterfaceKind, Node, VendorMethod};
use serde_json::{Map, Value};

use crate::{Conductor, PassthruReply};

/// Why a call to a hardware type failed.
#[derive(Debug, thiserror::Error)]
pub enum DriverMethodError {
    /// The hardware type is not enabled in this process.
    #[error("hardware type {0} is not enabled")]
    UnknownDriver(String),
    /// The hardware type has no method of that name.
    #[error("hardware type {driver} has no vendor method '{method}'")]
    UnknownMethod {
        /// The hardware type.
        driver: String,
        /// The method.
        method: String,
    },
    /// The method exists, but not with this HTTP method.
    #[error("vendor method '{method}' is called with {allowed}, not {http_method}")]
    WrongHttpMethod {
        /// The method.
        method: String,
        /// The HTTP methods it has.
        allowed: String,
        /// The HTTP method of the call.
        http_method: HttpMethod,
    },
    /// The method failed.
    #[error("vendor method of hardware type {driver} failed")]
    Failed {
        /// The hardware type.
        driver: String,
        /// The cause.
        source: DriverError,
    },
}

/// The implementations of one interface that nodes of a hardware type can use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceChoice {
    /// The interface.
    pub kind: InterfaceKind,
    /// The implementation of nodes that set none.
    pub default: &'static str,
    /// The enabled implementations, in the order of the settings.
    pub enabled: Vec<&'static str>,
}

impl Conductor {
    /// The interfaces of a hardware type; empty if it is not enabled in this process.
    #[must_use]
    pub fn driver_interfaces(&self, driver: &str) -> Vec<InterfaceChoice> {
        let choice = |kind: &InterfaceKind| {
            let enabled = self.registry.supported_interfaces(driver, *kind).ok()?;
            let default = self.registry.default_interface(driver, *kind).ok()?;
            Some(InterfaceChoice { kind: *kind, default, enabled })
        };
        InterfaceKind::ALL.iter().filter_map(choice).collect()
    }

    /// The `driver_info` keys of a hardware type with their descriptions.
    pub fn driver_properties(
        &self,
        driver: &str,
    ) -> Result<Vec<DriverProperty>, DriverMethodError> {
        self.registry
            .properties(driver)
            .map_err(|_| DriverMethodError::UnknownDriver(driver.to_owned()))
    }

    /// Sets the defaults of interfaces that the node leaves empty. Fails if its hardware type or an
    /// interface is not enabled, or if they do not match.
    pub fn resolve_interfaces(&self, node: &mut Node) -> Result<(), DriverSelectionError> {
        self.registry.resolve(&node.driver, &mut node.interfaces)
    }

    /// The vendor methods of a hardware type.
    pub fn driver_vendor_methods(
        &self,
        driver: &str,
    ) -> Result<&'static [VendorMethod], DriverMethodError> {
        Ok(self.default_driver(driver)?.vendor().driver_methods())
    }

    /// The properties that logical disks of a hardware type may have; `None` if its RAID interface
    /// has no logical disks.
    pub fn logical_disk_properties(
        &self,
        driver: &str,
    ) -> Result<Option<&'static [DriverProperty]>, DriverMethodError> {
        Ok(self.default_driver(driver)?.raid().logical_disk_properties())
    }

    /// Calls a vendor method of a hardware type. An asynchronous method runs in the background.
    pub async fn driver_vendor_passthru(
        &self,
        driver: &str,
        method: &str,
        http_method: HttpMethod,
        arguments: Map<String, Value>,
    ) -> Result<PassthruReply, DriverMethodError> {
        let composed = self.default_driver(driver)?;
        let methods = composed.vendor().driver_methods();
        let is_async = find_driver_method(driver, methods, method, http_method)?.is_async;
        let (driver, method) = (driver.to_owned(), method.to_owned());
        let call = async move {
            let result = composed.vendor().call_driver(&method, http_method, &arguments).await;
            result.map_err(|error| {
                tracing::warn!(driver, method, %error, "driver vendor method failed");
                DriverMethodError::Failed { driver, source: error }
            })
        };
        if is_async {
            self.in_background(async move {
                let _logged = call.await;
            });
            return Ok(PassthruReply::Accepted);
        }
        call.await.map(PassthruReply::Done)
    }

    fn default_driver(&self, driver: &str) -> Result<Driver, DriverMethodError> {
        self.registry
            .default_driver(driver)
            .map_err(|_| DriverMethodError::UnknownDriver(driver.to_owned()))
    }
}

fn find_driver_method(
    driver: &str,
    methods: &'static [VendorMethod],
    name: &str,
    http_method: HttpMethod,
) -> Result<&'static VendorMethod, DriverMethodError> {
    let Some(method) = methods.iter().find(|method| method.name == name) else {
        let (driver, method) = (driver.to_owned(), name.chars().take(120).collect());
        return Err(DriverMethodError::UnknownMethod { driver, method });
    };
    if method.http_methods.contains(&http_method) {
        return Ok(method);
    }
    let allowed: Vec<&str> = method.http_methods.iter().map(|method| method.as_str()).collect();
    Err(DriverMethodError::WrongHttpMethod {
        method: name.to_owned(),
        allowed: allowed.join(" or "),
        http_method,
    })
}
