// SPDX-License-Identifier: Apache-2.0
//! NVMe secure erase: Format NVM with a secure erase setting, or Sanitize if only that is supported. A
//! cryptographic erase is preferred, because erasing the data takes longer.
//!
//! Sanitize affects all namespaces of a drive, and so does Format NVM on some drives. Then it is run only
//! if all namespaces are to be erased.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use agent_protocol::InventoryDisk;

use super::{EraseError, ErasePolicy, exclusions, open};
use crate::syscalls::{NvmeCommand, send_nvme_admin_command};

const IDENTIFY: u8 = 0x06;
const GET_LOG_PAGE: u8 = 0x02;
const FORMAT: u8 = 0x80;
const SANITIZE: u8 = 0x84;
const SANITIZE_STATUS: u32 = 0x81;

/// Timeouts of ordinary commands and of Format NVM.
const COMMAND_TIMEOUT_MS: u32 = 15_000;
const FORMAT_TIMEOUT_MS: u32 = 10 * 60 * 1000;
/// Interval and maximum number of sanitize status queries: one day in total.
const SANITIZE_POLL_INTERVAL: Duration = Duration::from_secs(2);
const MAX_SANITIZE_POLLS: u32 = 43_200;

/// Capabilities from Identify Controller.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct NvmeCapabilities {
    format: bool,
    crypto_format: bool,
    /// Formatting or erasing one namespace affects all.
    format_affects_all_namespaces: bool,
    sanitize_crypto: bool,
    sanitize_block: bool,
}

/// Runs the secure erase. Fails if it would affect other namespaces that are not `selected`.
pub(super) fn erase(
    disk: &InventoryDisk,
    selected: &[InventoryDisk],
    policy: &ErasePolicy,
) -> Result<&'static str, EraseError> {
    let device = open(disk)?;
    let drive = device.file().as_fd();
    let namespace_id = read_namespace_id(disk, policy)?;
    let mut response = vec![0; 4096];
    send(disk, drive, identify_controller(), &mut response, "identifying it")?;
    let capabilities = parse_capabilities(&response);
    if !capabilities.format || capabilities.format_affects_all_namespaces {
        check_other_namespaces(disk, selected, policy)?;
    }
    if capabilities.format {
        send(
            disk,
            drive,
            identify_namespace(namespace_id),
            &mut response,
            "identifying its namespace",
        )?;
        let command = format(namespace_id, response[26], capabilities.crypto_format);
        send(disk, drive, command, &mut [], "formatting it")?;
        device.reread_partitions()?;
        return Ok(if capabilities.crypto_format {
            "NVMe crypto erase"
        } else {
            "NVMe user-data erase"
        });
    }
    if !capabilities.sanitize_crypto && !capabilities.sanitize_block {
        return Err(EraseError::drive(
            disk,
            "it supports neither Format NVM nor Sanitize; allow overwriting instead (agent_continue_if_secure_erase_failed), or disable NVMe secure erase",
        ));
    }
    send(disk, drive, sanitize(capabilities.sanitize_crypto), &mut [], "sanitizing it")?;
    wait_until_sanitized(disk, drive)?;
    device.reread_partitions()?;
    Ok("NVMe sanitize")
}

/// Reads the namespace ID of the device from sysfs.
fn read_namespace_id(disk: &InventoryDisk, policy: &ErasePolicy) -> Result<u32, EraseError> {
    let file = exclusions::sysfs_directory(disk, policy).map(|directory| directory.join("nsid"));
    let text = file.and_then(|file| fs::read_to_string(file).ok());
    text.and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| EraseError::drive(disk, "the kernel does not report its namespace ID"))
}

/// Fails if the drive has a namespace that is not to be erased.
fn check_other_namespaces(
    disk: &InventoryDisk,
    selected: &[InventoryDisk],
    policy: &ErasePolicy,
) -> Result<(), EraseError> {
    for name in other_namespaces(disk, policy) {
        let other = selected.iter().find(|other| Path::new(&other.name).ends_with(&name));
        let is_erased = match other {
            Some(other) => exclusions::skip_reason(other, policy)?.is_none(),
            None => false,
        };
        if !is_erased {
            return Err(EraseError::drive(
                disk,
                format!(
                    "it can only erase all of its namespaces, and {name} is not to be erased; allow overwriting instead (agent_continue_if_secure_erase_failed), or disable NVMe secure erase"
                ),
            ));
        }
    }
    Ok(())
}

/// Returns the names of the other namespaces of a drive, across all of its controllers.
fn other_namespaces(disk: &InventoryDisk, policy: &ErasePolicy) -> Vec<String> {
    let block = policy.sys.join("block");
    let text = |name: &str, file: &str| fs::read_to_string(block.join(name).join(file)).ok();
    let drive = |name: &str| {
        let canonical_path = || fs::canonicalize(block.join(name).join("device")).ok();
        let subsystem = text(name, "device/subsysnqn").map(Into::into);
        subsystem.or_else(canonical_path)
    };
    let own_name =
        Path::new(&disk.name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(own_drive) = drive(&own_name) else { return Vec::new() };
    let entries = fs::read_dir(&block).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut others: Vec<String> = names
        .filter(|name| name.starts_with("nvme") && *name != own_name)
        // Hidden: single paths of a multipath namespace, without device file.
        .filter(|name| text(name, "hidden").is_none_or(|hidden| hidden.trim() != "1"))
        .filter(|name| drive(name).as_ref() == Some(&own_drive))
        .collect();
    others.sort();
    others
}

fn send(
    disk: &InventoryDisk,
    drive: BorrowedFd<'_>,
    command: NvmeCommand,
    data: &mut [u8],
    action: &str,
) -> Result<(), EraseError> {
    match send_nvme_admin_command(drive, command, data) {
        Ok(0) => Ok(()),
        Ok(status) => Err(EraseError::drive(
            disk,
            format!("{action} ended with NVMe status {status:#06x}; check its health"),
        )),
        Err(error) => Err(EraseError::drive(disk, format!("{action} failed ({error})"))),
    }
}

fn identify_controller() -> NvmeCommand {
    NvmeCommand::new(IDENTIFY, 0, 1, COMMAND_TIMEOUT_MS)
}

fn identify_namespace(namespace_id: u32) -> NvmeCommand {
    NvmeCommand::new(IDENTIFY, namespace_id, 0, COMMAND_TIMEOUT_MS)
}

/// Builds Format NVM with the current LBA format: FLBAS has its index in two bit fields.
fn format(namespace_id: u32, current: u8, crypto: bool) -> NvmeCommand {
    const USER_DATA: u32 = 1;
    const CRYPTO: u32 = 2;
    let current = u32::from(current);
    let (low, high, extended) = (current & 0xf, current >> 5 & 3, current >> 4 & 1);
    let setting = if crypto { CRYPTO } else { USER_DATA };
    let dword10 = low | extended << 4 | setting << 9 | high << 12;
    NvmeCommand::new(FORMAT, namespace_id, dword10, FORMAT_TIMEOUT_MS)
}

fn sanitize(crypto: bool) -> NvmeCommand {
    const BLOCK_ERASE: u32 = 2;
    const CRYPTO_ERASE: u32 = 4;
    let dword10 = if crypto { CRYPTO_ERASE } else { BLOCK_ERASE };
    NvmeCommand::new(SANITIZE, 0, dword10, COMMAND_TIMEOUT_MS)
}

fn sanitize_status() -> NvmeCommand {
    // 512 bytes; the length is in dwords minus one.
    NvmeCommand::new(GET_LOG_PAGE, u32::MAX, SANITIZE_STATUS | 127 << 16, COMMAND_TIMEOUT_MS)
}

/// Polls until a sanitize ends. It continues in the drive even after a reset.
fn wait_until_sanitized(disk: &InventoryDisk, drive: BorrowedFd<'_>) -> Result<(), EraseError> {
    for _ in 0..MAX_SANITIZE_POLLS {
        let mut response = [0; 512];
        send(disk, drive, sanitize_status(), &mut response, "querying the sanitize status")?;
        match response[2] & 7 {
            1 | 4 => return Ok(()),
            3 => return Err(EraseError::drive(disk, "its sanitize failed; check its health")),
            _ => std::thread::sleep(SANITIZE_POLL_INTERVAL),
        }
    }
    Err(EraseError::drive(disk, "its sanitize did not finish within a day"))
}

fn parse_capabilities(controller: &[u8]) -> NvmeCapabilities {
    let optional = u16::from_le_bytes([controller[256], controller[257]]);
    let (sanitize, format) = (controller[328], controller[524]);
    NvmeCapabilities {
        format: optional & 2 != 0,
        crypto_format: format & 4 != 0,
        format_affects_all_namespaces: format & 3 != 0,
        sanitize_crypto: sanitize & 1 != 0,
        sanitize_block: sanitize & 2 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_match_the_standard() {
        assert_eq!(identify_controller().dword10, 1);
        let plain = format(3, 0, false);
        assert_eq!((plain.opcode, plain.namespace_id, plain.dword10), (0x80, 3, 1 << 9));
        // FLBAS with LBA format index 0x12 and metadata inline.
        let crypto = format(1, 0b0011_0010, true);
        assert_eq!(crypto.dword10, 2 | 1 << 4 | 2 << 9 | 1 << 12);
        assert_eq!(sanitize(true).dword10, 4);
        assert_eq!(sanitize(false).dword10, 2);
        assert_eq!(sanitize_status().dword10, 0x007f_0081);
    }

    #[test]
    fn parses_capabilities_of_controller() {
        let mut response = vec![0; 4096];
        assert!(!parse_capabilities(&response).format);
        (response[256], response[524], response[328]) = (2, 4, 3);
        let all = NvmeCapabilities {
            format: true,
            crypto_format: true,
            format_affects_all_namespaces: false,
            sanitize_crypto: true,
            sanitize_block: true,
        };
        assert_eq!(parse_capabilities(&response), all);
        for bits in [1, 2] {
            response[524] = bits;
            assert!(parse_capabilities(&response).format_affects_all_namespaces);
        }
    }

    #[test]
    fn refuses_to_erase_other_namespaces() {
        let sys = tempfile::tempdir().unwrap();
        let write_file = |path: &str, content: &str| {
            let path = sys.path().join("block").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        for (name, drive) in [("nvme0n1", "a"), ("nvme0n2", "a"), ("nvme1n1", "b")] {
            write_file(&format!("{name}/device/subsysnqn"), drive);
        }
        write_file("nvme0c0n1/device/subsysnqn", "a");
        write_file("nvme0c0n1/hidden", "1\n");
        write_file("sda/device/model", "a");
        let policy = ErasePolicy { sys: sys.path().to_owned(), ..ErasePolicy::default() };
        let disk =
            |name: &str| InventoryDisk { name: format!("/dev/{name}"), ..InventoryDisk::default() };
        let disks = ["nvme0n1", "nvme0n2", "nvme1n1"].map(disk);
        assert_eq!(other_namespaces(&disks[0], &policy), ["nvme0n2"]);
        assert!(check_other_namespaces(&disks[0], &disks, &policy).is_ok());
        let remaining = [disks[0].clone(), disks[2].clone()];
        let error = check_other_namespaces(&disks[0], &remaining, &policy).unwrap_err().to_string();
        assert!(error.contains("nvme0n2"), "{error}");
        assert!(check_other_namespaces(&disks[2], &remaining, &policy).is_ok());
        // A namespace that is in an array is not erased either.
        write_file("nvme0n2/holders/md0/x", "");
        write_file("md0/md/level", "raid1\n");
        write_file("md0/size", "8\n");
        assert!(check_other_namespaces(&disks[0], &disks, &policy).is_err());
    }
}
