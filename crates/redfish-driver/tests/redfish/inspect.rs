// SPDX-License-Identifier: Apache-2.0
//! Out-of-band inspection.

use drivers::{InspectedHardware, InspectionOutcome};
use fleet_sim::{Personality, ResourceKind};
use serde_json::Value;

use crate::rig::RedfishRig;

async fn inspect(rig: &RedfishRig) -> InspectedHardware {
    match rig.driver.inspect().inspect(&rig.target()).await.expect("an inspection") {
        InspectionOutcome::Done(inspected) => *inspected,
        InspectionOutcome::WaitForAgent(_) => panic!("there is no agent to wait for"),
    }
}

#[tokio::test]
async fn inspects_every_personality() {
    for kind in Personality::built_in_names() {
        let rig = RedfishRig::named(kind);
        let inspected = inspect(&rig).await;
        let (calls, more) = rig.calls.take();
        assert!(calls.len() < 64 && more == 0, "{kind}: {} requests", calls.len());
        let mut macs = rig.machine().macs();
        let mut ports = inspected.ports;
        macs.sort();
        ports.sort();
        assert_eq!(ports, macs, "{kind}");
        let properties = inspected.changes.properties;
        for key in ["cpus", "memory_mb", "local_gb"] {
            assert!(properties[key].as_i64().is_some_and(|value| value > 0), "{kind}: {key}");
        }
        assert_eq!(properties["cpu_arch"], "x86_64", "{kind}");
        let inventory = Value::Object(inspected.inventory.expect("an inventory").parse());
        for pointer in [
            "/cpu/model_name",
            "/memory/physical_mb",
            "/disks/0/size",
            "/interfaces/0/mac_address",
            "/system_vendor/manufacturer",
            "/system_vendor/serial_number",
        ] {
            assert!(inventory.pointer(pointer).is_some(), "{kind}: {pointer} in {inventory}");
        }
    }
}

#[tokio::test]
async fn skips_missing_resources() {
    let mut bare = Personality::built_in("generic").unwrap();
    bare.missing = vec![
        ResourceKind::Processors,
        ResourceKind::Storages,
        ResourceKind::ManagerInterfaces,
        ResourceKind::EthernetInterfaces,
    ];
    let rig = RedfishRig::with_personality(bare);
    let inspected = inspect(&rig).await;
    assert!(inspected.ports.is_empty());
    assert!(inspected.changes.properties.contains_key("memory_mb"));
    assert_eq!(inspected.changes.properties["local_gb"], 0);

    let rig = RedfishRig::named("generic");
    rig.fault(&format!("wrong-json path={}/Storage", rig.machine().system_path()));
    let inspected = inspect(&rig).await;
    assert!(!inspected.ports.is_empty());
    assert_eq!(inspected.changes.properties["local_gb"], 0);
}

#[tokio::test]
async fn fails_with_wrong_credentials() {
    let rig = RedfishRig::named("generic");
    rig.fault("wrong-password");
    let error = rig.driver.inspect().inspect(&rig.target()).await.unwrap_err().to_string();
    assert!(error.contains("credentials") && error.contains("inspect"), "{error}");
}
