// SPDX-License-Identifier: Apache-2.0
//! The wire format of hardware types, which the API calls drivers.

use node_model::InterfaceKind;

use crate::field::{FieldShape, ResourceField, ResourceIdentity, WireResource};

/// A hardware type that is enabled on some conductor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriverView {
    /// The name.
    pub name: String,
    /// The conductors on which it is enabled.
    pub hosts: Vec<String>,
    /// Its implementations per interface.
    pub interfaces: Vec<DriverInterface>,
}

/// The implementations of one interface of a hardware type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriverInterface {
    /// The interface.
    pub kind: InterfaceKind,
    /// The default implementation.
    pub default: Option<String>,
    /// The enabled implementations.
    pub enabled: Vec<String>,
}

impl DriverView {
    fn interface(&self, kind: InterfaceKind) -> Option<&DriverInterface> {
        self.interfaces.iter().find(|interface| interface.kind == kind)
    }
}

impl WireResource for DriverView {
    const KIND: &'static str = "driver";
    const COLLECTION: &'static str = "drivers";
    const PATH: &'static str = "drivers";
    type Draft = ();

    fn fields() -> &'static [ResourceField<Self>] {
        FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Name(&self.name)
    }
}

type DriverField = ResourceField<DriverView>;

macro_rules! default_row {
    ($name:literal, $since:literal, $kind:ident) => {
        DriverField::new($name, $since, FieldShape::Text, |w, it, _| {
            w.optional_string(
                it.interface(InterfaceKind::$kind)
                    .and_then(|interface| interface.default.as_deref()),
            );
        })
        .nullable()
    };
}

macro_rules! enabled_row {
    ($name:literal, $since:literal, $kind:ident) => {
        DriverField::new($name, $since, FieldShape::TextList, |w, it, _| {
            w.strings(
                it.interface(InterfaceKind::$kind).iter().flat_map(|interface| &interface.enabled),
            );
        })
    };
}

static FIELDS: &[DriverField] = &[
    DriverField::new("name", 1, FieldShape::Text, |w, it, _| w.string(&it.name)).listed(),
    DriverField::new("hosts", 1, FieldShape::TextList, |w, it, _| w.strings(&it.hosts)).listed(),
    DriverField::new("links", 1, FieldShape::Links, |w, it, context| {
        context.links(w, "drivers", it.identity(), "");
    })
    .listed(),
    DriverField::new("properties", 14, FieldShape::Links, |w, it, context| {
        context.links(w, "drivers", it.identity(), "/properties");
    })
    .listed(),
    DriverField::new("type", 30, FieldShape::Text, |w, _, _| w.string("dynamic")).listed(),
    default_row!("default_boot_interface", 30, Boot),
    enabled_row!("enabled_boot_interfaces", 30, Boot),
    default_row!("default_console_interface", 30, Console),
    enabled_row!("enabled_console_interfaces", 30, Console),
    default_row!("default_deploy_interface", 30, Deploy),
    enabled_row!("enabled_deploy_interfaces", 30, Deploy),
    default_row!("default_inspect_interface", 30, Inspect),
    enabled_row!("enabled_inspect_interfaces", 30, Inspect),
    default_row!("default_management_interface", 30, Management),
    enabled_row!("enabled_management_interfaces", 30, Management),
    default_row!("default_network_interface", 30, Network),
    enabled_row!("enabled_network_interfaces", 30, Network),
    default_row!("default_power_interface", 30, Power),
    enabled_row!("enabled_power_interfaces", 30, Power),
    default_row!("default_raid_interface", 30, Raid),
    enabled_row!("enabled_raid_interfaces", 30, Raid),
    default_row!("default_vendor_interface", 30, Vendor),
    enabled_row!("enabled_vendor_interfaces", 30, Vendor),
    default_row!("default_storage_interface", 33, Storage),
    enabled_row!("enabled_storage_interfaces", 33, Storage),
    default_row!("default_rescue_interface", 38, Rescue),
    enabled_row!("enabled_rescue_interfaces", 38, Rescue),
    default_row!("default_bios_interface", 40, Bios),
    enabled_row!("enabled_bios_interfaces", 40, Bios),
    default_row!("default_firmware_interface", 86, Firmware),
    enabled_row!("enabled_firmware_interfaces", 86, Firmware),
];
