// SPDX-License-Identifier: Apache-2.0
//! Background tasks of the BMC.

use http::StatusCode;
use serde_json::{Value, json};

use super::document::{ResourceDocument, collection, link, status};
use super::error_response::RedfishErrorResponse;
use super::request_context::{ChangeResponse, ROOT, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use crate::machine::{BmcTask, BmcTaskId, BmcTaskJob, BmcTaskStage, Health};
use crate::personality::TaskWatchLocation;

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::TaskService, "/redfish/v1/TaskService").get(service).volatile(),
    RedfishRoute::at(ResourceKind::Tasks, "/redfish/v1/TaskService/Tasks").get(list),
    RedfishRoute::at(ResourceKind::Task, "/redfish/v1/TaskService/Tasks/{task}")
        .get(show)
        .volatile(),
    RedfishRoute::at(ResourceKind::TaskMonitor, "/redfish/v1/TaskService/TaskMonitors/{task}")
        .get(show)
        .volatile(),
];

/// Returns a 202 response with the location of the task or its monitor.
pub(super) fn accepted_response(
    context: &RequestContext<'_>,
    id: BmcTaskId,
) -> Result<ChangeResponse, RedfishErrorResponse> {
    let task = find_task(context, id).ok_or_else(|| context.not_found())?;
    let (location, body) = match context.personality().http.task_watch {
        // No body: clients would take its `@odata.id` for the location to watch.
        TaskWatchLocation::Monitor => (monitor_path(id), None),
        TaskWatchLocation::Task => {
            (RequestContext::task_path(id), Some(task_document(context, task)))
        }
    };
    Ok(ChangeResponse {
        status: StatusCode::ACCEPTED,
        body,
        location: Some(location),
        headers: vec![(http::header::RETRY_AFTER, "1".to_owned())],
    })
}

/// Returns the status of a read: 202 for a watched task that is not finished, otherwise 200.
pub(super) fn read_status(context: &RequestContext<'_>, kind: ResourceKind) -> StatusCode {
    let watched = match context.personality().http.task_watch {
        TaskWatchLocation::Monitor => ResourceKind::TaskMonitor,
        TaskWatchLocation::Task => ResourceKind::Task,
    };
    let is_running = || {
        let id = context.param("task").parse().ok();
        id.and_then(|id| find_task(context, id)).is_some_and(|task| !task.is_finished())
    };
    if kind == watched && is_running() { StatusCode::ACCEPTED } else { StatusCode::OK }
}

fn service(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#TaskService.v1_2_0.TaskService";
    let mut document = ResourceDocument::new(context.path, schema, "TaskService", "Task Service");
    document
        .set("ServiceEnabled", true)
        .set("DateTime", context.now.to_string())
        .set("Status", status(Health::Ok))
        .set("Tasks", link(format!("{ROOT}/TaskService/Tasks")));
    Ok(document.into_value())
}

fn list(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let members = context.machine.tasks().iter().map(|task| RequestContext::task_path(task.id));
    Ok(collection(context.path, "#TaskCollection.TaskCollection", "Tasks", members))
}

fn show(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let id = context.param("task").parse().map_err(|_| context.not_found())?;
    let task = find_task(context, id).ok_or_else(|| context.not_found())?;
    Ok(task_document(context, task))
}

fn task_document(context: &RequestContext<'_>, task: &BmcTask) -> Value {
    let name = match &task.job {
        BmcTaskJob::CreateVolume(volume) => format!("Create volume {}", volume.name),
        BmcTaskJob::DeleteVolume(id) => format!("Delete volume {id}"),
        BmcTaskJob::SelectVirtualCd { .. } => "Import System Configuration".to_owned(),
        BmcTaskJob::UpdateFirmware { component, .. } => {
            let rule = context.personality().firmware.get(*component);
            format!("Update {}", rule.map_or("firmware", |rule| &rule.name))
        }
    };
    let (state, health, message_id, message, ended) = match task.stage {
        BmcTaskStage::WaitingForReset => {
            ("Pending", "OK", "TaskEvent.1.0.TaskPaused", "Waiting for the next reset.", None)
        }
        BmcTaskStage::Loading { .. } => {
            ("Running", "OK", "Update.1.0.TransferringToComponent", "Downloading the image.", None)
        }
        BmcTaskStage::Working { .. } => {
            ("Running", "OK", "TaskEvent.1.0.TaskProgressChanged", "In progress.", None)
        }
        BmcTaskStage::Completed { at } => {
            ("Completed", "OK", "TaskEvent.1.0.TaskCompletedOK", "Completed.", Some(at))
        }
        BmcTaskStage::Failed { at, reason: why } => {
            ("Exception", "Critical", "TaskEvent.1.0.TaskAborted", why, Some(at))
        }
    };
    let path = RequestContext::task_path(task.id);
    let mut document =
        ResourceDocument::new(&path, "#Task.v1_7_3.Task", &task.id.to_string(), &name);
    document.extend(json!({
        "TaskState": state,
        "TaskStatus": health,
        "PercentComplete": task.percent(context.now),
        "StartTime": task.requested_at.to_string(),
        "TaskMonitor": match context.personality().http.task_watch {
            TaskWatchLocation::Monitor => monitor_path(task.id),
            TaskWatchLocation::Task => path.clone(),
        },
        "Messages": [{
            "MessageId": message_id,
            "Message": message,
            "MessageArgs": [],
            "Severity": if health == "OK" { "OK" } else { "Critical" },
        }],
    }));
    if let Some(ended) = ended {
        document.set("EndTime", ended.to_string());
    }
    document.into_value()
}

fn find_task<'v>(context: &'v RequestContext<'_>, id: BmcTaskId) -> Option<&'v BmcTask> {
    context.machine.tasks().iter().find(|task| task.id == id)
}

fn monitor_path(id: BmcTaskId) -> String {
    format!("{ROOT}/TaskService/TaskMonitors/{id}")
}
