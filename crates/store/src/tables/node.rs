// SPDX-License-Identifier: Apache-2.0
//! The `nodes` table.
//!
//! The columns of the default list come first and the long JSON texts last, because SQLite decodes
//! all columns before the one it reads.

use node_model::{ChassisId, Fault, Node, NodeId, ProvisionState, Timestamp};
use uuid::Uuid;

use super::optional_param;
use crate::key_ring::KeyRing;
use crate::query::SqlBuilder;
use crate::record::{ResourceFilter, columns, resource};
use crate::sealed_steps::HasStepArguments as _;
use crate::sealing_key::SealError;
use crate::secrets::{has_plain_secrets, seal_plain_secrets};
use crate::value::ColumnType;

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
    JobQueue "job_queue" job_queue;
    QueuedAt "queued_at" queued_at;
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
    "due_at", "job_queue", "queued_at",
]);
resource!(
    Node,
    NodeId,
    NodeFilter,
    fn sealed(&self, key: &KeyRing) -> Option<Self> {
        let mut with_steps = self.with_sealed_steps(key);
        // The record may have been loaded before the sealing key was replaced.
        if let Some(resealed) = key.resealed(self.id.0, &self.sealed) {
            with_steps.get_or_insert_with(|| self.clone()).sealed = resealed;
        }
        if !has_plain_secrets(self) {
            return with_steps;
        }
        let mut node = with_steps.unwrap_or_else(|| self.clone());
        seal_plain_secrets(key, &mut node);
        Some(node)
    },
    fn unseal(&mut self, key: &KeyRing) -> Result<(), SealError> {
        self.unseal_steps(key)
    }
);

/// Whether a list includes child nodes, which have a `parent_node`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChildNodes {
    /// Together with all others.
    #[default]
    Included,
    /// Leaves them out.
    Excluded,
}

/// Filter for lists of nodes. All set conditions must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeFilter {
    /// With one of these ids.
    pub ids: Option<Vec<NodeId>>,
    /// Whether it has an instance.
    pub associated: Option<bool>,
    /// Whether it is in maintenance.
    pub maintenance: Option<bool>,
    /// In this chassis.
    pub chassis: Option<ChassisId>,
    /// With this instance.
    pub instance_uuid: Option<Uuid>,
    /// In one of these provision states.
    pub provision_states: Option<Vec<ProvisionState>>,
    /// With this hardware type.
    pub driver: Option<String>,
    /// With this resource class.
    pub resource_class: Option<String>,
    /// With this fault.
    pub fault: Option<Fault>,
    /// In one of these conductor groups.
    pub conductor_groups: Option<Vec<String>>,
    /// Owned by this project.
    pub owner: Option<String>,
    /// Leased by this project.
    pub lessee: Option<String>,
    /// Owned or leased by this project.
    pub project: Option<String>,
    /// Whether `project` owns so many nodes that it is faster to read all nodes than to use an index, see
    /// [`crate::StoreReader::owns_most_nodes`]. The result is the same.
    pub project_owns_most: bool,
    /// With this text in the description, ignoring case.
    pub description_contains: Option<String>,
    /// Whether it is retired.
    pub retired: Option<bool>,
    /// In one of these shards.
    pub shards: Option<Vec<String>>,
    /// Whether it is in any shard.
    pub sharded: Option<bool>,
    /// Whether child nodes are included.
    pub children: ChildNodes,
    /// Children of this node.
    pub parent_node: Option<NodeId>,
    /// With this instance name.
    pub instance_name: Option<String>,
    /// Whether it has a lease.
    pub reserved: Option<bool>,
    /// Whether its power state is known.
    pub power_known: Option<bool>,
    /// With all of these traits.
    pub traits: Option<Vec<String>>,
}

/// The nodes that a conductor can manage. An empty list of drivers matches no node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DueFilter {
    /// The conductor group. Upper and lower case are equal.
    pub conductor_group: String,
    /// The enabled hardware types.
    pub drivers: Vec<String>,
}

impl DueFilter {
    pub(crate) fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        to.and("LOWER(conductor_group) = LOWER(?)");
        to.params.push(self.conductor_group.bind());
        to.in_list("driver", self.drivers.iter().map(ColumnType::bind));
    }
}

impl ResourceFilter for NodeFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        if let Some(ids) = &self.ids {
            to.in_list("uuid", ids.iter().map(ColumnType::bind));
        }
        to.equals("instance_uuid", optional_param(&self.instance_uuid));
        if let Some(states) = &self.provision_states {
            to.in_list("provision_state", states.iter().map(ColumnType::bind));
        }
        for (column, value) in [
            ("driver", optional_param(&self.driver)),
            ("resource_class", optional_param(&self.resource_class)),
            ("owner", optional_param(&self.owner)),
            ("lessee", optional_param(&self.lessee)),
            ("chassis_uuid", optional_param(&self.chassis)),
            ("parent_node", optional_param(&self.parent_node)),
            ("instance_name", optional_param(&self.instance_name)),
            ("fault", optional_param(&self.fault)),
            ("maintenance", optional_param(&self.maintenance)),
            ("retired", optional_param(&self.retired)),
        ] {
            to.equals(column, value);
        }
        for (column, has_value) in [
            ("instance_uuid", self.associated),
            ("shard", self.sharded),
            ("reservation", self.reserved),
            ("power_state", self.power_known),
        ] {
            to.is_null_or_not(column, has_value);
        }
        match self.children {
            ChildNodes::Included => {}
            ChildNodes::Excluded => to.is_null_or_not("parent_node", Some(false)),
        }
        for (column, values) in
            [("conductor_group", &self.conductor_groups), ("shard", &self.shards)]
        {
            if let Some(values) = values {
                to.in_list(column, values.iter().map(ColumnType::bind));
            }
        }
        if let Some(project) = &self.project {
            to.node_of_project(project, self.project_owns_most);
        }
        to.contains_ignoring_case("description", self.description_contains.as_deref());
        for name in self.traits.iter().flatten() {
            // Traits are a JSON list; their names contain no quotes, so a quoted name matches exactly.
            to.contains_exactly("traits", format!("\"{name}\""));
        }
    }
}
