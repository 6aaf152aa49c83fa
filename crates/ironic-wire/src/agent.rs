// SPDX-License-Identifier: Apache-2.0
//! What the ramdisk agent sends: lookup, heartbeat, inspection data.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "JSON has six kinds of value and will not get a seventh"
)]

use node_model::{Mac, Secret};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::body::{object_of, parse_json, without_nul};
use crate::error::WireError;
use crate::requests::Members;
use crate::value::{SHORT_TEXT, mandatory_text, text, uuid_from_text};
use crate::version::ApiVersion;

/// The longest URL, certificate or message an agent may send.
const LONG_TEXT: usize = 65_535;

/// The query of `GET /v1/lookup`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// The machine, if the agent knows; it wins over the addresses.
    pub node_uuid: Option<Uuid>,
    /// The addresses of its network cards. What is no address is left out.
    pub addresses: Vec<Mac>,
}

impl Lookup {
    /// Reads decoded pairs.
    ///
    /// # Errors
    /// 400 when there is nothing to look for.
    pub fn parse(pairs: &[(String, String)]) -> Result<Self, WireError> {
        let mut lookup = Self { node_uuid: None, addresses: Vec::new() };
        let mut unknown = Vec::new();
        for (name, value) in pairs {
            match name.as_str() {
                "node_uuid" if !value.is_empty() => {
                    let id = uuid_from_text(value).map_err(|p| p.in_field("node_uuid"))?;
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
        if lookup.node_uuid.is_none() && lookup.addresses.is_empty() {
            return Err(WireError::invalid(
                "At least one of 'addresses' (with a valid MAC address) and 'node_uuid' is needed \
                 to look up a node",
            ));
        }
        Ok(lookup)
    }
}

/// The body of `POST /v1/heartbeat/{node}`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// Where the agent listens.
    pub callback_url: String,
    /// Its version.
    pub agent_version: Option<String>,
    /// What proves that it is the agent of this machine.
    pub agent_token: Option<Secret<String>>,
    /// The certificate it presents.
    pub agent_verify_ca: Option<String>,
    /// `start`, `end` or `error`.
    pub agent_status: Option<String>,
    /// The words that came with the status.
    pub agent_status_message: Option<String>,
}

impl Heartbeat {
    /// Reads the body. Whether the token and URL are right is for those to say who know the node.
    ///
    /// # Errors
    /// 400 for what is wrong or of a later version, as Ironic answers here.
    pub fn parse(body: &[u8], version: ApiVersion) -> Result<Self, WireError> {
        const SINCE: [(&str, u16); 4] = [
            ("agent_version", 36),
            ("agent_verify_ca", 68),
            ("agent_status", 72),
            ("agent_status_message", 72),
        ];
        let mut members = Members::parse(body, "heartbeat")?;
        for (name, since) in SINCE {
            if members.has(name) && !version.has(since) {
                return Err(WireError::invalid(format!(
                    "{name} is not recognised before API version 1.{since}"
                )));
            }
        }
        let long = |value: Value| text(value, LONG_TEXT);
        let heartbeat = Self {
            callback_url: members.require("callback_url", |value| match value {
                // Installers that report progress without an API send an empty URL.
                Value::String(url) if url.is_empty() => Ok(url),
                given => mandatory_text(given, LONG_TEXT),
            })?,
            agent_version: members.take("agent_version", |value| text(value, SHORT_TEXT))?,
            agent_token: members.take("agent_token", long)?.map(Secret::new),
            agent_verify_ca: members.take("agent_verify_ca", long)?,
            agent_status: members.take("agent_status", |value| text(value, SHORT_TEXT))?,
            agent_status_message: members.take("agent_status_message", long)?,
        };
        members.finish()?;
        heartbeat.check()?;
        Ok(heartbeat)
    }

    fn check(&self) -> Result<(), WireError> {
        let url = &self.callback_url;
        if !(url.is_empty() || url.starts_with("http://") || url.starts_with("https://")) {
            return Err(WireError::invalid_field(
                "callback_url",
                "it must be an http or https URL",
            ));
        }
        if self.agent_token.is_none() {
            return Err(WireError::invalid("Agent token is required for heartbeat processing."));
        }
        if let Some(status) = &self.agent_status
            && !["start", "end", "error"].contains(&status.as_str())
        {
            return Err(WireError::invalid_field("agent_status", "it must be start, end or error"));
        }
        if self.agent_version.is_none() && self.agent_status.is_none() {
            return Err(WireError::invalid(
                "The agent did not send its version, which is needed; use a newer agent",
            ));
        }
        Ok(())
    }
}

/// The body of `POST /v1/continue_inspection`.
#[derive(Clone, PartialEq, Debug)]
pub struct InspectionData {
    /// The addresses of the network cards the ramdisk saw.
    pub addresses: Vec<Mac>,
    /// The address of the BMC as seen from the machine.
    pub bmc_address: Option<String>,
    /// The same for IPv6.
    pub bmc_v6address: Option<String>,
    /// What the machine is made of.
    pub inventory: Map<String, Value>,
    /// Everything else that was sent.
    pub plugin_data: Map<String, Value>,
}

impl InspectionData {
    /// Whether `version` may post data: from 1.84 on, and without any version header at all,
    /// because that is how the agent does it.
    #[must_use]
    pub fn accepted_at(version: ApiVersion) -> bool {
        version.has(84) || version == ApiVersion::MIN
    }

    /// Reads the body.
    ///
    /// # Errors
    /// 400 when there is no inventory with at least one network card.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let parsed = parse_json(body)?;
        // Firmware reports what it likes, and a machine must not stay unknown for it.
        let value = if parsed.may_have_nul { without_nul(parsed.value) } else { parsed.value };
        let mut data = object_of(value, "inspection data")?;
        let inventory = match data.remove("inventory") {
            Some(Value::Object(inventory)) => inventory,
            Some(_) => return Err(WireError::invalid_field("inventory", "expected an object")),
            None => return Err(WireError::missing("inventory")),
        };
        let cards = match inventory.get("interfaces") {
            Some(Value::Array(cards)) if !cards.is_empty() => cards,
            Some(_) => {
                return Err(WireError::invalid_field(
                    "inventory.interfaces",
                    "expected an array with at least one network card",
                ));
            }
            None => return Err(WireError::missing("inventory.interfaces")),
        };
        let mut addresses = Vec::with_capacity(cards.len());
        for (index, card) in cards.iter().enumerate() {
            let field = || format!("inventory.interfaces[{index}].mac_address");
            match card.get("mac_address") {
                // A card without a usable address is listed by ramdisks with null or "".
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
    fn heartbeats() {
        let token = r#""callback_url":"https://a:9999","agent_token":"t""#;
        for (body, version, says) in [
            (format!(r#"{{{token},"agent_version":"12.0"}}"#), 68, None),
            (format!(r#"{{{token},"agent_version":"12.0","agent_verify_ca":"PEM"}}"#), 68, None),
            (
                format!(r#"{{{token},"agent_version":"12.0","agent_verify_ca":"PEM"}}"#),
                67,
                Some("1.68"),
            ),
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
            match (Heartbeat::parse(body.as_bytes(), ApiVersion(version)), says) {
                (Ok(_), None) => {}
                (Err(error), Some(says)) => {
                    assert_eq!(error.status(), 400);
                    assert!(error.message().contains(says), "{body}: {error}");
                }
                (outcome, _) => panic!("{body}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn tokens_do_not_print() {
        let body = br#"{"callback_url":"http://x","agent_token":"hunter2","agent_version":"1"}"#;
        assert!(!format!("{:?}", Heartbeat::parse(body, ApiVersion::MAX)).contains("hunter2"));
    }

    #[test]
    fn inspection_data() {
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
