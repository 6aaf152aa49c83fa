// SPDX-License-Identifier: Apache-2.0
//! A QEMU machine: what it is made of, and the process that it is while it is on.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::sync::oneshot;

use super::MEBIBYTE;
use super::image::STUB;

const EMULATOR: &str = "qemu-system-x86_64";
/// Where OVMF is: the program, and the variables it begins with. Debian, Fedora, Arch.
const FIRMWARE: &[(&str, &str)] = &[
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
];
/// A computer with nothing in it but what is asked for.
const GENERAL: &str = "-nodefaults -no-user-config -no-reboot -display none -machine q35 -cpu max";
const MEMORY_MIB: u32 = 1024;
/// An agent takes no disk smaller than 4 GiB for the root device. The file has holes.
const DISK_BYTES: u64 = 6 * 1024 * MEBIBYTE;
/// Where the agent listens on its machine.
const AGENT_PORT: u16 = 9999;

/// With KVM, a kernel speaks before a second is over.
const KVM_SPEAKS_WITHIN: Duration = Duration::from_secs(10);

/// By which address machines on QEMU's own network reach this computer.
pub(super) const HOST: &str = "10.0.2.2";

/// What has to be installed to have machines.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    emulator: PathBuf,
    firmware: &'static (&'static str, &'static str),
    /// Ends what it starts when we end, however that happens. Not on every system.
    leash: Option<PathBuf>,
    /// What runs the machines' programs: the processor, or QEMU.
    accelerator: &'static str,
}

/// What one machine is made of.
#[derive(Debug)]
pub(super) struct Hardware {
    installed: Installed,
    pub(super) name: String,
    uuid: String,
    mac: String,
    boot_file: String,
    agent_port: u16,
    variables: PathBuf,
    disk: PathBuf,
    complaints: PathBuf,
    /// What it says on its serial port.
    pub(super) console: PathBuf,
    /// Where its serial port is while it is on; none where sockets cannot have such long names.
    pub(super) serial: Option<PathBuf>,
}

/// The longest name that a socket in a folder can have.
const LONGEST_SOCKET: usize = 100;

/// What tells one machine from another.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) mac: String,
    /// The port of this computer by which its agent is reached.
    pub(super) agent_port: u16,
}

/// What firmware tries first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Network,
    Disk,
}

/// How a machine came to its end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its system switched it off.
    Off,
    /// Its system wants it to start again.
    Reset,
}

/// A machine that is on. Dropping it cuts the power.
#[derive(Debug)]
pub(super) struct Running {
    process: Child,
    orders: ChildStdin,
    /// Told when the process has ended, or is about to.
    end: oneshot::Receiver<End>,
    complaints: PathBuf,
}

impl Installed {
    /// Looks for everything, and says all that is missing.
    pub(super) fn find() -> anyhow::Result<Self> {
        let firmware =
            FIRMWARE.iter().find(|(code, variables)| [code, variables].iter().all(is_file));
        let mut missing = Vec::new();
        let emulator = in_path(EMULATOR);
        if emulator.is_none() {
            missing.push(EMULATOR.to_owned());
        }
        if firmware.is_none() {
            missing.push("the firmware OVMF".to_owned());
        }
        if !Path::new(STUB).is_file() {
            missing.push(STUB.to_owned());
        }
        match (emulator, firmware) {
            (Some(emulator), Some(firmware)) if missing.is_empty() => {
                Ok(Self { emulator, firmware, leash: in_path("setpriv"), accelerator: "tcg" })
            }
            _ => bail!(
                "QEMU machines need what is not here: {}; on Debian, \
                 `apt-get install qemu-system-x86 ovmf ipxe-qemu systemd-boot-efi`",
                missing.join(", ")
            ),
        }
    }

    /// Uses KVM if that runs this kernel. On computers that are virtual themselves it may be there
    /// and start nothing.
    pub(super) fn with_kvm_if_it_works(mut self, kernel: &Path) -> Self {
        if kvm_runs(&self.emulator, kernel) {
            self.accelerator = "kvm";
        }
        self
    }
}

impl Hardware {
    /// Makes a machine with an empty disk, its files in `folder`. Its card loads `boot_file`.
    pub(super) fn make(
        installed: &Installed,
        identity: Identity,
        boot_file: String,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let Identity { name, uuid, mac, agent_port } = identity;
        let file = |ending: &str| folder.join(format!("{name}.{ending}"));
        let (variables, disk) = (file("variables"), file("disk"));
        let (console, complaints) = (file("console"), file("qemu-log"));
        let serial = Some(file("serial")).filter(|path| path.as_os_str().len() <= LONGEST_SOCKET);
        // A copy of its own; writing the bytes leaves behind who may write to the original.
        fs::read(installed.firmware.1)
            .and_then(|bytes| fs::write(&variables, bytes))
            .and_then(|()| File::create(&console))
            .and_then(|_| File::create(&disk))
            .and_then(|disk| disk.set_len(DISK_BYTES))
            .with_context(|| format!("cannot make the machine {name} in {}", folder.display()))?;
        let installed = installed.clone();
        Ok(Self {
            installed,
            name,
            uuid,
            mac,
            boot_file,
            agent_port,
            variables,
            disk,
            complaints,
            console,
            serial,
        })
    }

    /// Switches it on.
    pub(super) fn switch_on(&self, source: Source) -> anyhow::Result<Running> {
        let failed = || format!("cannot start QEMU for {}", self.name);
        let complaints = File::create(&self.complaints).with_context(failed)?;
        let mut command = match &self.installed.leash {
            Some(leash) => {
                let mut command = Command::new(leash);
                command.args(["--pdeathsig", "KILL"]).arg(&self.installed.emulator);
                command
            }
            None => Command::new(&self.installed.emulator),
        };
        command
            .args(self.arguments(source))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(complaints);
        let mut process = command.spawn().with_context(failed)?;
        let orders = process.stdin.take().expect("its input is a pipe");
        let events = process.stdout.take().expect("its output is a pipe");
        let (told, end) = oneshot::channel();
        std::thread::spawn(move || {
            // Nobody waits for the end of a machine whose power was cut.
            let _ = told.send(listen(events));
        });
        let mut running = Running { process, orders, end, complaints: self.complaints.clone() };
        // Only who says this is told what happens.
        running.order("qmp_capabilities");
        Ok(running)
    }

    fn arguments(&self, source: Source) -> Vec<OsString> {
        let (network, disk) = match source {
            Source::Network => (0, 1),
            Source::Disk => (1, 0),
        };
        let Self { name, uuid, mac, boot_file, agent_port, .. } = self;
        let memory = MEMORY_MIB.to_string();
        let mut arguments: Vec<OsString> = Vec::new();
        let general = [
            GENERAL,
            "-accel",
            self.installed.accelerator,
            "-m",
            &memory,
            "-device virtio-rng-pci -qmp stdio -serial chardev:console -name",
            name,
            "-uuid",
            uuid,
        ];
        arguments.extend(general.iter().flat_map(|text| text.split(' ')).map(OsString::from));
        let code = Path::new(self.installed.firmware.0);
        let mut port = match &self.serial {
            None => OsString::from("file,id=console,append=on,path="),
            Some(socket) => {
                let mut port = OsString::from("socket,id=console,server=on,wait=off,path=");
                port.push(with_commas_doubled(socket));
                port.push(",logappend=on,logfile=");
                port
            }
        };
        port.push(with_commas_doubled(&self.console));
        arguments.extend([OsString::from("-chardev"), port]);
        for (option, text, file) in [
            ("-drive", "if=pflash,unit=0,format=raw,readonly=on,file=", Some(code)),
            ("-drive", "if=pflash,unit=1,format=raw,file=", Some(&*self.variables)),
            // What is on it need not outlive the power of this computer.
            ("-drive", "if=none,id=disk,format=raw,cache=unsafe,file=", Some(&*self.disk)),
            ("-device", &format!("virtio-blk-pci,drive=disk,serial={name},bootindex={disk}"), None),
            (
                "-netdev",
                &format!(
                    "user,id=net,bootfile={boot_file},hostfwd=tcp:127.0.0.1:{agent_port}-:{AGENT_PORT}"
                ),
                None,
            ),
            ("-device", &format!("virtio-net-pci,netdev=net,mac={mac},bootindex={network}"), None),
        ] {
            let mut value = OsString::from(text);
            value.extend(file.map(with_commas_doubled));
            arguments.extend([OsString::from(option), value]);
        }
        arguments
    }
}

impl Running {
    /// Waits until the machine ends by itself.
    pub(super) async fn ended(&mut self) -> anyhow::Result<End> {
        let end = (&mut self.end).await.context("nobody listens to QEMU")?;
        let status = self.process.wait().context("cannot wait for QEMU")?;
        if !status.success() {
            let said = fs::read_to_string(&self.complaints).unwrap_or_default();
            bail!("QEMU ended with {status}: {}", said.trim());
        }
        Ok(end)
    }

    /// Asks the system on it to close down, as the button on the front does.
    pub(super) fn press_button(&mut self) {
        self.order("system_powerdown");
    }

    /// What cannot be told to a machine has ended, which is seen elsewhere.
    fn order(&mut self, what: &str) {
        let order = format!("{{\"execute\": \"{what}\"}}\n");
        let _ = self.orders.write_all(order.as_bytes());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already is what was wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads what QEMU tells until there is no more; how the machine ended is among it.
fn listen(events: ChildStdout) -> End {
    let lines = BufReader::new(events).lines().map_while(Result::ok);
    lines.filter_map(|line| end_told(&line)).last().unwrap_or(End::Off)
}

/// What an event says about the end of the machine, if it is about that.
fn end_told(line: &str) -> Option<End> {
    let event: Value = serde_json::from_str(line).ok()?;
    if event["event"] != "SHUTDOWN" {
        return None;
    }
    let is_reset = event["data"]["reason"] == "guest-reset";
    Some(if is_reset { End::Reset } else { End::Off })
}

/// A comma ends a value on QEMU's command line, and two are one.
fn with_commas_doubled(path: &Path) -> OsString {
    match path.to_str() {
        Some(text) => text.replace(',', ",,").into(),
        None => path.into(),
    }
}

/// Whether KVM is there, may be used, and runs a kernel far enough for it to say its name.
fn kvm_runs(emulator: &Path, kernel: &Path) -> bool {
    if File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return false;
    }
    let started = Command::new(emulator)
        .args(GENERAL.split(' '))
        .args(["-accel", "kvm", "-m", "256", "-serial", "stdio"])
        .args(["-append", "console=ttyS0", "-kernel"])
        .arg(kernel)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut process) = started else { return false };
    let console = process.stdout.take().expect("its output is a pipe");
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(console).split(b'\n').map_while(Result::ok);
        if lines.any(|line| String::from_utf8_lossy(&line).contains("Linux version")) {
            // Who no longer listens has given up.
            let _ = told.send(());
        }
    });
    let is_heard = heard.recv_timeout(KVM_SPEAKS_WITHIN).is_ok();
    // It may have ended by itself.
    let _ = process.kill();
    let _ = process.wait();
    is_heard
}

fn is_file(path: &&&str) -> bool {
    Path::new(path).is_file()
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_told_from_an_end() {
        let told = |reason: &str| {
            end_told(&format!(r#"{{"event": "SHUTDOWN", "data": {{"reason": "{reason}"}}}}"#))
        };
        assert_eq!(told("guest-reset"), Some(End::Reset));
        assert_eq!(told("guest-shutdown"), Some(End::Off));
        for other in [r#"{"return": {}}"#, r#"{"event": "RESET"}"#, "QEMU 9"] {
            assert_eq!(end_told(other), None, "{other}");
        }
    }

    #[test]
    fn firmware_tries_what_it_is_told_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let hardware = Hardware {
            installed: Installed {
                emulator: path("qemu"),
                firmware: &("code", "variables"),
                leash: None,
                accelerator: "tcg",
            },
            name: "rack1-u01".to_owned(),
            uuid: "6c61620a-0000-4000-8000-000000000001".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            boot_file: "http://10.0.2.2:6180/boot.ipxe".to_owned(),
            agent_port: 40_000,
            variables: path("variables"),
            disk: "/srv/a,b/disk".into(),
            complaints: path("log"),
            console: path("console"),
            serial: Some("/srv/a,b/serial".into()),
        };
        let said = |source: Source| {
            let arguments = hardware.arguments(source).into_iter();
            arguments.map(|it| it.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        let from_network = said(Source::Network);
        for expected in [
            "mac=02:00:00:00:00:01,bootindex=0",
            "serial=rack1-u01,bootindex=1",
            "file=/srv/a,,b/disk",
            "socket,id=console,server=on,wait=off,path=/srv/a,,b/serial,logappend=on,logfile=/",
            "hostfwd=tcp:127.0.0.1:40000-:9999",
        ] {
            assert!(from_network.contains(expected), "{expected}: {from_network}");
        }
        assert!(said(Source::Disk).contains("serial=rack1-u01,bootindex=0"));
    }
}
