// SPDX-License-Identifier: Apache-2.0
//! Records of exchanges with machines, for node timelines and for finding unknown machines.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dhcp_codec::v4::Dhcp4MessageType;
use dhcp_codec::v6::Dhcp6MessageType;
use node_model::Timestamp;

use crate::{BootStage, FirmwareArchitecture, HardwareAddress, dhcp4, dhcp6, tftp};

/// Returns the current time, for DHCP leases and events.
pub type BootClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Receives boot events.
pub trait BootEventRecorder: Send + Sync {
    /// Records an event. Called on the tasks that own the sockets, so it must not block.
    fn record(&self, event: BootEvent);
}

/// One exchange with one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootEvent {
    /// The time of the event.
    pub at: Timestamp,
    /// The interface on which the request was received; empty for TFTP and HTTP servers that are not
    /// bound to an interface.
    pub interface: Arc<str>,
    /// The hardware address; `None` for TFTP and HTTP.
    pub hardware: Option<HardwareAddress>,
    /// The address that the machine uses or was assigned.
    pub address: Option<IpAddr>,
    /// The architecture, if the client sent one.
    pub architecture: Option<FirmwareArchitecture>,
    /// The program that sent the request; `None` for TFTP and HTTP.
    pub stage: Option<BootStage>,
    /// Whether the machine is enrolled.
    pub is_known: bool,
    /// Whether the machine has a boot plan of which the requesting program can load no file.
    pub no_loadable_boot_file: bool,
    /// The machine for which an HTTP file is; `None` for DHCP and TFTP.
    pub machine: Option<Arc<str>>,
    /// The exchange.
    pub detail: BootEventDetail,
}

/// The protocol-specific part of a [`BootEvent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootEventDetail {
    /// A DHCPv4 message.
    Dhcp4 {
        /// The type of the client's message.
        message_type: Dhcp4MessageType,
        /// How it was handled.
        outcome: dhcp4::Dhcp4Outcome,
        /// The boot file or URL in the reply.
        boot_file: Option<Arc<str>>,
    },
    /// A DHCPv6 message.
    Dhcp6 {
        /// The type of the client's message.
        message_type: Dhcp6MessageType,
        /// How it was handled.
        outcome: dhcp6::Dhcp6Outcome,
        /// The boot URL in the reply.
        boot_url: Option<Arc<str>>,
    },
    /// A TFTP transfer that ended or was refused.
    Tftp {
        /// The requested name, as the client sent it.
        file: String,
        /// The result.
        outcome: tftp::TftpOutcome,
    },
    /// An HTTP request that was handled or rejected.
    Http {
        /// The title of the file. Never the path, which may contain a secret.
        title: Arc<str>,
        /// The status code of the response.
        status: u16,
        /// The number of body bytes that were sent.
        bytes_sent: u64,
        /// Whether the whole body was sent.
        is_complete: bool,
        /// The time from the request to the last byte.
        duration: Duration,
        /// The `User-Agent` header, truncated; empty if there is none.
        user_agent: Arc<str>,
    },
}
