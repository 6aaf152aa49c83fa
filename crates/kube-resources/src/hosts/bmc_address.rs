// SPDX-License-Identifier: Apache-2.0
//! BMC addresses: the scheme selects driver, interfaces and capabilities.

use std::net::{Ipv4Addr, Ipv6Addr};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

/// What a scheme selects. `None` for an interface means the driver's default.
#[derive(Debug, PartialEq, Eq)]
pub struct BmcType {
    /// Scheme without `+http` or `+https`.
    pub scheme: &'static str,
    /// Ironic's hardware type.
    pub driver: &'static str,
    /// Boot interface.
    pub boot_interface: &'static str,
    /// BIOS interface.
    pub bios_interface: Option<&'static str>,
    /// Management interface.
    pub management_interface: Option<&'static str>,
    /// Power interface.
    pub power_interface: Option<&'static str>,
    /// RAID interface for hardware RAID.
    pub raid_interface: &'static str,
    /// Vendor interface.
    pub vendor_interface: Option<&'static str>,
    /// Firmware interface.
    pub firmware_interface: Option<&'static str>,
    /// Interface for inspection by the BMC; `None` if it is not supported.
    pub out_of_band_inspect_interface: Option<&'static str>,
    /// Whether the ramdisk can be booted from an ISO image.
    pub boots_iso: bool,
    /// Whether the ramdisk is booted over a provisioning network.
    pub needs_provisioning_network: bool,
    /// Whether Secure Boot can be switched.
    pub supports_secure_boot: bool,
    /// Whether the MAC address of the boot NIC is always needed. All need it if inspection is
    /// disabled.
    pub needs_boot_mac: bool,
    protocol: BmcAddressProtocol,
}

/// Protocol of a BMC, which determines the fields of `driver_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BmcAddressProtocol {
    Ipmi,
    /// The system is found automatically if the path does not name one.
    Redfish,
    /// `redfish_system_id` is always sent.
    RedfishWithSystem,
}

/// RAID interface of drivers without hardware RAID.
pub const NO_RAID: &str = "no-raid";
const IDRAC_REDFISH: Option<&str> = Some("idrac-redfish");
const DEFAULT_IPMI_PORT: u16 = 623;
const DEFAULT_PRIVILEGE_LEVEL: &str = "ADMINISTRATOR";

const IPMI: BmcType = BmcType {
    scheme: "ipmi",
    driver: "ipmi",
    boot_interface: "ipxe",
    bios_interface: None,
    management_interface: None,
    power_interface: None,
    raid_interface: NO_RAID,
    vendor_interface: None,
    firmware_interface: None,
    out_of_band_inspect_interface: None,
    boots_iso: false,
    needs_provisioning_network: true,
    supports_secure_boot: false,
    needs_boot_mac: false,
    protocol: BmcAddressProtocol::Ipmi,
};

const REDFISH: BmcType = BmcType {
    scheme: "redfish",
    driver: "redfish",
    raid_interface: "redfish",
    firmware_interface: Some("redfish"),
    out_of_band_inspect_interface: Some("redfish"),
    supports_secure_boot: true,
    protocol: BmcAddressProtocol::Redfish,
    ..IPMI
};

const REDFISH_VIRTUAL_MEDIA: BmcType = BmcType {
    scheme: "redfish-virtualmedia",
    boot_interface: "redfish-virtual-media",
    boots_iso: true,
    needs_provisioning_network: false,
    ..REDFISH
};

const IDRAC: BmcType = BmcType {
    scheme: "idrac-redfish",
    driver: "idrac",
    bios_interface: IDRAC_REDFISH,
    management_interface: IDRAC_REDFISH,
    power_interface: IDRAC_REDFISH,
    raid_interface: "idrac-redfish",
    vendor_interface: IDRAC_REDFISH,
    ..REDFISH
};

/// All schemes.
pub const BMC_TYPES: &[BmcType] = &[
    IPMI,
    BmcType { scheme: "libvirt", needs_boot_mac: true, ..IPMI },
    REDFISH,
    BmcType { scheme: "ilo5-redfish", ..REDFISH },
    IDRAC,
    REDFISH_VIRTUAL_MEDIA,
    BmcType { scheme: "ilo5-virtualmedia", ..REDFISH_VIRTUAL_MEDIA },
    BmcType {
        scheme: "idrac-virtualmedia",
        boot_interface: "idrac-redfish-virtual-media",
        boots_iso: true,
        needs_provisioning_network: false,
        ..IDRAC
    },
    BmcType {
        scheme: "redfish-uefihttp",
        boot_interface: "redfish-https",
        protocol: BmcAddressProtocol::RedfishWithSystem,
        ..REDFISH_VIRTUAL_MEDIA
    },
];

/// Why an address is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BmcAddressError {
    /// It is empty.
    #[error("is empty; set it to the URL of the BMC, such as redfish-virtualmedia://192.0.2.1")]
    Empty,
    /// The scheme has no driver.
    #[error("has the unknown scheme {scheme:?}; use one of {}", scheme_list())]
    UnknownScheme {
        /// The scheme.
        scheme: String,
    },
    /// There is no host, or it is neither an IP address nor a DNS name.
    #[error(
        "has the invalid host {host:?}; use an IP address, in brackets if it is IPv6, or a DNS name"
    )]
    InvalidHost {
        /// The host.
        host: String,
    },
    /// The port is not a number from 1 to 65535.
    #[error("has the invalid port {port:?}; use a number from 1 to 65535")]
    InvalidPort {
        /// The port.
        port: String,
    },
    /// The path has an incomplete escape sequence or is not UTF-8.
    #[error("has an invalid escape sequence in its path; write a literal % as %25")]
    InvalidPath,
}

fn scheme_list() -> String {
    let schemes: Vec<&str> = BMC_TYPES.iter().map(|bmc_type| bmc_type.scheme).collect();
    format!("{}; all but ipmi and libvirt can be followed by +http or +https", schemes.join(", "))
}

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BmcAddress {
    /// What the scheme selects.
    pub bmc_type: &'static BmcType,
    /// IP address without brackets, or DNS name.
    pub host: String,
    /// Port, if given.
    pub port: Option<u16>,
    /// Path, without escape sequences.
    pub path: String,
    transport: RedfishTransport,
    privilege_level: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RedfishTransport {
    Http,
    Https,
}

/// User name and password of a BMC. Not printable, so that it cannot be logged.
pub struct HostBmcCredentials {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
}

impl BmcAddress {
    /// Parses an address: `scheme://host[:port][/path][?query]`, or `host[:port]` for IPMI.
    pub fn parse(address: &str) -> Result<Self, BmcAddressError> {
        if address.is_empty() {
            return Err(BmcAddressError::Empty);
        }
        let (scheme, rest) = split_scheme(address);
        let scheme = scheme.to_ascii_lowercase();
        let (bmc_type, transport) =
            find_type(&scheme).ok_or(BmcAddressError::UnknownScheme { scheme })?;
        let rest = rest.split('#').next().unwrap_or(rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        // Credentials are in the Secret; those in the address are ignored.
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = split_port(authority)?;
        Ok(Self {
            bmc_type,
            host,
            port,
            path: decode_path(path)?,
            transport,
            privilege_level: query_value(query, "privilegelevel"),
        })
    }

    /// The fields of `driver_info` that the address and the credentials determine.
    #[must_use]
    pub fn driver_info(
        &self,
        credentials: &HostBmcCredentials,
        disable_certificate_verification: bool,
    ) -> Map<String, Value> {
        let HostBmcCredentials { username, password } = credentials;
        let mut info = Map::new();
        let mut set = |key: &str, value: Value| info.insert(key.to_owned(), value);
        let verify_key = match self.bmc_type.protocol {
            BmcAddressProtocol::Ipmi => {
                set("ipmi_address", json!(self.host));
                // Metal3 sends a text, and compares it with what Ironic stored.
                set("ipmi_port", json!(self.port.unwrap_or(DEFAULT_IPMI_PORT).to_string()));
                set("ipmi_username", json!(username));
                set("ipmi_password", json!(password));
                let level = self.privilege_level.as_deref().unwrap_or(DEFAULT_PRIVILEGE_LEVEL);
                set("ipmi_priv_level", json!(level));
                "ipmi_verify_ca"
            }
            BmcAddressProtocol::Redfish | BmcAddressProtocol::RedfishWithSystem => {
                set("redfish_address", json!(self.redfish_url()));
                set("redfish_username", json!(username));
                set("redfish_password", json!(password));
                if let Some(system) = self.redfish_system() {
                    set("redfish_system_id", json!(system));
                }
                "redfish_verify_ca"
            }
        };
        if disable_certificate_verification {
            set(verify_key, json!(false));
        }
        info
    }

    /// What selects the machine. Addresses with the same value lead to the same machine, whatever the way in
    /// which it boots; those of different protocols cannot be compared.
    #[must_use]
    pub fn machine(&self) -> String {
        let host = self.host.to_ascii_lowercase();
        match self.bmc_type.protocol {
            BmcAddressProtocol::Ipmi => {
                format!("ipmi {host} {}", self.port.unwrap_or(DEFAULT_IPMI_PORT))
            }
            BmcAddressProtocol::Redfish | BmcAddressProtocol::RedfishWithSystem => {
                let default_port = match self.transport {
                    RedfishTransport::Http => 80,
                    RedfishTransport::Https => 443,
                };
                let system = self.redfish_system().unwrap_or_default().trim_matches('/');
                format!("redfish {host} {} {system}", self.port.unwrap_or(default_port))
            }
        }
    }

    /// Root URL of the Redfish service.
    fn redfish_url(&self) -> String {
        let scheme = match self.transport {
            RedfishTransport::Http => "http",
            RedfishTransport::Https => "https",
        };
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        }
    }

    /// The path of the system. Without one, Ironic uses the only system of the BMC.
    fn redfish_system(&self) -> Option<&str> {
        let names_system = !matches!(self.path.trim_matches('/'), "" | "redfish/v1");
        let is_sent =
            names_system || self.bmc_type.protocol == BmcAddressProtocol::RedfishWithSystem;
        is_sent.then_some(&self.path)
    }
}

/// Separates the scheme. Without a known one, the address is a host for IPMI.
fn split_scheme(address: &str) -> (&str, &str) {
    if let Some(parts) = address.split_once("://") {
        return parts;
    }
    match address.split_once(':') {
        Some((scheme, rest)) if find_type(&scheme.to_ascii_lowercase()).is_some() => (scheme, rest),
        _ => (IPMI.scheme, address),
    }
}

fn find_type(scheme: &str) -> Option<(&'static BmcType, RedfishTransport)> {
    let (name, transport) = match scheme.split_once('+') {
        Some((name, "http")) => (name, Some(RedfishTransport::Http)),
        Some((name, "https")) => (name, Some(RedfishTransport::Https)),
        Some(_) => return None,
        None => (scheme, None),
    };
    let bmc_type = BMC_TYPES.iter().find(|bmc_type| bmc_type.scheme == name)?;
    match (bmc_type.protocol, transport) {
        (BmcAddressProtocol::Ipmi, Some(_)) => None,
        (_, transport) => Some((bmc_type, transport.unwrap_or(RedfishTransport::Https))),
    }
}

/// Separates and checks host and port.
fn split_port(authority: &str) -> Result<(String, Option<u16>), BmcAddressError> {
    let invalid_host = || BmcAddressError::InvalidHost { host: authority.to_owned() };
    if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, port) = bracketed.split_once(']').ok_or_else(invalid_host)?;
        host.parse::<Ipv6Addr>().map_err(|_| invalid_host())?;
        let port = match port {
            "" => None,
            _ => Some(port.strip_prefix(':').ok_or_else(invalid_host)?),
        };
        return Ok((host.to_owned(), parse_port(port)?));
    }
    let (host, port) = match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => return Err(invalid_host()),
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    if host.parse::<Ipv4Addr>().is_err() && !is_dns_name(host) {
        return Err(BmcAddressError::InvalidHost { host: host.to_owned() });
    }
    Ok((host.to_owned(), parse_port(port)?))
}

/// An empty port, as in `host:`, is no port.
fn parse_port(port: Option<&str>) -> Result<Option<u16>, BmcAddressError> {
    let Some(port) = port.filter(|port| !port.is_empty()) else { return Ok(None) };
    let invalid = || BmcAddressError::InvalidPort { port: port.to_owned() };
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let number = port.parse::<u16>().ok().filter(|number| is_number && *number != 0);
    number.map(Some).ok_or_else(invalid)
}

/// Labels of letters, digits and inner hyphens, at most 63 bytes each.
fn is_dns_name(name: &str) -> bool {
    name.split('.').all(|label| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

fn decode_path(path: &str) -> Result<String, BmcAddressError> {
    let mut escapes = path.split('%').skip(1);
    let is_complete = escapes.all(|after| {
        after.len() >= 2 && after.bytes().take(2).all(|byte| byte.is_ascii_hexdigit())
    });
    let decoded = percent_decode_str(path).decode_utf8();
    match (is_complete, decoded) {
        (true, Ok(path)) => Ok(path.into_owned()),
        _ => Err(BmcAddressError::InvalidPath),
    }
}

fn query_value(query: &str, key: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| *name == key)?;
    Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests;
