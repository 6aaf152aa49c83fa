// SPDX-License-Identifier: Apache-2.0
//! The state of a task on a BMC.

use http::StatusCode;
use serde_json::Value;

use crate::error_body::{RedfishErrorBody, messages_in, shortened};
use crate::exchange::{BmcHttpResponse, OutgoingRequest};
use crate::{RedfishClient, RedfishError, body, path};

/// The state of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedfishTask {
    /// Running, finished or failed.
    pub state: TaskState,
    /// The state as reported by the BMC, such as `Pending`.
    pub word: Option<String>,
    /// The progress in percent.
    pub percent: Option<u8>,
    /// The messages of the BMC without duplicates.
    pub messages: Vec<String>,
    /// The BMC no longer has the task, so its success is an assumption.
    pub gone: bool,
}

/// Whether a task is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// Not ended, or the end is not known yet.
    Running,
    /// Ended successfully.
    Done,
    /// Failed or cancelled.
    Failed,
}

/// The names of final states of tasks and jobs. Every other name, also an unknown one, means that the
/// task is running.
const ENDS: [(&str, TaskState); 12] = [
    ("Completed", TaskState::Done),
    ("CompletedOK", TaskState::Done),
    ("CompletedWithErrors", TaskState::Failed),
    ("Cancelled", TaskState::Failed),
    ("Canceled", TaskState::Failed),
    ("Exception", TaskState::Failed),
    ("Failed", TaskState::Failed),
    ("Killed", TaskState::Failed),
    ("RebootFailed", TaskState::Failed),
    ("RebootCompleted", TaskState::Done),
    ("Invalid", TaskState::Failed),
    ("Aborted", TaskState::Failed),
];

impl RedfishClient {
    /// Queries a task once. Never waits.
    ///
    /// A missing task (404 or 410) counts as finished, with [`RedfishTask::gone`] set: services delete
    /// a task monitor when its task ends, and all tasks when the BMC restarts after an update. Where
    /// it matters, check the resource that the task changes.
    pub async fn task(&self, handle: &str) -> Result<RedfishTask, RedfishError> {
        let path = path::local(&self.shared.endpoint.root, handle);
        let call = OutgoingRequest::get(&path);
        let reply = self.authorised(&call).await?;
        if reply.status.is_server_error() {
            // An error of the BMC, unrelated to the task.
            return reply.accepted(&call).map(|reply| RedfishTask::of(&reply));
        }
        Ok(RedfishTask::of(&reply))
    }
}

impl RedfishTask {
    fn of(reply: &BmcHttpResponse) -> Self {
        let status = reply.status;
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Self { gone: true, ..ended(TaskState::Done) };
        }
        if status.is_client_error() {
            // The final response of a monitor is that of the operation, here an error.
            let messages = vec![RedfishErrorBody::read(&reply.body, &[]).message];
            return Self { messages, ..ended(TaskState::Failed) };
        }
        let body = body::parse(&reply.body).unwrap_or(Value::Null);
        let word = ["TaskState", "JobState"].iter().find_map(|key| body.get(key)?.as_str());
        let state = match word {
            Some(word) => state_of(word, body.get("TaskStatus").and_then(Value::as_str)),
            None if status == StatusCode::ACCEPTED => TaskState::Running,
            None => TaskState::Done,
        };
        let word = word.map(|word| shortened(word.to_owned()));
        Self { state, word, percent: percent_in(&body), messages: texts_in(&body), gone: false }
    }
}

fn ended(state: TaskState) -> RedfishTask {
    RedfishTask { state, word: None, percent: None, messages: Vec::new(), gone: false }
}

fn state_of(word: &str, health: Option<&str>) -> TaskState {
    let end = ENDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word));
    match end.map_or(TaskState::Running, |(_, state)| *state) {
        // Completed, but with a critical health.
        TaskState::Done if health == Some("Critical") => TaskState::Failed,
        state @ (TaskState::Running | TaskState::Done | TaskState::Failed) => state,
    }
}

fn percent_in(body: &Value) -> Option<u8> {
    let percent = body.get("PercentComplete")?;
    let percent = percent.as_f64().or_else(|| percent.as_str()?.trim().parse().ok())?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what fits"
    )]
    percent.is_finite().then(|| percent.clamp(0.0, 100.0) as u8)
}

fn texts_in(body: &Value) -> Vec<String> {
    let own = body.get("Messages").and_then(Value::as_array).into_iter().flatten();
    let mut texts: Vec<String> = Vec::new();
    for message in own.chain(messages_in(body)) {
        let text = ["Message", "MessageId"].iter().find_map(|key| message.get(key)?.as_str());
        let text = text.map(str::trim).filter(|text| !text.is_empty());
        let text = text.map(|text| shortened(text.to_owned()));
        texts.extend(text.filter(|text| !texts.contains(text)));
    }
    texts
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    fn seen(status: u16, body: &str) -> String {
        let task = RedfishTask::of(&BmcHttpResponse {
            status: StatusCode::from_u16(status).unwrap(),
            path: "/redfish/v1/TaskService/Tasks/7".to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::from(body.to_owned()),
        });
        let percent = task.percent.map(|percent| format!(" {percent}%")).unwrap_or_default();
        let gone = if task.gone { " gone" } else { "" };
        format!("{:?}{percent}{gone} {}", task.state, task.messages.join("|")).trim_end().to_owned()
    }

    #[test]
    fn states() {
        for (status, body, expected) in [
            (202, "", "Running"),
            (202, r#"{"TaskState": "Running", "PercentComplete": 40}"#, "Running 40%"),
            (200, r#"{"TaskState": "Running", "PercentComplete": "40"}"#, "Running 40%"),
            (200, r#"{"TaskState": "Completed", "TaskStatus": "OK"}"#, "Done"),
            (200, r#"{"TaskState": "Completed", "TaskStatus": "Critical"}"#, "Failed"),
            (
                200,
                r#"{"TaskState": "Exception", "Messages": [{"Message": "No space."}, {}, 7,
                    {"Message": "No space."}, {"MessageId": "X.1.0.Y"}]}"#,
                "Failed No space.|X.1.0.Y",
            ),
            (200, r#"{"JobState": "CompletedWithErrors"}"#, "Failed"),
            (200, r#"{"JobState": "Scheduled"}"#, "Running"),
            (200, r#"{"TaskState": "Marinating", "PercentComplete": 900}"#, "Running 100%"),
            (200, r#"{"@odata.id": "/redfish/v1/Systems/1"}"#, "Done"),
            (200, "<html>", "Done"),
            (204, "", "Done"),
            (404, "", "Done gone"),
            (410, "", "Done gone"),
            (400, r#"{"error": {"message": "Bad image."}}"#, "Failed Bad image."),
        ] {
            assert_eq!(seen(status, body), expected, "{status} {body}");
        }
    }
}
