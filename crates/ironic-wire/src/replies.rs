// SPDX-License-Identifier: Apache-2.0
//! The small replies that are not a resource: traits, VIFs, console, boot device, validation, and
//! what the agent is told when it looks itself up.

use node_model::{InterfaceKind, JsonObject, Node, NodeId};

use crate::context::Context;
use crate::field::{Identity, Selection};
use crate::writer::JsonWriter;

/// How a console can be reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsoleInfo {
    /// `socat` or `vnc`.
    pub kind: String,
    /// Where.
    pub url: String,
}

/// Whether one interface of a node is configured well enough to be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Validation {
    /// It is.
    Valid,
    /// It is not, and why.
    Invalid(String),
    /// The driver does not have this interface, and how that shows.
    Unsupported(String),
}

/// An indicator light.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndicatorView {
    /// Its name within the component.
    pub name: String,
    /// `chassis`, `system`, `disk`, `power` or `nic`.
    pub component: String,
    /// Whether it cannot be changed.
    pub readonly: bool,
    /// The states it can be in.
    pub states: Vec<String>,
}

/// What an agent is told with its node: how often to call, and with which token.
#[derive(Clone, PartialEq, Debug)]
pub struct LookupConfig {
    /// Seconds between heartbeats at most.
    pub heartbeat_timeout: u32,
    /// The token when it is handed out for the first time, else the mask.
    pub agent_token: String,
    /// Everything else, as a JSON object.
    pub more: JsonObject,
}

/// `{"traits": […]}`.
#[must_use]
pub fn traits_body(traits: &[String]) -> Vec<u8> {
    object(|w| {
        w.key("traits");
        w.strings(traits);
    })
}

/// `{"vifs": [{"id": …}, …]}`.
#[must_use]
pub fn vifs_body<'a>(ids: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    object(|w| {
        w.key("vifs");
        w.begin_array();
        for id in ids {
            w.element();
            w.begin_object();
            w.key("id");
            w.string(id);
            w.end_object();
        }
        w.end_array();
    })
}

/// `{"console_enabled": …, "console_info": …}`.
#[must_use]
pub fn console_body(enabled: bool, info: Option<&ConsoleInfo>) -> Vec<u8> {
    object(|w| {
        w.key("console_enabled");
        w.boolean(enabled);
        w.key("console_info");
        match info {
            None => w.null(),
            Some(info) => {
                w.begin_object();
                w.key("type");
                w.string(&info.kind);
                w.key("url");
                w.string(&info.url);
                w.end_object();
            }
        }
    })
}

/// `{"boot_device": …, "persistent": …}`; nulls where the BMC cannot say.
#[must_use]
pub fn boot_device_body(device: Option<&str>, persistent: Option<bool>) -> Vec<u8> {
    object(|w| {
        w.key("boot_device");
        w.optional_string(device);
        w.key("persistent");
        w.optional_boolean(persistent);
    })
}

/// `{"supported_boot_devices": […]}`.
#[must_use]
pub fn supported_boot_devices_body<S: AsRef<str>>(devices: &[S]) -> Vec<u8> {
    object(|w| {
        w.key("supported_boot_devices");
        w.strings(devices);
    })
}

/// `GET …/children`.
#[must_use]
pub fn children_body(context: &Context<'_>, parent: NodeId, children: &[NodeId]) -> Vec<u8> {
    object(|w| {
        w.key("children");
        w.begin_array();
        for child in children {
            w.element();
            w.uuid(child.0);
        }
        w.end_array();
        w.key("links");
        w.begin_object();
        w.key("href");
        w.bare("\"");
        w.bare(context.base());
        w.bare("/v1/nodes?parent_node=");
        w.bare_uuid(parent.0);
        w.bare("\"");
        w.key("rel");
        w.string("children");
        w.end_object();
    })
}

/// `GET …/validate`: one entry per interface that Ironic shows, which is all but `vendor`.
#[must_use]
pub fn validate_body(outcome_of: impl Fn(InterfaceKind) -> Validation) -> Vec<u8> {
    object(|w| {
        for kind in InterfaceKind::ALL.iter().filter(|kind| **kind != InterfaceKind::Vendor) {
            w.key(kind.as_str());
            w.begin_object();
            w.key("result");
            match outcome_of(*kind) {
                Validation::Valid => w.boolean(true),
                Validation::Invalid(reason) => {
                    w.boolean(false);
                    w.key("reason");
                    w.string(&reason);
                }
                Validation::Unsupported(reason) => {
                    w.null();
                    w.key("reason");
                    w.string(&reason);
                }
            }
            w.end_object();
        }
    })
}

/// `GET …/management/indicators`.
#[must_use]
pub fn indicators_body(context: &Context<'_>, node: NodeId, list: &[IndicatorView]) -> Vec<u8> {
    object(|w| {
        w.key("indicators");
        w.begin_array();
        let path = format!("nodes/{node}/management/indicators");
        for indicator in list {
            let name = format!("{}@{}", indicator.name, indicator.component);
            w.element();
            w.begin_object();
            w.key("name");
            w.string(&name);
            w.key("component");
            w.string(&indicator.component);
            w.key("readonly");
            w.boolean(indicator.readonly);
            w.key("states");
            w.strings(&indicator.states);
            w.key("links");
            context.links(w, &path, Identity::Name(&name), "");
            w.end_object();
        }
        w.end_array();
    })
}

/// `GET …/management/indicators/{indicator}`.
#[must_use]
pub fn indicator_state_body(state: &str) -> Vec<u8> {
    object(|w| {
        w.key("state");
        w.string(state);
    })
}

/// `GET /v1/lookup`, and the reply to `POST /v1/continue_inspection` from 1.84 on.
#[must_use]
pub fn lookup_body(context: &Context<'_>, node: &Node, config: &LookupConfig) -> Vec<u8> {
    const SHOWN: [&str; 5] =
        ["uuid", "properties", "instance_info", "driver_internal_info", "links"];
    object(|w| {
        w.key("node");
        Selection::<Node>::of_fields(&SHOWN).write(w, node, context);
        w.key("config");
        w.open_object(&config.more);
        w.key("heartbeat_timeout");
        w.integer(i64::from(config.heartbeat_timeout));
        w.key("agent_token");
        w.string(&config.agent_token);
        w.key("agent_token_required");
        w.boolean(true);
        w.end_object();
    })
}

/// The reply to `POST /v1/continue_inspection` without a version: the node's id.
#[must_use]
pub fn inspected_body(node: NodeId) -> Vec<u8> {
    object(|w| {
        w.key("uuid");
        w.uuid(node.0);
    })
}

fn object(write: impl FnOnce(&mut JsonWriter)) -> Vec<u8> {
    let mut writer = JsonWriter::with_capacity(256);
    writer.begin_object();
    write(&mut writer);
    writer.end_object();
    writer.into_bytes()
}
