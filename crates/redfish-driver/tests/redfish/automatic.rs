// SPDX-License-Identifier: Apache-2.0
//! The `automatic` boot interface: tries boot methods and records which work.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use drivers::RamdiskMode::Deploy;
use drivers::{
    BootService, DriverError, DriverTarget, ExternalBootService, ImageDownloadSource, NodeChanges,
    PublishedBootMedia, PublishedImage, boot_model,
};
use fleet_sim::Personality;
use fleet_sim::machine::BootTarget;
use node_model::BootMethod::{Http, HttpIpxe, Ipxe, Pxe, VirtualMedia};
use node_model::{
    BOOT_METHOD_KEY, BOOT_METHODS_TRIED_KEY, BootMethod, BootMethodStats, BootPurpose,
    InterfaceKind, PowerState, PowerTarget, ProvisionState, Timestamp,
};
use serde_json::json;

use crate::boot::{DEPLOY_ISO, boot};
use crate::rig::RedfishRig;

/// A boot service that only records calls.
#[derive(Default)]
struct RecordingBootService {
    memory: Mutex<Vec<(BootMethod, bool)>>,
    plan: Mutex<Option<BootMethod>>,
    /// Methods for which publishing fails.
    broken: Vec<BootMethod>,
    /// The config drive that is published with every CD.
    config_drive: Option<String>,
}

impl RecordingBootService {
    fn memory(&self) -> Vec<(BootMethod, bool)> {
        self.memory.lock().expect("the lock is not poisoned").clone()
    }

    fn plan(&self) -> Option<BootMethod> {
        *self.plan.lock().expect("the lock is not poisoned")
    }
}

#[async_trait]
impl BootService for RecordingBootService {
    fn check(
        &self,
        target: &DriverTarget<'_>,
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<(), DriverError> {
        ExternalBootService.check(target, method, purpose)
    }

    async fn publish(
        &self,
        target: &DriverTarget<'_>,
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<PublishedBootMedia, DriverError> {
        if self.broken.contains(&method) {
            let (what, why) = ("publish it".to_owned(), "the disk is full".to_owned());
            return Err(DriverError::Failed { what, why });
        }
        *self.plan.lock().expect("the lock is not poisoned") = Some(method);
        let published = ExternalBootService.publish(target, method, purpose).await?;
        Ok(PublishedBootMedia { config_drive: self.config_drive.clone(), ..published })
    }

    async fn withdraw(&self, _target: &DriverTarget<'_>) -> Result<(), DriverError> {
        *self.plan.lock().expect("the lock is not poisoned") = None;
        Ok(())
    }

    async fn publish_image(
        &self,
        target: &DriverTarget<'_>,
        usual: ImageDownloadSource,
    ) -> Result<PublishedImage, DriverError> {
        ExternalBootService.publish_image(target, usual).await
    }

    async fn config_drive(&self, target: &DriverTarget<'_>) -> Result<Option<String>, DriverError> {
        ExternalBootService.config_drive(target).await
    }

    async fn boot_method_stats(&self, model: &str) -> Vec<BootMethodStats> {
        let memory = self.memory();
        let count =
            |method, worked| memory.iter().filter(|known| **known == (method, worked)).count();
        let methods =
            BootMethod::ALL.iter().filter(|method| memory.iter().any(|known| known.0 == **method));
        methods
            .map(|method| BootMethodStats {
                model: model.to_owned(),
                method: *method,
                worked: i64::try_from(count(*method, true)).expect("a small number"),
                failed: i64::try_from(count(*method, false)).expect("a small number"),
                tried_at: Timestamp(0),
            })
            .collect()
    }

    async fn record_boot_result(&self, model: &str, method: BootMethod, worked: bool) {
        assert_eq!(model, "Ferrite Simulated Server");
        self.memory.lock().expect("the lock is not poisoned").push((method, worked));
    }
}

/// A machine with the boot interface `automatic`, and its boot service.
fn automatic_rig(boot_service: RecordingBootService) -> (RedfishRig, Arc<RecordingBootService>) {
    let boot_service = Arc::new(boot_service);
    let mut rig = RedfishRig::with_boot_service(
        Personality::built_in("generic").expect("the personality exists"),
        boot_service.clone(),
    );
    rig.set_interface(InterfaceKind::Boot, "automatic");
    rig.driver_info.insert("deploy_iso".to_owned(), DEPLOY_ISO.into());
    rig.node.provision_state = ProvisionState::Deploying;
    let bmc = json!({"vendor": "Ferrite", "model": "Simulated Server"});
    rig.node.driver_internal_info.set("bmc", bmc);
    (rig, boot_service)
}

fn refuse_media(rig: &RedfishRig) {
    rig.fault(&format!("status=400 method=POST path={}/VirtualMedia", rig.machine().system_path()));
    rig.fault("status=400 method=POST path=/redfish/v1/Managers/bmc/VirtualMedia");
}

/// The boot method in use and those that were tried.
fn methods(rig: &RedfishRig) -> (Option<String>, Option<serde_json::Value>) {
    let info = &rig.node.driver_internal_info;
    (info.get_str(BOOT_METHOD_KEY), info.get(BOOT_METHODS_TRIED_KEY))
}

async fn prepare(rig: &mut RedfishRig) {
    let changes = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await;
    rig.apply(&changes.expect("a method is found"));
}

async fn prepare_retry(rig: &mut RedfishRig) {
    let changes = rig.driver.boot().prepare_ramdisk_retry(&rig.target(), Deploy).await;
    rig.apply(&changes.expect("a method is found"));
}

fn media_is_empty(rig: &RedfishRig) -> bool {
    rig.machine().virtual_media().iter().all(Option::is_none)
}

#[tokio::test]
async fn falls_back_to_http_boot_and_prefers_it_next_time() {
    let (mut rig, boot_service) = automatic_rig(RecordingBootService::default());
    refuse_media(&rig);
    prepare(&mut rig).await;
    assert_eq!(methods(&rig), (Some("http".to_owned()), Some(json!(["virtual media", "http"]))));
    assert_eq!(
        (boot_service.plan(), boot_service.memory()),
        (Some(Http), vec![(VirtualMedia, false)])
    );
    assert!(matches!(boot(&rig).await.0, BootTarget::UefiHttp | BootTarget::Pxe));
    // The agent sends a heartbeat, and the job ends.
    boot_service.record_boot_result(&boot_model(&rig.node).unwrap(), Http, true).await;
    let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    rig.apply(&changes);
    assert_eq!((methods(&rig), boot_service.plan()), ((None, None), None));
    assert_eq!(boot(&rig).await.0, BootTarget::Hdd);
    rig.writes();
    prepare(&mut rig).await;
    assert_eq!(methods(&rig), (Some("http".to_owned()), Some(json!(["http"]))));
    let writes = rig.writes();
    assert!(!writes.iter().any(|write| write.contains("VirtualMedia")), "{writes:?}");
}

#[tokio::test]
async fn tries_every_method_once_without_heartbeat() {
    let (mut rig, boot_service) = automatic_rig(RecordingBootService::default());
    prepare(&mut rig).await;
    assert_eq!(boot_service.plan(), Some(VirtualMedia));
    assert!(!media_is_empty(&rig));
    for method in [Http, Ipxe, Pxe, HttpIpxe, HttpIpxe] {
        prepare_retry(&mut rig).await;
        assert_eq!(boot_service.plan(), Some(method));
        assert_eq!(methods(&rig).0.as_deref(), Some(method.as_str()));
        assert!(media_is_empty(&rig), "the CD was left in when {method} was tried");
    }
    let tried = json!(["virtual media", "http", "ipxe", "pxe", "http-ipxe"]);
    assert_eq!(methods(&rig).1, Some(tried));
    // Boots without heartbeat are recorded by the conductor.
    assert_eq!(boot_service.memory(), []);
    let changes = rig.driver.boot().clean_up_ramdisk(&rig.target(), Deploy).await.unwrap();
    rig.apply(&changes);
    assert_eq!((methods(&rig), boot_service.plan()), ((None, None), None));
}

#[tokio::test]
async fn skips_impossible_methods() {
    let (mut rig, boot_service) = automatic_rig(RecordingBootService::default());
    rig.node.boot_mode = Some("bios".to_owned());
    rig.driver_info.remove("deploy_iso");
    prepare(&mut rig).await;
    assert_eq!(boot_service.plan(), Some(Ipxe));
    prepare_retry(&mut rig).await;
    prepare_retry(&mut rig).await;
    assert_eq!(methods(&rig), (Some("pxe".to_owned()), Some(json!(["ipxe", "pxe"]))));
    rig.driver_info.insert("force_persistent_boot_device".to_owned(), "Maybe".into());
    let error = rig.driver.boot().validate(&rig.target()).await.unwrap_err().to_string();
    assert!(error.contains("force_persistent_boot_device"), "{error}");
}

#[tokio::test]
async fn publishing_failures_do_not_count_against_the_model() {
    let boot_service = RecordingBootService {
        broken: vec![VirtualMedia, Http],
        ..RecordingBootService::default()
    };
    let (mut rig, boot_service) = automatic_rig(boot_service);
    prepare(&mut rig).await;
    assert_eq!((boot_service.plan(), boot_service.memory()), (Some(Ipxe), vec![]));
    let all_broken = RecordingBootService {
        broken: BootMethod::ALL.to_vec(),
        ..RecordingBootService::default()
    };
    let (rig, _) = automatic_rig(all_broken);
    let error = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("redfish-virtual-media: ") && text.contains("pxe: "), "{text}");
}

#[tokio::test]
async fn unreachable_bmc_does_not_cause_a_fallback() {
    let (rig, boot_service) = automatic_rig(RecordingBootService::default());
    rig.fault("drop");
    let error = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(boot_service.memory(), []);
}

#[tokio::test]
async fn ejects_a_cd_that_was_not_recorded() {
    let (rig, boot_service) = automatic_rig(RecordingBootService::default());
    let _lost = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap();
    assert!(!media_is_empty(&rig));
    let changes = rig.driver.boot().clean_up_ramdisk(&rig.target(), Deploy).await.unwrap();
    assert_eq!(changes, NodeChanges::none());
    assert!(media_is_empty(&rig) && boot_service.plan().is_none());
}

#[tokio::test]
async fn ramdisk_instance_keeps_its_method() {
    let (mut rig, boot_service) = automatic_rig(RecordingBootService::default());
    rig.set_interface(InterfaceKind::Deploy, "ramdisk");
    rig.instance_info.insert("boot_iso".to_owned(), "http://images.example/live.iso".into());
    refuse_media(&rig);
    let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    rig.apply(&changes);
    assert_eq!((boot_service.plan(), methods(&rig).0.as_deref()), (Some(Http), Some("http")));
    let changes = rig.driver.boot().clean_up_instance(&rig.target()).await.unwrap();
    rig.apply(&changes);
    assert_eq!((boot_service.plan(), methods(&rig).0), (None, None));
}

#[tokio::test]
async fn ejects_config_drive_with_its_instance() {
    for interface in ["redfish-virtual-media", "automatic"] {
        for is_stored in [true, false] {
            let config_drive = Some("http://images.example/config-2.img".to_owned());
            let (mut rig, _) = automatic_rig(RecordingBootService {
                config_drive,
                ..RecordingBootService::default()
            });
            rig.set_interface(InterfaceKind::Boot, interface);
            rig.set_interface(InterfaceKind::Deploy, "ramdisk");
            let iso = "http://images.example/live.iso";
            rig.instance_info.insert("boot_iso".to_owned(), iso.into());
            let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
            if is_stored {
                rig.apply(&changes);
            }
            let media = rig.machine().virtual_media();
            assert_eq!(media.iter().flatten().count(), 2, "{media:?}");
            let _changes = rig.driver.boot().clean_up_instance(&rig.target()).await.unwrap();
            assert!(media_is_empty(&rig), "{interface}: {:?}", rig.machine().virtual_media());
        }
    }
}

#[tokio::test]
async fn cleans_up_a_bmc_with_one_drive() {
    let mut one = Personality::built_in("generic").expect("the personality exists");
    one.media.slots.truncate(1);
    let mut rig = RedfishRig::with_personality(one);
    rig.node.provision_state = ProvisionState::Deploying;
    rig.driver_info.insert("deploy_iso".to_owned(), DEPLOY_ISO.into());
    let boot = rig.driver.boot();
    let _changes = boot.prepare_ramdisk(&rig.target(), Deploy).await.unwrap();
    assert!(!media_is_empty(&rig));
    let _changes = boot.clean_up_ramdisk(&rig.target(), Deploy).await.unwrap();
    let _changes = boot.clean_up_instance(&rig.target()).await.unwrap();
    assert!(media_is_empty(&rig));
}

#[tokio::test]
async fn counts_a_refusal_once_across_retries() {
    let (mut rig, boot_service) = automatic_rig(RecordingBootService::default());
    refuse_media(&rig);
    // The BMC stops responding when it is set to network boot.
    rig.fault("drop method=PATCH");
    for _ in 0..3 {
        let error = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    rig.fleet.faults().clear();
    refuse_media(&rig);
    // The same when the machine is started: the changes until then are lost.
    let _lost = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap();
    prepare(&mut rig).await;
    assert_eq!(boot_service.memory(), [(VirtualMedia, false)]);
    // The agent sends no heartbeat (the conductor records that), and all other methods are rejected.
    rig.fault("status=400 method=PATCH");
    let error = rig.driver.boot().prepare_ramdisk_retry(&rig.target(), Deploy).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    let refused = [VirtualMedia, Ipxe, Pxe, HttpIpxe].map(|method| (method, false));
    assert_eq!(boot_service.memory(), refused);
}

#[tokio::test]
async fn retry_power_cycles_the_machine() {
    let (mut rig, boot_service) = automatic_rig(RecordingBootService::default());
    prepare(&mut rig).await;
    rig.power(PowerTarget::On).await;
    rig.writes();
    let changes = drivers::ramdisk_boot::retry_ramdisk_boot(&rig.target(), Deploy).await.unwrap();
    assert_eq!(changes.power_state, Some(PowerState::On));
    assert_eq!(boot_service.plan(), Some(Http));
    let resets = rig.writes().iter().filter(|write| write.contains(".Reset")).count();
    assert_eq!(resets, 2);
}
