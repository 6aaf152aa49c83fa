// SPDX-License-Identifier: Apache-2.0
//! Images in virtual drives, on BMCs that want it said in different ways.

use bmc_drivers::{Error, MediaDevice};
use fleet_sim::machine::MediaKind;
use fleet_sim::{Kind, Personality, SlotRule};

use crate::rig::Rig;

const ISO: &str = "http://images.example/boot.iso";
const OTHER: &str = "http://images.example/other.iso";

/// What the machine has in its drives.
fn images(rig: &Rig) -> Vec<String> {
    let media = rig.machine().virtual_media().into_iter().flatten();
    media.filter(|medium| medium.inserted).map(|medium| medium.image.into()).collect()
}

async fn attach(rig: &Rig, device: MediaDevice, url: &str) -> Result<(), Error> {
    rig.driver.management().attach_virtual_media(&rig.target(), device, url).await.map(drop)
}

async fn detach(rig: &Rig, devices: &[MediaDevice]) {
    let changes = rig.driver.management().detach_virtual_media(&rig.target(), devices).await;
    assert!(changes.expect("it ejects").is_empty());
}

/// The images that callers are shown, of occupied drives.
async fn shown(rig: &Rig) -> Vec<(MediaDevice, String)> {
    let slots = rig.driver.management().virtual_media(&rig.target()).await.expect("a list");
    slots.into_iter().filter_map(|slot| Some((slot.device, slot.image_url?))).collect()
}

#[tokio::test]
async fn every_kind_of_machine_takes_and_gives_back_a_cd() {
    for kind in Personality::names() {
        let rig = Rig::named(kind);
        attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap_or_else(|e| panic!("{kind}: {e}"));
        assert_eq!(images(&rig), [ISO], "{kind}");
        assert_eq!(shown(&rig).await, [(MediaDevice::Cdrom, ISO.to_owned())], "{kind}");
        rig.deeds();
        attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap();
        assert!(rig.deeds().is_empty(), "{kind}: it was there already");
        attach(&rig, MediaDevice::Cdrom, OTHER).await.unwrap();
        assert_eq!(images(&rig), [OTHER], "{kind}");
        detach(&rig, &[MediaDevice::Floppy]).await;
        assert_eq!(images(&rig), [OTHER], "{kind}");
        detach(&rig, &[MediaDevice::Cdrom]).await;
        assert!(images(&rig).is_empty(), "{kind}");
        rig.deeds();
        detach(&rig, &[]).await;
        assert!(rig.deeds().is_empty(), "{kind}: there was nothing left");
    }
}

#[tokio::test]
async fn a_login_in_the_url_goes_into_fields_and_is_never_shown() {
    let rig = Rig::named("generic");
    let url = "https://reader:h%40nter2@images.example/boot.iso";
    attach(&rig, MediaDevice::Cdrom, url).await.unwrap();
    let medium = rig.machine().virtual_media().into_iter().flatten().next().unwrap();
    assert_eq!(&*medium.image, "https://images.example/boot.iso");
    assert_eq!(medium.user_name.as_deref(), Some("reader"));
    assert_eq!(
        shown(&rig).await,
        [(MediaDevice::Cdrom, "https://images.example/boot.iso".to_owned())]
    );
    rig.fault("status=400 method=POST");
    let error = attach(&rig, MediaDevice::Cdrom, &url.replace("boot", "other")).await.unwrap_err();
    let told = format!("{error} {:?}", rig.calls.take());
    assert!(told.contains("https://images.example/other.iso"), "{told}");
    assert!(!told.contains("h@nter2") && !told.contains("h%40nter2"), "{told}");
}

#[tokio::test]
async fn a_signature_in_the_url_reaches_the_bmc_and_nobody_else() {
    let rig = Rig::named("generic");
    let url = "https://images.example/boot.iso?X-Signature=5ecret";
    attach(&rig, MediaDevice::Cdrom, url).await.unwrap();
    assert_eq!(images(&rig), [url]);
    let shown = shown(&rig).await;
    assert_eq!(shown, [(MediaDevice::Cdrom, "https://images.example/boot.iso".to_owned())]);
    rig.deeds();
    attach(&rig, MediaDevice::Cdrom, url).await.unwrap();
    assert_eq!(rig.deeds(), [""; 0], "it was there already");
    rig.fault("status=400 method=POST");
    let error = attach(&rig, MediaDevice::Cdrom, &url.replace("boot", "other")).await.unwrap_err();
    let told = format!("{error} {:?}", rig.calls.take());
    assert!(told.contains("https://images.example/other.iso"), "{told}");
    assert!(!told.contains("5ecret"), "{told}");
}

#[tokio::test]
async fn a_key_in_the_path_reaches_the_bmc_and_nobody_else() {
    let rig = Rig::named("generic");
    let key = "Ab-_".repeat(11);
    let url = format!("http://images.example/{key}/boot.iso");
    attach(&rig, MediaDevice::Cdrom, &url).await.unwrap();
    assert_eq!(images(&rig), [url.as_str()]);
    assert_eq!(
        shown(&rig).await,
        [(MediaDevice::Cdrom, "http://images.example/…/boot.iso".to_owned())]
    );
    // This one says in its refusal what it was asked for.
    let mut refusing = Personality::named("generic").unwrap();
    refusing.media.schemes = vec!["nfs".to_owned()];
    let rig = Rig::of(refusing);
    let error = attach(&rig, MediaDevice::Cdrom, &url).await.unwrap_err();
    let told = format!("{error} {error:?} {:?}", rig.calls.take());
    assert!(told.contains("cannot be http://images.example/…/boot.iso"), "{told}");
    assert!(!told.contains(&key), "{told}");
}

#[tokio::test]
async fn a_bmc_that_needs_more_keys_is_given_them() {
    let mut picky = Personality::named("generic").unwrap();
    picky.media.needs = ["TransferProtocolType", "TransferMethod", "UserName", "Password"]
        .map(str::to_owned)
        .to_vec();
    picky.media.refuses = vec!["WriteProtected".to_owned()];
    let rig = Rig::of(picky);
    attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap();
    assert_eq!(images(&rig), [ISO]);
}

#[tokio::test]
async fn a_drive_that_refuses_is_passed_over() {
    let mut two = Personality::named("generic").unwrap();
    let slot =
        |id: &str| SlotRule { id: id.to_owned(), kinds: vec![MediaKind::Dvd, MediaKind::UsbStick] };
    two.media.slots = vec![slot("A"), slot("B")];
    let rig = Rig::of(two);
    let place = format!("{}/VirtualMedia/A", rig.machine().system_path());
    rig.fault(&format!("status=405 method=POST path={place}"));
    attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap();
    let media = rig.machine().virtual_media();
    assert!(media[0].is_none() && media[1].is_some(), "{media:?}");
    detach(&rig, &[]).await;
    rig.fleet.faults().clear();
    // A CD and a stick keep out of each other's way.
    attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap();
    attach(&rig, MediaDevice::Disk, OTHER).await.unwrap();
    assert_eq!(images(&rig), [ISO, OTHER]);
}

#[tokio::test]
async fn drives_of_the_manager_are_used_where_the_system_has_none() {
    let mut of_manager = Personality::named("generic").unwrap();
    of_manager.missing = vec![Kind::SystemMedia];
    let rig = Rig::of(of_manager);
    attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap();
    assert!(rig.deeds().iter().all(|deed| !deed.contains("/Systems/")));
    assert_eq!(images(&rig), [ISO]);
    detach(&rig, &[]).await;
    assert!(images(&rig).is_empty());
}

#[tokio::test]
async fn what_cannot_be_is_said_with_what_to_try() {
    let mut none = Personality::named("generic").unwrap();
    none.missing = vec![Kind::SystemMedia, Kind::ManagerMedia];
    let rig = Rig::of(none);
    detach(&rig, &[]).await;
    let error = attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap_err().to_string();
    assert!(error.contains("no virtual drives") && error.contains("licence"), "{error}");

    let rig = Rig::named("supermicro-like");
    let error = attach(&rig, MediaDevice::Floppy, ISO).await.unwrap_err().to_string();
    assert!(error.contains("VirtualMedia1") && error.contains("floppy"), "{error}");

    let rig = Rig::named("hpe-like");
    let nfs = "nfs://images.example/srv/boot.iso";
    let error = attach(&rig, MediaDevice::Cdrom, nfs).await.unwrap_err().to_string();
    assert!(error.contains(nfs) && error.contains("drive 2"), "{error}");
    let error = attach(&rig, MediaDevice::Cdrom, "boot.iso").await.unwrap_err();
    assert!(error.is_callers_fault(), "{error}");
}
