// SPDX-License-Identifier: Apache-2.0
//! Installers: their kernel parameters, files and tokens.

use drivers::DriverError;
use expect_test::expect;
use node_model::{BootMethod, BootPlan, BootPurpose};
use serde_json::{Value, json};

use super::{BootRig, MAC, SCRIPT_PATH, bytes};
use boot_server::http::HttpRefusalReason;

const FILES: &str = "http://10.0.0.1:6180";

impl BootRig {
    /// Boot services and a node that installs an archive of the file service.
    async fn with_installer() -> Self {
        let mut rig = Self::new().await;
        rig.lease_to(MAC);
        for (name, content) in [("stage2", "second"), ("system.tar.gz", "archive")] {
            std::fs::write(rig.path(name), content).unwrap();
        }
        for (key, name) in [
            ("kernel", "kernel"),
            ("ramdisk", "ramdisk"),
            ("stage2", "stage2"),
            ("image_source", "system.tar.gz"),
        ] {
            rig.set_instance_info(key, rig.url(name));
        }
        rig
    }

    fn set_instance_info(&mut self, key: &str, value: impl Into<Value>) {
        self.instance_info.insert(key.to_owned(), value.into());
    }

    async fn install(&self) -> Result<BootPlan, DriverError> {
        self.publish(BootMethod::Ipxe, BootPurpose::Installer).await?;
        let id = self.node.id;
        Ok(self.store.read(move |reader| reader.boot_plan(id)).await.unwrap().unwrap())
    }

    /// Fetches the kickstart named in the kernel parameters.
    async fn kickstart(&self) -> String {
        let script = self.text(SCRIPT_PATH).await;
        let url = script.split_whitespace().find_map(|word| word.strip_prefix("inst.ks=")).unwrap();
        self.text(url.strip_prefix(FILES).unwrap()).await
    }

    pub(super) async fn agent_token(&self) -> Option<String> {
        let id = self.node.id;
        let token = self.store.read(move |reader| {
            let node = reader.get(id)?.unwrap();
            Ok::<_, store::StoreError>(reader.reveal(&node)?.agent_token)
        });
        token.await.unwrap().map(|token| token.reveal().clone())
    }
}

#[tokio::test]
async fn installer_files_are_served() {
    let rig = BootRig::with_installer().await;
    let plan = rig.install().await.unwrap();
    let (id, files) = (rig.node.id, format!("{FILES}/{}", plan.key));
    assert_eq!(
        rig.parameters().await.join(" "),
        format!("text nofb vga=normal inst.ks={files}/ks.cfg inst.stage2={files}")
    );
    let kickstart = rig.kickstart().await;
    assert!(kickstart.contains(&format!("\nliveimg --url={files}/image.tar.gz\n")), "{kickstart}");
    let call = format!(" http://10.0.0.1:6385/v1/heartbeat/{id}\n");
    assert_eq!(kickstart.matches(&call).count(), 3, "{kickstart}");
    let token = rig.agent_token().await.unwrap();
    assert!(kickstart.contains(&format!("\"agent_token\": \"{token}\"")), "{kickstart}");
    for (name, content) in [("LiveOS/squashfs.img", "second"), ("image.tar.gz", "archive")] {
        assert_eq!(rig.text(&format!("/{}/{name}", plan.key)).await, content);
    }
    for name in [".treeinfo", "images/install.img", "config-drive.iso"] {
        let absent = rig.get(&format!("/{}/{name}", plan.key)).await.unwrap_err();
        assert_eq!(absent, HttpRefusalReason::NotFound, "{name}");
    }
    assert!(!rig.text(SCRIPT_PATH).await.contains(&token), "every client can read the script");

    rig.withdraw().await;
    assert_eq!(rig.agent_token().await, None, "a copy of the kickstart may be in the system");
    let gone = rig.get(&format!("/{}/ks.cfg", plan.key)).await.unwrap_err();
    assert_eq!(gone, HttpRefusalReason::NotFound);
}

#[tokio::test]
async fn new_plan_replaces_token_and_resets_agent_status() {
    let rig = BootRig::with_installer().await;
    rig.install().await.unwrap();
    let before = rig.agent_token().await;
    let id = rig.node.id;
    rig.store
        .write(move |tx| {
            let mut node = tx.get(id)?.unwrap();
            node.agent.status = Some("end".to_owned());
            tx.save(&mut node)
        })
        .await
        .unwrap();
    rig.install().await.unwrap();
    assert_ne!(rig.agent_token().await, before);
    let node = rig.store.read(move |reader| reader.get(id)).await.unwrap().unwrap();
    assert_eq!((node.agent.status, node.agent.token_pregenerated), (None, true));
}

#[tokio::test]
async fn repository_needs_no_second_stage() {
    let mut rig = BootRig::with_installer().await;
    rig.set_instance_info("image_source", "https://mirror.example/os/");
    rig.set_instance_info("kernel_append_params", "%default% console=ttyS0");
    for (stage2, more) in [(Value::Null, false), (rig.url("stage2").into(), true)] {
        rig.set_instance_info("stage2", stage2);
        let plan = rig.install().await.unwrap();
        let files = format!("{FILES}/{}", plan.key);
        let stage2 = if more { format!(" inst.stage2={files}") } else { String::new() };
        assert_eq!(
            rig.parameters().await.join(" "),
            format!(
                "text nofb vga=normal console=ttyS0 inst.ks={files}/ks.cfg \
                 inst.repo=https://mirror.example/os/{stage2}"
            )
        );
        assert!(rig.kickstart().await.contains("\nurl --url=https://mirror.example/os/\n"));
    }
}

#[tokio::test]
async fn reports_missing_instance_info() {
    let complete = BootRig::with_installer().await.instance_info;
    for (key, value, expected) in [
        (
            "kernel",
            json!(null),
            expect![
                "'instance_info/kernel' is missing: the installer needs it; set the URL of its kernel"
            ],
        ),
        (
            "ramdisk",
            json!(""),
            expect![
                "'instance_info/ramdisk' is missing: the installer needs it; set the URL of its ramdisk"
            ],
        ),
        (
            "image_source",
            json!(null),
            expect![
                "'instance_info/image_source' is missing: set the URL of a repository, ending in /, or of an archive (.tar.gz, .img, …)"
            ],
        ),
        (
            "stage2",
            json!(null),
            expect![
                "'instance_info/stage2' is missing: only a repository contains Anaconda's second stage; set the URL of its squashfs.img, or for a repository an image_source that ends in /"
            ],
        ),
        (
            "image_source",
            json!("file:///images/system"),
            expect![
                "'instance_info/image_source' is invalid: Anaconda identifies archives by their suffix, and this has none of .tar.gz, .tar.bz2, .tar.xz, .tar, .tgz, .tbz, .txz, .img; a repository must be an http or https URL"
            ],
        ),
        (
            "image_source",
            json!("http://h/a b.tar"),
            expect![
                "'instance_info/image_source' is invalid: it is not a URL that a kickstart can contain; percent-encode special characters"
            ],
        ),
        (
            "image_source",
            json!("http://h/x.tar\nreboot"),
            expect![
                "'instance_info/image_source' is invalid: it is not a URL that a kickstart can contain; percent-encode special characters"
            ],
        ),
        (
            "image_source",
            json!(7),
            expect!["'instance_info/image_source' is invalid: it must be a string"],
        ),
        (
            "ks_template",
            json!("ftp://h/ks"),
            expect![[
                r#"'instance_info/ks_template' is invalid: "ftp://h/ks" is not a valid image URL (unsupported scheme ftp): use http://, https://, file:/// or oci://"#
            ]],
        ),
    ] {
        let mut rig = BootRig::new().await;
        rig.instance_info = complete.clone();
        rig.set_instance_info(key, value);
        let error = rig.check(BootMethod::Ipxe, BootPurpose::Installer).unwrap_err().to_string();
        expected.assert_eq(&error);
    }
    let mut rig = BootRig::with_installer().await;
    rig.check(BootMethod::Http, BootPurpose::Installer).unwrap();
    // A URL without a suffix is an archive if there is a second stage, and a repository otherwise.
    rig.set_instance_info("image_source", "http://h/system");
    rig.check(BootMethod::Http, BootPurpose::Installer).unwrap();
    rig.install().await.unwrap();
    assert!(rig.kickstart().await.contains("liveimg --url=http://h/system\n"));
    rig.set_instance_info("stage2", Value::Null);
    rig.install().await.unwrap();
    assert!(rig.kickstart().await.contains("url --url=http://h/system\n"));
}

#[tokio::test]
async fn uses_the_template_of_the_instance() {
    let mut rig = BootRig::with_installer().await;
    let whole = "{{ ks_options.agent_token }} {{ ks_options.heartbeat_url }}";
    std::fs::write(rig.path("mine"), format!("mine {whole}")).unwrap();
    rig.set_instance_info("ks_template", rig.url("mine"));
    rig.install().await.unwrap();
    assert!(rig.kickstart().await.starts_with("mine "));

    std::fs::write(rig.path("wrong"), format!("{whole} {{{{ ks_options.hostname }}}}")).unwrap();
    rig.set_instance_info("ks_template", rig.url("wrong"));
    let error = rig.install().await.unwrap_err().to_string();
    assert!(error.contains("instance_info/ks_template"), "{error}");
    assert!(error.contains("ks_options.hostname"), "{error}");
    // The previous plan is still served.
    assert!(rig.kickstart().await.starts_with("mine "));
    rig.set_instance_info("ks_template", "file:///etc/passwd");
    let error = rig.install().await.unwrap_err().to_string();
    assert!(!error.contains("root:"), "{error}");
    std::fs::write(rig.path("binary"), [0xff; 9]).unwrap();
    rig.set_instance_info("ks_template", rig.url("binary"));
    assert!(rig.install().await.unwrap_err().to_string().contains("UTF-8"));
}

#[tokio::test]
async fn kickstart_contains_the_config_drive() {
    let mut rig = BootRig::with_installer().await;
    rig.set_instance_info(
        "configdrive",
        json!({"meta_data": {"hostname": "web1"}, "user_data": "#!/bin/sh"}),
    );
    rig.install().await.unwrap();
    let from_parts = rig.kickstart().await;
    for path in ["meta_data.json", "user_data"] {
        let folder = "/var/lib/cloud/seed/config_drive/openstack/latest";
        assert!(from_parts.contains(&format!("base64 -d >'{folder}/{path}'")), "{from_parts}");
    }
    // The same, packed.
    let driver = rig.registry.compose(&rig.node).unwrap();
    let packed =
        crate::instance_images::packed_config_drive(&rig.target(&driver)).unwrap().unwrap();
    let section = |kickstart: &str| {
        let from = kickstart.find("%post --erroronfail").unwrap();
        let rest = &kickstart[from..];
        rest[..rest.find("%end").unwrap()].to_owned()
    };
    rig.set_instance_info("configdrive", packed.clone());
    rig.install().await.unwrap();
    assert_eq!(section(&rig.kickstart().await), section(&from_parts));
    std::fs::write(rig.path("drive"), packed).unwrap();
    rig.set_instance_info("configdrive", rig.url("drive"));
    rig.install().await.unwrap();
    assert_eq!(section(&rig.kickstart().await), section(&from_parts));
    rig.set_instance_info("configdrive", "bm9uc2Vuc2U=");
    let error = rig.install().await.unwrap_err().to_string();
    assert!(error.contains("configdrive"), "{error}");
}

#[tokio::test]
async fn installers_boot_by_every_network_boot_method() {
    let rig = BootRig::with_installer().await;
    for method in [BootMethod::Ipxe, BootMethod::Pxe, BootMethod::HttpIpxe] {
        rig.publish(method, BootPurpose::Installer).await.unwrap();
        assert!(rig.parameters().await.iter().any(|word| word.starts_with("inst.ks=")), "{method}");
    }
    let plan = rig.install().await.unwrap();
    let page = rig.get(&format!("/{}/ks.cfg", plan.key)).await.unwrap();
    assert_eq!(page.media_type, "text/plain; charset=utf-8");
    assert_eq!(&*page.title, "ks.cfg of the installer");
    assert!(!bytes(&page.content).is_empty());
}
