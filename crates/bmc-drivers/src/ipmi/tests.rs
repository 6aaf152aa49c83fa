// SPDX-License-Identifier: Apache-2.0
//! The interfaces on simulated machines, over real sockets.

use std::sync::Arc;
use std::time::Duration;

use fleet_sim::machine::{BootMode as SimulatedMode, BootTarget, Indicator as Light, Override};
use fleet_sim::{Fleet, FleetConfig, SimulatedMachine};
use node_model::{InterfaceKind, Node, NodeId, PowerState, PowerTarget, Timestamp};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

use super::connections::Connections;
use super::terminal::{Line, Terminal};
use super::{CONSOLE_NAME, ConsoleSettings, IpmiSettings, NAME};
use crate::console_feed::Keeping;
use crate::console_memory::ConsoleMemory;
use crate::driver::{Driver, Shelves};
use crate::fake::FakeBehaviour;
use crate::turns::Turns;
use crate::{
    BootDevice, BootDeviceSetting, CallLog, ConsoleText, Error, FakeSettings, HttpMethod,
    IndicatorComponent, IndicatorState, NodeChanges, Printed, SensorKind, SensorStatus, Target,
};

#[tokio::test]
async fn power_goes_where_it_is_told() {
    let rack = Rack::new();
    let mut node = rack.node();
    let power = rack.driver.power();
    for (wanted, state) in [
        (PowerTarget::Off, PowerState::Off),
        (PowerTarget::Off, PowerState::Off),
        (PowerTarget::On, PowerState::On),
        (PowerTarget::On, PowerState::On),
        (PowerTarget::Reboot, PowerState::On),
        (PowerTarget::SoftReboot, PowerState::On),
        (PowerTarget::SoftOff, PowerState::Off),
        (PowerTarget::Reboot, PowerState::On),
    ] {
        rack.until_booted(&node).await;
        let changes = power.set(&rack.target(&node), wanted, None).await.unwrap();
        assert_eq!(changes.power_state, Some(state), "{wanted}");
        node.power_state = changes.power_state;
        assert_eq!(power.get(&rack.target(&node)).await.unwrap(), Some(state), "{wanted}");
    }
    power.check_access(&rack.target(&node)).await.unwrap();
}

#[tokio::test]
async fn a_machine_that_must_stay_on_is_reset() {
    let rack = Rack::new();
    let mut node = rack.node();
    node.disable_power_off = true;
    rack.until_booted(&node).await;
    let power = rack.driver.power();
    let soft = power.set(&rack.target(&node), PowerTarget::SoftReboot, None).await.unwrap_err();
    assert!(soft.to_string().contains("disable_power_off"), "{soft}");
    let boots = rack.machine().boots().len();
    // The wait for a reset that may not show is long; what counts is that it was sent.
    let target = rack.target(&node);
    let reset = power.set(&target, PowerTarget::Reboot, None);
    let reset = tokio::time::timeout(Duration::from_secs(1), reset).await;
    assert!(reset.is_err(), "waits before it believes what it sees");
    rack.until_booted(&node).await;
    assert_eq!(rack.machine().boots().len(), boots + 1);
}

#[tokio::test]
async fn a_machine_that_does_not_follow_is_an_error_in_time() {
    let rack = Rack::new();
    rack.fleet.faults().add("power-stuck".parse().unwrap(), rack.fleet.now());
    let node = rack.node();
    let timeout = Some(Duration::from_millis(300));
    let power = rack.driver.power();
    let error = power.set(&rack.target(&node), PowerTarget::SoftOff, timeout).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("failed to shut the machine down: the machine is on"), "{text}");
    assert!(text.contains("'power off'"), "{text}");
}

#[tokio::test]
async fn a_reboot_whose_bmc_is_lost_on_the_way_is_not_one_to_repeat() {
    let rack = Rack::new();
    let node = rack.node();
    rack.until_booted(&node).await;
    // Off is heard, on is not.
    let hang = "hang path=/ipmi/power skip=1".parse().unwrap();
    rack.fleet.faults().add(hang, rack.fleet.now());
    let timeout = Some(Duration::from_secs(1));
    let power = rack.driver.power();
    let error = power.set(&rack.target(&node), PowerTarget::Reboot, timeout).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("the machine was off"), "{error}");
}

#[tokio::test]
async fn the_boot_device_is_set_for_the_mode_the_machine_boots_in() {
    let rack = Rack::new();
    let mut node = rack.node();
    rack.until_booted(&node).await;
    let management = rack.driver.management();
    for (capabilities, device, persistent, wanted, mode) in [
        ("", BootDevice::Pxe, false, BootTarget::Pxe, SimulatedMode::Uefi),
        ("boot_mode:uefi", BootDevice::Disk, false, BootTarget::Hdd, SimulatedMode::Uefi),
        ("a:b,boot_mode:bios", BootDevice::Cdrom, true, BootTarget::Cd, SimulatedMode::Legacy),
        ("boot_mode:uefi", BootDevice::Bios, true, BootTarget::BiosSetup, SimulatedMode::Uefi),
    ] {
        node.properties.set("capabilities", capabilities);
        let changes =
            management.set_boot_device(&rack.target(&node), device, persistent).await.unwrap();
        assert!(changes.is_empty());
        let told = rack.machine().with(|machine, _| machine.boot_settings().clone());
        let enabled = if persistent { Override::Continuous } else { Override::Once };
        assert_eq!((told.target, told.mode, told.enabled), (wanted, mode, enabled), "{device}");
        let shown = management.boot_device(&rack.target(&node)).await.unwrap();
        let asked = BootDeviceSetting { device: Some(device), persistent: Some(persistent) };
        assert_eq!(shown, asked);
    }
    let error = management
        .set_boot_device(&rack.target(&node), BootDevice::Floppy, true)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("pxe, disk, cdrom, bios, safe"), "{error}");
}

#[tokio::test]
async fn a_bmc_that_forgets_is_told_again() {
    let mut rack = Rack::new();
    rack.driver_info.insert("ipmi_force_boot_device".to_owned(), json!(true));
    let mut node = rack.node();
    rack.until_booted(&node).await;
    let target_of = |rack: &Rack| rack.machine().with(|it, _| it.boot_settings().target);
    let apply = |node: &mut Node, changes: NodeChanges| changes.apply_to(node);
    let management = rack.driver.management();
    let set = async |node: &Node, device, persistent| {
        management.set_boot_device(&rack.target(node), device, persistent).await.unwrap()
    };
    let changes = set(&node, BootDevice::Disk, true).await;
    apply(&mut node, changes);
    let shown = management.boot_device(&rack.target(&node)).await.unwrap();
    assert_eq!((shown.device, shown.persistent), (Some(BootDevice::Disk), Some(true)));
    // Once from the network: the next power on leaves it alone, the one after does not.
    let changes = set(&node, BootDevice::Pxe, false).await;
    apply(&mut node, changes);
    let power = rack.driver.power();
    let mut boots = Vec::new();
    for _ in 0..2 {
        let changes = power.set(&rack.target(&node), PowerTarget::Reboot, None).await.unwrap();
        apply(&mut node, changes);
        rack.until_booted(&node).await;
        boots.push(rack.machine().booted().unwrap().from);
    }
    assert_eq!(boots, [BootTarget::Pxe, BootTarget::Hdd]);
    assert_eq!(target_of(&rack), BootTarget::None, "each was told for one boot only");
}

#[tokio::test]
async fn sensors_lights_and_the_rest() {
    let rack = Rack::new();
    let node = rack.node();
    let management = rack.driver.management();
    let sensors = management.sensors(&rack.target(&node)).await.unwrap();
    let inlet = sensors.iter().find(|sensor| sensor.name == "Inlet Temp").unwrap();
    assert_eq!((inlet.kind, inlet.unit), (SensorKind::Temperature, "Celsius"));
    assert!(matches!(inlet.status, SensorStatus::Enabled(_)));
    let rail = sensors.iter().find(|sensor| sensor.name == "12V Rail").unwrap();
    assert!((rail.reading.unwrap() - 12.0).abs() < 0.3, "{rail:?}");
    let chassis = IndicatorComponent::Chassis;
    for (state, light) in [(IndicatorState::On, Light::Lit), (IndicatorState::Off, Light::Off)] {
        let _ = management
            .set_indicator(&rack.target(&node), chassis, "identify", state)
            .await
            .unwrap();
        assert_eq!(rack.machine().with(|it, _| it.indicator()), light);
        let shown = management.indicator(&rack.target(&node), chassis, "identify").await.unwrap();
        assert_eq!(shown, state);
    }
    let missing = management.indicator(&rack.target(&node), chassis, "led").await.unwrap_err();
    assert!(missing.is_not_found());
    let _ = management.inject_nmi(&rack.target(&node)).await.unwrap();
    assert_eq!(rack.machine().with(|it, _| it.interrupts()), 1);
    assert_eq!(
        management.detect_vendor(&rack.target(&node)).await.unwrap().as_deref(),
        Some("dell inc.")
    );
}

#[tokio::test]
async fn raw_commands_and_a_restart_of_the_bmc() {
    let rack = Rack::new();
    let node = rack.node();
    let vendor = rack.driver.vendor();
    let call = async |method: &str, arguments: Value| {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        let target = rack.target(&node);
        vendor.validate_call(&target, method, &arguments).await?;
        vendor.call(&target, method, HttpMethod::Post, &arguments).await
    };
    call("send_raw", json!({"raw_bytes": "0x00 0x04 0x00 0x01"})).await.unwrap();
    assert_eq!(rack.machine().with(|it, _| it.indicator()), Light::Lit);
    let error = call("send_raw", json!({"raw_bytes": "0x30 0x99"})).await.unwrap_err().to_string();
    assert!(error.contains("0xc1") && error.contains("does not know this command"), "{error}");
    call("bmc_reset", json!({"warm": false})).await.unwrap();
    assert_eq!(rack.machine().with(|it, _| it.bmc_restarts()), 1);
    assert!(call("dance", json!({})).await.is_err());
    // It is back in a moment and knows no session.
    rack.driver.power().get(&rack.target(&node)).await.unwrap();
}

#[tokio::test]
async fn silence_after_a_command_means_what_the_command_does() {
    let rack = Rack::new();
    let node = rack.node();
    let call = async |method: &str, arguments: Value, questions: u8| {
        let hang = format!("hang path=/ipmi/controller skip={questions}").parse().unwrap();
        rack.fleet.faults().set(vec![hang], rack.fleet.now());
        let arguments = arguments.as_object().unwrap();
        rack.driver.vendor().call(&rack.target(&node), method, HttpMethod::Post, arguments).await
    };
    let error = call("send_raw", json!({"raw_bytes": "0x06 0x01"}), 0).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("not known whether it was carried out"), "{error}");
    // The questions who the BMC is and whether the session still lives come before the command.
    call("bmc_reset", json!({}), 2).await.unwrap();
    // A BMC that is not there has not been told.
    let error = call("bmc_reset", json!({}), 0).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let mut rack = Rack::new();
    let node = rack.node();
    let wrong = |key: &str, value: Value, rack: &mut Rack| {
        rack.driver_info = rack.good.clone();
        rack.driver_info.insert(key.to_owned(), value);
    };
    for (key, value, words) in [
        ("ipmi_password", json!("wrong"), "check the user name and password"),
        ("ipmi_username", json!("nobody"), "check the user name and password"),
        ("ipmi_hex_kg_key", json!("abcd"), "ipmi_hex_kg_key"),
        ("ipmi_address", json!("no-such-host.invalid"), "could not be reached"),
    ] {
        wrong(key, value, &mut rack);
        let error = rack.driver.power().check_access(&rack.target(&node)).await.unwrap_err();
        assert!(error.to_string().contains(words), "{key}: {error}");
    }
    wrong("ipmi_bridging", json!("single"), &mut rack);
    let error = rack.driver.power().validate(&rack.target(&node)).await.unwrap_err();
    assert!(matches!(error, Error::MissingParameter { .. }), "{error}");
}

#[tokio::test]
async fn what_was_said_is_told_without_secrets() {
    let rack = Rack::new();
    let node = rack.node();
    let log = Arc::new(CallLog::default());
    let mut target = rack.target(&node);
    target.calls = Some(&log);
    rack.driver.power().get(&target).await.unwrap();
    rack.driver.management().inject_nmi(&target).await.map(drop).unwrap();
    let bytes = json!({"raw_bytes": "0x06 0x47 0x02 0x02 0x70 0x61"});
    let arguments = bytes.as_object().unwrap();
    let _ = rack.driver.vendor().call(&target, "send_raw", HttpMethod::Post, arguments).await;
    let (calls, _) = log.take();
    let told: Vec<_> = calls.iter().map(|call| format!("{}: {}", call.what, call.result)).collect();
    assert_eq!(told[..2], ["IPMI Get Chassis Status: ok", "IPMI Chassis Control 0x04: ok"]);
    assert!(told[2].starts_with("IPMI raw 0x06 0x47: completion code 0xc1"), "{}", told[2]);
}

#[tokio::test]
async fn a_console_is_watched_by_two_and_survives_the_bmc() {
    let rack = Rack::new();
    let mut node = rack.node();
    rack.until_booted(&node).await;
    let console = rack.driver.console();
    let changes = console.start(&rack.target(&node)).await.unwrap();
    changes.apply_to(&mut node);
    let info = console.info(&rack.target(&node)).await.unwrap();
    assert_eq!(info.kind, "socat");
    let address = info.url.strip_prefix("tcp://").unwrap().to_owned();
    assert_eq!(console.start(&rack.target(&node)).await.unwrap(), changes, "it is on already");
    let mut one = TcpStream::connect(&address).await.unwrap();
    until(&mut one, "login: ").await;
    let mut two = TcpStream::connect(&address).await.unwrap();
    one.write_all(b"hello").await.unwrap();
    until(&mut one, "hello").await;
    until(&mut two, "hello").await;
    // The BMC restarts and forgets the session; the watchers stay.
    rack.machine().with(|it, now| it.keep_bmc_away(now, Duration::from_millis(10)));
    two.write_all(b"x").await.unwrap();
    until(&mut one, "trying again").await;
    until(&mut one, "login: ").await;
    let changes = console.stop(&rack.target(&node)).await.unwrap();
    changes.apply_to(&mut node);
    assert!(node.driver_internal_info.is_empty());
    assert!(TcpStream::connect(&address).await.is_err());
    assert!(console.info(&rack.target(&node)).await.is_err());
    console.stop(&rack.target(&node)).await.map(drop).unwrap();
}

#[tokio::test]
async fn what_a_machine_prints_is_kept_while_nobody_watches() {
    let mut rack = Rack::new();
    let node = rack.node();
    let console = rack.driver.console();
    assert!(console.feed(node.id).is_none(), "it is off");
    console.start(&rack.target(&node)).await.map(drop).unwrap();
    let feed = console.feed(node.id).unwrap();
    assert_eq!(console.served(), [node.id]);
    // Nobody looked, and it is there all the same: what was said, and where to type.
    let text = rack.texts.recv().await.unwrap();
    assert_eq!((text.node, &*text.address), (node.id, "127.0.0.1"));
    assert!(text.text.contains("Booted from"), "{}", text.text);
    let mut watching = feed.watch().unwrap();
    let so_far = String::from_utf8(watching.take_so_far()).unwrap();
    assert!(so_far.contains("\r\nBooted from ") && so_far.ends_with("login: "), "{so_far}");
    feed.type_in(b"hello".to_vec()).unwrap();
    let mut heard = Vec::new();
    while !heard.ends_with(b"hello") {
        match watching.next().await {
            Some(Printed::Bytes(bytes)) => heard.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
    drop(feed);
    let console = rack.driver.console();
    console.stop(&rack.target(&node)).await.map(drop).unwrap();
    assert_eq!(watching.next().await, None, "it is off, and whoever watches knows");
    assert!(console.served().is_empty());
}

#[tokio::test]
async fn whoever_watches_does_not_wait_for_all_the_others() {
    let rack = Rack::new();
    let node = rack.node();
    rack.until_booted(&node).await;
    let connections = Connections::new(IpmiSettings::default(), Arc::new(Turns::new(1)));
    let endpoint = connections.access(&rack.target(&node)).unwrap().endpoint;
    let line = Line {
        turns: connections.turns(&endpoint),
        endpoint,
        timeouts: connections.timeouts(),
        quiet_after: None,
        is_held: true,
        // Others have all places, and keep them.
        openings: Arc::new(Semaphore::new(0)),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let keeping = Keeping { memory: ConsoleMemory::new(64).ring(64), notes: None };
    let terminal = Terminal::serve(listener, line, keeping).unwrap();
    let mut watching = terminal.feed().watch().unwrap();
    assert!(matches!(watching.next().await, Some(Printed::Bytes(_))));
}

#[tokio::test]
async fn without_recording_the_line_is_left_to_others() {
    let settings = ConsoleSettings { record: false, ..ConsoleSettings::default() };
    let mut rack = Rack::with_consoles(&settings);
    let node = rack.node();
    rack.until_booted(&node).await;
    let console = rack.driver.console();
    console.start(&rack.target(&node)).await.map(drop).unwrap();
    let feed = console.feed(node.id).unwrap();
    assert!(feed.type_in(b"x".to_vec()).is_err(), "there is no session");
    let mut watching = feed.watch().unwrap();
    assert!(watching.take_so_far().is_empty());
    let mut heard = Vec::new();
    while !heard.ends_with(b"login: ") {
        match watching.next().await {
            Some(Printed::Bytes(bytes)) => heard.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
    drop(watching);
    while feed.type_in(b"x".to_vec()).is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(feed.watch().unwrap().take_so_far().is_empty(), "nothing is kept");
    assert!(rack.texts.try_recv().is_err());
}

#[tokio::test]
async fn a_console_that_is_refused_is_left_alone_until_it_is_started_again() {
    let rack = Rack::new();
    let node = rack.node();
    rack.until_booted(&node).await;
    rack.fleet.faults().add("wrong-password".parse().unwrap(), rack.fleet.now());
    let console = rack.driver.console();
    let connect = async || {
        console.start(&rack.target(&node)).await.map(drop).unwrap();
        let info = console.info(&rack.target(&node)).await.unwrap();
        let address = info.url.strip_prefix("tcp://").unwrap().to_owned();
        (TcpStream::connect(&address).await.unwrap(), address)
    };
    let (mut first, address) = connect().await;
    until(&mut first, "the BMC refuses the console").await;
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).await.unwrap();
    // It would let us in now, and is not asked.
    rack.fleet.faults().clear();
    let mut second = TcpStream::connect(&address).await.unwrap();
    until(&mut second, "start the console again").await;
    let (mut third, _) = connect().await;
    until(&mut third, "login: ").await;
}

#[tokio::test]
async fn a_console_at_a_port_of_its_own() {
    let mut rack = Rack::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    rack.driver_info.insert("ipmi_terminal_port".to_owned(), json!(port));
    let node = rack.node();
    let console = rack.driver.console();
    let error = console.start(&rack.target(&node)).await.unwrap_err().to_string();
    assert!(error.contains("ipmi_terminal_port"), "{error}");
    drop(free);
    console.start(&rack.target(&node)).await.map(drop).unwrap();
    let info = console.info(&rack.target(&node)).await.unwrap();
    assert_eq!(info.url, format!("tcp://127.0.0.1:{port}"));
}

/// One simulated machine and the driver of its node.
struct Rack {
    fleet: Fleet,
    driver: Driver,
    texts: mpsc::Receiver<ConsoleText>,
    /// What is right.
    good: Map<String, Value>,
    driver_info: Map<String, Value>,
    instance_info: Map<String, Value>,
}

impl Rack {
    fn new() -> Self {
        Self::with_consoles(&ConsoleSettings::default())
    }

    fn with_consoles(console: &ConsoleSettings) -> Self {
        let personality = fleet_sim::Personality::named("dell-like").unwrap();
        let fleet = Fleet::start(FleetConfig {
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
        let Value::Object(good) = info else { panic!("an object") };
        let driver_info = good.clone();
        let (to, texts) = mpsc::channel(64);
        let driver = driver(console, to);
        Self { fleet, driver, texts, good, driver_info, instance_info: Map::new() }
    }

    fn machine(&self) -> SimulatedMachine {
        self.fleet.machine(0).unwrap()
    }

    fn node(&self) -> Node {
        Node::new(NodeId::random(), "ipmi", Timestamp(0))
    }

    fn target<'a>(&'a self, node: &'a Node) -> Target<'a> {
        Target::new(&self.driver, node, &self.driver_info, &self.instance_info, Timestamp(0))
    }

    /// Simulated machines take a moment for everything, too.
    async fn until_booted(&self, _node: &Node) {
        let machine = self.machine();
        loop {
            let wait = machine.with(|it, now| it.next_change().map(|change| change.since(now)));
            match wait {
                None => return,
                Some(wait) => tokio::time::sleep(wait).await,
            }
        }
    }
}

fn driver(console: &ConsoleSettings, texts: mpsc::Sender<ConsoleText>) -> Driver {
    let mut shelves = Shelves::default();
    crate::fake::add_to(&mut shelves, FakeBehaviour::new(&FakeSettings::default()).unwrap());
    crate::noop::add_to(&mut shelves);
    let settings = IpmiSettings { command_retry_timeout: 3, ..IpmiSettings::default() };
    let turns = Arc::new(Turns::new(1));
    super::add_to(&mut shelves, &settings, console, &turns, texts).unwrap();
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
    shelves.compose(chosen).unwrap()
}

/// Reads until `words` are seen.
async fn until(stream: &mut TcpStream, words: &str) {
    let mut seen = String::new();
    let mut buffer = [0; 256];
    while !seen.contains(words) {
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut buffer)).await;
        let length = read.unwrap_or_else(|_| panic!("no '{words}' in: {seen}")).unwrap();
        assert!(length > 0, "ended before '{words}': {seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
}
