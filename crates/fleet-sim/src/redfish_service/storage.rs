// SPDX-License-Identifier: Apache-2.0
//! Storage controllers, drives and volumes.

use serde_json::{Value, json};

use super::document::{ResourceDocument, collection, link, status};
use super::error_response::RedfishErrorResponse;
use super::request_context::{ChangeResponse, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use super::tasks;
use crate::machine::{ApplyTime, Health, RaidKind, SimulatedVolume, VolumeOutcome, VolumeRequest};
use crate::personality::ControllerRule;

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::Storages, "/redfish/v1/Systems/{system}/Storage").get(list),
    RedfishRoute::at(ResourceKind::Storage, "/redfish/v1/Systems/{system}/Storage/{storage}")
        .get(show),
    RedfishRoute::at(
        ResourceKind::Drive,
        "/redfish/v1/Systems/{system}/Storage/{storage}/Drives/{drive}",
    )
    .get(drive)
    .patch(change_drive),
    RedfishRoute::at(
        ResourceKind::Volumes,
        "/redfish/v1/Systems/{system}/Storage/{storage}/Volumes",
    )
    .get(volumes)
    .post(create),
    RedfishRoute::at(
        ResourceKind::Volume,
        "/redfish/v1/Systems/{system}/Storage/{storage}/Volumes/{volume}",
    )
    .get(volume)
    .delete(delete),
    RedfishRoute::at(
        ResourceKind::Volume,
        "/redfish/v1/Systems/{system}/Storage/{storage}/Volumes/{volume}/Actions/Volume.Initialize",
    )
    .post(initialize),
];

const APPLY_TIME: &str = "@Redfish.OperationApplyTime";

fn list(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let members =
        context.personality().storage.iter().map(|rule| format!("{}/{}", context.path, rule.id));
    Ok(collection(context.path, "#StorageCollection.StorageCollection", "Storage", members))
}

fn show(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let (index, rule) = controller(context)?;
    let path = controller_path(context, rule);
    let drives = (0..rule.all_drives().len()).filter_map(|index| rule.drive_id(index));
    let drives: Vec<Value> = drives.map(|id| link(format!("{path}/Drives/{id}"))).collect();
    let mut document =
        ResourceDocument::new(&path, "#Storage.v1_15_0.Storage", &rule.id, &rule.name);
    document.extend(json!({
        "Status": status(Health::Ok),
        "Drives@odata.count": drives.len(),
        "Drives": drives,
        "StorageControllers": [{
            "@odata.id": format!("{path}#/StorageControllers/0"),
            "MemberId": rule.id,
            "Name": rule.name,
            "Model": rule.model,
            "SerialNumber": context.machine.identity().part_serial(300 + to_u32(index)),
            "SpeedGbps": 12,
            "SupportedControllerProtocols": ["PCIe"],
            "SupportedDeviceProtocols": ["SAS", "SATA"],
            "SupportedRAIDTypes": rule.raid,
            "Status": status(Health::Ok),
        }],
        "Volumes": link(format!("{path}/Volumes")),
    }));
    Ok(document.into_value())
}

fn drive(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let (index, rule) = controller(context)?;
    let drive = drive_index(context, rule)?;
    let all = rule.all_drives();
    let kind = *all.get(drive).ok_or_else(|| context.not_found())?;
    let machine = &*context.machine;
    let volumes = machine.volumes().iter();
    let volumes =
        volumes.filter(|volume| volume.controller == index && volume.drives.contains(&drive));
    let volumes: Vec<Value> = volumes
        .map(|volume| link(format!("{}/Volumes/{}", controller_path(context, rule), volume.id)))
        .collect();
    let is_lit = machine.drive_led_is_lit(index, drive);
    let id = context.param("drive");
    let mut document =
        ResourceDocument::new(context.path, "#Drive.v1_17_0.Drive", id, &format!("Drive {drive}"));
    document.extend(json!({
        "Manufacturer": "Simulated",
        "Model": kind.model,
        "Revision": "1.0",
        "SerialNumber": machine.identity().part_serial(to_u32(index) * 64 + to_u32(drive)),
        "MediaType": kind.media,
        "Protocol": kind.protocol,
        "CapacityBytes": kind.bytes(),
        "BlockSizeBytes": 512,
        "FailurePredicted": false,
        "IndicatorLED": if is_lit { "Lit" } else { "Off" },
        "Status": status(Health::Ok),
        "Links": {"Volumes": volumes},
    }));
    Ok(document.into_value())
}

fn change_drive(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    context.reject_unknown_properties(&["IndicatorLED", "LocationIndicatorActive"])?;
    let (index, rule) = controller(context)?;
    let drive_number = drive_index(context, rule)?;
    if let Some(light) = super::systems::indicator_from_body(context)? {
        context.machine.set_drive_led(
            index,
            drive_number,
            light != crate::machine::IndicatorLed::Off,
        );
    }
    Ok(ChangeResponse::ok(drive(context)?))
}

fn volumes(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let (index, rule) = controller(context)?;
    let volumes = context.machine.volumes().iter().filter(|volume| volume.controller == index);
    let path = format!("{}/Volumes", controller_path(context, rule));
    let members = volumes.map(|volume| format!("{path}/{}", volume.id));
    let mut document = collection(&path, "#VolumeCollection.VolumeCollection", "Volumes", members);
    if let Some(fields) = document.as_object_mut()
        && !rule.raid.is_empty()
    {
        fields.insert(
            "@Redfish.OperationApplyTimeSupport".to_owned(),
            json!({
                "@odata.type": "#Settings.v1_3_5.OperationApplyTimeSupport",
                "SupportedValues": rule.apply_times,
            }),
        );
    }
    Ok(document)
}

fn volume(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let (index, rule) = controller(context)?;
    let id = volume_id(context)?;
    let volumes = context.machine.volumes().iter();
    let found = volumes.filter(|volume| volume.controller == index).find(|volume| volume.id == id);
    Ok(volume_document(context, rule, found.ok_or_else(|| context.not_found())?))
}

fn volume_document(
    context: &RequestContext<'_>,
    rule: &ControllerRule,
    volume: &SimulatedVolume,
) -> Value {
    let controller_path = controller_path(context, rule);
    let path = format!("{controller_path}/Volumes/{}", volume.id);
    let drives = volume.drives.iter().filter_map(|drive| rule.drive_id(*drive));
    let drives: Vec<Value> =
        drives.map(|id| link(format!("{controller_path}/Drives/{id}"))).collect();
    let id = volume.id.to_string();
    let mut document = ResourceDocument::new(&path, "#Volume.v1_9_0.Volume", &id, &volume.name);
    document.extend(json!({
        "RAIDType": volume.raid.name(),
        "VolumeType": volume.raid.volume_type(),
        "CapacityBytes": volume.capacity_bytes,
        "BlockSizeBytes": 512,
        "Encrypted": false,
        "Identifiers": [{
            "DurableNameFormat": "NAA",
            "DurableName": format!("6{:031x}", crate::machine::mix(u64::from(volume.id))),
        }],
        "Status": status(Health::Ok),
        "Links": {"Drives": drives},
        "Actions": {"#Volume.Initialize": {
            "target": format!("{path}/Actions/Volume.Initialize"),
            "InitializeType@Redfish.AllowableValues": ["Fast", "Slow"],
        }},
    }));
    document.into_value()
}

fn create(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let (index, rule) = controller(context)?;
    let rule = rule.clone();
    if rule.raid.is_empty() {
        return Err(RedfishErrorResponse::method_not_allowed("GET, HEAD".to_owned()));
    }
    let request = volume_request(context, index, &rule)?;
    let apply = apply_time(context)?;
    match context.machine.create_volume(request, apply, context.now)? {
        VolumeOutcome::Completed(id) => {
            let volume = context.machine.volumes().iter().find(|volume| volume.id == id);
            let volume = volume.ok_or_else(|| context.not_found())?;
            let location = format!("{}/Volumes/{id}", controller_path(context, &rule));
            Ok(ChangeResponse::created(location, volume_document(context, &rule, volume)))
        }
        VolumeOutcome::TaskStarted(task) => tasks::accepted_response(context, task),
    }
}

fn volume_request(
    context: &RequestContext<'_>,
    index: usize,
    rule: &ControllerRule,
) -> Result<VolumeRequest, RedfishErrorResponse> {
    context.reject_unknown_properties(&[
        "Name",
        "DisplayName",
        "RAIDType",
        "VolumeType",
        "CapacityBytes",
        "Links",
        "Drives",
        "Encrypted",
    ])?;
    let raid = match context.string_property("RAIDType")? {
        Some(name) => RaidKind::from_name(name)
            .ok_or_else(|| RedfishErrorResponse::property_value("RAIDType", name))?,
        None => return Err(RedfishErrorResponse::property_missing("RAIDType")),
    };
    let capacity_bytes = match context.body.get("CapacityBytes") {
        None | Some(Value::Null) => None,
        Some(value) => Some(
            value
                .as_u64()
                .ok_or_else(|| RedfishErrorResponse::property_type("CapacityBytes", value))?,
        ),
    };
    let linked = context.body.get("Links").and_then(|links| links.get("Drives"));
    let drives = match linked.or_else(|| context.body.get("Drives")) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(links)) => {
            links.iter().map(|link| linked_drive(rule, link)).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(RedfishErrorResponse::property_type("Drives", other)),
    };
    let name = context
        .string_property("Name")?
        .or(context.string_property("DisplayName")?)
        .map(Into::into);
    Ok(VolumeRequest { controller: index, name, raid, capacity_bytes, drives })
}

/// Returns the index of the drive that a link points to.
fn linked_drive(rule: &ControllerRule, link: &Value) -> Result<usize, RedfishErrorResponse> {
    let path = link.get("@odata.id").and_then(Value::as_str);
    let id = path.map(|path| path.trim_end_matches('/').rsplit('/').next().unwrap_or(path));
    let index = id.and_then(|id| {
        (0..rule.all_drives().len()).find(|index| rule.drive_id(*index).as_deref() == Some(id))
    });
    index.ok_or_else(|| RedfishErrorResponse::property_value("Drives", &link.to_string()))
}

fn delete(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let (index, _) = controller(context)?;
    let id = volume_id(context)?;
    let apply = apply_time(context)?;
    match context.machine.delete_volume(index, id, apply, context.now)? {
        VolumeOutcome::Completed(_) => Ok(ChangeResponse::no_content()),
        VolumeOutcome::TaskStarted(task) => tasks::accepted_response(context, task),
    }
}

fn initialize(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    volume(context)?;
    Ok(ChangeResponse::no_content())
}

fn apply_time(context: &RequestContext<'_>) -> Result<Option<ApplyTime>, RedfishErrorResponse> {
    match context.string_property(APPLY_TIME)? {
        None => Ok(None),
        Some("Immediate") => Ok(Some(ApplyTime::Immediate)),
        Some("OnReset") => Ok(Some(ApplyTime::OnReset)),
        Some(other) => Err(RedfishErrorResponse::property_value(APPLY_TIME, other)),
    }
}

fn controller<'v>(
    context: &'v RequestContext<'_>,
) -> Result<(usize, &'v ControllerRule), RedfishErrorResponse> {
    let id = context.param("storage");
    let found = context.personality().storage.iter().enumerate().find(|(_, rule)| rule.id == id);
    found.ok_or_else(|| context.not_found())
}

fn drive_index(
    context: &RequestContext<'_>,
    rule: &ControllerRule,
) -> Result<usize, RedfishErrorResponse> {
    let id = context.param("drive");
    (0..rule.all_drives().len())
        .find(|index| rule.drive_id(*index).as_deref() == Some(id))
        .ok_or_else(|| context.not_found())
}

fn volume_id(context: &RequestContext<'_>) -> Result<u32, RedfishErrorResponse> {
    context.param("volume").parse().map_err(|_| context.not_found())
}

fn controller_path(context: &RequestContext<'_>, rule: &ControllerRule) -> String {
    format!("{}/Storage/{}", context.system_path(), rule.id)
}

fn to_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
