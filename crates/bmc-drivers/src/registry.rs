// SPDX-License-Identifier: Apache-2.0
//! Which hardware types and implementations are enabled, what a node gets that does not choose,
//! and whether what it chooses can be.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use node_model::{InterfaceKind, Interfaces, Node, NodeId, StepFlow, StepOffer};
use tokio::sync::mpsc;

use crate::console_feed::ConsoleFeed;
use crate::console_text::ConsoleText;
use crate::driver::Shelves;
use crate::fake::FakeBehaviour;
use crate::turns::Turns;
use crate::{
    BootDesk, Driver, DriverSettings, Error, HardwareType, NodeChanges, Property, Target, agent,
    anaconda, automatic_boot, fake, ipmi, network_boot, noop, ramdisk, redfish, unavailable,
};

/// The enabled hardware types and implementations. Made once, at start; it never changes.
#[derive(Debug)]
pub struct Registry {
    enabled: Shelves,
    types: Vec<EnabledType>,
    redfish: Arc<redfish::Connections>,
    in_band: Arc<agent::InBand>,
    console_texts: Mutex<Option<mpsc::Receiver<ConsoleText>>>,
}

/// Pieces of console text that may wait to be written down, of all machines together.
const TEXTS_WAITING: usize = 1024;

/// An enabled hardware type with its default for each interface, in the order of
/// [`InterfaceKind::ALL`].
#[derive(Debug)]
struct EnabledType {
    hardware_type: &'static HardwareType,
    defaults: Vec<&'static str>,
}

/// What is wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No such hardware type.
    #[error("enabled_hardware_types names '{name}', which does not exist; there are: {known}")]
    UnknownHardwareType {
        /// The name.
        name: String,
        /// What there is.
        known: String,
    },
    /// No such implementation.
    #[error("{key} names '{name}', which does not exist; there are: {known}")]
    UnknownInterface {
        /// The setting.
        key: String,
        /// The name.
        name: String,
        /// What there is.
        known: String,
    },
    /// The default is not among those enabled, or does not fit the hardware type.
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
        /// What could be.
        valid: String,
    },
    /// Nothing that fits the hardware type is enabled.
    #[error(
        "no enabled {interface} interface fits {driver}; add one of these to \
         enabled_{interface}_interfaces: {supported}"
    )]
    NothingFits {
        /// The interface.
        interface: InterfaceKind,
        /// The hardware type.
        driver: &'static str,
        /// What would fit.
        supported: String,
    },
    /// A file of quirks cannot be read.
    #[error("the quirks in {} cannot be used: {why}", file.display())]
    Quirks {
        /// Which file or folder.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The ports of consoles cannot be read.
    #[error("console.port_range is '{found}', which is not first:last, such as 10000:20000")]
    PortRange {
        /// What it is.
        found: String,
    },
    /// The line to agents cannot be set up.
    #[error("agents cannot be spoken to: {why}")]
    Agent {
        /// Why.
        why: String,
    },
    /// A delay of fake hardware cannot be read.
    #[error("fake.{key} is invalid: {why}")]
    Delay {
        /// The setting.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// Why a node cannot have the driver or the implementation it chooses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// No such hardware type is enabled.
    #[error("there is no hardware type '{driver}' here; the enabled ones are: {enabled}")]
    UnknownDriver {
        /// What the node chose.
        driver: String,
        /// What it could choose.
        enabled: String,
    },
    /// No such implementation is enabled.
    #[error("there is no {interface} interface '{implementation}' here; valid ones are: {valid}")]
    NotEnabled {
        /// The interface.
        interface: InterfaceKind,
        /// What the node chose.
        implementation: String,
        /// What it could choose.
        valid: String,
    },
    /// The implementation is enabled and does not fit the hardware type.
    #[error(
        "the {interface} interface '{implementation}' does not fit hardware type {driver}; valid \
         ones are: {valid}"
    )]
    Incompatible {
        /// The interface.
        interface: InterfaceKind,
        /// What the node chose.
        implementation: String,
        /// The node's hardware type.
        driver: String,
        /// What it could choose.
        valid: String,
    },
}

impl Registry {
    /// The registry for these settings, with boot interfaces that lay out at `desk` what machines
    /// boot. Every name in the settings must exist, and every enabled hardware type must have a
    /// default for every interface.
    pub fn new(settings: &DriverSettings, desk: Arc<dyn BootDesk>) -> Result<Self, ConfigError> {
        let (texts, console_texts) = mpsc::channel(TEXTS_WAITING);
        let Made { mut shelves, redfish, in_band } = implementations(settings, &desk, texts)?;
        let console_texts = Mutex::new(Some(console_texts));
        for kind in InterfaceKind::ALL {
            let known = shelves.names(*kind);
            let listed = settings.enabled(*kind);
            if let Some(name) = listed.iter().find(|name| !known.contains(&name.as_str())) {
                return Err(ConfigError::UnknownInterface {
                    key: format!("enabled_{kind}_interfaces"),
                    name: name.clone(),
                    known: known.join(", "),
                });
            }
            shelves.keep(*kind, listed);
        }
        let types = settings.enabled_hardware_types.iter();
        let types = types
            .map(|name| EnabledType::new(name, &shelves, settings))
            .collect::<Result<_, _>>()?;
        Ok(Self { enabled: shelves, types, redfish, in_band, console_texts })
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

    /// The enabled implementations of `kind` that fit `driver`, in the order of the settings.
    /// Those that fit by the table: what fake hardware takes beyond it is not advertised.
    pub fn enabled_interfaces(
        &self,
        driver: &str,
        kind: InterfaceKind,
    ) -> Result<Vec<&'static str>, SelectionError> {
        let supported = self.find(driver)?.hardware_type.supported(kind);
        let mut names = self.enabled.names(kind);
        names.retain(|name| supported.contains(name));
        Ok(names)
    }

    /// The implementation of `kind` that a node of `driver` gets if it does not choose.
    pub fn default_interface(
        &self,
        driver: &str,
        kind: InterfaceKind,
    ) -> Result<&'static str, SelectionError> {
        Ok(self.find(driver)?.default(kind))
    }

    /// The keys of `driver_info` that the default interfaces of `driver` read, with what they
    /// mean; each key once.
    pub fn properties(&self, driver: &str) -> Result<Vec<Property>, SelectionError> {
        let hardware_type = self.find(driver)?;
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

    /// Checks the implementations a node of `driver` chooses, and fills in the defaults for those
    /// it does not.
    pub fn resolve(&self, driver: &str, interfaces: &mut Interfaces) -> Result<(), SelectionError> {
        let enabled_type = self.find(driver)?;
        for kind in InterfaceKind::ALL {
            match interfaces.get(*kind) {
                Some(chosen) => self.check(enabled_type.hardware_type, *kind, chosen)?,
                None => interfaces.set(*kind, Some(enabled_type.default(*kind))),
            }
        }
        Ok(())
    }

    /// The driver for `node`. What its `instance_info` says under `<interface>_interface` wins over
    /// what the node itself chooses; defaults fill the rest.
    pub fn compose(&self, node: &Node) -> Result<Driver, SelectionError> {
        let enabled_type = self.find(&node.driver)?;
        // Overrides are rare, and parsing is not free: look for the letters first.
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
                self.check(enabled_type.hardware_type, *kind, name)?;
            }
        }
        let composed =
            self.enabled.compose(|kind| chosen(kind).or(Some(enabled_type.default(kind))));
        composed.map_err(|kind| self.not_enabled(kind, chosen(kind).unwrap_or_default()))
    }

    /// A driver made of the defaults of a hardware type, for what concerns no node: its vendor
    /// methods, its logical disk properties.
    pub fn default_driver(&self, driver: &str) -> Result<Driver, SelectionError> {
        let enabled_type = self.find(driver)?;
        let composed = self.enabled.compose(|kind| Some(enabled_type.default(kind)));
        composed.map_err(|kind| self.not_enabled(kind, enabled_type.default(kind)))
    }

    /// The steps that the agent on a machine offers for `flow`, and what to remember about it.
    pub async fn agent_steps(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
    ) -> Result<(Vec<StepOffer>, NodeChanges), Error> {
        self.in_band.list_steps(target, flow).await
    }

    /// The steps that agents usually offer for `flow` and that run without being asked for, with the
    /// priorities they have here: for telling what will happen to a machine whose agent was never
    /// asked.
    #[must_use]
    pub fn usual_agent_steps(&self, flow: StepFlow) -> Vec<StepOffer> {
        self.in_band.usual_steps(flow)
    }

    /// The logs of the agent on a machine: a tar archive, compressed with gzip, in base64. None if
    /// there is no agent.
    pub async fn agent_logs(&self, target: &Target<'_>) -> Result<Option<String>, Error> {
        self.in_band.collect_logs(target).await
    }

    /// What machines print on their consoles, to be written down. The first who asks gets it.
    pub fn take_console_texts(&self) -> Option<mpsc::Receiver<ConsoleText>> {
        self.console_texts.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What a node's console says and takes, if this process serves it.
    #[must_use]
    pub fn console_feed(&self, node: NodeId) -> Option<ConsoleFeed> {
        self.enabled.console.iter().find_map(|(_, console)| console.feed(node))
    }

    /// The nodes whose consoles this process serves.
    #[must_use]
    pub fn consoles_served(&self) -> Vec<NodeId> {
        self.enabled.console.iter().flat_map(|(_, console)| console.served()).collect()
    }

    /// Leaves a node's console to another process.
    pub async fn leave_console(&self, node: NodeId) {
        for (_, console) in &self.enabled.console {
            console.leave(node).await;
        }
    }

    /// Signs out of the BMCs, for the end of the program: BMCs have few sessions, and those nobody
    /// closes stay for half an hour. Takes some seconds at most, whatever the BMCs do.
    pub async fn close(&self) {
        self.redfish.close().await;
    }

    fn find(&self, driver: &str) -> Result<&EnabledType, SelectionError> {
        let mut types = self.types.iter();
        types.find(|enabled| enabled.hardware_type.name == driver).ok_or_else(|| {
            let enabled: Vec<_> = self.hardware_types().map(|known| known.name).collect();
            SelectionError::UnknownDriver { driver: driver.to_owned(), enabled: enabled.join(", ") }
        })
    }

    fn check(
        &self,
        hardware_type: &HardwareType,
        kind: InterfaceKind,
        chosen: &str,
    ) -> Result<(), SelectionError> {
        if self.enabled.interface(kind, chosen).is_none() {
            return Err(self.not_enabled(kind, chosen));
        }
        if !hardware_type.accepts(kind, chosen) {
            return Err(SelectionError::Incompatible {
                interface: kind,
                implementation: chosen.to_owned(),
                driver: hardware_type.name.to_owned(),
                valid: hardware_type.supported(kind).join(", "),
            });
        }
        Ok(())
    }

    fn not_enabled(&self, kind: InterfaceKind, chosen: &str) -> SelectionError {
        SelectionError::NotEnabled {
            interface: kind,
            implementation: chosen.to_owned(),
            valid: self.enabled.names(kind).join(", "),
        }
    }
}

impl EnabledType {
    fn new(name: &str, enabled: &Shelves, settings: &DriverSettings) -> Result<Self, ConfigError> {
        let Some(hardware_type) = HardwareType::named(name) else {
            let known: Vec<_> = HardwareType::ALL.iter().map(|known| known.name).collect();
            return Err(ConfigError::UnknownHardwareType {
                name: name.to_owned(),
                known: known.join(", "),
            });
        };
        let default = |kind| default_of(hardware_type, kind, &enabled.names(kind), settings);
        let defaults =
            InterfaceKind::ALL.iter().map(|kind| default(*kind)).collect::<Result<_, _>>()?;
        Ok(Self { hardware_type, defaults })
    }

    fn default(&self, kind: InterfaceKind) -> &'static str {
        self.defaults[kind as usize]
    }
}

fn default_of(
    hardware_type: &'static HardwareType,
    kind: InterfaceKind,
    enabled: &[&'static str],
    settings: &DriverSettings,
) -> Result<&'static str, ConfigError> {
    let supported = hardware_type.supported(kind);
    if let Some(configured) = settings.default_interface(kind) {
        let usable = |name: &&&str| **name == configured && hardware_type.accepts(kind, configured);
        return enabled.iter().find(usable).copied().ok_or_else(|| ConfigError::UnusableDefault {
            interface: kind,
            name: configured.to_owned(),
            driver: hardware_type.name,
            valid: enabled.join(", "),
        });
    }
    supported.iter().find(|name| enabled.contains(name)).copied().ok_or_else(|| {
        ConfigError::NothingFits {
            interface: kind,
            driver: hardware_type.name,
            supported: supported.join(", "),
        }
    })
}

/// Every implementation, and what some of them share.
struct Made {
    shelves: Shelves,
    redfish: Arc<redfish::Connections>,
    in_band: Arc<agent::InBand>,
}

/// Every implementation in this version.
fn implementations(
    settings: &DriverSettings,
    desk: &Arc<dyn BootDesk>,
    texts: mpsc::Sender<ConsoleText>,
) -> Result<Made, ConfigError> {
    let mut shelves = Shelves::default();
    let turns = Arc::new(Turns::new(settings.requests_per_bmc));
    fake::add_to(&mut shelves, FakeBehaviour::new(&settings.fake)?);
    noop::add_to(&mut shelves);
    unavailable::add_to(&mut shelves);
    let in_band = agent::in_band(settings, desk)?;
    ramdisk::add_to(&mut shelves, &in_band);
    anaconda::add_to(&mut shelves, &in_band, desk, settings.install_timeout);
    agent::add_to(&mut shelves, &in_band, &settings.enabled_deploy_interfaces);
    let mut ways = Vec::new();
    network_boot::add_to(&mut shelves, &mut ways, desk);
    let redfish = redfish::add_to(&mut shelves, &mut ways, &settings.redfish, &turns, desk)?;
    ways.retain(|way| settings.enabled_boot_interfaces.iter().any(|name| name == way.name()));
    automatic_boot::add_to(&mut shelves, ways, desk);
    ipmi::add_to(&mut shelves, &settings.ipmi, &settings.console, &turns, texts)?;
    Ok(Made { shelves, redfish, in_band })
}
