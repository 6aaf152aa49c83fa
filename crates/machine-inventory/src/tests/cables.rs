// SPDX-License-Identifier: Apache-2.0
//! Switches heard over virtual cables, in a network namespace of its own: frames made by hand, and where
//! it is installed those of the real `lldpd`. Needs root and the program `ip`; without them the tests
//! say so and do nothing, unless `FERRITE_TEST_SERVERS` is `required`.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::addresses::Links;
use crate::kernel::send_frame;
use crate::lldp::{Heard, Listener, listen};

/// Much longer than anything here takes; waiting it out is failing.
const LONG: Duration = Duration::from_secs(100);

/// A network namespace with cables from `cable0`, `cable1`… to `switch0`, `switch1`…
struct Space {
    name: String,
}

impl Space {
    /// Nothing where namespaces cannot be made.
    fn with_cables(count: usize) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let space = Self { name: format!("lldp-{}-{number}", std::process::id()) };
        if !run(&["netns", "add", &space.name]) {
            skip("no network namespaces: needs root and the program ip");
            return None;
        }
        for cable in 0..count {
            let (near, far) = (format!("cable{cable}"), format!("switch{cable}"));
            assert!(space.ip(&["link", "add", &near, "type", "veth", "peer", "name", &far]));
            assert!(space.ip(&["link", "set", &near, "up"]));
            assert!(space.ip(&["link", "set", &far, "up"]));
        }
        Some(space)
    }

    fn ip(&self, arguments: &[&str]) -> bool {
        run(&[&["-n", &self.name], arguments].concat())
    }

    /// Runs something on a thread that is in the namespace.
    fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let space = File::open(format!("/run/netns/{}", self.name)).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(space.as_fd(), kind).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        run(&["netns", "del", &self.name]);
    }
}

/// A program that ends with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Says why a test does nothing; where everything is meant to be there, it fails instead.
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

/// A frame to the nearest bridge, with a chassis and a port.
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

fn port(heard: &Heard, card: &str) -> Option<String> {
    heard[card].iter().find(|(kind, _)| *kind == 2).map(|(_, value)| value.clone())
}

#[test]
fn every_card_hears_its_own_switch_and_one_without_a_cable_is_not_waited_for() {
    let Some(space) = Space::with_cables(3) else { return };
    // The third cable is unplugged at the far end.
    assert!(space.ip(&["link", "set", "switch2", "down"]));
    let start = Instant::now();
    let heard = space.enter(|| {
        let listener = Listener::open(&names(&["cable0", "cable1", "cable2"]));
        let links = Links::of_route();
        for (far, port) in [("switch0", b'0'), ("switch1", b'1')] {
            // Something else on the cable first, which must not count.
            let mut other = frame(port);
            other[13] = 0xcd;
            send_frame(links.get(far).index.unwrap(), &other).unwrap();
            send_frame(links.get(far).index.unwrap(), &frame(port)).unwrap();
        }
        listener.hear(LONG)
    });
    assert!(start.elapsed() < LONG, "did not stop early");
    let expected = [(1, "04020000000001"), (2, "077030"), (3, "0078"), (0, "")];
    assert_eq!(heard["cable0"], expected.map(|(kind, value)| (kind, value.to_owned())));
    assert_eq!(port(&heard, "cable1").as_deref(), Some("077031"));
    assert_eq!(heard["cable2"], []);
}

#[test]
fn silence_ends_when_the_time_is_over() {
    let Some(space) = Space::with_cables(1) else { return };
    let heard = space.enter(|| listen(&names(&["cable0", "nosuch"]), Duration::from_millis(30)));
    assert_eq!(heard, Heard::from([("cable0".into(), vec![]), ("nosuch".into(), vec![])]));
}

#[test]
fn the_real_lldpd_is_heard() {
    let program = "lldpd";
    // It gives up root for a user that its package makes.
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let installed = Command::new(program).arg("-v").stdout(Stdio::null()).status().is_ok();
    if !installed || !users.lines().any(|user| user.starts_with("_lldpd:")) {
        return skip("lldpd is not installed");
    }
    let Some(space) = Space::with_cables(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let heard = space.enter(|| {
        let listener = Listener::open(&names(&["cable0"]));
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &space.name,
            program,
            "-d",
            "-I",
            "switch0",
            "-S",
            "a switch",
        ]);
        let child =
            command.arg("-u").arg(socket).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let _started = Started(child.unwrap());
        listener.hear(LONG)
    });
    let kinds: Vec<u8> = heard["cable0"].iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds[..3], [1, 2, 3], "chassis, port and time to live come first: {heard:?}");
    assert_eq!(kinds.last(), Some(&0), "{heard:?}");
    let description = heard["cable0"].iter().find(|(kind, _)| *kind == 6);
    assert_eq!(description.map(|(_, hex)| hex.as_str()), Some("6120737769746368"));
}
