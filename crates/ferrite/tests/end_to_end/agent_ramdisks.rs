// SPDX-License-Identifier: Apache-2.0
//! `GET /v1/ferrite/ramdisks`: checksums of the agent's ramdisks, which change without a restart.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::test_process::TestHome;

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[test]
fn a_changed_ramdisk_is_reported_without_a_restart() {
    let home = TestHome::new();
    for folder in ["data/ramdisk", "data/ramdisk/aarch64"] {
        std::fs::create_dir_all(home.path(folder)).unwrap();
        for name in ["kernel", "ramdisk"] {
            std::fs::write(home.path(folder).join(name), format!("{folder} {name}")).unwrap();
        }
    }
    let server = home.serve();
    let mut client = server.client();
    let mut wait_for = |matches: &dyn Fn(&Value) -> bool| {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let found = client.send("GET", "/v1/ferrite/ramdisks", None).unwrap().json();
            if matches(&found["ramdisks"]) {
                return found["ramdisks"].clone();
            }
            assert!(Instant::now() < deadline, "{found}");
            std::thread::sleep(POLL_INTERVAL);
        }
    };
    let fetched = |ramdisk: &Value| ramdisk["ramdisk"]["sha256"].is_string();
    let first = wait_for(&|found| found.as_array().unwrap().iter().all(fetched));
    assert_eq!(first[0]["architecture"], Value::Null);
    assert_eq!(first[1]["architecture"], "aarch64");
    assert_ne!(first[0]["ramdisk"]["sha256"], first[1]["ramdisk"]["sha256"]);
    std::fs::write(home.path("data/ramdisk/ramdisk"), "new").unwrap();
    let second = wait_for(&|found| found[0]["ramdisk"]["size"] == 3);
    assert_eq!(second[0]["kernel"], first[0]["kernel"]);
    assert_eq!(second[1]["ramdisk"], first[1]["ramdisk"]);
}
