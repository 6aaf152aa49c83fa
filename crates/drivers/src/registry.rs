// SPDX-License-Identifier: Apache-2.0
//! The enabled hardware types and implementations, and the composition of a node's driver from them.

use std::sync::{Arc, Mutex, PoisonError};

use node_model::{AvailableStep, InterfaceKind, Interfaces, Node, NodeId, StepFlow};
use tokio::sync::mpsc;

use crate::{
    BmcSessions, BootService, ConsoleFeed, ConsoleText, Driver, DriverError, DriverProperty,
    DriverTarget, HardwareType, Implementations, InBandAgent, NodeChanges,
};

/// The enabled hardware types and implementations. Built once at startup by a
/// [`RegistryBuilder`](crate::RegistryBuilder); immutable.
pub struct DriverRegistry {
    pub(crate) enabled: Implementations,
    pub(crate) types: Vec<EnabledHardwareType>,
    pub(crate) sessions: Vec<Arc<dyn BmcSessions>>,
    pub(crate) agent: Option<Arc<dyn InBandAgent>>,
    pub(crate) boot_service: Arc<dyn BootService>,
    pub(crate) console_texts: Mutex<Option<mpsc::Receiver<ConsoleText>>>,
}

/// An enabled hardware type with its default for each interface, in the order of
/// [`InterfaceKind::ALL`].
#[derive(Debug)]
pub(crate) struct EnabledHardwareType {
    pub(crate) hardware_type: &'static HardwareType,
    pub(crate) defaults: Vec<&'static str>,
}

impl std::fmt::Debug for DriverRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DriverRegistry")
            .field("enabled", &self.enabled)
            .field("types", &self.types)
            .finish_non_exhaustive()
    }
}

/// Why a node cannot use its driver or implementation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverSelectionError {
    /// No such hardware type is enabled.
    #[error("hardware type '{driver}' is not enabled; the enabled ones are: {enabled}")]
    UnknownDriver {
        /// The node's driver.
        driver: String,
        /// The enabled hardware types.
        enabled: String,
    },
    /// No such implementation is enabled.
    #[error("the {interface} interface '{implementation}' is not enabled; valid ones are: {valid}")]
    NotEnabled {
        /// The interface.
        interface: InterfaceKind,
        /// The requested implementation.
        implementation: String,
        /// The valid implementations.
        valid: String,
    },
    /// The hardware type does not support the implementation.
    #[error(
        "hardware type {driver} does not support the {interface} interface '{implementation}'; valid \
         ones are: {valid}"
    )]
    Incompatible {
        /// The interface.
        interface: InterfaceKind,
        /// The requested implementation.
        implementation: String,
        /// The node's hardware type.
        driver: String,
        /// The valid implementations.
        valid: String,
    },
}

impl DriverRegistry {
    /// The boot service.
    #[must_use]
    pub fn boot_service(&self) -> &dyn BootService {
        self.boot_service.as_ref()
    }

    /// The enabled hardware types, in the order of the settings.
    pub fn hardware_types(&self) -> impl Iterator<Item = &'static HardwareType> {
        self.types.iter().map(|enabled| enabled.hardware_type)
    }

    /// Whether a hardware type is enabled.
    #[must_use]
    pub fn has_driver(&self, driver: &str) -> bool {
        self.hardware_types().any(|hardware_type| hardware_type.name == driver)
    }

    /// The enabled implementations of `kind` that `driver` supports, in the order of the settings.
    /// Omits implementations that fake hardware merely accepts.
    pub fn supported_interfaces(
        &self,
        driver: &str,
        kind: InterfaceKind,
    ) -> Result<Vec<&'static str>, DriverSelectionError> {
        let supported = self.find_type(driver)?.hardware_type.supported(kind);
        let mut names = self.enabled.names(kind);
        names.retain(|name| supported.contains(name));
        Ok(names)
    }

    /// The default implementation of `kind` for nodes of `driver`.
    pub fn default_interface(
        &self,
        driver: &str,
        kind: InterfaceKind,
    ) -> Result<&'static str, DriverSelectionError> {
        Ok(self.find_type(driver)?.default(kind))
    }

    /// The `driver_info` keys of the default interfaces of `driver`, with descriptions, without
    /// duplicates.
    pub fn properties(&self, driver: &str) -> Result<Vec<DriverProperty>, DriverSelectionError> {
        let hardware_type = self.find_type(driver)?;
        let mut properties = Vec::new();
        for kind in InterfaceKind::ALL {
            let Some(interface) = self.enabled.interface(*kind, hardware_type.default(*kind))
            else {
                continue;
            };
            properties.extend_from_slice(interface.properties());
        }
        properties.sort_unstable();
        properties.dedup_by_key(|(name, _)| *name);
        Ok(properties)
    }

    /// Checks the implementations that a node of `driver` sets, and fills in the defaults of the others.
    pub fn resolve(
        &self,
        driver: &str,
        interfaces: &mut Interfaces,
    ) -> Result<(), DriverSelectionError> {
        let enabled_type = self.find_type(driver)?;
        for kind in InterfaceKind::ALL {
            match interfaces.get(*kind) {
                Some(chosen) => self.check_interface(enabled_type.hardware_type, *kind, chosen)?,
                None => interfaces.set(*kind, Some(enabled_type.default(*kind))),
            }
        }
        Ok(())
    }

    /// Composes the driver of `node`. `<interface>_interface` in `instance_info` overrides the node's
    /// own setting; defaults fill the rest.
    pub fn compose(&self, node: &Node) -> Result<Driver, DriverSelectionError> {
        let enabled_type = self.find_type(&node.driver)?;
        // Overrides are rare and parsing is expensive, so search the text first.
        let overrides = if node.instance_info.as_str().contains("_interface\"") {
            node.instance_info.parse()
        } else {
            serde_json::Map::new()
        };
        let chosen = |kind: InterfaceKind| {
            let overridden = if overrides.is_empty() {
                None
            } else {
                overrides.get(&format!("{kind}_interface")).and_then(serde_json::Value::as_str)
            };
            overridden.or_else(|| node.interfaces.get(kind))
        };
        for kind in InterfaceKind::ALL {
            if let Some(name) = chosen(*kind) {
                self.check_interface(enabled_type.hardware_type, *kind, name)?;
            }
        }
        let composed = self.enabled.compose(enabled_type.hardware_type, |kind| {
            chosen(kind).or(Some(enabled_type.default(kind)))
        });
        composed.map_err(|kind| self.not_enabled(kind, chosen(kind).unwrap_or_default()))
    }

    /// A driver of the hardware type's defaults, for calls without a node: driver vendor methods,
    /// logical disk properties.
    pub fn default_driver(&self, driver: &str) -> Result<Driver, DriverSelectionError> {
        let enabled_type = self.find_type(driver)?;
        let composed = self
            .enabled
            .compose(enabled_type.hardware_type, |kind| Some(enabled_type.default(kind)));
        composed.map_err(|kind| self.not_enabled(kind, enabled_type.default(kind)))
    }

    /// Queries the agent for its steps in `flow`. The changes record its hardware managers.
    pub async fn agent_steps(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
    ) -> Result<(Vec<AvailableStep>, NodeChanges), DriverError> {
        match &self.agent {
            Some(agent) => agent.list_steps(target, flow).await,
            None => Ok((Vec::new(), NodeChanges::none())),
        }
    }

    /// Steps that agents usually run for `flow` without being requested, with the configured
    /// priorities. For previews of machines whose agent was never queried.
    #[must_use]
    pub fn usual_agent_steps(&self, flow: StepFlow) -> Vec<AvailableStep> {
        self.agent.as_ref().map(|agent| agent.usual_steps(flow)).unwrap_or_default()
    }

    /// The agent's logs as a gzip-compressed tar archive in base64. `None` without an agent.
    pub async fn agent_logs(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Option<String>, DriverError> {
        match &self.agent {
            Some(agent) => agent.collect_logs(target).await,
            None => Ok(None),
        }
    }

    /// The receiver of console text for the timeline. Returns `None` after the first call.
    pub fn take_console_texts(&self) -> Option<mpsc::Receiver<ConsoleText>> {
        self.console_texts.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Input and output of a node's console. `None` if this process does not serve it.
    #[must_use]
    pub fn console_feed(&self, node: NodeId) -> Option<ConsoleFeed> {
        self.enabled.console.iter().find_map(|console| console.feed(node))
    }

    /// The nodes whose consoles this process serves.
    #[must_use]
    pub fn consoles_served(&self) -> Vec<NodeId> {
        self.enabled.console.iter().flat_map(|console| console.served_nodes()).collect()
    }

    /// Stops serving a node's console because another process serves it.
    pub async fn release_console(&self, node: NodeId) {
        for console in &self.enabled.console {
            console.release(node).await;
        }
    }

    /// Closes the BMC sessions that only this node uses.
    pub fn release_sessions(&self, node: NodeId) {
        for sessions in &self.sessions {
            sessions.release(node);
        }
    }

    /// Closes all BMC sessions at shutdown: BMCs have few sessions, and unclosed ones last half an
    /// hour. Returns within a few seconds.
    pub async fn close(&self) {
        for sessions in &self.sessions {
            sessions.close().await;
        }
    }

    fn find_type(&self, driver: &str) -> Result<&EnabledHardwareType, DriverSelectionError> {
        let mut types = self.types.iter();
        types.find(|enabled| enabled.hardware_type.name == driver).ok_or_else(|| {
            let enabled: Vec<_> = self.hardware_types().map(|known| known.name).collect();
            DriverSelectionError::UnknownDriver {
                driver: driver.to_owned(),
                enabled: enabled.join(", "),
            }
        })
    }

    fn check_interface(
        &self,
        hardware_type: &HardwareType,
        kind: InterfaceKind,
        chosen: &str,
    ) -> Result<(), DriverSelectionError> {
        if self.enabled.interface(kind, chosen).is_none() {
            return Err(self.not_enabled(kind, chosen));
        }
        if !hardware_type.accepts(kind, chosen) {
            return Err(DriverSelectionError::Incompatible {
                interface: kind,
                implementation: chosen.to_owned(),
                driver: hardware_type.name.to_owned(),
                valid: hardware_type.supported(kind).join(", "),
            });
        }
        Ok(())
    }

    fn not_enabled(&self, kind: InterfaceKind, chosen: &str) -> DriverSelectionError {
        DriverSelectionError::NotEnabled {
            interface: kind,
            implementation: chosen.to_owned(),
            valid: self.enabled.names(kind).join(", "),
        }
    }
}

impl EnabledHardwareType {
    fn default(&self, kind: InterfaceKind) -> &'static str {
        self.defaults[kind as usize]
    }
}
