// SPDX-License-Identifier: Apache-2.0
//! Starts OpenIPMI's `ipmi_sim` on free ports, with a machine that consists of files.

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running simulator; stopped when dropped.
pub(crate) struct IpmiSim {
    child: Child,
    directory: TempDir,
    port: u16,
    /// The listener of the serial port: the simulator connects to it.
    serial: TcpListener,
}

impl IpmiSim {
    /// Returns `None` with a message if the programs are not installed and not required.
    pub(crate) fn start() -> Option<Self> {
        for program in ["ipmi_sim", "ipmitool"] {
            if !is_installed(program) {
                let required =
                    std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
                assert!(!required, "{program} is not installed");
                println!("skipped: {program} is not installed");
                return None;
            }
        }
        let directory = TempDir::new().unwrap();
        let serial = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free_udp_port();
        write_machine(directory.path(), port, serial.local_addr().unwrap().port());
        let child = spawn(directory.path());
        let sim = Self { child, directory, port, serial };
        sim.wait_until_up();
        Some(sim)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Restarts the simulator, which drops all sessions.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.child = spawn(self.directory.path());
        self.wait_until_up();
    }

    /// The machine side of the serial line, once the simulator has connected.
    pub(crate) fn serial_line(&self) -> TcpStream {
        let (line, _) = self.serial.accept().unwrap();
        line.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        line
    }

    /// The last recorded value of `what`.
    pub(crate) fn chassis(&self, what: &str) -> String {
        fs::read_to_string(self.directory.path().join(what)).unwrap().trim().to_owned()
    }

    /// The output of `ipmitool`.
    pub(crate) fn ipmitool(&self, arguments: &[&str]) -> String {
        let output = Command::new("ipmitool")
            .args(["-I", "lanplus", "-H", "127.0.0.1", "-C", "3", "-U", "admin", "-P", "password"])
            .args(["-p", &self.port.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ipmitool {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until the simulator responds to a ping.
    fn wait_until_up(&self) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            let _ = socket.send(&ipmi::rmcp::ping(1));
            if socket.recv(&mut [0; 64]).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        panic!("ipmi_sim does not response: {log}");
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for IpmiSim {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn free_udp_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(directory: &Path) -> Child {
    let log = fs::File::create(directory.join("log")).unwrap();
    Command::new("ipmi_sim")
        .arg("-c")
        .arg(directory.join("lan.conf"))
        .arg("-f")
        .arg(directory.join("sim.emu"))
        .arg("-s")
        .arg(directory.join("state"))
        .args(["-n", "-p"])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Writes the configuration of the simulator, and the program for chassis control, which records
/// changes in files.
fn write_machine(directory: &Path, port: u16, serial: u16) {
    let home = directory.display();
    let program = directory.join("chassis");
    fs::create_dir(directory.join("state")).unwrap();
    fs::write(directory.join("power"), "0").unwrap();
    fs::write(directory.join("boot"), "none").unwrap();
    fs::write(
        &program,
        format!(
            r#"#!/bin/sh
# Called with get NAME... or set NAME VALUE...; prints NAME:VALUE.
operation=$1; shift
while [ $# -gt 0 ]; do
  name=$1; shift
  if [ "$operation" = get ]; then
    echo "$name:$(cat {home}/$name 2>/dev/null || echo 0)"
  else
    echo "$1" >{home}/$name; shift
  fi
done
"#
        ),
    )
    .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let auths = "none md2 md5 straight";
    fs::write(
        directory.join("lan.conf"),
        format!(
            r#"name "sim"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_callback {auths}
    allowed_auths_user {auths}
    allowed_auths_operator {auths}
    allowed_auths_admin {auths}
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{home}/chassis"
  sol "tcp:127.0.0.1:{serial}" 115200
  user 1 true "" "test" user 10 {auths}
  user 2 true "admin" "password" admin 10 {auths}
  user 3 true "watcher" "test" user 10 {auths}
"#
        ),
    )
    .unwrap();
    let events = ["000111111000000"; 4].join(" ");
    let mut emulation = "mc_setbmc 0x20\n\
        mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
        sel_enable 0x20 1000 0x0a\n"
        .to_owned();
    for (number, name, kind, unit, value) in
        [(1u8, "CPU Temp", 1u8, 1u8, 42u8), (2, "Fan 1", 4, 18, 120)]
    {
        let record: Vec<String> =
            record(number, name, kind, unit).iter().map(|byte| format!("0x{byte:02x}")).collect();
        let record = record.join(" ");
        emulation.push_str(&format!(
            "sensor_add 0x20 0 {number} 0x{kind:02x} 0x01\n\
             sensor_set_value 0x20 0 {number} {value} 0\n\
             sensor_set_threshold 0x20 0 {number} settable 111000 0xfa 0xf0 0xe6 00 00 00\n\
             sensor_set_event_support 0x20 0 {number} enable scanning per-state {events}\n\
             main_sdr_add 0x20 {record}\n"
        ));
    }
    emulation.push_str(
        "mc_enable 0x20\n\
         mc_add 0x30 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0x0b0b\n\
         mc_enable 0x30\n",
    );
    fs::write(directory.join("sim.emu"), emulation).unwrap();
}

/// A full sensor record with the identity conversion, written byte by byte so that it is independent
/// of our encoder.
fn record(number: u8, name: &str, kind: u8, unit: u8) -> Vec<u8> {
    let mut body = vec![0x20, 0, number, 7, 1, 0x7f, 0x68, kind, 1, 0x80, 0x0a, 0x80, 0x7a];
    body.extend([0x38, 0x38, 0, unit, 0, 0, 1, 0, 0, 0, 0, 0, 7, 42, 220, 5, 0xff, 0]);
    body.extend([0xfa, 0xf0, 0xe6, 0, 0, 0, 2, 2, 0, 0, 0, 0xc0 | name.len() as u8]);
    body.extend(name.as_bytes());
    let mut record = vec![0, 0, 0x51, 1, body.len() as u8];
    record.extend(body);
    record
}
