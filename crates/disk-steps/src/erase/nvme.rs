// SPDX-License-Identifier: Apache-2.0
//! NVMe drives that erase themselves: Format NVM with a secure erase setting, or Sanitize where a
//! drive has only that. Forgetting the key comes before erasing the data, which takes longer.
//!
//! Sanitize is for all namespaces of a drive, and so is Format on some. That is done only if all of them
//! are to be erased.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use agent_protocol::Disk;

use super::{ErasePolicy, Error, open, surroundings};
use crate::kernel::{NvmeCommand, nvme_admin};

const IDENTIFY: u8 = 0x06;
const GET_LOG_PAGE: u8 = 0x02;
const FORMAT: u8 = 0x80;
const SANITIZE: u8 = 0x84;
const SANITIZE_STATUS: u32 = 0x81;

/// How long an ordinary command may take, and how long a format.
const MOMENT: u32 = 15_000;
const FORMAT_TIME: u32 = 10 * 60 * 1000;
/// How often a drive is asked how far it is, and how often at most: a day.
const PAUSE: Duration = Duration::from_secs(2);
const QUESTIONS: u32 = 43_200;

/// What a drive can do, from Identify Controller.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Abilities {
    format: bool,
    crypto_format: bool,
    /// Formatting one namespace formats all, or erases all.
    format_is_for_all: bool,
    sanitize_crypto: bool,
    sanitize_block: bool,
}

/// Lets a drive erase itself. Other namespaces of it are erased, too, only if they are `among` those
/// that are to be.
pub(super) fn erase(
    disk: &Disk,
    among: &[Disk],
    policy: &ErasePolicy,
) -> Result<&'static str, Error> {
    let device = open(disk)?;
    let drive = device.file().as_fd();
    let namespace = namespace(disk, policy)?;
    let mut answer = vec![0; 4096];
    send(disk, drive, identify_controller(), &mut answer, "identifying it")?;
    let abilities = parse(&answer);
    if !abilities.format || abilities.format_is_for_all {
        spare_others(disk, among, policy)?;
    }
    if abilities.format {
        send(disk, drive, identify_namespace(namespace), &mut answer, "identifying its namespace")?;
        let command = format(namespace, answer[26], abilities.crypto_format);
        send(disk, drive, command, &mut [], "formatting it")?;
        device.reread_partitions()?;
        return Ok(if abilities.crypto_format {
            "NVMe crypto erase"
        } else {
            "NVMe user-data erase"
        });
    }
    if !abilities.sanitize_crypto && !abilities.sanitize_block {
        return Err(Error::drive(
            disk,
            "it knows neither format nor sanitize; allow writing over it (agent_continue_if_secure_erase_failed), or switch NVMe secure erase off",
        ));
    }
    send(disk, drive, sanitize(abilities.sanitize_crypto), &mut [], "sanitizing it")?;
    wait_until_sanitized(disk, drive)?;
    device.reread_partitions()?;
    Ok("NVMe sanitize")
}

/// The number of the namespace that the device is.
fn namespace(disk: &Disk, policy: &ErasePolicy) -> Result<u32, Error> {
    let file = surroundings::sysfs(disk, policy).map(|folder| folder.join("nsid"));
    let text = file.and_then(|file| fs::read_to_string(file).ok());
    text.and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| Error::drive(disk, "the kernel does not tell its namespace"))
}

/// Refuses if the drive has a namespace that is not to be erased.
fn spare_others(disk: &Disk, among: &[Disk], policy: &ErasePolicy) -> Result<(), Error> {
    for name in others_of_drive(disk, policy) {
        let other = among.iter().find(|other| Path::new(&other.name).ends_with(&name));
        let goes = match other {
            Some(other) => surroundings::reason_to_skip(other, policy)?.is_none(),
            None => false,
        };
        if !goes {
            return Err(Error::drive(
                disk,
                format!(
                    "it can only erase all of its namespaces, and {name} is to stay as it is; allow writing over it (agent_continue_if_secure_erase_failed), or switch NVMe secure erase off"
                ),
            ));
        }
    }
    Ok(())
}

/// The names of the other namespaces of a drive, whatever controller they are seen through.
fn others_of_drive(disk: &Disk, policy: &ErasePolicy) -> Vec<String> {
    let block = policy.sys.join("block");
    let text = |name: &str, file: &str| fs::read_to_string(block.join(name).join(file)).ok();
    let drive = |name: &str| {
        let place = || fs::canonicalize(block.join(name).join("device")).ok();
        let named = text(name, "device/subsysnqn").map(Into::into);
        named.or_else(place)
    };
    let this = Path::new(&disk.name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(mine) = drive(&this) else { return Vec::new() };
    let entries = fs::read_dir(&block).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut others: Vec<String> = names
        .filter(|name| name.starts_with("nvme") && *name != this)
        // Single paths of a shared namespace have no device file.
        .filter(|name| text(name, "hidden").is_none_or(|hidden| hidden.trim() != "1"))
        .filter(|name| drive(name).as_ref() == Some(&mine))
        .collect();
    others.sort();
    others
}

fn send(
    disk: &Disk,
    drive: BorrowedFd<'_>,
    command: NvmeCommand,
    data: &mut [u8],
    what: &str,
) -> Result<(), Error> {
    match nvme_admin(drive, command, data) {
        Ok(0) => Ok(()),
        Ok(status) => Err(Error::drive(
            disk,
            format!("{what} ended with NVMe status {status:#06x}; look at its health"),
        )),
        Err(error) => Err(Error::drive(disk, format!("{what} failed ({error})"))),
    }
}

fn identify_controller() -> NvmeCommand {
    NvmeCommand::new(IDENTIFY, 0, 1, MOMENT)
}

fn identify_namespace(namespace: u32) -> NvmeCommand {
    NvmeCommand::new(IDENTIFY, namespace, 0, MOMENT)
}

/// Formats with the sector format the namespace has: FLBAS, whose number is in two pieces.
fn format(namespace: u32, current: u8, crypto: bool) -> NvmeCommand {
    const USER_DATA: u32 = 1;
    const CRYPTO: u32 = 2;
    let current = u32::from(current);
    let (low, high, extended) = (current & 0xf, current >> 5 & 3, current >> 4 & 1);
    let setting = if crypto { CRYPTO } else { USER_DATA };
    let dword10 = low | extended << 4 | setting << 9 | high << 12;
    NvmeCommand::new(FORMAT, namespace, dword10, FORMAT_TIME)
}

fn sanitize(crypto: bool) -> NvmeCommand {
    const BLOCK_ERASE: u32 = 2;
    const CRYPTO_ERASE: u32 = 4;
    let dword10 = if crypto { CRYPTO_ERASE } else { BLOCK_ERASE };
    NvmeCommand::new(SANITIZE, 0, dword10, MOMENT)
}

fn sanitize_status() -> NvmeCommand {
    // Of 512 bytes; the length is in words of four, less one.
    NvmeCommand::new(GET_LOG_PAGE, u32::MAX, SANITIZE_STATUS | 127 << 16, MOMENT)
}

/// A sanitize goes on in the drive, also over resets. It can only be asked about.
fn wait_until_sanitized(disk: &Disk, drive: BorrowedFd<'_>) -> Result<(), Error> {
    for _ in 0..QUESTIONS {
        let mut answer = [0; 512];
        send(disk, drive, sanitize_status(), &mut answer, "asking how far it is")?;
        match answer[2] & 7 {
            1 | 4 => return Ok(()),
            3 => return Err(Error::drive(disk, "its sanitize failed; look at its health")),
            _ => std::thread::sleep(PAUSE),
        }
    }
    Err(Error::drive(disk, "its sanitize does not end"))
}

fn parse(controller: &[u8]) -> Abilities {
    let optional = u16::from_le_bytes([controller[256], controller[257]]);
    let (sanitize, format) = (controller[328], controller[524]);
    Abilities {
        format: optional & 2 != 0,
        crypto_format: format & 4 != 0,
        format_is_for_all: format & 3 != 0,
        sanitize_crypto: sanitize & 1 != 0,
        sanitize_block: sanitize & 2 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_standard() {
        assert_eq!(identify_controller().dword10, 1);
        let plain = format(3, 0, false);
        assert_eq!((plain.opcode, plain.namespace, plain.dword10), (0x80, 3, 1 << 9));
        // Format 0x12 (18): two above in bits 5 and 6, two below; metadata with the data.
        let crypto = format(1, 0b0011_0010, true);
        assert_eq!(crypto.dword10, 2 | 1 << 4 | 2 << 9 | 1 << 12);
        assert_eq!(sanitize(true).dword10, 4);
        assert_eq!(sanitize(false).dword10, 2);
        assert_eq!(sanitize_status().dword10, 0x007f_0081);
    }

    #[test]
    fn abilities_are_read_from_the_controller() {
        let mut answer = vec![0; 4096];
        assert!(!parse(&answer).format);
        (answer[256], answer[524], answer[328]) = (2, 4, 3);
        let all = Abilities {
            format: true,
            crypto_format: true,
            format_is_for_all: false,
            sanitize_crypto: true,
            sanitize_block: true,
        };
        assert_eq!(parse(&answer), all);
        for bits in [1, 2] {
            answer[524] = bits;
            assert!(parse(&answer).format_is_for_all);
        }
    }

    #[test]
    fn other_namespaces_are_spared() {
        let sys = tempfile::tempdir().unwrap();
        let put = |path: &str, content: &str| {
            let path = sys.path().join("block").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        for (name, drive) in [("nvme0n1", "a"), ("nvme0n2", "a"), ("nvme1n1", "b")] {
            put(&format!("{name}/device/subsysnqn"), drive);
        }
        put("nvme0c0n1/device/subsysnqn", "a");
        put("nvme0c0n1/hidden", "1\n");
        put("sda/device/model", "a");
        let policy = ErasePolicy { sys: sys.path().to_owned(), ..ErasePolicy::default() };
        let disk = |name: &str| Disk { name: format!("/dev/{name}"), ..Disk::default() };
        let disks = ["nvme0n1", "nvme0n2", "nvme1n1"].map(disk);
        assert_eq!(others_of_drive(&disks[0], &policy), ["nvme0n2"]);
        assert!(spare_others(&disks[0], &disks, &policy).is_ok());
        let left = [disks[0].clone(), disks[2].clone()];
        let error = spare_others(&disks[0], &left, &policy).unwrap_err().to_string();
        assert!(error.contains("nvme0n2"), "{error}");
        assert!(spare_others(&disks[2], &left, &policy).is_ok());
        // One that is in an array is not erased by itself either.
        put("nvme0n2/holders/md0/x", "");
        put("md0/md/level", "raid1\n");
        put("md0/size", "8\n");
        assert!(spare_others(&disks[0], &disks, &policy).is_err());
    }
}
