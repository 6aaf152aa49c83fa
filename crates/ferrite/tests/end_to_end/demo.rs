// SPDX-License-Identifier: Apache-2.0
//! `ferrite demo`, as somebody sees it who has just built the program.

use crate::ferrite::{ferrite, output_of};

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
        (["--listen", "0.0.0.0:0"], "an address that the simulated machines can call"),
        (["--speed", "0"], "is not a number above 0"),
    ] {
        let output = output_of(ferrite().args(["demo", "--once"]).args(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(complained.contains(why), "{arguments:?}: {complained}");
    }
}
