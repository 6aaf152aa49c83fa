// SPDX-License-Identifier: Apache-2.0
//! LLDP over veth pairs in a network namespace: hand-made frames and, if installed, those of `lldpd`.
//! Needs root and the program `ip`; otherwise the tests are skipped, unless `FERRITE_TEST_SERVERS` is
//! `required`.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::links::NetworkLinks;
use crate::lldp::{LldpListener, LldpNeighbours, listen};
use crate::syscalls::send_frame;

/// Far longer than any of these tests takes.
const LONG_TIMEOUT: Duration = Duration::from_secs(100);

/// A network namespace with veth pairs `cable0`–`switch0`, `cable1`–`switch1`, …
struct NetworkNamespace {
    name: String,
}

impl NetworkNamespace {
    /// Returns `None` if namespaces cannot be created.
    fn with_cables(count: usize) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = Self { name: format!("lldp-{}-{number}", std::process::id()) };
        if !run(&["netns", "add", &namespace.name]) {
            skip("no network namespaces: needs root and the program ip");
            return None;
        }
        for cable in 0..count {
            let (near, far) = (format!("cable{cable}"), format!("switch{cable}"));
            assert!(namespace.ip(&["link", "add", &near, "type", "veth", "peer", "name", &far]));
            assert!(namespace.ip(&["link", "set", &near, "up"]));
            assert!(namespace.ip(&["link", "set", &far, "up"]));
        }
        Some(namespace)
    }

    fn ip(&self, arguments: &[&str]) -> bool {
        run(&[&["-n", &self.name], arguments].concat())
    }

    /// Runs `work` on a thread inside the namespace.
    fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.name)).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let namespace_type = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), namespace_type).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        run(&["netns", "del", &self.name]);
    }
}

/// A child process that is killed when dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reports why a test is skipped; panics if `FERRITE_TEST_SERVERS` is `required`.
fn skip(reason: &str) {
    let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
    assert!(!required, "{reason}, and FERRITE_TEST_SERVERS=required");
    eprintln!("skipped: {reason}");
}

fn run(arguments: &[&str]) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Builds a frame to the nearest bridge, with chassis ID and port ID.
fn frame(port: u8) -> Vec<u8> {
    let mut frame = vec![0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 1, 0x88, 0xcc];
    frame.extend([0x02, 7, 4, 2, 0, 0, 0, 0, 1]);
    frame.extend([0x04, 3, 7, b'p', port]);
    frame.extend([0x06, 2, 0, 120, 0, 0]);
    frame.resize(60, 0);
    frame
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn port(neighbours: &LldpNeighbours, interface: &str) -> Option<String> {
    neighbours[interface]
        .iter()
        .find(|(tlv_type, _)| *tlv_type == 2)
        .map(|(_, value)| value.clone())
}

#[test]
fn collects_one_neighbour_per_interface_without_waiting_for_unplugged_one() {
    let Some(namespace) = NetworkNamespace::with_cables(3) else { return };
    // The third cable is unplugged at the switch.
    assert!(namespace.ip(&["link", "set", "switch2", "down"]));
    let start = Instant::now();
    let neighbours = namespace.enter(|| {
        let listener = LldpListener::open(&names(&["cable0", "cable1", "cable2"]));
        let links = NetworkLinks::query_without_speeds();
        for (far, port) in [("switch0", b'0'), ("switch1", b'1')] {
            // A frame of another protocol must be ignored.
            let mut other = frame(port);
            other[13] = 0xcd;
            send_frame(links.get(far).index.unwrap(), &other).unwrap();
            send_frame(links.get(far).index.unwrap(), &frame(port)).unwrap();
        }
        listener.collect(LONG_TIMEOUT)
    });
    assert!(start.elapsed() < LONG_TIMEOUT, "did not return before the timeout");
    let expected = [(1, "04020000000001"), (2, "077030"), (3, "0078"), (0, "")];
    assert_eq!(
        neighbours["cable0"],
        expected.map(|(tlv_type, value)| (tlv_type, value.to_owned()))
    );
    assert_eq!(port(&neighbours, "cable1").as_deref(), Some("077031"));
    assert_eq!(neighbours["cable2"], []);
}

#[test]
fn returns_empty_after_timeout() {
    let Some(namespace) = NetworkNamespace::with_cables(1) else { return };
    let neighbours =
        namespace.enter(|| listen(&names(&["cable0", "nosuch"]), Duration::from_millis(30)));
    assert_eq!(
        neighbours,
        LldpNeighbours::from([("cable0".into(), vec![]), ("nosuch".into(), vec![])])
    );
}

#[test]
fn receives_frames_of_lldpd() {
    let program = "lldpd";
    // `lldpd` drops its privileges to a user that its package creates.
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let installed = Command::new(program).arg("-v").stdout(Stdio::null()).status().is_ok();
    if !installed || !users.lines().any(|user| user.starts_with("_lldpd:")) {
        return skip("lldpd is not installed");
    }
    let Some(namespace) = NetworkNamespace::with_cables(1) else { return };
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let neighbours = namespace.enter(|| {
        let listener = LldpListener::open(&names(&["cable0"]));
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &namespace.name,
            program,
            "-d",
            "-I",
            "switch0",
            "-S",
            "a switch",
        ]);
        let child =
            command.arg("-u").arg(socket).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let _started = KillOnDrop(child.unwrap());
        listener.collect(LONG_TIMEOUT)
    });
    let tlv_types: Vec<u8> = neighbours["cable0"].iter().map(|(tlv_type, _)| *tlv_type).collect();
    assert_eq!(
        tlv_types[..3],
        [1, 2, 3],
        "chassis, port and time to live come first: {neighbours:?}"
    );
    assert_eq!(tlv_types.last(), Some(&0), "{neighbours:?}");
    let description = neighbours["cable0"].iter().find(|(tlv_type, _)| *tlv_type == 6);
    assert_eq!(description.map(|(_, hex)| hex.as_str()), Some("6120737769746368"));
}
