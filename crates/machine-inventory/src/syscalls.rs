// SPDX-License-Identifier: Apache-2.0
//! The kernel interfaces without a safe wrapper: the IPMI device and packet sockets. All `unsafe` code
//! of this crate is in this file.
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

/// The kernel's IPMI device.
pub(crate) struct IpmiDevice {
    file: File,
    last_id: libc::c_long,
}

/// `struct ipmi_system_interface_addr`
#[repr(C)]
struct IpmiSystemInterfaceAddress {
    kind: libc::c_int,
    channel: libc::c_short,
    lun: u8,
}

/// `struct ipmi_msg`
#[repr(C)]
struct IpmiMessage {
    network_function: u8,
    command: u8,
    length: u16,
    data: *mut u8,
}

/// `struct ipmi_req`
#[repr(C)]
struct IpmiSendRequest {
    address: *mut IpmiSystemInterfaceAddress,
    address_length: libc::c_uint,
    id: libc::c_long,
    message: IpmiMessage,
}

/// `struct ipmi_recv`
#[repr(C)]
struct IpmiReceived {
    kind: libc::c_int,
    address: *mut c_void,
    address_length: libc::c_uint,
    id: libc::c_long,
    message: IpmiMessage,
}

const SEND_COMMAND: Opcode = opcode::read::<IpmiSendRequest>(b'i', 13);
const RECEIVE_MESSAGE_TRUNCATED: Opcode = opcode::read_write::<IpmiReceived>(b'i', 11);
const SYSTEM_INTERFACE: libc::c_int = 0x0c;
const BMC_CHANNEL: libc::c_short = 0x0f;
/// `IPMI_MAX_MSG_LENGTH`
const MAX_MESSAGE_LENGTH: usize = 272;
/// `IPMI_MAX_ADDR_SIZE`
const MAX_ADDRESS_LENGTH: usize = 32;

impl IpmiDevice {
    pub(crate) fn new(file: File) -> Self {
        Self { file, last_id: 0 }
    }

    /// Sends a command and waits for its response: completion code and data.
    pub(crate) fn request(
        &mut self,
        network_function: u8,
        command: u8,
        data: &[u8],
        timeout: Duration,
    ) -> io::Result<Vec<u8>> {
        self.last_id += 1;
        let mut data = data.to_vec();
        let mut address =
            IpmiSystemInterfaceAddress { kind: SYSTEM_INTERFACE, channel: BMC_CHANNEL, lun: 0 };
        let request = IpmiSendRequest {
            address: &raw mut address,
            address_length: size_of::<IpmiSystemInterfaceAddress>() as libc::c_uint,
            id: self.last_id,
            message: IpmiMessage {
                network_function,
                command,
                length: u16::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
                data: data.as_mut_ptr(),
            },
        };
        // SAFETY: the number is that of IPMICTL_SEND_COMMAND, which reads a `IpmiSendRequest` and, during the
        // call only, the address and data it points to; both live until the end of this function.
        unsafe { ioctl(&self.file, Setter::<SEND_COMMAND, IpmiSendRequest>::new(request)) }?;

        loop {
            wait_readable(&self.file, timeout)?;
            let (id, response) = self.receive()?;
            // A late response to an earlier request that timed out is skipped.
            if id == self.last_id {
                return Ok(response);
            }
        }
    }

    fn receive(&self) -> io::Result<(libc::c_long, Vec<u8>)> {
        let mut address = [0_u64; MAX_ADDRESS_LENGTH / 8];
        let mut data = vec![0_u8; MAX_MESSAGE_LENGTH];
        let mut received = IpmiReceived {
            kind: 0,
            address: address.as_mut_ptr().cast(),
            address_length: MAX_ADDRESS_LENGTH as libc::c_uint,
            id: 0,
            message: IpmiMessage {
                network_function: 0,
                command: 0,
                length: MAX_MESSAGE_LENGTH as u16,
                data: data.as_mut_ptr(),
            },
        };
        // SAFETY: the number is that of IPMICTL_RECEIVE_MSG_TRUNC, which fills a `IpmiReceived` and writes
        // at most the given lengths to the two buffers it points to; all three outlive the call.
        unsafe {
            let call = Updater::<RECEIVE_MESSAGE_TRUNCATED, IpmiReceived>::new(&mut received);
            ioctl(&self.file, call)
        }?;
        data.truncate(usize::from(received.message.length));
        Ok((received.id, data))
    }
}

/// Receives frames of one protocol on one interface, without their Ethernet header.
pub(crate) struct PacketSocket {
    socket: OwnedFd,
}

/// `struct sockaddr_ll` for a protocol on an interface.
struct LinkLayerAddress {
    interface_index: NonZeroU32,
    protocol: u16,
}

// SAFETY: `f` gets a pointer to a whole `sockaddr_ll` that lives during the call, and its length.
unsafe impl SocketAddrArg for LinkLayerAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: self.protocol.to_be(),
            sll_ifindex: self.interface_index.get() as i32,
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
    /// Opens a socket for a protocol and joins these multicast groups. Needs `CAP_NET_RAW`.
    pub(crate) fn open(
        interface_index: NonZeroU32,
        protocol: u16,
        groups: &[[u8; 6]],
    ) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol, no frame is received before the socket is bound to its interface.
        let none: Option<Protocol> = None;
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, none)?;
        for group in groups {
            join(socket.as_fd(), interface_index, group)?;
        }
        bind(&socket, &LinkLayerAddress { interface_index, protocol })?;
        Ok(Self { socket })
    }

    /// Returns a received frame; `None` if there is none.
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

/// Sends a whole frame on an interface, as a switch would.
#[cfg(test)]
pub(crate) fn send_frame(interface_index: NonZeroU32, frame: &[u8]) -> io::Result<()> {
    let none: Option<Protocol> = None;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, none)?;
    bind(&socket, &LinkLayerAddress { interface_index, protocol: 0 })?;
    rustix::net::send(&socket, frame, rustix::net::SendFlags::empty())?;
    Ok(())
}

fn join(socket: BorrowedFd<'_>, interface_index: NonZeroU32, group: &[u8; 6]) -> io::Result<()> {
    let mut request = libc::packet_mreq {
        mr_ifindex: interface_index.get() as i32,
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

fn wait_readable(file: &File, timeout: Duration) -> io::Result<()> {
    let mut waiting = [PollFd::new(file, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut waiting, Some(&timeout))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}
