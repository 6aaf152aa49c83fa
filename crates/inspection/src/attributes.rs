// SPDX-License-Identifier: Apache-2.0
//! The attributes of nodes and ports that inspection rules can read and write, by Ironic's names.
//!
//! What the lifecycle owns (states, power, reservation, times) can be read and never written: a
//! provision state changes in exactly one place, and that is not here.

use agent_protocol::flag;
use node_model::{InterfaceKind, JsonObject, Node, Port};
use serde_json::Value;

use Access::{Flag, OptionalFlag, OptionalText, ReadOnly, Text};

/// How an attribute of a `T` is written.
enum Access<T: 'static> {
    ReadOnly(fn(&T) -> Value),
    Text(fn(&T) -> &String, fn(&mut T) -> &mut String),
    OptionalText(fn(&T) -> &Option<String>, fn(&mut T) -> &mut Option<String>),
    Flag(fn(&T) -> &bool, fn(&mut T) -> &mut bool),
    OptionalFlag(fn(&T) -> &Option<bool>, fn(&mut T) -> &mut Option<bool>),
}

struct Attribute<T: 'static> {
    name: &'static str,
    access: Access<T>,
}

/// A value cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// There is no such attribute.
    #[error("there is no attribute {0:?}")]
    Unknown(String),
    /// It is not for rules to write.
    #[error("{0} cannot be changed by a rule")]
    ReadOnly(&'static str),
    /// The value has the wrong type.
    #[error("{name} must be {expected}")]
    WrongType {
        /// Which attribute.
        name: String,
        /// What it must be.
        expected: &'static str,
    },
}

macro_rules! access {
    ($kind:ident $field:ident) => {
        Attribute {
            name: stringify!($field),
            access: $kind(|subject| &subject.$field, |subject| &mut subject.$field),
        }
    };
}

const fn read_only<T>(name: &'static str, read: fn(&T) -> Value) -> Attribute<T> {
    Attribute { name, access: ReadOnly(read) }
}

const NODE: &[Attribute<Node>] = &[
    access!(OptionalText name),
    access!(Text driver),
    access!(OptionalText instance_name),
    access!(Flag maintenance),
    access!(OptionalText maintenance_reason),
    access!(OptionalText resource_class),
    access!(Text conductor_group),
    access!(OptionalFlag automated_clean),
    access!(Flag protected),
    access!(OptionalText protected_reason),
    access!(Flag retired),
    access!(OptionalText retired_reason),
    access!(OptionalText owner),
    access!(OptionalText lessee),
    access!(OptionalText description),
    access!(OptionalText boot_mode),
    access!(OptionalFlag secure_boot),
    access!(OptionalText shard),
    access!(Flag disable_power_off),
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

const PORT: &[Attribute<Port>] = &[
    access!(OptionalText name),
    access!(OptionalText description),
    access!(Flag pxe_enabled),
    access!(OptionalText physical_network),
    access!(Flag is_smartnic),
    access!(OptionalText vendor),
    access!(OptionalText category),
    access!(Flag available_for_dynamic_portgroup),
    read_only("uuid", |port| port.id.to_string().into()),
    read_only("address", |port| port.address.as_str().into()),
    read_only("portgroup_uuid", |port| port.portgroup_id.map(|id| id.to_string()).into()),
];

/// The value of a node's attribute that is not a free-form object.
pub(crate) fn read(node: &Node, name: &str) -> Option<Value> {
    match interface_kind(name) {
        Some(kind) => Some(node.interfaces.get(kind).into()),
        None => find(NODE, name).map(|attribute| attribute.read(node)),
    }
}

/// Brings a value into the form the attribute of a node has, with the attribute's lasting name.
pub(crate) fn accept(name: &str, value: &Value) -> Result<(&'static str, Value), AttributeError> {
    if let Some(kind) = interface_kind(name) {
        return Ok((kind.field(), optional_text(name, value)?.into()));
    }
    let attribute = find(NODE, name).ok_or_else(|| AttributeError::Unknown(shortened(name)))?;
    Ok((attribute.name, attribute.accept(value)?))
}

/// Writes a value that [`accept`] returned. Anything else is left alone.
pub(crate) fn write(node: &mut Node, name: &str, value: &Value) {
    if let Some(kind) = interface_kind(name) {
        node.interfaces.set(kind, value.as_str());
    } else if let Some(attribute) = find(NODE, name) {
        attribute.write(node, value);
    }
}

/// Writes a port's attribute that is not a free-form object.
pub(crate) fn write_port(port: &mut Port, name: &str, value: &Value) -> Result<(), AttributeError> {
    let attribute = find(PORT, name).ok_or_else(|| AttributeError::Unknown(shortened(name)))?;
    let value = attribute.accept(value)?;
    attribute.write(port, &value);
    Ok(())
}

/// The free-form objects of a port that rules may change.
pub(crate) fn port_object<'a>(port: &'a mut Port, name: &str) -> Option<&'a mut JsonObject> {
    match name {
        "extra" => Some(&mut port.extra),
        "local_link_connection" => Some(&mut port.local_link_connection),
        _ => None,
    }
}

impl<T> Attribute<T> {
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
        let wrong = |expected| AttributeError::WrongType { name: self.name.to_owned(), expected };
        match self.access {
            ReadOnly(_) => Err(AttributeError::ReadOnly(self.name)),
            Text(..) => {
                optional_text(self.name, value)?.map(Value::from).ok_or_else(|| wrong("text"))
            }
            OptionalText(..) => Ok(optional_text(self.name, value)?.into()),
            Flag(..) => flag(value).map(Value::from).ok_or_else(|| wrong("true or false")),
            OptionalFlag(..) if value.is_null() => Ok(Value::Null),
            OptionalFlag(..) => {
                flag(value).map(Value::from).ok_or_else(|| wrong("true, false or null"))
            }
        }
    }

    fn write(&self, subject: &mut T, value: &Value) {
        match self.access {
            ReadOnly(_) => {}
            Text(_, at) => value.as_str().unwrap_or_default().clone_into(at(subject)),
            OptionalText(_, at) => *at(subject) = value.as_str().map(str::to_owned),
            Flag(_, at) => *at(subject) = value.as_bool().unwrap_or_default(),
            OptionalFlag(_, at) => *at(subject) = value.as_bool(),
        }
    }
}

fn find<T>(table: &'static [Attribute<T>], name: &str) -> Option<&'static Attribute<T>> {
    table.iter().find(|attribute| attribute.name == name)
}

/// `deploy_interface` and its twelve brothers.
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

fn shortened(name: &str) -> String {
    name.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use node_model::{NodeId, Timestamp};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_accepted_is_written_and_read_back() {
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        for (name, given, kept) in [
            ("name", json!("a"), json!("a")),
            ("name", json!(null), json!(null)),
            ("driver", json!("redfish"), json!("redfish")),
            ("owner", json!(7), json!("7")),
            ("maintenance", json!("Yes"), json!(true)),
            ("automated_clean", json!(null), json!(null)),
            ("automated_clean", json!(0), json!(false)),
            ("deploy_interface", json!("ramdisk"), json!("ramdisk")),
        ] {
            let (name, value) = accept(name, &given).unwrap();
            write(&mut node, name, &value);
            assert_eq!(read(&node, name), Some(kept), "{name} {given}");
        }
    }

    #[test]
    fn refusals() {
        for (name, value, message) in [
            ("provision_state", json!("active"), "provision_state cannot be changed by a rule"),
            ("driver", json!(null), "driver must be text"),
            ("retired", json!("perhaps"), "retired must be true or false"),
            ("owner", json!([]), "owner must be text or null"),
            ("colour", json!("red"), "there is no attribute \"colour\""),
        ] {
            assert_eq!(accept(name, &value).unwrap_err().to_string(), message);
        }
    }
}
