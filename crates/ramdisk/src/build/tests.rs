// SPDX-License-Identifier: Apache-2.0
//! Whole ramdisks from small parts.

use super::*;
use crate::expand::expanded;
use crate::fixtures;

struct Kitchen {
    folder: tempfile::TempDir,
    recipe: Recipe,
}

fn kitchen() -> Kitchen {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("agent"), fixtures::program(None, &[])).unwrap();
    fs::write(at("vmlinuz"), fixtures::kernel("6.1.0-test")).unwrap();
    fixtures::modules(
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
    let recipe = Recipe {
        kernel: KernelSource::Files { kernel: at("vmlinuz"), modules: at("6.1.0-test") },
        drivers: Drivers::Virtual,
        agent: at("agent"),
        modules: Vec::new(),
        firmware: vec![at("firmware")],
        usual_programs: false,
        programs: Vec::new(),
        certificates: Vec::new(),
        managers: Vec::new(),
        files: Vec::new(),
        output: at("out"),
        packages: at("packages"),
    };
    Kitchen { folder, recipe }
}

/// The names in a ramdisk.
fn names(ramdisk: Vec<u8>) -> Vec<String> {
    let archive = expanded(ramdisk).unwrap();
    let mut names = Vec::new();
    let mut rest = archive.as_slice();
    while !rest.is_empty() {
        let field = |number: usize| {
            let text = str::from_utf8(&rest[6 + number * 8..14 + number * 8]).unwrap();
            usize::from_str_radix(text, 16).unwrap()
        };
        let (size, name) = (field(6), field(11));
        names.push(str::from_utf8(&rest[110..110 + name - 1]).unwrap().to_owned());
        rest = &rest[(110 + name).next_multiple_of(4) + size.next_multiple_of(4)..];
    }
    names
}

#[test]
fn a_ramdisk_has_what_was_asked_for() {
    let Kitchen { folder, mut recipe } = kitchen();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("ca.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    fs::write(at("vendor"), "#!/bin/sh\necho\n").unwrap();
    recipe.certificates = vec![at("ca.pem")];
    recipe.managers = vec![at("vendor")];
    recipe.files = vec![ExtraFile { source: at("ca.pem"), destination: "/etc/motd".to_owned() }];
    recipe.modules = vec!["sound/".to_owned()];
    let manifest = build(&recipe).unwrap();
    let names = names(fs::read(at("out/ramdisk")).unwrap());
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
fn the_same_inputs_give_the_same_bytes() {
    let Kitchen { folder, mut recipe } = kitchen();
    let first = build(&recipe).unwrap();
    recipe.output = folder.path().join("again");
    assert_eq!(first, build(&recipe).unwrap());
    for name in [KERNEL, RAMDISK, MANIFEST] {
        let read = |output: &str| fs::read(folder.path().join(output).join(name)).unwrap();
        assert_eq!(read("out"), read("again"), "{name}");
    }
}

#[test]
fn a_failure_leaves_what_was_there() {
    let Kitchen { folder, recipe } = kitchen();
    build(&recipe).unwrap();
    let before = fs::read(folder.path().join("out/ramdisk")).unwrap();
    let dynamic = fixtures::program(Some("/lib64/ld.so"), &["libc.so.6"]);
    fs::write(&recipe.agent, dynamic).unwrap();
    let error = build(&recipe).unwrap_err();
    assert!(error.to_string().contains("give a static build of ferrite-agent"), "{error}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "it is not static: it needs /lib64/ld.so");
    assert_eq!(fs::read(folder.path().join("out/ramdisk")).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path().join("out")).unwrap().count(), 3);
}

#[test]
fn mistakes_are_told_before_anything_is_done() {
    let Kitchen { folder, recipe } = kitchen();
    let at = |name: &str| folder.path().join(name);
    let check = |change: &dyn Fn(&mut Recipe), expected: &str| {
        let mut recipe = recipe.clone();
        change(&mut recipe);
        let error = build(&recipe).unwrap_err();
        let mut told = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            told += &format!(": {error}");
            cause = error.source();
        }
        assert!(told.contains(expected), "{told}");
    };
    check(&|recipe| recipe.agent = at("none"), "say with --agent where it is");
    check(&|recipe| recipe.agent = at("vmlinuz"), "no whole 64-bit ELF file");
    check(&|recipe| recipe.certificates = vec![at("agent")], "holds no certificate in PEM");
    check(&|recipe| recipe.managers = vec![at("none")], "none cannot be read");
    let odd = ExtraFile { source: at("agent"), destination: "/init/../x".to_owned() };
    check(&|recipe| recipe.files = vec![odd.clone()], "is no place in a ramdisk");
    let files = |kernel: &str, modules: &str| KernelSource::Files {
        kernel: at(kernel),
        modules: at(modules),
    };
    check(&|recipe| recipe.kernel = files("none", "6.1.0-test"), "none cannot be read");
    check(
        &|recipe| recipe.kernel = files("firmware/net.bin", "6.1.0-test"),
        "net.bin is no kernel",
    );
    check(&|recipe| recipe.kernel = files("vmlinuz", "firmware"), "holds no kernel modules");
    assert!(!at("out").exists());
}
