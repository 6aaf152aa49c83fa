// SPDX-License-Identifier: Apache-2.0
//! `ferrite demo`.

use crate::netboot::boot_site::path_from_env;
use crate::real_bmcs::lab::LabInventory;
use crate::test_process::{ferrite, output_of};

#[test]
fn deploys_all_machines_and_removes_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = ferrite();
    // Faster than the default.
    demo.args(["demo", "--once", "--speed", "100", "--listen", "127.0.0.1:0"]);
    let output = output_of(demo.env("TMPDIR", folder.path()));
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("12 of 12 machines were enrolled, inspected, cleaned"), "{stdout}");
    assert!(
        stdout.contains("rack1-u12  active"),
        "one line per state change without a terminal: {stdout}"
    );
    assert!(!stdout.contains('\x1b'), "{stdout}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the temporary folder was removed");
}

#[test]
fn rejects_invalid_arguments() {
    for (arguments, why) in [
        (["--machines", "0"], "1..=1000"),
        (["--listen", "0.0.0.0:0"], "an address that machines can connect to"),
        (["--speed", "0"], "use a number above 0"),
        (["--vms", "9"], "1..=8"),
        (["--vms=1", "--machines=1"], "cannot be used with"),
        (["--ramdisk", "here"], "--vms"),
    ] {
        let output = output_of(ferrite().args(["demo", "--once"]).args(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(why), "{arguments:?}: {stderr}");
    }
}

/// With the agent ramdisk of the lab, but on QEMU's user-mode network.
#[test]
fn deploys_a_qemu_machine_that_boots_from_its_disk() {
    let Some(_lab) = LabInventory::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let kernel = path_from_env("FERRITE_TEST_AGENT_KERNEL");
    let mut demo = ferrite();
    demo.args(["demo", "--vms", "1", "--once", "--listen", "127.0.0.1:0", "--ramdisk"]);
    let output = output_of(demo.arg(kernel.parent().unwrap()).env("TMPDIR", folder.path()));
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("1 of 1 machines were enrolled, inspected, cleaned"), "{stdout}");
    assert!(
        stdout.contains("rack1-u01 console: This system was deployed by Ferrite"),
        "no greeting on the console: {stdout}"
    );
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the temporary folder was removed");
}

#[test]
fn reports_missing_requirements_of_qemu_machines() {
    let folder = tempfile::tempdir().unwrap();
    let error_with_path = |path: &str| {
        let mut demo = ferrite();
        demo.args(["demo", "--vms", "1", "--once", "--ramdisk"]).arg(folder.path());
        demo.env("PATH", path).env("TMPDIR", folder.path());
        let output = output_of(&mut demo);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let without_programs = error_with_path("");
    for expected in ["qemu-system-x86_64", "apt-get install qemu-system-x86 ovmf"] {
        assert!(without_programs.contains(expected), "{without_programs}");
    }
    if LabInventory::find().is_some() {
        let without_ramdisk = error_with_path(&std::env::var("PATH").unwrap());
        for expected in ["--bin ferrite-agent", "ramdisk build", "--ramdisk"] {
            assert!(without_ramdisk.contains(expected), "{without_ramdisk}");
        }
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the temporary folder was removed");
}
