// SPDX-License-Identifier: Apache-2.0
//! The wire format of BIOS settings, firmware components, history and inventory.

use node_model::{BiosSetting, FirmwareComponent, HistoryEntry, Inventory, NodeId};
use serde_json::{Map, Value};

use crate::context::RenderContext;
use crate::field::{FieldSelection, FieldShape, ResourceField, ResourceIdentity, WireResource};
use crate::rows::{created_at_row, non_null_text_row, text_row, updated_at_row};
use crate::writer::JsonWriter;

/// Maximum length of an event in a list without `detail`.
const MAX_SHORT_EVENT: usize = 255;

/// A BIOS setting of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BiosSettingView {
    /// The node.
    pub node_id: NodeId,
    /// The setting.
    pub setting: BiosSetting,
    /// The attribute registry entry, parsed once for all fields that come from it.
    registry: Map<String, Value>,
}

impl BiosSettingView {
    /// A view of a setting.
    #[must_use]
    pub fn new(node_id: NodeId, setting: BiosSetting) -> Self {
        let registry = setting.registry.parse();
        Self { node_id, setting, registry }
    }
}

/// A history entry of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryView {
    /// The entry.
    pub entry: HistoryEntry,
    /// Whether the event is shown in full; lists without `detail` truncate it.
    pub full_event: bool,
}

impl WireResource for BiosSettingView {
    const KIND: &'static str = "BIOS setting";
    const COLLECTION: &'static str = "bios";
    const PATH: &'static str = "bios";
    type Draft = ();

    fn fields() -> &'static [ResourceField<Self>] {
        BIOS_FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Name(&self.setting.name)
    }
}

type BiosField = ResourceField<BiosSettingView>;

macro_rules! registry_row {
    ($name:literal, $shape:ident) => {
        BiosField::new($name, 74, FieldShape::$shape, |w, it, _| match it.registry.get($name) {
            Some(value) => w.raw(&value.to_string()),
            None => w.null(),
        })
        .nullable()
    };
}

static BIOS_FIELDS: &[BiosField] = &[
    BiosField::new("name", 40, FieldShape::Text, |w, it, _| w.string(&it.setting.name)).listed(),
    BiosField::new("value", 40, FieldShape::Text, |w, it, _| {
        w.optional_string(it.setting.value.as_deref());
    })
    .nullable()
    .listed(),
    BiosField::new("created_at", 40, FieldShape::Timestamp, |w, it, _| {
        w.timestamp(it.setting.created_at)
    })
    .listed(),
    BiosField::new("updated_at", 40, FieldShape::Timestamp, |w, it, _| {
        w.optional_timestamp(it.setting.updated_at);
    })
    .nullable()
    .listed(),
    BiosField::new("links", 40, FieldShape::Links, |w, it, context| {
        let path = format!("nodes/{}/bios", it.node_id);
        context.links(w, &path, it.identity(), "");
    })
    .listed(),
    registry_row!("attribute_type", Text),
    registry_row!("allowable_values", TextList),
    registry_row!("lower_bound", Integer),
    registry_row!("max_length", Integer),
    registry_row!("min_length", Integer),
    registry_row!("read_only", Boolean),
    registry_row!("reset_required", Boolean),
    registry_row!("unique", Boolean),
    registry_row!("upper_bound", Integer),
];

impl WireResource for FirmwareComponent {
    const KIND: &'static str = "firmware component";
    const COLLECTION: &'static str = "firmware";
    const PATH: &'static str = "firmware";
    type Draft = ();

    fn fields() -> &'static [ResourceField<Self>] {
        FIRMWARE_FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Name(&self.component)
    }
}

static FIRMWARE_FIELDS: &[ResourceField<FirmwareComponent>] = &[
    non_null_text_row!(FirmwareComponent, "component", 86, component).listed(),
    non_null_text_row!(FirmwareComponent, "initial_version", 86, initial_version).listed(),
    text_row!(FirmwareComponent, "current_version", 86, current_version).listed(),
    text_row!(FirmwareComponent, "last_version_flashed", 86, last_version_flashed).listed(),
    created_at_row!(FirmwareComponent, 86).listed(),
    updated_at_row!(FirmwareComponent, 86).listed(),
    text_row!(FirmwareComponent, "vendor", 114, vendor).listed(),
    text_row!(FirmwareComponent, "model", 114, model).listed(),
    text_row!(FirmwareComponent, "serial_number", 114, serial_number).listed(),
];

impl WireResource for HistoryView {
    const KIND: &'static str = "history event";
    const COLLECTION: &'static str = "history";
    const PATH: &'static str = "history";
    type Draft = ();

    fn fields() -> &'static [ResourceField<Self>] {
        HISTORY_FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Uuid(self.entry.id.0)
    }
}

type HistoryField = ResourceField<HistoryView>;

macro_rules! history_text_row {
    ($name:literal, $since:literal, $member:ident) => {
        HistoryField::new($name, $since, FieldShape::Text, |w, it, _| {
            w.optional_string(it.entry.$member.as_deref());
        })
        .nullable()
        .columns(&[$name])
        .sortable()
    };
}

static HISTORY_FIELDS: &[HistoryField] = &[
    HistoryField::new("uuid", 78, FieldShape::Uuid, |w, it, _| w.uuid(it.entry.id.0))
        .columns(&["uuid"])
        .sortable()
        .listed(),
    HistoryField::new("created_at", 78, FieldShape::Timestamp, |w, it, _| {
        w.timestamp(it.entry.created_at)
    })
    .columns(&["created_at"])
    .sortable()
    .listed(),
    HistoryField::new("severity", 78, FieldShape::Text, |w, it, _| {
        w.string(it.entry.severity.as_str());
    })
    .columns(&["severity"])
    .sortable()
    .listed(),
    HistoryField::new("event", 78, FieldShape::Text, |w, it, _| {
        let event = &it.entry.event;
        if it.full_event || event.chars().count() <= MAX_SHORT_EVENT {
            w.string(event);
        } else {
            let short: String =
                event.chars().take(MAX_SHORT_EVENT - 4).chain("...".chars()).collect();
            w.string(&short);
        }
    })
    .columns(&["event"])
    .sortable()
    .listed(),
    HistoryField::new("links", 78, FieldShape::Links, |w, it, context| {
        let path = format!("nodes/{}/history", it.entry.node_id);
        context.links(w, &path, it.identity(), "");
    })
    .columns(&["uuid", "node_uuid"])
    .listed(),
    HistoryField::new("event_type", 78, FieldShape::Text, |w, it, _| {
        w.string(&it.entry.event_type)
    })
    .columns(&["event_type"])
    .sortable(),
    history_text_row!("conductor", 78, conductor),
    history_text_row!("user", 78, user),
    history_text_row!("project", 113, project),
    history_text_row!("state", 115, state),
    history_text_row!("target_provision_state", 115, target_provision_state),
    HistoryField::new("duration_seconds", 115, FieldShape::Integer, |w, it, _| {
        match it.entry.duration_seconds {
            Some(seconds) => w.integer(seconds),
            None => w.null(),
        }
    })
    .nullable()
    .columns(&["duration_seconds"])
    .sortable(),
];

/// The body of `GET /v1/nodes/{node}/bios/{setting}`: an object with the setting's name as key.
#[must_use]
pub fn bios_setting_body(view: &BiosSettingView, context: &RenderContext<'_>) -> Vec<u8> {
    let mut writer = JsonWriter::with_capacity(512);
    writer.begin_object();
    writer.dynamic_key(&view.setting.name);
    FieldSelection::<BiosSettingView>::detail(context.version).write(&mut writer, view, context);
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
