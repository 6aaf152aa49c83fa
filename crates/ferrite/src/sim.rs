// SPDX-License-Identifier: Apache-2.0
//! `ferrite sim`: simulated machines with their BMCs over real sockets, until stopped.

mod enrol;

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use fleet_sim::{
    BmcCredentials, ControlServer, Enrolment, FaultRule, FleetConfig, Personality,
    SimulatedAgentConfig, SimulatedFleet,
};
use serde::Deserialize;

use crate::config::LogSection;
use crate::process::{StopSignal, print_line, raise_open_file_limit};
use crate::telemetry;

/// Options of `ferrite sim`.
#[derive(Args, Debug)]
pub(crate) struct SimArguments {
    /// Number of machines.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    bmcs: u32,
    /// The address all BMCs listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    listen: IpAddr,
    /// Port of the first BMC; the others use the following ports. 0 uses free ports.
    #[arg(long, value_name = "PORT", default_value_t = 8000)]
    port: u16,
    /// Also serve IPMI, on UDP ports with the same numbers.
    #[arg(long)]
    ipmi: bool,
    /// Personalities of machines, in turn: names, or TOML files. By default all built-in ones.
    #[arg(long, value_name = "NAME|FILE", value_delimiter = ',')]
    personality: Vec<String>,
    /// Serve HTTPS with a certificate generated at start.
    #[arg(long)]
    tls: bool,
    /// A fault, such as 'hang bmcs=10%'. May be given several times.
    #[arg(long, value_name = "RULE")]
    fault: Vec<FaultRule>,
    /// A TOML file with faults.
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// User name of the BMCs.
    #[arg(long, value_name = "NAME", default_value = "admin")]
    user: String,
    /// Password of the BMCs.
    #[arg(long, value_name = "PASSWORD", default_value = "password")]
    password: String,
    /// Write the machines to this file as JSON, for enrolment.
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// Create the machines as nodes at this Ironic API, such as http://127.0.0.1:6385.
    #[arg(long, value_name = "URL")]
    enrol: Option<String>,
    /// Driver for inventory and enrolment.
    #[arg(long, value_name = "DRIVER", default_value = "redfish")]
    driver: EnrolDriver,
    /// Serve an HTTP API that shows the fleet and changes faults.
    #[arg(long, value_name = "ADDR:PORT")]
    control: Option<SocketAddr>,
    /// Speed relative to real machines.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    speed: f64,
    /// Prefix of node names; use different ones for several fleets in one API.
    #[arg(long, value_name = "NAME", default_value = "sim")]
    name: String,
    /// Seed of serial numbers, UUIDs and MAC addresses.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Start with machines powered on.
    #[arg(long)]
    powered_on: bool,
    /// Machines that boot from the network or a CD run a simulated agent, which calls this Ironic API.
    #[arg(long, value_name = "URL")]
    agents: Option<String>,
    /// Agents serve HTTPS.
    #[arg(long, requires = "agents")]
    agents_tls: bool,
    /// Agents download images and verify their checksums.
    #[arg(long, requires = "agents")]
    agents_download: bool,
}

/// Driver of the enrolled nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EnrolDriver {
    Redfish,
    Ipmi,
}

/// A file of faults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultFile {
    fault: Vec<FaultRule>,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn sim(arguments: &SimArguments) -> anyhow::Result<()> {
    if arguments.bmcs == 0 {
        bail!("--bmcs must be greater than 0");
    }
    telemetry::start(&LogSection { level: "warn".to_owned(), json: false })?;
    raise_open_file_limit();
    let config = config(arguments)?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(run(arguments, config))
}

async fn run(arguments: &SimArguments, config: FleetConfig) -> anyhow::Result<()> {
    let fleet = SimulatedFleet::start(config)?;
    let control =
        arguments.control.map(|address| ControlServer::start(address, &fleet)).transpose()?;
    let ca = match (&arguments.inventory, fleet.ca_pem()) {
        (Some(inventory), Some(pem)) => Some(write_ca(inventory, pem)?),
        _ => None,
    };
    let nodes = enrolments(&fleet, arguments.driver, ca.as_deref());
    if let Some(inventory) = &arguments.inventory {
        let text = serde_json::to_string_pretty(&nodes).context("the inventory")?;
        write_private(inventory, &text)?;
    }
    let mut stop = StopSignal::listen()?;
    announce(arguments, &fleet, control.as_ref());
    let serve = async {
        if let Some(api) = &arguments.enrol {
            let counts = enrol::enrol(api, &nodes).await?;
            print_line(&counts.to_string());
        }
        std::future::pending().await
    };
    tokio::select! {
        () = stop.received() => {}
        result = serve => return result,
    }
    drop(control);
    fleet.stop().await;
    Ok(())
}

fn config(arguments: &SimArguments) -> anyhow::Result<FleetConfig> {
    let mut faults = arguments.fault.clone();
    if let Some(path) = &arguments.faults {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the faults in {}", path.display()))?;
        let file: FaultFile = toml::from_str(&text)
            .with_context(|| format!("cannot parse the faults in {}", path.display()))?;
        faults.extend(file.fault);
    }
    let personalities = arguments.personality.iter().map(|name| personality(name));
    Ok(FleetConfig {
        bmcs: arguments.bmcs,
        listen: arguments.listen,
        port: arguments.port,
        personalities: personalities.collect::<anyhow::Result<_>>()?,
        credentials: BmcCredentials::new(&arguments.user, &arguments.password),
        tls: arguments.tls,
        ipmi: arguments.ipmi || arguments.driver == EnrolDriver::Ipmi,
        name: arguments.name.clone(),
        seed: arguments.seed,
        speed: arguments.speed,
        powered_on: arguments.powered_on,
        faults,
        agents: arguments.agents.as_deref().map(|api| SimulatedAgentConfig {
            tls: arguments.agents_tls,
            downloads_images: arguments.agents_download,
            ..SimulatedAgentConfig::for_api(api)
        }),
    })
}

fn personality(name: &str) -> anyhow::Result<Personality> {
    let path = Path::new(name);
    if path.extension().is_none_or(|ending| ending != "toml") {
        return Ok(Personality::built_in(name)?);
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Personality::parse(&text).with_context(|| path.display().to_string())
}

fn enrolments(fleet: &SimulatedFleet, driver: EnrolDriver, ca: Option<&str>) -> Vec<Enrolment> {
    let machines = fleet.machines();
    match driver {
        EnrolDriver::Redfish => machines.map(|machine| machine.redfish_enrolment(ca)).collect(),
        EnrolDriver::Ipmi => machines.filter_map(|machine| machine.ipmi_enrolment()).collect(),
    }
}

/// Writes the CA certificate beside the inventory that refers to it.
fn write_ca(inventory: &Path, pem: &str) -> anyhow::Result<String> {
    let path = inventory.with_extension("ca.pem");
    std::fs::write(&path, pem).with_context(|| format!("cannot write {}", path.display()))?;
    let path = std::fs::canonicalize(&path).with_context(|| path.display().to_string())?;
    Ok(path.display().to_string())
}

/// Writes a file that only its owner can read, because it contains passwords.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Prints the addresses of the machines.
fn announce(arguments: &SimArguments, fleet: &SimulatedFleet, control: Option<&ControlServer>) {
    let (first, last) = (fleet.machine(0), fleet.machine(arguments.bmcs.saturating_sub(1)));
    let first = first.map(|machine| machine.url()).unwrap_or_default();
    let last = last.map_or(0, |machine| machine.address().port());
    // Free ports do not form a range.
    let to = match (arguments.bmcs, arguments.port) {
        (1, _) => String::new(),
        (_, 0) => format!(" to {last}"),
        (_, _) => format!("-{last}"),
    };
    let control = control.map(|it| format!(", control on http://{}", it.address()));
    print_line(&format!(
        "{} simulated BMC{} on {first}{to} (user {}, password {}){}",
        arguments.bmcs,
        if arguments.bmcs == 1 { "" } else { "s" },
        arguments.user,
        arguments.password,
        control.unwrap_or_default()
    ));
}
