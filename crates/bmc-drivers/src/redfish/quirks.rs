// SPDX-License-Identifier: Apache-2.0
//! What some BMCs do otherwise, as data: which machines, and what to do differently for them.
//!
//! The built-in files are in `quirks/`; an operator's own folder may add to them. A file is a list
//! of quirks, each with a reason, a pattern and a behaviour. All that match apply, in order, the
//! operator's last; what a later one says wins.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::path::Path;

use node_model::Node;
use redfish::Resource;
use serde::Deserialize;

use crate::ConfigError;

/// The files that come with the program.
const BUILT_IN: &[(&str, &str)] = &[
    ("dell.toml", include_str!("../../quirks/dell.toml")),
    ("hpe.toml", include_str!("../../quirks/hpe.toml")),
    ("lenovo.toml", include_str!("../../quirks/lenovo.toml")),
    ("supermicro.toml", include_str!("../../quirks/supermicro.toml")),
    ("ami.toml", include_str!("../../quirks/ami.toml")),
];

/// The key of `driver_internal_info` with what the last probe found, and where in it the BMC's
/// firmware version is.
const PROBE: &str = "bmc";
const PROBED_FIRMWARE: &str = "/bmc/firmware";

/// The pattern that everything fits.
const ANYTHING: &str = "*";

/// All quirks that are known.
#[derive(Debug)]
pub(super) struct QuirkBook(Vec<Quirk>);

/// One way in which some BMCs differ.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quirk {
    /// What goes wrong otherwise, for whoever reads the file and for the capability page.
    why: String,
    /// Pattern of the manufacturer: `*` stands for anything, case does not matter.
    vendor: String,
    /// Pattern of the model.
    #[serde(default = "anything")]
    model: String,
    /// Pattern of the BIOS version.
    #[serde(default = "anything")]
    bios: String,
    /// Pattern of the BMC's own firmware version, such as `iLO 4*`. It is known once the BMC was
    /// probed.
    #[serde(default = "anything")]
    firmware: String,
    /// What to do differently.
    behaviour: Behaviour,
}

/// What to do differently; what a quirk does not mention stays as usual.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Behaviour {
    /// Always send these keys when the boot override is changed, even if they stay the same:
    /// `BootSourceOverrideEnabled`, `BootSourceOverrideMode`.
    pub(super) boot_always_send: Option<Vec<String>>,
    /// Names to use for boot devices instead of the usual ones, where the BMC offers them.
    pub(super) boot_device_names: Option<BTreeMap<String, String>>,
    /// The BMC takes `Continuous` and forgets it: set the device again before each power-on.
    pub(super) boot_once_only: Option<bool>,
    /// After deployment the firmware boots the disk by itself, and telling it to breaks its own
    /// boot order.
    pub(super) leave_disk_boot_to_firmware: Option<bool>,
    /// Insert media by changing the resource rather than by its action.
    pub(super) media_by_patch: Option<bool>,
    /// Keys the BMC does not take when media are inserted.
    pub(super) media_leave_out: Option<Vec<String>>,
    /// Seconds to leave a machine alone between switching it off and on.
    pub(super) rest_after_power_off: Option<u64>,
}

/// What is different about one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Quirks {
    /// What to do.
    pub(super) behaviour: Behaviour,
    /// Why, one reason per quirk.
    pub(super) reasons: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    quirk: Vec<Quirk>,
}

impl QuirkBook {
    /// The built-in quirks and those in `folder`.
    pub(super) fn load(folder: Option<&Path>) -> Result<Self, ConfigError> {
        let mut quirks = Vec::new();
        for (name, text) in BUILT_IN {
            quirks.extend(read(name, text)?);
        }
        if let Some(folder) = folder {
            let problem = |why: String| ConfigError::Quirks { file: folder.to_owned(), why };
            let entries = std::fs::read_dir(folder).map_err(|error| problem(error.to_string()))?;
            let mut files: Vec<_> = entries
                .filter_map(|entry| entry.ok().map(|entry| entry.path()))
                .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
                .collect();
            files.sort();
            for file in files {
                let text = std::fs::read_to_string(&file).map_err(|error| ConfigError::Quirks {
                    file: file.clone(),
                    why: error.to_string(),
                })?;
                quirks.extend(read(&file.to_string_lossy(), &text)?);
            }
        }
        Ok(Self(quirks))
    }

    /// What is different about the machine behind `system`. The version of its BMC is the one that
    /// `node` remembers from the last probe.
    pub(super) fn of(&self, node: &Node, system: &Resource) -> Quirks {
        let firmware = LazyCell::new(|| {
            let bmc = node.driver_internal_info.get(PROBE)?;
            bmc.pointer(PROBED_FIRMWARE)?.as_str().map(str::to_owned)
        });
        self.matching(system, || firmware.as_deref().unwrap_or_default())
    }

    /// What is different about the machine behind `system`, whose BMC has this firmware.
    pub(super) fn of_firmware(&self, system: &Resource, firmware: &str) -> Quirks {
        self.matching(system, || firmware)
    }

    /// The version is asked for only if it makes a difference.
    fn matching<'a>(&self, system: &Resource, firmware: impl Fn() -> &'a str) -> Quirks {
        let vendor = system.text("/Manufacturer").unwrap_or_default();
        let model = system.text("/Model").unwrap_or_default();
        let bios = system.text("/BiosVersion").unwrap_or_default();
        let mut found = Quirks::default();
        for quirk in &self.0 {
            let fits = matches(&quirk.vendor, vendor)
                && matches(&quirk.model, model)
                && matches(&quirk.bios, bios)
                && (quirk.firmware == ANYTHING || matches(&quirk.firmware, firmware()));
            if fits {
                found.behaviour.overlay(&quirk.behaviour);
                found.reasons.push(quirk.why.clone());
            }
        }
        found
    }
}

/// Lays the fields of one behaviour over another.
macro_rules! overlay {
    ($into:ident, $from:ident, $($field:ident),*) => {
        $(if $from.$field.is_some() {
            $into.$field.clone_from(&$from.$field);
        })*
    };
}

impl Behaviour {
    fn overlay(&mut self, later: &Self) {
        overlay!(
            self,
            later,
            boot_always_send,
            boot_device_names,
            boot_once_only,
            leave_disk_boot_to_firmware,
            media_by_patch,
            media_leave_out,
            rest_after_power_off
        );
    }
}

fn anything() -> String {
    ANYTHING.to_owned()
}

fn read(name: &str, text: &str) -> Result<Vec<Quirk>, ConfigError> {
    let file: File = toml::from_str(text)
        .map_err(|error| ConfigError::Quirks { file: name.into(), why: error.to_string() })?;
    Ok(file.quirk)
}

/// Whether `text` fits `pattern`, in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_lowercase(), text.to_lowercase());
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use node_model::{NodeId, Timestamp};
    use serde_json::json;

    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("Dell*", "Dell Inc.", true),
            ("dell inc.", "Dell Inc.", true),
            ("*inc*", "Dell Inc.", true),
            ("Dell", "Dell Inc.", false),
            ("a*b*c", "aXXbYYc", true),
            ("a*b*c", "aXXcYYb", false),
            ("ab*ab", "ab", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn an_operators_quirks_come_last_and_win() {
        let folder = tempfile::tempdir().unwrap();
        let own = r#"
            [[quirk]]
            why = "ours"
            vendor = "Supermicro*"
            [quirk.behaviour]
            boot_always_send = []
            rest_after_power_off = 7
        "#;
        std::fs::write(folder.path().join("own.toml"), own).unwrap();
        let book = QuirkBook::load(Some(folder.path())).unwrap();
        let system = Resource {
            path: String::new(),
            etag: None,
            body: json!({"Manufacturer": "Supermicro", "Model": "X"}),
        };
        let quirks = book.of_firmware(&system, "");
        assert_eq!(quirks.behaviour.boot_always_send, Some(Vec::new()));
        assert_eq!(quirks.behaviour.rest_after_power_off, Some(7));
        assert!(quirks.reasons.len() > 1 && quirks.reasons.contains(&"ours".to_owned()));
        std::fs::write(folder.path().join("bad.toml"), "[[quirk]]\nwhy = 1").unwrap();
        let error = QuirkBook::load(Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains("bad.toml"), "{error}");
    }

    #[test]
    fn a_machine_nobody_complains_about_is_plain() {
        let book = QuirkBook::load(None).unwrap();
        let system = Resource { path: String::new(), etag: None, body: json!({}) };
        assert_eq!(book.of_firmware(&system, ""), Quirks::default());
    }

    #[test]
    fn a_bmc_is_known_by_the_firmware_it_was_probed_with() {
        let book = QuirkBook::load(None).unwrap();
        let body = json!({"Manufacturer": "HPE", "Model": "ProLiant DL380 Gen9"});
        let system = Resource { path: String::new(), etag: None, body };
        let mut node = Node::new(NodeId::random(), "redfish", Timestamp(0));
        for (probed, left_out) in [
            (json!(null), None),
            (json!({"bmc": {"model": "iLO 5", "firmware": "iLO 5 v2.44"}}), None),
            (json!({"bmc": {"model": "iLO 4", "firmware": null}}), None),
            (json!({"bmc": {"model": "iLO 4", "firmware": "iLO 4 v2.82"}}), Some(2)),
        ] {
            node.driver_internal_info.set("bmc", probed.clone());
            let behaviour = book.of(&node, &system).behaviour;
            assert_eq!(behaviour.media_leave_out.map(|keys| keys.len()), left_out, "{probed}");
        }
    }
}
