// SPDX-License-Identifier: Apache-2.0
//! `ferrite demo`, as somebody sees it who has just built the program.

use crate::boots::site::named_in;
use crate::ferrite::{ferrite, output_of};
use crate::real_bmcs::lab::Lab;

#[test]
fn a_rack_is_deployed_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = ferrite();
    // Faster machines than it usually shows.
    demo.args(["demo", "--once", "--speed", "100", "--listen", "127.0.0.1:0"]);
    let output = output_of(demo.env("TMPDIR", folder.path()));
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    assert!(said.contains("12 of 12 machines were enrolled, inspected, cleaned"), "{said}");
    assert!(
        said.contains("rack1-u12  active"),
        "where there is no terminal, lines tell it: {said}"
    );
    assert!(!said.contains('\x1b'), "{said}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the folder of the demonstration");
}

#[test]
fn what_cannot_be_shown_is_explained() {
    for (arguments, why) in [
        (["--machines", "0"], "1..=1000"),
        (["--listen", "0.0.0.0:0"], "an address that the machines can call"),
        (["--speed", "0"], "is not a number above 0"),
        (["--vms", "9"], "1..=8"),
        (["--vms=1", "--machines=1"], "cannot be used with"),
        (["--ramdisk", "here"], "--vms"),
    ] {
        let output = output_of(ferrite().args(["demo", "--once"]).args(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(complained.contains(why), "{arguments:?}: {complained}");
    }
}

/// With the agent and the ramdisk that the lab's machines boot, but on QEMU's own network.
#[test]
fn a_qemu_machine_is_deployed_and_boots_from_its_disk() {
    let Some(_lab) = Lab::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let kernel = named_in("FERRITE_TEST_AGENT_KERNEL");
    let mut demo = ferrite();
    demo.args(["demo", "--vms", "1", "--once", "--listen", "127.0.0.1:0", "--ramdisk"]);
    let output = output_of(demo.arg(kernel.parent().unwrap()).env("TMPDIR", folder.path()));
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    assert!(said.contains("1 of 1 machines were enrolled, inspected, cleaned"), "{said}");
    assert!(
        said.contains("rack1-u01 says: This system was deployed by Ferrite"),
        "what it says on its console is what is believed: {said}"
    );
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the folder of the demonstration");
}

#[test]
fn what_qemu_machines_need_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let complaint = |path: &str| {
        let mut demo = ferrite();
        demo.args(["demo", "--vms", "1", "--once", "--ramdisk"]).arg(folder.path());
        demo.env("PATH", path).env("TMPDIR", folder.path());
        let output = output_of(&mut demo);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let without_programs = complaint("");
    for expected in ["qemu-system-x86_64", "apt-get install qemu-system-x86 ovmf"] {
        assert!(without_programs.contains(expected), "{without_programs}");
    }
    if Lab::find().is_some() {
        let without_ramdisk = complaint(&std::env::var("PATH").unwrap());
        for expected in ["--bin ferrite-agent", "ramdisk build", "--ramdisk"] {
            assert!(without_ramdisk.contains(expected), "{without_ramdisk}");
        }
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the folder of the demonstration");
}
