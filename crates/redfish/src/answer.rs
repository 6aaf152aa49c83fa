// SPDX-License-Identifier: Apache-2.0
//! What a BMC answers to being told to do something.

use serde_json::Value;

/// The answer to a POST, PATCH, PUT or DELETE that was accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The HTTP status: 200, 201, 202 or 204 mostly.
    pub status: u16,
    /// The path of what was made, or of the task that is doing it.
    pub location: Option<String>,
    /// What it said; null if nothing or nothing readable.
    pub body: Value,
}

/// What paths of tasks and of their monitors have in them.
const TASK_PATHS: [&str; 4] = ["/Tasks/", "/TaskMonitors/", "/TaskMon", "/Jobs/"];

impl Answer {
    /// The path of the task that does what was asked, if it is not done yet: what to give to
    /// [`crate::Client::task`]. It can be stored and asked for after a restart.
    ///
    /// The standard wants 202 with the monitor in `Location`. BMCs also put the task into the
    /// body, or answer 204 and a `Location` among the tasks. The task is preferred to its monitor:
    /// the monitor is gone when the task has ended, together with how it ended.
    #[must_use]
    pub fn task(&self) -> Option<&str> {
        let in_body = self.body.get("@odata.id").and_then(Value::as_str).filter(|path| {
            let kind = self.body.get("@odata.type").and_then(Value::as_str).unwrap_or_default();
            kind.starts_with("#Task.") || is_task_path(path)
        });
        let location = self.location.as_deref();
        match self.status {
            202 => in_body.or(location),
            _ => location.filter(|path| is_task_path(path)).or(in_body),
        }
    }
}

fn is_task_path(path: &str) -> bool {
    TASK_PATHS.iter().any(|part| path.contains(part))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tasks_are_found_wherever_they_are_named() {
        let task = json!({"@odata.id": "/redfish/v1/TaskService/Tasks/7", "@odata.type": "#Task.v1_4_0.Task"});
        let volume = json!({"@odata.id": "/redfish/v1/Systems/1/Storage/1/Volumes/1"});
        let monitor = Some("/redfish/v1/TaskService/TaskMonitors/7");
        let tasks = Some("/redfish/v1/TaskService/Tasks/7");
        for (status, location, body, handle) in [
            (202, monitor, Value::Null, monitor),
            (202, monitor, task.clone(), tasks),
            (202, Some("/opaque/7"), Value::Null, Some("/opaque/7")),
            (202, None, task.clone(), tasks),
            (202, None, Value::Null, None),
            (204, tasks, Value::Null, tasks),
            (200, None, task, tasks),
            (201, Some("/redfish/v1/Systems/1/Storage/1/Volumes/1"), volume, None),
            (204, None, Value::Null, None),
        ] {
            let answer = Answer { status, location: location.map(str::to_owned), body };
            assert_eq!(answer.task(), handle, "{answer:?}");
        }
    }
}
