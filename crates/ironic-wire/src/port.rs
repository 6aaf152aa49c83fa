// SPDX-License-Identifier: Apache-2.0
//! Ports as Ironic shows them.

use node_model::{Mac, NodeId, Port, PortId, PortgroupId, Timestamp};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::body::Writable;
use crate::error::{WireError, excerpt};
use crate::field::{Field, Identity, Resource, Shape};
use crate::names::name;
use crate::rows::{
    created_at_row, flag_row, links_row, node_uuid_row, object_row, text_row, updated_at_row,
    uuid_row,
};
use crate::value::{
    Problem, SHORT_TEXT, expected, flag, mac, mandatory_text, object, one_of, text, text_or_null,
    uuid,
};
use crate::version::ApiVersion;

/// The longest name of a physical network.
pub(crate) const PHYSICAL_NETWORK: usize = 64;
/// The longest category.
pub(crate) const CATEGORY: usize = 80;
/// The longest vendor.
const VENDOR: usize = 32;

/// A port being created or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortDraft {
    /// The port.
    pub port: Port,
    /// The node as the user named it (name or UUID), when `node_uuid` was not given.
    pub node_ident: Option<String>,
}

impl Resource for Port {
    const KIND: &'static str = "port";
    const COLLECTION: &'static str = "ports";
    const PATH: &'static str = "ports";
    type Draft = PortDraft;

    fn fields() -> &'static [Field<Self>] {
        FIELDS
    }

    fn identity(&self) -> Identity<'_> {
        Identity::Uuid(self.id.0)
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

impl Writable for Port {
    fn blank(now: Timestamp, _version: ApiVersion) -> PortDraft {
        PortDraft {
            // Both the node and the address must be given; they are filled in by the rows below.
            port: Self::new(
                PortId::random(),
                NodeId(Uuid::nil()),
                "00:00:00:00:00:00".parse().expect("it is an address"),
                now,
            ),
            node_ident: None,
        }
    }

    fn of(draft: &PortDraft) -> &Self {
        &draft.port
    }
}

static FIELDS: &[Field<Port>] = &[
    uuid_row!(Port, 1, |draft| draft.port.id.0),
    Field::<Port>::new("address", 1, Shape::Text, |w, port, _| w.string(port.address.as_str()))
        .needs(&["address"])
        .sortable()
        .listed()
        .written(|draft, value, _| {
            draft.port.address =
                mac(&value)?.ok_or("it is mandatory and cannot be null or removed")?;
            Ok(())
        })
        .required(),
    links_row!(Port, 1),
    created_at_row!(Port, 1),
    updated_at_row!(Port, 1),
    node_uuid_row!(Port, 1, |draft| draft.port.node_id.0),
    object_row!(Port, "extra", 1, extra).written(|draft, value, _| {
        draft.port.extra = object(value)?.into();
        Ok(())
    }),
    object_row!(Port, "internal_info", 18, internal_info),
    object_row!(Port, "local_link_connection", 19, local_link_connection).written(
        |draft, value, version| {
            draft.port.local_link_connection = link_connection(value, version)?.into();
            Ok(())
        },
    ),
    flag_row!(Port, "pxe_enabled", 19, pxe_enabled).written(|draft, value, _| {
        draft.port.pxe_enabled = flag(&value)?.unwrap_or(true);
        Ok(())
    }),
    Field::<Port>::new("portgroup_uuid", 24, Shape::Uuid, |w, port, _| {
        w.optional_uuid(port.portgroup_id.map(|id| id.0));
    })
    .nullable()
    .needs(&["portgroup_uuid"])
    .written(|draft, value, _| {
        draft.port.portgroup_id = uuid(&value)?.map(PortgroupId);
        Ok(())
    }),
    text_row!(Port, "physical_network", 34, physical_network).written(|draft, value, _| {
        draft.port.physical_network = text_or_null(value, PHYSICAL_NETWORK)?;
        Ok(())
    }),
    flag_row!(Port, "is_smartnic", 53, is_smartnic).written(|draft, value, _| {
        draft.port.is_smartnic = flag(&value)?.unwrap_or(false);
        Ok(())
    }),
    text_row!(Port, "name", 88, name).written(|draft, value, _| {
        draft.port.name = name(value)?;
        Ok(())
    }),
    text_row!(Port, "description", 97, description).written(|draft, value, _| {
        draft.port.description = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    text_row!(Port, "vendor", 100, vendor).written(|draft, value, _| {
        draft.port.vendor = text(value, VENDOR)?;
        Ok(())
    }),
    text_row!(Port, "category", 101, category).written(|draft, value, _| {
        draft.port.category = text(value, CATEGORY)?;
        Ok(())
    }),
    flag_row!(Port, "available_for_dynamic_portgroup", 111, available_for_dynamic_portgroup)
        .written(|draft, value, _| {
            draft.port.available_for_dynamic_portgroup = flag(&value)?.unwrap_or(true);
            Ok(())
        }),
    Field::<Port>::only_created("node_ident", 94, Shape::Text, |draft, value, _| {
        draft.node_ident = Some(mandatory_text(value, SHORT_TEXT)?);
        Ok(())
    }),
];

/// The other end of the cable: a switch port, a SmartNIC, an unmanaged link, or nothing.
fn link_connection(value: Value, version: ApiVersion) -> Result<Map<String, Value>, Problem> {
    /// The keys that came late: name, first version, last version.
    const LATE: [(&str, u16, u16); 3] = [
        ("network_type", 64, u16::MAX),
        ("vtep-logical-switch", 90, 104),
        ("vtep-physical-switch", 90, 104),
    ];
    const KNOWN: [&str; 4] = ["port_id", "switch_id", "hostname", "switch_info"];

    let mut link = object(value)?;
    for (key, value) in &link {
        match LATE.iter().find(|(late, ..)| late == key) {
            Some((_, since, until)) if !(*since..=*until).contains(&version.0) => {
                return Err(Problem::TooNew(format!("local_link_connection {key}").into(), *since));
            }
            Some(_) => {}
            None => one_of(key, &KNOWN)?,
        }
        if !value.is_string() {
            return Err(expected("a string", value).at(excerpt(key)));
        }
    }
    let has = |key: &str| link.contains_key(key);
    let network_type = link.get("network_type").and_then(Value::as_str);
    if let Some(network_type) = network_type {
        one_of(network_type, &["managed", "unmanaged"])?;
    }
    let complete = link.is_empty()
        || (has("port_id") && (has("switch_id") || has("hostname")))
        || (has("port_id") && has("vtep-logical-switch") && has("vtep-physical-switch"))
        || network_type == Some("unmanaged");
    if !complete {
        return Err("it needs port_id with switch_id or hostname, or network_type unmanaged".into());
    }
    if let Some(Value::String(switch)) = link.get("switch_id") {
        let normal = switch_id(switch)?;
        link.insert("switch_id".to_owned(), normal.into());
    }
    Ok(link)
}

/// A switch is known by its MAC address or by a 64-bit OpenFlow datapath id.
fn switch_id(text: &str) -> Result<String, Problem> {
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
    fn forms_of_links() {
        for (link, version, good) in [
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
            let outcome = link_connection(link.clone(), ApiVersion(version));
            assert_eq!(outcome.is_ok(), good, "{link} at 1.{version}: {outcome:?}");
        }
    }
}
