// SPDX-License-Identifier: Apache-2.0
//! Our boot services as the program runs them, for machines nobody knows.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Result;
use boot_server::dhcp4::{self, Interface, Leases, Subnet};
use boot_server::{
    BootAnswer, BootRequest, FileLeaseBook, Mode, Netboot, Plan, Plans, Sighting, Sightings, http,
    tftp,
};
use node_model::Timestamp;

/// Where to serve what.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The interface.
    #[arg(long)]
    interface: Arc<str>,
    /// Our address on it.
    #[arg(long)]
    address: Ipv4Addr,
    /// The length of its prefix.
    #[arg(long)]
    prefix: u8,
    /// The first address to hand out.
    #[arg(long)]
    first: Ipv4Addr,
    /// The last address to hand out.
    #[arg(long)]
    last: Ipv4Addr,
    /// The files.
    #[arg(long)]
    folder: PathBuf,
    /// Where leases are written down.
    #[arg(long)]
    leases: PathBuf,
}

/// Serves until it is dropped; `ready` is called once everything listens.
pub(crate) async fn run(options: &Options, ready: impl FnOnce()) -> Result<()> {
    let sightings: Arc<dyn Sightings> = Arc::new(Nobody);
    let dhcp = dhcp(options, sightings.clone())?;
    let mut settings = tftp::Settings::new(SocketAddr::from((options.address, 69)));
    settings.interface = Some(options.interface.clone());
    // All transfers of one load have the same address.
    settings.most_per_client = settings.most;
    let files = Arc::new(tftp::Folder::open(&options.folder)?);
    let services =
        tftp::Services { files: files.clone(), sightings: sightings.clone(), clock: wall_clock };
    let tftp = tftp::Server::bind(settings, services)?;
    let mut limits = http::Limits::default();
    limits.most_per_client = limits.most;
    let settings = http::Settings {
        listen: SocketAddr::from((options.address, 80)),
        interface: Some(options.interface.clone()),
        tls: None,
        limits,
    };
    let services = http::Services { pages: files, sightings, clock: wall_clock };
    let http = http::Server::bind(settings, services)?;
    ready();
    // As in the program, each on a task of its own.
    let (dhcp, tftp) = (tokio::spawn(dhcp.run()), tokio::spawn(tftp.run()));
    tokio::try_join!(dhcp, tftp, tokio::spawn(http.run()))?;
    Ok(())
}

fn dhcp(options: &Options, sightings: Arc<dyn Sightings>) -> Result<dhcp4::Listener> {
    let mut subnet = Subnet::new(options.address, options.prefix, Mode::Discover);
    subnet.ranges = vec![(options.first, options.last)];
    subnet.gateway = Some(options.address);
    subnet.dns = vec![options.address];
    let settings = dhcp4::Settings {
        interfaces: vec![Interface { name: options.interface.clone(), address: options.address }],
        subnets: vec![subnet],
        ..dhcp4::Settings::default()
    };
    let plans = Arc::new(Everybody::new(options.address));
    let services = dhcp4::Services { plans, sightings, clock: wall_clock };
    let leases = Leases::load(Box::new(FileLeaseBook::new(&options.leases)))?;
    Ok(dhcp4::Listener::bind(settings, leases, services)?)
}

/// Every machine is unknown and boots the same.
struct Everybody {
    netboot: Netboot,
}

impl Everybody {
    fn new(server: Ipv4Addr) -> Self {
        let netboot = Netboot {
            script: format!("http://{server}/boot.ipxe").into(),
            http: None,
            first_stage: None,
            parameters: Vec::new(),
        };
        Self { netboot }
    }
}

impl Plans for Everybody {
    fn plan(&self, _request: &BootRequest<'_>) -> Plan {
        Plan { boot: BootAnswer::Netboot(self.netboot.clone()), ..Plan::default() }
    }
}

struct Nobody;

impl Sightings for Nobody {
    fn seen(&self, _sighting: Sighting) {}
}

fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
