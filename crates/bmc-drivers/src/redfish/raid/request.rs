// SPDX-License-Identifier: Apache-2.0
//! How a volume is asked for, and when it is there.

use redfish::Answer;
use serde_json::{Map, Value, json};

use super::hardware::Shelf;
use super::levels::Level;
use super::plan::Planned;
use crate::redfish::bmc::Bmc;
use crate::redfish::patience::is_refusal;

/// Asks for a volume.
pub(super) async fn submit(
    bmc: &Bmc,
    shelf: &Shelf,
    planned: &Planned,
) -> Result<Answer, redfish::Error> {
    let mut refusal = None;
    for body in bodies(shelf, planned) {
        match bmc.client().post(&shelf.path, &body).await {
            Err(error) if is_refusal(&error) => refusal = refusal.or(Some(error)),
            other => return other,
        }
    }
    // What the BMC said to the full request says most about what is wrong.
    Err(refusal.unwrap_or_else(|| redfish::Error::NotFound { path: shelf.path.clone() }))
}

/// What to post, one after the other until it is accepted: BMCs differ in what they call a level
/// and in what they let a client choose.
fn bodies(shelf: &Shelf, planned: &Planned) -> Vec<Value> {
    let Some(level) = Level::named(&planned.level) else { return Vec::new() };
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
    if let Some(time) = apply_time(shelf) {
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

/// When to ask for changes to take effect: at once where that can be had.
pub(super) fn apply_time(shelf: &Shelf) -> Option<&'static str> {
    const TIMES: [&str; 2] = ["Immediate", "OnReset"];
    TIMES.into_iter().find(|time| shelf.apply_times.iter().any(|known| known == time))
}

/// Whether changes wait for a reboot.
pub(super) fn waits_for_reset(shelf: &Shelf) -> bool {
    apply_time(shelf) == Some("OnReset")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(times: &[&str]) -> Shelf {
        Shelf {
            controller: "A".to_owned(),
            path: "/a/Volumes".to_owned(),
            apply_times: times.iter().map(|time| (*time).to_owned()).collect(),
        }
    }

    fn planned() -> Planned {
        Planned {
            controller: "A".to_owned(),
            level: "1".to_owned(),
            drives: vec!["/d/0".to_owned(), "/d/1".to_owned()],
            bytes: Some(5),
            name: Some("root".to_owned()),
            root: true,
        }
    }

    #[test]
    fn what_is_posted() {
        let all = bodies(&shelf(&["OnReset", "Immediate"]), &planned());
        let drives = json!({"Drives": [{"@odata.id": "/d/0"}, {"@odata.id": "/d/1"}]});
        assert_eq!(
            all[0],
            json!({"RAIDType": "RAID1", "CapacityBytes": 5, "Name": "root", "Links": drives,
                   "@Redfish.OperationApplyTime": "Immediate"})
        );
        assert_eq!(all.len(), 4);
        assert_eq!(all[3]["VolumeType"], "Mirrored");
        let plain = Planned { bytes: None, name: None, ..planned() };
        let all = bodies(&shelf(&[]), &plain);
        assert_eq!(all[0], json!({"RAIDType": "RAID1", "Links": drives}));
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn reboots_only_where_nothing_else_helps() {
        for (times, waits) in [
            (&["OnReset", "Immediate"][..], false),
            (&["OnReset"], true),
            (&["AtMaintenanceWindowStart"], false),
            (&[], false),
        ] {
            assert_eq!(waits_for_reset(&shelf(times)), waits, "{times:?}");
        }
    }
}
