// SPDX-License-Identifier: Apache-2.0
//! Vendor quirks: data files that change how the driver treats matching machines.
//!
//! The built-in files are in `crates/redfish-driver/quirks`, one per vendor; `quirks_dir` adds files
//! of the operator. A file is a list of quirks, each with a reason, patterns and a behaviour. All
//! matching quirks apply in order, those of the operator last; a later value overrides an earlier
//! one. To add a quirk, add a `[[quirk]]` to the file of its vendor. A new file also needs a line in
//! [`BUILT_IN`]; a test fails without it. A new kind of behaviour is a field of [`QuirkBehaviour`].

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use node_model::Node;
use redfish::RedfishResource;
use serde::Deserialize;

/// The files in `quirks/`, in the order in which they apply.
const BUILT_IN: &[(&str, &str)] = &[
    ("dell.toml", include_str!("../quirks/dell.toml")),
    ("hpe.toml", include_str!("../quirks/hpe.toml")),
    ("lenovo.toml", include_str!("../quirks/lenovo.toml")),
    ("supermicro.toml", include_str!("../quirks/supermicro.toml")),
    ("ami.toml", include_str!("../quirks/ami.toml")),
];

/// The key of `driver_internal_info` with the result of the last probe, and the pointer to the
/// firmware version of the BMC in it.
const PROBE: &str = "bmc";
const PROBED_FIRMWARE: &str = "/bmc/firmware";

/// The pattern that matches everything.
const MATCH_ALL: &str = "*";

/// A quirk file is invalid or unreadable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot load quirks from {}: {why}", file.display())]
pub struct QuirksError {
    /// The file or folder.
    pub file: PathBuf,
    /// The reason.
    pub why: String,
}

/// All known quirks.
#[derive(Debug)]
pub(super) struct QuirkCatalog(Vec<Quirk>);

/// A deviation of some BMCs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quirk {
    /// Reason for the quirk, shown in the probe result.
    #[serde(alias = "why")]
    reason: String,
    /// Pattern of `Manufacturer`: `*` matches any text, case is ignored.
    vendor: String,
    /// Pattern of `Model`.
    #[serde(default = "match_all")]
    model: String,
    /// Pattern of `BiosVersion`.
    #[serde(default = "match_all")]
    bios: String,
    /// Pattern of the firmware version of the BMC, such as `iLO 4*`. Known only after the BMC was
    /// probed.
    #[serde(default = "match_all")]
    firmware: String,
    /// Changes for matching machines.
    behaviour: QuirkBehaviour,
}

/// Changed behaviour; fields that are absent keep the default. Files of operators may contain the
/// aliases, which are the names in earlier versions.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(super) struct QuirkBehaviour {
    /// Boot override keys that are sent with every change, even if their value stays the same:
    /// `BootSourceOverrideEnabled`, `BootSourceOverrideMode`.
    #[serde(alias = "boot_always_send")]
    pub(super) boot_override_always_include: Option<Vec<String>>,
    /// Replacements for the names of boot devices, used where the BMC allows them.
    pub(super) boot_device_names: Option<BTreeMap<String, String>>,
    /// The BMC accepts `Continuous` but does not keep it: set the device before each power-on.
    pub(super) boot_once_only: Option<bool>,
    /// After deployment the firmware boots the disk itself; a boot override breaks its boot order.
    #[serde(alias = "leave_disk_boot_to_firmware")]
    pub(super) skip_disk_boot_override: Option<bool>,
    /// Insert and eject media with PATCH instead of the actions.
    pub(super) media_by_patch: Option<bool>,
    /// `InsertMedia` parameters that the BMC rejects.
    #[serde(alias = "media_leave_out")]
    pub(super) insert_media_omit: Option<Vec<String>>,
    /// Delay in seconds between power-off and power-on.
    #[serde(alias = "rest_after_power_off")]
    pub(super) delay_after_power_off: Option<u64>,
}

/// The quirks that match one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MatchedQuirks {
    /// The combined behaviour.
    pub(super) behaviour: QuirkBehaviour,
    /// One reason per matching quirk.
    pub(super) reasons: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuirkFile {
    quirk: Vec<Quirk>,
}

impl QuirkCatalog {
    /// Loads the built-in quirks and those in `folder`.
    pub(super) fn load(folder: Option<&Path>) -> Result<Self, QuirksError> {
        let mut quirks = Vec::new();
        for (name, text) in BUILT_IN {
            quirks.extend(read(name, text)?);
        }
        if let Some(folder) = folder {
            let problem = |why: String| QuirksError { file: folder.to_owned(), why };
            let entries = std::fs::read_dir(folder).map_err(|error| problem(error.to_string()))?;
            let mut files: Vec<_> = entries
                .filter_map(|entry| entry.ok().map(|entry| entry.path()))
                .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
                .collect();
            files.sort();
            for file in files {
                let text = std::fs::read_to_string(&file)
                    .map_err(|error| QuirksError { file: file.clone(), why: error.to_string() })?;
                quirks.extend(read(&file.to_string_lossy(), &text)?);
            }
        }
        Ok(Self(quirks))
    }

    /// Returns the quirks of the machine `system`. The firmware version of the BMC comes from the last
    /// probe that is stored in `node`.
    pub(super) fn for_node(&self, node: &Node, system: &RedfishResource) -> MatchedQuirks {
        let firmware = LazyCell::new(|| {
            let bmc = node.driver_internal_info.get(PROBE)?;
            bmc.pointer(PROBED_FIRMWARE)?.as_str().map(str::to_owned)
        });
        self.matching(system, || firmware.as_deref().unwrap_or_default())
    }

    /// Returns the quirks of the machine `system` whose BMC has this firmware.
    pub(super) fn for_firmware(&self, system: &RedfishResource, firmware: &str) -> MatchedQuirks {
        self.matching(system, || firmware)
    }

    /// `firmware` is only called if a pattern needs it: the caller parses JSON for it.
    fn matching<'a>(
        &self,
        system: &RedfishResource,
        firmware: impl Fn() -> &'a str,
    ) -> MatchedQuirks {
        let vendor = system.text("/Manufacturer").unwrap_or_default();
        let model = system.text("/Model").unwrap_or_default();
        let bios = system.text("/BiosVersion").unwrap_or_default();
        let mut matched = MatchedQuirks::default();
        for quirk in &self.0 {
            let fits = matches(&quirk.vendor, vendor)
                && matches(&quirk.model, model)
                && matches(&quirk.bios, bios)
                && (quirk.firmware == MATCH_ALL || matches(&quirk.firmware, firmware()));
            if fits {
                matched.behaviour.overlay(&quirk.behaviour);
                matched.reasons.push(quirk.reason.clone());
            }
        }
        matched
    }
}

/// Copies the fields that are set. The compiler rejects a list that lacks a field.
macro_rules! overlay {
    ($into:ident, $from:ident, $($field:ident),*) => {
        let Self { $($field),* } = $from;
        $(if $field.is_some() {
            $into.$field.clone_from($field);
        })*
    };
}

impl QuirkBehaviour {
    fn overlay(&mut self, later: &Self) {
        overlay!(
            self,
            later,
            boot_override_always_include,
            boot_device_names,
            boot_once_only,
            skip_disk_boot_override,
            media_by_patch,
            insert_media_omit,
            delay_after_power_off
        );
    }
}

fn match_all() -> String {
    MATCH_ALL.to_owned()
}

fn read(name: &str, text: &str) -> Result<Vec<Quirk>, QuirksError> {
    let file: QuirkFile = toml::from_str(text)
        .map_err(|error| QuirksError { file: name.into(), why: error.to_string() })?;
    Ok(file.quirk)
}

/// Whether `text` matches `pattern`, in which `*` matches any text. Case is ignored.
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
    fn matches_patterns() {
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
    fn every_file_of_the_folder_is_built_in() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("quirks");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort_unstable();
        let mut built_in: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        built_in.sort_unstable();
        assert_eq!(files, built_in, "add the file to BUILT_IN in src/quirks.rs");
    }

    #[test]
    fn names_of_earlier_versions_are_read() {
        let text = r#"
            [[quirk]]
            why = "old"
            vendor = "*"
            [quirk.behaviour]
            boot_always_send = ["BootSourceOverrideMode"]
            leave_disk_boot_to_firmware = true
            media_leave_out = ["Inserted"]
            rest_after_power_off = 3
        "#;
        let quirks = read("old.toml", text).unwrap();
        let expected = QuirkBehaviour {
            boot_override_always_include: Some(vec!["BootSourceOverrideMode".to_owned()]),
            skip_disk_boot_override: Some(true),
            insert_media_omit: Some(vec!["Inserted".to_owned()]),
            delay_after_power_off: Some(3),
            ..QuirkBehaviour::default()
        };
        assert_eq!((quirks[0].reason.as_str(), &quirks[0].behaviour), ("old", &expected));
    }

    #[test]
    fn quirks_of_the_operator_override_built_in_ones() {
        let folder = tempfile::tempdir().unwrap();
        let own = r#"
            [[quirk]]
            reason = "ours"
            vendor = "Supermicro*"
            [quirk.behaviour]
            boot_override_always_include = []
            delay_after_power_off = 7
        "#;
        std::fs::write(folder.path().join("own.toml"), own).unwrap();
        let catalog = QuirkCatalog::load(Some(folder.path())).unwrap();
        let system = RedfishResource {
            path: String::new(),
            etag: None,
            body: json!({"Manufacturer": "Supermicro", "Model": "X"}),
        };
        let quirks = catalog.for_firmware(&system, "");
        assert_eq!(quirks.behaviour.boot_override_always_include, Some(Vec::new()));
        assert_eq!(quirks.behaviour.delay_after_power_off, Some(7));
        assert!(quirks.reasons.len() > 1 && quirks.reasons.contains(&"ours".to_owned()));
        std::fs::write(folder.path().join("bad.toml"), "[[quirk]]\nreason = 1").unwrap();
        let error = QuirkCatalog::load(Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains("bad.toml"), "{error}");
    }

    #[test]
    fn unknown_machine_has_no_quirks() {
        let catalog = QuirkCatalog::load(None).unwrap();
        let system = RedfishResource { path: String::new(), etag: None, body: json!({}) };
        assert_eq!(catalog.for_firmware(&system, ""), MatchedQuirks::default());
    }

    #[test]
    fn matches_firmware_of_the_last_probe() {
        let catalog = QuirkCatalog::load(None).unwrap();
        let body = json!({"Manufacturer": "HPE", "Model": "ProLiant DL380 Gen9"});
        let system = RedfishResource { path: String::new(), etag: None, body };
        let mut node = Node::new(NodeId::random(), "redfish", Timestamp(0));
        for (probed, left_out) in [
            (json!(null), None),
            (json!({"bmc": {"model": "iLO 5", "firmware": "iLO 5 v2.44"}}), None),
            (json!({"bmc": {"model": "iLO 4", "firmware": null}}), None),
            (json!({"bmc": {"model": "iLO 4", "firmware": "iLO 4 v2.82"}}), Some(2)),
        ] {
            node.driver_internal_info.set("bmc", probed.clone());
            let behaviour = catalog.for_node(&node, &system).behaviour;
            assert_eq!(behaviour.insert_media_omit.map(|keys| keys.len()), left_out, "{probed}");
        }
    }
}
