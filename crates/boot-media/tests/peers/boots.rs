// SPDX-License-Identifier: Apache-2.0
//! OVMF boots what we lay out, and the kernel in it finds its parameters, its ramdisks and its
//! files.
//!
//! Needs a Debian kernel with its modules: `FERRITE_TEST_KERNEL` names it (modules are looked for
//! in `../lib/modules` next to it), or one is found in `/boot`.

use std::path::{Path, PathBuf};
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
const BUSYBOX: &str = "/bin/busybox";
/// Seconds until a boot counts as failed; a good one takes about ten on two busy cores.
const PATIENCE: &str = "150";
/// What a Debian kernel needs to read a CD on virtio, in this order.
const MODULES: [&str; 11] = [
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "drivers/scsi/scsi_common.ko",
    "drivers/scsi/scsi_mod.ko",
    "drivers/scsi/virtio_scsi.ko",
    "drivers/cdrom/cdrom.ko",
    "drivers/scsi/sr_mod.ko",
    "fs/isofs/isofs.ko",
];
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t devtmpfs dev /dev
echo "MARK parameters $(cat /proc/cmdline)"
echo "MARK second $(cat /second)"
for module in /modules/*; do insmod $module; done
tries=0
while [ ! -b /dev/sr0 ] && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries+1)); done
for options in ro ro,norock; do
  if mount -t iso9660 -o $options /dev/sr0 /mnt; then
    (cd /mnt; find . -name '*.json' | while read -r file; do echo "MARK $options $file $(cat $file)"; done)
    umount /mnt
  fi
done
echo "MARK end"
poweroff -f
"#;

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
        "MARK ro ./openstack/latest/network_data.json {\"links\":[]}",
        "MARK ro,norock ./openstack/latest/meta_data.json {}",
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
    for line in ["MARK parameters console=ttyS0 quiet ferrite=1", "MARK second archive", "MARK end"]
    {
        assert!(said.contains(line), "{line} not in {said}");
    }
}

/// The image both tests boot, or nothing where something is missing.
fn image(test: &str) -> Option<&'static Content> {
    static IMAGE: OnceLock<Content> = OnceLock::new();
    let here = present(test, "systemd-boot-efi", &[STUB])
        && present(test, "ovmf", &[FIRMWARE, VARIABLES])
        && present(test, "qemu-system-x86", &["/usr/bin/qemu-system-x86_64", TIMEOUT])
        && present(test, "busybox-static", &[BUSYBOX]);
    if !here {
        return None;
    }
    let Some(kernel) = kernel() else {
        absent(test, "no kernel: install linux-image-cloud-amd64 or set FERRITE_TEST_KERNEL");
        return None;
    };
    Some(IMAGE.get_or_init(|| {
        let stub = Stub::parse(&std::fs::read(STUB).unwrap().into()).unwrap();
        let parts = Parts {
            kernel: Content::open(&kernel).unwrap(),
            ramdisks: vec![first_ramdisk(&kernel), second_ramdisk()],
            command_line: "console=ttyS0 quiet ferrite=1".to_owned(),
            os_release: "ID=ferrite\n".to_owned(),
            ..Parts::default()
        };
        stub.build(&parts).unwrap()
    }))
}

fn first_ramdisk(kernel: &Path) -> Content {
    let mut archive = Archive::new();
    for folder in ["bin", "dev", "mnt", "modules", "proc"] {
        archive.folder(folder);
    }
    archive.program("init", &Content::from(INIT.as_bytes().to_vec()));
    archive.program("bin/busybox", &Content::open(BUSYBOX.as_ref()).unwrap());
    let name = kernel.file_name().unwrap().to_str().unwrap();
    let version = name.trim_start_matches("vmlinuz-");
    let modules = kernel.parent().unwrap().join("../lib/modules").join(version).join("kernel");
    for (index, module) in MODULES.iter().enumerate() {
        // One that is not there is built in.
        if let Ok(content) = Content::open(&modules.join(module)) {
            archive.program(&format!("modules/{index:02}.ko"), &content);
        }
    }
    archive.finish()
}

/// Large, so that the system partition is past 32 MiB.
fn second_ramdisk() -> Content {
    let mut large = Content::new();
    large.push(Segment::Zeros(30 << 20));
    let mut archive = Archive::new();
    archive.program("ballast", &large);
    archive.program("second", &Content::from(b"archive".to_vec()));
    archive.finish()
}

fn kernel() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("FERRITE_TEST_KERNEL") {
        return Some(PathBuf::from(path));
    }
    let entries = std::fs::read_dir("/boot").ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains("/vmlinuz-")).max()
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
