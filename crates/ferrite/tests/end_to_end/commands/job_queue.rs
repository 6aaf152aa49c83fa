// SPDX-License-Identifier: Apache-2.0
//! Requests for more deployments than may run at once: all are accepted, and show their position in the queue.

use std::time::{Duration, Instant};

use http_probe::ServerProcess;

use super::CliUser;
use crate::test_process::TestHome;

/// How long the metrics may take to be updated.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[test]
fn deployments_beyond_the_limit_are_queued() {
    let home = TestHome::new();
    let mut command = home.command();
    command.args(["--auth", "none"]).env("FERRITE_LIFECYCLE__MAX_CONCURRENT_DEPLOY", "1");
    let server = ServerProcess::start(&mut command, &home.path("log")).unwrap();
    let user = CliUser::new(&server.url());
    user.enrol_rack();
    let hold = r#"[{"interface":"deploy","step":"hold","args":{},"priority":110}]"#;
    for arguments in [
        vec!["node", "manage", "--all", "-wy"],
        vec!["node", "provide", "--all", "-wy"],
        // Runs until it is released.
        vec!["node", "deploy", "rack1-01", "--steps", hold],
        vec!["node", "wait", "rack1-01", "--for", "deploy hold"],
        vec!["node", "deploy", "rack1-02"],
        vec!["node", "wait", "rack1-02", "--for", "wait call-back"],
        vec!["node", "deploy", "--all", "--state", "available", "-y"],
        vec!["node", "wait", "rack1-03", "--for", "wait call-back"],
    ] {
        let done = user.run_arguments(&arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {}{}", done.out, done.err);
    }
    for (line, expected) in [
        ("node show rack1-02", "job queue, position 1 of 2"),
        ("node show rack1-03", "job queue, position 2 of 2"),
        ("node explain rack1-03 abort", "waiting for job queue, position 2 of 2"),
    ] {
        let done = user.run(line);
        assert!(done.out.contains(expected), "ferrite {line}: {}{}", done.out, done.err);
    }
    let expected = [
        r#"ferrite_jobs{queue="deploy",state="running"} 1"#,
        r#"ferrite_jobs{queue="deploy",state="queued"} 2"#,
        r#"ferrite_jobs{queue="clean",state="queued"} 0"#,
    ];
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let metrics = server.client().send("GET", "/metrics", None).unwrap().text();
        if expected.iter().all(|line| metrics.contains(line)) {
            break;
        }
        assert!(Instant::now() < deadline, "{metrics}");
        std::thread::sleep(POLL_INTERVAL);
    }

    for line in
        ["node undeploy rack1-02 -wy", "node unhold rack1-01", "node wait rack1-03 --for active"]
    {
        let done = user.run(line);
        assert_eq!(done.code, 0, "ferrite {line}: {}{}", done.out, done.err);
    }
    let nodes = user.json("node list");
    let states: Vec<&str> = nodes
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|node| node["provision_state"].as_str())
        .collect();
    assert_eq!(states, ["active", "available", "active"]);
}
