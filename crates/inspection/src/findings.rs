// SPDX-License-Identifier: Apache-2.0
//! What an inspection changes, as data for the caller to store in one transaction.

use std::collections::BTreeMap;
use std::fmt;

use node_model::{FlavourId, JsonObject, MASK, Mac, Neighbour, Node, Port, PortId, RuleId};
use serde_json::{Map, Value};

use crate::attributes;
use crate::hooks::Hook;

/// Everything that came of one report.
#[derive(Clone, PartialEq, Debug)]
#[must_use = "findings change nothing until they are stored"]
pub struct Findings {
    /// What changes about the node.
    pub node: NodeChanges,
    /// What changes about its ports.
    pub ports: Vec<PortChange>,
    /// The hardware, to be stored.
    pub inventory: JsonObject,
    /// Everything else, to be stored. The ramdisk's logs are not in it.
    pub plugin_data: JsonObject,
    /// What hooks and flavours found for the node, to be stored: the next inspection may replace
    /// it, while it leaves alone what an operator said.
    pub found: JsonObject,
    /// What the network cards are plugged into; none if the ramdisk did not listen.
    pub neighbours: Option<Vec<Neighbour>>,
    /// Requests that rules ask for. One that fails after its retries fails the inspection.
    pub calls: Vec<ApiCall>,
    /// What each hook and rule did, in order, for the timeline. Holds no values that could be
    /// secret, except what an operator wrote into a `log` action.
    pub notes: Vec<Note>,
}

/// What changes about a node.
///
/// `driver_info` and its like hold masks where secrets stand, so only members that changed are
/// here: writing the whole object back would overwrite the secrets. A rule can put a secret into
/// one of them; the store takes it out again when it seals the node, as after an API request.
#[derive(Clone, PartialEq, Default)]
pub struct NodeChanges {
    /// Members of free-form objects: a new value, or none for one that goes away.
    pub objects: BTreeMap<ObjectField, BTreeMap<String, Option<Value>>>,
    /// Other fields by Ironic's name for them, each of the type it has there; null clears.
    pub fields: BTreeMap<&'static str, Value>,
    /// All traits, if they changed. Sorted.
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

/// A change of one port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortChange {
    /// A new port. If another node has one with this address already, nothing is created: ports
    /// never change their node.
    Create(NewPort),
    /// A port as it shall be.
    Update(Box<Port>),
    /// A port goes away.
    Delete(PortId, Mac),
}

/// A port that has no id yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPort(pub(crate) Box<Port>);

/// A request that a rule asks for: `GET`, with retries.
#[derive(Clone, PartialEq)]
pub struct ApiCall {
    /// Where to.
    pub url: String,
    /// Headers to send. May hold secrets.
    pub headers: BTreeMap<String, String>,
    /// Proxy by scheme.
    pub proxies: BTreeMap<String, String>,
    /// Seconds for each try.
    pub timeout: f64,
    /// Tries after the first, on no answer and on 429, 500, 502, 503 and 504.
    pub retries: u32,
    /// Seconds before the second retry; doubles with each.
    pub backoff_factor: f64,
}

/// A line for the timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// Who says it.
    pub source: Source,
    /// How important it is.
    pub level: Level,
    /// What was done or not done, and why.
    pub text: String,
}

/// Who did something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A hook.
    Hook(Hook),
    /// An inspection rule.
    Rule(RuleId),
    /// A flavour.
    Flavour(FlavourId),
}

/// How important a note is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// For whoever looks for a mistake.
    Debug,
    /// Something was done.
    Info,
    /// Something is not as expected.
    Warning,
    /// A rule says so.
    Error,
}

impl NodeChanges {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.fields.is_empty() && self.traits.is_none()
    }

    /// Writes the changes into `node`.
    pub fn apply_to(&self, node: &mut Node) {
        for (field, members) in &self.objects {
            field.of_mut(node).edit(|object| merge(object, members));
        }
        for (name, value) in &self.fields {
            // The value was accepted for this very attribute when the change was made.
            attributes::write(node, name, value);
        }
        if let Some(traits) = &self.traits {
            node.traits.clone_from(traits);
        }
    }

    /// The names of what changes, for the journal.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let members = self.objects.iter().flat_map(|(field, members)| {
            members.keys().map(|member| format!("{}/{member}", field.as_str()))
        });
        let fields = self.fields.keys().map(|name| (*name).to_owned());
        members.chain(fields).chain(self.traits.iter().map(|_| "traits".to_owned())).collect()
    }
}

impl fmt::Debug for NodeChanges {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeChanges").field(&self.names()).finish()
    }
}

impl ObjectField {
    /// All of them.
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

    /// Ironic's name for it.
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

    /// The field with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.as_str() == name)
    }

    /// The object of a node.
    #[must_use]
    pub const fn of(self, node: &Node) -> &JsonObject {
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

    /// The object of a node, to change it.
    pub const fn of_mut(self, node: &mut Node) -> &mut JsonObject {
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

impl Source {
    /// Whose word it is.
    pub(crate) const fn speaker(self) -> &'static str {
        match self {
            Self::Hook(_) => "the ramdisk",
            Self::Rule(_) => "the rule",
            Self::Flavour(_) => "the flavour",
        }
    }
}

impl NewPort {
    /// Its hardware address.
    #[must_use]
    pub fn address(&self) -> &Mac {
        &self.0.address
    }

    /// The port, with the id it gets.
    #[must_use]
    pub fn into_port(self, id: PortId) -> Port {
        Port { id, ..*self.0 }
    }
}

impl fmt::Debug for ApiCall {
    /// Without query, headers and proxies, where secrets would be.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.split('?').next().unwrap_or_default();
        f.debug_struct("ApiCall").field("url", &url).field("headers", &MASK).finish_non_exhaustive()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hook(hook) => write!(f, "inspection hook {hook}"),
            Self::Rule(rule) => write!(f, "inspection rule {rule}"),
            // Its notes call it by its name, which is all that operators know.
            Self::Flavour(_) => f.write_str("flavour"),
        }
    }
}

fn merge(object: &mut Map<String, Value>, members: &BTreeMap<String, Option<Value>>) {
    for (key, value) in members {
        match value {
            Some(value) => object.insert(key.clone(), value.clone()),
            None => object.remove(key),
        };
    }
}
