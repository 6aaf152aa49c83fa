// SPDX-License-Identifier: Apache-2.0
//! The controllers, drives and volumes of a machine, as far as its BMC tells.

use redfish::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::levels::Level;
use crate::Error;
use crate::redfish::bmc::Bmc;
use crate::redfish::names::id;

/// More drives than this are not asked for.
const MOST_DRIVES: usize = 512;

/// A controller with its drives.
#[derive(Debug, Clone, Default)]
pub(super) struct Controller {
    /// Its name for operators.
    pub(super) id: String,
    /// What else it is called.
    pub(super) aliases: Vec<String>,
    /// The RAID types it can do; none if it does not say.
    pub(super) raid_types: Option<Vec<String>>,
    /// Its drives.
    pub(super) drives: Vec<Drive>,
    /// Where its volumes are; none if it cannot have any.
    pub(super) shelf: Option<Shelf>,
    /// The volumes there are.
    pub(super) volumes: Vec<Volume>,
}

/// Where the volumes of a controller are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shelf {
    /// The controller.
    pub(super) controller: String,
    /// The collection.
    pub(super) path: String,
    /// When changes may take effect: `Immediate`, `OnReset`; empty if it does not say.
    pub(super) apply_times: Vec<String>,
}

/// A physical drive.
#[derive(Debug, Clone, Default)]
pub(super) struct Drive {
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
    /// Why it cannot be used.
    pub(super) problem: Option<String>,
    /// Whether it stands by for others: it is used when nothing else is left.
    pub(super) spare: bool,
    /// The volumes it says it is part of.
    pub(super) volumes: Vec<String>,
}

/// A volume.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) name: String,
    /// Its level; none for a drive that is passed through as it is.
    pub(super) level: Option<&'static Level>,
    pub(super) bytes: u64,
    /// The drives it is on, if it says so.
    pub(super) drives: Vec<String>,
    /// Its world-wide name, as Linux shows it.
    pub(super) wwn: Option<String>,
}

impl Controller {
    /// Whether an operator who writes `name` means this controller.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.id == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// Whether it can do a level, as far as it says.
    pub(super) fn can(&self, level: &Level) -> bool {
        self.raid_types
            .as_ref()
            .is_none_or(|types| types.iter().any(|known| known == level.raid_type))
    }
}

impl Drive {
    /// Whether an operator who writes `name` means this drive.
    pub(super) fn is_called(&self, name: &str) -> bool {
        [&self.id, &self.name, &self.path].into_iter().any(|known| known == name)
    }

    pub(super) fn of(drive: &Resource) -> Self {
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

impl Volume {
    pub(super) fn of(volume: &Resource) -> Self {
        let bytes = volume.whole("/CapacityBytes").and_then(|bytes| u64::try_from(bytes).ok());
        let links = |pointer| volume.links(pointer).into_iter().map(str::to_owned).collect();
        Self {
            id: id(volume).to_owned(),
            path: volume.path.clone(),
            name: volume.text("/Name").unwrap_or_default().to_owned(),
            level: Level::of(volume),
            bytes: bytes.unwrap_or(0),
            drives: links("/Links/Drives"),
            wwn: wwn(volume),
        }
    }
}

/// Everything about the storage of a machine.
pub(super) async fn controllers(bmc: &Bmc) -> Result<Vec<Controller>, Error> {
    let system = bmc.system().await?;
    let mut controllers = Vec::new();
    for storage in bmc.collect(&system, "/Storage").await? {
        let first = first_controller(bmc, &storage).await?;
        let mut controller = described(&storage, first.as_ref());
        for path in storage.links("/Drives").into_iter().take(MOST_DRIVES) {
            if let Some(drive) = bmc.find(path).await? {
                controller.drives.push(Drive::of(&drive));
            }
        }
        if let Some(collection) = bmc.follow(&storage, "/Volumes").await? {
            let shelf = shelf(&controller.id, &collection);
            controller.volumes = volumes(bmc, &shelf).await?;
            controller.shelf = Some(shelf);
        }
        controllers.push(controller);
    }
    Ok(controllers)
}

/// Where the machine's volumes are; what else it has is not asked for.
pub(super) async fn shelves(bmc: &Bmc) -> Result<Vec<Shelf>, Error> {
    let system = bmc.system().await?;
    let mut shelves = Vec::new();
    for storage in bmc.collect(&system, "/Storage").await? {
        if let Some(collection) = bmc.follow(&storage, "/Volumes").await? {
            shelves.push(shelf(id(&storage), &collection));
        }
    }
    Ok(shelves)
}

/// The volumes of a controller.
pub(super) async fn volumes(bmc: &Bmc, shelf: &Shelf) -> Result<Vec<Volume>, Error> {
    match bmc.client().collect(&shelf.path).await {
        Ok(volumes) => Ok(volumes.iter().map(Volume::of).collect()),
        Err(redfish::Error::NotFound { .. }) => Ok(Vec::new()),
        Err(error) => Err(bmc.explain(error)),
    }
}

/// The controller itself, which newer BMCs show as a resource of its own.
async fn first_controller(bmc: &Bmc, storage: &Resource) -> Result<Option<Resource>, Error> {
    let Some(collection) = bmc.follow(storage, "/Controllers").await? else { return Ok(None) };
    match collection.links("/Members").first() {
        None => Ok(None),
        Some(path) => bmc.find(path).await,
    }
}

fn described(storage: &Resource, first: Option<&Resource>) -> Controller {
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
    Controller {
        id: id(storage).to_owned(),
        aliases,
        raid_types: types
            .map(|types| types.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
        ..Controller::default()
    }
}

fn shelf(controller: &str, collection: &Resource) -> Shelf {
    let times = collection.texts("/@Redfish.OperationApplyTimeSupport/SupportedValues");
    Shelf {
        controller: controller.to_owned(),
        path: collection.path.clone(),
        apply_times: times.into_iter().map(str::to_owned).collect(),
    }
}

/// Why a drive cannot be part of a volume.
fn problem(drive: &Resource) -> Option<String> {
    let state = drive.text("/Status/State").unwrap_or("Enabled");
    if matches!(state, "Absent" | "Disabled" | "UnavailableOffline") {
        Some(format!("it is {state}"))
    } else if drive.text("/Status/Health") == Some("Critical") {
        Some("its health is Critical".to_owned())
    } else if drive.flag("/FailurePredicted") == Some(true) {
        Some("it is about to fail".to_owned())
    } else if drive.whole("/CapacityBytes").is_none_or(|bytes| bytes <= 0) {
        Some("it does not say how large it is".to_owned())
    } else {
        None
    }
}

/// The world-wide name of a volume: `0x` and its digits.
fn wwn(volume: &Resource) -> Option<String> {
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

    fn resource(body: Value) -> Resource {
        Resource { path: "/redfish/v1/Systems/1/Storage/1/".to_owned(), etag: None, body }
    }

    #[test]
    fn drives_that_cannot_be_used() {
        for (body, words) in [
            (json!({"CapacityBytes": 5}), ""),
            (json!({"CapacityBytes": 5, "HotspareType": "Global", "Status": {"Health": "OK"}}), ""),
            (json!({"CapacityBytes": 5, "Status": {"Health": "Critical"}}), "Critical"),
            (json!({"CapacityBytes": 5, "Status": {"State": "Absent"}}), "Absent"),
            (json!({"CapacityBytes": 5, "FailurePredicted": true}), "fail"),
            (json!({"CapacityBytes": null}), "large"),
            (json!({"CapacityBytes": "x"}), "large"),
        ] {
            let problem = Drive::of(&resource(body.clone())).problem.unwrap_or_default();
            assert!(problem.contains(words) && problem.is_empty() == words.is_empty(), "{body}");
        }
    }

    #[test]
    fn world_wide_names() {
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
    fn controllers_of_both_fashions() {
        let old = resource(json!({"Id": "RAID.1", "Name": "PERC", "StorageControllers": [
            {"MemberId": "0", "Name": "PERC H740P", "SupportedRAIDTypes": ["RAID0", "RAID1"]}]}));
        let controller = described(&old, None);
        assert!(controller.is_called("RAID.1") && controller.is_called("PERC H740P"));
        assert!(
            controller.can(Level::named("1").unwrap())
                && !controller.can(Level::named("5").unwrap())
        );
        let new = resource(json!({"Name": "Storage"}));
        let first = resource(json!({"Id": "C0", "SupportedRAIDTypes": []}));
        let controller = described(&new, Some(&first));
        assert!(controller.is_called("1") && controller.is_called("C0"));
        assert!(!controller.can(Level::named("0").unwrap()));
        assert!(described(&new, None).can(Level::named("0").unwrap()));
    }
}
