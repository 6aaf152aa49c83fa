// SPDX-License-Identifier: Apache-2.0
//! Machines that get an address: all of them on one socket, told apart by their transaction.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use boot_server::HardwareAddress;
use boot_server::dhcp4::{MessageType, Options, Packet, code};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::load::{self, Outcome};

/// How long firmware waits for an answer each time before it gives up (RFC 4578's example).
const PATIENCE: [u64; 4] = [4, 8, 16, 32];
/// dnsmasq offers one address to many machines and refuses it to all but the first.
const MOST_REFUSALS: u32 = 20;

/// The network as machines see it that have no address yet.
pub(crate) struct Segment {
    socket: UdpSocket,
    waiting: Mutex<HashMap<u32, mpsc::UnboundedSender<Packet>>>,
}

/// What kind of program asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Firmware,
    Ipxe,
}

/// What a machine was given.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) address: Ipv4Addr,
    /// Where the boot file is, unless it is a URL.
    pub(crate) next_server: Ipv4Addr,
    pub(crate) boot_file: String,
}

/// Gets leases for machines `first` and on; no two may get the same address.
pub(crate) async fn load(first: u32, count: u32, at_once: u32) -> Result<Outcome> {
    let segment = Arc::new(Segment::open()?);
    let listening = segment.clone().listen();
    let given: Arc<Mutex<HashSet<Ipv4Addr>>> = Arc::default();
    let outcome = load::drive(count, at_once, move |number| {
        let (segment, given) = (segment.clone(), given.clone());
        async move {
            let lease = segment.lease(first + number, Program::Firmware).await?;
            let mut given = given.lock().unwrap_or_else(PoisonError::into_inner);
            ensure!(given.insert(lease.address), "{} was given twice", lease.address);
            Ok(0)
        }
    })
    .await;
    listening.abort();
    Ok(outcome)
}

impl Segment {
    pub(crate) fn open() -> Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_broadcast(true)?;
        socket.set_nonblocking(true)?;
        // Each machine would have its own; ours must not lose what it could not.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20)?;
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 68));
        socket.bind(&any.into()).context("port 68 cannot be had")?;
        Ok(Self { socket: UdpSocket::from_std(socket.into())?, waiting: Mutex::default() })
    }

    /// Hands replies to the machines that wait for them.
    pub(crate) fn listen(self: Arc<Self>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let mut buffer = [0; 2048];
            while let Ok((length, _)) = self.socket.recv_from(&mut buffer).await {
                let Ok(packet) = Packet::decode(&buffer[..length]) else { continue };
                let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(machine) = waiting.get(&packet.transaction) {
                    let _too_late = machine.send(packet);
                }
            }
        })
    }

    /// A lease for the machine of that number: discover, offer, request, acknowledgement.
    pub(crate) async fn lease(&self, number: u32, program: Program) -> Result<Lease> {
        let (sender, mut replies) = mpsc::unbounded_channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(number, sender);
        let mut outcome = Ok(None);
        for _ in 0..MOST_REFUSALS {
            outcome = self.exchange(number, program, &mut replies).await;
            if !matches!(outcome, Ok(None)) {
                break;
            }
        }
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        outcome?.context("refused again and again")
    }

    /// One attempt; none if the address was refused in the end and all begins again.
    async fn exchange(
        &self,
        number: u32,
        program: Program,
        replies: &mut mpsc::UnboundedReceiver<Packet>,
    ) -> Result<Option<Lease>> {
        let discover = message(number, program, MessageType::Discover);
        let offer = self.ask(&discover, MessageType::Offer, replies).await?;
        let server = offer.options.address(code::SERVER_ID).context("an offer of nobody")?;
        let mut request = message(number, program, MessageType::Request);
        request.options.set_addresses(code::REQUESTED_ADDRESS, &[offer.your_address]);
        request.options.set_addresses(code::SERVER_ID, &[server]);
        let lease = self.ask(&request, MessageType::Ack, replies).await?;
        if lease.message_type() == Some(MessageType::Nak) {
            return Ok(None);
        }
        let named = lease.options.get(code::BOOT_FILE_NAME).unwrap_or(&lease.file);
        let named = named.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Some(Lease {
            address: lease.your_address,
            next_server: lease.next_server,
            boot_file: String::from_utf8_lossy(named).into_owned(),
        }))
    }

    async fn ask(
        &self,
        message: &Packet,
        expected: MessageType,
        replies: &mut mpsc::UnboundedReceiver<Packet>,
    ) -> Result<Packet> {
        let bytes = message.encode(548);
        for seconds in PATIENCE {
            self.socket.send_to(&bytes, (Ipv4Addr::BROADCAST, 67)).await?;
            let answered = async {
                while let Some(reply) = replies.recv().await {
                    // What came twice says nothing new.
                    let kind = reply.message_type();
                    let is_refusal = expected == MessageType::Ack && kind == Some(MessageType::Nak);
                    if kind == Some(expected) || is_refusal {
                        return Ok(reply);
                    }
                }
                bail!("nobody listens")
            };
            if let Ok(reply) = tokio::time::timeout(Duration::from_secs(seconds), answered).await {
                return reply;
            }
        }
        bail!("no answer to {:?}", message.message_type())
    }
}

/// What UEFI firmware or iPXE says, with the options they send.
fn message(number: u32, program: Program, kind: MessageType) -> Packet {
    let [high, middle, low, lowest] = number.to_be_bytes();
    let mut options = Options::default();
    options.set(code::MESSAGE_TYPE, [kind.number()]);
    options.set(code::MAX_MESSAGE_SIZE, 1472_u16.to_be_bytes());
    options.set(code::PARAMETER_LIST, [1, 3, 6, 12, 15, 28, 43, 51, 54, 58, 59, 60, 66, 67, 97]);
    options.set(
        code::MACHINE_UUID,
        [0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, high, middle, low, lowest],
    );
    options.set(code::ARCHITECTURE, 7_u16.to_be_bytes());
    options.set(code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003016");
    if program == Program::Ipxe {
        options.set(code::USER_CLASS, "iPXE");
        options.set(code::IPXE, [1, 1, 1]);
    }
    Packet {
        is_request: true,
        hops: 0,
        transaction: number,
        seconds: 0,
        broadcast: true,
        client_address: Ipv4Addr::UNSPECIFIED,
        your_address: Ipv4Addr::UNSPECIFIED,
        next_server: Ipv4Addr::UNSPECIFIED,
        relay: Ipv4Addr::UNSPECIFIED,
        hardware: HardwareAddress::ethernet(card(number)),
        file: Vec::new(),
        options,
    }
}

/// Cards far apart: dnsmasq derives addresses from them, and would have those of one batch of cards,
/// which differ in a byte or two, collide more than it deserves.
fn card(number: u32) -> [u8; 6] {
    // Odd, so that no two numbers come to the same.
    let [a, b, c, d] = number.wrapping_mul(0x9e37_79b1).to_be_bytes();
    [0x52, 0x54, a, b, c, d]
}
