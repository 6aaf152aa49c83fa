// SPDX-License-Identifier: Apache-2.0
//! Deployments with Anaconda: the test plays the installer and kills the server between its requests.

use std::time::{Duration, Instant};

use http_probe::ProbeClient;
use serde_json::{Value, json};

use crate::real_bmcs::api_operator::ApiOperator;
use crate::real_bmcs::lab::text;
use crate::test_process::TestHome;

const MAC: &str = "52:54:00:1a:b0:f0";
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn installation_survives_kills_of_the_server() {
    let mut operator = serve(TestHome::new());
    let node = enrol(&mut operator);
    install(&mut operator, &node);
    let shown = operator.get(&format!("/v1/ferrite/nodes/{node}/boot"));
    assert_eq!(shown["boots"], "installer", "{shown}");
    let kickstart = kickstart(&mut operator);
    let calls = heartbeat_bodies(&kickstart);
    let statuses: Vec<&str> = calls.iter().map(|call| text(&call["agent_status"])).collect();
    assert_eq!(statuses, ["start", "error", "end"]);
    let token = text(&calls[0]["agent_token"]);
    assert!(!shown.to_string().contains(token), "{shown}");

    let mut operator = serve(operator.kill());
    // The token is not returned, because it was already issued.
    let lookup = operator.get(&format!("/v1/lookup?node_uuid={node}"));
    assert_eq!(lookup["config"]["agent_token"], "******", "{lookup}");
    let mut guessed = calls[2].clone();
    guessed["agent_token"] = "guessed".into();
    assert_eq!(send_heartbeat(&mut operator, &node, &guessed), 400);
    assert_eq!(send_heartbeat(&mut operator, &node, &calls[0]), 202);
    let started = "the installer has started: Anaconda started the installation.";
    wait_for_timeline(&mut operator, &node, started);

    let mut operator = serve(operator.kill());
    let waiting = operator.node(&node);
    assert_eq!(waiting["provision_state"], "wait call-back", "{waiting}");
    assert_eq!(send_heartbeat(&mut operator, &node, &calls[2]), 202);
    operator.wait_for_state(&node, "provision_state", "active");
    assert_eq!(operator.node(&node)["power_state"], "power on");
    wait_for_timeline(&mut operator, &node, "heartbeat: end: The system is installed.");
    let boots = operator.get(&format!("/v1/ferrite/nodes/{node}/boot"));
    assert_eq!(boots, json!({ "boots": "disk" }));
    assert_eq!(
        send_heartbeat(&mut operator, &node, &calls[2]),
        400,
        "the token is invalid after the installation"
    );
}

#[test]
fn installer_error_is_the_reason_of_the_failure() {
    let mut operator = serve(TestHome::new());
    let node = enrol(&mut operator);
    install(&mut operator, &node);
    let kickstart = kickstart(&mut operator);
    let mut error = heartbeat_bodies(&kickstart).swap_remove(1);
    error["agent_status_message"] = "the disk is on fire".into();
    assert_eq!(send_heartbeat(&mut operator, &node, &error), 202);
    let failed = wait_for_state(&mut operator, &node, "deploy failed");
    assert!(text(&failed["last_error"]).contains("the disk is on fire"), "{failed}");
    // The next deployment has another token.
    install(&mut operator, &node);
    assert_eq!(send_heartbeat(&mut operator, &node, &error), 400);
}

fn serve(home: TestHome) -> ApiOperator {
    let config = home.path("ferrite.toml");
    // The test reads the kickstart without a DHCP lease.
    let settings = format!(
        "[boot]\nlisten = [\"127.0.0.1:0\"]\n[conductor]\nagent_boot_proof = \"none\"\n[images]\nfile_url_allowed_paths = [{:?}]\n\
         [drivers]\nenabled_deploy_interfaces = [\"direct\", \"fake\", \"anaconda\"]\n",
        home.path("")
    );
    std::fs::write(&config, settings).unwrap();
    let mut command = home.command();
    command.args(["--auth", "none", "--config"]).arg(&config);
    ApiOperator::start_in(home, &mut command)
}

fn enrol(operator: &mut ApiOperator) -> String {
    let more = json!({
        "boot_interface": "ipxe",
        "deploy_interface": "anaconda",
        "automated_clean": false,
    });
    let file = |name: &str| {
        std::fs::write(operator.path(name), name).unwrap();
        format!("file://{}", operator.path(name).display())
    };
    let (kernel, ramdisk) = (file("vmlinuz"), file("initrd.img"));
    let agent = json!({ "deploy_kernel": kernel, "deploy_ramdisk": ramdisk });
    let node = operator.manage("fake-hardware", agent, more);
    let port = json!({ "node_uuid": node, "address": MAC });
    operator.expect(201, "POST", "/v1/ports", Some(&port));
    operator.provision(&node, json!({ "target": "provide" }), "available");
    let instance = json!({
        "kernel": kernel,
        "ramdisk": ramdisk,
        "image_source": "http://mirror.example/os/",
    });
    let change = json!([{ "op": "add", "path": "/instance_info", "value": instance }]);
    operator.expect(200, "PATCH", &format!("/v1/nodes/{node}"), Some(&change));
    node
}

fn install(operator: &mut ApiOperator, node: &str) {
    let path = format!("/v1/nodes/{node}/states/provision");
    operator.expect(202, "PUT", &path, Some(&json!({ "target": "active" })));
    wait_for_state(operator, node, "wait call-back");
}

/// Waits for a provision state and returns the node.
fn wait_for_state(operator: &mut ApiOperator, node: &str, state: &str) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let now = operator.node(node);
        if now["provision_state"] == state {
            return now;
        }
        assert!(Instant::now() < deadline, "{now}\n{}", operator.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the timeline contains a text.
fn wait_for_timeline(operator: &mut ApiOperator, node: &str, text: &str) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let timeline = Value::from(operator.timeline(node)).to_string();
        if timeline.contains(text) {
            return;
        }
        assert!(Instant::now() < deadline, "{text:?} is not in {timeline}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Fetches the kickstart that the machine's script refers to.
fn kickstart(operator: &mut ApiOperator) -> String {
    let response = operator.expect(200, "GET", &format!("/v1/boot/{MAC}/boot.ipxe"), None);
    let script = response.text();
    let url = script.split_whitespace().find_map(|word| word.strip_prefix("inst.ks=")).unwrap();
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut client = ProbeClient::new(address.parse().unwrap());
    let response = client.send("GET", &format!("/{path}"), None).unwrap();
    assert_eq!(response.status, 200, "{url}");
    response.text()
}

/// The heartbeat bodies in the kickstart, in order.
fn heartbeat_bodies(kickstart: &str) -> Vec<Value> {
    let bodies = kickstart.lines().filter_map(|line| line.trim().strip_prefix("-d '"));
    // The shell inserts log excerpts there.
    let plain = |line: &str| line.trim_end_matches("' \\").replace("'\"${why:+$why }\"'", "");
    bodies.map(|line| serde_json::from_str(&plain(line)).unwrap()).collect()
}

fn send_heartbeat(operator: &mut ApiOperator, node: &str, body: &Value) -> u16 {
    operator.send("POST", &format!("/v1/heartbeat/{node}"), Some(body)).status
}
