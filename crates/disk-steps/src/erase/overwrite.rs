// SPDX-License-Identifier: Apache-2.0
//! Overwrites disks with random data, and finally with zeroes.
//!
//! Zeroes are written as data, because a drive may only mark a range as zero on request.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ErasePolicy;
use crate::device::{AlignedBuffer, Device, DeviceError};
use crate::{DiskProgress, ReportProgress};

const BLOCK: usize = 1 << 20;

/// Overwrites a whole device.
pub(super) fn overwrite(
    path: &Path,
    policy: &ErasePolicy,
    report: ReportProgress<'_>,
) -> Result<(), DeviceError> {
    let device = Device::exclusive(path)?;
    write_passes(&device, &[(0, device.size())], policy, report)?;
    device.reread_partitions()
}

/// Overwrites ranges (offset and length) of a device. The rest may be in use.
pub(super) fn overwrite_ranges(
    path: &Path,
    ranges: &[(u64, u64)],
    policy: &ErasePolicy,
    report: ReportProgress<'_>,
) -> Result<(), DeviceError> {
    write_passes(&Device::writable(path)?, ranges, policy, report)
}

fn write_passes(
    device: &Device,
    ranges: &[(u64, u64)],
    policy: &ErasePolicy,
    report: ReportProgress<'_>,
) -> Result<(), DeviceError> {
    let passes = u64::from(policy.iterations) + u64::from(policy.zeroize);
    let pass_bytes: u64 = ranges.iter().map(|(_, length)| length).sum();
    let total = Some(pass_bytes.saturating_mul(passes));
    let mut buffer = AlignedBuffer::new(BLOCK);
    let mut pattern = RandomPattern::new();
    let mut done = 0;
    for pass in 0..passes {
        let is_random = pass < u64::from(policy.iterations);
        if !is_random {
            buffer.bytes_mut().fill(0);
        }
        for &(start, length) in ranges {
            write_pass(device, (start, length), &mut buffer, |block, written| {
                if is_random {
                    pattern.fill(block);
                }
                report(DiskProgress { step: "erase_devices", done: done + written, total });
            })?;
            done += length;
        }
    }
    Ok(())
}

fn write_pass(
    device: &Device,
    (start, length): (u64, u64),
    buffer: &mut AlignedBuffer,
    mut prepare: impl FnMut(&mut [u8], u64),
) -> Result<(), DeviceError> {
    let mut direct = device.direct();
    let (mut at, end) = (start, start + length);
    while at < end {
        prepare(buffer.bytes_mut(), at - start);
        let left = end - at;
        let length = usize::try_from(left).map_or(BLOCK, |left| left.min(BLOCK));
        let block = &buffer.bytes()[..length];
        let file = direct.as_ref().unwrap_or(device.file());
        match file.write_all_at(block, at) {
            Ok(()) => at += length as u64,
            // Some device drivers reject O_DIRECT; use the page cache then.
            Err(error) if direct.is_some() && error.raw_os_error() == Some(libc::EINVAL) => {
                direct = None;
            }
            Err(error) => return Err(device.write_error(at, error)),
        }
    }
    device.sync()
}

/// Fast pseudo-random generator (xoshiro256++, seeded by the kernel). It need not be secure, only
/// independent of the disk's old content.
struct RandomPattern([u64; 4]);

impl RandomPattern {
    fn new() -> Self {
        let mut seed = [1_u64; 4];
        for word in &mut seed {
            let mut bytes = [0; 8];
            // Without kernel randomness a constant seed is good enough.
            let _ = getrandom::fill(&mut bytes);
            *word ^= u64::from_le_bytes(bytes);
        }
        Self(seed)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_exact_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes());
        }
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }
}
