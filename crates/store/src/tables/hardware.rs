// SPDX-License-Identifier: Apache-2.0
//! The tables of BIOS settings, firmware components, history, inventories and conductors.

use node_model::{
    BiosSetting, ConductorInfo, FirmwareComponent, HistoryEntry, HistoryId, Inventory, JsonObject,
    NodeId, Severity, Timestamp,
};
use uuid::Uuid;

use super::optional_param;
use crate::query::SqlBuilder;
use crate::record::{ResourceFilter, ResourceId, StoredResource, columns};

columns!(BiosSetting, BiosSettingColumn, "bios_settings", blank_setting(), {
    Name "name" name;
    Value "value" value;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Registry "registry" registry;
});

columns!(FirmwareComponent, FirmwareComponentColumn, "firmware_components", blank_component(), {
    Component "component" component;
    InitialVersion "initial_version" initial_version;
    CurrentVersion "current_version" current_version;
    LastVersionFlashed "last_version_flashed" last_version_flashed;
    Vendor "vendor" vendor;
    Model "model" model;
    SerialNumber "serial_number" serial_number;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
});

columns!(HistoryEntry, HistoryColumn, "node_history", blank_entry(), {
    Uuid "uuid" id;
    NodeUuid "node_uuid" node_id;
    CreatedAt "created_at" created_at;
    EventType "event_type" event_type;
    Severity "severity" severity;
    Event "event" event;
    Conductor "conductor" conductor;
    User "user_name" user;
    Project "project" project;
    State "state" state;
    TargetProvisionState "target_provision_state" target_provision_state;
    DurationSeconds "duration_seconds" duration_seconds;
});

columns!(Inventory, InventoryColumn, "inventories", blank_inventory(), {
    NodeUuid "node_uuid" node_id;
    CreatedAt "created_at" created_at;
    Inventory "inventory" inventory;
    PluginData "plugin_data" plugin_data;
    Derived "derived" derived;
});

columns!(ConductorInfo, ConductorColumn, "conductors", blank_conductor(), {
    Hostname "hostname" hostname;
    RunUuid "run_uuid" run;
    Version "version" version;
    ConductorGroup "conductor_group" conductor_group;
    Drivers "drivers" drivers;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Online "online" online;
});

/// Filter for lists of history entries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HistoryFilter {
    /// Of this node.
    pub node: Option<NodeId>,
}

impl ResourceFilter for HistoryFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        to.equals("node_uuid", optional_param(&self.node));
    }
}

impl StoredResource for HistoryEntry {
    type Id = HistoryId;
    type Filter = HistoryFilter;

    fn uuid(&self) -> Uuid {
        self.id.0
    }

    fn touch(&mut self, _now: Timestamp) {}
}

impl ResourceId for HistoryId {
    type Resource = HistoryEntry;

    fn uuid(self) -> Uuid {
        self.0
    }
}

fn blank_setting() -> BiosSetting {
    BiosSetting {
        name: String::new(),
        value: None,
        created_at: Timestamp(0),
        updated_at: None,
        registry: JsonObject::empty(),
    }
}

fn blank_component() -> FirmwareComponent {
    FirmwareComponent {
        component: String::new(),
        initial_version: String::new(),
        current_version: None,
        last_version_flashed: None,
        vendor: None,
        model: None,
        serial_number: None,
        created_at: Timestamp(0),
        updated_at: None,
    }
}

fn blank_entry() -> HistoryEntry {
    HistoryEntry {
        id: HistoryId(Uuid::nil()),
        node_id: NodeId(Uuid::nil()),
        created_at: Timestamp(0),
        event_type: String::new(),
        severity: Severity::Info,
        event: String::new(),
        conductor: None,
        user: None,
        project: None,
        state: None,
        target_provision_state: None,
        duration_seconds: None,
    }
}

fn blank_inventory() -> Inventory {
    Inventory {
        node_id: NodeId(Uuid::nil()),
        created_at: Timestamp(0),
        inventory: JsonObject::empty(),
        plugin_data: JsonObject::empty(),
        derived: JsonObject::empty(),
    }
}

fn blank_conductor() -> ConductorInfo {
    ConductorInfo {
        hostname: String::new(),
        run: None,
        version: None,
        conductor_group: String::new(),
        drivers: Vec::new(),
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        online: false,
    }
}
