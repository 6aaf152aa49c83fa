// SPDX-License-Identifier: Apache-2.0
//! The two things the kernel offers for which there is no safe wrapper: its IPMI device and packet
//! sockets. All `unsafe` of this crate is here.
#![expect(unsafe_code, reason = "ioctls of /dev/ipmi0, packet socket addresses and memberships")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with,
};

/// The kernel's way to the BMC.
pub(crate) struct IpmiDevice {
    file: File,
    last_id: libc::c_long,
}

/// `struct ipmi_system_interface_addr`
#[repr(C)]
struct SystemInterface {
    kind: libc::c_int,
    channel: libc::c_short,
    lun: u8,
}

/// `struct ipmi_msg`
#[repr(C)]
struct Message {
    network_function: u8,
    command: u8,
    length: u16,
    data: *mut u8,
}

/// `struct ipmi_req`
#[repr(C)]
struct Request {
    address: *mut SystemInterface,
    address_length: libc::c_uint,
    id: libc::c_long,
    message: Message,
}

/// `struct ipmi_recv`
#[repr(C)]
struct Received {
    kind: libc::c_int,
    address: *mut c_void,
    address_length: libc::c_uint,
    id: libc::c_long,
    message: Message,
}

const SEND_COMMAND: Opcode = opcode::read::<Request>(b'i', 13);
const RECEIVE_MESSAGE_TRUNCATED: Opcode = opcode::read_write::<Received>(b'i', 11);
const SYSTEM_INTERFACE: libc::c_int = 0x0c;
const BMC_CHANNEL: libc::c_short = 0x0f;
/// `IPMI_MAX_MSG_LENGTH`
const LONGEST_MESSAGE: usize = 272;
/// `IPMI_MAX_ADDR_SIZE`
const LONGEST_ADDRESS: usize = 32;

impl IpmiDevice {
    pub(crate) fn new(file: File) -> Self {
        Self { file, last_id: 0 }
    }

    /// Sends a command and waits for its answer: the completion code and the data.
    pub(crate) fn request(
        &mut self,
        network_function: u8,
        command: u8,
        data: &[u8],
        patience: Duration,
    ) -> io::Result<Vec<u8>> {
        self.last_id += 1;
        let mut data = data.to_vec();
        let mut address = SystemInterface { kind: SYSTEM_INTERFACE, channel: BMC_CHANNEL, lun: 0 };
        let request = Request {
            address: &raw mut address,
            address_length: size_of::<SystemInterface>() as libc::c_uint,
            id: self.last_id,
            message: Message {
                network_function,
                command,
                length: u16::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
                data: data.as_mut_ptr(),
            },
        };
        // SAFETY: the number is that of IPMICTL_SEND_COMMAND, which reads a `Request` and, during the
        // call only, the address and data it points to; both live until the end of this function.
        unsafe { ioctl(&self.file, Setter::<SEND_COMMAND, Request>::new(request)) }?;

        loop {
            wait_readable(&self.file, patience)?;
            let (id, answer) = self.receive()?;
            // An answer to a question that we gave up on earlier is passed over.
            if id == self.last_id {
                return Ok(answer);
            }
        }
    }

    fn receive(&self) -> io::Result<(libc::c_long, Vec<u8>)> {
        let mut address = [0_u64; LONGEST_ADDRESS / 8];
        let mut data = vec![0_u8; LONGEST_MESSAGE];
        let mut received = Received {
            kind: 0,
            address: address.as_mut_ptr().cast(),
            address_length: LONGEST_ADDRESS as libc::c_uint,
            id: 0,
            message: Message {
                network_function: 0,
                command: 0,
                length: LONGEST_MESSAGE as u16,
                data: data.as_mut_ptr(),
            },
        };
        // SAFETY: the number is that of IPMICTL_RECEIVE_MSG_TRUNC, which fills a `Received` and writes
        // at most the given lengths to the two buffers it points to; all three outlive the call.
        unsafe {
            let call = Updater::<RECEIVE_MESSAGE_TRUNCATED, Received>::new(&mut received);
            ioctl(&self.file, call)
        }?;
        data.truncate(usize::from(received.message.length));
        Ok((received.id, data))
    }
}

/// Frames of one protocol arriving at one network card, without their Ethernet header.
pub(crate) struct PacketSocket {
    socket: OwnedFd,
}

/// `struct sockaddr_ll` for a protocol on a card.
struct CardAddress {
    card: NonZeroU32,
    protocol: u16,
}

// SAFETY: `f` gets a pointer to a whole `sockaddr_ll` that lives during the call, and its length.
unsafe impl SocketAddrArg for CardAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: self.protocol.to_be(),
            sll_ifindex: self.card.get() as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = size_of::<libc::sockaddr_ll>() as SocketAddrLen;
        f((&raw const address).cast(), length)
    }
}

impl PacketSocket {
    /// Listens for a protocol on the card of that number and to these groups. Needs `CAP_NET_RAW`.
    pub(crate) fn open(card: NonZeroU32, protocol: u16, groups: &[[u8; 6]]) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol nothing arrives before the socket is bound to its card.
        let none: Option<Protocol> = None;
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, none)?;
        for group in groups {
            join(socket.as_fd(), card, group)?;
        }
        bind(&socket, &CardAddress { card, protocol })?;
        Ok(Self { socket })
    }

    /// A frame that is there; nothing if there is none.
    pub(crate) fn receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((length, _)) => Ok(buffer.get(..length)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends a whole frame out of the card of that number, as a switch would.
#[cfg(test)]
pub(crate) fn send_frame(card: NonZeroU32, frame: &[u8]) -> io::Result<()> {
    let none: Option<Protocol> = None;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, none)?;
    bind(&socket, &CardAddress { card, protocol: 0 })?;
    rustix::net::send(&socket, frame, rustix::net::SendFlags::empty())?;
    Ok(())
}

fn join(socket: BorrowedFd<'_>, card: NonZeroU32, group: &[u8; 6]) -> io::Result<()> {
    let mut request = libc::packet_mreq {
        mr_ifindex: card.get() as i32,
        mr_type: libc::PACKET_MR_MULTICAST as u16,
        mr_alen: 6,
        mr_address: [0; 8],
    };
    request.mr_address[..6].copy_from_slice(group);
    // SAFETY: the option takes a `packet_mreq`, which the pointer and length describe, and reads it
    // during the call only.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            size_of::<libc::packet_mreq>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn wait_readable(file: &File, patience: Duration) -> io::Result<()> {
    let mut waiting = [PollFd::new(file, PollFlags::IN)];
    let patience = Timespec::try_from(patience).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut waiting, Some(&patience))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}
