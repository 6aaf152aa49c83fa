// SPDX-License-Identifier: Apache-2.0
//! Asking a machine to deploy, and finding out what came of it when the answer is lost.

use std::time::Duration;

use ironic_client::{Api, Kind, Query};
use serde_json::Value;

use crate::failure::Failure;
use crate::node::verbs::{Verb, provision};
use crate::selection::Chosen;

/// How often a machine whose request got lost is asked again.
const REPEATS: u32 = 3;
/// How often, and after which time each, a server that does not answer is tried.
const LOOKS: u32 = 15;
const PAUSE: Duration = Duration::from_secs(1);

/// What the server made of the request.
pub(super) enum Answer {
    Accepted,
    Refused(Failure),
    /// It did not say, and cannot be asked.
    Unknown(String),
}

/// Asks a machine that is available to deploy.
pub(super) async fn deploy(api: &Api, chosen: &Chosen, body: &Value) -> Answer {
    let mut repeats = 0;
    loop {
        let failure = match provision(api, chosen, Verb::Deploy.target(), body).await {
            Ok(()) => return Answer::Accepted,
            Err(failure) => failure,
        };
        let is_unanswered = is_unanswered(&failure);
        if !is_unanswered && repeats == 0 {
            return Answer::Refused(failure);
        }
        // Even a refusal can come of this: what was lost before may have been accepted.
        match is_taken(api, chosen).await {
            Some(true) => return Answer::Accepted,
            Some(false) if is_unanswered && repeats < REPEATS => repeats += 1,
            Some(false) => return Answer::Refused(failure),
            None => return Answer::Unknown(failure.told()),
        }
    }
}

/// Whether the machine is on its way; none if nobody can be asked.
async fn is_taken(api: &Api, chosen: &Chosen) -> Option<bool> {
    let query = Query::new().with("fields", "provision_state,target_provision_state");
    for look in 0..LOOKS {
        if look > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        match api.get(&query.on(&chosen.path())).await {
            Ok(node) => {
                let is_at_rest = node["target_provision_state"].is_null();
                return Some(node["provision_state"] != "available" || !is_at_rest);
            }
            Err(error) if error.kind() == Kind::Unreachable || error.is_unanswered() => {}
            Err(_) => return None,
        }
    }
    None
}

fn is_unanswered(failure: &Failure) -> bool {
    match failure {
        Failure::Api(error) => error.kind() == Kind::Unreachable || error.is_unanswered(),
        Failure::Usage(_)
        | Failure::NotFound(_)
        | Failure::Refused(_)
        | Failure::Failed(_)
        | Failure::TimedOut(_)
        | Failure::Unanswered(_)
        | Failure::Interrupted(_)
        | Failure::Some { .. }
        | Failure::Settings(_)
        | Failure::Unreadable { .. }
        | Failure::Unwritable { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use ironic_client::Target;
    use serde_json::json;

    use super::*;

    /// A server with one machine, whose answers to some of the first requests to deploy get lost. Those it
    /// took before that are told by `takes_lost`.
    fn server(lost: usize, takes_lost: bool) -> (Api, Arc<Mutex<usize>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(0));
        let count = asked.clone();
        std::thread::spawn(move || {
            let mut state = "available";
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut head, mut length) = (Vec::new(), 0);
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    if line.trim().is_empty() {
                        break;
                    }
                    let line = line.to_lowercase();
                    if let Some(number) = line.strip_prefix("content-length:") {
                        length = number.trim().parse().unwrap();
                    }
                    head.push(line);
                }
                reader.read_exact(&mut vec![0; length]).unwrap();
                let is_put = head.first().is_some_and(|line| line.starts_with("put"));
                let mut answer = (200, json!({"provision_state": state}).to_string());
                if is_put {
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    let is_lost = *count <= lost;
                    let is_free = state == "available";
                    if !is_lost || takes_lost {
                        state = "deploying";
                    }
                    if is_lost {
                        continue;
                    }
                    answer = match is_free {
                        true => (202, String::new()),
                        false => (409, json!({"error_message": "busy"}).to_string()),
                    };
                }
                let (status, body) = answer;
                let text = format!(
                    "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(text.as_bytes()).unwrap();
            }
        });
        (Api::new(Target::at(&url, None, None, "a test").unwrap()).unwrap(), asked)
    }

    async fn outcome(lost: usize, takes_lost: bool) -> (&'static str, usize) {
        let (api, asked) = server(lost, takes_lost);
        let chosen = Chosen::of(json!({"uuid": "u", "name": "n"}));
        let answer = match deploy(&api, &chosen, &json!({"target": "active"})).await {
            Answer::Accepted => "accepted",
            Answer::Refused(_) => "refused",
            Answer::Unknown(_) => "unknown",
        };
        let asked = *asked.lock().unwrap();
        (answer, asked)
    }

    #[tokio::test]
    async fn a_lost_answer_is_no_refusal() {
        assert_eq!(outcome(0, true).await, ("accepted", 1));
        // The machine is on its way: it is not asked again, and above all not given back.
        assert_eq!(outcome(1, true).await, ("accepted", 1));
        assert_eq!(outcome(2, false).await, ("accepted", 3));
        assert_eq!(outcome(9, false).await, ("refused", 4));
    }
}
