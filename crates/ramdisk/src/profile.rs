// SPDX-License-Identifier: Apache-2.0
//! The two sets of drivers: lists in `profiles/`, read at run time so that a mistake is a failed test
//! and a change is no code.

use serde::Deserialize;

use crate::modules::Wanted;
use crate::patterns::Pattern;

/// Which drivers a ramdisk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drivers {
    /// Those of virtual machines.
    Virtual,
    /// Those of servers, and of virtual machines too.
    Servers,
}

/// What goes into a ramdisk with a set of drivers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Profile {
    /// Packages of Debian with a kernel, by architecture.
    pub(crate) packages: std::collections::BTreeMap<String, String>,
    /// Modules that are loaded at once, as no device asks for them.
    first: Vec<String>,
    /// Modules that are loaded when there is time, or when something asks for them.
    later: Vec<String>,
    /// Modules that are there for devices that ask for them.
    modules: Vec<String>,
    /// Modules that are left out even if something in `modules` means them too.
    except: Vec<String>,
    /// Programs that the agent runs.
    pub(crate) programs: Vec<String>,
    /// Packages of Debian with firmware.
    pub(crate) firmware_packages: Vec<String>,
}

impl Drivers {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Servers => "servers",
        }
    }

    /// The most bytes that a ramdisk with these drivers should have.
    pub fn largest(self) -> u64 {
        match self {
            Self::Virtual => 10_000_000,
            Self::Servers => 30_000_000,
        }
    }

    pub(crate) fn profile(self) -> Profile {
        const VIRTUAL: &str = include_str!("../profiles/virtual.toml");
        const SERVERS: &str = include_str!("../profiles/servers.toml");
        let parse = |text: &str| {
            toml::from_str::<Profile>(text).expect("the lists are ours and a test reads them")
        };
        match self {
            Self::Virtual => parse(VIRTUAL),
            Self::Servers => {
                let (mut servers, base) = (parse(SERVERS), parse(VIRTUAL));
                servers.first = [base.first, servers.first].concat();
                servers.later = [base.later, servers.later].concat();
                servers.modules = [base.modules, servers.modules].concat();
                servers
            }
        }
    }
}

impl Profile {
    /// The package with the kernel for the machine we run on, as packages for others are not in
    /// apt's lists.
    pub(crate) fn package(&self) -> &str {
        let found = self.packages.get(std::env::consts::ARCH);
        found.map_or("linux-image-amd64", String::as_str)
    }

    /// The modules, and those that somebody asked for besides.
    pub(crate) fn wanted(&self, more: &[String]) -> Wanted {
        let patterns = |names: &[String]| names.iter().map(|name| Pattern::new(name)).collect();
        Wanted {
            first: patterns(&self.first),
            later: patterns(&self.later),
            modules: patterns(&[self.modules.as_slice(), more].concat()),
            except: patterns(&self.except),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_can_be_read() {
        for drivers in [Drivers::Virtual, Drivers::Servers] {
            let profile = drivers.profile();
            assert!(profile.packages.contains_key("x86_64"));
            assert!(profile.first.contains(&"sd_mod".to_owned()));
            assert!(profile.modules.contains(&"virtio_net".to_owned()));
            for list in [&profile.first, &profile.later, &profile.modules, &profile.except] {
                let mut sorted = list.clone();
                sorted.sort();
                sorted.dedup();
                assert_eq!(sorted.len(), list.len(), "something is listed twice");
            }
        }
    }
}
