// SPDX-License-Identifier: Apache-2.0
//! The `capabilities` property, a list in one string: `boot_mode:uefi,cpu_vt:true`.

/// Capabilities in the order of the property.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Capabilities(Vec<(String, String)>);

/// A capability has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("capability {entry:?} has no value; write it as name:value in properties/capabilities")]
pub struct CapabilitiesError {
    /// The entry.
    entry: String,
}

impl Capabilities {
    /// Parses the property; an empty text has no capabilities.
    pub(crate) fn parse(text: &str) -> Result<Self, CapabilitiesError> {
        let mut capabilities = Self::default();
        if text.is_empty() {
            return Ok(capabilities);
        }
        for entry in text.split(',') {
            let (name, value) = entry
                .split_once(':')
                .ok_or_else(|| CapabilitiesError { entry: entry.chars().take(80).collect() })?;
            capabilities.set(name, value);
        }
        Ok(capabilities)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Sets a capability; an existing one keeps its position.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }

    /// Removes a capability. Returns true if it existed.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|(known, _)| known != name);
        self.0.len() != before
    }

    /// Formats the property.
    pub(crate) fn to_property(&self) -> String {
        let entries: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        entries.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_rejects_entries_without_value() {
        let mut capabilities = Capabilities::parse("boot_mode:bios,a:b:c").unwrap();
        capabilities.set("boot_mode", "uefi");
        capabilities.set("cpu_vt", "true");
        assert_eq!(capabilities.to_property(), "boot_mode:uefi,a:b:c,cpu_vt:true");
        assert!(capabilities.remove("a") && !capabilities.remove("a"));
        assert_eq!(capabilities.to_property(), "boot_mode:uefi,cpu_vt:true");
        assert!(Capabilities::parse("boot_mode:bios,boot_option").is_err());
    }
}
