// SPDX-License-Identifier: Apache-2.0
//! OVMF boots our images, and the kernel finds its parameters, ramdisks and files.
//!
//! Needs a kernel and a ramdisk that prints what it finds on the serial line: `cargo xtask test` builds
//! both (see `xtask/lab/ramdisk-init.sh`) and sets `FERRITE_TEST_KERNEL` and
//! `FERRITE_TEST_RAMDISK`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use boot_media::boot_iso::{BootIso, NETWORK_DATA_PATH, system_partition};
use boot_media::uki::{EfiArchitecture, UkiParts, UkiStub};
use boot_media::{Content, ContentSegment, FileTree};

use crate::programs::{STUB, require_files, skip_or_fail, write_sparse};
use crate::ramdisk::CpioArchive;

const FIRMWARE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
const VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";
const TIMEOUT: &str = "/usr/bin/timeout";
const QEMU: &str = "qemu-system-x86_64";
/// Timeout of a boot in seconds; a boot takes about ten on two busy cores.
const BOOT_TIMEOUT_SECONDS: &str = "150";
const PARAMETERS: &str = "console=ttyS0 quiet ferrite.after=off";

#[test]
fn firmware_boots_an_iso_as_a_cd() {
    let Some(image) = image("CD boot") else { return };
    let mut files = FileTree::new();
    files.insert(NETWORK_DATA_PATH, Content::from(b"{\"links\":[]}".to_vec())).unwrap();
    files.insert("openstack/latest/meta_data.json", Content::from(b"{}".to_vec())).unwrap();
    let iso = iso(image, files);
    assert!(iso.length() > 40 << 20, "past the 32 MiB that El Torito can count");
    let serial_output =
        boot(&iso, &["-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=medium"]);
    expect_marks(&serial_output);
    for line in [
        "FERRITE-RAMDISK-CD-FILE ro /openstack/latest/network_data.json {\"links\":[]}",
        "FERRITE-RAMDISK-CD-FILE ro,norock /openstack/latest/meta_data.json {}",
    ] {
        assert!(serial_output.contains(line), "{line} not in {serial_output}");
    }
}

#[test]
fn firmware_boots_an_iso_as_a_stick_and_a_bare_partition() {
    let Some(image) = image("stick boot") else { return };
    let iso = iso(image, FileTree::new());
    expect_marks(&boot(&iso, &["-device", "virtio-blk-pci,drive=medium"]));
    let partition = system_partition(image, EfiArchitecture::X86_64).unwrap();
    expect_marks(&boot(&partition, &["-device", "virtio-blk-pci,drive=medium"]));
}

fn iso(image: &Content, files: FileTree) -> Content {
    BootIso { image, architecture: EfiArchitecture::X86_64, files, publisher: None }
        .layout()
        .unwrap()
}

fn expect_marks(serial_output: &str) {
    for line in [
        &format!("FERRITE-RAMDISK-PARAMETERS {PARAMETERS}"),
        "FERRITE-RAMDISK-ADDED /added/second archive",
        "FERRITE-RAMDISK-DONE",
    ] {
        assert!(serial_output.contains(line), "{line} not in {serial_output}");
    }
}

/// The image of both tests; `None` if a program or file is missing.
fn image(test: &str) -> Option<&'static Content> {
    static IMAGE: OnceLock<Content> = OnceLock::new();
    let here = require_files(test, "systemd-boot-efi", &[STUB])
        && require_files(test, "ovmf", &[FIRMWARE, VARIABLES])
        && require_files(test, "qemu-system-x86", &["/usr/bin/qemu-system-x86_64", TIMEOUT]);
    if !here {
        return None;
    }
    let made = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (Some(kernel), Some(ramdisk)) = (made("FERRITE_TEST_KERNEL"), made("FERRITE_TEST_RAMDISK"))
    else {
        skip_or_fail(test, "no kernel and ramdisk: `cargo xtask test` or `with-lab` makes them");
        return None;
    };
    Some(IMAGE.get_or_init(|| {
        let stub = UkiStub::parse(&std::fs::read(STUB).unwrap().into()).unwrap();
        let parts = UkiParts {
            kernel: Content::open(&kernel).unwrap(),
            ramdisks: vec![Content::open(&ramdisk).unwrap(), second_ramdisk()],
            command_line: PARAMETERS.to_owned(),
            os_release: "ID=ferrite\n".to_owned(),
            ..UkiParts::default()
        };
        stub.build(&parts).unwrap()
    }))
}

/// Large enough that the system partition exceeds 32 MiB.
fn second_ramdisk() -> Content {
    let mut large = Content::new();
    large.push(ContentSegment::Zeros(30 << 20));
    let mut archive = CpioArchive::new();
    archive.folder("added");
    archive.program("ballast", &large);
    archive.program("added/second", &Content::from(b"archive".to_vec()));
    archive.finish()
}

/// Returns the serial output of a machine until it powers off.
fn boot(medium: &Content, device: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let medium = write_sparse(folder.path(), "medium", medium);
    let variables = folder.path().join("variables");
    std::fs::copy(VARIABLES, &variables).unwrap();
    let mut command = Command::new(TIMEOUT);
    command.args([
        BOOT_TIMEOUT_SECONDS,
        QEMU,
        "-machine",
        "q35",
        "-cpu",
        "max",
        "-m",
        "512",
        "-nic",
        "none",
    ]);
    command.args(["-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot"]);
    command.arg("-drive").arg(format!("if=pflash,format=raw,unit=0,readonly=on,file={FIRMWARE}"));
    command.arg("-drive");
    command.arg(format!("if=pflash,format=raw,unit=1,file={}", variables.display()));
    command.arg("-drive");
    command.arg(format!("if=none,id=medium,format=raw,readonly=on,file={}", medium.display()));
    let output = command.args(device).output().unwrap();
    let serial_output = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert!(
        output.status.success(),
        "{}\n{serial_output}",
        String::from_utf8_lossy(&output.stderr)
    );
    serial_output
}
