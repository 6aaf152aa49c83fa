// SPDX-License-Identifier: Apache-2.0
//! System calls without a safe wrapper: ioctls of block devices, NVMe and SCSI drives, and kexec. All
//! `unsafe` code of this crate is in this file.
//!
//! Structures are laid out as in `linux/blkpg.h`, `linux/nvme_ioctl.h` and `scsi/sg.h`; their pointers
//! refer only to buffers that outlive the call.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{self, NoArg, Opcode, Setter, Updater};

const BLKRRPART: Opcode = 0x125f;
const BLKFLSBUF: Opcode = 0x1261;
const BLKZEROOUT: Opcode = 0x127f;
const BLKPG: Opcode = 0x1269;
const NVME_IOCTL_ADMIN_CMD: Opcode = 0xc048_4e41;
const SG_IO: Opcode = 0x2285;

/// Makes the kernel reread the partition table of a disk.
pub(crate) fn reread_partitions(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: BLKRRPART takes no argument.
    unsafe { ioctl::ioctl(device, NoArg::<BLKRRPART>::new()) }.map_err(io::Error::from)
}

/// The kernel's `blkpg_partition`.
#[repr(C)]
struct BlkpgPartition {
    start: i64,
    length: i64,
    number: c_int,
    names: [u8; 128],
}

/// The kernel's `blkpg_ioctl_arg`.
#[repr(C)]
struct BlkpgRequest {
    operation: c_int,
    flags: c_int,
    length: c_int,
    request: *mut BlkpgPartition,
}

/// Registers one new partition with the kernel, which works while others are in use. Start and length
/// are in bytes.
pub(crate) fn add_partition(
    device: BorrowedFd<'_>,
    number: u32,
    start: u64,
    length: u64,
) -> io::Result<()> {
    const ADD: c_int = 1;
    let mut request = BlkpgPartition {
        start: i64::try_from(start).map_err(io::Error::other)?,
        length: i64::try_from(length).map_err(io::Error::other)?,
        number: c_int::try_from(number).map_err(io::Error::other)?,
        names: [0; 128],
    };
    let argument = BlkpgRequest {
        operation: ADD,
        flags: 0,
        length: c_int::try_from(size_of::<BlkpgPartition>()).map_err(io::Error::other)?,
        request: &raw mut request,
    };
    // SAFETY: BLKPG reads a `blkpg_ioctl_arg`, which this is.
    let setter = unsafe { Setter::<BLKPG, BlkpgRequest>::new(argument) };
    // SAFETY: its pointer is to `request`, of the length given, which outlives the call.
    unsafe { ioctl::ioctl(device, setter) }.map_err(io::Error::from)
}

/// Writes back and drops the cached pages of a block device.
pub(crate) fn flush_buffers(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: BLKFLSBUF ignores its argument.
    unsafe { ioctl::ioctl(device, NoArg::<BLKFLSBUF>::new()) }.map_err(io::Error::from)
}

/// Zeroes a range of a block device; offloaded to the device if it supports that.
pub(crate) fn zero_out(device: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<()> {
    // SAFETY: BLKZEROOUT reads two 64-bit numbers.
    let request = unsafe { Setter::<BLKZEROOUT, [u64; 2]>::new([offset, length]) };
    // SAFETY: as above; the descriptor is open.
    unsafe { ioctl::ioctl(device, request) }.map_err(io::Error::from)
}

/// The kernel's `nvme_admin_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct NvmeCommand {
    pub(crate) opcode: u8,
    flags: u8,
    reserved: u16,
    pub(crate) namespace_id: u32,
    dwords_2_and_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_length: u32,
    data_length: u32,
    pub(crate) dword10: u32,
    dwords_11_to_15: [u32; 5],
    timeout_ms: u32,
    result: u32,
}

impl NvmeCommand {
    /// Creates a command with a namespace ID and dword 10 as its only parameters.
    pub(crate) fn new(opcode: u8, namespace_id: u32, dword10: u32, timeout_ms: u32) -> Self {
        Self { opcode, namespace_id, dword10, timeout_ms, ..Self::default() }
    }
}

/// Sends an admin command to an NVMe controller, which may fill `data`. Returns the NVMe status; zero is
/// success.
pub(crate) fn send_nvme_admin_command(
    device: BorrowedFd<'_>,
    command: NvmeCommand,
    data: &mut [u8],
) -> io::Result<u16> {
    let mut command = NvmeCommand {
        address: if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 },
        data_length: u32::try_from(data.len()).map_err(io::Error::other)?,
        ..command
    };
    // SAFETY: the structure is the kernel's `nvme_admin_cmd`, and `address` and `data_length` are
    // of `data`, which outlives the call. The return value is the NVMe status.
    let status =
        unsafe { libc::ioctl(device.as_raw_fd(), NVME_IOCTL_ADMIN_CMD as _, &raw mut command) };
    match status {
        0.. => Ok(u16::try_from(status).unwrap_or(u16::MAX)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kernel's `sg_io_hdr`.
#[repr(C)]
struct SgIoHeader {
    interface: c_int,
    direction: c_int,
    command_length: u8,
    sense_capacity: u8,
    iovec_count: u16,
    data_length: c_uint,
    data: *mut c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: c_uint,
    flags: c_uint,
    pack_id: c_int,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_length: u8,
    host_status: u16,
    driver_status: u16,
    residual: c_int,
    duration: c_uint,
    info: c_uint,
}

/// Data transfer of a SCSI command.
pub(crate) enum ScsiData<'a> {
    /// None.
    None,
    /// To the device.
    Out(&'a [u8]),
    /// From the device.
    In(&'a mut [u8]),
}

/// Response to a SCSI command.
pub(crate) struct ScsiResponse {
    /// SCSI status; zero is success.
    pub(crate) status: u8,
    /// Status of the host adapter; zero is success.
    pub(crate) host_status: u16,
    /// Sense data.
    pub(crate) sense: Vec<u8>,
}

/// Sends a SCSI command.
pub(crate) fn send_scsi_command(
    device: BorrowedFd<'_>,
    command: &[u8],
    data: ScsiData<'_>,
    timeout_ms: u32,
) -> io::Result<ScsiResponse> {
    const NONE: c_int = -1;
    const TO_DEVICE: c_int = -2;
    const FROM_DEVICE: c_int = -3;
    let (direction, pointer, length) = match data {
        ScsiData::None => (NONE, std::ptr::null_mut(), 0),
        ScsiData::Out(bytes) => (TO_DEVICE, bytes.as_ptr().cast_mut().cast(), bytes.len()),
        ScsiData::In(bytes) => (FROM_DEVICE, bytes.as_mut_ptr().cast::<c_void>(), bytes.len()),
    };
    let mut sense = [0_u8; 64];
    let mut request = SgIoHeader {
        interface: c_int::from(b'S'),
        direction,
        command_length: u8::try_from(command.len()).map_err(io::Error::other)?,
        sense_capacity: 64,
        iovec_count: 0,
        data_length: c_uint::try_from(length).map_err(io::Error::other)?,
        data: pointer,
        command: command.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms,
        flags: 0,
        pack_id: 0,
        user: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_length: 0,
        host_status: 0,
        driver_status: 0,
        residual: 0,
        duration: 0,
        info: 0,
    };
    // SAFETY: the structure is the kernel's `sg_io_hdr`; its pointers are to the command, the data
    // and the sense buffer, all of which outlive the call and have the lengths given. Data sent to
    // the device is only read.
    unsafe { ioctl::ioctl(device, Updater::<SG_IO, SgIoHeader>::new(&mut request)) }?;
    Ok(ScsiResponse {
        status: request.status,
        host_status: request.host_status,
        sense: sense[..usize::from(request.sense_length).min(sense.len())].to_vec(),
    })
}

/// Loads a kernel to be started by [`rustix::system::RebootCommand::Kexec`].
pub(crate) fn kexec_file_load(
    kernel: &File,
    initrd: Option<&File>,
    command_line: &str,
) -> io::Result<()> {
    const NO_INITRD: u64 = 4;
    let command_line = CString::new(command_line).map_err(io::Error::other)?;
    let length = command_line.as_bytes_with_nul().len();
    let (initrd, flags) = initrd.map_or((-1, NO_INITRD), |file| (file.as_raw_fd(), 0));
    // SAFETY: two open descriptors, and a NUL-terminated string with its length.
    let response = unsafe {
        libc::syscall(
            libc::SYS_kexec_file_load,
            kernel.as_raw_fd(),
            initrd,
            length,
            command_line.as_ptr(),
            flags,
        )
    };
    if response == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn structures_match_kernel_layout() {
        assert_eq!(size_of::<NvmeCommand>(), 72);
        assert_eq!(offset_of!(NvmeCommand, address), 24);
        assert_eq!(offset_of!(NvmeCommand, dword10), 40);
        assert_eq!(offset_of!(NvmeCommand, timeout_ms), 64);
        assert_eq!(size_of::<BlkpgPartition>(), 152);
        assert_eq!(offset_of!(BlkpgPartition, names), 20);
        assert_eq!(size_of::<BlkpgRequest>(), 24);
        assert_eq!(size_of::<SgIoHeader>(), 88);
        assert_eq!(offset_of!(SgIoHeader, data), 16);
        assert_eq!(offset_of!(SgIoHeader, timeout_ms), 40);
        assert_eq!(offset_of!(SgIoHeader, status), 64);
    }
}
