// SPDX-License-Identifier: Apache-2.0
//! A full disk is an alarm: the server keeps running, reports it, and works when there is space again.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use http_probe::ServerProcess;
use serde_json::json;

use crate::test_namespaces::can_use_namespaces;
use crate::test_process::TestHome;

/// Starts a server whose data directory is a small file system, which only the server sees. Returns it with
/// the path of the directory.
fn serve_on_small_disk(home: &TestHome) -> (ServerProcess, PathBuf) {
    let data = home.path("data");
    std::fs::create_dir(&data).unwrap();
    let server = home.command();
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=24m,mode=700 tmpfs \"$0\" && exec \"$@\"";
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(&data);
    command.arg(server.get_program()).args(server.get_args()).args(["--auth", "none"]);
    for (name, value) in server.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let server = ServerProcess::start(&mut command, &home.path("log")).unwrap();
    let seen =
        PathBuf::from(format!("/proc/{}/root", server.pid())).join(data.strip_prefix("/").unwrap());
    (server, seen)
}

/// Writes zeros until the disk is full.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for block in [vec![0; 65_536], vec![0; 512]] {
        while file.write_all(&block).is_ok() {}
    }
}

/// Polls until `/readyz` has this status, and returns its body.
fn wait_for_readiness(server: &ServerProcess, status: u16) -> String {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let response = server.client().send("GET", "/readyz", None).unwrap();
        if response.status == status {
            return response.text();
        }
        assert!(
            Instant::now() < deadline,
            "{}: {}\n{}",
            response.status,
            response.text(),
            server.log()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Creates a node with much text. Returns the status.
fn enrol(server: &ServerProcess, name: &str) -> u16 {
    let body = json!({
        "driver": "fake-hardware", "name": name, "extra": {"text": "x".repeat(100_000)},
    });
    let mut client = server.client().with_microversion("1.80");
    client.send_json("POST", "/v1/nodes", Some(&body)).unwrap().status
}

fn metric(server: &ServerProcess, name: &str) -> i64 {
    let metrics = server.client().send("GET", "/metrics", None).unwrap().text();
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{name} is missing in {metrics}")).parse().unwrap()
}

#[test]
fn server_survives_a_full_disk() {
    if !can_use_namespaces(&["unshare", "mount"]) {
        return;
    }
    let home = TestHome::new();
    let (server, data) = serve_on_small_disk(&home);
    wait_for_readiness(&server, 200);
    assert_eq!(enrol(&server, "before"), 201);
    assert_eq!(metric(&server, "ferrite_storage_writable"), 1);

    fill(&data.join("filler"));
    let reason = wait_for_readiness(&server, 503);
    assert!(reason.contains("is full"), "{reason}");
    assert_eq!(metric(&server, "ferrite_storage_writable"), 0);
    assert!(metric(&server, "ferrite_data_directory_free_bytes") < 4 << 20);
    // Writes fail when the write-ahead log cannot grow, and reads succeed.
    let failed = (0..500).map(|number| enrol(&server, &format!("n{number}"))).find(|it| *it != 201);
    assert_eq!(failed, Some(503), "{}", server.log());
    let mut client = server.client().with_microversion("1.80");
    assert_eq!(client.send("GET", "/v1/nodes/before", None).unwrap().status, 200);
    assert_eq!(client.send("GET", "/healthz", None).unwrap().status, 200);

    std::fs::remove_file(data.join("filler")).unwrap();
    wait_for_readiness(&server, 200);
    assert_eq!(enrol(&server, "after"), 201, "{}", server.log());
    assert_eq!(metric(&server, "ferrite_storage_writable"), 1);
    // The conductor works again.
    let body = json!({"target": "manage"});
    let path = "/v1/nodes/after/states/provision";
    assert_eq!(client.send_json("PUT", path, Some(&body)).unwrap().status, 202);
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let node = client.send("GET", "/v1/nodes/after", None).unwrap().json();
        if node["provision_state"] == "manageable" {
            break;
        }
        assert!(Instant::now() < deadline, "{node}\n{}", server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = server.log();
    assert!(log.contains("storage does not accept writes"), "{log}");
    assert!(log.contains("storage accepts writes again"), "{log}");
}
