// SPDX-License-Identifier: Apache-2.0
//! What this crate asks about a machine: is it known, what should it boot now, which addresses are its own.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use async_trait::async_trait;

use crate::{Architecture, HardwareAddress, Stage};

/// Answers for machines, in two steps: first [`look_up`](Self::look_up) once for all machines that
/// are waiting, which may ask a database, and then [`plan`](Self::plan) once per packet, from memory.
#[async_trait]
pub trait Plans: Send + Sync {
    /// Brings what is known of these machines into memory, because they are about to be asked for.
    /// No machine is named twice. After two seconds it is dropped, and so are the packets it was for;
    /// their senders ask again.
    async fn look_up(&self, _machines: &[HardwareAddress]) {}

    /// What is to be done for the machine that asks. Asked on the task that owns the leases, so it
    /// must not wait for anything.
    fn plan(&self, request: &BootRequest<'_>) -> Plan;

    /// Whether the address is set aside for some machine, so that no range may hand it out.
    fn is_reserved(&self, _address: Ipv4Addr) -> bool {
        false
    }

    /// Whether the v6 address is set aside for some machine.
    fn is_reserved6(&self, _address: Ipv6Addr) -> bool {
        false
    }
}

/// What is known of the machine that asks.
#[derive(Debug, Clone, Copy)]
pub struct BootRequest<'a> {
    /// The card it asks with.
    pub hardware: HardwareAddress,
    /// Its client identifier, or its DUID in v6.
    pub client_id: Option<&'a [u8]>,
    /// Its SMBIOS UUID (option 97), as sent.
    pub machine_uuid: Option<[u8; 16]>,
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
    /// What it should boot.
    pub boot: BootAnswer,
    /// The v4 address set aside for it.
    pub address: Option<Ipv4Addr>,
    /// The v6 address set aside for it.
    pub address6: Option<Ipv6Addr>,
    /// The name to give it.
    pub host_name: Option<Arc<str>>,
}

/// What a machine should boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BootAnswer {
    /// Its own disk: nothing to load from the network.
    #[default]
    Disk,
    /// Something from us.
    Netboot(Netboot),
}

/// Where the stages of a network boot are. Which one is sent depends on the program that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Netboot {
    /// The URL of the script for iPXE.
    pub script: Arc<str>,
    /// What UEFI firmware loads by HTTP; without it such firmware is not answered.
    pub http: Option<Arc<str>>,
    /// The first stage to load by TFTP, where the server's own table is not wanted.
    pub first_stage: Option<Arc<str>>,
    /// Parameters for what is loaded, sent in v6 only (option 60), where firmware passes them on.
    pub parameters: Vec<Arc<str>>,
}
