// SPDX-License-Identifier: Apache-2.0
//! Requests a deployment, and determines whether it started if the response is lost.

use std::time::Duration;

use ironic_client::{Api, QueryString};
use serde_json::Value;

use crate::cli_error::CliError;
use crate::node::verbs::{Verb, request_provision_state};
use crate::selection::SelectedNode;

/// Repetitions of a request whose response was lost.
const MAX_REPEATS: u32 = 3;
/// Queries of the node's state while the server is unavailable, and the interval between them.
const MAX_STATE_QUERIES: u32 = 15;
const QUERY_INTERVAL: Duration = Duration::from_secs(1);

/// The server's response to the request.
pub(super) enum DeployResponse {
    Accepted,
    Rejected(CliError),
    /// The response was lost and the state of the node cannot be queried.
    Unknown(String),
}

/// Requests the deployment of an available node.
pub(super) async fn deploy(api: &Api, selected: &SelectedNode, body: &Value) -> DeployResponse {
    let mut repeats = 0;
    loop {
        let failure =
            match request_provision_state(api, selected, Verb::Deploy.target(), body).await {
                Ok(()) => return DeployResponse::Accepted,
                Err(failure) => failure,
            };
        let is_unanswered = is_server_unavailable(&failure);
        if !is_unanswered && repeats == 0 {
            return DeployResponse::Rejected(failure);
        }
        // After a lost response the repetition may be rejected because the first request was accepted.
        match has_started(api, selected).await {
            Some(true) => return DeployResponse::Accepted,
            Some(false) if is_unanswered && repeats < MAX_REPEATS => repeats += 1,
            Some(false) => return DeployResponse::Rejected(failure),
            None => return DeployResponse::Unknown(failure.message()),
        }
    }
}

/// Whether the deployment has started; `None` if the server cannot be queried.
async fn has_started(api: &Api, selected: &SelectedNode) -> Option<bool> {
    let query = QueryString::new().with("fields", "provision_state,target_provision_state");
    for query_number in 0..MAX_STATE_QUERIES {
        if query_number > 0 {
            tokio::time::sleep(QUERY_INTERVAL).await;
        }
        match api.get(&query.append_to(&selected.path())).await {
            Ok(node) => {
                let is_stable = node["target_provision_state"].is_null();
                return Some(node["provision_state"] != "available" || !is_stable);
            }
            Err(error) if error.is_server_unavailable() => {}
            Err(_) => return None,
        }
    }
    None
}

fn is_server_unavailable(failure: &CliError) -> bool {
    match failure {
        CliError::Api(error) => error.is_server_unavailable(),
        CliError::Usage(_)
        | CliError::NotFound(_)
        | CliError::Rejected(_)
        | CliError::Failed(_)
        | CliError::TimedOut(_)
        | CliError::OutcomeUnknown(_)
        | CliError::Interrupted(_)
        | CliError::ConnectionLost(_)
        | CliError::SomeFailed { .. }
        | CliError::Target(_)
        | CliError::Unreadable { .. }
        | CliError::Unwritable { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_server::{self, start_server};

    /// Requests a deployment from a server whose first `lost` responses are replaced by `instead`.
    /// With `takes_lost` it accepts those requests. Returns the result and the number of requests.
    async fn outcome(
        lost: usize,
        takes_lost: bool,
        instead: fn() -> test_server::TestResponse,
    ) -> (&'static str, usize) {
        let (mut state, mut count) = ("available", 0);
        let (context, log) = start_server(move |request| {
            if !request.line.starts_with("PUT") {
                return test_server::TestResponse::Json(200, json!({ "provision_state": state }));
            }
            count += 1;
            let (is_lost, is_free) = (count <= lost, state == "available");
            if !is_lost || takes_lost {
                state = "deploying";
            }
            match is_free {
                _ if is_lost => instead(),
                true => test_server::TestResponse::Json(202, Value::Null),
                false => test_server::TestResponse::Json(409, json!({"error_message": "busy"})),
            }
        });
        let selected = SelectedNode::new(json!({"uuid": "u", "name": "n"}));
        let response = match deploy(&context.api, &selected, &json!({"target": "active"})).await {
            DeployResponse::Accepted => "accepted",
            DeployResponse::Rejected(_) => "rejected",
            DeployResponse::Unknown(_) => "unknown",
        };
        let requests = log.lock().unwrap().iter().filter(|line| line.starts_with("PUT")).count();
        (response, requests)
    }

    #[tokio::test]
    async fn repeats_a_request_whose_response_was_lost() {
        // Stock Ironic returns 500 if its conductor does not reply in time.
        let timed_out = || {
            let message = "Timed out waiting for a reply";
            test_server::TestResponse::Json(500, json!({ "error_message": message }))
        };
        let lost: fn() -> _ = || test_server::TestResponse::Disconnect;
        for instead in [lost, timed_out] {
            assert_eq!(outcome(0, true, instead).await, ("accepted", 1));
            // The deployment has started, so the request is not repeated and the node not released.
            assert_eq!(outcome(1, true, instead).await, ("accepted", 1));
            assert_eq!(outcome(2, false, instead).await, ("accepted", 3));
            assert_eq!(outcome(9, false, instead).await, ("rejected", 4));
        }
    }
}
