// SPDX-License-Identifier: Apache-2.0
//! Our client against OpenIPMI's `ipmi_sim`, compared with `ipmitool`.
//!
//! Without these programs the tests print a message and pass; with `FERRITE_TEST_SERVERS=required` they
//! fail.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is tests")]

mod ipmi_sim;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use ipmi::{
    BridgeRoute, BridgeTarget, ChassisControl, CipherSuite, DisableBootTimeout, GetBootFlags,
    GetChassisStatus, GetDeviceId, IdentifyChassis, IpmiBootDevice, IpmiBootFlags, IpmiClient,
    IpmiCredentials, IpmiEndpoint, IpmiError, IpmiPrivilege, IpmiTimeouts, SetBootFlags,
    SolConsole, SolInput,
};
use ipmi_sim::IpmiSim;
use tokio::sync::{Semaphore, mpsc};

#[tokio::test]
async fn power_is_switched_and_ipmitool_agrees() {
    let Some(sim) = IpmiSim::start() else { return };
    let client = client(endpoint(&sim));
    let device = client.execute(&GetDeviceId).await.unwrap();
    assert_eq!((device.manufacturer, device.product), (0x1291, 0xf02));
    assert_eq!(device.ipmi_version, 0x02);
    assert!(!client.execute(&GetChassisStatus).await.unwrap().power_on);
    client.execute(&ChassisControl::PowerUp).await.unwrap();
    assert!(client.execute(&GetChassisStatus).await.unwrap().power_on);
    assert_eq!(sim.ipmitool(&["power", "status"]), "Chassis Power is on\n");
    client.execute(&ChassisControl::PowerDown).await.unwrap();
    assert_eq!(sim.ipmitool(&["power", "status"]), "Chassis Power is off\n");
    sim.ipmitool(&["power", "on"]);
    assert!(client.execute(&GetChassisStatus).await.unwrap().power_on);
}

#[tokio::test]
async fn the_boot_device_is_set_and_ipmitool_agrees() {
    let Some(sim) = IpmiSim::start() else { return };
    let client = client(endpoint(&sim));
    // The simulator lacks this parameter, like some real BMCs.
    match client.execute(&DisableBootTimeout).await {
        Ok(()) | Err(IpmiError::Completion { .. }) => {}
        Err(other) => panic!("{other}"),
    }
    let flags =
        IpmiBootFlags { valid: true, persistent: false, uefi: false, device: IpmiBootDevice::PXE };
    client.execute(&SetBootFlags(flags)).await.unwrap();
    assert_eq!(sim.chassis("boot"), "pxe");
    let shown = sim.ipmitool(&["chassis", "bootparam", "get", "5"]);
    assert!(shown.contains("Boot Device Selector : Force PXE"), "{shown}");
    sim.ipmitool(&["chassis", "bootdev", "cdrom"]);
    assert_eq!(client.execute(&GetBootFlags).await.unwrap().device, IpmiBootDevice::CDROM);
}

#[tokio::test]
async fn sensors_are_those_that_ipmitool_shows() {
    let Some(sim) = IpmiSim::start() else { return };
    let client = client(endpoint(&sim));
    let records = client.sensor_records().await.unwrap();
    let mut ours = Vec::new();
    for record in records.iter() {
        let reading = client.read_sensor(record).await.unwrap();
        ours.push((record.name.clone(), reading.value));
    }
    assert_eq!(ours, [("CPU Temp".to_owned(), Some(42.0)), ("Fan 1".to_owned(), Some(120.0))]);
    let shown = sim.ipmitool(&["sdr"]);
    assert!(shown.contains("CPU Temp") && shown.contains("42 degrees C"), "{shown}");
    assert!(Arc::ptr_eq(&records, &client.sensor_records().await.unwrap()), "read once only");
}

#[tokio::test]
async fn explains_wrong_credentials() {
    let Some(sim) = IpmiSim::start() else { return };
    let attempt = async |username: &[u8], password: &[u8], kg: Option<&[u8]>, privilege| {
        let credentials = IpmiCredentials::new(username, password, kg).unwrap();
        let client = client(IpmiEndpoint { credentials, privilege, ..endpoint(&sim) });
        client.execute(&ChassisControl::PowerUp).await
    };
    let admin = IpmiPrivilege::Administrator;
    let wrong = attempt(b"admin", b"wrong", None, admin).await;
    assert!(matches!(wrong, Err(IpmiError::WrongPassword)), "{wrong:?}");
    let wrong = attempt(b"unknown", b"password", None, admin).await;
    assert!(matches!(wrong, Err(IpmiError::WrongUser | IpmiError::WrongPassword)), "{wrong:?}");
    let wrong = attempt(b"admin", b"password", Some(b"not the key"), admin).await;
    assert!(matches!(wrong, Err(IpmiError::WrongKg)), "{wrong:?}");
    let wrong = attempt(b"watcher", b"test", None, IpmiPrivilege::User).await;
    assert!(matches!(wrong, Err(IpmiError::Completion { code: 0xd4, .. })), "{wrong:?}");
}

#[tokio::test]
async fn finds_the_suite_or_reports_the_unsupported_one() {
    let Some(sim) = IpmiSim::start() else { return };
    let automatic = client(IpmiEndpoint { cipher_suite: None, ..endpoint(&sim) });
    automatic.execute(&GetDeviceId).await.unwrap();
    let cipher_suite = Some(CipherSuite::Seventeen);
    let refused =
        client(IpmiEndpoint { cipher_suite, ..endpoint(&sim) }).execute(&GetDeviceId).await;
    assert!(matches!(refused, Err(IpmiError::CipherSuite { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_bmc_that_restarts_gets_a_new_session() {
    let Some(mut sim) = IpmiSim::start() else { return };
    let client = client(endpoint(&sim));
    client.execute(&GetDeviceId).await.unwrap();
    sim.restart();
    client.execute(&GetDeviceId).await.unwrap();
    client.close().await;
    client.execute(&GetDeviceId).await.unwrap();
    // Most BMCs have few sessions, so none may leak.
    for _ in 0..40 {
        client.close().await;
        client.execute(&GetDeviceId).await.unwrap();
    }
}

#[tokio::test]
async fn reaches_a_controller_behind_the_bmc() {
    let Some(sim) = IpmiSim::start() else { return };
    let bridging = Some(BridgeRoute::to(BridgeTarget { channel: 0, address: 0x30 }));
    let client = client(IpmiEndpoint { bridging, ..endpoint(&sim) });
    let device = client.execute(&GetDeviceId).await.unwrap();
    assert_eq!(device.product, 0x0b0b);
    let shown = sim.ipmitool(&["-b", "0", "-t", "0x30", "mc", "info"]);
    assert!(shown.contains("(0x0b0b)"), "{shown}");
}

#[tokio::test]
async fn raw_commands_and_identification() {
    let Some(sim) = IpmiSim::start() else { return };
    let client = client(endpoint(&sim));
    let response = client.request(0x06, 0, 0x01, &[]).await.unwrap();
    assert_eq!(response[9..11], [0x02, 0x0f]);
    let unknown = client.request(0x30, 0, 0x77, &[1, 2]).await;
    assert!(matches!(unknown, Err(IpmiError::Completion { code: 0xc1, .. })), "{unknown:?}");
    client.execute(&IdentifyChassis::Seconds(5)).await.unwrap();
}

#[tokio::test]
async fn serial_console_works_in_both_directions() {
    let Some(sim) = IpmiSim::start() else { return };
    let turns = Semaphore::new(1);
    let console = SolConsole::open(endpoint(&sim), timeouts(), &turns).await.unwrap();
    let mut machine: TcpStream = sim.serial_line();
    let (typed, mut input) = mpsc::channel(4);
    let (printed, mut output) = mpsc::unbounded_channel();
    let run = tokio::spawn(async move {
        let mut print = |bytes: &[u8]| printed.send(bytes.to_vec()).unwrap();
        console.run(&mut input, &mut print).await
    });
    let text = "the machine boots\r\n".repeat(40);
    machine.write_all(text.as_bytes()).unwrap();
    let mut seen = Vec::new();
    while seen.len() < text.len() {
        seen.extend(output.recv().await.unwrap());
    }
    assert_eq!(String::from_utf8_lossy(&seen), text);
    typed.send(SolInput::Bytes(b"root\n".to_vec())).await.unwrap();
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = [0; 5];
        machine.read_exact(&mut bytes).map(|()| bytes)
    });
    assert_eq!(read.await.unwrap().unwrap(), *b"root\n");
    drop(typed);
    run.await.unwrap().unwrap();
    // The console can be activated again.
    SolConsole::open(endpoint(&sim), timeouts(), &turns).await.unwrap();
}

fn endpoint(sim: &IpmiSim) -> IpmiEndpoint {
    IpmiEndpoint {
        address: "127.0.0.1".to_owned(),
        port: sim.port(),
        credentials: IpmiCredentials::new(b"admin", b"password", None).unwrap(),
        privilege: IpmiPrivilege::Administrator,
        cipher_suite: Some(CipherSuite::Three),
        bridging: None,
    }
}

fn timeouts() -> IpmiTimeouts {
    let first_retransmission = Duration::from_millis(300);
    IpmiTimeouts { first_retransmission, total: Duration::from_secs(5), ..IpmiTimeouts::default() }
}

fn client(endpoint: IpmiEndpoint) -> IpmiClient {
    IpmiClient::new(endpoint, timeouts(), Arc::new(Semaphore::new(1)))
}
