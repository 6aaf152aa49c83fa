// SPDX-License-Identifier: Apache-2.0
//! The attributes of nodes and ports that inspection rules can read and write, by Ironic's names.
//!
//! Fields owned by the lifecycle (states, power, reservation, timestamps) are read-only: only
//! `lifecycle` changes a provision state.

use agent_protocol::parse_bool;
use node_model::{InterfaceKind, JsonObject, Node, Port};
use serde_json::Value;

use AttributeAccess::{Flag, OptionalFlag, OptionalText, ReadOnly, Text};

/// The type of an attribute of `T`, with its accessors.
enum AttributeAccess<T: 'static> {
    ReadOnly(fn(&T) -> Value),
    Text(fn(&T) -> &String, fn(&mut T) -> &mut String),
    OptionalText(fn(&T) -> &Option<String>, fn(&mut T) -> &mut Option<String>),
    Flag(fn(&T) -> &bool, fn(&mut T) -> &mut bool),
    OptionalFlag(fn(&T) -> &Option<bool>, fn(&mut T) -> &mut Option<bool>),
}

struct RuleAttribute<T: 'static> {
    name: &'static str,
    access: AttributeAccess<T>,
}

/// An attribute cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// The attribute does not exist.
    #[error("there is no attribute {0:?}")]
    Unknown(String),
    /// Rules may not write it.
    #[error("{0} cannot be changed by a rule")]
    ReadOnly(&'static str),
    /// The value has the wrong type.
    #[error("{name} must be {expected}")]
    WrongType {
        /// The attribute.
        name: String,
        /// The expected type.
        expected: &'static str,
    },
}

macro_rules! attribute {
    ($type:ident $field:ident) => {
        RuleAttribute {
            name: stringify!($field),
            access: $type(|subject| &subject.$field, |subject| &mut subject.$field),
        }
    };
}

const fn read_only<T>(name: &'static str, read: fn(&T) -> Value) -> RuleAttribute<T> {
    RuleAttribute { name, access: ReadOnly(read) }
}

const NODE_ATTRIBUTES: &[RuleAttribute<Node>] = &[
    attribute!(OptionalText name),
    attribute!(Text driver),
    attribute!(OptionalText instance_name),
    attribute!(Flag maintenance),
    attribute!(OptionalText maintenance_reason),
    attribute!(OptionalText resource_class),
    attribute!(Text conductor_group),
    attribute!(OptionalFlag automated_clean),
    attribute!(Flag protected),
    attribute!(OptionalText protected_reason),
    attribute!(Flag retired),
    attribute!(OptionalText retired_reason),
    attribute!(OptionalText owner),
    attribute!(OptionalText lessee),
    attribute!(OptionalText description),
    attribute!(OptionalText boot_mode),
    attribute!(OptionalFlag secure_boot),
    attribute!(OptionalText shard),
    attribute!(Flag disable_power_off),
    read_only("uuid", |node| node.id.to_string().into()),
    read_only("provision_state", |node| node.provision_state.as_str().into()),
    read_only("target_provision_state", |node| {
        node.target_provision_state.map(|state| state.as_str()).into()
    }),
    read_only("power_state", |node| node.power_state.map(|state| state.as_str()).into()),
    read_only("target_power_state", |node| {
        node.target_power_state.map(|state| state.as_str()).into()
    }),
    read_only("fault", |node| node.fault.map(|fault| fault.as_str()).into()),
    read_only("last_error", |node| node.last_error.clone().into()),
    read_only("reservation", |node| node.reservation.clone().into()),
    read_only("console_enabled", |node| node.console_enabled.into()),
    read_only("instance_uuid", |node| node.instance_uuid.map(|id| id.to_string()).into()),
    read_only("chassis_uuid", |node| node.chassis_id.map(|id| id.to_string()).into()),
    read_only("parent_node", |node| node.parent_node.map(|id| id.to_string()).into()),
    read_only("health", |node| node.health.map(|health| health.as_str()).into()),
    read_only("traits", |node| node.traits.clone().into()),
    read_only("created_at", |node| node.created_at.to_string().into()),
    read_only("inspection_started_at", |node| {
        node.inspection_started_at.map(|at| at.to_string()).into()
    }),
    read_only("inspection_finished_at", |node| {
        node.inspection_finished_at.map(|at| at.to_string()).into()
    }),
];

const PORT_ATTRIBUTES: &[RuleAttribute<Port>] = &[
    attribute!(OptionalText name),
    attribute!(OptionalText description),
    attribute!(Flag pxe_enabled),
    attribute!(OptionalText physical_network),
    attribute!(Flag is_smartnic),
    attribute!(OptionalText vendor),
    attribute!(OptionalText category),
    attribute!(Flag available_for_dynamic_portgroup),
    read_only("uuid", |port| port.id.to_string().into()),
    read_only("address", |port| port.address.as_str().into()),
    read_only("portgroup_uuid", |port| port.portgroup_id.map(|id| id.to_string()).into()),
];

/// Returns a node's attribute that is not a free-form object.
pub(crate) fn read(node: &Node, name: &str) -> Option<Value> {
    match interface_kind(name) {
        Some(kind) => Some(node.interfaces.get(kind).into()),
        None => find(NODE_ATTRIBUTES, name).map(|attribute| attribute.read(node)),
    }
}

/// Converts a value to the type of a node's attribute. Also returns the attribute's static name.
pub(crate) fn convert(name: &str, value: &Value) -> Result<(&'static str, Value), AttributeError> {
    if let Some(kind) = interface_kind(name) {
        return Ok((kind.field(), optional_text(name, value)?.into()));
    }
    let attribute =
        find(NODE_ATTRIBUTES, name).ok_or_else(|| AttributeError::Unknown(truncated(name)))?;
    Ok((attribute.name, attribute.accept(value)?))
}

/// Writes a value returned by [`convert`]. Unknown and read-only attributes are ignored.
pub(crate) fn write(node: &mut Node, name: &str, value: &Value) {
    if let Some(kind) = interface_kind(name) {
        node.interfaces.set(kind, value.as_str());
    } else if let Some(attribute) = find(NODE_ATTRIBUTES, name) {
        attribute.write(node, value);
    }
}

/// Writes a port's attribute that is not a free-form object.
pub(crate) fn write_port(port: &mut Port, name: &str, value: &Value) -> Result<(), AttributeError> {
    let attribute =
        find(PORT_ATTRIBUTES, name).ok_or_else(|| AttributeError::Unknown(truncated(name)))?;
    let value = attribute.accept(value)?;
    attribute.write(port, &value);
    Ok(())
}

/// Returns a free-form object of a port that rules may change.
pub(crate) fn port_object<'a>(port: &'a mut Port, name: &str) -> Option<&'a mut JsonObject> {
    match name {
        "extra" => Some(&mut port.extra),
        "local_link_connection" => Some(&mut port.local_link_connection),
        _ => None,
    }
}

impl<T> RuleAttribute<T> {
    fn read(&self, subject: &T) -> Value {
        match self.access {
            ReadOnly(read) => read(subject),
            Text(read, _) => read(subject).clone().into(),
            OptionalText(read, _) => read(subject).clone().into(),
            Flag(read, _) => (*read(subject)).into(),
            OptionalFlag(read, _) => (*read(subject)).into(),
        }
    }

    fn accept(&self, value: &Value) -> Result<Value, AttributeError> {
        let wrong_type =
            |expected| AttributeError::WrongType { name: self.name.to_owned(), expected };
        match self.access {
            ReadOnly(_) => Err(AttributeError::ReadOnly(self.name)),
            Text(..) => {
                optional_text(self.name, value)?.map(Value::from).ok_or_else(|| wrong_type("text"))
            }
            OptionalText(..) => Ok(optional_text(self.name, value)?.into()),
            Flag(..) => {
                parse_bool(value).map(Value::from).ok_or_else(|| wrong_type("true or false"))
            }
            OptionalFlag(..) if value.is_null() => Ok(Value::Null),
            OptionalFlag(..) => {
                parse_bool(value).map(Value::from).ok_or_else(|| wrong_type("true, false or null"))
            }
        }
    }

    fn write(&self, subject: &mut T, value: &Value) {
        match self.access {
            ReadOnly(_) => {}
            Text(_, field) => value.as_str().unwrap_or_default().clone_into(field(subject)),
            OptionalText(_, field) => *field(subject) = value.as_str().map(str::to_owned),
            Flag(_, field) => *field(subject) = value.as_bool().unwrap_or_default(),
            OptionalFlag(_, field) => *field(subject) = value.as_bool(),
        }
    }
}

fn find<T>(table: &'static [RuleAttribute<T>], name: &str) -> Option<&'static RuleAttribute<T>> {
    table.iter().find(|attribute| attribute.name == name)
}

/// Parses `deploy_interface` and the other twelve interface fields.
fn interface_kind(name: &str) -> Option<InterfaceKind> {
    name.strip_suffix("_interface")?.parse().ok()
}

fn optional_text(name: &str, value: &Value) -> Result<Option<String>, AttributeError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            Err(AttributeError::WrongType { name: name.to_owned(), expected: "text or null" })
        }
    }
}

fn truncated(name: &str) -> String {
    name.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use node_model::{NodeId, Timestamp};
    use serde_json::json;

    use super::*;

    #[test]
    fn writes_and_reads_converted_values() {
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        for (name, input, expected) in [
            ("name", json!("a"), json!("a")),
            ("name", json!(null), json!(null)),
            ("driver", json!("redfish"), json!("redfish")),
            ("owner", json!(7), json!("7")),
            ("maintenance", json!("Yes"), json!(true)),
            ("automated_clean", json!(null), json!(null)),
            ("automated_clean", json!(0), json!(false)),
            ("deploy_interface", json!("ramdisk"), json!("ramdisk")),
        ] {
            let (name, value) = convert(name, &input).unwrap();
            write(&mut node, name, &value);
            assert_eq!(read(&node, name), Some(expected), "{name} {input}");
        }
    }

    #[test]
    fn rejects_invalid_attributes_and_values() {
        for (name, value, message) in [
            ("provision_state", json!("active"), "provision_state cannot be changed by a rule"),
            ("driver", json!(null), "driver must be text"),
            ("retired", json!("perhaps"), "retired must be true or false"),
            ("owner", json!([]), "owner must be text or null"),
            ("colour", json!("red"), "there is no attribute \"colour\""),
        ] {
            assert_eq!(convert(name, &value).unwrap_err().to_string(), message);
        }
    }
}
