// SPDX-License-Identifier: Apache-2.0
//! `ferrite deploy` with lost responses and Ctrl-C, through a proxy that drops or delays responses.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{CliUser, CommandOutput};
use crate::test_process::TestHome;

const DEPLOY: &str = "deploy --image http://images/a.raw --resource-class big --count 2";

/// What the proxy does with responses to provision requests.
#[derive(Clone, Copy, PartialEq)]
enum ResponseLoss {
    Disconnect,
    /// Keeps the connection open without a response.
    Hang,
}

/// Starts a proxy in front of a server. The receiver gets a message when a provision request was forwarded.
fn proxy(server: &str, loss: ResponseLoss) -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let behind = server.trim_start_matches("http://").to_owned();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut hanging = Vec::new();
        for stream in listener.incoming() {
            hanging.extend(forward(stream.unwrap(), &behind, loss, &sender));
        }
    });
    (url, receiver)
}

/// Forwards one request. Returns the connection if it must stay open.
fn forward(
    mut stream: TcpStream,
    behind: &str,
    loss: ResponseLoss,
    forwarded: &Sender<()>,
) -> Option<TcpStream> {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut request, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or_default() == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some(number) = line.to_lowercase().strip_prefix("content-length:") {
            length = number.trim().parse().unwrap();
        }
        request.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let mut server = TcpStream::connect(behind).unwrap();
    server.write_all(format!("{request}Connection: close\r\n\r\n").as_bytes()).unwrap();
    server.write_all(&body).unwrap();
    let mut response = Vec::new();
    server.read_to_end(&mut response).unwrap();
    if request.starts_with("PUT") && request.contains("/states/provision") {
        // The receiver may be dropped.
        let _ = forwarded.send(());
        return (loss == ResponseLoss::Hang).then_some(stream);
    }
    // The client may have disconnected.
    let _ = stream.write_all(&response);
    None
}

fn user_with_available_rack(url: &str) -> CliUser {
    let user = CliUser::new(url);
    user.enrol_rack();
    for line in ["node manage --all -w", "node provide --all -wy", "node power off --all -wy"] {
        assert_eq!(user.run(line).code, 0);
    }
    user
}

#[test]
fn lost_response_is_resolved_by_the_node_state() {
    let home = TestHome::new();
    let server = home.serve();
    let user = user_with_available_rack(&server.url());
    let (proxy, _) = proxy(&server.url(), ResponseLoss::Disconnect);
    let done = CliUser::new(&proxy).run(DEPLOY);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(user.run("node list --state active -o name").out.lines().count(), 2);
}

#[test]
fn ctrl_c_reports_running_deployments_and_releases_the_rest() {
    let home = TestHome::new();
    let server = home.serve();
    let user = user_with_available_rack(&server.url());
    let set = user.run("node set --all -f instance_info.image_source=http://images/old.raw");
    assert_eq!(set.code, 0, "{}", set.err);
    let (proxy, forwarded) = proxy(&server.url(), ResponseLoss::Hang);
    let arguments: Vec<&str> = DEPLOY.split_whitespace().collect();
    let deploying = CliUser::new(&proxy);
    let mut deploying = deploying
        .command(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    forwarded.recv().unwrap();
    let pid = deploying.id().to_string();
    let interrupt = || {
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    };
    interrupt();
    let mut stderr = BufReader::new(deploying.stderr.take().unwrap());
    let mut first = String::new();
    stderr.read_line(&mut first).unwrap();
    assert!(first.contains("press Ctrl-C again to stop now"), "{first}");
    interrupt();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(deploying.wait().unwrap().code(), Some(130), "{rest}");
    // The outcome of one request is unknown; the other node was released.
    assert!(rest.contains("the server may or may not have accepted the request"), "{rest}");
    let CommandOutput { out, .. } = user.run("allocation list -o json");
    let allocations: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(allocations.as_array().unwrap().len(), 1, "{allocations}");
    let nodes = user.json("node list");
    let old = nodes.as_array().unwrap().iter().filter(|node| {
        node["instance_info"]["image_source"] == "http://images/old.raw"
            && node["instance_uuid"].is_null()
    });
    assert_eq!(old.count(), 2, "{nodes}");
}
