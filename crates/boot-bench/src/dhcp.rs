// SPDX-License-Identifier: Apache-2.0
//! Simulated DHCP clients. All share one socket and are distinguished by transaction ID.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dhcp_codec::HardwareAddress;
use dhcp_codec::v4::{
    CLIENT_PORT, Dhcp4MessageType, Dhcp4Packet, MIN_MAX_MESSAGE_BYTES, SERVER_PORT, option_code,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::load::{self, LoadResult};

/// The timeouts of firmware for each attempt, in seconds (the example of RFC 4578).
const TIMEOUT_SECONDS: [u64; 4] = [4, 8, 16, 32];
/// The number of DHCPNAKs that a client accepts. dnsmasq offers one address to many clients and refuses it
/// to all but the first.
const MAX_NAKS: u32 = 20;

/// The clients of one network segment.
pub(crate) struct DhcpClients {
    socket: UdpSocket,
    /// Waiting clients by transaction ID.
    waiting: Mutex<HashMap<u32, mpsc::UnboundedSender<Dhcp4Packet>>>,
}

/// The program that a client simulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DhcpClientProgram {
    Firmware,
    Ipxe,
}

/// The DHCP lease of a client.
#[derive(Debug)]
pub(crate) struct BenchDhcpLease {
    pub(crate) address: Ipv4Addr,
    /// The server of the boot file, unless that is a URL.
    pub(crate) next_server: Ipv4Addr,
    pub(crate) boot_file: String,
}

/// Requests DHCP leases for `count` machines. Fails for machines that get the address of another.
pub(crate) async fn load(first: u32, count: u32, at_once: u32) -> Result<LoadResult> {
    let clients = Arc::new(DhcpClients::open()?);
    let receiver = clients.clone().receive();
    let assigned: Arc<Mutex<HashSet<Ipv4Addr>>> = Arc::default();
    let result = load::run(count, at_once, move |number| {
        let (clients, assigned) = (clients.clone(), assigned.clone());
        async move {
            let lease = clients.lease(first + number, DhcpClientProgram::Firmware).await?;
            let mut assigned = assigned.lock().unwrap_or_else(PoisonError::into_inner);
            ensure!(assigned.insert(lease.address), "{} was assigned twice", lease.address);
            Ok(0)
        }
    })
    .await;
    receiver.abort();
    Ok(result)
}

impl DhcpClients {
    pub(crate) fn open() -> Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_broadcast(true)?;
        socket.set_nonblocking(true)?;
        // Real machines have a socket each; the shared one must not lose packets.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20)?;
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, CLIENT_PORT));
        socket.bind(&any.into()).context("cannot bind port 68")?;
        Ok(Self { socket: UdpSocket::from_std(socket.into())?, waiting: Mutex::default() })
    }

    /// Spawns a task that passes replies to the waiting clients.
    pub(crate) fn receive(self: Arc<Self>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let mut buffer = [0; 2048];
            while let Ok((length, _)) = self.socket.recv_from(&mut buffer).await {
                let Ok(packet) = Dhcp4Packet::decode(&buffer[..length]) else { continue };
                let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(client) = waiting.get(&packet.transaction_id) {
                    let _closed = client.send(packet);
                }
            }
        })
    }

    /// Requests a DHCP lease for the machine with this number: discover, offer, request, ack.
    pub(crate) async fn lease(
        &self,
        number: u32,
        program: DhcpClientProgram,
    ) -> Result<BenchDhcpLease> {
        let (sender, mut replies) = mpsc::unbounded_channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(number, sender);
        let mut outcome = Ok(None);
        for _ in 0..MAX_NAKS {
            outcome = self.request_lease(number, program, &mut replies).await;
            if !matches!(outcome, Ok(None)) {
                break;
            }
        }
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        outcome?.with_context(|| format!("refused {MAX_NAKS} times"))
    }

    /// Makes one attempt. Returns `None` if the server refuses the address that it offered.
    async fn request_lease(
        &self,
        number: u32,
        program: DhcpClientProgram,
        replies: &mut mpsc::UnboundedReceiver<Dhcp4Packet>,
    ) -> Result<Option<BenchDhcpLease>> {
        let discover = client_message(number, program, Dhcp4MessageType::Discover);
        let offer = self.exchange(&discover, Dhcp4MessageType::Offer, replies).await?;
        let server = offer.options.get_address(option_code::SERVER_ID);
        let server = server.context("an offer has no server identifier")?;
        let mut request = client_message(number, program, Dhcp4MessageType::Request);
        request.options.set_addresses(option_code::REQUESTED_ADDRESS, &[offer.your_address]);
        request.options.set_addresses(option_code::SERVER_ID, &[server]);
        let reply = self.exchange(&request, Dhcp4MessageType::Ack, replies).await?;
        if reply.message_type() == Some(Dhcp4MessageType::Nak) {
            return Ok(None);
        }
        let file = reply.options.get(option_code::BOOT_FILE_NAME).unwrap_or(&reply.file);
        let file = file.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Some(BenchDhcpLease {
            address: reply.your_address,
            next_server: reply.next_server,
            boot_file: String::from_utf8_lossy(file).into_owned(),
        }))
    }

    /// Sends a message until a reply of the expected type arrives, or a DHCPNAK to a request.
    async fn exchange(
        &self,
        message: &Dhcp4Packet,
        expected: Dhcp4MessageType,
        replies: &mut mpsc::UnboundedReceiver<Dhcp4Packet>,
    ) -> Result<Dhcp4Packet> {
        let bytes = message.encode(MIN_MAX_MESSAGE_BYTES);
        for seconds in TIMEOUT_SECONDS {
            self.socket.send_to(&bytes, (Ipv4Addr::BROADCAST, SERVER_PORT)).await?;
            let reply = async {
                while let Some(reply) = replies.recv().await {
                    // Other types are duplicates of earlier replies.
                    let message_type = reply.message_type();
                    let is_nak = expected == Dhcp4MessageType::Ack
                        && message_type == Some(Dhcp4MessageType::Nak);
                    if message_type == Some(expected) || is_nak {
                        return Ok(reply);
                    }
                }
                bail!("the receiving task ended")
            };
            if let Ok(reply) = tokio::time::timeout(Duration::from_secs(seconds), reply).await {
                return reply;
            }
        }
        bail!("no reply to {:?}", message.message_type())
    }
}

/// Returns a message with the options that UEFI firmware or iPXE sends.
fn client_message(
    number: u32,
    program: DhcpClientProgram,
    message_type: Dhcp4MessageType,
) -> Dhcp4Packet {
    let [a, b, c, d] = number.to_be_bytes();
    let hardware = HardwareAddress::ethernet(mac(number));
    let mut packet = Dhcp4Packet::request(message_type, number, hardware);
    packet.broadcast = true;
    let options = &mut packet.options;
    options.set(option_code::MAX_MESSAGE_SIZE, 1472_u16.to_be_bytes());
    let requested = [1, 3, 6, 12, 15, 28, 43, 51, 54, 58, 59, 60, 66, 67, 97];
    options.set(option_code::PARAMETER_REQUEST_LIST, requested);
    let uuid = [0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, a, b, c, d];
    options.set(option_code::MACHINE_UUID, uuid);
    options.set(option_code::ARCHITECTURE, 7_u16.to_be_bytes());
    options.set(option_code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003016");
    if program == DhcpClientProgram::Ipxe {
        options.set(option_code::USER_CLASS, "iPXE");
        options.set(option_code::IPXE, [1, 1, 1]);
    }
    packet
}

/// Returns the MAC address of a machine. The addresses are spread, because dnsmasq derives IP addresses from
/// them and consecutive ones would collide more often than real ones.
fn mac(number: u32) -> [u8; 6] {
    // The factor is odd, so the mapping is injective.
    let [a, b, c, d] = number.wrapping_mul(0x9e37_79b1).to_be_bytes();
    [0x52, 0x54, a, b, c, d]
}
