// SPDX-License-Identifier: Apache-2.0
//! OVMF boots what we lay out, and the kernel in it finds its parameters, its ramdisks and its
//! files.
//!
//! Needs a kernel and a ramdisk that says on the serial line what it finds: `cargo xtask test` makes
//! both (see `xtask/lab/ramdisk-init.sh`) and names them in `FERRITE_TEST_KERNEL` and
//! `FERRITE_TEST_RAMDISK`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use boot_media::boot_iso::{BootIso, NETWORK_DATA_PATH, system_partition};
use boot_media::uki::{Architecture, Parts, Stub};
use boot_media::{Content, FileTree, Segment};

use crate::programs::{STUB, absent, on_disk, present};
use crate::ramdisk::Archive;

const FIRMWARE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
const VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";
const TIMEOUT: &str = "/usr/bin/timeout";
const QEMU: &str = "qemu-system-x86_64";
/// Seconds until a boot counts as failed; a good one takes about ten on two busy cores.
const PATIENCE: &str = "150";
const PARAMETERS: &str = "console=ttyS0 quiet ferrite.after=off";

#[test]
fn firmware_boots_an_iso_as_a_cd() {
    let Some(image) = image("CD boot") else { return };
    let mut files = FileTree::new();
    files.insert(NETWORK_DATA_PATH, Content::from(b"{\"links\":[]}".to_vec())).unwrap();
    files.insert("openstack/latest/meta_data.json", Content::from(b"{}".to_vec())).unwrap();
    let iso = iso(image, files);
    assert!(iso.length() > 40 << 20, "past the 32 MiB that El Torito can count");
    let said = boot(&iso, &["-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=medium"]);
    expect_marks(&said);
    for line in [
        "FERRITE-RAMDISK-CD-FILE ro /openstack/latest/network_data.json {\"links\":[]}",
        "FERRITE-RAMDISK-CD-FILE ro,norock /openstack/latest/meta_data.json {}",
    ] {
        assert!(said.contains(line), "{line} not in {said}");
    }
}

#[test]
fn firmware_boots_an_iso_as_a_stick_and_a_bare_partition() {
    let Some(image) = image("stick boot") else { return };
    let iso = iso(image, FileTree::new());
    expect_marks(&boot(&iso, &["-device", "virtio-blk-pci,drive=medium"]));
    let partition = system_partition(image, Architecture::X86_64).unwrap();
    expect_marks(&boot(&partition, &["-device", "virtio-blk-pci,drive=medium"]));
}

fn iso(image: &Content, files: FileTree) -> Content {
    BootIso { image, architecture: Architecture::X86_64, files, publisher: None }.layout().unwrap()
}

fn expect_marks(said: &str) {
    for line in [
        &format!("FERRITE-RAMDISK-PARAMETERS {PARAMETERS}"),
        "FERRITE-RAMDISK-ADDED /added/second archive",
        "FERRITE-RAMDISK-DONE",
    ] {
        assert!(said.contains(line), "{line} not in {said}");
    }
}

/// The image both tests boot, or nothing where something is missing.
fn image(test: &str) -> Option<&'static Content> {
    static IMAGE: OnceLock<Content> = OnceLock::new();
    let here = present(test, "systemd-boot-efi", &[STUB])
        && present(test, "ovmf", &[FIRMWARE, VARIABLES])
        && present(test, "qemu-system-x86", &["/usr/bin/qemu-system-x86_64", TIMEOUT]);
    if !here {
        return None;
    }
    let made = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (Some(kernel), Some(ramdisk)) = (made("FERRITE_TEST_KERNEL"), made("FERRITE_TEST_RAMDISK"))
    else {
        absent(test, "no kernel and ramdisk: `cargo xtask test` or `with-lab` makes them");
        return None;
    };
    Some(IMAGE.get_or_init(|| {
        let stub = Stub::parse(&std::fs::read(STUB).unwrap().into()).unwrap();
        let parts = Parts {
            kernel: Content::open(&kernel).unwrap(),
            ramdisks: vec![Content::open(&ramdisk).unwrap(), second_ramdisk()],
            command_line: PARAMETERS.to_owned(),
            os_release: "ID=ferrite\n".to_owned(),
            ..Parts::default()
        };
        stub.build(&parts).unwrap()
    }))
}

/// Large, so that the system partition is past 32 MiB.
fn second_ramdisk() -> Content {
    let mut large = Content::new();
    large.push(Segment::Zeros(30 << 20));
    let mut archive = Archive::new();
    archive.folder("added");
    archive.program("ballast", &large);
    archive.program("added/second", &Content::from(b"archive".to_vec()));
    archive.finish()
}

/// What a machine says on its serial line until it switches itself off.
fn boot(medium: &Content, device: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let medium = on_disk(folder.path(), "medium", medium);
    let variables = folder.path().join("variables");
    std::fs::copy(VARIABLES, &variables).unwrap();
    let mut command = Command::new(TIMEOUT);
    command.args([PATIENCE, QEMU, "-machine", "q35", "-cpu", "max", "-m", "512", "-nic", "none"]);
    command.args(["-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot"]);
    command.arg("-drive").arg(format!("if=pflash,format=raw,unit=0,readonly=on,file={FIRMWARE}"));
    command.arg("-drive");
    command.arg(format!("if=pflash,format=raw,unit=1,file={}", variables.display()));
    command.arg("-drive");
    command.arg(format!("if=none,id=medium,format=raw,readonly=on,file={}", medium.display()));
    let output = command.args(device).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stderr));
    said
}
