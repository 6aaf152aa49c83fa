// SPDX-License-Identifier: Apache-2.0
//! BIOS attributes, changes that wait for a reset, and secure boot.
//!
//! Only values that differ from the defaults are stored; the defaults are shared by the fleet.

use node_model::Timestamp;
use serde_json::Value;

use super::{BootMode, MachineError, MachineModel};
use crate::personality::{AttributeKind, AttributeRule};

/// The BIOS attributes of one machine.
#[derive(Clone, Debug, Default)]
pub struct BiosState {
    /// Values that differ from the default, by attribute index.
    changed: Vec<(usize, Value)>,
    /// Values that the next reset applies.
    pending: Vec<(usize, Value)>,
    /// Whether the next reset restores the defaults before it applies `pending`.
    defaults_pending: bool,
    /// Time of the last reset that applied changes.
    applied_at: Option<Timestamp>,
}

/// State of UEFI secure boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecureBootState {
    /// Whether the next boot verifies signatures.
    pub enabled: bool,
    /// Whether the current boot verified signatures.
    pub current: bool,
    /// The enrolled keys.
    pub keys: SecureBootKeys,
}

/// The enrolled secure boot keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecureBootKeys {
    /// The vendor's default keys.
    Default,
    /// None.
    None,
}

impl BiosState {
    /// Returns the current value of an attribute.
    #[must_use]
    pub fn current_value<'a>(&'a self, index: usize, rule: &'a AttributeRule) -> &'a Value {
        find_value(&self.changed, index).unwrap_or(&rule.default)
    }

    /// Returns the value of an attribute after the next reset.
    #[must_use]
    pub fn pending_value<'a>(&'a self, index: usize, rule: &'a AttributeRule) -> &'a Value {
        match find_value(&self.pending, index) {
            Some(value) => value,
            None if self.defaults_pending => &rule.default,
            None => self.current_value(index, rule),
        }
    }

    /// Whether the next reset applies changes.
    #[must_use]
    pub fn has_pending_changes(&self) -> bool {
        self.defaults_pending || !self.pending.is_empty()
    }

    /// Returns the time of the last reset that applied changes.
    #[must_use]
    pub fn applied_at(&self) -> Option<Timestamp> {
        self.applied_at
    }
}

impl MachineModel {
    /// Returns the BIOS attributes.
    #[must_use]
    pub fn bios(&self) -> &BiosState {
        &self.bios
    }

    /// Returns the current value of an attribute by name.
    #[must_use]
    pub fn bios_attribute(&self, name: &str) -> Option<&Value> {
        let rules = &self.personality.bios.attributes;
        let index = rules.iter().position(|rule| rule.name == name)?;
        Some(self.bios.current_value(index, rules.get(index)?))
    }

    /// Queues attribute changes for the next reset. Either all or none are queued.
    ///
    /// # Errors
    /// When an attribute does not exist, is read-only, or does not accept its value.
    pub fn request_bios_changes<'a>(
        &mut self,
        attributes: impl Iterator<Item = (&'a str, &'a Value)>,
    ) -> Result<(), MachineError> {
        let rules = &self.personality.bios.attributes;
        let mut accepted = Vec::new();
        for (name, value) in attributes {
            let index = rules.iter().position(|rule| rule.name == name);
            let attribute = index.and_then(|index| Some((index, rules.get(index)?)));
            let Some((index, rule)) = attribute else {
                return Err(MachineError::UnknownProperty { property: name.to_owned() });
            };
            check_attribute_value(rule, value)?;
            accepted.push((index, value.clone()));
        }
        for (index, value) in accepted {
            set_value(&mut self.bios.pending, index, value);
        }
        Ok(())
    }

    /// Queues a reset of all attributes to their defaults.
    pub fn request_bios_defaults(&mut self) {
        self.bios.pending.clear();
        self.bios.defaults_pending = true;
    }

    /// Returns the secure boot state.
    #[must_use]
    pub fn secure_boot(&self) -> SecureBootState {
        self.secure_boot
    }

    /// Enables or disables secure boot from the next boot on.
    ///
    /// # Errors
    /// When the boot mode is `Legacy`, which has no secure boot.
    pub fn set_secure_boot(&mut self, enabled: bool) -> Result<(), MachineError> {
        if enabled && self.boot_settings.mode == BootMode::Legacy {
            return Err(MachineError::Conflict {
                reason: "secure boot requires the boot mode UEFI",
            });
        }
        self.secure_boot.enabled = enabled;
        Ok(())
    }

    /// Restores the default keys, or deletes all keys, which disables secure boot.
    pub fn set_secure_boot_keys(&mut self, keys: SecureBootKeys) {
        self.secure_boot.keys = keys;
        if keys == SecureBootKeys::None {
            self.secure_boot.enabled = false;
        }
    }

    pub(super) fn apply_pending_bios(&mut self, at: Timestamp) {
        let bios = &mut self.bios;
        if !bios.has_pending_changes() {
            return;
        }
        if std::mem::take(&mut bios.defaults_pending) {
            bios.changed.clear();
        }
        for (index, value) in std::mem::take(&mut bios.pending) {
            set_value(&mut bios.changed, index, value);
        }
        let rules = &self.personality.bios.attributes;
        bios.changed
            .retain(|(index, value)| rules.get(*index).is_some_and(|rule| rule.default != *value));
        bios.changed.shrink_to_fit();
        bios.applied_at = Some(at);
    }

    pub(super) fn apply_secure_boot(&mut self) {
        self.secure_boot.current =
            self.secure_boot.enabled && self.boot_settings.mode == BootMode::Uefi;
    }
}

fn check_attribute_value(rule: &AttributeRule, value: &Value) -> Result<(), MachineError> {
    let property = || rule.name.clone();
    if rule.read_only {
        return Err(MachineError::ReadOnly { property: property() });
    }
    let is_right_type = match rule.kind {
        AttributeKind::Enumeration | AttributeKind::String => value.is_string(),
        AttributeKind::Integer => value.is_i64(),
        AttributeKind::Boolean => value.is_boolean(),
    };
    if !is_right_type {
        return Err(MachineError::WrongType { property: property(), value: value.to_string() });
    }
    let is_allowed = match rule.kind {
        AttributeKind::Enumeration => {
            rule.values.iter().any(|known| value.as_str() == Some(known.as_str()))
        }
        AttributeKind::Integer => value.as_i64().is_some_and(|number| {
            rule.lower_bound.is_none_or(|bound| number >= bound)
                && rule.upper_bound.is_none_or(|bound| number <= bound)
        }),
        AttributeKind::String => {
            let length = value.as_str().map_or(0, str::len);
            rule.max_length.is_none_or(|max| length <= max)
        }
        AttributeKind::Boolean => true,
    };
    if !is_allowed {
        return Err(MachineError::BadValue { property: property(), value: value.to_string() });
    }
    Ok(())
}

fn find_value(values: &[(usize, Value)], index: usize) -> Option<&Value> {
    values.iter().find(|(other, _)| *other == index).map(|(_, value)| value)
}

fn set_value(values: &mut Vec<(usize, Value)>, index: usize, value: Value) {
    match values.iter_mut().find(|(other, _)| *other == index) {
        Some((_, old)) => *old = value,
        None => values.push((index, value)),
    }
}
