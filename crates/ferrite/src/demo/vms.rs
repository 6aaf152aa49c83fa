// SPDX-License-Identifier: Apache-2.0
//! `ferrite demo --vms`: QEMU machines instead of simulated ones.
//!
//! Each machine has a BMC of the simulated fleet, and whatever that BMC makes of its machine's power
//! is done to a QEMU process: real firmware loads the real agent over QEMU's own network, which needs
//! no rights, and what the agent writes to the disk boots from there.

mod image;
mod qemu;
mod serial;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use fleet_sim::machine::{BootTarget, Power, Reset};
use fleet_sim::{Enrolment, Fleet, FleetConfig, Personality, SimulatedMachine};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::display::Display;
use super::rack;
use crate::config::Config;
use crate::ramdisk::{default_folder, file_url};
use image::{GREETING, Image};
use qemu::{End, HOST, Hardware, Identity, Installed, Running, Source};

const MEBIBYTE: u64 = 1 << 20;
/// How often it is looked at what a BMC did to its machine.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a deployed system may take to say something. Without KVM, and with as many machines as
/// processors, it takes half a minute.
const BOOTS_WITHIN: Duration = Duration::from_secs(600);
/// For every kernel on the machines. Where the processor is emulated and others want it too, a kernel
/// that looks whether its timer works finds that it does not, and loses a minute over it.
const KERNEL_PARAMETERS: &str = "console=ttyS0,115200n8 quiet panic=5 no_timer_check";
const BMC: &str = include_str!("vms/bmc.toml");

/// Everything that machines are made of, found and made before anything starts.
#[derive(Debug)]
pub(super) struct Workshop {
    count: u8,
    installed: Installed,
    ramdisk: ramdisk::Found,
    image: Image,
    folder: PathBuf,
    /// Where the API is, and by which port of this computer the files and each agent are reached.
    api: SocketAddr,
    files: u16,
    agents: Vec<u16>,
}

/// The machines. Dropping it cuts their power.
#[derive(Debug)]
pub(super) struct Machines {
    consoles: Consoles,
    following: JoinSet<anyhow::Result<Infallible>>,
}

/// The files with what machines say on their serial ports, by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Consoles(Vec<(String, PathBuf)>);

impl Workshop {
    /// Makes what `count` machines need, in `folder`. They boot the ramdisk of another folder, by
    /// default the one `ferrite serve` uses.
    pub(super) fn open(
        count: u8,
        ramdisk: Option<&Path>,
        listen: SocketAddr,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        if listen.is_ipv6() {
            bail!("QEMU machines call IPv4 addresses only; give --listen such a one");
        }
        let installed = Installed::find()?;
        let ramdisk = find_ramdisk(ramdisk)?;
        let installed = installed.with_kvm_if_it_works(&ramdisk.kernel);
        let image = Image::make(folder.join("image.raw"), &ramdisk)?;
        let mut ports = free_ports(usize::from(count) + 2)?;
        let (files, any) = (ports.pop().unwrap_or_default(), ports.pop().unwrap_or_default());
        let mut api = listen;
        if api.port() == 0 {
            api.set_port(any);
        }
        let folder = folder.to_owned();
        Ok(Self { count, installed, ramdisk, image, folder, api, files, agents: ports })
    }

    /// The service such machines need.
    pub(super) fn configure(&self, config: &mut Config) {
        config.api.listen = self.api;
        let boot = &mut config.boot;
        boot.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, self.files))];
        boot.http_url = Some(self.files_url());
        boot.api_url = Some(if self.api.ip().is_loopback() {
            format!("http://{HOST}:{}", self.api.port())
        } else {
            format!("http://{}", self.api)
        });
        boot.deploy_kernel = Some(file_url(&self.ramdisk.kernel));
        boot.deploy_ramdisk = Some(file_url(&self.ramdisk.ramdisk));
        // Nobody says anything by LLDP on QEMU's network.
        boot.inspection_kernel_params = String::new();
        let folders = [Some(&*self.folder), self.ramdisk.kernel.parent()];
        config.images.file_url_allowed_paths =
            folders.into_iter().flatten().map(Path::to_owned).collect();
        config.inspection.hooks = "$default_hooks,cpus,memory".to_owned();
        // An agent stays from inspection to deployment: one boot is enough to see.
        config.lifecycle.fast_track = true;
        // The disks are new. Overwriting them would take as long as all the rest.
        config.drivers.agent.erase_devices_priority = Some(0);
    }

    /// The BMCs.
    pub(super) fn fleet(&self) -> anyhow::Result<FleetConfig> {
        Ok(FleetConfig {
            bmcs: u32::from(self.count),
            personalities: vec![Personality::parse(BMC)?],
            ipmi: true,
            ..FleetConfig::default()
        })
    }

    /// What is deployed to all of them.
    pub(super) fn instance_info(&self) -> Value {
        json!({
            "image_source": file_url(&self.image.path),
            "image_checksum": self.image.sha256,
        })
    }

    /// What the server is told about the machines, and what not: how their agents are reached, but
    /// nothing of what is in them.
    pub(super) fn complete(&self, enrolments: &mut [Enrolment]) {
        for (enrolment, port) in enrolments.iter_mut().zip(&self.agents) {
            let parameters = format!(
                "{KERNEL_PARAMETERS} ipa-advertise-host={} ipa-advertise-port={port}",
                Ipv4Addr::LOCALHOST
            );
            // Inspection is to find out.
            for property in ["cpus", "memory_mb", "local_gb"] {
                enrolment.properties.remove(property);
            }
            enrolment.driver_info.insert("kernel_append_params".to_owned(), json!(parameters));
        }
    }

    /// Makes a machine for each BMC, which switches it from now on.
    pub(super) fn plug_in(&self, fleet: &Fleet) -> anyhow::Result<Machines> {
        let mut machines = Machines { consoles: Consoles::default(), following: JoinSet::new() };
        for ((machine, agent_port), index) in fleet.machines().zip(&self.agents).zip(0..) {
            let macs = machine.macs();
            let identity = Identity {
                name: rack::name(index),
                uuid: machine.with(|machine, _| machine.identity().uuid()),
                mac: macs.first().context("the machine has a network card")?.to_string(),
                agent_port: *agent_port,
            };
            let boot_file = format!("{}/boot.ipxe", self.files_url());
            let hardware = Hardware::make(&self.installed, identity, boot_file, &self.folder)?;
            machines.consoles.0.push((rack::name(index), hardware.console.clone()));
            if let Some(socket) = &hardware.serial {
                let line = machine.plug_in_serial_line();
                machines.following.spawn(serial::join(line, socket.clone()));
            }
            machines.following.spawn(follow(machine, hardware));
        }
        Ok(machines)
    }

    fn files_url(&self) -> String {
        format!("http://{HOST}:{}", self.files)
    }
}

impl Machines {
    pub(super) fn consoles(&self) -> Consoles {
        self.consoles.clone()
    }

    /// Ends when one of the machines cannot be had.
    pub(super) async fn broken(&mut self) -> anyhow::Error {
        match self.following.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => anyhow::Error::new(error).context("a machine is not looked after"),
            None => std::future::pending().await,
        }
    }
}

impl Consoles {
    /// Says where each machine's console can be looked at, beside its page.
    pub(super) fn introduce(&self, display: &mut Display) {
        let machines = match self.0.len() {
            1 => "1 QEMU machine".to_owned(),
            count => format!("{count} QEMU machines"),
        };
        display.say(&format!(
            "rack      {machines}: firmware, netboot, agent and disk are real; minutes without KVM"
        ));
        for (name, console) in &self.0 {
            display.say(&format!("console   tail -f {}  # {name}", console.display()));
        }
    }

    /// Waits until every deployed system has said on its console that it is there.
    pub(super) async fn greet(&self, display: &mut Display) -> anyhow::Result<()> {
        let began = Instant::now();
        display.say(
            "All are active. Now they boot what was deployed: waiting for its greeting on their consoles…",
        );
        for (name, console) in &self.0 {
            let greeting = loop {
                let said = tokio::fs::read(console).await.unwrap_or_default();
                let said = String::from_utf8_lossy(&said);
                if let Some(line) = said.lines().find(|line| line.contains(GREETING)) {
                    break line.trim().to_owned();
                }
                if began.elapsed() > BOOTS_WITHIN {
                    bail!("{name} says nothing on its console; its end: {}", last_of(&said));
                }
                tokio::time::sleep(LOOK_EVERY).await;
            };
            display.say(&format!("{name} says: {greeting}"));
        }
        Ok(())
    }
}

/// Does to a QEMU process what a BMC does to its machine, and tells the BMC what the machine did by
/// itself. Ends only if there is no machine to be had.
async fn follow(machine: SimulatedMachine, hardware: Hardware) -> anyhow::Result<Infallible> {
    let mut running: Option<Running> = None;
    let mut last_boot = None;
    let mut is_asked_to_end = false;
    loop {
        let (boot, is_closing_down) = machine.with(|machine, _| {
            let boot = machine.booted().map(|boot| (machine.boot_count(), source(boot.from)));
            (boot, matches!(machine.power(), Power::ShuttingDown { .. }))
        });
        match boot {
            None => running = None,
            Some((count, source)) if last_boot != Some(count) => {
                // The old process has to be gone before another has its files and its port.
                drop(running.take());
                running = Some(hardware.switch_on(source)?);
                (last_boot, is_asked_to_end) = (Some(count), false);
            }
            Some(_) => {}
        }
        if is_closing_down
            && !is_asked_to_end
            && let Some(running) = &mut running
        {
            running.press_button();
            is_asked_to_end = true;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            end = ended(&mut running) => {
                running = None;
                tell(&machine, end.with_context(|| format!("{} is broken", hardware.name))?);
            }
        }
    }
}

/// Tells the BMC of an end it did not cause. One that it asked for, it waits for by itself.
fn tell(machine: &SimulatedMachine, end: End) {
    machine.with(|machine, now| {
        if machine.power() != Power::Running {
            return;
        }
        match end {
            End::Off => machine.go_off(now),
            End::Reset => machine
                .reset(Reset::ForceRestart, now)
                .expect("a machine that is on can be restarted"),
        }
    });
}

async fn ended(running: &mut Option<Running>) -> anyhow::Result<End> {
    match running {
        Some(running) => running.ended().await,
        None => std::future::pending().await,
    }
}

/// There are two devices: whatever is not the network is the disk.
fn source(target: BootTarget) -> Source {
    match target {
        BootTarget::Pxe | BootTarget::UefiHttp => Source::Network,
        BootTarget::None
        | BootTarget::Floppy
        | BootTarget::Cd
        | BootTarget::Usb
        | BootTarget::UsbCd
        | BootTarget::Hdd
        | BootTarget::BiosSetup
        | BootTarget::Utilities
        | BootTarget::Diags
        | BootTarget::UefiShell => Source::Disk,
    }
}

fn find_ramdisk(named: Option<&Path>) -> anyhow::Result<ramdisk::Found> {
    let folder = match named {
        Some(folder) => folder.to_owned(),
        None => default_folder()?,
    };
    // Addresses of files begin at the root.
    let found = folder.canonicalize().ok().and_then(|folder| ramdisk::find(&folder));
    let Some(found) = found else {
        bail!(
            "there is no ramdisk with the agent in {}; make one with `cargo rustc -p agent --bin \
             ferrite-agent --profile agent --target x86_64-unknown-linux-gnu -- -C \
             target-feature=+crt-static` and `cargo run --release -- ramdisk build --from-debian \
             --drivers virtual --agent target/x86_64-unknown-linux-gnu/agent/ferrite-agent`, or \
             name the folder with --ramdisk",
            folder.display()
        );
    };
    Ok(found)
}

/// Ports of this computer that nobody has at the moment. Not those that connections take from the
/// other side: while a machine is off nobody holds the port of its agent.
fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    const FIRST: u32 = 20_000;
    const END: u32 = 32_768;
    /// Demonstrations side by side begin at different ones.
    const APART: u32 = 16;
    let begin = FIRST + std::process::id() % ((END - FIRST) / APART) * APART;
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let all = (begin..END).chain(FIRST..begin).filter_map(|port| u16::try_from(port).ok());
    let ports: Vec<u16> = all.filter(is_free).take(count).collect();
    if ports.len() < count {
        bail!("there are not {count} free ports between {FIRST} and {END}");
    }
    Ok(ports)
}

fn last_of(said: &str) -> &str {
    said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("nothing at all")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bmc_is_one_the_fleet_knows() {
        assert_eq!(Personality::parse(BMC).unwrap().network.count, 1);
    }

    #[test]
    fn ports_are_different() {
        let mut ports = free_ports(10).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 10);
    }

    /// What the system on the machine does is what the BMC shows next.
    #[tokio::test]
    async fn the_bmc_follows_what_the_machine_does_by_itself() {
        let personalities = vec![Personality::parse(BMC).unwrap()];
        let config = FleetConfig { personalities, powered_on: true, ..FleetConfig::default() };
        let fleet = Fleet::start(config).unwrap();
        let machine = fleet.machine(0).unwrap();
        tell(&machine, End::Reset);
        assert!(matches!(machine.with(|machine, _| machine.power()), Power::Post { .. }));
        tell(&machine, End::Off);
        assert!(
            matches!(machine.with(|machine, _| machine.power()), Power::Post { .. }),
            "what it did before the restart is of no interest"
        );
        machine.with(|machine, now| machine.advance(now.plus(Duration::from_secs(60))));
        tell(&machine, End::Off);
        machine.with(|machine, now| machine.advance(now.plus(Duration::from_secs(120))));
        assert_eq!(machine.power(), fleet_sim::machine::PowerState::Off);
    }
}
