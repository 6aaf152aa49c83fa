// SPDX-License-Identifier: Apache-2.0
//! What has become of something a BMC does in its own time.

use http::StatusCode;
use serde_json::Value;

use crate::exchange::{Call, Reply};
use crate::refusal::{Refusal, messages_in, shortened};
use crate::{Client, Error, body, path};

/// How a task stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Whether it goes on.
    pub state: TaskState,
    /// What the BMC calls that, such as `Pending`.
    pub word: Option<String>,
    /// How much of it is done.
    pub percent: Option<u8>,
    /// What the BMC says about it, without repetitions.
    pub messages: Vec<String>,
    /// The BMC no longer knows the task, so that it is done is our conclusion and not its word.
    pub gone: bool,
}

/// Whether a task goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// It has not ended, or its end is not known yet.
    Running,
    /// It has ended well.
    Done,
    /// It has ended otherwise.
    Failed,
}

/// What BMCs call the ends of tasks and of jobs. Every other word means that it has not ended,
/// words we do not know included.
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

impl Client {
    /// Looks at a task once. Never waits: callers ask again when they see fit.
    ///
    /// A task that is gone (404 or 410) counts as done, and says so in [`Task::gone`]: services
    /// forget a task monitor as soon as its task has ended, and all tasks when the BMC restarts
    /// after updating itself. Where it matters, look at what the task was to change.
    pub async fn task(&self, handle: &str) -> Result<Task, Error> {
        let path = path::local(&self.shared.endpoint.root, handle);
        let call = Call::get(&path);
        let reply = self.authorised(&call).await?;
        if reply.status.is_server_error() {
            // The BMC is in trouble, which says nothing of the task.
            return reply.accepted(&call).map(|reply| Task::of(&reply));
        }
        Ok(Task::of(&reply))
    }
}

impl Task {
    fn of(reply: &Reply) -> Self {
        let status = reply.status;
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Self { gone: true, ..ended(TaskState::Done) };
        }
        if status.is_client_error() {
            // A monitor ends with the answer of what was asked, and this one is a refusal.
            let messages = vec![Refusal::read(&reply.body, &[]).message];
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

fn ended(state: TaskState) -> Task {
    Task { state, word: None, percent: None, messages: Vec::new(), gone: false }
}

fn state_of(word: &str, health: Option<&str>) -> TaskState {
    let end = ENDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word));
    match end.map_or(TaskState::Running, |(_, state)| *state) {
        // It has ended, and the BMC is not happy with how.
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
        let task = Task::of(&Reply {
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
