// SPDX-License-Identifier: Apache-2.0
//! What was found out about a node, as Ironic shows it: settings, firmware, history, inventory.

use node_model::{BiosSetting, FirmwareComponent, HistoryEntry, Inventory, NodeId};
use serde_json::{Map, Value};

use crate::context::Context;
use crate::field::{Field, Identity, Resource, Selection, Shape};
use crate::rows::{created_at_row, text_row, updated_at_row, whole_text_row};
use crate::writer::JsonWriter;

/// The longest event a short list of history shows.
const SHORT_EVENT: usize = 255;

/// A firmware setting of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BiosView {
    /// The machine.
    pub node_id: NodeId,
    /// The setting.
    pub setting: BiosSetting,
    /// What the registry says, parsed once for all the fields that come from it.
    registry: Map<String, Value>,
}

impl BiosView {
    /// A setting of a node.
    #[must_use]
    pub fn new(node_id: NodeId, setting: BiosSetting) -> Self {
        let registry = setting.registry.parse();
        Self { node_id, setting, registry }
    }
}

/// A line of a node's history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryView {
    /// The line.
    pub entry: HistoryEntry,
    /// Whether to show the event in full: lists without `detail` cut it.
    pub whole: bool,
}

impl Resource for BiosView {
    const KIND: &'static str = "BIOS setting";
    const COLLECTION: &'static str = "bios";
    const PATH: &'static str = "bios";
    type Draft = ();

    fn fields() -> &'static [Field<Self>] {
        BIOS_FIELDS
    }

    fn identity(&self) -> Identity<'_> {
        Identity::Name(&self.setting.name)
    }
}

type BiosField = Field<BiosView>;

macro_rules! registry_row {
    ($name:literal, $shape:ident) => {
        BiosField::new($name, 74, Shape::$shape, |w, it, _| match it.registry.get($name) {
            Some(value) => w.bare(&value.to_string()),
            None => w.null(),
        })
        .nullable()
    };
}

static BIOS_FIELDS: &[BiosField] = &[
    BiosField::new("name", 40, Shape::Text, |w, it, _| w.string(&it.setting.name)).listed(),
    BiosField::new("value", 40, Shape::Text, |w, it, _| {
        w.optional_string(it.setting.value.as_deref());
    })
    .nullable()
    .listed(),
    BiosField::new("created_at", 40, Shape::Moment, |w, it, _| w.timestamp(it.setting.created_at))
        .listed(),
    BiosField::new("updated_at", 40, Shape::Moment, |w, it, _| {
        w.optional_timestamp(it.setting.updated_at);
    })
    .nullable()
    .listed(),
    BiosField::new("links", 40, Shape::Links, |w, it, context| {
        let path = format!("nodes/{}/bios", it.node_id);
        context.links(w, &path, it.identity(), "");
    })
    .listed(),
    registry_row!("attribute_type", Text),
    registry_row!("allowable_values", TextList),
    registry_row!("lower_bound", Integer),
    registry_row!("max_length", Integer),
    registry_row!("min_length", Integer),
    registry_row!("read_only", Flag),
    registry_row!("reset_required", Flag),
    registry_row!("unique", Flag),
    registry_row!("upper_bound", Integer),
];

impl Resource for FirmwareComponent {
    const KIND: &'static str = "firmware component";
    const COLLECTION: &'static str = "firmware";
    const PATH: &'static str = "firmware";
    type Draft = ();

    fn fields() -> &'static [Field<Self>] {
        FIRMWARE_FIELDS
    }

    fn identity(&self) -> Identity<'_> {
        Identity::Name(&self.component)
    }
}

static FIRMWARE_FIELDS: &[Field<FirmwareComponent>] = &[
    whole_text_row!(FirmwareComponent, "component", 86, component).listed(),
    whole_text_row!(FirmwareComponent, "initial_version", 86, initial_version).listed(),
    text_row!(FirmwareComponent, "current_version", 86, current_version).listed(),
    text_row!(FirmwareComponent, "last_version_flashed", 86, last_version_flashed).listed(),
    created_at_row!(FirmwareComponent, 86).listed(),
    updated_at_row!(FirmwareComponent, 86).listed(),
    text_row!(FirmwareComponent, "vendor", 114, vendor).listed(),
    text_row!(FirmwareComponent, "model", 114, model).listed(),
    text_row!(FirmwareComponent, "serial_number", 114, serial_number).listed(),
];

impl Resource for HistoryView {
    const KIND: &'static str = "history event";
    const COLLECTION: &'static str = "history";
    const PATH: &'static str = "history";
    type Draft = ();

    fn fields() -> &'static [Field<Self>] {
        HISTORY_FIELDS
    }

    fn identity(&self) -> Identity<'_> {
        Identity::Uuid(self.entry.id.0)
    }
}

type HistoryField = Field<HistoryView>;

macro_rules! history_text_row {
    ($name:literal, $since:literal, $member:ident) => {
        HistoryField::new($name, $since, Shape::Text, |w, it, _| {
            w.optional_string(it.entry.$member.as_deref());
        })
        .nullable()
        .needs(&[$name])
        .sortable()
    };
}

static HISTORY_FIELDS: &[HistoryField] = &[
    HistoryField::new("uuid", 78, Shape::Uuid, |w, it, _| w.uuid(it.entry.id.0))
        .needs(&["uuid"])
        .sortable()
        .listed(),
    HistoryField::new("created_at", 78, Shape::Moment, |w, it, _| w.timestamp(it.entry.created_at))
        .needs(&["created_at"])
        .sortable()
        .listed(),
    HistoryField::new("severity", 78, Shape::Text, |w, it, _| {
        w.string(it.entry.severity.as_str());
    })
    .needs(&["severity"])
    .sortable()
    .listed(),
    HistoryField::new("event", 78, Shape::Text, |w, it, _| {
        let event = &it.entry.event;
        if it.whole || event.chars().count() <= SHORT_EVENT {
            w.string(event);
        } else {
            let short: String = event.chars().take(SHORT_EVENT - 4).chain("...".chars()).collect();
            w.string(&short);
        }
    })
    .needs(&["event"])
    .sortable()
    .listed(),
    HistoryField::new("links", 78, Shape::Links, |w, it, context| {
        let path = format!("nodes/{}/history", it.entry.node_id);
        context.links(w, &path, it.identity(), "");
    })
    .needs(&["uuid", "node_uuid"])
    .listed(),
    HistoryField::new("event_type", 78, Shape::Text, |w, it, _| w.string(&it.entry.event_type))
        .needs(&["event_type"])
        .sortable(),
    history_text_row!("conductor", 78, conductor),
    history_text_row!("user", 78, user),
    history_text_row!("project", 113, project),
    history_text_row!("state", 115, state),
    history_text_row!("target_provision_state", 115, target_provision_state),
    HistoryField::new("duration_seconds", 115, Shape::Integer, |w, it, _| {
        match it.entry.duration_seconds {
            Some(seconds) => w.integer(seconds),
            None => w.null(),
        }
    })
    .nullable()
    .needs(&["duration_seconds"])
    .sortable(),
];

/// The body of `GET /v1/nodes/{node}/bios/{setting}`: the setting under its own name.
#[must_use]
pub fn bios_setting_body(view: &BiosView, context: &Context<'_>) -> Vec<u8> {
    let mut writer = JsonWriter::with_capacity(512);
    writer.begin_object();
    writer.any_key(&view.setting.name);
    Selection::<BiosView>::detail(context.version).write(&mut writer, view, context);
    writer.end_object();
    writer.into_bytes()
}

/// The body of `GET /v1/nodes/{node}/inventory`.
#[must_use]
pub fn inventory_body(inventory: &Inventory) -> Vec<u8> {
    let mut writer = JsonWriter::with_capacity(4096);
    writer.begin_object();
    writer.key("inventory");
    writer.object(&inventory.inventory);
    writer.key("plugin_data");
    writer.object(&inventory.plugin_data);
    writer.end_object();
    writer.into_bytes()
}
