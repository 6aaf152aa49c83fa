// SPDX-License-Identifier: Apache-2.0
//! What a BMC is and can do, found out by asking it: for operators, and for whoever reports that
//! some hardware does not work.
//!
//! A part that is not there is null. A part that the BMC did not tell is listed under
//! `could_not_ask`, and all others are told nevertheless.

use node_model::Timestamp;
use redfish::Resource;
use serde_json::{Map, Value, json};

use super::bmc::Bmc;
use super::boot_settings;
use super::media_drive::{Drive, Way};
use super::quirks::{QuirkBook, Quirks};
use super::survey::Survey;
use crate::Error;

/// How many requests a probe may make, besides those for the service root and the system.
const MOST_REQUESTS: usize = 25;

/// What of a chassis there is to measure: the older resources, and what took their place.
const SENSOR_RESOURCES: &[&str] =
    &["Thermal", "Power", "ThermalSubsystem", "PowerSubsystem", "EnvironmentMetrics", "Sensors"];

/// Asks the BMC about everything.
pub(super) async fn probe(
    bmc: &Bmc,
    book: &QuirkBook,
    now: Timestamp,
) -> Result<Map<String, Value>, Error> {
    let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
    let system = bmc.system().await?;
    let mut survey = Survey::new(bmc, &root, MOST_REQUESTS);
    let manager = survey.follow(&system, "/Links/ManagedBy/0").await?;
    let reset = system.action("ComputerSystem.Reset");
    let reset_info = match reset.and_then(|action| action.info) {
        Some(path) => survey.read(&path).await?,
        None => None,
    };
    let (media_place, media) = read_media(&mut survey, &system, manager.as_ref()).await?;
    let answers = Answers {
        secure_boot: survey.follow(&system, "/SecureBoot").await?,
        bios: survey.follow(&system, "/Bios").await?,
        update: survey.follow(&root, "/UpdateService").await?,
        events: survey.follow(&root, "/EventService").await?,
        chassis: survey.follow(&system, "/Links/Chassis/0").await?,
        storage: survey.members(&system, "/Storage").await?,
        root,
        system,
        manager,
        reset_info,
        media_place,
        media,
    };
    let firmware = answers.manager.as_ref().and_then(|manager| manager.text("/FirmwareVersion"));
    let quirks = book.of_firmware(&answers.system, firmware.unwrap_or_default());
    let mut found = answers.describe(&quirks);
    found.insert("probed_at".to_owned(), now.to_string().into());
    found.insert("could_not_ask".to_owned(), survey.missed().into());
    Ok(found)
}

/// The virtual drives, and whose they are.
async fn read_media(
    survey: &mut Survey<'_>,
    system: &Resource,
    manager: Option<&Resource>,
) -> Result<(&'static str, Vec<Drive>), Error> {
    let mut drives = survey.members(system, "/VirtualMedia").await?;
    let mut place = "system";
    if let Some(manager) = manager.filter(|_| drives.is_empty()) {
        drives = survey.members(manager, "/VirtualMedia").await?;
        place = "manager";
    }
    Ok((place, drives.into_iter().map(Drive::new).collect()))
}

/// What the BMC told.
struct Answers {
    root: Resource,
    system: Resource,
    manager: Option<Resource>,
    reset_info: Option<Resource>,
    secure_boot: Option<Resource>,
    bios: Option<Resource>,
    update: Option<Resource>,
    events: Option<Resource>,
    chassis: Option<Resource>,
    storage: Vec<Resource>,
    media_place: &'static str,
    media: Vec<Drive>,
}

impl Answers {
    fn describe(&self, quirks: &Quirks) -> Map<String, Value> {
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
        // It can be told to, and does not say what.
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
        let lasts = |name: &str| durations.as_ref().map(|known| known.iter().any(|k| k == name));
        let devices: Option<Vec<String>> = allowable("BootSourceOverrideTarget");
        let modes: Option<Vec<String>> = allowable("BootSourceOverrideMode");
        json!({
            "devices": devices,
            "once": lasts("Once"),
            "persistent": lasts("Continuous"),
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

    fn virtual_media(&self, quirks: &Quirks) -> Value {
        if self.media.is_empty() {
            return Value::Null;
        }
        let drives = self.media.iter().map(|drive| {
            let ways = drive.ways("VirtualMedia.InsertMedia", &quirks.behaviour);
            let action = drive.resource.action("VirtualMedia.InsertMedia");
            let protocols =
                action.and_then(|action| action.allowable.get("TransferProtocolType").cloned());
            json!({
                "name": drive.name(),
                "media_types": drive.resource.texts("/MediaTypes"),
                "by": match ways.first() {
                    Some(Way::Action(_)) => "action",
                    Some(Way::Change) | None => "change",
                },
                "protocols": protocols,
            })
        });
        json!({"of": self.media_place, "drives": drives.collect::<Value>()})
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

fn text(resource: &Resource, pointer: &str) -> Option<String> {
    resource.text(pointer).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(body: Value) -> Resource {
        Resource { path: "/redfish/v1/x/1".to_owned(), etag: None, body }
    }

    fn silent() -> Answers {
        Answers {
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
            media_place: "system",
            media: Vec::new(),
        }
    }

    #[test]
    fn a_bmc_that_says_nothing() {
        let found = silent().describe(&Quirks::default());
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
    fn a_bmc_that_says_much() {
        let system = json!({
            "Manufacturer": "HPE", "Model": "DL380", "BiosVersion": "U30", "IndicatorLED": "Off",
            "Actions": {"#ComputerSystem.Reset": {"target": "/reset", "@Redfish.ActionInfo": "/info/1"}},
            "Boot": {
                "BootSourceOverrideTarget@Redfish.AllowableValues": ["Pxe", "Hdd"],
                "BootSourceOverrideEnabled@Redfish.AllowableValues": ["Once", "Disabled"],
                "BootSourceOverrideMode": "UEFI",
            },
        });
        let insert = json!({"#VirtualMedia.InsertMedia": {"target": "/insert",
            "TransferProtocolType@Redfish.AllowableValues": ["HTTP"]}});
        let answers = Answers {
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
            media_place: "manager",
            media: vec![Drive::new(resource(
                json!({"Id": "2", "MediaTypes": ["CD", "DVD"], "Actions": insert}),
            ))],
        };
        let quirks = Quirks { reasons: vec!["because".to_owned()], ..Quirks::default() };
        let found = Value::from(answers.describe(&quirks));
        assert_eq!(
            found,
            json!({
                "protocol": "redfish", "redfish_version": "1.6.0", "vendor": "HPE",
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
