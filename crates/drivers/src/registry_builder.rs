// SPDX-License-Identifier: Apache-2.0
//! How driver crates register their implementations, and how a registry is built from the enabled
//! ones.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use node_model::{InterfaceKind, NodeId};
use tokio::sync::mpsc;

use crate::registry::EnabledHardwareType;
use crate::{
    BmcLimits, BootService, ConsoleText, DriverRegistry, FixedMethodBootInterface, HardwareType,
    Implementations, InBandAgent, no_interfaces,
};

/// Capacity of the channel with console text of all machines that waits to be stored.
const CONSOLE_TEXT_CAPACITY: usize = 1024;

/// Open sessions with BMCs of one protocol.
#[async_trait]
pub trait BmcSessions: Send + Sync {
    /// Closes all sessions. Returns within a few seconds, even if BMCs do not respond.
    async fn close(&self);

    /// Closes the sessions that only this node uses, in the background.
    fn release(&self, node: NodeId);
}

/// Which hardware types and implementations nodes may use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EnabledDrivers {
    /// Names of the hardware types.
    pub hardware_types: Vec<String>,
    /// Names of the implementations and the default, in the order of [`InterfaceKind::ALL`].
    interfaces: Vec<(Vec<String>, Option<String>)>,
}

/// Collects implementations and hardware types, and builds the [`DriverRegistry`] of the enabled ones.
pub struct RegistryBuilder {
    /// The registered implementations.
    pub implementations: Implementations,
    enabled: EnabledDrivers,
    hardware_types: Vec<&'static HardwareType>,
    boot_methods: Vec<Arc<dyn FixedMethodBootInterface>>,
    boot_service: Arc<dyn BootService>,
    bmc_limits: Arc<BmcLimits>,
    sessions: Vec<Arc<dyn BmcSessions>>,
    agent: Option<Arc<dyn InBandAgent>>,
    console_sender: mpsc::Sender<ConsoleText>,
    console_texts: mpsc::Receiver<ConsoleText>,
}

/// Why the enabled hardware types and implementations do not form a registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The hardware type does not exist.
    #[error("enabled_hardware_types names '{name}', which does not exist; there are: {known}")]
    UnknownHardwareType {
        /// The name.
        name: String,
        /// The existing ones.
        known: String,
    },
    /// The implementation does not exist.
    #[error("{key} names '{name}', which does not exist; there are: {known}")]
    UnknownInterface {
        /// The setting.
        key: String,
        /// The name.
        name: String,
        /// The existing ones.
        known: String,
    },
    /// The default is not enabled, or the hardware type does not support it.
    #[error(
        "default_{interface}_interface is '{name}', which {driver} cannot use; choose one of: {valid}"
    )]
    UnusableDefault {
        /// The interface.
        interface: InterfaceKind,
        /// The default.
        name: String,
        /// The hardware type.
        driver: &'static str,
        /// The enabled implementations.
        valid: String,
    },
    /// No implementation that the hardware type supports is enabled.
    #[error(
        "no {interface} interface that {driver} supports is enabled; add one of these to \
         enabled_{interface}_interfaces: {supported}"
    )]
    NothingFits {
        /// The interface.
        interface: InterfaceKind,
        /// The hardware type.
        driver: &'static str,
        /// The supported implementations.
        supported: String,
    },
}

impl EnabledDrivers {
    /// `interface` returns the enabled implementations of a kind and the configured default.
    pub fn new(
        hardware_types: &[String],
        interface: impl Fn(InterfaceKind) -> (Vec<String>, Option<String>),
    ) -> Self {
        let interfaces = InterfaceKind::ALL.iter().map(|kind| interface(*kind)).collect();
        Self { hardware_types: hardware_types.to_vec(), interfaces }
    }

    /// The enabled implementations of `kind`.
    #[must_use]
    pub fn names(&self, kind: InterfaceKind) -> &[String] {
        self.interfaces.get(kind as usize).map_or(&[], |(names, _)| names)
    }

    /// The configured default of `kind`.
    #[must_use]
    pub fn default_interface(&self, kind: InterfaceKind) -> Option<&str> {
        self.interfaces.get(kind as usize)?.1.as_deref()
    }
}

impl RegistryBuilder {
    /// A builder with the `no-…` implementations only. `requests_per_bmc` is the number of
    /// concurrent requests to one BMC.
    pub fn new(
        enabled: EnabledDrivers,
        boot_service: Arc<dyn BootService>,
        requests_per_bmc: usize,
    ) -> Self {
        let (console_sender, console_texts) = mpsc::channel(CONSOLE_TEXT_CAPACITY);
        let mut implementations = Implementations::default();
        no_interfaces::register(&mut implementations);
        Self {
            implementations,
            enabled,
            hardware_types: Vec::new(),
            boot_methods: Vec::new(),
            boot_service,
            bmc_limits: Arc::new(BmcLimits::new(requests_per_bmc)),
            sessions: Vec::new(),
            agent: None,
            console_sender,
            console_texts,
        }
    }

    /// Adds a hardware type.
    pub fn add_hardware_type(&mut self, hardware_type: &'static HardwareType) {
        self.hardware_types.push(hardware_type);
    }

    /// Adds a boot interface that the boot interface `automatic` may choose.
    pub fn add_boot_method(&mut self, boot: Arc<dyn FixedMethodBootInterface>) {
        self.boot_methods.push(Arc::clone(&boot));
        self.implementations.add_boot(boot);
    }

    /// Adds sessions that [`DriverRegistry::close`] closes.
    pub fn add_sessions(&mut self, sessions: Arc<dyn BmcSessions>) {
        self.sessions.push(sessions);
    }

    /// Sets the access to agents.
    pub fn set_agent(&mut self, agent: Arc<dyn InBandAgent>) {
        self.agent = Some(agent);
    }

    /// The boot interfaces added with [`Self::add_boot_method`] so far that are enabled.
    #[must_use]
    pub fn enabled_boot_methods(&self) -> Vec<Arc<dyn FixedMethodBootInterface>> {
        let enabled = self.enabled.names(InterfaceKind::Boot);
        let mut methods = self.boot_methods.clone();
        methods.retain(|method| enabled.iter().any(|name| name == method.name()));
        methods
    }

    /// Which hardware types and implementations are enabled.
    #[must_use]
    pub fn enabled(&self) -> &EnabledDrivers {
        &self.enabled
    }

    /// The boot service.
    #[must_use]
    pub fn boot_service(&self) -> Arc<dyn BootService> {
        Arc::clone(&self.boot_service)
    }

    /// Concurrency limits that all protocols share.
    #[must_use]
    pub fn bmc_limits(&self) -> Arc<BmcLimits> {
        Arc::clone(&self.bmc_limits)
    }

    /// The sender of console text for the timeline.
    #[must_use]
    pub fn console_texts(&self) -> mpsc::Sender<ConsoleText> {
        self.console_sender.clone()
    }

    /// The receiving end of [`Self::console_texts`], for use without a registry.
    #[must_use]
    pub fn into_console_texts(self) -> mpsc::Receiver<ConsoleText> {
        self.console_texts
    }

    /// Builds the registry of the enabled hardware types and implementations. Fails if one of them
    /// was not registered, or if an enabled hardware type has no default for an interface.
    pub fn build(self) -> Result<DriverRegistry, RegistryError> {
        let Self { mut implementations, enabled, hardware_types, sessions, agent, .. } = self;
        for kind in InterfaceKind::ALL {
            let known = implementations.names(*kind);
            let listed = enabled.names(*kind);
            if let Some(name) = listed.iter().find(|name| !known.contains(&name.as_str())) {
                return Err(RegistryError::UnknownInterface {
                    key: format!("enabled_{kind}_interfaces"),
                    name: name.clone(),
                    known: known.join(", "),
                });
            }
            implementations.retain(*kind, listed);
        }
        let types = enabled.hardware_types.iter();
        let types = types
            .map(|name| enabled_type(name, &hardware_types, &implementations, &enabled))
            .collect::<Result<_, _>>()?;
        Ok(DriverRegistry {
            enabled: implementations,
            types,
            sessions,
            agent,
            boot_service: self.boot_service,
            console_texts: Mutex::new(Some(self.console_texts)),
        })
    }
}

impl std::fmt::Debug for RegistryBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryBuilder")
            .field("implementations", &self.implementations)
            .finish_non_exhaustive()
    }
}

fn enabled_type(
    name: &str,
    registered: &[&'static HardwareType],
    implementations: &Implementations,
    enabled: &EnabledDrivers,
) -> Result<EnabledHardwareType, RegistryError> {
    let Some(hardware_type) = registered.iter().copied().find(|known| known.name == name) else {
        let mut known: Vec<_> = registered.iter().map(|known| known.name).collect();
        known.sort_unstable();
        return Err(RegistryError::UnknownHardwareType {
            name: name.to_owned(),
            known: known.join(", "),
        });
    };
    let default = |kind: &InterfaceKind| {
        let configured = enabled.default_interface(*kind);
        default_interface(hardware_type, *kind, &implementations.names(*kind), configured)
    };
    let defaults = InterfaceKind::ALL.iter().map(default).collect::<Result<_, _>>()?;
    Ok(EnabledHardwareType { hardware_type, defaults })
}

fn default_interface(
    hardware_type: &'static HardwareType,
    kind: InterfaceKind,
    enabled: &[&'static str],
    configured: Option<&str>,
) -> Result<&'static str, RegistryError> {
    let supported = hardware_type.supported(kind);
    if let Some(configured) = configured {
        let usable = |name: &&&str| **name == configured && hardware_type.accepts(kind, configured);
        return enabled.iter().find(usable).copied().ok_or_else(|| {
            RegistryError::UnusableDefault {
                interface: kind,
                name: configured.to_owned(),
                driver: hardware_type.name,
                valid: enabled.join(", "),
            }
        });
    }
    supported.iter().find(|name| enabled.contains(name)).copied().ok_or_else(|| {
        RegistryError::NothingFits {
            interface: kind,
            driver: hardware_type.name,
            supported: supported.join(", "),
        }
    })
}
