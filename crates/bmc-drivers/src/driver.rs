// SPDX-License-Identifier: Apache-2.0
//! Implementations by interface: all that are enabled, and the ones a node uses.

use std::fmt;
use std::sync::Arc;

use node_model::InterfaceKind;

use crate::interfaces::{
    Bios, Boot, Console, Deploy, Firmware, Inspect, Interface, Management, Network, Power, Raid,
    Rescue, Storage, Vendor,
};

/// Implementations of one interface, each under its name.
pub(crate) type Shelf<T> = Vec<(&'static str, Arc<T>)>;

/// Declares, from one list of the thirteen interfaces, the shelves of implementations and the
/// driver composed of one from each.
macro_rules! interfaces {
    ($($(#[$doc:meta])* $field:ident: $kind:ident,)*) => {
        /// A machine's driver: one implementation of each interface.
        #[derive(Clone)]
        pub struct Driver {
            $(pub(crate) $field: Arc<dyn $kind>,)*
        }

        impl Driver {
            $($(#[$doc])*
            #[must_use]
            pub fn $field(&self) -> &dyn $kind {
                &*self.$field
            })*

            /// The implementation of `kind`, for what all interfaces have.
            #[must_use]
            pub fn interface(&self, kind: InterfaceKind) -> &dyn Interface {
                match kind {
                    $(InterfaceKind::$kind => &*self.$field,)*
                }
            }
        }

        /// All implementations there are, or all that are enabled.
        #[derive(Default)]
        pub(crate) struct Shelves {
            $(pub(crate) $field: Shelf<dyn $kind>,)*
        }

        impl Shelves {
            /// The names of the implementations of `kind`, in order.
            pub(crate) fn names(&self, kind: InterfaceKind) -> Vec<&'static str> {
                match kind {
                    $(InterfaceKind::$kind => self.$field.iter().map(|(name, _)| *name).collect(),)*
                }
            }

            /// One implementation, for what all interfaces have.
            pub(crate) fn interface(&self, kind: InterfaceKind, name: &str) -> Option<&dyn Interface> {
                match kind {
                    $(InterfaceKind::$kind => {
                        let implementation: &dyn Interface = &**find(&self.$field, name)?;
                        Some(implementation)
                    })*
                }
            }

            /// Puts the implementations of `kind` into the order of `names` and drops the others.
            pub(crate) fn keep(&mut self, kind: InterfaceKind, names: &[String]) {
                match kind {
                    $(InterfaceKind::$kind => keep(&mut self.$field, names),)*
                }
            }

            /// The driver made of the implementations that `choose` names; an interface for which
            /// it names none, or none of these, is the error.
            pub(crate) fn compose<'a>(
                &self,
                mut choose: impl FnMut(InterfaceKind) -> Option<&'a str>,
            ) -> Result<Driver, InterfaceKind> {
                Ok(Driver {
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
    bios: Bios,
    /// How the ramdisk and the instance are booted.
    boot: Boot,
    /// Serial or graphical console.
    console: Console,
    /// How an image gets onto the machine.
    deploy: Deploy,
    /// Firmware versions and updates.
    firmware: Firmware,
    /// How hardware is discovered.
    inspect: Inspect,
    /// Boot device, boot mode, indicators, sensors.
    management: Management,
    /// Which networks the machine is attached to, when.
    network: Network,
    /// On and off.
    power: Power,
    /// Logical disks.
    raid: Raid,
    /// The rescue system.
    rescue: Rescue,
    /// Remote volumes.
    storage: Storage,
    /// What only this vendor has.
    vendor: Vendor,
}

impl fmt::Debug for Driver {
    /// The names of the implementations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = InterfaceKind::ALL.iter().map(|kind| (kind, self.interface(*kind).name()));
        f.debug_map().entries(names).finish()
    }
}

impl fmt::Debug for Shelves {
    /// The names of the implementations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = InterfaceKind::ALL.iter().map(|kind| (kind, self.names(*kind)));
        f.debug_map().entries(names).finish()
    }
}

/// There are only a few of each kind, so that looking at all is quicker than hashing.
fn find<'s, T: ?Sized>(shelf: &'s Shelf<T>, wanted: &str) -> Option<&'s Arc<T>> {
    shelf.iter().find(|(name, _)| *name == wanted).map(|(_, implementation)| implementation)
}

fn keep<T: ?Sized>(shelf: &mut Shelf<T>, names: &[String]) {
    let place = |name: &str| names.iter().position(|wanted| wanted == name);
    shelf.retain(|(name, _)| place(name).is_some());
    shelf.sort_by_key(|(name, _)| place(name));
}
