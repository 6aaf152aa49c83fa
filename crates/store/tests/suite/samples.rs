// SPDX-License-Identifier: Apache-2.0
//! Sample records.

use node_model::{
    Actor, AgentInfo, Allocation, AllocationId, AllocationState, BiosSetting, BootAttempts,
    BootMethod, Chassis, ChassisId, Deadline, DeployTemplate, DeployTemplateId, Fault,
    FirmwareComponent, Health, HistoryEntry, HistoryId, InspectionRule, InterfaceKind, Inventory,
    JobQueue, JournalEntry, JournalEvent, JsonArray, JsonObject, Mac, Node, NodeId, Port, PortId,
    Portgroup, PortgroupId, PowerRequest, PowerState, PowerTarget, ProvisionState, Retry, RuleId,
    Runbook, RunbookId, RunbookStep, Sensitive, Severity, Stage, Step, TemplateStep, Timestamp,
    VolumeConnector, VolumeConnectorId, VolumeTarget, VolumeTargetId, Wait, WaitReason, Work,
    WorkKind,
};
use uuid::Uuid;

pub(crate) const THEN: Timestamp = Timestamp(1_790_000_000_123_456);

pub(crate) fn object(text: &str) -> JsonObject {
    JsonObject::from_stored(text)
}

pub(crate) fn mac(number: u32) -> Mac {
    format!("52:54:00:{:02x}:{:02x}:{:02x}", number >> 16 & 255, number >> 8 & 255, number & 255)
        .parse()
        .unwrap()
}

pub(crate) fn node(name: &str) -> Node {
    let mut node = Node::new(NodeId::random(), "fake-hardware", THEN);
    node.name = Some(name.to_owned());
    node
}

fn user() -> Actor {
    Actor::User { name: Some("admin".to_owned()), project: None, request_id: "req-1".to_owned() }
}

/// A node with every field different from its default.
pub(crate) fn full_node(chassis: ChassisId) -> Node {
    let text = |text: &str| Some(text.to_owned());
    let mut node = Node {
        id: NodeId::random(),
        created_at: THEN,
        updated_at: Some(Timestamp(THEN.0 + 1)),
        name: text("ümläut-'quoted\"-%_"),
        driver: "redfish".to_owned(),
        interfaces: node_model::Interfaces::default(),
        driver_info: object(r#"{"redfish_address":"https://bmc","n":[1,{"a":null}]}"#),
        properties: object(r#"{"cpus":64}"#),
        extra: object(r#"{"rack":"r1"}"#),
        instance_info: object(r#"{"image_source":"http://x"}"#),
        driver_internal_info: object(r#"{"last":"x"}"#),
        network_data: object(r#"{"links":[]}"#),
        sealed: vec![0, 1, 2, 255, 0],
        chassis_id: Some(chassis),
        instance_uuid: Some(Uuid::new_v4()),
        instance_name: text("instance"),
        allocation_id: Some(AllocationId::random()),
        power_state: Some(PowerState::ALL[0]),
        target_power_state: Some(PowerState::ALL[1]),
        provision_state: ProvisionState::DeployWait,
        target_provision_state: Some(ProvisionState::Active),
        provision_updated_at: Some(Timestamp(3)),
        reservation: None,
        maintenance: true,
        maintenance_reason: text("fan"),
        fault: Some(Fault::ALL[0]),
        last_error: text("it broke\nbadly"),
        console_enabled: true,
        inspection_started_at: Some(Timestamp(-5)),
        inspection_finished_at: Some(Timestamp(6)),
        raid_config: object(r#"{"logical_disks":[1]}"#),
        target_raid_config: object(r#"{"logical_disks":[2]}"#),
        resource_class: text("large"),
        conductor_group: "east".to_owned(),
        automated_clean: Some(false),
        protected: true,
        protected_reason: text("keep"),
        retired: true,
        retired_reason: text("old"),
        owner: text("project-1"),
        lessee: text("project-2"),
        description: text("The Machine"),
        boot_mode: text("uefi"),
        secure_boot: Some(true),
        shard: text("s1"),
        parent_node: Some(NodeId::random()),
        disable_power_off: true,
        health: Some(Health::Warning),
        traits: vec!["CUSTOM_A".to_owned(), "HW_B".to_owned()],
        agent: AgentInfo {
            token_from: Some(uuid::Uuid::from_u128(7)),
            replaced_at: Some(Timestamp(6)),
            url: text("https://[::1]:9999"),
            version: text("11.0"),
            last_heartbeat: Some(Timestamp(7)),
            verify_ca: text("PEM"),
            status: text("start"),
            status_message: text("starting"),
            has_token: true,
            proof: Some(node_model::BootProof::Lease),
            address: Some([192, 0, 2, 7].into()),
            token_pregenerated: true,
        },
        work: Some(Work {
            id: Uuid::new_v4(),
            kind: WorkKind::Deploy,
            stage: Stage::Run,
            steps: vec![Step::new("deploy", "write_image", 80)],
            cursor: 0,
            awaiting: true,
            heartbeat_received: true,
            requested_steps: vec![Step::new("raid", "apply", 10)],
            disable_ramdisk: true,
            started_at: Timestamp(8),
            since: Timestamp(9),
            requested_by: user(),
            driver_state: object(r#"{"k":"v"}"#),
            progress_text: text("half done"),
            awaits_installer: true,
            boot: Some(BootAttempts {
                started_at: Timestamp(1),
                count: 2,
                method: Some(BootMethod::Pxe),
                method_since: Timestamp(1),
                responded: false,
                failure_recorded: true,
            }),
            aborted: true,
            power_off: true,
            logs_collected: true,
            retry: Some(Retry {
                peer: node_model::UnreachablePeer::Agent,
                since: Timestamp(3),
                attempts: 2,
                at: Timestamp(4),
                error: "no route to host".to_owned(),
            }),
        }),
        power_request: Some(PowerRequest {
            target: PowerTarget::ALL[0],
            timeout: Some(60),
            requested_at: Timestamp(10),
            requested_by: user(),
            retry: None,
        }),
        wait: Some(Wait {
            reason: WaitReason::AgentHeartbeat,
            deadline: Deadline::At(Timestamp(11)),
            next_action_at: Some(Timestamp(10)),
            state: ProvisionState::DeployWait,
        }),
        due_at: Some(Timestamp(12)),
        job_queue: Some(JobQueue::Deploy),
        queued_at: Some(Timestamp(13)),
    };
    for kind in InterfaceKind::ALL {
        node.interfaces.set(*kind, Some(&format!("{kind}-implementation")));
    }
    node
}

pub(crate) fn port(node: NodeId, number: u32) -> Port {
    Port {
        id: PortId::random(),
        created_at: THEN,
        updated_at: None,
        node_id: node,
        address: mac(number),
        name: Some(format!("port-{number}")),
        description: Some("left".to_owned()),
        pxe_enabled: false,
        local_link_connection: object(r#"{"switch_id":"aa"}"#),
        portgroup_id: None,
        physical_network: Some("physnet1".to_owned()),
        is_smartnic: true,
        vendor: Some("acme".to_owned()),
        category: Some("storage".to_owned()),
        available_for_dynamic_portgroup: true,
        extra: object(r#"{"a":1}"#),
        internal_info: object(r#"{"vif":"x"}"#),
    }
}

pub(crate) fn portgroup(node: NodeId, number: u32) -> Portgroup {
    Portgroup {
        id: PortgroupId::random(),
        created_at: THEN,
        updated_at: None,
        node_id: node,
        address: Some(mac(number)),
        name: Some(format!("bond-{number}")),
        mode: "802.3ad".to_owned(),
        properties: object(r#"{"miimon":100}"#),
        standalone_ports_supported: false,
        physical_network: Some("physnet1".to_owned()),
        category: Some("c".to_owned()),
        dynamic_portgroup: true,
        extra: object(r#"{"a":1}"#),
        internal_info: object(r#"{"b":2}"#),
    }
}

pub(crate) fn chassis() -> Chassis {
    Chassis {
        id: ChassisId::random(),
        created_at: THEN,
        updated_at: None,
        description: Some("rack".to_owned()),
        extra: object(r#"{"a":1}"#),
    }
}

pub(crate) fn volume_connector(node: NodeId, name: &str) -> VolumeConnector {
    VolumeConnector {
        id: VolumeConnectorId::random(),
        created_at: THEN,
        updated_at: None,
        node_id: node,
        kind: "iqn".to_owned(),
        connector_id: name.to_owned(),
        extra: object(r#"{"a":1}"#),
    }
}

pub(crate) fn volume_target(node: NodeId, boot_index: i64) -> VolumeTarget {
    VolumeTarget {
        id: VolumeTargetId::random(),
        created_at: THEN,
        updated_at: None,
        node_id: node,
        volume_type: "iscsi".to_owned(),
        volume_id: "volume".to_owned(),
        boot_index,
        properties: object(r#"{"target_iqn":"iqn"}"#),
        sealed: vec![9, 8],
        extra: object(r#"{"a":1}"#),
    }
}

pub(crate) fn allocation(node: Option<NodeId>, name: &str) -> Allocation {
    Allocation {
        id: AllocationId::random(),
        created_at: THEN,
        updated_at: None,
        name: Some(name.to_owned()),
        state: AllocationState::Active,
        node_id: node,
        resource_class: Some("large".to_owned()),
        traits: vec!["CUSTOM_A".to_owned()],
        candidate_nodes: vec![NodeId::random(), NodeId::random()],
        last_error: Some("none free".to_owned()),
        owner: Some("project-1".to_owned()),
        extra: object(r#"{"a":1}"#),
    }
}

pub(crate) fn template(name: &str) -> DeployTemplate {
    DeployTemplate {
        id: DeployTemplateId::random(),
        created_at: THEN,
        updated_at: None,
        name: name.to_owned(),
        steps: vec![TemplateStep {
            interface: "bios".to_owned(),
            step: "apply_configuration".to_owned(),
            args: object(r#"{"settings":[]}"#),
            priority: 150,
        }],
        extra: object(r#"{"a":1}"#),
    }
}

pub(crate) fn runbook(name: &str) -> Runbook {
    Runbook {
        id: RunbookId::random(),
        created_at: THEN,
        updated_at: None,
        name: name.to_owned(),
        description: Some("text".to_owned()),
        steps: vec![RunbookStep {
            interface: "raid".to_owned(),
            step: "delete".to_owned(),
            args: object(r#"{"a":1}"#),
            order: 1,
        }],
        traits: vec!["CUSTOM_A".to_owned()],
        disable_ramdisk: true,
        public: true,
        owner: Some("project-1".to_owned()),
        extra: object(r#"{"a":1}"#),
    }
}

pub(crate) fn rule(sensitive: Sensitive) -> InspectionRule {
    InspectionRule {
        id: RuleId::random(),
        created_at: THEN,
        updated_at: None,
        description: Some("text".to_owned()),
        priority: 7,
        phase: Some("main".to_owned()),
        sensitive,
        conditions: JsonArray::from_stored(r#"[{"op":"eq"}]"#),
        actions: JsonArray::from_stored(r#"[{"op":"fail","args":{"msg":"sesame"}}]"#),
    }
}

pub(crate) fn history(node: NodeId, event: &str) -> HistoryEntry {
    HistoryEntry {
        id: HistoryId::random(),
        node_id: node,
        created_at: THEN,
        event_type: "deploying".to_owned(),
        severity: Severity::Error,
        event: event.to_owned(),
        conductor: Some("host".to_owned()),
        user: Some("user".to_owned()),
        project: Some("project".to_owned()),
        state: Some("deploying".to_owned()),
        target_provision_state: Some("active".to_owned()),
        duration_seconds: Some(5),
    }
}

pub(crate) fn inventory(node: NodeId) -> Inventory {
    Inventory {
        node_id: node,
        created_at: THEN,
        inventory: object(r#"{"cpu":{"count":4}}"#),
        plugin_data: object(r#"{"lldp":1}"#),
        derived: object(r#"{"properties":{"cpus":4}}"#),
    }
}

pub(crate) fn bios_setting(name: &str) -> BiosSetting {
    BiosSetting {
        name: name.to_owned(),
        value: Some("on".to_owned()),
        created_at: THEN,
        updated_at: Some(THEN),
        registry: object(r#"{"attribute_type":"String"}"#),
    }
}

pub(crate) fn firmware(component: &str) -> FirmwareComponent {
    FirmwareComponent {
        component: component.to_owned(),
        initial_version: "1".to_owned(),
        current_version: Some("2".to_owned()),
        last_version_flashed: Some("2".to_owned()),
        vendor: Some("acme".to_owned()),
        model: Some("m".to_owned()),
        serial_number: Some("s".to_owned()),
        created_at: THEN,
        updated_at: Some(THEN),
    }
}

pub(crate) fn entry(node: NodeId, at: Timestamp, target: &str) -> JournalEntry {
    JournalEntry {
        at,
        node_id: node,
        actor: user(),
        event: JournalEvent::Requested { target: target.to_owned() },
    }
}
