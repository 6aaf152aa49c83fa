// SPDX-License-Identifier: Apache-2.0
//! The address of the service: from the spec, found by the service itself, or that of the node or pod.

use std::net::IpAddr;

use kube_resources::ironic::service::IronicSpec;
use serde_json::json;
use toml::Value;

use super::configuration::ServiceConfiguration;
use super::{DesiredInput, dhcp};

/// Variable with the address of the node or pod.
const POD_ADDRESS_VARIABLE: &str = "IRONIC_IP";
/// Seconds until which the address has to appear, as in Metal3's image. keepalived assigns it when the
/// pod already runs.
pub(super) const ADDRESS_TIMEOUT: u16 = 1200;

/// Where the configuration gets the address of the service from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceAddress {
    /// The spec has it. The service waits until an interface has it.
    Given(IpAddr),
    /// The service finds it at start and replaces placeholders with it.
    Found,
    /// The address of the node, or of the pod in the pod network.
    OfPod,
}

impl ServiceAddress {
    pub(super) fn of(spec: &IronicSpec) -> Self {
        let networking = &spec.networking;
        let given = networking.ip_address.as_deref().and_then(|address| address.parse().ok());
        match given {
            Some(address) => Self::Given(address),
            None if has_interface(spec) || networking.bind_interface => Self::Found,
            None => Self::OfPod,
        }
    }

    /// Whether servers listen only on an address that is neither known here nor that of the pod.
    pub(super) fn is_bound_to_unknown(spec: &IronicSpec) -> bool {
        let networking = &spec.networking;
        networking.bind_interface && has_interface(spec) && Self::of(spec) == Self::Found
    }

    /// Whether servers listen on IPv6 addresses.
    pub(super) fn is_ipv6(self, input: &DesiredInput<'_>) -> bool {
        match (self, dhcp::provisioning_network(&input.ironic.spec)) {
            (Self::Given(address), _) => address.is_ipv6(),
            (Self::Found, Some(network)) => network.network.is_ipv6(),
            (Self::Found, None) | (Self::OfPod, _) => input.settings.has_ipv6_addresses,
        }
    }

    /// The address as text.
    pub(super) fn text(self) -> String {
        match self {
            Self::Given(address) => address.to_string(),
            Self::Found => "{provisioning_address}".to_owned(),
            Self::OfPod => format!("$({POD_ADDRESS_VARIABLE})"),
        }
    }

    /// The address in a URL or listen address. IPv6 addresses are in brackets.
    fn host(self, input: &DesiredInput<'_>) -> String {
        match self {
            Self::Given(address) => url_host(address),
            Self::Found => "{provisioning_host}".to_owned(),
            Self::OfPod if self.is_ipv6(input) => format!("[{}]", self.text()),
            Self::OfPod => self.text(),
        }
    }

    /// The host to listen on.
    pub(super) fn listen_host(self, input: &DesiredInput<'_>) -> String {
        if input.ironic.spec.networking.bind_interface {
            self.host(input)
        } else if self.is_ipv6(input) {
            "[::]".to_owned()
        } else {
            "0.0.0.0".to_owned()
        }
    }

    /// Sets a key of the section `boot` to a URL with the address.
    pub(super) fn set_boot_url(
        self,
        input: &DesiredInput<'_>,
        configuration: &mut ServiceConfiguration,
        key: &str,
        url: impl Fn(&str) -> String,
    ) {
        let url = url(&self.host(input));
        match self {
            Self::Given(_) | Self::Found => configuration.set(&format!("boot.{key}"), url),
            // Only variables can refer to other variables.
            Self::OfPod => configuration.environment.push(json!({
                "name": format!("FERRITE_BOOT__{}", key.to_uppercase()), "value": url,
            })),
        }
    }
}

/// Configures how the service finds its address, or sets the variable with that of the pod.
pub(super) fn configure(input: &DesiredInput<'_>, configuration: &mut ServiceConfiguration) {
    let spec = &input.ironic.spec;
    let networking = &spec.networking;
    let address = ServiceAddress::of(spec);
    let has_interface = has_interface(spec);
    match address {
        ServiceAddress::Given(address) => {
            configuration.set("provisioning.address", address.to_string());
        }
        ServiceAddress::Found if has_interface => {
            // The interface may have addresses on several networks.
            if let Some(network) = dhcp::provisioning_network(spec) {
                configuration.set("provisioning.network", network.to_string());
            }
        }
        ServiceAddress::Found | ServiceAddress::OfPod => {
            let field =
                if networking.disable_host_network { "status.podIP" } else { "status.hostIP" };
            configuration.environment.push(json!({
                "name": POD_ADDRESS_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": field}},
            }));
        }
    }
    if address == ServiceAddress::OfPod {
        return;
    }
    if address == ServiceAddress::Found && !has_interface {
        configuration.environment.push(json!({
            "name": "FERRITE_PROVISIONING__ADDRESS",
            "value": ServiceAddress::OfPod.text(),
        }));
    }
    if let Some(interface) = &networking.interface {
        configuration.set("provisioning.interface", interface.as_str());
    }
    if !networking.mac_addresses.is_empty() {
        let addresses = networking.mac_addresses.iter().map(|mac| mac.to_ascii_lowercase());
        configuration
            .set("provisioning.mac_addresses", addresses.map(Value::from).collect::<Vec<_>>());
    }
    configuration.set("provisioning.timeout", i64::from(ADDRESS_TIMEOUT));
}

/// Whether the spec names the interface or its MAC addresses.
fn has_interface(spec: &IronicSpec) -> bool {
    spec.networking.interface.is_some() || !spec.networking.mac_addresses.is_empty()
}

/// The address in a URL.
pub(super) fn url_host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}
