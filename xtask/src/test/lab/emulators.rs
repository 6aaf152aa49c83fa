// SPDX-License-Identifier: Apache-2.0
//! The BMCs in front of the machines: sushy-emulator twice, virtualbmc, ipmi_sim.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::filled_in;
use super::folder::Folder;
use super::hardware::Machine;
use super::machines::{MACHINES, Machines};
use crate::test::process::{Process, free_port, tied_to_us};

const SUSHY_EMULATOR: &str = include_str!("../../../lab/sushy-emulator.conf");
const VIRTUALBMC: &str = include_str!("../../../lab/virtualbmc.conf");
const VIRTUALBMC_MACHINE: &str = include_str!("../../../lab/virtualbmc-machine.conf");
const IPMI_SIM: &str = include_str!("../../../lab/ipmi-sim.conf");
const IPMI_SIM_SENSORS: &str = include_str!("../../../lab/ipmi-sim.emu");
const CHASSIS_CONTROL: &str = include_str!("../../../lab/chassis-control.sh");

/// sushy-emulator takes hashed passwords only, and only of this kind.
const HASH_PASSWORD: &str = "import bcrypt, sys
print(sys.argv[1] + ':' + bcrypt.hashpw(sys.argv[2].encode(), bcrypt.gensalt(4, b'2a')).decode())";

/// Who may sign in at the BMCs.
pub(super) struct Credentials {
    pub(super) username: String,
    pub(super) password: String,
}

/// An emulator and how it is reached.
pub(super) struct Bmc {
    pub(super) name: String,
    pub(super) process: Process,
    /// For the inventory.
    pub(super) address: Value,
}

/// Starts all, one beside the other, and waits until each answers.
pub(super) fn start(
    folder: &Folder,
    machines: &Machines,
    environment: &Path,
    credentials: &Credentials,
) -> Result<Vec<Bmc>> {
    let place = Place { folder, machines, environment, credentials };
    let passwords = place.passwords()?;
    let (certificate, key) = place.certificate()?;
    let https = Some((certificate.as_path(), key.as_path()));
    let mut started = vec![
        place.sushy_emulator("redfish", &passwords, None)?,
        place.sushy_emulator("redfish-https", &passwords, https)?,
        place.virtualbmc("virtualbmc")?,
        // It answers one request at a time, so who disturbs it has one for himself.
        place.virtualbmc("virtualbmc-mistakes")?,
        place.virtualbmc("boot-bios")?,
        place.virtualbmc("journey-bios")?,
        place.ipmi_sim("ipmi-sim")?,
    ];
    for (bmc, port, protocol) in &mut started {
        match protocol {
            Protocol::Redfish => bmc
                .process
                .wait_until(|| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok())?,
            Protocol::Ipmi => bmc.process.wait_until(|| place.answers_ipmitool(*port))?,
        }
    }
    Ok(started.into_iter().map(|(bmc, _, _)| bmc).collect())
}

/// Started, not yet known to answer.
type Started = (Bmc, u16, Protocol);

enum Protocol {
    Redfish,
    Ipmi,
}

/// What every emulator is given.
struct Place<'a> {
    folder: &'a Folder,
    machines: &'a Machines,
    environment: &'a Path,
    credentials: &'a Credentials,
}

impl Place<'_> {
    /// Over http in front of all machines; over https in front of the one that has its name, as most
    /// BMCs are.
    fn sushy_emulator(
        &self,
        name: &'static str,
        passwords: &Path,
        https: Option<(&Path, &Path)>,
    ) -> Result<Started> {
        let port = free_port()?;
        let state = self.folder.make_inside(&format!("{name}-state"))?;
        let machines: Vec<String> = MACHINES.iter().map(Machine::uuid).collect();
        let only = MACHINES.iter().find(|machine| machine.name == name);
        let (certificate, key) = https
            .map(|(certificate, key)| (certificate.to_string_lossy(), key.to_string_lossy()))
            .unwrap_or_default();
        let settings = filled_in(
            SUSHY_EMULATOR,
            &[
                ("port", &port.to_string()),
                ("certificate", &certificate),
                ("key", &key),
                ("passwords", &passwords.to_string_lossy()),
                ("state", &state.to_string_lossy()),
                ("uri", self.machines.uri()),
                ("machines", &machines.join(" ")),
                ("only", &only.map(Machine::uuid).unwrap_or_default()),
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
        Ok((self.run(name, command, address)?, port, Protocol::Redfish))
    }

    fn virtualbmc(&self, machine: &'static str) -> Result<Started> {
        let port = free_port()?;
        let home = self.folder.make_inside(machine)?;
        self.folder.make_inside(&format!("{machine}/{machine}"))?;
        let settings = self.folder.write(
            &format!("{machine}.conf"),
            &filled_in(
                VIRTUALBMC,
                &[("folder", &home.to_string_lossy()), ("control_port", &free_port()?.to_string())],
            ),
        )?;
        self.folder.write(
            &format!("{machine}/{machine}/config"),
            &filled_in(
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
        Ok((self.run(machine, command, address)?, port, Protocol::Ipmi))
    }

    fn ipmi_sim(&self, machine: &'static str) -> Result<Started> {
        let port = free_port()?;
        let program = self.folder.write("chassis-control.sh", CHASSIS_CONTROL)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
        let changes = self.folder.write("chassis-changes", "")?;
        let settings = self.folder.write(
            "ipmi-sim.conf",
            &filled_in(
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
        let state = self.folder.make_inside("ipmi-sim-state")?;
        let mut command = tied_to_us(Path::new("ipmi_sim"), "TERM", self.folder.path());
        command
            .arg("-c")
            .arg(settings)
            .arg("-f")
            .arg(sensors)
            .arg("-s")
            .arg(state)
            // Every message goes to the log, where the tests look up what reached it.
            .args(["-p", "-x", "debug msg"])
            .env("LAB_URI", self.machines.uri())
            .env("LAB_DOMAIN", machine)
            .env("LAB_CHANGES", &changes)
            // It prints messages only if it has a console, and ends with that.
            .stdin(Stdio::piped());
        let address = json!({
            "port": port,
            "changes": changes,
            "messages": self.log(machine),
        });
        Ok((self.run(machine, command, address)?, port, Protocol::Ipmi))
    }

    /// A program of the Python environment.
    fn python(&self, program: &str) -> Command {
        let program = self.environment.join("bin").join(program);
        let mut command = tied_to_us(&program, "TERM", self.folder.path());
        command.env("HOME", self.folder.path()).env("PYTHONUNBUFFERED", "1");
        command
    }

    fn run(&self, name: &'static str, command: Command, address: Value) -> Result<Bmc> {
        let process = Process::start(name, "TERM", command, self.log(name))?;
        Ok(Bmc { name: name.to_owned(), process, address })
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

    /// What an operator makes with the usual recipe: a certificate that signed itself and says it
    /// is an authority.
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

    fn answers_ipmitool(&self, port: u16) -> bool {
        let Credentials { username, password } = self.credentials;
        Command::new("ipmitool")
            .args(["-I", "lanplus", "-C", "3", "-N", "1", "-R", "1", "-H", "127.0.0.1"])
            .args(["-p", &port.to_string(), "-U", username, "-P", password, "power", "status"])
            .output()
            .is_ok_and(|output| output.status.success())
    }
}

fn output_of(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
