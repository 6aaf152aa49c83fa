// SPDX-License-Identifier: Apache-2.0
//! `ferrite demo --vms`: QEMU machines behind simulated BMCs.
//!
//! Each BMC of the simulated fleet controls a QEMU process: the firmware loads the real agent over
//! QEMU's user-mode network, which needs no privileges, and the deployed image boots from the virtual
//! disk.

mod image;
mod qemu;
mod serial;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use fleet_sim::machine::{BootTarget, PowerPhase, ResetType};
use fleet_sim::{Enrolment, FleetConfig, Personality, SimulatedFleet, SimulatedMachine};
use ironic_client::file_url;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::ServerSettings;
use super::display::Display;
use super::rack::node_name;
use image::{DiskImage, GREETING};
use qemu::{BootSource, GuestExit, HOST, QemuInstallation, QemuMachine, QemuProcess, VmIdentity};

const MEBIBYTE: u64 = 1 << 20;
/// Interval at which the power state of a BMC is applied to its QEMU process.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout for the console greeting of a deployed system. Without KVM, and with as many machines as
/// processors, it takes half a minute.
const GREETING_TIMEOUT: Duration = Duration::from_secs(600);
/// Parameters of every kernel on the machines. On a busy host with an emulated processor the kernel's
/// timer check fails and costs a minute, hence `no_timer_check`.
const KERNEL_PARAMETERS: &str = "console=ttyS0,115200n8 quiet panic=5 no_timer_check";
const BMC_PERSONALITY: &str = include_str!("vms/bmc.toml");

/// Everything the QEMU machines need, prepared before the server starts.
#[derive(Debug)]
pub(super) struct VmRig {
    count: u8,
    qemu: QemuInstallation,
    ramdisk: ramdisk::BuiltRamdisk,
    image: DiskImage,
    folder: PathBuf,
    api_address: SocketAddr,
    /// Host port of the boot file server.
    boot_port: u16,
    /// Host ports that are forwarded to the agents, one per machine.
    agent_ports: Vec<u16>,
}

/// The running machines. Dropping it kills the QEMU processes.
#[derive(Debug)]
pub(super) struct RunningVms {
    console_logs: ConsoleLogs,
    tasks: JoinSet<anyhow::Result<Infallible>>,
}

/// Machine names and the files with their serial output.
#[derive(Clone, Debug, Default)]
pub(super) struct ConsoleLogs(Vec<(String, PathBuf)>);

impl VmRig {
    /// Prepares `count` machines in `folder` that boot the agent from the `ramdisk` folder.
    pub(super) fn prepare(
        count: u8,
        ramdisk: &Path,
        api_listen: SocketAddr,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        if api_listen.is_ipv6() {
            bail!("QEMU machines connect to IPv4 addresses only; give --listen an IPv4 address");
        }
        let qemu = QemuInstallation::find()?;
        let ramdisk = find_ramdisk(ramdisk)?;
        let qemu = qemu.with_kvm_if_it_works(&ramdisk.kernel);
        let image = DiskImage::build(folder.join("image.raw"), &ramdisk)?;
        let mut ports = free_ports(usize::from(count) + 2)?;
        let (boot_port, api_port) =
            (ports.pop().unwrap_or_default(), ports.pop().unwrap_or_default());
        let mut api_address = api_listen;
        if api_address.port() == 0 {
            api_address.set_port(api_port);
        }
        Ok(Self {
            count,
            qemu,
            ramdisk,
            image,
            folder: folder.to_owned(),
            api_address,
            boot_port,
            agent_ports: ports,
        })
    }

    /// Changes the server settings for simulated machines to those for QEMU machines.
    pub(super) fn adjust(&self, settings: ServerSettings) -> ServerSettings {
        let api_url = if self.api_address.ip().is_loopback() {
            format!("http://{HOST}:{}", self.api_address.port())
        } else {
            format!("http://{}", self.api_address)
        };
        let folders = [Some(&*self.folder), self.ramdisk.kernel.parent()];
        ServerSettings {
            api_listen: self.api_address,
            boot_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, self.boot_port)),
            boot_http_url: Some(self.boot_url()),
            boot_api_url: Some(api_url),
            deploy_kernel: file_url(&self.ramdisk.kernel),
            deploy_ramdisk: file_url(&self.ramdisk.ramdisk),
            // QEMU's user-mode network has no LLDP.
            inspection_kernel_params: Some(String::new()),
            file_url_allowed_paths: folders.into_iter().flatten().map(Path::to_owned).collect(),
            inspection_hooks: "$default_hooks,cpus,memory",
            // The agent stays booted from inspection to deployment, to save boots.
            fast_track: true,
            // The disks are new; overwriting them would take as long as everything else.
            erase_devices_priority: Some(0),
            ..settings
        }
    }

    /// Returns the configuration of the BMCs.
    pub(super) fn fleet_config(&self) -> anyhow::Result<FleetConfig> {
        Ok(FleetConfig {
            bmcs: u32::from(self.count),
            personalities: vec![Personality::parse(BMC_PERSONALITY)?],
            ipmi: true,
            ..FleetConfig::default()
        })
    }

    /// Returns the `instance_info` of all machines.
    pub(super) fn instance_info(&self) -> Value {
        json!({
            "image_source": file_url(&self.image.path),
            "image_checksum": self.image.sha256,
        })
    }

    /// Adds how the agents are reached, and removes the properties that inspection has to find.
    pub(super) fn adjust_enrolments(&self, enrolments: &mut [Enrolment]) {
        for (enrolment, port) in enrolments.iter_mut().zip(&self.agent_ports) {
            let parameters = format!(
                "{KERNEL_PARAMETERS} ipa-advertise-host={} ipa-advertise-port={port}",
                Ipv4Addr::LOCALHOST
            );
            for property in ["cpus", "memory_mb", "local_gb"] {
                enrolment.properties.remove(property);
            }
            enrolment.driver_info.insert("kernel_append_params".to_owned(), json!(parameters));
        }
    }

    /// Creates a machine for each BMC and lets the BMC control it.
    pub(super) fn start(&self, fleet: &SimulatedFleet) -> anyhow::Result<RunningVms> {
        let mut vms = RunningVms { console_logs: ConsoleLogs::default(), tasks: JoinSet::new() };
        for ((machine, agent_port), index) in fleet.machines().zip(&self.agent_ports).zip(0..) {
            let macs = machine.macs();
            let identity = VmIdentity {
                name: node_name(index),
                uuid: machine.with_model(|machine, _| machine.identity().uuid()),
                mac: macs.first().context("the machine has a NIC")?.to_string(),
                agent_port: *agent_port,
            };
            let boot_file = format!("{}/boot.ipxe", self.boot_url());
            let vm = QemuMachine::create(&self.qemu, identity, boot_file, &self.folder)?;
            vms.console_logs.0.push((node_name(index), vm.console_log.clone()));
            if let Some(socket) = &vm.serial_socket {
                let line = machine.attach_serial_line();
                vms.tasks.spawn(serial::forward(line, socket.clone()));
            }
            vms.tasks.spawn(follow_bmc(machine, vm));
        }
        Ok(vms)
    }

    fn boot_url(&self) -> String {
        format!("http://{HOST}:{}", self.boot_port)
    }
}

impl RunningVms {
    pub(super) fn console_logs(&self) -> ConsoleLogs {
        self.console_logs.clone()
    }

    /// Returns the first error of a machine; waits forever without one.
    pub(super) async fn failure(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => anyhow::Error::new(error).context("the task of a machine ended"),
            None => std::future::pending().await,
        }
    }
}

impl ConsoleLogs {
    /// Prints the path of each console log.
    pub(super) fn print_paths(&self, display: &mut Display) {
        let machines = match self.0.len() {
            1 => "1 QEMU machine".to_owned(),
            count => format!("{count} QEMU machines"),
        };
        display.print(&format!(
            "rack      {machines}: firmware, netboot, agent and disk are real; minutes without KVM"
        ));
        for (name, path) in &self.0 {
            display.print(&format!("console   tail -f {}  # {name}", path.display()));
        }
    }

    /// Waits until every deployed system has printed its greeting on the console.
    pub(super) async fn wait_for_greetings(&self, display: &mut Display) -> anyhow::Result<()> {
        let started_at = Instant::now();
        display.print(
            "All machines are active. Waiting for the greeting of the deployed system on each console…",
        );
        for (name, path) in &self.0 {
            let greeting = loop {
                let output = tokio::fs::read(path).await.unwrap_or_default();
                let output = String::from_utf8_lossy(&output);
                if let Some(line) = output.lines().find(|line| line.contains(GREETING)) {
                    break line.trim().to_owned();
                }
                if started_at.elapsed() > GREETING_TIMEOUT {
                    bail!(
                        "{name}: no greeting on the console within {} s; last line: {}",
                        GREETING_TIMEOUT.as_secs(),
                        last_line(&output)
                    );
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            };
            display.print(&format!("{name} console: {greeting}"));
        }
        Ok(())
    }
}

/// Applies the power state of a BMC to its QEMU process, and reports resets and power-offs of the guest
/// to the BMC. Returns only if QEMU fails.
async fn follow_bmc(machine: SimulatedMachine, vm: QemuMachine) -> anyhow::Result<Infallible> {
    let mut process: Option<QemuProcess> = None;
    let mut last_boot = None;
    let mut is_shutdown_requested = false;
    loop {
        let (boot, is_shutting_down) = machine.with_model(|machine, _| {
            let boot =
                machine.current_boot().map(|boot| (machine.boot_count(), boot_source(boot.from)));
            (boot, matches!(machine.power_phase(), PowerPhase::ShuttingDown { .. }))
        });
        match boot {
            None => process = None,
            Some((count, source)) if last_boot != Some(count) => {
                // The old process must end first: the new one uses the same files and ports.
                drop(process.take());
                process = Some(vm.power_on(source)?);
                (last_boot, is_shutdown_requested) = (Some(count), false);
            }
            Some(_) => {}
        }
        if is_shutting_down
            && !is_shutdown_requested
            && let Some(process) = &mut process
        {
            process.press_power_button();
            is_shutdown_requested = true;
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            exit = wait_for_exit(&mut process) => {
                process = None;
                report_exit(&machine, exit.with_context(|| format!("QEMU of {} failed", vm.name))?);
            }
        }
    }
}

/// Reports an exit to the BMC that the BMC did not request. The BMC waits itself for exits it requested.
fn report_exit(machine: &SimulatedMachine, exit: GuestExit) {
    machine.with_model(|machine, now| {
        if machine.power_phase() != PowerPhase::Running {
            return;
        }
        match exit {
            GuestExit::PowerOff => machine.power_down(now),
            GuestExit::Reset => machine
                .reset(ResetType::ForceRestart, now)
                .expect("a machine that is on can be restarted"),
        }
    });
}

async fn wait_for_exit(process: &mut Option<QemuProcess>) -> anyhow::Result<GuestExit> {
    match process {
        Some(process) => process.wait_for_exit().await,
        None => std::future::pending().await,
    }
}

/// A machine has two boot devices: everything except the network is the disk.
fn boot_source(target: BootTarget) -> BootSource {
    match target {
        BootTarget::Pxe | BootTarget::UefiHttp => BootSource::Network,
        BootTarget::None
        | BootTarget::Floppy
        | BootTarget::Cd
        | BootTarget::Usb
        | BootTarget::UsbCd
        | BootTarget::Hdd
        | BootTarget::BiosSetup
        | BootTarget::Utilities
        | BootTarget::Diags
        | BootTarget::UefiShell => BootSource::Disk,
    }
}

fn find_ramdisk(folder: &Path) -> anyhow::Result<ramdisk::BuiltRamdisk> {
    // File URLs need an absolute path.
    let found = folder.canonicalize().ok().and_then(|folder| ramdisk::find(&folder));
    let Some(found) = found else {
        bail!(
            "no agent ramdisk in {}; build one with `cargo rustc -p agent --bin \
             ferrite-agent --profile agent --target x86_64-unknown-linux-gnu -- -C \
             target-feature=+crt-static` and `cargo run --release -- ramdisk build --from-debian \
             --drivers virtual --agent target/x86_64-unknown-linux-gnu/agent/ferrite-agent`, or \
             name its folder with --ramdisk",
            folder.display()
        );
    };
    Ok(found)
}

/// Returns free TCP ports of this host outside the ephemeral range: a connection must not take the
/// port of an agent while its machine is off.
fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    const FIRST: u32 = 20_000;
    const END: u32 = 32_768;
    /// Demonstrations that run at the same time start their search at different ports.
    const STRIDE: u32 = 16;
    let begin = FIRST + std::process::id() % ((END - FIRST) / STRIDE) * STRIDE;
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let all = (begin..END).chain(FIRST..begin).filter_map(|port| u16::try_from(port).ok());
    let ports: Vec<u16> = all.filter(is_free).take(count).collect();
    if ports.len() < count {
        bail!("fewer than {count} free ports between {FIRST} and {END}");
    }
    Ok(ports)
}

fn last_line(output: &str) -> &str {
    output.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("(no output)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_bmc_personality() {
        assert_eq!(Personality::parse(BMC_PERSONALITY).unwrap().network.count, 1);
    }

    #[test]
    fn free_ports_are_distinct() {
        let mut ports = free_ports(10).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 10);
    }

    #[tokio::test]
    async fn reports_guest_exits_to_the_bmc() {
        let personalities = vec![Personality::parse(BMC_PERSONALITY).unwrap()];
        let config = FleetConfig { personalities, powered_on: true, ..FleetConfig::default() };
        let fleet = SimulatedFleet::start(config).unwrap();
        let machine = fleet.machine(0).unwrap();
        report_exit(&machine, GuestExit::Reset);
        assert!(matches!(
            machine.with_model(|machine, _| machine.power_phase()),
            PowerPhase::Post { .. }
        ));
        report_exit(&machine, GuestExit::PowerOff);
        assert!(
            matches!(
                machine.with_model(|machine, _| machine.power_phase()),
                PowerPhase::Post { .. }
            ),
            "an exit from before the restart is ignored"
        );
        machine.with_model(|machine, now| machine.advance(now.plus(Duration::from_secs(60))));
        report_exit(&machine, GuestExit::PowerOff);
        machine.with_model(|machine, now| machine.advance(now.plus(Duration::from_secs(120))));
        assert_eq!(machine.power_state(), fleet_sim::machine::PowerState::Off);
    }
}
