// SPDX-License-Identifier: Apache-2.0
//! Network namespaces, virtual cables between them, and programs that run inside.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use boot_server::{
    BootDirectory, BootEvent, BootEventDetail, BootEventRecorder, BootInstructions,
    BootLookupError, BootRequest, BootSnapshot, DhcpServices, HardwareAddress, Netboot,
    NetbootTarget,
};
use node_model::Timestamp;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Returns whether the programs are installed and the process is root. Prints the reason if not.
pub(crate) fn ready(programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|program| {
            !["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
                .iter()
                .any(|directory| Path::new(directory).join(program).exists())
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

/// Network namespaces, which are removed on drop.
pub(crate) struct NetworkLab {
    prefix: String,
    namespaces: Vec<String>,
    pub(crate) directory: tempfile::TempDir,
    children: Vec<std::process::Child>,
}

impl NetworkLab {
    pub(crate) fn new(namespaces: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("fb{}-{number}", std::process::id());
        let lab = Self {
            namespaces: namespaces
                .iter()
                .map(|namespace| format!("{prefix}-{namespace}"))
                .collect(),
            prefix,
            directory: tempfile::tempdir().unwrap(),
            children: Vec::new(),
        };
        for (name, namespace) in lab.namespaces.iter().zip(namespaces) {
            ip(&["netns", "add", name]);
            lab.ip(namespace, &["link", "set", "lo", "up"]);
        }
        lab
    }

    fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Connects interface `left` in one namespace to `right` in another, and sets both up.
    pub(crate) fn cable(&self, (namespace, left): (&str, &str), (other, right): (&str, &str)) {
        let (from, to) = (self.namespace(namespace), self.namespace(other));
        ip(&[
            "link", "add", left, "netns", &from, "type", "veth", "peer", "name", right, "netns",
            &to,
        ]);
        self.ip(namespace, &["link", "set", left, "up"]);
        self.ip(other, &["link", "set", right, "up"]);
    }

    /// Runs `ip` inside a namespace.
    pub(crate) fn ip(&self, namespace: &str, arguments: &[&str]) {
        let namespace = self.namespace(namespace);
        ip(&[&["-n", &namespace], arguments].concat());
    }

    /// Runs a program inside a namespace for at most 30 seconds. Returns whether it succeeded, and its
    /// output. The output goes to a file, because daemons that it leaves behind would hold a pipe open.
    pub(crate) fn run(&self, namespace: &str, arguments: &[&str]) -> (bool, String) {
        let path = self.directory.path().join("output");
        let output = File::create(&path).unwrap();
        let mut command =
            self.command(namespace, &[&["timeout", "-k", "1", "30"], arguments].concat());
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let status = command.status().unwrap();
        (status.success(), String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned())
    }

    /// Starts a program inside a namespace that runs until the lab is dropped.
    pub(crate) fn spawn(&mut self, namespace: &str, arguments: &[&str]) {
        let child = self.command(namespace, arguments).spawn().unwrap();
        self.children.push(child);
    }

    fn command(&self, namespace: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(namespace)]).args(arguments);
        command.current_dir(self.directory.path());
        command
    }

    /// Runs a closure on a new thread inside a namespace.
    pub(crate) fn inside<T: Send + 'static>(
        &self,
        namespace: &str,
        action: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let path = format!("/run/netns/{}", self.namespace(namespace));
        std::thread::spawn(move || {
            let file = File::open(path).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            action()
        })
    }

    /// Runs a server inside a namespace until the result is dropped. `start` binds it and returns its future.
    pub(crate) fn serve<Run: Future<Output = ()>>(
        &self,
        namespace: &str,
        start: impl FnOnce() -> Run + Send + 'static,
    ) -> RunningServer {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (ready, is_ready) = mpsc::channel();
        let thread = self.inside(namespace, move || {
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
        RunningServer { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for NetworkLab {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for namespace in &self.namespaces {
            // Some clients leave processes behind; kill only those in the namespaces of this lab.
            if let Ok(output) = Command::new("ip").args(["netns", "pids", namespace]).output() {
                let pids = String::from_utf8_lossy(&output.stdout).into_owned();
                // This process is listed while one of its threads is inside.
                let own = std::process::id().to_string();
                for pid in pids.split_whitespace().filter(|pid| **pid != *own) {
                    let _ = Command::new("kill").args(["-9", pid]).output();
                }
            }
            let _ = Command::new("ip").args(["netns", "del", namespace]).output();
        }
    }
}

/// A running server.
pub(crate) struct RunningServer {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

/// All machines are known and boot iPXE.
pub(crate) struct NetbootAll;

#[async_trait]
impl BootDirectory for NetbootAll {
    async fn look_up(
        &self,
        _machines: &[HardwareAddress],
    ) -> Result<Box<dyn BootSnapshot>, BootLookupError> {
        Ok(Box::new(Self))
    }
}

impl BootSnapshot for NetbootAll {
    fn instructions(&self, _request: &BootRequest<'_>) -> BootInstructions {
        let netboot = Netboot {
            ipxe_script: "http://10.77.0.1/boot.ipxe".into(),
            http_file: Some("http://10.77.0.1/agent.efi".into()),
            tftp_file: None,
        };
        let boot = NetbootTarget::Netboot(netboot);
        BootInstructions { is_known: true, is_booting: true, boot, host_name: None }
    }
}

/// The recorded events.
#[derive(Default)]
pub(crate) struct RecordedEvents {
    events: Mutex<Vec<BootEvent>>,
    more: Condvar,
}

impl RecordedEvents {
    /// Returns the number of events that match.
    pub(crate) fn count(&self, matches: impl Fn(&BootEventDetail) -> bool) -> usize {
        self.events.lock().unwrap().iter().filter(|event| matches(&event.detail)).count()
    }

    /// Waits for an event. The client is often done before the server records it.
    pub(crate) fn wait_for(&self, detail: &BootEventDetail) {
        self.wait_until(&format!("{detail:?}"), |events| events == detail);
    }

    /// Waits until an event matches.
    pub(crate) fn wait_until(&self, description: &str, matches: impl Fn(&BootEventDetail) -> bool) {
        let events = self.events.lock().unwrap();
        let is_missing =
            |events: &mut Vec<BootEvent>| !events.iter().any(|event| matches(&event.detail));
        let (events, waited) =
            self.more.wait_timeout_while(events, Duration::from_secs(10), is_missing).unwrap();
        assert!(!waited.timed_out(), "{description} is not in {events:?}");
    }
}

impl BootEventRecorder for RecordedEvents {
    fn record(&self, event: BootEvent) {
        self.events.lock().unwrap().push(event);
        self.more.notify_all();
    }
}

pub(crate) fn services(events: &Arc<RecordedEvents>) -> DhcpServices {
    DhcpServices {
        directory: Arc::new(NetbootAll),
        events: events.clone(),
        clock: Arc::new(wall_clock),
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
