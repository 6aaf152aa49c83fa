// SPDX-License-Identifier: Apache-2.0
//! The wire format of nodes: the field table and version-dependent values.

use node_model::{
    InterfaceKind, JsonObject, MASK, Node, NodeId, ProvisionState, Step, StepFlow, Timestamp,
    WorkKind, mask_secrets,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::body::WritableResource;
use crate::context::RenderContext;
use crate::error::WireError;
use crate::field::{FieldShape, ResourceField, ResourceIdentity, WireResource};
use crate::value::{SHORT_TEXT, flag, mandatory_text, object, text, text_or_null, uuid};
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

/// Maximum length of a description.
const DESCRIPTION: usize = 4096;
/// Maximum length of a resource class.
const RESOURCE_CLASS: usize = 80;
/// Maximum length of a protection or retirement reason. The column has no limit.
const REASON: usize = 65_535;

/// A node that is being created or changed.
///
/// `driver_info` and `instance_info` are in plain text here; `node` keeps the masked ones until the
/// store seals the new ones.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeDraft {
    /// All fields except the two maps below.
    pub node: Node,
    /// `driver_info` with secrets.
    pub driver_info: Map<String, Value>,
    /// `instance_info` with secrets.
    pub instance_info: Map<String, Value>,
    /// Name or UUID of the parent node; `Some(None)` unsets it, `None` leaves it unchanged.
    pub parent_node: Option<Option<String>>,
}

impl NodeDraft {
    /// A draft of `node` with its secrets revealed.
    #[must_use]
    pub fn new(
        node: Node,
        driver_info: Map<String, Value>,
        instance_info: Map<String, Value>,
    ) -> Self {
        Self { node, driver_info, instance_info, parent_node: None }
    }
}

impl WireResource for Node {
    const KIND: &'static str = "node";
    const COLLECTION: &'static str = "nodes";
    const PATH: &'static str = "nodes";
    type Draft = NodeDraft;

    fn fields() -> &'static [ResourceField<Self>] {
        FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Uuid(self.id.0)
    }

    fn complete(
        draft: &mut NodeDraft,
        changed: &[&'static str],
        version: ApiVersion,
    ) -> Result<(), WireError> {
        crate::node_rules::complete(draft, changed, version)
    }
}

impl WritableResource for Node {
    fn blank(now: Timestamp, version: ApiVersion) -> NodeDraft {
        let mut node = Self::new(NodeId::random(), "", now);
        node.provision_state = initial_state(version);
        NodeDraft::new(node, Map::new(), Map::new())
    }

    fn resource(draft: &NodeDraft) -> &Self {
        &draft.node
    }

    fn revealed_value(draft: &NodeDraft, field: &'static str) -> Option<Value> {
        match field {
            "driver_info" => Some(Value::Object(draft.driver_info.clone())),
            "instance_info" => Some(Value::Object(draft.instance_info.clone())),
            _ => None,
        }
    }
}

type NodeField = ResourceField<Node>;

macro_rules! interface {
    ($name:literal, $since:literal, $kind:ident) => {
        NodeField::new($name, $since, FieldShape::Text, |w, node, _| {
            w.optional_string(node.interfaces.get(InterfaceKind::$kind));
        })
        .nullable()
        .columns(&[$name])
        .sortable()
        .writable(|draft, value, _| {
            let implementation = text(value, SHORT_TEXT)?;
            draft.node.interfaces.set(InterfaceKind::$kind, implementation.as_deref());
            Ok(())
        })
    };
}

macro_rules! sub_links {
    ($name:literal, $since:literal, $suffix:literal) => {
        NodeField::new($name, $since, FieldShape::Links, |w, node, context| {
            context.links(w, "nodes", node.identity(), $suffix);
        })
        .columns(&["uuid"])
    };
}

macro_rules! optional_text {
    ($name:literal, $since:literal, $member:ident) => {
        NodeField::new($name, $since, FieldShape::Text, |w, node, _| {
            w.optional_string(node.$member.as_deref());
        })
        .nullable()
        .columns(&[$name])
        .sortable()
    };
}

macro_rules! optional_timestamp {
    ($name:literal, $since:literal, $member:ident) => {
        NodeField::new($name, $since, FieldShape::Timestamp, |w, node, _| {
            w.optional_timestamp(node.$member);
        })
        .nullable()
        .columns(&[$name])
        .sortable()
    };
}

macro_rules! boolean {
    ($name:literal, $since:literal, $member:ident) => {
        NodeField::new($name, $since, FieldShape::Boolean, |w, node, _| w.boolean(node.$member))
            .columns(&[$name])
            .sortable()
    };
}

macro_rules! free_form {
    ($name:literal, $since:literal, $member:ident) => {
        NodeField::new($name, $since, FieldShape::Object, |w, node, _| w.object(&node.$member))
            .columns(&[$name])
    };
}

macro_rules! free_form_with_secrets {
    ($name:literal, $since:literal, $member:ident) => {
        NodeField::new($name, $since, FieldShape::Object, |w, node, _| {
            w.object_with_masked_urls(&node.$member);
        })
        .columns(&[$name])
    };
}

macro_rules! step {
    ($name:literal, $since:literal, $flow:ident) => {
        NodeField::new($name, $since, FieldShape::Object, |w, node, _| {
            write_current_step(w, node, StepFlow::$flow);
        })
        .columns(&["work"])
    };
}

static FIELDS: &[NodeField] = &[
    NodeField::new("uuid", 1, FieldShape::Uuid, |w, node, _| w.uuid(node.id.0))
        .columns(&["uuid"])
        .sortable()
        .listed()
        .creatable(|draft, value, _| {
            if let Some(id) = uuid(&value)? {
                draft.node.id.0 = id;
            }
            Ok(())
        }),
    NodeField::new("name", 5, FieldShape::Text, |w, node, _| {
        w.optional_string(node.name.as_deref())
    })
    .nullable()
    .columns(&["name"])
    .sortable()
    .listed()
    .writable(|draft, value, version| {
        draft.node.name = crate::names::node_name(value, version)?;
        Ok(())
    }),
    NodeField::new("instance_uuid", 1, FieldShape::Uuid, |w, node, _| {
        w.optional_uuid(node.instance_uuid)
    })
    .nullable()
    .columns(&["instance_uuid"])
    .sortable()
    .listed()
    .writable(|draft, value, _| {
        draft.node.instance_uuid = uuid(&value)?;
        Ok(())
    }),
    boolean!("maintenance", 1, maintenance).listed().writable(|draft, value, _| {
        draft.node.maintenance = flag(&value)?.unwrap_or(false);
        Ok(())
    }),
    NodeField::new("power_state", 1, FieldShape::Text, |w, node, _| {
        w.optional_string(node.power_state.map(|state| state.as_str()));
    })
    .nullable()
    .columns(&["power_state"])
    .sortable()
    .listed(),
    NodeField::new("provision_state", 1, FieldShape::Text, |w, node, context| {
        w.optional_string(provision_state_at(node.provision_state, context.version));
    })
    .nullable()
    .columns(&["provision_state"])
    .sortable()
    .listed(),
    NodeField::new("links", 1, FieldShape::Links, |w, node, context| {
        context.links(w, "nodes", node.identity(), "");
    })
    .columns(&["uuid"])
    .listed(),
    NodeField::new("created_at", 1, FieldShape::Timestamp, |w, node, _| {
        w.timestamp(node.created_at)
    })
    .columns(&["created_at"])
    .sortable(),
    optional_timestamp!("updated_at", 1, updated_at),
    NodeField::new("driver", 1, FieldShape::Text, |w, node, _| w.string(&node.driver))
        .columns(&["driver"])
        .sortable()
        .writable(|draft, value, _| {
            draft.node.driver = mandatory_text(value, SHORT_TEXT)?;
            Ok(())
        })
        .required(),
    free_form_with_secrets!("driver_info", 1, driver_info).writable(|draft, value, _| {
        draft.driver_info = object(value)?;
        Ok(())
    }),
    free_form!("properties", 1, properties).writable(|draft, value, _| {
        draft.node.properties = JsonObject::from(object(value)?);
        Ok(())
    }),
    free_form!("extra", 1, extra).writable(|draft, value, _| {
        draft.node.extra = JsonObject::from(object(value)?);
        Ok(())
    }),
    free_form_with_secrets!("instance_info", 1, instance_info).writable(|draft, value, _| {
        draft.instance_info = object(value)?;
        Ok(())
    }),
    NodeField::new("driver_internal_info", 3, FieldShape::Object, |w, node, _| {
        write_internal_info(w, node)
    })
    .columns(&["driver_internal_info", "agent", "work"]),
    NodeField::new("chassis_uuid", 1, FieldShape::Uuid, |w, node, _| {
        w.optional_uuid(node.chassis_id.map(|id| id.0));
    })
    .nullable()
    .columns(&["chassis_uuid"])
    .writable(|draft, value, _| {
        draft.node.chassis_id = uuid(&value)?.map(node_model::ChassisId);
        Ok(())
    }),
    NodeField::new("target_power_state", 1, FieldShape::Text, |w, node, _| {
        w.optional_string(node.target_power_state.map(|state| state.as_str()));
    })
    .nullable()
    .columns(&["target_power_state"])
    .sortable(),
    NodeField::new("target_provision_state", 1, FieldShape::Text, |w, node, _| {
        w.optional_string(node.target_provision_state.map(|state| state.as_str()));
    })
    .nullable()
    .columns(&["target_provision_state"])
    .sortable(),
    optional_timestamp!("provision_updated_at", 1, provision_updated_at),
    optional_text!("reservation", 1, reservation),
    optional_text!("maintenance_reason", 1, maintenance_reason),
    optional_text!("last_error", 1, last_error),
    boolean!("console_enabled", 1, console_enabled).creatable(|draft, value, _| {
        draft.node.console_enabled = flag(&value)?.unwrap_or(false);
        Ok(())
    }),
    optional_timestamp!("inspection_finished_at", 6, inspection_finished_at),
    optional_timestamp!("inspection_started_at", 6, inspection_started_at),
    step!("clean_step", 7, Clean),
    free_form!("raid_config", 12, raid_config),
    free_form!("target_raid_config", 12, target_raid_config),
    interface!("network_interface", 20, Network),
    optional_text!("resource_class", 21, resource_class).writable(|draft, value, _| {
        draft.node.resource_class = text(value, RESOURCE_CLASS)?;
        Ok(())
    }),
    interface!("boot_interface", 31, Boot),
    interface!("console_interface", 31, Console),
    interface!("deploy_interface", 31, Deploy),
    interface!("inspect_interface", 31, Inspect),
    interface!("management_interface", 31, Management),
    interface!("power_interface", 31, Power),
    interface!("raid_interface", 31, Raid),
    interface!("vendor_interface", 31, Vendor),
    interface!("storage_interface", 33, Storage),
    NodeField::new("traits", 37, FieldShape::TextList, |w, node, _| w.strings(&node.traits))
        .columns(&["traits"]),
    interface!("rescue_interface", 38, Rescue),
    interface!("bios_interface", 40, Bios),
    NodeField::new("fault", 42, FieldShape::Text, |w, node, _| {
        w.optional_string(node.fault.map(|fault| fault.as_str()));
    })
    .nullable()
    .columns(&["fault"])
    .sortable(),
    step!("deploy_step", 44, Deploy),
    NodeField::new("conductor_group", 46, FieldShape::Text, |w, node, _| {
        w.string(&node.conductor_group)
    })
    .columns(&["conductor_group"])
    .sortable()
    .writable(|draft, value, _| {
        let group = text(value, SHORT_TEXT)?.unwrap_or_default().to_lowercase();
        // Some letters become two characters in lower case, so check the length again.
        draft.node.conductor_group = text(group.into(), SHORT_TEXT)?.unwrap_or_default();
        Ok(())
    }),
    NodeField::new("automated_clean", 47, FieldShape::Boolean, |w, node, _| {
        w.optional_boolean(node.automated_clean);
    })
    .nullable()
    .columns(&["automated_clean"])
    .sortable()
    .writable(|draft, value, _| {
        draft.node.automated_clean = flag(&value)?;
        Ok(())
    }),
    boolean!("protected", 48, protected).patchable(|draft, value, _| {
        draft.node.protected = flag(&value)?.unwrap_or(false);
        Ok(())
    }),
    optional_text!("protected_reason", 48, protected_reason).patchable(|draft, value, _| {
        draft.node.protected_reason = text(value, REASON)?;
        Ok(())
    }),
    NodeField::new("conductor", 49, FieldShape::Text, |w, node, context| {
        w.optional_string(context.conductor_of(node));
    })
    .nullable()
    .columns(&["uuid", "driver", "conductor_group"]),
    optional_text!("owner", 50, owner).writable(|draft, value, _| {
        draft.node.owner = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    optional_text!("description", 51, description).writable(|draft, value, _| {
        draft.node.description = text(value, DESCRIPTION)?;
        Ok(())
    }),
    NodeField::new("allocation_uuid", 52, FieldShape::Uuid, |w, node, _| {
        w.optional_uuid(node.allocation_id.map(|id| id.0));
    })
    .nullable()
    .columns(&["allocation_uuid"]),
    boolean!("retired", 61, retired).writable(|draft, value, _| {
        draft.node.retired = flag(&value)?.unwrap_or(false);
        Ok(())
    }),
    optional_text!("retired_reason", 61, retired_reason).writable(|draft, value, _| {
        draft.node.retired_reason = text(value, REASON)?;
        Ok(())
    }),
    optional_text!("lessee", 65, lessee).writable(|draft, value, _| {
        draft.node.lessee = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    free_form!("network_data", 66, network_data).writable(|draft, value, _| {
        draft.node.network_data = JsonObject::from(crate::network_data::check_network_data(value)?);
        Ok(())
    }),
    optional_text!("boot_mode", 75, boot_mode).creatable(|draft, value, _| {
        draft.node.boot_mode = text(value, 16)?;
        Ok(())
    }),
    NodeField::new("secure_boot", 75, FieldShape::Boolean, |w, node, _| {
        w.optional_boolean(node.secure_boot)
    })
    .nullable()
    .columns(&["secure_boot"])
    .sortable()
    .creatable(|draft, value, _| {
        draft.node.secure_boot = flag(&value)?;
        Ok(())
    }),
    optional_text!("shard", 82, shard).writable(|draft, value, _| {
        draft.node.shard = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    NodeField::new("parent_node", 83, FieldShape::Uuid, |w, node, _| {
        w.optional_uuid(node.parent_node.map(|id| id.0));
    })
    .nullable()
    .columns(&["parent_node"])
    .sortable()
    .writable(|draft, value, _| {
        draft.parent_node = Some(text(value, SHORT_TEXT)?);
        Ok(())
    }),
    interface!("firmware_interface", 86, Firmware),
    step!("service_step", 87, Service),
    boolean!("disable_power_off", 95, disable_power_off).writable(|draft, value, _| {
        draft.node.disable_power_off = flag(&value)?.unwrap_or(false);
        Ok(())
    }),
    optional_text!("instance_name", 104, instance_name).writable(|draft, value, _| {
        draft.node.instance_name = text_or_null(value, SHORT_TEXT)?;
        Ok(())
    }),
    NodeField::new("health", 109, FieldShape::Text, |w, node, _| {
        w.optional_string(node.health.map(|health| health.as_str()));
    })
    .nullable()
    .columns(&["health"])
    .sortable(),
    sub_links!("ports", 1, "/ports"),
    sub_links!("states", 14, "/states"),
    sub_links!("portgroups", 24, "/portgroups"),
    sub_links!("volume", 32, "/volume"),
];

/// The fields of `GET /v1/nodes/{node}/states` and their first versions.
const STATES: &[(&str, u16)] = &[
    ("console_enabled", 1),
    ("last_error", 1),
    ("power_state", 1),
    ("provision_state", 1),
    ("target_power_state", 1),
    ("target_provision_state", 1),
    ("provision_updated_at", 1),
    ("raid_config", 12),
    ("target_raid_config", 12),
    ("boot_mode", 75),
    ("secure_boot", 75),
];

/// The body of `GET /v1/nodes/{node}/states`.
#[must_use]
pub fn node_states_body(node: &Node, context: &RenderContext<'_>) -> Vec<u8> {
    let mut writer = JsonWriter::with_capacity(512);
    writer.begin_object();
    for (name, since) in STATES {
        if let Some(field) = FIELDS.iter().find(|field| field.name == *name)
            && context.version.has(*since)
        {
            writer.key(field.name);
            (field.write)(&mut writer, node, context);
        }
    }
    writer.end_object();
    writer.into_bytes()
}

/// Names and first versions of the fields of the states document, for the schema.
#[must_use]
pub fn node_states_fields() -> &'static [(&'static str, u16)] {
    STATES
}

/// The name of a provision state in `version`.
#[must_use]
pub fn provision_state_at(state: ProvisionState, version: ApiVersion) -> Option<&'static str> {
    if state == ProvisionState::Available && !version.has(2) {
        // Before 1.2 the state `available` was null.
        return None;
    }
    let hides_wait = state == ProvisionState::InspectWait && !version.has(39);
    Some(if hides_wait { ProvisionState::Inspecting } else { state }.as_str())
}

/// The provision state of a new node: `enroll` exists since 1.11.
#[must_use]
pub fn initial_state(version: ApiVersion) -> ProvisionState {
    if version.has(11) { ProvisionState::Enroll } else { ProvisionState::Available }
}

fn write_current_step(w: &mut JsonWriter, node: &Node, flow: StepFlow) {
    match node.current_step(flow) {
        Some(step) => write_step(w, step),
        None => w.raw("{}"),
    }
}

/// Writes a step with masked secrets: users who can read the node need not know them.
fn write_step(w: &mut JsonWriter, step: &Step) {
    w.begin_object();
    w.key("interface");
    w.string(&step.interface);
    w.key("step");
    w.string(&step.step);
    w.key("args");
    w.object(&mask_secrets(&step.args));
    w.key("priority");
    w.integer(step.priority);
    w.key("abortable");
    w.boolean(step.abortable);
    w.key("requires_ramdisk");
    w.boolean(step.requires_ramdisk);
    if step.abort_after {
        w.key("abort_after");
        w.boolean(true);
    }
    w.end_object();
}

/// Writes `driver_internal_info`, plus members that clients expect there and that are typed fields
/// here. Drivers must not use these names.
fn write_internal_info(w: &mut JsonWriter, node: &Node) {
    w.open_object(&node.driver_internal_info);
    let agent = &node.agent;
    for (key, value) in [
        ("agent_url", agent.url.as_deref()),
        ("agent_version", agent.version.as_deref()),
        ("agent_verify_ca", agent.verify_ca.as_deref()),
        ("agent_status", agent.status.as_deref()),
        ("agent_status_message", agent.status_message.as_deref()),
        ("agent_secret_token", agent.has_token.then_some(MASK)),
    ] {
        if let Some(value) = value {
            w.key(key);
            w.string(value);
        }
    }
    if let Some(last_heartbeat) = agent.last_heartbeat {
        w.key("agent_last_heartbeat");
        w.timestamp(last_heartbeat);
    }
    if agent.token_pregenerated {
        w.key("agent_secret_token_pregenerated");
        w.boolean(true);
    }
    if let Some(work) = &node.work
        && let Some((steps, index)) = step_keys(work.kind)
        && !work.steps.is_empty()
    {
        w.key(steps);
        w.begin_array();
        for step in &work.steps {
            w.element();
            write_step(w, step);
        }
        w.end_array();
        w.key(index);
        w.integer(i64::try_from(work.cursor).unwrap_or(i64::MAX));
    }
    w.end_object();
}

/// The member names of a job's steps and of the index of the current one.
fn step_keys(kind: WorkKind) -> Option<(&'static str, &'static str)> {
    match kind.flow()? {
        StepFlow::Clean => Some(("clean_steps", "clean_step_index")),
        StepFlow::Deploy => Some(("deploy_steps", "deploy_step_index")),
        StepFlow::Service => Some(("service_steps", "service_step_index")),
        StepFlow::Verify => None,
    }
}

/// Parses a UUID in a path or query.
#[must_use]
pub fn as_uuid(ident: &str) -> Option<Uuid> {
    Uuid::try_parse(ident).ok()
}

#[cfg(test)]
mod tests {
    use node_model::{Actor, Stage, Work};
    use serde_json::json;

    use super::*;
    use crate::field::FieldSelection;

    fn running(kind: WorkKind, args: &str) -> Node {
        let now = Timestamp(0);
        let mut node = Node::new(NodeId::random(), "fake-hardware", now);
        let mut step = Step::new("bios", "apply_configuration", 10);
        step.args = JsonObject::from_stored(args);
        let requested_by = Actor::Conductor { hostname: "c".to_owned() };
        let work = Work::new(Uuid::nil(), kind, requested_by, now);
        node.work = Some(Work { stage: Stage::Run, steps: vec![step], ..work });
        node
    }

    #[test]
    fn unsealed_passwords_in_urls_are_masked() {
        let mut node = running(WorkKind::Deploy, "{}");
        let stored = r#"{"a":[{"url":"https://me:hun\"ter2@h/i"}],"b":"https://u:******@h"}"#;
        let shown = json!({"a": [{"url": "https://me:******@h/i"}], "b": "https://u:******@h"});
        for member in
            [&mut node.driver_info, &mut node.instance_info, &mut node.driver_internal_info]
        {
            *member = JsonObject::from_stored(stored);
        }
        let context = RenderContext::new(ApiVersion::MAX, "");
        let body = FieldSelection::<Node>::detail(ApiVersion::MAX).body(&node, &context);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["driver_info"], shown);
        assert_eq!(body["instance_info"], shown);
        assert_eq!(body["driver_internal_info"]["a"], shown["a"]);
    }

    #[test]
    fn secrets_in_step_arguments_are_masked() {
        for (kind, step, steps) in [
            (WorkKind::ManualClean, "clean_step", "clean_steps"),
            (WorkKind::Deploy, "deploy_step", "deploy_steps"),
            (WorkKind::Service, "service_step", "service_steps"),
        ] {
            let args = r#"{"users":[{"Password":"hunter2","name":"a"}],"configdrive":{"x":1}}"#;
            let node = running(kind, args);
            let context = RenderContext::new(ApiVersion::MAX, "");
            let body = FieldSelection::<Node>::detail(ApiVersion::MAX).body(&node, &context);
            assert!(!String::from_utf8_lossy(&body).contains("hunter2"), "{step}");
            let shown: Value = serde_json::from_slice(&body).unwrap();
            let masked = json!({"users": [{"Password": MASK, "name": "a"}], "configdrive": MASK});
            assert_eq!(shown[step]["args"], masked, "{step}");
            assert_eq!(shown["driver_internal_info"][steps][0]["args"], masked, "{steps}");
        }
    }
}
