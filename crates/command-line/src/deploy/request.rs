// SPDX-License-Identifier: Apache-2.0
//! Asking a machine to deploy, and finding out what came of it when the answer is lost.

use std::time::Duration;

use ironic_client::{Api, Query};
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
            Err(error) if error.is_absence() => {}
            Err(_) => return None,
        }
    }
    None
}

fn is_unanswered(failure: &Failure) -> bool {
    match failure {
        Failure::Api(error) => error.is_absence(),
        Failure::Usage(_)
        | Failure::NotFound(_)
        | Failure::Refused(_)
        | Failure::Failed(_)
        | Failure::TimedOut(_)
        | Failure::Unanswered(_)
        | Failure::Interrupted(_)
        | Failure::Lost(_)
        | Failure::Some { .. }
        | Failure::Settings(_)
        | Failure::Unreadable { .. }
        | Failure::Unwritable { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_server::{self, server};

    /// What comes of it at a server with one machine, which does not answer some of the first requests to
    /// deploy but with `instead`, and how often it was asked. Whether it took those is told by `takes_lost`.
    async fn outcome(
        lost: usize,
        takes_lost: bool,
        instead: fn() -> test_server::Answer,
    ) -> (&'static str, usize) {
        let (mut state, mut count) = ("available", 0);
        let (desk, asked) = server(move |asked| {
            if !asked.line.starts_with("PUT") {
                return test_server::Answer::Json(200, json!({ "provision_state": state }));
            }
            count += 1;
            let (is_lost, is_free) = (count <= lost, state == "available");
            if !is_lost || takes_lost {
                state = "deploying";
            }
            match is_free {
                _ if is_lost => instead(),
                true => test_server::Answer::Json(202, Value::Null),
                false => test_server::Answer::Json(409, json!({"error_message": "busy"})),
            }
        });
        let chosen = Chosen::of(json!({"uuid": "u", "name": "n"}));
        let answer = match deploy(&desk.api, &chosen, &json!({"target": "active"})).await {
            Answer::Accepted => "accepted",
            Answer::Refused(_) => "refused",
            Answer::Unknown(_) => "unknown",
        };
        let asked = asked.lock().unwrap().iter().filter(|line| line.starts_with("PUT")).count();
        (answer, asked)
    }

    #[tokio::test]
    async fn a_lost_answer_is_no_refusal() {
        // A stock Ironic says 500 when its own conductor does not answer it in time.
        let timed_out = || {
            let told = "Timed out waiting for a reply";
            test_server::Answer::Json(500, json!({ "error_message": told }))
        };
        let lost: fn() -> _ = || test_server::Answer::Lost;
        for instead in [lost, timed_out] {
            assert_eq!(outcome(0, true, instead).await, ("accepted", 1));
            // The machine is on its way: it is not asked again, and above all not given back.
            assert_eq!(outcome(1, true, instead).await, ("accepted", 1));
            assert_eq!(outcome(2, false, instead).await, ("accepted", 3));
            assert_eq!(outcome(9, false, instead).await, ("refused", 4));
        }
    }
}
