// SPDX-License-Identifier: Apache-2.0
//! Virtual media, on BMCs that require different requests.

use drivers::{DriverError, MediaDevice};
use fleet_sim::machine::MediaKind;
use fleet_sim::{Personality, ResourceKind, SlotRule};

use crate::rig::RedfishRig;

const ISO: &str = "http://images.example/boot.iso";
const OTHER: &str = "http://images.example/other.iso";

/// The inserted images of the machine.
fn images(rig: &RedfishRig) -> Vec<String> {
    let media = rig.machine().virtual_media().into_iter().flatten();
    media.filter(|medium| medium.inserted).map(|medium| medium.image.into()).collect()
}

async fn attach(rig: &RedfishRig, device: MediaDevice, url: &str) -> Result<(), DriverError> {
    rig.driver.management().attach_virtual_media(&rig.target(), device, url).await.map(drop)
}

async fn detach(rig: &RedfishRig, devices: &[MediaDevice]) {
    let changes = rig.driver.management().detach_virtual_media(&rig.target(), devices).await;
    assert!(changes.expect("ejecting succeeds").is_empty());
}

/// The images of occupied drives, as returned by the API.
async fn listed_images(rig: &RedfishRig) -> Vec<(MediaDevice, String)> {
    let slots = rig.driver.management().virtual_media(&rig.target()).await.expect("a list");
    slots.into_iter().filter_map(|slot| Some((slot.device, slot.image_url?))).collect()
}

#[tokio::test]
async fn inserts_and_ejects_a_cd_on_every_personality() {
    for kind in Personality::built_in_names() {
        let rig = RedfishRig::named(kind);
        attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap_or_else(|e| panic!("{kind}: {e}"));
        assert_eq!(images(&rig), [ISO], "{kind}");
        assert_eq!(listed_images(&rig).await, [(MediaDevice::Cdrom, ISO.to_owned())], "{kind}");
        rig.writes();
        attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap();
        assert!(rig.writes().is_empty(), "{kind}: it was already inserted");
        attach(&rig, MediaDevice::Cdrom, OTHER).await.unwrap();
        assert_eq!(images(&rig), [OTHER], "{kind}");
        detach(&rig, &[MediaDevice::Floppy]).await;
        assert_eq!(images(&rig), [OTHER], "{kind}");
        detach(&rig, &[MediaDevice::Cdrom]).await;
        assert!(images(&rig).is_empty(), "{kind}");
        rig.writes();
        detach(&rig, &[]).await;
        assert!(rig.writes().is_empty(), "{kind}: expected no write");
    }
}

#[tokio::test]
async fn sends_url_login_as_fields_and_masks_it() {
    let rig = RedfishRig::named("generic");
    let url = "https://reader:h%40nter2@images.example/boot.iso";
    attach(&rig, MediaDevice::Cdrom, url).await.unwrap();
    let medium = rig.machine().virtual_media().into_iter().flatten().next().unwrap();
    assert_eq!(&*medium.image, "https://images.example/boot.iso");
    assert_eq!(medium.user_name.as_deref(), Some("reader"));
    assert_eq!(
        listed_images(&rig).await,
        [(MediaDevice::Cdrom, "https://images.example/boot.iso".to_owned())]
    );
    rig.fault("status=400 method=POST");
    let error = attach(&rig, MediaDevice::Cdrom, &url.replace("boot", "other")).await.unwrap_err();
    let output = format!("{error} {:?}", rig.calls.take());
    assert!(output.contains("https://images.example/other.iso"), "{output}");
    assert!(!output.contains("h@nter2") && !output.contains("h%40nter2"), "{output}");
}

#[tokio::test]
async fn masks_url_signature() {
    let rig = RedfishRig::named("generic");
    let url = "https://images.example/boot.iso?X-Signature=5ecret";
    attach(&rig, MediaDevice::Cdrom, url).await.unwrap();
    assert_eq!(images(&rig), [url]);
    let listed_images = listed_images(&rig).await;
    assert_eq!(listed_images, [(MediaDevice::Cdrom, "https://images.example/boot.iso".to_owned())]);
    rig.writes();
    attach(&rig, MediaDevice::Cdrom, url).await.unwrap();
    assert_eq!(rig.writes(), [""; 0], "it was already inserted");
    rig.fault("status=400 method=POST");
    let error = attach(&rig, MediaDevice::Cdrom, &url.replace("boot", "other")).await.unwrap_err();
    let output = format!("{error} {:?}", rig.calls.take());
    assert!(output.contains("https://images.example/other.iso"), "{output}");
    assert!(!output.contains("5ecret"), "{output}");
}

#[tokio::test]
async fn masks_key_in_url_path() {
    let rig = RedfishRig::named("generic");
    let key = "Ab-_".repeat(11);
    let url = format!("http://images.example/{key}/boot.iso");
    attach(&rig, MediaDevice::Cdrom, &url).await.unwrap();
    assert_eq!(images(&rig), [url.as_str()]);
    assert_eq!(
        listed_images(&rig).await,
        [(MediaDevice::Cdrom, "http://images.example/…/boot.iso".to_owned())]
    );
    // This BMC repeats the request in its refusal.
    let mut refusing = Personality::built_in("generic").unwrap();
    refusing.media.schemes = vec!["nfs".to_owned()];
    let rig = RedfishRig::with_personality(refusing);
    let error = attach(&rig, MediaDevice::Cdrom, &url).await.unwrap_err();
    let output = format!("{error} {error:?} {:?}", rig.calls.take());
    assert!(output.contains("cannot be http://images.example/…/boot.iso"), "{output}");
    assert!(!output.contains(&key), "{output}");
}

#[tokio::test]
async fn adds_required_parameters() {
    let mut picky = Personality::built_in("generic").unwrap();
    picky.media.required_parameters =
        ["TransferProtocolType", "TransferMethod", "UserName", "Password"]
            .map(str::to_owned)
            .to_vec();
    picky.media.rejected_parameters = vec!["WriteProtected".to_owned()];
    let rig = RedfishRig::with_personality(picky);
    attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap();
    assert_eq!(images(&rig), [ISO]);
}

#[tokio::test]
async fn uses_the_next_drive_after_a_refusal() {
    let mut two = Personality::built_in("generic").unwrap();
    let slot =
        |id: &str| SlotRule { id: id.to_owned(), kinds: vec![MediaKind::Dvd, MediaKind::UsbStick] };
    two.media.slots = vec![slot("A"), slot("B")];
    let rig = RedfishRig::with_personality(two);
    let drive_path = format!("{}/VirtualMedia/A", rig.machine().system_path());
    rig.fault(&format!("status=405 method=POST path={drive_path}"));
    attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap();
    let media = rig.machine().virtual_media();
    assert!(media[0].is_none() && media[1].is_some(), "{media:?}");
    detach(&rig, &[]).await;
    rig.fleet.faults().clear();
    // A CD and a USB stick use different drives.
    attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap();
    attach(&rig, MediaDevice::Disk, OTHER).await.unwrap();
    assert_eq!(images(&rig), [ISO, OTHER]);
}

#[tokio::test]
async fn uses_manager_drives_without_system_drives() {
    let mut of_manager = Personality::built_in("generic").unwrap();
    of_manager.missing = vec![ResourceKind::SystemMedia];
    let rig = RedfishRig::with_personality(of_manager);
    attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap();
    assert!(rig.writes().iter().all(|write| !write.contains("/Systems/")));
    assert_eq!(images(&rig), [ISO]);
    detach(&rig, &[]).await;
    assert!(images(&rig).is_empty());
}

#[tokio::test]
async fn errors_contain_hints() {
    let mut none = Personality::built_in("generic").unwrap();
    none.missing = vec![ResourceKind::SystemMedia, ResourceKind::ManagerMedia];
    let rig = RedfishRig::with_personality(none);
    detach(&rig, &[]).await;
    let error = attach(&rig, MediaDevice::Cdrom, ISO).await.unwrap_err().to_string();
    assert!(error.contains("no virtual drives") && error.contains("licence"), "{error}");

    let rig = RedfishRig::named("supermicro-like");
    let error = attach(&rig, MediaDevice::Floppy, ISO).await.unwrap_err().to_string();
    assert!(error.contains("VirtualMedia1") && error.contains("floppy"), "{error}");

    let rig = RedfishRig::named("hpe-like");
    let nfs = "nfs://images.example/srv/boot.iso";
    let error = attach(&rig, MediaDevice::Cdrom, nfs).await.unwrap_err().to_string();
    assert!(error.contains(nfs) && error.contains("drive 2"), "{error}");
    let error = attach(&rig, MediaDevice::Cdrom, "boot.iso").await.unwrap_err();
    assert!(error.is_caller_error(), "{error}");
}
