// SPDX-License-Identifier: Apache-2.0
//! What a driver wants written down about a machine.

use node_model::{
    BiosSetting, FirmwareComponent, Health, InterfaceKind, JsonObject, Node, PowerState,
};
use serde_json::{Map, Value};

/// Changes for the caller to write, in one transaction with the outcome of the call. Everything
/// left at its default stays as it is.
///
/// The maps are merged into the node's objects key by key; a null removes its key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "a change that is not written down is forgotten"]
pub struct NodeChanges {
    /// Power as it is now.
    pub power_state: Option<PowerState>,
    /// `bios` or `uefi`, as it is now.
    pub boot_mode: Option<String>,
    /// Secure boot as it is now.
    pub secure_boot: Option<bool>,
    /// Condition as it is now.
    pub health: Option<Health>,
    /// Merged into `properties`.
    pub properties: Map<String, Value>,
    /// Merged into `instance_info`.
    pub instance_info: Map<String, Value>,
    /// Merged into `driver_internal_info`.
    pub driver_internal_info: Map<String, Value>,
    /// Replaces `raid_config`.
    pub raid_config: Option<JsonObject>,
    /// Replaces the node's BIOS settings. The caller keeps `created_at` of those it already has,
    /// and stamps `updated_at` of those whose value changed.
    pub bios_settings: Option<Vec<BiosSetting>>,
    /// Replaces the node's firmware components, with the same care for the times.
    pub firmware_components: Option<Vec<FirmwareComponent>>,
    /// Whether the console is on, if that changed.
    pub console_enabled: Option<bool>,
    /// Replaces the node's deploy interface.
    pub deploy_interface: Option<String>,
    /// The machine was switched off or restarted, and no agent survives that.
    pub agent_is_gone: bool,
    /// Replaces the notes of the job in flight.
    pub notes: Option<JsonObject>,
}

impl NodeChanges {
    /// Nothing to write.
    pub fn none() -> Self {
        Self::default()
    }

    /// Only the power state.
    pub fn power(state: PowerState) -> Self {
        Self { power_state: Some(state), ..Self::default() }
    }

    /// Only one key of `driver_internal_info`; null removes it.
    pub fn remember(key: &str, value: impl Into<Value>) -> Self {
        let mut changes = Self::default();
        changes.driver_internal_info.insert(key.to_owned(), value.into());
        changes
    }

    /// Only one note, beside those the driver already had.
    pub fn note(notes: &JsonObject, key: &str, value: impl Into<Value>) -> Self {
        let mut notes = notes.clone();
        notes.set(key, value);
        Self { notes: Some(notes), ..Self::default() }
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These changes and then `later`, which wins where both speak.
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
        self.agent_is_gone |= later.agent_is_gone;
        self.notes = later.notes.or(self.notes);
        self
    }

    /// Writes everything that is part of the node itself into `node`: all but the BIOS settings
    /// and firmware components, which have tables of their own, and the notes if no job is in
    /// flight.
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
        if let (Some(notes), Some(work)) = (&self.notes, &mut node.work) {
            work.notes = notes.clone();
        }
    }
}

fn merge(object: &mut JsonObject, changes: &Map<String, Value>) {
    // Most calls change nothing here: the text is then not parsed at all.
    if changes.is_empty() {
        return;
    }
    object.edit(|map| {
        for (key, value) in changes {
            if value.is_null() {
                map.remove(key);
            } else {
                map.insert(key.clone(), value.clone());
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use node_model::{NodeId, Timestamp};

    use super::*;

    #[test]
    fn later_changes_win_and_null_removes() {
        let changes = NodeChanges::power(PowerState::On)
            .and(NodeChanges::remember("kept", 1))
            .and(NodeChanges::remember("dropped", Value::Null))
            .and(NodeChanges::power(PowerState::Off));
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        node.driver_internal_info.set("dropped", true);
        node.driver_internal_info.set("untouched", "x");
        changes.apply_to(&mut node);
        assert_eq!(node.power_state, Some(PowerState::Off));
        assert_eq!(node.driver_internal_info.as_str(), r#"{"kept":1,"untouched":"x"}"#);
    }

    #[test]
    fn nothing_changes_nothing() {
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        let before = node.clone();
        NodeChanges::none().apply_to(&mut node);
        assert_eq!(node, before);
        assert!(NodeChanges::none().is_empty());
        assert!(!NodeChanges::remember("a", 1).is_empty());
    }
}
