// SPDX-License-Identifier: Apache-2.0
//! `ferrite secrets`: the sealing key is replaced while a server runs.

use std::process::Output;

use serde_json::json;

use crate::test_process::{TestHome, ferrite, output_of};

fn secrets(home: &TestHome, arguments: &[&str]) -> Output {
    output_of(ferrite().arg("secrets").args(arguments).arg("--data-dir").arg(home.path("data")))
}

fn printed(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn key_is_replaced_while_a_server_runs() {
    let home = TestHome::new();
    let serve = || {
        let mut command = home.command();
        command.args(["--auth", "none"]).env("FERRITE_CONDUCTOR__HEARTBEAT_INTERVAL", "1");
        http_probe::ServerProcess::start(&mut command, &home.path("log"))
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let server = serve();
    let mut client = server.client();
    let node = json!({"driver": "fake-hardware", "name": "one", "driver_info": {"password": "x"}});
    assert_eq!(client.send_json("POST", "/v1/nodes", Some(&node)).unwrap().status, 201);
    let key_file = home.path("data/secrets.key");
    let old = std::fs::read_to_string(&key_file).unwrap();

    let shown = printed(&secrets(&home, &["rotate"]));
    assert!(shown.contains("1 values re-sealed"), "{shown}");
    let both = std::fs::read_to_string(&key_file).unwrap();
    assert_eq!((both.lines().count(), both.starts_with(&old)), (2, true));
    // The server reads and writes secrets with the new key.
    let power = json!({"target": "power on"});
    let path = "/v1/nodes/one/states/power";
    assert_eq!(client.send_json("PUT", path, Some(&power)).unwrap().status, 202);
    let change = json!([{"op": "add", "path": "/driver_info/other_password", "value": "y"}]);
    assert_eq!(client.send_json("PATCH", "/v1/nodes/one", Some(&change)).unwrap().status, 200);
    let status = printed(&secrets(&home, &["status"]));
    assert!(status.contains(": 0 values"), "{status}");
    assert!(status.contains(&format!("(process {})", server.pid())), "{status}");

    let shown = printed(&secrets(&home, &["remove-old-keys"]));
    assert!(shown.contains("0 values re-sealed"), "{shown}");
    assert_eq!(std::fs::read_to_string(&key_file).unwrap().lines().count(), 1);
    assert_eq!(client.send("GET", "/v1/nodes/one", None).unwrap().status, 200);
    server.kill().unwrap();

    // A process with the old key does not start.
    let new = std::fs::read_to_string(&key_file).unwrap();
    std::fs::write(&key_file, old).unwrap();
    let refused = secrets(&home, &["status"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        error.contains("does not contain the key with which the database was written"),
        "{error}"
    );
    std::fs::write(&key_file, new).unwrap();
    let server = serve();
    assert_eq!(server.client().send("GET", "/v1/nodes/one", None).unwrap().status, 200);
}

#[test]
fn keys_come_from_a_command() {
    let home = TestHome::new();
    let key = printed(&output_of(ferrite().args(["secrets", "new-key"])));
    std::fs::create_dir(home.path("data")).unwrap();
    let run = |key: &str| {
        let command = format!("[\"echo\", \"{}\"]", key.trim());
        let status = ["secrets", "status"];
        let mut ferrite = ferrite();
        ferrite.args(status).env("FERRITE_SECRETS__KEY_COMMAND", command);
        output_of(ferrite.arg("--data-dir").arg(home.path("data")))
    };
    let empty = run("");
    let error = String::from_utf8_lossy(&empty.stderr).into_owned();
    assert!(error.contains("the output of the key command \"echo\""), "{error}");
    let shown = printed(&run(&key));
    assert!(shown.starts_with("sealing key "), "{shown}");
    assert!(!home.path("data/secrets.key").exists());
    let other = printed(&output_of(ferrite().args(["secrets", "new-key"])));
    assert!(!run(&other).status.success());
}
