// SPDX-License-Identifier: Apache-2.0
//! The table of nodes.
//!
//! The columns of the default list come first and the long JSON texts last: SQLite finds a column
//! by walking over those before it.

use node_model::{ChassisId, Fault, Node, NodeId, ProvisionState, Timestamp};
use uuid::Uuid;

use super::given;
use crate::query::Where;
use crate::record::{Filter, columns, resource};
use crate::sealed_steps::Steps as _;
use crate::value::{Field, Param};
use crate::vault::{Vault, VaultError};

columns!(Node, NodeColumn, "nodes", Node::new(NodeId(Uuid::nil()), "", Timestamp(0)), {
    Uuid "uuid" id;
    Name "name" name;
    InstanceUuid "instance_uuid" instance_uuid;
    PowerState "power_state" power_state;
    ProvisionState "provision_state" provision_state;
    Maintenance "maintenance" maintenance;
    Driver "driver" driver;
    ResourceClass "resource_class" resource_class;
    ConductorGroup "conductor_group" conductor_group;
    Owner "owner" owner;
    Lessee "lessee" lessee;
    Shard "shard" shard;
    ChassisUuid "chassis_uuid" chassis_id;
    ParentNode "parent_node" parent_node;
    AllocationUuid "allocation_uuid" allocation_id;
    InstanceName "instance_name" instance_name;
    Fault "fault" fault;
    Retired "retired" retired;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    ProvisionUpdatedAt "provision_updated_at" provision_updated_at;
    DueAt "due_at" due_at;
    Reservation "reservation" (saved_elsewhere reservation);
    TargetPowerState "target_power_state" target_power_state;
    TargetProvisionState "target_provision_state" target_provision_state;
    MaintenanceReason "maintenance_reason" maintenance_reason;
    LastError "last_error" last_error;
    ConsoleEnabled "console_enabled" console_enabled;
    InspectionStartedAt "inspection_started_at" inspection_started_at;
    InspectionFinishedAt "inspection_finished_at" inspection_finished_at;
    AutomatedClean "automated_clean" automated_clean;
    Protected "protected" protected;
    ProtectedReason "protected_reason" protected_reason;
    RetiredReason "retired_reason" retired_reason;
    Description "description" description;
    BootMode "boot_mode" boot_mode;
    SecureBoot "secure_boot" secure_boot;
    DisablePowerOff "disable_power_off" disable_power_off;
    Health "health" health;
    Traits "traits" traits;
    BiosInterface "bios_interface" (interface Bios);
    BootInterface "boot_interface" (interface Boot);
    ConsoleInterface "console_interface" (interface Console);
    DeployInterface "deploy_interface" (interface Deploy);
    FirmwareInterface "firmware_interface" (interface Firmware);
    InspectInterface "inspect_interface" (interface Inspect);
    ManagementInterface "management_interface" (interface Management);
    NetworkInterface "network_interface" (interface Network);
    PowerInterface "power_interface" (interface Power);
    RaidInterface "raid_interface" (interface Raid);
    RescueInterface "rescue_interface" (interface Rescue);
    StorageInterface "storage_interface" (interface Storage);
    VendorInterface "vendor_interface" (interface Vendor);
    Agent "agent" agent;
    Wait "wait" wait;
    PowerRequest "power_request" power_request;
    Work "work" work;
    Properties "properties" properties;
    Extra "extra" extra;
    DriverInfo "driver_info" driver_info;
    InstanceInfo "instance_info" instance_info;
    DriverInternalInfo "driver_internal_info" driver_internal_info;
    NetworkData "network_data" network_data;
    RaidConfig "raid_config" raid_config;
    TargetRaidConfig "target_raid_config" target_raid_config;
    Sealed "sealed" sealed;
}, indexed &[
    "name", "instance_uuid", "provision_state", "owner", "lessee", "chassis_uuid", "parent_node",
    "due_at",
]);
resource!(
    Node,
    NodeId,
    NodeFilter,
    fn sealed(&self, vault: &Vault) -> Option<Self> {
        self.with_sealed_steps(vault)
    },
    fn unseal(&mut self, vault: &Vault) -> Result<(), VaultError> {
        self.unseal_steps(vault)
    }
);

/// Whether a list shows nodes that are parts of other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Children {
    /// With the others.
    #[default]
    Included,
    /// Not at all.
    Excluded,
}

/// What a list of nodes can be narrowed by. All given conditions must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeFilter {
    /// Only these.
    pub ids: Option<Vec<NodeId>>,
    /// Whether an instance is on it.
    pub associated: Option<bool>,
    /// Whether it is in maintenance.
    pub maintenance: Option<bool>,
    /// In this chassis.
    pub chassis: Option<ChassisId>,
    /// The one with this instance.
    pub instance_uuid: Option<Uuid>,
    /// In one of these states.
    pub provision_states: Option<Vec<ProvisionState>>,
    /// Of this hardware type.
    pub driver: Option<String>,
    /// Of this resource class.
    pub resource_class: Option<String>,
    /// With this fault.
    pub fault: Option<Fault>,
    /// In one of these conductor groups.
    pub conductor_groups: Option<Vec<String>>,
    /// Owned by this project.
    pub owner: Option<String>,
    /// Used by this project.
    pub lessee: Option<String>,
    /// Owned or used by this project.
    pub project: Option<String>,
    /// With this text in the description, whatever the case.
    pub description_contains: Option<String>,
    /// Whether it is retired.
    pub retired: Option<bool>,
    /// In one of these shards.
    pub shards: Option<Vec<String>>,
    /// Whether it is in any shard.
    pub sharded: Option<bool>,
    /// Whether parts of other nodes are shown.
    pub children: Children,
    /// Part of this node.
    pub parent_node: Option<NodeId>,
    /// With this instance name.
    pub instance_name: Option<String>,
    /// Whether a process works on it.
    pub reserved: Option<bool>,
    /// Whether its power state is known.
    pub power_known: Option<bool>,
    /// With all of these traits.
    pub traits: Option<Vec<String>>,
}

impl Filter for NodeFilter {
    fn conditions<'a>(&'a self, to: &mut Where<'a>) {
        if let Some(ids) = &self.ids {
            to.any_of("uuid", ids.iter().map(Field::bind));
        }
        to.equals("instance_uuid", given(&self.instance_uuid));
        if let Some(states) = &self.provision_states {
            to.any_of("provision_state", states.iter().map(Field::bind));
        }
        for (column, value) in [
            ("driver", given(&self.driver)),
            ("resource_class", given(&self.resource_class)),
            ("owner", given(&self.owner)),
            ("lessee", given(&self.lessee)),
            ("chassis_uuid", given(&self.chassis)),
            ("parent_node", given(&self.parent_node)),
            ("instance_name", given(&self.instance_name)),
            ("fault", given(&self.fault)),
            ("maintenance", given(&self.maintenance)),
            ("retired", given(&self.retired)),
        ] {
            to.equals(column, value);
        }
        for (column, wanted) in [
            ("instance_uuid", self.associated),
            ("shard", self.sharded),
            ("reservation", self.reserved),
            ("power_state", self.power_known),
        ] {
            to.has_value(column, wanted);
        }
        match self.children {
            Children::Included => {}
            Children::Excluded => to.has_value("parent_node", Some(false)),
        }
        for (column, values) in
            [("conductor_group", &self.conductor_groups), ("shard", &self.shards)]
        {
            if let Some(values) = values {
                to.any_of(column, values.iter().map(Field::bind));
            }
        }
        if let Some(project) = &self.project {
            to.and("(owner = ? OR lessee = ?)");
            to.params.extend([Param::Text(project), Param::Text(project)]);
        }
        to.contains_text("description", self.description_contains.as_deref());
        for wanted in self.traits.iter().flatten() {
            // Traits are JSON text; their names have no quotes, so a quoted name is the whole name.
            to.contains_exactly("traits", format!("\"{wanted}\""));
        }
    }
}
