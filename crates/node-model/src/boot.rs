// SPDX-License-Identifier: Apache-2.0
//! What a machine should boot now, by which way, and what is known about machines that boot.

use serde::{Deserialize, Serialize};

use crate::named;
use crate::{JsonObject, Mac, NodeId, ReportId, Timestamp};

named! {
    /// What for a machine boots something other than its disk.
    BootPurpose {
        /// The agent, for cleaning, deployment and service.
        DeployRamdisk = "deploy ramdisk",
        /// The agent, for inspection.
        InspectionRamdisk = "inspection ramdisk",
        /// The rescue system.
        RescueRamdisk = "rescue ramdisk",
        /// An installer, which puts a system onto the disk by itself.
        Installer = "installer",
        /// The instance itself, which lives in memory.
        Instance = "instance",
    }
}

named! {
    /// How what is booted reaches the machine.
    BootWay {
        /// Firmware loads iPXE by TFTP, which loads the rest by HTTP.
        Ipxe = "ipxe",
        /// Firmware loads a boot loader by TFTP, which loads the rest by TFTP.
        Pxe = "pxe",
        /// Firmware loads iPXE by HTTP, which loads the rest by HTTP.
        HttpIpxe = "http-ipxe",
        /// Firmware loads one image with everything in it by HTTP.
        Http = "http",
        /// The BMC presents a CD.
        VirtualMedia = "virtual media",
    }
}

/// The key of `driver_internal_info` with the [`BootWay`] of the job in flight, where it is chosen
/// automatically.
pub const BOOT_WAY: &str = "boot_way";
/// The key of `driver_internal_info` with the ways that the job in flight has tried, that one
/// included.
pub const BOOT_WAYS_TRIED: &str = "boot_ways_tried";

/// What one machine should boot now. There is at most one per machine; where there is none, the
/// machine boots its disk.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootPlan {
    /// The machine.
    pub node_id: NodeId,
    /// What for.
    pub purpose: BootPurpose,
    /// How.
    pub way: BootWay,
    /// What.
    pub system: BootSystem,
    /// The part of its URLs that cannot be guessed.
    pub key: String,
    /// The config drive of an instance that lives in memory: an URL, or a packed image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_drive: Option<String>,
    /// What an installer reads once it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installer: Option<InstallerFiles>,
    /// Since when.
    pub made_at: Timestamp,
    /// Until when it is served; none for as long as the instance lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A system that can be booted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BootSystem {
    /// A kernel and its ramdisk.
    Kernel {
        /// The kernel.
        kernel: BootImage,
        /// The ramdisk.
        ramdisk: BootImage,
        /// The kernel's parameters.
        parameters: Vec<String>,
        /// How its network is set up where nothing on the network tells.
        #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
        network_data: JsonObject,
    },
    /// A CD somebody built.
    Iso {
        /// The CD.
        image: BootImage,
    },
}

/// The files that an installer reads once it runs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallerFiles {
    /// What it is to do, with the token that it calls with.
    pub kickstart: String,
    /// Its second stage, where that does not come with a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage2: Option<BootImage>,
    /// What it installs, where it comes from us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<BootImage>,
}

/// An image and how to tell that it arrived whole.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootImage {
    /// Where it comes from.
    pub source: String,
    /// Its checksum, or the URL of a file with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// What opens the registry it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<String>,
}

/// What a card that belongs to a known machine should be given to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootCard {
    /// The card.
    pub address: Mac,
    /// Its machine.
    pub node_id: NodeId,
    /// The machine's name.
    pub node_name: Option<String>,
    /// Whether the machine boots from this card.
    pub pxe_enabled: bool,
    /// What it should boot now.
    pub plan: Option<BootPlan>,
}

/// A machine that was seen on the network and that nobody enrolled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrangerSeen {
    /// The card it was seen by.
    pub address: Mac,
    /// When it was first seen.
    pub first_seen_at: Timestamp,
    /// When it was last seen.
    pub last_seen_at: Timestamp,
    /// How often it was seen.
    pub times: i64,
    /// The address it has.
    pub ip_address: Option<String>,
    /// On which of our interfaces; empty if it was its ramdisk that told.
    pub interface: String,
    /// Its processor and firmware.
    pub architecture: Option<String>,
    /// What was seen last, in words.
    pub last: String,
}

/// What the ramdisk on a machine that nobody enrolled told about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StrangerReport {
    /// Its identity.
    pub id: ReportId,
    /// When it came.
    pub reported_at: Timestamp,
    /// The node the machine became.
    pub node_id: Option<NodeId>,
    /// The machine in short, for people.
    pub summary: JsonObject,
    /// The report, as far as it was kept: empty if it was too long.
    pub body: JsonObject,
}

/// A machine seen on the network, and what is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sighted {
    /// What was seen.
    pub seen: StrangerSeen,
    /// The node it is, if it was enrolled since.
    pub node_id: Option<NodeId>,
    /// When its ramdisk reported.
    pub reported_at: Option<Timestamp>,
    /// What its ramdisk told, in short.
    pub summary: JsonObject,
}

/// How often machines of one model booted by one way, and did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootExperience {
    /// Vendor and model.
    pub model: String,
    /// The way.
    pub way: BootWay,
    /// How often it worked.
    pub worked: i64,
    /// How often it did not since it last worked.
    pub failed: i64,
    /// When it was last tried.
    pub tried_at: Timestamp,
}

impl BootPlan {
    /// Whether it is still served at `now`.
    #[must_use]
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires| now < expires)
    }
}

impl std::fmt::Debug for BootPlan {
    /// Without what opens doors: the key, and parameters, which may hold a token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node_id, purpose, way, .. } = self;
        write!(f, "BootPlan({node_id} boots {purpose} by {way})")
    }
}

impl std::fmt::Debug for InstallerFiles {
    /// Without the kickstart, which holds a token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InstallerFiles")
            .field("stage2", &self.stage2)
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for BootSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kernel { kernel, ramdisk, .. } => write!(f, "Kernel({kernel:?}, {ramdisk:?})"),
            Self::Iso { image } => write!(f, "Iso({image:?})"),
        }
    }
}

impl std::fmt::Debug for BootImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.source)
    }
}
