// SPDX-License-Identifier: Apache-2.0
//! The wire format of ports.

use node_model::{Mac, NodeId, Port, PortId, PortgroupId, Timestamp};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::body::WritableResource;
use crate::error::{WireError, excerpt};
use crate::field::{FieldShape, ResourceField, ResourceIdentity, WireResource};
use crate::names::name;
use crate::rows::{
    created_at_row, flag_row, links_row, node_uuid_row, object_row, text_row, updated_at_row,
    uuid_row,
};
use crate::value::{
    SHORT_TEXT, ValueError, check_one_of, flag, mac, mandatory_text, object,
    object_without_secrets, text, text_or_null, unexpected_type, uuid,
};
use crate::version::ApiVersion;

/// Maximum length of the name of a physical network.
pub(crate) const PHYSICAL_NETWORK: usize = 64;
/// Maximum length of a category.
pub(crate) const CATEGORY: usize = 80;
/// Maximum length of a vendor.
const VENDOR: usize = 32;

/// A port that is being created or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortDraft {
    /// The port.
    pub port: Port,
    /// Name or UUID of the node, if `node_uuid` was not given.
    pub node_ident: Option<String>,
}

impl WireResource for Port {
    const KIND: &'static str = "port";
    const COLLECTION: &'static str = "ports";
    const PATH: &'static str = "ports";
    type Draft = PortDraft;

    fn fields() -> &'static [ResourceField<Self>] {
        FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Uuid(self.id.0)
    }

    fn complete(
        draft: &mut PortDraft,
        changed: &[&'static str],
        _version: ApiVersion,
    ) -> Result<(), WireError> {
        match (draft.port.node_id.0.is_nil(), draft.node_ident.is_some()) {
            (true, false) => return Err(WireError::missing("node_uuid")),
            (false, true) => {
                return Err(WireError::invalid(
                    "Only one of node_uuid and node_ident can be given",
                ));
            }
            (true, true) | (false, false) => {}
        }
        let touched =
            changed.contains(&"is_smartnic") || changed.contains(&"local_link_connection");
        if touched && draft.port.is_smartnic {
            let link = draft.port.local_link_connection.parse();
            if !link.contains_key("port_id") || !link.contains_key("hostname") {
                return Err(WireError::invalid_field(
                    "is_smartnic",
                    "a SmartNIC needs port_id and hostname in local_link_connection",
                ));
            }
        }
        Ok(())
    }
}

impl WritableResource for Port {
    fn blank(now: Timestamp, _version: ApiVersion) -> PortDraft {
        PortDraft {
            // Placeholders: node and address are mandatory.
            port: Self::new(
                PortId::random(),
                NodeId(Uuid::nil()),
                "00:00:00:00:00:00".parse().expect("it is an address"),
                now,
            ),
            node_ident: None,
        }
    }

    fn resource(draft: &PortDraft) -> &Self {
        &draft.port
    }
}

static FIELDS: &[ResourceField<Port>] = &[
    uuid_row!(Port, 1, |draft| draft.port.id.0),
    ResourceField::<Port>::new("address", 1, FieldShape::Text, |w, port, _| {
        w.string(port.address.as_str())
    })
    .columns(&["address"])
    .sortable()
    .listed()
    .writable(|draft, value, _| {
        draft.port.address = mac(&value)?.ok_or("it is mandatory and cannot be null or removed")?;
        Ok(())
    })
    .required(),
    links_row!(Port, 1),
    created_at_row!(Port, 1),
    updated_at_row!(Port, 1),
    node_uuid_row!(Port, 1, |draft| draft.port.node_id.0),
    object_row!(Port, "extra", 1, extra).writable(|draft, value, _| {
        draft.port.extra = object_without_secrets(value)?.into();
        Ok(())
    }),
    object_row!(Port, "internal_info", 18, internal_info),
    object_row!(Port, "local_link_connection", 19, local_link_connection).writable(
        |draft, value, version| {
            draft.port.local_link_connection = link_connection(value, version)?.into();
            Ok(())
        },
    ),
    flag_row!(Port, "pxe_enabled", 19, pxe_enabled).writable(|draft, value, _| {
        draft.port.pxe_enabled = flag(&value)?.unwrap_or(true);
        Ok(())
    }),
    ResourceField::<Port>::new("portgroup_uuid", 24, FieldShape::Uuid, |w, port, _| {
        w.optional_uuid(port.portgroup_id.map(|id| id.0));
    })
    .nullable()
    .columns(&["portgroup_uuid"])
    .writable(|draft, value, _| {
        draft.port.portgroup_id = uuid(&value)?.map(PortgroupId);
        Ok(())
    }),
    text_row!(Port, "physical_network", 34, physical_network).writable(|draft, value, _| {
        draft.port.physical_network = text_or_null(value, PHYSICAL_NETWORK)?;
        Ok(())
    }),
    flag_row!(Port, "is_smartnic", 53, is_smartnic).writable(|draft, value, _| {
        draft.port.is_smartnic = flag(&value)?.unwrap_or(false);
        Ok(())
    }),
    text_row!(Port, "name", 88, name).writable(|draft, value, _| {
        draft.port.name = name(value)?;
        Ok(())
    }),
    text_row!(Port, "description", 97, description).writable(|draft, value, _| {
        draft.port.description = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    text_row!(Port, "vendor", 100, vendor).writable(|draft, value, _| {
        draft.port.vendor = text(value, VENDOR)?;
        Ok(())
    }),
    text_row!(Port, "category", 101, category).writable(|draft, value, _| {
        draft.port.category = text(value, CATEGORY)?;
        Ok(())
    }),
    flag_row!(Port, "available_for_dynamic_portgroup", 111, available_for_dynamic_portgroup)
        .writable(|draft, value, _| {
            draft.port.available_for_dynamic_portgroup = flag(&value)?.unwrap_or(true);
            Ok(())
        }),
    ResourceField::<Port>::create_only("node_ident", 94, FieldShape::Text, |draft, value, _| {
        draft.node_ident = Some(mandatory_text(value, SHORT_TEXT)?);
        Ok(())
    }),
];

/// Checks `local_link_connection`: a switch port, a SmartNIC, an unmanaged link, or empty.
fn link_connection(value: Value, version: ApiVersion) -> Result<Map<String, Value>, ValueError> {
    /// Version-dependent keys: name, first version, last version.
    const VERSIONED_KEYS: [(&str, u16, u16); 3] = [
        ("network_type", 64, u16::MAX),
        ("vtep-logical-switch", 90, 104),
        ("vtep-physical-switch", 90, 104),
    ];
    const KEYS: [&str; 4] = ["port_id", "switch_id", "hostname", "switch_info"];

    let mut link = object(value)?;
    for (key, value) in &link {
        match VERSIONED_KEYS.iter().find(|(versioned, ..)| versioned == key) {
            Some((_, since, until)) if !(*since..=*until).contains(&version.0) => {
                return Err(ValueError::TooNew(
                    format!("local_link_connection {key}").into(),
                    *since,
                ));
            }
            Some(_) => {}
            None => check_one_of(key, &KEYS)?,
        }
        if !value.is_string() {
            return Err(unexpected_type("a string", value).at(excerpt(key)));
        }
    }
    let has = |key: &str| link.contains_key(key);
    let network_type = link.get("network_type").and_then(Value::as_str);
    if let Some(network_type) = network_type {
        check_one_of(network_type, &["managed", "unmanaged"])?;
    }
    let complete = link.is_empty()
        || (has("port_id") && (has("switch_id") || has("hostname")))
        || (has("port_id") && has("vtep-logical-switch") && has("vtep-physical-switch"))
        || network_type == Some("unmanaged");
    if !complete {
        return Err("it needs port_id with switch_id or hostname, or network_type unmanaged".into());
    }
    if let Some(Value::String(switch)) = link.get("switch_id") {
        let normalised = switch_id(switch)?;
        link.insert("switch_id".to_owned(), normalised.into());
    }
    Ok(link)
}

/// Normalises a switch id: a MAC address or a 64-bit OpenFlow datapath id.
fn switch_id(text: &str) -> Result<String, ValueError> {
    if let Ok(mac) = text.parse::<Mac>() {
        return Ok(mac.as_str().to_owned());
    }
    if text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(format!("switch_id '{}' is neither a MAC address nor a datapath id", excerpt(text)).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn checks_local_link_connection() {
        for (link, version, is_valid) in [
            (json!({}), 19, true),
            (json!(null), 19, true),
            (json!({"port_id": "1", "switch_id": "AA-BB-cc-dd-ee-ff"}), 19, true),
            (json!({"port_id": "1", "switch_id": "0123456789ABCDEF"}), 19, true),
            (json!({"port_id": "1", "switch_id": "x"}), 19, false),
            (json!({"port_id": "1", "hostname": "h"}), 53, true),
            (json!({"port_id": "1"}), 53, false),
            (json!({"network_type": "unmanaged"}), 64, true),
            (json!({"network_type": "unmanaged"}), 63, false),
            (json!({"network_type": "managed"}), 64, false),
            (
                json!({"port_id": "1", "vtep-logical-switch": "a", "vtep-physical-switch": "b"}),
                90,
                true,
            ),
            (
                json!({"port_id": "1", "vtep-logical-switch": "a", "vtep-physical-switch": "b"}),
                105,
                false,
            ),
            (json!({"port_id": 1, "switch_id": "aa:bb:cc:dd:ee:ff"}), 19, false),
            (json!({"bogus": "1"}), 19, false),
            (json!([]), 19, false),
        ] {
            let result = link_connection(link.clone(), ApiVersion(version));
            assert_eq!(result.is_ok(), is_valid, "{link} at 1.{version}: {result:?}");
        }
    }
}
