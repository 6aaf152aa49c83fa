// SPDX-License-Identifier: Apache-2.0
//! The ramdisk of a node, as fields of `driver_info`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::bmc_address::BmcType;
use super::super::preprovisioning_image::{PreprovisioningImageStatus, RamdiskFormat};
use super::FieldChanges;

/// Ramdisks from the configuration of the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefaultRamdisk {
    /// URL of the kernel.
    pub kernel: Option<String>,
    /// URL of the initial ramdisk.
    pub ramdisk: Option<String>,
    /// URL of the ISO image.
    pub iso: Option<String>,
    /// Ramdisks of CPU architectures, such as `aarch64`. Hosts of these architectures do not use the
    /// general ones, which are for another architecture.
    pub by_architecture: BTreeMap<String, ArchitectureRamdisk>,
    /// Whether a ramdisk is built for each host, so that the configured ones must not be used.
    pub is_built_per_host: bool,
}

/// The ramdisk of one CPU architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchitectureRamdisk {
    /// URL of the kernel.
    pub kernel: Option<String>,
    /// URL of the initial ramdisk.
    pub ramdisk: Option<String>,
    /// URL of the ISO image.
    pub iso: Option<String>,
}

/// Why the variables of the operator do not describe ramdisks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefaultRamdiskError {
    /// An entry has no architecture or no URL.
    #[error("{variable} has the entry {entry:?}; use ARCHITECTURE:URL, separated by commas")]
    InvalidEntry {
        /// The variable.
        variable: &'static str,
        /// The entry.
        entry: String,
    },
    /// Kernel and initial ramdisk belong together.
    #[error("only one of kernel and ramdisk is set for {architecture}; set {variables} together")]
    Incomplete {
        /// The architecture, or a text for hosts of any architecture.
        architecture: String,
        /// What to set.
        variables: &'static str,
    },
}

impl DefaultRamdisk {
    /// Reads Metal3's variables: `DEPLOY_KERNEL_URL`, `DEPLOY_RAMDISK_URL` and `DEPLOY_ISO_URL`, each
    /// also with the architecture as suffix (`DEPLOY_KERNEL_URL_AARCH64`) or for several architectures
    /// (`DEPLOY_KERNEL_BY_ARCH=aarch64:URL,x86_64:URL`). A suffix has priority over a list.
    pub fn from_variables(
        variables: impl IntoIterator<Item = (String, String)>,
        is_built_per_host: bool,
    ) -> Result<Self, DefaultRamdiskError> {
        let mut configured = Self { is_built_per_host, ..Self::default() };
        let mut with_suffix = Vec::new();
        for (name, url) in variables.into_iter().filter(|(_, value)| !value.is_empty()) {
            for part in RamdiskPart::ALL {
                if name == part.list_variable() {
                    configured.add_list(part, &url)?;
                } else if let Some(rest) = name.strip_prefix(part.variable()) {
                    match rest.strip_prefix('_') {
                        Some(suffix) if !suffix.is_empty() => {
                            with_suffix.push((part, suffix.to_ascii_lowercase(), url.clone()));
                        }
                        None if rest.is_empty() => {
                            *part.of(
                                &mut configured.kernel,
                                &mut configured.ramdisk,
                                &mut configured.iso,
                            ) = Some(url.clone());
                        }
                        Some(_) | None => {}
                    }
                }
            }
        }
        for (part, architecture, url) in with_suffix {
            configured.set_for(part, architecture, url);
        }
        configured.check_pairs()?;
        Ok(configured)
    }

    fn add_list(&mut self, part: RamdiskPart, list: &str) -> Result<(), DefaultRamdiskError> {
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry.split_once(':') {
                Some((architecture, url)) if !architecture.is_empty() && !url.is_empty() => {
                    let architecture = architecture.trim().to_ascii_lowercase();
                    self.set_for(part, architecture, url.trim().to_owned());
                }
                _ => {
                    let (variable, entry) = (part.list_variable(), entry.to_owned());
                    return Err(DefaultRamdiskError::InvalidEntry { variable, entry });
                }
            }
        }
        Ok(())
    }

    fn set_for(&mut self, part: RamdiskPart, architecture: String, url: String) {
        let entry = self.by_architecture.entry(architecture).or_default();
        *part.of(&mut entry.kernel, &mut entry.ramdisk, &mut entry.iso) = Some(url);
    }

    /// A kernel without ramdisk is usable only if ramdisks are built.
    fn check_pairs(&self) -> Result<(), DefaultRamdiskError> {
        let is_incomplete = |kernel: &Option<String>, ramdisk: &Option<String>| {
            (kernel.is_none() && ramdisk.is_some())
                || (kernel.is_some() && ramdisk.is_none() && !self.is_built_per_host)
        };
        if is_incomplete(&self.kernel, &self.ramdisk) {
            return Err(DefaultRamdiskError::Incomplete {
                architecture: "hosts of any architecture".to_owned(),
                variables: "DEPLOY_KERNEL_URL and DEPLOY_RAMDISK_URL",
            });
        }
        let mut entries = self.by_architecture.iter();
        match entries.find(|(_, entry)| is_incomplete(&entry.kernel, &entry.ramdisk)) {
            Some((architecture, _)) => Err(DefaultRamdiskError::Incomplete {
                architecture: architecture.clone(),
                variables: "DEPLOY_KERNEL_BY_ARCH and DEPLOY_RAMDISK_BY_ARCH",
            }),
            None => Ok(()),
        }
    }

    /// The ramdisk for hosts of an architecture.
    #[must_use]
    pub fn for_architecture(&self, architecture: Option<&str>) -> ArchitectureRamdisk {
        let own = architecture.and_then(|name| self.by_architecture.get(name));
        own.cloned().unwrap_or_else(|| ArchitectureRamdisk {
            kernel: self.kernel.clone(),
            ramdisk: self.ramdisk.clone(),
            iso: self.iso.clone(),
        })
    }
}

/// What a variable contains the URL of.
#[derive(Clone, Copy)]
enum RamdiskPart {
    Kernel,
    Ramdisk,
    Iso,
}

impl RamdiskPart {
    const ALL: [Self; 3] = [Self::Kernel, Self::Ramdisk, Self::Iso];

    const fn variable(self) -> &'static str {
        match self {
            Self::Kernel => "DEPLOY_KERNEL_URL",
            Self::Ramdisk => "DEPLOY_RAMDISK_URL",
            Self::Iso => "DEPLOY_ISO_URL",
        }
    }

    const fn list_variable(self) -> &'static str {
        match self {
            Self::Kernel => "DEPLOY_KERNEL_BY_ARCH",
            Self::Ramdisk => "DEPLOY_RAMDISK_BY_ARCH",
            Self::Iso => "DEPLOY_ISO_BY_ARCH",
        }
    }

    fn of<'a, T>(self, kernel: &'a mut T, ramdisk: &'a mut T, iso: &'a mut T) -> &'a mut T {
        match self {
            Self::Kernel => kernel,
            Self::Ramdisk => ramdisk,
            Self::Iso => iso,
        }
    }
}

/// The fields that select the ramdisk; `None` if there is no ramdisk yet that the host can boot.
#[must_use]
pub fn deploy_ramdisk(
    bmc_type: &BmcType,
    built: Option<&PreprovisioningImageStatus>,
    configured: &DefaultRamdisk,
    architecture: Option<&str>,
) -> Option<FieldChanges> {
    let is_built_per_host = configured.is_built_per_host;
    let configured = configured.for_architecture(architecture);
    let iso = |url: &str| Some(fields([("deploy_iso", json!(url))]));
    if let Some(built) = built
        && let Some(url) = built.image_url.as_deref()
    {
        match &built.format {
            Some(RamdiskFormat::Iso) if bmc_type.boots_iso => return iso(url),
            Some(RamdiskFormat::Initrd) => {
                let kernel = built.kernel_url.as_ref().or(configured.kernel.as_ref())?;
                let mut made =
                    fields([("deploy_kernel", json!(kernel)), ("deploy_ramdisk", json!(url))]);
                if let Some(parameters) = &built.extra_kernel_params {
                    // The placeholder keeps the parameters of Ironic's configuration.
                    let parameters = json!(format!("%default% {parameters}"));
                    made.insert("kernel_append_params", Some(parameters));
                }
                return Some(made);
            }
            Some(RamdiskFormat::Iso | RamdiskFormat::Other(_)) | None => {}
        }
    }
    if is_built_per_host {
        return None;
    }
    if let Some(url) = configured.iso.as_deref().filter(|_| bmc_type.boots_iso) {
        return iso(url);
    }
    let (kernel, ramdisk) = (configured.kernel.as_ref()?, configured.ramdisk.as_ref()?);
    Some(fields([("deploy_kernel", json!(kernel)), ("deploy_ramdisk", json!(ramdisk))]))
}

/// All fields of a ramdisk, with the given ones set and the others removed.
fn fields<const N: usize>(set: [(&'static str, Value); N]) -> FieldChanges {
    let all = ["deploy_kernel", "deploy_ramdisk", "deploy_iso", "kernel_append_params"];
    let set = set.into_iter().map(|(key, value)| (key, Some(value)));
    all.into_iter().map(|key| (key, None)).chain(set).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::bmc_address::BMC_TYPES;
    use super::*;

    #[test]
    fn the_built_image_is_preferred() {
        let configured = |per_host| DefaultRamdisk {
            kernel: Some("k".into()),
            ramdisk: Some("r".into()),
            iso: Some("i".into()),
            is_built_per_host: per_host,
            ..DefaultRamdisk::default()
        };
        let nothing = DefaultRamdisk::default();
        let built_iso = json!({"imageUrl": "bi", "format": "iso"});
        let built = json!({"imageUrl": "br", "format": "initrd"});
        let built_kernel = json!({"imageUrl": "br", "format": "initrd", "kernelUrl": "bk",
            "extraKernelParams": "a=b"});
        for (scheme, built, configured, expected) in [
            ("redfish", None, configured(false), Some("deploy_kernel=k deploy_ramdisk=r")),
            ("redfish-virtualmedia", None, configured(false), Some("deploy_iso=i")),
            ("redfish-virtualmedia", None, configured(true), None),
            ("redfish-virtualmedia", None, nothing.clone(), None),
            ("redfish-virtualmedia", Some(&built_iso), configured(true), Some("deploy_iso=bi")),
            ("redfish", Some(&built_iso), configured(true), None),
            ("redfish", Some(&built), configured(true), Some("deploy_kernel=k deploy_ramdisk=br")),
            ("redfish", Some(&built), nothing.clone(), None),
            (
                "redfish",
                Some(&built_kernel),
                nothing.clone(),
                Some("deploy_kernel=bk deploy_ramdisk=br kernel_append_params=%default% a=b"),
            ),
        ] {
            let bmc_type = BMC_TYPES.iter().find(|bmc_type| bmc_type.scheme == scheme).unwrap();
            let built: Option<PreprovisioningImageStatus> =
                built.map(|status| serde_json::from_value(status.clone()).unwrap());
            let made = deploy_ramdisk(bmc_type, built.as_ref(), &configured, None);
            let text = made.map(|made| {
                assert_eq!(made.len(), 4, "others are removed");
                let set = made.iter().filter_map(|(key, value)| {
                    Some(format!("{key}={}", value.as_ref()?.as_str().unwrap()))
                });
                set.collect::<Vec<_>>().join(" ")
            });
            assert_eq!(text.as_deref(), expected, "{scheme} {built:?} {configured:?}");
        }
    }

    fn read(text: &str, is_built_per_host: bool) -> Result<DefaultRamdisk, String> {
        let variables = text.split_whitespace().map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        });
        DefaultRamdisk::from_variables(variables, is_built_per_host)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_architecture_has_its_ramdisk() {
        let configured = read(
            "DEPLOY_KERNEL_URL=k DEPLOY_RAMDISK_URL=r DEPLOY_ISO_URL=i OTHER=x DEPLOY_ISO_URL_=z \
             DEPLOY_KERNEL_URL_PPC64LE=pk DEPLOY_RAMDISK_URL_PPC64LE=pr \
             DEPLOY_RAMDISK_BY_ARCH=aarch64:http://r/a,ppc64le:http://ignored \
             DEPLOY_KERNEL_BY_ARCH=AARCH64:http://k/a,,",
            false,
        )
        .unwrap();
        for (scheme, architecture, expected) in [
            ("redfish", None, "deploy_kernel=k deploy_ramdisk=r"),
            ("redfish", Some("x86_64"), "deploy_kernel=k deploy_ramdisk=r"),
            ("redfish-virtualmedia", Some("x86_64"), "deploy_iso=i"),
            ("redfish", Some("aarch64"), "deploy_kernel=http://k/a deploy_ramdisk=http://r/a"),
            (
                "redfish-virtualmedia",
                Some("aarch64"),
                "deploy_kernel=http://k/a deploy_ramdisk=http://r/a",
            ),
            ("redfish", Some("ppc64le"), "deploy_kernel=pk deploy_ramdisk=pr"),
        ] {
            let bmc_type = BMC_TYPES.iter().find(|bmc_type| bmc_type.scheme == scheme).unwrap();
            let made = deploy_ramdisk(bmc_type, None, &configured, architecture).unwrap();
            let set = made.iter().filter_map(|(key, value)| {
                Some(format!("{key}={}", value.as_ref()?.as_str().unwrap()))
            });
            assert_eq!(set.collect::<Vec<_>>().join(" "), expected, "{scheme} {architecture:?}");
        }
    }

    #[test]
    fn incomplete_variables_are_errors() {
        for (variables, is_built_per_host, expected) in [
            ("", false, ""),
            ("DEPLOY_KERNEL_URL=", false, ""),
            ("DEPLOY_KERNEL_URL=k", true, ""),
            ("DEPLOY_KERNEL_URL=k", false, "hosts of any architecture"),
            ("DEPLOY_RAMDISK_URL=r", true, "hosts of any architecture"),
            ("DEPLOY_KERNEL_BY_ARCH=arm:k", false, "set for arm"),
            ("DEPLOY_KERNEL_BY_ARCH=arm:k", true, ""),
            ("DEPLOY_KERNEL_BY_ARCH=k", false, "DEPLOY_KERNEL_BY_ARCH has the entry \"k\""),
            ("DEPLOY_RAMDISK_BY_ARCH=arm:", false, "has the entry \"arm:\""),
        ] {
            match read(variables, is_built_per_host) {
                Ok(_) => assert_eq!(expected, "", "{variables}"),
                Err(error) => assert!(
                    !expected.is_empty() && error.contains(expected),
                    "{variables}: {error}"
                ),
            }
        }
    }
}
