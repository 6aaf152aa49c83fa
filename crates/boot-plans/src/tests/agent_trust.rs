// SPDX-License-Identifier: Apache-2.0
//! Agents get the CA certificates of the API, and fetch images over TLS.

use drivers::{BootService as _, ImageDownloadSource};
use node_model::{BootMethod, BootPurpose};

use super::{BootRig, RAMDISK, bytes, rig_with_efi_kernel};
use crate::AgentTrust;

impl BootRig {
    fn trust(&self) {
        let trust = AgentTrust {
            certificates: "the CA of the API".to_owned(),
            bundle: "the CA of the API and of others".to_owned(),
        };
        self.services.set_agent_trust(&trust);
    }

    /// A file of the stored plan, with its entity tag.
    async fn plan_file(&self, name: &str) -> (Vec<u8>, String) {
        let id = self.node.id;
        let plan = self.store.read(move |reader| reader.boot_plan(id)).await.unwrap().unwrap();
        let file = self.get(&format!("/{}/{name}", plan.key)).await.unwrap();
        (bytes(&file.content), file.etag.unwrap().to_string())
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn ramdisk_of_an_agent_starts_with_the_certificates() {
    let rig = BootRig::new().await;
    rig.publish(BootMethod::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let (plain, plain_etag) = rig.plan_file("ramdisk").await;
    assert_eq!(plain, RAMDISK);
    let mut rig = BootRig::new().await;
    rig.trust();
    for key in ["kernel", "ramdisk"] {
        let url = rig.url(key);
        rig.driver_info.insert(format!("rescue_{key}"), url.into());
    }
    for purpose in
        [BootPurpose::DeployRamdisk, BootPurpose::InspectionRamdisk, BootPurpose::RescueRamdisk]
    {
        rig.publish(BootMethod::Ipxe, purpose).await.unwrap();
        let (ramdisk, etag) = rig.plan_file("ramdisk").await;
        assert!(ramdisk.starts_with(b"070701") && ramdisk.ends_with(RAMDISK), "{purpose}");
        assert_eq!((ramdisk.len() - RAMDISK.len()) % 512, 0, "{purpose}");
        assert!(contains(&ramdisk, "the CA of the API and of others"), "{purpose}");
        assert_ne!(etag, plain_etag, "{purpose}");
    }
    // Instances have no agent.
    for key in ["kernel", "ramdisk"] {
        let url = rig.url(key);
        rig.instance_info.insert(key.to_owned(), url.into());
    }
    rig.publish(BootMethod::Ipxe, BootPurpose::Instance).await.unwrap();
    assert_eq!(rig.plan_file("ramdisk").await.0, RAMDISK);
}

#[tokio::test]
async fn unified_image_contains_the_certificates() {
    let Some(rig) = rig_with_efi_kernel().await else { return };
    rig.trust();
    rig.publish(BootMethod::VirtualMedia, BootPurpose::DeployRamdisk).await.unwrap();
    let (iso, _) = rig.plan_file("boot.iso").await;
    assert!(contains(&iso, "the CA of the API and of others"));
}

#[tokio::test]
async fn agents_fetch_images_over_tls() {
    let mut rig = BootRig::new().await;
    rig.services.set_agent_files_url("https://10.0.0.1:6183/");
    std::fs::write(rig.path("disk.img"), [7; 4096]).unwrap();
    let url = rig.url("disk.img");
    rig.instance_info.insert("image_source".to_owned(), url.into());
    let publish = async |rig: &BootRig| {
        let driver = rig.registry.compose(&rig.node).unwrap();
        let offered =
            rig.services.publish_image(&rig.target(&driver), ImageDownloadSource::Local).await;
        offered.unwrap().url
    };
    let url = publish(&rig).await;
    assert!(url.starts_with("https://10.0.0.1:6183/image/"), "{url}");
    // A prebuilt ISO does not have the CA.
    rig.driver_info.insert("deploy_iso".to_owned(), "http://isos.example/agent.iso".into());
    let url = publish(&rig).await;
    assert!(url.starts_with("http://10.0.0.1:6180/image/"), "{url}");
}
