// SPDX-License-Identifier: Apache-2.0
//! `ferrite sim`: simulated machines with their BMCs over real sockets, until stopped.

mod enrol;

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use fleet_sim::{
    AgentConfig, Control, Credentials, Enrolment, FaultRule, Fleet, FleetConfig, Personality,
};
use serde::Deserialize;

use crate::config::LogSection;
use crate::process::{StopRequest, allow_many_connections};
use crate::telemetry;

/// Options of `ferrite sim`.
#[derive(Args, Debug)]
pub(crate) struct SimArguments {
    /// How many machines.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    bmcs: u32,
    /// The address all BMCs listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    listen: IpAddr,
    /// The port of the first BMC; the others follow. 0 takes any.
    #[arg(long, value_name = "PORT", default_value_t = 8000)]
    port: u16,
    /// Speak IPMI too, on UDP ports of the same numbers.
    #[arg(long)]
    ipmi: bool,
    /// Kinds of machines, by turns: names, or TOML files. All kinds if none is given.
    #[arg(long, value_name = "NAME|FILE", value_delimiter = ',')]
    personality: Vec<String>,
    /// Speak HTTPS, with a certificate made at start.
    #[arg(long)]
    tls: bool,
    /// Something that goes wrong, such as 'hang bmcs=10%'. May be given several times.
    #[arg(long, value_name = "RULE")]
    fault: Vec<FaultRule>,
    /// A TOML file with more things that go wrong.
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// The name that opens the BMCs.
    #[arg(long, value_name = "NAME", default_value = "admin")]
    user: String,
    /// The password that opens the BMCs.
    #[arg(long, value_name = "PASSWORD", default_value = "password")]
    password: String,
    /// Write the machines to this file as JSON, ready to be enrolled.
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// Create the machines as nodes at this Ironic API, such as http://127.0.0.1:6385.
    #[arg(long, value_name = "URL")]
    enrol: Option<String>,
    /// The driver of inventory and enrolment.
    #[arg(long, value_name = "DRIVER", default_value = "redfish")]
    driver: EnrolDriver,
    /// Look at the fleet and change faults over HTTP here.
    #[arg(long, value_name = "ADDR:PORT")]
    control: Option<SocketAddr>,
    /// How many times faster than real machines.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    speed: f64,
    /// What the names of nodes begin with: give each fleet that is enrolled in one API its own.
    #[arg(long, value_name = "NAME", default_value = "sim")]
    name: String,
    /// Other numbers give other serial numbers, UUIDs and MACs.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Start with machines that are on.
    #[arg(long)]
    powered_on: bool,
    /// Machines that boot from the network or from a CD run an agent, which calls this Ironic API.
    #[arg(long, value_name = "URL")]
    agents: Option<String>,
    /// Agents speak HTTPS.
    #[arg(long, requires = "agents")]
    agents_tls: bool,
    /// Agents fetch images and compare their checksums.
    #[arg(long, requires = "agents")]
    agents_download: bool,
}

/// How the machines are to be managed.
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
        bail!("a fleet of no machines is none: give --bmcs a number above 0");
    }
    telemetry::start(&LogSection { level: "warn".to_owned(), json: false })?;
    allow_many_connections();
    let config = config(arguments)?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(run(arguments, config))
}

async fn run(arguments: &SimArguments, config: FleetConfig) -> anyhow::Result<()> {
    let fleet = Fleet::start(config)?;
    let control = arguments.control.map(|address| Control::start(address, &fleet)).transpose()?;
    let ca = match (&arguments.inventory, fleet.ca_pem()) {
        (Some(inventory), Some(pem)) => Some(write_ca(inventory, pem)?),
        _ => None,
    };
    let nodes = enrolments(&fleet, arguments.driver, ca.as_deref());
    if let Some(inventory) = &arguments.inventory {
        let text = serde_json::to_string_pretty(&nodes).context("the inventory")?;
        write_private(inventory, &text)?;
    }
    let mut stop = StopRequest::listen()?;
    announce(arguments, &fleet, control.as_ref());
    let serve = async {
        if let Some(api) = &arguments.enrol {
            let told = enrol::enrol(api, &nodes).await?;
            say(&told.to_string());
        }
        std::future::pending().await
    };
    tokio::select! {
        () = stop.come() => {}
        failed = serve => return failed,
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
            .with_context(|| format!("the faults in {} are not understood", path.display()))?;
        faults.extend(file.fault);
    }
    let personalities = arguments.personality.iter().map(|name| personality(name));
    Ok(FleetConfig {
        bmcs: arguments.bmcs,
        listen: arguments.listen,
        port: arguments.port,
        personalities: personalities.collect::<anyhow::Result<_>>()?,
        credentials: Credentials::new(&arguments.user, &arguments.password),
        tls: arguments.tls,
        ipmi: arguments.ipmi || arguments.driver == EnrolDriver::Ipmi,
        name: arguments.name.clone(),
        seed: arguments.seed,
        speed: arguments.speed,
        powered_on: arguments.powered_on,
        faults,
        agents: arguments.agents.as_deref().map(|api| AgentConfig {
            tls: arguments.agents_tls,
            downloads: arguments.agents_download,
            ..AgentConfig::calling(api)
        }),
    })
}

fn personality(name: &str) -> anyhow::Result<Personality> {
    let path = Path::new(name);
    if path.extension().is_none_or(|ending| ending != "toml") {
        return Ok(Personality::named(name)?);
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Personality::parse(&text).with_context(|| path.display().to_string())
}

fn enrolments(fleet: &Fleet, driver: EnrolDriver, ca: Option<&str>) -> Vec<Enrolment> {
    let machines = fleet.machines();
    match driver {
        EnrolDriver::Redfish => machines.map(|machine| machine.enrolment(ca)).collect(),
        EnrolDriver::Ipmi => machines.filter_map(|machine| machine.enrolment_by_ipmi()).collect(),
    }
}

/// The certificate goes beside the inventory that refers to it.
fn write_ca(inventory: &Path, pem: &str) -> anyhow::Result<String> {
    let path = inventory.with_extension("ca.pem");
    std::fs::write(&path, pem).with_context(|| format!("cannot write {}", path.display()))?;
    let path = std::fs::canonicalize(&path).with_context(|| path.display().to_string())?;
    Ok(path.display().to_string())
}

/// There are passwords in it.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The one line that says where the machines are, for people and for programs that start us.
fn announce(arguments: &SimArguments, fleet: &Fleet, control: Option<&Control>) {
    let (first, last) = (fleet.machine(0), fleet.machine(arguments.bmcs.saturating_sub(1)));
    let first = first.map(|machine| machine.url()).unwrap_or_default();
    let last = last.map_or(0, |machine| machine.address().port());
    // Ports that were taken as they came are no range.
    let to = match (arguments.bmcs, arguments.port) {
        (1, _) => String::new(),
        (_, 0) => format!(" to {last}"),
        (_, _) => format!("-{last}"),
    };
    let control = control.map(|it| format!(", control on http://{}", it.address()));
    say(&format!(
        "{} simulated BMC{} on {first}{to} (user {}, password {}){}",
        arguments.bmcs,
        if arguments.bmcs == 1 { "" } else { "s" },
        arguments.user,
        arguments.password,
        control.unwrap_or_default()
    ));
}

#[expect(clippy::print_stdout, reason = "this is where the program speaks to its user")]
fn say(line: &str) {
    println!("{line}");
}
