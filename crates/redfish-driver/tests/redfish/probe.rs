// SPDX-License-Identifier: Apache-2.0
//! The probe of BMC capabilities.

use fleet_sim::{Personality, ResourceKind};
use serde_json::{Value, json};

use crate::rig::RedfishRig;

async fn probe(rig: &RedfishRig) -> Value {
    let found = rig.driver.management().probe(&rig.target()).await.expect("a probe");
    Value::Object(found.expect("a BMC can be probed"))
}

#[tokio::test]
async fn probes_every_personality() {
    for kind in Personality::built_in_names() {
        let personality = Personality::built_in(kind).unwrap();
        let rig = RedfishRig::named(kind);
        let found = probe(&rig).await;
        let (calls, _) = rig.calls.take();
        let requests: u32 = calls.iter().map(|call| call.count).sum();
        assert!(requests <= 32, "{kind}: {requests} requests");
        assert_eq!(found["vendor"], json!(personality.manufacturer), "{kind}");
        assert_eq!(found["model"], json!(personality.model), "{kind}");
        assert_eq!(found["redfish_version"], json!(personality.redfish_version), "{kind}");
        assert_eq!(found["failed_queries"], json!([]), "{kind}");
        let drives = found["virtual_media"]["drives"].as_array().map_or(0, Vec::len);
        assert_eq!(drives, personality.media.slots.len(), "{kind}");
        let by = if personality.media.actions { "action" } else { "change" };
        assert_eq!(found["virtual_media"]["drives"][0]["by"], by, "{kind}");
        // Some BMCs have a reset action without listing its types.
        assert!(found["power_actions"].is_array(), "{kind}");
        for part in ["raid", "sensors", "boot/devices", "events/types"] {
            let list = found.pointer(&format!("/{part}")).and_then(Value::as_array);
            assert!(list.is_some_and(|list| !list.is_empty()), "{kind}: {part} in {found}");
        }
        assert!(found["bios_settings"]["count"].as_u64().is_some_and(|count| count > 0), "{kind}");
        assert!(found["firmware_update"]["from_url"].is_boolean(), "{kind}");
        assert!(found["secure_boot"].is_object() && found["probed_at"].is_string(), "{kind}");
        // The rig adds one quirk for all machines.
        assert!(!found["quirks"].as_array().unwrap().is_empty(), "{kind}");
    }
}

#[tokio::test]
async fn reports_missing_as_null_and_failures_as_skipped() {
    let mut bare = Personality::built_in("generic").unwrap();
    bare.missing =
        vec![ResourceKind::SystemMedia, ResourceKind::ManagerMedia, ResourceKind::SecureBoot];
    let rig = RedfishRig::with_personality(bare);
    rig.fault(&format!("wrong-json path={}/Storage", rig.machine().system_path()));
    let found = probe(&rig).await;
    assert_eq!(found["virtual_media"], Value::Null);
    assert_eq!(found["secure_boot"], Value::Null);
    assert_eq!(found["raid"], Value::Null);
    let skipped = found["failed_queries"].to_string();
    assert!(skipped.contains("/Storage"), "{skipped}");
    assert!(found["bios_settings"].is_object());
}
