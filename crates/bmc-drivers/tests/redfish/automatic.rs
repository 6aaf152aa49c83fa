// SPDX-License-Identifier: Apache-2.0
//! Booting by whatever way works, and remembering which did.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bmc_drivers::RamdiskMode::Deploy;
use bmc_drivers::{
    BootDesk, Error, ImageDownloadSource, NoBootServices, NodeChanges, OfferedImage, Published,
    Target, boot_model,
};
use fleet_sim::Personality;
use fleet_sim::machine::BootTarget;
use node_model::BootWay::{Http, HttpIpxe, Ipxe, Pxe, VirtualMedia};
use node_model::{
    BOOT_WAY, BOOT_WAYS_TRIED, BootExperience, BootPurpose, BootWay, InterfaceKind, PowerState,
    PowerTarget, ProvisionState, Timestamp,
};
use serde_json::json;

use crate::boot::{DEPLOY_ISO, boot};
use crate::rig::Rig;

/// Boot services that remember, and do no more.
#[derive(Default)]
struct Desk {
    memory: Mutex<Vec<(BootWay, bool)>>,
    plan: Mutex<Option<BootWay>>,
    /// What cannot be laid out.
    broken: Vec<BootWay>,
    /// The second medium that is laid out with every CD.
    config_drive: Option<String>,
}

impl Desk {
    fn memory(&self) -> Vec<(BootWay, bool)> {
        self.memory.lock().expect("nobody panicked").clone()
    }

    fn plan(&self) -> Option<BootWay> {
        *self.plan.lock().expect("nobody panicked")
    }
}

#[async_trait]
impl BootDesk for Desk {
    fn check(&self, target: &Target<'_>, way: BootWay, purpose: BootPurpose) -> Result<(), Error> {
        NoBootServices.check(target, way, purpose)
    }

    async fn publish(
        &self,
        target: &Target<'_>,
        way: BootWay,
        purpose: BootPurpose,
    ) -> Result<Published, Error> {
        if self.broken.contains(&way) {
            let (what, why) = ("lay it out".to_owned(), "the disk is full".to_owned());
            return Err(Error::Failed { what, why });
        }
        *self.plan.lock().expect("nobody panicked") = Some(way);
        let published = NoBootServices.publish(target, way, purpose).await?;
        Ok(Published { config_drive: self.config_drive.clone(), ..published })
    }

    async fn withdraw(&self, _target: &Target<'_>) -> Result<(), Error> {
        *self.plan.lock().expect("nobody panicked") = None;
        Ok(())
    }

    async fn offer_image(
        &self,
        target: &Target<'_>,
        usual: ImageDownloadSource,
    ) -> Result<OfferedImage, Error> {
        NoBootServices.offer_image(target, usual).await
    }

    async fn config_drive(&self, target: &Target<'_>) -> Result<Option<String>, Error> {
        NoBootServices.config_drive(target).await
    }

    async fn experience(&self, model: &str) -> Vec<BootExperience> {
        let memory = self.memory();
        let count = |way, worked| memory.iter().filter(|known| **known == (way, worked)).count();
        let ways = BootWay::ALL.iter().filter(|way| memory.iter().any(|known| known.0 == **way));
        ways.map(|way| BootExperience {
            model: model.to_owned(),
            way: *way,
            worked: i64::try_from(count(*way, true)).expect("a few"),
            failed: i64::try_from(count(*way, false)).expect("a few"),
            tried_at: Timestamp(0),
        })
        .collect()
    }

    async fn note(&self, model: &str, way: BootWay, worked: bool) {
        assert_eq!(model, "Ferrite Simulated Server");
        self.memory.lock().expect("nobody panicked").push((way, worked));
    }
}

/// A machine that boots by whatever way works, and its desk.
fn rig(desk: Desk) -> (Rig, Arc<Desk>) {
    let desk = Arc::new(desk);
    let mut rig = Rig::at(Personality::named("generic").expect("the kind exists"), desk.clone());
    rig.choose(InterfaceKind::Boot, "automatic");
    rig.driver_info.insert("deploy_iso".to_owned(), DEPLOY_ISO.into());
    rig.node.provision_state = ProvisionState::Deploying;
    let bmc = json!({"vendor": "Ferrite", "model": "Simulated Server"});
    rig.node.driver_internal_info.set("bmc", bmc);
    (rig, desk)
}

fn refuse_media(rig: &Rig) {
    rig.fault(&format!("status=400 method=POST path={}/VirtualMedia", rig.machine().system_path()));
    rig.fault("status=400 method=POST path=/redfish/v1/Managers/bmc/VirtualMedia");
}

/// The way in use and those that were tried.
fn ways(rig: &Rig) -> (Option<String>, Option<serde_json::Value>) {
    let info = &rig.node.driver_internal_info;
    (info.get_str(BOOT_WAY), info.get(BOOT_WAYS_TRIED))
}

async fn prepare(rig: &mut Rig) {
    let changes = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await;
    rig.keep(&changes.expect("a way is found"));
}

async fn again(rig: &mut Rig) {
    let changes = rig.driver.boot().prepare_again(&rig.target(), Deploy).await;
    rig.keep(&changes.expect("a way is found"));
}

fn media_is_empty(rig: &Rig) -> bool {
    rig.machine().virtual_media().iter().all(Option::is_none)
}

#[tokio::test]
async fn a_bmc_that_refuses_a_cd_boots_from_the_network_and_next_time_at_once() {
    let (mut rig, desk) = rig(Desk::default());
    refuse_media(&rig);
    prepare(&mut rig).await;
    assert_eq!(ways(&rig), (Some("http".to_owned()), Some(json!(["virtual media", "http"]))));
    assert_eq!((desk.plan(), desk.memory()), (Some(Http), vec![(VirtualMedia, false)]));
    assert!(matches!(boot(&rig).await.0, BootTarget::UefiHttp | BootTarget::Pxe));
    // The agent calls, and the job ends.
    desk.note(&boot_model(&rig.node).unwrap(), Http, true).await;
    let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    rig.keep(&changes);
    assert_eq!((ways(&rig), desk.plan()), ((None, None), None));
    assert_eq!(boot(&rig).await.0, BootTarget::Hdd);
    rig.deeds();
    prepare(&mut rig).await;
    assert_eq!(ways(&rig), (Some("http".to_owned()), Some(json!(["http"]))));
    let deeds = rig.deeds();
    assert!(!deeds.iter().any(|deed| deed.contains("VirtualMedia")), "{deeds:?}");
}

#[tokio::test]
async fn a_silent_agent_has_every_way_tried_once() {
    let (mut rig, desk) = rig(Desk::default());
    prepare(&mut rig).await;
    assert_eq!(desk.plan(), Some(VirtualMedia));
    assert!(!media_is_empty(&rig));
    for way in [Http, Ipxe, Pxe, HttpIpxe, HttpIpxe] {
        again(&mut rig).await;
        assert_eq!(desk.plan(), Some(way));
        assert_eq!(ways(&rig).0.as_deref(), Some(way.as_str()));
        assert!(media_is_empty(&rig), "the CD was left in when {way} was tried");
    }
    let tried = json!(["virtual media", "http", "ipxe", "pxe", "http-ipxe"]);
    assert_eq!(ways(&rig).1, Some(tried));
    // Who stays silent is for the conductor to tell.
    assert_eq!(desk.memory(), []);
    let changes = rig.driver.boot().clean_up_ramdisk(&rig.target(), Deploy).await.unwrap();
    rig.keep(&changes);
    assert_eq!((ways(&rig), desk.plan()), ((None, None), None));
}

#[tokio::test]
async fn ways_that_cannot_be_are_left_out() {
    let (mut rig, desk) = rig(Desk::default());
    rig.node.boot_mode = Some("bios".to_owned());
    rig.driver_info.remove("deploy_iso");
    prepare(&mut rig).await;
    assert_eq!(desk.plan(), Some(Ipxe));
    again(&mut rig).await;
    again(&mut rig).await;
    assert_eq!(ways(&rig), (Some("pxe".to_owned()), Some(json!(["ipxe", "pxe"]))));
    rig.driver_info.insert("force_persistent_boot_device".to_owned(), "Maybe".into());
    let error = rig.driver.boot().validate(&rig.target()).await.unwrap_err().to_string();
    assert!(error.contains("force_persistent_boot_device"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_laid_out_is_not_held_against_the_machine() {
    let desk = Desk { broken: vec![VirtualMedia, Http], ..Desk::default() };
    let (mut rig, desk) = rig(desk);
    prepare(&mut rig).await;
    assert_eq!((desk.plan(), desk.memory()), (Some(Ipxe), vec![]));
    let nothing = Desk { broken: BootWay::ALL.to_vec(), ..Desk::default() };
    let (rig, _) = self::rig(nothing);
    let error = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("redfish-virtual-media: ") && text.contains("pxe: "), "{text}");
}

#[tokio::test]
async fn a_bmc_that_is_away_is_no_better_for_another_way() {
    let (rig, desk) = rig(Desk::default());
    rig.fault("drop");
    let error = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(desk.memory(), []);
}

#[tokio::test]
async fn a_cd_that_nobody_wrote_down_is_taken_out() {
    let (rig, desk) = rig(Desk::default());
    let _lost = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap();
    assert!(!media_is_empty(&rig));
    let changes = rig.driver.boot().clean_up_ramdisk(&rig.target(), Deploy).await.unwrap();
    assert_eq!(changes, NodeChanges::none());
    assert!(media_is_empty(&rig) && desk.plan().is_none());
}

#[tokio::test]
async fn an_instance_in_memory_keeps_its_way_for_as_long_as_it_lives() {
    let (mut rig, desk) = rig(Desk::default());
    rig.choose(InterfaceKind::Deploy, "ramdisk");
    rig.instance_info.insert("boot_iso".to_owned(), "http://images.example/live.iso".into());
    refuse_media(&rig);
    let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    rig.keep(&changes);
    assert_eq!((desk.plan(), ways(&rig).0.as_deref()), (Some(Http), Some("http")));
    let changes = rig.driver.boot().clean_up_instance(&rig.target()).await.unwrap();
    rig.keep(&changes);
    assert_eq!((desk.plan(), ways(&rig).0), (None, None));
}

#[tokio::test]
async fn a_config_drive_leaves_with_its_instance() {
    for interface in ["redfish-virtual-media", "automatic"] {
        for is_written_down in [true, false] {
            let config_drive = Some("http://images.example/config-2.img".to_owned());
            let (mut rig, _) = rig(Desk { config_drive, ..Desk::default() });
            rig.choose(InterfaceKind::Boot, interface);
            rig.choose(InterfaceKind::Deploy, "ramdisk");
            let iso = "http://images.example/live.iso";
            rig.instance_info.insert("boot_iso".to_owned(), iso.into());
            let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
            if is_written_down {
                rig.keep(&changes);
            }
            let media = rig.machine().virtual_media();
            assert_eq!(media.iter().flatten().count(), 2, "{media:?}");
            let _changes = rig.driver.boot().clean_up_instance(&rig.target()).await.unwrap();
            assert!(media_is_empty(&rig), "{interface}: {:?}", rig.machine().virtual_media());
        }
    }
}

#[tokio::test]
async fn a_bmc_with_one_drive_has_nothing_else_to_empty() {
    let mut one = Personality::named("generic").expect("the kind exists");
    one.media.slots.truncate(1);
    let mut rig = Rig::of(one);
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
async fn a_refusal_counts_once_however_often_it_is_asked_again() {
    let (mut rig, desk) = rig(Desk::default());
    refuse_media(&rig);
    // The BMC falls silent when it is told to boot from the network.
    rig.fault("drop method=PATCH");
    for _ in 0..3 {
        let error = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    rig.fleet.faults().clear();
    refuse_media(&rig);
    // Or when it is told to start: what was changed until then is lost.
    let _lost = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap();
    prepare(&mut rig).await;
    assert_eq!(desk.memory(), [(VirtualMedia, false)]);
    // The agent stays silent, which is the conductor's to tell, and all else is refused.
    rig.fault("status=400 method=PATCH");
    let error = rig.driver.boot().prepare_again(&rig.target(), Deploy).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    let refused = [VirtualMedia, Ipxe, Pxe, HttpIpxe].map(|way| (way, false));
    assert_eq!(desk.memory(), refused);
}

#[tokio::test]
async fn booting_again_switches_the_machine_off_and_on() {
    let (mut rig, desk) = rig(Desk::default());
    prepare(&mut rig).await;
    rig.power(PowerTarget::On).await;
    rig.deeds();
    let changes = bmc_drivers::boot_again(&rig.target(), Deploy).await.unwrap();
    assert_eq!(changes.power_state, Some(PowerState::On));
    assert_eq!(desk.plan(), Some(Http));
    let resets = rig.deeds().iter().filter(|deed| deed.contains(".Reset")).count();
    assert_eq!(resets, 2);
}
