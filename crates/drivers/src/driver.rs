// SPDX-License-Identifier: Apache-2.0
//! The driver of a node, and the implementations it is composed of.

use std::fmt;
use std::sync::Arc;

use node_model::InterfaceKind;

use crate::HardwareType;
use crate::interfaces::{
    BaseInterface, BiosInterface, BootInterface, ConsoleInterface, DeployInterface,
    FirmwareInterface, InspectInterface, ManagementInterface, NetworkInterface, PowerInterface,
    RaidInterface, RescueInterface, StorageInterface, VendorInterface,
};

/// Declares, from one list of the thirteen interfaces, the sets of implementations and the driver
/// composed of one from each.
macro_rules! interfaces {
    ($($(#[$doc:meta])* $field:ident, $add:ident: $kind:ident as $interface:ident,)*) => {
        /// A node's driver: its hardware type and one implementation of each interface.
        #[derive(Clone)]
        pub struct Driver {
            hardware_type: &'static HardwareType,
            $($field: Arc<dyn $interface>,)*
        }

        impl Driver {
            /// The node's hardware type.
            #[must_use]
            pub fn hardware_type(&self) -> &'static HardwareType {
                self.hardware_type
            }

            $($(#[$doc])*
            #[must_use]
            pub fn $field(&self) -> &dyn $interface {
                &*self.$field
            })*

            /// The implementation of `kind`, as the base trait.
            #[must_use]
            pub fn interface(&self, kind: InterfaceKind) -> &dyn BaseInterface {
                match kind {
                    $(InterfaceKind::$kind => &*self.$field,)*
                }
            }
        }

        /// Implementations by interface: all registered ones, or the enabled ones.
        #[derive(Default)]
        pub struct Implementations {
            $(pub(crate) $field: Vec<Arc<dyn $interface>>,)*
        }

        impl Implementations {
            $(
                #[doc = concat!("Adds an implementation of the ", stringify!($field), " interface.")]
                pub fn $add(&mut self, implementation: Arc<dyn $interface>) {
                    self.$field.push(implementation);
                }
            )*

            /// The names of the implementations of `kind`, in order.
            #[must_use]
            pub fn names(&self, kind: InterfaceKind) -> Vec<&'static str> {
                match kind {
                    $(InterfaceKind::$kind => self.$field.iter().map(|implementation| implementation.name()).collect(),)*
                }
            }

            /// The implementation of `kind` named `name`, as the base trait.
            #[must_use]
            pub fn interface(&self, kind: InterfaceKind, name: &str) -> Option<&dyn BaseInterface> {
                match kind {
                    $(InterfaceKind::$kind => {
                        let implementation: &dyn BaseInterface = &**find(&self.$field, name)?;
                        Some(implementation)
                    })*
                }
            }

            /// Removes the implementations of `kind` that are not in `names`, and sorts the others
            /// in the order of `names`.
            pub(crate) fn retain(&mut self, kind: InterfaceKind, names: &[String]) {
                match kind {
                    $(InterfaceKind::$kind => retain(&mut self.$field, names),)*
                }
            }

            /// Composes a driver of the implementations that `choose` returns. Fails with the first
            /// interface for which it returns `None` or an unknown name.
            pub fn compose<'a>(
                &self,
                hardware_type: &'static HardwareType,
                mut choose: impl FnMut(InterfaceKind) -> Option<&'a str>,
            ) -> Result<Driver, InterfaceKind> {
                Ok(Driver {
                    hardware_type,
                    $($field: choose(InterfaceKind::$kind)
                        .and_then(|name| find(&self.$field, name))
                        .cloned()
                        .ok_or(InterfaceKind::$kind)?,)*
                })
            }
        }
    };
}

interfaces! {
    /// Firmware settings.
    bios, add_bios: Bios as BiosInterface,
    /// How the ramdisk and the instance are booted.
    boot, add_boot: Boot as BootInterface,
    /// Serial or graphical console.
    console, add_console: Console as ConsoleInterface,
    /// How an image gets onto the machine.
    deploy, add_deploy: Deploy as DeployInterface,
    /// Firmware versions and updates.
    firmware, add_firmware: Firmware as FirmwareInterface,
    /// How hardware is discovered.
    inspect, add_inspect: Inspect as InspectInterface,
    /// Boot device, boot mode, indicators, sensors.
    management, add_management: Management as ManagementInterface,
    /// Which networks the machine is attached to, when.
    network, add_network: Network as NetworkInterface,
    /// Power control.
    power, add_power: Power as PowerInterface,
    /// Logical disks.
    raid, add_raid: Raid as RaidInterface,
    /// The rescue system.
    rescue, add_rescue: Rescue as RescueInterface,
    /// Remote volumes.
    storage, add_storage: Storage as StorageInterface,
    /// Vendor-specific methods.
    vendor, add_vendor: Vendor as VendorInterface,
}

impl Implementations {
    /// The deploy interfaces registered so far, for one that delegates to the others.
    #[must_use]
    pub fn deploy_interfaces(&self) -> &[Arc<dyn DeployInterface>] {
        &self.deploy
    }
}

impl fmt::Debug for Driver {
    /// Prints the names of the implementations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = InterfaceKind::ALL.iter().map(|kind| (kind, self.interface(*kind).name()));
        f.debug_map().entries(names).finish()
    }
}

impl fmt::Debug for Implementations {
    /// Prints the names of the implementations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = InterfaceKind::ALL.iter().map(|kind| (kind, self.names(*kind)));
        f.debug_map().entries(names).finish()
    }
}

/// A linear search: there are fewer than ten implementations per interface.
fn find<'a, T: BaseInterface + ?Sized>(
    implementations: &'a [Arc<T>],
    name: &str,
) -> Option<&'a Arc<T>> {
    implementations.iter().find(|implementation| implementation.name() == name)
}

fn retain<T: BaseInterface + ?Sized>(implementations: &mut Vec<Arc<T>>, names: &[String]) {
    let position = |known: &Arc<T>| names.iter().position(|name| name == known.name());
    implementations.retain(|known| position(known).is_some());
    implementations.sort_by_key(position);
}
