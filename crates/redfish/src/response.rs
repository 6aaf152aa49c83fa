// SPDX-License-Identifier: Apache-2.0
//! The response of a BMC to a request that changes something.

use serde_json::Value;

/// The response to an accepted POST, PATCH, PUT or DELETE.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationResponse {
    /// The HTTP status, usually 200, 201, 202 or 204.
    pub status: u16,
    /// The path of the created resource, or of the task.
    pub location: Option<String>,
    /// The body; null if it is empty or not JSON.
    pub body: Value,
}

/// Parts of the paths of tasks and task monitors.
const TASK_PATHS: [&str; 4] = ["/Tasks/", "/TaskMonitors/", "/TaskMon", "/Jobs/"];

impl OperationResponse {
    /// The path of the task if the operation is not finished: the argument of
    /// [`crate::RedfishClient::task`]. It stays valid across a restart of the client.
    ///
    /// The standard requires 202 with the monitor in `Location`. Some BMCs put the task into the
    /// body, or return 204 with a task in `Location`. The task is preferred to its monitor, because
    /// the monitor disappears with the result when the task ends.
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
    fn finds_tasks_in_location_and_body() {
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
            let response =
                OperationResponse { status, location: location.map(str::to_owned), body };
            assert_eq!(response.task(), handle, "{response:?}");
        }
    }
}
