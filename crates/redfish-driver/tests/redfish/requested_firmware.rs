// SPDX-License-Identifier: Apache-2.0
//! The boot mode and secure boot that an instance requests, on simulated BMCs.

use drivers::requested_firmware::{
    prepare_instance_firmware, prepare_ramdisk_firmware, release_secure_boot,
};
use drivers::{BootMode, NodeChanges};
use fleet_sim::Personality;
use fleet_sim::machine::BootTarget;
use serde_json::{Value, json};

use crate::boot::boot;
use crate::rig::RedfishRig;

/// "hpe-like" applies changes of the firmware setup at the next boot, "generic" at once.
const KINDS: [&str; 2] = ["generic", "hpe-like"];

fn rig_with(kind: &str, capabilities: Value) -> RedfishRig {
    let mut rig = RedfishRig::named(kind);
    rig.instance_info.insert("capabilities".to_owned(), capabilities);
    rig
}

/// The boot mode and whether secure boot is on.
async fn firmware(rig: &RedfishRig) -> (BootMode, bool) {
    let (target, management) = (rig.target(), rig.driver.management());
    let mode = management.boot_mode(&target).await.expect("the boot mode is readable");
    let is_secure = management.secure_boot(&target).await.expect("secure boot is readable");
    (mode, is_secure)
}

fn applied(rig: &mut RedfishRig, changes: NodeChanges) {
    rig.apply(&changes);
}

#[tokio::test]
async fn secure_boot_is_on_only_while_the_instance_runs() {
    for kind in KINDS {
        let mut rig = rig_with(kind, json!({"secure_boot": "true"}));
        // The machine has the other mode.
        let _ = rig.driver.management().set_boot_mode(&rig.target(), BootMode::Bios).await.unwrap();
        let changes = prepare_ramdisk_firmware(&rig.target()).await.unwrap();
        applied(&mut rig, changes);
        assert_eq!(firmware(&rig).await, (BootMode::Uefi, false), "{kind}: ramdisk");
        let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
        applied(&mut rig, changes);
        let changes = prepare_instance_firmware(&rig.target()).await.unwrap();
        applied(&mut rig, changes);
        assert_eq!(firmware(&rig).await, (BootMode::Uefi, true), "{kind}: instance");
        assert_eq!(rig.machine().power_state(), fleet_sim::machine::PowerState::Off, "{kind}");
        assert_eq!(boot(&rig).await.0, BootTarget::Hdd, "{kind}: instance");
        assert!(rig.machine().current_boot().unwrap().secure, "{kind}: instance");
        // A rescue or a rebuild.
        let changes = prepare_ramdisk_firmware(&rig.target()).await.unwrap();
        applied(&mut rig, changes);
        assert_eq!(firmware(&rig).await, (BootMode::Uefi, false), "{kind}: second ramdisk");
        let changes = prepare_instance_firmware(&rig.target()).await.unwrap();
        applied(&mut rig, changes);
        // The capabilities of the active instance change.
        rig.instance_info.clear();
        let changes = release_secure_boot(&rig.target()).await.unwrap();
        applied(&mut rig, changes);
        assert_eq!(firmware(&rig).await, (BootMode::Uefi, false), "{kind}: removed");
    }
}

#[tokio::test]
async fn boot_mode_of_the_node_is_set_before_a_ramdisk_boots() {
    for kind in KINDS {
        let mut rig = RedfishRig::named(kind);
        rig.node.properties.set("capabilities", json!("boot_mode:bios"));
        let changes = prepare_ramdisk_firmware(&rig.target()).await.unwrap();
        assert_eq!(changes.boot_mode.as_deref(), Some("bios"), "{kind}");
        assert_eq!(firmware(&rig).await, (BootMode::Bios, false), "{kind}");
        // A second time nothing is written.
        applied(&mut rig, changes);
        drop(rig.writes());
        assert!(prepare_ramdisk_firmware(&rig.target()).await.unwrap().is_empty(), "{kind}");
        assert_eq!(rig.writes(), Vec::<String>::new(), "{kind}");
    }
}

#[tokio::test]
async fn refusals_write_nothing() {
    let mut without = Personality::built_in("generic").unwrap();
    without.missing.push(fleet_sim::ResourceKind::SecureBoot);
    let mut rig = RedfishRig::with_personality(without);
    rig.instance_info.insert("capabilities".to_owned(), json!({"secure_boot": "true"}));
    drop(rig.writes());
    let error = prepare_ramdisk_firmware(&rig.target()).await.unwrap_err().to_string();
    assert!(error.contains("requests what the machine cannot fulfil"), "{error}");
    assert_eq!(rig.writes(), Vec::<String>::new());

    let rig = rig_with("generic", json!({"boot_mode": "bios"}));
    let _ = rig.driver.management().set_secure_boot(&rig.target(), true).await.unwrap();
    drop(rig.writes());
    let error = prepare_ramdisk_firmware(&rig.target()).await.unwrap_err().to_string();
    assert!(error.contains("secure boot is enabled on the machine"), "{error}");
    assert_eq!(rig.writes(), Vec::<String>::new());
}
