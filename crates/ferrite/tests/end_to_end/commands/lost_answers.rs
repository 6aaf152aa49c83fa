// SPDX-License-Identifier: Apache-2.0
//! `ferrite deploy` when answers get lost on their way and when somebody presses Ctrl-C, through a proxy
//! that sees to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{Done, User};
use crate::ferrite::Home;

const DEPLOY: &str = "deploy --image http://images/a.raw --resource-class big --count 2";

/// What becomes of the answers to requests for a change of state.
#[derive(Clone, Copy, PartialEq)]
enum Answers {
    Lost,
    /// Kept, with the connection, as long as the proxy is there.
    Kept,
}

/// A proxy in front of a server. Tells when a request for a change of state was passed on.
fn proxy(server: &str, answers: Answers) -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let behind = server.trim_start_matches("http://").to_owned();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            kept.extend(pass_on(stream.unwrap(), &behind, answers, &tell));
        }
    });
    (url, told)
}

/// One request and its answer.
fn pass_on(
    mut stream: TcpStream,
    behind: &str,
    answers: Answers,
    tell: &Sender<()>,
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
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).unwrap();
    if request.starts_with("PUT") && request.contains("/states/provision") {
        // Nobody may listen.
        let _ = tell.send(());
        return (answers == Answers::Kept).then_some(stream);
    }
    // The other side may be gone.
    let _ = stream.write_all(&answer);
    None
}

fn ready(url: &str) -> User {
    let user = User::of(url);
    user.enrol_rack();
    for line in ["node manage --all -w", "node provide --all -wy", "node power off --all -wy"] {
        assert_eq!(user.run(line).code, 0);
    }
    user
}

#[test]
fn a_lost_answer_is_looked_for() {
    let home = Home::new();
    let server = home.serve();
    let user = ready(&server.url());
    let (proxy, _) = proxy(&server.url(), Answers::Lost);
    let done = User::of(&proxy).run(DEPLOY);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(user.run("node list --state active -o name").out.lines().count(), 2);
}

#[test]
fn ctrl_c_says_what_goes_on_and_gives_the_rest_back() {
    let home = Home::new();
    let server = home.serve();
    let user = ready(&server.url());
    let set = user.run("node set --all -f instance_info.image_source=http://images/old.raw");
    assert_eq!(set.code, 0, "{}", set.err);
    let (proxy, asked) = proxy(&server.url(), Answers::Kept);
    let words: Vec<&str> = DEPLOY.split_whitespace().collect();
    let deploying = User::of(&proxy);
    let mut deploying =
        deploying.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    asked.recv().unwrap();
    let pid = deploying.id().to_string();
    let interrupt = || {
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    };
    interrupt();
    let mut told = BufReader::new(deploying.stderr.take().unwrap());
    let mut first = String::new();
    told.read_line(&mut first).unwrap();
    assert!(first.contains("Ctrl-C again does not wait"), "{first}");
    interrupt();
    let mut rest = String::new();
    told.read_to_string(&mut rest).unwrap();
    assert_eq!(deploying.wait().unwrap().code(), Some(130), "{rest}");
    // One was asked, and nobody knows what came of it; the other is as it was.
    assert!(rest.contains("it is not known whether the server took the request"), "{rest}");
    let Done { out: kept, .. } = user.run("allocation list -o json");
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept.as_array().unwrap().len(), 1, "{kept}");
    let nodes = user.json("node list");
    let old = nodes.as_array().unwrap().iter().filter(|node| {
        node["instance_info"]["image_source"] == "http://images/old.raw"
            && node["instance_uuid"].is_null()
    });
    assert_eq!(old.count(), 2, "{nodes}");
}
