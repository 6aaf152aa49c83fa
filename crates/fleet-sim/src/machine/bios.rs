// SPDX-License-Identifier: Apache-2.0
//! The firmware's settings: attributes with a registry, changes that wait for a reset, secure boot.
//!
//! Only what differs from the defaults is stored: a fleet of thousands shares one table.

use node_model::Timestamp;
use serde_json::Value;

use super::{BootMode, Machine, Refused};
use crate::personality::{AttributeKind, AttributeRule};

/// The attributes of one machine.
#[derive(Clone, Debug, Default)]
pub struct Bios {
    /// Attributes that differ from their default, by their place in the registry.
    changed: Vec<(usize, Value)>,
    /// What the next reset brings.
    pending: Vec<(usize, Value)>,
    /// Whether the next reset brings the defaults first.
    reset_pending: bool,
    /// When something was last brought by a reset.
    applied_at: Option<Timestamp>,
}

/// Secure boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecureBoot {
    /// Whether the next boot checks signatures.
    pub enabled: bool,
    /// Whether the current one did.
    pub current: bool,
    /// Which keys are there.
    pub keys: Keys,
}

/// The keys that secure boot checks with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// The maker's and the operating systems' usual ones.
    Default,
    /// None.
    None,
}

impl Bios {
    /// The value an attribute has now.
    #[must_use]
    pub fn value<'a>(&'a self, place: usize, rule: &'a AttributeRule) -> &'a Value {
        find(&self.changed, place).unwrap_or(&rule.default)
    }

    /// The value an attribute has after the next reset.
    #[must_use]
    pub fn value_to_be<'a>(&'a self, place: usize, rule: &'a AttributeRule) -> &'a Value {
        match find(&self.pending, place) {
            Some(value) => value,
            None if self.reset_pending => &rule.default,
            None => self.value(place, rule),
        }
    }

    /// Whether a reset would change anything.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.reset_pending || !self.pending.is_empty()
    }

    /// When a reset last changed something.
    #[must_use]
    pub fn applied_at(&self) -> Option<Timestamp> {
        self.applied_at
    }
}

impl Machine {
    /// The firmware's settings.
    #[must_use]
    pub fn bios(&self) -> &Bios {
        &self.bios
    }

    /// The value of an attribute now, by name.
    #[must_use]
    pub fn bios_attribute(&self, name: &str) -> Option<&Value> {
        let rules = &self.personality.bios.attributes;
        let place = rules.iter().position(|rule| rule.name == name)?;
        Some(self.bios.value(place, rules.get(place)?))
    }

    /// Asks for attributes to be changed by the next reset: all of them or none.
    ///
    /// # Errors
    /// When there is no such attribute, it may not be written, or not with that value.
    pub fn set_bios<'a>(
        &mut self,
        attributes: impl Iterator<Item = (&'a str, &'a Value)>,
    ) -> Result<(), Refused> {
        let rules = &self.personality.bios.attributes;
        let mut accepted = Vec::new();
        for (name, value) in attributes {
            let place = rules.iter().position(|rule| rule.name == name);
            let found = place.and_then(|place| Some((place, rules.get(place)?)));
            let Some((place, rule)) = found else {
                return Err(Refused::Unknown { property: name.to_owned() });
            };
            check(rule, value)?;
            accepted.push((place, value.clone()));
        }
        for (place, value) in accepted {
            put(&mut self.bios.pending, place, value);
        }
        Ok(())
    }

    /// Asks for the defaults at the next reset.
    pub fn reset_bios(&mut self) {
        self.bios.pending.clear();
        self.bios.reset_pending = true;
    }

    /// Secure boot's state.
    #[must_use]
    pub fn secure_boot(&self) -> SecureBoot {
        self.secure_boot
    }

    /// Asks for secure boot, or for none, from the next boot on.
    ///
    /// # Errors
    /// When the machine boots as PCs did, where there is no secure boot.
    pub fn set_secure_boot(&mut self, enabled: bool) -> Result<(), Refused> {
        if enabled && self.boot.mode == BootMode::Legacy {
            return Err(Refused::Conflict { why: "secure boot needs the boot mode UEFI" });
        }
        self.secure_boot.enabled = enabled;
        Ok(())
    }

    /// Brings back the usual keys, or removes all.
    pub fn set_secure_boot_keys(&mut self, keys: Keys) {
        self.secure_boot.keys = keys;
        if keys == Keys::None {
            self.secure_boot.enabled = false;
        }
    }

    pub(super) fn apply_pending_bios(&mut self, at: Timestamp) {
        let bios = &mut self.bios;
        if !bios.is_pending() {
            return;
        }
        if std::mem::take(&mut bios.reset_pending) {
            bios.changed.clear();
        }
        for (place, value) in std::mem::take(&mut bios.pending) {
            put(&mut bios.changed, place, value);
        }
        let rules = &self.personality.bios.attributes;
        bios.changed
            .retain(|(place, value)| rules.get(*place).is_some_and(|rule| rule.default != *value));
        bios.changed.shrink_to_fit();
        bios.applied_at = Some(at);
    }

    pub(super) fn apply_secure_boot(&mut self) {
        self.secure_boot.current = self.secure_boot.enabled && self.boot.mode == BootMode::Uefi;
    }
}

fn check(rule: &AttributeRule, value: &Value) -> Result<(), Refused> {
    let property = || rule.name.clone();
    if rule.read_only {
        return Err(Refused::ReadOnly { property: property() });
    }
    let is_right_type = match rule.kind {
        AttributeKind::Enumeration | AttributeKind::String => value.is_string(),
        AttributeKind::Integer => value.is_i64(),
        AttributeKind::Boolean => value.is_boolean(),
    };
    if !is_right_type {
        return Err(Refused::WrongType { property: property(), value: value.to_string() });
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
            rule.max_length.is_none_or(|most| length <= most)
        }
        AttributeKind::Boolean => true,
    };
    if !is_allowed {
        return Err(Refused::BadValue { property: property(), value: value.to_string() });
    }
    Ok(())
}

fn find(values: &[(usize, Value)], place: usize) -> Option<&Value> {
    values.iter().find(|(other, _)| *other == place).map(|(_, value)| value)
}

fn put(values: &mut Vec<(usize, Value)>, place: usize, value: Value) {
    match values.iter_mut().find(|(other, _)| *other == place) {
        Some((_, old)) => *old = value,
        None => values.push((place, value)),
    }
}
