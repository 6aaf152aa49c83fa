// SPDX-License-Identifier: Apache-2.0
//! What was seen on the wire and what was done about it, for timelines and for finding unknown machines.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use node_model::Timestamp;

use crate::{Architecture, HardwareAddress, Stage, dhcp4, dhcp6, tftp};

/// Takes what was seen. Called on the tasks that own sockets: it must not block.
pub trait Sightings: Send + Sync {
    /// Something was seen.
    fn seen(&self, sighting: Sighting);
}

/// One exchange with one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// When.
    pub at: Timestamp,
    /// The interface it came in by; empty for TFTP and HTTP, which listen on addresses.
    pub interface: Arc<str>,
    /// The card, where the protocol tells (TFTP and HTTP do not).
    pub hardware: Option<HardwareAddress>,
    /// The address the machine has or was given.
    pub address: Option<IpAddr>,
    /// Its processor and firmware, if it says.
    pub architecture: Option<Architecture>,
    /// The program that asked, where the protocol tells.
    pub stage: Option<Stage>,
    /// Whether the plans know the machine.
    pub known: bool,
    /// Whether the machine should boot something of ours that the program that asks cannot load.
    pub nothing_to_load: bool,
    /// What the pages called the machine; DHCP and TFTP have no name for it.
    pub subject: Option<Arc<str>>,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A DHCPv4 message and what became of it.
    Dhcp4 {
        /// The message.
        asked: dhcp4::MessageType,
        /// What was done, or why nothing was.
        verdict: dhcp4::Verdict,
        /// The boot file or URL that was sent.
        boot_file: Option<Arc<str>>,
    },
    /// A DHCPv6 message and what became of it.
    Dhcp6 {
        /// The message.
        asked: dhcp6::MessageType,
        /// What was done, or why nothing was.
        verdict: dhcp6::Verdict,
        /// The boot URL that was sent.
        boot_url: Option<Arc<str>>,
    },
    /// A TFTP transfer that ended or was refused.
    Tftp {
        /// The name asked for, as the client wrote it.
        file: String,
        /// How it ended.
        outcome: tftp::Outcome,
    },
    /// An HTTP request that was answered or refused.
    Http {
        /// What the pages call it, never the path: paths hold secrets.
        title: Arc<str>,
        /// The status of the answer.
        status: u16,
        /// How many bytes of content were given to the network.
        sent: u64,
        /// Whether those are all that the answer promised.
        whole: bool,
        /// How long it took from the request to the last byte.
        took: Duration,
        /// What the client calls itself, shortened; empty if it does not say.
        agent: Arc<str>,
    },
}
