// SPDX-License-Identifier: Apache-2.0
//! Rules for addresses, ports, URLs and the host network.

use std::net::IpAddr;

use super::super::service::IronicSpec;
use super::required;
use crate::field_error::FieldError;

pub(super) fn check(spec: &IronicSpec) -> Vec<FieldError> {
    let networking = &spec.networking;
    let mut errors = Vec::new();
    errors.extend(host_network(spec));
    for (path, address) in [
        ("spec.networking.ipAddress", &networking.ip_address),
        ("spec.networking.externalIP", &networking.external_ip),
    ] {
        errors.extend(address.as_deref().and_then(|address| ip_address(path, address)));
    }
    errors.extend(external_address(spec));
    errors.extend(external_urls(spec));
    errors.extend(required(
        !spec.high_availability || networking.ip_address.is_none(),
        "spec.networking.ipAddress",
        "cannot be used with highAvailability, where each node has its own address; use interface or \
         macAddresses",
    ));
    errors.extend(ports(spec));
    errors.extend(mac_addresses(&networking.mac_addresses));
    errors
}

/// Checks one address.
pub(super) fn ip_address(path: &str, address: &str) -> Option<FieldError> {
    required(
        address.parse::<IpAddr>().is_ok(),
        path,
        format!("{address:?} is not an IP address; use one such as 192.0.2.1 or 2001:db8::1"),
    )
}

/// In the pod network there are no interfaces of the node.
fn host_network(spec: &IronicSpec) -> Vec<FieldError> {
    let networking = &spec.networking;
    if !networking.disable_host_network {
        return Vec::new();
    }
    let used = [
        ("bindInterface", networking.bind_interface),
        ("dhcp", networking.dhcp.is_some()),
        ("interface", networking.interface.is_some()),
        ("ipAddress", networking.ip_address.is_some()),
        ("macAddresses", !networking.mac_addresses.is_empty()),
        ("ipAddressManager", networking.ip_address_manager.is_some()),
        ("keepalived", networking.keepalived.as_ref().is_some_and(|keepalived| keepalived.enabled)),
    ];
    used.iter()
        .filter(|(_, is_used)| *is_used)
        .map(|(field, _)| {
            FieldError::new(
                format!("spec.networking.{field}"),
                "needs the host network; remove it, or set disableHostNetwork to false",
            )
        })
        .collect()
}

/// There is one address for clients on other networks.
fn external_address(spec: &IronicSpec) -> Vec<FieldError> {
    let networking = &spec.networking;
    if networking.external_ip.is_none() {
        return Vec::new();
    }
    let used = [
        ("ingress", networking.ingress.is_some()),
        ("externalCallbackURL", networking.external_callback_url.is_some()),
        ("imageServerExternalURL", networking.image_server_external_url.is_some()),
    ];
    used.iter()
        .filter(|(_, is_used)| *is_used)
        .map(|(field, _)| {
            FieldError::new(
                "spec.networking.externalIP",
                format!("cannot be combined with {field}; remove one of them"),
            )
        })
        .collect()
}

/// Agents need the API, BMCs the image server.
fn external_urls(spec: &IronicSpec) -> Vec<FieldError> {
    let networking = &spec.networking;
    let mut errors = Vec::new();
    let urls = [
        ("externalCallbackURL", &networking.external_callback_url),
        ("imageServerExternalURL", &networking.image_server_external_url),
    ];
    for (field, url) in urls {
        if let Some(url) = url {
            errors.extend(http_url(&format!("spec.networking.{field}"), url));
        }
    }
    if networking.ingress.is_none() {
        let [(first_field, first), (second_field, second)] = urls;
        let missing = match (first, second) {
            (Some(_), None) => Some((second_field, first_field)),
            (None, Some(_)) => Some((first_field, second_field)),
            _ => None,
        };
        errors.extend(missing.map(|(missing, given)| {
            FieldError::new(
                format!("spec.networking.{missing}"),
                format!("is missing; {given} needs it unless there is an ingress"),
            )
        }));
    }
    errors
}

fn http_url(path: &str, url: &str) -> Option<FieldError> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let is_valid = host.is_some_and(|host| !host.is_empty())
        && !url.chars().any(|character| character.is_control() || character == ' ');
    required(
        is_valid,
        path,
        format!("{url:?} is not an http or https URL; use one such as https://ironic.example"),
    )
}

/// The schema has a minimum only, and API server and image server use different ports.
fn ports(spec: &IronicSpec) -> Vec<FieldError> {
    let networking = &spec.networking;
    let given = [
        ("apiPort", networking.api_port),
        ("imageServerPort", networking.image_server_port),
        ("imageServerTLSPort", networking.image_server_tls_port),
        ("prometheusExporterPort", networking.prometheus_exporter_port),
        ("rpcPort", networking.rpc_port),
    ];
    given
        .iter()
        .filter_map(|(field, port)| {
            let port = (*port)?;
            required(
                (1..=65535).contains(&port),
                &format!("spec.networking.{field}"),
                format!("{port} is not a port; use a number from 1 to 65535"),
            )
        })
        .collect()
}

fn mac_addresses(addresses: &[String]) -> Vec<FieldError> {
    let check = |(index, address): (usize, &String)| {
        required(
            is_mac_address(address),
            &format!("spec.networking.macAddresses[{index}]"),
            format!("{address:?} is not a MAC address; use six octets such as 00:53:00:12:34:56"),
        )
    };
    addresses.iter().enumerate().filter_map(check).collect()
}

/// Whether the text is six octets, separated by colons.
pub(super) fn is_mac_address(text: &str) -> bool {
    let octets: Vec<&str> = text.split(':').collect();
    let is_octet =
        |octet: &&str| octet.len() == 2 && octet.bytes().all(|byte| byte.is_ascii_hexdigit());
    octets.len() == 6 && octets.iter().all(is_octet)
}
