// SPDX-License-Identifier: Apache-2.0
//! Addresses, ports, DHCP and ingress of an `Ironic`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::optional::{is_false, non_empty, null_is_default};
use crate::text_enum::text_enum;

/// Addresses, ports and DHCP. Missing ports have [defaults](super::defaults).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IronicNetworking {
    /// Port of the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_port: Option<i32>,
    /// Whether servers listen only on the provisioning interface.
    #[serde(skip_serializing_if = "is_false", deserialize_with = "null_is_default")]
    pub bind_interface: bool,
    /// DHCP; absent if another server provides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<IronicDhcp>,
    /// Whether pods use the pod network. Machines then boot from virtual media only.
    #[serde(skip_serializing_if = "is_false", deserialize_with = "null_is_default")]
    pub disable_host_network: bool,
    /// URL of the API for agents that were booted from virtual media.
    #[serde(
        rename = "externalCallbackURL",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub external_callback_url: Option<String>,
    /// Address of the API and the image server for BMCs and agents on other networks.
    #[serde(
        rename = "externalIP",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub external_ip: Option<String>,
    /// URL of the image server for BMCs.
    #[serde(
        rename = "imageServerExternalURL",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub image_server_external_url: Option<String>,
    /// Port of the image server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_server_port: Option<i32>,
    /// Port of the image server with TLS.
    #[serde(rename = "imageServerTLSPort", skip_serializing_if = "Option::is_none")]
    pub image_server_tls_port: Option<i32>,
    /// Access through an ingress controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IronicIngress>,
    /// Provisioning interface.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub interface: Option<String>,
    /// Address on the provisioning interface.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub ip_address: Option<String>,
    /// Older form of `keepalived`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub ip_address_manager: Option<IpAddressManager>,
    /// Virtual addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalived: Option<KeepalivedSettings>,
    /// MAC addresses of the provisioning interfaces of nodes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub mac_addresses: Vec<String>,
    /// Port of metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus_exporter_port: Option<i32>,
    /// Port of calls between replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc_port: Option<i32>,
}

/// DHCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IronicDhcp {
    /// DNS server for machines.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub dns_address: Option<String>,
    /// Networks that are served through relays.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub extra_ranges: Vec<DhcpExtraRange>,
    /// Default gateway for machines.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub gateway_address: Option<String>,
    /// Static reservations in dnsmasq's notation, such as `00:53:00:12:34:56,192.0.2.7`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub hosts: Vec<String>,
    /// Machines that get no reply.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub ignore: Vec<String>,
    /// The provisioning network.
    #[serde(
        rename = "networkCIDR",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub network_cidr: Option<String>,
    /// First address for machines; derived from the network if missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub range_begin: Option<String>,
    /// Last address for machines; derived from the network if missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub range_end: Option<String>,
    /// Whether the service is the DNS server for machines.
    #[serde(
        rename = "serveDNS",
        skip_serializing_if = "is_false",
        deserialize_with = "null_is_default"
    )]
    pub serve_dns: bool,
}

/// A network that is served through a relay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DhcpExtraRange {
    /// Default gateway for machines.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub gateway_address: Option<String>,
    /// The network.
    #[serde(rename = "networkCIDR")]
    pub network_cidr: String,
    /// First address for machines.
    pub range_begin: String,
    /// Last address for machines.
    pub range_end: String,
}

/// Access through an ingress controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IronicIngress {
    /// Annotations for the controller.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub annotations: BTreeMap<String, String>,
    /// Host name.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub host: Option<String>,
    /// Class of the controller.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub ingress_class_name: Option<String>,
}

text_enum! {
    /// What assigns the address of the provisioning interface.
    pub enum IpAddressManager {
        /// A container with keepalived.
        Keepalived = "keepalived",
    }
}

/// Virtual addresses that keepalived assigns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KeepalivedSettings {
    /// More addresses than `ipAddress`.
    #[serde(
        rename = "additionalVIPs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub additional_vips: Vec<KeepalivedVip>,
    /// Whether keepalived runs.
    #[serde(deserialize_with = "null_is_default")]
    pub enabled: bool,
}

/// A virtual address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KeepalivedVip {
    /// Interface that gets the address.
    pub interface: String,
    /// Address.
    pub ip_address: String,
    /// Prefix length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<i32>,
}
