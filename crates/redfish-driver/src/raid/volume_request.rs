// SPDX-License-Identifier: Apache-2.0
//! The requests that create volumes, and when they take effect.

use redfish::OperationResponse;
use serde_json::{Map, Value, json};

use super::levels::RaidLevel;
use super::plan::PlannedVolume;
use super::storage::VolumeCollection;
use crate::bmc::RedfishBmc;
use crate::retries::is_refusal;

/// Requests the creation of a volume.
pub(super) async fn submit(
    bmc: &RedfishBmc,
    collection: &VolumeCollection,
    planned: &PlannedVolume,
) -> Result<OperationResponse, redfish::RedfishError> {
    let mut refusal = None;
    for body in bodies(collection, planned) {
        match bmc.client().post(&collection.path, &body).await {
            Err(error) if is_refusal(&error) => refusal = refusal.or(Some(error)),
            other => return other,
        }
    }
    // The response to the full request has the most specific error.
    Err(refusal
        .unwrap_or_else(|| redfish::RedfishError::NotFound { path: collection.path.clone() }))
}

/// The bodies to send until one is accepted: BMCs differ in the name of a level and in the properties
/// a client may set.
fn bodies(collection: &VolumeCollection, planned: &PlannedVolume) -> Vec<Value> {
    let Some(level) = RaidLevel::named(&planned.level) else { return Vec::new() };
    let drives: Vec<Value> =
        planned.drives.iter().map(|path| json!({ "@odata.id": path })).collect();
    let mut body = Map::new();
    body.insert("RAIDType".to_owned(), level.raid_type.into());
    body.insert("Links".to_owned(), json!({ "Drives": drives }));
    if let Some(bytes) = planned.bytes {
        body.insert("CapacityBytes".to_owned(), bytes.into());
    }
    if let Some(name) = &planned.name {
        body.insert("Name".to_owned(), name.as_str().into());
    }
    let mut full = body.clone();
    if let Some(time) = apply_time(collection) {
        full.insert("@Redfish.OperationApplyTime".to_owned(), time.into());
    }
    let mut old = body.clone();
    old.remove("RAIDType");
    old.insert("VolumeType".to_owned(), level.volume_type.into());
    let mut nameless = body.clone();
    nameless.remove("Name");
    let mut bodies: Vec<Map<String, Value>> = Vec::with_capacity(4);
    for body in [full, body, nameless, old] {
        if !bodies.contains(&body) {
            bodies.push(body);
        }
    }
    bodies.into_iter().map(Value::Object).collect()
}

/// The apply time to request: immediately if supported.
pub(super) fn apply_time(collection: &VolumeCollection) -> Option<&'static str> {
    const TIMES: [&str; 2] = ["Immediate", "OnReset"];
    TIMES.into_iter().find(|time| collection.apply_times.iter().any(|known| known == time))
}

/// Whether changes take effect only after a reboot.
pub(super) fn waits_for_reset(collection: &VolumeCollection) -> bool {
    apply_time(collection) == Some("OnReset")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_apply_times(times: &[&str]) -> VolumeCollection {
        VolumeCollection {
            controller: "A".to_owned(),
            path: "/a/Volumes".to_owned(),
            apply_times: times.iter().map(|time| (*time).to_owned()).collect(),
        }
    }

    fn planned() -> PlannedVolume {
        PlannedVolume {
            controller: "A".to_owned(),
            level: "1".to_owned(),
            drives: vec!["/d/0".to_owned(), "/d/1".to_owned()],
            bytes: Some(5),
            name: Some("root".to_owned()),
            root: true,
        }
    }

    #[test]
    fn builds_request_bodies() {
        let all = bodies(&with_apply_times(&["OnReset", "Immediate"]), &planned());
        let drives = json!({"Drives": [{"@odata.id": "/d/0"}, {"@odata.id": "/d/1"}]});
        assert_eq!(
            all[0],
            json!({"RAIDType": "RAID1", "CapacityBytes": 5, "Name": "root", "Links": drives,
                   "@Redfish.OperationApplyTime": "Immediate"})
        );
        assert_eq!(all.len(), 4);
        assert_eq!(all[3]["VolumeType"], "Mirrored");
        let plain = PlannedVolume { bytes: None, name: None, ..planned() };
        let all = bodies(&with_apply_times(&[]), &plain);
        assert_eq!(all[0], json!({"RAIDType": "RAID1", "Links": drives}));
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn reboots_only_for_on_reset() {
        for (times, waits) in [
            (&["OnReset", "Immediate"][..], false),
            (&["OnReset"], true),
            (&["AtMaintenanceWindowStart"], false),
            (&[], false),
        ] {
            assert_eq!(waits_for_reset(&with_apply_times(times)), waits, "{times:?}");
        }
    }
}
