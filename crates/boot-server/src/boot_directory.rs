// SPDX-License-Identifier: Apache-2.0
//! What the DHCP servers have to know about machines, and the traits that supply it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{BootStage, DhcpMode, FirmwareArchitecture, HardwareAddress};

/// Looks up what machines boot.
#[async_trait]
pub trait BootDirectory: Send + Sync {
    /// Reads what is known about these machines, for example from a database. Called once per batch of
    /// packets. No machine occurs twice; the list is empty if no packet has a usable hardware address.
    ///
    /// The call is cancelled after two seconds. If it fails or is cancelled, the packets of the batch are
    /// dropped and the clients send them again.
    ///
    /// # Errors
    /// If the machines cannot be looked up.
    async fn look_up(
        &self,
        machines: &[HardwareAddress],
    ) -> Result<Box<dyn BootSnapshot>, BootLookupError>;
}

/// The result of one lookup: what was known about the machines at that time.
pub trait BootSnapshot: Send + Sync {
    /// Returns the instructions for the client that sent a packet. Called on the task that owns the DHCP
    /// leases, so it must not block.
    fn instructions(&self, request: &BootRequest<'_>) -> BootInstructions;
}

/// The machines could not be looked up.
#[derive(Debug, thiserror::Error)]
#[error("cannot look up what machines boot")]
pub struct BootLookupError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// The client that sent a packet.
#[derive(Debug, Clone, Copy)]
pub struct BootRequest<'a> {
    /// The hardware address of the client.
    pub hardware: HardwareAddress,
    /// The architecture of the client, if it sent one.
    pub architecture: Option<FirmwareArchitecture>,
    /// The program that sent the packet.
    pub stage: BootStage,
    /// The interface on which the packet was received.
    pub interface: &'a str,
}

/// What DHCP does for one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootInstructions {
    /// Whether the machine is enrolled.
    pub is_known: bool,
    /// Whether the machine currently has a valid boot plan, with any boot method. It then needs an address,
    /// even if it boots from virtual media and loads nothing from the network.
    pub is_booting: bool,
    /// What the machine loads from the network. For unknown machines it is only used in
    /// [`DhcpMode::Discover`] and [`DhcpMode::All`].
    pub boot: NetbootTarget,
    /// The host name to assign.
    pub host_name: Option<Arc<str>>,
}

/// What a machine loads from the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NetbootTarget {
    /// Nothing: it boots from its disk.
    #[default]
    Disk,
    /// It has a boot plan, but this program cannot load any of its files.
    NotLoadable,
    /// These files.
    Netboot(Netboot),
}

/// The files of a network boot. The program that sends the request decides which one is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Netboot {
    /// The URL of the script for iPXE.
    pub ipxe_script: Arc<str>,
    /// The URL that UEFI HTTP boot loads; `None` if there is no such file.
    pub http_file: Option<Arc<str>>,
    /// The file that PXE firmware loads by TFTP; `None` for the server's default loader.
    pub tftp_file: Option<Arc<str>>,
}

impl BootLookupError {
    /// Wraps the cause.
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

impl BootInstructions {
    /// Returns the instructions as they apply in `mode`: unknown machines boot from the network only in
    /// [`DhcpMode::Discover`] and [`DhcpMode::All`].
    pub(crate) fn in_mode(self, mode: DhcpMode) -> Self {
        if self.is_known || mode.boots_unknown_machines() {
            return self;
        }
        Self { is_booting: false, boot: NetbootTarget::Disk, ..self }
    }
}
