// SPDX-License-Identifier: Apache-2.0
//! Requests of the ramdisk agent: lookup, heartbeat, inspection data.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "JSON has six kinds of value and will not get a seventh"
)]

use agent_protocol::Heartbeat;
use node_model::Mac;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::body::{expect_object, parse_json, strip_nul};
use crate::error::WireError;
use crate::requests::BodyMembers;
use crate::value::{SHORT_TEXT, mandatory_text, parse_uuid, text};
use crate::version::ApiVersion;

/// Maximum length of a URL, certificate or message from an agent.
const LONG_TEXT: usize = 65_535;

/// The maximum number of MAC addresses in a lookup: the NICs of one machine.
const MAX_ADDRESSES: usize = 128;

/// The query of `GET /v1/lookup`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookupQuery {
    /// The node, if the agent knows its UUID. Takes precedence over the addresses.
    pub node_uuid: Option<Uuid>,
    /// The MAC addresses of the machine's NICs. Invalid addresses are ignored.
    pub addresses: Vec<Mac>,
}

impl LookupQuery {
    /// Parses decoded query pairs.
    ///
    /// # Errors
    /// 400 if neither a node UUID nor a valid address is given, or more addresses than a machine has.
    pub fn parse(pairs: &[(String, String)]) -> Result<Self, WireError> {
        let mut lookup = Self { node_uuid: None, addresses: Vec::new() };
        let mut unknown = Vec::new();
        for (name, value) in pairs {
            match name.as_str() {
                "node_uuid" if !value.is_empty() => {
                    let id = parse_uuid(value).map_err(|p| p.in_field("node_uuid"))?;
                    lookup.node_uuid = Some(id);
                }
                "node_uuid" => {}
                "addresses" => lookup
                    .addresses
                    .extend(value.split(',').filter_map(|text| text.trim().parse::<Mac>().ok())),
                other => unknown.push(other),
            }
        }
        if !unknown.is_empty() {
            return Err(WireError::unexpected(&unknown));
        }
        if lookup.addresses.len() > MAX_ADDRESSES {
            return Err(WireError::invalid(format!(
                "'addresses' has more than {MAX_ADDRESSES} MAC addresses"
            )));
        }
        if lookup.node_uuid.is_none() && lookup.addresses.is_empty() {
            return Err(WireError::invalid(
                "At least one of 'addresses' (with a valid MAC address) and 'node_uuid' is needed \
                 to look up a node",
            ));
        }
        Ok(lookup)
    }
}

/// Parses the body of `POST /v1/heartbeat/{node}`. The caller checks the token and the URL against the
/// node.
///
/// # Errors
/// 400 for invalid members and for members of a later version, as in Ironic.
pub fn parse_heartbeat(body: &[u8], version: ApiVersion) -> Result<Heartbeat, WireError> {
    const SINCE: [(&str, u16); 4] = [
        ("agent_version", 36),
        ("agent_verify_ca", 68),
        ("agent_status", 72),
        ("agent_status_message", 72),
    ];
    let mut members = BodyMembers::parse(body, "heartbeat")?;
    for (name, since) in SINCE {
        if members.has_value(name) && !version.has(since) {
            return Err(WireError::invalid(format!(
                "{name} is not recognised before API version 1.{since}"
            )));
        }
    }
    let long = |value: Value| text(value, LONG_TEXT);
    let callback_url = members.require("callback_url", |value| match value {
        // Installers that report progress without an API send an empty URL.
        Value::String(url) if url.is_empty() => Ok(url),
        given => mandatory_text(given, LONG_TEXT),
    })?;
    let agent_version = members.take("agent_version", |value| text(value, SHORT_TEXT))?;
    let agent_token = members.take("agent_token", long)?;
    let agent_verify_ca = members.take("agent_verify_ca", long)?;
    let agent_status = members.take("agent_status", |value| text(value, SHORT_TEXT))?;
    let agent_status_message = members.take("agent_status_message", long)?;
    members.finish()?;
    check_callback_url(&callback_url)?;
    let Some(agent_token) = agent_token else {
        return Err(WireError::invalid("Agent token is required for heartbeat processing."));
    };
    if let Some(status) = &agent_status
        && !["start", "end", "error"].contains(&status.as_str())
    {
        return Err(WireError::invalid_field("agent_status", "it must be start, end or error"));
    }
    if agent_version.is_none() && agent_status.is_none() {
        return Err(WireError::invalid(
            "The agent did not send its version, which is needed; use a newer agent",
        ));
    }
    Ok(Heartbeat {
        callback_url,
        agent_token,
        agent_version,
        agent_verify_ca,
        agent_status,
        agent_status_message,
    })
}

fn check_callback_url(url: &str) -> Result<(), WireError> {
    if url.is_empty() || url.starts_with("http://") || url.starts_with("https://") {
        return Ok(());
    }
    Err(WireError::invalid_field("callback_url", "it must be an http or https URL"))
}

/// The body of `POST /v1/continue_inspection`.
#[derive(Clone, PartialEq, Debug)]
pub struct InspectionData {
    /// The MAC addresses of the machine's NICs.
    pub addresses: Vec<Mac>,
    /// The IPv4 address of the BMC, as seen from the machine.
    pub bmc_address: Option<String>,
    /// The IPv6 address of the BMC.
    pub bmc_v6address: Option<String>,
    /// The inventory.
    pub inventory: Map<String, Value>,
    /// All other members.
    pub plugin_data: Map<String, Value>,
}

impl InspectionData {
    /// Whether `version` may post data: 1.84 and later, and requests without a version header, which is
    /// how the agent sends it.
    #[must_use]
    pub fn accepted_at(version: ApiVersion) -> bool {
        version.has(84) || version == ApiVersion::MIN
    }

    /// Parses the body.
    ///
    /// # Errors
    /// 400 if there is no inventory with at least one NIC.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let parsed = parse_json(body)?;
        // Firmware may report texts with NUL characters, which must not prevent an inspection.
        let value = if parsed.may_have_nul { strip_nul(parsed.value) } else { parsed.value };
        let mut data = expect_object(value, "inspection data")?;
        let inventory = match data.remove("inventory") {
            Some(Value::Object(inventory)) => inventory,
            Some(_) => return Err(WireError::invalid_field("inventory", "expected an object")),
            None => return Err(WireError::missing("inventory")),
        };
        let interfaces = match inventory.get("interfaces") {
            Some(Value::Array(interfaces)) if !interfaces.is_empty() => interfaces,
            Some(_) => {
                return Err(WireError::invalid_field(
                    "inventory.interfaces",
                    "expected an array with at least one NIC",
                ));
            }
            None => return Err(WireError::missing("inventory.interfaces")),
        };
        let mut addresses = Vec::with_capacity(interfaces.len());
        for (index, interface) in interfaces.iter().enumerate() {
            let field = || format!("inventory.interfaces[{index}].mac_address");
            match interface.get("mac_address") {
                // Ramdisks report a NIC without a usable address with null or "".
                Some(Value::String(text)) => addresses.extend(text.parse::<Mac>().ok()),
                Some(Value::Null) => {}
                Some(_) => return Err(WireError::invalid_field(&field(), "expected a string")),
                None => return Err(WireError::missing(&field())),
            }
        }
        let address = |key: &str| {
            let text = inventory.get(key)?.as_str()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        Ok(Self {
            addresses,
            bmc_address: address("bmc_address"),
            bmc_v6address: address("bmc_v6address"),
            inventory,
            plugin_data: data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_heartbeat_members() {
        let token = r#""callback_url":"https://a:9999","agent_token":"t""#;
        for (body, version, expected) in [
            (format!(r#"{{{token},"agent_version":"12.0"}}"#), 68, None),
            (format!(r#"{{{token},"agent_version":"12.0","agent_verify_ca":"PEM"}}"#), 68, None),
            (
                format!(r#"{{{token},"agent_version":"12.0","agent_verify_ca":"PEM"}}"#),
                67,
                Some("1.68"),
            ),
            (format!(r#"{{{token},"agent_version":"12.0","agent_verify_ca":null}}"#), 67, None),
            (format!(r#"{{{token},"agent_version":"12.0","agent_status":null}}"#), 71, None),
            (format!(r#"{{{token},"agent_status":"end"}}"#), 72, None),
            (format!(r#"{{{token},"agent_status":"x"}}"#), 72, Some("agent_status")),
            (format!(r"{{{token}}}"), 68, Some("version")),
            (r"{}".to_owned(), 68, Some("callback_url")),
            (
                r#"{"callback_url":"x","agent_token":"t","agent_version":"1"}"#.to_owned(),
                68,
                Some("callback_url"),
            ),
            (r#"{"callback_url":"http://x","agent_version":"1"}"#.to_owned(), 68, Some("token")),
            (
                format!(r#"{{{token},"agent_version":"1","z":1}}"#),
                68,
                Some("Unexpected arguments: z"),
            ),
        ] {
            match (parse_heartbeat(body.as_bytes(), ApiVersion(version)), expected) {
                (Ok(_), None) => {}
                (Err(error), Some(expected)) => {
                    assert_eq!(error.status(), 400);
                    assert!(error.message().contains(expected), "{body}: {error}");
                }
                (result, _) => panic!("{body}: {result:?}"),
            }
        }
    }

    #[test]
    fn limits_the_addresses_of_a_lookup() {
        let addresses = |count: usize| {
            let macs: Vec<String> =
                (0..count).map(|it| format!("52:54:00:00:00:{it:02x}")).collect();
            LookupQuery::parse(&[("addresses".to_owned(), macs.join(","))])
        };
        assert_eq!(addresses(MAX_ADDRESSES).unwrap().addresses.len(), MAX_ADDRESSES);
        assert_eq!(addresses(MAX_ADDRESSES + 1).unwrap_err().status(), 400);
    }

    #[test]
    fn debug_output_hides_the_token() {
        let body = br#"{"callback_url":"http://x","agent_token":"hunter2","agent_version":"1"}"#;
        assert!(!format!("{:?}", parse_heartbeat(body, ApiVersion::MAX)).contains("hunter2"));
    }

    #[test]
    fn checks_inspection_data() {
        for bad in [
            "{}",
            r#"{"inventory":{}}"#,
            r#"{"inventory":{"interfaces":[]}}"#,
            r#"{"inventory":{"interfaces":[{}]}}"#,
            r#"{"inventory":{"interfaces":[5]}}"#,
        ] {
            assert_eq!(InspectionData::parse(bad.as_bytes()).unwrap_err().status(), 400, "{bad}");
        }
        let data = InspectionData::parse(
            br#"{"inventory":{"interfaces":[{"mac_address":"52:54:00:AA:BB:01"}],"bmc_address":"10.0.0.1"},"logs":"x"}"#,
        )
        .unwrap();
        assert_eq!(data.addresses[0].as_str(), "52:54:00:aa:bb:01");
        assert_eq!(data.bmc_address.as_deref(), Some("10.0.0.1"));
        assert!(data.plugin_data.contains_key("logs"));
        let data = InspectionData::parse(
            br#"{"inventory":{"interfaces":[{"mac_address":null}],"serial":"A1\u0000\u0000"}}"#,
        );
        assert_eq!(data.unwrap().inventory["serial"], "A1");
        assert!(InspectionData::accepted_at(ApiVersion(1)));
        assert!(!InspectionData::accepted_at(ApiVersion(2)));
        assert!(InspectionData::accepted_at(ApiVersion(84)));
    }
}
