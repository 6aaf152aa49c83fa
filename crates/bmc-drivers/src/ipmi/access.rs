// SPDX-License-Identifier: Apache-2.0
//! Where a machine's BMC is and how to enter it: the `ipmi_…` keys of `driver_info`.

use ipmi::{Bridging, CipherSuite, Credentials, CredentialsError, Endpoint, Hop, Privilege};
use serde_json::{Map, Value};

use super::settings::IpmiSettings;
use crate::{Error, Property};

/// The keys of `driver_info` that every IPMI interface reads.
pub(super) const PROPERTIES: &[Property] = &[
    ("ipmi_address", "Where the BMC is: an IP address or a host name. Required."),
    ("ipmi_port", "The UDP port of the BMC; 623 if not given."),
    ("ipmi_username", "The user to sign in as; the anonymous user if not given."),
    ("ipmi_password", "The password of that user; empty if not given."),
    ("ipmi_hex_kg_key", "The BMC's own key (Kg) in hexadecimal, where it has one."),
    (
        "ipmi_priv_level",
        "The privilege to work with: ADMINISTRATOR (if not given), OPERATOR, USER or CALLBACK.",
    ),
    ("ipmi_cipher_suite", "The cipher suite: 17 or 3. Found out if not given; 17 is preferred."),
    ("ipmi_protocol_version", "The version of IPMI; only '2.0', which it is if not given."),
    (
        "ipmi_bridging",
        "How many other controllers lie between the BMC and the one meant: 'no' (if not given), \
         'single' or 'dual'.",
    ),
    ("ipmi_local_address", "Our own address on the bus behind the BMC. Optional; for bridging."),
    ("ipmi_target_channel", "The channel of the controller that is meant. Needed for bridging."),
    ("ipmi_target_address", "The address of the controller that is meant. Needed for bridging."),
    ("ipmi_transit_channel", "The channel of the controller on the way. Needed for dual bridging."),
    ("ipmi_transit_address", "The address of the controller on the way. Needed for dual bridging."),
    (
        "ipmi_force_boot_device",
        "Whether the BMC forgets its boot device, so that it must be told again at every power on. \
         False if not given.",
    ),
    (
        "ipmi_disable_boot_timeout",
        "Whether to keep the BMC from forgetting a boot device after a minute. As configured \
         (ipmi.disable_boot_timeout) if not given.",
    ),
];

/// The key that only the console reads.
pub(super) const TERMINAL_PORT: Property = (
    "ipmi_terminal_port",
    "The TCP port to serve the console at. One of console.port_range if not given.",
);

/// Where a machine's BMC is, how to enter it, and what is particular about it.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) endpoint: Endpoint,
    pub(super) force_boot_device: bool,
    pub(super) disable_boot_timeout: bool,
    pub(super) terminal_port: Option<u16>,
}

impl Access {
    /// Reads and checks the keys; asks nobody.
    pub(super) fn read(
        driver_info: &Map<String, Value>,
        settings: &IpmiSettings,
    ) -> Result<Self, Error> {
        let info = Info(driver_info);
        let address = info.text("ipmi_address")?.filter(|address| !address.is_empty());
        let Some(address) = address else {
            return Err(Error::missing(
                key("ipmi_address"),
                "say where the BMC is, such as 10.0.0.5",
            ));
        };
        check_address(&address)?;
        let suite = info.number("ipmi_cipher_suite", 0..=255)?;
        check_version(&info, suite)?;
        let endpoint = Endpoint {
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

/// How messages name a key of `driver_info`.
pub(super) fn key(name: &str) -> String {
    format!("driver_info/{name}")
}

/// What a user may mean by true or false.
pub(super) fn read_flag(value: &Value) -> Option<bool> {
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
struct Info<'a>(&'a Map<String, Value>);

impl Info<'_> {
    fn text(&self, name: &str) -> Result<Option<String>, Error> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                Err(Error::invalid(key(name), "it must be a string"))
            }
        }
    }

    /// A number in decimal, or in hexadecimal with `0x` before it.
    fn number<T: TryFrom<u32>>(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Result<Option<T>, Error> {
        let Some(text) = self.text(name)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        let number = parse_number(&text).filter(|number| range.contains(number));
        match number.and_then(|number| T::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(Error::invalid(
                key(name),
                format!("'{text}' is not a number from {} to {}", range.start(), range.end()),
            )),
        }
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, Error> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match read_flag(value) {
                Some(flag) => Ok(Some(flag)),
                None => Err(Error::invalid(key(name), "use true or false")),
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

fn check_address(address: &str) -> Result<(), Error> {
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
    Err(Error::invalid(
        key("ipmi_address"),
        format!(
            "'{address}' is neither an IP address nor a host name; a port belongs in ipmi_port"
        ),
    ))
}

fn check_version(info: &Info<'_>, suite: Option<u8>) -> Result<(), Error> {
    const NAME: &str = "ipmi_protocol_version";
    match info.text(NAME)?.as_deref() {
        None | Some("2.0") => Ok(()),
        Some("1.5") if suite.is_some() => Err(Error::invalid(
            key("ipmi_cipher_suite"),
            "there are no cipher suites in IPMI 1.5; remove ipmi_protocol_version, which makes \
             it 2.0",
        )),
        Some("1.5") => Err(Error::invalid(
            key(NAME),
            "IPMI 1.5 sends passwords and commands so that others can read them, and is not \
             spoken here; use '2.0', which all BMCs since 2004 have",
        )),
        Some(other) => Err(Error::invalid(key(NAME), format!("there is no '{other}'; use '2.0'"))),
    }
}

fn credentials(info: &Info<'_>) -> Result<Credentials, Error> {
    let username = info.text("ipmi_username")?.unwrap_or_default();
    let password = info.text("ipmi_password")?.unwrap_or_default();
    let kg = info.text("ipmi_hex_kg_key")?.map(|text| hex(&text)).transpose()?;
    Credentials::new(username.as_bytes(), password.as_bytes(), kg.as_deref()).map_err(|error| {
        let name = match error {
            CredentialsError::Username => "ipmi_username",
            CredentialsError::Password => "ipmi_password",
            CredentialsError::Kg => "ipmi_hex_kg_key",
        };
        Error::invalid(key(name), error.to_string())
    })
}

fn hex(text: &str) -> Result<Vec<u8>, Error> {
    let invalid = |why: &str| Error::invalid(key("ipmi_hex_kg_key"), why);
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

fn privilege(info: &Info<'_>) -> Result<Privilege, Error> {
    let Some(name) = info.text("ipmi_priv_level")? else { return Ok(Privilege::Administrator) };
    let found = Privilege::ALL.into_iter().find(|privilege| privilege.as_str() == name);
    found.ok_or_else(|| {
        let names = Privilege::ALL.map(Privilege::as_str).join(", ");
        Error::invalid(key("ipmi_priv_level"), format!("'{name}' is none of {names}"))
    })
}

fn cipher_suite(number: u8) -> Result<CipherSuite, Error> {
    CipherSuite::numbered(number).ok_or_else(|| {
        Error::invalid(
            key("ipmi_cipher_suite"),
            format!(
                "{number} is not spoken here; use 17 or 3, or remove the key to find out which of \
                 them the BMC has"
            ),
        )
    })
}

fn bridging(info: &Info<'_>) -> Result<Option<Bridging>, Error> {
    const NAME: &str = "ipmi_bridging";
    let kind = info.text(NAME)?;
    let is_dual = match kind.as_deref() {
        None | Some("no" | "") => return Ok(None),
        Some("single") => false,
        Some("dual") => true,
        Some(other) => {
            let why = format!("'{other}' is none of 'no', 'single' and 'dual'");
            return Err(Error::invalid(key(NAME), why));
        }
    };
    let needed = |name: &str, range| -> Result<u8, Error> {
        info.number(name, range)?.ok_or_else(|| {
            let kind = if is_dual { "dual" } else { "single" };
            Error::missing(key(name), format!("{kind} bridging needs it"))
        })
    };
    let hop = |channel: &str, address: &str| -> Result<Hop, Error> {
        Ok(Hop { channel: needed(channel, 0..=15)?, address: needed(address, 0..=255)? })
    };
    let target = hop("ipmi_target_channel", "ipmi_target_address")?;
    let transit =
        is_dual.then(|| hop("ipmi_transit_channel", "ipmi_transit_address")).transpose()?;
    let way = Bridging::to(target);
    let local_address = info.number("ipmi_local_address", 0..=255)?.unwrap_or(way.local_address);
    Ok(Some(Bridging { local_address, transit, ..way }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(info: Value) -> Result<Access, String> {
        let Value::Object(info) = info else { panic!("an object") };
        Access::read(&info, &IpmiSettings::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_node_says_where_its_bmc_is() {
        let access = read(json!({
            "ipmi_address": "bmc7.example", "ipmi_port": "6230", "ipmi_username": "admin",
            "ipmi_password": "secret", "ipmi_priv_level": "OPERATOR", "ipmi_cipher_suite": 17,
            "ipmi_hex_kg_key": "0a0B0c", "ipmi_protocol_version": "2.0",
            "ipmi_bridging": "dual", "ipmi_target_channel": "8", "ipmi_target_address": "0x72",
            "ipmi_transit_channel": 7, "ipmi_transit_address": "130",
            "ipmi_force_boot_device": "True", "ipmi_disable_boot_timeout": false,
            "ipmi_terminal_port": 10023,
        }))
        .unwrap();
        let hop = |channel, address| Hop { channel, address };
        let endpoint = access.endpoint;
        assert_eq!((endpoint.address.as_str(), endpoint.port), ("bmc7.example", 6230));
        assert_eq!(
            endpoint.credentials,
            Credentials::new(b"admin", b"secret", Some(&[10, 11, 12])).unwrap()
        );
        assert_eq!(endpoint.privilege, Privilege::Operator);
        assert_eq!(endpoint.cipher_suite, Some(CipherSuite::Seventeen));
        let way = endpoint.bridging.unwrap();
        assert_eq!((way.target, way.transit), (hop(8, 0x72), Some(hop(7, 0x82))));
        assert_eq!(way.local_address, 0x20);
        assert!(access.force_boot_device && !access.disable_boot_timeout);
        assert_eq!(access.terminal_port, Some(10_023));
    }

    #[test]
    fn only_the_address_is_needed() {
        let access = read(json!({"ipmi_address": "::1"})).unwrap();
        assert_eq!((access.endpoint.port, access.endpoint.cipher_suite), (623, None));
        assert_eq!(access.endpoint.privilege, Privilege::Administrator);
        assert!(access.disable_boot_timeout && !access.force_boot_device);
    }

    #[test]
    fn mistakes_are_named_with_what_to_do() {
        for (info, name, words) in [
            (json!({}), "ipmi_address", "where the BMC is"),
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
            let error = read(info.clone()).unwrap_err();
            assert!(error.contains(name) && error.contains(words), "{info}: {error}");
            assert!(!error.contains("thirty"), "a password was told: {error}");
        }
    }
}
