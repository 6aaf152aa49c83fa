// SPDX-License-Identifier: Apache-2.0
//! `ferrite demo`: the whole service with a simulated rack, or with QEMU machines, from bare machines
//! to running instances, on nothing but this computer.

mod display;
mod rack;
mod vms;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use fleet_sim::{AgentConfig, Fleet, FleetConfig};
use serde_json::json;

use crate::config::{Auth, Config, LogSection};
use crate::enrolment::api_at;
use crate::process::{StopRequest, allow_many_connections};
use crate::service::{Service, prepare_data_dir};
use crate::telemetry;
use display::Display;
use rack::Rack;
use vms::{Consoles, Machines, Workshop};

/// Where the API is, if that is free.
const USUAL_PORT: u16 = 6385;
/// How often the rack is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// What is deployed: so many zero bytes, and their SHA-256.
const IMAGE_BYTES: u64 = 4 << 20;
const IMAGE_SHA256: &str = "bb9f8df61474d25e71fa00722318cd387396ca1736605e1248821cc0de3d3af8";

/// Options of `ferrite demo`.
#[derive(Args, Debug)]
pub(crate) struct DemoArguments {
    /// How many machines are in the rack.
    #[arg(long, value_name = "NUMBER", default_value_t = 12,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    machines: u32,
    /// Have so many real machines in QEMU instead, without root.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["machines", "speed"],
          value_parser = clap::value_parser!(u8).range(1..=8))]
    vms: Option<u8>,
    /// The folder of the kernel and the ramdisk that they boot the agent from; by default the one
    /// that `ferrite ramdisk build` writes to.
    #[arg(long, value_name = "DIR", requires = "vms")]
    ramdisk: Option<PathBuf>,
    /// Address and port of the API; by default port 6385 of this computer only, or a free one if
    /// that is taken.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// How many times faster than real ones the machines are.
    #[arg(long, value_name = "FACTOR", default_value_t = 20.0)]
    speed: f64,
    /// End when the rack is deployed instead of staying up.
    #[arg(long)]
    once: bool,
}

/// Runs until Ctrl-C, or with `--once` until the rack is deployed.
pub(crate) fn demo(arguments: &DemoArguments) -> anyhow::Result<()> {
    telemetry::start(&LogSection { level: "error".to_owned(), json: false })?;
    allow_many_connections();
    let folder = Folder::make()?;
    let (config, workshop) = prepare(arguments, folder.path())?;
    let data_dir = config.data_dir()?;
    let _in_use = prepare_data_dir(&data_dir)?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(run(arguments, config, workshop, &data_dir, folder.path()))
}

async fn run(
    arguments: &DemoArguments,
    config: Config,
    workshop: Option<Workshop>,
    data_dir: &Path,
    folder: &Path,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let inspection = config.inspection()?;
    let mut service = Service::start(&config, inspection, data_dir).await?;
    let entrance = Entrance::of(&service)?;
    let mut stop = StopRequest::listen()?;
    let outcome = tokio::select! {
        shown = show(arguments, &entrance, workshop.as_ref(), folder, began) => shown,
        () = stop.come() => Ok(()),
        broken = service.broken() => Err(broken),
    };
    service.stop().await;
    outcome
}

/// Where the service is, and what opens it.
struct Entrance {
    url: String,
    user: String,
    password: String,
}

impl Entrance {
    fn of(service: &Service) -> anyhow::Result<Self> {
        let made = service.first_password.as_ref().context("a new user file has a first user")?;
        let password = std::fs::read_to_string(&made.path)
            .with_context(|| format!("cannot read {}", made.path.display()))?;
        Ok(Self {
            url: format!("http://{}", service.address()),
            user: made.user.to_owned(),
            password: password.trim().to_owned(),
        })
    }

    /// The URL with name and password in it.
    fn with_password(&self) -> String {
        let rest = self.url.trim_start_matches("http://");
        format!("http://{}:{}@{rest}", self.user, self.password)
    }
}

/// Brings the machines up and shows what becomes of them.
async fn show(
    arguments: &DemoArguments,
    entrance: &Entrance,
    workshop: Option<&Workshop>,
    folder: &Path,
    began: Instant,
) -> anyhow::Result<()> {
    let fleet = Fleet::start(match workshop {
        Some(workshop) => workshop.fleet()?,
        None => simulated(arguments, entrance),
    })?;
    let mut machines = workshop.map(|workshop| workshop.plug_in(&fleet)).transpose()?;
    let consoles = machines.as_ref().map(Machines::consoles);
    let mut display = Display::new();
    display.say(&format!("page      {}/ui", entrance.url));
    display.say(&format!("sign in   {} / {}", entrance.user, entrance.password));
    match &consoles {
        Some(consoles) => consoles.introduce(&mut display),
        None => display.say(&format!(
            "rack      {} simulated machines: Redfish BMCs, agents and two switches over real \
             sockets, {} times faster than real ones",
            arguments.machines, arguments.speed
        )),
    }
    display.say("");

    let broken = async {
        match &mut machines {
            Some(machines) => machines.broken().await,
            None => std::future::pending().await,
        }
    };
    let deployed = async {
        let api = api_at(&entrance.with_password(), "the demonstration")?;
        let mut enrolments: Vec<_> =
            fleet.machines().map(|machine| machine.enrolment(None)).collect();
        let mut more = json!({
            "boot_interface": "ipxe",
            "deploy_interface": "direct",
            "inspect_interface": "agent",
            "console_interface": "ipmitool-socat",
        });
        more["instance_info"] = match workshop {
            Some(workshop) => {
                workshop.complete(&mut enrolments);
                workshop.instance_info()
            }
            None => json!({
                "image_source": format!("file://{}", folder.join("image.raw").display()),
                "image_checksum": IMAGE_SHA256,
            }),
        };
        let rack = Rack::enrol(api, enrolments, &more).await?;
        let failed = deploy(rack, consoles.as_ref(), &mut display, began).await?;
        if !arguments.once {
            invite(&mut display, entrance);
            std::future::pending::<()>().await;
        }
        if failed > 0 {
            bail!("{failed} machines were not deployed");
        }
        anyhow::Ok(())
    };
    let outcome = tokio::select! {
        outcome = deployed => outcome,
        broken = broken => Err(broken),
    };
    fleet.stop().await;
    outcome
}

/// Takes the rack from enrolment to instances. Returns how many machines did not get there.
async fn deploy(
    mut rack: Rack,
    consoles: Option<&Consoles>,
    display: &mut Display,
    began: Instant,
) -> anyhow::Result<usize> {
    while !rack.is_at_rest() {
        tokio::time::sleep(LOOK_EVERY).await;
        rack.go_on().await?;
        display.show(&rack.rows(), began.elapsed());
    }
    display.end();
    let failed = rack.failures();
    if let Some(consoles) = consoles
        && failed.is_empty()
    {
        consoles.greet(display).await?;
    }
    display.say(&rack.summary(began.elapsed()));
    for failure in &failed {
        display.say(failure);
    }
    Ok(failed.len())
}

/// A rack of machines of all kinds, and their agents.
fn simulated(arguments: &DemoArguments, entrance: &Entrance) -> FleetConfig {
    FleetConfig {
        bmcs: arguments.machines,
        speed: arguments.speed,
        ipmi: true,
        agents: Some(AgentConfig {
            tls: true,
            downloads: true,
            is_ours: true,
            ..AgentConfig::calling(&entrance.url)
        }),
        ..FleetConfig::default()
    }
}

/// What there is to do now.
fn invite(display: &mut Display, entrance: &Entrance) {
    let Entrance { url, user, password } = entrance;
    let ferrite = std::env::args().next().unwrap_or_else(|| "ferrite".to_owned());
    for line in [
        "",
        &format!("It stays up until Ctrl-C. Look at {url}/ui, or in another terminal:"),
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
        display.say(line);
    }
}

/// The configuration of the service, and what QEMU machines are made of if they are wanted.
fn prepare(arguments: &DemoArguments, folder: &Path) -> anyhow::Result<(Config, Option<Workshop>)> {
    let mut config = Config { data_dir: Some(folder.join("data")), ..Config::default() };
    config.api.listen = arguments.listen.unwrap_or_else(usual_or_free);
    config.api.auth = Auth::Basic;
    if config.api.listen.ip().is_unspecified() {
        bail!("--listen needs an address that the machines can call, such as 127.0.0.1:6385");
    }
    let Some(count) = arguments.vms else {
        simulate(&mut config, folder)?;
        return Ok((config, None));
    };
    let ramdisk = arguments.ramdisk.as_deref();
    let workshop = Workshop::open(count, ramdisk, config.api.listen, folder)?;
    workshop.configure(&mut config);
    Ok((config, Some(workshop)))
}

/// The service that simulated machines need.
fn simulate(config: &mut Config, folder: &Path) -> anyhow::Result<()> {
    config.boot.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    // Simulated machines load nothing, but what they would load is served all the same.
    for name in ["kernel", "ramdisk"] {
        let path = folder.join(name);
        std::fs::write(&path, name).with_context(|| path.display().to_string())?;
    }
    let image = folder.join("image.raw");
    std::fs::File::create(&image)
        .and_then(|file| file.set_len(IMAGE_BYTES))
        .with_context(|| image.display().to_string())?;
    let url = |name: &str| Some(format!("file://{}", folder.join(name).display()));
    config.boot.deploy_kernel = url("kernel");
    config.boot.deploy_ramdisk = url("ramdisk");
    config.images.file_url_allowed_paths = vec![folder.to_owned()];
    config.inspection.hooks = "$default_hooks,parse-lldp,local-link-connection".to_owned();
    Ok(())
}

/// The usual port, unless somebody else has it.
fn usual_or_free() -> SocketAddr {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, USUAL_PORT));
    match TcpListener::bind(usual) {
        Ok(_) => usual,
        Err(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
    }
}

/// A folder that goes with the demonstration.
struct Folder(PathBuf);

impl Folder {
    fn make() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("ferrite-demo-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
