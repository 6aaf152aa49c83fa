// SPDX-License-Identifier: Apache-2.0
//! Namespaces, cables between them, and servers and clients that run inside.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use boot_server::{BootAnswer, BootRequest, Netboot, Plan, Plans, Sighting, Sightings, What};
use node_model::Timestamp;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Whether the programs are there and we are root; says so if not.
pub(crate) fn ready(programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|program| {
            !["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
                .iter()
                .any(|folder| Path::new(folder).join(program).exists())
        })
        .collect();
    let is_root = rustix::process::geteuid().is_root();
    let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
    if missing.is_empty() && is_root {
        return true;
    }
    let reason = if is_root { format!("{missing:?} missing") } else { "not root".to_owned() };
    assert!(!required, "{reason}, and FERRITE_TEST_SERVERS=required");
    println!("skipped: {reason}");
    false
}

/// Namespaces that go when this goes.
pub(crate) struct Lab {
    prefix: String,
    spaces: Vec<String>,
    pub(crate) folder: tempfile::TempDir,
    children: Vec<std::process::Child>,
}

impl Lab {
    pub(crate) fn new(spaces: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("fb{}-{number}", std::process::id());
        let lab = Self {
            spaces: spaces.iter().map(|space| format!("{prefix}-{space}")).collect(),
            prefix,
            folder: tempfile::tempdir().unwrap(),
            children: Vec::new(),
        };
        for (name, space) in lab.spaces.iter().zip(spaces) {
            ip(&["netns", "add", name]);
            lab.ip(space, &["link", "set", "lo", "up"]);
        }
        lab
    }

    fn space(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// A cable from interface `left` in one space to `right` in another. Both are up.
    pub(crate) fn cable(&self, (space, left): (&str, &str), (other, right): (&str, &str)) {
        let (from, to) = (self.space(space), self.space(other));
        ip(&[
            "link", "add", left, "netns", &from, "type", "veth", "peer", "name", right, "netns",
            &to,
        ]);
        self.ip(space, &["link", "set", left, "up"]);
        self.ip(other, &["link", "set", right, "up"]);
    }

    /// `ip` inside a space.
    pub(crate) fn ip(&self, space: &str, arguments: &[&str]) {
        let space = self.space(space);
        ip(&[&["-n", &space], arguments].concat());
    }

    /// A program inside a space, ended after half a minute; whether it succeeded, and what it said.
    /// It speaks into a file, because a pipe would be held open by daemons it leaves behind.
    pub(crate) fn run(&self, space: &str, arguments: &[&str]) -> (bool, String) {
        let path = self.folder.path().join("said");
        let said = File::create(&path).unwrap();
        let mut command = self.command(space, &[&["timeout", "-k", "1", "30"], arguments].concat());
        command.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
        let status = command.status().unwrap();
        (status.success(), String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned())
    }

    /// A program that runs inside a space until the lab goes.
    pub(crate) fn spawn(&mut self, space: &str, arguments: &[&str]) {
        let child = self.command(space, arguments).spawn().unwrap();
        self.children.push(child);
    }

    fn command(&self, space: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(space)]).args(arguments);
        command.current_dir(self.folder.path());
        command
    }

    /// Does something on a thread of its own inside a space.
    pub(crate) fn inside<T: Send + 'static>(
        &self,
        space: &str,
        action: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let path = format!("/run/netns/{}", self.space(space));
        std::thread::spawn(move || {
            let file = File::open(path).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            action()
        })
    }

    /// Runs a server inside a space until what is returned goes. `start` binds, and gives what to run.
    pub(crate) fn serve<Run: Future<Output = ()>>(
        &self,
        space: &str,
        start: impl FnOnce() -> Run + Send + 'static,
    ) -> Serving {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (ready, is_ready) = mpsc::channel();
        let thread = self.inside(space, move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let run = start();
                ready.send(()).unwrap();
                tokio::select! {
                    () = run => {}
                    _ = stopped => {}
                }
            });
        });
        is_ready.recv().expect("the server starts");
        Serving { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for space in &self.spaces {
            // Some clients leave processes behind; only those of our own spaces are ended.
            if let Ok(output) = Command::new("ip").args(["netns", "pids", space]).output() {
                let pids = String::from_utf8_lossy(&output.stdout).into_owned();
                // This very process is listed while a thread of it is inside.
                let own = std::process::id().to_string();
                for pid in pids.split_whitespace().filter(|pid| **pid != *own) {
                    let _ = Command::new("kill").args(["-9", pid]).output();
                }
            }
            let _ = Command::new("ip").args(["netns", "del", space]).output();
        }
    }
}

/// A running server.
pub(crate) struct Serving {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

/// Every machine is known and should boot iPXE.
pub(crate) struct Everybody;

impl Plans for Everybody {
    fn plan(&self, _request: &BootRequest<'_>) -> Plan {
        let netboot = Netboot {
            script: "http://10.77.0.1/boot.ipxe".into(),
            http: Some("http://10.77.0.1/agent.efi".into()),
            first_stage: None,
            parameters: Vec::new(),
        };
        let boot = BootAnswer::Netboot(netboot);
        Plan { known: true, is_booting: true, boot, host_name: None }
    }
}

/// What was seen so far.
#[derive(Default)]
pub(crate) struct Seen {
    sightings: Mutex<Vec<Sighting>>,
    more: Condvar,
}

impl Seen {
    /// How many sightings there are of what `is_it` says.
    pub(crate) fn count(&self, is_it: impl Fn(&What) -> bool) -> usize {
        self.sightings.lock().unwrap().iter().filter(|sighting| is_it(&sighting.what)).count()
    }

    /// Waits until there is one; the client is often done before the server has heard of it.
    pub(crate) fn wait_for(&self, what: &What) {
        self.wait_until(&format!("{what:?}"), |seen| seen == what);
    }

    /// Waits until there is one that `is_it` says it is.
    pub(crate) fn wait_until(&self, wanted: &str, is_it: impl Fn(&What) -> bool) {
        let sightings = self.sightings.lock().unwrap();
        let is_missing =
            |seen: &mut Vec<Sighting>| !seen.iter().any(|sighting| is_it(&sighting.what));
        let (seen, waited) =
            self.more.wait_timeout_while(sightings, Duration::from_secs(10), is_missing).unwrap();
        assert!(!waited.timed_out(), "{wanted} is not in {seen:?}");
    }
}

impl Sightings for Seen {
    fn seen(&self, sighting: Sighting) {
        self.sightings.lock().unwrap().push(sighting);
        self.more.notify_all();
    }
}

pub(crate) fn services(seen: &Arc<Seen>) -> boot_server::dhcp4::Services {
    boot_server::dhcp4::Services {
        plans: Arc::new(Everybody),
        sightings: seen.clone(),
        clock: wall_clock,
    }
}

pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp(i64::try_from(since.unwrap_or(Duration::ZERO).as_micros()).unwrap())
}

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {output:?}");
}
