// SPDX-License-Identifier: Apache-2.0
//! The demonstration behind `ferrite demo`: machines are enrolled, inspected, cleaned and deployed
//! through the API of a server that runs in the same process.
//!
//! The machines are either simulated ([`fleet_sim`]) or QEMU processes behind simulated BMCs. This
//! crate does not start the server: [`Demo::prepare`] returns what the server has to be configured
//! with ([`ServerSettings`]), and [`Demo::run`] drives the server that was started with it
//! ([`ServerAccess`]).

mod display;
mod rack;
mod vms;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use fleet_sim::{FleetConfig, SimulatedAgentConfig, SimulatedFleet};
use ironic_client::{Api, ApiTarget, file_url};
use serde_json::{Value, json};

use display::Display;
use rack::DemoRack;
use vms::{ConsoleLogs, RunningVms, VmRig};

/// The API port that is used if it is free.
const DEFAULT_PORT: u16 = 6385;
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Size of the image for simulated machines. It consists of zero bytes.
const IMAGE_BYTES: u64 = 4 << 20;
const IMAGE_SHA256: &str = "bb9f8df61474d25e71fa00722318cd387396ca1736605e1248821cc0de3d3af8";

/// Options of `ferrite demo`.
#[derive(Args, Debug)]
pub struct DemoArguments {
    /// Number of simulated machines.
    #[arg(long, value_name = "NUMBER", default_value_t = 12,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    machines: u32,
    /// Use this number of QEMU virtual machines instead; root is not required.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["machines", "speed"],
          value_parser = clap::value_parser!(u8).range(1..=8))]
    vms: Option<u8>,
    /// Folder with the kernel and the ramdisk that the virtual machines boot the agent from; by
    /// default the output folder of `ferrite ramdisk build`.
    #[arg(long, value_name = "DIR", requires = "vms")]
    ramdisk: Option<PathBuf>,
    /// Address and port of the API; by default port 6385 on the loopback interface, or a free port if
    /// that is in use.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Speed of the simulated machines relative to real ones.
    #[arg(long, value_name = "FACTOR", default_value_t = 20.0)]
    speed: f64,
    /// Exit when all machines are deployed instead of staying up.
    #[arg(long)]
    once: bool,
}

/// What the server has to be configured with; everything else keeps its default.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The data directory. The API uses basic authentication with a user file created in it.
    pub data_dir: PathBuf,
    /// `api.listen`.
    pub api_listen: SocketAddr,
    /// `boot.listen`.
    pub boot_listen: SocketAddr,
    /// `boot.http_url`.
    pub boot_http_url: Option<String>,
    /// `boot.api_url`.
    pub boot_api_url: Option<String>,
    /// `boot.deploy_kernel`.
    pub deploy_kernel: String,
    /// `boot.deploy_ramdisk`.
    pub deploy_ramdisk: String,
    /// `boot.inspection_kernel_params`, if not the default.
    pub inspection_kernel_params: Option<String>,
    /// `images.file_url_allowed_paths`.
    pub file_url_allowed_paths: Vec<PathBuf>,
    /// `inspection.hooks`.
    pub inspection_hooks: &'static str,
    /// `lifecycle.fast_track`.
    pub fast_track: bool,
    /// `drivers.agent.erase_devices_priority`, if not the default.
    pub erase_devices_priority: Option<i64>,
}

/// How the started server is reached.
#[derive(Clone, Debug)]
pub struct ServerAccess {
    /// Base URL of the API.
    pub url: String,
    /// User of basic authentication.
    pub user: String,
    /// Password of basic authentication.
    pub password: String,
}

/// A prepared demonstration. Dropping it removes its temporary folder.
#[derive(Debug)]
pub struct Demo {
    machines: u32,
    speed: f64,
    once: bool,
    api_listen: SocketAddr,
    rig: Option<VmRig>,
    folder: TemporaryFolder,
}

impl Demo {
    /// Creates the temporary folder and, for QEMU machines, checks the required programs and builds
    /// the image. `default_ramdisk` returns the folder to use without `--ramdisk`.
    pub fn prepare(
        arguments: &DemoArguments,
        default_ramdisk: impl FnOnce() -> anyhow::Result<PathBuf>,
    ) -> anyhow::Result<Self> {
        let api_listen = arguments.listen.unwrap_or_else(default_or_free_address);
        if api_listen.ip().is_unspecified() {
            bail!("--listen needs an address that machines can connect to, such as 127.0.0.1:6385");
        }
        let folder = TemporaryFolder::create()?;
        let rig = match arguments.vms {
            Some(count) => {
                let ramdisk = match &arguments.ramdisk {
                    Some(ramdisk) => ramdisk.clone(),
                    None => default_ramdisk()?,
                };
                Some(VmRig::prepare(count, &ramdisk, api_listen, folder.path())?)
            }
            None => {
                write_placeholder_files(folder.path())?;
                None
            }
        };
        Ok(Self {
            machines: arguments.machines,
            speed: arguments.speed,
            once: arguments.once,
            api_listen,
            rig,
            folder,
        })
    }

    /// Returns the configuration that the server needs for these machines.
    #[must_use]
    pub fn server_settings(&self) -> ServerSettings {
        let folder = self.folder.path();
        let settings = ServerSettings {
            data_dir: folder.join("data"),
            api_listen: self.api_listen,
            boot_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            boot_http_url: None,
            boot_api_url: None,
            // Simulated machines do not load these files, but the server requires them.
            deploy_kernel: file_url(&folder.join("kernel")),
            deploy_ramdisk: file_url(&folder.join("ramdisk")),
            inspection_kernel_params: None,
            file_url_allowed_paths: vec![folder.to_owned()],
            inspection_hooks: "$default_hooks,parse-lldp,local-link-connection",
            fast_track: false,
            erase_devices_priority: None,
        };
        match &self.rig {
            Some(rig) => rig.adjust(settings),
            None => settings,
        }
    }

    /// Starts the machines, deploys them and shows their progress. Without `--once` it then waits
    /// forever. Fails if a machine was not deployed.
    pub async fn run(&self, server: &ServerAccess, started_at: Instant) -> anyhow::Result<()> {
        let fleet = SimulatedFleet::start(match &self.rig {
            Some(rig) => rig.fleet_config()?,
            None => self.simulated_fleet(server),
        })?;
        let mut vms = self.rig.as_ref().map(|rig| rig.start(&fleet)).transpose()?;
        let consoles = vms.as_ref().map(RunningVms::console_logs);
        let mut display = Display::new();
        self.print_introduction(&mut display, server, consoles.as_ref());

        let vm_failure = async {
            match &mut vms {
                Some(vms) => vms.failure().await,
                None => std::future::pending().await,
            }
        };
        let deployment = async {
            let failed =
                self.deploy(&fleet, server, consoles.as_ref(), &mut display, started_at).await?;
            if !self.once {
                print_next_steps(&mut display, server);
                std::future::pending::<()>().await;
            }
            if failed > 0 {
                bail!("{failed} machines were not deployed");
            }
            anyhow::Ok(())
        };
        let outcome = tokio::select! {
            outcome = deployment => outcome,
            error = vm_failure => Err(error),
        };
        fleet.stop().await;
        outcome
    }

    fn print_introduction(
        &self,
        display: &mut Display,
        server: &ServerAccess,
        consoles: Option<&ConsoleLogs>,
    ) {
        display.print(&format!("web UI    {}/ui", server.url));
        display.print(&format!("sign in   {} / {}", server.user, server.password));
        match consoles {
            Some(consoles) => consoles.print_paths(display),
            None => display.print(&format!(
                "rack      {} simulated machines: Redfish BMCs, agents and two switches over real \
                 sockets, {} times faster than real ones",
                self.machines, self.speed
            )),
        }
        display.print("");
    }

    /// Takes all machines from enrolment to `active`. Returns the number of machines that failed.
    async fn deploy(
        &self,
        fleet: &SimulatedFleet,
        server: &ServerAccess,
        consoles: Option<&ConsoleLogs>,
        display: &mut Display,
        started_at: Instant,
    ) -> anyhow::Result<usize> {
        let mut enrolments: Vec<_> =
            fleet.machines().map(|machine| machine.redfish_enrolment(None)).collect();
        if let Some(rig) = &self.rig {
            rig.adjust_enrolments(&mut enrolments);
        }
        let fields = json!({
            "boot_interface": "ipxe",
            "deploy_interface": "direct",
            "inspect_interface": "agent",
            "console_interface": "ipmitool-socat",
            "instance_info": self.instance_info(),
        });
        let mut rack = DemoRack::enrol(server.connect()?, enrolments, &fields).await?;
        while !rack.is_finished() {
            tokio::time::sleep(POLL_INTERVAL).await;
            rack.advance().await?;
            display.show(&rack.rows(), started_at.elapsed());
        }
        display.finish_table();
        let failures = rack.failures();
        if let Some(consoles) = consoles
            && failures.is_empty()
        {
            consoles.wait_for_greetings(display).await?;
        }
        display.print(&rack.summary(started_at.elapsed()));
        for failure in &failures {
            display.print(failure);
        }
        Ok(failures.len())
    }

    fn instance_info(&self) -> Value {
        match &self.rig {
            Some(rig) => rig.instance_info(),
            None => json!({
                "image_source": file_url(&self.folder.path().join("image.raw")),
                "image_checksum": IMAGE_SHA256,
            }),
        }
    }

    fn simulated_fleet(&self, server: &ServerAccess) -> FleetConfig {
        FleetConfig {
            bmcs: self.machines,
            speed: self.speed,
            ipmi: true,
            agents: Some(SimulatedAgentConfig {
                tls: true,
                downloads_images: true,
                is_ferrite_agent: true,
                ..SimulatedAgentConfig::for_api(&server.url)
            }),
            ..FleetConfig::default()
        }
    }
}

impl ServerAccess {
    fn connect(&self) -> anyhow::Result<Api> {
        let password = ironic_client::HiddenText::new(self.password.as_str());
        let target =
            ApiTarget::at(&self.url, Some(&self.user), Some(password), "the demonstration")
                .context("the address of the API")?;
        Ok(Api::new(target)?)
    }
}

fn print_next_steps(display: &mut Display, server: &ServerAccess) {
    let ServerAccess { url, user, password } = server;
    let ferrite = std::env::args().next().unwrap_or_else(|| "ferrite".to_owned());
    for line in [
        "",
        &format!("The server runs until Ctrl-C. Open {url}/ui, or in another terminal:"),
        &format!(
            "  export OS_AUTH_TYPE=http_basic OS_ENDPOINT={url} OS_USERNAME={user} OS_PASSWORD={password}"
        ),
        &format!("  {ferrite} node list"),
        &format!("  {ferrite} node timeline rack1-u01"),
        &format!("  {ferrite} node console rack1-u01 attach"),
        &format!("  {ferrite} node explain rack1-u01 undeploy"),
        &format!("  {ferrite} topology"),
        "  baremetal node list",
    ] {
        display.print(line);
    }
}

/// Writes the kernel, ramdisk and image that simulated machines are deployed with.
fn write_placeholder_files(folder: &Path) -> anyhow::Result<()> {
    for name in ["kernel", "ramdisk"] {
        let path = folder.join(name);
        std::fs::write(&path, name).with_context(|| path.display().to_string())?;
    }
    let image = folder.join("image.raw");
    std::fs::File::create(&image)
        .and_then(|file| file.set_len(IMAGE_BYTES))
        .with_context(|| image.display().to_string())
}

fn default_or_free_address() -> SocketAddr {
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT));
    match TcpListener::bind(default) {
        Ok(_) => default,
        Err(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
    }
}

/// A folder that is removed on drop.
#[derive(Debug)]
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn create() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("ferrite-demo-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path)
            .with_context(|| format!("cannot create the folder {}", path.display()))?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // Leftovers are in the system's folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
