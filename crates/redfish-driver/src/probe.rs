// SPDX-License-Identifier: Apache-2.0
//! Probe: reads what a BMC is and supports, for operators and for bug reports about hardware.
//!
//! An absent part is null. Parts that could not be read are listed under `failed_queries`; all others
//! are still reported.

use drivers::DriverError;
use node_model::Timestamp;
use redfish::RedfishResource;
use serde_json::{Map, Value, json};

use super::bmc::RedfishBmc;
use super::boot_settings;
use super::quirks::{MatchedQuirks, QuirkCatalog};
use super::resource_reader::ResourceReader;
use super::virtual_drive::{MediaControl, VirtualDrive};

/// Maximum number of requests, besides those for the service root and the system.
const MAX_REQUESTS: usize = 25;

/// The sensor resources of a chassis: the older ones and their replacements.
const SENSOR_RESOURCES: &[&str] =
    &["Thermal", "Power", "ThermalSubsystem", "PowerSubsystem", "EnvironmentMetrics", "Sensors"];

/// Reads everything that the probe reports.
pub(super) async fn probe(
    bmc: &RedfishBmc,
    catalog: &QuirkCatalog,
    now: Timestamp,
) -> Result<Map<String, Value>, DriverError> {
    let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
    let system = bmc.system().await?;
    let mut reader = ResourceReader::new(bmc, &root, MAX_REQUESTS);
    let manager = reader.follow(&system, "/Links/ManagedBy/0").await?;
    let reset = system.action("ComputerSystem.Reset");
    let reset_info = match reset.and_then(|action| action.info) {
        Some(path) => reader.read(&path).await?,
        None => None,
    };
    let (media_owner, media) = read_media(&mut reader, &system, manager.as_ref()).await?;
    let resources = ProbedResources {
        secure_boot: reader.follow(&system, "/SecureBoot").await?,
        bios: reader.follow(&system, "/Bios").await?,
        update: reader.follow(&root, "/UpdateService").await?,
        events: reader.follow(&root, "/EventService").await?,
        chassis: reader.follow(&system, "/Links/Chassis/0").await?,
        storage: reader.members(&system, "/Storage").await?,
        root,
        system,
        manager,
        reset_info,
        media_owner,
        media,
    };
    let firmware = resources.manager.as_ref().and_then(|manager| manager.text("/FirmwareVersion"));
    let quirks = catalog.for_firmware(&resources.system, firmware.unwrap_or_default());
    let mut found = resources.describe(&quirks);
    found.insert("probed_at".to_owned(), now.to_string().into());
    found.insert("failed_queries".to_owned(), reader.skipped().into());
    Ok(found)
}

/// Reads the virtual drives; returns the owner (`system` or `manager`) and the drives.
async fn read_media(
    reader: &mut ResourceReader<'_>,
    system: &RedfishResource,
    manager: Option<&RedfishResource>,
) -> Result<(&'static str, Vec<VirtualDrive>), DriverError> {
    let mut drives = reader.members(system, "/VirtualMedia").await?;
    let mut owner = "system";
    if let Some(manager) = manager.filter(|_| drives.is_empty()) {
        drives = reader.members(manager, "/VirtualMedia").await?;
        owner = "manager";
    }
    Ok((owner, drives.into_iter().map(VirtualDrive::new).collect()))
}

/// The resources that were read.
struct ProbedResources {
    root: RedfishResource,
    system: RedfishResource,
    manager: Option<RedfishResource>,
    reset_info: Option<RedfishResource>,
    secure_boot: Option<RedfishResource>,
    bios: Option<RedfishResource>,
    update: Option<RedfishResource>,
    events: Option<RedfishResource>,
    chassis: Option<RedfishResource>,
    storage: Vec<RedfishResource>,
    media_owner: &'static str,
    media: Vec<VirtualDrive>,
}

impl ProbedResources {
    fn describe(&self, quirks: &MatchedQuirks) -> Map<String, Value> {
        let manager = self.manager.as_ref();
        let bmc = json!({
            "model": manager.and_then(|manager| text(manager, "/Model")),
            "firmware": manager.and_then(|manager| text(manager, "/FirmwareVersion")),
        });
        let parts = [
            ("protocol", "redfish".into()),
            ("redfish_version", text(&self.root, "/RedfishVersion").into()),
            ("vendor", text(&self.system, "/Manufacturer").into()),
            ("model", text(&self.system, "/Model").into()),
            ("system_uuid", text(&self.system, "/UUID").into()),
            ("serial_number", text(&self.system, "/SerialNumber").into()),
            ("bios_version", text(&self.system, "/BiosVersion").into()),
            ("bmc", bmc),
            ("sessions", self.has_sessions().into()),
            ("power_actions", self.power_actions()),
            ("boot", self.boot()),
            ("secure_boot", self.secure_boot()),
            ("virtual_media", self.virtual_media(quirks)),
            ("bios_settings", self.bios_settings()),
            ("raid", self.raid()),
            ("firmware_update", self.firmware_update()),
            ("sensors", self.sensors()),
            ("events", self.events()),
            ("indicators", self.indicators()),
            ("quirks", quirks.reasons.clone().into()),
        ];
        parts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn has_sessions(&self) -> bool {
        ["/SessionService", "/Links/Sessions"].iter().any(|key| self.root.link(key).is_some())
    }

    fn power_actions(&self) -> Value {
        let Some(action) = self.system.action("ComputerSystem.Reset") else { return Value::Null };
        if let Some(known) = action.allowable.get("ResetType") {
            return known.clone().into();
        }
        let parameters = self.reset_info.iter().flat_map(|info| info.list("/Parameters"));
        let mut reset =
            parameters.filter(|p| p.get("Name").is_some_and(|name| name == "ResetType"));
        let known = reset.find_map(|parameter| parameter.get("AllowableValues").cloned());
        // The reset action exists and does not list its types.
        known.unwrap_or_else(|| json!([]))
    }

    fn boot(&self) -> Value {
        let allowable = |key: &str| {
            let known = self.system.texts(&format!("/Boot/{key}@Redfish.AllowableValues"));
            (!known.is_empty()).then(|| known.iter().map(|word| (*word).to_owned()).collect())
        };
        if self.system.at("/Boot").is_none() {
            return Value::Null;
        }
        let durations: Option<Vec<String>> = allowable("BootSourceOverrideEnabled");
        let supports_duration =
            |name: &str| durations.as_ref().map(|known| known.iter().any(|k| k == name));
        let devices: Option<Vec<String>> = allowable("BootSourceOverrideTarget");
        let modes: Option<Vec<String>> = allowable("BootSourceOverrideMode");
        json!({
            "devices": devices,
            "once": supports_duration("Once"),
            "persistent": supports_duration("Continuous"),
            "modes": modes,
            "mode": boot_settings::mode(&self.system).map(|mode| mode.as_str()),
        })
    }

    fn secure_boot(&self) -> Value {
        let Some(secure_boot) = &self.secure_boot else { return Value::Null };
        json!({
            "enabled": secure_boot.flag("/SecureBootEnable"),
            "mode": text(secure_boot, "/SecureBootMode"),
            "keys_can_be_reset": secure_boot.action("SecureBoot.ResetKeys").is_some(),
        })
    }

    fn virtual_media(&self, quirks: &MatchedQuirks) -> Value {
        if self.media.is_empty() {
            return Value::Null;
        }
        let drives = self.media.iter().map(|drive| {
            let controls = drive.controls("VirtualMedia.InsertMedia", &quirks.behaviour);
            let action = drive.resource.action("VirtualMedia.InsertMedia");
            let protocols =
                action.and_then(|action| action.allowable.get("TransferProtocolType").cloned());
            json!({
                "name": drive.name(),
                "media_types": drive.resource.texts("/MediaTypes"),
                "by": match controls.first() {
                    Some(MediaControl::Action(_)) => "action",
                    Some(MediaControl::Patch) | None => "change",
                },
                "protocols": protocols,
            })
        });
        json!({"of": self.media_owner, "drives": drives.collect::<Value>()})
    }

    fn bios_settings(&self) -> Value {
        let Some(bios) = &self.bios else { return Value::Null };
        let count = bios.at("/Attributes").and_then(Value::as_object).map_or(0, Map::len);
        json!({
            "count": count,
            "registry": text(bios, "/AttributeRegistry"),
            "applied_later": bios.link("/@Redfish.Settings/SettingsObject").is_some(),
            "can_be_reset": bios.action("Bios.ResetBios").is_some(),
        })
    }

    fn raid(&self) -> Value {
        let controllers = self.storage.iter().map(|unit| {
            let types = unit.texts("/StorageControllers/0/SupportedRAIDTypes");
            json!({
                "name": text(unit, "/Id").or_else(|| text(unit, "/Name")),
                "drives": unit.list("/Drives").len(),
                "volumes": unit.link("/Volumes").is_some(),
                "raid_types": (!types.is_empty()).then_some(types),
            })
        });
        if self.storage.is_empty() { Value::Null } else { controllers.collect() }
    }

    fn firmware_update(&self) -> Value {
        let Some(update) = &self.update else { return Value::Null };
        let simple = update.action("UpdateService.SimpleUpdate");
        let protocols =
            simple.as_ref().and_then(|action| action.allowable.get("TransferProtocol").cloned());
        let uploads = ["/HttpPushUri", "/MultipartHttpPushUri"];
        let takes_files = uploads.iter().any(|key| update.text(key).is_some());
        json!({
            "enabled": update.flag("/ServiceEnabled"),
            "from_url": simple.is_some(),
            "by_upload": takes_files,
            "protocols": protocols,
            "inventory": update.link("/FirmwareInventory").is_some(),
        })
    }

    fn sensors(&self) -> Value {
        let Some(chassis) = &self.chassis else { return Value::Null };
        let found = SENSOR_RESOURCES.iter().filter(|key| chassis.link(key).is_some());
        found.map(|key| Value::from(*key)).collect()
    }

    fn events(&self) -> Value {
        let Some(events) = &self.events else { return Value::Null };
        json!({
            "enabled": events.flag("/ServiceEnabled"),
            "subscriptions": events.link("/Subscriptions").is_some(),
            "types": events.texts("/EventTypesForSubscription"),
        })
    }

    fn indicators(&self) -> Value {
        let parts = [("system", Some(&self.system)), ("chassis", self.chassis.as_ref())];
        let lit = parts.into_iter().filter_map(|(name, part)| {
            let keys = ["/IndicatorLED", "/LocationIndicatorActive"];
            let has_light = keys.iter().any(|key| part.is_some_and(|p| p.at(key).is_some()));
            has_light.then(|| Value::from(name))
        });
        lit.collect()
    }
}

pub(super) fn text(resource: &RedfishResource, pointer: &str) -> Option<String> {
    resource.text(pointer).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(body: Value) -> RedfishResource {
        RedfishResource { path: "/redfish/v1/x/1".to_owned(), etag: None, body }
    }

    fn empty() -> ProbedResources {
        ProbedResources {
            root: resource(json!({})),
            system: resource(json!({})),
            manager: None,
            reset_info: None,
            secure_boot: None,
            bios: None,
            update: None,
            events: None,
            chassis: None,
            storage: Vec::new(),
            media_owner: "system",
            media: Vec::new(),
        }
    }

    #[test]
    fn empty_resources_give_nulls() {
        let found = empty().describe(&MatchedQuirks::default());
        for (key, value) in &found {
            let expected = match key.as_str() {
                "protocol" => json!("redfish"),
                "sessions" => json!(false),
                "bmc" => json!({"model": null, "firmware": null}),
                "indicators" | "quirks" => json!([]),
                _ => Value::Null,
            };
            assert_eq!(*value, expected, "{key}");
        }
    }

    #[test]
    fn describes_all_parts() {
        let system = json!({
            "Manufacturer": "HPE", "Model": "DL380", "BiosVersion": "U30", "IndicatorLED": "Off",
            "UUID": "4c4c4544-0051-3510-8052-b4c04f4a3132", "SerialNumber": "CZ1",
            "Actions": {"#ComputerSystem.Reset": {"target": "/reset", "@Redfish.ActionInfo": "/info/1"}},
            "Boot": {
                "BootSourceOverrideTarget@Redfish.AllowableValues": ["Pxe", "Hdd"],
                "BootSourceOverrideEnabled@Redfish.AllowableValues": ["Once", "Disabled"],
                "BootSourceOverrideMode": "UEFI",
            },
        });
        let insert = json!({"#VirtualMedia.InsertMedia": {"target": "/insert",
            "TransferProtocolType@Redfish.AllowableValues": ["HTTP"]}});
        let resources = ProbedResources {
            root: resource(
                json!({"RedfishVersion": "1.6.0", "SessionService": {"@odata.id": "/s"}}),
            ),
            system: resource(system),
            manager: Some(resource(json!({"Model": "iLO 5", "FirmwareVersion": "2.44"}))),
            reset_info: Some(resource(json!({"Parameters": [
                {"Name": "Other", "AllowableValues": ["x"]},
                {"Name": "ResetType", "AllowableValues": ["On", "ForceOff"]}]}))),
            secure_boot: Some(resource(json!({"SecureBootEnable": false}))),
            bios: Some(resource(json!({"Attributes": {"A": 1, "B": 2}, "AttributeRegistry": "R",
                "@Redfish.Settings": {"SettingsObject": {"@odata.id": "/b/Settings"}}}))),
            update: Some(resource(json!({"HttpPushUri": "/push",
                "Actions": {"#UpdateService.SimpleUpdate": {"target": "/u"}}}))),
            events: Some(resource(json!({"EventTypesForSubscription": ["Alert"]}))),
            chassis: Some(resource(json!({"Thermal": {"@odata.id": "/t"}}))),
            storage: vec![resource(json!({"Id": "DA1", "Drives": [{}, {}],
                "StorageControllers": [{"SupportedRAIDTypes": ["RAID0", "RAID1"]}]}))],
            media_owner: "manager",
            media: vec![VirtualDrive::new(resource(
                json!({"Id": "2", "MediaTypes": ["CD", "DVD"], "Actions": insert}),
            ))],
        };
        let quirks =
            MatchedQuirks { reasons: vec!["because".to_owned()], ..MatchedQuirks::default() };
        let found = Value::from(resources.describe(&quirks));
        assert_eq!(
            found,
            json!({
                "protocol": "redfish", "redfish_version": "1.6.0", "vendor": "HPE",
                "system_uuid": "4c4c4544-0051-3510-8052-b4c04f4a3132", "serial_number": "CZ1",
                "model": "DL380", "bios_version": "U30", "sessions": true, "quirks": ["because"],
                "bmc": {"model": "iLO 5", "firmware": "2.44"},
                "power_actions": ["On", "ForceOff"],
                "boot": {"devices": ["Pxe", "Hdd"], "once": true, "persistent": false,
                         "modes": null, "mode": "uefi"},
                "secure_boot": {"enabled": false, "mode": null, "keys_can_be_reset": false},
                "virtual_media": {"of": "manager", "drives": [{"name": "2", "by": "action",
                    "media_types": ["CD", "DVD"], "protocols": ["HTTP"]}]},
                "bios_settings": {"count": 2, "registry": "R", "applied_later": true,
                                  "can_be_reset": false},
                "raid": [{"name": "DA1", "drives": 2, "volumes": false,
                          "raid_types": ["RAID0", "RAID1"]}],
                "firmware_update": {"enabled": null, "from_url": true, "by_upload": true,
                                    "protocols": null, "inventory": false},
                "sensors": ["Thermal"], "indicators": ["system"],
                "events": {"enabled": null, "subscriptions": false, "types": ["Alert"]},
            })
        );
    }
}
