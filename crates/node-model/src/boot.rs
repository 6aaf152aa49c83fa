// SPDX-License-Identifier: Apache-2.0
//! Boot plans, boot methods, and records of machines seen on the boot networks.

use serde::{Deserialize, Serialize};

use crate::named_enum;
use crate::{JsonObject, Mac, NodeId, ReportId, Timestamp};

named_enum! {
    /// Why a machine boots something other than its disk.
    BootPurpose {
        /// The agent, for cleaning, deployment and service.
        DeployRamdisk = "deploy ramdisk",
        /// The agent, for inspection.
        InspectionRamdisk = "inspection ramdisk",
        /// The rescue system.
        RescueRamdisk = "rescue ramdisk",
        /// An installer that writes a system to the disk by itself.
        Installer = "installer",
        /// An instance that runs from memory.
        Instance = "instance",
    }
}

named_enum! {
    /// How the boot image reaches the machine.
    BootMethod {
        /// The firmware loads iPXE by TFTP, which loads the rest by HTTP.
        Ipxe = "ipxe",
        /// The firmware loads a boot loader by TFTP, which loads the rest by TFTP.
        Pxe = "pxe",
        /// The firmware loads iPXE by HTTP, which loads the rest by HTTP.
        HttpIpxe = "http-ipxe",
        /// The firmware loads one unified image by HTTP.
        Http = "http",
        /// The BMC presents a CD.
        VirtualMedia = "virtual media",
    }
}

named_enum! {
    /// How an agent proved that it is the one that was booted on the node's machine, weakest first.
    BootProof {
        /// Not at all: any client that knows a MAC address or the UUID of the node.
        None = "none",
        /// Its source address is the DHCP lease that Ferrite gave to a NIC of the node.
        Lease = "lease",
        /// It has the secret of the boot: the token in its kernel parameters.
        Secret = "secret",
    }
}

/// The key of `driver_internal_info` with the automatically chosen [`BootMethod`] of the current job.
pub const BOOT_METHOD_KEY: &str = "boot_method";
/// The key of `driver_internal_info` with all boot methods that the current job has tried, including
/// the current one.
pub const BOOT_METHODS_TRIED_KEY: &str = "boot_methods_tried";

/// What a machine boots next. A node has at most one; without one, the machine boots its disk.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootPlan {
    /// The node.
    pub node_id: NodeId,
    /// Why it boots.
    pub purpose: BootPurpose,
    /// How it boots.
    #[serde(alias = "way")]
    pub method: BootMethod,
    /// What it boots.
    pub system: BootSystem,
    /// The unguessable part of the plan's URLs.
    pub key: String,
    /// The config drive of an instance that runs from memory: a URL, or a packed image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_drive: Option<String>,
    /// Files that an installer reads once it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installer: Option<InstallerFiles>,
    /// When the plan was created.
    #[serde(alias = "made_at")]
    pub created_at: Timestamp,
    /// When the plan stops being served; `None` while the instance exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A bootable system.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BootSystem {
    /// A kernel and its ramdisk.
    Kernel {
        /// The kernel.
        kernel: BootImage,
        /// The ramdisk.
        ramdisk: BootImage,
        /// The kernel parameters.
        parameters: Vec<String>,
        /// Static network configuration, for networks without DHCP.
        #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
        network_data: JsonObject,
    },
    /// A ready-made CD image.
    Iso {
        /// The image.
        image: BootImage,
    },
}

/// Files that an installer reads once it runs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallerFiles {
    /// The kickstart file. Contains the agent token.
    pub kickstart: String,
    /// The second stage, unless it comes with a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage2: Option<BootImage>,
    /// The image to install, if Ferrite serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<BootImage>,
}

/// An image and its checksum.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootImage {
    /// The URL.
    pub source: String,
    /// The checksum, or the URL of a file with the checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// The pull secret of the container registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<String>,
}

/// A port of an enrolled node, with the node's boot plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootPort {
    /// The MAC address.
    pub mac: Mac,
    /// The node.
    pub node_id: NodeId,
    /// The name of the node.
    pub node_name: Option<String>,
    /// Whether the machine may boot over this port.
    pub pxe_enabled: bool,
    /// The boot plan.
    pub plan: Option<BootPlan>,
}

/// The record of a machine that was seen on a boot network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSighting {
    /// The MAC address.
    pub mac: Mac,
    /// When it was first seen.
    pub first_seen_at: Timestamp,
    /// When it was last seen.
    pub last_seen_at: Timestamp,
    /// How often it was seen.
    pub times: i64,
    /// Its IP address.
    pub ip_address: Option<String>,
    /// Our network interface; empty if the sighting comes from a ramdisk's report.
    pub interface: String,
    /// Its processor architecture and firmware type.
    pub architecture: Option<String>,
    /// The last request, for users.
    pub last_activity: String,
}

/// The inspection data of a machine that is not enrolled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownMachineReport {
    /// The id.
    pub id: ReportId,
    /// When it was received.
    pub reported_at: Timestamp,
    /// The node, if the machine was enrolled since.
    pub node_id: Option<NodeId>,
    /// A summary of the hardware, for users.
    pub summary: JsonObject,
    /// The data; empty if they exceed the size limit.
    pub body: JsonObject,
}

/// A machine seen on a boot network, with the summary of its inspection data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownMachine {
    /// The sighting.
    pub sighting: MachineSighting,
    /// The node, if the machine was enrolled since.
    pub node_id: Option<NodeId>,
    /// When its ramdisk sent inspection data.
    pub reported_at: Option<Timestamp>,
    /// A summary of the hardware.
    pub summary: JsonObject,
}

/// Successes and failures of one boot method on machines of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootMethodStats {
    /// Vendor and model.
    pub model: String,
    /// The boot method.
    pub method: BootMethod,
    /// The number of successful boots.
    pub worked: i64,
    /// The number of failed boots since the last successful one.
    pub failed: i64,
    /// When it was last tried.
    pub tried_at: Timestamp,
}

/// The kernel parameter with the agent token.
const TOKEN_PARAMETER: &str = "ipa-agent-token=";
/// The query of the URL for inspection data, which proves that the sender has the kernel parameters.
const INSPECTION_PROOF: &str = "?boot_secret=";

impl BootPlan {
    /// The agent token in the kernel parameters.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.parameters().find_map(|parameter| parameter.strip_prefix(TOKEN_PARAMETER))
    }

    /// The secret in the kernel parameters that inspection data must be sent with.
    #[must_use]
    pub fn inspection_proof(&self) -> Option<&str> {
        self.parameters().find_map(|it| it.split_once(INSPECTION_PROOF)).map(|(_, proof)| proof)
    }

    /// The plan without the secrets in its kernel parameters, for clients that may not be the machine.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let mut plan = self.clone();
        if let BootSystem::Kernel { parameters, .. } = &mut plan.system {
            parameters.retain(|parameter| !parameter.starts_with(TOKEN_PARAMETER));
            for parameter in parameters {
                if let Some(length) = parameter.find(INSPECTION_PROOF) {
                    parameter.truncate(length);
                }
            }
        }
        plan
    }

    fn parameters(&self) -> impl Iterator<Item = &str> {
        let parameters = match &self.system {
            BootSystem::Kernel { parameters, .. } => parameters.as_slice(),
            BootSystem::Iso { .. } => &[],
        };
        parameters.iter().map(String::as_str)
    }

    /// Whether the plan is still served at `now`.
    #[must_use]
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires| now < expires)
    }
}

impl std::fmt::Debug for BootPlan {
    /// Omits the key and the kernel parameters, which may contain a token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node_id, purpose, method, .. } = self;
        write!(f, "BootPlan({node_id} boots {purpose} by {method})")
    }
}

impl std::fmt::Debug for InstallerFiles {
    /// Omits the kickstart file, which contains a token.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_the_secrets_of_kernel_parameters() {
        let image = || BootImage { source: "k".to_owned(), checksum: None, pull_secret: None };
        let plan = BootPlan {
            node_id: NodeId::random(),
            purpose: BootPurpose::InspectionRamdisk,
            method: BootMethod::Ipxe,
            system: BootSystem::Kernel {
                kernel: image(),
                ramdisk: image(),
                parameters: vec![
                    "quiet".to_owned(),
                    "ipa-agent-token=hunter2".to_owned(),
                    "ipa-inspection-callback-url=http://h/v1/x?boot_secret=hunter3".to_owned(),
                ],
                network_data: JsonObject::empty(),
            },
            key: "key".to_owned(),
            config_drive: None,
            installer: None,
            created_at: Timestamp(0),
            expires_at: None,
        };
        assert_eq!((plan.token(), plan.inspection_proof()), (Some("hunter2"), Some("hunter3")));
        let public = plan.without_secrets();
        assert_eq!((public.token(), public.inspection_proof()), (None, None));
        let shown: Vec<&str> = public.parameters().collect();
        assert_eq!(shown, ["quiet", "ipa-inspection-callback-url=http://h/v1/x"]);
    }
}
