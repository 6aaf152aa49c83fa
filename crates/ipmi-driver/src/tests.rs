// SPDX-License-Identifier: Apache-2.0
//! Tests of the interfaces on simulated machines, over real sockets.

use std::sync::Arc;
use std::time::Duration;

use drivers::{
    BmcCallLog, BmcLimits, BootDevice, BootDeviceSetting, ConsoleBufferPool, ConsoleOutput,
    ConsoleRecording, ConsoleText, Driver, DriverError, DriverTarget, EnabledDrivers,
    ExternalBootService, HttpMethod, IndicatorComponent, IndicatorState, NodeChanges,
    RegistryBuilder, SensorKind, SensorStatus,
};
use fake_driver::FakeSettings;
use fleet_sim::machine::{
    BootMode as SimulatedMode, BootOverride, BootTarget, IndicatorLed as Light,
};
use fleet_sim::{FleetConfig, SimulatedFleet, SimulatedMachine};
use node_model::{InterfaceKind, Node, NodeId, PowerState, PowerTarget, Timestamp};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

use super::connections::IpmiConnections;
use super::console_session::{ConsoleServer, SolSettings};
use super::hardware_type::HARDWARE_TYPE;
use super::{CONSOLE_NAME, ConsoleSettings, IpmiSettings, NAME};

#[tokio::test]
async fn power_reaches_each_target() {
    let setup = IpmiTestMachine::new();
    let mut node = setup.node();
    let power = setup.driver.power();
    for (expected, state) in [
        (PowerTarget::Off, PowerState::Off),
        (PowerTarget::Off, PowerState::Off),
        (PowerTarget::On, PowerState::On),
        (PowerTarget::On, PowerState::On),
        (PowerTarget::Reboot, PowerState::On),
        (PowerTarget::SoftReboot, PowerState::On),
        (PowerTarget::SoftOff, PowerState::Off),
        (PowerTarget::Reboot, PowerState::On),
    ] {
        setup.until_booted(&node).await;
        let changes = power.set(&setup.target(&node), expected, None).await.unwrap();
        assert_eq!(changes.power_state, Some(state), "{expected}");
        node.power_state = changes.power_state;
        assert_eq!(power.get(&setup.target(&node)).await.unwrap(), Some(state), "{expected}");
    }
    power.check_access(&setup.target(&node)).await.unwrap();
}

#[tokio::test]
async fn machine_with_disable_power_off_is_reset() {
    let setup = IpmiTestMachine::new();
    let mut node = setup.node();
    node.disable_power_off = true;
    setup.until_booted(&node).await;
    let power = setup.driver.power();
    let soft = power.set(&setup.target(&node), PowerTarget::SoftReboot, None).await.unwrap_err();
    assert!(soft.to_string().contains("disable_power_off"), "{soft}");
    let boots = setup.machine().boot_history().len();
    // The wait for a reset that may not be reported is long; only sending it matters here.
    let target = setup.target(&node);
    let reset = power.set(&target, PowerTarget::Reboot, None);
    let reset = tokio::time::timeout(Duration::from_secs(1), reset).await;
    assert!(reset.is_err(), "waits before it trusts the reported power");
    setup.until_booted(&node).await;
    assert_eq!(setup.machine().boot_history().len(), boots + 1);
}

#[tokio::test]
async fn machine_that_does_not_power_off_fails_after_timeout() {
    let setup = IpmiTestMachine::new();
    setup.fleet.faults().add("power-stuck".parse().unwrap(), setup.fleet.now());
    let node = setup.node();
    let timeout = Some(Duration::from_millis(300));
    let power = setup.driver.power();
    let error = power.set(&setup.target(&node), PowerTarget::SoftOff, timeout).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("failed to shut the machine down: the machine is on"), "{text}");
    assert!(text.contains("'power off'"), "{text}");
}

#[tokio::test]
async fn reboot_with_unreachable_bmc_after_power_off_is_permanent_error() {
    let setup = IpmiTestMachine::new();
    let node = setup.node();
    setup.until_booted(&node).await;
    // The BMC receives power-off, but not power-on.
    let hang = "hang path=/ipmi/power skip=1".parse().unwrap();
    setup.fleet.faults().add(hang, setup.fleet.now());
    let timeout = Some(Duration::from_secs(1));
    let power = setup.driver.power();
    let error = power.set(&setup.target(&node), PowerTarget::Reboot, timeout).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("the machine was off"), "{error}");
}

#[tokio::test]
async fn boot_device_is_set_for_boot_mode_of_machine() {
    let setup = IpmiTestMachine::new();
    let mut node = setup.node();
    setup.until_booted(&node).await;
    let management = setup.driver.management();
    for (capabilities, device, persistent, expected, mode) in [
        ("", BootDevice::Pxe, false, BootTarget::Pxe, SimulatedMode::Uefi),
        ("boot_mode:uefi", BootDevice::Disk, false, BootTarget::Hdd, SimulatedMode::Uefi),
        ("a:b,boot_mode:bios", BootDevice::Cdrom, true, BootTarget::Cd, SimulatedMode::Legacy),
        ("boot_mode:uefi", BootDevice::Bios, true, BootTarget::BiosSetup, SimulatedMode::Uefi),
    ] {
        node.properties.set("capabilities", capabilities);
        let changes =
            management.set_boot_device(&setup.target(&node), device, persistent).await.unwrap();
        assert!(changes.is_empty());
        let settings = setup.machine().with_model(|machine, _| machine.boot_settings().clone());
        let enabled = if persistent { BootOverride::Continuous } else { BootOverride::Once };
        assert_eq!(
            (settings.target, settings.mode, settings.enabled),
            (expected, mode, enabled),
            "{device}"
        );
        let reported = management.boot_device(&setup.target(&node)).await.unwrap();
        let expected_setting =
            BootDeviceSetting { device: Some(device), persistent: Some(persistent) };
        assert_eq!(reported, expected_setting);
    }
    let error = management
        .set_boot_device(&setup.target(&node), BootDevice::Floppy, true)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("pxe, disk, cdrom, bios, safe"), "{error}");
}

#[tokio::test]
async fn force_boot_device_sets_it_before_each_power_on() {
    let mut setup = IpmiTestMachine::new();
    setup.driver_info.insert("ipmi_force_boot_device".to_owned(), json!(true));
    let mut node = setup.node();
    setup.until_booted(&node).await;
    let target_of =
        |setup: &IpmiTestMachine| setup.machine().with_model(|it, _| it.boot_settings().target);
    let apply = |node: &mut Node, changes: NodeChanges| changes.apply_to(node);
    let management = setup.driver.management();
    let set = async |node: &Node, device, persistent| {
        management.set_boot_device(&setup.target(node), device, persistent).await.unwrap()
    };
    let changes = set(&node, BootDevice::Disk, true).await;
    apply(&mut node, changes);
    let reported = management.boot_device(&setup.target(&node)).await.unwrap();
    assert_eq!((reported.device, reported.persistent), (Some(BootDevice::Disk), Some(true)));
    // One PXE boot: the next power-on leaves the device alone, the one after sets it again.
    let changes = set(&node, BootDevice::Pxe, false).await;
    apply(&mut node, changes);
    let power = setup.driver.power();
    let mut boots = Vec::new();
    for _ in 0..2 {
        let changes = power.set(&setup.target(&node), PowerTarget::Reboot, None).await.unwrap();
        apply(&mut node, changes);
        setup.until_booted(&node).await;
        boots.push(setup.machine().current_boot().unwrap().from);
    }
    assert_eq!(boots, [BootTarget::Pxe, BootTarget::Hdd]);
    assert_eq!(target_of(&setup), BootTarget::None, "each was set for one boot only");
}

#[tokio::test]
async fn sensors_indicators_nmi_and_vendor() {
    let setup = IpmiTestMachine::new();
    let node = setup.node();
    let management = setup.driver.management();
    let sensors = management.sensors(&setup.target(&node)).await.unwrap();
    let inlet = sensors.iter().find(|sensor| sensor.name == "Inlet Temp").unwrap();
    assert_eq!((inlet.kind, inlet.unit), (SensorKind::Temperature, "Celsius"));
    assert!(matches!(inlet.status, SensorStatus::Enabled(_)));
    let rail = sensors.iter().find(|sensor| sensor.name == "12V Rail").unwrap();
    assert!((rail.reading.unwrap() - 12.0).abs() < 0.3, "{rail:?}");
    let chassis = IndicatorComponent::Chassis;
    for (state, light) in [(IndicatorState::On, Light::Lit), (IndicatorState::Off, Light::Off)] {
        let _ = management
            .set_indicator(&setup.target(&node), chassis, "identify", state)
            .await
            .unwrap();
        assert_eq!(setup.machine().with_model(|it, _| it.indicator()), light);
        let reported =
            management.indicator(&setup.target(&node), chassis, "identify").await.unwrap();
        assert_eq!(reported, state);
    }
    let missing = management.indicator(&setup.target(&node), chassis, "led").await.unwrap_err();
    assert!(missing.is_not_found());
    let _ = management.inject_nmi(&setup.target(&node)).await.unwrap();
    assert_eq!(setup.machine().with_model(|it, _| it.nmi_count()), 1);
    assert_eq!(
        management.detect_vendor(&setup.target(&node)).await.unwrap().as_deref(),
        Some("dell inc.")
    );
}

#[tokio::test]
async fn raw_commands_and_bmc_reset() {
    let setup = IpmiTestMachine::new();
    let node = setup.node();
    let vendor = setup.driver.vendor();
    let call = async |method: &str, arguments: Value| {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        let target = setup.target(&node);
        vendor.validate_call(&target, method, &arguments).await?;
        vendor.call(&target, method, HttpMethod::Post, &arguments).await
    };
    call("send_raw", json!({"raw_bytes": "0x00 0x04 0x00 0x01"})).await.unwrap();
    assert_eq!(setup.machine().with_model(|it, _| it.indicator()), Light::Lit);
    let error = call("send_raw", json!({"raw_bytes": "0x30 0x99"})).await.unwrap_err().to_string();
    assert!(error.contains("0xc1") && error.contains("does not know this command"), "{error}");
    call("bmc_reset", json!({"warm": false})).await.unwrap();
    assert_eq!(setup.machine().with_model(|it, _| it.bmc_restarts()), 1);
    assert!(call("dance", json!({})).await.is_err());
    // The BMC is back soon and has lost its sessions.
    setup.driver.power().get(&setup.target(&node)).await.unwrap();
}

#[tokio::test]
async fn lost_reply_is_error_for_raw_command_but_not_for_reset() {
    let setup = IpmiTestMachine::new();
    let node = setup.node();
    let call = async |method: &str, arguments: Value, skipped: u8| {
        let hang = format!("hang path=/ipmi/controller skip={skipped}").parse().unwrap();
        setup.fleet.faults().set(vec![hang], setup.fleet.now());
        let arguments = arguments.as_object().unwrap();
        setup.driver.vendor().call(&setup.target(&node), method, HttpMethod::Post, arguments).await
    };
    let error = call("send_raw", json!({"raw_bytes": "0x06 0x01"}), 0).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("not known whether it was carried out"), "{error}");
    // The device ID query and the session check precede the command.
    call("bmc_reset", json!({}), 2).await.unwrap();
    // An unreachable BMC did not receive the command.
    let error = call("bmc_reset", json!({}), 0).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test]
async fn errors_name_the_wrong_key() {
    let mut setup = IpmiTestMachine::new();
    let node = setup.node();
    let set_wrong = |key: &str, value: Value, setup: &mut IpmiTestMachine| {
        setup.driver_info = setup.valid_info.clone();
        setup.driver_info.insert(key.to_owned(), value);
    };
    for (key, value, text) in [
        ("ipmi_password", json!("wrong"), "check the user name and password"),
        ("ipmi_username", json!("unknown"), "check the user name and password"),
        ("ipmi_hex_kg_key", json!("abcd"), "ipmi_hex_kg_key"),
        ("ipmi_address", json!("no-such-host.invalid"), "could not be reached"),
    ] {
        set_wrong(key, value, &mut setup);
        let error = setup.driver.power().check_access(&setup.target(&node)).await.unwrap_err();
        assert!(error.to_string().contains(text), "{key}: {error}");
    }
    set_wrong("ipmi_bridging", json!("single"), &mut setup);
    let error = setup.driver.power().validate(&setup.target(&node)).await.unwrap_err();
    assert!(matches!(error, DriverError::MissingParameter { .. }), "{error}");
}

#[tokio::test]
async fn call_log_contains_no_secrets() {
    let setup = IpmiTestMachine::new();
    let node = setup.node();
    let log = Arc::new(BmcCallLog::default());
    let mut target = setup.target(&node);
    target.call_log = Some(&log);
    setup.driver.power().get(&target).await.unwrap();
    setup.driver.management().inject_nmi(&target).await.map(drop).unwrap();
    let bytes = json!({"raw_bytes": "0x06 0x47 0x02 0x02 0x70 0x61"});
    let arguments = bytes.as_object().unwrap();
    let _ = setup.driver.vendor().call(&target, "send_raw", HttpMethod::Post, arguments).await;
    let (calls, _) = log.take();
    let settings: Vec<_> =
        calls.iter().map(|call| format!("{}: {}", call.request, call.result)).collect();
    assert_eq!(settings[..2], ["IPMI Get Chassis Status: ok", "IPMI Chassis Control 0x04: ok"]);
    assert!(settings[2].starts_with("IPMI raw 0x06 0x47: completion code 0xc1"), "{}", settings[2]);
}

#[tokio::test]
async fn console_serves_two_clients_and_survives_bmc_restart() {
    let setup = IpmiTestMachine::new();
    let mut node = setup.node();
    setup.until_booted(&node).await;
    let console = setup.driver.console();
    let changes = console.start(&setup.target(&node)).await.unwrap();
    changes.apply_to(&mut node);
    let info = console.info(&setup.target(&node)).await.unwrap().unwrap();
    assert_eq!(info.kind, "socat");
    let address = info.url.strip_prefix("tcp://").unwrap().to_owned();
    assert_eq!(console.start(&setup.target(&node)).await.unwrap(), changes, "already started");
    let mut one = TcpStream::connect(&address).await.unwrap();
    read_until(&mut one, "login: ").await;
    let mut two = TcpStream::connect(&address).await.unwrap();
    one.write_all(b"hello").await.unwrap();
    read_until(&mut one, "hello").await;
    read_until(&mut two, "hello").await;
    // The BMC restarts and loses the session; the clients stay connected.
    setup.machine().with_model(|it, now| it.restart_bmc_for(now, Duration::from_millis(10)));
    two.write_all(b"x").await.unwrap();
    read_until(&mut one, "retrying in").await;
    read_until(&mut one, "login: ").await;
    let changes = console.stop(&setup.target(&node)).await.unwrap();
    changes.apply_to(&mut node);
    assert!(node.driver_internal_info.is_empty());
    assert!(TcpStream::connect(&address).await.is_err());
    assert_eq!(console.info(&setup.target(&node)).await.unwrap(), None);
    console.stop(&setup.target(&node)).await.map(drop).unwrap();
}

#[tokio::test]
async fn console_output_is_recorded_without_watchers() {
    let mut setup = IpmiTestMachine::new();
    let node = setup.node();
    let console = setup.driver.console();
    assert!(console.feed(node.id).is_none(), "not started");
    console.start(&setup.target(&node)).await.map(drop).unwrap();
    let feed = console.feed(node.id).unwrap();
    assert_eq!(console.served_nodes(), [node.id]);
    // Without watchers, output is recorded and input is possible.
    let text = setup.texts.recv().await.unwrap();
    assert_eq!((text.node, &*text.address), (node.id, "127.0.0.1"));
    assert!(text.text.contains("Booted from"), "{}", text.text);
    let mut subscription = feed.subscribe().unwrap();
    let recent_output = String::from_utf8(subscription.take_recent_output()).unwrap();
    assert!(
        recent_output.contains("\r\nBooted from ") && recent_output.ends_with("login: "),
        "{recent_output}"
    );
    feed.try_send_input(b"hello".to_vec()).unwrap();
    let mut output = Vec::new();
    while !output.ends_with(b"hello") {
        match subscription.next().await {
            Some(ConsoleOutput::Bytes(bytes)) => output.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
    drop(feed);
    let console = setup.driver.console();
    console.stop(&setup.target(&node)).await.map(drop).unwrap();
    assert_eq!(subscription.next().await, None, "subscriptions end when the console stops");
    assert!(console.served_nodes().is_empty());
}

#[tokio::test]
async fn watched_console_opens_without_permit() {
    let setup = IpmiTestMachine::new();
    let node = setup.node();
    setup.until_booted(&node).await;
    let connections = IpmiConnections::new(IpmiSettings::default(), Arc::new(BmcLimits::new(1)));
    let endpoint = connections.access(&setup.target(&node)).unwrap().endpoint;
    let sol = SolSettings {
        semaphore: connections.semaphore(&endpoint),
        endpoint,
        timeouts: connections.timeouts(),
        idle_timeout: None,
        stays_open: true,
        // Other consoles hold all permits.
        open_permits: Arc::new(Semaphore::new(0)),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let recording =
        ConsoleRecording { buffer: ConsoleBufferPool::new(64).buffer(64), timeline: None };
    let server = ConsoleServer::serve(listener, sol, recording).unwrap();
    let mut subscription = server.feed().subscribe().unwrap();
    assert!(matches!(subscription.next().await, Some(ConsoleOutput::Bytes(_))));
}

#[tokio::test]
async fn without_recording_session_is_open_only_while_watched() {
    let settings = ConsoleSettings { record: false, ..ConsoleSettings::default() };
    let mut setup = IpmiTestMachine::with_console_settings(&settings);
    let node = setup.node();
    setup.until_booted(&node).await;
    let console = setup.driver.console();
    console.start(&setup.target(&node)).await.map(drop).unwrap();
    let feed = console.feed(node.id).unwrap();
    assert!(feed.try_send_input(b"x".to_vec()).is_err(), "there is no session");
    let mut subscription = feed.subscribe().unwrap();
    assert!(subscription.take_recent_output().is_empty());
    let mut output = Vec::new();
    while !output.ends_with(b"login: ") {
        match subscription.next().await {
            Some(ConsoleOutput::Bytes(bytes)) => output.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
    drop(subscription);
    while feed.try_send_input(b"x".to_vec()).is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(feed.subscribe().unwrap().take_recent_output().is_empty(), "nothing is recorded");
    assert!(setup.texts.try_recv().is_err());
}

#[tokio::test]
async fn rejected_console_sends_no_requests_until_started_again() {
    let setup = IpmiTestMachine::new();
    let node = setup.node();
    setup.until_booted(&node).await;
    setup.fleet.faults().add("wrong-password".parse().unwrap(), setup.fleet.now());
    let console = setup.driver.console();
    let connect = async || {
        console.start(&setup.target(&node)).await.map(drop).unwrap();
        let info = console.info(&setup.target(&node)).await.unwrap().unwrap();
        let address = info.url.strip_prefix("tcp://").unwrap().to_owned();
        (TcpStream::connect(&address).await.unwrap(), address)
    };
    let (mut first, address) = connect().await;
    read_until(&mut first, "the BMC rejected the console session").await;
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).await.unwrap();
    // The BMC would accept the credentials now, but gets no request.
    setup.fleet.faults().clear();
    let mut second = TcpStream::connect(&address).await.unwrap();
    read_until(&mut second, "start the console again").await;
    let (mut third, _) = connect().await;
    read_until(&mut third, "login: ").await;
}

#[tokio::test]
async fn console_listens_on_terminal_port_of_node() {
    let mut setup = IpmiTestMachine::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    setup.driver_info.insert("ipmi_terminal_port".to_owned(), json!(port));
    let node = setup.node();
    let console = setup.driver.console();
    let error = console.start(&setup.target(&node)).await.unwrap_err().to_string();
    assert!(error.contains("ipmi_terminal_port"), "{error}");
    drop(free);
    console.start(&setup.target(&node)).await.map(drop).unwrap();
    let info = console.info(&setup.target(&node)).await.unwrap().unwrap();
    assert_eq!(info.url, format!("tcp://127.0.0.1:{port}"));
}

/// One simulated machine and the driver of its node.
struct IpmiTestMachine {
    fleet: SimulatedFleet,
    driver: Driver,
    texts: mpsc::Receiver<ConsoleText>,
    /// `driver_info` with valid credentials.
    valid_info: Map<String, Value>,
    driver_info: Map<String, Value>,
    instance_info: Map<String, Value>,
}

impl IpmiTestMachine {
    fn new() -> Self {
        Self::with_console_settings(&ConsoleSettings::default())
    }

    fn with_console_settings(console: &ConsoleSettings) -> Self {
        let personality = fleet_sim::Personality::built_in("dell-like").unwrap();
        let fleet = SimulatedFleet::start(FleetConfig {
            ipmi: true,
            powered_on: true,
            speed: 200.0,
            personalities: vec![personality],
            ..FleetConfig::default()
        })
        .unwrap();
        let port = fleet.machine(0).unwrap().address().port();
        let info = json!({
            "ipmi_address": "127.0.0.1", "ipmi_port": port,
            "ipmi_username": "admin", "ipmi_password": "password",
        });
        let Value::Object(valid_info) = info else { panic!("an object") };
        let driver_info = valid_info.clone();
        let (driver, texts) = driver(console);
        Self { fleet, driver, texts, valid_info, driver_info, instance_info: Map::new() }
    }

    fn machine(&self) -> SimulatedMachine {
        self.fleet.machine(0).unwrap()
    }

    fn node(&self) -> Node {
        Node::new(NodeId::random(), "ipmi", Timestamp(0))
    }

    fn target<'a>(&'a self, node: &'a Node) -> DriverTarget<'a> {
        DriverTarget::new(&self.driver, node, &self.driver_info, &self.instance_info, Timestamp(0))
    }

    /// Waits read_until the simulated machine has no pending change.
    async fn until_booted(&self, _node: &Node) {
        let machine = self.machine();
        loop {
            let wait =
                machine.with_model(|it, now| it.next_change().map(|change| change.since(now)));
            match wait {
                None => return,
                Some(wait) => tokio::time::sleep(wait).await,
            }
        }
    }
}

fn driver(console: &ConsoleSettings) -> (Driver, mpsc::Receiver<ConsoleText>) {
    let enabled = EnabledDrivers::new(&["ipmi".to_owned()], |_| (Vec::new(), None));
    let mut builder = RegistryBuilder::new(enabled, Arc::new(ExternalBootService), 1);
    fake_driver::register(&mut builder, &FakeSettings::default()).unwrap();
    let settings = IpmiSettings { command_retry_timeout: 3, ..IpmiSettings::default() };
    super::register(&mut builder, &settings, console).unwrap();
    let chosen = |kind| {
        Some(match kind {
            InterfaceKind::Power | InterfaceKind::Management | InterfaceKind::Vendor => NAME,
            InterfaceKind::Console => CONSOLE_NAME,
            InterfaceKind::Network => "noop",
            InterfaceKind::Bios
            | InterfaceKind::Boot
            | InterfaceKind::Deploy
            | InterfaceKind::Firmware
            | InterfaceKind::Inspect
            | InterfaceKind::Raid
            | InterfaceKind::Rescue
            | InterfaceKind::Storage => "fake",
        })
    };
    let driver = builder.implementations.compose(HARDWARE_TYPE, chosen).unwrap();
    (driver, builder.into_console_texts())
}

/// Reads read_until `text` appears.
async fn read_until(stream: &mut TcpStream, text: &str) {
    let mut received = String::new();
    let mut buffer = [0; 256];
    while !received.contains(text) {
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut buffer)).await;
        let length = read.unwrap_or_else(|_| panic!("no '{text}' in: {received}")).unwrap();
        assert!(length > 0, "ended before '{text}': {received}");
        received.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
}
