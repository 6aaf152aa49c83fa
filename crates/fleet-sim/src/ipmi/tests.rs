// SPDX-License-Identifier: Apache-2.0
//! Our client and `ipmitool` against simulated BMCs.
//!
//! `ipmitool` is the counterpart nobody here wrote. Without it those tests say so and pass; with
//! `FERRITE_TEST_SERVERS=required` its absence is a failure.

use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ipmi::{
    BootDevice, BootFlags, ChassisControl, CipherSuite, Client, Credentials, Endpoint, Error,
    GetBootFlags, GetChassisStatus, GetDeviceId, IdentifyChassis, Privilege, ResetController,
    SetBootFlags, SolConsole, SolInput, Timeouts,
};
use tokio::sync::{Semaphore, mpsc};

use crate::machine::{BootTarget, Indicator, PowerState};
use crate::{Fleet, FleetConfig, SimulatedMachine};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ipmitool_is_content() {
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
        for words in [
            "Boot Device Selector : Force PXE",
            "Options apply to all future boots",
            "BIOS EFI boot",
            "Boot Flag Valid",
        ] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        assert_eq!(machine.with(|it, _| it.boot_settings().target), BootTarget::Pxe);
        run("chassis identify force");
        assert_eq!(machine.with(|it, _| it.indicator()), Indicator::Lit);
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
async fn ipmitool_sees_the_console() {
    let Some(ipmitool) = Ipmitool::find() else { return };
    let fleet = fleet(1);
    let machine = fleet.machine(0).unwrap();
    for suite in ["3", "17"] {
        // It wants a terminal, which `script` makes for it.
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
        // A console whose user is gone may have ended by itself already: ipmitool then complains.
        ipmitool.try_run(&machine, suite, "sol deactivate");
    }
}

#[tokio::test]
async fn ours_does_everything_with_both_suites() {
    let fleet = fleet(2);
    for (suite, machine) in CipherSuite::ALL.into_iter().zip(fleet.machines()) {
        let client = client(&machine, Some(suite), b"password");
        assert_eq!(client.ask(&GetDeviceId).await.unwrap().ipmi_version, 2);
        client.ask(&ChassisControl::PowerDown).await.unwrap();
        wait_for(&machine, PowerState::Off).await;
        assert!(!client.ask(&GetChassisStatus).await.unwrap().power_on);
        client.ask(&ChassisControl::PowerDown).await.unwrap();
        let refused = client.ask(&ChassisControl::HardReset).await.unwrap_err();
        assert!(refused.completion_code().is_some(), "{refused}");
        client.ask(&ChassisControl::PowerUp).await.unwrap();
        // Some take no boot settings while the firmware starts.
        while machine.booted().is_none() {
            rest(&machine).await;
        }
        let flags =
            BootFlags { valid: true, persistent: false, uefi: true, device: BootDevice::DISK };
        client.ask(&SetBootFlags(flags)).await.unwrap();
        assert_eq!(client.ask(&GetBootFlags).await.unwrap(), flags);
        client.ask(&IdentifyChassis::Seconds(9)).await.unwrap();
        assert_eq!(client.ask(&GetChassisStatus).await.unwrap().identify, Some(true));
        let records = client.sensor_records().await.unwrap();
        let inlet = records.iter().find(|record| record.name == "Inlet Temp").unwrap();
        let value = client.read_sensor(inlet).await.unwrap().value.unwrap();
        assert!((15.0..35.0).contains(&value), "{value}");
    }
}

#[tokio::test]
async fn ours_watches_the_console() {
    let fleet = fleet(1);
    let machine = fleet.machine(0).unwrap();
    let turns = Semaphore::new(1);
    let endpoint = endpoint(&machine, None, b"password");
    let console = SolConsole::open(endpoint.clone(), timeouts(), &turns).await.unwrap();
    let (typed, mut input) = mpsc::channel(4);
    let (printed, mut output) = mpsc::unbounded_channel();
    let run = tokio::spawn(async move {
        let mut print = |bytes: &[u8]| {
            let _ = printed.send(bytes.to_vec());
        };
        console.run(&mut input, &mut print).await
    });
    let mut seen = String::new();
    let mut until = async |words: &str| {
        while !seen.contains(words) {
            seen.push_str(&String::from_utf8_lossy(&output.recv().await.unwrap()));
        }
    };
    until("login: ").await;
    typed.send(SolInput::Bytes(b"root\r".to_vec())).await.unwrap();
    until("login: root\r\nsim-00000 login: ").await;
    typed.send(SolInput::Break).await.unwrap();
    until("[break]").await;
    // What happens to the machine is seen, without anybody asking.
    machine.with(|it, now| it.reset(crate::machine::Reset::ForceRestart, now)).unwrap();
    until("Testing hardware").await;
    until("Booted from").await;
    drop(typed);
    run.await.unwrap().unwrap();
    SolConsole::open(endpoint, timeouts(), &turns).await.unwrap();
}

#[tokio::test]
async fn what_is_real_behind_the_line_is_passed_on() {
    let fleet = fleet(1);
    let machine = fleet.machine(0).unwrap();
    let mut line = machine.plug_in_serial_line();
    line.print(b"before anybody looked\r\n");
    let (endpoint, turns) = (endpoint(&machine, None, b"password"), Semaphore::new(1));
    let console = SolConsole::open(endpoint, timeouts(), &turns).await.unwrap();
    let (typed, mut input) = mpsc::channel(4);
    let (printed, mut output) = mpsc::unbounded_channel();
    let run = tokio::spawn(async move {
        let mut print = |bytes: &[u8]| {
            let _ = printed.send(bytes.to_vec());
        };
        console.run(&mut input, &mut print).await
    });
    let mut seen = String::new();
    let mut until = async |words: &str| {
        while !seen.contains(words) {
            seen.push_str(&String::from_utf8_lossy(&output.recv().await.unwrap()));
        }
        seen.clone()
    };
    let first = until("looked\r\n").await;
    assert_eq!(first, "before anybody looked\r\n", "what a simulated machine says is not there");
    // Nobody asks for what comes by itself.
    line.print("0123456789\r\n".repeat(200).as_bytes());
    line.print(b"$ ");
    until("9\r\n$ ").await;
    typed.send(SolInput::Bytes(b"ls\r".to_vec())).await.unwrap();
    assert_eq!(line.typed().await.unwrap(), b"ls\r");
    drop(typed);
    run.await.unwrap().unwrap();
}

#[tokio::test]
async fn faults_are_those_of_the_fleet() {
    let fleet = fleet(1);
    let machine = fleet.machine(0).unwrap();
    let ask = async |password: &[u8]| {
        let client = client(&machine, None, password);
        client.ask(&GetChassisStatus).await.map(drop)
    };
    ask(b"password").await.unwrap();
    assert!(matches!(ask(b"wrong").await, Err(Error::WrongPassword)));
    fleet.faults().add("wrong-password".parse().unwrap(), fleet.now());
    assert!(matches!(ask(b"password").await, Err(Error::WrongUser)));
    fleet.faults().set(vec!["hang".parse().unwrap()], fleet.now());
    assert!(matches!(ask(b"password").await, Err(Error::Unreachable { .. })));
    fleet.faults().set(vec!["drop every=2".parse().unwrap()], fleet.now());
    ask(b"password").await.unwrap();
    fleet.faults().clear();
    let client = client(&machine, None, b"password");
    client.ask(&GetChassisStatus).await.unwrap();
    let reset = ResetController::Cold.command();
    client.request(ipmi::message::netfn::APP, 0, reset, &[]).await.unwrap();
    // The simulated BMC is back in a moment, and knows no session.
    client.ask(&GetChassisStatus).await.unwrap();
}

fn fleet(bmcs: u32) -> Fleet {
    Fleet::start(FleetConfig {
        bmcs,
        ipmi: true,
        powered_on: true,
        speed: 200.0,
        ..FleetConfig::default()
    })
    .unwrap()
}

fn endpoint(machine: &SimulatedMachine, suite: Option<CipherSuite>, password: &[u8]) -> Endpoint {
    Endpoint {
        address: "127.0.0.1".to_owned(),
        port: machine.address().port(),
        credentials: Credentials::new(b"admin", password, None).unwrap(),
        privilege: Privilege::Administrator,
        cipher_suite: suite,
        bridging: None,
    }
}

fn timeouts() -> Timeouts {
    let first_retransmission = Duration::from_millis(100);
    Timeouts { first_retransmission, total: Duration::from_secs(3), ..Timeouts::default() }
}

fn client(machine: &SimulatedMachine, suite: Option<CipherSuite>, password: &[u8]) -> Client {
    Client::new(endpoint(machine, suite, password), timeouts(), Arc::new(Semaphore::new(1)))
}

/// Simulated machines take a moment for everything, too.
async fn wait_for(machine: &SimulatedMachine, state: PowerState) {
    while machine.power() != state {
        rest(machine).await;
    }
}

async fn rest(machine: &SimulatedMachine) {
    let wait = machine.with(|it, now| it.next_change().map(|change| change.since(now)));
    tokio::time::sleep(wait.expect("something is under way")).await;
}

/// The program.
struct Ipmitool;

impl Ipmitool {
    fn find() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if std::env::split_paths(&path).any(|folder| folder.join("ipmitool").is_file()) {
            return Some(Self);
        }
        let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
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
        let mut words = line.split(' ');
        Command::new(words.next().unwrap()).args(words).stdin(Stdio::null()).output().unwrap()
    }
}
