// SPDX-License-Identifier: Apache-2.0
//! Address, credentials and options of a machine's BMC: the `ipmi_…` keys of `driver_info`.

use drivers::{DriverError, DriverProperty};
use ipmi::{
    BridgeRoute, BridgeTarget, CipherSuite, IpmiCredentials, IpmiCredentialsError, IpmiEndpoint,
    IpmiPrivilege,
};
use serde_json::{Map, Value};

use super::settings::IpmiSettings;

/// The `driver_info` keys of all IPMI interfaces.
pub(super) const PROPERTIES: &[DriverProperty] = &[
    ("ipmi_address", "IP address or host name of the BMC. Required."),
    ("ipmi_port", "UDP port of the BMC. Optional; defaults to 623."),
    ("ipmi_username", "User name. Optional; defaults to the anonymous user."),
    ("ipmi_password", "Password. Optional; defaults to the empty password."),
    ("ipmi_hex_kg_key", "The BMC key (Kg) in hexadecimal. Optional."),
    (
        "ipmi_priv_level",
        "Privilege level: ADMINISTRATOR (the default), OPERATOR, USER or CALLBACK. Optional.",
    ),
    (
        "ipmi_cipher_suite",
        "Cipher suite: 17 or 3. Optional; detected if not given, 17 is preferred.",
    ),
    ("ipmi_protocol_version", "IPMI version; only '2.0', the default. Optional."),
    (
        "ipmi_bridging",
        "Number of controllers between the BMC and the target: 'no' (the default), 'single' or \
         'dual'. Optional.",
    ),
    (
        "ipmi_local_address",
        "Ferrite's own address on the bus behind the BMC, for bridging. Optional.",
    ),
    ("ipmi_target_channel", "Channel of the target controller. Required for bridging."),
    ("ipmi_target_address", "Address of the target controller. Required for bridging."),
    ("ipmi_transit_channel", "Channel of the transit controller. Required for dual bridging."),
    ("ipmi_transit_address", "Address of the transit controller. Required for dual bridging."),
    (
        "ipmi_force_boot_device",
        "Whether the boot device is set again before every power-on, for BMCs that lose it. \
         Optional; defaults to false.",
    ),
    (
        "ipmi_disable_boot_timeout",
        "Whether to disable the timeout that makes a BMC drop a boot device after one minute. \
         Optional; defaults to ipmi.disable_boot_timeout.",
    ),
];

/// The `driver_info` key of the console interface.
pub(super) const TERMINAL_PORT: DriverProperty = (
    "ipmi_terminal_port",
    "TCP port of the console. Optional; defaults to a free port of console.port_range.",
);

/// Address, credentials and options of a machine's BMC.
#[derive(Debug)]
pub(super) struct IpmiAccess {
    pub(super) endpoint: IpmiEndpoint,
    pub(super) force_boot_device: bool,
    pub(super) disable_boot_timeout: bool,
    pub(super) terminal_port: Option<u16>,
}

impl IpmiAccess {
    /// Parses and checks the keys. Sends no request.
    pub(super) fn parse(
        driver_info: &Map<String, Value>,
        settings: &IpmiSettings,
    ) -> Result<Self, DriverError> {
        let info = IpmiDriverInfo(driver_info);
        let address = info.text("ipmi_address")?.filter(|address| !address.is_empty());
        let Some(address) = address else {
            return Err(DriverError::missing(
                driver_info_key("ipmi_address"),
                "give the address of the BMC, such as 10.0.0.5",
            ));
        };
        check_address(&address)?;
        let suite = info.number("ipmi_cipher_suite", 0..=255)?;
        check_version(&info, suite)?;
        let endpoint = IpmiEndpoint {
            address,
            port: info.number("ipmi_port", 1..=65_535)?.unwrap_or(ipmi::PORT),
            credentials: credentials(&info)?,
            privilege: privilege(&info)?,
            cipher_suite: suite.map(cipher_suite).transpose()?,
            bridging: bridging(&info)?,
        };
        Ok(Self {
            endpoint,
            force_boot_device: info.flag("ipmi_force_boot_device")?.unwrap_or(false),
            disable_boot_timeout: info
                .flag("ipmi_disable_boot_timeout")?
                .unwrap_or(settings.disable_boot_timeout),
            terminal_port: info.number(TERMINAL_PORT.0, 1..=65_535)?,
        })
    }
}

/// The name of a `driver_info` key in error messages.
pub(super) fn driver_info_key(name: &str) -> String {
    format!("driver_info/{name}")
}

/// Parses a boolean, also from text.
pub(super) fn parse_flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" | "t" | "y" => Some(true),
            "false" | "no" | "off" | "0" | "f" | "n" | "" => Some(false),
            _ => None,
        },
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// `driver_info`, where values may be strings or numbers: clients send both.
struct IpmiDriverInfo<'a>(&'a Map<String, Value>);

impl IpmiDriverInfo<'_> {
    fn text(&self, name: &str) -> Result<Option<String>, DriverError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                Err(DriverError::invalid(driver_info_key(name), "it must be a string"))
            }
        }
    }

    /// A decimal number, or a hexadecimal one with the prefix `0x`.
    fn number<T: TryFrom<u32>>(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Result<Option<T>, DriverError> {
        let Some(text) = self.text(name)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        let number = parse_number(&text).filter(|number| range.contains(number));
        match number.and_then(|number| T::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(DriverError::invalid(
                driver_info_key(name),
                format!("'{text}' is not a number from {} to {}", range.start(), range.end()),
            )),
        }
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, DriverError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match parse_flag(value) {
                Some(flag) => Ok(Some(flag)),
                None => Err(DriverError::invalid(driver_info_key(name), "use true or false")),
            },
        }
    }
}

pub(super) fn parse_number(text: &str) -> Option<u32> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn check_address(address: &str) -> Result<(), DriverError> {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = address.strip_suffix('.').unwrap_or(address);
    let is_name = name.len() <= 253 && name.split('.').all(is_label);
    if is_name || address.parse::<std::net::IpAddr>().is_ok() {
        return Ok(());
    }
    Err(DriverError::invalid(
        driver_info_key("ipmi_address"),
        format!(
            "'{address}' is neither an IP address nor a host name; a port belongs in ipmi_port"
        ),
    ))
}

fn check_version(info: &IpmiDriverInfo<'_>, suite: Option<u8>) -> Result<(), DriverError> {
    const NAME: &str = "ipmi_protocol_version";
    match info.text(NAME)?.as_deref() {
        None | Some("2.0") => Ok(()),
        Some("1.5") if suite.is_some() => Err(DriverError::invalid(
            driver_info_key("ipmi_cipher_suite"),
            "IPMI 1.5 has no cipher suites; remove ipmi_protocol_version to use 2.0",
        )),
        Some("1.5") => Err(DriverError::invalid(
            driver_info_key(NAME),
            "IPMI 1.5 is not supported, because it sends passwords and commands unencrypted; use \
             '2.0', which BMCs support since 2004",
        )),
        Some(other) => Err(DriverError::invalid(
            driver_info_key(NAME),
            format!("there is no '{other}'; use '2.0'"),
        )),
    }
}

fn credentials(info: &IpmiDriverInfo<'_>) -> Result<IpmiCredentials, DriverError> {
    let username = info.text("ipmi_username")?.unwrap_or_default();
    let password = info.text("ipmi_password")?.unwrap_or_default();
    let kg = info.text("ipmi_hex_kg_key")?.map(|text| hex(&text)).transpose()?;
    IpmiCredentials::new(username.as_bytes(), password.as_bytes(), kg.as_deref()).map_err(|error| {
        let name = match error {
            IpmiCredentialsError::Username => "ipmi_username",
            IpmiCredentialsError::Password => "ipmi_password",
            IpmiCredentialsError::Kg => "ipmi_hex_kg_key",
        };
        DriverError::invalid(driver_info_key(name), error.to_string())
    })
}

fn hex(text: &str) -> Result<Vec<u8>, DriverError> {
    let invalid = |why: &str| DriverError::invalid(driver_info_key("ipmi_hex_kg_key"), why);
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if !digits.len().is_multiple_of(2) {
        return Err(invalid("it has an odd number of digits; two make a byte"));
    }
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
    bytes.ok_or_else(|| invalid("it must be hexadecimal digits, two a byte"))
}

fn privilege(info: &IpmiDriverInfo<'_>) -> Result<IpmiPrivilege, DriverError> {
    let Some(name) = info.text("ipmi_priv_level")? else { return Ok(IpmiPrivilege::Administrator) };
    let privilege = IpmiPrivilege::ALL.into_iter().find(|privilege| privilege.as_str() == name);
    privilege.ok_or_else(|| {
        let names = IpmiPrivilege::ALL.map(IpmiPrivilege::as_str).join(", ");
        DriverError::invalid(
            driver_info_key("ipmi_priv_level"),
            format!("'{name}' is none of {names}"),
        )
    })
}

fn cipher_suite(number: u8) -> Result<CipherSuite, DriverError> {
    CipherSuite::numbered(number).ok_or_else(|| {
        DriverError::invalid(
            driver_info_key("ipmi_cipher_suite"),
            format!(
                "cipher suite {number} is not supported; use 17 or 3, or remove the key to detect \
                 which one the BMC supports"
            ),
        )
    })
}

fn bridging(info: &IpmiDriverInfo<'_>) -> Result<Option<BridgeRoute>, DriverError> {
    const NAME: &str = "ipmi_bridging";
    let mode = info.text(NAME)?;
    let is_dual = match mode.as_deref() {
        None | Some("no" | "") => return Ok(None),
        Some("single") => false,
        Some("dual") => true,
        Some(other) => {
            let why = format!("'{other}' is none of 'no', 'single' and 'dual'");
            return Err(DriverError::invalid(driver_info_key(NAME), why));
        }
    };
    let required = |name: &str, range| -> Result<u8, DriverError> {
        info.number(name, range)?.ok_or_else(|| {
            let bridging = if is_dual { "dual" } else { "single" };
            DriverError::missing(driver_info_key(name), format!("{bridging} bridging needs it"))
        })
    };
    let hop = |channel: &str, address: &str| -> Result<BridgeTarget, DriverError> {
        Ok(BridgeTarget {
            channel: required(channel, 0..=15)?,
            address: required(address, 0..=255)?,
        })
    };
    let target = hop("ipmi_target_channel", "ipmi_target_address")?;
    let transit =
        is_dual.then(|| hop("ipmi_transit_channel", "ipmi_transit_address")).transpose()?;
    let route = BridgeRoute::to(target);
    let local_address = info.number("ipmi_local_address", 0..=255)?.unwrap_or(route.local_address);
    Ok(Some(BridgeRoute { local_address, transit, ..route }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse_access(info: Value) -> Result<IpmiAccess, String> {
        let Value::Object(info) = info else { panic!("an object") };
        IpmiAccess::parse(&info, &IpmiSettings::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn parses_all_keys() {
        let access = parse_access(json!({
            "ipmi_address": "bmc7.example", "ipmi_port": "6230", "ipmi_username": "admin",
            "ipmi_password": "secret", "ipmi_priv_level": "OPERATOR", "ipmi_cipher_suite": 17,
            "ipmi_hex_kg_key": "0a0B0c", "ipmi_protocol_version": "2.0",
            "ipmi_bridging": "dual", "ipmi_target_channel": "8", "ipmi_target_address": "0x72",
            "ipmi_transit_channel": 7, "ipmi_transit_address": "130",
            "ipmi_force_boot_device": "True", "ipmi_disable_boot_timeout": false,
            "ipmi_terminal_port": 10023,
        }))
        .unwrap();
        let hop = |channel, address| BridgeTarget { channel, address };
        let endpoint = access.endpoint;
        assert_eq!((endpoint.address.as_str(), endpoint.port), ("bmc7.example", 6230));
        assert_eq!(
            endpoint.credentials,
            IpmiCredentials::new(b"admin", b"secret", Some(&[10, 11, 12])).unwrap()
        );
        assert_eq!(endpoint.privilege, IpmiPrivilege::Operator);
        assert_eq!(endpoint.cipher_suite, Some(CipherSuite::Seventeen));
        let route = endpoint.bridging.unwrap();
        assert_eq!((route.target, route.transit), (hop(8, 0x72), Some(hop(7, 0x82))));
        assert_eq!(route.local_address, 0x20);
        assert!(access.force_boot_device && !access.disable_boot_timeout);
        assert_eq!(access.terminal_port, Some(10_023));
    }

    #[test]
    fn only_the_address_is_needed() {
        let access = parse_access(json!({"ipmi_address": "::1"})).unwrap();
        assert_eq!((access.endpoint.port, access.endpoint.cipher_suite), (623, None));
        assert_eq!(access.endpoint.privilege, IpmiPrivilege::Administrator);
        assert!(access.disable_boot_timeout && !access.force_boot_device);
    }

    #[test]
    fn errors_name_key_and_advice() {
        for (info, name, fragment) in [
            (json!({}), "ipmi_address", "address of the BMC"),
            (json!({"ipmi_address": ""}), "ipmi_address", "missing"),
            (json!({"ipmi_address": ["b"]}), "ipmi_address", "string"),
            (json!({"ipmi_address": "10.0.0.5:623"}), "ipmi_address", "ipmi_port"),
            (json!({"ipmi_address": "https://b"}), "ipmi_address", "host name"),
            (json!({"ipmi_address": "b;ls"}), "ipmi_address", "host name"),
            (json!({"ipmi_address": "b", "ipmi_port": 0}), "ipmi_port", "1 to 65535"),
            (json!({"ipmi_address": "b", "ipmi_port": "x"}), "ipmi_port", "'x'"),
            (
                json!({"ipmi_address": "b", "ipmi_terminal_port": 70000}),
                "ipmi_terminal_port",
                "65535",
            ),
            (
                json!({"ipmi_address": "b", "ipmi_priv_level": "ROOT"}),
                "ipmi_priv_level",
                "OPERATOR",
            ),
            (json!({"ipmi_address": "b", "ipmi_hex_kg_key": "abc"}), "ipmi_hex_kg_key", "odd"),
            (json!({"ipmi_address": "b", "ipmi_hex_kg_key": "zz"}), "ipmi_hex_kg_key", "digits"),
            (json!({"ipmi_address": "b", "ipmi_cipher_suite": "x"}), "ipmi_cipher_suite", "number"),
            (json!({"ipmi_address": "b", "ipmi_cipher_suite": 0}), "ipmi_cipher_suite", "17 or 3"),
            (
                json!({"ipmi_address": "b", "ipmi_protocol_version": "1.5"}),
                "ipmi_protocol_version",
                "'2.0'",
            ),
            (
                json!({"ipmi_address": "b", "ipmi_protocol_version": "1.5", "ipmi_cipher_suite": 3}),
                "ipmi_cipher_suite",
                "IPMI 1.5",
            ),
            (
                json!({"ipmi_address": "b", "ipmi_protocol_version": "3.0"}),
                "ipmi_protocol_version",
                "'3.0'",
            ),
            (json!({"ipmi_address": "b", "ipmi_bridging": "triple"}), "ipmi_bridging", "'dual'"),
            (
                json!({"ipmi_address": "b", "ipmi_bridging": "single"}),
                "ipmi_target_channel",
                "single",
            ),
            (
                json!({"ipmi_address": "b", "ipmi_bridging": "single", "ipmi_target_channel": 99,
                       "ipmi_target_address": 1}),
                "ipmi_target_channel",
                "0 to 15",
            ),
            (
                json!({"ipmi_address": "b", "ipmi_bridging": "dual", "ipmi_target_channel": 0,
                       "ipmi_target_address": 1}),
                "ipmi_transit_channel",
                "dual",
            ),
            (
                json!({"ipmi_address": "b", "ipmi_force_boot_device": "perhaps"}),
                "ipmi_force_boot_device",
                "true",
            ),
            (
                json!({"ipmi_address": "b", "ipmi_password": "a password of thirty letters"}),
                "ipmi_password",
                "20 bytes",
            ),
        ] {
            let error = parse_access(info.clone()).unwrap_err();
            assert!(error.contains(name) && error.contains(fragment), "{info}: {error}");
            assert!(!error.contains("thirty"), "the error contains the password: {error}");
        }
    }
}
