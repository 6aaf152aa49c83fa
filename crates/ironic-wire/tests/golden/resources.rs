// SPDX-License-Identifier: Apache-2.0
//! All other resources.

use expect_test::expect;
use ironic_wire::{ApiVersion, BiosSettingView, FieldSelection, HistoryView, bios_setting_body};
use node_model::{
    Allocation, AllocationId, AllocationState, BiosSetting, DeployTemplate, DeployTemplateId,
    FirmwareComponent, HistoryEntry, HistoryId, InspectionRule, JsonArray, JsonObject, NodeId,
    Port, PortId, PortgroupId, RuleId, Runbook, RunbookId, RunbookStep, Sensitive, Severity,
    TemplateStep, VolumeTarget, VolumeTargetId,
};

use crate::{NOW, check, context, id, pretty};

#[test]
fn port() {
    let port = Port {
        id: PortId(id(4)),
        created_at: NOW,
        updated_at: None,
        node_id: NodeId(id(1)),
        address: "52:54:00:aa:bb:01".parse().unwrap(),
        name: Some("eth0".to_owned()),
        description: None,
        pxe_enabled: true,
        local_link_connection: JsonObject::from_stored(r#"{"port_id":"1"}"#),
        portgroup_id: Some(PortgroupId(id(5))),
        physical_network: None,
        is_smartnic: false,
        vendor: None,
        category: None,
        available_for_dynamic_portgroup: true,
        extra: JsonObject::empty(),
        internal_info: JsonObject::empty(),
    };
    check(
        &port,
        1,
        &expect![[r#"
        {
          "address": "52:54:00:aa:bb:01",
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "extra": {},
          "node_uuid": "00000000-0000-0000-0000-000000000001",
          "updated_at": null,
          "uuid": "00000000-0000-0000-0000-000000000004"
        }"#]],
    );
    check(
        &port,
        115,
        &expect![[r#"
        {
          "address": "52:54:00:aa:bb:01",
          "available_for_dynamic_portgroup": true,
          "category": null,
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "description": null,
          "extra": {},
          "internal_info": {},
          "is_smartnic": false,
          "local_link_connection": {
            "port_id": "1"
          },
          "name": "eth0",
          "node_uuid": "00000000-0000-0000-0000-000000000001",
          "physical_network": null,
          "portgroup_uuid": "00000000-0000-0000-0000-000000000005",
          "pxe_enabled": true,
          "updated_at": null,
          "uuid": "00000000-0000-0000-0000-000000000004",
          "vendor": null
        }"#]],
    );
}

#[test]
fn allocation() {
    let allocation = Allocation {
        id: AllocationId(id(6)),
        created_at: NOW,
        updated_at: None,
        name: Some("a1".to_owned()),
        state: AllocationState::Active,
        node_id: Some(NodeId(id(1))),
        resource_class: Some("baremetal".to_owned()),
        traits: Vec::new(),
        candidate_nodes: vec![NodeId(id(1))],
        last_error: None,
        owner: None,
        extra: JsonObject::empty(),
    };
    check(
        &allocation,
        115,
        &expect![[r#"
        {
          "candidate_nodes": [
            "00000000-0000-0000-0000-000000000001"
          ],
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "extra": {},
          "last_error": null,
          "name": "a1",
          "node_uuid": "00000000-0000-0000-0000-000000000001",
          "owner": null,
          "resource_class": "baremetal",
          "state": "active",
          "traits": [],
          "updated_at": null,
          "uuid": "00000000-0000-0000-0000-000000000006"
        }"#]],
    );
}

#[test]
fn deploy_template_and_runbook() {
    let template = DeployTemplate {
        id: DeployTemplateId(id(7)),
        created_at: NOW,
        updated_at: None,
        name: "CUSTOM_X".to_owned(),
        steps: vec![TemplateStep {
            interface: "raid".to_owned(),
            step: "create".to_owned(),
            args: JsonObject::from_stored(r#"{"a":1}"#),
            priority: 10,
        }],
        extra: JsonObject::empty(),
    };
    check(
        &template,
        115,
        &expect![[r#"
        {
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "extra": {},
          "name": "CUSTOM_X",
          "steps": [
            {
              "args": {
                "a": 1
              },
              "interface": "raid",
              "priority": 10,
              "step": "create"
            }
          ],
          "updated_at": null,
          "uuid": "00000000-0000-0000-0000-000000000007"
        }"#]],
    );
    let runbook = Runbook {
        id: RunbookId(id(8)),
        created_at: NOW,
        updated_at: None,
        name: "r1".to_owned(),
        description: None,
        steps: vec![RunbookStep {
            interface: "raid".to_owned(),
            step: "create".to_owned(),
            args: JsonObject::empty(),
            order: 1,
        }],
        traits: vec!["CUSTOM_X".to_owned()],
        disable_ramdisk: false,
        public: true,
        owner: None,
        extra: JsonObject::empty(),
    };
    check(
        &runbook,
        115,
        &expect![[r#"
        {
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "description": null,
          "disable_ramdisk": false,
          "extra": {},
          "name": "r1",
          "owner": null,
          "public": true,
          "steps": [
            {
              "args": {},
              "interface": "raid",
              "order": 1,
              "step": "create"
            }
          ],
          "traits": [
            "CUSTOM_X"
          ],
          "updated_at": null,
          "uuid": "00000000-0000-0000-0000-000000000008"
        }"#]],
    );
}

#[test]
fn sensitive_rules_are_hidden() {
    let mut rule = InspectionRule {
        id: RuleId(id(10)),
        created_at: NOW,
        updated_at: None,
        description: None,
        priority: 5,
        phase: Some("main".to_owned()),
        sensitive: Sensitive::No,
        conditions: JsonArray::empty(),
        actions: JsonArray::from_stored(r#"[{"op":"fail","args":{"msg":"x"}}]"#),
    };
    check(
        &rule,
        115,
        &expect![[r#"
        {
          "actions": [
            {
              "args": {
                "msg": "x"
              },
              "op": "fail"
            }
          ],
          "conditions": [],
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "description": null,
          "phase": "main",
          "priority": 5,
          "sensitive": false,
          "updated_at": null,
          "uuid": "00000000-0000-0000-0000-00000000000a"
        }"#]],
    );
    rule.sensitive = Sensitive::Yes;
    check(
        &rule,
        115,
        &expect![[r#"
        {
          "actions": null,
          "conditions": null,
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "description": null,
          "phase": "main",
          "priority": 5,
          "sensitive": true,
          "updated_at": null,
          "uuid": "00000000-0000-0000-0000-00000000000a"
        }"#]],
    );
}

#[test]
fn volume_target() {
    let target = VolumeTarget {
        id: VolumeTargetId(id(11)),
        created_at: NOW,
        updated_at: None,
        node_id: NodeId(id(1)),
        volume_type: "iscsi".to_owned(),
        volume_id: "v".to_owned(),
        boot_index: 0,
        properties: JsonObject::from_stored(r#"{"auth_password":"******"}"#),
        sealed: vec![1, 2, 3],
        extra: JsonObject::empty(),
    };
    check(
        &target,
        115,
        &expect![[r#"
        {
          "boot_index": 0,
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "extra": {},
          "node_uuid": "00000000-0000-0000-0000-000000000001",
          "properties": {
            "auth_password": "******"
          },
          "updated_at": null,
          "uuid": "00000000-0000-0000-0000-00000000000b",
          "volume_id": "v",
          "volume_type": "iscsi"
        }"#]],
    );
}

#[test]
fn bios_firmware_and_history() {
    let setting = BiosSetting {
        name: "BootMode".to_owned(),
        value: Some("Uefi".to_owned()),
        created_at: NOW,
        updated_at: None,
        registry: JsonObject::from_stored(
            r#"{"attribute_type":"Enumeration","allowable_values":["Bios","Uefi"],"read_only":false}"#,
        ),
    };
    let view = BiosSettingView::new(NodeId(id(1)), setting);
    expect![[r#"
        {
          "BootMode": {
            "allowable_values": [
              "Bios",
              "Uefi"
            ],
            "attribute_type": "Enumeration",
            "created_at": "2026-11-18T11:24:09.123456+00:00",
            "links": [
              {
                "href": "http://h:6385/v1/nodes/00000000-0000-0000-0000-000000000001/bios/BootMode",
                "rel": "self"
              },
              {
                "href": "http://h:6385/nodes/00000000-0000-0000-0000-000000000001/bios/BootMode",
                "rel": "bookmark"
              }
            ],
            "lower_bound": null,
            "max_length": null,
            "min_length": null,
            "name": "BootMode",
            "read_only": false,
            "reset_required": null,
            "unique": null,
            "updated_at": null,
            "upper_bound": null,
            "value": "Uefi"
          }
        }"#]]
    .assert_eq(&pretty(&bios_setting_body(&view, &context(115))));
    let firmware = FirmwareComponent {
        component: "bmc".to_owned(),
        initial_version: "1".to_owned(),
        current_version: Some("2".to_owned()),
        last_version_flashed: None,
        vendor: None,
        model: None,
        serial_number: None,
        created_at: NOW,
        updated_at: None,
    };
    check(
        &firmware,
        86,
        &expect![[r#"
        {
          "component": "bmc",
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "current_version": "2",
          "initial_version": "1",
          "last_version_flashed": null,
          "updated_at": null
        }"#]],
    );
    let entry = HistoryEntry {
        id: HistoryId(id(12)),
        node_id: NodeId(id(1)),
        created_at: NOW,
        event_type: "deploying".to_owned(),
        severity: Severity::Error,
        event: "x".repeat(300),
        conductor: Some("c1".to_owned()),
        user: None,
        project: None,
        state: Some("deploying".to_owned()),
        target_provision_state: None,
        duration_seconds: Some(5),
    };
    let short = HistoryView { entry, full_event: false };
    let body =
        FieldSelection::<HistoryView>::default_list(ApiVersion::MAX).body(&short, &context(115));
    expect![[r#"
        {
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "event": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...",
          "links": [
            {
              "href": "http://h:6385/v1/nodes/00000000-0000-0000-0000-000000000001/history/00000000-0000-0000-0000-00000000000c",
              "rel": "self"
            },
            {
              "href": "http://h:6385/nodes/00000000-0000-0000-0000-000000000001/history/00000000-0000-0000-0000-00000000000c",
              "rel": "bookmark"
            }
          ],
          "severity": "ERROR",
          "uuid": "00000000-0000-0000-0000-00000000000c"
        }"#]].assert_eq(&pretty(&body));
    assert_eq!(FieldSelection::<HistoryView>::detail(ApiVersion(112)).names().count(), 8);
}
