// SPDX-License-Identifier: Apache-2.0
//! Installing without a machine: what an installer would fetch and say is fetched and said here, and
//! the server is killed at every turn.

use std::time::{Duration, Instant};

use http_probe::Client;
use serde_json::{Value, json};

use crate::ferrite::Home;
use crate::real_bmcs::lab::text;
use crate::real_bmcs::operator::Operator;

const MAC: &str = "52:54:00:1a:b0:f0";
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn an_installation_goes_on_though_the_server_is_killed() {
    let mut operator = serve(Home::new());
    let node = enrol(&mut operator);
    install(&mut operator, &node);
    let shown = operator.get(&format!("/v1/ferrite/nodes/{node}/boot"));
    assert_eq!(shown["boots"], "installer", "{shown}");
    let kickstart = kickstart(&mut operator);
    let calls = calls(&kickstart);
    let statuses: Vec<&str> = calls.iter().map(|call| text(&call["agent_status"])).collect();
    assert_eq!(statuses, ["start", "error", "end"]);
    let token = text(&calls[0]["agent_token"]);
    assert!(!shown.to_string().contains(token), "{shown}");

    let mut operator = serve(operator.kill());
    // Whoever asks for a token now is given none: there is one.
    let asked = operator.get(&format!("/v1/lookup?node_uuid={node}"));
    assert_eq!(asked["config"]["agent_token"], "******", "{asked}");
    let mut guessed = calls[2].clone();
    guessed["agent_token"] = "guessed".into();
    assert_eq!(call(&mut operator, &node, &guessed), 400);
    assert_eq!(call(&mut operator, &node, &calls[0]), 202);
    let begun = "the installer has started: Anaconda runs and begins to install.";
    told(&mut operator, &node, begun);

    let mut operator = serve(operator.kill());
    let waiting = operator.node(&node);
    assert_eq!(waiting["provision_state"], "wait call-back", "{waiting}");
    assert_eq!(call(&mut operator, &node, &calls[2]), 202);
    operator.arrives(&node, "provision_state", "active");
    assert_eq!(operator.node(&node)["power_state"], "power on");
    told(&mut operator, &node, "heartbeat: end: The system is installed.");
    let boots = operator.get(&format!("/v1/ferrite/nodes/{node}/boot"));
    assert_eq!(boots, json!({ "boots": "disk" }));
    assert_eq!(call(&mut operator, &node, &calls[2]), 400, "the token is of no use any more");
}

#[test]
fn the_installers_words_are_why_a_deployment_failed() {
    let mut operator = serve(Home::new());
    let node = enrol(&mut operator);
    install(&mut operator, &node);
    let kickstart = kickstart(&mut operator);
    let mut error = calls(&kickstart).swap_remove(1);
    error["agent_status_message"] = "the disk is on fire".into();
    assert_eq!(call(&mut operator, &node, &error), 202);
    let failed = until(&mut operator, &node, "deploy failed");
    assert!(text(&failed["last_error"]).contains("the disk is on fire"), "{failed}");
    // Another try is another installer.
    install(&mut operator, &node);
    assert_eq!(call(&mut operator, &node, &error), 400);
}

fn serve(home: Home) -> Operator {
    let config = home.path("ferrite.toml");
    let settings = format!(
        "[boot]\nlisten = [\"127.0.0.1:0\"]\n[images]\nfile_url_allowed_paths = [{:?}]\n\
         [drivers]\nenabled_deploy_interfaces = [\"direct\", \"fake\", \"anaconda\"]\n",
        home.path("")
    );
    std::fs::write(&config, settings).unwrap();
    let mut command = home.command();
    command.args(["--auth", "none", "--config"]).arg(&config);
    Operator::start_in(home, &mut command)
}

fn enrol(operator: &mut Operator) -> String {
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

fn install(operator: &mut Operator, node: &str) {
    let path = format!("/v1/nodes/{node}/states/provision");
    operator.expect(202, "PUT", &path, Some(&json!({ "target": "active" })));
    until(operator, node, "wait call-back");
}

/// The node, once it is in this state.
fn until(operator: &mut Operator, node: &str, state: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = operator.node(node);
        if now["provision_state"] == state {
            return now;
        }
        assert!(Instant::now() < deadline, "{now}\n{}", operator.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the timeline has some words.
fn told(operator: &mut Operator, node: &str, words: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let timeline = Value::from(operator.timeline(node)).to_string();
        if timeline.contains(words) {
            return;
        }
        assert!(Instant::now() < deadline, "{words:?} is not in {timeline}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The kickstart that the machine's script leads to.
fn kickstart(operator: &mut Operator) -> String {
    let answer = operator.expect(200, "GET", &format!("/v1/boot/{MAC}/boot.ipxe"), None);
    let script = answer.text();
    let url = script.split_whitespace().find_map(|word| word.strip_prefix("inst.ks=")).unwrap();
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut client = Client::new(address.parse().unwrap());
    let answer = client.send("GET", &format!("/{path}"), None).unwrap();
    assert_eq!(answer.status, 200, "{url}");
    answer.text()
}

/// What the kickstart has the installer say, in the order in which it stands there.
fn calls(kickstart: &str) -> Vec<Value> {
    let said = kickstart.lines().filter_map(|line| line.trim().strip_prefix("-d '"));
    // In between the shell puts what it found in logs.
    let plain = |line: &str| line.trim_end_matches("' \\").replace("'\"${why:+$why }\"'", "");
    said.map(|line| serde_json::from_str(&plain(line)).unwrap()).collect()
}

fn call(operator: &mut Operator, node: &str, body: &Value) -> u16 {
    operator.ask("POST", &format!("/v1/heartbeat/{node}"), Some(body)).status
}
