// SPDX-License-Identifier: Apache-2.0
//! Installed firmware versions and firmware updates.

use node_model::Timestamp;

use super::tasks::{BmcTaskId, BmcTaskJob};
use super::{MachineError, MachineModel};
use crate::personality::{ComponentKind, ComponentRule, FirmwareActivation};

impl MachineModel {
    /// Returns the version of a component by its index in the personality.
    #[must_use]
    pub fn firmware_version(&self, component: usize) -> Option<&str> {
        let changed = self.changed_firmware.iter().find(|(index, _)| *index == component);
        match changed {
            Some((_, version)) => Some(version),
            None => self.personality.firmware.get(component).map(|rule| rule.version.as_str()),
        }
    }

    /// Returns the version of the first component of that kind.
    #[must_use]
    pub fn component_version(&self, kind: ComponentKind) -> Option<&str> {
        let index = self.personality.firmware.iter().position(|rule| rule.kind == kind)?;
        self.firmware_version(index)
    }

    /// Starts a task that downloads and installs an image. The file name of the image determines
    /// the component if `component` is `None` (`bios-2.1.exe`), the version (`2.1`), and whether
    /// the update fails (`bad` or `corrupt` in the name).
    ///
    /// # Errors
    /// When the component cannot be updated, or an update of it is in progress.
    pub fn update_firmware(
        &mut self,
        image: &str,
        component: Option<usize>,
        now: Timestamp,
    ) -> Result<BmcTaskId, MachineError> {
        self.advance(now);
        let file = image.rsplit('/').next().unwrap_or(image).to_ascii_lowercase();
        if file.is_empty() {
            return Err(MachineError::BadFormat { property: "ImageURI", value: image.to_owned() });
        }
        let component = component.or_else(|| self.component_for_file(&file)).unwrap_or(0);
        let rule: Option<&ComponentRule> = self.personality.firmware.get(component);
        let Some(rule) = rule else {
            return Err(MachineError::NotFound { what: "firmware component" });
        };
        if !rule.updateable {
            return Err(MachineError::Conflict { reason: "this component cannot be updated" });
        }
        let is_updating = self.tasks.iter().any(|task| {
            let same = matches!(
                task.job,
                BmcTaskJob::UpdateFirmware { component: other, .. } if other == component
            );
            same && !task.is_finished()
        });
        if is_updating {
            return Err(MachineError::InUse { what: "the firmware component" });
        }
        let is_damaged = file.contains("bad") || file.contains("corrupt");
        let current = self.firmware_version(component).unwrap_or_default();
        let version = version_in_file_name(&file).unwrap_or_else(|| next_version(current)).into();
        Ok(self.start_task(BmcTaskJob::UpdateFirmware { component, version, is_damaged }, now))
    }

    pub(super) fn activation(&self, component: usize) -> FirmwareActivation {
        self.personality
            .firmware
            .get(component)
            .map_or(FirmwareActivation::Immediate, |rule| rule.activation)
    }

    pub(super) fn set_firmware_version(&mut self, component: usize, version: Box<str>) {
        match self.changed_firmware.iter_mut().find(|(index, _)| *index == component) {
            Some((_, old)) => *old = version,
            None => self.changed_firmware.push((component, version)),
        }
    }

    fn component_for_file(&self, file: &str) -> Option<usize> {
        self.personality.firmware.iter().position(|rule| {
            rule.updateable && rule.kind.file_name_keywords().iter().any(|word| file.contains(word))
        })
    }
}

/// Returns the longest run of digits and dots that contains a dot, without leading or trailing
/// dots.
fn version_in_file_name(file: &str) -> Option<String> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    file.split(|c| !is_part(c))
        .map(|part| part.trim_matches('.'))
        .filter(|part| part.contains('.'))
        .max_by_key(|part| part.len())
        .map(str::to_owned)
}

/// Increments the last number of a version. Leading zeros of that number are lost.
fn next_version(version: &str) -> String {
    let digits = version.len() - version.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (prefix, last) = version.split_at(version.len() - digits);
    match last.parse::<u64>() {
        Ok(number) => format!("{prefix}{}", number.saturating_add(1)),
        Err(_) => format!("{version}.1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_versions_in_file_names() {
        for (file, expected) in [
            ("bios-2.20.1.exe", Some("2.20.1")),
            ("ilo5_3.08.fwpkg", Some("3.08")),
            ("r750.bin", None),
            ("...", None),
            ("x86_64-1.2-build10.4.33.bin", Some("10.4.33")),
        ] {
            assert_eq!(version_in_file_name(file).as_deref(), expected, "{file}");
        }
    }

    #[test]
    fn increments_versions() {
        for (version, expected) in [("2.19.1", "2.19.2"), ("U46 v2.09", "U46 v2.10"), ("A", "A.1")]
        {
            assert_eq!(next_version(version), expected);
        }
        assert_eq!(next_version("3.09"), "3.10");
    }
}
