// SPDX-License-Identifier: Apache-2.0
//! Our client and `ipmitool` against simulated BMCs.
//!
//! `ipmitool` is an independent implementation. If it is not installed, its tests are skipped; with
//! `FERRITE_TEST_SERVERS=required` they fail instead.

use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ipmi::{
    ChassisControl, CipherSuite, GetBootFlags, GetChassisStatus, GetDeviceId, IdentifyChassis,
    IpmiBootDevice, IpmiBootFlags, IpmiClient, IpmiCredentials, IpmiEndpoint, IpmiError,
    IpmiPrivilege, IpmiTimeouts, ResetController, SetBootFlags, SolConsole, SolInput,
};
use tokio::sync::{Semaphore, mpsc};

use crate::machine::{BootTarget, IndicatorLed, PowerState};
use crate::{FleetConfig, SimulatedFleet, SimulatedMachine};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ipmitool_controls_a_simulated_bmc() {
    let Some(ipmitool) = Ipmitool::find() else { return };
    let fleet = fleet(1);
    let machine = fleet.machine(0).unwrap();
    for suite in ["3", "17", ""] {
        let run = |arguments: &str| ipmitool.run(&machine, suite, arguments);
        assert!(run("mc info").contains("IPMI Version              : 2.0"));
        assert_eq!(run("power off"), "Chassis Power Control: Down/Off\n");
        wait_for(&machine, PowerState::Off).await;
        assert_eq!(run("power status"), "Chassis Power is off\n");
        assert_eq!(run("power on"), "Chassis Power Control: Up/On\n");
        wait_for(&machine, PowerState::On).await;
        let status = run("chassis status");
        assert!(status.contains("System Power         : on"), "{status}");
        run("chassis bootdev pxe options=persistent,efiboot");
        let shown = run("chassis bootparam get 5");
        for text in [
            "Boot Device Selector : Force PXE",
            "Options apply to all future boots",
            "BIOS EFI boot",
            "Boot Flag Valid",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        assert_eq!(machine.with_model(|it, _| it.boot_settings().target), BootTarget::Pxe);
        run("chassis identify force");
        assert_eq!(machine.with_model(|it, _| it.indicator()), IndicatorLed::Lit);
        run("chassis identify 0");
        let records = run("sdr");
        assert!(records.contains("Inlet Temp") && records.contains("degrees C"), "{records}");
        let sensors = run("sensor");
        assert!(sensors.contains("CPU1 Temp        | "), "{sensors}");
        assert!(sensors.contains("| 95.000    |"), "the upper critical threshold: {sensors}");
        assert!(run("sol info").contains("Enabled                         : true"));
        assert!(run("raw 0x06 0x01").starts_with(" 20 01"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ipmitool_shows_the_console() {
    let Some(ipmitool) = Ipmitool::find() else { return };
    let fleet = fleet(1);
    let machine = fleet.machine(0).unwrap();
    for suite in ["3", "17"] {
        // ipmitool needs a terminal, which `script` provides.
        let mut child = Command::new("script")
            .args(["-qec", &ipmitool.line(&machine, suite, "sol activate"), "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let seen = tokio::task::spawn_blocking(move || {
            use std::io::{Read, Write};
            let mut seen = String::new();
            let mut buffer = [0; 256];
            while !seen.contains("login: hello") {
                let length = stdout.read(&mut buffer).unwrap();
                assert!(length > 0, "the console ended: {seen}");
                seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
                if seen.contains("login: ") && !seen.contains("hello") {
                    stdin.write_all(b"hello").unwrap();
                }
            }
            seen
        });
        let seen = tokio::time::timeout(Duration::from_secs(30), seen).await.unwrap().unwrap();
        assert!(seen.contains("sim-00000 login: hello"), "{seen}");
        child.kill().unwrap();
        child.wait().unwrap();
        // The console may have been deactivated already, which ipmitool reports as an error.
        ipmitool.try_run(&machine, suite, "sol deactivate");
    }
}

#[tokio::test]
async fn our_client_supports_all_commands_with_both_cipher_suites() {
    let fleet = fleet(2);
    for (suite, machine) in CipherSuite::ALL.into_iter().zip(fleet.machines()) {
        let client = client(&machine, Some(suite), b"password");
        assert_eq!(client.execute(&GetDeviceId).await.unwrap().ipmi_version, 2);
        client.execute(&ChassisControl::PowerDown).await.unwrap();
        wait_for(&machine, PowerState::Off).await;
        assert!(!client.execute(&GetChassisStatus).await.unwrap().power_on);
        client.execute(&ChassisControl::PowerDown).await.unwrap();
        let error = client.execute(&ChassisControl::HardReset).await.unwrap_err();
        assert!(error.completion_code().is_some(), "{error}");
        client.execute(&ChassisControl::PowerUp).await.unwrap();
        // Some personalities lock the boot settings during POST.
        while machine.current_boot().is_none() {
            wait_for_next_change(&machine).await;
        }
        let flags = IpmiBootFlags {
            valid: true,
            persistent: false,
            uefi: true,
            device: IpmiBootDevice::DISK,
        };
        client.execute(&SetBootFlags(flags)).await.unwrap();
        assert_eq!(client.execute(&GetBootFlags).await.unwrap(), flags);
        client.execute(&IdentifyChassis::Seconds(9)).await.unwrap();
        assert_eq!(client.execute(&GetChassisStatus).await.unwrap().identify, Some(true));
        let records = client.sensor_records().await.unwrap();
        let inlet = records.iter().find(|record| record.name == "Inlet Temp").unwrap();
        let value = client.read_sensor(inlet).await.unwrap().value.unwrap();
        assert!((15.0..35.0).contains(&value), "{value}");
    }
}

#[tokio::test]
async fn our_client_shows_the_console() {
    let fleet = fleet(1);
    let machine = fleet.machine(0).unwrap();
    let permits = Semaphore::new(1);
    let endpoint = endpoint(&machine, None, b"password");
    let console = SolConsole::open(endpoint.clone(), timeouts(), &permits).await.unwrap();
    let (input, mut typed) = mpsc::channel(4);
    let (printed, mut output) = mpsc::unbounded_channel();
    let run = tokio::spawn(async move {
        let mut print = |bytes: &[u8]| {
            let _ = printed.send(bytes.to_vec());
        };
        console.run(&mut typed, &mut print).await
    });
    let mut seen = String::new();
    let mut until = async |text: &str| {
        while !seen.contains(text) {
            seen.push_str(&String::from_utf8_lossy(&output.recv().await.unwrap()));
        }
    };
    until("login: ").await;
    input.send(SolInput::Bytes(b"root\r".to_vec())).await.unwrap();
    until("login: root\r\nsim-00000 login: ").await;
    input.send(SolInput::Break).await.unwrap();
    until("[break]").await;
    // Changes of the machine are printed without input.
    machine.with_model(|it, now| it.reset(crate::machine::ResetType::ForceRestart, now)).unwrap();
    until("Testing hardware").await;
    until("Booted from").await;
    drop(input);
    run.await.unwrap().unwrap();
    SolConsole::open(endpoint, timeouts(), &permits).await.unwrap();
}

#[tokio::test]
async fn console_passes_an_attached_serial_line_through() {
    let fleet = fleet(1);
    let machine = fleet.machine(0).unwrap();
    let mut line = machine.attach_serial_line();
    line.write_output(b"before the console\r\n");
    let (endpoint, permits) = (endpoint(&machine, None, b"password"), Semaphore::new(1));
    let console = SolConsole::open(endpoint, timeouts(), &permits).await.unwrap();
    let (input, mut typed) = mpsc::channel(4);
    let (printed, mut output) = mpsc::unbounded_channel();
    let run = tokio::spawn(async move {
        let mut print = |bytes: &[u8]| {
            let _ = printed.send(bytes.to_vec());
        };
        console.run(&mut typed, &mut print).await
    });
    let mut seen = String::new();
    let mut until = async |text: &str| {
        while !seen.contains(text) {
            seen.push_str(&String::from_utf8_lossy(&output.recv().await.unwrap()));
        }
        seen.clone()
    };
    let first = until("console\r\n").await;
    assert_eq!(first, "before the console\r\n", "no simulated output");
    // Output arrives without input.
    line.write_output("0123456789\r\n".repeat(200).as_bytes());
    line.write_output(b"$ ");
    until("9\r\n$ ").await;
    input.send(SolInput::Bytes(b"ls\r".to_vec())).await.unwrap();
    assert_eq!(line.read_input().await.unwrap(), b"ls\r");
    drop(input);
    run.await.unwrap().unwrap();
}

#[tokio::test]
async fn fault_rules_apply_to_ipmi() {
    let fleet = fleet(1);
    let machine = fleet.machine(0).unwrap();
    let attempt = async |password: &[u8]| {
        let client = client(&machine, None, password);
        client.execute(&GetChassisStatus).await.map(drop)
    };
    attempt(b"password").await.unwrap();
    assert!(matches!(attempt(b"wrong").await, Err(IpmiError::WrongPassword)));
    fleet.faults().add("wrong-password".parse().unwrap(), fleet.now());
    assert!(matches!(attempt(b"password").await, Err(IpmiError::WrongUser)));
    fleet.faults().set(vec!["hang".parse().unwrap()], fleet.now());
    assert!(matches!(attempt(b"password").await, Err(IpmiError::Unreachable { .. })));
    fleet.faults().set(vec!["drop every=2".parse().unwrap()], fleet.now());
    attempt(b"password").await.unwrap();
    fleet.faults().clear();
    let client = client(&machine, None, b"password");
    client.execute(&GetChassisStatus).await.unwrap();
    let reset = ResetController::Cold.command();
    client.request(ipmi::message::netfn::APP, 0, reset, &[]).await.unwrap();
    // The simulated BMC restarts quickly and has lost its sessions; the client opens a new one.
    client.execute(&GetChassisStatus).await.unwrap();
}

fn fleet(bmcs: u32) -> SimulatedFleet {
    SimulatedFleet::start(FleetConfig {
        bmcs,
        ipmi: true,
        powered_on: true,
        speed: 200.0,
        ..FleetConfig::default()
    })
    .unwrap()
}

fn endpoint(
    machine: &SimulatedMachine,
    suite: Option<CipherSuite>,
    password: &[u8],
) -> IpmiEndpoint {
    IpmiEndpoint {
        address: "127.0.0.1".to_owned(),
        port: machine.address().port(),
        credentials: IpmiCredentials::new(b"admin", password, None).unwrap(),
        privilege: IpmiPrivilege::Administrator,
        cipher_suite: suite,
        bridging: None,
    }
}

fn timeouts() -> IpmiTimeouts {
    let first_retransmission = Duration::from_millis(100);
    IpmiTimeouts { first_retransmission, total: Duration::from_secs(3), ..IpmiTimeouts::default() }
}

fn client(machine: &SimulatedMachine, suite: Option<CipherSuite>, password: &[u8]) -> IpmiClient {
    IpmiClient::new(endpoint(machine, suite, password), timeouts(), Arc::new(Semaphore::new(1)))
}

async fn wait_for(machine: &SimulatedMachine, state: PowerState) {
    while machine.power_state() != state {
        wait_for_next_change(machine).await;
    }
}

async fn wait_for_next_change(machine: &SimulatedMachine) {
    let wait = machine.with_model(|it, now| it.next_change().map(|change| change.since(now)));
    tokio::time::sleep(wait.expect("the machine is in a transition")).await;
}

/// The `ipmitool` program.
struct Ipmitool;

impl Ipmitool {
    fn find() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if std::env::split_paths(&path).any(|folder| folder.join("ipmitool").is_file()) {
            return Some(Self);
        }
        let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|value| value == "required");
        assert!(!required, "ipmitool is not installed");
        println!("skipped: ipmitool is not installed");
        None
    }

    fn line(&self, machine: &SimulatedMachine, suite: &str, arguments: &str) -> String {
        let port = machine.address().port();
        let suite = if suite.is_empty() { String::new() } else { format!("-C {suite} ") };
        let bmc = format!("-H 127.0.0.1 -p {port} -U admin -P password");
        format!("ipmitool -I lanplus {bmc} {suite}{arguments}")
    }

    fn run(&self, machine: &SimulatedMachine, suite: &str, arguments: &str) -> String {
        let output = self.try_run(machine, suite, arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ipmitool -C '{suite}' {arguments}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn try_run(&self, machine: &SimulatedMachine, suite: &str, arguments: &str) -> Output {
        let line = self.line(machine, suite, arguments);
        let mut text = line.split(' ');
        Command::new(text.next().unwrap()).args(text).stdin(Stdio::null()).output().unwrap()
    }
}
