// SPDX-License-Identifier: Apache-2.0
//! Unmodified Ironic from PyPI with fake hardware in a temporary folder.
//!
//! `FERRITE_TEST_STOCK_IRONIC` is the virtual environment in which it is installed.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::test_process::TestHome;

/// Timeout for its start.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A running Ironic; dropping it stops the process.
pub(super) struct StockIronic {
    process: Child,
    _home: TestHome,
    pub(super) url: String,
}

impl StockIronic {
    /// Returns `None` if it is not installed.
    pub(super) fn start() -> Option<Self> {
        let environment = PathBuf::from(std::env::var_os("FERRITE_TEST_STOCK_IRONIC")?);
        let home = TestHome::new();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = home.path("ironic.conf");
        std::fs::write(&config, configuration(&home.path(""), port)).unwrap();
        let program = |name: &str| {
            let mut command = Command::new(environment.join("bin").join(name));
            let log = std::fs::File::create(home.path(&format!("{name}.log"))).unwrap();
            command.arg("--config-file").arg(&config).stdin(Stdio::null());
            command.stdout(log.try_clone().unwrap()).stderr(log);
            command
        };
        assert!(program("ironic-dbsync").arg("create_schema").status().unwrap().success());
        let mut ironic = Self {
            process: program("ironic").spawn().unwrap(),
            url: format!("http://127.0.0.1:{port}"),
            _home: home,
        };
        let started_at = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = ironic.process.try_wait().unwrap();
            assert!(
                ended.is_none() && started_at.elapsed() < START_TIMEOUT,
                "Ironic does not start: {ended:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(ironic)
    }
}

impl Drop for StockIronic {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configuration(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    let fake_interfaces: String = ["boot", "deploy", "inspect", "management", "power"]
        .map(|kind| format!("enabled_{kind}_interfaces = fake\ndefault_{kind}_interface = fake\n"))
        .concat();
    format!(
        "[DEFAULT]\nauth_strategy = noauth\nrpc_transport = none\nhost = stock\nmy_ip = 127.0.0.1\n\
         state_path = {folder}\ntempdir = {folder}\nenabled_hardware_types = fake-hardware\n{fake_interfaces}\
         enabled_network_interfaces = noop\ndefault_network_interface = noop\n\
         [api]\nhost_ip = 127.0.0.1\nport = {port}\n\
         [database]\nconnection = sqlite:///{folder}/ironic.sqlite\n\
         [dhcp]\ndhcp_provider = none\n\
         [service_catalog]\nauth_type = none\nendpoint_override = http://127.0.0.1:{port}\n\
         [deploy]\nhttp_root = {folder}/http\n\
         [oslo_concurrency]\nlock_path = {folder}\n\
         [oslo_messaging_notifications]\ndriver = noop\n"
    )
}
