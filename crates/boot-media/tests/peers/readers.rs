// SPDX-License-Identifier: Apache-2.0
//! Volumes and images as read by mtools, fsck.fat, xorriso, isoinfo and objdump.

use boot_media::boot_iso::{BootIso, NETWORK_DATA_PATH};
use boot_media::config_drive::{ConfigDrive, ConfigDriveOwner};
use boot_media::uki::{UkiParts, UkiStub};
use boot_media::{Content, ContentSegment, FileTree, fat, parameter_floppy};
use serde_json::json;

use crate::programs::{STUB, require_files, run, write_sparse};

const FSCK: &str = "/usr/sbin/fsck.fat";
const MTOOLS: [&str; 2] = ["/usr/bin/mtype", "/usr/bin/mdir"];
/// The program by which udev and the agent identify a medium; part of util-linux.
const BLKID: &str = "/usr/sbin/blkid";
const XORRISO: &str = "/usr/bin/xorriso";
const ISOINFO: &str = "/usr/bin/isoinfo";

fn zeros(length: u64) -> Content {
    let mut content = Content::new();
    content.push(ContentSegment::Zeros(length));
    content
}

#[test]
fn fsck_and_mtools_accept_volumes() {
    let test = "FAT volumes";
    if !require_files(test, "dosfstools", &[FSCK]) || !require_files(test, "mtools", &MTOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sizes = [
        ("fat12", 0, fat::FatSize::Exact(1440 * 1024)),
        ("fat16", 60 << 20, fat::FatSize::Fitting),
        ("fat16 exactly", 30 << 20, fat::FatSize::Exact(64 << 20)),
        ("fat32", 3 << 30, fat::FatSize::Fitting),
    ];
    for (name, largest, size) in sizes {
        let mut files = FileTree::new();
        files.insert("EFI/BOOT/BOOTX64.EFI", zeros(largest)).unwrap();
        files.insert("openstack/latest/network_data.json", Content::from(b"{}".to_vec())).unwrap();
        for number in 0..40 {
            let path = format!("etc/ironic-python-agent.d/a rather long name {number}.conf");
            files.insert(&path, Content::from(format!("number {number}").into_bytes())).unwrap();
        }
        let volume = fat::layout("Ferrite-1", &files, size).unwrap();
        let path = write_sparse(folder.path(), name, &volume);
        let path = path.to_str().unwrap();
        // -n changes nothing; the exit code is 1 if the volume has errors.
        let report = run(FSCK, &["-n", "-v", path]);
        // The label and six folders count as files.
        assert!(report.contains(" 49 files"), "{name}: {report}");
        let text =
            run("mtype", &["-i", path, "::etc/ironic-python-agent.d/a rather long name 39.conf"]);
        assert_eq!(text, "number 39", "{name}");
        let listing = run("mdir", &["-i", path, "-b", "-/", "::"]);
        assert!(listing.contains("EFI/BOOT/BOOTX64.EFI"), "{name}: {listing}");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn mtools_reads_the_parameter_floppy() {
    if !require_files("parameter floppy", "mtools", &MTOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = parameter_floppy::layout(&[("a", "b"), ("c", "d e")], FileTree::new()).unwrap();
    let path = write_sparse(folder.path(), "floppy", &volume);
    let path = path.to_str().unwrap();
    assert_eq!(run("mtype", &["-i", path, "::parameters.txt"]), "a=b\nc=d e");
    let seen = run(BLKID, &["-p", path]);
    assert!(seen.contains(r#"LABEL="ir-vfd-dev""#) && seen.contains(r#"TYPE="vfat""#), "{seen}");
}

#[test]
fn xorriso_and_isoinfo_read_a_config_drive() {
    let test = "config drive";
    if !require_files(test, "xorriso", &[XORRISO])
        || !require_files(test, "genisoimage", &[ISOINFO])
    {
        return;
    }
    let value = json!({"user_data": "#cloud-config\n", "network_data": {"links": [1]}});
    let Ok(Some(ConfigDrive::Parts(parts))) = ConfigDrive::parse(&value) else {
        panic!("not parts")
    };
    let image = parts.build(ConfigDriveOwner { uuid: "u-u-i-d", name: None }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = write_sparse(folder.path(), "config-2.iso", &image);
    let path = path.to_str().unwrap();

    let names = "/openstack/2012-08-10/meta_data.json /openstack/2012-08-10/network_data.json \
        /openstack/2012-08-10/user_data /openstack/latest/meta_data.json \
        /openstack/latest/network_data.json /openstack/latest/user_data";
    for tree in ["-R", "-J"] {
        let found = run(ISOINFO, &["-f", tree, "-i", path]);
        let files: Vec<&str> = found.lines().filter(|line| names.contains(*line)).collect();
        assert!(names.split_whitespace().all(|name| files.contains(&name)), "{tree}: {found}");
        let text = run(ISOINFO, &["-i", path, tree, "-x", "/openstack/latest/user_data"]);
        assert_eq!(text, "#cloud-config\n");
    }
    let extracted = folder.path().join("out");
    run(XORRISO, &["-osirrox", "on", "-indev", path, "-extract", "/", extracted.to_str().unwrap()]);
    let read =
        |name: &str| std::fs::read_to_string(extracted.join("openstack").join(name)).unwrap();
    assert_eq!(read("latest/meta_data.json"), r#"{"uuid":"u-u-i-d"}"#);
    assert_eq!(read("2012-08-10/network_data.json"), r#"{"links":[1]}"#);
    let described = run(ISOINFO, &["-d", "-i", path]);
    assert!(
        described.contains("Volume id: config-2") && described.contains("Rock Ridge"),
        "{described}"
    );
}

#[test]
fn objdump_and_xorriso_read_a_boot_iso_of_the_real_stub() {
    let test = "boot ISO";
    if !require_files(test, "systemd-boot-efi", &[STUB])
        || !require_files(test, "binutils", &["/usr/bin/objdump"])
        || !require_files(test, "xorriso", &[XORRISO])
    {
        return;
    }
    let stub = UkiStub::parse(&std::fs::read(STUB).unwrap().into()).unwrap();
    let parts = UkiParts {
        // Any EFI application can serve as the kernel, since it is not started.
        kernel: Content::open(STUB.as_ref()).unwrap(),
        ramdisks: vec![zeros(60 << 20)],
        command_line: "console=ttyS0".to_owned(),
        os_release: "ID=ferrite\n".to_owned(),
        kernel_version: "6.1.0".to_owned(),
        extra_sections: Vec::new(),
    };
    let image = stub.build(&parts).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let uki = write_sparse(folder.path(), "uki.efi", &image);
    let sections = run("/usr/bin/objdump", &["-h", uki.to_str().unwrap()]);
    for section in [".text", ".sdmagic", ".osrel", ".uname", ".cmdline", ".initrd", ".linux"] {
        assert!(sections.contains(section), "{section}: {sections}");
    }

    let mut files = FileTree::new();
    files.insert(NETWORK_DATA_PATH, Content::from(b"{}".to_vec())).unwrap();
    let publisher = Some("5d2cbe43-31a7-4d3b-a7a9-5c0c8cd0a2b6");
    let architecture = stub.architecture();
    let iso = BootIso { image: &image, architecture, files, publisher }.layout().unwrap();
    let path = write_sparse(folder.path(), "boot.iso", &iso);
    let path = path.to_str().unwrap();
    let report = run(XORRISO, &["-indev", path, "-report_el_torito", "plain", "-pvd_info"]);
    assert!(report.contains("UEFI") && report.contains("/boot/efiboot.img"), "{report}");
    let seen = run(BLKID, &["-p", path]);
    let expected =
        [r#"LABEL="config-2""#, r#"PUBLISHER_ID="5d2cbe43-31a7-4d3b-a7a9-5c0c8cd0a2b6""#];
    assert!(expected.iter().all(|text| seen.contains(text)), "{seen}");
}
