// SPDX-License-Identifier: Apache-2.0
//! Starting, stopping and restarting the server, and rejected configurations.

use serde_json::json;

use crate::test_process::{TestHome, ferrite, output_of};

#[test]
fn rejects_invalid_settings_with_one_line() {
    let home = TestHome::new();
    std::fs::write(home.path("file"), "").unwrap();
    std::fs::write(home.path("unknown.toml"), "[api]\nlissten = \"127.0.0.1:1\"\n").unwrap();
    let driver = "[drivers]\nenabled_hardware_types = [\"redfsh\"]\n";
    std::fs::write(home.path("driver.toml"), driver).unwrap();
    std::fs::write(home.path("broken.toml"), "[api\n").unwrap();
    let path = |name: &str| home.path(name).display().to_string();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let good = path("data");
    for (arguments, names) in [
        (vec!["--data-dir", &good, "--config", &path("unknown.toml")], "lissten"),
        (vec!["--data-dir", &good, "--config", &path("broken.toml")], "broken.toml"),
        (vec!["--data-dir", &good, "--config", &path("missing.toml")], "missing.toml"),
        (vec!["--data-dir", &good, "--config", &path("driver.toml")], "redfsh"),
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
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(names), "{arguments:?} does not name {names}: {error}");
        assert!(!error.contains("panicked"), "{arguments:?}: {error}");
        // Ferrite prints its own errors; clap prints those of the command line.
        let is_error = |line: &&str| line.starts_with("ferrite: ") || line.starts_with("error: ");
        let lines = error.lines().filter(is_error).count();
        assert_eq!(lines, 1, "{arguments:?} has not exactly one error line: {error}");
        // Errors of ports and settings are found before the data directory is created.
        let before = !arguments.contains(&"oracle://x");
        assert!(!(before && home.path("data").exists()), "{arguments:?} left data behind");
    }
}

#[test]
fn reads_settings_from_file_and_environment() {
    let home = TestHome::new();
    std::fs::write(home.path("ferrite.toml"), "[api]\nmax_limit = 2\n").unwrap();
    let config = home.path("ferrite.toml").display().to_string();
    for (variable, expected) in [(None, 2), (Some("1"), 1)] {
        let mut command = home.command();
        command.args(["--auth", "none", "--config", &config]);
        if let Some(value) = variable {
            command.env("FERRITE_API__MAX_LIMIT", value);
        }
        let server = http_probe::ServerProcess::start(&mut command, &home.path("log")).unwrap();
        let mut client = server.client();
        for _ in 0..3 {
            let created = client
                .send_json("POST", "/v1/nodes", Some(&json!({"driver": "fake-hardware"})))
                .unwrap();
            assert_eq!(created.status, 201, "{}", created.text());
        }
        let listed = client.send("GET", "/v1/nodes", None).unwrap().json();
        assert_eq!(listed["nodes"].as_array().unwrap().len(), expected, "{listed}");
    }
}
