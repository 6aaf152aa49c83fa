// SPDX-License-Identifier: Apache-2.0
//! The changes that result from an inspection, to be stored by the caller in one transaction.

use std::collections::BTreeMap;
use std::fmt;

use node_model::{FlavourId, JsonObject, MASK, Mac, Neighbour, Node, Port, PortId, RuleId};
use serde_json::{Map, Value};

use crate::attributes;
use crate::hooks::Hook;

/// The result of processing one report.
#[derive(Clone, PartialEq, Debug)]
#[must_use = "the result has no effect until it is stored"]
pub struct InspectionResult {
    /// Changes of the node.
    pub node: InspectedNodeChanges,
    /// Changes of the node's ports.
    pub ports: Vec<PortChange>,
    /// The inventory to store.
    pub inventory: JsonObject,
    /// The plugin data to store, without the ramdisk's logs.
    pub plugin_data: JsonObject,
    /// Values derived by hooks and flavours, to be stored: the next inspection replaces only these
    /// and keeps values set by an operator.
    pub derived: JsonObject,
    /// The LLDP neighbours of the NICs; `None` if the ramdisk did not collect LLDP.
    pub neighbours: Option<Vec<Neighbour>>,
    /// HTTP requests of rules. The inspection fails if one fails after its retries.
    pub api_calls: Vec<ApiCall>,
    /// The actions of each hook and rule, in order, for the timeline. Contains no secrets, except
    /// those that an operator wrote into a `log` action.
    pub log: Vec<InspectionLogEntry>,
}

/// The changes of a node.
///
/// `driver_info` and similar objects contain masks instead of secrets, so only changed members are
/// listed: writing back the whole object would overwrite the secrets. If a rule sets a secret, the
/// store seals it when it writes the node, as after an API request.
#[derive(Clone, PartialEq, Default)]
pub struct InspectedNodeChanges {
    /// Changed members of free-form objects; `None` removes the member.
    pub objects: BTreeMap<ObjectField, BTreeMap<String, Option<Value>>>,
    /// Other fields by Ironic's name, with Ironic's type; null clears the field.
    pub fields: BTreeMap<&'static str, Value>,
    /// All traits, sorted, if they changed.
    pub traits: Option<Vec<String>>,
}

/// A free-form object of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectField {
    /// `properties`
    Properties,
    /// `driver_info`
    DriverInfo,
    /// `extra`
    Extra,
    /// `instance_info`
    InstanceInfo,
    /// `driver_internal_info`
    DriverInternalInfo,
    /// `network_data`
    NetworkData,
    /// `raid_config`
    RaidConfig,
    /// `target_raid_config`
    TargetRaidConfig,
}

/// A change of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortChange {
    /// Create a port. Skipped if another node has a port with this address: ports are never moved
    /// between nodes.
    Create(NewPort),
    /// Replace a port.
    Update(Box<Port>),
    /// Delete a port.
    Delete(PortId, Mac),
}

/// A port without an id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPort(pub(crate) Box<Port>);

/// A `GET` request of a rule, sent with retries.
#[derive(Clone, PartialEq)]
pub struct ApiCall {
    /// The target.
    pub url: String,
    /// Request headers; may contain secrets.
    pub headers: BTreeMap<String, String>,
    /// Proxy URL by scheme.
    pub proxies: BTreeMap<String, String>,
    /// Timeout of each attempt, in seconds.
    pub timeout: f64,
    /// Attempts after the first, on connection errors and on status 429, 500, 502, 503 and 504.
    pub retries: u32,
    /// Delay before the second retry, in seconds; doubles with each retry.
    pub backoff_factor: f64,
}

/// An entry for the node's timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InspectionLogEntry {
    /// The hook, rule or flavour.
    pub source: InspectionLogSource,
    /// The severity.
    pub level: InspectionLogLevel,
    /// What was changed or skipped, and why.
    pub text: String,
}

/// The origin of a log entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InspectionLogSource {
    /// A hook.
    Hook(Hook),
    /// An inspection rule.
    Rule(RuleId),
    /// A flavour.
    Flavour(FlavourId),
}

/// The severity of a log entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum InspectionLogLevel {
    /// Only useful for debugging.
    Debug,
    /// A change was made.
    Info,
    /// Unexpected or ignored data.
    Warning,
    /// Logged as an error by a rule's `log` action.
    Error,
}

impl InspectedNodeChanges {
    /// Returns true if nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.fields.is_empty() && self.traits.is_none()
    }

    /// Applies the changes to `node`.
    pub fn apply_to(&self, node: &mut Node) {
        for (field, members) in &self.objects {
            field.get_mut(node).edit(|object| apply_members(object, members));
        }
        for (name, value) in &self.fields {
            // `attributes::convert` validated the value for this attribute.
            attributes::write(node, name, value);
        }
        if let Some(traits) = &self.traits {
            node.traits.clone_from(traits);
        }
    }

    /// Returns the names of the changed fields and members, for the journal.
    #[must_use]
    pub fn changed_fields(&self) -> Vec<String> {
        let members = self.objects.iter().flat_map(|(field, members)| {
            members.keys().map(|member| format!("{}/{member}", field.as_str()))
        });
        let fields = self.fields.keys().map(|name| (*name).to_owned());
        members.chain(fields).chain(self.traits.iter().map(|_| "traits".to_owned())).collect()
    }
}

impl fmt::Debug for InspectedNodeChanges {
    /// Prints names only: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeChanges").field(&self.changed_fields()).finish()
    }
}

impl ObjectField {
    /// All free-form objects.
    pub const ALL: [Self; 8] = [
        Self::Properties,
        Self::DriverInfo,
        Self::Extra,
        Self::InstanceInfo,
        Self::DriverInternalInfo,
        Self::NetworkData,
        Self::RaidConfig,
        Self::TargetRaidConfig,
    ];

    /// Returns Ironic's name of the field.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Properties => "properties",
            Self::DriverInfo => "driver_info",
            Self::Extra => "extra",
            Self::InstanceInfo => "instance_info",
            Self::DriverInternalInfo => "driver_internal_info",
            Self::NetworkData => "network_data",
            Self::RaidConfig => "raid_config",
            Self::TargetRaidConfig => "target_raid_config",
        }
    }

    /// Returns the field with Ironic's name `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.as_str() == name)
    }

    /// Returns this object of `node`.
    #[must_use]
    pub const fn get(self, node: &Node) -> &JsonObject {
        match self {
            Self::Properties => &node.properties,
            Self::DriverInfo => &node.driver_info,
            Self::Extra => &node.extra,
            Self::InstanceInfo => &node.instance_info,
            Self::DriverInternalInfo => &node.driver_internal_info,
            Self::NetworkData => &node.network_data,
            Self::RaidConfig => &node.raid_config,
            Self::TargetRaidConfig => &node.target_raid_config,
        }
    }

    /// Returns this object of `node`, mutable.
    pub const fn get_mut(self, node: &mut Node) -> &mut JsonObject {
        match self {
            Self::Properties => &mut node.properties,
            Self::DriverInfo => &mut node.driver_info,
            Self::Extra => &mut node.extra,
            Self::InstanceInfo => &mut node.instance_info,
            Self::DriverInternalInfo => &mut node.driver_internal_info,
            Self::NetworkData => &mut node.network_data,
            Self::RaidConfig => &mut node.raid_config,
            Self::TargetRaidConfig => &mut node.target_raid_config,
        }
    }
}

impl InspectionLogSource {
    /// Returns the origin of a value, for log entries.
    pub(crate) const fn value_origin(self) -> &'static str {
        match self {
            Self::Hook(_) => "the ramdisk",
            Self::Rule(_) => "the rule",
            Self::Flavour(_) => "the flavour",
        }
    }
}

impl NewPort {
    /// Returns the MAC address.
    #[must_use]
    pub fn address(&self) -> &Mac {
        &self.0.address
    }

    /// Returns the port with its new id.
    #[must_use]
    pub fn into_port(self, id: PortId) -> Port {
        Port { id, ..*self.0 }
    }
}

impl fmt::Debug for ApiCall {
    /// Omits query, headers and proxies: they may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.split('?').next().unwrap_or_default();
        f.debug_struct("ApiCall").field("url", &url).field("headers", &MASK).finish_non_exhaustive()
    }
}

impl fmt::Display for InspectionLogSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hook(hook) => write!(f, "inspection hook {hook}"),
            Self::Rule(rule) => write!(f, "inspection rule {rule}"),
            // Its log entries contain its name; operators do not know flavours by id.
            Self::Flavour(_) => f.write_str("flavour"),
        }
    }
}

fn apply_members(object: &mut Map<String, Value>, members: &BTreeMap<String, Option<Value>>) {
    for (key, value) in members {
        match value {
            Some(value) => object.insert(key.clone(), value.clone()),
            None => object.remove(key),
        };
    }
}
