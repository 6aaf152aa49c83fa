// SPDX-License-Identifier: Apache-2.0
//! Life cycles with unmodified Ironic from PyPI and simulated Redfish machines.
//!
//! `FERRITE_TEST_STOCK_IRONIC` is the virtual environment in which `cargo xtask test` installs it.

use std::collections::HashSet;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::machines::{MachineBench, ramdisk_settings};
use crate::hosts::provisioner::HostProvisioner;
use crate::object_key::ObjectKey;

/// Timeout for its start.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Machines must not boot before Ironic has recorded that it waits for them.
const SPEED: f64 = 10.0;

/// A running Ironic; dropping it ends the process.
struct RedfishIronic {
    process: Child,
    folder: TempDir,
    url: String,
}

impl RedfishIronic {
    /// `None` if it is not installed.
    fn start() -> Option<Self> {
        let environment = PathBuf::from(std::env::var_os("FERRITE_TEST_STOCK_IRONIC")?);
        let folder = tempfile::tempdir().unwrap();
        for name in ["http", "tftp"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = folder.path().join("ironic.conf");
        std::fs::write(&config, configuration(folder.path(), port)).unwrap();
        let program = |name: &str| {
            let mut command = Command::new(environment.join("bin").join(name));
            let log = std::fs::File::create(folder.path().join(format!("{name}.log"))).unwrap();
            command.arg("--config-file").arg(&config).stdin(Stdio::null());
            command.stdout(log.try_clone().unwrap()).stderr(log);
            command
        };
        assert!(program("ironic-dbsync").arg("create_schema").status().unwrap().success());
        let process = program("ironic").spawn().unwrap();
        let mut ironic = Self { process, folder, url: format!("http://127.0.0.1:{port}") };
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = ironic.process.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "Ironic does not start: {ended:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(ironic)
    }
}

impl Drop for RedfishIronic {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("ironic.log"));
            let log = log.unwrap_or_default();
            let important = |line: &&str| line.contains(" ERROR ") || line.contains(" WARNING ");
            let lines: Vec<&str> = log.lines().filter(important).collect();
            println!("{}", lines.join("\n"));
        }
    }
}

/// Machines boot from the network, which needs no external program to make images. Heartbeats are
/// frequent, because Ironic ignores those that arrive while the node is locked.
fn configuration(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "[DEFAULT]\nauth_strategy = noauth\nrpc_transport = none\nhost = stock\nmy_ip = 127.0.0.1\n\
         state_path = {folder}\ntempdir = {folder}\nenabled_hardware_types = redfish\n\
         enabled_bios_interfaces = redfish,no-bios\n\
         enabled_boot_interfaces = ipxe,redfish-virtual-media\n\
         enabled_deploy_interfaces = direct,ramdisk,custom-agent\n\
         enabled_firmware_interfaces = redfish,no-firmware\n\
         enabled_inspect_interfaces = agent,redfish,no-inspect\n\
         enabled_management_interfaces = redfish\nenabled_power_interfaces = redfish\n\
         enabled_raid_interfaces = redfish,agent,no-raid\n\
         enabled_vendor_interfaces = redfish,no-vendor\n\
         enabled_network_interfaces = noop\ndefault_network_interface = noop\n\
         default_deploy_interface = direct\n\
         [agent]\nimage_download_source = http\n\
         [api]\nhost_ip = 127.0.0.1\nport = {port}\nramdisk_heartbeat_timeout = 10\n\
         [conductor]\nfile_url_allowed_paths = {folder}\n\
         [database]\nconnection = sqlite:///{folder}/ironic.sqlite\n\
         [dhcp]\ndhcp_provider = none\n\
         [service_catalog]\nauth_type = none\nendpoint_override = http://127.0.0.1:{port}\n\
         [deploy]\nhttp_root = {folder}/http\nhttp_url = http://127.0.0.1:9\n\
         erase_devices_priority = 0\nerase_devices_metadata_priority = 10\n\
         [inspector]\nrequire_managed_boot = False\n\
         [pxe]\nimages_path = {folder}/images\ninstance_master_path = {folder}/master\n\
         tftp_root = {folder}/tftp\ntftp_master_path = {folder}/tftp/master\n\
         [redfish]\nraid_config_status_interval = 1\nfirmware_update_status_interval = 1\n\
         [oslo_concurrency]\nlock_path = {folder}\n\
         [oslo_messaging_notifications]\ndriver = noop\n"
    )
}

#[tokio::test]
async fn a_machine_lives_with_stock_ironic() {
    let Some(ironic) = RedfishIronic::start() else {
        println!("skipped: FERRITE_TEST_STOCK_IRONIC is not set");
        return;
    };
    let bench = MachineBench::start(&ironic.url, SPEED, ramdisk_settings(ironic.folder.path()));
    let mut host = bench.host(0, "redfish");
    bench.register_with_wrong_password(&mut host).await;
    let changed: HashSet<ObjectKey> = bench.provisioner.changed_hosts().await.into_iter().collect();
    assert_eq!(changed, HashSet::from([ObjectKey::new("lab", "host-0")]));
    let live = async {
        bench.inspect(&host, false).await;
        bench.inspect(&host, true).await;
        bench.prepare_hardware(&host, 0).await;
        bench.deploy_and_adopt(&mut host, 0).await;
        bench.read_and_subscribe(&host).await;
        bench.service(&host, 0).await;
        bench.attach_data_image(&host, 0).await;
        bench.deprovision_and_delete(&host).await;
    };
    let abort = async {
        bench.delete_during_inspection(1, "redfish").await;
        bench.detach_during_deployment(1, "redfish").await;
    };
    tokio::join!(live, abort);
}
