// SPDX-License-Identifier: Apache-2.0
//! Compares the field tables with the field names per microversion recorded from Ironic 39.0.0.

use ironic_wire::{ApiVersion, V1_COLLECTIONS};
use ironic_wire::{
    ConductorView, DriverView, FieldSelection, RenderContext, WireResource, node_states_fields,
};
use node_model::{
    Allocation, Chassis, DeployTemplate, InspectionRule, Node, Port, Portgroup, Runbook,
    VolumeConnector, VolumeTarget,
};

/// `<version>: names; <version>: names`.
type RecordedFields = &'static str;

const NODE: RecordedFields = "1.1: chassis_uuid console_enabled created_at driver driver_info extra instance_info instance_uuid last_error links maintenance maintenance_reason ports power_state properties provision_state provision_updated_at reservation target_power_state target_provision_state updated_at uuid; 1.3: driver_internal_info; 1.5: name; 1.6: inspection_finished_at inspection_started_at; 1.7: clean_step; 1.12: raid_config target_raid_config; 1.14: states; 1.20: network_interface; 1.21: resource_class; 1.24: portgroups; 1.31: boot_interface console_interface deploy_interface inspect_interface management_interface power_interface raid_interface vendor_interface; 1.32: volume; 1.33: storage_interface; 1.37: traits; 1.38: rescue_interface; 1.40: bios_interface; 1.42: fault; 1.44: deploy_step; 1.46: conductor_group; 1.47: automated_clean; 1.48: protected protected_reason; 1.49: conductor; 1.50: owner; 1.51: description; 1.52: allocation_uuid; 1.61: retired retired_reason; 1.65: lessee; 1.66: network_data; 1.75: boot_mode secure_boot; 1.82: shard; 1.83: parent_node; 1.86: firmware_interface; 1.87: service_step; 1.95: disable_power_off; 1.104: instance_name; 1.109: health";
const PORT: RecordedFields = "1.1: address created_at extra links node_uuid updated_at uuid; 1.18: internal_info; 1.19: local_link_connection pxe_enabled; 1.24: portgroup_uuid; 1.34: physical_network; 1.53: is_smartnic; 1.88: name; 1.97: description; 1.100: vendor; 1.101: category; 1.111: available_for_dynamic_portgroup";
const PORTGROUP: RecordedFields = "1.23: address created_at extra internal_info links name node_uuid ports standalone_ports_supported updated_at uuid; 1.26: mode properties; 1.102: physical_network; 1.103: category; 1.111: dynamic_portgroup";
const CHASSIS: RecordedFields = "1.1: created_at description extra links nodes updated_at uuid";
const ALLOCATION: RecordedFields = "1.52: candidate_nodes created_at extra last_error links name node_uuid resource_class state traits updated_at uuid; 1.60: owner";
const RUNBOOK: RecordedFields = "1.92: created_at disable_ramdisk extra links name owner public steps updated_at uuid; 1.112: description traits";
const DEPLOY_TEMPLATE: RecordedFields = "1.55: created_at extra links name steps updated_at uuid";
const INSPECTION_RULE: RecordedFields = "1.96: actions conditions created_at description links phase priority sensitive updated_at uuid";
const VOLUME_CONNECTOR: RecordedFields =
    "1.32: connector_id created_at extra links node_uuid type updated_at uuid";
const VOLUME_TARGET: RecordedFields = "1.32: boot_index created_at extra links node_uuid properties updated_at uuid volume_id volume_type";
const CONDUCTOR: RecordedFields =
    "1.49: alive conductor_group created_at drivers hostname links updated_at";
const DRIVER: RecordedFields = "1.1: hosts links name; 1.14: properties; 1.30: default_boot_interface default_console_interface default_deploy_interface default_inspect_interface default_management_interface default_network_interface default_power_interface default_raid_interface default_vendor_interface enabled_boot_interfaces enabled_console_interfaces enabled_deploy_interfaces enabled_inspect_interfaces enabled_management_interfaces enabled_network_interfaces enabled_power_interfaces enabled_raid_interfaces enabled_vendor_interfaces type; 1.33: default_storage_interface enabled_storage_interfaces; 1.38: default_rescue_interface enabled_rescue_interfaces; 1.40: default_bios_interface enabled_bios_interfaces; 1.86: default_firmware_interface enabled_firmware_interfaces";
const NODE_STATES: RecordedFields = "1.1: console_enabled last_error power_state provision_state provision_updated_at target_power_state target_provision_state; 1.12: raid_config target_raid_config; 1.75: boot_mode secure_boot";
const V1_ROOT: RecordedFields = "1.1: chassis drivers nodes ports; 1.22: heartbeat lookup; 1.23: portgroups; 1.32: volume; 1.49: conductors; 1.52: allocations; 1.54: events; 1.55: deploy_templates; 1.82: shards; 1.84: continue_inspection; 1.92: runbooks; 1.96: inspection_rules";

fn parse(recorded: RecordedFields) -> Vec<(String, u16)> {
    let mut names = Vec::new();
    for group in recorded.split("; ") {
        let (version, fields) = group.split_once(": ").expect("version: names");
        let minor: u16 = version["1.".len()..].parse().expect("a minor version");
        names.extend(fields.split(' ').map(|name| (name.to_owned(), minor)));
    }
    names.sort();
    names
}

fn check<R: WireResource>(recorded: RecordedFields) {
    check_with_additions::<R>(recorded, &[]);
}

/// `additions` are fields that Ironic does not have.
fn check_with_additions<R: WireResource>(recorded: RecordedFields, additions: &[(&str, u16)]) {
    let mut ours: Vec<(String, u16)> = R::fields()
        .iter()
        .filter(|field| field.since != ironic_wire::NEVER_SHOWN)
        .map(|field| (field.name.to_owned(), field.since))
        .collect();
    ours.sort();
    let mut expected = parse(recorded);
    expected.extend(additions.iter().map(|(name, since)| ((*name).to_owned(), *since)));
    expected.sort();
    assert_eq!(ours, expected, "{}", R::KIND);
}

#[test]
fn names_and_versions_match_ironic() {
    check::<Node>(NODE);
    check::<Port>(PORT);
    check::<Portgroup>(PORTGROUP);
    check::<Chassis>(CHASSIS);
    check::<Allocation>(ALLOCATION);
    check::<Runbook>(RUNBOOK);
    check::<DeployTemplate>(DEPLOY_TEMPLATE);
    check::<InspectionRule>(INSPECTION_RULE);
    check::<VolumeConnector>(VOLUME_CONNECTOR);
    check::<VolumeTarget>(VOLUME_TARGET);
    check_with_additions::<ConductorView>(CONDUCTOR, &[("version", 49)]);
    check::<DriverView>(DRIVER);
}

#[test]
fn states_and_root_documents_match_ironic() {
    for (ours, recorded) in [(node_states_fields(), NODE_STATES), (V1_COLLECTIONS, V1_ROOT)] {
        let mut ours: Vec<(String, u16)> =
            ours.iter().map(|(name, since)| ((*name).to_owned(), *since)).collect();
        ours.sort();
        assert_eq!(ours, parse(recorded));
    }
}

fn default_list<R: WireResource>() -> Vec<&'static str> {
    FieldSelection::<R>::default_list(ApiVersion::MAX)
        .names()
        .filter(|name| *name != "links")
        .collect()
}

#[test]
fn default_lists_match_ironic() {
    assert_eq!(
        default_list::<Node>(),
        ["uuid", "name", "instance_uuid", "maintenance", "power_state", "provision_state"]
    );
    assert_eq!(default_list::<Port>(), ["uuid", "address"]);
    assert_eq!(default_list::<Portgroup>(), ["uuid", "address", "name"]);
    assert_eq!(default_list::<Chassis>(), ["uuid", "description"]);
    assert_eq!(default_list::<DeployTemplate>(), ["uuid", "name"]);
    assert_eq!(default_list::<Runbook>(), ["uuid", "name"]);
    assert_eq!(default_list::<InspectionRule>(), ["uuid", "description", "priority", "phase"]);
    assert_eq!(default_list::<VolumeConnector>(), ["uuid", "node_uuid", "type", "connector_id"]);
    assert_eq!(
        default_list::<VolumeTarget>(),
        ["uuid", "node_uuid", "volume_type", "boot_index", "volume_id"]
    );
    assert_eq!(default_list::<ConductorView>(), ["hostname", "conductor_group", "alive"]);
    assert_eq!(default_list::<DriverView>(), ["name", "hosts", "properties", "type"]);
    assert_eq!(default_list::<Allocation>().len(), 12);
}

#[test]
fn patchable_fields_match_ironic() {
    let patchable: Vec<&str> = {
        let mut names: Vec<&str> = <Node as WireResource>::fields()
            .iter()
            .filter(|field| field.patch.is_some())
            .map(|field| field.name)
            .collect();
        names.sort_unstable();
        names
    };
    let expected = "automated_clean bios_interface boot_interface chassis_uuid conductor_group console_interface deploy_interface description disable_power_off driver driver_info extra firmware_interface inspect_interface instance_info instance_name instance_uuid lessee maintenance management_interface name network_data network_interface owner parent_node power_interface properties protected protected_reason raid_interface rescue_interface resource_class retired retired_reason shard storage_interface vendor_interface";
    assert_eq!(patchable, expected.split(' ').collect::<Vec<_>>());
}

#[test]
fn sortable_fields_match_ironic() {
    let unsortable: Vec<&str> = <Node as WireResource>::fields()
        .iter()
        .filter(|field| !field.sortable)
        .map(|field| field.name)
        .collect();
    for name in "properties driver_info extra instance_info driver_internal_info clean_step deploy_step raid_config target_raid_config traits network_data service_step links chassis_uuid conductor allocation_uuid ports states portgroups volume".split(' ') {
        assert!(unsortable.contains(&name), "{name}");
    }
    assert_eq!(unsortable.len(), 20);
}

#[test]
fn every_version_shows_exactly_its_fields() {
    let node = Node::new(node_model::NodeId::random(), "fake-hardware", node_model::Timestamp(0));
    for minor in ApiVersion::MIN.0..=ApiVersion::MAX.0 {
        let version = ApiVersion(minor);
        let context = RenderContext::new(version, "http://x");
        let body = FieldSelection::<Node>::detail(version).body(&node, &context);
        let shown: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&body).unwrap();
        let mut names: Vec<&str> = shown.keys().map(String::as_str).collect();
        names.sort_unstable();
        let recorded = parse(NODE);
        let expected: Vec<&str> = recorded
            .iter()
            .filter(|(_, since)| *since <= minor)
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, expected, "1.{minor}");
    }
}
