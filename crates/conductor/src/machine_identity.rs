// SPDX-License-Identifier: Apache-2.0
//! Identifies the machine behind a BMC that no node needs to have.

use std::time::Duration;

use drivers::{Driver, DriverError, DriverTarget};
use node_model::{Node, NodeId, SystemIdentity};
use serde_json::{Map, Value};

use crate::Conductor;

/// Why the machine behind a BMC was not identified.
#[derive(Debug, thiserror::Error)]
pub enum MachineIdentityError {
    /// The hardware type is not enabled in this process.
    #[error(
        "cannot identify the machine behind {bmc}: hardware type {driver} is not enabled; use one that \
         GET /v1/drivers lists"
    )]
    UnknownDriver {
        /// The BMC, for messages.
        bmc: String,
        /// The hardware type.
        driver: String,
    },
    /// The BMC did not respond in time.
    #[error(
        "cannot identify the machine behind {bmc}: it did not respond within {seconds} s; check its \
         address, its network and its power"
    )]
    NoResponse {
        /// The BMC, for messages.
        bmc: String,
        /// The limit.
        seconds: u64,
    },
    /// The driver failed.
    #[error("cannot identify the machine behind {bmc}: {source}")]
    Failed {
        /// The BMC, for messages.
        bmc: String,
        /// The cause.
        source: DriverError,
    },
}

impl Conductor {
    /// Identifies the machine behind a BMC. Validates `driver_info` as for a node of the hardware type,
    /// and leaves no session on the BMC.
    pub async fn identify_machine(
        &self,
        driver: &str,
        driver_info: &Map<String, Value>,
    ) -> Result<SystemIdentity, MachineIdentityError> {
        let bmc = describe_bmc(driver_info);
        let Ok(composed) = self.registry.default_driver(driver) else {
            return Err(MachineIdentityError::UnknownDriver { bmc, driver: driver.to_owned() });
        };
        // Concurrent requests for one BMC must not end each other's session.
        let node = Node::new(NodeId::random(), driver, self.now());
        let limit = Duration::from_secs(self.settings.validate_timeout.max(1));
        let read = self.read_identity(&composed, &node, driver_info);
        let identified = tokio::time::timeout(limit, read).await;
        self.registry.release_sessions(node.id);
        match identified {
            Ok(identified) => {
                identified.map_err(|source| MachineIdentityError::Failed { bmc, source })
            }
            Err(_) => Err(MachineIdentityError::NoResponse { bmc, seconds: limit.as_secs() }),
        }
    }

    async fn read_identity(
        &self,
        driver: &Driver,
        node: &Node,
        driver_info: &Map<String, Value>,
    ) -> Result<SystemIdentity, DriverError> {
        let instance_info = Map::new();
        let target = DriverTarget::new(driver, node, driver_info, &instance_info, self.now());
        driver.management().validate(&target).await?;
        driver.management().identity(&target).await
    }
}

/// The BMC with its address, which is in a field of its protocol, such as `redfish_address`.
fn describe_bmc(driver_info: &Map<String, Value>) -> String {
    let mut fields = driver_info.iter().filter(|(name, _)| name.ends_with("_address"));
    match fields.find_map(|(_, value)| value.as_str()) {
        Some(address) => format!("the BMC at {address}"),
        None => "the BMC".to_owned(),
    }
}
