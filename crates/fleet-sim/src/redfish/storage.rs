// SPDX-License-Identifier: Apache-2.0
//! Storage controllers, drives and volumes.

use serde_json::{Value, json};

use super::document::{Document, collection, link, status};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::tasks;
use super::visit::{Reply, Visit};
use crate::machine::{ApplyTime, Health, RaidKind, Volume, VolumeOutcome, VolumeWish};
use crate::personality::ControllerRule;

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::Storages, "/redfish/v1/Systems/{system}/Storage").get(list),
    Route::at(Kind::Storage, "/redfish/v1/Systems/{system}/Storage/{storage}").get(show),
    Route::at(Kind::Drive, "/redfish/v1/Systems/{system}/Storage/{storage}/Drives/{drive}")
        .get(drive)
        .patch(change_drive),
    Route::at(Kind::Volumes, "/redfish/v1/Systems/{system}/Storage/{storage}/Volumes")
        .get(volumes)
        .post(create),
    Route::at(Kind::Volume, "/redfish/v1/Systems/{system}/Storage/{storage}/Volumes/{volume}")
        .get(volume)
        .delete(delete),
    Route::at(
        Kind::Volume,
        "/redfish/v1/Systems/{system}/Storage/{storage}/Volumes/{volume}/Actions/Volume.Initialize",
    )
    .post(initialize),
];

const APPLY_TIME: &str = "@Redfish.OperationApplyTime";

fn list(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let members =
        visit.personality().storage.iter().map(|rule| format!("{}/{}", visit.path, rule.id));
    Ok(collection(visit.path, "#StorageCollection.StorageCollection", "Storage", members))
}

fn show(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let (place, rule) = controller(visit)?;
    let path = path_of(visit, rule);
    let drives = (0..rule.all_drives().len()).filter_map(|number| rule.drive_id(number));
    let drives: Vec<Value> = drives.map(|id| link(format!("{path}/Drives/{id}"))).collect();
    let mut document = Document::new(&path, "#Storage.v1_15_0.Storage", &rule.id, &rule.name);
    document.extend(json!({
        "Status": status(Health::Ok),
        "Drives@odata.count": drives.len(),
        "Drives": drives,
        "StorageControllers": [{
            "@odata.id": format!("{path}#/StorageControllers/0"),
            "MemberId": rule.id,
            "Name": rule.name,
            "Model": rule.model,
            "SerialNumber": visit.machine.identity().part_serial(300 + number(place)),
            "SpeedGbps": 12,
            "SupportedControllerProtocols": ["PCIe"],
            "SupportedDeviceProtocols": ["SAS", "SATA"],
            "SupportedRAIDTypes": rule.raid,
            "Status": status(Health::Ok),
        }],
        "Volumes": link(format!("{path}/Volumes")),
    }));
    Ok(document.done())
}

fn drive(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let (place, rule) = controller(visit)?;
    let drive = drive_place(visit, rule)?;
    let all = rule.all_drives();
    let kind = *all.get(drive).ok_or_else(|| visit.not_found())?;
    let machine = &*visit.machine;
    let volumes = machine.volumes().iter();
    let volumes =
        volumes.filter(|volume| volume.controller == place && volume.drives.contains(&drive));
    let volumes: Vec<Value> = volumes
        .map(|volume| link(format!("{}/Volumes/{}", path_of(visit, rule), volume.id)))
        .collect();
    let is_lit = machine.drive_is_lit(place, drive);
    let id = visit.param("drive");
    let mut document =
        Document::new(visit.path, "#Drive.v1_17_0.Drive", id, &format!("Drive {drive}"));
    document.extend(json!({
        "Manufacturer": "Simulated",
        "Model": kind.model,
        "Revision": "1.0",
        "SerialNumber": machine.identity().part_serial(number(place) * 64 + number(drive)),
        "MediaType": kind.media,
        "Protocol": kind.protocol,
        "CapacityBytes": kind.bytes(),
        "BlockSizeBytes": 512,
        "FailurePredicted": false,
        "IndicatorLED": if is_lit { "Lit" } else { "Off" },
        "Status": status(Health::Ok),
        "Links": {"Volumes": volumes},
    }));
    Ok(document.done())
}

fn change_drive(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    visit.only(&["IndicatorLED", "LocationIndicatorActive"])?;
    let (place, rule) = controller(visit)?;
    let drive_number = drive_place(visit, rule)?;
    if let Some(light) = super::systems::indicator_in(visit)? {
        visit.machine.light_drive(place, drive_number, light != crate::machine::Indicator::Off);
    }
    Ok(Reply::ok(drive(visit)?))
}

fn volumes(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let (place, rule) = controller(visit)?;
    let there = visit.machine.volumes().iter().filter(|volume| volume.controller == place);
    let path = format!("{}/Volumes", path_of(visit, rule));
    let members = there.map(|volume| format!("{path}/{}", volume.id));
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

fn volume(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let (place, rule) = controller(visit)?;
    let id = volume_id(visit)?;
    let found = visit.machine.volumes().iter();
    let found = found.filter(|volume| volume.controller == place).find(|volume| volume.id == id);
    Ok(describe(visit, rule, found.ok_or_else(|| visit.not_found())?))
}

fn describe(visit: &Visit<'_>, rule: &ControllerRule, volume: &Volume) -> Value {
    let front = path_of(visit, rule);
    let path = format!("{front}/Volumes/{}", volume.id);
    let drives = volume.drives.iter().filter_map(|drive| rule.drive_id(*drive));
    let drives: Vec<Value> = drives.map(|id| link(format!("{front}/Drives/{id}"))).collect();
    let id = volume.id.to_string();
    let mut document = Document::new(&path, "#Volume.v1_9_0.Volume", &id, &volume.name);
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
    document.done()
}

fn create(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let (place, rule) = controller(visit)?;
    let rule = rule.clone();
    if rule.raid.is_empty() {
        return Err(Refusal::method_not_allowed("GET, HEAD".to_owned()));
    }
    let wish = wish(visit, place, &rule)?;
    let apply = apply_time(visit)?;
    match visit.machine.create_volume(wish, apply, visit.now)? {
        VolumeOutcome::Done(id) => {
            let made = visit.machine.volumes().iter().find(|volume| volume.id == id);
            let made = made.ok_or_else(|| visit.not_found())?;
            let location = format!("{}/Volumes/{id}", path_of(visit, &rule));
            Ok(Reply::created(location, describe(visit, &rule, made)))
        }
        VolumeOutcome::Later(task) => tasks::accepted(visit, task),
    }
}

fn wish(visit: &Visit<'_>, place: usize, rule: &ControllerRule) -> Result<VolumeWish, Refusal> {
    visit.only(&[
        "Name",
        "DisplayName",
        "RAIDType",
        "VolumeType",
        "CapacityBytes",
        "Links",
        "Drives",
        "Encrypted",
    ])?;
    let raid = match visit.text("RAIDType")? {
        Some(name) => {
            RaidKind::named(name).ok_or_else(|| Refusal::property_value("RAIDType", name))?
        }
        None => return Err(Refusal::property_missing("RAIDType")),
    };
    let capacity_bytes = match visit.body.get("CapacityBytes") {
        None | Some(Value::Null) => None,
        Some(value) => {
            Some(value.as_u64().ok_or_else(|| Refusal::property_type("CapacityBytes", value))?)
        }
    };
    let linked = visit.body.get("Links").and_then(|links| links.get("Drives"));
    let drives = match linked.or_else(|| visit.body.get("Drives")) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(links)) => {
            links.iter().map(|link| linked_drive(rule, link)).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(Refusal::property_type("Drives", other)),
    };
    let name = visit.text("Name")?.or(visit.text("DisplayName")?).map(Into::into);
    Ok(VolumeWish { controller: place, name, raid, capacity_bytes, drives })
}

/// The drive a link points to.
fn linked_drive(rule: &ControllerRule, link: &Value) -> Result<usize, Refusal> {
    let path = link.get("@odata.id").and_then(Value::as_str);
    let id = path.map(|path| path.trim_end_matches('/').rsplit('/').next().unwrap_or(path));
    let place = id.and_then(|id| {
        (0..rule.all_drives().len()).find(|place| rule.drive_id(*place).as_deref() == Some(id))
    });
    place.ok_or_else(|| Refusal::property_value("Drives", &link.to_string()))
}

fn delete(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let (place, _) = controller(visit)?;
    let id = volume_id(visit)?;
    let apply = apply_time(visit)?;
    match visit.machine.delete_volume(place, id, apply, visit.now)? {
        VolumeOutcome::Done(_) => Ok(Reply::no_content()),
        VolumeOutcome::Later(task) => tasks::accepted(visit, task),
    }
}

fn initialize(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    volume(visit)?;
    Ok(Reply::no_content())
}

fn apply_time(visit: &Visit<'_>) -> Result<Option<ApplyTime>, Refusal> {
    match visit.text(APPLY_TIME)? {
        None => Ok(None),
        Some("Immediate") => Ok(Some(ApplyTime::Immediate)),
        Some("OnReset") => Ok(Some(ApplyTime::OnReset)),
        Some(other) => Err(Refusal::property_value(APPLY_TIME, other)),
    }
}

fn controller<'v>(visit: &'v Visit<'_>) -> Result<(usize, &'v ControllerRule), Refusal> {
    let id = visit.param("storage");
    let found = visit.personality().storage.iter().enumerate().find(|(_, rule)| rule.id == id);
    found.ok_or_else(|| visit.not_found())
}

fn drive_place(visit: &Visit<'_>, rule: &ControllerRule) -> Result<usize, Refusal> {
    let id = visit.param("drive");
    (0..rule.all_drives().len())
        .find(|place| rule.drive_id(*place).as_deref() == Some(id))
        .ok_or_else(|| visit.not_found())
}

fn volume_id(visit: &Visit<'_>) -> Result<u32, Refusal> {
    visit.param("volume").parse().map_err(|_| visit.not_found())
}

fn path_of(visit: &Visit<'_>, rule: &ControllerRule) -> String {
    format!("{}/Storage/{}", visit.system(), rule.id)
}

fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
