// SPDX-License-Identifier: Apache-2.0
//! Builds of whole ramdisks from small inputs.

use super::*;
use crate::decompress::decompress;
use crate::fixtures;

struct BuildFixture {
    folder: tempfile::TempDir,
    spec: RamdiskSpec,
}

fn build_fixture() -> BuildFixture {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("agent"), fixtures::elf_program(None, &[])).unwrap();
    fs::write(at("vmlinuz"), fixtures::kernel_image("6.1.0-test")).unwrap();
    fixtures::write_modules(
        &at("6.1.0-test"),
        &[
            ("drivers/scsi/sd_mod.ko", &["depends=scsi_mod"]),
            ("drivers/scsi/scsi_mod.ko", &[]),
            ("drivers/net/virtio_net.ko", &["alias=virtio:d1*", "firmware=net.bin"]),
            ("sound/beep.ko", &[]),
        ],
        &[],
    );
    fs::create_dir(at("firmware")).unwrap();
    fs::write(at("firmware/net.bin"), "blob").unwrap();
    let spec = RamdiskSpec {
        kernel: KernelSource::Files { kernel: at("vmlinuz"), modules: at("6.1.0-test") },
        drivers: DriverProfile::Virtual,
        agent: at("agent"),
        modules: Vec::new(),
        firmware: vec![at("firmware")],
        default_programs: false,
        programs: Vec::new(),
        certificates: Vec::new(),
        managers: Vec::new(),
        files: Vec::new(),
        output: at("out"),
        packages: at("packages"),
    };
    BuildFixture { folder, spec }
}

/// Returns the paths in a ramdisk.
fn archive_names(ramdisk: Vec<u8>) -> Vec<String> {
    let archive = decompress(ramdisk).unwrap();
    let mut names = Vec::new();
    let mut rest = archive.as_slice();
    loop {
        let reader = cpio::newc::Reader::new(rest).unwrap();
        if reader.entry().is_trailer() {
            return names;
        }
        names.push(reader.entry().name().to_owned());
        rest = reader.finish().unwrap();
    }
}

#[test]
fn ramdisk_contains_requested_files() {
    let BuildFixture { folder, mut spec } = build_fixture();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("ca.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    fs::write(at("vendor"), "#!/bin/sh\necho\n").unwrap();
    spec.certificates = vec![at("ca.pem")];
    spec.managers = vec![at("vendor")];
    spec.files = vec![ExtraFile { source: at("ca.pem"), destination: "/etc/motd".to_owned() }];
    spec.modules = vec!["sound/".to_owned()];
    let manifest = build(&spec).unwrap();
    let names = archive_names(fs::read(at("out/ramdisk")).unwrap());
    for name in [
        "init",
        "dev/console",
        "dev/null",
        "etc/group",
        "etc/motd",
        "etc/passwd",
        "etc/ssl/certs/ca-certificates.crt",
        "lib/firmware/net.bin",
        "lib/modules/6.1.0-test/ferrite.order",
        "lib/modules/6.1.0-test/kernel/drivers/net/virtio_net.ko.zst",
        "lib/modules/6.1.0-test/kernel/drivers/scsi/scsi_mod.ko.zst",
        "lib/modules/6.1.0-test/kernel/sound/beep.ko.zst",
        "lib/modules/6.1.0-test/modules.alias",
        "lib/modules/6.1.0-test/modules.dep",
        "lib/modules/6.1.0-test/modules.softdep",
        "usr/lib/ferrite/managers/vendor",
    ] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
    assert_eq!(manifest.load_first, ["scsi_mod", "sd_mod"]);
    assert_eq!(manifest.modules, ["beep", "scsi_mod", "sd_mod", "virtio_net"]);
    assert_eq!(manifest.missing.interpreters["vendor"], "/bin/sh");
    assert!(manifest.missing.modules.contains(&"virtio_blk".to_owned()));
    let found = crate::find(&at("out")).unwrap();
    assert_eq!(found.manifest, Some(manifest));
}

#[test]
fn builds_are_reproducible() {
    let BuildFixture { folder, mut spec } = build_fixture();
    let first = build(&spec).unwrap();
    spec.output = folder.path().join("again");
    assert_eq!(first, build(&spec).unwrap());
    for name in [KERNEL, RAMDISK, MANIFEST] {
        let read = |output: &str| fs::read(folder.path().join(output).join(name)).unwrap();
        assert_eq!(read("out"), read("again"), "{name}");
    }
}

#[test]
fn failed_build_keeps_previous_output() {
    let BuildFixture { folder, spec } = build_fixture();
    build(&spec).unwrap();
    let before = fs::read(folder.path().join("out/ramdisk")).unwrap();
    let dynamic = fixtures::elf_program(Some("/lib64/ld.so"), &["libc.so.6"]);
    fs::write(&spec.agent, dynamic).unwrap();
    let error = build(&spec).unwrap_err();
    assert!(error.to_string().contains("give a static build of ferrite-agent"), "{error}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "not a static program: it needs /lib64/ld.so");
    assert_eq!(fs::read(folder.path().join("out/ramdisk")).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path().join("out")).unwrap().count(), 3);
}

#[test]
fn invalid_inputs_fail_before_output_is_written() {
    let BuildFixture { folder, spec } = build_fixture();
    let at = |name: &str| folder.path().join(name);
    let check = |change: &dyn Fn(&mut RamdiskSpec), expected: &str| {
        let mut spec = spec.clone();
        change(&mut spec);
        let error = build(&spec).unwrap_err();
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            message += &format!(": {error}");
            cause = error.source();
        }
        assert!(message.contains(expected), "{message}");
    };
    check(&|spec| spec.agent = at("none"), "give its path with --agent");
    check(&|spec| spec.agent = at("vmlinuz"), "not a valid 64-bit ELF file");
    check(&|spec| spec.certificates = vec![at("agent")], "contains no PEM certificate");
    check(&|spec| spec.managers = vec![at("none")], "/none: ");
    let invalid = ExtraFile { source: at("agent"), destination: "/init/../x".to_owned() };
    check(&|spec| spec.files = vec![invalid.clone()], "is not a valid path in a ramdisk");
    let files = |kernel: &str, modules: &str| KernelSource::Files {
        kernel: at(kernel),
        modules: at(modules),
    };
    check(&|spec| spec.kernel = files("none", "6.1.0-test"), "/none: ");
    check(&|spec| spec.kernel = files("firmware/net.bin", "6.1.0-test"), "net.bin is not a kernel");
    check(&|spec| spec.kernel = files("vmlinuz", "firmware"), "contains no kernel modules");
    assert!(!at("out").exists());
}
