// SPDX-License-Identifier: Apache-2.0
//! Storage controllers, drives and volumes, as the BMC reports them.

use drivers::DriverError;
use redfish::RedfishResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::levels::RaidLevel;
use crate::bmc::RedfishBmc;
use crate::resource_id::id;

/// Maximum number of drives that are read per controller.
const MAX_DRIVES: usize = 512;

/// A storage controller with its drives.
#[derive(Debug, Clone, Default)]
pub(super) struct RaidController {
    /// The id of its `Storage` resource.
    pub(super) id: String,
    /// Other names that operators may use.
    pub(super) aliases: Vec<String>,
    /// The supported RAID types; `None` if not reported.
    pub(super) raid_types: Option<Vec<String>>,
    /// The physical drives.
    pub(super) drives: Vec<RaidDrive>,
    /// The collection of its volumes; `None` if it does not support volumes.
    pub(super) volume_collection: Option<VolumeCollection>,
    /// The existing volumes.
    pub(super) volumes: Vec<RedfishRaidVolume>,
}

/// The `Volumes` collection of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VolumeCollection {
    /// The id of the controller.
    pub(super) controller: String,
    /// The path of the collection.
    pub(super) path: String,
    /// Supported apply times: `Immediate`, `OnReset`; empty if not reported.
    pub(super) apply_times: Vec<String>,
}

/// A physical drive.
#[derive(Debug, Clone, Default)]
pub(super) struct RaidDrive {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) name: String,
    pub(super) bytes: u64,
    /// `hdd` or `ssd`.
    pub(super) media: String,
    /// `sas`, `sata`, `nvme`.
    pub(super) protocol: String,
    pub(super) vendor: String,
    pub(super) model: String,
    pub(super) serial: String,
    /// Why the drive cannot be used.
    pub(super) problem: Option<String>,
    /// Whether it is a hot spare: used only if no other drive is left.
    pub(super) spare: bool,
    /// The volumes it reports to be part of.
    pub(super) volumes: Vec<String>,
}

/// An existing volume.
#[derive(Debug, Clone)]
pub(super) struct RedfishRaidVolume {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) name: String,
    /// The RAID level; `None` for a passed-through drive.
    pub(super) level: Option<&'static RaidLevel>,
    pub(super) bytes: u64,
    /// The paths of its drives, if reported.
    pub(super) drives: Vec<String>,
    /// The world-wide name in Linux notation.
    pub(super) wwn: Option<String>,
}

impl RaidController {
    /// Whether `name` in a RAID configuration refers to this controller.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.id == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// Whether it supports a level, as far as reported.
    pub(super) fn supports(&self, level: &RaidLevel) -> bool {
        self.raid_types
            .as_ref()
            .is_none_or(|types| types.iter().any(|known| known == level.raid_type))
    }
}

impl RaidDrive {
    /// Whether `name` in a RAID configuration refers to this drive.
    pub(super) fn is_called(&self, name: &str) -> bool {
        [&self.id, &self.name, &self.path].into_iter().any(|known| known == name)
    }

    pub(super) fn parse(drive: &RedfishResource) -> Self {
        let text = |key| drive.text(key).unwrap_or_default().to_owned();
        let bytes = drive.whole("/CapacityBytes").and_then(|bytes| u64::try_from(bytes).ok());
        Self {
            id: id(drive).to_owned(),
            path: drive.path.clone(),
            name: text("/Name"),
            bytes: bytes.unwrap_or(0),
            media: text("/MediaType").to_ascii_lowercase(),
            protocol: text("/Protocol").to_ascii_lowercase(),
            vendor: text("/Manufacturer"),
            model: text("/Model"),
            serial: text("/SerialNumber"),
            problem: problem(drive),
            spare: drive.text("/HotspareType").is_some_and(|kind| kind != "None"),
            volumes: drive.links("/Links/Volumes").into_iter().map(str::to_owned).collect(),
        }
    }
}

impl RedfishRaidVolume {
    pub(super) fn parse(volume: &RedfishResource) -> Self {
        let bytes = volume.whole("/CapacityBytes").and_then(|bytes| u64::try_from(bytes).ok());
        let links = |pointer| volume.links(pointer).into_iter().map(str::to_owned).collect();
        Self {
            id: id(volume).to_owned(),
            path: volume.path.clone(),
            name: volume.text("/Name").unwrap_or_default().to_owned(),
            level: RaidLevel::of_volume(volume),
            bytes: bytes.unwrap_or(0),
            drives: links("/Links/Drives"),
            wwn: wwn(volume),
        }
    }
}

/// Reads the controllers with their drives and volumes.
pub(super) async fn controllers(bmc: &RedfishBmc) -> Result<Vec<RaidController>, DriverError> {
    let system = bmc.system().await?;
    let mut controllers = Vec::new();
    for storage in bmc.collect(&system, "/Storage").await? {
        let first = first_controller(bmc, &storage).await?;
        let mut controller = describe_controller(&storage, first.as_ref());
        for path in storage.links("/Drives").into_iter().take(MAX_DRIVES) {
            if let Some(drive) = bmc.find(path).await? {
                controller.drives.push(RaidDrive::parse(&drive));
            }
        }
        if let Some(collection) = bmc.follow(&storage, "/Volumes").await? {
            let collection = volume_collection(&controller.id, &collection);
            controller.volumes = volumes(bmc, &collection).await?;
            controller.volume_collection = Some(collection);
        }
        controllers.push(controller);
    }
    Ok(controllers)
}

/// Reads only the volume collections.
pub(super) async fn volume_collections(
    bmc: &RedfishBmc,
) -> Result<Vec<VolumeCollection>, DriverError> {
    let system = bmc.system().await?;
    let mut collections = Vec::new();
    for storage in bmc.collect(&system, "/Storage").await? {
        if let Some(collection) = bmc.follow(&storage, "/Volumes").await? {
            collections.push(volume_collection(id(&storage), &collection));
        }
    }
    Ok(collections)
}

/// Reads the volumes of a controller.
pub(super) async fn volumes(
    bmc: &RedfishBmc,
    collection: &VolumeCollection,
) -> Result<Vec<RedfishRaidVolume>, DriverError> {
    match bmc.client().collect(&collection.path).await {
        Ok(volumes) => Ok(volumes.iter().map(RedfishRaidVolume::parse).collect()),
        Err(redfish::RedfishError::NotFound { .. }) => Ok(Vec::new()),
        Err(error) => Err(bmc.explain(error)),
    }
}

/// Reads the first `StorageController` resource, which newer BMCs have.
async fn first_controller(
    bmc: &RedfishBmc,
    storage: &RedfishResource,
) -> Result<Option<RedfishResource>, DriverError> {
    let Some(collection) = bmc.follow(storage, "/Controllers").await? else { return Ok(None) };
    match collection.links("/Members").first() {
        None => Ok(None),
        Some(path) => bmc.find(path).await,
    }
}

fn describe_controller(
    storage: &RedfishResource,
    first: Option<&RedfishResource>,
) -> RaidController {
    const INSIDE: &str = "/StorageControllers/0";
    let inside = |key: &str| storage.at(&format!("{INSIDE}/{key}"));
    let types = first.and_then(|first| first.at("/SupportedRAIDTypes"));
    let types = types.or_else(|| inside("SupportedRAIDTypes")).and_then(Value::as_array);
    let mut aliases = vec![storage.path.clone()];
    aliases.extend(storage.text("/Name").map(str::to_owned));
    for key in ["Id", "MemberId", "Name"] {
        let own = first.and_then(|first| first.text(key));
        let own = own.or_else(|| inside(key).and_then(Value::as_str));
        aliases.extend(own.map(str::to_owned));
    }
    RaidController {
        id: id(storage).to_owned(),
        aliases,
        raid_types: types
            .map(|types| types.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
        ..RaidController::default()
    }
}

fn volume_collection(controller: &str, collection: &RedfishResource) -> VolumeCollection {
    let times = collection.texts("/@Redfish.OperationApplyTimeSupport/SupportedValues");
    VolumeCollection {
        controller: controller.to_owned(),
        path: collection.path.clone(),
        apply_times: times.into_iter().map(str::to_owned).collect(),
    }
}

/// Returns why a drive cannot be part of a volume.
fn problem(drive: &RedfishResource) -> Option<String> {
    let state = drive.text("/Status/State").unwrap_or("Enabled");
    if matches!(state, "Absent" | "Disabled" | "UnavailableOffline") {
        Some(format!("it is {state}"))
    } else if drive.text("/Status/Health") == Some("Critical") {
        Some("its health is Critical".to_owned())
    } else if drive.flag("/FailurePredicted") == Some(true) {
        Some("it predicts its failure".to_owned())
    } else if drive.whole("/CapacityBytes").is_none_or(|bytes| bytes <= 0) {
        Some("it reports no capacity".to_owned())
    } else {
        None
    }
}

/// Returns the world-wide name of a volume: `0x` and its digits.
fn wwn(volume: &RedfishResource) -> Option<String> {
    let name = volume.list("/Identifiers").iter().find_map(|identifier| {
        let format = identifier.get("DurableNameFormat")?.as_str()?;
        identifier.get("DurableName")?.as_str().filter(|_| format == "NAA")
    })?;
    let name = name.to_ascii_lowercase();
    let bare = ["0x", "naa."].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(&name);
    let digits: String = bare.chars().filter(char::is_ascii_hexdigit).collect();
    (!digits.is_empty()).then(|| format!("0x{digits}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(body: Value) -> RedfishResource {
        RedfishResource { path: "/redfish/v1/Systems/1/Storage/1/".to_owned(), etag: None, body }
    }

    #[test]
    fn detects_unusable_drives() {
        for (body, text) in [
            (json!({"CapacityBytes": 5}), ""),
            (json!({"CapacityBytes": 5, "HotspareType": "Global", "Status": {"Health": "OK"}}), ""),
            (json!({"CapacityBytes": 5, "Status": {"Health": "Critical"}}), "Critical"),
            (json!({"CapacityBytes": 5, "Status": {"State": "Absent"}}), "Absent"),
            (json!({"CapacityBytes": 5, "FailurePredicted": true}), "fail"),
            (json!({"CapacityBytes": null}), "capacity"),
            (json!({"CapacityBytes": "x"}), "capacity"),
        ] {
            let problem = RaidDrive::parse(&resource(body.clone())).problem.unwrap_or_default();
            assert!(problem.contains(text) && problem.is_empty() == text.is_empty(), "{body}");
        }
    }

    #[test]
    fn parses_world_wide_names() {
        for (name, expected) in [
            (json!("6003048015C1A0F02A3B"), Some("0x6003048015c1a0f02a3b")),
            (json!("0x6003"), Some("0x6003")),
            (json!("naa.6003"), Some("0x6003")),
            (json!("60:03:04"), Some("0x600304")),
            (json!(""), None),
            (json!(7), None),
        ] {
            let body = json!({"Identifiers": [
                {"DurableNameFormat": "UUID", "DurableName": "1-2"},
                {"DurableNameFormat": "NAA", "DurableName": name},
            ]});
            assert_eq!(wwn(&resource(body)).as_deref(), expected, "{name}");
        }
        assert_eq!(wwn(&resource(json!({}))), None);
    }

    #[test]
    fn reads_old_and_new_controllers() {
        let old = resource(json!({"Id": "RAID.1", "Name": "PERC", "StorageControllers": [
            {"MemberId": "0", "Name": "PERC H740P", "SupportedRAIDTypes": ["RAID0", "RAID1"]}]}));
        let controller = describe_controller(&old, None);
        assert!(controller.is_called("RAID.1") && controller.is_called("PERC H740P"));
        assert!(
            controller.supports(RaidLevel::named("1").unwrap())
                && !controller.supports(RaidLevel::named("5").unwrap())
        );
        let new = resource(json!({"Name": "Storage"}));
        let first = resource(json!({"Id": "C0", "SupportedRAIDTypes": []}));
        let controller = describe_controller(&new, Some(&first));
        assert!(controller.is_called("1") && controller.is_called("C0"));
        assert!(!controller.supports(RaidLevel::named("0").unwrap()));
        assert!(describe_controller(&new, None).supports(RaidLevel::named("0").unwrap()));
    }
}
