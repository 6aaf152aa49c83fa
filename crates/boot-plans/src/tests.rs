// SPDX-License-Identifier: Apache-2.0
//! Plans from publishing to withdrawal, as drivers, machines and servers see them.

mod installing;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bmc_drivers::{BootDesk, DriverSettings, NoBootServices, Registry, Target};
use boot_server::http::{Method, Page, Pages, Reason, Request};
use boot_server::tftp::{Files, OpenError};
use boot_server::{
    Architecture, BootAnswer, BootRequest, HardwareAddress, Plans, Sighting, Sightings, Stage,
    What, dhcp4, tftp,
};
use images::signature::Policy;
use node_model::{
    BootPurpose, BootWay, Happening, JsonObject, Mac, Node, NodeId, Port, PortId, Timestamp,
};
use serde_json::{Map, Value, json};
use store::{JournalQuery, Store};
use tempfile::TempDir;

use crate::{BootServices, ImageSettings, Settings};

const CARD: [u8; 6] = [0x52, 0x54, 0, 0xaa, 0xbb, 1];
const KERNEL: &[u8] = b"a kernel that nobody boots";
const RAMDISK: &[u8] = b"its ramdisk";

/// Boot services with one enrolled machine.
struct Rig {
    services: BootServices,
    store: Store,
    registry: Registry,
    clock: Arc<AtomicI64>,
    node: Node,
    ports: Vec<Port>,
    driver_info: Map<String, Value>,
    instance_info: Map<String, Value>,
    folder: TempDir,
}

impl Rig {
    async fn new() -> Self {
        Self::with(|_| ()).await
    }

    async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::with_images(change, |_| ()).await
    }

    async fn with_images(
        change: impl FnOnce(&mut Settings),
        change_images: impl FnOnce(&mut ImageSettings),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let images = folder.path().join("images-of-mine");
        std::fs::create_dir(&images).unwrap();
        std::fs::write(images.join("kernel"), KERNEL).unwrap();
        std::fs::write(images.join("ramdisk"), RAMDISK).unwrap();
        let clock = Arc::new(AtomicI64::new(1_790_000_000_000_000));
        let ticking = Arc::clone(&clock);
        let now: store::Clock = Arc::new(move || Timestamp(ticking.load(Ordering::Relaxed)));
        let store = Store::open(&store::Settings::in_dir(folder.path()), now.clone()).unwrap();
        let mut settings = Settings::default();
        change(&mut settings);
        let mut image_settings =
            ImageSettings { file_url_allowed_paths: vec![images], ..ImageSettings::default() };
        change_images(&mut image_settings);
        let host = "host".to_owned();
        let services =
            BootServices::open(store.clone(), settings, &image_settings, folder.path(), host, now)
                .unwrap();
        services.found_at("http://10.0.0.1:6180", "http://10.0.0.1:6385/", true);
        let registry = Registry::new(&DriverSettings::default(), Arc::new(NoBootServices)).unwrap();
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        node.name = Some("rack1-01".to_owned());
        let card = HardwareAddress::ethernet(CARD).to_string().parse().unwrap();
        let port = Port::new(PortId::random(), node.id, card, Timestamp(0));
        let (enrolled, its_port) = (node.clone(), port.clone());
        store
            .write(move |tx| {
                tx.insert(&enrolled)?;
                tx.insert(&its_port)
            })
            .await
            .unwrap();
        let mut rig = Self {
            services,
            store,
            registry,
            clock,
            node,
            ports: vec![port],
            driver_info: Map::new(),
            instance_info: Map::new(),
            folder,
        };
        for key in ["kernel", "ramdisk"] {
            let url = rig.url(key);
            rig.driver_info.insert(format!("deploy_{key}"), url.into());
        }
        rig
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.path(name).display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("images-of-mine").join(name)
    }

    async fn publish(
        &self,
        way: BootWay,
        purpose: BootPurpose,
    ) -> Result<bmc_drivers::Published, bmc_drivers::Error> {
        let driver = self.registry.compose(&self.node).unwrap();
        self.services.publish(&self.target(&driver), way, purpose).await
    }

    async fn withdraw(&self) {
        let driver = self.registry.compose(&self.node).unwrap();
        self.services.withdraw(&self.target(&driver)).await.unwrap();
    }

    fn check(&self, way: BootWay, purpose: BootPurpose) -> Result<(), bmc_drivers::Error> {
        let driver = self.registry.compose(&self.node).unwrap();
        self.services.check(&self.target(&driver), way, purpose)
    }

    fn target<'a>(&'a self, driver: &'a bmc_drivers::Driver) -> Target<'a> {
        let now = Timestamp(self.clock.load(Ordering::Relaxed));
        let target = Target::new(driver, &self.node, &self.driver_info, &self.instance_info, now);
        Target { ports: &self.ports, ..target }
    }

    fn advance(&self, seconds: i64) {
        self.clock.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }

    /// The kernel's parameters as the plan has them.
    async fn parameters(&self) -> Vec<String> {
        let id = self.node.id;
        let plan = self.store.read(move |reader| reader.boot_plan(id)).await.unwrap().unwrap();
        match plan.system {
            node_model::BootSystem::Kernel { parameters, .. } => parameters,
            node_model::BootSystem::Iso { .. } => panic!("there is no kernel"),
        }
    }

    async fn get(&self, path: &str) -> Result<Page, Reason> {
        self.get_at(None, path).await
    }

    async fn get_at(&self, host: Option<&str>, path: &str) -> Result<Page, Reason> {
        let client: SocketAddr = "10.0.0.100:999".parse().unwrap();
        let request = Request {
            method: Method::Get,
            path: path.into(),
            query: None,
            range: None,
            if_none_match: None,
            if_range: None,
            host,
            user_agent: None,
            client,
        };
        self.services.page(&request).await.map_err(|refusal| refusal.reason)
    }

    async fn text(&self, path: &str) -> String {
        let page = self.get(path).await.unwrap_or_else(|reason| panic!("{path}: {reason:?}"));
        String::from_utf8(bytes(&page.content)).unwrap()
    }

    async fn tftp(&self, name: &str) -> Result<Vec<u8>, OpenError> {
        let client: SocketAddr = "10.0.0.100:999".parse().unwrap();
        self.services.open(name, client).await.map(|content| bytes(&content))
    }

    async fn dhcp(&self, stage: Stage, architecture: Architecture) -> boot_server::Plan {
        self.dhcp_of(CARD, stage, architecture).await
    }

    async fn dhcp_of(
        &self,
        card: [u8; 6],
        stage: Stage,
        architecture: Architecture,
    ) -> boot_server::Plan {
        self.dhcp_on("eth1", card, stage, architecture).await
    }

    async fn dhcp_on(
        &self,
        interface: &str,
        card: [u8; 6],
        stage: Stage,
        architecture: Architecture,
    ) -> boot_server::Plan {
        let hardware = HardwareAddress::ethernet(card);
        let files = [("eth9".to_owned(), "http://10.9.0.1:6180".to_owned())];
        let plans = self.services.plans(files.into());
        assert!(plans.look_up(&[hardware]).await);
        plans.plan(&BootRequest { hardware, architecture: Some(architecture), stage, interface })
    }

    async fn journal(&self) -> Vec<Happening> {
        let query = JournalQuery { node: Some(self.node.id), after: 0, limit: 1000 };
        let found = self.store.read(move |reader| reader.journal(&query)).await.unwrap();
        found.into_iter().map(|recorded| recorded.entry.what).collect()
    }
}

fn bytes(content: &boot_media::Content) -> Vec<u8> {
    let mut bytes = Vec::new();
    content.write_to(&mut bytes).unwrap();
    bytes
}

fn object(value: Value) -> JsonObject {
    JsonObject::from(value.as_object().unwrap().clone())
}

const SCRIPT: &str = "/pxelinux.cfg/52-54-00-aa-bb-01";

#[tokio::test]
async fn a_plan_is_served_until_it_is_withdrawn() {
    let rig = Rig::new().await;
    assert!(rig.text(SCRIPT).await.contains("sanboot"), "before there is a plan: the disk");
    rig.publish(BootWay::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let script = rig.text(SCRIPT).await;
    let kernel = script.split_whitespace().find(|word| word.ends_with("/kernel")).unwrap();
    let path = kernel.strip_prefix("http://10.0.0.1:6180").unwrap();
    let api = "http://10.0.0.1:6385";
    let log = format!("{api}/v1/ferrite/agents/{}/log", rig.node.id);
    let told = format!("ipa-api-url={api} ferrite-log-url={log} BOOTIF=${{mac}}");
    assert!(script.contains(&told), "{script}");
    let page = rig.get(path).await.unwrap();
    assert_eq!(bytes(&page.content), KERNEL);
    assert_eq!(page.subject.as_deref(), Some(rig.node.id.to_string().as_str()));
    assert_eq!(rig.text(&path.replace("/kernel", "/ramdisk")).await.as_bytes(), RAMDISK);
    // Another plan has another key; the old one opens nothing any more.
    rig.publish(BootWay::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    assert_eq!(rig.get(path).await.unwrap_err(), Reason::NotFound);
    rig.withdraw().await;
    assert!(rig.text(SCRIPT).await.contains("sanboot"));
}

#[tokio::test]
async fn what_was_checked_is_what_is_served() {
    let rig = Rig::new().await;
    rig.publish(BootWay::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let script = rig.text(SCRIPT).await;
    let kernel = script.split_whitespace().find(|word| word.ends_with("/kernel")).unwrap();
    std::fs::write(rig.path("kernel"), b"changed behind our back").unwrap();
    let page = rig.get(kernel.strip_prefix("http://10.0.0.1:6180").unwrap()).await.unwrap();
    assert_eq!(bytes(&page.content), KERNEL);
}

#[tokio::test]
async fn the_files_of_a_ramdisk_expire_and_those_of_an_instance_do_not() {
    let mut rig = Rig::with(|settings| settings.url_lifetime = 60).await;
    rig.publish(BootWay::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let id = rig.node.id;
    let plan = rig.store.read(move |reader| reader.boot_plan(id)).await.unwrap().unwrap();
    let path = format!("/{}/kernel", plan.key);
    rig.advance(59);
    rig.get(&path).await.unwrap();
    rig.advance(1);
    assert_eq!(rig.get(&path).await.unwrap_err(), Reason::Gone);
    assert!(matches!(rig.tftp(&path).await, Err(OpenError::NotFound)));
    assert!(rig.text(SCRIPT).await.contains("sanboot"));
    assert_eq!(rig.dhcp(Stage::Pxe, Architecture::Bios).await.boot, BootAnswer::Disk);

    rig.instance_info.insert("kernel".to_owned(), rig.url("kernel").into());
    rig.instance_info.insert("ramdisk".to_owned(), rig.url("ramdisk").into());
    rig.publish(BootWay::Ipxe, BootPurpose::Instance).await.unwrap();
    rig.advance(365 * 24 * 3600);
    assert!(rig.text(SCRIPT).await.contains("/kernel nofb vga=normal BOOTIF"));
}

#[tokio::test]
async fn every_firmware_gets_what_it_can_load() {
    use Architecture::{Bios, UefiX64};
    let rig = Rig::new().await;
    let script = Some("http://10.0.0.1:6180/pxelinux.cfg/52-54-00-aa-bb-01");
    let loader = "http://10.0.0.1:6180/snponly.efi";
    // Way, firmware; then the script for iPXE, what is loaded first by TFTP, and what by HTTP.
    for (way, stage, architecture, first, http) in [
        (BootWay::Ipxe, Stage::Pxe, Bios, Some("undionly.kpxe"), None),
        (BootWay::Ipxe, Stage::Pxe, UefiX64, Some("snponly.efi"), Some(loader)),
        (BootWay::Pxe, Stage::Pxe, Bios, Some("pxelinux.0"), None),
        (BootWay::Pxe, Stage::Pxe, UefiX64, Some("bootx64.efi"), None),
        (BootWay::HttpIpxe, Stage::HttpBoot, UefiX64, Some("snponly.efi"), Some(loader)),
    ] {
        rig.publish(way, BootPurpose::DeployRamdisk).await.unwrap();
        let plan = rig.dhcp(stage, architecture).await;
        assert!(plan.known);
        assert_eq!(plan.host_name.as_deref(), Some("rack1-01"));
        let BootAnswer::Netboot(netboot) = plan.boot else { panic!("{way} {architecture:?}") };
        assert_eq!(Some(&*netboot.script), script);
        assert_eq!(netboot.first_stage.as_deref(), first, "{way} {architecture:?}");
        assert_eq!(netboot.http.as_deref(), http, "{way} {architecture:?}");
        rig.withdraw().await;
    }
    assert_eq!(rig.dhcp(Stage::Pxe, Bios).await.boot, BootAnswer::Disk);
}

#[tokio::test]
async fn cards_that_do_not_boot_are_left_alone() {
    let rig = Rig::new().await;
    rig.publish(BootWay::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let port = rig.ports[0].clone();
    rig.store
        .write(move |tx| tx.save(&mut Port { pxe_enabled: false, ..port.clone() }))
        .await
        .unwrap();
    let plan = rig.dhcp(Stage::Pxe, Architecture::Bios).await;
    assert_eq!((plan.known, plan.boot), (true, BootAnswer::Disk));
}

#[tokio::test]
async fn strangers_get_the_agent_only_where_there_is_one() {
    let card = [2, 0, 0, 0, 0, 9];
    let rig = Rig::new().await;
    let plan = rig.dhcp_of(card, Stage::Pxe, Architecture::Bios).await;
    assert_eq!((plan.known, plan.boot), (false, BootAnswer::Disk));
    assert_eq!(rig.get("/pxelinux.cfg/02-00-00-00-00-09").await.unwrap_err(), Reason::NotFound);

    let rig = Rig::with(|settings| {
        settings.deploy_kernel = Some("file:///nowhere/kernel".to_owned());
        settings.deploy_ramdisk = Some("file:///nowhere/ramdisk".to_owned());
    })
    .await;
    let plan = rig.dhcp_of(card, Stage::Pxe, Architecture::Bios).await;
    assert!(matches!(plan.boot, BootAnswer::Netboot(_)));
    let script = rig.text("/pxelinux.cfg/02-00-00-00-00-09").await;
    assert!(script.contains("kernel http://10.0.0.1:6180/discovery/kernel"), "{script}");
    assert!(
        script.contains("ipa-inspection-callback-url=http://10.0.0.1:6385/v1/continue_inspection"),
        "{script}"
    );
    // The file is not where images may come from: an error, and not a look at the file.
    assert!(matches!(rig.get("/discovery/kernel").await, Err(Reason::Unavailable { .. })));
}

#[tokio::test]
async fn only_what_is_in_the_tables_can_be_had() {
    let rig = Rig::new().await;
    for path in [
        "/",
        "/etc/passwd",
        "/secrets.key",
        "/images/kernel",
        "/undionly.kpxe/x",
        "/pxelinux.cfg/nonsense",
        "/a/b/c",
        "/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/kernel",
    ] {
        assert_eq!(rig.get(path).await.unwrap_err(), Reason::NotFound, "{path}");
        assert!(matches!(rig.tftp(path).await, Err(OpenError::NotFound)), "{path}");
    }
    assert!(rig.text("/boot.ipxe").await.starts_with("#!ipxe"));
}

#[tokio::test]
async fn boot_loaders_find_their_configurations() {
    let rig = Rig::new().await;
    let local = rig.tftp("pxelinux.cfg/01-52-54-00-aa-bb-01").await.unwrap();
    assert!(String::from_utf8(local).unwrap().contains("localboot"));
    rig.publish(BootWay::Pxe, BootPurpose::DeployRamdisk).await.unwrap();
    let pxelinux =
        String::from_utf8(rig.tftp("/pxelinux.cfg/01-52-54-00-aa-bb-01").await.unwrap()).unwrap();
    let kernel = pxelinux.split_whitespace().find(|word| word.ends_with("/kernel")).unwrap();
    assert_eq!(rig.tftp(kernel).await.unwrap(), KERNEL);
    let grub = String::from_utf8(rig.tftp("52:54:00:aa:bb:01.conf").await.unwrap()).unwrap();
    assert!(grub.contains("BOOTIF=01-52-54-00-aa-bb-01"), "{grub}");
    let root = String::from_utf8(rig.tftp("/EFI/debian/grub.cfg").await.unwrap()).unwrap();
    assert!(root.contains("net_default_mac"));
}

#[tokio::test]
async fn virtual_media_carry_a_token_and_the_network() {
    let Some(mut rig) = with_real_kernel().await else { return };
    rig.node.network_data = object(json!({"links": [{"id": "eth0"}]}));
    let published =
        rig.publish(BootWay::VirtualMedia, BootPurpose::InspectionRamdisk).await.unwrap();
    let path = published.cd.strip_prefix("http://10.0.0.1:6180").unwrap();
    assert!(path.ends_with("/boot.iso"));
    let cd = bytes(&rig.get(path).await.unwrap().content);
    assert_eq!(&cd[0x8001..0x8006], b"CD001");
    assert!(cd[0x8028..0x8048].starts_with(b"config-2"));
    let has = |needle: &[u8]| cd.windows(needle.len()).any(|window| window == needle);
    assert!(has(br#"{"links":[{"id":"eth0"}]}"#));

    let parameters = rig.parameters().await;
    let of = |name: &str| {
        parameters.iter().find_map(|word| word.strip_prefix(&format!("{name}="))).map(str::to_owned)
    };
    assert_eq!(of("boot_method").as_deref(), Some("vmedia"));
    assert_eq!(of("BOOTIF").as_deref(), Some("52:54:00:aa:bb:01"));
    assert_eq!(of("ir_pub_id"), Some(rig.node.id.to_string()));
    let token = of("ipa-agent-token").unwrap();
    let id = rig.node.id;
    let (node, secrets) = rig
        .store
        .read(move |reader| {
            let node = reader.get(id)?.unwrap();
            let secrets = reader.reveal(&node)?;
            Ok::<_, store::Error>((node, secrets))
        })
        .await
        .unwrap();
    assert!(node.agent.has_token && node.agent.token_pregenerated);
    assert_eq!(secrets.agent_token.unwrap().reveal(), &token);
    let told = format!("{:?}", rig.journal().await);
    assert!(told.contains("by virtual media") && !told.contains(&token), "{told}");
    let key = path.split('/').nth(1).unwrap();
    assert!(!told.contains(key), "{told}");
    // Whoever knows the card must not be given what is for the BMC alone.
    for name in ["boot.ipxe", "pxelinux.cfg", "grub.cfg"] {
        let card = &rig.ports[0].address;
        let text =
            rig.services.mac_page(card, name, "http://10.0.0.1:6180").await.unwrap().unwrap().text;
        assert!(!text.contains(key) && !text.contains(&token), "{name}: {text}");
    }
}

/// A rig with a kernel that is an EFI application, for which the stub is taken: any will do.
async fn with_real_kernel() -> Option<Rig> {
    let stub = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";
    let Ok(kernel) = std::fs::read(stub) else {
        assert!(
            std::env::var_os("FERRITE_TEST_SERVERS").is_none(),
            "there is no {stub}; install systemd-boot-efi"
        );
        return None;
    };
    let rig = Rig::new().await;
    std::fs::write(rig.path("kernel"), kernel).unwrap();
    Some(rig)
}

#[tokio::test]
async fn a_unified_image_is_served_for_http_boot_and_not_by_tftp() {
    let Some(rig) = with_real_kernel().await else { return };
    rig.publish(BootWay::Http, BootPurpose::DeployRamdisk).await.unwrap();
    let plan = rig.dhcp(Stage::HttpBoot, Architecture::UefiX64).await;
    let BootAnswer::Netboot(netboot) = plan.boot else { panic!("not answered") };
    let url = netboot.http.unwrap();
    let path = url.strip_prefix("http://10.0.0.1:6180").unwrap();
    let image = bytes(&rig.get(path).await.unwrap().content);
    assert_eq!(&image[..2], b"MZ");
    let needle = b"ipa-api-url=http://10.0.0.1:6385";
    assert!(image.windows(needle.len()).any(|window| window == needle));
    let by_pxe = rig.dhcp(Stage::Pxe, Architecture::UefiX64).await;
    assert_eq!((by_pxe.is_booting, by_pxe.boot), (true, BootAnswer::NothingForThisFirmware));
}

#[tokio::test]
async fn what_cannot_be_booted_is_said_when_it_is_prepared() {
    let mut rig = Rig::new().await;
    let purpose = BootPurpose::DeployRamdisk;
    let failed = |rig: &Rig| rig.check(BootWay::Ipxe, purpose).unwrap_err().to_string();
    let good = rig.driver_info.clone();
    for (key, value, words) in [
        ("deploy_kernel", json!(null), "'driver_info/deploy_kernel' is missing: there is only"),
        ("deploy_ramdisk", json!(""), "'driver_info/deploy_ramdisk' is missing: there is only"),
        ("deploy_kernel", json!("kernel"), "'driver_info/deploy_kernel' is invalid"),
        ("deploy_kernel", json!("glance://x"), "glance"),
        ("deploy_kernel", json!(5), "'driver_info/deploy_kernel' is invalid: it must be text"),
        ("deploy_kernel_checksum", json!("abc"), "deploy_kernel_checksum"),
        ("kernel_append_params", json!("a\nchain http://x"), "kernel_append_params"),
        ("kernel_append_params", json!("${net0/mac}"), "boot loaders"),
    ] {
        rig.driver_info.insert(key.to_owned(), value);
        let error = failed(&rig);
        assert!(error.contains(words), "{key}: {error}");
        rig.driver_info = good.clone();
    }
    rig.driver_info.clear();
    assert!(failed(&rig).contains("boot.deploy_kernel"));
    let error = rig.check(BootWay::Ipxe, BootPurpose::Instance).unwrap_err().to_string();
    assert!(error.contains("boot_iso"), "{error}");
    rig.instance_info.insert("boot_iso".to_owned(), "http://h/x.iso".into());
    let error = rig.check(BootWay::Pxe, BootPurpose::Instance).unwrap_err().to_string();
    assert!(error.contains("cannot boot an ISO"), "{error}");

    // What only fetching tells.
    rig.driver_info = good;
    rig.driver_info.insert("deploy_ramdisk_checksum".to_owned(), "0".repeat(64).into());
    let error = rig.publish(BootWay::Ipxe, purpose).await.unwrap_err().to_string();
    assert!(error.contains("fetch the ramdisk") && error.contains("checksum is"), "{error}");
    rig.driver_info.remove("deploy_ramdisk_checksum");
    let error = rig.publish(BootWay::Http, purpose).await.unwrap_err().to_string();
    assert!(error.contains("lay out") && error.contains("EFI"), "{error}");
    let id = rig.node.id;
    assert_eq!(rig.store.read(move |reader| reader.boot_plan(id)).await.unwrap(), None);
}

#[tokio::test]
async fn a_prebuilt_cd_goes_straight_to_the_bmc_if_only_that_can_fetch_it() {
    let mut rig = Rig::new().await;
    rig.driver_info.insert("deploy_iso".to_owned(), "nfs://host/deploy.iso".into());
    let published = rig.publish(BootWay::VirtualMedia, BootPurpose::DeployRamdisk).await.unwrap();
    assert_eq!(published.cd, "nfs://host/deploy.iso");
    rig.driver_info.insert("deploy_iso".to_owned(), rig.url("kernel").into());
    let error = rig
        .publish(BootWay::VirtualMedia, BootPurpose::DeployRamdisk)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("fetch the CD"), "a kernel is no CD: {error}");
}

#[tokio::test]
async fn the_config_drive_of_an_instance_in_memory_is_a_medium_of_its_own() {
    let Some(mut rig) = with_real_kernel().await else { return };
    rig.instance_info.insert("kernel".to_owned(), rig.url("kernel").into());
    rig.instance_info.insert("ramdisk".to_owned(), rig.url("ramdisk").into());
    rig.instance_info.insert("configdrive".to_owned(), json!({"user_data": "#cloud-config"}));
    let published = rig.publish(BootWay::VirtualMedia, BootPurpose::Instance).await.unwrap();
    let url = published.config_drive.unwrap();
    let drive =
        bytes(&rig.get(url.strip_prefix("http://10.0.0.1:6180").unwrap()).await.unwrap().content);
    let has = |needle: &[u8]| drive.windows(needle.len()).any(|window| window == needle);
    assert!(drive[0x8028..0x8048].starts_with(b"config-2"));
    assert!(has(b"#cloud-config") && has(rig.node.id.to_string().as_bytes()));
}

#[tokio::test(start_paused = true)]
async fn what_is_seen_is_on_the_timeline_or_among_the_strangers() {
    let rig = Rig::new().await;
    let (witness, scribe) = rig.services.witness();
    let scribe = tokio::spawn(scribe);
    let at = Timestamp(rig.clock.load(Ordering::Relaxed));
    let sighting = |card: Option<[u8; 6]>, what: What| Sighting {
        at,
        interface: "eth1".into(),
        hardware: card.map(HardwareAddress::ethernet),
        address: Some("10.0.0.100".parse().unwrap()),
        architecture: Some(Architecture::UefiX64),
        stage: Some(Stage::Pxe),
        known: false,
        subject: None,
        nothing_to_load: false,
        what,
    };
    let discover = || What::Dhcp4 {
        asked: dhcp4::MessageType::Discover,
        verdict: dhcp4::Verdict::Offered("10.0.0.100".parse().unwrap()),
        boot_file: Some("snponly.efi".into()),
    };
    for _ in 0..3 {
        witness.seen(sighting(Some(CARD), discover()));
    }
    // TFTP does not tell the card: it is known from the address that DHCP gave.
    let outcome = tftp::Outcome::Done { bytes: 5 };
    witness.seen(sighting(None, What::Tftp { file: "snponly.efi".to_owned(), outcome }));
    witness.seen(sighting(Some([2, 0, 0, 0, 0, 9]), discover()));
    let seen = || async {
        rig.journal()
            .await
            .into_iter()
            .filter_map(|what| {
                let Happening::Seen { by, text, times } = what else { return None };
                Some(format!("{by}: {text} x{times}"))
            })
            .collect::<Vec<_>>()
    };
    let strangers = || async { rig.store.read(|reader| reader.strangers(9)).await.unwrap() };
    while strangers().await.is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let discovered = "dhcp: DISCOVER by firmware, by PXE (x86-64 UEFI) on eth1: offered 10.0.0.100, to \
                      load snponly.efi";
    // What repeats is counted, and told before something else is.
    let (once, twice) = (format!("{discovered} x1"), format!("{discovered} x2"));
    assert_eq!(seen().await, [&*once, &*twice, "tftp: snponly.efi: sent, 5 bytes x1"]);
    let found = strangers().await;
    let stranger: Mac = "02:00:00:00:00:09".parse().unwrap();
    assert_eq!(found.len(), 1);
    let known = &found[0].seen;
    assert_eq!((&known.address, known.times), (&stranger, 1));
    assert_eq!(known.architecture.as_deref(), Some("x86-64 UEFI"));

    // What is counted when everything ends is told, too.
    witness.seen(sighting(Some(CARD), discover()));
    drop(witness);
    scribe.await.unwrap();
    assert_eq!(seen().await.len(), 4);
    assert_eq!(seen().await[3], once);
}

#[tokio::test]
async fn a_cd_with_a_large_ramdisk_is_laid_out_in_no_time() {
    let Some(rig) = with_real_kernel().await else { return };
    let megabytes = vec![0x5a; 60 << 20];
    std::fs::write(rig.path("ramdisk"), megabytes).unwrap();
    rig.publish(BootWay::VirtualMedia, BootPurpose::DeployRamdisk).await.unwrap();
    let id = rig.node.id;
    let plan = rig.store.read(move |reader| reader.boot_plan(id)).await.unwrap().unwrap();
    rig.services.0.layouts.forget(&plan.key);
    let begun = std::time::Instant::now();
    let page = rig.get(&format!("/{}/boot.iso", plan.key)).await.unwrap();
    let took = begun.elapsed();
    assert!(page.content.length() > 60 << 20);
    // A few milliseconds; the bound is for machines that are busy with other things.
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[tokio::test]
async fn a_cd_that_somebody_built_has_no_place_for_a_token() {
    let mut rig = Rig::new().await;
    rig.driver_info.insert("deploy_iso".to_owned(), "nfs://host/deploy.iso".into());
    rig.publish(BootWay::VirtualMedia, BootPurpose::DeployRamdisk).await.unwrap();
    let id = rig.node.id;
    let node = rig.store.read(move |reader| reader.get(id)).await.unwrap().unwrap();
    assert!(!node.agent.has_token && !node.agent.token_pregenerated, "the agent would not get one");
}

#[tokio::test]
async fn what_must_be_checked_is_not_left_to_the_bmc() {
    let mut rig = Rig::new().await;
    rig.driver_info.insert("deploy_iso".to_owned(), "nfs://host/deploy.iso".into());
    rig.driver_info.insert("deploy_iso_checksum".to_owned(), "0".repeat(64).into());
    let failed = |rig: Rig| async move {
        let published = rig.publish(BootWay::VirtualMedia, BootPurpose::DeployRamdisk).await;
        published.unwrap_err().to_string()
    };
    assert!(failed(rig).await.contains("only the BMC can fetch it"));

    let key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), key).unwrap();
    let cd = node_model::BootSystem::Iso {
        image: node_model::BootImage {
            source: "http://images/deploy.iso".to_owned(),
            checksum: None,
            pull_secret: None,
        },
    };
    for (policy, straight) in [(Policy::Off, true), (Policy::Required, false)] {
        let rig = Rig::with_images(
            |settings| settings.ramdisk_image_download_source = crate::DownloadSource::Http,
            |images| {
                images.signing_keys = vec![keys.path().to_owned()];
                images.iso_signatures = policy;
            },
        )
        .await;
        let url = rig.services.straight_from_source(&cd, BootWay::VirtualMedia).unwrap();
        assert_eq!(url.is_some(), straight, "{policy:?}");
    }
}

#[tokio::test]
async fn an_instance_on_the_network_cannot_have_a_config_drive() {
    let mut rig = Rig::new().await;
    rig.instance_info.insert("kernel".to_owned(), rig.url("kernel").into());
    let error = rig.check(BootWay::Ipxe, BootPurpose::Instance).unwrap_err().to_string();
    assert!(error.starts_with("'instance_info/ramdisk' is missing"), "{error}");
    rig.instance_info.insert("ramdisk".to_owned(), rig.url("ramdisk").into());
    rig.check(BootWay::Ipxe, BootPurpose::Instance).unwrap();
    rig.instance_info.insert("configdrive".to_owned(), json!({"user_data": "secret"}));
    let error = rig.check(BootWay::Ipxe, BootPurpose::Instance).unwrap_err().to_string();
    assert!(error.contains("configdrive") && error.contains("redfish-virtual-media"), "{error}");
    rig.instance_info.remove("configdrive");

    rig.instance_info.insert("kernel_append_params".to_owned(), "%default% quiet".into());
    rig.publish(BootWay::Ipxe, BootPurpose::Instance).await.unwrap();
    assert_eq!(rig.parameters().await, ["nofb", "vga=normal", "quiet"]);

    rig.ports.clear();
    let error = rig.check(BootWay::Ipxe, BootPurpose::Instance).unwrap_err().to_string();
    assert!(error.contains("create a port"), "{error}");
}

#[tokio::test]
async fn a_config_drive_elsewhere_is_fetched_and_looked_at() {
    let Some(mut rig) = with_real_kernel().await else { return };
    rig.instance_info.insert("kernel".to_owned(), rig.url("kernel").into());
    rig.instance_info.insert("ramdisk".to_owned(), rig.url("ramdisk").into());
    rig.instance_info.insert("configdrive".to_owned(), rig.url("drive").into());
    async fn publish(rig: &Rig) -> Result<bmc_drivers::Published, String> {
        let published = rig.publish(BootWay::VirtualMedia, BootPurpose::Instance).await;
        published.map_err(|error| error.to_string())
    }
    let error = publish(&rig).await.unwrap_err();
    assert!(error.contains("config-drive.iso") && error.contains("drive"), "{error}");
    std::fs::write(rig.path("drive"), "bm90IGEgZHJpdmU=").unwrap();
    assert!(publish(&rig).await.unwrap_err().contains("config drive cannot be used"));

    let parts = boot_media::config_drive::Parts {
        user_data: Some(boot_media::config_drive::UserData::Text("#cloud-config")),
        ..boot_media::config_drive::Parts::default()
    };
    let owner = boot_media::config_drive::Owner { uuid: "u", name: None };
    let image = parts.build(owner).unwrap();
    std::fs::write(rig.path("drive"), boot_media::config_drive::pack(&image).unwrap()).unwrap();
    let url = publish(&rig).await.unwrap().config_drive.unwrap();
    let path = url.strip_prefix("http://10.0.0.1:6180").unwrap();
    assert_eq!(bytes(&rig.get(path).await.unwrap().content), bytes(&image));
}

#[tokio::test]
async fn the_boot_configuration_api_tells_nothing_of_machines_that_do_not_boot() {
    let rig = Rig::new().await;
    let card = rig.ports[0].address.clone();
    for name in ["boot.ipxe", "pxelinux.cfg", "grub.cfg", "nonsense"] {
        assert_eq!(rig.services.boot_config(&card, name).await.unwrap(), None, "{name}");
    }
    rig.publish(BootWay::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let page = rig.services.boot_config(&card, "boot.ipxe").await.unwrap().unwrap();
    assert_eq!(page.node, Some(rig.node.id));
    assert_eq!(rig.services.boot_config(&card, "nonsense").await.unwrap(), None);
}

#[tokio::test]
async fn machines_are_sent_where_they_have_found_us_already() {
    let rig = Rig::new().await;
    rig.publish(BootWay::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let script = |host| {
        let page = rig.get_at(host, SCRIPT);
        async move { String::from_utf8(bytes(&page.await.unwrap().content)).unwrap() }
    };
    assert!(script(Some("10.9.0.1:6180")).await.contains("kernel http://10.9.0.1:6180/"));
    assert!(script(Some("evil\nchain")).await.contains("kernel http://10.0.0.1:6180/"));
    assert!(script(None).await.contains("kernel http://10.0.0.1:6180/"));
    let plan = rig.dhcp_on("eth9", CARD, Stage::Ipxe, Architecture::UefiX64).await;
    let BootAnswer::Netboot(netboot) = plan.boot else { panic!("not answered") };
    assert!(netboot.script.starts_with("http://10.9.0.1:6180/"), "{}", netboot.script);
}

#[tokio::test]
async fn mistakes_in_the_settings_are_found_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let now: store::Clock = Arc::new(|| Timestamp(0));
    let store = Store::open(&store::Settings::in_dir(folder.path()), now.clone()).unwrap();
    type Change = fn(&mut Settings);
    let cases: [(Change, &str); 6] = [
        (|boot| boot.http_url = Some("hello".to_owned()), "boot.http_url"),
        (|boot| boot.api_url = Some("http://x y".to_owned()), "boot.api_url"),
        (|boot| boot.deploy_kernel = Some("hello".to_owned()), "boot.deploy_kernel"),
        (|boot| boot.kernel_append_params = "a\nb".to_owned(), "boot.kernel_append_params"),
        (|boot| boot.inspection_kernel_params = "${x}".to_owned(), "boot.inspection_kernel_params"),
        (|boot| boot.url_lifetime = 0, "boot.url_lifetime"),
    ];
    for (change, key) in cases {
        let mut settings = Settings::default();
        change(&mut settings);
        let opened = BootServices::open(
            store.clone(),
            settings,
            &ImageSettings::default(),
            folder.path(),
            "host".to_owned(),
            now.clone(),
        );
        let error = opened.unwrap_err().to_string();
        assert!(error.starts_with(key), "{error}");
    }
}
