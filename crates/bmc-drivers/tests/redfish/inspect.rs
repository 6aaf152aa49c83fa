// SPDX-License-Identifier: Apache-2.0
//! Inspection by asking the BMC.

use bmc_drivers::{Findings, Inspection};
use fleet_sim::{Kind, Personality};
use serde_json::Value;

use crate::rig::Rig;

async fn inspect(rig: &Rig) -> Findings {
    match rig.driver.inspect().inspect(&rig.target()).await.expect("an inspection") {
        Inspection::Done(findings) => *findings,
        Inspection::WaitForAgent(_) => panic!("there is no agent to wait for"),
    }
}

#[tokio::test]
async fn every_kind_of_machine_is_found() {
    for kind in Personality::names() {
        let rig = Rig::named(kind);
        let findings = inspect(&rig).await;
        let (calls, more) = rig.calls.take();
        assert!(calls.len() < 64 && more == 0, "{kind}: {} requests", calls.len());
        let mut macs = rig.machine().macs();
        let mut ports = findings.ports;
        macs.sort();
        ports.sort();
        assert_eq!(ports, macs, "{kind}");
        let properties = findings.changes.properties;
        for key in ["cpus", "memory_mb", "local_gb"] {
            assert!(properties[key].as_i64().is_some_and(|value| value > 0), "{kind}: {key}");
        }
        assert_eq!(properties["cpu_arch"], "x86_64", "{kind}");
        let inventory = Value::Object(findings.inventory.expect("an inventory").parse());
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
async fn what_a_bmc_does_not_tell_is_left_out() {
    let mut bare = Personality::named("generic").unwrap();
    bare.missing =
        vec![Kind::Processors, Kind::Storages, Kind::ManagerInterfaces, Kind::EthernetInterfaces];
    let rig = Rig::of(bare);
    let findings = inspect(&rig).await;
    assert!(findings.ports.is_empty());
    assert!(findings.changes.properties.contains_key("memory_mb"));
    assert_eq!(findings.changes.properties["local_gb"], 0);

    let rig = Rig::named("generic");
    rig.fault(&format!("wrong-json path={}/Storage", rig.machine().system_path()));
    let findings = inspect(&rig).await;
    assert!(!findings.ports.is_empty());
    assert_eq!(findings.changes.properties["local_gb"], 0);
}

#[tokio::test]
async fn a_bmc_that_locks_us_out_fails_the_inspection() {
    let rig = Rig::named("generic");
    rig.fault("wrong-password");
    let error = rig.driver.inspect().inspect(&rig.target()).await.unwrap_err().to_string();
    assert!(error.contains("credentials") && error.contains("inspect"), "{error}");
}
