// SPDX-License-Identifier: Apache-2.0
//! The emulated BMCs of the machines: sushy-emulator, virtualbmc and ipmi_sim.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use serde_json::{Value, json};

use super::fill_template;
use super::folder::LabFolder;
use super::hardware::LabMachine;
use super::machines::{LabMachines, MACHINES};
use crate::shell::output_of;
use crate::test::process::{Process, free_port, with_death_signal};

const SUSHY_EMULATOR: &str = include_str!("../../../lab/sushy-emulator.conf");
const VIRTUALBMC: &str = include_str!("../../../lab/virtualbmc.conf");
const VIRTUALBMC_MACHINE: &str = include_str!("../../../lab/virtualbmc-machine.conf");
const IPMI_SIM: &str = include_str!("../../../lab/ipmi-sim.conf");
const IPMI_SIM_SENSORS: &str = include_str!("../../../lab/ipmi-sim.emu");
const CHASSIS_CONTROL: &str = include_str!("../../../lab/chassis-control.sh");

/// sushy-emulator accepts only bcrypt hashes of version 2a.
const HASH_PASSWORD: &str = "import bcrypt, sys
print(sys.argv[1] + ':' + bcrypt.hashpw(sys.argv[2].encode(), bcrypt.gensalt(4, b'2a')).decode())";

/// The account of all BMCs.
pub(super) struct LabCredentials {
    pub(super) username: String,
    pub(super) password: String,
}

/// A running emulator and its address.
pub(super) struct EmulatedBmc {
    pub(super) name: String,
    pub(super) process: Process,
    /// The entry in the inventory of the lab.
    pub(super) address: Value,
}

/// Starts all emulators in parallel and waits until each responds.
pub(super) fn start(
    folder: &LabFolder,
    machines: &LabMachines,
    environment: &Path,
    credentials: &LabCredentials,
) -> Result<Vec<EmulatedBmc>> {
    let place = EmulatorContext { folder, machines, environment, credentials };
    let passwords = place.passwords()?;
    let (certificate, key) = place.certificate()?;
    let https = Some((certificate.as_path(), key.as_path()));
    let mut started = vec![
        place.sushy_emulator("redfish", &passwords, None)?,
        place.sushy_emulator("redfish-https", &passwords, https)?,
        place.virtualbmc("virtualbmc")?,
        // It handles one request at a time, so the test that sends bad requests has its own.
        place.virtualbmc("virtualbmc-cases")?,
        place.virtualbmc("boot-bios")?,
        place.virtualbmc("journey-bios")?,
        place.ipmi_sim("ipmi-sim")?,
    ];
    for (bmc, port, protocol) in &mut started {
        match protocol {
            BmcProtocol::Redfish => bmc
                .process
                .wait_until(|| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok())?,
            BmcProtocol::Ipmi => bmc.process.wait_until(|| place.responds_to_ipmitool(*port))?,
        }
    }
    Ok(started.into_iter().map(|(bmc, _, _)| bmc).collect())
}

/// A started emulator that may not respond yet, with its port.
type StartedBmc = (EmulatedBmc, u16, BmcProtocol);

enum BmcProtocol {
    Redfish,
    Ipmi,
}

/// The context of all emulators.
struct EmulatorContext<'a> {
    folder: &'a LabFolder,
    machines: &'a LabMachines,
    environment: &'a Path,
    credentials: &'a LabCredentials,
}

impl EmulatorContext<'_> {
    /// Over HTTP it manages all machines; over HTTPS only the machine of its name, as most BMCs do.
    fn sushy_emulator(
        &self,
        name: &'static str,
        passwords: &Path,
        https: Option<(&Path, &Path)>,
    ) -> Result<StartedBmc> {
        let port = free_port()?;
        let state = self.folder.create_subfolder(&format!("{name}-state"))?;
        let machines: Vec<String> = MACHINES.iter().map(LabMachine::uuid).collect();
        let only = MACHINES.iter().find(|machine| machine.name == name);
        let (certificate, key) = https
            .map(|(certificate, key)| (certificate.to_string_lossy(), key.to_string_lossy()))
            .unwrap_or_default();
        let settings = fill_template(
            SUSHY_EMULATOR,
            &[
                ("port", &port.to_string()),
                ("certificate", &certificate),
                ("key", &key),
                ("passwords", &passwords.to_string_lossy()),
                ("state", &state.to_string_lossy()),
                ("uri", self.machines.uri()),
                ("machines", &machines.join(" ")),
                ("only", &only.map(LabMachine::uuid).unwrap_or_default()),
            ],
        );
        let settings = self.folder.write(&format!("{name}.conf"), &settings)?;
        let mut command = self.python("sushy-emulator");
        command.arg("--config").arg(settings);
        let scheme = if https.is_some() { "https" } else { "http" };
        let mut address = json!({ "url": format!("{scheme}://127.0.0.1:{port}") });
        if !certificate.is_empty() {
            address["certificate"] = json!(certificate);
        }
        Ok((self.run(name, command, address)?, port, BmcProtocol::Redfish))
    }

    fn virtualbmc(&self, machine: &'static str) -> Result<StartedBmc> {
        let port = free_port()?;
        let home = self.folder.create_subfolder(machine)?;
        self.folder.create_subfolder(&format!("{machine}/{machine}"))?;
        let settings = self.folder.write(
            &format!("{machine}.conf"),
            &fill_template(
                VIRTUALBMC,
                &[("folder", &home.to_string_lossy()), ("control_port", &free_port()?.to_string())],
            ),
        )?;
        self.folder.write(
            &format!("{machine}/{machine}/config"),
            &fill_template(
                VIRTUALBMC_MACHINE,
                &[
                    ("username", &self.credentials.username),
                    ("password", &self.credentials.password),
                    ("port", &port.to_string()),
                    ("machine", machine),
                    ("uri", self.machines.uri()),
                ],
            ),
        )?;
        let mut command = self.python("vbmcd");
        command.arg("--foreground").env("VIRTUALBMC_CONFIG", settings);
        let address = json!({ "port": port });
        Ok((self.run(machine, command, address)?, port, BmcProtocol::Ipmi))
    }

    fn ipmi_sim(&self, machine: &'static str) -> Result<StartedBmc> {
        let port = free_port()?;
        let program = self.folder.write("chassis-control.sh", CHASSIS_CONTROL)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
        let changes = self.folder.write("chassis-changes", "")?;
        let settings = self.folder.write(
            "ipmi-sim.conf",
            &fill_template(
                IPMI_SIM,
                &[
                    ("port", &port.to_string()),
                    ("program", &program.to_string_lossy()),
                    ("serial_port", &self.machines.serial_port().to_string()),
                    ("username", &self.credentials.username),
                    ("password", &self.credentials.password),
                ],
            ),
        )?;
        let sensors = self.folder.write("ipmi-sim.emu", IPMI_SIM_SENSORS)?;
        let state = self.folder.create_subfolder("ipmi-sim-state")?;
        let mut command = with_death_signal(Path::new("ipmi_sim"), "TERM", self.folder.path());
        command
            .arg("-c")
            .arg(settings)
            .arg("-f")
            .arg(sensors)
            .arg("-s")
            .arg(state)
            // Logs every message, for tests that check what was sent.
            .args(["-p", "-x", "debug msg"])
            .env("LAB_URI", self.machines.uri())
            .env("LAB_DOMAIN", machine)
            .env("LAB_CHANGES", &changes)
            // It logs messages only with an open standard input, and exits when that closes.
            .stdin(Stdio::piped());
        let address = json!({
            "port": port,
            "changes": changes,
            "messages": self.log(machine),
        });
        Ok((self.run(machine, command, address)?, port, BmcProtocol::Ipmi))
    }

    /// A program of the Python environment.
    fn python(&self, program: &str) -> Command {
        let program = self.environment.join("bin").join(program);
        let mut command = with_death_signal(&program, "TERM", self.folder.path());
        command.env("HOME", self.folder.path()).env("PYTHONUNBUFFERED", "1");
        command
    }

    fn run(&self, name: &'static str, command: Command, address: Value) -> Result<EmulatedBmc> {
        let process = Process::start(name, "TERM", command, self.log(name))?;
        Ok(EmulatedBmc { name: name.to_owned(), process, address })
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    fn passwords(&self) -> Result<PathBuf> {
        let line = output_of(
            Command::new(self.environment.join("bin/python"))
                .args(["-c", HASH_PASSWORD])
                .args([&self.credentials.username, &self.credentials.password]),
        )?;
        self.folder.write("passwords", &line)
    }

    /// A self-signed CA certificate, as `openssl req -x509` creates it.
    fn certificate(&self) -> Result<(PathBuf, PathBuf)> {
        let certificate = self.folder.path().join("bmc.crt");
        let key = self.folder.path().join("bmc.key");
        output_of(
            Command::new("openssl")
                .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
                .args(["-nodes", "-days", "2", "-subj", "/CN=lab-bmc"])
                .args(["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"])
                .arg("-keyout")
                .arg(&key)
                .arg("-out")
                .arg(&certificate),
        )?;
        Ok((certificate, key))
    }

    fn responds_to_ipmitool(&self, port: u16) -> bool {
        let LabCredentials { username, password } = self.credentials;
        Command::new("ipmitool")
            .args(["-I", "lanplus", "-C", "3", "-N", "1", "-R", "1", "-H", "127.0.0.1"])
            .args(["-p", &port.to_string(), "-U", username, "-P", password, "power", "status"])
            .output()
            .is_ok_and(|output| output.status.success())
    }
}
