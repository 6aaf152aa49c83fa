// SPDX-License-Identifier: Apache-2.0
//! Settings of the operator that apply to all installations, from its environment.

use kube_resources::ironic::validation::IronicRules;
use kube_resources::ironic::versions::{IronicVersion, IronicVersionError, SupportedVersions};

/// Repository of the image of the service. The tag is the version of the operator.
const SERVICE_REPOSITORY: &str = "quay.io/ferrite/ferrite";
/// Image of keepalived.
const KEEPALIVED_IMAGE: &str = "quay.io/metal3-io/keepalived:latest";
/// Variables that are passed to the container that downloads the ramdisk, with their names there.
const DOWNLOADER_VARIABLES: &[(&str, &str)] = &[
    ("IPA_BASEURI", "IPA_BASEURI"),
    ("IPA_FLAVOR", "IPA_FLAVOR"),
    ("IPA_ARCH", "IPA_ARCH"),
    ("IPA_HTTPS_PROXY", "HTTPS_PROXY"),
    ("IPA_HTTP_PROXY", "HTTP_PROXY"),
    ("IPA_NO_PROXY", "NO_PROXY"),
];

/// Settings of the operator.
#[derive(Clone, Debug)]
pub struct IronicOperatorSettings {
    /// Image of the service, if no `Ironic` names another one.
    pub service_image: String,
    /// Image that downloads a ramdisk; `None` if the ramdisk of the service image is used.
    pub ramdisk_downloader_image: Option<String>,
    /// Image of keepalived.
    pub keepalived_image: String,
    /// Variables of the container that downloads the ramdisk.
    pub downloader_environment: Vec<(String, String)>,
    /// Domain of Services, such as `cluster.local`; `None` if names without it are used.
    pub cluster_domain: Option<String>,
    /// Whether addresses of nodes and pods are IPv6 addresses.
    pub has_ipv6_addresses: bool,
    /// Rules for objects.
    pub rules: IronicRules,
}

impl Default for IronicOperatorSettings {
    fn default() -> Self {
        Self {
            service_image: format!("{SERVICE_REPOSITORY}:{}", env!("CARGO_PKG_VERSION")),
            ramdisk_downloader_image: None,
            keepalived_image: KEEPALIVED_IMAGE.to_owned(),
            downloader_environment: Vec::new(),
            cluster_domain: None,
            has_ipv6_addresses: false,
            rules: IronicRules::default(),
        }
    }
}

impl IronicOperatorSettings {
    /// Reads the variables of Metal3's operator: `IRONIC_IMAGE`, `RAMDISK_DOWNLOADER_IMAGE`,
    /// `KEEPALIVED_IMAGE`, `IRONIC_VERSION`, `CLUSTER_DOMAIN`, `FEATURE_GATES` and those of the
    /// downloader. `POD_IP` is an address of the operator itself. An empty variable is not set.
    /// Fails if the version is malformed.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, IronicVersionError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut settings = Self::default();
        if let Some(image) = variable("IRONIC_IMAGE") {
            settings.service_image = image;
        }
        if let Some(image) = variable("KEEPALIVED_IMAGE") {
            settings.keepalived_image = image;
        }
        settings.ramdisk_downloader_image = variable("RAMDISK_DOWNLOADER_IMAGE");
        settings.cluster_domain = variable("CLUSTER_DOMAIN");
        settings.has_ipv6_addresses = variable("POD_IP").is_some_and(|ip| ip.contains(':'));
        settings.downloader_environment = DOWNLOADER_VARIABLES
            .iter()
            .filter_map(|(source, target)| Some(((*target).to_owned(), variable(source)?)))
            .collect();
        if let Some(version) = variable("IRONIC_VERSION") {
            settings.rules.versions = SupportedVersions::new(IronicVersion::parse(&version)?);
        }
        if let Some(gates) = variable("FEATURE_GATES") {
            let gate =
                gates.split(',').find_map(|gate| gate.trim().strip_prefix("HighAvailability="));
            settings.rules.allows_high_availability = gate != Some("false");
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<IronicOperatorSettings, IronicVersionError> {
        IronicOperatorSettings::from_environment(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn images_and_version_come_from_the_environment() {
        let settings = read(&[
            ("IRONIC_IMAGE", "registry.example/ferrite:1"),
            ("RAMDISK_DOWNLOADER_IMAGE", "registry.example/downloader:1"),
            ("KEEPALIVED_IMAGE", ""),
            ("IRONIC_VERSION", "38.0"),
            ("IPA_HTTP_PROXY", "http://proxy.example"),
            ("POD_IP", "2001:db8::1"),
            ("FEATURE_GATES", "Overrides=true,HighAvailability=false"),
        ])
        .unwrap();
        assert_eq!(settings.service_image, "registry.example/ferrite:1");
        assert_eq!(
            settings.ramdisk_downloader_image.as_deref(),
            Some("registry.example/downloader:1")
        );
        assert_eq!(settings.keepalived_image, KEEPALIVED_IMAGE);
        assert_eq!(settings.rules.versions.default.to_string(), "38.0");
        assert_eq!(
            settings.downloader_environment,
            [("HTTP_PROXY".to_owned(), "http://proxy.example".to_owned())]
        );
        assert!(settings.has_ipv6_addresses);
        assert!(!settings.rules.allows_high_availability);
    }

    #[test]
    fn replicas_are_allowed_by_default() {
        let settings = read(&[]).unwrap();
        assert!(settings.rules.allows_high_availability);
        assert!(settings.service_image.starts_with("quay.io/ferrite/ferrite:"));
        assert!(read(&[("IRONIC_VERSION", "newest")]).is_err());
    }
}
