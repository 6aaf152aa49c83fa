// SPDX-License-Identifier: Apache-2.0
//! TFTP clients of Debian, on the loopback interface of a space of their own.

use std::sync::Arc;

use boot_server::What;
use boot_server::tftp::{Folder, Outcome, Server, Services, Settings};

use super::lab::{Lab, Seen, Serving, ready, wall_clock};

/// 40,000 blocks and a bit at the ordinary block size.
const SIZE: usize = 20_480_123;

/// Serves a folder with `kernel` of that size, next to a secret.
pub(crate) fn serve(
    lab: &Lab,
    address: &str,
    interface: &str,
    size: usize,
    seen: &Arc<Seen>,
) -> Serving {
    let root = lab.folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let bytes: Vec<u8> = (0..size).map(|at| (at * 31 + at / 251) as u8).collect();
    std::fs::write(root.join("kernel"), bytes).unwrap();
    std::fs::write(lab.folder.path().join("secret"), "secret").unwrap();
    let services = Services {
        files: Arc::new(Folder::open(&root).unwrap()),
        sightings: seen.clone(),
        clock: wall_clock,
    };
    let mut settings = Settings::new(address.parse().unwrap());
    settings.interface = Some(interface.into());
    lab.serve("server", move || Server::bind(settings, services).unwrap().run())
}

fn check(program: &str, arguments: &[&str]) {
    if !ready(&[program, "ip"]) {
        return;
    }
    let lab = Lab::new(&["server"]);
    let seen = Arc::new(Seen::default());
    let _serving = serve(&lab, "127.0.0.1:69", "lo", SIZE, &seen);
    let (_, said) = lab.run("server", &[&[program], arguments].concat());
    let fetched = std::fs::read(lab.folder.path().join("fetched")).unwrap_or_default();
    let original = std::fs::read(lab.folder.path().join("root/kernel")).unwrap();
    assert!(fetched == original, "{} bytes of {SIZE}; {said}", fetched.len());
    let done = What::Tftp { file: "kernel".into(), outcome: Outcome::Done { bytes: SIZE as u64 } };
    seen.wait_for(&done);
}

#[test]
fn tftp_hpa_fetches_a_file() {
    check("tftp", &["-m", "binary", "127.0.0.1", "-c", "get", "kernel", "fetched"]);
}

#[test]
fn atftp_fetches_a_file_with_large_blocks() {
    check(
        "atftp",
        &[
            "--option",
            "blksize 1428",
            "--option",
            "tsize 0",
            "-g",
            "-r",
            "kernel",
            "-l",
            "fetched",
            "127.0.0.1",
        ],
    );
}

#[test]
fn atftp_fetches_a_file_with_a_window() {
    check(
        "atftp",
        &[
            "--option",
            "windowsize 8",
            "--option",
            "blksize 1428",
            "-g",
            "-r",
            "kernel",
            "-l",
            "fetched",
            "127.0.0.1",
        ],
    );
}

#[test]
fn curl_fetches_a_file_and_cannot_leave_the_folder() {
    check("curl", &["-sS", "-o", "fetched", "tftp://127.0.0.1/kernel"]);
    if !ready(&["curl", "ip"]) {
        return;
    }
    let lab = Lab::new(&["server"]);
    let seen = Arc::new(Seen::default());
    let _serving = serve(&lab, "127.0.0.1:69", "lo", SIZE, &seen);
    for name in ["../secret", "%2e%2e/secret", "/../secret", "kernel/../../secret"] {
        let url = format!("tftp://127.0.0.1/{name}");
        let (succeeded, said) = lab.run("server", &["curl", "--path-as-is", "-sS", &url]);
        assert!(!succeeded && !said.contains("secret"), "{name}: {said}");
    }
}
