// SPDX-License-Identifier: Apache-2.0
//! Tasks: what the BMC does in the background, to be watched.

use http::StatusCode;
use serde_json::{Value, json};

use super::document::{Document, collection, link, status};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::visit::{ROOT, Reply, Visit};
use crate::machine::{Health, Job, Stage, Task, TaskId};
use crate::personality::WatchTasks;

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::TaskService, "/redfish/v1/TaskService").get(service).volatile(),
    Route::at(Kind::Tasks, "/redfish/v1/TaskService/Tasks").get(list),
    Route::at(Kind::Task, "/redfish/v1/TaskService/Tasks/{task}").get(show).volatile(),
    Route::at(Kind::TaskMonitor, "/redfish/v1/TaskService/TaskMonitors/{task}")
        .get(show)
        .volatile(),
];

/// A 202 that says where to watch the task.
pub(super) fn accepted(visit: &Visit<'_>, id: TaskId) -> Result<Reply, Refusal> {
    let task = find(visit, id).ok_or_else(|| visit.not_found())?;
    let (location, body) = match visit.personality().http.watch_tasks {
        // Clients take what a body calls itself for the place to watch, so there is none.
        WatchTasks::Monitor => (monitor_path(id), None),
        WatchTasks::Task => (Visit::task_path(id), Some(describe(visit, task))),
    };
    Ok(Reply {
        status: StatusCode::ACCEPTED,
        body,
        location: Some(location),
        headers: vec![(http::header::RETRY_AFTER, "1".to_owned())],
    })
}

/// The status of what was read: a 202 where a task is watched that goes on.
pub(super) fn status_of(visit: &Visit<'_>, kind: Kind) -> StatusCode {
    let watched = match visit.personality().http.watch_tasks {
        WatchTasks::Monitor => Kind::TaskMonitor,
        WatchTasks::Task => Kind::Task,
    };
    let goes_on = || {
        let id = visit.param("task").parse().ok();
        id.and_then(|id| find(visit, id)).is_some_and(|task| !task.is_over())
    };
    if kind == watched && goes_on() { StatusCode::ACCEPTED } else { StatusCode::OK }
}

fn service(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#TaskService.v1_2_0.TaskService";
    let mut document = Document::new(visit.path, schema, "TaskService", "Task Service");
    document
        .put("ServiceEnabled", true)
        .put("DateTime", visit.now.to_string())
        .put("Status", status(Health::Ok))
        .put("Tasks", link(format!("{ROOT}/TaskService/Tasks")));
    Ok(document.done())
}

fn list(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let members = visit.machine.tasks().iter().map(|task| Visit::task_path(task.id));
    Ok(collection(visit.path, "#TaskCollection.TaskCollection", "Tasks", members))
}

fn show(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let id = visit.param("task").parse().map_err(|_| visit.not_found())?;
    let task = find(visit, id).ok_or_else(|| visit.not_found())?;
    Ok(describe(visit, task))
}

fn describe(visit: &Visit<'_>, task: &Task) -> Value {
    let name = match &task.job {
        Job::CreateVolume(volume) => format!("Create volume {}", volume.name),
        Job::DeleteVolume(id) => format!("Delete volume {id}"),
        Job::UpdateFirmware { component, .. } => {
            let rule = visit.personality().firmware.get(*component);
            format!("Update {}", rule.map_or("firmware", |rule| &rule.name))
        }
    };
    let (state, health, message_id, said, ended) = match task.stage {
        Stage::WaitsForReset => {
            ("Pending", "OK", "TaskEvent.1.0.TaskPaused", "It waits for the next reset.", None)
        }
        Stage::Loading { .. } => {
            ("Running", "OK", "Update.1.0.TransferringToComponent", "The image is loaded.", None)
        }
        Stage::Working { .. } => {
            ("Running", "OK", "TaskEvent.1.0.TaskProgressChanged", "It is being done.", None)
        }
        Stage::Done { at } => {
            ("Completed", "OK", "TaskEvent.1.0.TaskCompletedOK", "It is done.", Some(at))
        }
        Stage::Failed { at, why } => {
            ("Exception", "Critical", "TaskEvent.1.0.TaskAborted", why, Some(at))
        }
    };
    let path = Visit::task_path(task.id);
    let mut document = Document::new(&path, "#Task.v1_7_3.Task", &task.id.to_string(), &name);
    document.extend(json!({
        "TaskState": state,
        "TaskStatus": health,
        "PercentComplete": task.percent(visit.now),
        "StartTime": task.asked_at.to_string(),
        "TaskMonitor": match visit.personality().http.watch_tasks {
            WatchTasks::Monitor => monitor_path(task.id),
            WatchTasks::Task => path.clone(),
        },
        "Messages": [{
            "MessageId": message_id,
            "Message": said,
            "MessageArgs": [],
            "Severity": if health == "OK" { "OK" } else { "Critical" },
        }],
    }));
    if let Some(ended) = ended {
        document.put("EndTime", ended.to_string());
    }
    document.done()
}

fn find<'v>(visit: &'v Visit<'_>, id: TaskId) -> Option<&'v Task> {
    visit.machine.tasks().iter().find(|task| task.id == id)
}

fn monitor_path(id: TaskId) -> String {
    format!("{ROOT}/TaskService/TaskMonitors/{id}")
}
