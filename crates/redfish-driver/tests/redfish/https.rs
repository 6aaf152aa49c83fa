// SPDX-License-Identifier: Apache-2.0
//! The boot interface `redfish-https` against simulated BMCs.

use drivers::RamdiskMode::Deploy;
use fleet_sim::Personality;
use fleet_sim::machine::BootTarget;
use node_model::{InterfaceKind, ProvisionState};
use serde_json::{Value, json};

use crate::boot::{DEPLOY_ISO, boot, with_iso_for};
use crate::rig::RedfishRig;

fn https_with_iso(personality: Personality) -> RedfishRig {
    let mut rig = with_iso_for(personality);
    rig.set_interface(InterfaceKind::Boot, "redfish-https");
    rig
}

fn http_uri(rig: &RedfishRig) -> Option<String> {
    rig.machine().with_model(|machine, _| machine.boot_settings().http_uri.clone().map(Into::into))
}

#[tokio::test]
async fn boots_ramdisk_once_from_url_where_the_bmc_supports_it() {
    let mut supported = 0;
    for kind in Personality::built_in_names() {
        let personality = Personality::built_in(kind).unwrap();
        let has_target = personality.boot.targets.contains(&BootTarget::UefiHttp);
        let is_supported = has_target && personality.boot.supports_http_uri;
        let mut rig = https_with_iso(personality);
        rig.driver.boot().validate(&rig.target()).await.unwrap();
        let prepared = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await;
        if !is_supported {
            let error = prepared.unwrap_err();
            assert_ne!(has_target, error.is_caller_error(), "{kind}: {error}");
            continue;
        }
        supported += 1;
        rig.apply(&prepared.unwrap_or_else(|error| panic!("{kind}: {error}")));
        let from_url = (BootTarget::UefiHttp, Some(DEPLOY_ISO.to_owned()));
        assert_eq!(boot(&rig).await, from_url, "{kind}");
        assert_eq!(boot(&rig).await.0, BootTarget::Hdd, "{kind}: only once");
        assert!(rig.machine().virtual_media().iter().all(Option::is_none), "{kind}");
        let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
        rig.apply(&changes);
        assert_eq!(boot(&rig).await.0, BootTarget::Hdd, "{kind}");
        let info = rig.node.driver_internal_info.as_str();
        assert!(!info.contains(DEPLOY_ISO), "the URL may have a key: {info}");
    }
    assert!(supported >= 2, "{supported}");
}

#[tokio::test]
async fn live_iso_boots_from_url_every_time() {
    for supports_continuous in [true, false] {
        let mut personality = Personality::built_in("generic").unwrap();
        personality.boot.supports_continuous = supports_continuous;
        let mut rig = RedfishRig::with_personality(personality);
        rig.node.provision_state = ProvisionState::Deploying;
        rig.set_interface(InterfaceKind::Boot, "redfish-https");
        rig.instance_info.insert("boot_iso".to_owned(), DEPLOY_ISO.into());
        let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
        rig.apply(&changes);
        for _ in 0..2 {
            let from_url = (BootTarget::UefiHttp, Some(DEPLOY_ISO.to_owned()));
            assert_eq!(boot(&rig).await, from_url, "{supports_continuous}");
        }
        // A running instance keeps its boot device when another conductor takes over.
        rig.node.provision_state = ProvisionState::Active;
        rig.writes();
        let _changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
        assert!(rig.writes().is_empty());
        let _changes = rig.driver.boot().clean_up_instance(&rig.target()).await.unwrap();
        // The next job sets another device, which removes the URL.
        let disk = drivers::BootDevice::Disk;
        let set = rig.driver.management().set_boot_device(&rig.target(), disk, true).await;
        let _changes = set.unwrap();
        assert_eq!(http_uri(&rig), None);
    }
}

#[tokio::test]
async fn rejects_config_drives_of_live_isos_and_other_protocols() {
    let mut rig = https_with_iso(Personality::built_in("generic").unwrap());
    for (instance_info, text) in [
        (json!({"boot_iso": DEPLOY_ISO, "configdrive": "H4sI"}), Some("configdrive")),
        (json!({"boot_iso": DEPLOY_ISO, "configdrive": {"meta_data": {}}}), Some("configdrive")),
        (json!({"boot_iso": DEPLOY_ISO, "configdrive": {}}), None),
        (json!({"boot_iso": DEPLOY_ISO, "configdrive": null}), None),
        // The agent writes it to the disk.
        (json!({"image_source": "http://h/image", "configdrive": "H4sI"}), None),
    ] {
        rig.instance_info = instance_info.as_object().unwrap().clone();
        let validated = rig.driver.boot().validate(&rig.target()).await;
        match (validated, text) {
            (Ok(()), None) => {}
            (Err(error), Some(text)) => {
                assert!(error.is_caller_error() && error.to_string().contains(text), "{error}");
            }
            (validated, _) => panic!("{instance_info}: {validated:?}"),
        }
    }
    rig.instance_info.clear();
    rig.driver_info.insert("deploy_iso".to_owned(), Value::from("nfs://host/deploy.iso"));
    let prepared = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await;
    let error = prepared.unwrap_err().to_string();
    assert!(error.contains("http and https"), "{error}");
}
