// SPDX-License-Identifier: Apache-2.0
//! Extensions of Dell iDRACs: job queue, restart, readiness and the import of a boot device.

use http::StatusCode;
use serde_json::{Value, json};

use super::actions::parameter;
use super::document::{ResourceDocument, collection, link};
use super::error_response::RedfishErrorResponse;
use super::request_context::{ChangeResponse, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use super::tasks;
use crate::machine::{BmcTask, BmcTaskJob, BmcTaskStage, PowerPhase};

pub(super) const ROUTES: &[RedfishRoute] = &[
    dell("/redfish/v1/Managers/{manager}/Oem/Dell/DellJobService").get(job_service),
    dell(
        "/redfish/v1/Managers/{manager}/Oem/Dell/DellJobService/Actions/DellJobService.DeleteJobQueue",
    )
    .post(delete_job_queue),
    dell("/redfish/v1/Managers/{manager}/Oem/Dell/DelliDRACCardService").get(reset_service),
    dell(
        "/redfish/v1/Managers/{manager}/Oem/Dell/DelliDRACCardService/Actions/DelliDRACCardService.iDRACReset",
    )
    .post(reset),
    dell("/redfish/v1/Managers/{manager}/Oem/Dell/DellLCService").get(lifecycle_service),
    dell(
        "/redfish/v1/Managers/{manager}/Oem/Dell/DellLCService/Actions/DellLCService.GetRemoteServicesAPIStatus",
    )
    .post(api_status),
    dell("/redfish/v1/Managers/{manager}/Oem/Dell/Jobs").get(jobs).volatile(),
    dell("/redfish/v1/Managers/{manager}/Oem/Dell/Jobs/{job}").get(job).volatile(),
    dell("/redfish/v1/Managers/{manager}/Actions/Oem/EID_674_Manager.ImportSystemConfiguration")
        .post(import),
];

const SERVICES: &[&str] = &["DellJobService", "DelliDRACCardService", "DellLCService", "Jobs"];
const IMPORT: &str = "OemManager.ImportSystemConfiguration";
const DELETE: &str = "DellJobService.DeleteJobQueue";
const RESET: &str = "DelliDRACCardService.iDRACReset";
const STATUS: &str = "DellLCService.GetRemoteServicesAPIStatus";
/// Prefix of job ids.
const JOB_PREFIX: &str = "JID_";

const fn dell(path: &'static str) -> RedfishRoute {
    RedfishRoute::at(ResourceKind::DellServices, path)
}

/// Adds the extensions to the document of the manager, if it is an iDRAC.
pub(super) fn extend_manager(context: &RequestContext<'_>, document: &mut ResourceDocument) {
    if context.personality().idrac.is_none() || !context.has_resource(ResourceKind::DellServices) {
        return;
    }
    let path = context.manager_path();
    let services = SERVICES.iter().map(|name| {
        let name = (*name).to_owned();
        let service = link(format!("{path}/Oem/Dell/{name}"));
        (name, service)
    });
    let services: serde_json::Map<String, Value> = services.collect();
    let restarted_at = context.machine.bmc_restarted_at().unwrap_or(node_model::Timestamp(0));
    document.merge(json!({
        "LastResetTime": restarted_at.to_string(),
        "Links": {"Oem": {"Dell": services}},
        "Actions": {"Oem": {"#OemManager.ImportSystemConfiguration": {
            "target": format!("{path}/Actions/Oem/EID_674_Manager.ImportSystemConfiguration"),
            "ShutdownType@Redfish.AllowableValues": ["Graceful", "Forced", "NoReboot"],
        }}},
    }));
}

/// Fails if the BMC is not an iDRAC.
fn require_idrac(context: &RequestContext<'_>) -> Result<(), RedfishErrorResponse> {
    context.personality().idrac.as_ref().map(drop).ok_or_else(|| context.not_found())
}

fn service(
    context: &RequestContext<'_>,
    schema: &'static str,
    id: &str,
    action: &str,
    allowable: Value,
) -> Result<Value, RedfishErrorResponse> {
    require_idrac(context)?;
    let mut document = ResourceDocument::new(context.path, schema, id, id);
    let mut entry = json!({"target": format!("{}/Actions/{action}", context.path)});
    if let (Some(entry), Value::Object(allowable)) = (entry.as_object_mut(), allowable) {
        entry.extend(allowable);
    }
    let actions = serde_json::Map::from_iter([(format!("#{action}"), entry)]);
    document.set("Actions", actions);
    Ok(document.into_value())
}

fn job_service(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#DellJobService.v1_2_0.DellJobService";
    service(context, schema, "DellJobService", DELETE, Value::Null)
}

fn reset_service(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#DelliDRACCardService.v1_6_0.DelliDRACCardService";
    let allowable = json!({"Force@Redfish.AllowableValues": ["Graceful", "Force"]});
    service(context, schema, "DelliDRACCardService", RESET, allowable)
}

fn lifecycle_service(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#DellLCService.v1_7_0.DellLCService";
    service(context, schema, "DellLCService", STATUS, Value::Null)
}

fn delete_job_queue(
    context: &mut RequestContext<'_>,
) -> Result<ChangeResponse, RedfishErrorResponse> {
    require_idrac(context)?;
    let is_all = |id: &str| matches!(id, "JID_CLEARALL" | "JID_CLEARALL_FORCE").then_some(());
    parameter(context, DELETE, "JobID", is_all)?;
    context.machine.clear_tasks();
    Ok(ChangeResponse::ok(json!({})))
}

fn reset(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    require_idrac(context)?;
    parameter(context, RESET, "Force", |how| matches!(how, "Graceful" | "Force").then_some(()))?;
    context.machine.restart_bmc(context.now);
    Ok(ChangeResponse::ok(json!({})))
}

/// Returns the readiness: storage can be changed without a reboot once the machine has booted.
fn api_status(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    require_idrac(context)?;
    let is_running = matches!(context.machine.power_phase(), PowerPhase::Running);
    let status = if is_running { "Ready" } else { "NotReady" };
    Ok(ChangeResponse::ok(json!({
        "LCStatus": "Ready",
        "RTStatus": status,
        "ServerStatus": if is_running { "OutOfPOST" } else { "PoweredOff" },
        "Status": status,
    })))
}

fn jobs(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    require_idrac(context)?;
    let members = context.machine.tasks().iter();
    let members = members.map(|task| format!("{}/{JOB_PREFIX}{}", context.path, task.id));
    Ok(collection(context.path, "#DellJobCollection.DellJobCollection", "JobQueue", members))
}

fn job(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    require_idrac(context)?;
    let id = context.param("job");
    let number = id.strip_prefix(JOB_PREFIX).and_then(|number| number.parse().ok());
    let mut tasks = context.machine.tasks().iter();
    let task = tasks.find(|task| Some(task.id) == number).ok_or_else(|| context.not_found())?;
    let schema = "#DellJob.v1_4_0.DellJob";
    let mut document = ResourceDocument::new(context.path, schema, id, job_type(task));
    document.extend(json!({
        "JobState": job_state(task),
        "JobType": job_type(task),
        "PercentComplete": task.percent(context.now),
    }));
    Ok(document.into_value())
}

fn job_state(task: &BmcTask) -> &'static str {
    match task.stage {
        BmcTaskStage::WaitingForReset => "Scheduled",
        BmcTaskStage::Loading { .. } => "Downloading",
        BmcTaskStage::Working { .. } => "Running",
        BmcTaskStage::Completed { .. } => "Completed",
        BmcTaskStage::Failed { .. } => "Failed",
    }
}

fn job_type(task: &BmcTask) -> &'static str {
    match task.job {
        BmcTaskJob::CreateVolume(_) | BmcTaskJob::DeleteVolume(_) => {
            "RealTimeNoRebootConfiguration"
        }
        BmcTaskJob::SelectVirtualCd { .. } => "ImportConfiguration",
        BmcTaskJob::UpdateFirmware { .. } => "FirmwareUpdate",
    }
}

/// Imports a system configuration. Only the boot device `VCD-DVD` is supported.
fn import(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    require_idrac(context)?;
    let manager = context.manager_id();
    let parse = |text: &str| {
        let has = |part: &str| text.contains(part);
        let is_valid = has(&format!("<Component FQDD=\"{manager}\">"))
            && has("<Attribute Name=\"ServerBoot.1#FirstBootDevice\">VCD-DVD</Attribute>")
            && !has("> ");
        let once = |value| has(&format!("<Attribute Name=\"ServerBoot.1#BootOnce\">{value}<"));
        match (is_valid, once("Enabled"), once("Disabled")) {
            (true, true, false) => Some(true),
            (true, false, true) => Some(false),
            (_, _, _) => None,
        }
    };
    let once = parameter(context, IMPORT, "ImportBuffer", parse)?;
    let task = context.machine.import_virtual_cd(once, context.now)?;
    let mut response = tasks::accepted_response(context, task)?;
    // The response of an iDRAC has no body.
    (response.status, response.body) = (StatusCode::ACCEPTED, None);
    Ok(response)
}
