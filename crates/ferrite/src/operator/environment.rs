// SPDX-License-Identifier: Apache-2.0
//! Environment variables of Metal3's operators, so that their ConfigMaps can be used unchanged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use ironic_client::{ApiTarget, ClientCertificatePaths};
use operator::hosts::provisioner::ironic::IronicProvisionerSettings;
use operator::ironic::settings::IronicOperatorSettings;
use operator::ironic_connection::{InstalledIronic, IronicEndpoint, IronicLocation};
use operator::ironic_database::settings::IronicDatabaseSettings;

use super::arguments::{ControllerChoice, OperatorArguments, check_namespace};

/// Folder with the files `ironic/username` and `ironic/password`.
const CREDENTIALS: &str = "/opt/metal3/auth";
/// CA certificates, if the file exists.
const CA_FILE: &str = "/opt/metal3/certs/ca/tls.crt";
/// Variables of Metal3's operators that have no effect here.
const IGNORED: &[&str] = &[
    "IRONIC_CLIENT_CACHE_TTL",
    "IRONIC_CLIENT_TIMEOUT",
    "IRONIC_NETWORKING_ENABLED",
    "IRONIC_SKIP_CLIENT_SAN_VERIFY",
    "PROVISIONER_PLUGIN_DIR",
];

/// What the environment selects.
#[derive(Clone, Debug)]
pub(super) struct OperatorEnvironment {
    /// For the controller of installations.
    pub(super) installation: IronicOperatorSettings,
    /// For the controller of databases.
    pub(super) database: IronicDatabaseSettings,
    /// For the provisioner.
    pub(super) provisioner: IronicProvisionerSettings,
    /// The API of the provisioner.
    pub(super) ironic: IronicLocation,
    /// Hosts that are reconciled at once.
    pub(super) host_concurrency: Option<u16>,
}

impl OperatorEnvironment {
    /// Reads the variables. Fails if one is malformed; an empty one is not set.
    pub(super) fn read(
        arguments: &OperatorArguments,
        variables: &BTreeMap<String, String>,
    ) -> anyhow::Result<Self> {
        let set = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
        if arguments.runs(ControllerChoice::BareMetalHost) {
            for name in IGNORED.iter().filter(|name| set(name).is_some()) {
                tracing::warn!(variable = name, "environment variable has no effect");
            }
        }
        for name in ["IRONIC_NAMESPACE", "POD_NAMESPACE"] {
            if let Some(namespace) = set(name) {
                check_namespace(name, &namespace)?;
            }
        }
        let installation =
            IronicOperatorSettings::from_environment(set).context("IRONIC_VERSION is invalid")?;
        let database = IronicDatabaseSettings::from_environment(set);
        let ironic = location(&set, installation.cluster_domain.clone())?;
        let provisioner = IronicProvisionerSettings::from_variables(
            variables.clone(),
            arguments.build_preprov_image,
        )?;
        let host_concurrency = positive(&set, "BMO_CONCURRENCY")?;
        Ok(Self { installation, database, provisioner, ironic, host_concurrency })
    }

    /// The namespace of the installation, if a variable names it.
    pub(super) fn ironic_namespace(&self) -> Option<String> {
        match &self.ironic {
            IronicLocation::Installed(InstalledIronic { object, .. }) => {
                object.as_ref().map(|(namespace, _)| namespace.clone())
            }
            IronicLocation::Endpoint(_) => None,
        }
    }
}

fn location(
    set: &impl Fn(&str) -> Option<String>,
    cluster_domain: Option<String>,
) -> anyhow::Result<IronicLocation> {
    let object = match (set("IRONIC_NAME"), set("IRONIC_NAMESPACE")) {
        (Some(name), Some(namespace)) => Some((namespace, name)),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            bail!("set both IRONIC_NAME and IRONIC_NAMESPACE, or none of them")
        }
    };
    let Some(url) = set("IRONIC_ENDPOINT") else {
        return Ok(IronicLocation::Installed(InstalledIronic { object, cluster_domain }));
    };
    if object.is_some() {
        bail!("set IRONIC_ENDPOINT, or IRONIC_NAME and IRONIC_NAMESPACE, but not all of them");
    }
    ApiTarget::at(&url, None, None, "IRONIC_ENDPOINT").context("IRONIC_ENDPOINT is invalid")?;
    let root = set("METAL3_AUTH_ROOT_DIR").unwrap_or_else(|| CREDENTIALS.to_owned());
    let ca_file = match set("IRONIC_CACERT_FILE") {
        Some(path) => Some(PathBuf::from(path)),
        None => Some(PathBuf::from(CA_FILE)).filter(|path| path.exists()),
    };
    let path = |name: &str| set(name).map(PathBuf::from);
    let client_certificate = match (
        path("IRONIC_CLIENT_CERT_FILE"),
        path("IRONIC_CLIENT_PRIVATE_KEY_FILE"),
    ) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(ClientCertificatePaths { certificate, key }),
        (Some(_), None) | (None, Some(_)) => bail!(
            "set both IRONIC_CLIENT_CERT_FILE and IRONIC_CLIENT_PRIVATE_KEY_FILE, or none of them"
        ),
    };
    Ok(IronicLocation::Endpoint(IronicEndpoint {
        url,
        credentials: Path::new(&root).join("ironic"),
        ca_file,
        accept_any: is_true(set, "IRONIC_INSECURE")?,
        client_certificate,
    }))
}

fn is_true(set: &impl Fn(&str) -> Option<String>, name: &str) -> anyhow::Result<bool> {
    match set(name).map(|value| value.to_lowercase()).as_deref() {
        None | Some("false" | "0") => Ok(false),
        Some("true" | "1") => Ok(true),
        Some(other) => bail!("{name} is {other:?}; use true or false"),
    }
}

fn positive(set: &impl Fn(&str) -> Option<String>, name: &str) -> anyhow::Result<Option<u16>> {
    let Some(text) = set(name) else { return Ok(None) };
    match text.parse() {
        Ok(number) if number > 0 => Ok(Some(number)),
        _ => bail!("{name} is {text:?}; use a number from 1 to {}", u16::MAX),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestArguments {
        #[command(flatten)]
        operator: OperatorArguments,
    }

    fn read(variables: &[(&str, &str)]) -> anyhow::Result<OperatorEnvironment> {
        let arguments = TestArguments::parse_from(["operator"]).operator;
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        OperatorEnvironment::read(&arguments, &variables)
    }

    #[test]
    fn variables_of_metal3_select_the_api() {
        let environment = read(&[
            ("IRONIC_ENDPOINT", "https://ironic.example/v1/"),
            ("METAL3_AUTH_ROOT_DIR", "/auth"),
            ("IRONIC_CACERT_FILE", "/ca.crt"),
            ("IRONIC_INSECURE", "True"),
            ("DEPLOY_KERNEL_URL", "http://files/kernel"),
            ("DEPLOY_RAMDISK_URL", "http://files/ramdisk"),
            ("PROVISIONING_LIMIT", "7"),
            ("BMO_CONCURRENCY", ""),
        ])
        .unwrap();
        assert_eq!(
            environment.ironic,
            IronicLocation::Endpoint(IronicEndpoint {
                url: "https://ironic.example/v1/".to_owned(),
                credentials: PathBuf::from("/auth/ironic"),
                ca_file: Some(PathBuf::from("/ca.crt")),
                accept_any: true,
                client_certificate: None,
            })
        );
        assert_eq!(environment.provisioner.provisioning_limit, 7);
        assert_eq!(environment.provisioner.ramdisk.kernel.as_deref(), Some("http://files/kernel"));
        assert_eq!(environment.host_concurrency, None);
    }

    #[test]
    fn by_default_the_only_installation_is_used() {
        let installed = |object| {
            IronicLocation::Installed(InstalledIronic {
                object,
                cluster_domain: Some("cluster.local".to_owned()),
            })
        };
        let domain = ("CLUSTER_DOMAIN", "cluster.local");
        assert_eq!(read(&[domain]).unwrap().ironic, installed(None));
        let named = read(&[domain, ("IRONIC_NAME", "ironic"), ("IRONIC_NAMESPACE", "lab")]);
        let object = ("lab".to_owned(), "ironic".to_owned());
        assert_eq!(named.unwrap().ironic, installed(Some(object)));
    }

    #[test]
    fn malformed_variables_are_named() {
        for (variables, expected) in [
            (&[("IRONIC_NAME", "x")][..], "set both IRONIC_NAME and IRONIC_NAMESPACE"),
            (
                &[("IRONIC_ENDPOINT", "http://a"), ("IRONIC_NAME", "x"), ("IRONIC_NAMESPACE", "y")],
                "set IRONIC_ENDPOINT, or IRONIC_NAME and IRONIC_NAMESPACE",
            ),
            (
                &[("IRONIC_ENDPOINT", "http://a"), ("IRONIC_INSECURE", "maybe")],
                "IRONIC_INSECURE is \"maybe\"",
            ),
            (&[("IRONIC_ENDPOINT", "not-a-url")], "IRONIC_ENDPOINT is invalid"),
            (&[("IRONIC_ENDPOINT", "ironic.example:6385")], "IRONIC_ENDPOINT is invalid"),
            (&[("BMO_CONCURRENCY", "0")], "BMO_CONCURRENCY is \"0\""),
            (&[("PROVISIONING_LIMIT", "some")], "PROVISIONING_LIMIT is \"some\""),
            (&[("DEPLOY_KERNEL_URL", "x")], "only one of kernel and ramdisk is set"),
            (&[("IRONIC_VERSION", "newest")], "IRONIC_VERSION is invalid"),
            (
                &[("IRONIC_NAME", "ironic"), ("IRONIC_NAMESPACE", "Bad_ns")],
                "IRONIC_NAMESPACE: \"Bad_ns\" is not the name of a namespace",
            ),
            (&[("POD_NAMESPACE", "a.b")], "POD_NAMESPACE: \"a.b\" is not the name of a namespace"),
        ] {
            let error = read(variables).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
