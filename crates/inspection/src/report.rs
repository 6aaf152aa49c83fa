// SPDX-License-Identifier: Apache-2.0
//! What the ramdisk sent, checked as far as everything else relies on it.
//!
//! The body is one object: `inventory`, which is the hardware, and next to it whatever the
//! ramdisk's collectors found, which Ironic calls plugin data. Fields nobody here knows are kept.

use node_model::Inventory;
use serde_json::{Map, Value};

use crate::address::parse_address;

/// A body longer than this is refused unread. Ramdisk logs make up nearly all of a large one.
pub const MAX_REPORT_BYTES: usize = 64 << 20;
/// More network cards than any machine with all its virtual functions has.
const MAX_INTERFACES: usize = 1024;
/// More disks than any enclosure has.
const MAX_DISKS: usize = 4096;

/// A checked report.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    inventory: Map<String, Value>,
    plugin_data: Map<String, Value>,
    logs: Option<String>,
}

/// One network card of the report.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interface<'a> {
    /// The kernel's name for it, if the ramdisk said.
    pub name: Option<&'a str>,
    /// Hardware address as sent.
    pub mac_address: &'a str,
    /// IPv4 address it had while the ramdisk ran.
    pub ipv4_address: Option<&'a str>,
    /// IPv6 address it had, without the zone.
    pub ipv6_address: Option<&'a str>,
    /// DHCP client id, for InfiniBand.
    pub client_id: Option<&'a str>,
    /// Everything the ramdisk said about it.
    pub fields: &'a Map<String, Value>,
}

/// The body cannot be used. The message names the place in it.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Too long to look at.
    #[error("inspection data is {bytes} bytes long, at most {MAX_REPORT_BYTES} are accepted")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// Not JSON.
    #[error("inspection data is not JSON")]
    NotJson(#[source] serde_json::Error),
    /// Something required is not there.
    #[error("inspection data lacks {path}")]
    Missing {
        /// Where it should be.
        path: String,
    },
    /// Something is there but is not what it should be.
    #[error("inspection data has something else than {expected} at {path}")]
    WrongType {
        /// Where.
        path: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A list is empty or longer than any real machine's.
    #[error("inspection data has {count} items at {path}, {allowed} are accepted")]
    Count {
        /// Which list.
        path: &'static str,
        /// How many it has.
        count: usize,
        /// How many it may have.
        allowed: String,
    },
}

impl Report {
    /// Reads a request body.
    ///
    /// # Errors
    /// If it is not JSON, or not what a ramdisk sends.
    pub fn parse(body: &[u8]) -> Result<Self, ParseError> {
        if body.len() > MAX_REPORT_BYTES {
            return Err(ParseError::TooLong { bytes: body.len() });
        }
        Self::from_value(serde_json::from_slice(body).map_err(ParseError::NotJson)?)
    }

    /// Takes a body that has been parsed already.
    ///
    /// # Errors
    /// If it is not what a ramdisk sends.
    pub fn from_value(body: Value) -> Result<Self, ParseError> {
        let Value::Object(mut plugin_data) = body else {
            return Err(wrong("the top level", "an object"));
        };
        let inventory = match plugin_data.remove("inventory") {
            Some(Value::Object(inventory)) => inventory,
            Some(_) => return Err(wrong("inventory", "an object")),
            None => return Err(missing("inventory")),
        };
        check_interfaces(&inventory)?;
        check_disks(&inventory)?;
        for address in ["bmc_address", "bmc_v6address"] {
            if inventory.get(address).is_some_and(|value| !value.is_string() && !value.is_null()) {
                return Err(wrong(&format!("inventory.{address}"), "a string or null"));
            }
        }
        let logs = match plugin_data.remove("logs") {
            Some(Value::String(logs)) => Some(logs),
            Some(_) | None => None,
        };
        Ok(Self { inventory, plugin_data, logs })
    }

    /// The hardware.
    #[must_use]
    pub fn inventory(&self) -> &Map<String, Value> {
        &self.inventory
    }

    /// Everything else but the logs.
    #[must_use]
    pub fn plugin_data(&self) -> &Map<String, Value> {
        &self.plugin_data
    }

    /// The ramdisk's logs: a compressed archive in base64. Never stored with the plugin data.
    #[must_use]
    pub fn logs(&self) -> Option<&str> {
        self.logs.as_deref()
    }

    /// The body as it was sent, without the logs.
    #[must_use]
    pub fn body(&self) -> Map<String, Value> {
        let mut body = self.plugin_data.clone();
        body.insert("inventory".to_owned(), self.inventory.clone().into());
        body
    }

    /// A report with what an earlier one left behind, for those who ask what would be made of it.
    #[must_use]
    pub fn stored(inventory: &Inventory) -> Self {
        let (inventory, plugin_data) = (inventory.inventory.parse(), inventory.plugin_data.parse());
        Self { inventory, plugin_data, logs: None }
    }

    /// Whether the ramdisk listened for LLDP.
    pub(crate) fn listened(&self) -> bool {
        self.plugin_data.get("lldp_raw").is_some_and(Value::is_object)
            || self
                .interfaces()
                .any(|interface| interface.fields.get("lldp").is_some_and(|heard| !heard.is_null()))
    }

    /// Says in the plugin data that the node was created because of this report, as Ironic does.
    pub fn mark_auto_discovered(&mut self) {
        self.plugin_data.insert("auto_discovered".to_owned(), Value::Bool(true));
    }

    /// The network cards, in the order sent.
    pub fn interfaces(&self) -> impl Iterator<Item = Interface<'_>> {
        let list = self.inventory.get("interfaces").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_object).filter_map(Interface::of)
    }

    /// The disks, in the order sent. What is not an object is left out.
    pub fn disks(&self) -> impl Iterator<Item = &Map<String, Value>> {
        disks_of(&self.inventory)
    }

    /// The member `key` of the member `section` of the inventory, such as `cpu` and `count`.
    pub(crate) fn hardware(&self, section: &str, key: &str) -> Option<&Value> {
        self.inventory.get(section)?.get(key)
    }

    /// The LLDP TLVs heard on a card: from the `lldp` collector if it ran, else from the inventory.
    pub(crate) fn lldp<'a>(&'a self, interface: &Interface<'a>) -> Option<&'a [Value]> {
        interface
            .name
            .and_then(|name| self.plugin_data.get("lldp_raw")?.get(name)?.as_array())
            .filter(|tlvs| !tlvs.is_empty())
            .or_else(|| interface.fields.get("lldp")?.as_array())
            .map(Vec::as_slice)
    }
}

impl<'a> Interface<'a> {
    fn of(fields: &'a Map<String, Value>) -> Option<Self> {
        let text =
            |key: &str| fields.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        Some(Self {
            name: text("name"),
            mac_address: fields.get("mac_address")?.as_str()?,
            ipv4_address: text("ipv4_address"),
            ipv6_address: text("ipv6_address")
                .map(|address| address.split('%').next().unwrap_or(address)),
            client_id: text("client_id"),
            fields,
        })
    }

    /// The address it had, IPv4 preferred.
    pub(crate) fn ip(&self) -> Option<&'a str> {
        self.ipv4_address.or(self.ipv6_address)
    }

    /// The addresses it had, as far as they are addresses.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = std::net::IpAddr> + use<'a> {
        [self.ipv4_address, self.ipv6_address].into_iter().flatten().filter_map(parse_address)
    }
}

/// The disks of an inventory, also of one stored earlier.
pub(crate) fn disks_of(
    inventory: &Map<String, Value>,
) -> impl Iterator<Item = &Map<String, Value>> {
    let list = inventory.get("disks").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_object)
}

fn check_interfaces(inventory: &Map<String, Value>) -> Result<(), ParseError> {
    let interfaces = match inventory.get("interfaces") {
        Some(Value::Array(interfaces)) => interfaces,
        Some(_) => return Err(wrong("inventory.interfaces", "a list")),
        None => return Err(missing("inventory.interfaces")),
    };
    if interfaces.is_empty() || interfaces.len() > MAX_INTERFACES {
        return Err(ParseError::Count {
            path: "inventory.interfaces",
            count: interfaces.len(),
            allowed: format!("1 to {MAX_INTERFACES}"),
        });
    }
    for (index, interface) in interfaces.iter().enumerate() {
        let place = || format!("inventory.interfaces[{index}]");
        let Some(interface) = interface.as_object() else {
            return Err(wrong(&place(), "an object"));
        };
        match interface.get("mac_address") {
            Some(Value::String(_)) => {}
            Some(_) => return Err(wrong(&(place() + ".mac_address"), "a string")),
            None => return Err(missing(&(place() + ".mac_address"))),
        }
    }
    Ok(())
}

fn check_disks(inventory: &Map<String, Value>) -> Result<(), ParseError> {
    let count = inventory.get("disks").and_then(Value::as_array).map_or(0, Vec::len);
    if count > MAX_DISKS {
        let allowed = format!("at most {MAX_DISKS}");
        return Err(ParseError::Count { path: "inventory.disks", count, allowed });
    }
    Ok(())
}

fn missing(path: &str) -> ParseError {
    ParseError::Missing { path: path.to_owned() }
}

fn wrong(path: &str, expected: &'static str) -> ParseError {
    ParseError::WrongType { path: path.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_place() {
        for (body, message) in [
            ("[]", "inspection data has something else than an object at the top level"),
            ("{", "inspection data is not JSON"),
            ("{}", "inspection data lacks inventory"),
            (
                r#"{"inventory":1}"#,
                "inspection data has something else than an object at inventory",
            ),
            (r#"{"inventory":{}}"#, "inspection data lacks inventory.interfaces"),
            (
                r#"{"inventory":{"interfaces":[]}}"#,
                "inspection data has 0 items at inventory.interfaces, 1 to 1024 are accepted",
            ),
            (
                r#"{"inventory":{"interfaces":[{"mac_address":"a"},{"name":"b"}]}}"#,
                "inspection data lacks inventory.interfaces[1].mac_address",
            ),
            (
                r#"{"inventory":{"interfaces":[{"mac_address":null}]}}"#,
                "inspection data has something else than a string at inventory.interfaces[0].mac_address",
            ),
            (
                r#"{"inventory":{"interfaces":[{"mac_address":"a"}],"bmc_address":5}}"#,
                "inspection data has something else than a string or null at inventory.bmc_address",
            ),
        ] {
            assert_eq!(Report::parse(body.as_bytes()).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn unknown_fields_are_kept_and_logs_are_not_plugin_data() {
        let body = r#"{"inventory":{"interfaces":[{"mac_address":"a","new":1}],"newer":2},"newest":3,"logs":"H4s="}"#;
        let mut report = Report::parse(body.as_bytes()).unwrap();
        assert_eq!(report.inventory()["newer"], 2);
        assert_eq!(report.logs(), Some("H4s="));
        report.mark_auto_discovered();
        assert_eq!(
            Value::from(report.plugin_data().clone()).to_string(),
            r#"{"auto_discovered":true,"newest":3}"#
        );
    }
}
