// SPDX-License-Identifier: Apache-2.0
//! The changes of a node that a driver call returns.

use node_model::{
    BiosSetting, FirmwareComponent, Health, InterfaceKind, JsonObject, Node, PowerState,
};
use serde_json::{Map, Value};

/// Changes for the caller to store, in one transaction with the outcome of the call. Fields left at
/// their default stay unchanged.
///
/// The maps are merged into the node's objects key by key; a null removes its key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "changes have no effect until they are stored"]
pub struct NodeChanges {
    /// Current power state.
    pub power_state: Option<PowerState>,
    /// Current boot mode: `bios` or `uefi`.
    pub boot_mode: Option<String>,
    /// Current secure boot state.
    pub secure_boot: Option<bool>,
    /// Current health.
    pub health: Option<Health>,
    /// Merged into `properties`.
    pub properties: Map<String, Value>,
    /// Merged into `instance_info`.
    pub instance_info: Map<String, Value>,
    /// Merged into `driver_internal_info`.
    pub driver_internal_info: Map<String, Value>,
    /// Replaces `raid_config`.
    pub raid_config: Option<JsonObject>,
    /// Replaces the node's BIOS settings. The caller keeps `created_at` of existing settings and sets
    /// `updated_at` of changed ones.
    pub bios_settings: Option<Vec<BiosSetting>>,
    /// Replaces the node's firmware components. Timestamps are handled as for BIOS settings.
    pub firmware_components: Option<Vec<FirmwareComponent>>,
    /// Whether the console is enabled, if that changed.
    pub console_enabled: Option<bool>,
    /// Replaces the node's deploy interface.
    pub deploy_interface: Option<String>,
    /// The machine was powered off or restarted, so its agent no longer runs.
    pub agent_stopped: bool,
    /// Merged into the driver state of the job in progress.
    pub driver_state: Map<String, Value>,
    /// How far the running step is, for the timeline.
    pub progress_text: Option<String>,
}

impl NodeChanges {
    /// No changes.
    pub fn none() -> Self {
        Self::default()
    }

    /// Only the power state.
    pub fn power(state: PowerState) -> Self {
        Self { power_state: Some(state), ..Self::default() }
    }

    /// Only one key of `driver_internal_info`; null removes it.
    pub fn internal_info(key: &str, value: impl Into<Value>) -> Self {
        let mut changes = Self::default();
        changes.driver_internal_info.insert(key.to_owned(), value.into());
        changes
    }

    /// Only one key of the driver state; null removes it.
    pub fn driver_state_key(key: &str, value: impl Into<Value>) -> Self {
        let mut changes = Self::default();
        changes.driver_state.insert(key.to_owned(), value.into());
        changes
    }

    /// Only a text for the timeline: how far the running step is.
    pub fn progress(text: impl Into<String>) -> Self {
        Self { progress_text: Some(text.into()), ..Self::default() }
    }

    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These changes followed by `later`, which takes precedence.
    pub fn and(mut self, later: Self) -> Self {
        self.power_state = later.power_state.or(self.power_state);
        self.boot_mode = later.boot_mode.or(self.boot_mode);
        self.secure_boot = later.secure_boot.or(self.secure_boot);
        self.health = later.health.or(self.health);
        self.properties.extend(later.properties);
        self.instance_info.extend(later.instance_info);
        self.driver_internal_info.extend(later.driver_internal_info);
        self.raid_config = later.raid_config.or(self.raid_config);
        self.bios_settings = later.bios_settings.or(self.bios_settings);
        self.firmware_components = later.firmware_components.or(self.firmware_components);
        self.console_enabled = later.console_enabled.or(self.console_enabled);
        self.deploy_interface = later.deploy_interface.or(self.deploy_interface);
        self.agent_stopped |= later.agent_stopped;
        self.driver_state.extend(later.driver_state);
        self.progress_text = later.progress_text.or(self.progress_text);
        self
    }

    /// Applies all changes that are part of the node itself: not the BIOS settings and firmware
    /// components, which have separate tables. The driver state and the progress are part of the job
    /// in progress, if there is one.
    pub fn apply_to(&self, node: &mut Node) {
        if self.power_state.is_some() {
            node.power_state = self.power_state;
        }
        if let Some(boot_mode) = &self.boot_mode {
            node.boot_mode = Some(boot_mode.clone());
        }
        if self.secure_boot.is_some() {
            node.secure_boot = self.secure_boot;
        }
        if self.health.is_some() {
            node.health = self.health;
        }
        merge(&mut node.properties, &self.properties);
        merge(&mut node.instance_info, &self.instance_info);
        merge(&mut node.driver_internal_info, &self.driver_internal_info);
        if let Some(raid_config) = &self.raid_config {
            node.raid_config = raid_config.clone();
        }
        if let Some(console_enabled) = self.console_enabled {
            node.console_enabled = console_enabled;
        }
        if let Some(deploy) = &self.deploy_interface {
            node.interfaces.set(InterfaceKind::Deploy, Some(deploy));
        }
        if let Some(work) = &mut node.work {
            self.apply_to_driver_state(&mut work.driver_state);
            if self.progress_text.is_some() {
                work.progress_text.clone_from(&self.progress_text);
            }
        }
    }

    /// Merges the changes of the objects that may contain secrets into their full contents.
    pub fn apply_to_secrets(
        &self,
        instance_info: &mut Map<String, Value>,
        driver_internal_info: &mut Map<String, Value>,
    ) {
        merge_keys(instance_info, &self.instance_info);
        merge_keys(driver_internal_info, &self.driver_internal_info);
    }

    /// Merges [`Self::driver_state`] into `state`.
    pub fn apply_to_driver_state(&self, state: &mut JsonObject) {
        merge(state, &self.driver_state);
    }
}

fn merge(object: &mut JsonObject, changes: &Map<String, Value>) {
    // Skips parsing the JSON text: most calls change nothing here.
    if changes.is_empty() {
        return;
    }
    object.edit(|map| merge_keys(map, changes));
}

fn merge_keys(map: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (key, value) in changes {
        if value.is_null() {
            map.remove(key);
        } else {
            map.insert(key.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use node_model::{Actor, NodeId, Timestamp, Work, WorkKind};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn later_changes_override_and_null_removes() {
        let changes = NodeChanges::power(PowerState::On)
            .and(NodeChanges::internal_info("kept", 1))
            .and(NodeChanges::internal_info("dropped", Value::Null))
            .and(NodeChanges::power(PowerState::Off));
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        node.driver_internal_info.set("dropped", true);
        node.driver_internal_info.set("untouched", "x");
        changes.apply_to(&mut node);
        assert_eq!(node.power_state, Some(PowerState::Off));
        assert_eq!(node.driver_internal_info.as_str(), r#"{"kept":1,"untouched":"x"}"#);
    }

    #[test]
    fn merges_driver_state_by_key() {
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        let mut work = Work::new(
            Uuid::nil(),
            WorkKind::Deploy,
            Actor::Conductor { hostname: String::new() },
            Timestamp(0),
        );
        work.driver_state.set("kept", 0);
        work.driver_state.set("removed", 0);
        node.work = Some(work);
        let changes = NodeChanges::driver_state_key("first", 1)
            .and(NodeChanges::driver_state_key("second", 2))
            .and(NodeChanges::driver_state_key("removed", Value::Null))
            .and(NodeChanges::progress("first"))
            .and(NodeChanges::progress("second"));
        changes.apply_to(&mut node);
        NodeChanges::power(PowerState::On).apply_to(&mut node);
        let work = node.work.unwrap();
        assert_eq!(work.driver_state.as_str(), r#"{"first":1,"kept":0,"second":2}"#);
        assert_eq!(work.progress_text.as_deref(), Some("second"));
    }

    #[test]
    fn empty_changes_leave_node_unchanged() {
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        let before = node.clone();
        NodeChanges::none().apply_to(&mut node);
        assert_eq!(node, before);
        assert!(NodeChanges::none().is_empty());
        assert!(!NodeChanges::internal_info("a", 1).is_empty());
    }
}
