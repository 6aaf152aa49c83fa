// SPDX-License-Identifier: Apache-2.0
//! What Ferrite can do to a machine: hardware types, the thirteen interfaces they are composed of,
//! and fake hardware that implements all of them.
//!
//! The [`Registry`] knows which hardware types and implementations are enabled, fills in what a
//! node does not choose, and composes a [`Driver`] for it. An interface is given a [`Target`] (the
//! node with its secrets revealed) and answers with [`NodeChanges`]: what the caller should write
//! down. Nothing here knows the database or decides what to do next.
//!
//! Every call may be repeated, because the process may die between doing and remembering. So
//! implementations look first and then act, and keep what they must not forget in the changes they
//! return. Calls may be slow and may fail; callers bound them in time.

mod agent;
mod anaconda;
mod automatic_boot;
mod boot_desk;
mod calls;
mod changes;
mod connected;
mod console_feed;
mod console_memory;
mod console_secrets;
mod console_text;
mod driver;
mod error;
mod fake;
mod hardware_type;
mod interfaces;
mod ipmi;
mod network_boot;
mod next_boot;
mod noop;
mod pace;
mod power_plan;
mod ramdisk;
mod redfish;
mod registry;
mod settings;
mod step;
mod target;
mod turns;
mod unavailable;
mod words;

pub use agent::{AgentSettings, ImageDownloadSource, ImageOrder, boot_again, warm_up};
pub use automatic_boot::boot_model;
pub use boot_desk::{BootDesk, NoBootServices, OfferedImage, Published};
pub use calls::{Call, CallLog};
pub use changes::NodeChanges;
pub use console_feed::{ConsoleFeed, ConsoleWatch, Printed, TypingError};
pub use console_text::ConsoleText;
pub use driver::Driver;
pub use error::Error;
pub use hardware_type::HardwareType;
pub use interfaces::{
    Bios, Boot, BootDeviceSetting, Console, ConsoleInfo, Deploy, Findings, Firmware, Indicator,
    Inspect, Inspection, Interface, Management, MediaSlot, Network, NetworkUse, Power, Property,
    Raid, Rescue, Sensor, SensorStatus, Storage, Vendor, VendorAnswer, VendorMethod, VifInfo,
    logical_disk_properties, validate_raid_config,
};
pub use ipmi::{ConsoleSettings, IpmiSettings};
pub use redfish::RedfishSettings;
pub use registry::{ConfigError, Registry, SelectionError};
pub use settings::{DriverSettings, FakeSettings};
pub use step::Outcome;
pub use target::Target;
pub use words::{
    BootDevice, BootMode, HttpMethod, IndicatorComponent, IndicatorState, MediaDevice, RamdiskMode,
    SensorKind,
};
