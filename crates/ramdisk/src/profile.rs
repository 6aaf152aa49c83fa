// SPDX-License-Identifier: Apache-2.0
//! Driver profiles: lists of modules in `profiles/`, parsed at run time. A test validates them.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::modules::ModuleRequest;
use crate::patterns::ModulePattern;

/// The set of drivers in a ramdisk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverProfile {
    /// Drivers of virtual machines.
    Virtual,
    /// Drivers of servers and of virtual machines.
    Servers,
}

/// The content of a profile file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProfileContents {
    /// Debian's kernel package, by architecture.
    pub(crate) kernel_packages: BTreeMap<String, String>,
    /// Modules to load at start, because no device alias refers to them.
    load_first: Vec<String>,
    /// Modules to load after those of the devices, or on demand.
    load_later: Vec<String>,
    /// Modules to load by device alias.
    modules: Vec<String>,
    /// Modules to leave out even if a pattern in `modules` matches.
    except: Vec<String>,
    /// External programs that the agent runs.
    pub(crate) programs: Vec<String>,
    /// Debian's firmware packages.
    pub(crate) firmware_packages: Vec<String>,
}

impl DriverProfile {
    /// Returns the name, as used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Servers => "servers",
        }
    }

    /// Returns the expected maximum size of the ramdisk in bytes.
    pub fn max_size(self) -> u64 {
        match self {
            Self::Virtual => 10_000_000,
            Self::Servers => 30_000_000,
        }
    }

    pub(crate) fn contents(self) -> ProfileContents {
        const VIRTUAL: &str = include_str!("../profiles/virtual.toml");
        const SERVERS: &str = include_str!("../profiles/servers.toml");
        let parse = |text: &str| {
            toml::from_str::<ProfileContents>(text).expect("a test parses the profiles")
        };
        match self {
            Self::Virtual => parse(VIRTUAL),
            Self::Servers => {
                let (mut servers, base) = (parse(SERVERS), parse(VIRTUAL));
                servers.load_first = [base.load_first, servers.load_first].concat();
                servers.load_later = [base.load_later, servers.load_later].concat();
                servers.modules = [base.modules, servers.modules].concat();
                servers
            }
        }
    }
}

impl ProfileContents {
    /// Returns the kernel package for the architecture of the build host, because apt does not list
    /// packages of other architectures.
    pub(crate) fn kernel_package(&self) -> &str {
        let package = self.kernel_packages.get(std::env::consts::ARCH);
        package.map_or("linux-image-amd64", String::as_str)
    }

    /// Returns the modules of the profile and additional ones.
    pub(crate) fn module_request(&self, additional: &[String]) -> ModuleRequest {
        let patterns =
            |names: &[String]| names.iter().map(|name| ModulePattern::new(name)).collect();
        ModuleRequest {
            load_first: patterns(&self.load_first),
            load_later: patterns(&self.load_later),
            modules: patterns(&[self.modules.as_slice(), additional].concat()),
            except: patterns(&self.except),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_valid() {
        for drivers in [DriverProfile::Virtual, DriverProfile::Servers] {
            let profile = drivers.contents();
            assert!(profile.kernel_packages.contains_key("x86_64"));
            assert!(profile.load_first.contains(&"sd_mod".to_owned()));
            assert!(profile.modules.contains(&"virtio_net".to_owned()));
            let lists =
                [&profile.load_first, &profile.load_later, &profile.modules, &profile.except];
            for list in lists {
                let mut sorted = list.clone();
                sorted.sort();
                sorted.dedup();
                assert_eq!(sorted.len(), list.len(), "duplicate entry");
            }
        }
    }
}
