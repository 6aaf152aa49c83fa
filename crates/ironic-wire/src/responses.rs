// SPDX-License-Identifier: Apache-2.0
//! Small response bodies that are not resources: traits, VIFs, console, boot device, validation.

use node_model::{InterfaceKind, NodeId};

use crate::context::RenderContext;
use crate::writer::JsonWriter;

/// How to connect to a console.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsoleConnection {
    /// `socat` or `vnc`.
    pub kind: String,
    /// The URL.
    pub url: String,
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
pub fn console_body(enabled: bool, info: Option<&ConsoleConnection>) -> Vec<u8> {
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

/// `{"boot_device": …, "persistent": …}`; null where the BMC does not report it.
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
pub fn children_body(context: &RenderContext<'_>, parent: NodeId, children: &[NodeId]) -> Vec<u8> {
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
        w.raw("\"");
        w.raw(context.base());
        w.raw("/v1/nodes?parent_node=");
        w.raw_uuid(parent.0);
        w.raw("\"");
        w.key("rel");
        w.string("children");
        w.end_object();
    })
}

/// `GET …/validate`: the result of the validation of each interface, with the reason of a failure.
#[must_use]
pub fn validate_body(results: &[(InterfaceKind, Result<(), String>)]) -> Vec<u8> {
    object(|w| {
        for (kind, result) in results {
            w.key(kind.as_str());
            w.begin_object();
            w.key("result");
            w.boolean(result.is_ok());
            if let Err(reason) = result {
                w.key("reason");
                w.string(reason);
            }
            w.end_object();
        }
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

/// The response to `POST /v1/continue_inspection` without a version: the node's UUID.
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
