// SPDX-License-Identifier: Apache-2.0
//! Boot plans from publishing to withdrawal, through the DHCP, TFTP, HTTP and driver interfaces.

mod agent_ramdisks;
mod agent_trust;
mod boot_proof;
mod config_drives;
mod image_trust;
mod installer;
mod settings;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use boot_server::http::{BootHttpMethod, BootHttpRequest, HttpFile, HttpFiles, HttpRefusalReason};
use boot_server::tftp::{TftpFiles, TftpOpenError};
use boot_server::{
    BootDirectory, BootEvent, BootEventDetail, BootEventRecorder, BootRequest, BootStage,
    FirmwareArchitecture, HardwareAddress, NetbootTarget, dhcp4, tftp,
};
use driver_set::{DriverSettings, build_registry};
use drivers::{BootService, DriverRegistry, DriverTarget, ExternalBootService};
use images::signature::SignaturePolicy;
use node_model::{
    BootMethod, BootProof, BootPurpose, JournalEvent, JsonObject, Mac, Node, NodeId, Port, PortId,
    Timestamp,
};
use serde_json::{Map, Value, json};
use store::{JournalQuery, Store};
use tempfile::TempDir;

use crate::{BootServiceSettings, BootServices, ImageSettings};

/// The address of the client in requests.
const CLIENT: &str = "10.0.0.100";
const MAC: [u8; 6] = [0x52, 0x54, 0, 0xaa, 0xbb, 1];
const KERNEL: &[u8] = b"a test kernel";
const RAMDISK: &[u8] = b"its ramdisk";

/// Boot services with one enrolled machine.
struct BootRig {
    services: BootServices,
    store: Store,
    registry: DriverRegistry,
    clock: Arc<AtomicI64>,
    node: Node,
    ports: Vec<Port>,
    driver_info: Map<String, Value>,
    instance_info: Map<String, Value>,
    folder: TempDir,
}

impl BootRig {
    async fn new() -> Self {
        Self::with(|_| ()).await
    }

    async fn with(change: impl FnOnce(&mut BootServiceSettings)) -> Self {
        Self::with_images(change, |_| ()).await
    }

    async fn with_images(
        change: impl FnOnce(&mut BootServiceSettings),
        change_images: impl FnOnce(&mut ImageSettings),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let images = folder.path().join("images-of-mine");
        std::fs::create_dir(&images).unwrap();
        std::fs::write(images.join("kernel"), KERNEL).unwrap();
        std::fs::write(images.join("ramdisk"), RAMDISK).unwrap();
        let clock = Arc::new(AtomicI64::new(1_790_000_000_000_000));
        let ticking = Arc::clone(&clock);
        let now: store::StoreClock = Arc::new(move || Timestamp(ticking.load(Ordering::Relaxed)));
        let store =
            Store::open_with_clock(&store::StoreSettings::in_dir(folder.path()), now.clone())
                .unwrap();
        let mut settings = BootServiceSettings::default();
        change(&mut settings);
        let mut image_settings =
            ImageSettings { file_url_allowed_paths: vec![images], ..ImageSettings::default() };
        change_images(&mut image_settings);
        let host = "host".to_owned();
        let services = BootServices::open(
            store.clone(),
            settings,
            &image_settings,
            folder.path(),
            host,
            now,
            BootProof::Lease,
        )
        .unwrap();
        services.set_service_urls("http://10.0.0.1:6180", "http://10.0.0.1:6385/", true);
        let registry =
            build_registry(&DriverSettings::default(), Arc::new(ExternalBootService)).unwrap();
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        node.name = Some("rack1-01".to_owned());
        let mac = HardwareAddress::ethernet(MAC).to_string().parse().unwrap();
        let port = Port::new(PortId::random(), node.id, mac, Timestamp(0));
        let (stored_node, stored_port) = (node.clone(), port.clone());
        store
            .write(move |tx| {
                tx.insert(&stored_node)?;
                tx.insert(&stored_port)
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
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<drivers::PublishedBootMedia, drivers::DriverError> {
        let driver = self.registry.compose(&self.node).unwrap();
        self.services.publish(&self.target(&driver), method, purpose).await
    }

    async fn withdraw(&self) {
        let driver = self.registry.compose(&self.node).unwrap();
        self.services.withdraw(&self.target(&driver)).await.unwrap();
    }

    fn check(&self, method: BootMethod, purpose: BootPurpose) -> Result<(), drivers::DriverError> {
        let driver = self.registry.compose(&self.node).unwrap();
        self.services.check(&self.target(&driver), method, purpose)
    }

    fn target<'a>(&'a self, driver: &'a drivers::Driver) -> DriverTarget<'a> {
        let now = Timestamp(self.clock.load(Ordering::Relaxed));
        let target =
            DriverTarget::new(driver, &self.node, &self.driver_info, &self.instance_info, now);
        DriverTarget { ports: &self.ports, ..target }
    }

    fn advance(&self, seconds: i64) {
        self.clock.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }

    /// The kernel parameters of the stored plan.
    async fn parameters(&self) -> Vec<String> {
        let id = self.node.id;
        let plan = self.store.read(move |reader| reader.boot_plan(id)).await.unwrap().unwrap();
        match plan.system {
            node_model::BootSystem::Kernel { parameters, .. } => parameters,
            node_model::BootSystem::Iso { .. } => panic!("there is no kernel"),
        }
    }

    async fn get(&self, path: &str) -> Result<HttpFile, HttpRefusalReason> {
        self.get_with_host(None, path).await
    }

    async fn get_with_host(
        &self,
        host: Option<&str>,
        path: &str,
    ) -> Result<HttpFile, HttpRefusalReason> {
        let client = SocketAddr::new(CLIENT.parse().unwrap(), 999);
        let request = BootHttpRequest {
            method: BootHttpMethod::Get,
            path: path.into(),
            query: None,
            range: None,
            if_none_match: None,
            if_range: None,
            host,
            user_agent: None,
            client,
        };
        self.services.file(&request).await.map_err(|refusal| refusal.reason)
    }

    async fn text(&self, path: &str) -> String {
        let page = self.get(path).await.unwrap_or_else(|reason| panic!("{path}: {reason:?}"));
        String::from_utf8(bytes(&page.content)).unwrap()
    }

    async fn tftp(&self, name: &str) -> Result<Vec<u8>, TftpOpenError> {
        let client = SocketAddr::new(CLIENT.parse().unwrap(), 999);
        self.services.open(name, client).await.map(|content| bytes(&content))
    }

    async fn dhcp(
        &self,
        stage: BootStage,
        architecture: FirmwareArchitecture,
    ) -> boot_server::BootInstructions {
        self.dhcp_for_mac(MAC, stage, architecture).await
    }

    async fn dhcp_for_mac(
        &self,
        mac: [u8; 6],
        stage: BootStage,
        architecture: FirmwareArchitecture,
    ) -> boot_server::BootInstructions {
        self.dhcp_on_interface("eth1", mac, stage, architecture).await
    }

    async fn dhcp_on_interface(
        &self,
        interface: &str,
        mac: [u8; 6],
        stage: BootStage,
        architecture: FirmwareArchitecture,
    ) -> boot_server::BootInstructions {
        let hardware = HardwareAddress::ethernet(mac);
        let files = [("eth9".to_owned(), "http://10.9.0.1:6180".to_owned())];
        let plans = self.services.dhcp_directory(files.into());
        let snapshot = plans.look_up(&[hardware]).await.unwrap();
        let architecture = Some(architecture);
        snapshot.instructions(&BootRequest { hardware, architecture, stage, interface })
    }

    async fn journal(&self) -> Vec<JournalEvent> {
        let query = JournalQuery { node: Some(self.node.id), after: 0, limit: 1000 };
        let found = self.store.read(move |reader| reader.journal(&query)).await.unwrap();
        found.into_iter().map(|recorded| recorded.entry.event).collect()
    }
}

fn bytes(content: &boot_media::Content) -> Vec<u8> {
    let mut bytes = Vec::new();
    content.write_to(&mut bytes).unwrap();
    bytes
}

fn json_object(value: Value) -> JsonObject {
    JsonObject::from(value.as_object().unwrap().clone())
}

const SCRIPT_PATH: &str = "/pxelinux.cfg/52-54-00-aa-bb-01";

#[tokio::test]
async fn plan_is_served_until_withdrawn() {
    let rig = BootRig::new().await;
    assert!(rig.text(SCRIPT_PATH).await.contains("sanboot"), "without a plan: boot from disk");
    rig.publish(BootMethod::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let script = rig.text(SCRIPT_PATH).await;
    let kernel = script.split_whitespace().find(|word| word.ends_with("/kernel")).unwrap();
    let path = kernel.strip_prefix("http://10.0.0.1:6180").unwrap();
    let api = "http://10.0.0.1:6385";
    let log = format!("{api}/v1/ferrite/agents/{}/log", rig.node.id);
    let parameters = format!("ipa-api-url={api} ferrite-log-url={log} BOOTIF=${{mac}}");
    assert!(script.contains(&parameters), "{script}");
    let page = rig.get(path).await.unwrap();
    assert_eq!(bytes(&page.content), KERNEL);
    assert_eq!(page.machine.as_deref(), Some(rig.node.id.to_string().as_str()));
    assert_eq!(rig.text(&path.replace("/kernel", "/ramdisk")).await.as_bytes(), RAMDISK);
    // A new plan has a new key, and the old key is not found any more.
    rig.publish(BootMethod::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    assert_eq!(rig.get(path).await.unwrap_err(), HttpRefusalReason::NotFound);
    rig.withdraw().await;
    assert!(rig.text(SCRIPT_PATH).await.contains("sanboot"));
}

#[tokio::test]
async fn serves_the_verified_image_after_its_source_changed() {
    let rig = BootRig::new().await;
    rig.publish(BootMethod::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let script = rig.text(SCRIPT_PATH).await;
    let kernel = script.split_whitespace().find(|word| word.ends_with("/kernel")).unwrap();
    std::fs::write(rig.path("kernel"), b"changed after verification").unwrap();
    let page = rig.get(kernel.strip_prefix("http://10.0.0.1:6180").unwrap()).await.unwrap();
    assert_eq!(bytes(&page.content), KERNEL);
}

#[tokio::test]
async fn ramdisk_files_expire_and_instance_files_do_not() {
    let mut rig = BootRig::with(|settings| settings.url_lifetime = 60).await;
    rig.publish(BootMethod::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let id = rig.node.id;
    let plan = rig.store.read(move |reader| reader.boot_plan(id)).await.unwrap().unwrap();
    let path = format!("/{}/kernel", plan.key);
    rig.advance(59);
    rig.get(&path).await.unwrap();
    rig.advance(1);
    assert_eq!(rig.get(&path).await.unwrap_err(), HttpRefusalReason::Gone);
    assert!(matches!(rig.tftp(&path).await, Err(TftpOpenError::NotFound)));
    assert!(rig.text(SCRIPT_PATH).await.contains("sanboot"));
    assert_eq!(
        rig.dhcp(BootStage::Pxe, FirmwareArchitecture::Bios).await.boot,
        NetbootTarget::Disk
    );

    rig.instance_info.insert("kernel".to_owned(), rig.url("kernel").into());
    rig.instance_info.insert("ramdisk".to_owned(), rig.url("ramdisk").into());
    rig.publish(BootMethod::Ipxe, BootPurpose::Instance).await.unwrap();
    rig.advance(365 * 24 * 3600);
    assert!(rig.text(SCRIPT_PATH).await.contains("/kernel nofb vga=normal BOOTIF"));
}

#[tokio::test]
async fn firmware_gets_a_first_stage_it_can_load() {
    use FirmwareArchitecture::{Bios, UefiX64};
    let rig = BootRig::new().await;
    let script = Some("http://10.0.0.1:6180/pxelinux.cfg/52-54-00-aa-bb-01");
    let loader = "http://10.0.0.1:6180/snponly.efi";
    // Boot method, stage, architecture; expected TFTP file and HTTP file.
    for (method, stage, architecture, first, http) in [
        (BootMethod::Ipxe, BootStage::Pxe, Bios, Some("undionly.kpxe"), None),
        (BootMethod::Ipxe, BootStage::Pxe, UefiX64, Some("snponly.efi"), Some(loader)),
        (BootMethod::Pxe, BootStage::Pxe, Bios, Some("pxelinux.0"), None),
        (BootMethod::Pxe, BootStage::Pxe, UefiX64, Some("bootx64.efi"), None),
        (BootMethod::HttpIpxe, BootStage::HttpBoot, UefiX64, Some("snponly.efi"), Some(loader)),
    ] {
        rig.publish(method, BootPurpose::DeployRamdisk).await.unwrap();
        let plan = rig.dhcp(stage, architecture).await;
        assert!(plan.is_known);
        assert_eq!(plan.host_name.as_deref(), Some("rack1-01"));
        let NetbootTarget::Netboot(netboot) = plan.boot else {
            panic!("{method} {architecture:?}")
        };
        assert_eq!(Some(&*netboot.ipxe_script), script);
        assert_eq!(netboot.tftp_file.as_deref(), first, "{method} {architecture:?}");
        assert_eq!(netboot.http_file.as_deref(), http, "{method} {architecture:?}");
        rig.withdraw().await;
    }
    assert_eq!(rig.dhcp(BootStage::Pxe, Bios).await.boot, NetbootTarget::Disk);
}

#[tokio::test]
async fn port_without_pxe_boots_from_disk() {
    let rig = BootRig::new().await;
    rig.publish(BootMethod::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let port = rig.ports[0].clone();
    rig.store
        .write(move |tx| tx.save(&mut Port { pxe_enabled: false, ..port.clone() }))
        .await
        .unwrap();
    let plan = rig.dhcp(BootStage::Pxe, FirmwareArchitecture::Bios).await;
    assert_eq!((plan.is_known, plan.boot), (true, NetbootTarget::Disk));
}

#[tokio::test]
async fn unknown_machines_boot_the_agent_if_it_is_configured() {
    let mac = [2, 0, 0, 0, 0, 9];
    let rig = BootRig::new().await;
    let plan = rig.dhcp_for_mac(mac, BootStage::Pxe, FirmwareArchitecture::Bios).await;
    assert_eq!((plan.is_known, plan.boot), (false, NetbootTarget::Disk));
    assert_eq!(
        rig.get("/pxelinux.cfg/02-00-00-00-00-09").await.unwrap_err(),
        HttpRefusalReason::NotFound
    );

    let rig = BootRig::with(|settings| {
        settings.deploy_kernel = Some("file:///nowhere/kernel".to_owned());
        settings.deploy_ramdisk = Some("file:///nowhere/ramdisk".to_owned());
    })
    .await;
    let plan = rig.dhcp_for_mac(mac, BootStage::Pxe, FirmwareArchitecture::Bios).await;
    assert!(matches!(plan.boot, NetbootTarget::Netboot(_)));
    let script = rig.text("/pxelinux.cfg/02-00-00-00-00-09").await;
    assert!(script.contains("kernel http://10.0.0.1:6180/discovery/kernel"), "{script}");
    assert!(
        script.contains("ipa-inspection-callback-url=http://10.0.0.1:6385/v1/continue_inspection"),
        "{script}"
    );
    // The file is outside the allowed directories.
    assert!(matches!(
        rig.get("/discovery/kernel").await,
        Err(HttpRefusalReason::Unavailable { .. })
    ));
}

#[tokio::test]
async fn serves_only_listed_files() {
    let rig = BootRig::new().await;
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
        assert_eq!(rig.get(path).await.unwrap_err(), HttpRefusalReason::NotFound, "{path}");
        assert!(matches!(rig.tftp(path).await, Err(TftpOpenError::NotFound)), "{path}");
    }
    assert!(rig.text("/boot.ipxe").await.starts_with("#!ipxe"));
}

#[tokio::test]
async fn tftp_serves_loader_configurations() {
    let rig = BootRig::new().await;
    let local = rig.tftp("pxelinux.cfg/01-52-54-00-aa-bb-01").await.unwrap();
    assert!(String::from_utf8(local).unwrap().contains("localboot"));
    rig.publish(BootMethod::Pxe, BootPurpose::DeployRamdisk).await.unwrap();
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
async fn virtual_media_contain_token_and_network_data() {
    let Some(mut rig) = rig_with_efi_kernel().await else { return };
    rig.node.network_data = json_object(json!({"links": [{"id": "eth0"}]}));
    let published =
        rig.publish(BootMethod::VirtualMedia, BootPurpose::InspectionRamdisk).await.unwrap();
    let path = published.boot_url.strip_prefix("http://10.0.0.1:6180").unwrap();
    assert!(path.ends_with("/boot.iso"));
    let cd = bytes(&rig.get(path).await.unwrap().content);
    assert_eq!(&cd[0x8001..0x8006], b"CD001");
    assert!(cd[0x8028..0x8048].starts_with(b"config-2"));
    let has = |needle: &[u8]| cd.windows(needle.len()).any(|window| window == needle);
    assert!(has(br#"{"links":[{"id":"eth0"}]}"#));

    let parameters = rig.parameters().await;
    let value = |name: &str| {
        parameters.iter().find_map(|word| word.strip_prefix(&format!("{name}="))).map(str::to_owned)
    };
    assert_eq!(value("boot_method").as_deref(), Some("vmedia"));
    assert_eq!(value("BOOTIF").as_deref(), Some("52:54:00:aa:bb:01"));
    assert_eq!(value("ir_pub_id"), Some(rig.node.id.to_string()));
    let token = value("ipa-agent-token").unwrap();
    let id = rig.node.id;
    let (node, secrets) = rig
        .store
        .read(move |reader| {
            let node = reader.get(id)?.unwrap();
            let secrets = reader.reveal(&node)?;
            Ok::<_, store::StoreError>((node, secrets))
        })
        .await
        .unwrap();
    assert!(node.agent.has_token && node.agent.token_pregenerated);
    assert_eq!(secrets.agent_token.unwrap().reveal(), &token);
    let journal = format!("{:?}", rig.journal().await);
    assert!(journal.contains("by virtual media") && !journal.contains(&token), "{journal}");
    let key = path.split('/').nth(1).unwrap();
    assert!(!journal.contains(key), "{journal}");
    // A client that knows the MAC address must not get the secrets of the virtual media.
    for name in ["boot.ipxe", "pxelinux.cfg", "grub.cfg"] {
        let mac = &rig.ports[0].address;
        let client = CLIENT.parse().unwrap();
        let script = rig.services.loader_script(mac, name, "http://10.0.0.1:6180", client).await;
        let text = script.unwrap().unwrap().unwrap().text;
        assert!(!text.contains(key) && !text.contains(&token), "{name}: {text}");
    }
}

/// A rig whose kernel is an EFI application: the stub itself.
async fn rig_with_efi_kernel() -> Option<BootRig> {
    let stub = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";
    let Ok(kernel) = std::fs::read(stub) else {
        assert!(
            std::env::var_os("FERRITE_TEST_SERVERS").is_none(),
            "there is no {stub}; install systemd-boot-efi"
        );
        return None;
    };
    let rig = BootRig::new().await;
    std::fs::write(rig.path("kernel"), kernel).unwrap();
    Some(rig)
}

#[tokio::test]
async fn unified_image_is_served_for_http_boot_and_not_by_tftp() {
    let Some(rig) = rig_with_efi_kernel().await else { return };
    rig.publish(BootMethod::Http, BootPurpose::DeployRamdisk).await.unwrap();
    let plan = rig.dhcp(BootStage::HttpBoot, FirmwareArchitecture::UefiX64).await;
    let NetbootTarget::Netboot(netboot) = plan.boot else { panic!("no netboot target") };
    let url = netboot.http_file.unwrap();
    let path = url.strip_prefix("http://10.0.0.1:6180").unwrap();
    let image = bytes(&rig.get(path).await.unwrap().content);
    assert_eq!(&image[..2], b"MZ");
    let needle = b"ipa-api-url=http://10.0.0.1:6385";
    assert!(image.windows(needle.len()).any(|window| window == needle));
    let by_pxe = rig.dhcp(BootStage::Pxe, FirmwareArchitecture::UefiX64).await;
    assert_eq!((by_pxe.is_booting, by_pxe.boot), (true, NetbootTarget::NotLoadable));
}

#[tokio::test]
async fn rejects_invalid_boot_parameters_before_booting() {
    let mut rig = BootRig::new().await;
    let purpose = BootPurpose::DeployRamdisk;
    let failed = |rig: &BootRig| rig.check(BootMethod::Ipxe, purpose).unwrap_err().to_string();
    let good = rig.driver_info.clone();
    for (key, value, expected) in [
        ("deploy_kernel", json!(null), "'driver_info/deploy_kernel' is missing: only the ramdisk"),
        ("deploy_ramdisk", json!(""), "'driver_info/deploy_ramdisk' is missing: only the kernel"),
        ("deploy_kernel", json!("kernel"), "'driver_info/deploy_kernel' is invalid"),
        ("deploy_kernel", json!("glance://x"), "glance"),
        ("deploy_kernel", json!(5), "'driver_info/deploy_kernel' is invalid: it must be a string"),
        ("deploy_kernel_checksum", json!("abc"), "deploy_kernel_checksum"),
        ("kernel_append_params", json!("a\nchain http://x"), "kernel_append_params"),
        ("kernel_append_params", json!("${net0/mac}"), "boot loaders"),
    ] {
        rig.driver_info.insert(key.to_owned(), value);
        let error = failed(&rig);
        assert!(error.contains(expected), "{key}: {error}");
        rig.driver_info = good.clone();
    }
    rig.driver_info.clear();
    assert!(failed(&rig).contains("boot.deploy_kernel"));
    let error = rig.check(BootMethod::Ipxe, BootPurpose::Instance).unwrap_err().to_string();
    assert!(error.contains("boot_iso"), "{error}");
    rig.instance_info.insert("boot_iso".to_owned(), "http://h/x.iso".into());
    let error = rig.check(BootMethod::Pxe, BootPurpose::Instance).unwrap_err().to_string();
    assert!(error.contains("cannot boot an ISO"), "{error}");

    // Errors that only fetching finds.
    rig.driver_info = good;
    rig.driver_info.insert("deploy_ramdisk_checksum".to_owned(), "0".repeat(64).into());
    let error = rig.publish(BootMethod::Ipxe, purpose).await.unwrap_err().to_string();
    assert!(error.contains("fetch the ramdisk") && error.contains("checksum is"), "{error}");
    rig.driver_info.remove("deploy_ramdisk_checksum");
    let error = rig.publish(BootMethod::Http, purpose).await.unwrap_err().to_string();
    assert!(error.contains("create boot.efi") && error.contains("EFI"), "{error}");
    let id = rig.node.id;
    assert_eq!(rig.store.read(move |reader| reader.boot_plan(id)).await.unwrap(), None);
}

#[tokio::test]
async fn bmc_fetches_an_iso_that_only_it_can_reach() {
    let mut rig = BootRig::new().await;
    rig.driver_info.insert("deploy_iso".to_owned(), "nfs://host/deploy.iso".into());
    let published =
        rig.publish(BootMethod::VirtualMedia, BootPurpose::DeployRamdisk).await.unwrap();
    assert_eq!(published.boot_url, "nfs://host/deploy.iso");
    rig.driver_info.insert("deploy_iso".to_owned(), rig.url("kernel").into());
    let error = rig
        .publish(BootMethod::VirtualMedia, BootPurpose::DeployRamdisk)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("fetch the ISO"), "a kernel is not an ISO: {error}");
}

#[tokio::test]
async fn config_drive_of_a_ramdisk_instance_is_a_separate_medium() {
    let Some(mut rig) = rig_with_efi_kernel().await else { return };
    rig.instance_info.insert("kernel".to_owned(), rig.url("kernel").into());
    rig.instance_info.insert("ramdisk".to_owned(), rig.url("ramdisk").into());
    rig.instance_info.insert("configdrive".to_owned(), json!({"user_data": "#cloud-config"}));
    let published = rig.publish(BootMethod::VirtualMedia, BootPurpose::Instance).await.unwrap();
    let url = published.config_drive.unwrap();
    let drive =
        bytes(&rig.get(url.strip_prefix("http://10.0.0.1:6180").unwrap()).await.unwrap().content);
    let has = |needle: &[u8]| drive.windows(needle.len()).any(|window| window == needle);
    assert!(drive[0x8028..0x8048].starts_with(b"config-2"));
    assert!(has(b"#cloud-config") && has(rig.node.id.to_string().as_bytes()));
}

#[tokio::test(start_paused = true)]
async fn events_are_recorded_in_the_timeline_or_as_sightings() {
    let rig = BootRig::new().await;
    let (recorder, writer) = rig.services.event_recorder();
    let writer = tokio::spawn(writer);
    let at = Timestamp(rig.clock.load(Ordering::Relaxed));
    let event = |mac: Option<[u8; 6]>, detail: BootEventDetail| BootEvent {
        at,
        interface: "eth1".into(),
        hardware: mac.map(HardwareAddress::ethernet),
        address: Some("10.0.0.100".parse().unwrap()),
        architecture: Some(FirmwareArchitecture::UefiX64),
        stage: Some(BootStage::Pxe),
        is_known: false,
        machine: None,
        no_loadable_boot_file: false,
        detail,
    };
    let discover = || BootEventDetail::Dhcp4 {
        message_type: dhcp4::Dhcp4MessageType::Discover,
        outcome: dhcp4::Dhcp4Outcome::Offered("10.0.0.100".parse().unwrap()),
        boot_file: Some("snponly.efi".into()),
    };
    for _ in 0..3 {
        recorder.record(event(Some(MAC), discover()));
    }
    // TFTP requests have no MAC address: it is known from the DHCP lease of the address.
    let outcome = tftp::TftpOutcome::Completed { bytes: 5 };
    recorder.record(event(None, BootEventDetail::Tftp { file: "snponly.efi".to_owned(), outcome }));
    recorder.record(event(Some([2, 0, 0, 0, 0, 9]), discover()));
    let recorded = || async {
        rig.journal()
            .await
            .into_iter()
            .filter_map(|event| {
                let JournalEvent::NetworkActivity { by, text, times } = event else { return None };
                Some(format!("{by}: {text} x{times}"))
            })
            .collect::<Vec<_>>()
    };
    let sightings = || async { rig.store.read(|reader| reader.unknown_machines(9)).await.unwrap() };
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while sightings().await.is_empty() {
        assert!(std::time::Instant::now() < deadline, "no sighting was recorded");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let discovered = "dhcp: DISCOVER from PXE firmware (x86-64 UEFI) on eth1: offered 10.0.0.100, boot \
                      file snponly.efi";
    // Repetitions are counted, and written before the next different event.
    let (once, twice) = (format!("{discovered} x1"), format!("{discovered} x2"));
    assert_eq!(recorded().await, [&*once, &*twice, "tftp: snponly.efi: sent, 5 bytes x1"]);
    let found = sightings().await;
    let unknown_mac: Mac = "02:00:00:00:00:09".parse().unwrap();
    assert_eq!(found.len(), 1);
    let sighting = &found[0].sighting;
    assert_eq!((&sighting.mac, sighting.times), (&unknown_mac, 1));
    assert_eq!(sighting.architecture.as_deref(), Some("x86-64 UEFI"));

    // Counted repetitions are written at the end.
    recorder.record(event(Some(MAC), discover()));
    drop(recorder);
    writer.await.unwrap();
    assert_eq!(recorded().await.len(), 4);
    assert_eq!(recorded().await[3], once);
}

#[tokio::test]
async fn prebuilt_iso_gets_no_token() {
    let mut rig = BootRig::new().await;
    rig.driver_info.insert("deploy_iso".to_owned(), "nfs://host/deploy.iso".into());
    rig.publish(BootMethod::VirtualMedia, BootPurpose::DeployRamdisk).await.unwrap();
    let id = rig.node.id;
    let node = rig.store.read(move |reader| reader.get(id)).await.unwrap().unwrap();
    assert!(!node.agent.has_token && !node.agent.token_pregenerated, "the agent cannot receive it");
}

#[tokio::test]
async fn bmc_does_not_fetch_an_iso_that_must_be_verified() {
    let mut rig = BootRig::new().await;
    rig.driver_info.insert("deploy_iso".to_owned(), "nfs://host/deploy.iso".into());
    rig.driver_info.insert("deploy_iso_checksum".to_owned(), "0".repeat(64).into());
    let failed = |rig: BootRig| async move {
        let published = rig.publish(BootMethod::VirtualMedia, BootPurpose::DeployRamdisk).await;
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
    for (policy, is_direct) in [(SignaturePolicy::Off, true), (SignaturePolicy::Required, false)] {
        let rig = BootRig::with_images(
            |settings| settings.ramdisk_image_download_source = crate::IsoDownloadSource::Http,
            |images| {
                images.signing_keys = vec![keys.path().to_owned()];
                images.iso_signatures = policy;
            },
        )
        .await;
        let url = rig.services.direct_media_url(&cd, BootMethod::VirtualMedia).unwrap();
        assert_eq!(url.is_some(), is_direct, "{policy:?}");
    }
}

#[tokio::test]
async fn netbooted_ramdisk_instance_cannot_have_a_config_drive() {
    let mut rig = BootRig::new().await;
    rig.instance_info.insert("kernel".to_owned(), rig.url("kernel").into());
    let error = rig.check(BootMethod::Ipxe, BootPurpose::Instance).unwrap_err().to_string();
    assert!(error.starts_with("'instance_info/ramdisk' is missing"), "{error}");
    rig.instance_info.insert("ramdisk".to_owned(), rig.url("ramdisk").into());
    rig.check(BootMethod::Ipxe, BootPurpose::Instance).unwrap();
    rig.instance_info.insert("configdrive".to_owned(), json!({"user_data": "secret"}));
    let error = rig.check(BootMethod::Ipxe, BootPurpose::Instance).unwrap_err().to_string();
    assert!(error.contains("configdrive") && error.contains("redfish-virtual-media"), "{error}");
    rig.instance_info.remove("configdrive");

    rig.instance_info.insert("kernel_append_params".to_owned(), "%default% quiet".into());
    rig.publish(BootMethod::Ipxe, BootPurpose::Instance).await.unwrap();
    assert_eq!(rig.parameters().await, ["nofb", "vga=normal", "quiet"]);

    rig.ports.clear();
    let error = rig.check(BootMethod::Ipxe, BootPurpose::Instance).unwrap_err().to_string();
    assert!(error.contains("create a port"), "{error}");
}

#[tokio::test]
async fn config_drive_url_is_fetched_and_checked() {
    let Some(mut rig) = rig_with_efi_kernel().await else { return };
    rig.instance_info.insert("kernel".to_owned(), rig.url("kernel").into());
    rig.instance_info.insert("ramdisk".to_owned(), rig.url("ramdisk").into());
    rig.instance_info.insert("configdrive".to_owned(), rig.url("drive").into());
    async fn publish(rig: &BootRig) -> Result<drivers::PublishedBootMedia, String> {
        let published = rig.publish(BootMethod::VirtualMedia, BootPurpose::Instance).await;
        published.map_err(|error| error.to_string())
    }
    let error = publish(&rig).await.unwrap_err();
    assert!(error.contains("config-drive.iso") && error.contains("drive"), "{error}");
    std::fs::write(rig.path("drive"), "bm90IGEgZHJpdmU=").unwrap();
    assert!(publish(&rig).await.unwrap_err().contains("invalid config drive"));

    let parts = boot_media::config_drive::ConfigDriveParts {
        user_data: Some(boot_media::config_drive::UserData::Text("#cloud-config")),
        ..boot_media::config_drive::ConfigDriveParts::default()
    };
    let owner = boot_media::config_drive::ConfigDriveOwner { uuid: "u", name: None };
    let image = parts.build(owner).unwrap();
    std::fs::write(rig.path("drive"), boot_media::config_drive::pack(&image).unwrap()).unwrap();
    let url = publish(&rig).await.unwrap().config_drive.unwrap();
    let path = url.strip_prefix("http://10.0.0.1:6180").unwrap();
    assert_eq!(bytes(&rig.get(path).await.unwrap().content), bytes(&image));
}

#[tokio::test]
async fn boot_configuration_api_returns_nothing_without_a_plan() {
    let rig = BootRig::new().await;
    let mac = rig.ports[0].address.clone();
    for name in ["boot.ipxe", "pxelinux.cfg", "grub.cfg", "nonsense"] {
        assert_eq!(rig.services.boot_config(&mac, name).await.unwrap(), None, "{name}");
    }
    rig.publish(BootMethod::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let script = rig.services.boot_config(&mac, "boot.ipxe").await.unwrap().unwrap();
    assert_eq!(script.node, Some(rig.node.id));
    assert_eq!(rig.services.boot_config(&mac, "nonsense").await.unwrap(), None);
}

#[tokio::test]
async fn scripts_use_the_host_that_the_machine_requested() {
    let rig = BootRig::new().await;
    rig.publish(BootMethod::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let script = |host| {
        let page = rig.get_with_host(host, SCRIPT_PATH);
        async move { String::from_utf8(bytes(&page.await.unwrap().content)).unwrap() }
    };
    assert!(script(Some("10.9.0.1:6180")).await.contains("kernel http://10.9.0.1:6180/"));
    assert!(script(Some("evil\nchain")).await.contains("kernel http://10.0.0.1:6180/"));
    assert!(script(None).await.contains("kernel http://10.0.0.1:6180/"));
    let plan =
        rig.dhcp_on_interface("eth9", MAC, BootStage::Ipxe, FirmwareArchitecture::UefiX64).await;
    let NetbootTarget::Netboot(netboot) = plan.boot else { panic!("no netboot target") };
    assert!(netboot.ipxe_script.starts_with("http://10.9.0.1:6180/"), "{}", netboot.ipxe_script);
}

/// Tests that measure times. They run alone, after all other tests.
mod measured {
    use super::*;

    #[tokio::test]
    async fn iso_with_large_ramdisk_is_created_quickly() {
        let Some(rig) = rig_with_efi_kernel().await else { return };
        let megabytes = vec![0x5a; 60 << 20];
        std::fs::write(rig.path("ramdisk"), megabytes).unwrap();
        rig.publish(BootMethod::VirtualMedia, BootPurpose::DeployRamdisk).await.unwrap();
        let id = rig.node.id;
        let plan = rig.store.read(move |reader| reader.boot_plan(id)).await.unwrap().unwrap();
        rig.services.0.plan_files.remove_plan(&plan.key);
        let begun = std::time::Instant::now();
        let page = rig.get(&format!("/{}/boot.iso", plan.key)).await.unwrap();
        let took = begun.elapsed();
        assert!(page.content.length() > 60 << 20);
        // It takes a few milliseconds.
        assert!(took < Duration::from_millis(500), "{took:?}");
    }
}
