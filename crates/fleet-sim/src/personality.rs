// SPDX-License-Identifier: Apache-2.0
//! Personalities: vendor profiles of machines and BMCs, with their limits and deviations, as data.
//!
//! The files in `personalities/` are built in; [`Personality::parse`] reads others. None is a copy
//! of a real product: each combines behaviour that clients meet in the field.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::machine::{ApplyTime, BootTarget, MediaKind, RaidKind, ResetType};
use crate::redfish_service::ResourceKind;

/// The built-in personalities, in the order in which a mixed fleet uses them.
const BUILT_IN: &[(&str, &str)] = &[
    ("generic", include_str!("../personalities/generic.toml")),
    ("dell-like", include_str!("../personalities/dell-like.toml")),
    ("hpe-like", include_str!("../personalities/hpe-like.toml")),
    ("supermicro-like", include_str!("../personalities/supermicro-like.toml")),
    ("lenovo-like", include_str!("../personalities/lenovo-like.toml")),
];

/// A vendor profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Personality {
    /// Its name.
    pub name: String,
    /// The manufacturer that the BMC reports.
    pub manufacturer: String,
    /// The server model.
    pub model: String,
    /// The BMC model.
    pub manager_model: String,
    /// The Redfish version that the BMC reports.
    pub redfish_version: String,
    /// Speed-up factor for all durations; set by the fleet.
    #[serde(skip, default = "default_speed")]
    pub speed: f64,
    /// The ids of the resources.
    pub ids: ResourceIds,
    /// How long operations take.
    #[serde(default)]
    pub durations: DurationRules,
    /// The processors.
    pub processors: ProcessorRules,
    /// The memory in GiB.
    pub memory_gib: u32,
    /// The NIC.
    pub network: NetworkRules,
    /// Power control.
    #[serde(default)]
    pub power: PowerRules,
    /// Boot settings.
    #[serde(default)]
    pub boot: BootRules,
    /// Virtual media.
    pub media: MediaRules,
    /// BIOS settings.
    pub bios: BiosRules,
    /// Storage controllers with their drives.
    #[serde(default)]
    pub storage: Vec<ControllerRule>,
    /// Firmware components.
    #[serde(default)]
    pub firmware: Vec<ComponentRule>,
    /// Sessions.
    #[serde(default)]
    pub sessions: SessionRules,
    /// HTTP behaviour.
    #[serde(default)]
    pub http: HttpRules,
    /// Maximum number of event subscriptions.
    #[serde(default = "default_subscriptions")]
    pub subscriptions: usize,
    /// Extensions of Dell iDRACs; `None` for other BMCs.
    #[serde(default)]
    pub idrac: Option<IdracRules>,
    /// Resources that the BMC does not have.
    #[serde(default)]
    pub missing: Vec<ResourceKind>,
    /// Deviations of single resources.
    #[serde(default, rename = "quirk")]
    pub quirks: Vec<ResourceQuirk>,
}

/// Ids of resources. `{serial}` and `{uuid}` are replaced by the machine's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceIds {
    /// The only system.
    pub system: String,
    /// The only manager.
    pub manager: String,
    /// The only chassis.
    pub chassis: String,
    /// Prefix of serial numbers.
    pub serial_prefix: String,
}

/// Durations in seconds, at speed 1. Each machine deviates by up to 20 percent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DurationRules {
    /// From power-on to the start of POST.
    pub power_on: f64,
    /// From a forced power-off until the machine is off.
    pub power_off: f64,
    /// Shutdown of the operating system.
    pub shutdown: f64,
    /// POST.
    pub post: f64,
    /// Restart of the BMC.
    pub bmc_restart: f64,
    /// Download of a firmware image by the BMC.
    pub firmware_download: f64,
    /// Creating or deleting a volume, or installing downloaded firmware.
    pub volume_change: f64,
    /// Latency of a Redfish response.
    pub response: f64,
}

/// The processors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorRules {
    /// Number of sockets.
    pub count: u32,
    /// The model.
    pub model: String,
    /// Cores per socket.
    pub cores: u32,
    /// Maximum clock rate.
    pub mhz: u32,
    /// Redfish's `InstructionSet`.
    #[serde(default = "default_instruction_set")]
    pub instruction_set: String,
}

/// The NIC.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRules {
    /// Number of ports.
    pub count: u8,
    /// The model.
    pub model: String,
    /// The speed of each port.
    pub mbps: u32,
    /// Id of each port; `{n}` is its number, from 1.
    pub id: String,
}

/// Power control.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PowerRules {
    /// Reset types that the reset action accepts.
    pub reset_types: Vec<ResetType>,
    /// Where the BMC lists them.
    pub allowable_values: AllowableValuesLocation,
    /// Whether the power state can be `PoweringOn` and `PoweringOff`.
    pub shows_transitional_states: bool,
    /// Response to a reset that changes nothing, such as `On` for a machine that is on.
    pub redundant_reset: RedundantResetRule,
}

/// Where a BMC lists the values that an action accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllowableValuesLocation {
    /// In the action, as `@Redfish.AllowableValues`.
    Inline,
    /// In a separate ActionInfo resource.
    ActionInfo,
    /// Not at all.
    None,
}

/// Response to a reset that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RedundantResetRule {
    /// Success, without an effect.
    Accepted,
    /// An error.
    Rejected,
}

/// Boot settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BootRules {
    /// Supported boot targets.
    pub targets: Vec<BootTarget>,
    /// Whether the BMC lists the supported targets.
    pub lists_targets: bool,
    /// Whether `Continuous` is supported.
    pub supports_continuous: bool,
    /// Whether the boot mode can be changed.
    pub supports_mode_changes: bool,
    /// Whether settings can be changed during POST.
    pub changes_during_post: bool,
    /// Whether `HttpBootUri` is supported.
    pub supports_http_uri: bool,
    /// Effect of a change that sets the target, but not `BootSourceOverrideEnabled`.
    pub target_without_enabled: TargetWithoutEnabledRule,
}

/// Effect of a change that sets the boot target, but not `BootSourceOverrideEnabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetWithoutEnabledRule {
    /// `BootSourceOverrideEnabled` keeps its value, which may be `Disabled`.
    Keep,
    /// It becomes `Once`.
    Once,
    /// It becomes `Disabled`.
    Disable,
}

/// Virtual media.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MediaRules {
    /// The slots.
    pub slots: Vec<SlotRule>,
    /// Whether the resource has actions; otherwise clients use PATCH.
    #[serde(default = "default_true")]
    pub actions: bool,
    /// Parameters that `InsertMedia` requires.
    #[serde(default)]
    pub required_parameters: Vec<String>,
    /// Parameters that `InsertMedia` rejects.
    #[serde(default)]
    pub rejected_parameters: Vec<String>,
    /// Supported URL schemes of images.
    #[serde(default = "default_schemes")]
    pub schemes: Vec<String>,
    /// Whether inserting replaces the current image; otherwise it must be ejected first.
    #[serde(default)]
    pub insert_replaces: bool,
    /// Whether ejecting from an empty slot succeeds.
    #[serde(default = "default_true")]
    pub allows_empty_eject: bool,
}

/// A virtual media slot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotRule {
    /// Its id in paths.
    pub id: String,
    /// The devices it can emulate.
    pub kinds: Vec<MediaKind>,
}

/// Extensions of Dell iDRACs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdracRules {
    /// Whether the boot target `Cd` is a drive in the machine, as before firmware 6; the virtual CD is
    /// then selected only by importing a system configuration.
    pub cd_is_physical: bool,
}

/// BIOS settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BiosRules {
    /// The name of the attribute registry.
    pub registry: String,
    /// Supported values of `@Redfish.SettingsApplyTime`.
    #[serde(default = "default_bios_apply_times")]
    pub apply_times: Vec<String>,
    /// The attributes.
    pub attributes: Vec<AttributeRule>,
}

/// A BIOS attribute.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttributeRule {
    /// Its name.
    pub name: String,
    /// Its display name; the name if `None`.
    #[serde(default)]
    pub display_name: Option<String>,
    /// Its type.
    pub kind: AttributeKind,
    /// Its default value.
    pub default: Value,
    /// The values of an `Enumeration`.
    #[serde(default)]
    pub values: Vec<String>,
    /// The minimum of an `Integer`.
    #[serde(default)]
    pub lower_bound: Option<i64>,
    /// The maximum of an `Integer`.
    #[serde(default)]
    pub upper_bound: Option<i64>,
    /// The maximum length of a `String`.
    #[serde(default)]
    pub max_length: Option<usize>,
    /// Whether it is read-only.
    #[serde(default)]
    pub read_only: bool,
    /// Whether its value is unique to each machine (`IsSystemUniqueProperty`).
    #[serde(default)]
    pub unique: bool,
}

/// The type of a BIOS attribute, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum AttributeKind {
    /// One of a list of values.
    Enumeration,
    /// An integer.
    Integer,
    /// A string.
    String,
    /// True or false.
    Boolean,
}

/// A storage controller.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerRule {
    /// Its id in paths.
    pub id: String,
    /// Its display name.
    pub name: String,
    /// Its model.
    pub model: String,
    /// Supported RAID levels; empty for an HBA.
    #[serde(default)]
    pub raid: Vec<RaidKind>,
    /// Supported apply times; the first is the default.
    #[serde(default = "default_volume_apply_times")]
    pub apply_times: Vec<ApplyTime>,
    /// How an immediate change is made.
    #[serde(default = "default_volume_changes")]
    pub volume_changes: VolumeChangeRule,
    /// Its drives.
    pub drives: Vec<DriveRule>,
}

/// How an immediate volume change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeChangeRule {
    /// It is complete when the response is sent.
    Immediate,
    /// By a task.
    Task,
}

/// A group of identical drives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveRule {
    /// Number of drives.
    pub count: usize,
    /// Their ids in paths; `{n}` is the drive index.
    pub id: String,
    /// The model.
    pub model: String,
    /// Redfish's `MediaType`: SSD or HDD.
    pub media: String,
    /// Redfish's `Protocol`: SAS, SATA or NVMe.
    pub protocol: String,
    /// The size of each drive.
    pub gigabytes: u64,
}

/// A firmware component.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentRule {
    /// Its id in paths.
    pub id: String,
    /// Its display name.
    pub name: String,
    /// The factory version.
    pub version: String,
    /// The device it belongs to.
    pub kind: ComponentKind,
    /// When a new version becomes active.
    pub activation: FirmwareActivation,
    /// Whether it can be updated.
    #[serde(default = "default_true")]
    pub updateable: bool,
}

/// The device that a firmware component belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComponentKind {
    /// The system firmware.
    Bios,
    /// The BMC.
    Bmc,
    /// A NIC.
    Nic,
    /// A storage controller.
    Storage,
    /// Something else.
    Other,
}

/// When a new firmware version becomes active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FirmwareActivation {
    /// After the installation.
    Immediate,
    /// At the next reset of the machine.
    OnReset,
    /// After the installation, with a restart of the BMC.
    RestartsBmc,
}

/// Redfish sessions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionRules {
    /// Maximum number of sessions.
    pub limit: usize,
    /// Idle timeout in seconds.
    pub timeout: u64,
}

/// HTTP behaviour.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpRules {
    /// ETags of resources.
    pub etags: EtagRule,
    /// Handling of a PATCH without `If-Match`.
    pub if_match: IfMatchRule,
    /// The resource at which clients watch a task.
    pub task_watch: TaskWatchLocation,
    /// Whether links end with a slash.
    pub trailing_slash: bool,
    /// Whether error responses name the cause; otherwise they contain only a general error.
    pub detailed_errors: bool,
}

/// ETags of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EtagRule {
    /// Strong ETags.
    Strong,
    /// Weak ETags.
    Weak,
    /// No ETags.
    None,
}

/// The resource at which clients watch a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskWatchLocation {
    /// A task monitor, which returns 202 until the task is finished; the task always returns 200.
    Monitor,
    /// The task, which returns 202 until it is finished.
    Task,
}

/// Handling of a PATCH without `If-Match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IfMatchRule {
    /// It is applied.
    Optional,
    /// It is rejected with 428.
    Required,
}

/// A deviation of a resource: properties that are missing or have other values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceQuirk {
    /// The resource.
    pub resource: ResourceKind,
    /// JSON pointers to properties that are removed.
    #[serde(default)]
    pub remove: Vec<String>,
    /// Top-level properties that are added or replaced.
    #[serde(default)]
    pub set: BTreeMap<String, Value>,
}

/// The reason why a personality cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum PersonalityError {
    /// No built-in personality has that name.
    #[error("unknown personality {name:?}; use one of {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The built-in names.
        known: Vec<&'static str>,
    },
    /// The TOML cannot be parsed.
    #[error("cannot parse the personality")]
    Parse(#[from] toml::de::Error),
    /// A value is out of range or inconsistent.
    #[error("invalid personality {name}: {reason}")]
    Invalid {
        /// Its name.
        name: String,
        /// The invalid value.
        reason: String,
    },
}

impl Personality {
    /// Returns the names of the built-in personalities.
    #[must_use]
    pub fn built_in_names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    /// Returns a built-in personality.
    ///
    /// # Errors
    /// When there is none with that name.
    pub fn built_in(name: &str) -> Result<Self, PersonalityError> {
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::parse(text),
            None => Err(PersonalityError::Unknown {
                name: name.to_owned(),
                known: Self::built_in_names(),
            }),
        }
    }

    /// Parses a personality from TOML.
    ///
    /// # Errors
    /// When the TOML is malformed, or a value is invalid.
    pub fn parse(text: &str) -> Result<Self, PersonalityError> {
        let personality: Self = toml::from_str(text)?;
        match personality.validation_error() {
            None => Ok(personality),
            Some(why) => Err(PersonalityError::Invalid { name: personality.name, reason: why }),
        }
    }

    /// Whether the BMC has a resource and all its parents.
    #[must_use]
    pub fn has_resource(&self, kind: ResourceKind) -> bool {
        self.missing.is_empty()
            || std::iter::successors(Some(kind), |kind| kind.parent())
                .all(|kind| !self.missing.contains(&kind))
    }

    fn validation_error(&self) -> Option<String> {
        let durations = &self.durations;
        let seconds = [
            durations.power_on,
            durations.power_off,
            durations.shutdown,
            durations.post,
            durations.bmc_restart,
            durations.firmware_download,
            durations.volume_change,
            durations.response,
        ];
        if seconds.iter().any(|seconds| !(0.0..=86_400.0).contains(seconds)) {
            return Some("the durations must be between 0 and 86400 seconds".to_owned());
        }
        let bad_default = self.bios.attributes.iter().find(|rule| {
            rule.kind == AttributeKind::Enumeration
                && !rule.values.iter().any(|value| rule.default == value.as_str())
        });
        if let Some(rule) = bad_default {
            return Some(format!("the default of {} is not one of its values", rule.name));
        }
        self.media.slots.is_empty().then(|| "it has no virtual media slot".to_owned())
    }
}

impl ControllerRule {
    /// Returns one entry per drive.
    #[must_use]
    pub fn all_drives(&self) -> Vec<&DriveRule> {
        self.drives.iter().flat_map(|rule| std::iter::repeat_n(rule, rule.count)).collect()
    }

    /// Returns the id of a drive in paths.
    #[must_use]
    pub fn drive_id(&self, drive: usize) -> Option<String> {
        let rule = *self.all_drives().get(drive)?;
        Some(rule.id.replace("{n}", &drive.to_string()))
    }
}

impl DriveRule {
    /// Returns the size of one drive in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.gigabytes.saturating_mul(1_000_000_000)
    }
}

impl ComponentKind {
    /// Returns words that the file names of its images contain.
    pub(crate) fn file_name_keywords(self) -> &'static [&'static str] {
        match self {
            Self::Bios => &["bios", "uefi", "system-rom"],
            Self::Bmc => &["bmc", "idrac", "ilo", "xcc"],
            Self::Nic => &["nic", "ethernet", "network"],
            Self::Storage => &["raid", "storage", "perc", "hba"],
            Self::Other => &["cpld", "psu"],
        }
    }
}

impl AttributeKind {
    /// Returns Redfish's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Enumeration => "Enumeration",
            Self::Integer => "Integer",
            Self::String => "String",
            Self::Boolean => "Boolean",
        }
    }
}

impl Default for DurationRules {
    fn default() -> Self {
        Self {
            power_on: 2.0,
            power_off: 3.0,
            shutdown: 12.0,
            post: 45.0,
            bmc_restart: 60.0,
            firmware_download: 30.0,
            volume_change: 15.0,
            response: 0.0,
        }
    }
}

impl Default for PowerRules {
    fn default() -> Self {
        Self {
            reset_types: ResetType::ALL.to_vec(),
            allowable_values: AllowableValuesLocation::Inline,
            shows_transitional_states: true,
            redundant_reset: RedundantResetRule::Accepted,
        }
    }
}

impl Default for BootRules {
    fn default() -> Self {
        Self {
            targets: BootTarget::ALL.to_vec(),
            lists_targets: true,
            supports_continuous: true,
            supports_mode_changes: true,
            changes_during_post: true,
            supports_http_uri: true,
            target_without_enabled: TargetWithoutEnabledRule::Keep,
        }
    }
}

impl Default for SessionRules {
    fn default() -> Self {
        Self { limit: 16, timeout: 1_800 }
    }
}

impl Default for HttpRules {
    fn default() -> Self {
        Self {
            etags: EtagRule::Strong,
            if_match: IfMatchRule::Optional,
            task_watch: TaskWatchLocation::Monitor,
            trailing_slash: false,
            detailed_errors: true,
        }
    }
}

fn default_speed() -> f64 {
    1.0
}

fn default_subscriptions() -> usize {
    8
}

fn default_true() -> bool {
    true
}

fn default_instruction_set() -> String {
    "x86-64".to_owned()
}

fn default_schemes() -> Vec<String> {
    ["http", "https", "nfs", "cifs"].map(str::to_owned).to_vec()
}

fn default_bios_apply_times() -> Vec<String> {
    vec!["OnReset".to_owned()]
}

fn default_volume_apply_times() -> Vec<ApplyTime> {
    vec![ApplyTime::Immediate]
}

fn default_volume_changes() -> VolumeChangeRule {
    VolumeChangeRule::Immediate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_built_in() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("personalities");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort_unstable();
        let mut built_in: Vec<String> =
            Personality::built_in_names().iter().map(|name| format!("{name}.toml")).collect();
        built_in.sort_unstable();
        assert_eq!(files, built_in, "add the file to BUILT_IN in src/personality.rs");
    }
}
