// SPDX-License-Identifier: Apache-2.0
//! Starting, stopping, starting again, and refusing to start.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::ferrite::{Home, ferrite, output_of};

/// What is promised when there is nothing to do.
const STOPS_WITHIN: Duration = Duration::from_secs(1);

#[test]
fn sigterm_ends_an_idle_server_within_a_second_and_the_data_stay() {
    let home = Home::new();
    // A machine that is busy with other tests may be late once, but not three times.
    let mut slow = Vec::new();
    for round in 0..3 {
        let server = home.serve();
        let mut client = server.client();
        let nodes = client.send("GET", "/v1/nodes", None).unwrap().json();
        assert_eq!(nodes["nodes"].as_array().unwrap().len(), round, "{nodes}");
        let body = json!({"driver": "fake-hardware", "name": format!("node-{round}")});
        let created = client.ask("POST", "/v1/nodes", Some(&body)).unwrap();
        assert_eq!(created.status, 201, "{}", created.text());
        // The client's connection stays open, and so does somebody's stream of events.
        let mut events = TcpStream::connect(server.address()).unwrap();
        write!(events, "GET /v1/ferrite/events HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut first = [0; 12];
        events.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");

        let stopped = server.stop(Duration::from_secs(20)).unwrap();
        assert_eq!(stopped.status.code(), Some(0), "{}", home.log());
        if stopped.took > STOPS_WITHIN {
            slow.push(stopped.took);
        }
    }
    assert!(slow.len() < 3, "never stopped within {STOPS_WITHIN:?}: {slow:?}\n{}", home.log());
}

#[test]
fn what_cannot_be_served_is_said_in_one_line() {
    let home = Home::new();
    std::fs::write(home.path("file"), "").unwrap();
    std::fs::write(home.path("unknown.toml"), "[api]\nlissten = \"127.0.0.1:1\"\n").unwrap();
    std::fs::write(home.path("broken.toml"), "[api\n").unwrap();
    let path = |name: &str| home.path(name).display().to_string();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let good = path("data");
    for (arguments, names) in [
        (vec!["--data-dir", &good, "--config", &path("unknown.toml")], "lissten"),
        (vec!["--data-dir", &good, "--config", &path("broken.toml")], "broken.toml"),
        (vec!["--data-dir", &good, "--config", &path("missing.toml")], "missing.toml"),
        (vec!["--data-dir", &good, "--listen", "nowhere"], "nowhere"),
        (vec!["--data-dir", &good, "--listen", &taken], taken.as_str()),
        (
            vec!["--data-dir", &good, "--listen", "127.0.0.1:0", "--boot-listen", &taken],
            "--boot-listen",
        ),
        (vec!["--data-dir", &path("file/data"), "--listen", "127.0.0.1:0"], "file/data"),
        (
            vec!["--data-dir", &good, "--listen", "127.0.0.1:0", "--database", "oracle://x"],
            "oracle",
        ),
    ] {
        let output = output_of(ferrite().arg("serve").args(&arguments));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(names), "{arguments:?} does not name {names}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        // Its own mistakes it tells itself; those of the command line are told by clap.
        let tells = |line: &&str| line.starts_with("ferrite: ") || line.starts_with("error: ");
        let lines = said.lines().filter(tells).count();
        assert_eq!(lines, 1, "{arguments:?} is not one clear line: {said}");
        // What is wrong with a port or a setting is said before anything is made.
        let before = !arguments.contains(&"oracle://x");
        assert!(!(before && home.path("data").exists()), "{arguments:?} left data behind");
    }
}

#[test]
fn settings_come_from_the_file_and_the_environment() {
    let home = Home::new();
    std::fs::write(home.path("ferrite.toml"), "[api]\nmax_limit = 2\n").unwrap();
    let config = home.path("ferrite.toml").display().to_string();
    for (variable, expected) in [(None, 2), (Some("1"), 1)] {
        let mut command = home.command();
        command.args(["--auth", "none", "--config", &config]);
        if let Some(value) = variable {
            command.env("FERRITE_API__MAX_LIMIT", value);
        }
        let server = http_probe::Server::start(&mut command, &home.path("log")).unwrap();
        let mut client = server.client();
        for _ in 0..3 {
            let created =
                client.ask("POST", "/v1/nodes", Some(&json!({"driver": "fake-hardware"}))).unwrap();
            assert_eq!(created.status, 201, "{}", created.text());
        }
        let listed = client.send("GET", "/v1/nodes", None).unwrap().json();
        assert_eq!(listed["nodes"].as_array().unwrap().len(), expected, "{listed}");
    }
}
