// SPDX-License-Identifier: Apache-2.0
//! Kinds of machines, as data: what the maker calls things, what a BMC cannot do or does oddly.
//!
//! The files in `personalities/` are in the program; [`Personality::parse`] takes others. None is a
//! copy of a real product: each gathers habits that clients meet in the field.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::machine::{ApplyTime, BootTarget, MediaKind, RaidKind, Reset};
use crate::redfish::Kind;

/// The ones that come with the program, in the order a mixed fleet takes them.
const BUILT_IN: &[(&str, &str)] = &[
    ("generic", include_str!("../personalities/generic.toml")),
    ("dell-like", include_str!("../personalities/dell-like.toml")),
    ("hpe-like", include_str!("../personalities/hpe-like.toml")),
    ("supermicro-like", include_str!("../personalities/supermicro-like.toml")),
    ("lenovo-like", include_str!("../personalities/lenovo-like.toml")),
];

/// A kind of machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Personality {
    /// Its name.
    pub name: String,
    /// Who makes it, as the BMC says.
    pub manufacturer: String,
    /// The model.
    pub model: String,
    /// The model of the BMC.
    pub manager_model: String,
    /// The version of Redfish the BMC says it speaks.
    pub redfish_version: String,
    /// How many times faster than the real ones; set by the fleet.
    #[serde(skip, default = "one")]
    pub speed: f64,
    /// How the BMC names its resources.
    pub ids: Ids,
    /// How long things take, in seconds.
    #[serde(default)]
    pub pace: PaceRules,
    /// The processors.
    pub processors: ProcessorRules,
    /// The memory.
    pub memory_gib: u32,
    /// The network cards.
    pub network: NetworkRules,
    /// Power.
    #[serde(default)]
    pub power: PowerRules,
    /// Boot settings.
    #[serde(default)]
    pub boot: BootRules,
    /// Virtual media.
    pub media: MediaRules,
    /// The firmware's settings.
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
    /// HTTP.
    #[serde(default)]
    pub http: HttpRules,
    /// How many event subscriptions it keeps.
    #[serde(default = "eight")]
    pub subscriptions: usize,
    /// Resources it does not have.
    #[serde(default)]
    pub missing: Vec<Kind>,
    /// What is odd about single resources.
    #[serde(default)]
    pub odd: Vec<Oddity>,
}

/// How the BMC names its resources. `{serial}` and `{uuid}` stand for the machine's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    /// The only system.
    pub system: String,
    /// The only manager.
    pub manager: String,
    /// The only chassis.
    pub chassis: String,
    /// What serial numbers begin with.
    pub serial_prefix: String,
}

/// How long things take, in seconds, at speed 1. They differ by a fifth from machine to machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PaceRules {
    /// From off to the start of the firmware.
    pub turn_on: f64,
    /// From on to off when the power is cut.
    pub turn_off: f64,
    /// An operating system closing down.
    pub shut_down: f64,
    /// The firmware, until something is booted.
    pub post: f64,
    /// The BMC itself, until it answers again.
    pub bmc_restart: f64,
    /// Loading an image of firmware.
    pub load_image: f64,
    /// Making or deleting a volume, or installing loaded firmware.
    pub volume: f64,
    /// Answering a request.
    pub answer: f64,
}

/// The processors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorRules {
    /// How many sockets.
    pub count: u32,
    /// The model.
    pub model: String,
    /// Cores of each.
    pub cores: u32,
    /// The highest speed.
    pub mhz: u32,
    /// Redfish's name of the instruction set.
    #[serde(default = "x86_64")]
    pub instruction_set: String,
}

/// The network cards.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRules {
    /// How many ports.
    pub count: u8,
    /// The model of the card.
    pub model: String,
    /// The speed of each port.
    pub mbps: u32,
    /// The name of port `{n}`, from 1.
    pub id: String,
}

/// Power.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PowerRules {
    /// What the reset action takes.
    pub resets: Vec<Reset>,
    /// How it tells.
    pub tells: Tells,
    /// Whether PoweringOn and PoweringOff are shown.
    pub shows_between: bool,
    /// What comes of switching on what is on.
    pub redundant: Redundant,
}

/// How a BMC tells which values an action takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tells {
    /// In the action.
    Inline,
    /// In a resource of its own.
    ActionInfo,
    /// Not at all.
    Nowhere,
}

/// What comes of asking for what is already so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Redundant {
    /// Nothing, successfully.
    Accepted,
    /// An error.
    Refused,
}

/// Boot settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BootRules {
    /// Where it can boot from.
    pub targets: Vec<BootTarget>,
    /// Whether it says so.
    pub tells_targets: bool,
    /// Whether an override can hold for more than one boot.
    pub continuous: bool,
    /// Whether the boot mode can be changed here.
    pub mode_changes: bool,
    /// Whether settings can be changed while the firmware starts.
    pub during_post: bool,
    /// Whether a URL to boot can be given.
    pub http_uri: bool,
    /// What comes of a target given without saying for how long.
    pub lone_target: LoneTarget,
}

/// What comes of a target given without saying for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoneTarget {
    /// It holds for as long as the last one did: not at all, if there was none.
    Kept,
    /// It is for the next boot.
    Once,
    /// There is no override any more.
    Forgotten,
}

/// Virtual media.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MediaRules {
    /// The slots.
    pub slots: Vec<SlotRule>,
    /// Whether there are actions; otherwise the resource is patched.
    #[serde(default = "yes")]
    pub actions: bool,
    /// Parameters that must be given.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Parameters that must not be given.
    #[serde(default)]
    pub refuses: Vec<String>,
    /// From where images can be fetched.
    #[serde(default = "web")]
    pub schemes: Vec<String>,
    /// Whether inserting replaces what is there; otherwise it must be ejected first.
    #[serde(default)]
    pub replaces: bool,
    /// Whether ejecting from an empty slot is fine.
    #[serde(default = "yes")]
    pub ejects_nothing: bool,
}

/// A slot of virtual media.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotRule {
    /// Its name in paths.
    pub id: String,
    /// What it can pretend to be.
    pub kinds: Vec<MediaKind>,
}

/// The firmware's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BiosRules {
    /// The name of the registry.
    pub registry: String,
    /// When changes can be asked to be made.
    #[serde(default = "on_reset")]
    pub apply_times: Vec<String>,
    /// The attributes.
    pub attributes: Vec<AttributeRule>,
}

/// An attribute of the firmware.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttributeRule {
    /// Its name.
    pub name: String,
    /// What it is called for people.
    #[serde(default)]
    pub display_name: Option<String>,
    /// Its type.
    pub kind: AttributeKind,
    /// What it is at first.
    pub default: Value,
    /// The values of an enumeration.
    #[serde(default)]
    pub values: Vec<String>,
    /// The smallest integer.
    #[serde(default)]
    pub lower_bound: Option<i64>,
    /// The largest integer.
    #[serde(default)]
    pub upper_bound: Option<i64>,
    /// The longest string.
    #[serde(default)]
    pub max_length: Option<usize>,
    /// Whether it cannot be changed.
    #[serde(default)]
    pub read_only: bool,
    /// Whether it is different on every machine.
    #[serde(default)]
    pub unique: bool,
}

/// The type of an attribute, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum AttributeKind {
    /// One of several words.
    Enumeration,
    /// A whole number.
    Integer,
    /// A text.
    String,
    /// Yes or no.
    Boolean,
}

/// A storage controller.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerRule {
    /// Its name in paths.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// Its model.
    pub model: String,
    /// The RAID types it makes; none if it only connects drives.
    #[serde(default)]
    pub raid: Vec<RaidKind>,
    /// When it makes changes; the first if nothing is said.
    #[serde(default = "immediate")]
    pub apply_times: Vec<ApplyTime>,
    /// How a change that is made now is made.
    #[serde(default = "at_once")]
    pub timing: VolumeTiming,
    /// Its drives.
    pub drives: Vec<DriveRule>,
}

/// How a change of volumes that is made now is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeTiming {
    /// It is there when the request is answered.
    AtOnce,
    /// A task does it.
    ByTask,
}

/// Drives of one kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveRule {
    /// How many.
    pub count: usize,
    /// Their names in paths, with `{n}` for the number.
    pub id: String,
    /// The model.
    pub model: String,
    /// SSD or HDD.
    pub media: String,
    /// SAS, SATA or NVMe.
    pub protocol: String,
    /// The size of each.
    pub gigabytes: u64,
}

/// A firmware component.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentRule {
    /// Its name in paths.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// The version from the maker.
    pub version: String,
    /// What it is for.
    pub kind: ComponentKind,
    /// When a new version takes effect.
    pub activation: Activation,
    /// Whether it can be updated.
    #[serde(default = "yes")]
    pub updateable: bool,
}

/// What a firmware component is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComponentKind {
    /// The system's firmware.
    Bios,
    /// The BMC.
    Bmc,
    /// A network card.
    Nic,
    /// A storage controller.
    Storage,
    /// Something else.
    Other,
}

/// When a new version takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// When it is installed.
    AtOnce,
    /// At the next reset of the machine.
    OnReset,
    /// When it is installed; the BMC restarts.
    RestartsBmc,
}

/// Sessions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionRules {
    /// How many at a time.
    pub limit: usize,
    /// How long an unused one lives, in seconds.
    pub timeout: u64,
}

/// HTTP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpRules {
    /// Whether resources have ETags.
    pub etags: EtagRule,
    /// What a change without `If-Match` gets.
    pub if_match: IfMatchRule,
    /// Where a client watches a task.
    pub watch_tasks: WatchTasks,
    /// Whether links end with a slash.
    pub trailing_slash: bool,
    /// Whether errors are told in full; some BMCs say hardly anything.
    pub explains_errors: bool,
}

/// Whether resources have ETags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EtagRule {
    /// They have.
    Strong,
    /// They have weak ones.
    Weak,
    /// They have none.
    None,
}

/// Where a client watches a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WatchTasks {
    /// At a monitor, which answers 202 until the task is over; the task itself always answers 200.
    Monitor,
    /// At the task itself, which answers 202 until it is over.
    Task,
}

/// What a change without `If-Match` gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IfMatchRule {
    /// It is made.
    Optional,
    /// It is refused.
    Required,
}

/// What is odd about a resource: fields that are missing or say something else.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oddity {
    /// The resource.
    pub resource: Kind,
    /// JSON pointers to what is missing.
    #[serde(default)]
    pub without: Vec<String>,
    /// Fields at the top with other values.
    #[serde(default)]
    pub with: BTreeMap<String, Value>,
}

/// Why a personality is not understood.
#[derive(Debug, thiserror::Error)]
pub enum PersonalityError {
    /// There is none with that name.
    #[error("there is no personality {name:?}; there are {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// Those there are.
        known: Vec<&'static str>,
    },
    /// The file is not one.
    #[error("the personality is not understood")]
    Parse(#[from] toml::de::Error),
    /// It says something that cannot be.
    #[error("the personality {name} cannot be: {why}")]
    Impossible {
        /// Its name.
        name: String,
        /// Why not.
        why: String,
    },
}

impl Personality {
    /// The names of those that come with the program.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    /// One that comes with the program.
    ///
    /// # Errors
    /// When there is none with that name.
    pub fn named(name: &str) -> Result<Self, PersonalityError> {
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::parse(text),
            None => Err(PersonalityError::Unknown { name: name.to_owned(), known: Self::names() }),
        }
    }

    /// Reads one from TOML.
    ///
    /// # Errors
    /// When it is not understood, or cannot be.
    pub fn parse(text: &str) -> Result<Self, PersonalityError> {
        let personality: Self = toml::from_str(text)?;
        match personality.flaw() {
            None => Ok(personality),
            Some(why) => Err(PersonalityError::Impossible { name: personality.name, why }),
        }
    }

    /// Whether it has a resource, and what that belongs under.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.missing.is_empty()
            || std::iter::successors(Some(kind), |kind| kind.under())
                .all(|kind| !self.missing.contains(&kind))
    }

    fn flaw(&self) -> Option<String> {
        let pace = &self.pace;
        let seconds = [
            pace.turn_on,
            pace.turn_off,
            pace.shut_down,
            pace.post,
            pace.bmc_restart,
            pace.load_image,
            pace.volume,
            pace.answer,
        ];
        if seconds.iter().any(|seconds| !(0.0..=86_400.0).contains(seconds)) {
            return Some("a time in [pace] is not between 0 and a day".to_owned());
        }
        let bad_default = self.bios.attributes.iter().find(|rule| {
            rule.kind == AttributeKind::Enumeration
                && !rule.values.iter().any(|value| rule.default == value.as_str())
        });
        if let Some(rule) = bad_default {
            return Some(format!("the default of {} is none of its values", rule.name));
        }
        self.media.slots.is_empty().then(|| "it has no slot for virtual media".to_owned())
    }
}

impl ControllerRule {
    /// What each drive is, in order.
    #[must_use]
    pub fn all_drives(&self) -> Vec<&DriveRule> {
        self.drives.iter().flat_map(|rule| std::iter::repeat_n(rule, rule.count)).collect()
    }

    /// The name of a drive in paths.
    #[must_use]
    pub fn drive_id(&self, drive: usize) -> Option<String> {
        let rule = *self.all_drives().get(drive)?;
        Some(rule.id.replace("{n}", &drive.to_string()))
    }
}

impl DriveRule {
    /// The size of one drive.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.gigabytes.saturating_mul(1_000_000_000)
    }
}

impl ComponentKind {
    /// What file names of images for it contain.
    pub(crate) fn words(self) -> &'static [&'static str] {
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
    /// Redfish's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Enumeration => "Enumeration",
            Self::Integer => "Integer",
            Self::String => "String",
            Self::Boolean => "Boolean",
        }
    }
}

impl Default for PaceRules {
    fn default() -> Self {
        Self {
            turn_on: 2.0,
            turn_off: 3.0,
            shut_down: 12.0,
            post: 45.0,
            bmc_restart: 60.0,
            load_image: 30.0,
            volume: 15.0,
            answer: 0.0,
        }
    }
}

impl Default for PowerRules {
    fn default() -> Self {
        Self {
            resets: Reset::ALL.to_vec(),
            tells: Tells::Inline,
            shows_between: true,
            redundant: Redundant::Accepted,
        }
    }
}

impl Default for BootRules {
    fn default() -> Self {
        Self {
            targets: BootTarget::ALL.to_vec(),
            tells_targets: true,
            continuous: true,
            mode_changes: true,
            during_post: true,
            http_uri: true,
            lone_target: LoneTarget::Kept,
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
            watch_tasks: WatchTasks::Monitor,
            trailing_slash: false,
            explains_errors: true,
        }
    }
}

fn one() -> f64 {
    1.0
}

fn eight() -> usize {
    8
}

fn yes() -> bool {
    true
}

fn x86_64() -> String {
    "x86-64".to_owned()
}

fn web() -> Vec<String> {
    ["http", "https", "nfs", "cifs"].map(str::to_owned).to_vec()
}

fn on_reset() -> Vec<String> {
    vec!["OnReset".to_owned()]
}

fn immediate() -> Vec<ApplyTime> {
    vec![ApplyTime::Immediate]
}

fn at_once() -> VolumeTiming {
    VolumeTiming::AtOnce
}
