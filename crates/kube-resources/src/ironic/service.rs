// SPDX-License-Identifier: Apache-2.0
//! `Ironic`: an installation of the service, with its network, certificates and database.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::database::{DatabaseStorage, LocalReference};
use super::networking::IronicNetworking;
use super::overrides::IronicOverrides;
use crate::kind::namespaced_kind;
use crate::optional::{is_default, is_false, non_empty, null_is_default};
use crate::text_enum::text_enum;

namespaced_kind! {
    /// An installation of the service.
    pub struct Ironic in "ironic.metal3.io" / "v1alpha1", plural "ironics" {
        spec: IronicSpec,
        status: IronicStatus,
    }
}

/// Requested state of an installation. Every field is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IronicSpec {
    /// Secret with the user name and password of the API. The operator generates one if it is
    /// missing, and writes its name here.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub api_credentials_name: Option<String>,
    /// Scheduling constraints of the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Map<String, Value>>,
    /// A MariaDB server that is managed elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseConnection>,
    /// An `IronicDatabase` of the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database_ref: Option<LocalReference>,
    /// The ramdisk that machines boot.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub deploy_ramdisk: DeployRamdiskSettings,
    /// Options of Ironic's configuration file.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub extra_config: Vec<ExtraConfigOption>,
    /// Whether one replica runs on each control-plane node.
    #[serde(skip_serializing_if = "is_false", deserialize_with = "null_is_default")]
    pub high_availability: bool,
    /// Container images.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub images: IronicImages,
    /// In-band inspection.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub inspection: IronicInspection,
    /// Addresses, ports and DHCP.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub networking: IronicNetworking,
    /// Management of top-of-rack switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networking_service: Option<NetworkingServiceSettings>,
    /// Labels of the nodes on which pods run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Changes of the generated objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overrides: Option<IronicOverrides>,
    /// Metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus_exporter: Option<PrometheusExporterSettings>,
    /// Volume of the embedded database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<DatabaseStorage>,
    /// Certificates.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub tls: IronicTls,
    /// Taints of nodes that the pods tolerate.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub tolerations: Vec<Map<String, Value>>,
    /// Version to install; by default that of the operator.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub version: Option<String>,
}

impl IronicSpec {
    /// Whether the state is in a database server, and not on a volume of the pod.
    #[must_use]
    pub fn has_database(&self) -> bool {
        self.database.is_some() || self.database_ref.is_some()
    }

    /// Whether the API uses TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.tls.certificate_name.is_some() || self.tls.generate
    }
}

/// A MariaDB server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DatabaseConnection {
    /// Secret with `username` and `password`.
    pub credentials_name: String,
    /// Host name or address.
    pub host: String,
    /// Name of the database.
    pub name: String,
    /// Secret whose `tls.crt` verifies the server.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub tls_certificate_name: Option<String>,
}

/// The ramdisk that machines boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeployRamdiskSettings {
    /// Whether the init container that downloads a ramdisk is left out.
    #[serde(skip_serializing_if = "is_false", deserialize_with = "null_is_default")]
    pub disable_downloader: bool,
    /// More kernel parameters.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub extra_kernel_params: Option<String>,
    /// Public key that may log in to the ramdisk.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub ssh_key: Option<String>,
}

/// An option of Ironic's configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExtraConfigOption {
    /// Section; `DEFAULT` if missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub group: Option<String>,
    /// Name. An option without name or value is ignored.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub name: Option<String>,
    /// Value.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub value: Option<String>,
}

/// Container images; by default those of the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IronicImages {
    /// Branch of the ramdisk that is downloaded.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub deploy_ramdisk_branch: Option<String>,
    /// Image that downloads the ramdisk.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub deploy_ramdisk_downloader: Option<String>,
    /// Image of the service.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub ironic: Option<String>,
    /// Image of keepalived.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub keepalived: Option<String>,
}

/// In-band inspection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IronicInspection {
    /// Collectors that the agent runs.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub collectors: Vec<String>,
    /// Interfaces on which the agent creates VLAN interfaces.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub vlan_interfaces: Vec<String>,
}

/// Management of top-of-rack switches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkingServiceSettings {
    /// Whether it is installed.
    #[serde(deserialize_with = "null_is_default")]
    pub enabled: bool,
    /// Networks that nodes are connected to.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub provider_networks: Vec<ProviderNetwork>,
    /// Secret with the configuration of switches.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub switch_config_secret_name: Option<String>,
    /// Secret with the credentials of switches.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub switch_credentials_secret_name: Option<String>,
}

/// A network that nodes are connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProviderNetwork {
    /// When nodes are connected to it.
    #[serde(rename = "type")]
    pub network_type: ProviderNetworkType,
    /// Mode of the switch port.
    pub mode: SwitchportMode,
    /// VLAN of untagged frames.
    #[serde(rename = "nativeVLAN")]
    pub native_vlan: i32,
    /// VLANs of tagged frames: numbers and ranges such as `100-200`.
    #[serde(
        rename = "allowedVLANs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub allowed_vlans: Vec<String>,
    /// MTU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i32>,
}

text_enum! {
    /// When nodes are connected to a network.
    pub enum ProviderNetworkType {
        /// Between jobs.
        Idle = "idle",
        /// During inspection.
        Inspection = "inspection",
        /// During cleaning.
        Cleaning = "cleaning",
        /// During rescue.
        Rescuing = "rescuing",
        /// During service.
        Servicing = "servicing",
        /// During a deployment.
        Provisioning = "provisioning",
    }
}

impl Default for ProviderNetworkType {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

text_enum! {
    /// Mode of a switch port.
    pub enum SwitchportMode {
        /// One VLAN.
        Access = "access",
        /// Tagged VLANs.
        Trunk = "trunk",
        /// Tagged VLANs and a native one.
        Hybrid = "hybrid",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro derives no Default")]
impl Default for SwitchportMode {
    fn default() -> Self {
        Self::Access
    }
}

/// Metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PrometheusExporterSettings {
    /// Address to listen on; all if missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub bind_address: Option<String>,
    /// Whether no ServiceMonitor is created.
    #[serde(skip_serializing_if = "is_false", deserialize_with = "null_is_default")]
    pub disable_service_monitor: bool,
    /// Whether metrics are served.
    #[serde(deserialize_with = "null_is_default")]
    pub enabled: bool,
    /// Seconds between two readings of sensors; 60 if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sensor_collection_interval: Option<i64>,
}

/// Certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IronicTls {
    /// CA certificates that verify BMCs.
    #[serde(rename = "bmcCA", skip_serializing_if = "Option::is_none")]
    pub bmc_ca: Option<CaReference>,
    /// Older form of `bmcCA`: name of a Secret.
    #[serde(
        rename = "bmcCAName",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub bmc_ca_name: Option<String>,
    /// Secret with the certificate and key of the API. No TLS if missing, unless `generate` is set.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub certificate_name: Option<String>,
    /// Whether virtual media is served over plain HTTP.
    #[serde(
        rename = "disableVirtualMediaTLS",
        skip_serializing_if = "is_false",
        deserialize_with = "null_is_default"
    )]
    pub disable_virtual_media_tls: bool,
    /// Whether the operator issues and renews a certificate with a CA of its own.
    #[serde(skip_serializing_if = "is_false", deserialize_with = "null_is_default")]
    pub generate: bool,
    /// Whether replicas do not verify each other's certificates.
    #[serde(rename = "insecureRPC", skip_serializing_if = "Option::is_none")]
    pub insecure_rpc: Option<bool>,
    /// CA certificates that verify image servers.
    #[serde(rename = "trustedCA", skip_serializing_if = "Option::is_none")]
    pub trusted_ca: Option<CaReference>,
    /// Older form of `trustedCA`: name of a ConfigMap.
    #[serde(
        rename = "trustedCAName",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub trusted_ca_name: Option<String>,
}

impl IronicTls {
    /// CA certificates that verify BMCs, from either form.
    #[must_use]
    pub fn effective_bmc_ca(&self) -> Option<CaReference> {
        effective_ca(self.bmc_ca.as_ref(), self.bmc_ca_name.as_ref(), CaKind::Secret)
    }

    /// CA certificates that verify image servers, from either form.
    #[must_use]
    pub fn effective_trusted_ca(&self) -> Option<CaReference> {
        effective_ca(self.trusted_ca.as_ref(), self.trusted_ca_name.as_ref(), CaKind::ConfigMap)
    }
}

fn effective_ca(
    reference: Option<&CaReference>,
    name: Option<&String>,
    kind: CaKind,
) -> Option<CaReference> {
    reference.cloned().or_else(|| Some(CaReference { name: name?.clone(), kind, key: None }))
}

/// A Secret or ConfigMap with CA certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaReference {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: CaKind,
    /// The key to use. Only for image servers; by default the first one.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub key: Option<String>,
}

text_enum! {
    /// Kind of an object with CA certificates.
    pub enum CaKind {
        /// A ConfigMap.
        ConfigMap = "ConfigMap",
        /// A Secret.
        Secret = "Secret",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro derives no Default")]
impl Default for CaKind {
    fn default() -> Self {
        Self::ConfigMap
    }
}

/// Observed state of an installation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IronicStatus {
    /// Ramdisks that machines boot.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub agent_ramdisks: Vec<AgentRamdiskStatus>,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
    /// Version that was ready last.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub installed_version: Option<String>,
    /// Version that is being installed or is installed.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub requested_version: Option<String>,
}

/// A ramdisk that machines boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentRamdiskStatus {
    /// CPU architecture; empty for machines of all other architectures.
    pub architecture: String,
    /// Checksum of the initial file system, such as `sha256:…`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub checksum: Option<String>,
    /// Version of the ramdisk, if it is one of Ferrite.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub version: Option<String>,
}
