// SPDX-License-Identifier: Apache-2.0
//! What this crate asks about a machine: is it known, and what should it boot now.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{Architecture, HardwareAddress, Mode, Stage};

/// Answers for machines, in two steps: first [`look_up`](Self::look_up) once for all machines that
/// are waiting, which may ask a database, and then [`plan`](Self::plan) once per packet, from memory.
#[async_trait]
pub trait Plans: Send + Sync {
    /// Brings what is known of these machines into memory, because they are about to be asked for,
    /// and says whether it could. No machine is named twice. After two seconds it is dropped; then,
    /// and when it could not, the packets it was for are dropped too, and their senders ask again.
    async fn look_up(&self, _machines: &[HardwareAddress]) -> bool {
        true
    }

    /// What is to be done for the machine that asks. Asked on the task that owns the leases, so it
    /// must not wait for anything.
    fn plan(&self, request: &BootRequest<'_>) -> Plan;
}

/// What is known of the machine that asks.
#[derive(Debug, Clone, Copy)]
pub struct BootRequest<'a> {
    /// The card it asks with.
    pub hardware: HardwareAddress,
    /// Its processor and firmware, if it says.
    pub architecture: Option<Architecture>,
    /// The program that asks.
    pub stage: Stage,
    /// The interface the packet came in by.
    pub interface: &'a str,
}

/// What is to be done for one machine at this moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Whether the machine is one of ours.
    pub known: bool,
    /// Whether it is booting something of ours, by whatever way: what was booted needs an address,
    /// even if it came by virtual media and there is nothing to load from the network.
    pub is_booting: bool,
    /// What it should load from the network. What is given to an unknown machine counts only where
    /// unknown machines are served ([`Mode::Discover`](crate::Mode::Discover)).
    pub boot: BootAnswer,
    /// The name to give it.
    pub host_name: Option<Arc<str>>,
}

/// What a machine should load from the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BootAnswer {
    /// Its own disk: nothing to load from the network.
    #[default]
    Disk,
    /// It should boot something of ours, but there is nothing that the program that asks can load.
    NothingForThisFirmware,
    /// Something from us.
    Netboot(Netboot),
}

/// Where the stages of a network boot are. Which one is sent depends on the program that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Netboot {
    /// The URL of the script for iPXE.
    pub script: Arc<str>,
    /// What UEFI firmware loads by HTTP; without it there is nothing to load for such firmware.
    pub http: Option<Arc<str>>,
    /// The first stage to load by TFTP, where the server's own table is not wanted.
    pub first_stage: Option<Arc<str>>,
    /// Parameters for what is loaded, sent in v6 only (option 60): firmware hands them to the program
    /// as its command line. For programs that take one, such as a kernel that is a UEFI application;
    /// boot loaders and unified images have theirs inside, and for those it is empty.
    pub parameters: Vec<Arc<str>>,
}

impl Plan {
    /// The plan where machines are served in this way: whoever is not known boots nothing of ours,
    /// except where unknown machines are looked for.
    pub(crate) fn in_mode(self, mode: Mode) -> Self {
        if self.known || mode == Mode::Discover {
            return self;
        }
        Self { is_booting: false, boot: BootAnswer::Disk, ..self }
    }
}
