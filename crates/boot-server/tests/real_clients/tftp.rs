// SPDX-License-Identifier: Apache-2.0
//! TFTP clients of Debian, on the loopback interface of a namespace.

use std::sync::Arc;

use boot_server::BootEventDetail;
use boot_server::tftp::{ServedDirectory, TftpOutcome, TftpServer, TftpServices, TftpSettings};

use super::lab::{NetworkLab, RecordedEvents, RunningServer, ready, wall_clock};

/// 40,000 blocks of the default size and a part of one.
const SIZE: usize = 20_480_123;

/// Serves a directory with a `kernel` of this size, next to a secret.
pub(crate) fn serve(
    lab: &NetworkLab,
    address: &str,
    interface: &str,
    size: usize,
    events: &Arc<RecordedEvents>,
) -> RunningServer {
    let root = lab.directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let bytes: Vec<u8> = (0..size).map(|at| (at * 31 + at / 251) as u8).collect();
    std::fs::write(root.join("kernel"), bytes).unwrap();
    std::fs::write(lab.directory.path().join("secret"), "secret").unwrap();
    let services = TftpServices {
        files: Arc::new(ServedDirectory::open(&root).unwrap()),
        events: events.clone(),
        clock: Arc::new(wall_clock),
    };
    let mut settings = TftpSettings::new(address.parse().unwrap());
    settings.interface = Some(interface.into());
    lab.serve("server", move || TftpServer::bind(settings, services).unwrap().run())
}

fn check(program: &str, arguments: &[&str]) {
    if !ready(&[program, "ip"]) {
        return;
    }
    let lab = NetworkLab::new(&["server"]);
    let events = Arc::new(RecordedEvents::default());
    let _server = serve(&lab, "127.0.0.1:69", "lo", SIZE, &events);
    let (_, output) = lab.run("server", &[&[program], arguments].concat());
    let fetched = std::fs::read(lab.directory.path().join("fetched")).unwrap_or_default();
    let original = std::fs::read(lab.directory.path().join("root/kernel")).unwrap();
    assert!(fetched == original, "{} bytes of {SIZE}; {output}", fetched.len());
    let done = BootEventDetail::Tftp {
        file: "kernel".into(),
        outcome: TftpOutcome::Completed { bytes: SIZE as u64 },
    };
    events.wait_for(&done);
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
fn curl_fetches_a_file_and_cannot_leave_the_directory() {
    check("curl", &["-sS", "-o", "fetched", "tftp://127.0.0.1/kernel"]);
    if !ready(&["curl", "ip"]) {
        return;
    }
    let lab = NetworkLab::new(&["server"]);
    let events = Arc::new(RecordedEvents::default());
    let _server = serve(&lab, "127.0.0.1:69", "lo", SIZE, &events);
    for name in ["../secret", "%2e%2e/secret", "/../secret", "kernel/../../secret"] {
        let url = format!("tftp://127.0.0.1/{name}");
        let (succeeded, output) = lab.run("server", &["curl", "--path-as-is", "-sS", &url]);
        assert!(!succeeded && !output.contains("secret"), "{name}: {output}");
    }
}
