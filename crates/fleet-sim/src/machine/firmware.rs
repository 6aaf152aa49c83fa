// SPDX-License-Identifier: Apache-2.0
//! Firmware: which versions are installed, and updates from an image.

use node_model::Timestamp;

use super::tasks::{Job, TaskId};
use super::{Machine, Refused};
use crate::personality::{Activation, ComponentKind, ComponentRule};

impl Machine {
    /// The version of a component, by its place in the personality.
    #[must_use]
    pub fn firmware_version(&self, component: usize) -> Option<&str> {
        let changed = self.firmware.iter().find(|(place, _)| *place == component);
        match changed {
            Some((_, version)) => Some(version),
            None => self.personality.firmware.get(component).map(|rule| rule.version.as_str()),
        }
    }

    /// The version of the first component of that kind.
    #[must_use]
    pub fn version_of(&self, kind: ComponentKind) -> Option<&str> {
        let place = self.personality.firmware.iter().position(|rule| rule.kind == kind)?;
        self.firmware_version(place)
    }

    /// Loads an image and installs it, as a task. What is in it is told by its name: the component
    /// if none is given (`bios-2.1.exe`), the version (`2.1`), and whether it is any good (`bad` or
    /// `corrupt` in the name makes the task fail).
    ///
    /// # Errors
    /// When the component cannot be updated, or an update of it goes on.
    pub fn update_firmware(
        &mut self,
        image: &str,
        component: Option<usize>,
        now: Timestamp,
    ) -> Result<TaskId, Refused> {
        self.advance(now);
        let file = image.rsplit('/').next().unwrap_or(image).to_ascii_lowercase();
        if file.is_empty() {
            return Err(Refused::BadFormat { property: "ImageURI", value: image.to_owned() });
        }
        let component = component.or_else(|| self.component_of(&file)).unwrap_or(0);
        let rule: Option<&ComponentRule> = self.personality.firmware.get(component);
        let Some(rule) = rule else { return Err(Refused::NoSuch { what: "firmware component" }) };
        if !rule.updateable {
            return Err(Refused::Conflict { why: "this component cannot be updated" });
        }
        let goes_on = self.tasks.iter().any(|task| {
            let same = matches!(
                task.job,
                Job::UpdateFirmware { component: other, .. } if other == component
            );
            same && !task.is_over()
        });
        if goes_on {
            return Err(Refused::InUse { what: "the firmware component" });
        }
        let is_damaged = file.contains("bad") || file.contains("corrupt");
        let current = self.firmware_version(component).unwrap_or_default();
        let version = version_in(&file).unwrap_or_else(|| next_version(current)).into();
        Ok(self.start_task(Job::UpdateFirmware { component, version, is_damaged }, now))
    }

    pub(super) fn activation(&self, component: usize) -> Activation {
        self.personality.firmware.get(component).map_or(Activation::AtOnce, |rule| rule.activation)
    }

    pub(super) fn set_firmware_version(&mut self, component: usize, version: Box<str>) {
        match self.firmware.iter_mut().find(|(place, _)| *place == component) {
            Some((_, old)) => *old = version,
            None => self.firmware.push((component, version)),
        }
    }

    fn component_of(&self, file: &str) -> Option<usize> {
        self.personality.firmware.iter().position(|rule| {
            rule.updateable && rule.kind.words().iter().any(|word| file.contains(word))
        })
    }
}

/// The longest run of digits and dots, if it has a dot and begins and ends with a digit.
fn version_in(file: &str) -> Option<String> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    file.split(|c| !is_part(c))
        .map(|part| part.trim_matches('.'))
        .filter(|part| part.contains('.'))
        .max_by_key(|part| part.len())
        .map(str::to_owned)
}

/// The version after this one: the last number grows by one.
fn next_version(version: &str) -> String {
    let digits = version.len() - version.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (front, last) = version.split_at(version.len() - digits);
    match last.parse::<u64>() {
        Ok(number) => format!("{front}{}", number.saturating_add(1)),
        Err(_) => format!("{version}.1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_file_names() {
        for (file, expected) in [
            ("bios-2.20.1.exe", Some("2.20.1")),
            ("ilo5_3.08.fwpkg", Some("3.08")),
            ("r750.bin", None),
            ("...", None),
            ("x86_64-1.2-build10.4.33.bin", Some("10.4.33")),
        ] {
            assert_eq!(version_in(file).as_deref(), expected, "{file}");
        }
    }

    #[test]
    fn the_next_version() {
        for (version, expected) in [("2.19.1", "2.19.2"), ("U46 v2.09", "U46 v2.10"), ("A", "A.1")]
        {
            assert_eq!(next_version(version), expected);
        }
        // Leading zeroes are lost, which nobody minds.
        assert_eq!(next_version("3.09"), "3.10");
    }
}
