// SPDX-License-Identifier: Apache-2.0
//! The boot servers as `ferrite serve` runs them, for unknown machines.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Result;
use async_trait::async_trait;
use boot_server::dhcp4::{Dhcp4Interface, Dhcp4Listener, Dhcp4Settings, Dhcp4Subnet, DhcpLeases4};
use boot_server::http::{BootHttpLimits, BootHttpServer, BootHttpServices, BootHttpSettings};
use boot_server::tftp::{TftpServer, TftpServices, TftpSettings};
use boot_server::{
    BootDirectory, BootEvent, BootEventRecorder, BootInstructions, BootLookupError, BootRequest,
    BootSnapshot, DhcpLeaseFile, DhcpMode, DhcpServices, HardwareAddress, Netboot, NetbootTarget,
    ServedDirectory,
};
use node_model::Timestamp;

/// The arguments of `boot-bench serve`.
#[derive(clap::Args)]
pub(crate) struct BenchServeArguments {
    /// The interface.
    #[arg(long)]
    interface: Arc<str>,
    /// The server's address on the interface.
    #[arg(long)]
    address: Ipv4Addr,
    /// The prefix length.
    #[arg(long)]
    prefix: u8,
    /// The first address to assign.
    #[arg(long)]
    first: Ipv4Addr,
    /// The last address to assign.
    #[arg(long)]
    last: Ipv4Addr,
    /// The directory with the files.
    #[arg(long)]
    folder: PathBuf,
    /// The file for DHCP leases.
    #[arg(long)]
    leases: PathBuf,
}

/// Serves until the future is dropped. Calls `ready` when all servers listen.
pub(crate) async fn run(arguments: &BenchServeArguments, ready: impl FnOnce()) -> Result<()> {
    let events: Arc<dyn BootEventRecorder> = Arc::new(DiscardedEvents);
    let dhcp = bind_dhcp(arguments, events.clone())?;
    let mut settings = TftpSettings::new(SocketAddr::from((arguments.address, 69)));
    settings.interface = Some(arguments.interface.clone());
    // All transfers of a load have the same client address.
    settings.max_transfers_per_client = settings.max_transfers;
    let files = Arc::new(ServedDirectory::open(&arguments.folder)?);
    let services =
        TftpServices { files: files.clone(), events: events.clone(), clock: Arc::new(wall_clock) };
    let tftp = TftpServer::bind(settings, services)?;
    let mut limits = BootHttpLimits::default();
    limits.max_connections_per_client = limits.max_connections;
    let settings = BootHttpSettings {
        listen: SocketAddr::from((arguments.address, 80)),
        interface: Some(arguments.interface.clone()),
        tls: None,
        limits,
    };
    let http = BootHttpServer::bind(
        settings,
        BootHttpServices { files, events, clock: Arc::new(wall_clock) },
    )?;
    ready();
    // One task per server, as in `ferrite serve`.
    let (dhcp, tftp) = (tokio::spawn(dhcp.run()), tokio::spawn(tftp.run()));
    tokio::try_join!(dhcp, tftp, tokio::spawn(http.run()))?;
    Ok(())
}

fn bind_dhcp(
    arguments: &BenchServeArguments,
    events: Arc<dyn BootEventRecorder>,
) -> Result<Dhcp4Listener> {
    let (name, address) = (arguments.interface.clone(), arguments.address);
    let mut subnet = Dhcp4Subnet::new(address, arguments.prefix, DhcpMode::Discover);
    subnet.ranges = vec![(arguments.first, arguments.last)];
    subnet.gateway = Some(address);
    subnet.dns = vec![address];
    let settings = Dhcp4Settings {
        interfaces: vec![Dhcp4Interface { name, address }],
        subnets: vec![subnet],
        ..Dhcp4Settings::default()
    };
    let netboot = Netboot {
        ipxe_script: format!("http://{address}/boot.ipxe").into(),
        http_file: None,
        tftp_file: None,
    };
    let directory = Arc::new(SameBootForAll { netboot });
    let services = DhcpServices { directory, events, clock: Arc::new(wall_clock) };
    let leases = DhcpLeases4::load(Box::new(DhcpLeaseFile::new(&arguments.leases)))?;
    Ok(Dhcp4Listener::bind(settings, leases, services)?)
}

/// All machines are unknown and boot the same files.
#[derive(Clone)]
struct SameBootForAll {
    netboot: Netboot,
}

#[async_trait]
impl BootDirectory for SameBootForAll {
    async fn look_up(
        &self,
        _machines: &[HardwareAddress],
    ) -> Result<Box<dyn BootSnapshot>, BootLookupError> {
        Ok(Box::new(self.clone()))
    }
}

impl BootSnapshot for SameBootForAll {
    fn instructions(&self, _request: &BootRequest<'_>) -> BootInstructions {
        let boot = NetbootTarget::Netboot(self.netboot.clone());
        BootInstructions { boot, ..BootInstructions::default() }
    }
}

struct DiscardedEvents;

impl BootEventRecorder for DiscardedEvents {
    fn record(&self, _event: BootEvent) {}
}

fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
