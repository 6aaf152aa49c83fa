// SPDX-License-Identifier: Apache-2.0
//! A QEMU machine: its files and its process.

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
/// Paths of OVMF code and variable store on Debian, Fedora and Arch.
const FIRMWARE: &[(&str, &str)] = &[
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
];
const BASE_ARGUMENTS: &str =
    "-nodefaults -no-user-config -no-reboot -display none -machine q35 -cpu max";
const MEMORY_MIB: u32 = 1024;
/// The agent ignores disks smaller than 4 GiB as root device. The file is sparse.
const DISK_BYTES: u64 = 6 * 1024 * MEBIBYTE;
/// Port of the agent in the guest.
const AGENT_PORT: u16 = 9999;

/// With KVM, the first kernel message appears within a second.
const KVM_PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Address of this host on QEMU's user-mode network.
pub(super) const HOST: &str = "10.0.2.2";

/// The installed programs and firmware that QEMU machines need.
#[derive(Clone, Debug)]
pub(super) struct QemuInstallation {
    emulator: PathBuf,
    firmware: &'static (&'static str, &'static str),
    /// `setpriv` kills QEMU when this process ends for any reason. Not on every system.
    setpriv: Option<PathBuf>,
    /// `kvm` or `tcg`.
    accelerator: &'static str,
}

/// One machine and its files.
#[derive(Debug)]
pub(super) struct QemuMachine {
    qemu: QemuInstallation,
    pub(super) name: String,
    uuid: String,
    mac: String,
    boot_file: String,
    agent_port: u16,
    variables: PathBuf,
    disk: PathBuf,
    qemu_log: PathBuf,
    /// Output of the serial port.
    pub(super) console_log: PathBuf,
    /// Socket of the serial port while the machine is on; `None` if the path is too long for a socket.
    pub(super) serial_socket: Option<PathBuf>,
}

/// `sun_path` has 108 bytes; QEMU needs some of them.
const MAX_SOCKET_PATH: usize = 100;

/// The properties that differ between machines.
#[derive(Debug)]
pub(super) struct VmIdentity {
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) mac: String,
    /// Host port that is forwarded to the agent.
    pub(super) agent_port: u16,
}

/// The first boot device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BootSource {
    Network,
    Disk,
}

/// How a guest ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GuestExit {
    PowerOff,
    Reset,
}

/// A machine that is on. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct QemuProcess {
    process: Child,
    qmp_input: ChildStdin,
    /// Receives the exit when the process has ended or is about to.
    exit: oneshot::Receiver<GuestExit>,
    qemu_log: PathBuf,
}

impl QemuInstallation {
    /// Fails with the list of everything that is missing.
    pub(super) fn find() -> anyhow::Result<Self> {
        let firmware =
            FIRMWARE.iter().find(|(code, variables)| [code, variables].iter().all(is_file));
        let mut missing = Vec::new();
        let emulator = find_in_path(EMULATOR);
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
            (Some(emulator), Some(firmware)) if missing.is_empty() => Ok(Self {
                emulator,
                firmware,
                setpriv: find_in_path("setpriv"),
                accelerator: "tcg",
            }),
            _ => bail!(
                "QEMU machines need programs or files that are missing: {}; on Debian, run \
                 `apt-get install qemu-system-x86 ovmf ipxe-qemu systemd-boot-efi`",
                missing.join(", ")
            ),
        }
    }

    /// Uses KVM if it can run this kernel. On a virtual host, /dev/kvm may exist and not work.
    pub(super) fn with_kvm_if_it_works(mut self, kernel: &Path) -> Self {
        if kvm_works(&self.emulator, kernel) {
            self.accelerator = "kvm";
        }
        self
    }
}

impl QemuMachine {
    /// Creates a machine with an empty disk and its files in `folder`. Its NIC boots `boot_file`.
    pub(super) fn create(
        qemu: &QemuInstallation,
        identity: VmIdentity,
        boot_file: String,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let VmIdentity { name, uuid, mac, agent_port } = identity;
        let file = |ending: &str| folder.join(format!("{name}.{ending}"));
        let (variables, disk) = (file("variables"), file("disk"));
        let (console_log, qemu_log) = (file("console"), file("qemu-log"));
        let serial_socket =
            Some(file("serial")).filter(|path| path.as_os_str().len() <= MAX_SOCKET_PATH);
        // `fs::copy` would also copy the read-only mode of the original.
        fs::read(qemu.firmware.1)
            .and_then(|bytes| fs::write(&variables, bytes))
            .and_then(|()| File::create(&console_log))
            .and_then(|_| File::create(&disk))
            .and_then(|disk| disk.set_len(DISK_BYTES))
            .with_context(|| format!("cannot create the machine {name} in {}", folder.display()))?;
        Ok(Self {
            qemu: qemu.clone(),
            name,
            uuid,
            mac,
            boot_file,
            agent_port,
            variables,
            disk,
            qemu_log,
            console_log,
            serial_socket,
        })
    }

    pub(super) fn power_on(&self, source: BootSource) -> anyhow::Result<QemuProcess> {
        let failed = || format!("cannot start QEMU for {}", self.name);
        let qemu_log = File::create(&self.qemu_log).with_context(failed)?;
        let mut command = match &self.qemu.setpriv {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL"]).arg(&self.qemu.emulator);
                command
            }
            None => Command::new(&self.qemu.emulator),
        };
        command
            .args(self.arguments(source))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(qemu_log);
        let mut process = command.spawn().with_context(failed)?;
        let qmp_input = process.stdin.take().expect("stdin is a pipe");
        let qmp_output = process.stdout.take().expect("stdout is a pipe");
        let (sender, exit) = oneshot::channel();
        std::thread::spawn(move || {
            // The receiver is gone if the process was killed.
            let _ = sender.send(read_exit(qmp_output));
        });
        let mut qemu_process =
            QemuProcess { process, qmp_input, exit, qemu_log: self.qemu_log.clone() };
        // QMP sends events only after this command.
        qemu_process.execute("qmp_capabilities");
        Ok(qemu_process)
    }

    fn arguments(&self, source: BootSource) -> Vec<OsString> {
        let (network, disk) = match source {
            BootSource::Network => (0, 1),
            BootSource::Disk => (1, 0),
        };
        let Self { name, uuid, mac, boot_file, agent_port, .. } = self;
        let memory = MEMORY_MIB.to_string();
        let mut arguments: Vec<OsString> = Vec::new();
        let general = [
            BASE_ARGUMENTS,
            "-accel",
            self.qemu.accelerator,
            "-m",
            &memory,
            "-device virtio-rng-pci -qmp stdio -serial chardev:console -name",
            name,
            "-uuid",
            uuid,
        ];
        arguments.extend(general.iter().flat_map(|text| text.split(' ')).map(OsString::from));
        let code = Path::new(self.qemu.firmware.0);
        let mut chardev = match &self.serial_socket {
            None => OsString::from("file,id=console,append=on,path="),
            Some(socket) => {
                let mut chardev = OsString::from("socket,id=console,server=on,wait=off,path=");
                chardev.push(with_commas_doubled(socket));
                chardev.push(",logappend=on,logfile=");
                chardev
            }
        };
        chardev.push(with_commas_doubled(&self.console_log));
        arguments.extend([OsString::from("-chardev"), chardev]);
        for (option, text, file) in [
            ("-drive", "if=pflash,unit=0,format=raw,readonly=on,file=", Some(code)),
            ("-drive", "if=pflash,unit=1,format=raw,file=", Some(&*self.variables)),
            // The disk need not survive a power loss of this host.
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

impl QemuProcess {
    /// Waits until the guest ends. Fails if QEMU exits with an error.
    pub(super) async fn wait_for_exit(&mut self) -> anyhow::Result<GuestExit> {
        let exit = (&mut self.exit).await.context("the thread that reads QMP ended")?;
        let status = self.process.wait().context("cannot wait for QEMU")?;
        if !status.success() {
            let log = fs::read_to_string(&self.qemu_log).unwrap_or_default();
            bail!("QEMU ended with {status}: {}", log.trim());
        }
        Ok(exit)
    }

    /// Sends an ACPI power button event.
    pub(super) fn press_power_button(&mut self) {
        self.execute("system_powerdown");
    }

    /// Sends a QMP command. Write errors mean that QEMU has exited, which `wait_for_exit` reports.
    fn execute(&mut self, name: &str) {
        let command = format!("{{\"execute\": \"{name}\"}}\n");
        let _ = self.qmp_input.write_all(command.as_bytes());
    }
}

impl Drop for QemuProcess {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads QMP events until the end of the stream and returns how the guest ended.
fn read_exit(qmp_output: ChildStdout) -> GuestExit {
    let lines = BufReader::new(qmp_output).lines().map_while(Result::ok);
    lines.filter_map(|line| parse_exit_event(&line)).last().unwrap_or(GuestExit::PowerOff)
}

/// Parses a QMP message; `None` unless it is a `SHUTDOWN` event.
fn parse_exit_event(line: &str) -> Option<GuestExit> {
    let event: Value = serde_json::from_str(line).ok()?;
    if event["event"] != "SHUTDOWN" {
        return None;
    }
    let is_reset = event["data"]["reason"] == "guest-reset";
    Some(if is_reset { GuestExit::Reset } else { GuestExit::PowerOff })
}

/// Escapes commas, which separate options on QEMU's command line.
fn with_commas_doubled(path: &Path) -> OsString {
    match path.to_str() {
        Some(text) => text.replace(',', ",,").into(),
        None => path.into(),
    }
}

/// Whether KVM exists, is accessible, and runs a kernel to its first message.
fn kvm_works(emulator: &Path, kernel: &Path) -> bool {
    if File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return false;
    }
    let started = Command::new(emulator)
        .args(BASE_ARGUMENTS.split(' '))
        .args(["-accel", "kvm", "-m", "256", "-serial", "stdio"])
        .args(["-append", "console=ttyS0", "-kernel"])
        .arg(kernel)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut process) = started else { return false };
    let console = process.stdout.take().expect("stdout is a pipe");
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(console).split(b'\n').map_while(Result::ok);
        if lines.any(|line| String::from_utf8_lossy(&line).contains("Linux version")) {
            // The receiver is gone after the timeout.
            let _ = sender.send(());
        }
    });
    let works = receiver.recv_timeout(KVM_PROBE_TIMEOUT).is_ok();
    // Fails if the process has already ended.
    let _ = process.kill();
    let _ = process.wait();
    works
}

fn is_file(path: &&&str) -> bool {
    Path::new(path).is_file()
}

fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_reset_and_power_off() {
        let parse = |reason: &str| {
            parse_exit_event(&format!(
                r#"{{"event": "SHUTDOWN", "data": {{"reason": "{reason}"}}}}"#
            ))
        };
        assert_eq!(parse("guest-reset"), Some(GuestExit::Reset));
        assert_eq!(parse("guest-shutdown"), Some(GuestExit::PowerOff));
        for other in [r#"{"return": {}}"#, r#"{"event": "RESET"}"#, "QEMU 9"] {
            assert_eq!(parse_exit_event(other), None, "{other}");
        }
    }

    #[test]
    fn boot_source_sets_the_boot_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let machine = QemuMachine {
            qemu: QemuInstallation {
                emulator: path("qemu"),
                firmware: &("code", "variables"),
                setpriv: None,
                accelerator: "tcg",
            },
            name: "rack1-u01".to_owned(),
            uuid: "6c61620a-0000-4000-8000-000000000001".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            boot_file: "http://10.0.2.2:6180/boot.ipxe".to_owned(),
            agent_port: 40_000,
            variables: path("variables"),
            disk: "/srv/a,b/disk".into(),
            qemu_log: path("log"),
            console_log: path("console"),
            serial_socket: Some("/srv/a,b/serial".into()),
        };
        let arguments = |source: BootSource| {
            let arguments = machine.arguments(source).into_iter();
            arguments.map(|it| it.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        let from_network = arguments(BootSource::Network);
        for expected in [
            "mac=02:00:00:00:00:01,bootindex=0",
            "serial=rack1-u01,bootindex=1",
            "file=/srv/a,,b/disk",
            "socket,id=console,server=on,wait=off,path=/srv/a,,b/serial,logappend=on,logfile=/",
            "hostfwd=tcp:127.0.0.1:40000-:9999",
        ] {
            assert!(from_network.contains(expected), "{expected}: {from_network}");
        }
        assert!(arguments(BootSource::Disk).contains("serial=rack1-u01,bootindex=0"));
    }
}
