// SPDX-License-Identifier: Apache-2.0
//! The report of an inspection ramdisk, validated as far as other modules rely on it.
//!
//! The body is an object with the hardware in `inventory` and, next to it, the output of the
//! ramdisk's collectors, which Ironic calls plugin data. Unknown fields are kept.

use node_model::Inventory;
use serde_json::{Map, Value};

use crate::address::parse_address;

/// Longer bodies are rejected. Nearly all of a large body are ramdisk logs.
pub const MAX_REPORT_BYTES: usize = 64 << 20;
/// More interfaces than any machine with all its virtual functions has.
const MAX_INTERFACES: usize = 1024;
/// More disks than any enclosure has.
const MAX_DISKS: usize = 4096;

/// A validated report.
#[derive(Clone, PartialEq, Debug)]
pub struct HardwareReport {
    inventory: Map<String, Value>,
    plugin_data: Map<String, Value>,
    logs: Option<String>,
}

/// A network interface in the report.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReportedInterface<'a> {
    /// The kernel's name of the interface.
    pub name: Option<&'a str>,
    /// MAC address as sent, not validated.
    pub mac_address: &'a str,
    /// IPv4 address while the ramdisk ran.
    pub ipv4_address: Option<&'a str>,
    /// IPv6 address while the ramdisk ran, without the zone.
    pub ipv6_address: Option<&'a str>,
    /// DHCP client id, for InfiniBand.
    pub client_id: Option<&'a str>,
    /// All fields of the interface.
    pub fields: &'a Map<String, Value>,
}

/// The body cannot be used. The message contains the path of the invalid value.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Too long to parse.
    #[error("inspection data is {bytes} bytes long, at most {MAX_REPORT_BYTES} are accepted")]
    TooLong {
        /// The length.
        bytes: usize,
    },
    /// Not JSON.
    #[error("inspection data is not JSON")]
    NotJson(#[source] serde_json::Error),
    /// A required member is missing.
    #[error("inspection data lacks {path}")]
    Missing {
        /// The path of the member.
        path: String,
    },
    /// A value has the wrong type.
    #[error("inspection data has something else than {expected} at {path}")]
    WrongType {
        /// The path of the value.
        path: String,
        /// The expected type.
        expected: &'static str,
    },
    /// A list is empty or too long.
    #[error("inspection data has {count} items at {path}, {allowed} are accepted")]
    Count {
        /// The path of the list.
        path: &'static str,
        /// The number of items.
        count: usize,
        /// The permitted number of items.
        allowed: String,
    },
}

impl HardwareReport {
    /// Parses a request body.
    ///
    /// # Errors
    /// If it is not JSON or not a valid report.
    pub fn parse(body: &[u8]) -> Result<Self, ReportError> {
        if body.len() > MAX_REPORT_BYTES {
            return Err(ReportError::TooLong { bytes: body.len() });
        }
        Self::from_value(serde_json::from_slice(body).map_err(ReportError::NotJson)?)
    }

    /// Validates a parsed body.
    ///
    /// # Errors
    /// If it is not a valid report.
    pub fn from_value(body: Value) -> Result<Self, ReportError> {
        let Value::Object(mut plugin_data) = body else {
            return Err(wrong_type("the top level", "an object"));
        };
        let inventory = match plugin_data.remove("inventory") {
            Some(Value::Object(inventory)) => inventory,
            Some(_) => return Err(wrong_type("inventory", "an object")),
            None => return Err(missing_member("inventory")),
        };
        check_interfaces(&inventory)?;
        check_disks(&inventory)?;
        for address in ["bmc_address", "bmc_v6address"] {
            if inventory.get(address).is_some_and(|value| !value.is_string() && !value.is_null()) {
                return Err(wrong_type(&format!("inventory.{address}"), "a string or null"));
            }
        }
        let logs = match plugin_data.remove("logs") {
            Some(Value::String(logs)) => Some(logs),
            Some(_) | None => None,
        };
        Ok(Self { inventory, plugin_data, logs })
    }

    /// Returns the inventory.
    #[must_use]
    pub fn inventory(&self) -> &Map<String, Value> {
        &self.inventory
    }

    /// Returns all other members except the logs.
    #[must_use]
    pub fn plugin_data(&self) -> &Map<String, Value> {
        &self.plugin_data
    }

    /// Returns the ramdisk's logs: a base64-encoded compressed archive. Not stored with the plugin data.
    #[must_use]
    pub fn logs(&self) -> Option<&str> {
        self.logs.as_deref()
    }

    /// Returns the body as sent, without the logs.
    #[must_use]
    pub fn body(&self) -> Map<String, Value> {
        let mut body = self.plugin_data.clone();
        body.insert("inventory".to_owned(), self.inventory.clone().into());
        body
    }

    /// Returns the report that is stored in `inventory`, for evaluating rules and flavours later.
    #[must_use]
    pub fn from_inventory(inventory: &Inventory) -> Self {
        let (inventory, plugin_data) = (inventory.inventory.parse(), inventory.plugin_data.parse());
        Self { inventory, plugin_data, logs: None }
    }

    /// Returns true if the ramdisk collected LLDP, even if it received nothing.
    pub(crate) fn has_lldp_data(&self) -> bool {
        self.plugin_data.get("lldp_raw").is_some_and(Value::is_object)
            || self
                .interfaces()
                .any(|interface| interface.fields.get("lldp").is_some_and(|tlvs| !tlvs.is_null()))
    }

    /// Marks in the plugin data, as Ironic does, that the node was created because of this report.
    pub fn mark_auto_discovered(&mut self) {
        self.plugin_data.insert("auto_discovered".to_owned(), Value::Bool(true));
    }

    /// Returns the network interfaces, in the order sent.
    pub fn interfaces(&self) -> impl Iterator<Item = ReportedInterface<'_>> {
        let list = self.inventory.get("interfaces").and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .filter_map(Value::as_object)
            .filter_map(ReportedInterface::from_fields)
    }

    /// Returns the disks, in the order sent. Items that are not objects are skipped.
    pub fn disks(&self) -> impl Iterator<Item = &Map<String, Value>> {
        inventory_disks(&self.inventory)
    }

    /// Returns the member `key` of the inventory's member `section`, such as `cpu` and `count`.
    pub(crate) fn inventory_value(&self, section: &str, key: &str) -> Option<&Value> {
        self.inventory.get(section)?.get(key)
    }

    /// Returns the LLDP TLVs received on an interface: from the `lldp` collector if it ran, otherwise
    /// from the inventory.
    pub(crate) fn lldp<'a>(&'a self, interface: &ReportedInterface<'a>) -> Option<&'a [Value]> {
        interface
            .name
            .and_then(|name| self.plugin_data.get("lldp_raw")?.get(name)?.as_array())
            .filter(|tlvs| !tlvs.is_empty())
            .or_else(|| interface.fields.get("lldp")?.as_array())
            .map(Vec::as_slice)
    }
}

impl<'a> ReportedInterface<'a> {
    fn from_fields(fields: &'a Map<String, Value>) -> Option<Self> {
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

    /// Returns the IP address, IPv4 preferred. Not validated.
    pub(crate) fn ip_address(&self) -> Option<&'a str> {
        self.ipv4_address.or(self.ipv6_address)
    }

    /// Returns the valid IP addresses.
    pub(crate) fn ip_addresses(&self) -> impl Iterator<Item = std::net::IpAddr> + use<'a> {
        [self.ipv4_address, self.ipv6_address].into_iter().flatten().filter_map(parse_address)
    }
}

/// Returns the disks of an inventory.
pub(crate) fn inventory_disks(
    inventory: &Map<String, Value>,
) -> impl Iterator<Item = &Map<String, Value>> {
    let list = inventory.get("disks").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_object)
}

fn check_interfaces(inventory: &Map<String, Value>) -> Result<(), ReportError> {
    let interfaces = match inventory.get("interfaces") {
        Some(Value::Array(interfaces)) => interfaces,
        Some(_) => return Err(wrong_type("inventory.interfaces", "a list")),
        None => return Err(missing_member("inventory.interfaces")),
    };
    if interfaces.is_empty() || interfaces.len() > MAX_INTERFACES {
        return Err(ReportError::Count {
            path: "inventory.interfaces",
            count: interfaces.len(),
            allowed: format!("1 to {MAX_INTERFACES}"),
        });
    }
    for (index, interface) in interfaces.iter().enumerate() {
        let path = || format!("inventory.interfaces[{index}]");
        let Some(interface) = interface.as_object() else {
            return Err(wrong_type(&path(), "an object"));
        };
        match interface.get("mac_address") {
            Some(Value::String(_)) => {}
            Some(_) => return Err(wrong_type(&(path() + ".mac_address"), "a string")),
            None => return Err(missing_member(&(path() + ".mac_address"))),
        }
    }
    Ok(())
}

fn check_disks(inventory: &Map<String, Value>) -> Result<(), ReportError> {
    let count = inventory.get("disks").and_then(Value::as_array).map_or(0, Vec::len);
    if count > MAX_DISKS {
        let allowed = format!("at most {MAX_DISKS}");
        return Err(ReportError::Count { path: "inventory.disks", count, allowed });
    }
    Ok(())
}

fn missing_member(path: &str) -> ReportError {
    ReportError::Missing { path: path.to_owned() }
}

fn wrong_type(path: &str, expected: &'static str) -> ReportError {
    ReportError::WrongType { path: path.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_contain_the_path_of_the_invalid_value() {
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
            assert_eq!(HardwareReport::parse(body.as_bytes()).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn keeps_unknown_fields_and_separates_logs_from_plugin_data() {
        let body = r#"{"inventory":{"interfaces":[{"mac_address":"a","new":1}],"newer":2},"newest":3,"logs":"H4s="}"#;
        let mut report = HardwareReport::parse(body.as_bytes()).unwrap();
        assert_eq!(report.inventory()["newer"], 2);
        assert_eq!(report.logs(), Some("H4s="));
        report.mark_auto_discovered();
        assert_eq!(
            Value::from(report.plugin_data().clone()).to_string(),
            r#"{"auto_discovered":true,"newest":3}"#
        );
    }
}
