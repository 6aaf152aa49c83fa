// SPDX-License-Identifier: Apache-2.0
//! The log archive for `log.collect_system_logs` and inspection.

use std::io::Write as _;
use std::path::Path;

use base64::Engine as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{Mode, OFlags};

/// Files to include, with their names in the archive.
const FILES: &[(&str, &str)] = &[
    ("/proc/cmdline", "cmdline"),
    ("/proc/meminfo", "meminfo"),
    ("/proc/modules", "modules"),
    ("/proc/partitions", "partitions"),
    ("/proc/mdstat", "mdstat"),
    ("/proc/mounts", "mounts"),
    ("/proc/net/dev", "net-dev"),
    ("/proc/net/route", "net-route"),
    ("/proc/net/ipv6_route", "net-ipv6-route"),
    ("/proc/net/fib_trie", "net-addresses"),
    ("/proc/net/if_inet6", "net-if-inet6"),
    ("/proc/interrupts", "interrupts"),
    ("/etc/resolv.conf", "resolv.conf"),
];
/// The maximum size of a file in the archive.
const MAX_FILE_SIZE: usize = 1 << 20;

/// Returns a gzip-compressed tar archive. Missing files are omitted.
#[must_use]
pub fn collect() -> Vec<u8> {
    let mut archive = GzEncoder::new(Vec::new(), Compression::fast());
    let mut add = |name: &str, content: &[u8]| {
        let content = &content[..content.len().min(MAX_FILE_SIZE * 3)];
        let padding = content.len().next_multiple_of(512) - content.len();
        // Writing to memory does not fail.
        let _ = archive.write_all(&tar_header(name, content.len()));
        let _ = archive.write_all(content);
        let _ = archive.write_all(&[0; 512][..padding]);
    };
    add("agent.log", super::buffered_lines().as_bytes());
    add("dmesg", super::mask_secrets(&kernel_messages()).as_bytes());
    for (path, name) in FILES {
        if let Ok(mut content) = std::fs::read(path) {
            content.truncate(MAX_FILE_SIZE);
            add(name, super::mask_secrets(&String::from_utf8_lossy(&content)).as_bytes());
        }
    }
    add("block-devices", block_devices().as_bytes());
    let _ = archive.write_all(&[0; 1024]);
    archive.finish().unwrap_or_default()
}

/// Returns the archive in base64.
#[must_use]
pub fn collect_base64() -> String {
    base64::engine::general_purpose::STANDARD.encode(collect())
}

/// Returns the kernel's messages in the format of `dmesg`.
fn kernel_messages() -> String {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open("/dev/kmsg", flags, Mode::empty()) else {
        return String::new();
    };
    let mut text = String::new();
    let mut record = [0; 8192];
    loop {
        match rustix::io::read(&file, &mut record) {
            Ok(0) => break,
            Ok(length) => text.push_str(&kernel_line(&String::from_utf8_lossy(&record[..length]))),
            // The record was overwritten; the next read returns the oldest one left.
            Err(rustix::io::Errno::PIPE) => {}
            Err(_) => break,
        }
        if text.len() > MAX_FILE_SIZE {
            break;
        }
    }
    text
}

/// Converts `6,339,5140900,-;message` with optional property lines to a line of `dmesg`.
fn kernel_line(record: &str) -> String {
    let Some((head, message)) = record.split_once(';') else { return String::new() };
    let micros: u64 = head.split(',').nth(2).and_then(|text| text.parse().ok()).unwrap_or(0);
    let message = message.lines().next().unwrap_or_default();
    format!("[{:5}.{:06}] {message}\n", micros / 1_000_000, micros % 1_000_000)
}

fn block_devices() -> String {
    let mut names: Vec<_> = std::fs::read_dir("/sys/class/block")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let fact = |name: &str, file: &str| {
        let path = Path::new("/sys/class/block").join(name).join(file);
        std::fs::read_to_string(path).map_or_else(|_| "-".to_owned(), |text| text.trim().to_owned())
    };
    names.iter().fold("name sectors read-only model\n".to_owned(), |mut text, name| {
        let [size, read_only, model] = ["size", "ro", "device/model"].map(|file| fact(name, file));
        text.push_str(&format!("{name} {size} {read_only} {model}\n"));
        text
    })
}

/// Returns the tar header of a regular file.
fn tar_header(name: &str, size: usize) -> [u8; 512] {
    let mut header = [0; 512];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, &name[..name.len().min(99)]);
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    put(136, &format!("{now:011o}"));
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    header[148..156].copy_from_slice(sum.as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn tar_reads_the_archive() {
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(&collect()[..]).read_to_end(&mut tar).unwrap();
        assert_eq!(tar.len() % 512, 0);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs.tar");
        std::fs::write(&path, tar).unwrap();
        let listed = std::process::Command::new("tar").arg("tf").arg(&path).output().unwrap();
        assert!(listed.status.success());
        let names = String::from_utf8(listed.stdout).unwrap();
        assert!(names.starts_with("agent.log\ndmesg\ncmdline\n"), "{names}");
    }

    #[test]
    fn formats_kernel_records_like_dmesg() {
        let line = kernel_line("6,339,5140900,-;NET: Registered\n SUBSYSTEM=net\n");
        assert_eq!(line, "[    5.140900] NET: Registered\n");
        assert_eq!(kernel_line("junk"), "");
    }
}
