// SPDX-License-Identifier: Apache-2.0
//! A simulated machine, an image server and `ferrite run` processes that use them.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fleet_sim::{FleetConfig, Personality, SimulatedAgentConfig, SimulatedFleet, SimulatedMachine};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::test_process::{TestHome, ferrite};

/// The image and its SHA-256.
const IMAGE: &[u8] = b"abc";
pub(super) const IMAGE_SHA256: &str =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const TIMEOUT: Duration = Duration::from_secs(120);

/// One simulated machine with an agent, and a folder for files and processes.
pub(super) struct RunRig {
    home: TestHome,
    runtime: Runtime,
    fleet: Option<SimulatedFleet>,
    pub(super) image_server: String,
    logs: AtomicUsize,
}

/// A running `ferrite run` with JSON output. Killed when dropped.
pub(super) struct RunProcess<'a> {
    rig: &'a RunRig,
    process: Child,
    stdout: BufReader<ChildStdout>,
    lines: Vec<Value>,
    log: PathBuf,
}

/// A finished `ferrite run` with JSON output.
pub(super) struct FinishedRun {
    pub(super) code: i32,
    pub(super) lines: Vec<Value>,
}

impl RunRig {
    pub(super) fn new() -> Self {
        let home = TestHome::new();
        std::fs::create_dir(home.path("tmp")).unwrap();
        let runtime = Runtime::new().unwrap();
        let guard = runtime.enter();
        let agents = SimulatedAgentConfig {
            tls: true,
            downloads_images: true,
            ..SimulatedAgentConfig::for_api("http://127.0.0.1:1")
        };
        let fleet = SimulatedFleet::start(FleetConfig {
            bmcs: 1,
            personalities: vec![Personality::built_in("generic").unwrap()],
            speed: 100.0,
            agents: Some(agents),
            ..FleetConfig::default()
        })
        .unwrap();
        drop(guard);
        let image_server = serve_image();
        Self { home, runtime, fleet: Some(fleet), image_server, logs: AtomicUsize::new(0) }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path(name)
    }

    pub(super) fn fleet(&self) -> &SimulatedFleet {
        self.fleet.as_ref().unwrap()
    }

    pub(super) fn machine(&self) -> SimulatedMachine {
        self.fleet().machine(0).unwrap()
    }

    pub(super) fn add_fault(&self, rule: &str) {
        let fleet = self.fleet();
        fleet.faults().add(rule.parse().unwrap(), fleet.now());
    }

    /// The host file of the machine.
    pub(super) fn host(&self) -> Value {
        let enrolment = self.machine().redfish_enrolment(None);
        let mut driver_info = json!(enrolment.driver_info);
        for file in ["kernel", "ramdisk"] {
            driver_info[format!("deploy_{file}")] = json!(format!("{}/{file}", self.image_server));
        }
        let ports: Vec<&str> = enrolment.ports.iter().map(|port| port.address.as_str()).collect();
        json!({
            "name": enrolment.name,
            "driver": enrolment.driver,
            "driver_info": driver_info,
            "properties": enrolment.properties,
            "ports": ports,
            "boot_interface": "ipxe",
            "deploy_interface": "direct",
            "inspect_interface": "agent",
            "deploy": {
                "image": format!("{}/image.raw", self.image_server),
                "checksum": IMAGE_SHA256,
                "ssh_keys": ["ssh-ed25519 AAAA ann"],
            },
        })
    }

    /// Writes a host file and returns its name.
    pub(super) fn write_host(&self, name: &str, host: &Value) -> String {
        std::fs::write(self.path(name), host.to_string()).unwrap();
        name.to_owned()
    }

    pub(super) fn start(&self, operation: &[&str], host: &str, options: &[&str]) -> RunProcess<'_> {
        self.start_with(operation, host, options, &[])
    }

    pub(super) fn start_with(
        &self,
        operation: &[&str],
        host: &str,
        options: &[&str],
        variables: &[(&str, &str)],
    ) -> RunProcess<'_> {
        let mut command = self.command(operation, host, &["--output", "json"]);
        command.args(options).envs(variables.iter().copied());
        self.spawn(&mut command)
    }

    /// Starts a command with JSON output.
    pub(super) fn spawn(&self, command: &mut Command) -> RunProcess<'_> {
        let log = self.path(&format!("log-{}", self.logs.fetch_add(1, Ordering::Relaxed)));
        command.current_dir(self.path("")).env("TMPDIR", self.path("tmp"));
        // The image server of the test listens on loopback.
        command.env("FERRITE_IMAGES__ALLOW_LOCAL_URLS", "true");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(File::create(&log).unwrap());
        let mut process = command.spawn().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        RunProcess { rig: self, process, stdout, lines: Vec::new(), log }
    }

    /// Runs an operation to its end, with agents if the machine boots them.
    pub(super) fn run(&self, operation: &[&str], host: &str, options: &[&str]) -> FinishedRun {
        let (code, lines) = self.start(operation, host, options).finish();
        FinishedRun { code, lines }
    }

    pub(super) fn run_text(&self, operation: &[&str], host: &str) -> Output {
        let mut command = self.command(operation, host, &[]);
        command.current_dir(self.path("")).stdin(Stdio::null()).output().unwrap()
    }

    fn command(&self, operation: &[&str], host: &str, options: &[&str]) -> Command {
        let mut command = ferrite();
        command.arg("run").args(operation).args(["--host", host]);
        command.args(["--listen", "127.0.0.1:0", "--boot-listen", "127.0.0.1:0"]).args(options);
        // These machines get no addresses from DHCP, so their agents have no boot proof.
        command.env("FERRITE_CONDUCTOR__AGENT_BOOT_PROOF", "none");
        command.env("FERRITE_LIFECYCLE__BMC_TIMEOUT", "1");
        command
    }
}

impl Drop for RunRig {
    fn drop(&mut self) {
        if let Some(fleet) = self.fleet.take() {
            self.runtime.block_on(fleet.stop());
        }
    }
}

impl RunProcess<'_> {
    /// Reads lines until one matches, and returns it.
    pub(super) fn wait_for(&mut self, is_expected: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.line();
            let Some(line) = line else { panic!("ended: {:#?}\n{}", self.lines, self.log()) };
            if is_expected(&line) {
                return line;
            }
        }
    }

    /// Lets the agents of the machine call this process. Returns the address of its API.
    pub(super) fn connect_agents(&mut self) -> SocketAddr {
        let started = self.wait_for(|line| line["kind"] == "started");
        let api = started["api"].as_str().unwrap();
        self.rig.fleet().set_agent_api(api);
        api.split_once("://").unwrap().1.parse().unwrap()
    }

    pub(super) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(super) fn terminate(&self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
    }

    /// Waits for the end. Returns the exit code and all lines.
    pub(super) fn finish(mut self) -> (i32, Vec<Value>) {
        while self.line().is_some() {}
        let status = self.process.wait().unwrap();
        let code = status.code().unwrap_or_else(|| panic!("{status}: {}", self.log()));
        assert!(!self.log().contains("panicked"), "{}", self.log());
        (code, std::mem::take(&mut self.lines))
    }

    fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        let line: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        self.lines.push(line.clone());
        Some(line)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for RunProcess<'_> {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl FinishedRun {
    pub(super) fn outcome(&self) -> &str {
        self.lines.last().unwrap()["outcome"].as_str().unwrap()
    }

    pub(super) fn message(&self) -> &str {
        self.lines.last().unwrap()["message"].as_str().unwrap_or_default()
    }

    pub(super) fn text(&self) -> String {
        format!("{:#?}", self.lines)
    }
}

/// Waits until the condition is true.
pub(super) fn wait_until(condition: impl Fn() -> bool) {
    let started_at = Instant::now();
    while !condition() {
        assert!(started_at.elapsed() < TIMEOUT, "timed out");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The first bytes of an EFI application, as which a kernel has to look like.
fn kernel() -> Vec<u8> {
    let mut kernel = vec![0; 512];
    kernel[..2].copy_from_slice(b"MZ");
    kernel[0x3c..0x40].copy_from_slice(&0x40_u32.to_le_bytes());
    kernel[0x40..0x44].copy_from_slice(b"PE\0\0");
    kernel[0x44..0x46].copy_from_slice(&0x8664_u16.to_le_bytes());
    kernel
}

/// Serves a kernel under the paths that end with `kernel`, and the image under every other one; returns
/// the URL of the server.
fn serve_image() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(request)) = lines.next() else { continue };
            let is_kernel = request.split(' ').nth(1).is_some_and(|path| path.ends_with("kernel"));
            let content = if is_kernel { kernel() } else { IMAGE.to_vec() };
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                content.len()
            );
            // The client may have closed the connection.
            let _ = stream.write_all(head.as_bytes());
            if request.starts_with("GET") {
                let _ = stream.write_all(&content);
            }
        }
    });
    url
}
