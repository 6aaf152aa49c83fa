// SPDX-License-Identifier: Apache-2.0
//! Hardware drivers: the thirteen interface traits, the [`Driver`] composed of one implementation
//! of each, and the [`DriverRegistry`] that composes it.
//!
//! Concrete drivers live in separate crates (`redfish-driver`, `ipmi-driver`, `agent-driver`,
//! `fake-driver`); each has a `register` function that adds its implementations and hardware types
//! to a [`RegistryBuilder`]. This crate depends on none of them.
//!
//! An interface is called with a [`DriverTarget`] (the node with its secrets unmasked) and returns
//! [`NodeChanges`], which the caller stores. Drivers do not access the database and do not decide
//! what happens next.
//!
//! The process may stop between an action and storing its result, so every call may be repeated:
//! implementations query the machine before they act, and return all state they need later as changes.
//! Calls may be slow and may fail; callers limit their duration.

mod bmc_call_log;
mod bmc_image_url;
mod bmc_interface;
mod bmc_limits;
mod boot_model;
mod boot_service;
mod console_buffer;
mod console_feed;
mod console_secrets;
mod console_text;
mod driver;
mod enums;
mod error;
mod hardware_type;
mod in_band;
pub mod instance_image;
mod interfaces;
pub mod next_boot;
mod no_interfaces;
mod node_changes;
mod poll_timer;
pub mod power_plan;
pub mod ramdisk_boot;
mod registry;
mod registry_builder;
pub mod requested_firmware;
mod step;
mod target;

pub use bmc_call_log::{BmcCallLog, LoggedBmcCall};
pub use bmc_image_url::{BmcImageUrl, ImageLogin, displayed_url, without_login};
pub use bmc_limits::BmcLimits;
pub use boot_model::boot_model;
pub use boot_service::{
    BootService, ExternalBootService, FixedMethodBootInterface, ImageDownloadSource,
    PublishedBootMedia, PublishedImage,
};
pub use console_buffer::{ConsoleBuffer, ConsoleBufferPool};
pub use console_feed::{
    ConsoleFeed, ConsoleInputError, ConsoleOutput, ConsoleRecording, ConsoleSubscription,
    TimelineRecording,
};
pub use console_text::{ConsoleText, ConsoleTranscript};
pub use driver::{Driver, Implementations};
pub use enums::{BootDevice, BootMode, RamdiskMode};
// Data of interface calls, defined in `node-model` because the API server uses them too.
pub use error::DriverError;
pub use hardware_type::HardwareType;
pub use in_band::InBandAgent;
pub use interfaces::{
    BaseInterface, BiosInterface, BootDeviceSetting, BootInterface, ConsoleInterface,
    DeployInterface, DriverProperty, FirmwareInterface, InspectInterface, InspectedHardware,
    InspectionOutcome, ManagementInterface, NetworkInterface, NetworkPurpose, PowerInterface,
    RaidInterface, RescueInterface, StorageInterface, VendorInterface, VendorResponse,
    logical_disk_properties, validate_raid_config, with_raid_level,
};
pub use node_changes::NodeChanges;
pub use node_model::{
    ConsoleInfo, HttpMethod, Indicator, IndicatorComponent, IndicatorState, MediaDevice, MediaSlot,
    Sensor, SensorKind, SensorStatus, SystemIdentity, VendorMethod, VifInfo,
};
pub use poll_timer::PollTimer;
pub use registry::{DriverRegistry, DriverSelectionError};
pub use registry_builder::{BmcSessions, EnabledDrivers, RegistryBuilder, RegistryError};
pub use step::{SINGLE_DEPLOY_STEP, StepDefinition, StepOutcome, has_step, steps_of_flow};
pub use target::DriverTarget;
