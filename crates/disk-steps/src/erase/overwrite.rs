// SPDX-License-Identifier: Apache-2.0
//! Writes over all of a disk: with chance, as often as wanted, and with zeroes at last.
//!
//! Zeroes are really written. A drive that is told to zero a range may only mark it.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ErasePolicy;
use crate::device::{AlignedBuffer, Device, DeviceError};
use crate::{Progress, Tell};

const BLOCK: usize = 1 << 20;

/// Writes over all of a device.
pub(super) fn overwrite(
    path: &Path,
    policy: &ErasePolicy,
    tell: Tell<'_>,
) -> Result<(), DeviceError> {
    let device = Device::exclusive(path)?;
    write_over(&device, &[(0, device.size())], policy, tell)?;
    device.reread_partitions()
}

/// Writes over parts of a device, each from a byte on and so long. The rest may be in use.
pub(super) fn overwrite_parts(
    path: &Path,
    parts: &[(u64, u64)],
    policy: &ErasePolicy,
    tell: Tell<'_>,
) -> Result<(), DeviceError> {
    write_over(&Device::writable(path)?, parts, policy, tell)
}

fn write_over(
    device: &Device,
    parts: &[(u64, u64)],
    policy: &ErasePolicy,
    tell: Tell<'_>,
) -> Result<(), DeviceError> {
    let passes = u64::from(policy.iterations) + u64::from(policy.zeroize);
    let all: u64 = parts.iter().map(|(_, length)| length).sum();
    let total = Some(all.saturating_mul(passes));
    let mut buffer = AlignedBuffer::new(BLOCK);
    let mut chance = Chance::new();
    let mut done = 0;
    for pass in 0..passes {
        let random = pass < u64::from(policy.iterations);
        if !random {
            buffer.bytes_mut().fill(0);
        }
        for &(start, length) in parts {
            pass_over(device, (start, length), &mut buffer, |block, written| {
                if random {
                    chance.fill(block);
                }
                tell(Progress { what: "erase_devices", done: done + written, total });
            })?;
            done += length;
        }
    }
    Ok(())
}

fn pass_over(
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
            // Some layers under a disk take no direct writes; then the page cache does.
            Err(error) if direct.is_some() && error.raw_os_error() == Some(libc::EINVAL) => {
                direct = None;
            }
            Err(error) => return Err(device.write_error(at, error)),
        }
    }
    device.sync()
}

/// A fast source of numbers that nobody can guess from the disk's old content (xoshiro256++, seeded
/// by the kernel). It hides nothing; it only has to be unlike what was there.
struct Chance([u64; 4]);

impl Chance {
    fn new() -> Self {
        let mut seed = [1_u64; 4];
        for word in &mut seed {
            let mut bytes = [0; 8];
            // Without the kernel's chance any other pattern does.
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
