// SPDX-License-Identifier: Apache-2.0
//! Kinds of Redfish resources, and their hierarchy.

use serde::Deserialize;

/// A kind of resource. Personalities use these names for missing resources and quirks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[expect(missing_docs, reason = "the variants are named after Redfish resources")]
pub enum ResourceKind {
    Root,
    SessionService,
    Sessions,
    Session,
    AccountService,
    Accounts,
    Account,
    Systems,
    System,
    ResetInfo,
    EthernetInterfaces,
    EthernetInterface,
    Processors,
    Processor,
    Memory,
    MemoryModule,
    Storages,
    Storage,
    Drive,
    Volumes,
    Volume,
    Bios,
    BiosSettings,
    SecureBoot,
    SystemMedia,
    SystemMedium,
    Managers,
    Manager,
    ManagerMedia,
    ManagerMedium,
    ManagerInterfaces,
    ManagerInterface,
    DellServices,
    ChassisList,
    Chassis,
    Thermal,
    Power,
    Sensors,
    Sensor,
    ThermalSubsystem,
    Fans,
    Fan,
    PowerSubsystem,
    PowerSupplies,
    PowerSupply,
    NetworkAdapters,
    NetworkAdapter,
    NetworkPorts,
    NetworkPort,
    UpdateService,
    FirmwareInventory,
    FirmwareComponent,
    TaskService,
    Tasks,
    Task,
    TaskMonitor,
    EventService,
    Subscriptions,
    Subscription,
    Registries,
    RegistryFile,
    Registry,
}

impl ResourceKind {
    /// Returns the parent. A BMC without the parent does not have this resource either.
    pub(crate) fn parent(self) -> Option<Self> {
        Some(match self {
            Self::Root => return None,
            Self::SessionService
            | Self::AccountService
            | Self::Systems
            | Self::Managers
            | Self::ChassisList
            | Self::UpdateService
            | Self::TaskService
            | Self::EventService
            | Self::Registries => Self::Root,
            Self::Sessions => Self::SessionService,
            Self::Session => Self::Sessions,
            Self::Accounts => Self::AccountService,
            Self::Account => Self::Accounts,
            Self::System => Self::Systems,
            Self::ResetInfo
            | Self::EthernetInterfaces
            | Self::Processors
            | Self::Memory
            | Self::Storages
            | Self::Bios
            | Self::SecureBoot
            | Self::SystemMedia => Self::System,
            Self::EthernetInterface => Self::EthernetInterfaces,
            Self::Processor => Self::Processors,
            Self::MemoryModule => Self::Memory,
            Self::Storage => Self::Storages,
            Self::Drive | Self::Volumes => Self::Storage,
            Self::Volume => Self::Volumes,
            Self::BiosSettings => Self::Bios,
            Self::SystemMedium => Self::SystemMedia,
            Self::Manager => Self::Managers,
            Self::ManagerMedia | Self::ManagerInterfaces | Self::DellServices => Self::Manager,
            Self::ManagerMedium => Self::ManagerMedia,
            Self::ManagerInterface => Self::ManagerInterfaces,
            Self::Chassis => Self::ChassisList,
            Self::Thermal
            | Self::Power
            | Self::Sensors
            | Self::ThermalSubsystem
            | Self::PowerSubsystem
            | Self::NetworkAdapters => Self::Chassis,
            Self::Sensor => Self::Sensors,
            Self::Fans => Self::ThermalSubsystem,
            Self::Fan => Self::Fans,
            Self::PowerSupplies => Self::PowerSubsystem,
            Self::PowerSupply => Self::PowerSupplies,
            Self::NetworkAdapter => Self::NetworkAdapters,
            Self::NetworkPorts => Self::NetworkAdapter,
            Self::NetworkPort => Self::NetworkPorts,
            Self::FirmwareInventory => Self::UpdateService,
            Self::FirmwareComponent => Self::FirmwareInventory,
            Self::Tasks | Self::TaskMonitor => Self::TaskService,
            Self::Task => Self::Tasks,
            Self::Subscriptions => Self::EventService,
            Self::Subscription => Self::Subscriptions,
            Self::RegistryFile => Self::Registries,
            Self::Registry => Self::RegistryFile,
        })
    }
}
