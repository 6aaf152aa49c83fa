// SPDX-License-Identifier: Apache-2.0
//! Network namespaces with virtual cables, and programs that run inside.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Returns whether the programs are installed and the process is root. Prints the reason if not.
pub(crate) fn can_use_namespaces(programs: &[&str]) -> bool {
    let is_installed = |program: &str| {
        let folders = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
        folders.iter().any(|folder| Path::new(folder).join(program).exists())
    };
    let missing: Vec<&&str> = programs.iter().filter(|program| !is_installed(program)).collect();
    let is_root = rustix::process::geteuid().is_root();
    if missing.is_empty() && is_root {
        return true;
    }
    let reason = if is_root { format!("{missing:?} missing") } else { "not root".to_owned() };
    let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
    assert!(!required, "{reason}, and FERRITE_TEST_SERVERS=required");
    println!("skipped: {reason}");
    false
}

/// Network namespaces, which are removed on drop.
pub(crate) struct TestNamespaces {
    prefix: String,
    names: Vec<String>,
}

impl TestNamespaces {
    pub(crate) fn new(names: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("ferrite-{}-{number}", std::process::id());
        let names: Vec<String> = names.iter().map(|name| format!("{prefix}-{name}")).collect();
        for name in &names {
            ip(&["netns", "add", name]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        Self { prefix, names }
    }

    fn name(&self, namespace: &str) -> String {
        format!("{}-{namespace}", self.prefix)
    }

    /// Connects interface `left` in one namespace to `right` in another, and sets both up.
    pub(crate) fn cable(&self, (namespace, left): (&str, &str), (other, right): (&str, &str)) {
        let (from, to) = (self.name(namespace), self.name(other));
        ip(&[
            "link", "add", left, "netns", &from, "type", "veth", "peer", "name", right, "netns",
            &to,
        ]);
        self.ip(namespace, &["link", "set", left, "up"]);
        self.ip(other, &["link", "set", right, "up"]);
    }

    /// Runs `ip` inside a namespace.
    pub(crate) fn ip(&self, namespace: &str, arguments: &[&str]) {
        ip(&[&["-n", &self.name(namespace)], arguments].concat());
    }

    /// Makes a command run inside a namespace.
    pub(crate) fn wrap(&self, namespace: &str, command: &Command) -> Command {
        let mut wrapped = Command::new("ip");
        wrapped.args(["netns", "exec", &self.name(namespace)]);
        wrapped.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped
    }

    /// Runs a program inside a namespace for at most 30 seconds. Returns whether it succeeded, and its output.
    pub(crate) fn run(&self, namespace: &str, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "30"]).args(arguments);
        let output = self.wrap(namespace, &command).stdin(Stdio::null()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Makes a TCP server of this namespace reachable on a loopback port of another one.
    pub(crate) fn forward_to(&self, namespace: &str, server: SocketAddr) -> SocketAddr {
        let path = format!("/run/netns/{}", self.name(namespace));
        let listen = move || {
            let file = File::open(path).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            TcpListener::bind("127.0.0.1:0").unwrap()
        };
        // A socket stays in the namespace in which it was created.
        let listener = std::thread::spawn(listen).join().unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            while let Ok((inside, _)) = listener.accept() {
                let Ok(outside) = TcpStream::connect(server) else { continue };
                copy(inside.try_clone().unwrap(), outside.try_clone().unwrap());
                copy(outside, inside);
            }
        });
        address
    }
}

impl Drop for TestNamespaces {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

/// Copies one direction of a connection on its own thread.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {output:?}");
}
